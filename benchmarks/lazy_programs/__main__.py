"""Eight programs as people write them with lazy tensors, beside the same under other array libraries.

    python -m benchmarks.lazy_programs [--rounds 9] [--only NAME]

Each program is a step from state to state, written once for an array namespace: lazy tensors, eager
``jax.numpy``, ``jax.jit`` of the step, PyTorch where it is installed, and NumPy where no gradient is needed.
All make the same steps from the same state, and the results are compared. "hook off" are lazy tensors without
the optimizer, in another process. Times are medians of runs in turn, after runs that compile.
"""

from __future__ import annotations

import argparse
import json
import sys
from statistics import geometric_mean
from typing import Any, Final

import numpy as np

from benchmarks.lazy_programs.programs import PROGRAMS
from benchmarks.lazy_programs.ways import answer
from benchmarks.progress import counted, ended
from graphopt.measure.children.child import Child
from graphopt.measure.comparing.timing import summarise

TIMEOUT_S: Final = 600.0
COLUMNS: Final = ("lazy", "hook off", "jit", "eager", "PyTorch", "NumPy")


def ask(process: Child, program: str, way: str | None = None) -> dict[str, Any]:
    """One request to a child process."""
    request = {"program": program} if way is None else {"program": program, "way": way}
    return dict(json.loads(process.ask(json.dumps(request), TIMEOUT_S)))


def measure(program: str, rounds: int) -> dict[str, list[float]]:
    """Seconds per step, by way, in rounds; prints a row of a Markdown table."""
    on, off = (
        Child(["-m", "benchmarks.lazy_programs", "--child", mode], program)
        for mode in ("on", "off")
    )
    known, plain = ask(on, program), ask(off, program)
    wrong = [*known["wrong"], *(f"{way}, hook off" for way in plain["wrong"])]
    times: dict[str, list[float]] = {way: [] for way in (*known["ways"], "hook off")}
    for _ in range(rounds):
        for way in known["ways"]:
            times[way].append(ask(on, program, way)["seconds"])
        times["hook off"].append(ask(off, program, "lazy")["seconds"])
    for process in (on, off):
        process.close()
    cells = [f"{np.median(times[n]) * 1e6:.0f}" if n in times else "-" for n in COLUMNS]
    ratios = [
        _ratio(times, "eager", "lazy"), _ratio(times, "hook off", "lazy"), _ratio(times, "lazy", "jit")
    ]  # fmt: skip
    print(
        f"| {program} | {' | '.join([*cells, *ratios, ', '.join(wrong) or 'none'])} |", flush=True
    )
    return times


def _ratio(times: dict[str, list[float]], above: str, below: str) -> str:
    found = summarise(np.array(list(zip(times[above], times[below], strict=True))))
    return f"{found.speedup:.2f}x ({found.low:.2f}-{found.high:.2f})"


def main() -> None:
    """Measures all programs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        answer(options.child)
        return
    headings = [
        "program, us per step",
        *COLUMNS,
        "eager / lazy",
        "hook off / on",
        "lazy / jit",
        "wrong",
    ]
    print(f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}")
    chosen = [p.name for p in PROGRAMS if options.only in p.name]
    found = []
    with counted(chosen, "programs measured") as rest:
        for program in rest:
            found.append(measure(program, options.rounds))
    middle = [{way: float(np.median(t)) for way, t in times.items()} for times in found]
    means = {
        text: geometric_mean([x[above] / x[below] for x in middle])
        for text, above, below in (
            ("eager / lazy", "eager", "lazy"),
            ("hook off / on", "hook off", "lazy"),
            ("lazy / jit", "lazy", "jit"),
        )
    }
    print("\n" + ", ".join(f"{text} {mean:.2f}x" for text, mean in means.items()))


if __name__ == "__main__":
    sys.exit(ended(main))
