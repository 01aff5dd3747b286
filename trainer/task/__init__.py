"""The life of a task: a worker from its start to its exit, the chief's duties, and the tasks that serve.

This room imports `engine` and the floors below it.
"""
