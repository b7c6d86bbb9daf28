"""Tuning in the background, as a new user has it: a script runs, its queue is tuned, it runs again.

    python -m benchmarks.background [PROGRAM ...] [--workloads benchmarks.third_party.programs:WORKLOADS]

For each program, each step a process of its own, on a store of its own:

1. a script with nothing of graphopt but ``graphopt.install(record=True)`` runs: first run;
2. it runs again: second run, which nothing was tuned for either;
3. ``graphopt tune --queue --items 1``;
4. it runs again: third run, which adopts the winner.

Times of different processes differ by noise too. So one more process compiles the program by XLA's default,
as ``install()`` has it untuned and with the winner, compares results and times them in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.progress import counted, ended
from graphopt.corpus.workloads import load_programs

PROGRAMS: Final = (
    "gymnax-cartpole-rollout",
    "blackjax-nuts-logistic",
    "diffrax-tsit5-lorenz",
    "optimistix-levenberg-marquardt",
    "jaxley-hodgkin-huxley-grad",
)

WORKLOADS: Final = "benchmarks.third_party.programs:WORKLOADS"

SCRIPT: Final = """
import graphopt
graphopt.install(record=True)

import json, sys, time, jax
from graphopt.corpus.workloads import load_programs

workloads, name, seconds = sys.argv[1:]
fn, args = load_programs(workloads)[name].build()
program, times = jax.jit(fn), []
jax.block_until_ready(program(*args))
end = time.perf_counter() + float(seconds)
while time.perf_counter() < end:
    start = time.perf_counter()
    jax.block_until_ready(program(*args))
    times.append(time.perf_counter() - start)
main = max(graphopt.report().records, key=lambda record: record.nodes)
print(json.dumps({"ms": 1e3 * sorted(times)[len(times) // 2], "calls": len(times) + 1,
                  "said": f"{main.outcome}: {main.reason}"}))
"""
"""What the user has written; only its second line is about graphopt."""

LIMIT_S: Final = 600.0
"""Longest time of one step."""


def run_step(arguments: list[str], store: Path) -> Any:
    """A process of its own; what the last line that it prints says, as JSON."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "GRAPHOPT_STORE": str(store), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments[:3])} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(
    workloads: str, name: str, seconds: float, budget_s: float, folder: Path
) -> dict[str, Any]:
    """All steps of one program."""
    store = folder / "store.sqlite"
    script = folder / "script.py"
    script.write_text(SCRIPT)
    run = [str(script), workloads, name, str(seconds)]
    runs = [run_step(run, store) for _ in range(2)]
    start = time.perf_counter()
    tuned = run_step(
        ["-m", "graphopt", "tune", "--queue", "--items", "1", "--budget-s", str(budget_s),
         "--max-load", "1e9", "--json"],
        store,
    )  # fmt: skip
    tuning_s = time.perf_counter() - start
    runs.append(run_step(run, store))
    queue = run_step(["-m", "graphopt", "queue", "--json"], store)
    checking = ["-m", "benchmarks.background", name, "--workloads", workloads, "--check"]
    beside = run_step(checking, store)
    done = [item for item in queue["items"] if item["state"] == "done"]
    return {
        "program": name,
        "runs": runs,
        "tuning": {**tuned, "seconds": tuning_s, "items": done},
        "in_turn": beside,
        "saved_s_per_day": queue["saved_s_per_day"],
    }


def check(workloads: str, name: str, budget_s: float = 4.0) -> dict[str, Any]:
    """Default, untuned and tuned in turn in this process; results of the tuned one beside the default's."""
    from graphopt.learn.tune.confirm import Runs, confirm
    from graphopt.learn.tune.subject import make_subject
    from graphopt.measure import compare
    from graphopt.measure.adoption import StoredWinners
    from graphopt.plugin import optimize_module
    from graphopt.policy.registry import DEFAULT, resolve
    from graphopt.store import Store

    fn, args = load_programs(workloads)[name].build()
    subject, policy = make_subject(fn, args), resolve(DEFAULT)
    winners = StoredWinners(Store())
    untuned = subject.compile(lambda data: optimize_module(data, policy)[1])
    tuned = subject.compile(lambda data: optimize_module(data, policy, winners=winners)[1])
    outcome = confirm(
        subject, lambda data: optimize_module(data, policy, winners=winners)[1], budget_s
    )
    beside = compare(
        Runs(untuned, subject.donates), Runs(tuned, subject.donates), budget_s=budget_s
    )
    return {
        "default_ms": 1e3 * outcome.times.baseline_s,
        "beside_default": [outcome.times.speedup, outcome.times.low, outcome.times.high],
        "beside_untuned": [beside.speedup, beside.low, beside.high],
        "equal": outcome.equal,
    }


def recording(functions: int = 30) -> None:
    """Prints what a call takes while it is counted and after, and the compile beside it, medians."""
    import graphopt
    from graphopt.plugin.recording import COUNTED

    with tempfile.TemporaryDirectory(prefix="graphopt-background-") as folder:
        graphopt.install(record=True, store=Path(folder, "store.sqlite"))
        for leaves in (2, 100):
            first, counted, after = [], [], []
            for number in range(functions):
                times = _calls(leaves, float(number), 3 * COUNTED)
                first.append(times[0])
                counted += times[1:COUNTED]
                after += times[COUNTED + 1 :]
            print(
                f"{leaves} arrays: first call with its compile {median(first) * 1e3:.1f} ms, counted calls "
                f"{median(counted) * 1e6:.0f} us, later ones {median(after) * 1e6:.0f} us"
            )
        graphopt.uninstall()


def _calls(leaves: int, number: float, count: int) -> list[float]:
    """Seconds of the first calls of a new function of some arrays."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def step(arrays: list[Any]) -> list[Any]:
        return [jnp.tanh(a) * jnp.cos(a + number) + a.sum() for a in arrays]

    arrays = jax.block_until_ready([jnp.full(64, 0.5) for _ in range(leaves)])
    times = []
    for _ in range(count):
        start = time.perf_counter()
        jax.block_until_ready(step(arrays))
        times.append(time.perf_counter() - start)
    return times


def table(rows: list[Mapping[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| program | first run, ms | second | third | third beside untuned, in turn | beside XLA's default "
        "| results equal | tuning, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        times = " | ".join(f"{run['ms']:.3f}" for run in row["runs"])
        turn = row["in_turn"]
        ratios = " | ".join(
            "{:.2f}x ({:.2f}-{:.2f})".format(*turn[key])
            for key in ("beside_untuned", "beside_default")
        )
        equal = "yes" if turn["equal"] else "NO"
        lines.append(
            f"| {row['program']} | {times} | {ratios} | {equal} | {row['tuning']['seconds']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Prints a table, and writes what it stands on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=PROGRAMS)
    parser.add_argument("--workloads", default=WORKLOADS, help="pkg.module:WORKLOADS, or demo")
    parser.add_argument("--seconds", type=float, default=4.0, help="of calls in each run")
    parser.add_argument("--budget-s", type=float, default=25.0, help="of tuning")
    parser.add_argument("--out", type=Path, default=Path("report/background.json"))
    parser.add_argument("--recording", action="store_true", help="what recording costs, instead")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.check:
        print(json.dumps(check(options.workloads, options.programs[0])))
        return
    if options.recording:
        recording()
        return
    import jax

    options.out.parent.mkdir(parents=True, exist_ok=True)
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    with counted(options.programs, "programs tuned") as rest:
        for program in rest:
            with tempfile.TemporaryDirectory(prefix="graphopt-background-") as folder:
                row = measure(
                    options.workloads, program, options.seconds, options.budget_s, Path(folder)
                )
            rows = [known for known in rows if known["program"] != program] + [row]
            about = {"machine": platform.processor() or platform.machine(), "jax": jax.__version__}
            options.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
            print(table([row]), flush=True)
    print(table(rows))


if __name__ == "__main__":
    sys.exit(ended(main))
