"""All programs of this folder by name.

They need the packages of ``benchmarks/third_party/requirements.txt``.
"""

from __future__ import annotations

from benchmarks.tutorials import (
    agents,
    environments,
    graphs,
    inference,
    networks,
    physics,
    solvers,
    unsealed,
)
from benchmarks.tutorials.common import Builder

_FAMILIES = (inference, networks, graphs, solvers, physics, environments, agents, unsealed)

WORKLOADS: dict[str, Builder] = {
    name: builder for family in _FAMILIES for name, builder in family.WORKLOADS.items()
}
