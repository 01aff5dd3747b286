"""Python environments on hosts: their names and locks, and their installation."""
