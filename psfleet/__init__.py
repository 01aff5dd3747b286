"""What the controller computes, from the inventory to the verdict. Nothing here is carried to a host.

Of the code on hosts it knows `trainer.contract`, `trainer.host` and `plugins.module_utils`. It needs neither
TensorFlow nor a connection: Ansible's plugins bring what hosts said, and do what follows from it.
"""
