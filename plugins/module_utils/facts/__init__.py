"""Reads facts about a host: its system, its GPUs, and what it lacks."""
