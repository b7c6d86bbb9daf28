"""Round trips of real third-party programs: identity and heuristic rewrites, results compared.

Each program runs in a process of its own, so that a crash is a row of the table and not the end.

    python benchmarks/third_party/roundtrip.py            # all programs
    python benchmarks/third_party/roundtrip.py --only diffrax-tsit5-lorenz
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import geometric_mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.progress import counted, ended

POLICIES = ("xla-default", "heuristic")


def measure(name: str, budget_s: float) -> dict[str, Any]:
    """Rewrites one program with every policy; compares results and times with XLA's default."""
    import jax
    import numpy as np

    from graphopt.corpus.program import Program
    from graphopt.evaluate.commands.demo import measure_program

    workloads, chaotic = load()
    label = "".join(c if c.isalnum() or c in "-_" else "-" for c in name.lower())
    program = Program(label, "third-party", workloads[name], name, chaotic=name in chaotic)
    row: dict[str, Any] = {"name": name, "jax": jax.__version__, "numpy": np.__version__}
    for policy in POLICIES:
        result = measure_program(program, policy, budget_s)
        row[policy] = {
            "nodes": result.nodes,
            "outcome": result.outcome,
            "equal": result.equal,
            "max_rel_err": result.relative,
            "speedup": result.times.speedup,
            "low": result.times.low,
            "high": result.times.high,
            "default_ms": result.times.baseline_s * 1e3,
            "compile_ratio": result.compile_s / result.compile_default_s,
        }
    return row


def load() -> tuple[dict[str, Any], frozenset[str]]:
    """The programs beside this file, and the names of the chaotic ones."""
    from benchmarks.third_party import programs

    return programs.WORKLOADS, programs.CHAOTIC


def run_all(names: list[str], budget_s: float, out: Path | None) -> int:
    """Measures every program in its own process and prints one line each; 1 if any fails."""
    rows, failed = [], []
    with counted(names, "programs measured") as rest:
        for name in rest:
            command = [sys.executable, __file__, "--child", name, "--budget-s", str(budget_s)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=900)
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            if done.returncode or not lines:
                failed.append(name)
                print(
                    f"{name:36s} FAILED ({done.returncode}): {done.stderr.strip()[-300:]}",
                    flush=True,
                )
                continue
            row = json.loads(lines[-1])
            rows.append(row)
            print(describe(row), flush=True)
            if not all(row[policy]["equal"] for policy in POLICIES):
                failed.append(name)
    for policy in POLICIES:
        speedups = [row[policy]["speedup"] for row in rows]
        if speedups:
            print(
                f"{policy}: geometric mean {geometric_mean(speedups):.3f}x, "
                f"smallest {min(speedups):.3f}x, largest {max(speedups):.2f}x"
            )
    print(f"{len(rows)} programs measured; failed or different: {failed or 'none'}")
    if out is not None:
        out.write_text(json.dumps(rows, indent=1))
    return 1 if failed else 0


def describe(row: dict[str, Any]) -> str:
    """One line per program."""
    parts = []
    for policy in POLICIES:
        data = row[policy]
        verdict = "equal" if data["equal"] else "DIFFERENT"
        parts.append(
            f"{policy} {data['speedup']:5.2f}x [{data['low']:.2f}, {data['high']:.2f}] {verdict} "
            f"{data['max_rel_err']:.0e} ({data['outcome']})"
        )
    return f"{row['name']:36s} {row['xla-default']['nodes']:5d} nodes  " + "  ".join(parts)


def main() -> int:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--child", help="measure one program and print JSON")
    parser.add_argument("--budget-s", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments.budget_s)))
        return 0
    return run_all(arguments.only or list(load()[0]), arguments.budget_s, arguments.out)


if __name__ == "__main__":
    sys.exit(ended(main))
