"""The operating systems as the role host_look describes them."""

from plugins.module_utils.systems import read_systems
from psfleet.inventory.described_systems import described_systems

DESCRIBED = described_systems()
KNOWN = read_systems(DESCRIBED)
SYSTEMS = KNOWN.known
DEBIAN, UBUNTU = SYSTEMS["debian"], SYSTEMS["ubuntu"]
