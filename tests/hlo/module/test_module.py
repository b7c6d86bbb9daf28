"""Reading modules: what is refused, by which rule, and what the index says of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from support.captures import capture, captured, normal, proto_of

from graphopt import xla_hook
from graphopt.errors import ModuleFormatError, UnsupportedModuleError
from graphopt.hlo import build_graph
from graphopt.hlo.module.index import (
    Role,
    check_supported,
    device_count,
    has_donation,
    leaf_paths,
    leaves,
    parse,
)
from graphopt.hlo.module.proto import DType, HloInstructionProto, HloModuleProto, ShapeProto
from graphopt.hlo.module.small_calls import is_small_call
from graphopt.jax_private import hlo_from_text

PLAIN = hlo_from_text("""\
HloModule plain

ENTRY main {
  p = f32[4]{0} parameter(0)
  c = f32[4]{0} copy(p)
  ROOT n = f32[4]{0} negate(c)
}
""")


def edited(edit: Callable[[Any], None], data: bytes = PLAIN) -> bytes:
    proto = proto_of(data)
    edit(proto)
    return bytes(proto.SerializeToString())


# Bytes that are no module.


@pytest.mark.parametrize(
    "data",
    [b"garbage", b"\xff" * 20, PLAIN[: len(PLAIN) // 2], PLAIN + b"\x1a"],
    ids=["text", "ones", "half", "a field without a value"],
)
def test_bytes_that_do_not_parse(data):
    with pytest.raises(ModuleFormatError, match="cannot parse"):
        parse(data)
    with pytest.raises(ModuleFormatError, match="cannot parse"):
        build_graph(data)


@pytest.mark.parametrize("data", ["text", None, 3, HloModuleProto()])
def test_what_is_not_bytes(data):
    with pytest.raises(ModuleFormatError, match="must be bytes"):
        parse(data)


def test_an_empty_module():
    with pytest.raises(ModuleFormatError, match="no computations"):
        parse(b"")


def drop_operand(proto: Any) -> None:
    del proto.computations[0].instructions[1]


def swap_operand_and_user(proto: Any) -> None:
    instructions = proto.computations[0].instructions
    copies = [HloInstructionProto.FromString(i.SerializeToString()) for i in instructions]
    del instructions[:]
    instructions.extend([copies[0], copies[2], copies[1]])


def repeat_id(proto: Any) -> None:
    instructions = proto.computations[0].instructions
    instructions[1].id = instructions[0].id


def lose_root(proto: Any) -> None:
    proto.computations[0].root_id = 77


def lose_entry(proto: Any) -> None:
    proto.entry_computation_id = 77


def call_nothing(proto: Any) -> None:
    instruction = proto.computations[0].instructions[2]
    instruction.opcode = "call"
    instruction.called_computation_ids.append(77)


@pytest.mark.parametrize(
    "edit", [drop_operand, swap_operand_and_user, repeat_id, lose_root, lose_entry, call_nothing]
)
def test_ids_that_do_not_resolve(edit):
    parse(PLAIN)
    with pytest.raises(ModuleFormatError):
        parse(edited(edit))


# Modules that are left alone.


def refused_by(data: bytes) -> str:
    with pytest.raises(UnsupportedModuleError) as caught:
        build_graph(data)
    return caught.value.rule


def seen_by_the_hook(name: str, run: Callable[[], Any]) -> bytes:
    """The module that XLA compiles for a jitted function of this name while `run` runs."""
    seen: list[bytes] = []
    subscription = xla_hook.subscribe(lambda data: seen.append(data))
    try:
        run()
    finally:
        subscription.close()
    (data,) = (data for data in seen if proto_of(data).name == f"jit_{name}")
    return data


def dimension_is_dynamic(proto: Any) -> None:
    proto.computations[0].instructions[1].shape.is_dynamic_dimension[:] = [True]


def half_bytes(proto: Any) -> None:
    for instruction in proto.computations[0].instructions:
        instruction.shape.element_type = DType.S4


def in_a_tuple(proto: Any) -> None:
    """The last instruction becomes a tuple of a plain and a dynamic array."""
    instruction = proto.computations[0].instructions[2]
    instruction.opcode = "tuple"
    part = ShapeProto.FromString(instruction.shape.SerializeToString())
    part.is_dynamic_dimension[:] = [True]
    instruction.shape.Clear()
    instruction.shape.element_type = DType.TUPLE
    instruction.shape.tuple_shapes.add().CopyFrom(part)


EDITS: dict[str, tuple[Callable[[Any], None], str]] = {
    "unknown opcode": (
        lambda p: setattr(p.computations[0].instructions[1], "opcode", "frobnicate"),
        "unknown-opcode",
    ),
    "collective beside others": (
        lambda p: setattr(p.computations[0].instructions[1], "opcode", "all-reduce-start"),
        "asynchronous",
    ),
    "dynamic module": (lambda p: setattr(p, "is_dynamic", True), "dynamic-shape"),
    "dynamic dimension": (dimension_is_dynamic, "dynamic-shape"),
    "dynamic in a tuple": (in_a_tuple, "dynamic-shape"),
    "sub-byte": (half_bytes, "sub-byte"),
    "alias": (lambda p: setattr(p, "input_output_alias", b"\x0a\x00"), "donation"),
    "donor": (lambda p: setattr(p, "buffer_donor", b"\x0a\x00"), "donation"),
}


@pytest.mark.parametrize(("edit", "rule"), EDITS.values(), ids=EDITS)
def test_modules_that_are_left_alone(edit, rule):
    build_graph(PLAIN)
    assert refused_by(edited(edit)) == rule


@pytest.mark.parametrize(("replicas", "partitions"), [(1, 1), (2, 1), (2, 4)])
def test_devices_are_no_reason_to_refuse(replicas, partitions):
    def edit(proto: Any) -> None:
        proto.device_assignment.replica_count = replicas
        proto.device_assignment.computation_count = partitions

    data = edited(edit)
    assert len(build_graph(data)) == 3
    assert device_count(parse(data)) == replicas * partitions


def test_donated_arguments_are_refused():
    def scale(x: jax.Array) -> jax.Array:
        return x * 2.0 + 1.0

    x = jnp.ones(8)
    plain = seen_by_the_hook("scale", lambda: jax.jit(scale).lower(x).compile())
    assert not has_donation(parse(plain))
    build_graph(plain)
    donating = jax.jit(scale, donate_argnums=0)
    donated = seen_by_the_hook("scale", lambda: donating.lower(x).compile())
    assert has_donation(parse(donated))
    assert refused_by(donated) == "donation"


def test_a_size_limit():
    module = parse(PLAIN)
    check_supported(module, max_instructions=3)
    with pytest.raises(UnsupportedModuleError) as caught:
        check_supported(module, max_instructions=2)
    assert caught.value.rule == "too-large"


def test_a_computation_with_two_callers():
    data = hlo_from_text("""\
HloModule twice

twin (q: f32[4]) -> f32[4] {
  q = f32[4]{0} parameter(0)
  ROOT m = f32[4]{0} negate(q)
}

ENTRY main {
  p = f32[4]{0} parameter(0)
  a = f32[4]{0} call(p), to_apply=twin
  ROOT b = f32[4]{0} call(a), to_apply=twin
}
""")
    assert refused_by(data) == "shared-computation"


def test_an_applied_function_may_have_many_callers():
    data = hlo_from_text("""\
HloModule sums

plus (x: f32[], y: f32[]) -> f32[] {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}

ENTRY main {
  p = f32[4,5]{1,0} parameter(0)
  zero = f32[] constant(0)
  a = f32[4]{0} reduce(p, zero), dimensions={1}, to_apply=plus
  ROOT b = f32[] reduce(a, zero), dimensions={0}, to_apply=plus
}
""")
    module = parse(data)
    assert sorted(c.role for c in module.computations.values()) == [Role.ENTRY, Role.APPLIED]
    assert len(build_graph(data)) == 4


# The index.


def test_roles_and_callers():
    module = parse(captured("safe_newton").data)
    roles = {computation.role for computation in module.computations.values()}
    assert {Role.ENTRY, Role.LOOP_BODY, Role.LOOP_CONDITION, Role.BRANCH, Role.FUSED} <= roles
    opcodes = {Role.LOOP_BODY: "while", Role.LOOP_CONDITION: "while", Role.BRANCH: "conditional",
               Role.CALLED: "call", Role.FUSED: "fusion"}  # fmt: skip
    for computation in module.computations.values():
        if computation.role in (Role.ENTRY, Role.APPLIED):
            assert computation.caller is None
            continue
        local, owner = computation.caller
        caller = module.computations[owner].by_id[local]
        assert caller.opcode == opcodes[computation.role]
        assert computation.id in caller.called


def test_graph_computations_leave_out_fused_and_applied_ones():
    module = parse(captured("momentum_train").data)
    graph_roles = [computation.role for computation in module.graph_computations()]
    assert graph_roles[-1] == Role.ENTRY
    assert {Role.LOOP_BODY, Role.LOOP_CONDITION} <= set(graph_roles)
    assert not {Role.FUSED, Role.APPLIED} & set(graph_roles)
    assert len(graph_roles) < len(module.computations)


def test_instructions_are_counted_in_all_computations():
    module = parse(captured("layernorm").data)
    assert module.instruction_count == sum(len(c.by_id) for c in module.computations.values())
    assert module.instruction_count > len(module.computations)


def test_small_calls_are_recognised():
    found = [
        is_small_call(instruction)
        for computation in parse(captured("twin_carry").data).graph_computations()
        for instruction in computation.instructions
        if instruction.opcode == "call"
    ]
    assert found and all(found), "XLA wraps small loops into calls of its own"
    data = hlo_from_text("""\
HloModule calls

one (q: f32[4]) -> f32[4] {
  q = f32[4]{0} parameter(0)
  ROOT m = f32[4]{0} negate(q)
}

ENTRY main {
  p = f32[4]{0} parameter(0)
  ROOT a = f32[4]{0} call(p), to_apply=one, frontend_attributes={xla_cpu_small_call="false"}
}
""")
    (call,) = (
        i for c in parse(data).graph_computations() for i in c.instructions if i.opcode == "call"
    )
    assert not is_small_call(call)


def test_leaves_of_nested_tuples():
    shape = ShapeProto(element_type=DType.TUPLE)
    shape.tuple_shapes.add(element_type=DType.F32, dimensions=[2])
    inner = shape.tuple_shapes.add(element_type=DType.TUPLE)
    inner.tuple_shapes.add(element_type=DType.S32)
    inner.tuple_shapes.add(element_type=DType.TOKEN)
    shape.tuple_shapes.add(element_type=DType.TUPLE)
    assert [leaf.element_type for leaf in leaves(shape)] == [DType.F32, DType.S32, DType.TOKEN]
    assert list(leaf_paths(shape)) == [(0,), (1, 0), (1, 1)]
    array = ShapeProto(element_type=DType.F32, dimensions=[3])
    assert list(leaves(array)) == [array]
    assert list(leaf_paths(array)) == [()]


def test_an_error_names_what_where_and_what_to_do():
    with pytest.raises(UnsupportedModuleError) as caught:
        build_graph(edited(EDITS["unknown opcode"][0]))
    error = caught.value
    assert "frobnicate" in error.what
    assert error.where == "c"
    assert "default" in error.fix


def test_captured_modules_are_supported():
    check_supported(parse(capture(lambda x: x + 1.0, normal(3)).data))
