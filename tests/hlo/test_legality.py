"""Which decisions are legal: every rule at work, and masks that check and sample."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from support import MACHINE, capture, captured, changed, node, nodes, normal, unit

from graphopt.errors import DecisionError
from graphopt.hlo import Decisions, Graph, build_graph, rewrite
from graphopt.hlo.legality import PARTITION_RULE, RULES
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.table import RULES as RESTRUCTURE_RULES
from graphopt.jax_private import hlo_from_text
from graphopt.machine import UnitKind

STRAIGHT = """\
HloModule straight

less (l: f32[], r: f32[]) -> pred[] {
  l = f32[] parameter(0)
  r = f32[] parameter(1)
  ROOT lt = pred[] compare(l, r), direction=LT
}

pair (a: f32[], b: s32[], c: f32[], d: s32[]) -> (f32[], s32[]) {
  a = f32[] parameter(0)
  b = s32[] parameter(1)
  c = f32[] parameter(2)
  d = s32[] parameter(3)
  ROOT t = (f32[], s32[]) tuple(c, d)
}

inside (x: f32[8,4]) -> f32[8,4] {
  x = f32[8,4]{1,0} parameter(0)
  held = f32[] constant(0.5)
  spread = f32[8,4]{1,0} broadcast(held), dimensions={}
  turned = f32[8,4]{0,1} copy(x)
  back = f32[8,4]{1,0} copy(turned)
  ROOT scaled = f32[8,4]{1,0} multiply(back, spread)
}

viewed (y: f32[8,4]) -> f32[4,8] {
  y = f32[8,4]{1,0} parameter(0)
  under = f32[8,4]{1,0} tanh(y)
  ROOT over = f32[4,8]{1,0} bitcast(under)
}

ENTRY main {
  p = f32[8,4]{1,0} parameter(0)
  n = s32[8,4]{1,0} parameter(1)
  h = f16[8,4]{1,0} parameter(2)
  table = f32[4]{0} constant({1, 2, 3, 4})
  zero = f32[] constant(0)
  none = s32[] constant(0)
  free = f32[8,4]{1,0} sine(p)
  smooth = f32[8,4]{1,0} tanh(free)
  rows = f32[8,4]{1,0} broadcast(table), dimensions={1}
  total = f32[8,4]{1,0} add(smooth, rows)
  sorted = f32[8,4]{1,0} sort(total), dimensions={1}, to_apply=less
  fused = f32[8,4]{1,0} fusion(sorted), kind=kLoop, calls=inside
  view = f32[4,8]{1,0} fusion(fused), kind=kLoop, calls=viewed
  below = f32[8,4]{1,0} cosine(fused)
  above = f32[32]{0} bitcast(below)
  best = (f32[8]{0}, s32[8]{0}) reduce(fused, n, zero, none), dimensions={1}, to_apply=pair
  value = f32[8]{0} get-tuple-element(best), index=0
  separate = f32[8]{0} copy(value)
  one = f32[1]{0} slice(separate), slice={[0:1]}
  wide = f32[8,4]{1,0} convert(h)
  product = f32[8,8]{1,0} dot(wide, view), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  mixed = f32[8,8]{1,0} dot(h, view), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  narrow = f16[8,4]{1,0} negate(h)
  ROOT all = (f32[4,8]{1,0}, f32[32]{0}, f32[1]{0}, f32[8,8]{1,0}, f32[8,8]{1,0}, f16[8,4]{1,0})
      tuple(view, above, one, product, mixed, narrow)
}
"""

UPDATES = """\
HloModule updates

root (c0: f32[8], v0: f32[1], i0: s32[]) -> f32[8] {
  c0 = f32[8]{0} parameter(0)
  v0 = f32[1]{0} parameter(1)
  i0 = s32[] parameter(2)
  ROOT fused_root = f32[8]{0} dynamic-update-slice(c0, v0, i0)
}

views (c1: f32[8], v1: f32[1,1], i1: s32[]) -> f32[8] {
  c1 = f32[8]{0} parameter(0)
  v1 = f32[1,1]{1,0} parameter(1)
  i1 = s32[] parameter(2)
  target_view = f32[2,4]{1,0} bitcast(c1)
  under_view = f32[2,4]{1,0} dynamic-update-slice(target_view, v1, i1, i1)
  ROOT root_view = f32[8]{0} bitcast(under_view)
}

inner (c2: f32[8], v2: f32[1], i2: s32[]) -> f32[8] {
  c2 = f32[8]{0} parameter(0)
  v2 = f32[1]{0} parameter(1)
  i2 = s32[] parameter(2)
  inside = f32[8]{0} dynamic-update-slice(c2, v2, i2)
  ROOT outside = f32[8]{0} negate(inside)
}

ENTRY main {
  p = f32[8]{0} parameter(0)
  i = s32[] parameter(1)
  v = f32[1]{0} parameter(2)
  e = f32[1,1]{1,0} bitcast(v)
  target = f32[8]{0} tanh(p)
  early = f32[8]{0} sine(target)
  write = f32[8]{0} fusion(target, v, i), kind=kLoop, calls=root, control-predecessors={early}
  plain = f32[8]{0} dynamic-update-slice(write, v, i)
  seen = f32[8]{0} cosine(plain)
  first = f32[8]{0} fusion(plain, e, i), kind=kLoop, calls=views, control-predecessors={seen}
  apart = f32[8]{0} fusion(first, v, i), kind=kLoop, calls=inner
  own = f32[8]{0} copy(apart)
  reader = f32[8]{0} exponential(own)
  cell = f32[1]{0} slice(reader), slice={[2:3]}
  last = f32[8]{0} dynamic-update-slice(own, cell, i)
  late = f32[8]{0} add(last, reader)
  ROOT all = (f32[8]{0}, f32[8]{0}, f32[8]{0}) tuple(early, seen, late)
}
"""

LOOP = """\
HloModule loop

less (l: f32[], r: f32[]) -> pred[] {
  l = f32[] parameter(0)
  r = f32[] parameter(1)
  ROOT lt = pred[] compare(l, r), direction=LT
}

condition (t: (s32[], f32[8])) -> pred[] {
  t = (s32[], f32[8]{0}) parameter(0)
  k = s32[] get-tuple-element(t), index=0
  limit = s32[] constant(5)
  ROOT go = pred[] compare(k, limit), direction=LT
}

body (s: (s32[], f32[8])) -> (s32[], f32[8]) {
  s = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8]{0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  carried = f32[8]{0} multiply(x, x)
  ROOT out = (s32[], f32[8]{0}) tuple(next, carried)
}

condition2 (tested2: (s32[], f32[8])) -> pred[] {
  tested2 = (s32[], f32[8]{0}) parameter(0)
  k2 = s32[] get-tuple-element(tested2), index=0
  limit2 = s32[] constant(5)
  ROOT go2 = pred[] compare(k2, limit2), direction=LT
}

body2 (state2: (s32[], f32[8])) -> (s32[], f32[8]) {
  state2 = (s32[], f32[8]{0}) parameter(0)
  i2 = s32[] get-tuple-element(state2), index=0
  x2 = f32[8]{0} get-tuple-element(state2), index=1
  one2 = s32[] constant(1)
  next2 = s32[] add(i2, one2)
  ranking = f32[8]{0} sort(x2), dimensions={0}, to_apply=less
  ROOT out2 = (s32[], f32[8]{0}) tuple(next2, ranking)
}

ENTRY main {
  p = f32[8]{0} parameter(0)
  zero = s32[] constant(0)
  start = s32[] copy(zero)
  begin = f32[8]{0} copy(p)
  init = (s32[], f32[8]{0}) tuple(start, begin)
  simple = (s32[], f32[8]{0}) while(init), condition=condition, body=body
  ROOT sorting = (s32[], f32[8]{0}) while(simple), condition=condition2, body=body2
}
"""

TEXTS = {"straight": STRAIGHT, "updates": UPDATES, "loop": LOOP}


@functools.cache
def graph_of(text: str) -> Graph:
    return build_graph(hlo_from_text(TEXTS[text]), MACHINE)


def named(graph: Graph, name: str) -> int:
    """The node that was written under this name."""
    return graph.source.names.index(name)


UNITS = {
    "loop": (UnitKind.LOOP, 1),
    "loop@2": (UnitKind.LOOP, 2),
    "library": (UnitKind.LIBRARY, None),
    "runtime": (UnitKind.RUNTIME, None),
    "native": (UnitKind.NATIVE, None),
}


def why_not(text: str, name: str, field: str, value: int | str) -> str | None:
    graph = graph_of(text)
    column = value if isinstance(value, int) else unit(graph, *UNITS[value])
    return graph.masks.why_not(named(graph, name), field, column)


# (text, node, field, value, rule)
FORBIDDEN: list[tuple[str, str, str, int | str, str]] = [
    ("straight", "p", "fuse", 1, "not-fusible"),
    ("straight", "sorted", "fuse", 1, "not-fusible"),
    ("loop", "simple", "fuse", 1, "not-fusible"),
    ("straight", "table", "fuse", 1, "constant"),
    ("straight", "held", "fuse", 0, "constant"),
    ("straight", "best", "fuse", 1, "tuple-shaped"),
    ("loop", "go", "fuse", 1, "computation-root"),
    ("straight", "total", "fuse", 1, "read-from-memory"),
    ("straight", "one", "fuse", 1, "read-from-memory"),
    ("straight", "separate", "fuse", 1, "copy"),
    ("straight", "back", "fuse", 0, "copy"),
    ("straight", "below", "fuse", 1, "own-buffer"),
    ("straight", "under", "fuse", 0, "own-buffer"),
    ("updates", "plain", "fuse", 1, "in-place-update"),
    ("updates", "under_view", "fuse", 0, "in-place-update"),
    ("updates", "target", "fuse", 1, "update-target"),
    ("updates", "target_view", "fuse", 0, "update-target"),
    ("updates", "inside", "fuse", 0, "out-of-place-update"),
    ("updates", "reader", "fuse", 1, "in-place-order"),
    ("updates", "seen", "fuse", 1, "read-from-memory"),
    ("straight", "p", "join", 1, "not-a-loop"),
    ("straight", "above", "join", 1, "not-a-loop"),
    ("straight", "best", "join", 1, "not-a-loop"),
    ("straight", "separate", "join", 1, "not-a-loop"),
    ("updates", "last", "join", 1, "not-a-loop"),
    ("straight", "back", "join", 1, "always-fused"),
    ("loop", "carried", "join", 1, "in-place-writer"),
    ("straight", "sorted", "unit", "loop", "not-a-loop"),
    ("straight", "sorted", "unit", "loop@2", "not-a-loop"),
    ("straight", "separate", "unit", "loop", "not-a-loop"),
    ("straight", "free", "unit", "library", "library-support"),
    ("straight", "rows", "unit", "library", "library-support"),
    ("straight", "narrow", "unit", "library", "library-support"),
    ("straight", "best", "unit", "library", "library-support"),
    ("loop", "carried", "unit", "library", "in-place-writer"),
    ("straight", "smooth", "unit", "runtime", "loop-operation"),
    ("straight", "p", "unit", "native", "not-in-region"),
    ("straight", "sorted", "unit", "native", "not-in-region"),
    ("loop", "sorting", "unit", "native", "not-in-region"),
    ("straight", "one", "unit", "loop@2", "partition"),
    ("straight", "best", "unit", "loop@2", "partition"),
    ("updates", "plain", "unit", "loop@2", "partition"),
]

ALLOWED: list[tuple[str, str, str, int | str]] = [
    ("straight", "mixed", "unit", "native"),  # in another form: it can be replaced
    ("straight", "smooth", "fuse", 0),
    ("straight", "smooth", "fuse", 1),
    ("straight", "total", "fuse", 0),
    ("straight", "free", "fuse", 1),
    ("straight", "held", "fuse", 1),
    ("straight", "table", "fuse", 0),
    ("straight", "spread", "fuse", 0),
    ("straight", "wide", "fuse", 0),
    ("straight", "smooth", "join", 1),
    ("straight", "total", "join", 1),
    ("straight", "spread", "join", 1),
    ("straight", "p", "join", 0),
    ("straight", "smooth", "unit", "loop"),
    ("straight", "smooth", "unit", "loop@2"),
    ("straight", "smooth", "unit", "library"),
    ("straight", "smooth", "unit", "native"),
    ("straight", "free", "unit", "native"),
    ("straight", "product", "unit", "runtime"),
    ("straight", "product", "unit", "native"),
    ("straight", "product", "unit", "library"),
    ("straight", "narrow", "unit", "loop@2"),
    ("straight", "sorted", "unit", "runtime"),
    ("updates", "plain", "unit", "native"),
    ("loop", "carried", "unit", "loop@2"),
    ("loop", "simple", "unit", "native"),
    ("loop", "sorting", "unit", "runtime"),
]


@pytest.mark.parametrize(("text", "name", "field", "value", "rule"), FORBIDDEN)
def test_a_rule_forbids(text, name, field, value, rule):
    assert why_not(text, name, field, value) == rule


@pytest.mark.parametrize(("text", "name", "field", "value"), ALLOWED)
def test_no_rule_forbids(text, name, field, value):
    assert why_not(text, name, field, value) is None


def test_a_control_dependency_keeps_a_root():
    """Its own module: the order is between two values that nothing else fixes."""
    data = hlo_from_text("""\
HloModule ordered

ENTRY main {
  p = f32[8]{0} parameter(0)
  before = f32[8]{0} tanh(p)
  used = f32[8]{0} negate(before)
  after = f32[8]{0} sine(p), control-predecessors={before}
  ROOT sum = f32[8]{0} add(used, after)
}
""")
    graph = build_graph(data, MACHINE)
    why = [graph.masks.why_not(named(graph, n), "fuse", 1) for n in ("before", "after", "used")]
    assert why == ["control-dependency", "control-dependency", None]


def test_an_update_does_not_read_elsewhere_what_it_overwrites():
    """In one kernel, a cell might be read after it was written."""
    graph = build_graph(
        hlo_from_text("""\
HloModule cells

write (c: f32[8], a: f32[1], b: f32[1], k: s32[]) -> f32[8] {
  c = f32[8]{0} parameter(0)
  a = f32[1]{0} parameter(1)
  b = f32[1]{0} parameter(2)
  k = s32[] parameter(3)
  both = f32[1]{0} add(a, b)
  ROOT u = f32[8]{0} dynamic-update-slice(c, both, k)
}

ENTRY main {
  p = f32[8]{0} parameter(0)
  i = s32[] parameter(1)
  j = s32[] parameter(2)
  own = f32[8]{0} copy(p)
  near = f32[1]{0} dynamic-slice(own, j), dynamic_slice_sizes={1}
  other = f32[1]{0} dynamic-slice(p, j), dynamic_slice_sizes={1}
  ROOT last = f32[8]{0} fusion(own, near, other, i), kind=kLoop, calls=write
}
"""),
        MACHINE,
    )
    why = [graph.masks.why_not(named(graph, n), "fuse", 1) for n in ("near", "other")]
    assert why == ["in-place-order", None]


def test_every_rule_has_a_case():
    tested = {(rule, field) for _, _, field, _, rule in FORBIDDEN}
    tested.add(("control-dependency", "fuse"))
    assert tested == {(rule.name, rule.field) for rule in (*RULES, PARTITION_RULE)}


def test_every_rule_says_why():
    for rule in (*RULES, PARTITION_RULE):
        assert rule.message and rule.message[0].islower() and not rule.message.endswith(".")
    for message in RESTRUCTURE_RULES.values():
        assert message and message[0].islower() and not message.endswith(".")
    names = {rule.name for rule in (*RULES, PARTITION_RULE)} | set(RESTRUCTURE_RULES)
    assert set(graph_of("loop").masks.rules) == names


# Rules on programs that jax compiles.


def test_a_reader_of_an_overwritten_buffer_stays():
    """Fusing the read row into the later output would read it after the write."""

    def fn(x: jax.Array) -> jax.Array:
        def body(i: Any, x: jax.Array) -> jax.Array:
            old = jnp.exp(lax.dynamic_index_in_dim(x, i, keepdims=False))
            return lax.dynamic_update_index_in_dim(x, old * 0.5, i, 0)

        return lax.fori_loop(0, 4, body, x)

    graph = capture(fn, normal(4, 700)).graph
    update = node(graph, "dynamic-update-slice")
    assert graph.masks.why_not(update, "fuse", 1) is not None
    assert graph.masks.why_not(update, "unit", unit(graph, UnitKind.LOOP, 2)) == "partition"


def test_a_late_reader_in_a_loop_body():
    """The body overwrites x while one of its outputs is computed after that, from what was x.

    XLA keeps both tanh values in memory and the exponential in the cluster of the output.
    """

    def step(x: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        a = jnp.tanh(x)
        b = jnp.tanh(a)
        x = b * 0.5
        return x, jnp.exp(a) + b + x[::-1]

    graph = capture(lambda x: lax.scan(step, x, length=5), normal(8)).graph
    graph.masks.check(graph.default)
    assert [bool(graph.default.fuse[i]) for i in nodes(graph, "tanh")] == [False, False]


def test_a_custom_call_is_no_region_unless_it_can_be_replaced():
    def fn(x: jax.Array) -> Any:
        return jnp.linalg.eigh(x + x.T)[0], jnp.linalg.cholesky(x @ x.T + 4 * jnp.eye(4))

    graph = capture(fn, normal(4, 4)).graph
    native = unit(graph, UnitKind.NATIVE)
    calls = nodes(graph, "custom-call")
    assert not graph.regional[calls].any()
    code = CODE["lapack-loop"]
    why = {
        (graph.masks.why_not(i, "restructure", code), graph.masks.why_not(i, "unit", native))
        for i in calls
    }
    assert why == {(None, None), ("not-lapack", "not-in-region")}


def test_a_scatter_keeps_its_loop_out_of_a_region_unless_it_is_replaced():
    def fn(x: jax.Array, at: jax.Array) -> jax.Array:
        def body(x: jax.Array, at: jax.Array) -> tuple[jax.Array, None]:
            return x.at[at].add(1.5) * 0.9, None

        return lax.scan(body, x, at)[0]

    graph = capture(fn, normal(50), np.arange(12, dtype=np.int32).reshape(4, 3)).graph
    native = unit(graph, UnitKind.NATIVE)
    loop = node(graph, "while")
    scatter = node(graph, "fusion")
    decisions = changed(graph.default, unit={loop: native})
    kept = rewrite(graph, decisions)
    assert (kept.regions, kept.overrides) == (0, {"not-in-region": 1})
    replaced = rewrite(graph, changed(decisions, restructure={scatter: CODE["scatter-loop"]}))
    assert (replaced.regions, replaced.restructured) == (1, 1)
    assert any(graph.masks.unit[i, native] for i in nodes(graph, "multiply"))


# Decisions.


def arrays(count: int = 3) -> dict[str, Any]:
    return {
        "fuse": np.zeros(count, np.bool_),
        "join": np.zeros(count, np.bool_),
        "unit": np.zeros(count, np.int16),
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fuse", np.zeros(3, np.int8)),
        ("fuse", [False, True, False]),
        ("join", np.zeros((3, 1), np.bool_)),
        ("join", np.zeros(2, np.bool_)),
        ("unit", np.zeros(3, np.int32)),
        ("unit", np.zeros(4, np.int16)),
        ("unit", None),
    ],
    ids=["dtype", "list", "rank", "short", "wide", "long", "missing"],
)
def test_decisions_of_the_wrong_form(field, value):
    Decisions(**arrays())
    with pytest.raises(DecisionError) as caught:
        Decisions(**{**arrays(), field: value})
    assert caught.value.field == field
    assert caught.value.node is None and caught.value.rule is None


def test_copies_do_not_share_and_compare_by_value():
    one = Decisions(**arrays())
    other = one.copy()
    assert one.same_as(other)
    other.unit[1] = 2
    assert not one.same_as(other)
    assert one.unit[1] == 0
    flipped = one.with_changes(fuse=~one.fuse)
    assert flipped.fuse.all() and not one.fuse.any()
    assert len(one) == 3


# Masks.


def test_check_names_field_node_and_rule():
    graph = graph_of("straight")
    total = named(graph, "total")
    with pytest.raises(DecisionError, match="read-from-memory") as caught:
        graph.masks.check(changed(graph.default, fuse={total: 1}))
    error = caught.value
    assert (error.field, error.node, error.rule) == ("fuse", total, "read-from-memory")


@pytest.mark.parametrize(
    ("field", "name", "value"),
    [("join", "sorted", 1), ("unit", "sorted", "native"), ("unit", "smooth", "runtime")],
)
def test_check_looks_at_every_field(field, name, value):
    graph = graph_of("straight")
    index = named(graph, name)
    column = value if isinstance(value, int) else unit(graph, *UNITS[value])
    with pytest.raises(DecisionError) as caught:
        graph.masks.check(changed(graph.default, **{field: {index: column}}))
    assert (caught.value.field, caught.value.node) == (field, index)
    assert caught.value.rule == graph.masks.why_not(index, field, column)


@pytest.mark.parametrize("value", [-1, 99])
def test_check_refuses_units_that_do_not_exist(value):
    graph = graph_of("straight")
    with pytest.raises(DecisionError, match="does not exist") as caught:
        graph.masks.check(changed(graph.default, unit={2: value}))
    assert (caught.value.field, caught.value.node, caught.value.rule) == ("unit", 2, None)


@pytest.mark.parametrize("shift", [-1, 1])
def test_check_refuses_another_length(shift):
    graph = graph_of("straight")
    with pytest.raises(DecisionError, match="decisions for a graph of") as caught:
        graph.masks.check(Decisions(**arrays(len(graph) + shift)))
    assert (caught.value.field, caught.value.node) == ("decisions", None)


def test_check_refuses_other_types():
    with pytest.raises(DecisionError, match="expected Decisions"):
        graph_of("straight").masks.check(arrays())


def test_masks_are_where_no_rule_applies():
    graph = graph_of("straight")
    masks = graph.masks
    assert masks.fuse.shape == masks.join.shape == (len(graph), 2)
    assert masks.unit.shape == (len(graph), len(graph.units))
    for field in ("fuse", "join", "unit"):
        mask = getattr(masks, field)
        assert mask.any(axis=1).all(), "every node has a legal value"
        for index in range(len(graph)):
            allowed = [masks.why_not(index, field, v) is None for v in range(mask.shape[1])]
            assert allowed == mask[index].tolist()


SAMPLED = ("fibonacci", "sorting", "shared_outputs", "layernorm_bf16", "safe_newton", "conv_grad")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(SAMPLED),
    seed=st.integers(0, 2**32 - 1),
    change=st.floats(0.0, 1.0),
)
def test_samples_are_legal(name, seed, change):
    graph = captured(name).graph
    before = graph.default.copy()
    drawn = graph.masks.sample(np.random.default_rng(seed), graph.default, change)
    graph.masks.check(drawn)
    again = graph.masks.sample(np.random.default_rng(seed), graph.default, change)
    assert drawn.same_as(again)
    assert graph.default.same_as(before)


def test_samples_stay_or_reach_everything():
    graph = graph_of("straight")
    masks = graph.masks
    rng = np.random.default_rng(0)
    assert masks.sample(rng, graph.default, 0.0).same_as(graph.default)
    drawn = [masks.sample(rng, graph.default, 1.0) for _ in range(200)]
    rows = np.arange(len(graph))
    for field in ("fuse", "join", "unit"):
        reached = np.zeros_like(getattr(masks, field))
        for decisions in drawn:
            reached[rows, getattr(decisions, field).astype(np.intp)] = True
        assert (reached == getattr(masks, field)).all(), field
