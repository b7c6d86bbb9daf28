"""Policies that are not ours, within a user's compile: in a thread of their own, with a time limit.

They may raise, hang, or compile something themselves; the user's compile goes on in any case.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from graphopt import jax_private
from graphopt.errors import message
from graphopt.hlo import Decisions, Graph
from graphopt.policy import NamedPolicy

MAX_EXIT_WAIT_S: Final = 60.0
"""Longest wait at exit for a compile that an abandoned policy has started."""

_deciding: set[int] = set()
"""Identifiers of threads that run a policy."""

_abandoned: list[threading.Thread] = []
"""Threads of policies that took too long."""


def decide_guarded(policy: NamedPolicy, graph: Graph, timeout_s: float) -> Decisions | str | None:
    """The policy's decisions, None for no gain, or the reason why there is no usable answer."""
    if policy.built_in:
        return policy.decide(graph)
    box: list[Decisions | str | None] = []

    def run() -> None:
        try:
            with _policy_thread():
                answer = policy.decide(graph)
            valid = answer is None or isinstance(answer, Decisions)
            box.append(answer if valid else f"policy returned {type(answer).__name__}")
        except BaseException as error:
            box.append(f"policy raised {message(error)}")

    thread = threading.Thread(target=run, name="graphopt-policy", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if box:
        return box[0]
    _abandon(thread)
    return f"policy took longer than {timeout_s:g} s"


def _abandon(thread: threading.Thread) -> None:
    """Ends a policy's thread as soon as it runs Python code again."""
    if not _abandoned:
        atexit.register(_wait_for_compiles)
    _abandoned.append(thread)
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
        )


def _wait_for_compiles() -> None:
    """Lets compiles of abandoned policies end: at exit, a thread inside XLA aborts the process."""
    deadline = time.monotonic() + MAX_EXIT_WAIT_S
    while time.monotonic() < deadline:
        frames = sys._current_frames()
        alive = [t.ident for t in _abandoned if t.is_alive() and t.ident is not None]
        if not any(_stands_in_compiler(frames.get(ident)) for ident in alive):
            return
        time.sleep(0.02)


@contextmanager
def _policy_thread() -> Iterator[None]:
    ident = threading.get_ident()
    _deciding.add(ident)
    try:
        yield
    finally:
        _deciding.discard(ident)


def compiled_by_a_policy() -> bool:
    """True if some policy is waiting for a compile of its own.

    XLA calls the hook on threads of its own, so that a policy's compile can only be told from a user's
    by looking whether a policy's thread stands inside jax's compiler.
    """
    if not _deciding:
        return False
    frames = sys._current_frames()
    return any(_stands_in_compiler(frames.get(ident)) for ident in tuple(_deciding))


def _stands_in_compiler(frame: FrameType | None) -> bool:
    while frame is not None:
        if jax_private.is_compiler_frame(frame):
            return True
        frame = frame.f_back
    return False
