"""Running modules that are written by hand, and restructuring programs that jax compiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from graphopt.hlo import Decisions, Graph, build_graph, rewrite
from graphopt.hlo.restructure import CODE
from graphopt.jax_private import hlo_from_text
from graphopt.machine import UnitKind
from graphopt.measure import compile_with
from support.captures import MACHINE


def everywhere(graph: Graph, name: str) -> Decisions:
    """The default decisions with one restructure wherever the masks allow it; at least once."""
    decisions = graph.default.copy()
    decisions.restructure[graph.masks.restructure[:, CODE[name]]] = CODE[name]
    assert decisions.restructure.any(), f"{name} is legal nowhere"
    return decisions


def native(graph: Graph, decisions: Decisions) -> Decisions:
    """The same, and native wherever that is allowed."""
    index = next(i for i, u in enumerate(graph.units) if u.kind is UnitKind.NATIVE)
    out = decisions.copy()
    out.unit[graph.masks.unit[:, index]] = index
    return out


def loop_of_products(dtype: str, shrink: int) -> Callable[..., Any]:
    """Four steps of ``a @ x``, made smaller by `shrink` each time; integers are divided."""

    def fn(a: jax.Array, x: jax.Array) -> Any:
        def step(x: jax.Array, _: None) -> Any:
            product = a @ x
            return product // shrink if dtype == "int32" else product * (1.0 / shrink), x.sum()

        return jax.lax.scan(step, x, None, length=4)

    return fn


def run_text(text: str, args: Sequence[Any], results: Sequence[Any], name: str) -> list[Any]:
    """Runs a hand-written module after one restructure, in loops of its own and as native code.

    Args:
        text: HLO; its entry returns an array, or a tuple of several.
        args: the entry's arguments.
        results: arrays of the shapes and types of its results.
        name: the restructure.

    Returns:
        Per way of running, the list of results.
    """

    def stand_in(*args: Any) -> Any:
        used = sum(jnp.sum(jnp.real(a).astype(jnp.float32)) for a in args)
        made = tuple(jnp.full(r.shape, used).astype(r.dtype) for r in results)
        return made if len(made) > 1 else made[0]

    graph = build_graph(hlo_from_text(text), MACHINE)
    decisions = everywhere(graph, name)
    out = []
    for chosen in (decisions, native(graph, decisions)):
        data = rewrite(graph, chosen).data
        compiled = compile_with(stand_in, tuple(args), lambda _, data=data: data)
        out.append([np.asarray(r) for r in jax.tree.leaves(compiled())])
    return out


def run_program(fn: Callable[..., Any], args: Sequence[Any], name: str) -> tuple[Any, list[Any]]:
    """XLA's result of a function, and the results after one restructure (plain and native)."""
    placed = tuple(jax.tree.map(jnp.asarray, a) for a in args)
    default = compile_with(fn, placed)
    (data,) = default.modules
    graph = build_graph(data, MACHINE)
    decisions = everywhere(graph, name)
    out = []
    for chosen in (decisions, native(graph, decisions)):
        written = rewrite(graph, chosen).data
        out.append(compile_with(fn, placed, lambda _, written=written: written)())
    return default(), out
