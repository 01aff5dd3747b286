"""Distinguishes the accounts that psfleet makes on a host from all others."""

from __future__ import annotations

import pwd
from collections.abc import Mapping
from contextlib import suppress

from .host.check import Finding, failed, merge_findings, ok

# The comments that the role ssh_mesh gives to its accounts; only root can write them.
COMMENTS = ("psfleet trainer", "psfleet login")


def is_ours(comment: str) -> bool:
    """Return whether psfleet made the account that has this comment in /etc/passwd.

    Only the text up to the first comma counts, because chfn adds its fields after a comma.
    """
    return comment.partition(",")[0] in COMMENTS


def read_accounts(names: Mapping[str, str]) -> dict[str, pwd.struct_passwd]:
    """Return {name: account} for the accounts that this host, or its directory service, knows.

    `names` is {name of an account: variable that contains it}, as for `accounts_finding`. Unknown accounts
    are not in the result.
    """
    accounts = {}
    for name in names:
        with suppress(KeyError):
            accounts[name] = pwd.getpwnam(name)
    return accounts


def accounts_finding(names: Mapping[str, str], accounts: Mapping[str, pwd.struct_passwd]) -> Finding:
    """Return the finding of the check `accounts`: failed if an account is not psfleet's own, else ok.

    `names` is {name of an account: variable that contains it}; `accounts` is the result of `read_accounts`,
    so a name without an account is ok.
    """
    failures = [
        failed(
            f"{names[name]} is {name}, an account that psfleet did not create (uid {entry.pw_uid}, home "
            f"{entry.pw_dir}); a deployment would disable its login",
            f"give {names[name]} a name that no account of the host has",
        )
        for name, entry in accounts.items()
        if not is_ours(entry.pw_gecos)
    ]
    return merge_findings(failures) if failures else ok(", ".join(names))
