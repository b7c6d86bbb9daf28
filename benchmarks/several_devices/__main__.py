"""What graphopt gains in programs over several CPU devices.

    python -m benchmarks.several_devices [--devices 2 8] [--programs NAME ...] [--json FILE]

Every program runs in a child process with that many CPU devices: compiled by XLA alone, then with graphopt
installed; results are compared, and both timed in turn.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks.progress import counted, ended

HEADER = (
    "| program | devices | outcome | default ms | graphopt ms | speed-up | 95 % interval | results |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def measure(name: str, devices: int, policy: str, budget_s: float) -> dict[str, Any]:
    """One row, measured in this process, which has not used jax yet."""
    import jax

    jax.config.update("jax_num_cpu_devices", devices)
    import graphopt
    from benchmarks.several_devices.programs import PROGRAMS
    from graphopt.measure import compare, compare_outputs

    make, args = PROGRAMS[name]()
    default = make()
    reference = jax.device_get(jax.block_until_ready(default(*args)))
    jax.clear_caches()
    graphopt.reset_report()
    graphopt.install(*([policy] if policy else []))
    candidate = make()
    result = jax.device_get(jax.block_until_ready(candidate(*args)))
    records = [max(graphopt.report().records, key=lambda r: r.nodes)]
    graphopt.uninstall()
    difference = compare_outputs(reference, result)
    default = make()  # what was compiled first is forgotten
    jax.block_until_ready(default(*args))
    timed = compare(
        lambda: jax.block_until_ready(default(*args)),
        lambda: jax.block_until_ready(candidate(*args)),
        budget_s=budget_s,
    )
    return {
        "program": name,
        "devices": devices,
        "outcome": ", ".join(f"{r.outcome} ({r.reason})" for r in records),
        "hook_ms": 1e3 * sum(r.seconds for r in records),
        "equal": difference.equal,
        "relative": difference.relative,
        "default_ms": 1e3 * timed.baseline_s,
        "graphopt_ms": 1e3 * timed.candidate_s,
        "speedup": timed.speedup,
        "low": timed.low,
        "high": timed.high,
        "jax": jax.__version__,
    }


def ask(name: str, devices: int, policy: str, budget_s: float) -> dict[str, Any]:
    """One row, measured in a child process."""
    command = [sys.executable, "-m", "benchmarks.several_devices", "--serve", name]
    options = ["--devices", str(devices), "--policy", policy, "--budget-s", str(budget_s)]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=600, env=dict(os.environ)
    )
    if done.returncode:
        return {"program": name, "devices": devices, "error": done.stderr[-2000:]}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def line(row: dict[str, Any]) -> str:
    """A row as Markdown."""
    if "error" in row:
        return f"| {row['program']} | {row['devices']} | {row['error'].splitlines()[-1]} |"
    results = "equal" if row["equal"] else f"DIFFERENT ({row['relative']:.1e})"
    return (
        f"| {row['program']} | {row['devices']} | {row['outcome']} | {row['default_ms']:.3f} | "
        f"{row['graphopt_ms']:.3f} | {row['speedup']:.2f}x | {row['low']:.2f}-{row['high']:.2f} | "
        f"{results} |"
    )


def main() -> int:
    """Prints the table; exit status 1 if a result differs or a program fails."""
    from benchmarks.several_devices.programs import PROGRAMS

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.several_devices",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--devices", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--policy", default="", help="name of a policy; the shipped one by default")
    parser.add_argument("--budget-s", type=float, default=2.0, help="seconds of timing per program")
    parser.add_argument("--json", type=Path, help="where to write all rows")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        print(json.dumps(measure(given.serve, given.devices[0], given.policy, given.budget_s)))
        return 0
    print(HEADER)
    rows = []
    with counted(itertools.product(given.devices, given.programs), "programs measured") as rest:
        for devices, name in rest:
            rows.append(ask(name, devices, given.policy, given.budget_s))
            print(line(rows[-1]), flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))
    good = [row for row in rows if "error" not in row]
    for devices in given.devices:
        gains = [row["speedup"] for row in good if row["devices"] == devices]
        if gains:
            print(f"\n{devices} devices: geometric mean {geometric_mean(gains):.2f}x,", end=" ")
            print(f"smallest {min(gains):.2f}x, largest {max(gains):.2f}x")
    return 0 if len(good) == len(rows) and all(row["equal"] for row in good) else 1


if __name__ == "__main__":
    sys.exit(ended(main))
