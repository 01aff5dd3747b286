"""What the trainer and Ansible's modules both use on a host: its units and files, and words for people.

`plugins/module_utils/host/` has a link to each file here. So they import only Python's standard library, and
each other only by relative imports. What only modules use is in `plugins/module_utils/` itself.
"""
