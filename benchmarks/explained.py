"""What ``graphopt.explain`` says of programs beside what an installed plugin makes of them.

    python -m benchmarks.explained [pkg.module:WORKLOADS ...] [--limit 20]

Each program is explained, then compiled anew by jax alone and under `graphopt.install`, and both timed in
turn, as `graphopt demo` does. Prints a Markdown table, then the median and the largest error.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

import graphopt
from graphopt.corpus.workloads import build_program, load_programs
from graphopt.evaluate.commands.demo import measure_program

BUDGET_S = 2.0


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="explanations beside measurements")
    parser.add_argument("workloads", nargs="*", default=["demo"])
    parser.add_argument("--limit", type=int, default=20, help="programs in all")
    options = parser.parse_args()
    programs = [p for name in options.workloads for p in load_programs(name).values()]
    print("| program | explained | installed | error |\n| --- | --- | --- | --- |")
    errors = []
    step = max(1, len(programs) // options.limit)
    for program in programs[::step][: options.limit]:
        fn, args = build_program(program, program.name)
        said = graphopt.explain(fn, *args, measure_s=BUDGET_S)
        found = measure_program(program, "shipped", BUDGET_S).times.speedup
        if said.measured is None:
            print(f"| {program.name} | {said.why_estimated} | {found:.2f}x | |", flush=True)
            continue
        errors.append(abs(math.log(said.speedup / found)))
        print(
            f"| {program.name} | {said.speedup:.2f}x | {found:.2f}x | {math.expm1(errors[-1]):.0%} |",
            flush=True,
        )
    if errors:
        median, largest = np.expm1([np.median(errors), np.max(errors)])
        print(f"\nmedian error {median:.1%}, largest {largest:.1%}")


if __name__ == "__main__":
    main()
