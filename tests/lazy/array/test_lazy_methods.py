"""The methods of NumPy's arrays on tensors: values, shapes and kinds of dtypes as NumPy's, in both tiers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

import graphopt.lazy as lt
from graphopt.lazy.errors import LazyTypeError, LazyValueError

CUBE = np.linspace(-3.0, 4.0, 24, dtype=np.float32).reshape(2, 3, 4)

CALLS: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
    ("sum", (), {}), ("sum", (1,), {}), ("sum", ((0, 2),), {"keepdims": True}),
    ("prod", (-1,), {}), ("mean", (), {}), ("mean", (0,), {"dtype": np.float64}),
    ("var", (1,), {"ddof": 1}), ("std", (), {}), ("max", (2,), {}), ("min", (), {"keepdims": True}),
    ("all", (0,), {}), ("any", (), {}), ("argmax", (), {}), ("argmin", (1,), {}),
    ("cumsum", (), {}), ("cumsum", (1,), {}), ("cumprod", (0,), {}),
    ("reshape", (4, 6), {}), ("reshape", ((3, -1),), {}), ("reshape", (-1,), {}),
    ("ravel", (), {}), ("flatten", (), {}), ("squeeze", (), {}), ("transpose", (), {}),
    ("transpose", (1, 0, 2), {}), ("transpose", ((2, 0, 1),), {}), ("swapaxes", (0, -1), {}),
    ("repeat", (2,), {}), ("repeat", (3, 1), {}), ("astype", (np.int32,), {}), ("copy", (), {}),
    ("clip", (-1.0, 1.0), {}), ("round", (), {}), ("round", (1,), {}), ("round", (-1,), {}),
    ("conj", (), {}), ("take", ([0, 5],), {}), ("take", ([1, 0], 2), {}), ("argsort", (), {}),
    ("view", (np.int32,), {}), ("view", (np.complex64,), {}), ("dot", (np.ones((4, 2), np.float32),), {}),
    ("dot", (np.ones(4, np.float32),), {}), ("dot", (np.float32(2.0),), {}),
)  # fmt: skip


@pytest.fixture(params=["compiled", "op-by-op"], scope="module", autouse=True)
def tier(request: pytest.FixtureRequest) -> Iterator[None]:
    """No compile in the background: later tests count compiles."""
    with lt.config(tier=request.param, background=False):
        yield


def same(found: Any, expected: Any) -> None:
    """Compares with NumPy: value, shape, and kind of dtype."""
    assert isinstance(found, lt.Tensor)
    value = np.asarray(found)
    assert (value.shape, value.dtype.kind) == (np.shape(expected), np.asarray(expected).dtype.kind)
    np.testing.assert_allclose(value, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name, args, kwargs", CALLS, ids=lambda value: str(value)[:20])
def test_methods_give_what_numpy_gives(name: str, args: Any, kwargs: Any) -> None:
    same(getattr(lt.asarray(CUBE), name)(*args, **kwargs), getattr(CUBE, name)(*args, **kwargs))


@settings(deadline=None, max_examples=40)
@given(
    st_np.arrays(np.int32, st_np.array_shapes(max_dims=3, max_side=4), elements=st.integers(-9, 9)),
    st.data(),
)
def test_reductions_of_whole_numbers_over_any_axis(array: Any, data: st.DataObject) -> None:
    axis = data.draw(st.none() | st.integers(-array.ndim, array.ndim - 1))
    for name in ("sum", "prod", "max", "min", "all", "any", "argmax", "argmin", "cumsum", "mean"):
        same(getattr(lt.asarray(array), name)(axis), getattr(array, name)(axis))


def test_parts_and_views_of_complex_numbers() -> None:
    array = np.array([[1 + 2j, -3j], [0.5, 4 - 1j]], np.complex64)
    tensor = lt.asarray(array)
    same(tensor.real, array.real)
    same(tensor.imag, array.imag)
    same(tensor.conj(), array.conj())
    same(tensor.view(float), array.view(np.float32))
    same(tensor.view(float).view(complex), array)
    same(lt.asarray(CUBE).imag, CUBE.imag)
    empty = np.zeros((2, 0), np.float32)
    same(lt.asarray(empty).view(lt.float64), empty.view(np.float64))
    whole = np.array([1, 2])
    same(lt.asarray(whole).conj(), whole.conj())
    same(lt.asarray(whole).real, whole.real)


def test_functions_of_numpy_stay_lazy() -> None:
    tensor = lt.asarray(CUBE)
    for function in (np.sum, np.mean, np.max, np.any, np.std, np.argmax, np.cumsum, np.squeeze):
        same(function(tensor), function(CUBE))
    same(np.reshape(tensor, (6, 4)), np.reshape(CUBE, (6, 4)))
    same(np.clip(tensor, 0, 1), np.clip(CUBE, 0, 1))
    assert tensor.sum().pending


def test_a_nonzero_element_is_found() -> None:
    rows, columns = lt.asarray([[0, 1], [2, 0]]).nonzero()
    assert (rows.tolist(), columns.tolist()) == ([0, 1], [1, 0])


def test_a_copy_does_not_see_later_writes() -> None:
    tensor = lt.asarray([1.0, 2.0])
    other = tensor.copy()
    tensor[0] = 5.0
    assert other.tolist() == [1.0, 2.0]


def test_gradients_and_batches_go_through_methods() -> None:
    gradient = lt.grad(lambda x: (x.reshape(-1) ** 2).mean())(lt.asarray(CUBE))
    same(gradient, 2 * CUBE / CUBE.size)
    same(lt.vmap(lambda x: x.sum(0))(lt.asarray(CUBE)), CUBE.sum(1))


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda x: x.sum(out=np.zeros(())), LazyTypeError),
        (lambda x: x.reshape(2, 12, order="F"), LazyValueError),
        (lambda x: x.reshape(5, 5), LazyValueError),
        (lambda x: x.swapaxes(0, 3), LazyValueError),
        (lambda x: x[:, :, :3].view(lt.float64), LazyValueError),
        (lambda x: lt.sum(x).view(lt.float64), LazyValueError),
        (lambda x: x.astype(lt.int32).round(-1), LazyValueError),
    ],
)
def test_what_has_no_meaning_here_is_an_error(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="test_lazy_methods"):
        call(lt.asarray(CUBE))


def test_an_operation_in_place_keeps_the_precision() -> None:
    count, weight = lt.asarray([1, 2], dtype=lt.int32), lt.asarray([1.0, 2.0], dtype=lt.float32)
    count += lt.asarray([3, 4], dtype=lt.int64)
    weight *= lt.asarray([3.0, 4.0], dtype=lt.float64)
    assert (count.dtype, count.tolist()) == (lt.int32, [4, 6])
    assert (weight.dtype, weight.tolist()) == (lt.float32, [3.0, 8.0])
    with pytest.raises(LazyTypeError, match="in-place"):
        count += weight
