"""Checks a host's SSH keys, so that a host whose keys cannot be signed fails alone."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from psfleet.carry.certificates import (
    certificate_builder,
    foreign_authority,
    is_behind,
    own_authorities_file,
    source_addresses,
)
from trainer.host.wording import first_of

HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"


def identity_problem(
    host: str,
    arguments: Mapping[str, Any],
    answer: Mapping[str, Any],
    tasks: Iterable[Mapping[str, Any]] = (),
) -> str:
    """Return, in words, the first reason why the keys of a host cannot be signed; "" if they can.

    `arguments` are those of the part `identity` of host_facts, and `answer` is the host's answer to it.
    `arguments["authority"]` has the `directory` of the signing authority, and the name of its `cluster`.
    `tasks` are the host's tasks, as its answer to the part `found` has them.
    """
    user_key = f"{arguments['home']}/.ssh/id_ed25519.pub"
    try:
        anew = f"ssh-keygen -y -f {HOST_KEY} > {HOST_KEY}.pub"
        require_signable(str(answer["host_key"]), f"{HOST_KEY}.pub of {host}", anew)
        if text := str(answer["user_key"]):  # there is none before it is made
            require_signable(text, f"{user_key} of {host}", f"rm {user_key}")
        source_addresses(host, arguments["name"], answer["addresses"])
        run_ids = sorted({str(task["run_id"]) for task in tasks if task["alive"]})
        require_one_authority(host, answer, run_ids, **arguments["authority"])
    except (ValueError, OSError) as error:
        return str(error)
    return ""


def require_one_authority(
    host: str, answer: Mapping[str, Any], run_ids: Sequence[str], directory: str, cluster: str
) -> None:
    """Raise ValueError if the host belongs to `cluster` and accepts certificates of another authority.

    Also raise it if the host has a newer certificate than the authority in `directory` has signed. `answer`
    is the host's answer about its identity, and `run_ids` are the runs that are going on there.
    """
    other = foreign_authority(Path(directory), answer["authority"]) if answer["cluster"] == cluster else ""
    if other:
        last = f", last by {by}," if (by := answer["deployed_by"]) else ""
        runs = f"run {first_of(run_ids)}" if run_ids else ""
        raise ValueError(
            f"{host} belongs to another inventory, because it trusts another certificate authority of the "
            f"cluster {cluster} ({other}): it was deployed{last} from another controller, by another user, "
            f"or by an inventory at another path{f', and {runs} is going on there' if runs else ''}. "
            f"To take the host over{f', once {runs} has ended' if runs else ''}: ansible-playbook reset.yml "
            f"--limit {host}. To share it: copy the directory ssh_ca from there to {directory}. "
            "If that is lost, or no longer valid: echo "
            f"{other} >> {own_authorities_file(Path(directory))}, and deploy to all hosts"
        )
    if is_behind(Path(directory), host, answer["certificate"]):
        by = f" by {answer['deployed_by']}" if answer["deployed_by"] else ""
        raise ValueError(
            f"{host} was deployed{by} with a copy of {directory} that has signed, and perhaps revoked, more "
            "than this one knows. Use that directory in place of this one; if it is lost: "
            f"rm {directory}/signed/{host}/user-cert.pub"
        )


def require_signable(public_key: str, file: str, remedy: str) -> None:
    """Raise ValueError for an invalid public key; the message has its `file` and the command `remedy`."""
    try:
        certificate_builder(public_key)
    except ValueError as error:
        raise ValueError(
            f"the public key in {file} {error}. There, as root, then deploy again: {remedy}"
        ) from error
