"""A donated parameter's buffer is overwritten by the result that takes it: its readers come first."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import MACHINE, normal
from support.promises import analysed, broken, hazards

from graphopt.errors import UnsupportedModuleError, VerificationError
from graphopt.hlo import build_graph, rewrite, verify
from graphopt.hlo.graph.targets import donated_results
from graphopt.hlo.module.index import parse
from graphopt.jax_private import hlo_from_text
from graphopt.measure import compare_outputs
from graphopt.measure.capabilities.own import own_capabilities
from graphopt.measure.compiling.functions import compile_lowered
from graphopt.measure.compiling.stub import StubCompiler

DONATED = """\
HloModule donated, input_output_alias={ {0}: (0, {}, may-alias), {1}: (2, {}, may-alias) }

ENTRY main {
  p = f32[64]{0} parameter(0)
  q = f32[64]{0} parameter(1)
  s = f32[64]{0} parameter(2)
  reader = f32[64]{0} sine(p)
  used = f32[64]{0} negate(reader)
  fresh = f32[64]{0} multiply(q, q)CONTROL
  ROOT out = (f32[64]{0}, f32[64]{0}, f32[64]{0}) tuple(fresh, s, used)
}
"""
ORDERED = DONATED.replace("CONTROL", ", control-predecessors={reader}")


def test_donated_results_are_read_from_the_module():
    module = parse(hlo_from_text(ORDERED))
    assert donated_results(module) == [(0, (), (0,)), (2, (), (1,))]
    module.proto.ClearField("input_output_alias")
    assert donated_results(module) == []


def test_the_readers_of_a_donated_parameter_must_come_before_its_writer():
    """A parameter that is handed on unchanged has no writer."""
    for text in (DONATED.replace("CONTROL", ""), ORDERED):
        assert hazards(analysed(text)) == {("p", (), "fresh", frozenset({"reader"}))}
    assert broken(analysed(ORDERED)) == set()
    assert broken(analysed(DONATED.replace("CONTROL", ""))) == {("fresh", "reader")}


def test_a_module_whose_order_does_not_hold_is_left_alone():
    data = hlo_from_text(DONATED.replace("CONTROL", ""))
    with pytest.raises(UnsupportedModuleError) as caught:
        build_graph(data, MACHINE, allow_donation=True)
    assert caught.value.rule == "in-place-order"


def test_the_verifier_finds_a_reader_that_may_come_too_late():
    graph = build_graph(hlo_from_text(ORDERED), MACHINE, allow_donation=True)
    proto = parse(rewrite(graph, graph.default).data).proto
    verify(proto)
    for computation in proto.computations:
        for instruction in computation.instructions:
            instruction.ClearField("control_predecessor_ids")
    with pytest.raises(VerificationError) as caught:
        verify(proto)
    assert caught.value.rule == "in-place-order"


def moved(x, y):
    """Every donated value has other readers, some in another order of elements."""
    return x[::-1] * 2.0 + x, y * x, jnp.cumsum(x)[::-1] + y


def carried(x, y):
    steps = jax.lax.fori_loop(0, 4, lambda _, c: (c[0] * 0.9 + c[1][::-1], c[1] + c[0]), (x, y))
    return *steps, x.sum() + y


def updated(x, y):
    return x.at[2:5].set(y[:3]), x[::-1].sum() + y, y.at[jnp.array([1, 1, 3])].add(x[:3])


@pytest.mark.parametrize("fn", [moved, carried, updated])
def test_results_are_equal_with_donated_buffers(fn):
    args = (normal(64), normal(64, seed=1))

    def lower():
        return jax.jit(fn, donate_argnums=(0, 1)).lower(*args)

    def run(executable):
        return jax.device_get(executable(*(jnp.array(a) for a in args)))

    default = compile_lowered(lower, args)
    expected = run(default.executable)
    for seed in range(8):

        def transform(data: bytes, seed: int = seed) -> bytes:
            graph = build_graph(data, MACHINE, allow_donation=True)
            rng = np.random.default_rng(seed)
            return rewrite(graph, graph.masks.sample(rng, graph.default, 0.4)).data

        changed = compile_lowered(lower, args, transform).executable
        for _ in range(2):
            assert compare_outputs(expected, run(changed)).equal
        kept = changed.memory_analysis().alias_size_in_bytes > 0
        assert kept is own_capabilities().donation


def test_measuring_gives_no_input_away():
    args = (normal(64), normal(64, seed=1))
    compiled = compile_lowered(lambda: jax.jit(moved, donate_argnums=0).lower(*args), args)
    (data,) = compiled.modules
    assert donated_results(parse(data))
    run = StubCompiler(data, [np.asarray(a) for a in args]).compile(data)
    first, second = run(), run()
    assert compare_outputs(first, second).equal
    assert not any(array.is_deleted() for array in run.inputs)
