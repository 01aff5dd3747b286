import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import ssh

from plugins.action import exchange_keys
from psfleet.carry.certificates import public_text
from tests.plugins.modules.module_run import action_of

KEYS = [public_text(Ed25519PrivateKey.generate()) for _ in range(4)]
PLAN = {
    "cluster_name": "lab",
    "tasks": [{"host": "Node1", "address": "[FE80::1]"}, {"host": "node2", "address": "node2.example.org"}],
}


def certify(directory: Path, *, check_mode: bool = False, second: str = KEYS[3]) -> dict[str, Any]:
    told = {
        "Node1": {"host_key": KEYS[0], "user_key": KEYS[2], "addresses": []},
        "node2": {"host_key": KEYS[1], "user_key": second, "addresses": ["10.0.0.2", "fd00::2"]},
    }
    days = {"host": 365, "user": 90}
    asked = {"mesh": "ssh", "directory": str(directory), "user": "psfleet-ssh", "told": told, "days": days}
    hosts = {
        "Node1": {"ansible_port": 2022},
        "node2": {"ansible_port": 2022, "ssh_mesh_port": 22000},
        "new": {},
    }
    action = action_of(exchange_keys.ActionModule, check=check_mode, cluster_plan=PLAN, hostvars=hosts)
    return dict(action._act(asked))


def test_the_ssh_port_of_a_host_is_the_one_that_other_hosts_reach(tmp_path: Path) -> None:
    assert certify(tmp_path)["ports"] == {"Node1": 2022, "node2": 22000}


def test_host_certificates_have_lower_case_names_and_user_certificates_have_source_addresses(
    tmp_path: Path,
) -> None:
    said = {}
    for host, texts in certify(tmp_path)["certificates"].items():
        for kind, text in texts.items():
            its = ssh.load_ssh_public_identity(text.encode())
            assert isinstance(its, ssh.SSHCertificate)
            said[f"{kind} {host}"] = (its.key_id, its.valid_principals, its.critical_options)
    assert said == {
        "host Node1": (b"Node1 of lab", [b"node1", b"fe80::1"], {}),
        "host node2": (b"node2 of lab", [b"node2", b"node2.example.org"], {}),
        "user Node1": (b"psfleet-ssh@Node1 of lab from fe80::1", [b"lab"], {b"source-address": b"fe80::1"}),
        "user node2": (
            b"psfleet-ssh@node2 of lab from 10.0.0.2 or fd00::2",
            [b"lab"],
            {b"source-address": b"10.0.0.2,fd00::2"},
        ),
    }


def test_check_mode_signs_nothing_and_returns_existing_certificates(tmp_path: Path) -> None:
    nothing: dict[str, dict[str, str]] = {"Node1": {}, "node2": {}}
    checked = certify(tmp_path / "ca", check_mode=True)
    assert (checked["authorities"], checked["certificates"]) == ({}, nothing)
    assert not (tmp_path / "ca").exists()
    made = certify(tmp_path / "ca", second="")
    assert made["changed"]
    assert sorted(made["certificates"]["node2"]) == ["host"]
    assert certify(tmp_path / "ca", second="") == made | {"changed": False}
    checked = certify(tmp_path / "ca", check_mode=True)
    assert checked == made | {"changed": True}
    assert not (tmp_path / "ca/signed/node2/user-cert.pub").exists()


def test_a_host_with_an_invalid_key_is_named(tmp_path: Path) -> None:
    refused = certify(tmp_path, second="no key")
    assert refused["failed"]
    assert (
        "the reported public key of psfleet-ssh@node2 of lab from 10.0.0.2 or fd00::2 is not a key"
        in refused["msg"]
    )


def test_simultaneous_first_deployments_create_one_authority(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = [*threads.map(lambda _: certify(tmp_path / "new" / "ca"), range(8))]
    assert [answer.get("msg") for answer in answers] == [None] * 8
    assert len({json.dumps([answer["authorities"], answer["certificates"]]) for answer in answers}) == 1
    assert sum(answer["changed"] for answer in answers) == 1
