"""The documentation of the action of this name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: wheel_store
short_description: lock and download the wheels of Python environments to the controller
description:
  - Runs once, on the controller. Each environment becomes one archive, whose wheels are checked against the lock.
author: psfleet (@psfleet)
options:
  environments:
    description: The names of the environments that hosts need.
    type: list
    elements: str
    required: true
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
  program_requirements:
    description: The requirements.txt of the user's programs. The lock of the packages that they add is written beside the first file.
    type: list
    elements: path
    default: []
attributes:
  check_mode:
    support: full
    description: It downloads nothing. Requirements of programs are still resolved, into the cache; archives that do not exist have no hash, and estimated sizes.
"""

EXAMPLES = r"""
- name: Get the wheels
  psfleet.cluster.wheel_store:
    environments: [cpu-python3.11-x86_64]
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
      wheels; C(archive_sha256); C(archive_bytes); C(environment_bytes), the size of the installed environment; and
      C(program), which has the same fields for the wheels that programs add, or is empty.
  returned: success
  type: dict
"""
