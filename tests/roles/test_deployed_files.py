"""The files that roles write to hosts."""

import json

from tests.roles.rendered import PLAN, SIGNED, files_of


def test_the_configuration_of_the_login_lists_each_host_of_the_plan_once() -> None:
    text = files_of("ssh_mesh")["/etc/psfleet/ssh/.ssh/config"]
    entries = [
        line.split() for line in text.splitlines() if line.startswith(("Host ", "    HostName", "    Port"))
    ]
    assert entries == [
        ["Host", "here"],
        ["HostName", "10.0.0.1"],
        ["Port", "22"],
        ["Host", "there"],
        ["HostName", "fd00::2"],
        ["Port", "2022"],
        ["Host", "here", "there"],
    ]


def test_the_files_of_unsigned_keys_contain_a_placeholder() -> None:
    signed = {**SIGNED, "authorities": {}, "certificates": {"here": {}}}
    found = files_of("ssh_mesh", __ssh_mesh_signed=signed)
    unsigned = [path for path, content in found.items() if "signed when" in content]
    assert [path.rpartition("/")[2] for path in unsigned] == [
        "user_ca.pub",
        "host-cert.pub",
        "id_ed25519-cert.pub",
        "known_hosts",
    ]


def test_a_plan_on_a_host_has_what_the_tasks_need_of_it() -> None:
    found = json.loads(files_of("trainer")["/etc/psfleet/plan.json"])
    assert found == {name: PLAN.to_json()[name] for name in ("version", "cluster_name", "hash", "tasks")}
