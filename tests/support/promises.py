"""What tests of in-place promises share."""

from __future__ import annotations

from graphopt.hlo.graph.in_place import InPlaceAnalysis, broken_hazards
from graphopt.hlo.module.index import Role, parse
from graphopt.jax_private import hlo_from_text

Found = tuple[str, tuple[int, ...], str, frozenset[str]]
"""(defining instruction, path, writer, readers), by name."""


def analysed(text: str) -> InPlaceAnalysis:
    return InPlaceAnalysis(parse(hlo_from_text(text)))


def hazards(
    analysis: InPlaceAnalysis, role: Role = Role.ENTRY, computation_name: str = ""
) -> set[Found]:
    (computation,) = (
        c
        for c in analysis.module.graph_computations()
        if c.role is role and c.proto.name.startswith(computation_name)
    )
    name = {local: instruction.name for local, instruction in computation.by_id.items()}
    return {
        (name[h.source[0]], h.source[1], name[h.writer], frozenset(name[r] for r in h.readers))
        for h in analysis.hazards[computation.id]
    }


def broken(analysis: InPlaceAnalysis) -> set[tuple[str, str]]:
    """(writer, reader that may come too late), by name."""
    return {
        (
            analysis.module.computations[hazard.computation].by_id[hazard.writer].name,
            analysis.module.computations[hazard.computation].by_id[reader].name,
        )
        for hazard, reader in broken_hazards(analysis)
    }
