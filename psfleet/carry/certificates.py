"""The certificates by which the hosts and users of a cluster know each other over SSH.

Two keys on the controller, the authorities, sign them (OpenSSH's PROTOCOL.certkeys). What was signed is kept
beside the keys, and stays while it says what it should.
"""

import ipaddress
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


@dataclass(frozen=True)
class Wanted:
    """What a certificate should say: whose key, by which names, how long, from which address ("" for any)."""

    public_key: str
    identity: str
    principals: tuple[str, ...]
    days: int
    source_address: str = ""


def address_of(name: str) -> str:
    """Return an address, without the brackets of IPv6; a certificate cannot be bound to a name: ""."""
    with suppress(ValueError):
        return str(ipaddress.ip_address(name.strip("[]")))
    return ""


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


def signed(key: Ed25519PrivateKey, kind: Kind, wanted: Wanted, now: float) -> ssh.SSHCertificate:
    """Return a new certificate. Raises ValueError where the public key, which a host has told, is none."""
    try:
        public = serialization.load_ssh_public_key(wanted.public_key.encode())
        builder = ssh.SSHCertificateBuilder().public_key(public)  # type: ignore[arg-type]
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(f"what was told as the public key of {wanted.identity} is none: {error}") from error
    builder = (
        builder.type(_TYPES[kind])
        .key_id(wanted.identity.encode())
        .valid_principals([name.encode() for name in wanted.principals])
        .valid_after(now - _HOUR)  # clocks may be apart
        .valid_before(now + wanted.days * _DAY)
    )
    if wanted.source_address:
        builder = builder.add_critical_option(b"source-address", wanted.source_address.encode())
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
