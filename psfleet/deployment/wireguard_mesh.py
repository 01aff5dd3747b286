"""What the role wireguard_mesh tells a host."""

from psfleet.deployment.host import Arguments, Host
from psfleet.deployment.templates import rendered


def key(host: Host) -> list[Arguments]:
    """Make the host's key, and answer its public part; for `wireguard_mesh`."""
    return [{"configuration": host.cluster.paths["configuration_directory"], "host": host.name}]


def interface(host: Host) -> list[Arguments]:
    """Put up the host's side of the mesh; for `wireguard_mesh`."""
    configuration = host.cluster.paths["configuration_directory"]
    return [
        {
            "configuration": configuration,
            "host": host.name,
            "port": host.cluster.mesh["port"],
            "hosts": host.mesh_hosts,
            "unit": rendered("wireguard_mesh/psfleet-mesh.service.j2", configuration=configuration),
        }
    ]
