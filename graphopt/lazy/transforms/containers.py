"""Nested containers of tensors, taken apart and put together again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax

from graphopt.lazy.record import recorder
from graphopt.lazy.record.tensor_base import TensorBase


def is_tensor(x: Any) -> bool:
    """Whether `x` is a lazy tensor."""
    return isinstance(x, TensorBase)


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """Leaves and structure of nested containers, tensors being leaves."""
    return jax.tree_util.tree_flatten(tree, is_leaf=is_tensor)


class _OtherContainerError(Exception):
    """Something that jax has to take apart."""


def opened(tree: Any) -> tuple[list[Any], Any]:
    """Leaves of nested containers, and a form from which `closed` makes the same containers.

    Lists, tuples and dictionaries of tensors take no call of jax. The leaves of a dictionary come in its own
    order, so forms are for putting together, not for comparing.
    """
    leaves: list[Any] = []
    try:
        return leaves, _form(tree, leaves)
    except _OtherContainerError:
        return flatten(tree)


def _form(tree: Any, leaves: list[Any]) -> Any:
    kind = type(tree)
    if kind is recorder.tensor_class:
        leaves.append(tree)
        return None
    if kind is list or kind is tuple:
        return kind, [_form(x, leaves) for x in tree]
    if kind is dict:
        return tuple(tree), [_form(x, leaves) for x in tree.values()]
    raise _OtherContainerError


def closed(form: Any, leaves: Iterator[Any]) -> Any:
    """Containers of a form from `opened`, with the next of these leaves."""
    if form is None:
        return next(leaves)
    if type(form) is not tuple:
        return jax.tree_util.tree_unflatten(form, [next(leaves) for _ in range(form.num_leaves)])
    kind, inner = form
    if kind is list:
        return [next(leaves) if x is None else closed(x, leaves) for x in inner]
    parts = [closed(x, leaves) for x in inner]
    return tuple(parts) if kind is tuple else dict(zip(kind, parts, strict=True))
