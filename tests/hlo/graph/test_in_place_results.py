"""Results that take the buffers of parameters: of branches, functions and loops."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import MACHINE
from support.promises import analysed, hazards

from graphopt.hlo import build_graph, rewrite
from graphopt.hlo.module.index import Role
from graphopt.measure import compare_outputs, compile_with

W = np.linspace(-1.0, 1.0, 198, dtype=np.float32).reshape(33, 6)
B = np.ones((8, 6), np.float32) * np.linspace(0.0, 0.3, 6, dtype=np.float32)
H = np.zeros((33, 8), np.float32)


def advance(state: Any) -> Any:
    """Both results read the old `b`; the first takes its buffer where a loop carries it."""
    b, h = state
    new = b + 0.1 * jnp.sin(b @ jnp.ones((6, 6)))
    return jnp.clip(new, -2.0, 2.0), jnp.tanh(h * 0.3 + W @ new.T)


def in_a_branch(b: Any, h: Any) -> Any:
    """The other branch hands on what it is given."""

    def step(i: Any, state: Any) -> Any:
        return jax.lax.cond(i % 3 == 0, lambda s: s, advance, state)

    return jax.lax.fori_loop(0, 7, step, (b, h))


def in_branches(b: Any, h: Any) -> Any:
    """Both branches compute, one of them in a branch of its own."""

    def inner(i: Any, state: Any) -> Any:
        return jax.lax.cond(i % 2 == 0, advance, lambda s: (s[0] * 0.5, s[1]), state)

    def step(i: Any, state: Any) -> Any:
        return jax.lax.cond(
            i % 3 == 0, lambda s: (s[0] + 0.1, s[1] * 0.9), lambda s: inner(i, s), state
        )

    return jax.lax.fori_loop(0, 7, step, (b, h))


def in_a_loop(b: Any, h: Any) -> Any:
    """No branch at all."""
    return jax.lax.fori_loop(0, 7, lambda _, state: advance(state), (b, h))


def after_an_update(b: Any, h: Any) -> Any:
    """The carried array is updated in place first; what reads the update comes before the result, too."""

    def step(i: Any, state: Any) -> Any:
        b, h = state
        return advance((b.at[i % 8].set(h[0, :6]), h))

    return jax.lax.fori_loop(0, 7, step, (b, h))


def after_an_update_in_branches(b: Any, h: Any) -> Any:
    """The same, handed over to branches."""

    def other(state: Any) -> Any:
        b, h = advance(state)
        return b * 0.5, h

    def step(i: Any, state: Any) -> Any:
        b, h = state
        return jax.lax.cond(i % 3 == 0, other, advance, (b.at[i % 8].set(h[0, :6]), h))

    return jax.lax.fori_loop(0, 7, step, (b, h))


@pytest.mark.parametrize(
    "fn", [in_a_branch, in_branches, in_a_loop, after_an_update, after_an_update_in_branches]
)
def test_every_other_cluster_leaves_the_results(fn: Any) -> None:
    """A value that two kernels compute again, one of them after the other has written the result."""
    default = compile_with(fn, (B, H))
    graph = build_graph(max(default.modules, key=len), MACHINE)
    wanted, tried = default(), 0
    for node in range(len(graph)):
        other = not graph.default.fuse[node]
        if not graph.masks.fuse[node, int(other)]:
            continue
        decisions = graph.default.copy()
        decisions.fuse[node] = other
        data = rewrite(graph, decisions).data
        got = compile_with(fn, (B, H), lambda _, data=data: data)()
        assert compare_outputs(wanted, got).equal, graph.ops[node].name
        tried += 1
    assert tried > 5


BRANCHES = """\
HloModule branches

same (b: (f32[8], f32[8])) -> (f32[8], f32[8]) {{
  ROOT b = (f32[8]{{0}}, f32[8]{{0}}) parameter(0)
}}

fresh (d: (f32[8], f32[8])) -> (f32[8], f32[8]) {{
  d = (f32[8]{{0}}, f32[8]{{0}}) parameter(0)
  x = f32[8]{{0}} get-tuple-element(d), index=0
  y = f32[8]{{0}} get-tuple-element(d), index=1
  n = f32[8]{{0}} negate(x)
  m = f32[8]{{0}} add(x, y)
  ROOT r = (f32[8]{{0}}, f32[8]{{0}}) tuple(n, {second})
}}

ENTRY main {{
  k = s32[] parameter(0)
  p = f32[8]{{0}} parameter(1)
  one = f32[8]{{0}} copy(p)
  two = f32[8]{{0}} copy(p)
  both = (f32[8]{{0}}, f32[8]{{0}}) tuple(one, two)
  ROOT c = (f32[8]{{0}}, f32[8]{{0}}) conditional(k, both, both), branch_computations={{same, fresh}}
}}
"""


def test_a_branch_overwrites_what_another_one_hands_on():
    found = hazards(analysed(BRANCHES.format(second="m")), Role.BRANCH, "fresh")
    assert {("d", (0,), "n", frozenset({"m"})), ("d", (1,), "m", frozenset())} <= found


def test_what_every_branch_hands_on_stays():
    found = hazards(analysed(BRANCHES.format(second="y")), Role.BRANCH, "fresh")
    assert ("d", (0,), "n", frozenset({"m"})) in found
    assert not any(source == ("d", (1,)) for *source, _, _ in found)


LOOP = """\
HloModule loop

{callee}
body (s: (s32[], f32[8], f32[8])) -> (s32[], f32[8], f32[8]) {{
  s = (s32[], f32[8]{{0}}, f32[8]{{0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8]{{0}} get-tuple-element(s), index=1
  y = f32[8]{{0}} get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  v = f32[1]{{0}} slice(y), slice={{[0:1]}}
{lines}
  ROOT t = (s32[], f32[8]{{0}}, f32[8]{{0}}) tuple(j, w, z)
}}

going (s: (s32[], f32[8], f32[8])) -> pred[] {{
  s = (s32[], f32[8]{{0}}, f32[8]{{0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)
  ROOT lt = pred[] compare(i, n), direction=LT
}}

ENTRY main {{
  zero = s32[] constant(0)
  p = f32[8]{{0}} parameter(0)
  q = f32[8]{{0}} parameter(1)
  k = s32[] copy(zero)
  a = f32[8]{{0}} copy(p)
  b = f32[8]{{0}} copy(q)
  init = (s32[], f32[8]{{0}}, f32[8]{{0}}) tuple(k, a, b)
  ROOT l = (s32[], f32[8]{{0}}, f32[8]{{0}}) while(init), condition=going, body=body
}}
"""


def test_an_array_that_is_updated_into_a_carried_value_overwrites_it_when_it_is_made():
    lines = """\
  z = f32[8]{0} add(x, y)
  n = f32[8]{0} negate(y)
  w = f32[8]{0} dynamic-update-slice(n, v, i)"""
    found = hazards(analysed(LOOP.format(callee="", lines=lines)), Role.LOOP_BODY)
    assert ("s", (1,), "n", frozenset({"z"})) in found
    assert ("s", (1,), "w", frozenset({"z"})) in found


def test_a_function_overwrites_what_its_result_replaces():
    callee = """\
made (d: f32[8], e: f32[8]) -> f32[8] {
  d = f32[8]{0} parameter(0)
  e = f32[8]{0} parameter(1)
  u = f32[8]{0} negate(d)
  o = f32[8]{0} sine(d)
  g = f32[8]{0} cosine(e)
  h = f32[8]{0} add(o, g)
  ROOT r = f32[8]{0} subtract(u, h)
}
"""
    lines = """\
  w = f32[8]{0} call(x, y), to_apply=made
  z = f32[8]{0} negate(y)"""
    found = hazards(analysed(LOOP.format(callee=callee, lines=lines)), Role.CALLED)
    assert ("d", (), "r", frozenset({"u", "o"})) in found
    assert not any(source == "e" for source, *_ in found)
