"""Functions in vector code: as near to the true value as single precision allows, for all floats."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from graphopt import forms
from graphopt.forms.rows import wide_functions
from tests.forms.equations import operation_of

SMALL = (0, 1e-45, 1e-42, 1.1754942e-38, 1.1754944e-38, 1e-20, 2.4e-4, 0.41421357, 0.5, 0.50000006)
LARGE = (0.99999994, 1, 1.0000001, 2, 7, 16777216, 3.4028235e38, np.inf, np.nan)
EDGES = np.array([*SMALL, *LARGE], np.float32)
TRUE = {
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan2": np.arctan2,
    "cbrt": np.cbrt,
    "cos": np.cos,
    "sin": np.sin,
    "tan": np.tan,
}
OF_TWO = ("atan2", "rem")


def arguments(name):
    """Every pair of edges of either sign, floats of all exponents, and the usual range."""
    rng = np.random.default_rng(0)
    edges = np.concatenate([EDGES, -EDGES])
    bits = rng.integers(0, 2**32, (2, 20_000), np.uint32).view(np.float32)
    usual = rng.uniform(-1, 1, (2, 20_000)).astype(np.float32)
    pairs = np.stack([np.repeat(edges, len(edges)), np.tile(edges, len(edges))])
    both = np.concatenate([pairs, bits, usual], axis=1)
    return list(both) if name in OF_TWO else [both[0]]


def computed(name, *args):
    function = getattr(lax, name)
    operation = operation_of(function, name, *args)
    assert wide_functions.forbids(operation) is None
    return np.asarray(jax.jit(lambda *a: wide_functions.compute(operation, a)[0])(*args))


@pytest.mark.parametrize("name", sorted(TRUE))
def test_functions_are_right_to_the_last_place(name):
    args = arguments(name)
    found = computed(name, *args)
    assert found.dtype == np.float32
    with np.errstate(all="ignore"):
        true = TRUE[name](*[a.astype(np.float64) for a in args])
    assert (np.isnan(found) == np.isnan(true)).all()
    real = ~np.isnan(true)
    assert (np.signbit(found) == np.signbit(true))[real].all()
    # XLA flushes what would be denormal here, and so may the form of an arc sine.
    finite = np.isfinite(true) & ((np.abs(true) >= np.finfo(np.float32).tiny) | (name == "atan2"))
    place = np.spacing(np.abs(true[finite]).astype(np.float32)).astype(np.float64)
    assert (np.abs(found[finite] - true[finite]) / place).max() < 0.501
    np.testing.assert_array_equal(found[np.isinf(true)], true[np.isinf(true)])


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_near_multiples_of_a_quarter_turn(name):
    """Where sine or cosine nearly vanish, and all of the result's digits come from the reduction."""
    quarters = np.concatenate([np.arange(1, 50_000), 2.0 ** np.arange(16, 120)]) * (np.pi / 2)
    near = quarters.astype(np.float32)
    args = np.concatenate([near, np.nextafter(near, np.float32(0)), [np.float32(-21677404.0)]])
    true = TRUE[name](args.astype(np.float64))
    place = np.spacing(np.abs(true).astype(np.float32)).astype(np.float64)
    assert (np.abs(computed(name, args) - true) / place).max() < 0.501


def equal_bits(found, expected):
    same = (found.view(np.uint32) == expected.view(np.uint32)) | (
        np.isnan(found) & np.isnan(expected)
    )
    return bool(same.all())


def test_remainders_are_those_of_xla_bit_for_bit():
    expected = jax.jit(lax.rem)
    args = arguments("rem")  # quotients of every size, zeros, infinities: XLA computes them
    assert equal_bits(computed("rem", *args), np.asarray(expected(*args)))
    x, y = args
    with np.errstate(all="ignore"):
        within = (np.abs(y) >= 2.0**-100) & (np.abs(x) < np.abs(y) * np.float32(2.0**28))
    assert within.sum() > 10_000
    usual = [x[within], y[within]]  # all in vector code
    assert equal_bits(computed("rem", *usual), np.asarray(expected(*usual)))


def test_remainders_of_quotients_just_below_whole_numbers():
    rng = np.random.default_rng(1)
    y = rng.uniform(1, 2, 50_000).astype(np.float32)
    whole = np.floor(2.0 ** rng.uniform(0, 27.9, y.size))
    above = (whole * y.astype(np.float64)).astype(np.float32)
    x = np.concatenate([above, np.nextafter(above, np.float32(0))])
    y = np.concatenate([y, y])
    assert equal_bits(computed("rem", x, y), np.asarray(jax.jit(lax.rem)(x, y)))


@pytest.mark.parametrize("name", [*sorted(TRUE), "rem"])
def test_forms_are_used_in_programs_and_gradients(name):
    args = [np.linspace(0.1, 0.9, 300_000, dtype=np.float32)] * (2 if name in OF_TWO else 1)
    gradient = jax.grad(lambda *a: getattr(lax, name)(*a).sum())
    expected = jax.jit(getattr(lax, name))(*args), jax.jit(gradient)(*args)
    chosen = []
    assert forms.install(chosen.append) == ()
    try:
        found = (
            jax.jit(jax.vmap(lambda *a: getattr(lax, name)(*a)))(*args),
            jax.jit(lambda *a: gradient(*a))(*args),
        )
    finally:
        forms.remove()
    assert {choice.form.name for choice in chosen} == {"wide-functions"}
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == jnp.float32
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_other_types_stay_with_xla():
    operation = operation_of(lax.asin, "asin", jnp.zeros(4, jnp.bfloat16))
    assert wide_functions.forbids(operation) == "wide-function-type"
