"""What the role nvidia_cuda asks a host."""

from psfleet.deployment.host import Arguments, Host


def gpus(host: Host) -> list[Arguments]:
    """Check the GPUs of the host's tasks, if it has any, and the driver; for `gpu_facts`."""
    tasks, driver = [task for task in host.tasks if task["gpus"]], host.values["nvidia_cuda_driver"]
    if not tasks or driver == "ignore":
        return []
    packages = host.values["nvidia_cuda_driver_packages"]
    return [{"host": host.name, "tasks": tasks, "driver": driver, "packages": packages}]
