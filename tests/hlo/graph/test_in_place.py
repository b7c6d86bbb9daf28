"""In-place promises: who overwrites whose buffer, who reads it, and which order is missing."""

from __future__ import annotations

import pytest
from support.promises import analysed, broken, hazards

from graphopt.hlo.graph.in_place import InPlaceAnalysis
from graphopt.hlo.graph.targets import fusion_targets
from graphopt.hlo.module.index import Role

# Updates in the entry computation.

UPDATE = """\
HloModule update

ENTRY main {{
  p = f32[8]{{0}} parameter(0)
  i = s32[] parameter(1)
  v = f32[1]{{0}} parameter(2)
  c = f32[8]{{0}} copy(p)
  {body}
}}
"""


def updates(body: str) -> InPlaceAnalysis:
    return analysed(UPDATE.format(body=body))


def test_an_update_overwrites_its_first_operand():
    analysis = updates("ROOT w = f32[8]{0} dynamic-update-slice(c, v, i)")
    assert hazards(analysis) == {("c", (), "w", frozenset())}
    assert broken(analysis) == set()


def test_a_reader_before_the_writer():
    analysis = updates("""
  s = f32[1]{0} dynamic-slice(c, i), dynamic_slice_sizes={1}
  n = f32[1]{0} negate(s)
  ROOT w = f32[8]{0} dynamic-update-slice(c, n, i)""")
    assert hazards(analysis) == {("c", (), "w", frozenset({"s"}))}
    assert broken(analysis) == set()


READER_BESIDE = """
  r = f32[8]{0} negate(c)
  w = f32[8]{0} dynamic-update-slice(c, v, i) CONTROL
  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(w, r)"""


def test_a_reader_without_order_is_broken():
    analysis = updates(READER_BESIDE.replace("CONTROL", ""))
    assert hazards(analysis) == {("c", (), "w", frozenset({"r"}))}
    assert broken(analysis) == {("w", "r")}


def test_a_control_edge_orders_a_reader():
    analysis = updates(READER_BESIDE.replace("CONTROL", ", control-predecessors={r}"))
    assert hazards(analysis) == {("c", (), "w", frozenset({"r"}))}
    assert broken(analysis) == set()


def test_a_reader_after_the_writer_is_broken():
    analysis = updates("""
  w = f32[8]{0} dynamic-update-slice(c, v, i)
  ROOT r = f32[8]{0} add(c, w)""")
    assert broken(analysis) == {("w", "r")}


def test_order_through_other_instructions_counts():
    analysis = updates("""
  r = f32[8]{0} negate(c)
  a = f32[1]{0} slice(r), slice={[0:1]}
  b = f32[1]{0} add(a, v)
  w = f32[8]{0} dynamic-update-slice(c, b, i)
  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(w, r)""")
    assert hazards(analysis) == {("c", (), "w", frozenset({"r"}))}
    assert broken(analysis) == set()


def test_two_writers_of_one_buffer_break_each_other():
    """An update reads the rest of its operand, so neither may come first."""
    analysis = updates("""
  u = f32[8]{0} dynamic-update-slice(c, v, i)
  w = f32[8]{0} dynamic-update-slice(c, v, i)
  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(u, w)""")
    found = {("c", (), "u", frozenset({"w"})), ("c", (), "w", frozenset({"u"}))}
    assert hazards(analysis) == found
    assert broken(analysis) == {("u", "w"), ("w", "u")}


def test_updates_in_a_chain_have_a_source_each():
    analysis = updates("""
  u = f32[8]{0} dynamic-update-slice(c, v, i)
  ROOT w = f32[8]{0} dynamic-update-slice(u, v, i)""")
    assert hazards(analysis) == {("c", (), "u", frozenset()), ("u", (), "w", frozenset())}


@pytest.mark.parametrize(
    "alias",
    [
        "b = f32[2,4]{1,0} bitcast(c)",
        "a = f32[4,2]{1,0} bitcast(c)\n  b = f32[2,4]{1,0} bitcast(a)",
        "a = (s32[], f32[8]{0}) tuple(i, c)\n  g = f32[8]{0} get-tuple-element(a), index=1\n"
        "  b = f32[2,4]{1,0} bitcast(g)",
    ],
    ids=["bitcast", "bitcasts", "tuple"],
)
def test_readers_are_found_through_aliases(alias):
    analysis = updates(f"""
  {alias}
  r = f32[2,4]{{1,0}} negate(b)
  w = f32[8]{{0}} dynamic-update-slice(c, v, i)
  ROOT t = (f32[8]{{0}}, f32[2,4]{{1,0}}) tuple(w, r)""")
    assert hazards(analysis) == {("c", (), "w", frozenset({"r"}))}
    assert broken(analysis) == {("w", "r")}


def test_a_target_is_found_through_aliases():
    analysis = updates("""
  b = f32[2,4]{1,0} bitcast(c)
  e = f32[1,1]{1,0} bitcast(v)
  r = f32[8]{0} negate(c)
  w = f32[2,4]{1,0} dynamic-update-slice(b, e, i, i)
  ROOT t = (f32[2,4]{1,0}, f32[8]{0}) tuple(w, r)""")
    assert hazards(analysis) == {("c", (), "w", frozenset({"r"}))}


def test_a_scatter_overwrites_all_its_inputs():
    analysis = analysed("""\
HloModule scatters

both (a: f32[], b: s32[], c: f32[], d: s32[]) -> (f32[], s32[]) {
  a = f32[] parameter(0)
  b = s32[] parameter(1)
  c = f32[] parameter(2)
  d = s32[] parameter(3)
  ROOT t = (f32[], s32[]) tuple(c, d)
}

ENTRY main {
  p = f32[8]{0} parameter(0)
  q = s32[8]{0} parameter(1)
  k = s32[3,1]{1,0} parameter(2)
  x = f32[3]{0} parameter(3)
  y = s32[3]{0} parameter(4)
  n = f32[8]{0} negate(p)
  ROOT s = (f32[8]{0}, s32[8]{0}) scatter(p, q, k, x, y), update_window_dims={},
      inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=both
}
""")
    assert hazards(analysis) == {
        ("p", (), "s", frozenset({"n"})),
        ("q", (), "s", frozenset()),
    }


def test_a_custom_call_overwrites_what_it_declares():
    analysis = updates("""
  r = f32[8]{0} negate(c)
  k = (f32[8]{0}, s32[]) custom-call(p, c), custom_call_target="solve",
      output_to_operand_aliasing={{0}: (1, {})}
  ROOT t = ((f32[8]{0}, s32[]), f32[8]{0}) tuple(k, r)""")
    assert hazards(analysis) == {("c", (), "k", frozenset({"r"}))}
    assert broken(analysis) == {("k", "r")}


# Fusions.

FUSED = """\
HloModule fused

inner (a: f32[8], b: f32[1], j: s32[], q: f32[8]) -> {result} {{
  a = f32[8]{{0}} parameter(0)
  b = f32[1]{{0}} parameter(1)
  j = s32[] parameter(2)
  q = f32[8]{{0}} parameter(3)
  {body}
}}

ENTRY main {{
  p = f32[8]{{0}} parameter(0)
  i = s32[] parameter(1)
  v = f32[1]{{0}} parameter(2)
  c = f32[8]{{0}} copy(p)
  r = f32[8]{{0}} negate(c)
  ROOT f = {result} fusion(c, v, i, r), kind=kLoop, calls=inner
}}
"""


@pytest.mark.parametrize(
    ("result", "body", "targets"),
    [
        ("f32[8]{0}", "ROOT u = f32[8]{0} dynamic-update-slice(a, b, j)", [0]),
        ("f32[8]{0}", "ROOT u = f32[8]{0} dynamic-update-slice(q, b, j)", [3]),
        (
            "f32[2,4]{1,0}",
            "u = f32[8]{0} dynamic-update-slice(a, b, j)\n  ROOT z = f32[2,4]{1,0} bitcast(u)",
            [0],
        ),
        (
            "f32[8]{0}",
            "u = f32[8]{0} dynamic-update-slice(a, b, j)\n  ROOT z = f32[8]{0} negate(u)",
            [],
        ),
        (
            "f32[8]{0}",
            "m = f32[8]{0} negate(a)\n  ROOT u = f32[8]{0} dynamic-update-slice(m, b, j)",
            [],
        ),
        (
            "(f32[8]{0}, f32[8]{0})",
            "u = f32[8]{0} dynamic-update-slice(a, b, j)\n  m = f32[8]{0} negate(q)\n"
            "  ROOT z = (f32[8]{0}, f32[8]{0}) tuple(m, u)",
            [0],
        ),
    ],
    ids=["root", "other operand", "behind a bitcast", "inside", "of a value inside", "tuple"],
)
def test_a_fusion_overwrites_what_its_root_updates(result, body, targets):
    analysis = analysed(FUSED.format(result=result, body=body))
    (inner,) = (c for c in analysis.module.computations.values() if c.role is Role.FUSED)
    assert fusion_targets(inner) == targets
    # Operand 0 is c, which r reads; operand 3 is r itself.
    expected = {0: ("c", (), "f", frozenset({"r"})), 3: ("r", (), "f", frozenset())}
    assert hazards(analysis) == {expected[number] for number in targets}


# Loops. Carried values: the counter, x updated in place, y handed through, z computed anew.

LOOP = """\
HloModule loop

condition (t: (s32[], f32[8], f32[8], f32[8])) -> pred[] {{
  t = (s32[], f32[8]{{0}}, f32[8]{{0}}, f32[8]{{0}}) parameter(0)
  n = s32[] get-tuple-element(t), index=0
  limit = s32[] constant(5)
  ROOT less = pred[] compare(n, limit), direction=LT
}}

body (s: (s32[], f32[8], f32[8], f32[8])) -> (s32[], f32[8], f32[8], f32[8]) {{
  s = (s32[], f32[8]{{0}}, f32[8]{{0}}, f32[8]{{0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8]{{0}} get-tuple-element(s), index=1
  y = f32[8]{{0}} get-tuple-element(s), index=2
  z = f32[8]{{0}} get-tuple-element(s), index=3
  cell = f32[1]{{0}} dynamic-slice(x, i), dynamic_slice_sizes={{1}}
  sum = f32[8]{{0}} add(x, y)
  fresh = f32[1]{{0}} negate(cell)
  w = f32[8]{{0}} dynamic-update-slice(x, fresh, i){write_after}
  z2 = f32[8]{{0}} multiply(sum, z)
  one = s32[] constant(1)
  i2 = s32[] add(i, one), control-predecessors={{cell, w}}
  ROOT out = (s32[], f32[8]{{0}}, f32[8]{{0}}, f32[8]{{0}}) tuple(i2, w, y, z2)
}}

ENTRY main {{
  zero = s32[] constant(0)
  start = s32[] copy(zero)
  p = f32[8]{{0}} parameter(0)
  a = f32[8]{{0}} copy(p)
  b = f32[8]{{0}} copy(p)
  early = f32[8]{{0}} negate(a)
  late = f32[8]{{0}} exponential(p)
  init = (s32[], f32[8]{{0}}, f32[8]{{0}}, f32[8]{{0}}) tuple(start, a, p, b)
  loop = (s32[], f32[8]{{0}}, f32[8]{{0}}, f32[8]{{0}}) while(init), condition=condition, body=body
  x9 = f32[8]{{0}} get-tuple-element(loop), index=1
  y9 = f32[8]{{0}} get-tuple-element(loop), index=2
  q = f32[8]{{0}} subtract(y9, late)
  ROOT all = (f32[8]{{0}}, f32[8]{{0}}, f32[8]{{0}}) tuple(x9, q, early)
}}
"""


def loop(write_after: str = ", control-predecessors={sum}") -> InPlaceAnalysis:
    return analysed(LOOP.format(write_after=write_after))


def test_a_loop_body_overwrites_its_carried_values():
    assert hazards(loop(), Role.LOOP_BODY) == {
        ("s", (0,), "i2", frozenset({"cell", "w"})),
        ("s", (1,), "w", frozenset({"cell", "sum"})),
        ("s", (3,), "z2", frozenset()),
    }


def test_a_loop_condition_overwrites_nothing():
    assert hazards(loop(), Role.LOOP_CONDITION) == set()


def test_a_loop_overwrites_where_it_starts():
    """Not p: the loop hands it through untouched, so others may read it at any time."""
    assert hazards(loop()) == {
        ("start", (), "loop", frozenset()),
        ("a", (), "loop", frozenset({"early"})),
        ("b", (), "loop", frozenset()),
    }


def test_readers_inside_and_beside_a_loop():
    ordered, unordered = loop(), loop(write_after="")
    assert broken(ordered) == {("loop", "early")}
    assert broken(unordered) == {("loop", "early"), ("w", "sum")}


def test_a_swap_in_a_loop_is_an_overwrite():
    """Carried values that change places are no pass-through."""
    analysis = analysed("""\
HloModule swap

condition (t: (f32[8], f32[8], pred[])) -> pred[] {
  t = (f32[8]{0}, f32[8]{0}, pred[]) parameter(0)
  ROOT go = pred[] get-tuple-element(t), index=2
}

body (s: (f32[8], f32[8], pred[])) -> (f32[8], f32[8], pred[]) {
  s = (f32[8]{0}, f32[8]{0}, pred[]) parameter(0)
  x = f32[8]{0} get-tuple-element(s), index=0
  y = f32[8]{0} get-tuple-element(s), index=1
  stop = pred[] constant(false)
  keep = f32[8]{0} copy(y)
  move = f32[8]{0} copy(x)
  end = pred[] copy(stop)
  ROOT out = (f32[8]{0}, f32[8]{0}, pred[]) tuple(keep, move, end)
}

ENTRY main {
  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  first = pred[] parameter(2)
  init = (f32[8]{0}, f32[8]{0}, pred[]) tuple(p, q, first)
  ROOT loop = (f32[8]{0}, f32[8]{0}, pred[]) while(init), condition=condition, body=body
}
""")
    assert hazards(analysis, Role.LOOP_BODY) == {
        ("s", (0,), "keep", frozenset({"move"})),
        ("s", (1,), "move", frozenset({"keep"})),
        ("s", (2,), "end", frozenset()),
    }
    # One of the two copies has to wait for a copy of the other value: as it stands, either is late.
    assert broken(analysis) == {("keep", "move"), ("move", "keep")}
    assert {found[0] for found in hazards(analysis)} == {"p", "q", "first"}
