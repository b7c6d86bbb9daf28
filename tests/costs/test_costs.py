"""The time model behind the heuristic: what loops cost outside native code."""

import jax.numpy as jnp
import pytest
from jax import lax
from jax.scipy.special import logsumexp
from support.captures import capture, normal
from support.loops import kernel_by_kernel

from graphopt.costs.model import CostModel
from graphopt.costs.opaque import is_wall, wall_costs
from graphopt.hlo.module.index import Role
from graphopt.machine import UnitKind, own_costs
from graphopt.policy.heuristic.steps import heuristic_steps


def body_of(fn, *args):
    """Costs of the only loop body, and of all iterations, where the executor calls its kernels."""
    return costs_in(kernel_by_kernel(capture(fn, *args)).graph)


def costs_in(graph):
    """The same of a graph as it is."""
    model = CostModel(graph)
    (index,) = (i for i, c in enumerate(graph.computations) if c.role is Role.LOOP_BODY)
    return graph, model.computations[index], model.control(graph.computations[index].caller)


def heat(x):
    return lax.fori_loop(0, 10, lambda _, a: jnp.exp(-a * a) * jnp.cos(a) + a[::-1], x)


def test_the_work_of_a_split_kernel_counts_all_that_is_fused_into_it():
    graph, body, _ = body_of(heat, normal(1024, 1024))
    assert any(graph.units[u].threads > 1 for u in graph.default.unit)
    assert body.parallel_ns > 0.8 * body.work_ns
    saved = 0.5 * body.parallel_ns
    assert body.default_ns(2) == pytest.approx(body.work_ns - saved + body.dispatch_ns, rel=1e-9)
    # A third core takes its part of what is split; what is not stays.
    assert body.default_ns(3) == pytest.approx(body.default_ns(2) - body.parallel_ns / 6, rel=1e-9)
    assert body.dispatch_ns >= own_costs().handover_ns


def test_loops_of_few_kernels_pay_little_for_every_iteration():
    _, body, loop = body_of(heat, normal(512))
    assert body.parallel_ns == 0.0
    assert loop.dispatch_ns >= 10 * (body.dispatch_ns + own_costs().short_loop_ns)
    assert loop.dispatch_ns < 10 * own_costs().loop_ns


def test_loops_of_many_kernels_pay_more_for_each():
    def chains(x):
        return lax.fori_loop(0, 10, lambda _, xs: tuple(lax.cumsum(x) * 0.5 for x in xs), (x,) * 12)

    costs = own_costs()
    _, body, loop = body_of(chains, normal(512))
    assert body.dispatch_ns >= 12 * costs.thunk_ns
    assert loop.dispatch_ns >= 10 * (body.dispatch_ns + costs.loop_ns)


def test_loops_that_xla_makes_native_pay_nothing():
    graph, _, loop = costs_in(capture(heat, normal(8)).graph)
    assert UnitKind.NATIVE in {graph.units[unit].kind for unit in graph.default.unit}
    assert loop.dispatch_ns == 0.0
    assert loop.default_ns(2) == loop.native_ns()


def test_calls_of_the_library_cost_more_than_kernels():
    def rows(x):
        return lax.fori_loop(0, 10, lambda _, a: a - jnp.max(a, axis=1, keepdims=True), x)

    graph, body, _ = body_of(rows, normal(128, 128))
    kinds = [graph.units[u].kind for u in graph.default.unit[~graph.default.fuse]]
    calls = kinds.count(UnitKind.LIBRARY)
    costs = own_costs()
    assert calls and body.dispatch_ns >= calls * costs.library_reduction_ns
    assert costs.library_reduction_ns > 10 * costs.thunk_ns


def wall(fn, *args):
    """The only wall of a program: its time as a call, and replaced."""
    graph = capture(fn, *args).graph
    (found,) = (n for n in range(len(graph)) if is_wall(graph, n))
    return wall_costs(graph, found)


def test_scatters_cost_by_windows_and_what_those_hold():
    costs, few, many = own_costs(), jnp.arange(8), jnp.arange(64) % 16
    whole = wall(lambda x, y: x.at[many].add(y), normal(16, 8), normal(64, 8))
    assert whole == (
        64 * (costs.scatter_ns + 7 * costs.scatter_element_ns),
        64 * (costs.scatter_loop_ns + 7 * costs.scatter_loop_element_ns),
    )
    # A large array of which little changes costs what changes.
    assert wall(lambda x: x.at[few].add(0.1), normal(4096)) == (
        8 * costs.scatter_ns, 8 * costs.scatter_loop_ns,
    )  # fmt: skip


def test_the_largest_of_rows_cost_by_elements():
    call, _ = wall(lambda x: lax.top_k(x, 4)[0], normal(16, 64))
    assert call == own_costs().lapack_call_ns + 1024 * own_costs().top_k_ns


@pytest.mark.parametrize(("shape", "axis", "slower"), [((64, 8), 0, True), ((64, 8), 1, False),
                                                       ((8, 64), 0, False), ((512,), 0, False)])  # fmt: skip
def test_short_rows_are_slower_to_join_in_native_code(shape, axis, slower):
    def rolled(x):
        return lax.fori_loop(0, 10, lambda _, a: jnp.roll(a, 1, axis) * 0.5, x)

    _, body, _ = body_of(rolled, normal(*shape))
    assert (body.reduced_ns > 0.0) is slower


def potentials(cost, f, g):
    """Log-domain iterations of a transport problem: maxima and sums of rows and of columns."""

    def step(_, pair):
        f, g = pair
        f = f - logsumexp(f[:, None] + g - cost, axis=1)
        return f, g - logsumexp(f[:, None] + g - cost, axis=0)

    return lax.fori_loop(0, 10, step, (f, g))


def test_loops_of_reductions_by_the_library_pay_what_those_take():
    size = 110
    graph, body, _ = body_of(potentials, normal(size, size), normal(size), normal(size))
    calls = sum(graph.units[u].kind is UnitKind.LIBRARY for u in graph.default.unit)
    assert calls >= 4
    costs = own_costs()
    assert body.dispatch_ns < calls * costs.library_reduction_ns + 20 * costs.thunk_ns
    # What the library computes is not done alike in native code, whose loops go down the columns.
    assert body.library_ns > 0.2 * body.default_ns(2)
    assert body.reduced_ns > body.library_ns


@pytest.mark.parametrize(("size", "native"), [(12, True), (110, False)])
def test_loops_of_long_columns_stay_with_the_library(size, native):
    graph = capture(potentials, normal(size, size), normal(size), normal(size)).graph
    (loop,) = (n for n, op in enumerate(graph.ops) if op.name == "while")
    decisions = heuristic_steps(graph, ("native loops",))
    assert (graph.units[decisions.unit[loop]].kind is UnitKind.NATIVE) is native
