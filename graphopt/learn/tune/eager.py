"""Programs that jax cannot trace as a whole: Python code that calls several jitted functions.

jax keys its caches by a user context as well. Running the function under a context value of its own compiles
everything it calls anew, apart from what the user's code has compiled, so that the default and several
rewritten versions exist side by side and can be timed in turn.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

import jax

from graphopt import jax_private, xla_hook
from graphopt.hlo.module.index import parse
from graphopt.learn.tune.program import Subject, compile_both
from graphopt.measure.compiling.functions import (
    Compiled,
    Transform,
    form_names,
    lowering,
    trace_context,
)

MAX_MODULES: Final = 8
"""Largest modules of a program that are tuned."""


def is_traceable(fn: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """False for a function whose Python code needs concrete values."""
    errors = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)
    try:
        jax.eval_shape(lambda *arguments: fn(*arguments), *args)
    except errors:
        return False
    except Exception:
        return True  # compiling says what is wrong
    return True


def make_eager_subject(fn: Callable[..., Any], args: tuple[Any, ...], name: str) -> Subject:
    """Runs the function once and captures every module it compiles.

    Raises:
        WorkloadError: it raises, or compiles nothing.
    """

    def compile_(transform: Transform | None = None, options: Any = None) -> Compiled:
        return compile_eager(fn, args, transform, forms=True)

    def both() -> tuple[Compiled, Compiled]:
        default, start = compile_eager(fn, args, None), compile_()
        return default, start if start.forms else default

    fix = "Pass a function that runs with these arguments."
    default, start = compile_both(both, name, "fails", fix)
    ordered = sorted(start.modules, key=len, reverse=True)[:MAX_MODULES]
    names = "".join(sorted(parse(data).proto.name for data in start.modules))
    digest = hashlib.sha256(f"eager {name} {names}".encode()).hexdigest()
    return Subject(
        name,
        compile_,
        default,
        start,
        [(data, None) for data in ordered],
        donates=False,
        digest=digest,
    )


def compile_eager(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    transform: Transform | None,
    forms: bool = False,
) -> Compiled:
    """Runs a function under a context of its own; the modules it compiles go through `transform`.

    Args:
        fn: the function.
        args: its arguments.
        transform: see `graphopt.measure.compiling.functions.Transform`.
        forms: operations in their best forms; otherwise as jax lowers them.

    Raises:
        Exception: whatever the function or the transform raises.
    """
    token = uuid.uuid4().hex
    modules: list[bytes] = []
    errors: list[Exception] = []

    def handler(data: bytes) -> bytes | xla_hook.Keep:
        modules.append(data)
        try:
            answer = None if transform is None else transform(data)
        except Exception as error:
            errors.append(error)
            answer = None
        return xla_hook.KEEP if answer is None else answer

    def run(*arguments: Any) -> Any:
        with trace_context(token):
            return fn(*arguments)

    subscription = xla_hook.subscribe(handler, first=True)
    try:
        with jax_private.private_cache_entries(token), lowering(forms) as choices:
            start = time.perf_counter()
            jax.block_until_ready(run(*args))
            elapsed = time.perf_counter() - start
    finally:
        subscription.close()
    if errors:
        raise errors[0]
    return Compiled(run, args, elapsed, 0.0, modules, form_names(choices))
