"""Sorts of packed integers: bit-equal to XLA's stable sorts, for all keys, payloads and special values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from graphopt import forms
from graphopt.forms import Array, Operation, choose
from graphopt.forms.rows.packed_sort import FORM
from graphopt.machine import own_costs

SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42, 1.5, -2.25, 3e38]


def operation(operands, dimension=-1, num_keys=1, is_stable=True):
    """The equation that jax would lower."""
    arrays = tuple(Array(x.shape, np.dtype(x.dtype)) for x in operands)
    params = {
        "dimension": dimension % len(arrays[0].dims),
        "is_stable": is_stable,
        "num_keys": num_keys,
    }
    return Operation("sort", arrays, arrays, params)


def assert_bits(found, expected):
    """Equal to the last bit, signs of zeros and payloads of NaNs included."""
    assert found.dtype == expected.dtype
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


def assert_sorted_alike(operands, dimension=-1, num_keys=1):
    sort = operation(operands, dimension, num_keys)
    expected = jax.jit(lambda *a: lax.sort(a, dimension=dimension, num_keys=num_keys))(*operands)
    found = jax.jit(lambda *a: FORM.compute(sort, a))(*operands)
    for one, other in zip(found, expected, strict=True):
        assert_bits(one, other)


def values(dtype, dims, seed=0):
    """Few different values, so that many are equal."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return jnp.asarray(rng.integers(0, 2, dims).astype(bool))
    if dtype.startswith(("int", "uint")):
        limits = np.iinfo(dtype)
        few = [limits.min, limits.max, 0, 1, limits.max // 2]
        return jnp.asarray(rng.choice(few, dims).astype(dtype))
    return jnp.asarray(rng.choice(SPECIAL, dims).astype(np.float32)).astype(dtype)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from(SPECIAL), min_size=40, max_size=40))
def test_special_values_and_ties(numbers):
    key = jnp.asarray(np.array(numbers, np.float32))
    assert_sorted_alike([key])
    assert_sorted_alike([key, jnp.arange(40)])


TYPES = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "float16",
    "float32",
]


@pytest.mark.parametrize("dtype", TYPES)
def test_types_of_keys(dtype):
    key = values(dtype, (3, 37))
    assert_sorted_alike([key, jnp.arange(3 * 37).reshape(3, 37)])


def test_all_half_precision_numbers():
    bits = np.random.default_rng(0).permutation(1 << 16).astype(np.uint16)
    assert_sorted_alike([lax.bitcast_convert_type(jnp.asarray(bits), np.float16)])


@pytest.mark.parametrize(
    ("dims", "axis"), [((33,), 0), ((33, 4), 0), ((2, 17, 3), 1), ((1, 50), 1)]
)
def test_axes(dims, axis):
    assert_sorted_alike([values("float32", dims), values("int8", dims, 1)], axis)


def test_several_keys_and_payloads():
    keys = [values("int8", (60,)), values("float16", (60,), 1), values("bool", (60,), 2)]
    assert FORM.forbids(operation(keys, num_keys=3)) is None
    assert_sorted_alike([*keys, values("float32", (60,), 3) * 1j], num_keys=3)


def test_under_vmap_and_in_a_loop():
    key = values("float32", (4, 30))

    def sort(row):
        return FORM.compute(operation([row]), [row])[0]

    expected = jnp.sort(key, axis=1)
    assert_bits(jax.vmap(sort)(key), expected)
    assert_bits(lax.scan(lambda c, row: (c, sort(row)), 0, key)[1], expected)


def test_what_rests_on_sorts():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(64, 64)), jnp.float32)
    functions = [
        lambda x: jnp.argsort(x, axis=0),
        lambda x: jnp.argsort(x, descending=True),
        lambda x: jnp.sort(x, descending=True),
        lambda x: jnp.median(x, axis=1),
        lambda x: jax.random.permutation(jax.random.key(0), x.ravel()),
        jax.grad(lambda x: (jnp.sort(x) ** 2 * jnp.arange(64.0)).sum()),
    ]
    for fn in functions:
        chosen = []
        expected = jax.jit(lambda x, fn=fn: fn(x))(x)
        forms.install(chosen.append)
        try:
            found = jax.jit(lambda x, fn=fn: fn(x))(x)
        finally:
            forms.remove()
        assert FORM in [choice.form for choice in chosen]
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_what_is_left_to_xla():
    def rule(*operands, **params):
        return FORM.forbids(operation(operands, **params))

    assert rule(jnp.ones((4, 8))) == rule(jnp.ones((0, 64))) == "packed-sort-short"
    assert rule(jnp.arange(100)) == "packed-sort-plain"
    assert rule(jnp.ones(100) * 1j) == "packed-sort-type"
    assert rule(jnp.arange(100), jnp.ones(100, jnp.bfloat16)) == "packed-sort-nan"
    assert rule(jnp.ones(100), jnp.ones(100), num_keys=2) == "packed-sort-wide"
    assert choose(operation([jnp.ones(20)]), own_costs()).form is None
