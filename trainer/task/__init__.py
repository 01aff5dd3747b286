"""The life of a task: a worker with its steps, its duties as chief, its departure; a server, towers.

It imports `engine` and what is below it.
"""
