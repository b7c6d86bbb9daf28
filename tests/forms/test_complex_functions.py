"""Exponential and logarithm of complex numbers, as near to the true parts as single precision allows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graphopt import forms

EDGES = (
    0,
    1e-20,
    2.4e-4,
    0.5,
    1,
    1.0000001,
    2,
    7,
    88.5,
    89,
    104,
    16777216,
    3.4028235e38,
    np.inf,
    np.nan,
)
NUMBERS = np.array([*EDGES, *(-n for n in EDGES)], np.float32)
FUNCTIONS = {"exp": jnp.exp, "log": jnp.log}


def arguments():
    """Every pair of edges of either sign, and the usual range."""
    usual = np.random.default_rng(0).uniform(-4, 4, (2, 20_000)).astype(np.float32)
    turned = np.stack([np.cos(usual[0]), np.sin(usual[0])])  # logarithms that cancel
    count = len(NUMBERS)
    pairs = np.stack([np.repeat(NUMBERS, count), np.tile(NUMBERS, count)])
    x, y = np.concatenate([pairs, usual, turned], axis=1)
    z = np.empty(len(x), np.complex64)
    z.real, z.imag = x, y
    return z


def true(name, z):
    x, y = z.real.astype(np.longdouble), z.imag.astype(np.longdouble)
    if name == "exp":
        return np.exp(x) * np.cos(y), np.where(y == 0, y, np.exp(x) * np.sin(y))
    size = np.hypot(x, y)
    near = np.log1p((x - 1) * (x + 1) + y * y) / 2
    return np.where(np.abs(size - 1) < 0.1, near, np.log(size)), np.arctan2(y, x)


def computed(name, z, use):
    with forms.enabled(use, always=True) as choices:
        found = np.asarray(jax.jit(lambda z: FUNCTIONS[name](z))(z))
    return found, [choice.form for choice in choices if choice.form is not None]


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_parts_are_rounded_once_and_special_values_are_those_of_xla(name):
    z = arguments()
    found, used = computed(name, z, ["wide-functions"])
    default, _ = computed(name, z, [])
    assert used
    with np.errstate(all="ignore"):
        wanted = true(name, z)
    for part, want in zip(("real", "imag"), wanted, strict=True):
        ours, xla = getattr(found, part), getattr(default, part)
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(xla))
        with np.errstate(all="ignore"):
            rounded = want.astype(np.float32)
        normal = np.isfinite(rounded) & (np.abs(want) >= np.finfo(np.float32).tiny)
        normal &= ~np.isnan(xla)
        error = np.abs(ours[normal] - want[normal]) / np.spacing(np.abs(rounded[normal]))
        assert error.max() < 0.51
        assert (np.signbit(ours) == np.signbit(xla))[normal].all()


def test_those_of_real_numbers_stay_with_xla():
    with forms.enabled() as choices:
        jax.jit(lambda x: jnp.exp(x) + jnp.log(x)).lower(jnp.ones(1 << 20))
    assert not choices
