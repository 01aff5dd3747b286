"""What the role port_fence tells a host."""

from psfleet.deployment.host import Arguments, Host
from psfleet.deployment.templates import rendered


def fence(host: Host) -> list[Arguments]:
    """Fence the tasks' ports, and what the tasks may reach; for the step `port_fence`."""
    configuration = host.cluster.paths["configuration_directory"]
    return [
        {
            "state": "present" if host.values["port_fence_enabled"] else "absent",
            "host": host.name,
            "tasks": host.cluster.plan["tasks"],
            "user": host.values["trainer_user"],
            "may_reach": host.values["trainer_program_may_reach"],
            "mesh": bool(host.cluster.mesh),
            "configuration": configuration,
            "unit": rendered("port_fence/psfleet-fence.service.j2", configuration=configuration),
            "nftables_drop_in": rendered("port_fence/nftables.conf.j2", configuration=configuration),
        }
    ]
