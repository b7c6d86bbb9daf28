"""Classical placements: what a learned one has to beat.

Every function takes a `Problem` and returns int16 [G], inside the masks. Axis letters: N tasks,
G groups, D devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.placement.masks import DeviceMasks, device_masks
from graphopt.placement.order import upward_rank
from graphopt.placement.partition import partition
from graphopt.placement.simulator import Simulator
from graphopt.placement.tasks import TaskKind

Placement = NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class Problem:
    """One graph to be placed on one cluster.

    Attributes:
        simulator: scores placements; holds the graph, the machine and the times.
    """

    simulator: Simulator

    @cached_property
    def masks(self) -> DeviceMasks:
        """Legal devices of every group."""
        return device_masks(self.simulator.tasks, self.simulator.cluster)

    @property
    def groups(self) -> int:
        """Number of groups G."""
        return self.simulator.tasks.groups

    @property
    def devices(self) -> int:
        """Number of devices D."""
        return len(self.simulator.cluster)

    @cached_property
    def group_seconds(self) -> NDArray[np.float64]:
        """float64 [G, D]; seconds of each group on each device."""
        per_task = self.simulator.times.alone[:, self.simulator.cluster.kind]
        out = np.zeros((self.groups, self.devices))
        np.add.at(out, self.simulator.tasks.group, per_task)
        return out

    def from_tasks(self, device: NDArray[np.int64]) -> Placement:
        """Groups go where their first computing task goes; then the masks apply."""
        tasks = self.simulator.tasks
        placement = np.zeros(self.groups, np.int64)
        computing = np.flatnonzero(tasks.kind == TaskKind.COMPUTE)[::-1]
        placement[tasks.group[computing]] = device[computing]
        return self.masks.repair(placement)


def single_device(problem: Problem) -> Placement:
    """Everything on the one device where it is fastest."""
    best = int(problem.group_seconds.sum(axis=0).argmin())
    return problem.masks.repair(np.full(problem.groups, best))


def _layers(problem: Problem) -> NDArray[np.int64]:
    """int64 [N]: the model's own layers, or as many slices of equal time as there are devices."""
    tasks = problem.simulator.tasks
    if tasks.layer.max(initial=-1) > 0:
        return tasks.layer.astype(np.int64)
    return _slices(problem, 4 * problem.devices)


def _slices(problem: Problem, count: int) -> NDArray[np.int64]:
    """int64 [N]: program order cut into `count` slices of equal time."""
    seconds = problem.simulator.times.alone.mean(axis=1)
    done = np.cumsum(seconds) - seconds / 2
    total = max(float(seconds.sum()), 1e-30)
    slices: NDArray[np.int64] = np.minimum((done / total * count).astype(np.int64), count - 1)
    return slices


def round_robin(problem: Problem) -> Placement:
    """Layer l on device l modulo D."""
    return problem.from_tasks(_layers(problem) % problem.devices)


def human(problem: Problem) -> Placement:
    """What people do with these models: consecutive layers, split evenly over the devices."""
    layers = _layers(problem)
    count = int(layers.max(initial=0)) + 1
    return problem.from_tasks(layers * problem.devices // count)


def equal_slices(problem: Problem) -> Placement:
    """Program order cut into one slice of equal time per device."""
    return problem.from_tasks(_slices(problem, problem.devices))


def minimum_cut(problem: Problem) -> Placement:
    """Few bytes between devices at balanced work, by multilevel recursive bisection."""
    tasks = problem.simulator.tasks
    weight = problem.group_seconds.mean(axis=1)
    source, target = tasks.group[tasks.operands], tasks.group[tasks.consumer]
    moving = ~tasks.is_input[tasks.operands] & (source != target)
    latency = problem.simulator.cluster.latency_s.max()
    rate = problem.simulator.cluster.bytes_per_s.min()
    cost = latency + tasks.nbytes[tasks.operands] / rate
    parts = partition(weight, source[moving], target[moving], cost[moving], problem.devices)
    return problem.masks.repair(parts)


def earliest_finish(problem: Problem) -> Placement:
    """HEFT (Topcuoglu et al. 2002): by falling rank, each group to where it finishes first.

    Transfers occupy the sender's port, as in the simulator; a full device is the last choice.
    """
    tasks, cluster = problem.simulator.tasks, problem.simulator.cluster
    state = _ListState(problem)
    allowed = problem.masks.allowed.tolist()
    placement = [-1] * problem.groups
    kinds, group = tasks.kind.tolist(), tasks.group.tolist()
    memory = cluster.memory_bytes.tolist()
    for task in problem.simulator.order.tolist():
        if kinds[task] in (TaskKind.WEIGHT, TaskKind.INPUT):
            state.home(task)
            continue
        here = placement[group[task]]
        if here < 0:
            choices = [d for d in range(problem.devices) if allowed[group[task]][d]]
            fitting = [d for d in choices if state.used[d] + state.nbytes[task] <= memory[d]]
            here = min(fitting or choices, key=lambda d: state.finish(task, d))
            placement[group[task]] = here
        state.run(task, here)
    return problem.masks.repair(np.maximum(np.array(placement), 0))


class _ListState:
    """Devices, ports and values while a list scheduler goes through the tasks."""

    def __init__(self, problem: Problem) -> None:
        tasks, cluster = problem.simulator.tasks, problem.simulator.cluster
        self.operands = tasks.operand_lists
        seconds = problem.simulator.times.alone[:, cluster.kind]
        self.seconds: list[list[float]] = seconds.tolist()
        self.computes = (tasks.kind == TaskKind.COMPUTE).tolist()
        self.nbytes: list[int] = tasks.nbytes.tolist()
        self.weight = (tasks.kind == TaskKind.WEIGHT).tolist()
        self.latency: list[list[float]] = cluster.latency_s.tolist()
        self.per_byte: list[list[float]] = (1.0 / cluster.bytes_per_s).tolist()
        self.free = [0.0] * problem.devices
        self.port = [0.0] * problem.devices
        self.used = [0.0] * problem.devices
        self.made_on = [0] * len(tasks)
        self.done = [0.0] * len(tasks)
        self.arrived: list[dict[int, float]] = [{} for _ in range(len(tasks))]

    def home(self, task: int) -> None:
        """An argument, on device 0 from the start."""
        self.arrived[task][0] = 0.0

    def arrival(self, value: int, device: int) -> float:
        """When a value can be on a device."""
        if self.weight[value]:
            return 0.0
        known = self.arrived[value].get(device)
        if known is not None:
            return known
        source = self.made_on[value]
        start = max(self.port[source], self.done[value])
        wire = self.nbytes[value] * self.per_byte[source][device]
        return start + wire + self.latency[source][device]

    def finish(self, task: int, device: int) -> float:
        """When a task would be done there."""
        ready = max((self.arrival(o, device) for o in self.operands[task]), default=0.0)
        if self.computes[task]:
            ready = max(ready, self.free[device])
        return ready + self.seconds[task][device]

    def run(self, task: int, device: int) -> None:
        """Puts a task there, and its operands on the way."""
        end = self.finish(task, device)
        for value in self.operands[task]:
            if device not in self.arrived[value] and not self.weight[value]:
                source = self.made_on[value]
                arrived = self.arrival(value, device)
                self.arrived[value][device] = arrived
                self.port[source] = arrived - self.latency[source][device]
        if self.computes[task]:
            self.free[device] = end
        self.made_on[task], self.done[task] = device, end
        self.arrived[task][device] = end
        self.used[device] += self.nbytes[task]


def critical_path(problem: Problem) -> Placement:
    """The longest path on the fastest device, the rest by HEFT's rule given that."""
    simulator = problem.simulator
    rank = upward_rank(simulator.tasks, simulator.times.alone.mean(axis=1))
    first = earliest_finish(problem)
    path = set()
    node = int(np.argmax(rank))
    users: dict[int, list[int]] = {}
    for operand, consumer in zip(
        simulator.tasks.operands.tolist(), simulator.tasks.consumer.tolist(), strict=True
    ):
        users.setdefault(operand, []).append(consumer)
    while True:
        path.add(int(simulator.tasks.group[node]))
        following = users.get(node)
        if not following:
            break
        node = max(following, key=lambda n: float(rank[n]))
    placement = first.astype(np.int64)
    best = int(problem.group_seconds.sum(axis=0).argmin())
    placement[list(path)] = best
    return problem.masks.repair(placement)


BASELINES: Final[dict[str, Callable[[Problem], Placement]]] = {
    "single device": single_device,
    "round robin": round_robin,
    "human": human,
    "equal slices": equal_slices,
    "minimum cut": minimum_cut,
    "HEFT": earliest_finish,
    "critical path": critical_path,
}
"""Placements that need no search, by name."""
