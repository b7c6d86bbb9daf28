"""Times the equations of a program on one device, with its real arguments."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding
from numpy.typing import NDArray

from graphopt.devices.runtime import compile_segment
from graphopt.devices.segments import Segment
from graphopt.placement.build import Traced
from graphopt.placement.times import TaskTimes

MAX_HEAVY: Final = 24
"""Equations timed one by one; those between them are timed together."""

REPEATS: Final = 3


def profile(
    traced: Traced, arguments: Sequence[Any], device: Any, times: TaskTimes, kind: int,
    overhead_s: float,
) -> TaskTimes:  # fmt: skip
    """Replaces one device kind's modelled times by measured ones.

    The program is run once, piece by piece: each of the equations that the model says are heaviest is a
    piece, and so is what lies between them. A piece's measured time is shared among its equations in the
    proportion of the model.

    Args:
        traced: the program.
        arguments: its flat arguments; real ones, so that loops end when they do in real life.
        device: jax device.
        times: modelled times.
        kind: column of `times` to replace.
        overhead_s: what starting a piece costs, to be left out.
    """
    alone, fused = times.alone.copy(), times.fused.copy()
    tasks = np.array(traced.equation_task, np.int64)
    values = (*traced.program.constants, *arguments)
    sharding = SingleDeviceSharding(device)
    env = {n: jax.device_put(v, sharding) for n, v in enumerate(values)}
    for number, piece in enumerate(_pieces(traced, alone[tasks, kind])):
        run = compile_segment(traced.program, piece, sharding, number)
        seconds = max(_timed(run, piece, env) - overhead_s, 1e-7)
        rows = tasks[[n for n in piece.equations if n not in traced.replicated]]
        if not len(rows):
            continue
        share = alone[rows, kind]
        total = float(share.sum())
        alone[rows, kind] = seconds * (share / total if total > 0 else 1.0 / len(rows))
        fused[rows, kind] = alone[rows, kind]
    return TaskTimes(alone, fused)


def _timed(run: Any, piece: Segment, env: dict[int, Any]) -> float:
    inputs = [env[v] for v in piece.inputs]
    best = np.inf
    for _ in range(REPEATS):
        start = time.perf_counter()
        results = run(*inputs)
        jax.block_until_ready(results)
        best = min(best, time.perf_counter() - start)
    env.update(zip(piece.outputs, results, strict=True))
    return float(best)


def _pieces(traced: Traced, seconds: NDArray[np.float64]) -> list[Segment]:
    """Heavy equations alone, the rest in runs between them, in program order."""
    equations = traced.program.equations
    cheap = seconds < 0.01 * seconds.sum()
    heavy = set(np.argsort(-np.where(cheap, 0.0, seconds))[:MAX_HEAVY].tolist())
    heavy -= set(np.flatnonzero(cheap).tolist())
    chunks: list[list[int]] = [[]]
    for number in range(len(equations)):
        if number in heavy:
            chunks += [[number], []]
        else:
            chunks[-1].append(number)
    last_use: dict[int, int] = {
        v: len(chunks) for v in traced.program.outputs if isinstance(v, int)
    }
    for index, chunk in enumerate(chunks):
        for number in chunk:
            last_use.update({v: max(index, last_use.get(v, 0)) for v in equations[number].used})
    pieces = []
    for index, chunk in enumerate(chunks):
        made = [v for n in chunk for v in equations[n].outputs]
        taken = sorted({v for n in chunk for v in equations[n].used} - set(made))
        outputs = tuple(v for v in made if last_use.get(v, -1) > index)
        if outputs:
            pieces.append(Segment(0, tuple(chunk), tuple(taken), outputs))
    return pieces
