"""Functions beyond the array API standard, against NumPy in both tiers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import graphopt.lazy as lt
from graphopt.lazy.errors import LazyError, LazyValueError

GRID = np.arange(12.0, dtype=np.float32).reshape(3, 4)


@pytest.fixture(params=["compiled", "op-by-op"], autouse=True)
def tier(request: pytest.FixtureRequest) -> Iterator[None]:
    with lt.config(tier=request.param, background=False):
        yield


def same(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("k", [-2, 0, 1, 7])
def test_diagonals_of_vectors_and_matrices(k: int) -> None:
    values = np.array([1.0, np.nan, 3.0], np.float32)
    same(lt.diag(lt.asarray(values), k), np.diag(values, k))
    same(lt.diag(lt.asarray(GRID), k), np.diag(GRID, k))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize("widths", [1, (1, 2), ((0, 2), (3, 1))])
def test_padding_in_every_mode(mode: Any, widths: Any) -> None:
    same(lt.pad(lt.asarray(GRID), widths, mode), np.pad(GRID, widths, mode))


def test_padding_with_a_constant_and_its_gradient() -> None:
    same(lt.pad(lt.asarray(GRID), 1, constant_values=5), np.pad(GRID, 1, constant_values=5))
    gradient = lt.grad(lambda x: lt.sum(lt.pad(x, 1, "edge")))(lt.asarray(GRID))
    same(gradient, [[4, 2, 2, 4], [2, 1, 1, 2], [4, 2, 2, 4]])


@pytest.mark.parametrize("parts, axis", [(2, 1), (np.int64(3), 0), ([1, 2], 0), ([3], -1), ([], 0)])
def test_parts_along_an_axis(parts: Any, axis: int) -> None:
    found = lt.split(lt.asarray(GRID), parts, axis)
    expected = np.split(GRID, parts, axis)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        same(one, other)


def test_no_elements_in_parts() -> None:
    assert [part.shape for part in lt.split(lt.zeros((0, 2)), 3)] == [(0, 2)] * 3


def test_powers_evenly_spaced_in_their_logarithms() -> None:
    same(lt.logspace(-3, 2, 7, dtype=lt.float64), np.logspace(-3, 2, 7))
    assert lt.logspace(0, 1, 3).dtype == lt.float32


@pytest.mark.parametrize("equal_nan", [False, True])
def test_closeness_of_special_values(equal_nan: bool) -> None:
    left = np.array([np.inf, -np.inf, np.nan, 1.0, 1.0, np.inf])
    right = np.array([np.inf, np.inf, np.nan, 1.0 + 1e-6, 1.1, 1.0])
    found = lt.isclose(lt.asarray(left), lt.asarray(right), equal_nan=equal_nan)
    same(found, np.isclose(left, right, equal_nan=equal_nan))
    same(lt.allclose(lt.asarray(left[:2]), lt.asarray(left[:2])), True)


@pytest.mark.parametrize(
    "call",
    [
        lambda: lt.diag(lt.zeros((2, 2, 2))),
        lambda: lt.pad(lt.asarray(GRID), -1),
        lambda: lt.pad(lt.asarray(GRID), (1, 2, 3)),
        lambda: lt.pad(lt.asarray(GRID), 1, "mirror"),
        lambda: lt.split(lt.asarray(GRID), 5),
        lambda: lt.split(lt.asarray(GRID), 0),
    ],
)
def test_what_does_not_fit_is_an_error(call: Any) -> None:
    with pytest.raises(LazyValueError, match="test_lazy_beyond") as caught:
        call()
    assert isinstance(caught.value, LazyError)
