"""The time model behind the heuristic: what loops cost outside native code."""

import jax.numpy as jnp
import pytest
from jax import lax
from support import MACHINE, capture, normal

from graphopt.hlo import build_graph
from graphopt.hlo.module import Role
from graphopt.jax_private import hlo_from_text
from graphopt.machine import UnitKind
from graphopt.policy.costs import HANDOVER_NS, LIBRARY_CALL_NS, LOOP_NS, CostModel, native_dot_ns


def body_of(fn, *args):
    """Costs of the only loop body, and of all iterations."""
    graph = capture(fn, *args).graph
    model = CostModel(graph)
    (index,) = (i for i, c in enumerate(graph.computations) if c.role is Role.LOOP_BODY)
    return graph, model.computations[index], model.control(graph.computations[index].caller)


def heat(x):
    return lax.fori_loop(0, 10, lambda _, a: jnp.exp(-a * a) * jnp.cos(a) + a[::-1], x)


def test_the_work_of_a_split_kernel_counts_all_that_is_fused_into_it():
    graph, body, _ = body_of(heat, normal(1024, 1024))
    assert any(graph.units[u].threads > 1 for u in graph.default.unit)
    assert body.parallel_ns > 0.8 * body.work_ns
    assert body.default_ns(2) == pytest.approx(0.5 * body.work_ns + body.dispatch_ns, rel=0.3)
    assert body.dispatch_ns >= HANDOVER_NS


def test_small_loops_pay_for_every_iteration():
    _, body, loop = body_of(heat, normal(8))
    assert body.parallel_ns == 0.0
    assert loop.dispatch_ns >= 10 * (body.dispatch_ns + LOOP_NS)


def test_calls_of_the_library_cost_more_than_kernels():
    def rows(x):
        return lax.fori_loop(0, 10, lambda _, a: a - jnp.max(a, axis=1, keepdims=True), x)

    graph, body, _ = body_of(rows, normal(128, 128))
    kinds = [graph.units[u].kind for u in graph.default.unit[~graph.default.fuse]]
    calls = kinds.count(UnitKind.LIBRARY)
    assert calls and body.dispatch_ns >= calls * LIBRARY_CALL_NS


NO_TERMS = """\
HloModule empty, entry_computation_layout={(f32[8,0]{1,0}, f32[0,8]{1,0})->f32[8,8]{1,0}}

ENTRY main {
  a = f32[8,0]{1,0} parameter(0)
  b = f32[0,8]{1,0} parameter(1)
  ROOT d = f32[8,8]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_products_without_terms_cost_nothing():
    graph = build_graph(hlo_from_text(NO_TERMS), MACHINE)
    (node,) = (n for n, op in enumerate(graph.ops) if op.name == "dot")
    assert native_dot_ns(graph, node) == 0.0


def test_few_rows_are_fast_and_matrices_slow_in_native_code():
    def ns_per_flop(rows):
        graph = capture(jnp.dot, normal(rows, 64), normal(64, 64)).graph
        (node,) = (n for n, op in enumerate(graph.ops) if op.name == "dot")
        return native_dot_ns(graph, node) / (2 * rows * 64 * 64)

    assert ns_per_flop(2) < 0.5 * ns_per_flop(32)
