"""`graphopt.jit`: ``jax.jit`` with the compile options that tuning found for the program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import jax

from graphopt.errors import GraphOptError
from graphopt.learn.tune.subject import lowered_digest
from graphopt.store import Store
from graphopt.store.winners import get_options

MAX_SIGNATURES: Final = 1024
"""Signatures remembered per function."""


def jit(
    fn: Callable[..., Any], *, store: Store | None = None, **options: Any
) -> Callable[..., Any]:
    """Like ``jax.jit``; each new signature is compiled with its tuned compile options, if it has any.

    Decisions come from `graphopt.install`, as for plain ``jax.jit``. Nested in another jitted function
    it is plain ``jax.jit``: options belong to whole modules.

    Args:
        fn: a jittable function.
        store: where options were stored; the user's store by default.
        **options: of ``jax.jit``.
    """
    jitted = jax.jit(fn, **options)
    place = store or Store()
    tuned: dict[tuple[tuple[str, str], ...], Callable[..., Any]] = {}
    known: dict[Any, Callable[..., Any]] = {}

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return jitted(*args, **kwargs)
        try:
            key = (tree, tuple(_type(leaf) for leaf in leaves))
            found = known.get(key)
        except TypeError:  # an argument that cannot be hashed; jax.jit says what it thinks of it
            return jitted(*args, **kwargs)
        if found is None:
            chosen = _options(place, jitted, args, kwargs)
            row = tuple(sorted(chosen.items()))
            if row not in tuned:
                tuned[row] = jax.jit(fn, compiler_options=chosen, **options) if row else jitted
            if len(known) >= MAX_SIGNATURES:
                known.clear()
            found = known[key] = tuned[row]
        return found(*args, **kwargs)

    return call


def _type(leaf: Any) -> Any:
    """What makes jax compile anew."""
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False))
    return (type(leaf), leaf)


def _options(store: Store, jitted: Any, args: Any, kwargs: Any) -> dict[str, str]:
    if not store.exists():
        return {}
    try:
        return get_options(store, lowered_digest(jitted.lower(*args, **kwargs)))
    except GraphOptError:  # an unreadable store must not stop the user's program
        return {}
