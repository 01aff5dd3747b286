"""What the role package_store asks a host."""

from psfleet.deployment.host import Arguments, Host


def requirements(host: Host) -> list[Arguments]:
    """Ask whether the host is supported, and which environment it gets; for `host_requirements`."""
    cluster, values = host.cluster, host.values
    directories = [] if cluster.data["source"] else cluster.data["directories"].get(host.name, [])
    return [
        {
            "host": host.name,
            "python_version": values["package_store_python_version"],
            "gpus": any(task["gpus"] for task in host.tasks),
            "cuda_source": values["nvidia_cuda_source"],
            "tasks": len(host.tasks),
            "accounts": {
                values["trainer_user"]: "trainer_user",
                values["ssh_mesh_user"]: "ssh_mesh_user",
            },
            "fence": values["port_fence_enabled"],
            "mesh": bool(cluster.mesh),
            "data_directories": directories,
            "now": host.now,
        }
    ]
