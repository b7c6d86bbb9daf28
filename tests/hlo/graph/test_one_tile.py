"""Kernels of one tile have one part: split, they would be applied to their own results once more."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support.captures import MACHINE, changed, unit
from support.rewriting import instructions

from graphopt.hlo import build_graph, rewrite
from graphopt.hlo.module import backend_config
from graphopt.jax_private import hlo_from_text
from graphopt.machine import UnitKind
from graphopt.measure.compiling.stub import StubCompiler

IN_PLACE = """\
HloModule in_place

ENTRY main {{
  p = f32[{dims}] parameter(0)
  q = f32[{other}] parameter(1)
  first = f32[{dims}] reverse(p), dimensions={{0}}
  second = f32[{dims}] reverse(first), dimensions={{1}}
  factor = f32[{dims}] {factor}
  third = f32[{dims}] multiply(second, factor)
  ROOT last = f32[2,{dims}] broadcast(third), dimensions={{1,2}}
}}
"""
"""The third kernel may write over the second, whose value nothing else reads."""

STRAIGHT, TURNED = "negate(q)", "transpose(q), dimensions={1,0}"


def in_place(rows: int, columns: int, factor: str) -> bytes:
    other = f"{columns},{rows}" if factor == TURNED else f"{rows},{columns}"
    text = IN_PLACE.format(dims=f"{rows},{columns}", other=other, factor=factor)
    return hlo_from_text(_with_layouts(text))


def _with_layouts(text: str) -> str:
    for rank, layout in ((2, "{1,0}"), (3, "{2,1,0}")):
        commas = ",".join([r"\d+"] * rank)
        text = re.sub(rf"f32\[({commas})\]", rf"f32[\1]{layout}", text)
    return text


CASES = [
    (1, 6, STRAIGHT, False),
    (1, 16, STRAIGHT, False),
    (1, 17, STRAIGHT, True),
    (12, 12, TURNED, False),
    (16, 16, TURNED, False),
    (16, 17, TURNED, True),
    (64, 64, STRAIGHT, True),
]


@pytest.mark.parametrize(("rows", "columns", "factor", "split"), CASES)
def test_a_kernel_that_writes_over_its_operand_is_applied_once(rows, columns, factor, split):
    data = in_place(rows, columns, factor)
    graph = build_graph(data, MACHINE)
    names = [name.lstrip("%") for name in graph.source.names]
    roots = [names.index(name) for name in ("first", "second", "third", "last")]
    two = unit(graph, UnitKind.LOOP, 2)
    decisions = changed(
        graph.default.with_changes(fuse=~graph.masks.fuse[:, 0]),
        fuse=dict.fromkeys(roots, False) | {names.index("factor"): True},
        unit={names.index("third"): two},
    )
    result = rewrite(graph, decisions).data
    parts = [
        backend_config.partition_count(i.backend_config) for i in instructions(result, "fusion")
    ]
    assert (2 in parts) is split

    rng = np.random.default_rng(0)
    shape = (columns, rows) if factor == TURNED else (rows, columns)
    p, q = (rng.standard_normal(s).astype(np.float32) for s in ((rows, columns), shape))
    expected = p[::-1, ::-1] * (q.T if factor == TURNED else -q)
    run = StubCompiler(data, [p, q]).compile(result)
    for _ in range(3):
        np.testing.assert_allclose(np.asarray(run()), np.stack([expected] * 2), rtol=1e-6)
