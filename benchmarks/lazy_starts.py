"""How programs of lazy tensors start: the first process, and the second one with jax's persistent cache.

    python -m benchmarks.lazy_starts [--only NAME]

Each of the programs of `benchmarks.lazy_programs` runs in two processes, one after the other, with one cache
folder. Times are from the start of the process to the value of the tenth step, imports included, and of the
tenth step alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.lazy_programs.programs import PROGRAMS
from benchmarks.progress import counted, ended

ROOT: Final = Path(__file__).resolve().parents[1]
STEPS: Final = 10
KINDS: Final = {
    "hits": "/jax/compilation_cache/cache_hits",
    "misses": "/jax/compilation_cache/cache_misses",
}


def run_once(name: str, started: float) -> None:
    """Makes ten steps of a program and prints what that took, as JSON."""
    import jax

    import graphopt.lazy as lt

    counts = dict.fromkeys(KINDS, 0)

    def listen(event: str, **_: Any) -> None:
        for kind, text in KINDS.items():
            counts[kind] += event == text

    jax.monitoring.register_event_listener(listen)
    (program,) = [p for p in PROGRAMS if p.name == name]
    state = tuple(map(lt.asarray, program.state(np.random.default_rng(0))))
    imported = time.time() - started
    for _ in range(STEPS):
        start = time.perf_counter()
        with lt.step():
            state = program.step(lt, lt.grad, state)
        _ = np.asarray(state[0])
    last = time.perf_counter() - start
    found = {"ready": imported, "tenth": time.time() - started, "step": last, **counts}
    print(json.dumps({**found, "sum": float(np.sum(np.asarray(state[0])))}))


def process(name: str, cache: str) -> dict[str, float]:
    """The same in a process of its own."""
    options = {
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    command = [sys.executable, "-m", "benchmarks.lazy_starts", "--child", name]
    done = subprocess.run(
        [*command, "--started", repr(time.time())],
        env={**os.environ, **options}, cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(name: str) -> None:
    """Prints a row of a Markdown table."""
    with tempfile.TemporaryDirectory() as cache:
        process(name, cache)  # what every program of this machine shares is found out once
    with tempfile.TemporaryDirectory() as cache:
        first, second = process(name, cache), process(name, cache)
    same = "yes" if first["sum"] == second["sum"] else "NO"
    cells = [
        name, f"{first['ready']:.2f}", f"{first['tenth']:.2f}", f"{second['tenth']:.2f}",
        f"{first['misses']:.0f}", f"{second['misses']:.0f}", f"{first['step'] * 1e6:.0f}",
        f"{second['step'] * 1e6:.0f}", same,
    ]  # fmt: skip
    print(f"| {' | '.join(cells)} |", flush=True)


HEADINGS: Final = (
    "program", "imported, s", "tenth, s", "second, s", "compiles", "second", "tenth, us", "second, us",
    "same bits",
)  # fmt: skip


def main() -> None:
    """Measures all programs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_once(options.child, options.started)
        return
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}")
    with counted([p.name for p in PROGRAMS if options.only in p.name], "programs measured") as rest:
        for name in rest:
            measure(name)


if __name__ == "__main__":
    sys.exit(ended(main))
