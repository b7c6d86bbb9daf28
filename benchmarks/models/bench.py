"""Whole models: XLA's default, graphopt, and PyTorch where it is installed, in turn in one process.

    python -m benchmarks models [--graphs mobilenet_v2 "regnet, step"] [--out report/bench]

Results go to ``models.json`` in the directory after every case; what is there is not measured again.
PyTorch is installed by hand (``pip install torch==2.13.0``).
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

import graphopt
from benchmarks.models.cases import CASES, Case
from benchmarks.progress import counted
from graphopt.measure import compare_outputs
from graphopt.measure.comparing.timing import summarise

BUDGET_S = 2.0
"""Seconds of timing per case."""
LEAST, MOST = 7, 61
"""Rounds."""


def measure(case: Case, torch: Any, budget_s: float = BUDGET_S) -> dict[str, Any]:
    """Times of one case: milliseconds, ratios with 95 % intervals, seconds to compile, equality."""
    weights, x = case.inputs()
    placed = jax.device_put((weights, x))
    default, wanted, default_s = _compiled(case, placed)
    graphopt.reset_report()
    graphopt.install(store=False)
    try:
        changed, found, changed_s = _compiled(case, placed)
    finally:
        forms = [str(use) for use in graphopt.report().forms]
        graphopt.uninstall()
    ways = {"default": default, "graphopt": changed}
    if torch is not None:
        ways["torch"] = case.by_torch(torch)
    times = _times(ways, budget_s)
    far = {"torch": _ratio(times["torch"], times["graphopt"])} if torch is not None else {}
    difference = compare_outputs(wanted, found)
    return {
        "ms": {way: round(1e3 * float(np.median(t)), 3) for way, t in times.items()},
        "default": _ratio(times["default"], times["graphopt"]),
        **far,
        "compile_s": [round(default_s, 2), round(changed_s, 2)],
        "equal": difference.equal,
        "relative": float(difference.relative),
        "torch_relative": _beside_torch(case, wanted, ways) if torch is not None else None,
        "forms": forms,
    }


def _compiled(case: Case, placed: Any) -> tuple[Callable[[], Any], Any, float]:
    jitted = jax.jit(lambda weights, x: case.by_jax(weights, x))
    start = time.perf_counter()
    result = jax.block_until_ready(jitted(*placed))
    elapsed = time.perf_counter() - start
    return lambda: jax.block_until_ready(jitted(*placed)), result, elapsed


def _beside_torch(case: Case, wanted: Any, ways: dict[str, Any]) -> float:
    """How far the result, or the loss, is from PyTorch's, over the largest value."""
    ours, theirs = wanted, ways["torch"]()
    if case.training:
        ours, theirs = ours[0], theirs[0]
    other, own = np.asarray(theirs.detach()), np.asarray(ours)
    if own.ndim > 2 and other.shape != own.shape:
        other = np.moveaxis(other, 1, -1)
    return float(np.max(np.abs(own - other)) / np.max(np.abs(own)))


def _times(ways: dict[str, Callable[[], Any]], budget_s: float) -> dict[str, Any]:
    """Seconds of every way in each round; the order turns from round to round."""
    samples: dict[str, list[float]] = {way: [] for way in ways}
    order, end = list(ways), time.perf_counter() + budget_s
    for number in range(MOST):
        if number >= LEAST and time.perf_counter() > end:
            break
        for way in order:
            ways[way]()  # caches, and threads of the library before
            start = time.perf_counter()
            ways[way]()
            samples[way].append(time.perf_counter() - start)
        order.append(order.pop(0))
    return {way: np.asarray(found) for way, found in samples.items()}


def _ratio(first: Any, second: Any) -> list[float]:
    found = summarise(np.stack([first, second], axis=1))
    return [round(found.speedup, 3), round(found.low, 3), round(found.high, 3)]


def table(found: dict[str, Any]) -> str:
    """Markdown, a row per case."""
    lines = [
        "| model | PyTorch ms | XLA's default | `install()` | over the default | over PyTorch | compile s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in found.items():
        ms, (ratio, low, high) = row["ms"], row["default"]
        torch = f"{row['torch'][0]:.2f}x" if "torch" in row else "-"
        before, after = row["compile_s"]
        lines.append(
            f"| {name} | {ms.get('torch', '-')} | {ms['default']} | {ms['graphopt']} | "
            f"{ratio:.2f} ({low:.2f}-{high:.2f}){'' if row['equal'] else ', NOT EQUAL'} | {torch} | "
            f"{before:.1f}, {after:.1f} |"
        )
    ratios = [row["default"][0] for row in found.values()]
    mean = float(np.exp(np.mean(np.log(ratios)))) if ratios else float("nan")
    over = [row["torch"][0] for row in found.values() if "torch" in row]
    beside = f"; {float(np.exp(np.mean(np.log(over)))):.2f}x of PyTorch" if over else ""
    return "\n".join([*lines, "", f"geometric mean {mean:.2f}x of the default{beside}"])


def bench_models(console: Console, out: Path, names: tuple[str, ...]) -> None:
    """Measures what is wanted and not there yet; prints a table of it.

    Args:
        console: where to print.
        out: directory of the results.
        names: parts of the names of cases, such as ``regnet`` or ``bert, step``; all without.
    """
    torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
    out.mkdir(parents=True, exist_ok=True)
    path = out / "models.json"
    found: dict[str, Any] = json.loads(path.read_text())["models"] if path.exists() else {}
    wanted = [c for c in CASES if not names or any(part in c.name for part in names)]
    with counted((c for c in wanted if c.name not in found), "models measured") as rest:
        for case in rest:
            found[case.name] = measure(case, torch)
            path.write_text(json.dumps({"jax": jax.__version__, "models": found}, indent=1))
            jax.clear_caches()
    rows = {case.name: found[case.name] for case in wanted if case.name in found}
    console.print(f"jax {jax.__version__}", highlight=False)
    print(table(rows))
