"""Single operations inside loops: XLA's default, native code and the heuristic's choice, in turn.

    python -m benchmarks.native_operations [--only REGEX] [--out native.json] [--seconds 60]

For every operation and size: microseconds of one iteration in each of the three ways, and what the cost
model expects of the first two. ``regret`` is the heuristic's time over the best of the three. Results go to
a file after every case, and what is there is not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from dataclasses import asdict
from pathlib import Path

import jax
import numpy as np

from benchmarks.native_operations.cases import CASES, Case
from benchmarks.native_operations.measuring import Found, measure
from benchmarks.progress import counted, ended
from graphopt.errors import GraphOptError


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.native_operations", description=__doc__
    )
    parser.add_argument("--only", default="", help="operations whose name holds this expression")
    parser.add_argument("--out", type=Path, default=Path("native.json"), help="results")
    parser.add_argument("--seconds", type=float, default=math.inf, help="end after so long")
    parser.add_argument("--budget-s", type=float, default=0.15, help="of timing per way")
    parser.add_argument("--again", action="store_true", help="measure what the file holds, too")
    return parser.parse_args()


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def table(found: list[Found]) -> str:
    """A Markdown table, largest regret first, and the geometric means below it."""
    lines = [
        "| operation | elements | default, us | native | heuristic "
        "| estimate of default | of native | regret |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for f in sorted(found, key=lambda f: -f.regret):
        times = (
            f.default_us,
            f.native_us,
            f.heuristic_us,
            f.default_estimate_us,
            f.native_estimate_us,
        )
        cells = " | ".join(_number(t) for t in times)
        lines.append(f"| {f.name} | {f.size} | {cells} | {f.regret:.2f} |")
    gains = np.log([f.default_us / f.heuristic_us for f in found])
    lines.append(
        f"\n{len(found)} cases: the heuristic has {np.exp(gains.mean()):.2f}x over the default, lowest "
        f"{np.exp(gains.min()):.2f}x; the best of the three ways would have "
        f"{np.exp(np.mean(gains + np.log([f.regret for f in found]))):.2f}x."
    )
    return "\n".join(lines)


def main() -> None:
    """Measures what is wanted and not there yet; prints the table."""
    options = _options()
    wanted: list[tuple[Case, int]] = [
        (case, size) for case in CASES for size in case.sizes if re.search(options.only, case.name)
    ]
    path: Path = options.out
    known = json.loads(path.read_text()) if path.exists() else {}
    end = time.perf_counter() + options.seconds
    with counted(enumerate(wanted), "cases looked at") as rest:
        for number, (case, size) in rest:
            key = f"{case.name}, {size}"
            if key in known and not options.again:
                continue
            if time.perf_counter() > end:
                print(f"{len(wanted) - number} of {len(wanted)} left")
                break
            try:
                known[key] = asdict(measure(case, size, options.budget_s))
            except GraphOptError as error:
                print(f"{key}: {error}", flush=True)
                continue
            path.write_text(json.dumps(known, indent=1))
            jax.clear_caches()
    keys = [f"{case.name}, {size}" for case, size in wanted]
    print(table([Found(**known[key]) for key in keys if key in known]))


if __name__ == "__main__":
    sys.exit(ended(main))
