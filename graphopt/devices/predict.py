"""Step time of a cut program: what the runtime does, replayed against the machine model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphopt.devices.segments import Cut, Segment
from graphopt.placement.build import Traced
from graphopt.placement.cluster import NO_POOL, Cluster
from graphopt.placement.event_loop import Event
from graphopt.placement.times import TaskTimes
from graphopt.placement.work import aval_bytes


@dataclass(frozen=True)
class Prediction:
    """Predicted run of a cut program.

    Attributes:
        seconds: of one step, from the call to the last result at home.
        events: what ran where and when, transfers included.
    """

    seconds: float
    events: tuple[Event, ...]


def predict(traced: Traced, program: Cut, cluster: Cluster, times: TaskTimes) -> Prediction:
    """Replays a cut: the host starts segments one by one, each waits for its device and inputs.

    Kernels that use all cores of a host take turns. Arguments are where they are needed.
    """
    tasks = np.array(traced.equation_task)
    seconds, parallel = times.alone[tasks], traced.tasks.parallel[tasks]
    free = [0.0] * len(cluster)
    pool = host = end = 0.0
    arrival: dict[tuple[int, int], float] = {}
    events: list[Event] = []
    for number, segment in enumerate(program.segments):
        device, kind = segment.device, int(cluster.kind[segment.device])
        host += cluster.dispatch_s
        total, shared = _cost(segment, seconds[:, kind], parallel)
        total += _border_bytes(traced, segment) / cluster.kinds[kind].bytes_per_s
        ready = max((arrival.get((v, device), 0.0) for v in segment.inputs), default=0.0)
        begin = max(host, free[device], ready)
        finish = begin + total
        if shared > 0 and cluster.pool[device] != NO_POOL:
            pool = max(pool, begin) + shared
            finish = max(finish, pool)
        free[device] = finish
        arrival.update(dict.fromkeys(((v, device) for v in segment.outputs), finish))
        events.append(Event(begin, finish, device, None, f"segment {number}"))
        for there, values in segment.sends:
            host += cluster.copy_dispatch_s * len(values)
            nbytes = sum(aval_bytes(traced.program.avals[v]) for v in values)
            sent = max(finish, host)
            arrived = sent + float(
                cluster.latency_s[device, there] + nbytes / cluster.bytes_per_s[device, there]
            )
            arrival.update(dict.fromkeys(((v, there) for v in values), arrived))
            events.append(Event(sent, arrived, device, there, f"{len(values)} values", nbytes))
            end = max(end, arrived)
        end = max(end, finish)
    return Prediction(end, tuple(events))


def _cost(
    segment: Segment, seconds: NDArray[np.float64], parallel: NDArray[np.bool_]
) -> tuple[float, float]:
    """Seconds of a segment, and the part of them that uses all cores."""
    numbers = np.array(segment.equations, np.int64)
    total = seconds[numbers]
    return float(total.sum()), float(total[parallel[numbers]].sum())


def _border_bytes(traced: Traced, segment: Segment) -> int:
    """Bytes that are written or read only because the program is cut there."""
    avals, arguments = traced.program.avals, traced.program.inputs
    values = [v for v in segment.inputs if v >= arguments]
    return sum(aval_bytes(avals[v]) for v in (*values, *segment.outputs))


def equation_seconds(traced: Traced, times: TaskTimes, kind: int) -> Sequence[float]:
    """Seconds of every equation on one kind of device."""
    found: list[float] = times.alone[np.array(traced.equation_task, np.int64), kind].tolist()
    return found
