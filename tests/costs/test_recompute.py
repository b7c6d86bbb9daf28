"""What recomputing a value costs: rates of single operations, and the order in which values are read."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.captures import capture, nodes, normal, unit

from graphopt.corpus import load_corpus
from graphopt.costs.elements import element_ns, reduced_ns
from graphopt.costs.evaluations import Evaluations, evaluation_ns, turns
from graphopt.costs.model import CostModel
from graphopt.costs.work import library_extra
from graphopt.hlo import build_graph, rewrite
from graphopt.hlo.module.opcodes import OPS, OpKind
from graphopt.machine import UnitKind, own_costs, probe
from graphopt.machine.cost_tables import FUNCTIONS, INTEGERS
from graphopt.measure import compare_outputs
from graphopt.policy.heuristic.steps import heuristic_steps


def test_rates_are_of_elementwise_operations():
    elementwise = {op.name for op in OPS if op.kind is OpKind.ELEMENTWISE}
    assert set(FUNCTIONS) | set(INTEGERS) <= elementwise
    assert all(0 < single <= double for single, double in FUNCTIONS.values())


def rate(fn, *args, name):
    graph = capture(fn, *args).graph
    (node,) = nodes(graph, name)
    return element_ns(graph, node)


def test_functions_that_do_not_vectorise_cost_more():
    x = normal(64, 64)
    assert rate(jnp.sin, x, name="sine") > 5 * rate(jnp.tanh, x, name="tanh")
    integers = np.arange(1, 65, dtype=np.int32)
    floats = rate(lambda a: a / (a + 3.0), normal(64), name="divide")
    assert rate(lambda a: a // 1 + (a + 5) % a, integers, name="remainder") > 5 * floats


def test_quotients_of_integers_by_a_known_number_are_multiplications():
    integers = np.arange(1, 65, dtype=np.int32)
    known = rate(lambda a: lax.rem(a, 7), integers, name="remainder")
    assert known < 0.5 * rate(lax.rem, integers, integers, name="remainder")
    assert known < rate(lambda a: lax.rem(a, 7.0), normal(64), name="remainder")


def test_reductions_in_loops_are_slow_unless_they_are_over_rows():
    def read_ns(fn):
        graph = capture(fn, normal(256, 128)).graph
        (node,) = nodes(graph, "reduce")
        return reduced_ns(graph, node), library_extra(graph).get(node)

    sums, _ = read_ns(lambda x: jnp.sum(x, axis=1))
    columns, extra = read_ns(lambda x: jnp.sum(x, axis=0))
    largest, _ = read_ns(lambda x: jnp.max(x, axis=1))
    place, _ = read_ns(lambda x: jnp.argmax(x, axis=1))
    assert sums == largest < columns < place
    assert extra is not None and extra > 0


def operations(fn):
    """Elementwise operations per element of the last node of a program, counted by what computes it."""
    graph = capture(fn, normal(64, 64)).graph
    fused = [op.name != "parameter" for op in graph.ops]
    own = [float(op.kind is OpKind.ELEMENTWISE) for op in graph.ops]
    return evaluation_ns(graph, CostModel(graph).shares, len(graph) - 1, fused, own)


def test_a_value_is_computed_once_per_index_at_which_it_is_read():
    def squared(x):
        for _ in range(10):
            x = x * x
        return x

    assert operations(squared) == 10
    assert operations(lambda x: jnp.flip(squared(x), 0) + squared(x)) == 21


def one_hot(x, places):
    """What is cheap to compute from `places`, read column by column, each element 32 times."""
    chosen = (jnp.arange(96)[None] == places[:, None]).astype(jnp.float32)
    return jnp.tanh(chosen.T[None] * x.T[:, None])


def test_evaluations_across_the_order_of_memory_are_counted():
    graph = capture(one_hot, normal(512, 32), np.arange(512) % 96).graph
    turning = [n for n in range(len(graph)) if turns(graph, n)]
    assert turning
    model = CostModel(graph)
    counted = Evaluations(graph, model.shares)
    across = {}
    for node in range(len(graph) - 1, -1, -1):
        across[node] = counted.across(node)
        counted.pass_on(node, graph.default.fuse.tolist())
    for node in turning:
        (operand,) = graph.operand_lists[node]
        if graph.default.fuse[operand]:
            assert across[operand] > 0
    assert not any(across[n] for n in range(len(graph)) if not graph.default.fuse[n])


def test_what_is_cheap_and_read_across_memory_is_not_written():
    graph = capture(one_hot, normal(512, 32), np.arange(512) % 96).graph
    kept = heuristic_steps(graph, ["keep in memory"])
    hot = graph.default.fuse & (graph.elements == 512 * 96)
    assert not (hot & ~kept.fuse).any()
    free_reads = replace(own_costs(), across_ns=1e-9)
    free = heuristic_steps(graph, ["keep in memory"], CostModel(graph, free_reads))
    assert (hot & ~free.fuse).any()


def scrambled(h: jax.Array) -> jax.Array:
    return (h ^ (h >> np.uint32(7))) * np.uint32(747796405)


@pytest.mark.parametrize(
    ("start", "once", "times", "kept"),
    [
        (normal(24), jnp.cos, 1, True),
        (normal(1), jnp.cos, 12, False),  # a scalar stays in a register
        (np.arange(200, dtype=np.uint32), scrambled, 4, False),  # cheap to repeat
    ],
)
def test_native_code_keeps_short_arrays_of_floats(start, once, times, kept):
    def fn(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(_: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            first, second = carry
            both = first
            for _unused in range(times):
                both = once(both)
            return first + both * second, second - both

        return lax.fori_loop(0, 5000, step, (x, x + 1))

    found = capture(fn, start)
    decisions = heuristic_steps(found.graph, ["native loops", "keep in memory"])
    assert bool((found.graph.default.fuse & ~decisions.fuse).any()) is kept
    result = rewrite(found.graph, decisions)
    assert compare_outputs(found.result, found.compile(result.data)()).equal


@pytest.mark.parametrize("program", ["langton_ant", "q_learning_grid"])
def test_scalars_of_native_loops_stay_in_registers(program):
    (entry,) = load_corpus(names={program})
    graph = build_graph(entry.modules[0], probe())
    decisions = heuristic_steps(graph, ["native loops", "keep in memory"])
    assert unit(graph, UnitKind.NATIVE) in decisions.unit[nodes(graph, "while")]
    written = graph.default.fuse & ~decisions.fuse
    assert not (written & (graph.elements == 1)).any()


def several(a: jax.Array, b: jax.Array) -> jax.Array:
    for _ in range(4):
        a = (a - b) * (a * b + 0.25) * 0.125
    return a


@pytest.mark.parametrize(("once", "kept"), [(jnp.multiply, False), (several, True)])
def test_an_operation_or_two_hides_behind_loads(once, kept):
    def fn(x: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.maximum(x * once(a, b), 0.1)

    graph = capture(fn, normal(4096, 64), np.abs(normal(64)), normal(64)).graph
    decisions = heuristic_steps(graph, ["keep in memory"])
    factor = graph.default.fuse & (graph.elements == 64)
    assert factor.any()
    assert bool((factor & ~decisions.fuse).any()) is kept
