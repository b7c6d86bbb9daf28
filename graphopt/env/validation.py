"""Does a program compute the same under decisions as by XLA's default?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from graphopt.corpus.workloads import build_program
from graphopt.env.sources import GraphItem
from graphopt.errors import ConfigError
from graphopt.hlo import Decisions, Graph, build_graph, rewrite
from graphopt.machine import Machine, probe
from graphopt.measure import compare_outputs, compile_with

CHAOTIC_SLACK: Final = 1e3
"""Factor on the tolerance for programs declared to amplify rounding."""


@dataclass(frozen=True)
class Validation:
    """A numeric comparison of one program under decisions against XLA's default.

    Attributes:
        equal: every result is within its dtype's tolerance.
        relative: largest difference, relative to the array's largest magnitude.
        leaf: key path of the worst result.
        rewritten: modules that the decisions were applied to.
    """

    equal: bool
    relative: float
    leaf: str
    rewritten: int


def validate(item: GraphItem, decisions: Decisions) -> Validation:
    """Compiles and runs a program by default and under decisions, on its own arguments, in this
    process.

    Raises:
        ConfigError: the item has no program, or it compiles to another graph by now.
        DecisionError: the decisions do not fit the graph.
    """
    if item.program is None:
        raise ConfigError(
            what=f"{item.name} is only a graph: there is nothing to run",
            where="validate",
            fix="Make the environment from programs.",
        )
    item.graph.masks.check(decisions)
    fn, args = build_program(item.program, item.name)
    machine = machine_of(item.graph)
    rewritten = 0

    def transform(data: bytes) -> bytes | None:
        nonlocal rewritten
        graph = build_graph(data, machine)
        if graph.fingerprint != item.graph.fingerprint:
            return None
        rewritten += 1
        return rewrite(graph, decisions).data

    reference: Any = compile_with(fn, args)()
    candidate = compile_with(fn, args, transform, forms=True)
    if not rewritten:  # a graph of the program as jax lowers it by itself
        candidate = compile_with(fn, args, transform)
    if not rewritten:
        raise ConfigError(
            what=f"{item.name} no longer compiles to the graph at hand",
            where="validate",
            fix="Capture the graph anew, with this jax and on this machine.",
        )
    slack = CHAOTIC_SLACK if item.program.chaotic else 1.0
    found = compare_outputs(reference, candidate(), slack=slack)
    return Validation(found.equal, found.relative, found.leaf, rewritten)


def machine_of(graph: Graph) -> Machine:
    """This machine with the execution units that a graph was built for."""
    return replace(probe(), cores=max(u.threads for u in graph.units), units=graph.units)
