"""Modules that lose their donated buffers: the caller's arrays stay as they are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import MACHINE, normal

from graphopt.hlo import build_graph, rewrite, verify
from graphopt.hlo.emit.release import release
from graphopt.hlo.module.index import has_donation, parse
from graphopt.jax_private import hlo_from_text
from graphopt.measure import compare_outputs
from graphopt.measure.compiling.functions import compile_lowered

ALIASES = "{ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias), {2}: (2, {}, may-alias) }"

TEXT = (
    f"""\
HloModule donated, is_scheduled=true, input_output_alias={ALIASES}
"""
    + """
ENTRY main {
  p = f32[64]{0} parameter(0)
  q = f32[32]{0} parameter(1)
  s = f32[16]{0} parameter(2)
  i = s32[] parameter(3)
  one = f32[1]{0} constant({1})
  written = f32[64]{0} dynamic-update-slice(p, one, i)
  fresh = f32[16]{0} negate(s)
  ROOT out = (f32[64]{0}, f32[32]{0}, f32[16]{0}) tuple(written, q, fresh)
}
"""
)


def test_what_is_written_or_handed_out_is_copied_first():
    released = release(hlo_from_text(TEXT))
    module = parse(released.data)
    assert not has_donation(module)
    assert released.donated_bytes == 4 * (64 + 32 + 16)
    assert released.copied_bytes == 4 * (64 + 32)
    (entry,) = module.proto.computations
    names = {i.id: i.name for i in entry.instructions}
    read = {i.name: [names[o] for o in i.operand_ids] for i in entry.instructions}
    assert read["written"][0] == "p.released" and read["p.released"] == ["p"]
    assert read["out"] == ["written", "q.released", "fresh"] and read["fresh"] == ["s"]
    (sequence,) = module.proto.schedule.sequences
    order = [names[i] for i in sequence.value.instruction_ids]
    assert sorted(order) == sorted(names.values())
    assert order[order.index("p") + 1] == "p.released"
    assert order[order.index("q") + 1] == "q.released"
    verify(module.proto, parse(hlo_from_text(TEXT)))


def moved(x, y, i):
    return x.at[i].set(y[0]), y, jnp.cumsum(x)[::-1] + y


def carried(x, y, i):
    steps = jax.lax.fori_loop(0, 4, lambda _, c: (c[0] * 0.9 + c[1][::-1], c[1] + c[0]), (x, y))
    return *steps, x.sum() + y + i


def stored(x, y, i):
    """A buffer of experience: written in a loop, in place."""
    step = lambda k, c: (c[0].at[(i + k) % 64].set(c[1].sum()), c[1] * 1.01)  # noqa: E731
    return jax.lax.fori_loop(0, 5, step, (x, y))


@pytest.mark.parametrize("fn", [moved, carried, stored])
def test_results_are_equal_and_arguments_untouched(fn):
    args = (normal(64), normal(64, seed=1), 3)
    lower = lambda: jax.jit(fn, donate_argnums=(0, 1)).lower(*args)  # noqa: E731
    default = compile_lowered(lower, args)
    expected = jax.device_get(default.executable(*(jnp.array(a) for a in args)))
    for seed in range(4):

        def transform(data: bytes, seed: int = seed) -> bytes:
            graph = build_graph(data, MACHINE, allow_donation=True)
            rng = np.random.default_rng(seed)
            decisions = graph.masks.sample(rng, graph.default, 0.4)
            return release(rewrite(graph, decisions).data).data

        changed = compile_lowered(lower, args, transform).executable
        assert changed.memory_analysis().alias_size_in_bytes == 0
        given = [jnp.array(a) for a in args]
        before = [np.array(a) for a in given]
        for _ in range(2):
            assert compare_outputs(expected, jax.device_get(changed(*given))).equal
        for array, value in zip(given, before, strict=True):
            assert not array.is_deleted()
            np.testing.assert_array_equal(array, value)
