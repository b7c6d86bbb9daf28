"""Which kernels leave the kernel library, and which XLA's tiled code generator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import capture, changed, nodes, normal
from support.loops import beside_a_sort

from graphopt.costs.elements import library_reduced_ns, reduced_ns
from graphopt.costs.model import CostModel
from graphopt.hlo import Graph, build_graph, rewrite
from graphopt.hlo.restructure import CODE, REPLACES
from graphopt.machine import UnitKind, own_costs
from graphopt.measure import compare_outputs
from graphopt.policy.heuristic import loop_kernels
from graphopt.policy.heuristic.steps import heuristic_steps
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.network.decision_space import field_inputs


def chosen(graph: Graph, steps: tuple[str, ...] = ("loop kernels",)) -> list[int]:
    """Kernels that the heuristic takes from the tiled generator."""
    return np.flatnonzero(heuristic_steps(graph, steps).restructure == CODE["loop-kernel"]).tolist()


accumulate = beside_a_sort(lambda x, y: x + y)


def test_sums_in_a_loop_come_from_the_loop_generator():
    graph = capture(accumulate, normal(64, 128), normal(64, 128, seed=1)).graph
    (root,) = chosen(graph)
    assert graph.ops[root].name == "add" and graph.elements[root] == 64 * 128


def test_kernels_of_complex_numbers_gain_by_what_their_tiles_lose():
    z, w = (normal(64, 96, seed=seed).astype(np.complex64) for seed in range(2))
    graph = capture(lambda z, w: (z * w + z) * w - z, z, w).graph
    saved = []
    for ns in (0.0, 0.4):
        costs = replace(own_costs(), tiled_complex_ns={"add": ns, "multiply": ns, "subtract": ns})
        edit = loop_kernels.apply(Context(graph, CostModel(graph, costs), graph.default))
        saved.append(0.0 if edit is None else edit.saved_ns)
    (root,) = (n for n in nodes(graph, "subtract") if not graph.default.fuse[n])
    threads = graph.units[graph.default.unit[root]].threads
    assert saved[1] - saved[0] == pytest.approx(4 * 0.4 * 64 * 96 / threads)


def test_native_loops_have_no_such_kernels():
    graph = capture(accumulate, normal(8, 16), normal(8, 16, seed=1)).graph
    decisions = heuristic_steps(graph, ("native loops", "loop kernels"))
    (loop,) = nodes(graph, "while")
    assert graph.units[decisions.unit[loop]].kind is UnitKind.NATIVE
    assert CODE["loop-kernel"] not in decisions.restructure


def test_what_saves_next_to_nothing_stays():
    def fn(x: jax.Array, y: jax.Array) -> Any:
        return jnp.tanh(x @ x) @ x, y * y + y

    graph = capture(fn, normal(512, 512), normal(1024)).graph
    assert graph.masks.restructure[:, CODE["loop-kernel"]].any() and not chosen(graph)


def test_kernels_that_are_new_come_from_the_loop_generator_too():
    def fn(x: jax.Array, y: jax.Array) -> Any:
        z = jnp.sin(x * y) + x
        return z[::-1] * 2.0 + z

    program = capture(fn, normal(64, 128), normal(64, 128, seed=1))
    graph = program.graph
    value = next(n for n in nodes(graph, "add") if graph.default.fuse[n])
    data = rewrite(graph, changed(graph.default, fuse={value: 0})).data
    assert len(nodes(build_graph(data), "bitcast-convert")) == 1
    assert not nodes(build_graph(rewrite(graph, graph.default).data), "bitcast-convert")
    again = program.compile(data)()
    assert compare_outputs(program.result, again).equal


def test_the_network_leaves_them_as_they_are():
    graph = capture(accumulate, normal(64, 128), normal(64, 128, seed=1)).graph
    start = heuristic_steps(graph, ("loop kernels",))
    (field,) = (f for f in field_inputs(graph, start) if f.name == "restructure")
    (root,) = chosen(graph)
    assert np.flatnonzero(field.mask[root]).tolist() == [CODE["loop-kernel"]]
    others = np.delete(field.mask, root, axis=0)
    assert not others[:, ~REPLACES].any()


def square_sum(x: jax.Array, axis: Any) -> jax.Array:
    return jnp.sum(x * x, axis=axis)


def left(shape: tuple[int, ...], axis: Any, reduction: Any = square_sum) -> bool:
    """True if the heuristic takes a reduction of an array of some shape from the library."""
    x = normal(*shape)
    graph = capture(lambda x: reduction(x, axis=axis), x).graph
    (root,) = nodes(graph, "reduce")
    assert graph.units[graph.default.unit[root]].kind is UnitKind.LIBRARY
    return bool(
        heuristic_steps(graph, ("short reductions",)).unit[root] != graph.default.unit[root]
    )


@pytest.mark.parametrize(
    ("shape", "axis", "leaves"),
    [
        ((512, 4, 8), 2, True),  # a short run each: the library takes a step per run
        ((64, 256), 1, True),  # long rows vectorise
        ((1024, 24), 1, False),  # LLVM unrolls rows of this length
        ((4096, 256), 1, False),  # two cores
        ((512, 48), None, False),  # one sum after the other
        ((1024, 64), 0, False),  # columns
    ],
)
def test_short_reductions_leave_the_library(shape, axis, leaves):
    assert left(shape, axis) is leaves


@pytest.mark.parametrize("reduction", [jnp.max, jnp.min])
def test_maxima_of_long_rows_stay_in_the_library(reduction):
    # A loop kernel takes them one after the other, because of NaN.
    assert not left((64, 256), 1, reduction)
    assert left((64, 256), 1)


def test_sums_of_functions_stay_in_the_library():
    # Next to the exponentials a call is little.
    assert not left((110, 110), 1, lambda x, axis: jnp.sum(jnp.exp(x), axis=axis))
    assert left((110, 110), 1)


def test_prices_follow_the_dimension_that_lies_together():
    def price(shape: tuple[int, ...], axis: int) -> tuple[float, float]:
        graph = capture(lambda x: jnp.sum(x * x, axis=axis), normal(*shape)).graph
        (root,) = nodes(graph, "reduce")
        return reduced_ns(graph, root), library_reduced_ns(graph, root)

    assert price((512, 8), 1)[0] == price((64, 512), 1)[0] == own_costs().sum_rows_ns
    assert own_costs().sum_rows_ns < price((512, 16), 1)[0] < price((256, 32), 1)[0]
    assert price((16, 512), 0)[0] < price((256, 64), 0)[0]
    assert price((4096, 4), 1)[1] > 4 * price((64, 256), 1)[1]
