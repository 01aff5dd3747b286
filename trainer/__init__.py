"""The package that runs on every host; a release is a copy of this folder, byte for byte.

The commands are the files here. They use the rooms task, engine, model, coordination and program, process,
contract, and host. Each room imports only from the floors below its own.
"""
