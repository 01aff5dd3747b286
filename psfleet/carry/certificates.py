"""The SSH certificates with which a cluster's hosts and users authenticate to each other.

Two keys on the controller, the authorities, sign them (OpenSSH's PROTOCOL.certkeys). Signed certificates are
stored beside the keys, and used again as long as their content is right.
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
class CertificateContent:
    """The wanted content of a certificate.

    `public_key` is the key to certify, in OpenSSH's format; `identity` names it in logs. `principals` are the
    names of hosts or users for which it is valid, for `days` days. Without `sources`, which are addresses, it
    is valid from any address.
    """

    public_key: str
    identity: str
    principals: tuple[str, ...]
    days: int
    sources: tuple[str, ...] = ()


def source_addresses(host: str, name: str, reported: Sequence[str]) -> tuple[str, ...]:
    """Return the IP addresses from which a host logs in.

    `name` is the host's address in the plan: if it is an IP address, return it alone, without brackets; if it
    is a name, return the first 8 addresses `reported` by the host. Raises ValueError if `name` is a name, and
    the host reported no address or an invalid one.
    """
    with suppress(ValueError):
        return (str(ipaddress.ip_address(name.strip("[]"))),)
    try:
        addresses = tuple(str(ipaddress.ip_address(address)) for address in reported[:_MOST_ADDRESSES])
    except ValueError as error:
        raise ValueError(f"{host} reported {str(list(reported))[:200]} as the addresses of {name}") from error
    if not addresses:
        raise ValueError(
            f"{name} has no address on {host} itself, or that of its loopback alone, to which no certificate "
            f"can be bound: let /etc/hosts there say {name}'s address in place of 127.0.1.1, or set "
            "trainer_address to the address"
        )
    return addresses


def authority(directory: Path, kind: Kind, *, make: bool) -> Ed25519PrivateKey | None:
    """Return the key that signs certificates of a kind; None if it does not exist and `make` is False.

    With `make`, a missing key is created in `directory`. Raises OSError, and ValueError if the mode of the
    key's file is not 0600 or the file contains no usable key.
    """
    file = directory / f"{kind}_ca"
    if not file.exists():
        if not make:
            return None
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = file.with_name(f".{file.name}.new")  # a partly written key would be refused for ever
        fresh.touch(mode=0o600)
        fresh.write_bytes(Ed25519PrivateKey.generate().private_bytes(*_PRIVATE))
        fresh.replace(file)
    if (mode := file.stat().st_mode & 0o777) != 0o600:
        raise ValueError(
            f"{file} has mode {mode:04o}; expected 0600. Anyone who reads this key can log in to every host "
            f"of the cluster. If nobody else can have read it: chmod 600 {file}. Otherwise remove "
            f"{directory} and deploy again: new authorities replace it on every host."
        )
    try:
        key = serialization.load_ssh_private_key(file.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(f"{file} is not a key that can sign: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{file} is not a key of type ed25519")
    return key


def public_text(key: Ed25519PrivateKey) -> str:
    """Return the public half of an authority's key, in OpenSSH's format."""
    return key.public_key().public_bytes(*_OPENSSH).decode()


def fingerprint(public_key: str) -> str:
    """Return the fingerprint of a public key, as `ssh-keygen -l` prints it; "" for an invalid key."""
    try:
        certificate_builder(public_key)
        blob = base64.b64decode(public_key.split()[1], validate=True)
    except (ValueError, IndexError):
        return ""
    return f"SHA256:{base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip('=')}"


def own_authorities_file(directory: Path) -> Path:
    """Return the path of the file with the fingerprints of all user authorities of this controller.

    It lists earlier authorities, too, and lies beside `directory`, the authorities' directory, because users
    remove that directory to get new authorities. The file need not exist.
    """
    return directory.with_name(f"{directory.name}.own")


def record_own_authority(directory: Path, key: Ed25519PrivateKey) -> None:
    """Add the fingerprint of an authority to the file of `own_authorities_file`, if it is not there yet.

    Raises OSError.
    """
    file, own = own_authorities_file(directory), fingerprint(public_text(key))
    if not file.exists() or own not in file.read_text(encoding="utf-8").split():
        with file.open("a", encoding="utf-8") as stream:
            stream.write(f"{own}\n")


def foreign_authority(directory: Path, public_key: str) -> str:
    """Return the fingerprint of a host's user authority if it is neither this controller's nor was; else "".

    `public_key` is the key of the host's authority; if it is invalid, return "". Raises OSError, and
    ValueError as `authority` does.
    """
    found, file = fingerprint(public_key), own_authorities_file(directory)
    key = authority(directory, "user", make=False)
    own = {fingerprint(public_text(key))} if key else set()
    own |= {*file.read_text(encoding="utf-8").split()} if file.exists() else set()
    return "" if found in own else found


def is_behind(directory: Path, host: str, reported: str) -> bool:
    """Return whether a host has a newer login certificate than the one that is stored in `directory`.

    If so, a copy of this directory has signed the newer one, and this directory does not know what the copy
    signed and revoked. `reported` is the host's certificate as text. Return False if one of the two is
    missing or invalid, or if they are of different authorities or logins.
    """
    file = directory / "signed" / host / "user-cert.pub"
    with suppress(OSError, ValueError, InvalidSignature, UnsupportedAlgorithm):
        kept, there = (ssh.load_ssh_public_identity(text) for text in (file.read_bytes(), reported.encode()))
        if isinstance(kept, ssh.SSHCertificate) and isinstance(there, ssh.SSHCertificate):
            there.verify_cert_signature()
            # This authority signs nothing else for this login on a host.
            by = [each.signature_key().public_bytes(*_OPENSSH) for each in (kept, there)]
            same = by[0] == by[1] and kept.key_id.split()[0] == there.key_id.split()[0]
            return same and there.valid_after > kept.valid_after
    return False


def certificate_builder(public_key: str) -> ssh.SSHCertificateBuilder:
    """Return a builder for a certificate of this key, in OpenSSH's format. The key is not signed yet.

    Raises ValueError if the key cannot be certified.
    """
    try:
        public = serialization.load_ssh_public_key(public_key.encode())
        return ssh.SSHCertificateBuilder().public_key(public)  # type: ignore[arg-type]
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(f"is not a key that can be signed: {error}") from error


def sign_certificate(
    key: Ed25519PrivateKey, kind: Kind, wanted: CertificateContent, now: float
) -> ssh.SSHCertificate:
    """Return a new certificate of `kind`, which `key` signs; `now` is the time in Unix seconds.

    Raises ValueError if the public key, which a host reported, is invalid.
    """
    try:
        builder = certificate_builder(wanted.public_key)
    except ValueError as error:
        raise ValueError(f"the reported public key of {wanted.identity} {error}") from error
    builder = (
        builder.type(_TYPES[kind])
        .key_id(wanted.identity.encode())
        .serial(secrets.randbits(63))  # revocation lists name it
        .valid_principals([name.encode() for name in wanted.principals])
        .valid_after(now - _HOUR)  # clocks may differ
        .valid_before(now + wanted.days * _DAY)
    )
    if wanted.sources:
        builder = builder.add_critical_option(b"source-address", ",".join(wanted.sources).encode())
    return builder.sign(key)


def stored_or_new(
    file: Path, key: Ed25519PrivateKey, kind: Kind, wanted: CertificateContent, now: float
) -> tuple[str, bool]:
    """Return (certificate as text, True if it is new). The caller stores a new one in `file`.

    The stored certificate is returned if it is valid, its content is the same and at least a third of its
    days are left. `now` is the time in Unix seconds. Raises ValueError if the public key is invalid.
    """
    fresh = sign_certificate(key, kind, wanted, now)
    with suppress(OSError, ValueError, InvalidSignature, UnsupportedAlgorithm):
        stored = ssh.load_ssh_public_identity(file.read_bytes())
        if isinstance(stored, ssh.SSHCertificate) and _content(stored) == _content(fresh):
            stored.verify_cert_signature()
            if stored.valid_after <= now and stored.valid_before >= now + wanted.days * _DAY / 3:
                return stored.public_bytes().decode(), False
    return fresh.public_bytes().decode(), True


def departed_hosts(directory: Path, hosts: Collection[str]) -> list[str]:
    """Return the hosts with valid certificates below `directory` that are not in `hosts`, sorted."""
    return sorted(
        folder.name
        for folder in (directory / "signed").glob("*")
        if folder.name not in hosts and any(folder.glob("*.pub"))
    )


def revoke_departed(directory: Path, hosts: Collection[str], *, make: bool) -> tuple[bytes, bool]:
    """Return (content of the revocation list for sshd and ssh, whether the list changes).

    The list names every certificate that was ever stored below `directory` for a host that is not in `hosts`.
    If such a host comes back, certificates that are signed after that are valid. The list changes if hosts
    departed since the last call with `make`, or if there is no list yet. With `make`, the changed list is
    written and returned. Without `make`, nothing is written, and the content is the present list, b"" if
    there is none. Raises OSError, and CalledProcessError if ssh-keygen fails.
    """
    signed, revoked, revocation_list = directory / "signed", directory / "revoked", directory / "revoked.krl"
    departed = [file for host in departed_hosts(directory, hosts) for file in (signed / host).glob("*.pub")]
    is_new = bool(departed) or not revocation_list.exists()
    if is_new and make:
        revoked.mkdir(parents=True, exist_ok=True)
        for file in departed:
            file.replace(revoked / f"{secrets.token_hex(8)}-{file.name}")
        fresh = revocation_list.with_name(f".{revocation_list.name}.new")
        certificates = map(str, sorted(revoked.iterdir()))
        command = ["ssh-keygen", "-q", "-k", "-f", str(fresh), "/dev/null", *certificates]
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
        fresh.replace(revocation_list)
    return (revocation_list.read_bytes() if revocation_list.exists() else b""), is_new


def _content(certificate: ssh.SSHCertificate) -> tuple[object, ...]:
    """Return the content of a certificate that is compared: all but the validity and the serial number."""
    return (
        certificate.type,
        certificate.public_key().public_bytes(*_OPENSSH),
        certificate.signature_key().public_bytes(*_OPENSSH),
        certificate.key_id,
        certificate.valid_principals,
        certificate.critical_options,
        certificate.extensions,
    )
