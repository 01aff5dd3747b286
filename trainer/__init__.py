"""The program that runs on every host: a release of it is this folder, byte for byte.

Commands stand here, what they are made of in rooms, each of which imports only from those below it:
task, engine, model, coordination and program, process, contract, host.
"""
