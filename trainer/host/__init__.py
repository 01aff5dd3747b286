"""What the files and units of a host's tasks say, for the trainer and for Ansible's modules alike.

ansible.cfg names this folder for `module_utils`. So nothing here imports more than Python itself has, and
these files name each other by relative imports alone.
"""
