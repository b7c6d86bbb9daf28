"""Child processes of tests: fresh interpreters, and whether a process is still there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import graphopt

TESTS = Path(__file__).parents[1]
PACKAGE_PARENT = Path(graphopt.__file__).parent.parent

LIMIT_S = 120.0
"""A child of a test that takes longer hangs."""


def environment(**changes: str) -> dict[str, str]:
    """This process's environment, with graphopt and the test modules importable from anywhere."""
    known = [str(PACKAGE_PARENT), str(TESTS), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(entry for entry in known if entry)
    return {**os.environ, "PYTHONPATH": path, **changes}


def run_python(
    *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs ``python ARGUMENTS`` and captures what it prints."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment(**(env or {})),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def is_alive(pid: int) -> bool:
    """True unless the process is gone, or dead and not yet waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def becomes(condition: Callable[[], bool], within_s: float) -> bool:
    """Waits until a condition holds; False if it never does."""
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
