"""Whole quotients in floating point: XLA's bit for bit, for all numbers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from graphopt import forms
from graphopt.forms.rows import whole_quotients
from graphopt.machine import CpuCosts
from tests.forms.equations import operation_of

TYPES = ("int16", "uint16", "int32", "uint32")
FUNCTIONS = {"div": lax.div, "rem": lax.rem}


def pairs(dtype, seed=0):
    """Every pair of edges, numbers of all sizes by such, and quotients just below whole ones."""
    rng, span = np.random.default_rng(seed), np.iinfo(dtype)
    near = [*range(-3, 4), *(span.max - i for i in range(3)), *(span.min + i for i in range(3))]
    edges = np.array([n for n in near if span.min <= n <= span.max], dtype)
    shifts = rng.integers(0, span.bits, (2, 60_000))
    sizes = rng.integers(span.min, span.max, (2, 60_000), dtype, endpoint=True) >> shifts.astype(
        dtype
    )
    divisor = np.maximum(np.abs(sizes[1].astype(np.int64)), 1)
    whole = (span.max // divisor) * divisor
    below = np.stack([np.maximum(whole - 1, 0), divisor]).astype(dtype)
    both = np.stack([np.repeat(edges, len(edges)), np.tile(edges, len(edges))])
    return np.concatenate([both, sizes, below], axis=1)


@functools.cache
def compiled(name, dtype, size):
    """The function by XLA and by the form."""
    like = jax.ShapeDtypeStruct((size,), dtype)
    operation = operation_of(FUNCTIONS[name], name, like, like)
    assert whole_quotients.forbids(operation) is None
    ways = FUNCTIONS[name], lambda *a: whole_quotients.compute(operation, a)[0]
    return [jax.jit(way).lower(like, like).compile() for way in ways]


def check(name, x, y):
    expected, found = (way(x, y) for way in compiled(name, x.dtype, x.size))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_quotients_are_those_of_xla(name, dtype):
    check(name, *pairs(dtype))


@settings(deadline=None)
@given(st.data())
def test_any_two_numbers(data):
    dtype = data.draw(st.sampled_from(TYPES))
    span = np.iinfo(dtype)
    numbers = st.lists(st.integers(int(span.min), int(span.max)), min_size=8, max_size=8)
    x, y = (np.array(data.draw(numbers), dtype) for _ in range(2))
    for name in FUNCTIONS:
        check(name, x, y)


@pytest.mark.parametrize(
    ("x", "y", "rule"),
    [
        (np.ones(9, np.float32), np.ones(9, np.float32), "quotient-type"),
        (np.ones(9, np.int8), np.ones(9, np.int8), "quotient-type"),
        (np.ones(9, np.int32), np.int32(3), "quotient-by-number"),
    ],
)
def test_what_is_left_to_xla(x, y, rule):
    assert whole_quotients.forbids(operation_of(lax.div, "div", x, y)) == rule


def test_short_arrays_are_not_worth_it():
    few, many = (
        forms.choose(operation_of(lax.rem, "rem", x, x), CpuCosts())
        for x in (np.ones(100, np.int32), np.ones(4_096, np.int32))
    )
    assert few.form is None and few.reason == "no gain expected"
    assert many.form is whole_quotients.FORM


def test_programs_use_them():
    x, y = (jnp.asarray(a[:40_000]) for a in pairs("int32"))

    def run(x, y):
        half = x >> 1, y >> 1  # jax looks forever for divisors of the smallest number
        by_one = jax.vmap(lax.rem, (0, None))(x, y[1])
        return jnp.remainder(x, y), jnp.floor_divide(x, y), jnp.gcd(*half), by_one

    expected = jax.jit(run)(x, y)
    with forms.enabled() as chosen:
        found = jax.jit(lambda *a: run(*a))(x, y)
    assert "whole-quotients" in {choice.form.name for choice in chosen}
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
