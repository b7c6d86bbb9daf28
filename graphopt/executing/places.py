"""How machines of a cluster say what they are: Ray's custom resource and node labels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from graphopt.executing.executor import place_here
from graphopt.executing.request import Needs
from graphopt.machine import machine_key
from graphopt.machine.kinds import jaxlib_version
from graphopt.version import source_digest

RESOURCE: Final = "graphopt_machine"
"""Custom resource of which every measuring machine has one; its measuring actor takes it."""

MACHINE_LABEL: Final = "graphopt.io/machine"
JAXLIB_LABEL: Final = "graphopt.io/jaxlib"
"""Labels of a node. Optional: an actor says the same once it runs, but it holds the node by then."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a machine says of itself.

    Attributes:
        machine: its key.
        jaxlib: version.
        source: digest of the graphopt that it runs.
        place: for people.
    """

    machine: str
    jaxlib: str
    source: str
    place: str


def facts_here() -> Facts:
    """Of this process."""
    return Facts(machine_key(), jaxlib_version(), source_digest(), place_here())


def labels_here() -> dict[str, str]:
    """Labels for this machine's node."""
    return {MACHINE_LABEL: machine_key(), JAXLIB_LABEL: jaxlib_version()}


def start_flags(labels: Mapping[str, str], *, measures: bool = True) -> list[str]:
    """Flags of ``ray start`` that make a node a measuring machine, or one that only has its labels."""
    resources = ["--resources", json.dumps({RESOURCE: 1})] if measures else []
    return [*resources, "--labels", ",".join(f"{k}={v}" for k, v in sorted(labels.items()))]


def may_fit(node: Mapping[str, Any], needs: Needs) -> bool:
    """False if the labels of a node of ``ray.nodes()`` say that it cannot meet needs."""
    labels = node.get("Labels") or {}
    return needs.met_by(
        labels.get(MACHINE_LABEL, needs.machine), labels.get(JAXLIB_LABEL, needs.jaxlib)
    )


def measures(node: Mapping[str, Any]) -> bool:
    """True if a node of ``ray.nodes()`` is alive and a measuring machine."""
    return bool(node["Alive"]) and (node.get("Resources") or {}).get(RESOURCE, 0.0) >= 1.0
