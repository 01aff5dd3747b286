"""Hosts that one action on another host asks: each by its own variables, and with no secret but its own."""

import os
import subprocess
import sys
from pathlib import Path

from tests.repository import HERE, played, written_play

# It replaces sudo on one host: it notes the password that it is given, or that it is given none.
SUDO = """#!/bin/sh
given=none
while [ "$1" != /bin/sh ]; do
  [ "$1" = -p ] && { printf '%s' "$2" >&2; read -r given; }
  shift
done
echo "${0##*/}: $given" >> NOTED
exec "$@"
"""
INVENTORY = """
all:
  hosts:
    first: {ansible_become_password: !vault "VAULTED"}
    second: {ansible_become_pass: "{{ 'of the' ~ ' second' }}"}
    third: {}
    fourth: {ansible_connection: none_such}
  vars:
    ansible_connection: local
    ansible_become_exe: "FOLDER/{{ inventory_hostname }}"
"""


def test_each_host_is_asked_with_its_own_password_and_no_other(tmp_path: Path) -> None:
    noted, vault = tmp_path / "noted", tmp_path / "vault"
    vault.write_text("key")
    encrypted = subprocess.run(
        [Path(sys.executable).with_name("ansible-vault"), "encrypt_string", "of the first"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=os.environ | {"ANSIBLE_VAULT_PASSWORD_FILE": str(vault)},
    )
    lines = [line.strip() for line in encrypted.stdout.splitlines()[1:]]
    for host in ("first", "second", "third"):
        (tmp_path / host).write_text(SUDO.replace("NOTED", str(noted)))
        (tmp_path / host).chmod(0o755)
    hosts = tmp_path / "hosts.yml"
    hosts.write_text(INVENTORY.replace("VAULTED", "\\n".join(lines)).replace("FOLDER", str(tmp_path)))
    show = {"psfleet.cluster.show": {"page": "runs", "runs_directory": "runs"}, "run_once": True}
    paths = {f"{of}_directory": str(tmp_path) for of in ("configuration", "state", "log")}
    play = written_play(tmp_path, show, become=True, vars={"cluster_paths": paths})
    options = ("-i", hosts, "--vault-password-file", vault, *HERE[2:])
    done = played(play, *options, ANSIBLE_BECOME_ALLOW_SAME_USER="1")
    assert sorted(noted.read_text().splitlines()) == [
        "first: of the first",
        "second: of the second",
        "third: none",
    ]
    assert "the connection plugin 'none_such' was not found" in done.stdout
