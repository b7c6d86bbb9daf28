"""The simulator's model as a plain loop over tasks: the reference, and the source of timelines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphopt.placement.cluster import NO_POOL
from graphopt.placement.simulator import Simulator
from graphopt.placement.tasks import TaskKind


@dataclass(frozen=True)
class Event:
    """Something that occupied a device or a link.

    Attributes:
        start_s: seconds since the start of the step.
        end_s: likewise.
        device: device that computes or sends.
        to: receiving device of a transfer; None for a computation.
        label: what it is.
        nbytes: bytes of a transfer; 0 for a computation.
    """

    start_s: float
    end_s: float
    device: int
    to: int | None
    label: str
    nbytes: int = 0


def run_event_loop(
    simulator: Simulator, placement: NDArray[np.integer[Any]]
) -> tuple[float, list[Event]]:
    """Step time in seconds and all events of one placement, integer [G]."""
    tasks, cluster = simulator.tasks, simulator.cluster
    device_row = simulator.devices_of(placement[None])
    fused = simulator.fused(device_row, None)
    cost = simulator.task_seconds(device_row, fused)[0].tolist()
    device = device_row[0].tolist()
    needed: list[set[int]] = [set() for _ in range(len(tasks))]
    for operand, consumer in zip(tasks.operands.tolist(), tasks.consumer.tolist(), strict=True):
        needed[operand].add(device[consumer])
    latency, rate = cluster.latency_s.tolist(), cluster.bytes_per_s.tolist()
    free = [0.0] * len(cluster)
    port = [0.0] * len(cluster)
    pool = end = 0.0
    arrival: list[dict[int, float]] = [{} for _ in range(len(tasks))]
    events = []
    kinds, nbytes, parallel = tasks.kind.tolist(), tasks.nbytes.tolist(), tasks.parallel.tolist()
    for task in simulator.order.tolist():
        here = device[task]
        begin = max((arrival[o].get(here, 0.0) for o in tasks.operand_lists[task]), default=0.0)
        shares = parallel[task] and cluster.pool[here] != NO_POOL
        if kinds[task] == TaskKind.COMPUTE:
            begin = max(begin, free[here], pool if shares else 0.0)
        finish = begin + cost[task]
        if kinds[task] == TaskKind.COMPUTE:
            free[here] = finish
            if cost[task] > 0:
                events.append(Event(begin, finish, here, None, _label(simulator, task)))
        pool = finish if shares else pool
        end = max(end, finish)
        arrival[task][here] = finish
        for there in sorted(needed[task] - {here}):
            if kinds[task] == TaskKind.WEIGHT:
                arrival[task][there] = 0.0
                continue
            sending = max(port[here], finish)
            sent = sending + nbytes[task] / rate[here][there]
            port[here] = sent
            arrival[task][there] = sent + latency[here][there]
            events.append(
                Event(sending, arrival[task][there], here, there, _label(simulator, task),
                      nbytes[task])
            )  # fmt: skip
    return end, events


def _label(simulator: Simulator, task: int) -> str:
    return f"{simulator.tasks.op_names[simulator.tasks.op[task]]} {task}"
