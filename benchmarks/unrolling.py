"""What LLVM's unrolling of short loops gives and takes in native code: the corpus with and without it.

    python -m benchmarks.unrolling [--workloads corpus] [--json FILE]

Unrolling can only be switched off for a whole process. Two children, one without it, run the same programs
with the heuristic, one program after the other in turn; programs without native code are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import geometric_mean, median
from typing import IO, Any

from benchmarks.progress import counted, ended

OFF = "--xla_backend_extra_options=xla_cpu_disable_loop_unrolling"
SAMPLES = 9
SAMPLE_S = 0.01
LONGEST_S = 0.02
"""Programs that run longer are left out."""


def serve(selection: str) -> None:
    """Times the programs that standard input names; answers with microseconds, or null."""
    import jax

    import graphopt
    from graphopt.corpus.registry import select_corpus

    graphopt.install("heuristic")
    programs = select_corpus(selection)
    for line in sys.stdin:
        graphopt.reset_report()
        fn, args = programs[line.strip()].build()
        compiled = jax.jit(fn).lower(*args).compile()
        regions = sum(record.regions for record in graphopt.report().records)
        print(json.dumps(microseconds(compiled, args) if regions else None), flush=True)


def microseconds(compiled: Any, args: tuple[Any, ...]) -> float | None:
    """Median time of one call; None for a long program."""
    import jax

    def seconds(runs: int) -> float:
        start = time.perf_counter()
        for _ in range(runs):
            jax.block_until_ready(compiled(*args))  # type: ignore[no-untyped-call]
        return (time.perf_counter() - start) / runs

    seconds(1)
    once = seconds(1)
    if once > LONGEST_S:
        return None
    runs = max(1, round(SAMPLE_S / once))
    return 1e6 * median(seconds(runs) for _ in range(SAMPLES))


def child(selection: str, flags: str) -> subprocess.Popen[str]:
    """A process that times programs under these flags."""
    environment = {**os.environ, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()}
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.unrolling", "--workloads", selection, "--serve"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=environment,
    )  # fmt: skip


def ask(process: subprocess.Popen[str], name: str) -> float | None:
    """The time of one program."""
    question: IO[str] | None = process.stdin
    answer: IO[str] | None = process.stdout
    if question is None or answer is None:
        raise RuntimeError("the child has no pipes")
    question.write(name + "\n")
    question.flush()
    value: float | None = json.loads(answer.readline())
    return value


def main() -> None:
    """Prints a Markdown table of what changes by 6 % or more, and a summary."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unrolling", description=__doc__)
    parser.add_argument("--workloads", default="corpus", help="a selection of the corpus")
    parser.add_argument("--json", type=Path, help="where to write all times")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.workloads)
    from graphopt.corpus.registry import select_corpus

    children = [child(options.workloads, flags) for flags in ("", OFF)]
    ratios: dict[str, float] = {}
    print("| program | unrolled, us | not unrolled | ratio |\n| --- | --- | --- | --- |")
    with counted(select_corpus(options.workloads), "programs timed") as rest:
        for name in rest:
            unrolled, rolled = (ask(process, name) for process in children)
            if unrolled is None or rolled is None:
                continue
            ratios[name] = unrolled / rolled
            if not 0.94 < ratios[name] < 1.06:
                print(
                    f"| {name} | {unrolled:.1f} | {rolled:.1f} | {ratios[name]:.2f}x |", flush=True
                )
    for process in children:
        process.kill()
    if not ratios:
        return
    better = [max(1.0, ratio) for ratio in ratios.values()]
    print(f"\n{len(ratios)} programs: without unrolling {geometric_mean(ratios.values()):.2f}x,")
    print(f"the better of the two {geometric_mean(better):.2f}x;", end=" ")
    print(f"{sum(r > 1.06 for r in better)} gain by more than 6 %")
    if options.json:
        options.json.write_text(json.dumps(ratios, indent=1))


if __name__ == "__main__":
    sys.exit(ended(main))
