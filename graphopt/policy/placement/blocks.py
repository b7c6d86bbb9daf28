"""What the placement policy sees: a graph as at most a few hundred blocks.

Axis letters: K blocks, D devices, T time bins, F features, N tasks, G groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphopt.placement.baselines import Placement, Problem
from graphopt.placement.search import blocks_of, to_blocks
from graphopt.placement.tasks import TaskKind

BINS: Final = 48
"""Time bins T of the ideal schedule."""

NODE_FEATURES: Final = 6

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BlockGraph:
    """Blocks in the order in which they are decided: by the middle of their work.

    Attributes:
        block: int64 [G]; block of every group, in that order.
        share: float32 [K, D]; seconds of the block on each device, relative to the mean block's.
        memory: float32 [K, D]; bytes of the block's values relative to the device's capacity.
        traffic: float32 [K, K]; symmetric; seconds to move what two blocks exchange, relative to the
            mean block's seconds.
        profile: float32 [K, T]; the block's work over the ideal schedule, relative to what one device
            can do in a bin; earliest start times with endless devices.
        node: float32 [K, F]; features of the block by itself (`NODE_FEATURES`).
    """

    block: NDArray[np.int64]
    share: NDArray[np.float32]
    memory: NDArray[np.float32]
    traffic: NDArray[np.float32]
    profile: NDArray[np.float32]
    node: NDArray[np.float32]

    def __len__(self) -> int:
        """Number of blocks K."""
        return len(self.share)

    def placement(self, problem: Problem, device: NDArray[np.integer[Any]]) -> Placement:
        """int16 [..., G] from a device per block, integer [..., K]."""
        return problem.masks.repair(device[..., self.block])

    def of_placement(self, problem: Problem, placement: Placement) -> NDArray[np.int16]:
        """int16 [K]: the device that holds most of each block's work; 0 for empty blocks."""
        weight = problem.group_seconds.mean(axis=1)
        found = to_blocks(placement, self.block, weight, problem.devices)
        return np.pad(found, (0, len(self) - len(found)))


def block_graph(problem: Problem, count: int = 96) -> BlockGraph:
    """The blocks of a problem: `count` of them, the last ones empty if there are fewer groups."""
    tasks, cluster = problem.simulator.tasks, problem.simulator.cluster
    seconds = problem.simulator.times.alone.mean(axis=1)
    begin, makespan = _earliest(problem, seconds)
    middle = (begin + seconds / 2) / makespan
    block = _ordered(problem, blocks_of(problem, count), middle, seconds)
    blocks = count  # blocks without work fill up: one compiled network for all graphs
    owner = block[tasks.group]
    per_device = np.zeros((blocks, problem.devices))
    np.add.at(per_device, block, problem.group_seconds)
    unit = max(float(per_device.mean()), 1e-30)  # of `count` blocks, empty ones included
    held = np.where(tasks.is_input, 0, tasks.nbytes)
    nbytes = np.bincount(owner, held, blocks).astype(np.float64)
    profile = np.zeros((blocks, BINS))
    np.add.at(profile, (owner, np.minimum((middle * BINS).astype(int), BINS - 1)), seconds)
    traffic = _traffic(problem, owner, blocks) / unit
    node = _features(per_device.mean(1) / unit, nbytes, traffic, profile)
    return BlockGraph(
        block,
        (per_device / unit).astype(np.float32),
        (nbytes[:, None] / cluster.memory_bytes[None]).astype(np.float32),
        traffic.astype(np.float32),
        (profile / max(makespan / BINS, 1e-30)).astype(np.float32),
        node.astype(np.float32),
    )


def _earliest(problem: Problem, seconds: Floats) -> tuple[Floats, float]:
    """float64 [N]: start of every task with endless devices and free transfers; and the last end."""
    begin = [0.0] * len(seconds)
    cost = seconds.tolist()
    for task, operands in enumerate(problem.simulator.tasks.operand_lists):
        begin[task] = max((begin[o] + cost[o] for o in operands), default=0.0)
    start = np.array(begin)
    return start, max(float((start + seconds).max(initial=0.0)), 1e-30)


def _ordered(
    problem: Problem, block: NDArray[np.int64], middle: Floats, seconds: Floats
) -> NDArray[np.int64]:
    tasks = problem.simulator.tasks
    owner, weight = block[tasks.group], seconds + 1e-12
    mean = np.bincount(owner, middle * weight) / np.maximum(np.bincount(owner, weight), 1e-30)
    present = np.unique(block)
    rank = np.zeros(int(block.max()) + 1, np.int64)
    rank[present[np.argsort(mean[present], kind="stable")]] = np.arange(len(present))
    ordered: NDArray[np.int64] = rank[block]
    return ordered


def _traffic(problem: Problem, owner: NDArray[np.int64], blocks: int) -> Floats:
    """float64 [K, K]: each value counts once per block that takes it."""
    tasks, cluster = problem.simulator.tasks, problem.simulator.cluster
    source, target = tasks.operands, owner[tasks.consumer]
    moving = (tasks.kind[source] != TaskKind.WEIGHT) & (owner[source] != target)
    pairs = np.unique(source[moving].astype(np.int64) * blocks + target[moving])
    value, to = pairs // blocks, pairs % blocks
    away = ~np.eye(len(cluster), dtype=bool)
    latency = float(cluster.latency_s[away].mean()) if away.any() else 0.0
    rate = float(cluster.bytes_per_s[away].mean()) if away.any() else 1.0
    out = np.zeros((blocks, blocks))
    np.add.at(out, (owner[value], to), latency + tasks.nbytes[value] / rate)
    return out + out.T


def _features(share: Floats, nbytes: Floats, traffic: Floats, profile: Floats) -> Floats:
    count = len(share)
    work = profile / np.maximum(profile.sum(axis=1, keepdims=True), 1e-30)
    bins = np.arange(BINS) / BINS
    middle = work @ bins
    spread = np.sqrt(np.maximum(work @ bins**2 - middle**2, 0.0))
    return np.stack(
        [
            np.log1p(share),
            np.log1p(traffic.sum(axis=1)),
            nbytes / max(float(nbytes.sum()), 1.0) * count,
            middle,
            spread,
            np.arange(count) / max(1, count - 1),
        ],
        axis=1,
    )
