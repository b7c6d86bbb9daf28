"""Decisions become modules: any legal ones compile and agree; what fuse, join and order do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import (
    MACHINE,
    capture,
    captured,
    changed,
    clusters_of,
    native_calls,
    node,
    nodes,
    normal,
    proto_of,
    unit,
    with_unit_everywhere,
)
from support.rewriting import (
    chain,
    checked,
    fused_where_legal,
    instructions,
    joined_where_legal,
    kept_where_legal,
)

from graphopt.errors import DecisionError
from graphopt.hlo import Graph, build_graph, rewrite, verify
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.hlo.module.index import parse
from graphopt.hlo.module.proto import DType
from graphopt.jax_private import hlo_from_text
from graphopt.machine import UnitKind

# Any legal decisions.

SMALL = (
    "fibonacci life_sweep gauss_seidel twin_carry ring_buffer substitution collatz safe_newton "
    "shared_outputs bit_mixing"
).split()


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(SMALL),
    seed=st.integers(0, 2**32 - 1),
    change=st.sampled_from([0.02, 0.1, 0.3, 0.6, 1.0]),
)
def test_random_legal_decisions_compute_the_same(name, seed, change):
    program = captured(name)
    graph = program.graph
    decisions = graph.masks.sample(np.random.default_rng(seed), graph.default, change)
    rewritten = checked(program, decisions)
    verify(proto_of(rewritten.data), parse(program.data))


@pytest.mark.parametrize("name", ["gather_scatter", "mlp_grad", "reductions"])
def test_new_operations_are_kernels_or_native(name):
    """jaxlib 0.12 compiles no operation outside a fusion, and no module of these has one by default."""
    graph = captured(name).graph
    for seed in range(16):
        decisions = graph.masks.sample(np.random.default_rng(seed), graph.default, 0.6)
        verify(proto_of(rewrite(graph, decisions).data))


def all_single_changes(graph: Graph) -> Iterator[tuple[str, int, int]]:
    for field in FIELDS:
        default = getattr(graph.default, field)
        for index, value in zip(*np.nonzero(getattr(graph.masks, field)), strict=True):
            if int(default[index]) != value:
                yield field, int(index), int(value)


FIELDS_OF = {
    "einsum_f16": {"fuse", "unit", "restructure"},
    "ring_buffer": {"fuse", "unit"},
    "shared_outputs": {"fuse", "unit", "restructure"},
    "int8_matmul": {"fuse", "unit", "restructure"},
    "sorting": {"fuse", "unit", "restructure"},
}


@pytest.mark.parametrize("name", FIELDS_OF)
def test_every_single_legal_change_rewrites(name):
    graph = captured(name).graph
    changes = list(all_single_changes(graph))
    assert len(changes) > len(graph)
    assert {field for field, _, _ in changes} >= FIELDS_OF[name]
    failed = []
    for field, index, value in changes:
        try:
            rewrite(graph, changed(graph.default, **{field: {index: value}}))
        except Exception as error:
            failed.append((graph.source.names[index], field, value, repr(error)))
    assert failed == []


EXTREMES = {
    "fused": fused_where_legal,
    "kept": kept_where_legal,
    "kept and joined": lambda g: joined_where_legal(g, kept_where_legal(g)),
    "library": lambda g: with_unit_everywhere(g, unit(g, UnitKind.LIBRARY)),
    "native": lambda g: with_unit_everywhere(g, unit(g, UnitKind.NATIVE)),
    "two threads": lambda g: with_unit_everywhere(g, unit(g, UnitKind.LOOP, 2)),
}


@pytest.mark.parametrize("name", ["momentum_train", "stack_machine", "attention_grad"])
@pytest.mark.parametrize("extreme", EXTREMES.values(), ids=EXTREMES)
def test_extreme_decisions_compute_the_same(name, extreme):
    program = captured(name)
    checked(program, extreme(program.graph))


def test_the_extremes_are_decisions_of_their_own():
    graph = captured("momentum_train").graph
    made = [graph.default, *(extreme(graph) for extreme in EXTREMES.values())]
    assert len({rewrite(graph, decisions).data for decisions in made}) == len(made)


def test_the_same_decisions_give_the_same_bytes():
    graph = captured("stack_machine").graph
    decisions = graph.masks.sample(np.random.default_rng(3), graph.default, 0.5)
    assert rewrite(graph, decisions).data == rewrite(graph, decisions.copy()).data
    assert rewrite(graph, decisions).data != rewrite(graph, graph.default).data


def test_a_rewrite_counts_what_it_made():
    graph = captured("momentum_train").graph
    native = unit(graph, UnitKind.NATIVE)
    for decisions in (graph.default, with_unit_everywhere(graph, native)):
        rewritten = rewrite(graph, decisions)
        assert rewritten.clusters == clusters_of(rewritten.data).total()
        assert rewritten.regions == len(native_calls(rewritten.data))
    assert rewritten.regions > 0


def test_decisions_outside_the_masks_are_refused():
    graph = captured("ring_buffer").graph
    parameter = nodes(graph, "parameter")[0]
    with pytest.raises(DecisionError) as caught:
        rewrite(graph, changed(graph.default, fuse={parameter: 1}))
    assert (caught.value.node, caught.value.rule) == (parameter, "not-fusible")
    with pytest.raises(DecisionError):
        rewrite(graph, captured("fibonacci").graph.default)


# Fuse.


def test_fuse_decides_what_is_written_to_memory():
    program = capture(chain, normal(40, 30))
    graph = program.graph
    tanh = node(graph, "tanh")
    apart = checked(program, changed(graph.default, fuse={tanh: 0}))
    together = checked(program, changed(graph.default, fuse={tanh: 1}))
    assert apart.clusters == together.clusters + 1
    assert (("tanh",), "kLoop", ()) in clusters_of(apart.data)
    assert (("tanh",), "kLoop", ()) not in clusters_of(together.data)


def test_a_fused_value_is_computed_in_every_consumer():
    program = capture(lambda x: (jnp.sin(x)[::-1] + 1.0, jnp.cumsum(jnp.sin(x))), normal(500))
    graph = program.graph
    sine = node(graph, "sine")
    kept = checked(program, changed(graph.default, fuse={sine: 0}))
    fused = checked(program, changed(graph.default, fuse={sine: 1}))
    assert len(list(instructions(kept.data, "sine"))) == 1
    assert len(list(instructions(fused.data, "sine"))) == 2
    assert fused.clusters == kept.clusters - 1


def test_a_copy_fused_into_a_library_operand():
    """The dot is the library's; what feeds it holds a copy, which the library cannot compute."""
    graph = build_graph(
        hlo_from_text("""\
HloModule library

turn (x: f32[16,8]) -> f32[8,16] {
  x = f32[16,8]{1,0} parameter(0)
  turned = f32[16,8]{0,1} copy(x)
  ROOT view = f32[8,16]{1,0} bitcast(turned)
}

multiply (l: f32[8,16], r: f32[16,8]) -> f32[8,8] {
  l = f32[8,16]{1,0} parameter(0)
  r = f32[16,8]{1,0} parameter(1)
  ROOT product = f32[8,8]{1,0} dot(l, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY main {
  p = f32[16,8]{1,0} parameter(0)
  left = f32[8,16]{1,0} fusion(p), kind=kLoop, calls=turn
  f = f32[8,8]{1,0} fusion(left, p), kind=kCustom, calls=multiply,
      backend_config={"outer_dimension_partitions":[],"fusion_config":{"kind":"__ynn_fusion"}}
  ROOT n = f32[8,8]{1,0} negate(f)
}
"""),
        MACHINE,
    )
    view = graph.source.names.index("view")
    assert graph.masks.why_not(view, "fuse", 1) is None
    assert len(list(instructions(rewrite(graph, graph.default).data, "dot"))) == 1
    rewritten = rewrite(graph, changed(graph.default, fuse={view: 1}))
    assert len(list(instructions(rewritten.data, "dot"))) == 1
    assert rewritten.overrides


BARE = """\
HloModule bare

ENTRY main {
  p = f32[8]{0} parameter(0)
  first = f32[8]{0} tanh(p)
  ROOT second = f32[8]{0} sine(first)
}
"""


def test_what_is_outside_fusions_becomes_a_kernel():
    graph = build_graph(hlo_from_text(BARE), MACHINE)
    first = graph.source.names.index("first")
    assert rewrite(graph, graph.default).clusters == 2
    assert rewrite(graph, changed(graph.default, fuse={first: 1})).clusters == 1
    moved = changed(graph.default, unit={first: unit(graph, UnitKind.LIBRARY)})
    kernels = {(("tanh",), "kCustom", ()): 1, (("sine",), "kLoop", ()): 1}
    assert clusters_of(rewrite(graph, moved).data) == kernels


STACKED = """\
HloModule stacked

ENTRY main {
  a = f32[8,1]{1,0} parameter(0)
  b = f32[8,1]{1,0} parameter(1)
  turned = f32[8,1]{1,0} tanh(a)
  ROOT pairs = f32[8,2]{1,0} concatenate(turned, b), dimensions={1}
}
"""


def test_a_concatenation_that_xla_left_outside_fusions_stays_there():
    """By itself it is written block by block, in a fusion element by element."""
    graph = build_graph(hlo_from_text(STACKED), MACHINE)
    turned, pairs = (graph.source.names.index(name) for name in ("turned", "pairs"))
    left = rewrite(graph, graph.default)
    assert left.clusters == 1 and len(list(instructions(left.data, "concatenate"))) == 1
    entry = proto_of(left.data).computations[-1]
    assert "concatenate" in {i.opcode for i in entry.instructions}
    fused = rewrite(graph, changed(graph.default, fuse={turned: 1}))
    assert [sorted(kernel[0]) for kernel in clusters_of(fused.data)] == [["concatenate", "tanh"]]
    split = changed(graph.default, unit={pairs: unit(graph, UnitKind.LOOP, 2)})
    assert rewrite(graph, split).clusters == 2


# Join.


def adam(p: jax.Array, g: jax.Array, m: jax.Array, s: jax.Array) -> tuple[jax.Array, ...]:
    m = 0.9 * m + 0.1 * g
    s = 0.99 * s + 0.01 * g * g
    return p - 1e-3 * m / (jnp.sqrt(s) + 1e-8), m, s


def fusion_outputs(data: bytes) -> list[int]:
    """Number of outputs of every fusion, sorted."""
    return sorted(
        len(f.shape.tuple_shapes) if f.shape.element_type == DType.TUPLE else 1
        for f in instructions(data, "fusion")
    )


def test_joined_roots_become_one_fusion():
    program = capture(adam, *(np.abs(normal(30, 40, seed=seed)) for seed in range(4)))
    graph = program.graph
    assert fusion_outputs(rewrite(graph, graph.default).data) == [1, 1, 1]
    joined = checked(program, joined_where_legal(graph, graph.default))
    assert fusion_outputs(joined.data) == [3]
    assert joined.clusters == 1
    (fusion,) = instructions(joined.data, "fusion")
    assert len(fusion.operand_ids) == 4, "each input is read once"
    assert len(list(instructions(joined.data, "sqrt"))) == 1


def test_one_root_may_join():
    program = capture(adam, *(np.abs(normal(30, 40, seed=seed)) for seed in range(4)))
    graph = program.graph
    last = max(i for i in range(len(graph)) if graph.masks.join[i, 1] and not graph.default.fuse[i])
    assert fusion_outputs(rewrite(graph, changed(graph.default, join={last: 1})).data) == [1, 2]


def test_roots_of_different_shapes_do_not_join():
    program = capture(lambda x, y: (jnp.sin(x), jnp.cos(y)), normal(8, 4), normal(4, 8))
    graph = program.graph
    rewritten = checked(program, joined_where_legal(graph, graph.default))
    assert fusion_outputs(rewritten.data) == [1, 1]
    assert rewritten.overrides["no-partner"] == 2


def test_what_reads_another_index_does_not_join():
    """Inside one kernel it would have to compute the other root again, for each element it reads."""
    program = capture(lambda x: (jnp.tanh(x), jnp.exp(jnp.tanh(x)[::-1])), normal(40, 30))
    rewritten = checked(program, joined_where_legal(program.graph, kept_where_legal(program.graph)))
    assert rewritten.overrides["no-partner"] > 0
    assert not any(
        {"tanh", "reverse"} <= set(opcodes) for opcodes, _, _ in clusters_of(rewritten.data)
    )


def test_what_reads_the_same_index_joins():
    program = capture(lambda x: (jnp.tanh(x), jnp.exp(jnp.tanh(x))), normal(40, 30))
    graph = program.graph
    tanh = nodes(graph, "tanh")
    rewritten = checked(
        program, joined_where_legal(graph, changed(graph.default, fuse={tanh[0]: 0}))
    )
    assert fusion_outputs(rewritten.data) == [2]


def test_twins_are_computed_once_in_a_joined_cluster():
    """XLA computes the sine in both clusters; together they need it once."""
    program = capture(lambda x: (jnp.sin(x), jnp.sin(x) * 2.0), normal(40, 30))
    graph = program.graph
    assert len(list(instructions(rewrite(graph, graph.default).data, "sine"))) == 2
    joined = checked(program, joined_where_legal(graph, graph.default))
    assert fusion_outputs(joined.data) == [2]
    assert len(list(instructions(joined.data, "sine"))) == 1


def test_a_join_makes_no_cycle():
    """The tanh and the sum have one shape, but the sort lies between them."""

    def fn(x: jax.Array) -> jax.Array:
        wave = jnp.tanh(x)
        return wave + jnp.sort(wave, axis=0)

    program = capture(fn, normal(6, 5))
    graph = program.graph
    rewritten = checked(program, joined_where_legal(graph, kept_where_legal(graph)))
    assert fusion_outputs(rewritten.data) == [1, 1]
    assert rewritten.overrides["no-partner"] == 2


# Order.


def fusion_of(data: bytes, name: str) -> Any:
    """The one fusion with a part of a name."""
    (found,) = (f for f in instructions(data, "fusion") if name in f.name)
    return found


def test_a_new_reader_of_a_buffer_comes_before_its_writer():
    """Once the exponential is fused, the negation reads the buffer that the update overwrites."""
    data = hlo_from_text("""\
HloModule update

ENTRY main {
  p = f32[8]{0} parameter(0)
  i = s32[] parameter(1)
  own = f32[8]{0} copy(p)
  reader = f32[8]{0} exponential(own)
  cell = f32[1]{0} slice(reader), slice={[2:3]}
  last = f32[8]{0} dynamic-update-slice(own, cell, i)
  beside = f32[8]{0} negate(reader)
  ROOT all = (f32[8]{0}, f32[8]{0}) tuple(last, beside)
}
""")
    graph = build_graph(data, MACHINE)
    reader = graph.source.names.index("reader")
    assert graph.masks.why_not(reader, "fuse", 1) is None
    rewritten = rewrite(graph, changed(graph.default, fuse={reader: 1})).data
    update, beside = fusion_of(rewritten, "update"), fusion_of(rewritten, "negate")
    assert list(update.control_predecessor_ids) == [beside.id]
    update = fusion_of(rewrite(graph, graph.default).data, "update")
    assert not update.control_predecessor_ids, "the value it writes already comes from the reader"
