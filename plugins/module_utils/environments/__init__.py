"""Python environments on hosts: their names, their locks, and their installation."""
