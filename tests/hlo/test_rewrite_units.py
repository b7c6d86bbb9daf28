"""Decisions become modules: units, limits, and what stays as it is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from support.captures import (
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
from support.loops import kernel_by_kernel
from support.rewriting import (
    chain,
    checked,
    fused_where_legal,
    instructions,
    kept_where_legal,
)

from graphopt.hlo import rewrite
from graphopt.hlo.module.proto import DType
from graphopt.hlo.plan.clusters import MAX_GROWTH, MAX_NODES
from graphopt.machine import UnitKind

# Unit: partitions and the library.


def test_partitions_are_set():
    program = capture(chain, normal(64, 16))
    graph = program.graph
    (root,) = (i for i in nodes(graph, "multiply") if not graph.default.fuse[i])
    for threads, parts in ((1, ()), (2, (2,))):
        column = unit(graph, UnitKind.LOOP, threads)
        rewritten = checked(program, changed(graph.default, unit={root: column}))
        assert [found for _, _, found in clusters_of(rewritten.data)] == [parts]


def test_a_root_in_the_library():
    program = capture(jax.nn.softmax, normal(64, 512))
    graph = program.graph
    root = graph.computations[-1].root
    assert graph.ops[root].name == "multiply"
    assert graph.units[graph.default.unit[root]].kind is UnitKind.LOOP
    library = unit(graph, UnitKind.LIBRARY)
    rewritten = checked(program, changed(graph.default, unit={root: library}))
    before, after = clusters_of(program.data), clusters_of(rewritten.data)
    ((opcodes, kind, _),) = after - before
    assert (opcodes, kind) == (("broadcast", "multiply"), "kCustom")
    assert before - after == {(opcodes, "kLoop", ()): 1}


def layernorm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    x = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(x * x, axis=-1, keepdims=True)
    return x * lax.rsqrt(variance + 1e-5) * scale + bias


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [(jax.nn.softmax, [(64, 512)]), (layernorm, [(64, 512), (512,), (512,)])],
    ids=["softmax", "layernorm"],
)
def test_a_whole_function_in_one_library_cluster(fn, shapes):
    """The library computes every value once, so nothing is recomputed however it is fused."""
    program = capture(fn, *(normal(*shape) for shape in shapes))
    graph = program.graph
    library = unit(graph, UnitKind.LIBRARY)
    decisions = changed(fused_where_legal(graph), unit={graph.computations[-1].root: library})
    rewritten = checked(program, decisions)
    ((opcodes, kind, _),) = clusters_of(rewritten.data).elements()
    assert kind == "kCustom"
    assert opcodes.count("reduce") == 2


def test_what_the_library_cannot_compute_stays_outside():
    program = capture(lambda x: jnp.exp(jnp.sin(x)) + 1.0, normal(32, 48))
    graph = program.graph
    library = unit(graph, UnitKind.LIBRARY)
    rewritten = checked(program, changed(graph.default, unit={node(graph, "add"): library}))
    kinds = {kind: opcodes for opcodes, kind, _ in clusters_of(rewritten.data)}
    assert rewritten.overrides == {"library-operation": 1}
    assert "sine" in kinds["kLoop"] and "sine" not in kinds["kCustom"]


# Unit: native regions.


def loop(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    def step(x: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        x = x + 0.1 * jnp.sin(x[::-1])
        return x, jnp.sum(x)

    return lax.scan(step, x, length=20)


def test_a_native_loop_is_a_small_call():
    program = kernel_by_kernel(capture(loop, normal(300)))
    graph = program.graph
    assert native_calls(program.data) == []
    native = unit(graph, UnitKind.NATIVE)
    rewritten = checked(program, changed(graph.default, unit={node(graph, "while"): native}))
    (call,) = native_calls(rewritten.data)
    assert rewritten.regions == 1
    called = {c.id: c for c in proto_of(rewritten.data).computations}[
        call.called_computation_ids[0]
    ]
    assert [i.opcode for i in called.instructions] == ["parameter", "while"]
    assert list(instructions(rewritten.data, "while")) != []


def test_a_loop_body_can_be_a_region():
    program = capture(loop, normal(300))
    graph = program.graph
    native = unit(graph, UnitKind.NATIVE)
    body = next(c for c in graph.computations if graph.ops[c.root].name == "tuple")
    inside = [
        i
        for i in range(body.first, body.end)
        if graph.masks.unit[i, native] and not graph.default.fuse[i]
    ]
    rewritten = checked(program, changed(graph.default, unit=dict.fromkeys(inside, native)))
    assert rewritten.regions == 1
    (call,) = native_calls(rewritten.data)
    assert call.shape.element_type == DType.TUPLE
    assert len(call.shape.tuple_shapes) > 1


def test_one_straight_line_node_is_no_region():
    program = capture(chain, normal(30, 30))
    graph = program.graph
    (root,) = (i for i in nodes(graph, "multiply") if not graph.default.fuse[i])
    native = unit(graph, UnitKind.NATIVE)
    rewritten = checked(program, changed(graph.default, unit={root: native}))
    assert rewritten.regions == 0
    assert rewritten.overrides == {"region-too-small": 1}


def test_one_product_is_a_region():
    program = capture(lambda x, y: x @ y, normal(6, 5, 4), normal(6, 4, 24, seed=1))
    graph = program.graph
    (root,) = nodes(graph, "dot")
    native = unit(graph, UnitKind.NATIVE)
    rewritten = checked(program, changed(graph.default, unit={root: native}))
    assert rewritten.regions == 1 and not rewritten.overrides
    assert len(native_calls(rewritten.data)) == 1


def test_a_region_waits_for_what_lies_between():
    """Two native runs with a sort between them are two regions."""

    def fn(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        a = jnp.cumsum(jnp.sin(x)) * 2.0
        b = jnp.sort(a)
        c = jnp.cumsum(jnp.cos(b)) * 3.0
        return a - 1.0, c

    program = capture(fn, normal(64))
    graph = program.graph
    decisions = with_unit_everywhere(graph, unit(graph, UnitKind.NATIVE))
    kept = decisions.with_changes(fuse=kept_where_legal(graph).fuse)
    rewritten = checked(program, kept)
    assert rewritten.regions == 2


def test_a_loop_that_xla_made_native_can_be_ordinary():
    program = captured("twin_carry")
    graph = program.graph
    runtime = unit(graph, UnitKind.RUNTIME)
    assert native_calls(program.data)
    loops = dict.fromkeys(nodes(graph, "while"), runtime)
    rewritten = checked(program, changed(graph.default, unit=loops))
    assert native_calls(rewritten.data) == []


def test_a_loop_with_a_convolution_that_xla_made_native_may_stay_so():
    def convolved(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return lax.map(lambda x: jnp.convolve(x, kernel, mode="same"), x)

    program = capture(convolved, normal(3, 16), normal(4))
    native = unit(program.graph, UnitKind.NATIVE)
    loop = node(program.graph, "while")
    assert program.graph.default.unit[loop] == native
    assert list(instructions(program.data, "convolution"))
    bare = nodes(program.graph, "convolution")  # none where XLA puts it into a fusion
    assert not program.graph.masks.unit[bare, native].any()
    assert checked(program, program.graph.default).regions == 1
    ordinary = changed(program.graph.default, unit={loop: unit(program.graph, UnitKind.RUNTIME)})
    assert checked(program, ordinary).regions == 0


# Limits.


def unrolled(x: jax.Array) -> jax.Array:
    """Recomputed in its consumers, every step doubles the work of all before it."""

    def step(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        wave = jnp.tanh(x)
        return wave[::-1] * jnp.roll(wave, 1) + 0.5 * x, None

    return lax.scan(step, x, length=24, unroll=24)[0]


def test_fusing_everything_does_not_blow_up():
    program = capture(unrolled, 0.1 * normal(30))
    graph = program.graph
    rewritten = checked(program, fused_where_legal(graph))
    assert rewritten.overrides["code-size"] > 0
    written = sum(len(c.instructions) for c in proto_of(rewritten.data).computations)
    assert written < 2 * MAX_GROWTH * len(graph)


def test_a_reduction_is_not_repeated_for_every_element():
    program = capture(lambda x: x * jnp.exp(-jnp.sum(jnp.sin(x))), normal(3000))
    graph = program.graph
    rewritten = checked(program, fused_where_legal(graph))
    assert rewritten.overrides["redundant-work"] > 0
    assert rewritten.clusters > 1


def test_a_short_reduction_may_be_repeated():
    program = capture(lambda x: x * jnp.exp(-jnp.sum(jnp.sin(x))), normal(6))
    graph = program.graph
    rewritten = checked(program, fused_where_legal(graph))
    assert rewritten.overrides == {}
    assert rewritten.clusters == 1


def test_a_large_cluster_is_cut():
    def fn(x: jax.Array) -> jax.Array:
        for _ in range(MAX_NODES):
            x = jnp.sin(x) * 0.5 + 1.0
        return x

    program = capture(fn, normal(4))
    graph = program.graph
    kept = rewrite(graph, kept_where_legal(graph))
    assert kept.clusters > MAX_NODES
    default = rewrite(graph, graph.default)
    assert default.overrides == {}, "clusters that XLA made are kept whatever their size"
    native = unit(graph, UnitKind.NATIVE)
    cut = rewrite(graph, with_unit_everywhere(graph, native))
    assert cut.overrides.get("cluster-size", 0) > 0


# What stays.


def test_opaque_fusions_and_applied_functions_are_kept():
    program = captured("gather_scatter")
    rewritten = rewrite(program.graph, kept_where_legal(program.graph))

    def scatters(data: bytes) -> int:
        return len(list(instructions(data, "scatter")))

    assert scatters(rewritten.data) == scatters(program.data) > 0
    names = {c.name for c in proto_of(rewritten.data).computations}
    applied = {
        c.name
        for c in proto_of(program.data).computations
        if c.name.startswith("region") and len(c.instructions) == 3
    }
    assert applied and applied <= names


def test_signature_and_metadata_are_kept():
    program = captured("mlp_grad")
    before, after = (
        proto_of(program.data),
        proto_of(rewrite(program.graph, kept_where_legal(program.graph)).data),
    )
    assert after.host_program_shape == before.host_program_shape
    assert after.entry_computation_name == before.entry_computation_name
    assert after.entry_computation_id == before.entry_computation_id
    lines = {i.metadata for i in instructions(after.SerializeToString(), "dot")}
    assert lines == {i.metadata for i in instructions(before.SerializeToString(), "dot")} != {b""}
