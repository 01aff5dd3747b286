"""The operating systems that hosts may run: all that differs between them, in one file for each.

The checks of a host and the roles take it from here. A new system is a file beside these, and its name here.
"""

from __future__ import annotations

from ..facts.host_facts import Distribution
from .debian import DEBIAN
from .system import System
from .ubuntu import UBUNTU

SYSTEMS = {system.identity: system for system in (DEBIAN, UBUNTU)}
SUPPORTED = ", ".join(system.releases for system in SYSTEMS.values())


def system_of(distribution: Distribution) -> System | None:
    """Return the system that a distribution is, or else is made from; None where none is known."""
    kin = (distribution.identity, *distribution.like)
    return next((SYSTEMS[identity] for identity in kin if identity in SYSTEMS), None)
