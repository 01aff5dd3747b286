"""What the role tensorflow tells a host."""

from typing import Any

from psfleet.deployment.host import Arguments, Host


def environment(host: Host) -> list[Arguments]:
    """Install the locked environment with TensorFlow; for `python_environment`."""
    # If programs have requirements, the link points directly to the environment with these.
    link = "" if host.environment["program"] else "environment"
    return [{**_installation(host), "wheels": host.environment, "link": link}]


def program_environment(host: Host) -> list[Arguments]:
    """Install the environment with what programs require beside it; for `python_environment`."""
    wheels, base = host.environment["program"], host.environment["lock_hash"]
    return [{**_installation(host), "wheels": wheels, "base": base}] if wheels else []


def _installation(host: Host) -> dict[str, Any]:
    return {
        "directory": host.cluster.paths["install_directory"],
        "module": "tensorflow",
        "shared_by": host.values["ssh_mesh_user"],
    }
