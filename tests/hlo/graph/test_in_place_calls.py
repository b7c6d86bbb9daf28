"""In-place promises of branches and calls, and of real programs."""

from __future__ import annotations

import numpy as np
import pytest
from support.captures import captured, proto_of
from support.promises import analysed, broken, hazards

from graphopt.hlo import build_graph, rewrite
from graphopt.hlo.graph.in_place import InPlaceAnalysis, broken_hazards
from graphopt.hlo.module.index import Role, parse
from graphopt.jax_private import hlo_from_text
from graphopt.machine import UnitKind

# Branches and calls.


def test_a_conditional_overwrites_what_a_branch_writes_or_hands_on():
    analysis = analysed("""\
HloModule branches

write (a: (f32[8], f32[1], s32[])) -> f32[8] {
  a = (f32[8]{0}, f32[1]{0}, s32[]) parameter(0)
  x = f32[8]{0} get-tuple-element(a), index=0
  v = f32[1]{0} get-tuple-element(a), index=1
  i = s32[] get-tuple-element(a), index=2
  ROOT w = f32[8]{0} dynamic-update-slice(x, v, i)
}

same (b: f32[8]) -> f32[8] {
  ROOT b = f32[8]{0} parameter(0)
}

fresh (d: f32[8]) -> f32[8] {
  d = f32[8]{0} parameter(0)
  ROOT n = f32[8]{0} negate(d)
}

ENTRY main {
  k = s32[] parameter(0)
  p = f32[8]{0} parameter(1)
  v = f32[1]{0} parameter(2)
  i = s32[] parameter(3)
  one = f32[8]{0} copy(p)
  two = f32[8]{0} copy(p)
  three = f32[8]{0} copy(p)
  all = (f32[8]{0}, f32[1]{0}, s32[]) tuple(one, v, i)
  r = f32[8]{0} add(two, three)
  c = f32[8]{0} conditional(k, all, two, three), branch_computations={write, same, fresh}
  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(c, r)
}
""")
    assert hazards(analysis) == {
        ("one", (), "c", frozenset()),
        ("two", (), "c", frozenset({"r"})),
    }
    assert broken(analysis) == {("c", "r")}


def handed_on(first: str, second: str) -> InPlaceAnalysis:
    return analysed(f"""\
HloModule same

one (b: f32[8]) -> f32[8] {{
  ROOT b = f32[8]{{0}} parameter(0)
}}

other (d: f32[8]) -> f32[8] {{
  ROOT d = f32[8]{{0}} parameter(0)
}}

ENTRY main {{
  k = s32[] parameter(0)
  p = f32[8]{{0}} parameter(1)
  v = f32[1]{{0}} parameter(2)
  i = s32[] parameter(3)
  x = f32[8]{{0}} copy(p)
  y = f32[8]{{0}} copy(p)
  r = f32[8]{{0}} negate(x)
  c = f32[8]{{0}} conditional(k, {first}, {second}), branch_computations={{one, other}}
  w = f32[8]{{0}} dynamic-update-slice(c, v, i)
  ROOT t = (f32[8]{{0}}, f32[8]{{0}}) tuple(w, r)
}}
""")


def test_a_conditional_may_be_another_name_for_a_value():
    """Both branches hand on x: the result is x, so the update overwrites x itself."""
    analysis = handed_on("x", "x")
    assert hazards(analysis) == {("x", (), "w", frozenset({"c", "r"}))}
    assert broken(analysis) == {("w", "r")}


def test_a_conditional_that_chooses_is_a_value_of_its_own():
    analysis = handed_on("x", "y")
    assert hazards(analysis) == {
        ("x", (), "c", frozenset({"r"})),
        ("y", (), "c", frozenset()),
        ("c", (), "w", frozenset()),
    }
    assert broken(analysis) == {("c", "r")}


CARRIED_TWICE = """\
HloModule twice

keep (a: (f32[8], f32[8])) -> f32[8] {{
  a = (f32[8]{{0}}, f32[8]{{0}}) parameter(0)
  ROOT x = f32[8]{{0}} get-tuple-element(a), index=0
}}

take (b: (f32[8], f32[8])) -> f32[8] {{
  b = (f32[8]{{0}}, f32[8]{{0}}) parameter(0)
  ROOT y = f32[8]{{0}} get-tuple-element(b), index=1
}}

condition (t: (f32[8], f32[8], pred[])) -> pred[] {{
  t = (f32[8]{{0}}, f32[8]{{0}}, pred[]) parameter(0)
  ROOT go = pred[] get-tuple-element(t), index=2
}}

body (s: (f32[8], f32[8], pred[])) -> (f32[8], f32[8], pred[]) {{
  s = (f32[8]{{0}}, f32[8]{{0}}, pred[]) parameter(0)
  first = f32[8]{{0}} get-tuple-element(s), index=0
  second = f32[8]{{0}} get-tuple-element(s), index=1
  on = pred[] get-tuple-element(s), index=2
  both = (f32[8]{{0}}, f32[8]{{0}}) tuple(first, second)
  chosen = f32[8]{{0}} conditional(on, both, both), true_computation=keep, false_computation=take
  late = f32[8]{{0}} negate(second)
  small = f32[1]{{0}} slice(late), slice={{[0:1]}}
  one = f32[] bitcast(small)
  end = pred[] is-finite(one), control-predecessors={{chosen}}
  ROOT out = (f32[8]{{0}}, f32[8]{{0}}, pred[]) tuple(chosen, second, end)
}}

ENTRY main {{
  p = f32[8]{{0}} parameter(0)
  q = f32[8]{{0}} parameter(1)
  yes = pred[] parameter(2)
  x = f32[8]{{0}} copy(p)
  y = f32[8]{{0}} copy(q)
  init = (f32[8]{{0}}, f32[8]{{0}}, pred[]) tuple({start}, yes)
  loop = (f32[8]{{0}}, f32[8]{{0}}, pred[]) while(init), condition=condition, body=body
  ROOT result = f32[8]{{0}} get-tuple-element(loop), index=0
}}
"""


def test_an_untouched_value_may_be_carried_in_two_places():
    """The loop chooses between two names of one buffer, so it writes to neither."""
    analysis = analysed(CARRIED_TWICE.format(start="x, x"))
    assert hazards(analysis, Role.LOOP_BODY) == {("s", (2,), "end", frozenset({"chosen"}))}
    assert hazards(analysis) == {("yes", (), "loop", frozenset())}
    assert not broken(analysis)


def test_values_that_start_in_two_buffers_are_written_where_they_are_chosen():
    analysis = analysed(CARRIED_TWICE.format(start="x, y"))
    written = {(found[0], found[1], found[2]) for found in hazards(analysis, Role.LOOP_BODY)}
    assert ("s", (0,), "chosen") in written
    assert ("late", "chosen") in {(reader, writer) for writer, reader in broken(analysis)}


def test_a_call_overwrites_what_its_computation_writes():
    analysis = analysed("""\
HloModule calls

inner (x: f32[8], v: f32[1], i: s32[], y: f32[8]) -> (f32[8], f32[8]) {
  x = f32[8]{0} parameter(0)
  v = f32[1]{0} parameter(1)
  i = s32[] parameter(2)
  y = f32[8]{0} parameter(3)
  w = f32[8]{0} dynamic-update-slice(x, v, i)
  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(w, y)
}

ENTRY main {
  p = f32[8]{0} parameter(0)
  v = f32[1]{0} parameter(1)
  i = s32[] parameter(2)
  a = f32[8]{0} copy(p)
  b = f32[8]{0} copy(p)
  k = (f32[8]{0}, f32[8]{0}) call(a, v, i, b), to_apply=inner
  g = f32[8]{0} get-tuple-element(k), index=1
  r = f32[8]{0} negate(b)
  ROOT w2 = f32[8]{0} dynamic-update-slice(g, v, i)
}
""")
    # The call hands b on under another name, so w2 overwrites b itself.
    assert hazards(analysis) == {
        ("a", (), "k", frozenset()),
        ("b", (), "w2", frozenset({"k", "r"})),
    }
    assert broken(analysis) == {("w2", "r")}


LOOP_IN_A_FUNCTION = (
    CARRIED_TWICE.partition("ENTRY")[0]
    + """\
function (x: f32[8], y: f32[8], yes: pred[]) -> f32[8] {{
  x = f32[8]{{0}} parameter(0)
  y = f32[8]{{0}} parameter(1)
  yes = pred[] parameter(2)
  init = (f32[8]{{0}}, f32[8]{{0}}, pred[]) tuple(x, y, yes)
  loop = (f32[8]{{0}}, f32[8]{{0}}, pred[]) while(init), condition=condition, body=body
  ROOT result = f32[8]{{0}} get-tuple-element(loop), index=0
}}

ENTRY main {{
  p = f32[8]{{0}} parameter(0)
  q = f32[8]{{0}} parameter(1)
  on = pred[] parameter(2)
  a = f32[8]{{0}} copy(p)
  b = f32[8]{{0}} copy(q)
  ROOT done = f32[8]{{0}} call({start}, on), to_apply=function
}}
"""
)


@pytest.mark.parametrize(("start", "sound"), [("a, a", True), ("a, b", False)])
def test_a_function_has_its_parameters_where_its_caller_has_them(start, sound):
    """A loop inside leaves both values alone where they are one, as outside of a function."""
    analysis = analysed(LOOP_IN_A_FUNCTION.format(start=start))
    assert bool(broken(analysis)) is not sound


@pytest.mark.parametrize(("other", "sound"), [("a", False), ("b", True)])
def test_a_function_that_is_handed_one_buffer_twice_overwrites_both(other, sound):
    analysis = analysed(f"""\
HloModule twice

inner (x: f32[8], v: f32[1], i: s32[], y: f32[8]) -> f32[8] {{
  x = f32[8]{{0}} parameter(0)
  v = f32[1]{{0}} parameter(1)
  i = s32[] parameter(2)
  y = f32[8]{{0}} parameter(3)
  r = f32[8]{{0}} negate(y)
  w = f32[8]{{0}} dynamic-update-slice(x, v, i)
  ROOT sum = f32[8]{{0}} add(w, r)
}}

ENTRY main {{
  p = f32[8]{{0}} parameter(0)
  v = f32[1]{{0}} parameter(1)
  i = s32[] parameter(2)
  a = f32[8]{{0}} copy(p)
  b = f32[8]{{0}} copy(p)
  ROOT k = f32[8]{{0}} call(a, v, i, {other}), to_apply=inner
}}
""")
    assert bool(broken(analysis)) is not sound


def test_a_branch_that_is_handed_one_buffer_twice_overwrites_both():
    analysis = analysed("""\
HloModule twice

write (a: (f32[8], f32[1], s32[], f32[8])) -> f32[8] {
  a = (f32[8]{0}, f32[1]{0}, s32[], f32[8]{0}) parameter(0)
  x = f32[8]{0} get-tuple-element(a), index=0
  v = f32[1]{0} get-tuple-element(a), index=1
  i = s32[] get-tuple-element(a), index=2
  y = f32[8]{0} get-tuple-element(a), index=3
  r = f32[8]{0} negate(y)
  w = f32[8]{0} dynamic-update-slice(x, v, i)
  ROOT sum = f32[8]{0} add(w, r)
}

leave (b: f32[8]) -> f32[8] {
  b = f32[8]{0} parameter(0)
  ROOT n = f32[8]{0} negate(b)
}

ENTRY main {
  p = f32[8]{0} parameter(0)
  v = f32[1]{0} parameter(1)
  i = s32[] parameter(2)
  on = pred[] parameter(3)
  c = f32[8]{0} copy(p)
  d = f32[8]{0} copy(p)
  args = (f32[8]{0}, f32[1]{0}, s32[], f32[8]{0}) tuple(c, v, i, c)
  ROOT k = f32[8]{0} conditional(on, args, d), true_computation=write, false_computation=leave
}
""")
    assert broken(analysis) == {("w", "r")}


# A kernel that writes a carried value, and ends with a reshape.

VIEWED = """\
HloModule viewed

condition (t: (s32[], f32[32], f32[32])) -> pred[] {
  t = (s32[], f32[32]{0}, f32[32]{0}) parameter(0)
  n = s32[] get-tuple-element(t), index=0
  limit = s32[] constant(5)
  ROOT less = pred[] compare(n, limit), direction=LT
}

moves (q: f32[32]) -> f32[32] {
  q = f32[32]{0} parameter(0)
  rows = f32[8,4]{1,0} bitcast(q)
  moved = f32[8,4]{1,0} tanh(rows)
  ROOT flat = f32[32]{0} bitcast(moved)
}

body (s: (s32[], f32[32], f32[32])) -> (s32[], f32[32], f32[32]) {
  s = (s32[], f32[32]{0}, f32[32]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[32]{0} get-tuple-element(s), index=1
  e = f32[32]{0} get-tuple-element(s), index=2
  turned = f32[32]{0} reverse(x), dimensions={0}
  next = f32[32]{0} fusion(x), kind=kLoop, calls=moves, control-predecessors={turned}
  seen = f32[32]{0} cosine(turned)
  e2 = f32[32]{0} add(e, seen)
  one = s32[] constant(1)
  i2 = s32[] add(i, one)
  ROOT out = (s32[], f32[32]{0}, f32[32]{0}) tuple(i2, next, e2)
}

ENTRY main {
  zero = s32[] constant(0)
  start = s32[] copy(zero)
  p = f32[32]{0} parameter(0)
  a = f32[32]{0} copy(p)
  b = f32[32]{0} copy(p)
  init = (s32[], f32[32]{0}, f32[32]{0}) tuple(start, a, b)
  ROOT loop = (s32[], f32[32]{0}, f32[32]{0}) while(init), condition=condition, body=body
}
"""


@pytest.mark.parametrize("ordered_by", ["control", "promise"])
def test_promises_move_to_the_value_behind_a_reshape(ordered_by):
    """What was ordered against the kernel holds for the one in its place, not for the bitcast."""
    text = VIEWED
    if (
        ordered_by == "promise"
    ):  # fused away, the first reader leaves its place to one without order
        text = text.replace("turned}", "kept}").replace(
            "  next =", "  kept = f32[32]{0} negate(turned)\n  next ="
        )
    graph = build_graph(hlo_from_text(text))
    name = graph.source.names.index
    decisions = graph.default.copy()
    decisions.fuse[name("moved")] = False
    if ordered_by == "promise":
        decisions.fuse[name("turned")] = True
    rewritten = rewrite(graph, decisions).data
    promises, missing = all_hazards(rewritten)
    assert (promises > 0, missing) == (True, 0)
    (loop,) = (c for c in parse(rewritten).graph_computations() if c.role is Role.LOOP_BODY)
    (flat,) = (i for i in loop.instructions if i.opcode == "bitcast")
    assert loop.by_id[flat.operands[0]].opcode == "fusion"
    library = next(i for i, u in enumerate(graph.units) if u.kind is UnitKind.LIBRARY)
    assert graph.masks.why_not(name("moved"), "unit", library) == "in-place-writer"


# Real programs.

IN_PLACE = (
    "fibonacci life_sweep gauss_seidel twin_carry ring_buffer shared_zeros substitution knapsack "
    "edit_distance viterbi indexed_updates gather_scatter stack_machine scan_grad"
).split()


def all_hazards(data: bytes) -> tuple[int, int]:
    """(promises, promises with a reader that has no order)."""
    analysis = InPlaceAnalysis(parse(data))
    return sum(map(len, analysis.hazards.values())), len(broken_hazards(analysis))


@pytest.mark.parametrize("name", IN_PLACE)
def test_xlas_own_modules_keep_their_promises(name):
    promises, missing = all_hazards(captured(name).data)
    assert promises > 0
    assert missing == 0


@pytest.mark.parametrize("name", IN_PLACE)
def test_rewritten_modules_keep_their_promises(name):
    graph = captured(name).graph
    for seed in range(3):
        decisions = graph.masks.sample(np.random.default_rng(seed), graph.default, 0.5)
        promises, missing = all_hazards(rewrite(graph, decisions).data)
        assert promises > 0
        assert missing == 0


@pytest.mark.parametrize("name", ["fibonacci", "twin_carry", "random_order"])
def test_xlas_control_edges_are_what_keeps_them(name):
    proto = proto_of(captured(name).data)
    for computation in proto.computations:
        for instruction in computation.instructions:
            instruction.ClearField("control_predecessor_ids")
    assert all_hazards(proto.SerializeToString())[1] > 0


@pytest.mark.parametrize("name", IN_PLACE)
def test_graphs_number_the_promises_of_their_nodes(name):
    graph = captured(name).graph
    in_place = graph.in_place
    assert any(in_place.writer)
    for computation, writers in zip(graph.computations, in_place.writer, strict=True):
        for bit, writer in enumerate(writers):
            readers = [
                i for i in range(computation.first, computation.end) if in_place.reads[i] >> bit & 1
            ]
            assert in_place.before[writer] >> bit & 1
            # A node order is an execution order: every reader comes first, or is in the cluster.
            assert all(i <= writer or in_place.zone[i] >> bit & 1 for i in readers)
