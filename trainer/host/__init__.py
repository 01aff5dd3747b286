"""A host's resources, host checks, units and files, for the trainer and for Ansible's modules.

`plugins/module_utils/host` is a link to this folder. So its files import only Python's standard library, and
each other only by relative imports.
"""
