"""``graphopt fuzz``: random legal decisions on real programs, each compiled and run in a child process.

The masks promise that every combination of allowed values is a legal module. This command looks for a
counterexample: an abort, a hang, a compile error, or a result that differs from XLA's default.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from graphopt.corpus.workloads import select_programs
from graphopt.errors import WorkloadError
from graphopt.measure.children.child import Child, ChildFailure

STATUSES: Final = ("ok", "wrong", "compile error", "run error", "abort", "hang", "exit")


@dataclass(frozen=True)
class Trial:
    """One decision vector on one program.

    Attributes:
        program: program name.
        seed: draws the decisions; ``graphopt fuzz --graphs PROGRAM --seed SEED --trials 1`` repeats it.
        status: one of `STATUSES`.
        detail: what went wrong.
        relative: largest relative difference of a result.
        compile_s: seconds to build, rewrite and compile.
        run_s: seconds of the first run.
    """

    program: str
    seed: int
    status: str
    detail: str = ""
    relative: float = 0.0
    compile_s: float = 0.0
    run_s: float = 0.0


@dataclass
class FuzzReport:
    """All trials of a run."""

    trials: list[Trial] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def failures(self) -> list[Trial]:
        """Trials that did not end well."""
        return [trial for trial in self.trials if trial.status != "ok"]

    def __str__(self) -> str:
        """Counts per status, then every failure."""
        counts = Counter(trial.status for trial in self.trials)
        programs = len({trial.program for trial in self.trials})
        summary = ", ".join(f"{counts[status]} {status}" for status in STATUSES)
        worst = max((t.relative for t in self.trials if t.status == "ok"), default=0.0)
        slowest = max((t.compile_s for t in self.trials), default=0.0)
        lines = [
            f"{len(self.trials)} trials on {programs} programs in {self.seconds:.0f} s: {summary}",
            f"largest relative difference {worst:.2e}, longest compile {slowest:.1f} s",
        ]
        for trial in self.failures:
            lines.append(f"  {trial.program} seed {trial.seed}: {trial.status}: {trial.detail}")
        return "\n".join(lines)


Progress = Callable[[Trial], None]

DEVICES: Final = 8
"""CPU devices of a process that runs the set ``devices``, if nothing else is said."""


@dataclass(frozen=True)
class _Job:
    """What all programs of a run share; see `fuzz`."""

    spec: str
    devices: int
    timeout_s: float
    progress: Progress | None


def fuzz(
    spec: str = "fuzz",
    graphs: Sequence[str] = (),
    trials: int = 400,
    seed: int = 0,
    timeout_s: float = 120.0,
    workers: int = 2,
    progress: Progress | None = None,
    devices: int | None = None,
) -> FuzzReport:
    """Runs `trials` trials, spread evenly over the programs.

    Args:
        spec: program set: ``fuzz``, ``demo`` or ``pkg.module:WORKLOADS``.
        graphs: names of programs; empty for the whole set.
        trials: number of decision vectors in all.
        seed: first seed.
        timeout_s: a trial that takes longer counts as a hang.
        workers: child processes at once.
        progress: called after every trial.
        devices: CPU devices of every child process; one by default, `DEVICES` for the set ``devices``.

    Raises:
        WorkloadError: there is no such set or program.
    """
    if devices is None:
        devices = DEVICES if spec == "devices" else 1
    if min(workers, devices) < 1:
        raise WorkloadError(
            what=f"workers={workers}, devices={devices}; there must be at least 1",
            where="graphopt fuzz",
            fix="Ask for one child process per core, and for one or more devices.",
        )
    job = _Job(spec, devices, timeout_s, progress)
    chosen = list(select_programs(spec, graphs, "graphopt fuzz"))
    share, extra = divmod(trials, len(chosen))
    jobs = [
        (name, range(seed, seed + share + (position < extra)))
        for position, name in enumerate(chosen)
    ]
    start = time.monotonic()
    report = FuzzReport()
    children = _Children()
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(_fuzz_program, job, name, seeds, children) for name, seeds in jobs]
        try:
            for future in futures:
                report.trials.extend(future.result())
        except BaseException:  # also Ctrl-C: nothing may go on in the background
            pool.shutdown(wait=False, cancel_futures=True)
            children.close()
            raise
    report.seconds = time.monotonic() - start
    return report


class _Children:
    """The children of a run, so that all can be ended at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: set[Child] = set()
        self._closed = False

    def start(self, arguments: Sequence[str], name: str) -> Child | None:
        """A new child; None once the run has ended."""
        with self._lock:
            if self._closed:
                return None
            child = Child(arguments, name)
            self._live.add(child)
            return child

    def end(self, child: Child) -> None:
        """Ends one child."""
        with self._lock:
            self._live.discard(child)
        child.close()

    @property
    def closed(self) -> bool:
        """The run has ended: a child that dies now was ended by `close`."""
        with self._lock:
            return self._closed

    def close(self) -> None:
        """Ends all children and starts no more; the threads that use them free them."""
        with self._lock:
            self._closed = True
            for child in self._live:
                child.kill()


def _fuzz_program(job: _Job, name: str, seeds: range, children: _Children) -> list[Trial]:
    """All trials of one program; a child that dies is replaced and the next seed goes on."""
    out: list[Trial] = []
    child: Child | None = None
    arguments = ["-m", "graphopt.evaluate.fuzzing.worker", job.spec, name, str(job.devices)]
    try:
        for seed in seeds:
            if child is None:
                child = children.start(arguments, name)
            if child is None:
                break
            try:
                answer = json.loads(child.ask(json.dumps({"seed": seed}), job.timeout_s))
                trial = Trial(name, seed, **answer)
            except ChildFailure as failure:
                children.end(child)
                child = None
                if children.closed:
                    break
                trial = Trial(name, seed, failure.kind, f"{failure.what}\n{failure.detail[-1500:]}")
            out.append(trial)
            if job.progress is not None:
                job.progress(trial)
    finally:
        if child is not None:
            children.end(child)
    return out
