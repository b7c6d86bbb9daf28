"""Functions of double precision in vector code: right to the last place or two, for all numbers."""

import jax
import numpy as np
import pytest
from jax import lax
from scipy import special
from support.captures import capture

from graphopt import forms
from graphopt.forms.doubles import circular, remainders
from graphopt.forms.rows import double_functions
from graphopt.machine import CpuCosts
from tests.forms.equations import operation_of

SMALL = (0, 5e-324, 1e-310, 2.2250738585072014e-308, 1e-300, 1e-20, 2.0**-27, 0.4142135, 0.4375)
MIDDLE = (0.5, 0.6875, 0.7071068, 1 - 2.0**-53, 1, 1 + 2.0**-52, 1.4142136, 2, 7, 1e5, 1599999.0)
LARGE = (2.0**52, 2.0**53 + 2, 1e20, 1e100, 1e300, 1.7976931348623157e308, np.inf, np.nan)
EDGES = np.array([*SMALL, *MIDDLE, *LARGE])
TINY = np.finfo(np.float64).tiny
TRUE = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "cos": np.cos,
    "log": np.log,
    "log1p": np.log1p,
    "sin": np.sin,
    "tan": np.tan,
}
UNITS = {"acosh": 2.5, "asinh": 2.0, "atanh": 2.0}
"""How many units in the last place, where it may be more than one."""
OF_XLA = {
    "digamma": special.digamma,
    "erf_inv": special.erfinv,
    "lgamma": special.gammaln,
}
"""Approximations that are XLA's, and their true values."""
OF_TWO = ("atan2", "rem")
CIRCULAR = ("cos", "sin", "tan")


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


def arguments(name):
    """Every pair of edges of either sign, numbers of all exponents, of usual ones, and near one."""
    rng = np.random.default_rng(0)
    edges = np.concatenate([EDGES, -EDGES])
    pairs = np.stack([np.repeat(edges, len(edges)), np.tile(edges, len(edges))])
    bits = rng.integers(0, 2**64, (2, 20_000), np.uint64).view(np.float64)
    usual = rng.uniform(-1, 1, (2, 20_000)) * 2.0 ** rng.integers(-4, 20, (2, 20_000))
    near = rng.choice([-1, 1], (2, 20_000)) + rng.uniform(-1, 1, (2, 20_000)) * 2.0 ** rng.uniform(
        -40, 0, (2, 20_000)
    )
    both = np.concatenate([pairs, bits, usual, near], axis=1)
    if name in CIRCULAR:
        both = both[:, (np.abs(both[0]) < circular.FARTHEST) | ~np.isfinite(both[0])]
    return list(both) if name in OF_TWO else [both[0]]


def computed(name, *args):
    operation = operation_of(getattr(lax, name), name, *args)
    assert double_functions.forbids(operation) is None
    return np.asarray(jax.jit(lambda *a: double_functions.compute(operation, a)[0])(*args))


def by_xla(name, *args):
    return np.asarray(jax.jit(getattr(lax, name))(*args))


def is_normal(x):
    return (np.abs(x) >= TINY) | (x == 0) | ~np.isfinite(x)


def equal_bits(found, expected):
    same = found.view(np.uint64) == expected.view(np.uint64)
    return bool((same | (np.isnan(found) & np.isnan(expected))).all())


def errors(name, found, *args):
    """Distances from the true values in units of the last place, where those are normal numbers."""
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("extended precision is that of double here")
    with np.errstate(all="ignore"):
        true = TRUE[name](*[a.astype(np.longdouble) for a in args])
        rounded = true.astype(np.float64)
    kept = np.isfinite(rounded) & (np.abs(rounded) >= TINY)
    if name == "atan2":  # a denormal number beside another is taken for zero
        kept &= np.logical_and.reduce([is_normal(a) for a in args])
    place = np.ldexp(np.longdouble(1), np.frexp(rounded[kept])[1] - 53)
    return np.abs(found[kept] - true[kept]) / place


@pytest.mark.parametrize("name", sorted(TRUE))
def test_functions_are_right_to_the_last_place(name):
    args = arguments(name)
    found = errors(name, computed(name, *args), *args)
    assert found.size > 1000 and found.max() < UNITS.get(name, 0.97)


@pytest.mark.parametrize("name", CIRCULAR)
def test_angles_near_multiples_of_a_quarter_turn(name):
    """Where sine or cosine nearly vanish, and all of the result's digits come from the reduction."""
    quarters = np.concatenate([np.arange(1, 200_000), 2.0 ** np.arange(17, 20)]) * (np.pi / 2)
    args = np.concatenate([quarters, np.nextafter(quarters, 0), -np.nextafter(quarters, 1e9)])
    assert errors(name, computed(name, args), args).max() < 0.97


@pytest.mark.parametrize("name", sorted(TRUE | OF_XLA))
def test_special_values_are_those_of_xla(name):
    args = [a[: 4 * EDGES.size**2] for a in arguments(name)]
    kept = np.logical_and.reduce([is_normal(a) for a in args])  # XLA takes denormal ones for zero
    args = [a[kept] for a in args]
    found, expected = computed(name, *args), by_xla(name, *args)
    kept = np.logical_or.reduce([a == 0 for a in args])
    kept |= ~np.isfinite(found) | ~np.isfinite(expected)
    kept &= is_normal(found)
    assert equal_bits(found[kept], expected[kept]) and kept.sum() > 2 * len(args)


@pytest.mark.parametrize("name", list(OF_XLA))
def test_approximations_are_as_near_as_those_of_xla(name):
    rng = np.random.default_rng(1)
    usual, spread = rng.uniform(-10, 20, 50_000), 10.0 ** rng.uniform(-300, 300, 50_000)
    near = np.round(usual) + rng.uniform(-1, 1, 50_000) * 10.0 ** rng.uniform(-9, 0, 50_000)
    x = np.concatenate([usual, spread, near, -spread[spread < 1], 1 - spread[spread < 1]])
    found, default, true = computed(name, x), by_xla(name, x), OF_XLA[name](x)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(default))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(default))
    finite = np.isfinite(found)
    with np.errstate(invalid="ignore"):
        scale = np.maximum(np.abs(true), 1.0)
        ours, others = (
            np.abs(values - true)[finite] / scale[finite] for values in (found, default)
        )
    assert (ours <= np.maximum(2.0 * others, 2e-14)).all()


@pytest.mark.parametrize("name", CIRCULAR)
def test_one_angle_out_of_reach_leaves_all_to_xla(name):
    angles = np.array([0.5, 1e7, -3.0, 1e300, np.inf])
    assert equal_bits(computed(name, angles), by_xla(name, angles))


def test_remainders_are_those_of_xla_bit_for_bit():
    args = arguments("rem")  # quotients of every size, zeros, infinities: XLA computes them
    assert equal_bits(computed("rem", *args), by_xla("rem", *args))
    x, y = args
    with np.errstate(all="ignore"):
        within = (np.abs(y) >= 2.0**-900) & (np.abs(x) < np.abs(y) * 2.0**52)
    assert within.sum() > 10_000
    usual = [x[within], y[within]]  # all in vector code
    assert equal_bits(computed("rem", *usual), by_xla("rem", *usual))


def test_remainders_of_quotients_just_below_whole_numbers():
    rng = np.random.default_rng(1)
    y = rng.uniform(1, 2, 50_000)
    whole = np.floor(2.0 ** rng.uniform(0, 51.9, y.size))
    x = np.concatenate([whole * y, np.nextafter(whole * y, 0)])
    y = np.concatenate([y, y])
    assert equal_bits(computed("rem", x, y), by_xla("rem", x, y))


@pytest.mark.parametrize("y", [64.0, 2 * np.pi, -0.25, 1e-300, 5e-324, 0.0, np.inf, np.nan])
def test_remainders_by_one_number_are_those_of_xla_bit_for_bit(y):
    x = np.concatenate([*arguments("rem"), np.linspace(-300, 300, 5000)])
    expected = by_xla("rem", x, np.full_like(x, y))
    assert equal_bits(np.asarray(jax.jit(remainders.remainder_by_number)(x, y)), expected)
    constant = jax.jit(lambda x: remainders.remainder_by_number(x, np.float64(y)))
    by_constant = jax.jit(lambda x: lax.rem(x, np.float64(y)))
    assert equal_bits(np.asarray(constant(x)), np.asarray(by_constant(x)))


@pytest.mark.parametrize("name", [*sorted(TRUE | OF_XLA), "rem"])
def test_forms_are_used_in_programs_and_gradients(name):
    args = [np.linspace(0.1, 0.9, 300_000) + (name == "acosh")] * (2 if name in OF_TWO else 1)
    gradient = jax.grad(lambda *a: getattr(lax, name)(*a).sum())

    def loop(x, *_):
        step = lambda c, row: (c + getattr(lax, name)(*[row] * len(args))[0], row * 0.5)  # noqa: E731
        return lax.scan(step, x[0], x.reshape(3, -1))[0]

    functions = (jax.vmap(lambda *a: getattr(lax, name)(*a)), gradient, loop)
    expected = [jax.jit(function)(*args) for function in functions]
    chosen = []
    assert forms.install(chosen.append) == ()
    try:
        found = [jax.jit(lambda *a, f=function: f(*a))(*args) for function in functions]
    finally:
        forms.remove()
    assert {choice.form.name for choice in chosen} == {"double-functions"}
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == np.float64
        np.testing.assert_allclose(one, other, rtol=1e-14, atol=1e-14 * (name in OF_XLA))


@pytest.mark.parametrize("name", sorted({*TRUE, *OF_XLA} - {"lgamma"}))
def test_a_form_is_one_kernel_and_what_looks_at_its_angles(name):
    """XLA writes quotients and roots that several operations read to memory."""
    near = {"cos": circular._near_cosine, "sin": circular._near_sine, "tan": circular._near_tangent}
    args = [np.random.default_rng(0).uniform(0, 1, (256, 256))] * (2 if name in OF_TWO else 1)
    operation = operation_of(getattr(lax, name), name, *args)
    function = near.get(name, lambda *a: double_functions.compute(operation, a)[0])
    graph = capture(function, *args).graph
    written = [
        op.name for op, fused in zip(graph.ops, graph.default.fuse, strict=True) if not fused
    ]
    assert len([op for op in written if op not in ("parameter", "opt-barrier")]) == 1


@pytest.mark.parametrize("name", [*sorted(TRUE | OF_XLA), "rem"])
def test_small_arrays_and_other_types_stay_with_xla(name):
    def chosen(size, dtype=np.float64):
        args = [np.ones(size, dtype)] * (2 if name in OF_TWO else 1)
        operation = operation_of(getattr(lax, name), name, *args)
        return forms.choose(operation, CpuCosts(), {"double-functions"}).form

    assert chosen(512) is None
    assert chosen(300_000) is double_functions.FORM
    assert chosen(300_000, np.float32) is None
