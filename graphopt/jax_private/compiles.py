"""A compile that failed is repeated once, if a watcher says that it is worth it."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from graphopt.jax_private import names
from graphopt.signals import handed_on

_lock = threading.Lock()

_COMPILE = "backend_compile_and_load"
_compile_before: Callable[..., Any] | None = None
"""jax's own function while a watcher stands around it."""


def watch_compiles(
    begin: Callable[[], int] | None,
    withdraw: Callable[[str, int, Exception], bool] | None,
    done: Callable[[str, Any, float], None] | None = None,
) -> bool:
    """Repeats a compile that failed, once, if a watcher says that it is worth it; None ends the watch.

    What a handler of a signal raises during a compile is raised after it (`graphopt.signals`).

    Args:
        begin: called before a compile; what it returns is handed to `withdraw`.
        withdraw: called with the module's name, that value and the error; True repeats the compile.
        done: called after a compile that did not fail, with the module's name, the executable and the seconds
            that it took; None where nobody wants to know.

    Returns:
        Whether compiles are watched now. False when the name has moved: errors then reach the user.
    """
    global _compile_before
    with _lock:
        original = _compile_before or names.find_private(names.COMPILER, _COMPILE)
        if original is None:
            return False
        compiler = sys.modules[names.COMPILER]
        if begin is None or withdraw is None:
            if _compile_before is not None:
                setattr(compiler, _COMPILE, _compile_before)
                _compile_before = None
            return False
        _compile_before = original
        setattr(compiler, _COMPILE, functools.partial(_watched, original, begin, withdraw, done))
        return True


def _watched(
    compile_and_load: Callable[..., Any],
    begin: Callable[[], int],
    withdraw: Callable[[str, int, Exception], bool],
    done: Callable[[str, Any, float], None] | None,
    *args: Any,
    **options: Any,
) -> Any:
    begun = begin()
    start = time.perf_counter()
    with handed_on() as raised:
        try:
            executable = compile_and_load(*args, **options)
        except Exception as error:
            if raised or not withdraw(_compiled_name(args, options), begun, error):
                raise
            executable = compile_and_load(*args, **options)
    if done is not None:
        done(_compiled_name(args, options), executable, time.perf_counter() - start)
    return executable


def _compiled_name(args: tuple[Any, ...], options: dict[str, Any]) -> str:
    """Name of the module that is compiled; empty when jax passes it in another way."""
    module = options.get("module", args[1] if len(args) > 1 else None)
    try:
        return str(module.operation.attributes["sym_name"].value)  # type: ignore[union-attr]
    except (AttributeError, KeyError):
        return ""
