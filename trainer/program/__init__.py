"""Programs: their launcher, their process, the library with which they record steps, and the observer.

This room imports `process` and the floors below it. The library, which programs import, imports only the
standard library and files of `contract`.
"""
