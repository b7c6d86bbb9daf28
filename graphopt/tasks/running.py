"""Runs modules once in a child process, for their results: XLA ends the process on some."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from graphopt.closing import Closing
from graphopt.errors import MeasureError
from graphopt.measure.children.child import Child, ChildFailure
from graphopt.measure.inputs import load_inputs, save_inputs

Array = np.ndarray[Any, Any]

TIMEOUT_S: Final = 120.0
"""Longest compile and run of one module, the start of the child included."""


class ModuleRunner(Closing):
    """Compiles and runs modules in one child process, which is replaced when it dies."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        """Starts nothing yet.

        Args:
            timeout_s: longest compile and run of one module.
        """
        self.timeout_s = timeout_s
        self._folder = tempfile.TemporaryDirectory(prefix="graphopt-tasks-")
        self._child: Child | None = None

    def __call__(self, data: bytes, inputs: list[Array]) -> list[Array]:
        """Results of a module, in order.

        Raises:
            MeasureError: it cannot be compiled or run apart from its program.
        """
        folder = Path(self._folder.name)
        (folder / "module.pb").write_bytes(data)
        save_inputs(folder / "inputs.npz", inputs)
        self._child = self._child or Child(
            ("-m", "graphopt.tasks.running", str(folder)), "module runner"
        )
        try:
            answer = json.loads(self._child.ask("run", self.timeout_s))
        except ChildFailure as failure:
            self._child = None
            raise _cannot(failure.what) from failure
        if answer["status"] != "ok":
            raise _cannot(str(answer["detail"]))
        return load_inputs(folder / "results.npz")

    def close(self) -> None:
        """Ends the child and removes its files."""
        child, self._child = self._child, None
        if child is not None:
            child.close()
        self._folder.cleanup()


def _cannot(why: str) -> MeasureError:
    return MeasureError(
        what=f"a part of the program cannot run by itself: {why}",
        where="tasks",
        fix="Tasks that need its values are measured on made-up inputs.",
    )


def _run(folder: Path) -> None:
    import jax

    from graphopt.measure.compiling.stub import StubCompiler

    data = (folder / "module.pb").read_bytes()
    results = StubCompiler(data, load_inputs(folder / "inputs.npz")).compile(data)()
    save_inputs(folder / "results.npz", [np.asarray(leaf) for leaf in jax.tree.leaves(results)])


def main(arguments: list[str]) -> int:
    """``FOLDER``: runs the module in the folder for every line on stdin."""
    (folder,) = arguments
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # prints must not look like answers
    for _ in sys.stdin:
        answer = {"status": "ok"}
        try:
            _run(Path(folder))
        except Exception as error:
            answer = {"status": "failed", "detail": f"{type(error).__name__}: {error}"[:400]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
