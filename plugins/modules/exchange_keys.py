"""The documentation of the action of this name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: exchange_keys
short_description: give each host what it needs of the keys of the other hosts
description:
  - >-
      Runs once, on the controller. For the mesh V(ssh) it signs certificates with an authority of the
      inventory; for V(wireguard) it stores and returns public keys.
author: psfleet (@psfleet)
options:
  mesh:
    description: Which keys are exchanged.
    type: str
    required: true
    choices: [ssh, wireguard]
  told:
    description: >-
        What each host reported about its keys. For V(ssh), it is the fact V(psfleet_identity); for V(wireguard), it is
        the public key, or empty if there is no key yet.
    type: dict
    required: true
  directory:
    description: For V(ssh), the folder of the signing authority.
    type: path
  user:
    description: For V(ssh), the login account for which the certificates are.
    type: str
  days:
    description: For V(ssh), how many days a certificate of a V(host) and of a V(user) is valid.
    type: dict
  file:
    description: For V(wireguard), the file that keeps the keys.
    type: path
attributes:
  check_mode:
    support: full
    description: It signs and stores nothing.
"""

EXAMPLES = r"""
- name: Exchange the keys of the mesh
  psfleet.cluster.exchange_keys:
    mesh: wireguard
    file: .state/wireguard.json
    told: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'told'))) }}"
  register: known
  run_once: true
"""

RETURN = r"""
hosts:
  description: The hosts as in the fact V(cluster_mesh), each with its C(public_key).
  returned: V(wireguard)
  type: dict
authorities:
  description: The public key of the authority for each kind of certificate.
  returned: V(ssh)
  type: dict
certificates:
  description: The certificates of each host, by kind.
  returned: V(ssh)
  type: dict
revoked:
  description: The revocation list, in base64.
  returned: V(ssh)
  type: str
ports:
  description: The port of sshd on each host.
  returned: V(ssh)
  type: dict
"""
