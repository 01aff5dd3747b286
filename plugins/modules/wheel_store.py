"""The documentation of the action of this name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: wheel_store
short_description: lock and download the wheels of Python environments to the controller
description:
  - Runs once, on the controller. Each environment becomes one archive, whose wheels are checked against the lock.
author: psfleet (@psfleet)
options:
  hosts:
    description: >-
      For each host C(environment), the name of its environment, and C(programs), for the key of each program's requirements the
      name of the program's environment; as in the fact C(psfleet_requirements).
    type: list
    elements: dict
    required: true
  installed:
    description: For each host, in the same order, the hashes of the environments that it has.
    type: list
    elements: list
    default: []
  locks:
    description: The folder of the locks.
    type: path
    required: true
  cache_directory:
    description: The cache on the controller.
    type: path
    required: true
  tensorboard:
    description: Whether to get the wheels of TensorBoard, which has an environment of its own, in place of TensorFlow's.
    type: bool
    default: false
  programs:
    description: >-
      The requirements of the user's programs, each with C(file), the path of a requirements.txt. The lock is written beside
      the file.
    type: list
    elements: dict
    default: []
attributes:
  check_mode:
    support: full
    description: It downloads nothing. Requirements of programs are still resolved, into the cache; archives that do not exist have no hash, and estimated sizes.
"""

EXAMPLES = r"""
- name: Get the wheels
  psfleet.cluster.wheel_store:
    hosts: [{environment: cpu-python3.11-x86_64}]
    locks: locks
    cache_directory: ~/.cache/psfleet
  register: wheels
  run_once: true
"""

RETURN = r"""
environments:
  description: >-
      For each name: C(python_version), such as V(3.11); C(lock_hash), the hash of the environment's lock; C(archive), the
      path of the archive on the controller; C(filled), whether the archive has an installed environment in place of
      wheels; C(archive_sha256); C(archive_bytes); C(environment_bytes), the size of the installed environment; C(base), the
      hash of the environment whose files it begins with, or empty; and C(removed), the packages that it does not keep of them.
  returned: success
  type: dict
programs:
  description: For each key of a program's requirements and name of its environment, as V(key/name), the same fields.
  returned: success
  type: dict
"""
