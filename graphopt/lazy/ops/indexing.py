"""Operations behind indexing: reading and writing parts of an array.

An index is described by a tuple of items, one per entry of the user's index:

* ``("i", k)``: an integer that is part of the structure;
* ``("s", start, stop, step)``: a slice;
* ``("n",)``: a new axis;
* ``("d",)``: an integer that is a parameter, so that another value compiles nothing;
* ``("w", length)``: a slice of a fixed length whose start is a parameter;
* ``("a",)``: an integer array.

Parameters and arrays follow the operand, in the order of the items that need them.
"""

from __future__ import annotations

from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.lazy.core.node import Op

Items = tuple[tuple[Any, ...], ...]


def _resolve(items: Items, extra: tuple[Any, ...]) -> tuple[Any, ...]:
    """The index with every entry in place; parameters as NumPy numbers."""
    values = iter(extra)
    index: list[Any] = []
    for item in items:
        kind = item[0]
        if kind == "i":
            index.append(item[1])
        elif kind == "s":
            index.append(slice(item[1], item[2], item[3]))
        elif kind == "n":
            index.append(None)
        elif kind == "d":
            index.append(int(next(values)))
        elif kind == "w":
            start = int(next(values))
            index.append(slice(start, start + item[1]))
        else:
            index.append(next(values))
    return tuple(index)


def _static(items: Items) -> tuple[tuple[Any, ...], bool]:
    """The part of the index that is known; parametrised axes are left whole."""
    index: list[Any] = []
    for item in items:
        if item[0] == "i":
            index.append(item[1])
        elif item[0] == "n":
            index.append(None)
        elif item[0] == "s":
            index.append(slice(*item[1:]))
        else:
            index.append(slice(None))
    return tuple(index), any(item[0] in "dw" for item in items)


def _window(x: Any, items: Items, extra: tuple[Any, ...]) -> tuple[list[Any], list[int], list[int]]:
    """Start and length per axis of `x` for the parametrised axes, and the axes to drop."""
    starts: list[Any] = []
    lengths: list[int] = []
    drop: list[int] = []
    values = iter(extra)
    for item in items:
        if item[0] == "n":
            continue
        axis = len(starts)
        if item[0] == "d":
            starts.append(next(values))
            lengths.append(1)
            drop.append(axis)
        elif item[0] == "w":
            starts.append(next(values))
            lengths.append(item[1])
        else:
            starts.append(jnp.zeros((), jnp.int64))
            lengths.append(x.shape[axis])
    for axis in range(len(starts), x.ndim):
        starts.append(jnp.zeros((), jnp.int64))
        lengths.append(x.shape[axis])
    return starts, lengths, drop


def _rest(items: Items) -> tuple[Any, ...]:
    """The index that remains after the window was cut out."""
    index: list[Any] = []
    for item in items:
        if item[0] == "d":
            index.append(0)
        elif item[0] == "w":
            index.append(slice(None))
        elif item[0] == "i":
            index.append(item[1])
        elif item[0] == "n":
            index.append(None)
        else:
            index.append(slice(*item[1:]))
    return tuple(index)


def _basic(x: Any, *rest: Any) -> Any:
    *extra, items = rest
    index, dynamic = _static(items)
    if not dynamic:
        return x[index]
    starts, lengths, _ = _window(x, items, tuple(extra))
    return lax.dynamic_slice(x, starts, lengths)[_rest(items)]


def _basic_np(x: Any, *rest: Any) -> Any:
    *extra, items = rest
    return np.asarray(x[_resolve(items, tuple(extra))])


def _gather(x: Any, *rest: Any) -> Any:
    *extra, items = rest
    return x[_advanced(items, tuple(extra))]


def _advanced(items: Items, extra: tuple[Any, ...]) -> tuple[Any, ...]:
    values = iter(extra)
    index: list[Any] = []
    for item in items:
        if item[0] == "a":
            index.append(next(values))
        else:
            index.append(_rest((item,))[0])
    return tuple(index)


def _update(x: Any, value: Any, *rest: Any) -> Any:
    *extra, items = rest
    index, dynamic = _static(items)
    value = value.astype(x.dtype)
    if not dynamic:
        return x.at[index].set(value)
    starts, lengths, _ = _window(x, items, tuple(extra))
    window = lax.dynamic_slice(x, starts, lengths)
    return lax.dynamic_update_slice(x, window.at[_rest(items)].set(value), starts)


def _update_np(x: Any, value: Any, *rest: Any) -> Any:
    *extra, items = rest
    result = np.array(x)
    result[_resolve(items, tuple(extra))] = value
    return result


def _scatter(x: Any, value: Any, *rest: Any) -> Any:
    *extra, items = rest
    return x.at[_advanced(items, tuple(extra))].set(value.astype(x.dtype))


def _scatter_add(x: Any, value: Any, *rest: Any) -> Any:
    *extra, items = rest
    return x.at[_advanced(items, tuple(extra))].add(value.astype(x.dtype))


def _scatter_add_np(x: Any, value: Any, *rest: Any) -> Any:
    *extra, items = rest
    result = np.array(x)
    np.add.at(result, _resolve(items, tuple(extra)), value)
    return result


def _take(x: Any, indices: Any, axis: int) -> Any:
    return jnp.take(x, indices, axis=axis, mode="wrap")


def _take_np(x: Any, indices: Any, axis: int) -> Any:
    return np.take(x, indices, axis=axis)


BASIC: Final = Op("getitem", _basic, _basic_np)
GATHER: Final = Op("gather", _gather, _basic_np, has_index=True)
UPDATE: Final = Op("setitem", _update, _update_np)
SCATTER: Final = Op("scatter", _scatter, _update_np, has_index=True)
SCATTER_ADD: Final = Op("scatter_add", _scatter_add, _scatter_add_np, has_index=True)
TAKE: Final = Op("take", _take, _take_np, has_index=True)
