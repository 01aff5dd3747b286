import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from psfleet.carry import certificates
from psfleet.carry.certificates import CertificateContent, Kind

NOW, DAY = 1_800_000_000.0, 86_400
KEY = Ed25519PrivateKey.generate()
HOST_KEY, OTHER_KEY = (certificates.public_text(Ed25519PrivateKey.generate()) for _ in range(2))
WANTED = CertificateContent(HOST_KEY, "psfleet@node1 of lab", ("lab", "node1"), 90, ("10.0.0.1", "fd00::1"))


def kept(
    file: Path,
    wanted: CertificateContent = WANTED,
    key: Ed25519PrivateKey = KEY,
    kind: Kind = "user",
    at: float = 0,
) -> bool:
    text, is_new = certificates.stored_or_new(file, key, kind, wanted, NOW + at)
    if is_new:
        file.write_text(text)
    return not is_new


def shown_by_openssh(file: Path) -> str:
    return subprocess.run(
        ["ssh-keygen", "-L", "-f", file], check=True, capture_output=True, text=True, env={"TZ": "UTC"}
    ).stdout


def test_openssh_reads_a_certificate_with_the_requested_content(tmp_path: Path) -> None:
    file = tmp_path / "user-cert.pub"
    kept(file)
    lines = [line.strip() for line in shown_by_openssh(file).splitlines()[1:]]
    assert lines[0].endswith("user certificate")
    assert 'Key ID: "psfleet@node1 of lab"' in lines
    assert "Valid: from 2027-01-15T07:00:00 to 2027-04-15T08:00:00" in lines
    assert lines[lines.index("Principals:") :] == [
        "Principals:",
        "lab",
        "node1",
        "Critical Options:",
        "source-address 10.0.0.1,fd00::1",
        "Extensions: (none)",
    ]
    kept(file, replace(WANTED, sources=()), kind="host")
    assert "host certificate" in shown_by_openssh(file)
    assert "Critical Options: (none)" in shown_by_openssh(file)


def test_a_certificate_is_kept_until_two_thirds_of_its_days_have_passed(tmp_path: Path) -> None:
    file = tmp_path / "user-cert.pub"
    assert not kept(file)
    assert kept(file)
    assert kept(file, at=60 * DAY)
    assert not kept(file, at=60 * DAY + 1)
    assert kept(file, at=60 * DAY)
    assert not kept(file, at=-DAY)  # the controller's clock was ahead


@pytest.mark.parametrize(
    "other",
    [
        {"public_key": OTHER_KEY},
        {"identity": "psfleet@node2 of lab"},
        {"principals": ("lab",)},
        {"sources": ("10.0.0.1",)},
        {"sources": ()},
        {"days": 365},
    ],
)
def test_a_certificate_with_other_content_is_signed_again(tmp_path: Path, other: dict[str, object]) -> None:
    file = tmp_path / "user-cert.pub"
    kept(file)
    assert not kept(file, replace(WANTED, **other))  # type: ignore[arg-type]
    assert kept(file, replace(WANTED, **other))  # type: ignore[arg-type]


def test_a_certificate_that_is_damaged_or_of_another_authority_or_kind_is_signed_again(
    tmp_path: Path,
) -> None:
    file = tmp_path / "user-cert.pub"
    kept(file)
    assert not kept(file, key=Ed25519PrivateKey.generate())
    assert not kept(file)
    assert not kept(file, kind="host")
    for damaged in ("", "x", HOST_KEY, file.read_text()[:-30] + "A" * 28 + "=="):
        file.write_text(damaged)
        assert not kept(file, kind="host"), damaged
    assert kept(file, kind="host")


@pytest.mark.parametrize("told", ["", "x", "ssh-ed25519 AAAA", "ssh-rsa !", "a" * 20_000, "\0", "é"])
def test_an_invalid_public_key_of_a_host_is_refused(tmp_path: Path, told: str) -> None:
    with pytest.raises(ValueError, match="public key of psfleet@node1 of lab is not a key that can"):
        kept(tmp_path / "user-cert.pub", replace(WANTED, public_key=told))


def test_an_authority_is_created_once_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    directory = tmp_path / "lab" / "ssh_ca"
    assert certificates.authority(directory, "host", make=False) is None
    assert not directory.exists()
    made = certificates.authority(directory, "host", make=True)
    assert (directory.stat().st_mode & 0o777, (directory / "host_ca").stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )
    again = certificates.authority(directory, "host", make=True)
    assert made
    assert again
    assert certificates.public_text(made) == certificates.public_text(again)
    printed = subprocess.run(
        ["ssh-keygen", "-y", "-f", directory / "host_ca"], check=True, capture_output=True, text=True
    ).stdout
    assert printed.strip() == certificates.public_text(made)


@pytest.mark.parametrize(
    ("made_by", "says"),
    [
        ("chmod 0640 {}", "has mode 0640; expected 0600.*new authorities replace it on every host.$"),
        ("truncate --size 100 {}", "is not a key that can sign"),
        ("rm {0}; ssh-keygen -q -t rsa -N '' -f {0}", "is not a key of type ed25519"),
        ("ssh-keygen -q -p -P '' -N secret -f {}", "is not a key that can sign"),
    ],
)
def test_an_unusable_authority_is_refused(tmp_path: Path, made_by: str, says: str) -> None:
    certificates.authority(tmp_path, "user", make=True)
    subprocess.run(["sh", "-c", made_by.format(tmp_path / "user_ca")], check=True)
    with pytest.raises(ValueError, match=says):
        certificates.authority(tmp_path, "user", make=True)


@pytest.mark.parametrize(
    ("name", "told", "addresses"),
    [
        ("10.0.0.1", ["10.9.9.9"], ["10.0.0.1"]),
        ("[FD00::1]", [], ["fd00::1"]),
        ("node1", ["10.0.0.1", "FD00::1"], ["10.0.0.1", "fd00::1"]),
        ("node1", [f"10.0.0.{last}" for last in range(99)], [f"10.0.0.{last}" for last in range(8)]),
    ],
)
def test_a_login_is_restricted_to_the_hosts_address_of_the_plan_or_those_of_its_name(
    name: str, told: list[str], addresses: list[str]
) -> None:
    assert certificates.source_addresses("node1", name, told) == tuple(addresses)


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ([], "node1.lab has no address on node1 itself, .* in place of 127.0.1.1"),
        (["0.0.0.0/0"], "node1 reported .*0.0.0.0/0"),
        (["10.0.0.1,10.0.0.2"], "as the addresses of node1.lab"),
        (["\x1b[2J" * 99], r"reported \['.{190,200} as the addresses"),
    ],
)
def test_a_host_that_reports_no_valid_address_gets_no_login(told: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        certificates.source_addresses("node1", "node1.lab", told)
    assert str(refused.value).isprintable()


def is_revoked(directory: Path, host: str) -> bool:
    """Return whether OpenSSH finds the last certificate of a host in the revocation list."""
    files = [*directory.glob(f"*/{host}/user-cert.pub")]
    done = subprocess.run(
        ["ssh-keygen", "-Q", "-f", directory / "revoked.krl", *files],
        check=False,
        capture_output=True,
        text=True,
    )
    assert len(files) == 1, done.stderr
    return "REVOKED" in done.stdout


def test_certificates_of_a_departed_host_are_revoked_and_new_ones_after_its_return_are_not(
    tmp_path: Path,
) -> None:
    def sign(host: str) -> Path:
        file = tmp_path / "signed" / host / "user-cert.pub"
        file.parent.mkdir(parents=True, exist_ok=True)
        assert not kept(file)
        return file

    first = sign("node1").read_bytes()
    sign("node2")
    nothing, is_new = certificates.revoke_departed(tmp_path, {"node1", "node2"}, make=False)
    assert (nothing, is_new, (tmp_path / "revoked.krl").exists()) == (b"", True, False)
    listed, is_new = certificates.revoke_departed(tmp_path, {"node1", "node2"}, make=True)
    assert (is_new, is_revoked(tmp_path, "node1")) == (True, False)
    assert certificates.revoke_departed(tmp_path, {"node1", "node2"}, make=True) == (listed, False)

    assert certificates.departed_hosts(tmp_path, {"node2"}) == ["node1"]
    listed, is_new = certificates.revoke_departed(tmp_path, {"node2"}, make=True)
    assert certificates.departed_hosts(tmp_path, {"node2"}) == []
    assert (is_new, is_revoked(tmp_path, "node2")) == (True, False)
    (tmp_path / "old/node1").mkdir(parents=True)
    (tmp_path / "old/node1/user-cert.pub").write_bytes(first)
    assert is_revoked(tmp_path, "node1")
    assert certificates.revoke_departed(tmp_path, {"node2"}, make=True) == (listed, False)
    (tmp_path / "old/node1/user-cert.pub").unlink()
    sign("node1")
    assert certificates.revoke_departed(tmp_path, {"node1", "node2"}, make=True) == (listed, False)
    assert not is_revoked(tmp_path, "node1")
