"""The deployment on a host: its environment, the release of the trainer, and the plan."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .content_directory import HASH_DIGITS
from .environments.environment import TENSORFLOW_VERSION
from .host.check import Finding, failed, ok, skipped, warning
from .host.task_traces import bytes_of, read_object

NOT_DEPLOYED = "not deployed"
MARKER = ".complete"
# Enough for a plan with thousands of tasks. The file is root's, so its size is no attack.
MOST_BYTES_OF_PLAN = 64 * 1024 * 1024


@dataclass(frozen=True)
class Deployment:
    """What a host uses.

    - `plan`: the hash of the plan, "" if nothing is deployed.
    - `environment`, `release`: the hashes to which the links `environment` and `current` point, "" without
      the link.
    - `tensorflow`: the version of TensorFlow in this environment, "" if the environment is not complete.
    """

    plan: str = ""
    environment: str = ""
    tensorflow: str = ""
    release: str = ""


@dataclass(frozen=True)
class TodaysHashes:
    """What deploy.yml would deploy today: the hashes of the plan, the trainer's release, and the host's lock.

    `lock` is "" if the host is not supported.
    """

    plan: str
    release: str
    lock: str


def deployed_plan(file: Path, plan_hash: str) -> dict[str, Any]:
    """Return the plan in `file`, as its JSON object; only {"hash": plan_hash} if the plan has this hash.

    Return {} if `plan_hash` is "", or if the file is missing or has no plan.
    """
    plan = read_object(file, most=MOST_BYTES_OF_PLAN) if plan_hash else {}
    return {"hash": plan_hash} if plan.get("hash") == plan_hash else plan


def is_complete(environment: Path) -> bool:
    """Return whether the environment in the directory `environment` was installed completely.

    This is so if it has the marker file that root wrote last. A package cannot write as root.
    """
    marker = environment / MARKER
    return marker.is_file() and marker.lstat().st_uid == 0


def is_installed(install_directory: Path, lock: str) -> bool:
    """Return whether the environment of the lock with the hash `lock` is complete; False for the hash ""."""
    return bool(lock) and is_complete(install_directory / "environments" / lock)


def read_deployment(install_directory: Path, configuration_directory: Path) -> Deployment:
    """Return the deployment of this host; its fields are "" where nothing is deployed."""
    plan = read_object(configuration_directory / "plan.json", most=MOST_BYTES_OF_PLAN)
    return Deployment(
        plan=str(plan.get("hash") or ""),
        environment=linked_hash(install_directory, "environment"),
        tensorflow=installed_tensorflow(install_directory),
        release=linked_hash(install_directory, "current"),
    )


def program_environments(install_directory: Path) -> dict[str, str]:
    """Return {key of a program's requirements: hash of the environment to which their link points}."""
    links = install_directory.glob(f"environment-{'[0-9a-f]' * HASH_DIGITS}")
    found = {link.name.partition("-")[2]: linked_hash(install_directory, link.name) for link in links}
    return {key: name for key, name in found.items() if is_installed(install_directory, name)}


def installed_tensorflow(install_directory: Path) -> str:
    """Return the version of TensorFlow in the environment that tasks use, such as "2.21.0".

    Return "" if there is no environment, or if it is not complete.
    """
    marker = bytes_of(_target(install_directory / "environment") / MARKER).decode("utf-8", "replace")
    words = marker.split()
    return words[1] if len(words) == 2 and words[0] == "tensorflow" else ""


def lacks_cuda(install_directory: Path) -> bool:
    """Return whether the TensorFlow that tasks use was built without CUDA; False without an environment."""
    packages = _target(install_directory / "environment").glob("lib/python3*/site-packages/tensorflow_cpu-*")
    return any(packages)


def linked_hash(install_directory: Path, link: str) -> str:
    """Return the hash to which `install_directory`/`link` points; "" if this is not a symbolic link.

    `link` is "environment" or "current" (the trainer's release).
    """
    return _target(install_directory / link).name


def _target(link: Path) -> Path:
    """Return the path to which a symbolic link points; Path() if it is not a link."""
    try:
        return link.parent / os.readlink(link)  # noqa: PTH115 - Python 3.8 has no other
    except OSError:
        return Path()


def environment_finding(deployment: Deployment, today: TodaysHashes, *, installed: bool) -> Finding:
    """Return the finding of the check `environment`.

    It is skipped if nothing is deployed; failed if the environment or the release is missing or incomplete; a
    warning if deploy.yml would deploy something else today; else ok. `installed` says whether the environment
    of today's lock is complete on the host.
    """
    if not deployment.plan:
        return skipped(NOT_DEPLOYED)
    in_use = (
        f"TensorFlow {deployment.tensorflow}, lock {deployment.environment[:HASH_DIGITS]}, "
        f"release {deployment.release}"
    )
    if not deployment.tensorflow or not deployment.release:
        lacking = "Python environment" if not deployment.tensorflow else "trainer"
        return failed(
            f"it has a plan, but no {lacking} that is complete: a deployment was interrupted",
            "`ansible-playbook deploy.yml` finishes it",
        )
    other = []
    if deployment.tensorflow != TENSORFLOW_VERSION:
        other.append(f"psfleet deploys TensorFlow {TENSORFLOW_VERSION} today")
    elif today.lock and not installed:
        other.append(f"the lock is {today.lock} today")
    if deployment.release != today.release:
        other.append(f"the trainer's release is {today.release} today")
    if deployment.plan != today.plan:
        other.append("the inventory has another plan today")
    if other:
        return warning(f"{in_use}; {', '.join(other)}", "run `ansible-playbook deploy.yml` between runs")
    return ok(in_use)
