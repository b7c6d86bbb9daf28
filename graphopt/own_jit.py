"""`graphopt.jit`: ``jax.jit`` with the compile options that tuning found for the program."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, Final

import jax

from graphopt import jax_private
from graphopt.learn.tune.options import option_choices
from graphopt.learn.tune.subject import lowered_digest
from graphopt.store import Store
from graphopt.store.shared import shared_winners
from graphopt.store.winners import get_options

MAX_SIGNATURES: Final = 1024
"""Signatures remembered per function."""

Row = tuple[tuple[str, str], ...]
"""Compile options, sorted."""


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """Like ``jax.jit``; each new signature is compiled with its tuned compile options, if it has any.

    Decisions come from `graphopt.install`, as for plain ``jax.jit``. Inside another jitted function, or
    under ``jax.vmap`` and ``jax.grad``, it is plain ``jax.jit``: options belong to whole modules.

    Args:
        fn: a jittable function; None returns a decorator, as ``jax.jit`` does.
        store: store, or its path or URL, where options were stored; the user's store by default.
        **options: of ``jax.jit``. Compile options among them win over stored ones.
    """
    if fn is None:
        return functools.partial(jit, store=store, **options)
    jitted = jax.jit(fn, **options)
    place = Store.of(store)
    own_options = options.pop("compiler_options", None) or {}
    tuned: dict[Row, Callable[..., Any]] = {(): jitted}
    known: dict[Any, Callable[..., Any]] = {}
    signature = _Signature(jitted, options)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        """`fn` compiled with the options, once per signature."""
        if jax_private.is_tracing():
            return jitted(*args, **kwargs)
        try:
            key = signature(args, kwargs)
            found = known.get(key)
        except TypeError:  # an argument that cannot be hashed; jax.jit says what it thinks of it
            return jitted(*args, **kwargs)
        if found is None:
            chosen = _options(place, jitted, args, kwargs)
            row = tuple(sorted(chosen.items()))
            if row not in tuned:
                tuned[row] = jax.jit(fn, compiler_options={**chosen, **own_options}, **options)
            if len(known) >= MAX_SIGNATURES:
                known.clear()
            found = known[key] = tuned[row]
        return found(*args, **kwargs)

    # Ahead-of-time compiles, and tuning, go through the plain function.
    call.__dict__.update(jitted=jitted, lower=jitted.lower)
    return call


class _Signature:
    """What makes jax compile a function anew, as a key."""

    def __init__(self, jitted: Any, options: dict[str, Any]) -> None:
        names = options.get("static_argnames") or ()
        self.jitted = jitted
        self.names = frozenset([names] if isinstance(names, str) else names)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Key of a call; hashing it may raise TypeError."""
        static = jax_private.static_positions(self.jitted, len(args))
        fixed = [(i, type(args[i]), args[i]) for i in static if i < len(args)]
        fixed_names = [(n, type(kwargs[n]), kwargs[n]) for n in sorted(self.names & set(kwargs))]
        leaves, tree = jax.tree.flatten(
            (
                [a for i, a in enumerate(args) if i not in static],
                {n: v for n, v in kwargs.items() if n not in self.names},
            )
        )
        return tree, tuple(map(_type, leaves)), tuple(fixed), tuple(fixed_names)


def _type(leaf: Any) -> Any:
    """Shape and type of a dynamic argument; Python numbers of one type share their code."""
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False))
    return type(leaf)


def _options(store: Store, jitted: Any, args: Any, kwargs: Any) -> dict[str, str]:
    """Stored options; none if anything at all fails, for they must not stop the user's program."""
    try:
        if not store.exists():
            return {}
        program = lowered_digest(jitted.lower(*args, **kwargs))
        if store.url is None:
            return get_options(store, program)
        found = shared_winners(store).options(program)
        # Others may have written it, and options can do more than change speed.
        return found if found in option_choices() else {}
    except Exception:
        return {}
