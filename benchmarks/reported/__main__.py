"""Times every reported program under jax 0.4.31 and under this jax, in turn, and prints one table.

    python -m benchmarks.reported [--suite reported|unseen|trackers] [--only PREFIX] [--processes 3]
        [--modes default,heuristic,policy,tuned]

jax 0.4.31 is installed on first use into an environment of its own beside the repository's
(``.venv-jax0431``, ignored by git). The child processes of one program are alive together and are
sampled in turn, so that ratios hold on a noisy machine; only one runs at a time. Times are medians over
several processes of each way.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from benchmarks.progress import counted, ended
from graphopt.errors import MissingExtraError

ROOT = Path(__file__).resolve().parents[2]
OLD = ROOT / ".venv-jax0431"
OLD_VERSION = "0.4.31"
OLD_PYTHON = (3, 12)
"""Latest Python for which it was built."""
TOLERANCE = {"float32": 2e-4, "float64": 1e-9, "complex64": 2e-4, "complex128": 1e-9}
"""Largest difference between versions, relative to the array's largest magnitude."""


@dataclass
class Row:
    """Measurements of one program; keys are ``old`` and the modes.

    Attributes:
        name: of the program.
        run_s: median seconds per call.
        faults: page faults per call, of each process: large temporary arrays that the system takes back
            after every call.
        call_s: the same of an empty program with the same arguments: what Python and the runtime cost.
        compile_s: seconds to compile.
        error: largest relative difference to the default of this jax.
        failed: mode -> why it gave no result.
    """

    name: str
    run_s: dict[str, float]
    faults: dict[str, list[float]]
    call_s: dict[str, float]
    compile_s: dict[str, float]
    error: dict[str, float]
    failed: dict[str, str]

    def beyond_call(self, way: str) -> float:
        """Seconds per call less those of an empty program, at least a tenth of a microsecond."""
        return max(self.run_s[way] - self.call_s[way], 1e-7)


class Worker:
    """A child process that holds one compiled program."""

    def __init__(self, python: str, name: str, mode: str, result: Path, plan: Plan) -> None:
        environment = dict(os.environ, PYTHONPATH=str(ROOT), JAX_PLATFORMS="cpu")
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.reported.worker",
             plan.suite, name, mode, str(result), str(plan.budget_s)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment, cwd=ROOT,
        )  # fmt: skip
        self.first = self._line()

    def _line(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate()
            raise RuntimeError(errors.strip().splitlines()[-1] if errors.strip() else "no answer")
        return json.loads(line)

    def sample(self) -> tuple[float, float, float]:
        """Seconds per call of the program and of an empty one, and page faults per call, once."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        run_s, call_s, faults = self._line()
        return float(run_s), float(call_s), float(faults)

    def close(self) -> None:
        """Ends the child."""
        self.process.kill()
        self.process.communicate()


def install_old() -> str:
    """The interpreter of the old version's environment, made if missing."""
    python = OLD / "bin" / "python"
    if not python.exists() or not _has_jax(python):
        print(f"installing jax {OLD_VERSION} into {OLD.name}", file=sys.stderr)
        subprocess.run([_old_interpreter(), "-m", "venv", "--clear", str(OLD)], check=True)
        pins = [f"jax=={OLD_VERSION}", f"jaxlib=={OLD_VERSION}"]
        subprocess.run(
            [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *pins],
            check=True,
        )
    return str(python)


def _old_interpreter() -> str:
    """A Python that the old version was built for: this one, else one that is installed."""
    if sys.version_info[:2] <= OLD_PYTHON:
        return sys.executable
    for minor in range(OLD_PYTHON[1], 9, -1):
        found = shutil.which(f"python3.{minor}")
        if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
            return found
    raise MissingExtraError(
        what=f"jax {OLD_VERSION} runs on no Python after {OLD_PYTHON[0]}.{OLD_PYTHON[1]}",
        where="reported programs",
        fix=f"Put python{OLD_PYTHON[0]}.{OLD_PYTHON[1]} or an earlier one on the path.",
    )


def _has_jax(python: Path) -> bool:
    return subprocess.run([str(python), "-c", "import jax"], capture_output=True).returncode == 0


@dataclass(frozen=True)
class Plan:
    """How a program is measured.

    Attributes:
        suite: key of `suite.SUITES`.
        old: interpreter of the old version's environment.
        modes: ways under this jax.
        rounds: samples of every way in one process.
        processes: of every way, one after the other: where a process has its large arrays in memory
            changes the time of some programs up to threefold.
        budget_s: seconds of a search.
    """

    suite: str
    old: str
    modes: list[str]
    rounds: int
    processes: int
    budget_s: float


def measure(name: str, plan: Plan) -> Row:
    """Compiles a program in every way, then samples all in turn, in several processes each."""
    row = Row(name, {}, {}, {}, {}, {}, {})
    found: list[dict[str, Sampled]] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(plan.processes):
            found.append(_sample_all(name, plan, Path(folder), row))
    for mode in [mode for mode in ("old", *plan.modes) if mode not in row.failed]:
        row.run_s[mode] = median(sampled[mode].run_s for sampled in found)
        row.faults[mode] = [sampled[mode].faults for sampled in found]
        row.call_s[mode] = median(sampled[mode].call_s for sampled in found)
        row.compile_s[mode] = median(sampled[mode].compile_s for sampled in found)
    return row


@dataclass(frozen=True)
class Sampled:
    """Medians of one process: seconds of a call and of an empty call, page faults, seconds to compile."""

    run_s: float
    call_s: float
    faults: float
    compile_s: float


def _sample_all(name: str, plan: Plan, folder: Path, row: Row) -> dict[str, Sampled]:
    """One process per way, alive together and sampled in turn; notes failures and differences in `row`."""
    workers: dict[str, Worker] = {}
    try:
        for mode in ("old", *plan.modes):
            python = plan.old if mode == "old" else sys.executable
            kind = "default" if mode == "old" else mode
            try:
                path = folder / f"{mode}.npz"
                workers[mode] = Worker(python, name, kind, path, plan)
            except RuntimeError as error:
                row.failed[mode] = str(error)
        samples: dict[str, list[tuple[float, float, float]]] = {mode: [] for mode in workers}
        for _ in range(plan.rounds):
            for mode, worker in workers.items():
                samples[mode].append(worker.sample())
        for mode in workers:
            error = _difference(folder, "default", mode)
            row.error[mode] = max(error, row.error.get(mode, 0.0))
    finally:
        for worker in workers.values():
            worker.close()
    return {
        mode: Sampled(*map(median, zip(*times, strict=True)), workers[mode].first["compile_s"])
        for mode, times in samples.items()
    }


def _difference(folder: Path, one: str, other: str) -> float:
    """Largest difference in tolerances: above 1 the results disagree."""
    worst = 0.0
    with np.load(folder / f"{one}.npz") as a, np.load(folder / f"{other}.npz") as b:
        for key in a.files:
            x, y = a[key], b[key]
            if x.shape != y.shape or x.dtype != y.dtype:
                return float("inf")
            scale = max(float(np.abs(x).max(initial=0)), 1e-30)
            tolerance = TOLERANCE.get(x.dtype.name, 1e-30)
            if x.dtype == np.bool_:
                x, y = x.astype(np.int8), y.astype(np.int8)
            worst = max(worst, float(np.abs(x - y).max(initial=0)) / scale / tolerance)
    return worst


def show(rows: list[Row], modes: list[str]) -> None:
    """Prints the table and the geometric means."""
    ways = ["old", *modes]
    titles = [OLD_VERSION if way == "old" else way for way in ways]
    print(f"{'program':32}" + "".join(f"{t + ' ms':>14}" for t in titles)
          + "".join(f"{'call ' + t + ' us':>18}" for t in (OLD_VERSION, modes[0]))
          + "".join(f"{'comp ' + t + ' s':>17}" for t in titles) + "  agree")  # fmt: skip
    for row in rows:
        times = "".join(f"{row.run_s.get(way, float('nan')) * 1e3:14.4f}" for way in ways)
        calls = "".join(
            f"{row.call_s.get(way, float('nan')) * 1e6:18.1f}" for way in ("old", modes[0])
        )
        compiles = "".join(f"{row.compile_s.get(way, float('nan')):17.2f}" for way in ways)
        agree = "yes" if all(e <= 1 for e in row.error.values()) and not row.failed else "NO"
        print(f"{row.name:32}{times}{calls}{compiles}  {agree} {row.failed or ''}")
    for mode in modes[1:]:
        for base in ("old", modes[0]):
            known = [r for r in rows if {base, mode} <= set(r.run_s)]
            label = OLD_VERSION if base == "old" else base
            _summarise(f"{label} / {mode}", [r.run_s[base] / r.run_s[mode] for r in known])
            beyond = [r.beyond_call(base) / r.beyond_call(mode) for r in known]
            _summarise(f"{label} / {mode}, beyond an empty call", beyond)


def _summarise(label: str, ratios: list[float]) -> None:
    if ratios:
        print(f"{label}: geometric mean {geometric_mean(ratios):.2f}x, lowest {min(ratios):.2f}x, "
              f"highest {max(ratios):.2f}x")  # fmt: skip


def main() -> int:
    """Runs the suite."""
    from benchmarks.reported.suite import SUITES

    parser = argparse.ArgumentParser(prog="python -m benchmarks.reported", description=__doc__)
    parser.add_argument("--suite", choices=SUITES, default="reported", help="which programs")
    parser.add_argument("--only", default="", help="programs whose name starts so")
    parser.add_argument("--rounds", type=int, default=9, help="samples of every way in a process")
    parser.add_argument("--processes", type=int, default=3, help="of every way")
    parser.add_argument("--modes", default="default,heuristic", help="ways under this jax")
    parser.add_argument("--budget-s", type=float, default=60.0, help="of a search, per program")
    parser.add_argument("--json", type=Path, help="write the rows here too")
    options = parser.parse_args()
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
    modes = options.modes.split(",")
    plan = Plan(
        options.suite, install_old(), modes, options.rounds, options.processes, options.budget_s
    )
    rows = []
    with counted(SUITES[options.suite], "programs measured") as rest:
        for name in rest:
            if name.startswith(options.only):
                rows.append(measure(name, plan))
                times = {way: f"{s * 1e3:.4f} ms" for way, s in rows[-1].run_s.items()}
                print(name, times, rows[-1].failed or "", file=sys.stderr)
    show(rows, modes)
    if options.json:
        options.json.write_text(json.dumps([row.__dict__ for row in rows], indent=1))
    return int(any(row.failed or any(e > 1 for e in row.error.values()) for row in rows))


if __name__ == "__main__":
    sys.exit(ended(main))
