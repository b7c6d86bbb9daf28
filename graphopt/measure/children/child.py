"""A child process that answers one line per request: crashes and hangs stay in it."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from graphopt.closing import Closing, ends_with
from graphopt.errors import GraphOptError
from graphopt.measure.children import orphans

# Passed as text, so that a child starts without importing this package.
_BOOT = Path(orphans.__file__).read_text() + "\nrun_watched(sys.argv[1:])\n"


def watched_command(arguments: Sequence[str]) -> list[str]:
    """Command line of a Python child that ends within a second of this process.

    Args:
        arguments: ``-m module ARGS`` or ``-c code ARGS``.
    """
    return [sys.executable, "-c", _BOOT, str(os.getpid()), *arguments]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no name
        return f"signal {number}"


MAX_LINE: Final = 64 << 20
"""A longer answer is none."""


class ChildFailure(GraphOptError):
    """Raised when a child died or did not answer in time.

    Attributes:
        kind: ``abort`` (killed by a signal of its own making), ``hang``, ``exit``, or ``garbage`` (what
            it wrote is no line of text).
        detail: last lines of its standard error.
    """

    def __init__(self, *, what: str, where: str, fix: str, kind: str, detail: str) -> None:
        super().__init__(what=what, where=where, fix=fix)
        self.kind = kind
        self.detail = detail


class Child(Closing):
    """A Python child that reads requests from stdin and writes one line of answer to stdout each.

    It leads a process group that `close` ends, and it ends itself within a second of its parent's
    death, however that came.
    """

    def __init__(self, arguments: Sequence[str], name: str) -> None:
        """Starts ``python ARGUMENTS``, of the form ``-m module ARGS`` or ``-c code ARGS``."""
        self.name = name
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self._process = subprocess.Popen(
            watched_command(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )
        self._buffer = bytearray()
        self._end = ends_with(self, _end, self._process, self._errors)

    def ask(self, request: str, timeout_s: float) -> str:
        """Sends one line and waits for one line.

        Raises:
            ChildFailure: the child died or was too slow; it is gone then.
        """
        deadline = time.monotonic() + timeout_s
        if self._buffer:
            raise self.garbage(f"wrote {bytes(self._buffer[:80])!r} without being asked")
        try:
            self._write(request.encode() + b"\n", deadline, timeout_s)
        except BrokenPipeError:
            raise self._died(deadline) from None
        return self._read_line(deadline, timeout_s)

    def _write(self, data: bytes, deadline: float, timeout_s: float) -> None:
        """Writes all of `data`; a child that does not read must not hold us longer than agreed."""
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        os.set_blocking(pipe, False)
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_WRITE)
            while data:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise self._too_slow(f"read no request within {timeout_s:g} s")
                with contextlib.suppress(BlockingIOError):
                    data = data[os.write(pipe, data[: 1 << 16]) :]

    def greeting(self, timeout_s: float) -> str:
        """Waits for the line that a child writes before the first request.

        Raises:
            ChildFailure: the child died or was too slow; it is gone then.
        """
        return self._read_line(time.monotonic() + timeout_s, timeout_s)

    def _read_line(self, deadline: float, timeout_s: float) -> str:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                # A child that writes without end is always ready to be read: the clock decides.
                left = deadline - time.monotonic()
                if not selector.select(max(0.0, left)) or left < 0:
                    raise self._too_slow(f"no answer within {timeout_s:g} s")
                data = os.read(self._process.stdout.fileno(), 1 << 16)
                if not data:
                    raise self._died(deadline)
                self._buffer += data
                if len(self._buffer) > MAX_LINE:
                    raise self.garbage(f"a line of more than {MAX_LINE >> 20} MiB")
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        try:
            return line.decode()
        except UnicodeDecodeError:
            raise self.garbage(f"wrote {line[:80]!r}") from None

    def _too_slow(self, what: str) -> ChildFailure:
        return self._failure(what, "Raise the timeout if the program is just slow.", "hang")

    def garbage(self, what: str) -> ChildFailure:
        """Ends a child that does not keep to the protocol; returns what to raise."""
        return self._failure(what, "Nothing but answers may go to its output.", "garbage")

    def _failure(self, what: str, fix: str, kind: str) -> ChildFailure:
        detail = self._tail()
        self.close()
        return ChildFailure(what=what, where=self.name, fix=fix, kind=kind, detail=detail)

    def _died(self, deadline: float) -> ChildFailure:
        try:
            status = self._process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return self._too_slow("closed its output and went on")
        killed = status < 0
        reason = _signal_name(-status) if killed else f"exit status {status}"
        return self._failure(
            f"the child process died: {reason}",
            "See the detail for its last words.",
            "abort" if killed else "exit",
        )

    def _tail(self) -> str:
        self._errors.flush()
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 4000))
        return self._errors.read().decode(errors="replace")

    def kill(self) -> None:
        """Ends the child and whatever it started; safe while another thread asks it something."""
        _kill(self._process)

    def close(self) -> None:
        """Ends the child and frees its pipes; not while another thread reads from them."""
        self._end()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    _kill(process)
    process.wait()
    for stream in (process.stdin, process.stdout, errors):
        if stream is not None and not stream.closed:
            with contextlib.suppress(OSError):
                stream.close()
