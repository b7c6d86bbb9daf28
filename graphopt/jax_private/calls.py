"""The first calls of a compiled function, which jax makes through Python; later ones it makes without.

jax asks after a call made through Python whether the function is to be compiled anew with what was learnt
of it (its option ``jax_enable_pgle``); while the answer is yes, the next call comes through Python too. A
watcher answers yes a few times, and jax finds the same compiled function again. From then on nothing stands
in the way of calls.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from graphopt.jax_private import names

_CALL = "__call__"
_AGAIN = "_need_to_rebuild_with_fdo"

_lock = threading.Lock()
_before: tuple[Any, Callable[..., Any], Any, Callable[..., Any]] | None = None
"""While a watcher stands around them: jax's class and its call, jax's module and its question."""

_last = threading.local()
"""The executable that a thread has called last through Python."""


def watch_calls(
    wanted: Callable[[Any], bool] | None, called: Callable[[Any, Sequence[Any]], None] | None
) -> bool:
    """Tells of the first calls of compiled functions; None ends the watch.

    Args:
        wanted: whether calls of an executable (a jaxlib ``LoadedExecutable``) are still to be told; asked
            once before and once after each call that comes through Python. Must not raise.
        called: told of a call before it is made, with the arguments that the module takes, in the order of
            its parameters. Must not raise.

    Returns:
        Whether calls are watched now. False when the names have moved.
    """
    global _before
    with _lock:
        if _before is not None:
            kind, call, module, again = _before
            setattr(kind, _CALL, call)
            setattr(module, _AGAIN, again)
            _before = None
        if wanted is None or called is None:
            return False
        kind = names.find_private(names.PXLA, "ExecuteReplicated")
        question = names.find_private(names.PJIT, _AGAIN)
        if kind is None or question is None:
            return False
        module = sys.modules[names.PJIT]
        _before = (kind, kind.__call__, module, question)
        setattr(kind, _CALL, _telling(kind.__call__, wanted, called))
        setattr(module, _AGAIN, _asking(question, wanted))
        return True


def _telling(
    call: Callable[..., Any],
    wanted: Callable[[Any], bool],
    called: Callable[[Any, Sequence[Any]], None],
) -> Callable[..., Any]:
    def tell(self: Any, *args: Any) -> Any:
        executable = getattr(self, "xla_executable", None)
        _last.executable = None
        if executable is not None and wanted(executable):
            _last.executable = executable
            kept = getattr(self, "kept_var_idx", None)
            called(executable, args if kept is None else [args[i] for i in sorted(kept)])
        return call(self, *args)

    return tell


def _asking(question: Callable[..., Any], wanted: Callable[[Any], bool]) -> Callable[..., Any]:
    def ask(*args: Any) -> Any:
        answer = question(*args)
        executable = getattr(_last, "executable", None)
        return answer or (executable is not None and wanted(executable))

    return ask
