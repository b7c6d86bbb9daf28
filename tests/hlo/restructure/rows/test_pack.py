"""Functions of small arrays computed together agree with XLA's, whatever depends on what."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.scipy.special import erf
from support.captures import MACHINE, capture
from support.restructured import everywhere, native, run_program, run_text

from graphopt.hlo import build_graph, rewrite
from graphopt.hlo.replace import restructured
from graphopt.hlo.restructure import CODE
from graphopt.measure import compare_outputs, compile_with

NAME = "pack"
FUNCTIONS = (jnp.exp, jnp.expm1, jnp.log1p, jnp.tanh, erf)


def names_after(fn: Any, *args: Any) -> list[str]:
    """Opcodes of the graph after packing everywhere."""
    graph = capture(fn, *args).graph
    after = restructured(graph, everywhere(graph, NAME).restructure)
    return [op.name for op in after.ops]


def refused(fn: Any, *args: Any) -> set[str]:
    """Rules that forbid packing the functions of a program."""
    graph = capture(fn, *args).graph
    rules = graph.masks.restructure_rule[:, CODE[NAME]]
    return {graph.masks.rules[rule] for rule in rules.tolist() if rule >= 0} - {"other-operation"}


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_functions_of_any_small_arrays(data):
    shapes = data.draw(
        st.lists(st.lists(st.integers(1, 5), max_size=3).map(tuple), min_size=2, max_size=5)
    )
    steps = data.draw(
        st.lists(st.lists(st.sampled_from(FUNCTIONS), max_size=3), min_size=2, max_size=5)
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    arrays = [rng.uniform(0.1, 2.0, shape).astype(np.float32) for shape in shapes]

    def fn(*values: jax.Array) -> Any:
        out = [jnp.exp(values[0] * 0.5), jnp.exp(values[1] * 0.25)]
        for value, functions in zip(values, steps, strict=False):
            result = value
            for function in functions:
                result = function(result * 0.5) + result.sum() * 0.1
            out.append(result)
        return out, sum(jnp.tanh(o).sum() for o in out)

    wanted, results = run_program(fn, arrays, NAME)
    for got in results:
        assert compare_outputs(wanted, got).equal


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_state_of_a_loop(dtype):
    """Chains of functions, values that several read, and carried values written in place."""

    def fn(state: Any, drive: jax.Array) -> Any:
        def step(state: Any, seen: jax.Array) -> Any:
            rate = [jax.nn.softplus(x * 0.3 + seen) for x in state]
            total = sum(jnp.sum(r) for r in rate) * 0.01
            return [
                x + 0.1 * r * (total - x) / (1.0 + r) for x, r in zip(state, rate, strict=True)
            ], total

        return jax.lax.scan(step, state, drive)

    rng = np.random.default_rng(0)
    with jax.enable_x64(dtype == "float64"):
        state = [jnp.asarray(rng.uniform(-1, 1, d), dtype) for d in ((), (), (3,), (2, 4), (1,))]
        drive = jnp.asarray(rng.uniform(-1, 1, 20), dtype)
        wanted, results = run_program(fn, (state, drive), NAME)
    for got in results:
        assert compare_outputs(wanted, got).equal


def test_functions_of_one_level_become_one():
    def fn(a, b, c):
        return erf(a * 0.5), erf(b * 0.5), erf(erf(c * 0.5) * 0.1)

    arrays = [np.ones(3, np.float32), np.ones((2, 2), np.float32), np.float32(1)]
    names = names_after(fn, *arrays)
    # The outer function of `c` has none of its level; it is padded alone.
    assert names.count("erf") == names.count("concatenate") == 2


def test_a_function_of_packed_results_reads_them_where_they_are():
    def fn(a, b):
        return erf(erf(a * 0.5)), erf(erf(b * 0.5))

    names = names_after(fn, np.ones(60, np.float32).reshape(3, 20), np.ones(5, np.float32))
    assert names.count("concatenate") == 1
    assert names.count("erf") == 2
    assert names.count("slice") == 2  # none of the results that only the second function read


def test_results_in_another_order_are_gathered_anew():
    def fn(a, b, c):
        first = [jnp.exp(x * 0.5) for x in (a, b, c)]
        return jnp.log1p(first[2]), jnp.log1p(first[0]), first[1]

    arrays = [np.full(n, 0.5, np.float32) for n in (2, 3, 4)]
    assert names_after(fn, *arrays).count("concatenate") == 2
    wanted, results = run_program(fn, arrays, NAME)
    for got in results:
        assert compare_outputs(wanted, got).equal


def test_functions_are_written_as_arithmetic():
    names = names_after(lambda a: jnp.exp(a * 0.5) + 1.0, np.ones(16, np.float32))
    assert "exponential" not in names and "concatenate" not in names


def test_few_elements_are_padded_to_whole_vectors():
    names = names_after(lambda a: jnp.exp(a * 0.5) + 1.0, np.ones(9, np.float32))
    assert "exponential" not in names and names.count("concatenate") == 1


@pytest.mark.parametrize(
    ("rule", "fn", "array"),
    [
        ("pack-function", erf, np.ones(4, np.float64)),
        ("pack-size", jnp.exp, np.ones(33, np.float32)),
        ("pack-size", jnp.exp, np.ones((16, 17), np.float32)),
    ],
)
def test_what_is_left_alone(rule, fn, array):
    with jax.enable_x64(True):
        assert refused(lambda x: fn(x * 0.5), array) == {rule}


READ_BEFORE_IT_IS_OVERWRITTEN = """\
HloModule overwritten, is_scheduled=true

first {
  p = f32[4]{0} parameter(0)
  ROOT e = f32[4]{0} exponential(p)
}

second {
  p = f32[4]{0} parameter(0)
  ROOT e = f32[4]{0} exponential(p)
}

update {
  p = f32[4]{0} parameter(0)
  q = f32[4]{0} parameter(1)
  one = s32[] constant(1)
  part = f32[2]{0} slice(q), slice={[0:2]}
  ROOT u = f32[4]{0} dynamic-update-slice(p, part, one)
}

ENTRY main {
  a = f32[4]{0} parameter(0)
  b = f32[4]{0} parameter(1)
  own = f32[4]{0} copy(a)
  early = f32[4]{0} fusion(own), kind=kLoop, calls=first
  written = f32[4]{0} fusion(own, early), kind=kLoop, calls=update
  late = f32[4]{0} fusion(written), kind=kLoop, calls=second
  other = f32[4]{0} exponential(b)
  ROOT out = (f32[4]{0}, f32[4]{0}, f32[4]{0}) tuple(written, late, other)
}
"""


def test_a_buffer_is_read_before_it_is_overwritten():
    a, b = (np.array(x, np.float32) for x in ([0.1, 0.2, 0.3, 0.4], [1, 2, 3, 4]))
    written = np.array([a[0], *np.exp(a[:2]), a[3]], np.float32)
    wanted = (written, np.exp(written), np.exp(b))
    for got in run_text(READ_BEFORE_IT_IS_OVERWRITTEN, (a, b), wanted, NAME):
        assert compare_outputs(wanted, tuple(got)).equal


def test_packing_is_undone_by_no_carried_decision():
    """Decisions on the old graph, native code among them, mean the same on the new one."""

    def fn(a, b):
        return jnp.tanh(a * 2.0) + 1.0, jnp.tanh(b * 3.0) * 2.0

    arrays = (jnp.ones(6), jnp.ones((2, 3)))
    graph = build_graph(compile_with(fn, arrays).modules[0], MACHINE)
    result = rewrite(graph, native(graph, everywhere(graph, NAME)))
    assert result.restructured == 2 and result.regions == 1


def test_a_lone_result_that_nothing_is_fused_with():
    """In native code, XLA never writes a slice of a whole array."""

    def fn(x):
        return jax.lax.scan(lambda x, _: (jnp.tanh(x) * 0.37 + 0.61, None), x, None, length=5)[0]

    x = jnp.linspace(0.3, 0.9, 16)
    default = compile_with(fn, (x,))
    graph = build_graph(default.modules[0], MACHINE)
    decisions = native(graph, everywhere(graph, NAME))
    for node in np.flatnonzero(decisions.restructure):
        for value in (node, *graph.operand_lists[node]):
            decisions.fuse[value] &= not graph.masks.fuse[value, 0]
    data = rewrite(graph, decisions).data
    got = compile_with(fn, (x,), lambda *_: data)
    assert compare_outputs(default(), got()).equal


FLOATS = np.concatenate(
    [
        np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-320, -1e-320, 1e-40, 3e38]),
        np.linspace(-110, 110, 4001),
        np.linspace(-760, 760, 2001),
        np.linspace(-1.5, 1.5, 3001),
        *(sign * np.logspace(-307, 308, 3000) for sign in (1, -1)),
    ]
)
"""Arguments of all sizes, and what is special."""


@pytest.mark.parametrize(
    ("function", "exact", "bound"),
    [
        (jnp.exp, np.exp, 2),
        (jnp.expm1, np.expm1, 3),
        (jnp.log, np.log, 2),
        (jnp.log1p, np.log1p, 3),
        (jax.lax.logistic, lambda x: 1 / (1 + np.exp(-x)), 3),
        (jnp.tanh, np.tanh, 4),
    ],
    ids=["exp", "expm1", "log", "log1p", "logistic", "tanh"],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arithmetic(function, exact, bound, dtype):
    """Few elements are written out: as close to the exact result as XLA's, or within a bound.

    The bound counts units in the last place. Denormal numbers are zeros to XLA.
    """
    with np.errstate(all="ignore"):
        floats = FLOATS.astype(dtype)
    for row in (16, 24, 29):
        values = np.resize(floats, (-(-len(floats) // row), row))
        with jax.enable_x64(dtype == np.float64):
            wanted, results = run_program(lambda x: jax.lax.map(function, x), (values,), NAME)
        with np.errstate(all="ignore"):
            true = exact(values.astype(np.longdouble))
        for got in results:
            assert_close(*(np.asarray(x) for x in (got, wanted)), true, bound)


def assert_close(got: Any, own: Any, true: Any, bound: int) -> None:
    """Special results are XLA's, signs of zeros too; others are as close as XLA's, or within a bound."""
    tiny = np.finfo(own.dtype).tiny
    special = ~np.isfinite(own) | (np.abs(own) < tiny)
    same = (got == own) | (np.isnan(got) & np.isnan(own))
    near_zero = (np.abs(got) < tiny) & (np.abs(own) < tiny)
    assert (same | near_zero)[special].all() and np.isfinite(got[~special]).all()
    assert (np.signbit(got) == np.signbit(own))[(own == 0) & (true == 0)].all()
    assert (ulps_from(true, got) <= np.maximum(ulps_from(true, own), bound))[~special].all()


def ulps_from(true: Any, values: Any) -> Any:
    """Distances in units in the last place; 0 where one of both is not finite."""
    finite = np.isfinite(values) & (np.abs(true) <= np.finfo(values.dtype).max)
    true = np.where(finite, true, 1.0)
    values = np.where(finite, values, values.dtype.type(1))
    return np.abs(values - true) / np.spacing(np.abs(true).astype(values.dtype))
