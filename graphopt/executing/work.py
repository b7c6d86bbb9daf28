"""The kinds of work: which function does it. Layers above register theirs here by name, not by import."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

from graphopt.errors import ConfigError, GraphOptError, message
from graphopt.executing.request import FAILED, OK, Answer, Body, Request

Result = tuple[Body, tuple[bytes, ...]]
Work = Callable[[Body, tuple[bytes, ...]], Result]
"""Body and blobs of a request -> those of its answer. It runs alone on its machine, in a process that may
keep what the next request can use. What may crash or hang belongs into a child process of it."""

WORK: Final = {
    "duels": "graphopt.learn.collecting.duel_requests:hold",
    "variants": "graphopt.learn.collecting.variants:measure",
    "program": "graphopt.evaluate.evaluation.requests:evaluate_program",
    "command": "graphopt.evaluate.commands.elsewhere:run_commands",
}
"""Name of a kind of work -> ``module:function``."""

DETAIL: Final = 2000
"""Characters of an error that travel."""


def resolve(work: str) -> Work:
    """The function behind a name of `WORK` or a ``module:function``.

    Raises:
        ConfigError: there is none.
    """
    module, _, name = WORK.get(work, work).partition(":")
    try:
        found: Work = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            what=f"there is no work {work!r}: {error}",
            where="request",
            fix=f"Use {', '.join(WORK)}, or module:function of a module that every machine can import.",
        ) from error
    return found


def perform(request: Request, place: str) -> Answer:
    """Does the work in this process; an error becomes an answer.

    Args:
        request: whose needs this machine meets.
        place: what the answer says of where it was done.
    """
    begin = time.perf_counter()
    try:
        with _flags(request.needs.flags):
            body, blobs = resolve(request.work)(request.body, request.blobs)
    except Exception as error:  # whatever the work raises is its answer
        text = str(error) if isinstance(error, GraphOptError) else message(error)
        status, body, blobs, detail = FAILED, {}, (), text[:DETAIL]
    else:
        status, detail = OK, ""
    seconds = time.perf_counter() - begin
    return Answer(request.id, status, body, tuple(blobs), place, seconds, detail=detail)


@contextlib.contextmanager
def _flags(flags: str) -> Iterator[None]:
    """``XLA_FLAGS`` of this process and the children that it starts."""
    before: Any = os.environ.get("XLA_FLAGS")
    if flags:
        os.environ["XLA_FLAGS"] = flags
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("XLA_FLAGS", None)
        else:
            os.environ["XLA_FLAGS"] = before
