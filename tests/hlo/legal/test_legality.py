"""Which decisions are legal: every rule at work."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.captures import MACHINE, capture, changed, node, nodes, normal, unit
from support.legality_texts import graph_of, named, why_not

from graphopt.hlo import build_graph, rewrite
from graphopt.hlo.legal.rules import ALL_RULES
from graphopt.hlo.plan.clusters import form_clusters
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.table import RULES as RESTRUCTURE_RULES
from graphopt.jax_private import hlo_from_text
from graphopt.machine import UnitKind

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
    ("straight", "kept", "fuse", 0, "copy"),
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
    ("straight", "kept", "join", 1, "always-fused"),
    ("straight", "only_viewed", "join", 1, "always-fused"),
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
    ("straight", "back", "fuse", 0),  # it reorders memory: no copy that keeps buffers apart
    ("straight", "mixed", "unit", "native"),  # in another form: it can be replaced
    ("straight", "only_viewed", "fuse", 0),
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
    near, other = (named(graph, name) for name in ("near", "other"))
    assert [graph.masks.why_not(node, "fuse", 1) for node in (near, other)] == [None, None]
    clustering = form_clusters(graph, changed(graph.default, fuse={near: 1, other: 1}))
    assert clustering.overrides == [(near, "in-place-order")]
    assert other in clustering.clusters[named(graph, "u")].nodes


def test_every_rule_has_a_case():
    tested = {(rule, field) for _, _, field, _, rule in FORBIDDEN}
    tested.add(("control-dependency", "fuse"))
    tested.add(("shared-cores", "unit"))  # tests/hlo/graph/test_collectives.py
    assert tested == {(rule.name, rule.field) for rule in ALL_RULES}


def test_every_rule_says_why():
    for rule in ALL_RULES:
        assert rule.message and rule.message[0].islower() and not rule.message.endswith(".")
    for message in RESTRUCTURE_RULES.values():
        assert message and message[0].islower() and not message.endswith(".")
    names = {rule.name for rule in ALL_RULES} | set(RESTRUCTURE_RULES)
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
