"""What is recorded of inputs: coarse ranges that hold all values, nothing of what should stay hidden."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphopt.plugin.input_ranges import SAMPLE, ends_of, values_of, wider

FINITE = st.floats(-1e30, 1e30)


def is_power_of_two(value: float) -> bool:
    return value == 0.0 or abs(np.frexp(abs(value))[0]) == 0.5


@given(st.lists(FINITE, min_size=1, max_size=20))
def test_ranges_hold_all_values_and_give_none_away(values):
    ((low, high),) = ends_of([np.array(values, np.float64)])
    assert low <= min(values) and max(values) <= high
    assert is_power_of_two(low) and is_power_of_two(high)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20))
def test_whole_numbers_stay_within_their_bits(values):
    ((low, high),) = ends_of([np.array(values, np.int32)])
    assert low <= min(values) and max(values) <= high
    assert low >= -(2**31) and high <= 2**31 - 1


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        (np.float32([0.3, 5.0]), (0.25, 8.0)),
        (np.float32([-3.0, -0.5]), (-4.0, -0.5)),
        (np.float32([0.0]), (0.0, 0.0)),
        (np.int32([0, 9]), (0.0, 15.0)),
        (np.int32([-5, 2]), (-8.0, 3.0)),
        (np.int32([6, 7]), (4.0, 7.0)),
        (np.float32([np.nan, 1.0, np.inf]), (1.0, 1.0)),
        (np.float32([np.nan]), None),
        (np.float32([]), None),
        (np.uint32([1, 2]), None),
        (np.array([True]), None),
        (np.complex64([1j]), None),
        (3.0, (2.0, 4.0)),
    ],
)
def test_known_ranges(values, ends):
    assert ends_of([values]) == [ends]


def test_arrays_on_the_device_are_looked_at_in_place():
    x = jax.block_until_ready(jnp.linspace(-3.0, 3.0, 10 * SAMPLE))
    assert ends_of([x]) == [(-4.0, 4.0)]
    double = jax.jit(lambda x: 2.0 * x, donate_argnums=0)
    pointer = x.unsafe_buffer_pointer()
    assert double(x).unsafe_buffer_pointer() == pointer and x.is_deleted()
    assert ends_of([x]) == [None]


def test_types_that_numpy_lacks_and_keys_are_passed_over():
    keys = jax.random.key(0)
    assert ends_of([jax.block_until_ready(jnp.ones(3, jnp.bfloat16)), keys]) == [None, None]


def test_wider_holds_both():
    assert wider(None, (1.0, 2.0)) == wider((1.0, 2.0), None) == (1.0, 2.0)
    assert wider((1.0, 2.0), (0.0, 1.5)) == (0.0, 2.0)


def test_values_are_copies_and_all_or_none():
    x = np.arange(3.0)
    (copied,) = values_of([x])
    x[:] = 0.0
    assert copied.tolist() == [0.0, 1.0, 2.0]
    assert values_of([x, object()]) is None
