"""One program in one version of jax: compiles it, then times it on request.

``python -m benchmarks.reported.worker SUITE NAME MODE RESULT BUDGET_S`` writes the results of the program to
the file RESULT and one line of JSON, then answers every line of its input with the seconds of one sample: of
the program, and of an empty program with the same arguments. The mode ``tuned`` searches for BUDGET_S
seconds first.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIN_SAMPLE_S = 0.02
"""One sample repeats a fast program until it takes about this long."""


def _default(fn: Callable[..., Any], args: tuple[Any, ...], job: Job) -> None:
    """XLA's own decisions."""


def _heuristic(fn: Callable[..., Any], args: tuple[Any, ...], job: Job) -> None:
    import graphopt

    graphopt.install(policy="heuristic", store=False)


def _policy(fn: Callable[..., Any], args: tuple[Any, ...], job: Job) -> None:
    import graphopt

    graphopt.install(policy="shipped", store=False)


def _tuned(fn: Callable[..., Any], args: tuple[Any, ...], job: Job) -> None:
    """The winner of a search, by the first process; where there is none, XLA's default was best."""
    import graphopt

    store = f"{job.result}.store.db"
    if not Path(store).exists():
        graphopt.tune(fn, *args, budget_s=job.budget_s, store=store)
    graphopt.install(policy=lambda graph: None, store=store)


@dataclass(frozen=True)
class Job:
    """What a worker was asked for.

    Attributes:
        suite: key of `suite.SUITES`.
        name: of the program.
        mode: key of `MODES`.
        result: path of the results.
        budget_s: seconds to search.
    """

    suite: str
    name: str
    mode: str
    result: str
    budget_s: float


MODES: dict[str, Callable[[Callable[..., Any], tuple[Any, ...], Job], None]] = {
    "default": _default,
    "heuristic": _heuristic,
    "policy": _policy,
    "tuned": _tuned,
}
"""Mode -> what is done before the program is compiled."""


def main(arguments: list[str]) -> int:
    """Serves until its input ends."""
    suite, name, mode, result, budget_s = arguments
    job = Job(suite, name, mode, result, float(budget_s))
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else may write an answer
    import jax
    import numpy as np

    from benchmarks.reported.suite import SUITES

    program = SUITES[job.suite][job.name]
    jax.config.update("jax_enable_x64", program.x64)
    jax.config.update("jax_threefry_partitionable", True)  # one stream of numbers in all versions
    fn, args = program.build()
    jax.block_until_ready(jax.jit(lambda x: x + 1)(np.float32(1)))
    MODES[job.mode](fn, args, job)
    lowered = jax.jit(fn).lower(*args)
    start = time.perf_counter()
    compiled = lowered.compile()
    compile_s = time.perf_counter() - start
    leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(compiled(*args))]
    np.savez(job.result, *leaves)

    def run() -> Any:
        return jax.block_until_ready(compiled(*args))

    nothing = jax.jit(lambda *_: [np.float32(0)] * len(leaves), keep_unused=True)
    empty = nothing.lower(*args).compile()

    def call() -> Any:
        return jax.block_until_ready(empty(*args))

    repeats, calls = _repeats(run), _repeats(call)
    print(
        json.dumps({"compile_s": compile_s, "version": jax.__version__}), file=answers, flush=True
    )
    for _ in sys.stdin:
        before = _page_faults()
        run_s = _seconds(run, repeats)
        faults = (_page_faults() - before) / repeats
        sample = run_s, _seconds(call, calls), faults
        print(json.dumps(sample), file=answers, flush=True)
    return 0


def _page_faults() -> int:
    """Of this process so far, those that need no disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _seconds(run: Callable[[], Any], repeats: int) -> float:
    """Mean seconds of one call."""
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats


def _repeats(run: Callable[[], Any]) -> int:
    run()
    start = time.perf_counter()
    run()
    once = max(time.perf_counter() - start, 1e-7)
    return max(1, min(5000, int(MIN_SAMPLE_S / once)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
