"""``graphopt run``: any script or module with the plugin installed, unchanged."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import graphopt.plugin
from graphopt.errors import GraphOptError, WorkloadError
from graphopt.policy.registry import DEFAULT

USAGE: Final = "usage: graphopt run script.py ARGS ..., or graphopt run -m module ARGS ..."


def run_script(arguments: Sequence[str], policy: str = DEFAULT) -> int:
    """Runs ``script.py ARGS`` or ``-m module ARGS`` and prints the report to stderr at the end.

    Returns:
        The script's exit status; 1 where it raised, after its own traceback.

    Raises:
        WorkloadError: no script is named, or it does not exist.
    """
    if list(arguments[:1]) in (["--help"], ["-h"]):
        print(__doc__, USAGE, sep="\n\n")
        return 0
    if not arguments or list(arguments) == ["-m"]:
        raise WorkloadError(what="no script to run", where="graphopt run", fix=USAGE)
    graphopt.plugin.install(policy)
    previous = sys.argv
    try:
        if arguments[0] == "-m":
            sys.argv = list(arguments[1:])
            sys.path.insert(0, "")
            _check_module(arguments[1])
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(arguments)
            _run_path(arguments[0])
        return 0
    except SystemExit as exit_:
        return _status(exit_.code)
    except (GraphOptError, BrokenPipeError):
        raise
    except Exception as error:
        error.__traceback__ = _below(error)
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    finally:
        sys.argv = previous
        print(graphopt.plugin.report(), file=sys.stderr)
        graphopt.plugin.uninstall()


def _below(error: BaseException) -> TracebackType | None:
    """The error's traceback from the script on, as Python shows it; whole where it did not get there."""
    rest = error.__traceback__
    while rest is not None and rest.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        rest = rest.tb_next
    return rest or error.__traceback__


def _check_module(name: str) -> None:
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise WorkloadError(
            what=f"there is no module {name}",
            where="graphopt run",
            fix="Name a module that can be imported.",
        )


def _run_path(path: str) -> None:
    script = Path(path)
    if not script.is_file():
        raise WorkloadError(
            what=f"there is no script {path}", where="graphopt run", fix="Name an existing file."
        )
    sys.path.insert(0, str(script.resolve().parent))
    runpy.run_path(path, run_name="__main__")


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1


def capture_lazy(script: str, out: Path) -> int:
    """Runs a script and saves every graph of its lazy tensors, as modules with an index.

    Args:
        script: path of the script; it gets no arguments.
        out: directory for the graphs.

    Returns:
        The script's exit status.

    Raises:
        WorkloadError: there is no such script.
    """
    import graphopt.lazy as lt

    previous, sys.argv = sys.argv, [script]
    status = 0
    try:
        with lt.capture(out) as graphs:
            try:
                _run_path(script)
            except SystemExit as exit_:
                status = _status(exit_.code)
    finally:
        sys.argv = previous
    print(f"{len(graphs)} graphs in {out}", file=sys.stderr)
    return status
