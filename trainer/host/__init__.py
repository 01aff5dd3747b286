"""What the files and units of a host's tasks say, for the trainer and for Ansible's modules alike.

`plugins/module_utils/host` is a link to this folder. So nothing here imports more than Python itself has, and
these files name each other by relative imports alone.
"""
