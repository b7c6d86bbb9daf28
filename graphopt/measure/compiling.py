"""Compiles a jittable function with a rewrite of our choice, without touching jit caches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax

from graphopt import xla_hook

Transform = Callable[[bytes], bytes | None]
"""Module bytes as the hook receives them -> replacement, or None for XLA's default."""

_one_at_a_time = threading.Lock()


@dataclass
class Compiled:
    """An executable with the arguments it was lowered for.

    Attributes:
        executable: callable with the lowered arguments' structure.
        args: concrete arguments.
        compile_s: seconds from HLO to executable, the transform included.
        transform_s: seconds spent in the transform.
        modules: bytes of every module the hook saw.
    """

    executable: Any
    args: tuple[Any, ...]
    compile_s: float
    transform_s: float = 0.0
    modules: list[bytes] = field(default_factory=list)

    def __call__(self) -> Any:
        """Runs once and waits for the result."""
        result = self.executable(*self.args)
        jax.block_until_ready(result)  # type: ignore[no-untyped-call]
        return result


def compile_with(
    fn: Callable[..., Any], args: tuple[Any, ...], transform: Transform | None = None
) -> Compiled:
    """Compiles ``fn(*args)`` anew, passing its module through `transform`.

    An exception of the transform is raised here, after XLA has compiled its default; it never
    travels through XLA. An installed plugin is not asked. One call at a time per process, so that only
    this function's modules are seen.
    """
    wrapped = jax.jit(lambda *arguments: fn(*arguments))
    lowered = wrapped.lower(*args)
    modules: list[bytes] = []
    errors: list[Exception] = []
    spent = 0.0

    def handler(data: bytes) -> bytes | None:
        nonlocal spent
        modules.append(data)
        if transform is None:
            return None
        start = time.perf_counter()
        try:
            return transform(data)
        except Exception as error:
            errors.append(error)
            return None
        finally:
            spent += time.perf_counter() - start

    with _one_at_a_time:
        subscription = xla_hook.subscribe(handler, exclusive=True)
        try:
            start = time.perf_counter()
            executable = lowered.compile()
            elapsed = time.perf_counter() - start
        finally:
            subscription.close()
    if errors:
        raise errors[0]
    return Compiled(executable, args, elapsed, spent, modules)
