"""The numpy network's array functions against plain ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.policy.network.numpy_ops import Groups, attend, folded, norm, normed_product, product

SEEDS = st.integers(0, 2**32 - 1)


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 700), st.sampled_from([1, 3, 64, 384]), st.integers(1, 256), SEEDS)
def test_products_in_blocks(rows, width, columns, seed):
    x, kernel = normal(seed, rows, width), normal(seed + 1, width, columns)
    np.testing.assert_allclose(product(x, kernel), x @ kernel, rtol=1e-4, atol=1e-4)


def test_a_product_of_rows_that_are_not_contiguous():
    x, kernel = normal(0, 300, 130)[:, 1:65], normal(1, 64, 192)
    np.testing.assert_allclose(product(x, kernel), x @ kernel, rtol=1e-4, atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 200), st.floats(-3, 3), SEEDS)
def test_normalisation_may_be_part_of_the_product(rows, centre, seed):
    x, scale, bias = normal(seed, rows, 16) + np.float32(centre), normal(1, 16), normal(2, 16)
    kernel = normal(3, 16, 48)
    deviation = np.sqrt(x.var(axis=1, keepdims=True) + 1e-6)
    plain = (x - x.mean(axis=1, keepdims=True)) / deviation * scale + bias
    np.testing.assert_allclose(norm(x, scale, bias), plain, rtol=1e-4, atol=1e-4)
    fast = normed_product(x, folded(scale, bias, kernel))
    np.testing.assert_allclose(fast, plain @ kernel, rtol=1e-3, atol=1e-3)


def test_equal_states_are_normalised_to_the_bias():
    x, scale, bias, kernel = (
        np.full((5, 16), 7.0, np.float32),
        *(normal(i, 16) for i in (1, 2)),
        normal(3, 16, 4),
    )
    found = normed_product(x, folded(scale, bias, kernel))
    np.testing.assert_allclose(found, np.broadcast_to(bias @ kernel, (5, 4)), atol=1e-2)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 8, 9, 10, 40]), min_size=1, max_size=30),
    st.sampled_from([np.maximum, np.add]),
    SEEDS,
)
def test_groups(sizes, combine, seed):
    rng = np.random.default_rng(seed)
    x = normal(seed, 20, 3)
    ids = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    members = rng.integers(0, 20, len(ids)).astype(np.int32)
    groups = Groups(members, ids, len(sizes))
    found = groups.reduce(x, combine)
    for group, size in enumerate(sizes):
        rows = x[members[ids == group]]
        expected = combine.reduce(rows, axis=0) if size else np.zeros(3)
        np.testing.assert_allclose(found[group], expected, rtol=1e-4, atol=1e-5)
        assert groups.inverse[group, 0] == np.float32(1 / max(size, 1))


def plain_attention(qkv, heads, length):
    width = qkv.shape[1] // (3 * heads)
    query, keys, values = qkv.astype(np.float64).reshape(-1, 3, heads, width).transpose(1, 2, 0, 3)
    out = np.empty_like(query)
    for node in range(len(qkv)):
        first = max(0, (node // length - 1) * length)
        seen = slice(first, (node // length + 1) * length)
        for head in range(heads):
            scores = keys[head, seen] @ query[head, node] / math.sqrt(width)
            weights = np.exp(scores - scores.max())
            out[head, node] = weights @ values[head, seen] / weights.sum()
    return out.transpose(1, 0, 2).reshape(len(qkv), -1)


@pytest.mark.parametrize("size", [1.0, 30.0], ids=["small scores", "scores beyond exp's range"])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 8 * 8, 8 * 8 + 3, 150])
def test_attention(count, size):
    qkv = normal(count, count, 3 * 6) * np.float32(size)
    found = attend(qkv, heads=2, length=8)
    np.testing.assert_allclose(found, plain_attention(qkv, 2, 8), rtol=1e-3, atol=1e-3 * size)
