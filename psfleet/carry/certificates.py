"""The certificates by which the hosts and users of a cluster know each other over SSH.

Two keys on the controller, the authorities, sign them (OpenSSH's PROTOCOL.certkeys). What was signed is kept
beside the keys, and stays while it says what it should.
"""

import base64
import hashlib
import ipaddress
import secrets
import subprocess
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import ssh

Kind = Literal["host", "user"]
KINDS: tuple[Kind, ...] = ("host", "user")
_TYPES = {"host": ssh.SSHCertificateType.HOST, "user": ssh.SSHCertificateType.USER}
_OPENSSH = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
_PRIVATE = (
    serialization.Encoding.PEM,
    serialization.PrivateFormat.OpenSSH,
    serialization.NoEncryption(),
)
_HOUR, _DAY = 3_600, 86_400
_MOST_ADDRESSES = 8


@dataclass(frozen=True)
class Wanted:
    """What a certificate should say: whose key, by which names, how long, from where (none: anywhere)."""

    public_key: str
    identity: str
    principals: tuple[str, ...]
    days: int
    sources: tuple[str, ...] = ()


def source_addresses(host: str, name: str, told: Sequence[str]) -> tuple[str, ...]:
    """Return from where a host logs in: its address in the plan or, where that is a name, what it has told.

    Raises ValueError where it has told no address, or what is none.
    """
    with suppress(ValueError):
        return (str(ipaddress.ip_address(name.strip("[]"))),)
    try:
        addresses = tuple(str(ipaddress.ip_address(address)) for address in told[:_MOST_ADDRESSES])
    except ValueError as error:
        raise ValueError(f"{host} has told {str(list(told))[:200]} for the addresses of {name}") from error
    if not addresses:
        raise ValueError(
            f"{name} has no address on {host} itself, or that of its loopback alone, to which no certificate "
            f"can be bound: let /etc/hosts there say {name}'s address in place of 127.0.1.1, or set "
            "trainer_address to the address"
        )
    return addresses


def authority(directory: Path, kind: Kind, *, make: bool) -> Ed25519PrivateKey | None:
    """Return the key that signs certificates of a kind; None where there is none and none is to be made.

    Raises ValueError for one that others can read or that is none, and OSError.
    """
    file = directory / f"{kind}_ca"
    if not file.exists():
        if not make:
            return None
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = file.with_name(f".{file.name}.new")  # a key that is half written would be refused for ever
        fresh.touch(mode=0o600)
        fresh.write_bytes(Ed25519PrivateKey.generate().private_bytes(*_PRIVATE))
        fresh.replace(file)
    if (mode := file.stat().st_mode & 0o777) != 0o600:
        raise ValueError(
            f"{file} has mode {mode:04o}; expected 0600. Who reads this key can log in to every host of the "
            f"cluster. If nobody else can have read it: chmod 600 {file}. Otherwise remove {directory} and "
            "deploy again: new authorities replace it on every host."
        )
    try:
        key = serialization.load_ssh_private_key(file.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(f"{file} is not a key that can sign: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{file} is not a key of type ed25519")
    return key


def public_text(key: Ed25519PrivateKey) -> str:
    """Return the public half of an authority's key, as sshd and ssh take it."""
    return key.public_key().public_bytes(*_OPENSSH).decode()


def fingerprint(public_key: str) -> str:
    """Return the fingerprint of a public key, as `ssh-keygen -l` shows it; "" of what is none."""
    try:
        unsigned(public_key)
        blob = base64.b64decode(public_key.split()[1], validate=True)
    except (ValueError, IndexError):
        return ""
    return f"SHA256:{base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip('=')}"


def own_authorities(directory: Path) -> Path:
    """Return the file that names the authorities of users that hosts may have from here, earlier ones too.

    It is beside their directory, which goes when new ones are wanted.
    """
    return directory.with_name(f"{directory.name}.own")


def remember_own(directory: Path, key: Ed25519PrivateKey) -> None:
    """Note an authority among those that hosts may have from here. Raises OSError."""
    file, noted = own_authorities(directory), fingerprint(public_text(key))
    if not file.exists() or noted not in file.read_text(encoding="utf-8").split():
        with file.open("a", encoding="utf-8") as stream:
            stream.write(f"{noted}\n")


def foreign_authority(directory: Path, public_key: str) -> str:
    """Return the fingerprint of a host's authority of users that is none of this directory's; "" where it is.

    Raises OSError and ValueError.
    """
    found, file = fingerprint(public_key), own_authorities(directory)
    key = authority(directory, "user", make=False)
    own = {fingerprint(public_text(key))} if key else set()
    own |= {*file.read_text(encoding="utf-8").split()} if file.exists() else set()
    return "" if found in own else found


def is_behind(directory: Path, host: str, told: str) -> bool:
    """Tell whether a host has a certificate of its login that is newer than the one kept here for it.

    A copy of this directory has signed it since, and what is here lacks what that one has signed and revoked.
    """
    file = directory / "signed" / host / "user-cert.pub"
    with suppress(OSError, ValueError, InvalidSignature, UnsupportedAlgorithm):
        kept, there = (ssh.load_ssh_public_identity(text) for text in (file.read_bytes(), told.encode()))
        if isinstance(kept, ssh.SSHCertificate) and isinstance(there, ssh.SSHCertificate):
            there.verify_cert_signature()
            # A host has nothing else that this authority has signed for this login.
            by = [each.signature_key().public_bytes(*_OPENSSH) for each in (kept, there)]
            same = by[0] == by[1] and kept.key_id.split()[0] == there.key_id.split()[0]
            return same and there.valid_after > kept.valid_after
    return False


def unsigned(public_key: str) -> ssh.SSHCertificateBuilder:
    """Return the beginning of a certificate. Raises ValueError for what cannot be signed as a public key."""
    try:
        public = serialization.load_ssh_public_key(public_key.encode())
        return ssh.SSHCertificateBuilder().public_key(public)  # type: ignore[arg-type]
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(f"is none that can be signed: {error}") from error


def signed(key: Ed25519PrivateKey, kind: Kind, wanted: Wanted, now: float) -> ssh.SSHCertificate:
    """Return a new certificate. Raises ValueError where the public key, which a host has told, is none."""
    try:
        builder = unsigned(wanted.public_key)
    except ValueError as error:
        raise ValueError(f"what was told as the public key of {wanted.identity} {error}") from error
    builder = (
        builder.type(_TYPES[kind])
        .key_id(wanted.identity.encode())
        .serial(secrets.randbits(63))  # by which it is revoked
        .valid_principals([name.encode() for name in wanted.principals])
        .valid_after(now - _HOUR)  # clocks may be apart
        .valid_before(now + wanted.days * _DAY)
    )
    if wanted.sources:
        builder = builder.add_critical_option(b"source-address", ",".join(wanted.sources).encode())
    return builder.sign(key)


def kept_or_signed(
    file: Path, key: Ed25519PrivateKey, kind: Kind, wanted: Wanted, now: float
) -> tuple[str, bool]:
    """Return a certificate and whether it is a new one, which the caller keeps in `file`.

    One that was kept stays while it says the same and a third of its days is left. Raises ValueError.
    """
    fresh = signed(key, kind, wanted, now)
    with suppress(OSError, ValueError, InvalidSignature, UnsupportedAlgorithm):
        kept = ssh.load_ssh_public_identity(file.read_bytes())
        if isinstance(kept, ssh.SSHCertificate) and _says(kept) == _says(fresh):
            kept.verify_cert_signature()
            if kept.valid_after <= now and kept.valid_before >= now + wanted.days * _DAY / 3:
                return kept.public_bytes().decode(), False
    return fresh.public_bytes().decode(), True


def revoke_departed(directory: Path, hosts: Collection[str], *, make: bool) -> tuple[bytes, bool]:
    """Return the list of what is revoked, which sshd and ssh read, and whether it is a new one.

    On it is all that was kept as signed below `directory` for other hosts than these, now or earlier; not
    what was signed for a host that has come back since. `make`: it may be written. Raises OSError.
    """
    signed, revoked, listed = directory / "signed", directory / "revoked", directory / "revoked.krl"
    left = [file for folder in signed.glob("*") if folder.name not in hosts for file in folder.glob("*.pub")]
    is_new = bool(left) or not listed.exists()
    if is_new and make:
        revoked.mkdir(parents=True, exist_ok=True)
        for file in left:
            file.replace(revoked / f"{secrets.token_hex(8)}-{file.name}")
        fresh = listed.with_name(f".{listed.name}.new")
        certificates = map(str, sorted(revoked.iterdir()))
        command = ["ssh-keygen", "-q", "-k", "-f", str(fresh), "/dev/null", *certificates]
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
        fresh.replace(listed)
    return (listed.read_bytes() if listed.exists() else b""), is_new


def _says(certificate: ssh.SSHCertificate) -> tuple[object, ...]:
    """Return all that a certificate says but for how long."""
    return (
        certificate.type,
        certificate.public_key().public_bytes(*_OPENSSH),
        certificate.signature_key().public_bytes(*_OPENSSH),
        certificate.key_id,
        certificate.valid_principals,
        certificate.critical_options,
        certificate.extensions,
    )
