"""All sealed programs: `FAMILIES`, and `WORKLOADS` of all together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from benchmarks.sealed import (
    audio,
    epidemics,
    fields,
    finance,
    games,
    genomes,
    library_agents,
    library_physics,
    library_signals,
    library_solving,
    library_statistics,
    library_training,
    robots,
)
from benchmarks.sealed.common import Program

FAMILIES: Final[Mapping[str, Mapping[str, Callable[[], Program]]]] = {
    module.__name__.rpartition(".")[2]: module.WORKLOADS
    for module in (
        audio,
        epidemics,
        fields,
        finance,
        games,
        genomes,
        robots,
        library_agents,
        library_physics,
        library_signals,
        library_solving,
        library_statistics,
        library_training,
    )
}
"""Family -> name -> builder of a program."""

WORKLOADS: Final[dict[str, Callable[[], Program]]] = {
    name: build for family in FAMILIES.values() for name, build in family.items()
}
"""Name -> builder, of all families."""
