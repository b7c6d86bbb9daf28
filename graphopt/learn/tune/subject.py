"""What is tuned: a function with its arguments, the modules it compiles to, and their inputs."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import jax

from graphopt import jax_private
from graphopt.hlo.module.index import has_donation, parse
from graphopt.learn.tune.eager import is_traceable, make_eager_subject
from graphopt.learn.tune.program import Subject, compile_both
from graphopt.measure.compiling.functions import (
    Compiled,
    Transform,
    compile_lowered,
    lowering,
    trace_context,
)
from graphopt.measure.inputs import recorded_inputs


def make_subject(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    static_argnums: Sequence[int] = (),
    name: str | None = None,
) -> Subject:
    """Captures a program.

    Args:
        fn: a jittable function; one that is jitted already: its donated and static arguments count; or
            one that cannot be traced as a whole and calls several jitted functions.
        args: concrete positional arguments.
        static_argnums: positions of static arguments of a function that is not jitted.
        name: for reports.

    Raises:
        WorkloadError: the function cannot be traced or compiled with these arguments.
    """
    label = str(name or getattr(fn, "__name__", type(fn).__name__))
    fn = getattr(fn, "jitted", fn)  # what graphopt.jit wraps
    if hasattr(fn, "lower"):
        statics = jax_private.static_positions(fn, len(args))
        lower: Any = lambda: fn.lower(*args)  # noqa: E731 - one of two ways to lower
    else:
        statics = tuple(i % len(args) if i < 0 else i for i in static_argnums if args)
        lower = _lowering(fn, args, statics)
    dynamic = tuple(a for i, a in enumerate(args) if i not in statics)
    if not hasattr(fn, "lower") and not statics and not is_traceable(fn, args):
        return make_eager_subject(fn, args, label)

    def compile_(transform: Transform | None = None, options: Any = None) -> Compiled:
        return compile_lowered(lower, dynamic, transform, options=options, forms=True)

    def both() -> tuple[Compiled, Compiled]:
        with trace_context(uuid.uuid4().hex), lowering(True) as choices:
            digests.append(lowered_digest(lower()))
        default = compile_lowered(lower, dynamic)
        return default, compile_() if choices else default

    digests: list[str] = []
    fix = "Pass a function that jax.jit takes, and concrete arguments."
    default, start = compile_both(both, label, "cannot be compiled", fix)
    inputs = recorded_inputs(start.executable, dynamic)
    ordered = sorted(start.modules, key=len, reverse=True)
    modules = [(data, inputs if i == 0 else None) for i, data in enumerate(ordered)]
    return Subject(
        label,
        compile_,
        default,
        start,
        modules,
        any(has_donation(parse(data)) for data in start.modules),
        digests[0],
    )


def _lowering(
    fn: Callable[..., Any], args: tuple[Any, ...], static_argnums: Sequence[int]
) -> Callable[[], Any]:
    def lower() -> Any:
        def wrapped(*arguments: Any) -> Any:
            return fn(*arguments)

        wrapped.__name__ = wrapped.__qualname__ = getattr(fn, "__name__", "program")
        return jax.jit(wrapped, static_argnums=tuple(static_argnums)).lower(*args)

    return lower


def lowered_digest(lowered: Any) -> str:
    """Digest of a lowered program's text without locations; the function's name does not count."""
    text = re.sub(r"module @\S+", "module @m", lowered.as_text())
    return hashlib.sha256(text.encode()).hexdigest()
