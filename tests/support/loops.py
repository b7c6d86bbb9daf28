"""Loops as one jaxlib or another gives them: most are native from 0.12 on, few were before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from graphopt.hlo import Decisions, Graph, build_graph, rewrite
from graphopt.hlo.module.backend_config import partition_config
from graphopt.machine import UnitKind
from support.captures import MACHINE, Captured, nodes, proto_of, unit


def beside_a_sort(step: Callable[[Any, Any], Any], trips: int = 20) -> Callable[[Any, Any], Any]:
    """A loop of ``x = step(x, y)`` that no jaxlib makes native by itself, as a function of x and y."""

    def fn(x: jax.Array, y: jax.Array) -> Any:
        turn = lambda _, c: (step(c[0], y), jnp.sort(c[1]))  # noqa: E731
        return jax.lax.fori_loop(0, trips, turn, (x, y[0, :8]))

    return fn


def with_loops(graph: Graph, kind: UnitKind, decisions: Decisions | None = None) -> Decisions:
    """Decisions, the default's if none are given, with all loops of one kind where that is legal."""
    out = (decisions or graph.default).copy()
    index = unit(graph, kind)
    for node in nodes(graph, "while"):
        if graph.masks.unit[node, index]:
            out.unit[node] = index
    return out


def kernel_by_kernel(program: Captured) -> Captured:
    """The program with loops that the executor runs, as jaxlib 0.11 gives it.

    Kernels of what was native come from the loop generator, where XLA takes the tiled one for some.
    """
    return _rewritten(program, with_loops(program.graph, UnitKind.RUNTIME))


def made_native(program: Captured) -> Captured:
    """The program as jaxlib 0.12 gives it: loops are native, and kernels say how XLA would split them."""
    graph = program.graph
    wanted = with_loops(graph, UnitKind.NATIVE)
    if wanted.same_as(graph.default):
        return program
    assert all(
        graph.masks.unit[node, unit(graph, UnitKind.NATIVE)] for node in nodes(graph, "while")
    )
    units = [graph.units[used] for used in graph.default.unit]
    loops = (root for root, unit in enumerate(units) if unit.kind is UnitKind.LOOP)
    split = {int(graph.elements[root]) for root in loops if units[root].threads > 1}
    proto = proto_of(rewrite(graph, wanted).data)
    for computation in proto.computations:
        for instruction in computation.instructions:
            if instruction.opcode == "fusion" and prod(instruction.shape.dimensions) in split:
                instruction.backend_config = partition_config((2,))
    data = proto.SerializeToString()
    return replace(program, data=data, graph=build_graph(data, MACHINE))


def _rewritten(program: Captured, wanted: Decisions) -> Captured:
    if wanted.same_as(program.graph.default):
        return program
    data = rewrite(program.graph, wanted).data
    return replace(program, data=data, graph=build_graph(data, MACHINE))
