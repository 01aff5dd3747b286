"""Reading what a host is: its system, its GPUs, and what it lacks."""
