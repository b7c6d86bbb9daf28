"""Graphs of real programs: order, columns, default decisions, fingerprints, and the way back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.captures import (
    CORES,
    MACHINE,
    PROGRAMS,
    capture,
    captured,
    clusters_of,
    native_calls,
    node,
    nodes,
    normal,
    proto_of,
)

from graphopt.errors import UnsupportedModuleError
from graphopt.hlo import Decisions, Graph, build_graph, rewrite
from graphopt.hlo.graph.graph import UNKNOWN_TRIPS
from graphopt.hlo.module.index import Role, parse
from graphopt.hlo.module.opcodes import OP_BY_NAME, OpKind
from graphopt.hlo.module.proto import DType
from graphopt.hlo.plan.effective_units import effective_units
from graphopt.jax_private import hlo_from_text
from graphopt.machine import UnitKind
from graphopt.measure import compare_outputs

each_program = pytest.mark.parametrize("name", [program.name for program in PROGRAMS])


# Every program.


@each_program
def test_nodes_come_in_order(name):
    graph = captured(name).graph
    for user, operands in enumerate(graph.operand_lists):
        assert all(operand < user for operand in operands)
        assert {graph.computation[operand] for operand in operands} <= {graph.computation[user]}
    assert (graph.control[:, 0] < graph.control[:, 1]).all()
    for later, hazards in zip(graph.computations, graph.in_place.writer, strict=True):
        assert all(later.first <= writer < later.end for writer in hazards)


@each_program
def test_computations_come_callee_first(name):
    graph = captured(name).graph
    assert [c.role for c in graph.computations].index(Role.ENTRY) == len(graph.computations) - 1
    end = 0
    for i, computation in enumerate(graph.computations):
        assert computation.first == end < computation.end
        end = computation.end
        assert set(graph.computation[computation.first : end]) == {i}
        assert computation.first <= computation.root < end
        if computation.role is Role.ENTRY:
            assert computation.caller is None and computation.parent is None
        else:
            caller = graph.computations[computation.parent]
            assert i < computation.parent
            assert caller.first <= computation.caller < caller.end
            assert graph.ops[computation.caller].kind is OpKind.CONTROL
    assert end == len(graph)


@each_program
def test_columns_have_their_dtypes_and_shapes(name):
    graph = captured(name).graph
    count = len(graph)
    columns: dict[str, tuple[Any, tuple[int, ...]]] = {
        "opcode": (np.int16, (count,)),
        "dtype": (np.int8, (count,)),
        "elements": (np.int64, (count,)),
        "nbytes": (np.int64, (count,)),
        "dim_start": (np.int32, (count + 1,)),
        "dims": (np.int64, (graph.dim_start[-1],)),
        "operand_start": (np.int32, (count + 1,)),
        "operands": (np.int32, (graph.operand_start[-1],)),
        "control": (np.int32, (len(graph.control), 2)),
        "computation": (np.int32, (count,)),
        "executions": (np.float64, (count,)),
    }
    for column, (dtype, shape) in columns.items():
        array = getattr(graph, column)
        assert (array.dtype, array.shape) == (dtype, shape), column
    arrays = [i for i in range(count) if not graph.is_tuple(i)]
    assert [int(np.prod(graph.dim_lists[i])) for i in arrays] == graph.elements[arrays].tolist()
    source = graph.source
    for column in ("instructions", "names", "metadata", "shapes", "called", "config", "bare",
                   "position", "frozen"):  # fmt: skip
        assert len(getattr(source, column)) == count, column


@each_program
def test_default_decisions_are_legal(name):
    graph = captured(name).graph
    graph.masks.check(graph.default)
    assert not graph.default.join.any(), "XLA makes no multi-output fusions on CPU"


def computed_units(graph: Graph) -> Counter[tuple[str, str]]:
    """(opcode, unit) of all that is computed and written to memory.

    Inside a native loop the unit is the loop's. What computes nothing may come and go.
    """
    units = effective_units(graph, graph.default)
    return Counter(
        (op.name, graph.units[units[i]].name)
        for i, op in enumerate(graph.ops)
        if not graph.default.fuse[i] and op.kind is not OpKind.STRUCTURE and op.name != "call"
    )


@each_program
def test_the_default_decisions_reproduce_xlas_module(name):
    program = captured(name)
    before, graph = program.data, program.graph
    after = rewrite(graph, graph.default)
    assert after.overrides == {}
    assert clusters_of(after.data) == clusters_of(before, merged=True)
    assert after.clusters + len(nodes(graph, "fusion")) == clusters_of(after.data).total()
    assert after.regions == len(native_calls(after.data)) == len(native_calls(before))
    again = build_graph(after.data, MACHINE)
    assert computed_units(again) == computed_units(graph)


@each_program
def test_the_default_decisions_compute_the_default_result(name):
    program = captured(name)
    data = rewrite(program.graph, program.graph.default).data
    difference = compare_outputs(program.result, program.compile(data)())
    assert difference.equal, difference


# Graphs of small modules.


def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w) + 1.0


def test_columns_describe_the_nodes():
    graph = capture(layer, normal(16, 32), normal(32, 8)).graph
    dot = node(graph, "dot")
    assert graph.dim_lists[dot] == [16, 8]
    assert (graph.elements[dot], graph.nbytes[dot], graph.dtype[dot]) == (128, 512, DType.F32)
    assert [graph.ops[o].name for o in graph.operand_lists[dot]] == ["parameter", "parameter"]
    (tanh,) = graph.user_lists[dot]
    assert graph.ops[tanh].name == "tanh"
    assert graph.source_line(dot).endswith("dot_general")
    assert "dot" in graph.source.names[dot]
    assert graph.name in repr(graph) and graph.fingerprint[:12] in repr(graph)


def test_a_tuple_counts_its_parts():
    graph = capture(lambda x, n: (x + 1.0, n - 1), normal(5), np.arange(3, dtype=np.uint8)).graph
    root = graph.computations[-1].root
    assert graph.is_tuple(root)
    assert (graph.elements[root], graph.nbytes[root]) == (8, 23)
    assert graph.dim_lists[root] == []


def test_users_are_the_inverse_of_operands():
    graph = captured("viterbi").graph
    pairs = {(o, user) for user, operands in enumerate(graph.operand_lists) for o in operands}
    listed = [(o, user) for o, users in enumerate(graph.user_lists) for user in users]
    assert sorted(pairs) == listed


def test_loops_multiply_executions():
    def fn(x: jax.Array, n: jax.Array) -> tuple[jax.Array, jax.Array]:
        def inner(_: Any, x: jax.Array) -> jax.Array:
            return jnp.sin(x) * 0.5

        def outer(_: Any, x: jax.Array) -> jax.Array:
            return jnp.cos(lax.fori_loop(0, 7, inner, x))

        return lax.fori_loop(0, 5, outer, x), lax.fori_loop(0, n, lambda _, x: jnp.exp(x) - 1.0, x)

    graph = capture(fn, normal(300), np.int32(4)).graph
    assert {graph.executions[i] for i in nodes(graph, "sine")} == {35.0}
    assert {graph.executions[i] for i in nodes(graph, "cosine")} == {5.0}
    assert {graph.executions[i] for i in nodes(graph, "exponential")} == {UNKNOWN_TRIPS}
    assert {graph.executions[i] for i in nodes(graph, "while")} == {1.0, 5.0}


def test_partitions_are_read_as_loop_units():
    graph = build_graph(
        hlo_from_text("""\
HloModule parts

half (p: f32[64,32]) -> f32[64,32] {
  p = f32[64,32]{1,0} parameter(0)
  ROOT t = f32[64,32]{1,0} tanh(p)
}

whole (q: f32[64,32]) -> f32[64,32] {
  q = f32[64,32]{1,0} parameter(0)
  ROOT s = f32[64,32]{1,0} sine(q)
}

ENTRY main {
  x = f32[64,32]{1,0} parameter(0)
  a = f32[64,32]{1,0} fusion(x), kind=kLoop, calls=half,
      backend_config={"outer_dimension_partitions":["2"]}
  ROOT b = f32[64,32]{1,0} fusion(a), kind=kLoop, calls=whole
}
"""),
        MACHINE,
    )
    units = {op.name: graph.units[graph.default.unit[i]].name for i, op in enumerate(graph.ops)}
    assert units == {"parameter": "runtime", "tanh": "loop@2", "sine": "loop@1"}
    assert CORES >= 2


def test_library_fusions_are_read_as_such():
    graph = capture(lambda x: jax.nn.softmax(x, axis=-1), normal(64, 512)).graph
    library = [i for i, u in enumerate(graph.default.unit)
               if graph.units[u].kind is UnitKind.LIBRARY]  # fmt: skip
    assert "reduce" in {graph.ops[i].name for i in library}


def test_small_loops_that_xla_makes_native_are_native():
    graph = captured("twin_carry").graph
    loops = nodes(graph, "while")
    assert len(loops) == 2 and not nodes(graph, "call")
    assert {graph.units[graph.default.unit[i]].kind for i in loops} == {UnitKind.NATIVE}


# Duplicates.

TWINS = """\
HloModule twins

one (p: f32[8]) -> f32[8] {
  p = f32[8]{0} parameter(0)
  ROOT t = f32[8]{0} tanh(p)
}

two (q: f32[8]) -> f32[8] {
  q = f32[8]{0} parameter(0)
  ROOT u = f32[8]{0} tanh(q)
}

sum (r: f32[8], s: f32[8]) -> f32[8] {
  r = f32[8]{0} parameter(0)
  s = f32[8]{0} parameter(1)
  ROOT d = f32[8]{0} divide(r, s)
}

ENTRY main {
  x = f32[8]{0} parameter(0)
  a = f32[8]{0} fusion(x), kind=kLoop, calls=one
  b = f32[8]{0} fusion(x), kind=kLoop, calls=two
  ROOT e = ENDING
}
"""


def twins(ending: str) -> bytes:
    return hlo_from_text(TWINS.replace("ENDING", ending))


def test_equal_clusters_become_one():
    data = twins("f32[8]{0} fusion(a, b), kind=kLoop, calls=sum")
    graph = build_graph(data, MACHINE)
    assert len(nodes(graph, "tanh")) == 1
    after = rewrite(graph, graph.default).data
    assert clusters_of(data)[("tanh",), "kLoop", ()] == 2
    assert clusters_of(after) == clusters_of(data, merged=True)
    assert clusters_of(after)[("tanh",), "kLoop", ()] == 1


def test_equal_values_with_buffers_of_their_own_stay_two():
    data = twins("(f32[8]{0}, f32[8]{0}) tuple(a, b)")
    graph = build_graph(data, MACHINE)
    assert len(nodes(graph, "tanh")) == 2
    assert clusters_of(rewrite(graph, graph.default).data) == clusters_of(data)


# Fingerprints.


def fingerprint(fn: Callable[..., Any], *args: Any) -> str:
    return capture(fn, *args).graph.fingerprint


def scaled(x: jax.Array) -> jax.Array:
    return jnp.sum(jnp.sin(x) * 3.0, axis=0)


def other_name(y: jax.Array) -> jax.Array:
    with jax.named_scope("elsewhere"):
        wave = jnp.sin(y)
    return jnp.sum(wave * 3.0, axis=0)


X = normal(6, 4)


def test_names_and_metadata_do_not_count():
    assert fingerprint(scaled, X) == fingerprint(scaled, X + 1.0)
    one, other = capture(scaled, X), capture(other_name, X)
    assert one.data != other.data
    assert one.graph.fingerprint == other.graph.fingerprint


@pytest.mark.parametrize("name", ["safe_newton", "sorting", "momentum_train"])
def test_names_metadata_and_ids_do_not_count_anywhere(name):
    data = captured(name).data
    proto = proto_of(data)
    proto.name = "renamed"
    shift = 1000
    proto.id += shift
    proto.entry_computation_id += shift
    for computation in proto.computations:
        computation.id += shift
        computation.name += "_renamed"
        for instruction in computation.instructions:
            instruction.name += "_renamed"
            instruction.metadata = b""
            callees = [callee + shift for callee in instruction.called_computation_ids]
            instruction.called_computation_ids[:] = callees
    changed = build_graph(proto.SerializeToString(), MACHINE)
    assert changed.fingerprint == captured(name).graph.fingerprint


CHANGES: dict[str, Callable[[jax.Array], Any]] = {
    "constant": lambda x: jnp.sum(jnp.sin(x) * 3.5, axis=0),
    "operation": lambda x: jnp.sum(jnp.cos(x) * 3.0, axis=0),
    "dimension": lambda x: jnp.sum(jnp.sin(x) * 3.0, axis=1),
    "reducer": lambda x: jnp.max(jnp.sin(x) * 3.0, axis=0),
    "outputs": lambda x: (jnp.sum(jnp.sin(x) * 3.0, axis=0), x),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_computed_counts(change):
    assert fingerprint(change, X) != fingerprint(scaled, X)


@pytest.mark.parametrize(
    "changed", [normal(6, 5), normal(4, 6), X.astype(np.float16), X.astype(np.int32)],
    ids=["shape", "transposed", "half", "integer"],
)  # fmt: skip
def test_shapes_and_dtypes_count(changed):
    assert fingerprint(scaled, changed) != fingerprint(scaled, X)


def test_operand_order_counts():
    assert fingerprint(lambda x: jnp.sin(x) - x, X) != fingerprint(lambda x: x - jnp.sin(x), X)


def test_a_comparison_counts():
    """Its direction is in a field that our schema does not list."""
    assert fingerprint(lambda x: x > 0.5, X) != fingerprint(lambda x: x < 0.5, X)


def test_constants_and_loops_inside_loops_count():
    def loop(factor: float, trips: int) -> str:
        def body(_: Any, x: jax.Array) -> jax.Array:
            return jnp.sin(x) * factor

        return fingerprint(lambda x: lax.fori_loop(0, trips, body, x), normal(400))

    assert loop(0.5, 9) == loop(0.5, 9)
    assert len({loop(0.5, 9), loop(0.25, 9), loop(0.5, 8)}) == 3


def test_default_decisions_count():
    ending = "f32[8]{0} fusion(a, b), kind=kLoop, calls=sum"
    halves = twins(ending + ', backend_config={"outer_dimension_partitions":["2"]}')
    one, other = build_graph(halves, MACHINE), build_graph(twins(ending), MACHINE)
    assert one.opcode.tolist() == other.opcode.tolist()
    assert one.fingerprint != other.fingerprint


# Modules whose in-place order cannot be kept.


def test_a_reader_without_order_is_refused():
    data = hlo_from_text("""\
HloModule unordered

ENTRY main {
  p = f32[8]{0} parameter(0)
  i = s32[] parameter(1)
  v = f32[1]{0} parameter(2)
  c = f32[8]{0} copy(p)
  w = f32[8]{0} dynamic-update-slice(c, v, i)
  r = f32[8]{0} negate(c)
  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(w, r)
}
""")
    parse(data)
    with pytest.raises(UnsupportedModuleError) as caught:
        build_graph(data, MACHINE)
    assert caught.value.rule == "in-place-order"


def test_the_opcode_column_indexes_the_table():
    graph = captured("layernorm").graph
    assert [OP_BY_NAME[op.name].code for op in graph.ops] == graph.opcode.tolist()


def test_decisions_are_read_per_node():
    graph = captured("layernorm").graph
    assert isinstance(graph.default, Decisions) and len(graph.default) == len(graph)
    assert graph.default.fuse.any() and not graph.default.fuse.all()
