"""The documentation of the action of this name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: carried_manifest
short_description: compute the hashes of files that are carried to hosts
description:
  - Runs on the controller, once for all hosts. A file whose size and time have not changed is not read again.
author: psfleet (@psfleet)
options:
  sources:
    description: The file or folder on the controller for each path below the directory on the hosts.
    type: dict
    required: true
  cache_directory:
    description: The cache on the controller, which gets the index.
    type: path
    required: true
  only:
    description: Carry just the files with this text in their names.
    type: str
    default: ''
attributes:
  check_mode:
    support: full
    description: It writes only into the cache of the controller.
"""

EXAMPLES = r"""
- name: Compute the hashes of the data
  psfleet.cluster.carried_manifest:
    sources: {'': "{{ cluster_data.source }}"}
    cache_directory: ~/.cache/psfleet
  run_once: true
"""

RETURN = r"""
index:
  description: Path of the index, for M(psfleet.cluster.carried_files).
  returned: always
  type: str
"""
