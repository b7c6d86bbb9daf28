"""Whole commands on another machine: ``graphopt tune`` and ``graphopt bench`` with ``--executor ray:...``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from graphopt.evaluate.evaluation.asking import WINNERS, take_winners
from graphopt.executing.executor import ExecutorError, own_needs
from graphopt.executing.opening import open_executor
from graphopt.executing.request import Body, Request
from graphopt.executing.work import Result
from graphopt.measure.children.child import watched_command
from graphopt.progress import waiting
from graphopt.store import Store

BEYOND_S: Final = 900.0
"""Time that a command gets beyond its budget: imports, captures, compiles."""

TAIL: Final = 4000
"""Characters of standard error that travel."""

_STORE: Final = "store.sqlite"


def run_commands(body: Body, blobs: tuple[bytes, ...]) -> Result:
    """Does the work of a request: graphopt commands, one after the other, in an empty folder.

    Args:
        body: ``commands``, lists of arguments; ``files``, patterns of what is sent back; ``limit_s``.
        blobs: none.
    """
    with tempfile.TemporaryDirectory(prefix="graphopt-command-") as folder:
        outputs, errors, status = [], "", 0
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        for command in body["commands"]:
            done = subprocess.run(
                watched_command(["-m", "graphopt", *command]),
                cwd=folder,
                env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path},
                capture_output=True,
                text=True,
                timeout=body["limit_s"],
                check=False,
            )
            status, errors = done.returncode, done.stderr[-TAIL:]
            outputs.append(done.stdout)
            if status:
                break
        found = sorted({p for pattern in body["files"] for p in Path(folder).glob(pattern)})
        files = [p for p in found if p.is_file()]
        names = [str(p.relative_to(folder)) for p in files]
        answer = {"status": status, "outputs": outputs, "errors": errors, "files": names}
        return answer, tuple(p.read_bytes() for p in files)


def run_elsewhere(
    executor: str, commands: Sequence[Sequence[str]], files: Sequence[str], budget_s: float
) -> tuple[Body, dict[str, bytes]]:
    """Runs commands on one machine like this one; what they said, and the files that they left.

    Raises:
        ExecutorError: no machine could run them.
    """
    body = {
        "commands": [list(command) for command in commands],
        "files": list(files),
        "limit_s": budget_s + BEYOND_S,
    }
    label = f"graphopt {' '.join(commands[0])}"
    limit = f"{label} elsewhere, {body['limit_s']:.0f} s at most"
    with waiting(Console(), limit), open_executor(executor) as machines:
        machines.submit(Request("command", body, needs=own_needs(), label=label))
        (answer,) = machines.results()
    if not answer.ok:
        raise ExecutorError(what=answer.detail, where=label, fix="See what the machine's log says.")
    print(f"run by {answer.place}, {answer.seconds:.0f} s", file=sys.stderr)
    if answer.body["status"]:
        print(answer.body["errors"], file=sys.stderr)
    files_back = dict(zip(answer.body["files"], answer.blobs, strict=True))
    return dict(answer.body), files_back


def tune_elsewhere(
    executor: str, workload: str, budget_s: float, seed: int, store: str | Path | None,
    as_json: bool, policy: str,
) -> int:  # fmt: skip
    """Tunes on another machine, and takes the winners into the store here; the command's exit status.

    Imported winners are tried in a child process before their first use, like those of any file.
    """
    tune = ["tune", workload, "--budget-s", f"{budget_s:g}", "--seed", f"{seed}"]
    tune += ["--policy", policy, "--store", _STORE, *(["--json"] if as_json else [])]
    export = ["tune", "--store", _STORE, "--export", WINNERS]
    body, files = run_elsewhere(executor, [tune, export], [WINNERS], budget_s)
    print(body["outputs"][0], end="")
    if WINNERS in files:
        taken = take_winners(Store(store), files[WINNERS])
        print(f"{taken} winners taken into the store", file=sys.stderr)
    return int(body["status"])


def bench_elsewhere(
    executor: str, what: str, budget_s: float, graphs: Sequence[str], out: Path
) -> int:
    """Runs a benchmark of the plugin on another machine; its files come back into `out`."""
    command = ["bench", what, "--budget-s", f"{budget_s:g}", "--out", "bench"]
    command += ["--graphs", *graphs] if graphs else []
    body, files = run_elsewhere(executor, [command], ["bench/**/*"], budget_s)
    print(body["outputs"][0], end="")
    for name, data in files.items():
        path = out / Path(name).relative_to("bench")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return int(body["status"])
