"""Hand-written modules for tests of legality, and their graphs."""

from __future__ import annotations

import functools

from graphopt.hlo import Graph, build_graph
from graphopt.jax_private import hlo_from_text
from graphopt.machine import UnitKind
from support.captures import MACHINE, unit

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
  kept = f32[8,4]{1,0} copy(back)
  ROOT scaled = f32[8,4]{1,0} multiply(kept, spread)
}

viewed (y: f32[8,4]) -> f32[4,8] {
  y = f32[8,4]{1,0} parameter(0)
  under = f32[8,4]{1,0} tanh(y)
  ROOT over = f32[4,8]{1,0} bitcast(under)
}

again (y: f32[8,4]) -> f32[8,4] {
  y = f32[8,4]{1,0} parameter(0)
  equal = f32[8,4]{1,0} tanh(y)
  ROOT other = f32[8,4]{1,0} negate(equal)
}

alone (y: f32[8,4]) -> f32[4,8] {
  y = f32[8,4]{1,0} parameter(0)
  only_viewed = f32[8,4]{1,0} exponential(y)
  ROOT its_view = f32[4,8]{1,0} bitcast(only_viewed)
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
  reader = f32[8,4]{1,0} fusion(fused), kind=kLoop, calls=again
  second = f32[4,8]{1,0} fusion(fused), kind=kLoop, calls=alone
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
  ROOT all = (f32[4,8]{1,0}, f32[32]{0}, f32[1]{0}, f32[8,8]{1,0}, f32[8,8]{1,0}, f16[8,4]{1,0},
      f32[8,4]{1,0}, f32[4,8]{1,0})
      tuple(view, above, one, product, mixed, narrow, reader, second)
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
