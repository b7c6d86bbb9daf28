"""Processes of tests that need jax and graphopt, forked from one that has imported them.

Importing both takes longer than most of what such processes do. A fork has a backend, a plugin,
caches and reports of its own, as any process has. What happens while jax and graphopt are imported, and
what ends with the interpreter (``atexit``), is tested with `support.processes.run_python`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

from support.processes import LIMIT_S, TESTS

IMPORTED = ("jax", "numpy", "graphopt", "graphopt.plugin", "graphopt.measure", "graphopt.policy")

spent_s = 0.0
"""CPU seconds of all forks so far; they are children of another process, so that the system does not say."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(IMPORTED))


def run_forked(
    code: str, *arguments: str, env: Mapping[str, str] | None = None, limit_s: float = LIMIT_S
) -> CompletedProcess[str]:
    """Runs ``python -c CODE ARGUMENTS`` in a fork, and captures what it prints."""
    global spent_s
    with tempfile.TemporaryDirectory() as folder:
        streams = Path(folder, "out"), Path(folder, "err")
        spent = Path(folder, "spent")
        child = _context.Process(
            target=_run, args=(code, arguments, {**os.environ, **(env or {})}, streams, spent)
        )
        child.start()
        child.join(limit_s)
        if child.is_alive():
            child.kill()
            child.join()
        status = child.exitcode
        child.close()
        if spent.exists():
            spent_s += float(spent.read_text())
        out, err = (path.read_text() if path.exists() else "" for path in streams)
    return CompletedProcess([code, *arguments], status, out, err)


def run_graphopt(*arguments: str, env: Mapping[str, str] | None = None) -> CompletedProcess[str]:
    """Runs ``graphopt ARGUMENTS`` in a fork."""
    code = "import sys; from graphopt.cli import main; sys.exit(main(sys.argv[1:]))"
    return run_forked(code, *arguments, env=env)


def _run(
    code: str,
    arguments: tuple[str, ...],
    env: dict[str, str],
    streams: tuple[Path, Path],
    spent: Path,
) -> None:
    """What the child does."""
    for number, path in enumerate(streams, 1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(env)
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    sys.argv = ["-c", *arguments]
    try:
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    finally:
        spent.write_text(str(sum(os.times()[:4])))
