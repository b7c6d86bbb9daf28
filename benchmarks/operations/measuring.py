"""One operation, measured: XLA's default, graphopt, and the other library, in turn."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np

import graphopt
from benchmarks.operations.row import SIZES, Row
from graphopt.measure.comparing.numeric import compare_outputs
from graphopt.measure.comparing.timing import summarise

SAMPLE_S: Final = 2e-3
"""One sample repeats a fast operation until it takes about so long."""
ROUNDS: Final = 31
LEAST: Final = 7
"""So many rounds are always taken."""


def measure(row: Row, size: int, torch: Any, budget_s: float) -> dict[str, Any]:
    """Times of one operation at one size.

    Args:
        row: the operation.
        size: position in `SIZES`.
        torch: the module; None leaves the other library out where it is PyTorch.
        budget_s: seconds of timing, warm-up not counted.

    Returns:
        microseconds of each way, the ratios default / graphopt and other / graphopt with 95 %
        intervals, seconds to compile, and how far graphopt's results are from the default's.
    """
    arrays = row.inputs[size](np.random.default_rng(0))
    with jax.enable_x64(any(a.dtype.itemsize == 8 for a in arrays)):
        placed = [jax.device_put(a) for a in arrays]
        default, first, default_s = _compiled(row.jax, placed)
        graphopt.reset_report()
        graphopt.install(store=False)
        try:
            new, second, new_s = _compiled(row.jax, placed)
        finally:
            forms = [str(use) for use in getattr(graphopt.report(), "forms", ())]
            graphopt.uninstall()
        ways = {"default": default, "graphopt": new}
        other = _other(row, arrays, torch)
        if other is not None:
            ways["other"] = other
        difference = compare_outputs(first, second)
        times = _times(ways, budget_s)
    return {
        "name": row.name,
        "size": SIZES[size],
        "shapes": ", ".join(f"{a.dtype}{list(a.shape)}" for a in arrays),
        "library": "torch" if row.torch is not None else "numpy",
        "us": {way: round(1e6 * float(np.median(times[way])), 2) for way in ways},
        "default/graphopt": _ratio(times["default"], times["graphopt"]),
        **({"other/graphopt": _ratio(times["other"], times["graphopt"])} if other else {}),
        "compile_s": {"default": round(default_s, 3), "graphopt": round(new_s, 3)},
        "forms": forms,
        "relative": difference.relative if np.isfinite(difference.relative) else "inf",
        "equal": bool(difference.equal or not row.compared),
    }


def _compiled(fn: Callable[..., Any], placed: list[Any]) -> tuple[Callable[[], Any], Any, float]:
    """The operation compiled as things are installed: (runs once and waits, its result, seconds)."""
    jitted = jax.jit(lambda *a: fn(*a))
    start = time.perf_counter()
    result = jax.block_until_ready(jitted(*placed))
    elapsed = time.perf_counter() - start
    return lambda: jax.block_until_ready(jitted(*placed)), result, elapsed


def _other(row: Row, arrays: Any, torch: Any) -> Callable[[], Any] | None:
    """The same by PyTorch, or by NumPy where PyTorch has none."""
    if row.torch is None and row.numpy is not None:
        by_numpy = row.numpy
        return lambda: by_numpy(*arrays)
    if row.torch is None or torch is None:
        return None
    by_torch = row.torch
    tensors = [torch.from_numpy(np.array(a)) for a in row.arranged(*arrays)]
    return lambda: by_torch(torch, *tensors)


def _times(ways: dict[str, Callable[[], Any]], budget_s: float) -> dict[str, np.ndarray[Any, Any]]:
    """Seconds per call of every way in each round; the order turns from round to round."""
    repeats = {way: _repeats(run) for way, run in ways.items()}
    order = list(ways)
    samples: dict[str, list[float]] = {way: [] for way in ways}
    end = time.perf_counter() + budget_s
    gc.disable()
    try:
        for number in range(ROUNDS):
            if number >= LEAST and time.perf_counter() > end:
                break
            for way in order:
                ways[way]()  # threads of the library before may still spin
                start = time.perf_counter()
                for _ in range(repeats[way]):
                    ways[way]()
                samples[way].append((time.perf_counter() - start) / repeats[way])
            order.append(order.pop(0))
    finally:
        gc.enable()
    return {way: np.asarray(found) for way, found in samples.items()}


def _repeats(run: Callable[[], Any]) -> int:
    run()
    start = time.perf_counter()
    run()
    return max(1, min(500, int(SAMPLE_S / max(1e-7, time.perf_counter() - start))))


def _ratio(first: Any, second: Any) -> list[float]:
    """Median of the ratios round by round, with its 95 % interval."""
    found = summarise(np.stack([first, second], axis=1))
    return [round(found.speedup, 3), round(found.low, 3), round(found.high, 3)]
