"""Every static check finds the module that breaks it; rewritten modules pass all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from support.captures import LOCAL_ID, MACHINE, captured, proto_of

from graphopt.errors import VerificationError
from graphopt.hlo import build_graph, rewrite, verify
from graphopt.hlo.emit.verify import _CHECKS
from graphopt.hlo.module.backend_config import LIBRARY_CONFIG
from graphopt.hlo.module.index import parse
from graphopt.hlo.module.proto import HloComputationProto, HloInstructionProto
from graphopt.jax_private import hlo_from_text

# Instructions inside fusions and loops keep these names when the module is rewritten. A fusion is
# named after its root: tanh_fusion, dot_fusion, negate_fusion and so on; the call is native_region.
GOOD = """\
HloModule good

smooth (x0: f32[64,32]) -> f32[64,32] {
  x0 = f32[64,32]{1,0} parameter(0)
  ROOT tanh = f32[64,32]{1,0} tanh(x0)
}

product (x1: f32[64,32], y1: f32[32,16]) -> f32[64,16] {
  x1 = f32[64,32]{1,0} parameter(0)
  y1 = f32[32,16]{1,0} parameter(1)
  ROOT dot = f32[64,16]{1,0} dot(x1, y1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

waves (x2: f32[64,16]) -> (f32[64,16], f32[64,16]) {
  x2 = f32[64,16]{1,0} parameter(0)
  sine = f32[64,16]{1,0} sine(x2)
  cosine = f32[64,16]{1,0} cosine(x2)
  ROOT both = (f32[64,16]{1,0}, f32[64,16]{1,0}) tuple(sine, cosine)
}

read (x3: f32[8]) -> f32[8] {
  x3 = f32[8]{0} parameter(0)
  ROOT negate = f32[8]{0} negate(x3)
}

write (x4: f32[8], y4: f32[1], i4: s32[]) -> f32[8] {
  x4 = f32[8]{0} parameter(0)
  y4 = f32[1]{0} parameter(1)
  i4 = s32[] parameter(2)
  ROOT update = f32[8]{0} dynamic-update-slice(x4, y4, i4)
}

count (x5: s32[]) -> pred[] {
  x5 = s32[] parameter(0)
  five = s32[] constant(5)
  ROOT less = pred[] compare(x5, five), direction=LT
}

grow (x6: f32[8]) -> f32[8] {
  x6 = f32[8]{0} parameter(0)
  ROOT exponential = f32[8]{0} exponential(x6)
}

condition (before: (s32[], f32[8])) -> pred[] {
  before = (s32[], f32[8]{0}) parameter(0)
  k = s32[] get-tuple-element(before), index=0
  ROOT go = pred[] fusion(k), kind=kLoop, calls=count
}

body (carried: (s32[], f32[8])) -> (s32[], f32[8]) {
  carried = (s32[], f32[8]{0}) parameter(0)
  j = s32[] get-tuple-element(carried), index=0
  value = f32[8]{0} get-tuple-element(carried), index=1
  one = s32[] constant(1)
  next = s32[] add(j, one)
  grown = f32[8]{0} fusion(value), kind=kLoop, calls=grow
  ROOT after = (s32[], f32[8]{0}) tuple(next, grown)
}

native (state: (s32[], f32[8])) -> (s32[], f32[8]) {
  state = (s32[], f32[8]{0}) parameter(0)
  ROOT loop = (s32[], f32[8]{0}) while(state), condition=condition, body=body
}

ENTRY main {
  p = f32[64,32]{1,0} parameter(0)
  q = f32[32,16]{1,0} parameter(1)
  c = f32[8]{0} parameter(2)
  v = f32[1]{0} parameter(3)
  i = s32[] parameter(4)
  a = f32[64,32]{1,0} fusion(p), kind=kLoop, calls=smooth,
      backend_config={"outer_dimension_partitions":["2"]}
  d = f32[64,16]{1,0} fusion(a, q), kind=kCustom, calls=product,
      backend_config={"outer_dimension_partitions":[],"fusion_config":{"kind":"__ynn_fusion"}}
  m = (f32[64,16]{1,0}, f32[64,16]{1,0}) fusion(d), kind=kLoop, calls=waves
  own = f32[8]{0} copy(c)
  r = f32[8]{0} fusion(own), kind=kLoop, calls=read
  w = f32[8]{0} fusion(own, v, i), kind=kLoop, calls=write, control-predecessors={r}
  start = s32[] copy(i)
  from = f32[8]{0} copy(c)
  init = (s32[], f32[8]{0}) tuple(start, from)
  n = (s32[], f32[8]{0}) call(init), to_apply=native,
      frontend_attributes={xla_cpu_small_call="true"}
  g = f32[8]{0} get-tuple-element(n), index=1
  ROOT all = ((f32[64,16]{1,0}, f32[64,16]{1,0}), f32[8]{0}, f32[8]{0}, f32[8]{0})
      tuple(m, r, w, g)
}
"""


@functools.cache
def original() -> bytes:
    return hlo_from_text(GOOD)


@functools.cache
def rewritten() -> bytes:
    graph = build_graph(original(), MACHINE)
    return rewrite(graph, graph.default).data


def owner(proto: Any, name: str) -> Any:
    """The computation that contains an instruction."""
    (found,) = (c for c in proto.computations if name in [i.name for i in c.instructions])
    return found


def at(proto: Any, name: str) -> Any:
    """An instruction by name."""
    (found,) = (i for i in owner(proto, name).instructions if i.name == name)
    return found


def body(proto: Any, name: str) -> Any:
    """The first computation that an instruction calls."""
    (callee, *_) = at(proto, name).called_computation_ids
    (found,) = (c for c in proto.computations if c.id == callee)
    return found


def parameter(proto: Any, fusion: str, number: int) -> Any:
    (found,) = (
        i
        for i in body(proto, fusion).instructions
        if i.opcode == "parameter" and i.parameter_number == number
    )
    return found


def move_behind(proto: Any, name: str, other: str) -> None:
    """Puts an instruction behind another one of its computation."""
    instructions = owner(proto, name).instructions
    copies = [HloInstructionProto.FromString(i.SerializeToString()) for i in instructions]
    (moved,) = (i for i in copies if i.name == name)
    rest = [i for i in copies if i.name != name]
    place = [i.name for i in rest].index(other) + 1
    del instructions[:]
    instructions.extend([*rest[:place], moved, *rest[place:]])


def test_the_good_module_is_good():
    verify(proto_of(rewritten()), parse(original()))
    verify(proto_of(original()), parse(original()))
    verify(proto_of(rewritten()))


@pytest.mark.parametrize("name", ["stack_machine", "mlp_grad", "gather_scatter", "twin_carry"])
def test_xlas_own_modules_are_good(name):
    data = captured(name).data
    verify(proto_of(data), parse(data))


# One function per defect. The docstring of none is needed: the name says what it breaks.


def repeat_a_name(p: Any) -> None:
    at(p, "cosine").name = "sine"


def move_a_callee_to_the_end(p: Any) -> None:
    callee = body(p, "tanh_fusion")
    copies = [HloComputationProto.FromString(c.SerializeToString()) for c in p.computations]
    del p.computations[:]
    p.computations.extend(sorted(copies, key=lambda c: c.id == callee.id))


def order_two_both_ways(p: Any) -> None:
    update = at(p, "dynamic_update_slice_fusion")
    at(p, "negate_fusion").control_predecessor_ids.append(update.id)


def use_another_fusion_kind(p: Any) -> None:
    at(p, "tanh_fusion").fusion_kind = "kInput"


def drop_the_library_config(p: Any) -> None:
    at(p, "dot_fusion").backend_config = b""


def let_the_library_have_two_results(p: Any) -> None:
    at(p, "m").fusion_kind = "kCustom"
    at(p, "m").backend_config = LIBRARY_CONFIG


def nest_a_fusion(p: Any) -> None:
    inner = HloComputationProto.FromString(body(p, "negate_fusion").SerializeToString())
    inner.id = 1000
    for instruction in inner.instructions:
        instruction.name += "_nested"
    outer = at(p, "negate")
    outer.opcode, outer.fusion_kind = "fusion", "kLoop"
    outer.called_computation_ids.append(inner.id)
    copies = [HloComputationProto.FromString(c.SerializeToString()) for c in p.computations]
    del p.computations[:]
    p.computations.extend([inner, *copies])


def unmark_a_body(p: Any) -> None:
    body(p, "tanh_fusion").is_fusion_computation = False


def give_the_library_a_sine(p: Any) -> None:
    at(p, "dot").opcode = "sine"


def sort_in_a_loop_fusion(p: Any) -> None:
    at(p, "tanh").opcode = "sort"


def fuse_an_unknown_operation(p: Any) -> None:
    at(p, "tanh").opcode = "frobnicate"


def change_a_result_shape(p: Any) -> None:
    at(p, "tanh_fusion").shape.dimensions[0] = 32


def drop_a_fusion_operand(p: Any) -> None:
    del at(p, "dot_fusion").operand_ids[1]


def give_a_fusion_a_tuple(p: Any) -> None:
    at(p, "negate_fusion").operand_ids[0] = at(p, "m").id


def change_a_parameter_layout(p: Any) -> None:
    parameter(p, "tanh_fusion", 0).shape.layout.minor_to_major[:] = [0, 1]


def change_a_parameter_dtype(p: Any) -> None:
    parameter(p, "tanh_fusion", 0).shape.element_type += 1


def give_outputs_two_sizes(p: Any) -> None:
    shapes = [
        at(p, "cosine").shape,
        at(p, "both").shape.tuple_shapes[1],
        at(p, "m").shape.tuple_shapes[1],
    ]
    for shape in shapes:
        shape.dimensions[1] = 8


def leave_a_parameter_unused(p: Any) -> None:
    fusion = at(p, "tanh_fusion")
    fusion.operand_ids.append(fusion.operand_ids[0])
    (body,) = (c for c in p.computations if c.id == fusion.called_computation_ids[0])
    number = max(i.id for i in body.instructions) + 1
    body.instructions.add().CopyFrom(parameter(p, "tanh_fusion", 0))
    extra = body.instructions[-1]
    extra.name, extra.id, extra.parameter_number = "unused", number, 1


def drop_a_layout(p: Any) -> None:
    at(p, "from").shape.layout.ClearField("minor_to_major")


def repeat_a_dimension_in_a_layout(p: Any) -> None:
    shape = at(p, "from").shape
    shape.dimensions[:] = [4, 2]
    shape.layout.minor_to_major[:] = [1, 1]


def break_a_layout_in_a_tuple(p: Any) -> None:
    at(p, "init").shape.tuple_shapes[1].layout.minor_to_major[:] = [1]


def partitions(*parts: int) -> Callable[[Any], None]:
    def edit(p: Any) -> None:
        quoted = ",".join(f'"{part}"' for part in parts)
        config = f'{{"outer_dimension_partitions":[{quoted}]}}'
        at(p, "tanh_fusion").backend_config = config.encode()

    return edit


def change_a_call_parameter(p: Any) -> None:
    (state, _) = body(p, "native_region").instructions
    state.shape.tuple_shapes[1].dimensions[0] = 4


def change_a_call_result(p: Any) -> None:
    at(p, "native_region").shape.tuple_shapes[1].dimensions[0] = 4


def sort_in_a_region(p: Any) -> None:
    at(p, "next").opcode = "sort"


def call_the_library_in_a_region(p: Any) -> None:
    at(p, "exponential_fusion").fusion_kind = "kCustom"
    at(p, "exponential_fusion").backend_config = LIBRARY_CONFIG


def scatter_in_a_region(p: Any) -> None:
    at(p, "exponential").opcode = "scatter"


def change_the_result(p: Any) -> None:
    at(p, "all").shape.tuple_shapes[1].dimensions[0] = 9


def return_something_else(p: Any) -> None:
    owner(p, "all").root_id = at(p, "own").id


def change_a_parameter(p: Any) -> None:
    at(p, "c").shape.dimensions[0] = 9


def renumber_a_parameter(p: Any) -> None:
    at(p, "c").parameter_number = 7


def forget_an_order(p: Any) -> None:
    at(p, "dynamic_update_slice_fusion").ClearField("control_predecessor_ids")


def read_after_the_write(p: Any) -> None:
    forget_an_order(p)
    update = at(p, "dynamic_update_slice_fusion")
    at(p, "negate_fusion").control_predecessor_ids.append(update.id)
    move_behind(p, "negate_fusion", "dynamic_update_slice_fusion")


def let_a_loop_overwrite_what_is_read(p: Any) -> None:
    """The loop starts from the buffer that the update writes."""
    at(p, "init").operand_ids[1] = at(p, "own").id


def lose_an_operand(p: Any) -> None:
    at(p, "tanh_fusion").operand_ids[0] = 9999


def use_before_definition(p: Any) -> None:
    move_behind(p, "own", "negate_fusion")


def compute_without_a_kernel(p: Any) -> None:
    at(p, "own").opcode = "negate"


DEFECTS: list[tuple[Callable[[Any], None], str, str]] = [
    (repeat_a_name, "unique-names", "sine"),
    (move_a_callee_to_the_end, "callees-first", "tanh_fusion"),
    (order_two_both_ways, "control-order", "negate_fusion"),
    (use_another_fusion_kind, "fusion-kind", "tanh_fusion"),
    (drop_the_library_config, "fusion-kind", "dot_fusion"),
    (let_the_library_have_two_results, "fusion-kind", "m"),
    (nest_a_fusion, "fusion-kind", "negate"),
    (unmark_a_body, "fusion-kind", "smooth"),
    (give_the_library_a_sine, "fused-operation", "dot"),
    (sort_in_a_loop_fusion, "fused-operation", "tanh"),
    (fuse_an_unknown_operation, "fused-operation", "tanh"),
    (change_a_result_shape, "fusion-shape", "tanh_fusion"),
    (drop_a_fusion_operand, "fusion-shape", "dot_fusion"),
    (give_a_fusion_a_tuple, "fusion-shape", "negate_fusion"),
    (change_a_parameter_layout, "fusion-shape", "tanh_fusion"),
    (change_a_parameter_dtype, "fusion-shape", "tanh_fusion"),
    (give_outputs_two_sizes, "fusion-outputs", "m"),
    (leave_a_parameter_unused, "fused-parameter", "unused"),
    (drop_a_layout, "layout", "from"),
    (repeat_a_dimension_in_a_layout, "layout", "from"),
    (break_a_layout_in_a_tuple, "layout", "init"),
    (partitions(65), "partition", "tanh_fusion"),
    (partitions(0), "partition", "tanh_fusion"),
    (partitions(2, 33), "partition", "tanh_fusion"),
    (partitions(1, 1, 2), "partition", "tanh_fusion"),
    (change_a_call_parameter, "native-region", "native_region"),
    (change_a_call_result, "native-region", "native_region"),
    (sort_in_a_region, "native-region", "next"),
    (call_the_library_in_a_region, "native-region", "exponential_fusion"),
    (scatter_in_a_region, "native-region", "exponential_fusion"),
    (compute_without_a_kernel, "lone-operation", "own"),
    (change_the_result, "entry-result", "main"),
    (return_something_else, "entry-result", "main"),
    (change_a_parameter, "entry-parameters", "main"),
    (renumber_a_parameter, "entry-parameters", "main"),
    (forget_an_order, "in-place-order", "negate_fusion"),
    (read_after_the_write, "in-place-order", "negate_fusion"),
    (let_a_loop_overwrite_what_is_read, "in-place-order", ""),
    (lose_an_operand, "structure", "tanh_fusion"),
    (use_before_definition, "structure", "negate_fusion"),
]


@pytest.mark.parametrize("copied", [False, True], ids=["read", "said to be copied"])
@pytest.mark.parametrize(("edit", "rule", "where"), DEFECTS)
def test_a_defect_is_found(edit, rule, where, copied):
    proto = proto_of(rewritten())
    edit(proto)
    assert proto.SerializeToString() != rewritten()
    source = parse(original())
    with pytest.raises(VerificationError) as caught:
        verify(proto, source, source.computations if copied else {})
    assert caught.value.rule == rule
    assert where in str(caught.value.node)
    assert "report" in caught.value.fix


def test_every_check_has_a_defect():
    tested = {rule for _, rule, _ in DEFECTS}
    always = {"structure", "entry-result", "entry-parameters", "in-place-order"}
    always |= {"fused-operation", "lone-operation"}
    assert tested == {rule for rule, _ in _CHECKS} | always


@pytest.mark.parametrize("parts", [(1,), (2,), (64,), (64, 32), (2, 2)])
def test_partitions_that_fit(parts):
    proto = proto_of(rewritten())
    partitions(*parts)(proto)
    verify(proto, parse(original()))


def test_without_the_original_the_signature_is_free():
    proto = proto_of(rewritten())
    renumber_a_parameter(proto)
    verify(proto)
    forget_an_order(proto)
    with pytest.raises(VerificationError):
        verify(proto)


def test_ids_count_by_their_local_part():
    """XLA puts the computation's id into the upper half of an instruction's id."""
    proto = proto_of(rewritten())
    for computation in proto.computations:
        upper = computation.id << 32
        for instruction in computation.instructions:
            instruction.id = upper | instruction.id & LOCAL_ID
            for ids in (instruction.operand_ids, instruction.control_predecessor_ids):
                ids[:] = [upper | i & LOCAL_ID for i in ids]
        computation.root_id = upper | computation.root_id & LOCAL_ID
    assert proto.SerializeToString() != rewritten()
    verify(proto, parse(original()))


def test_the_library_computes_what_xla_gave_it():
    """Newer versions of XLA give the library operations that new kernels there may not have."""
    proto = proto_of(rewritten())
    give_the_library_a_sine(proto)
    verify(proto, parse(proto.SerializeToString()))
