"""A program of one's own: its launcher, its process, and the library with which it records its steps.

It imports `process` and what is below it. The library is for the program, and imports the standard library
and files of `contract` alone.
"""
