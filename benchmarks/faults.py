"""``python -m benchmarks faults``: measuring workers that crash, hang and talk nonsense, a thousand times.

The workers are fakes that start in some hundredths of a second and fail on request. What counts is that
every failure is named, recorded and quarantined, and that no process is left.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console

from benchmarks.progress import counted
from graphopt.corpus.capture import capture_modules
from graphopt.corpus.workloads import builtin_programs
from graphopt.hlo import Decisions, Graph
from graphopt.measure.children.runner import Runner
from graphopt.store import Store, decisions_digest, encode_decisions
from graphopt.store.winners import quarantined

TRIALS: Final = 1000
TIMEOUT_S: Final = 0.4
"""Time limit of a request; a fake answers at once or never."""

PROGRAM: Final = "knapsack"

GOOD_ANSWER: Final = {
    "status": "ok", "ratio": 1.5, "low": 1.4, "high": 1.6, "baseline_s": 3e-3, "candidate_s": 2e-3,
    "pairs": 9, "compile_s": 0.1, "default_compile_s": 0.1, "error": 0.0, "clusters": 3, "regions": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One way to fail.

    Attributes:
        name: for reports.
        code: Python statements of the fake, with `os`, `sys`, `signal`, `time` and `good`, the text of a
            good answer.
        status: what the runner must call it.
    """

    name: str
    code: str
    status: str


FAULTS: Final = (
    Fault("segmentation fault", "os.kill(os.getpid(), signal.SIGSEGV)", "abort"),
    Fault("abort", "os.abort()", "abort"),
    Fault("illegal instruction", "os.kill(os.getpid(), signal.SIGILL)", "abort"),
    Fault("killed for memory", "os.kill(os.getpid(), signal.SIGKILL)", "memory"),
    Fault("bad_alloc", "os.write(2, b'what(): std::bad_alloc'); os.abort()", "memory"),
    Fault("no memory in Python", "raise MemoryError", "memory"),
    Fault("hang", "time.sleep(1e6)", "hang"),
    Fault("busy hang", "\nwhile True: pass", "hang"),
    Fault("hang after half an answer", "os.write(1, good[:20].encode()); time.sleep(1e6)", "hang"),
    Fault("output closed", "os.close(1); time.sleep(1e6)", "hang"),
    Fault("exit", "os._exit(3)", "exit"),
    Fault("exit without error", "os._exit(0)", "exit"),
    Fault("exception", "raise RuntimeError('INTERNAL: something')", "exit"),
    Fault("text", "print('Segmentation fault (core dumped)')", "garbage"),
    Fault("no answer in the line", "print()", "garbage"),
    Fault("a list", "print('[1, 2]')", "garbage"),
    Fault("half an answer", "print(good[:20])", "garbage"),
    Fault("bytes", "os.write(1, bytes(range(128, 160)) + b'\\n')", "garbage"),
    Fault("deep", "print('[' * 50000)", "garbage"),
    Fault("status is a number", "print('{\"status\": 1}')", "garbage"),
    Fault("fields are missing", 'print(\'{"status": "ok"}\')', "garbage"),
    Fault("a ratio of zero", "print(good.replace('1.5', '0'))", "garbage"),
    Fault("a ratio that is no number", "print(good.replace('1.5', 'NaN'))", "garbage"),
    Fault("a ratio that is text", "print(good.replace('1.5', '\"fast\"'))", "garbage"),
    Fault("wrong result", 'print(\'{"status": "wrong result"}\')', "wrong result"),
)
"""All ways to fail."""

WORKER: Final = """
import json, os, signal, sys, time
good, faults = sys.argv[1], json.loads(sys.argv[2])
print('{"status": "ok"}', flush=True)
for line in sys.stdin:
    index = int(json.loads(line)["budget_s"])
    exec(faults[index] if index < len(faults) else "print(good)")
    sys.stdout.flush()
"""
"""A fake worker: the budget of a request is the index of the fault, beyond them it answers well."""


def fake_worker() -> tuple[str, ...]:
    """Command line of a fake worker, for `Runner`."""
    return ("-c", WORKER, json.dumps(GOOD_ANSWER), json.dumps([fault.code for fault in FAULTS]))


def distinct_decisions(graph: Graph, count: int, seed: int = 0) -> list[Decisions]:
    """Legal decision vectors, no two of them equal, none the default."""
    rng = np.random.default_rng(seed)
    found: dict[str, Decisions] = {}
    while len(found) < count:
        decisions = graph.masks.sample(rng, graph.default, 0.2)
        if not decisions.same_as(graph.default):
            found[decisions_digest(encode_decisions(graph, decisions))] = decisions
    return list(found.values())


def child_processes() -> list[int]:
    """Process ids of this process's children, dead ones that nobody waited for included."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # gone meanwhile
                continue
            if int(fields[1]) == os.getpid():
                found.append(int(folder.name))
    return found


@dataclass(frozen=True)
class FaultReport:
    """What became of the injected failures.

    Attributes:
        trials: failures injected.
        seconds: time it took.
        wrong: faults that got another status than they should -> how often.
        unrecorded: decision vectors that are not quarantined in the store.
        orphans: processes left.
        good: good answers after a failure that came through, of `trials`.
    """

    trials: int
    seconds: float
    wrong: Counter[str]
    unrecorded: int
    orphans: int
    good: int

    @property
    def clean(self) -> bool:
        """True if nothing was lost and nothing left."""
        return not (self.wrong or self.unrecorded or self.orphans) and self.good == self.trials

    def __str__(self) -> str:
        """A few lines for people."""
        lines = [
            f"{self.trials} injected failures of {len(FAULTS)} kinds in {self.seconds:.0f} s: "
            f"{self.wrong.total()} named wrongly, {self.unrecorded} not recorded, "
            f"{self.orphans} processes left, {self.trials - self.good} runs did not go on"
        ]
        lines += [f"  {text}: {count}" for text, count in self.wrong.most_common()]
        return "\n".join(lines)


def inject_faults(
    data: bytes, trials: int, path: Path, timeout_s: float = TIMEOUT_S
) -> FaultReport:
    """Injects every kind of failure in turn, a good answer after each.

    Args:
        data: any module.
        trials: failures.
        path: of a new store.
        timeout_s: time limit of a request.
    """
    store = Store(path)
    before = set(child_processes())
    begin = time.perf_counter()
    wrong: Counter[str] = Counter()
    good = 0
    tried: list[Decisions] = []
    with Runner(data, None, store, timeout_s=timeout_s, worker=fake_worker()) as runner:
        vectors = distinct_decisions(runner.graph, trials)
        with counted(enumerate(vectors), "failures injected") as rest:
            for number, decisions in rest:
                fault = FAULTS[number % len(FAULTS)]
                result = runner.measure(decisions, budget_s=number % len(FAULTS), method=fault.name)
                if result.status != fault.status:
                    wrong[f"{fault.name}: {result.status} instead of {fault.status}"] += 1
                after = runner.measure(runner.graph.default, budget_s=len(FAULTS), method="control")
                good += after.ok
                tried.append(decisions)
        refused = quarantined(store, runner.graph.fingerprint)
        digests = [decisions_digest(encode_decisions(runner.graph, v)) for v in tried]
    orphans = len(set(child_processes()) - before)
    seconds = time.perf_counter() - begin
    unrecorded = sum(digest not in refused for digest in digests)
    return FaultReport(len(tried), seconds, wrong, unrecorded, orphans, good)


def bench_faults(console: Console, budget_s: float = 0.0) -> None:
    """Injects `TRIALS` failures and prints what became of them."""
    fn, args = builtin_programs()[PROGRAM].build()
    data = max(capture_modules(fn, *args), key=len)
    with tempfile.TemporaryDirectory(prefix="graphopt-faults-") as folder:
        report = inject_faults(data, TRIALS, Path(folder, "store.sqlite"))
    console.print(str(report), highlight=False, markup=False)
