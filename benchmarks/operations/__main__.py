"""Public operations of jax at three sizes: XLA's default, graphopt, and PyTorch or NumPy, in turn.

    python -m benchmarks.operations [--only REGEX] [--out operations.json] [--no-torch] [--seconds 60]

Results go to a file after every operation; what is there is not measured again, so that the
benchmark can run in pieces. PyTorch is installed by hand (``pip install torch==2.13.0``).
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import jax

from benchmarks.operations.measuring import measure
from benchmarks.operations.row import SIZES, Row
from benchmarks.operations.rows import arrays, elementwise, networks, reductions
from benchmarks.operations.table import table
from benchmarks.progress import counted, ended

ROWS: tuple[Row, ...] = (*elementwise.ROWS, *reductions.ROWS, *networks.ROWS, *arrays.ROWS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operations", description=__doc__)
    parser.add_argument("--only", default="", help="operations whose name holds this expression")
    parser.add_argument("--size", choices=SIZES, help="one size")
    parser.add_argument("--out", type=Path, default=Path("operations.json"), help="results")
    parser.add_argument("--no-torch", action="store_true", help="leave PyTorch out")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so long")
    parser.add_argument("--budget-s", type=float, default=0.6, help="of timing per case")
    parser.add_argument("--again", action="store_true", help="measure what the file holds, too")
    parser.add_argument("--list", action="store_true", help="print names only")
    parser.add_argument("--quiet", action="store_true", help="print no table")
    return parser.parse_args()


def _error(row: Row, size: int, error: Exception) -> dict[str, Any]:
    what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return {"name": row.name, "size": SIZES[size], "error": what}


def _wanted(options: argparse.Namespace) -> list[tuple[Row, int]]:
    return [
        (row, size)
        for row in ROWS
        for size, name in enumerate(SIZES)
        if re.search(options.only, row.name) and options.size in (None, name)
    ]


def main() -> None:
    """Measures what is wanted and not there yet; prints a Markdown table of it."""
    options = _options()
    wanted = _wanted(options)
    if options.list:
        print("\n".join(dict.fromkeys(row.name for row, _ in wanted)))
        return
    torch = None if options.no_torch else importlib.import_module("torch")
    path: Path = options.out
    found: dict[str, Any] = json.loads(path.read_text())["results"] if path.exists() else {}
    end = time.perf_counter() + options.seconds
    left = [(r, s) for r, s in wanted if options.again or f"{r.name}, {SIZES[s]}" not in found]
    versions = {"jax": jax.__version__, "torch": getattr(torch, "__version__", None)}
    with counted(enumerate(left), "operations measured") as rest:
        for number, (row, size) in rest:
            if time.perf_counter() > end:
                print(f"{len(left) - number} of {len(wanted)} left")
                break
            try:
                result = measure(row, size, torch, options.budget_s)
            except Exception as error:
                result = _error(row, size, error)
            found[f"{row.name}, {SIZES[size]}"] = result
            path.write_text(json.dumps({"versions": versions, "results": found}, indent=1))
            jax.clear_caches()
    names = [f"{row.name}, {SIZES[size]}" for row, size in wanted]
    if not options.quiet:
        print(table([found[name] for name in names if name in found]))


if __name__ == "__main__":
    sys.exit(ended(main))
