"""Seconds per task and device kind, from work and the machine description.

Axis letters: N tasks, K device kinds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import ConfigError
from graphopt.placement.cluster import Cluster
from graphopt.placement.tasks import TaskGraph, TaskKind


@dataclass(frozen=True, eq=False)
class TaskTimes:
    """What each task costs on each kind of device.

    Attributes:
        alone: float64 [N, K]; seconds when the value is written to memory.
        fused: float64 [N, K]; seconds when it is computed inside its consumers, on their device.
    """

    alone: NDArray[np.float64]
    fused: NDArray[np.float64]

    def __post_init__(self) -> None:
        """Checks that both arrays fit each other and hold times.

        Raises:
            ConfigError: shapes differ, or an entry is negative or not finite.
        """
        if self.alone.ndim != 2 or self.alone.shape != self.fused.shape:
            raise _bad(f"shapes {self.alone.shape} and {self.fused.shape}, wanted [N, K] twice")
        for part in (self.alone, self.fused):
            if not np.isfinite(part).all() or (part < 0).any():
                raise _bad("times must be finite and not negative")

    def with_measured(self, tasks: NDArray[np.int64], seconds: NDArray[np.float64]) -> TaskTimes:
        """These times with some tasks' rows replaced: int [M] and float64 [M, K]."""
        alone, fused = self.alone.copy(), self.fused.copy()
        alone[tasks] = seconds
        fused[tasks] = np.minimum(fused[tasks], seconds)
        return TaskTimes(alone, fused)


def analytic_times(tasks: TaskGraph, cluster: Cluster) -> TaskTimes:
    """Roofline: arithmetic or memory, whichever is slower, plus what starting kernels costs.

    Views and arguments take no time. An operation without traffic is folded into its consumers.
    """
    busy = (tasks.kind == TaskKind.COMPUTE) & (tasks.traffic + tasks.flops + tasks.launches > 0)
    alone = np.zeros((len(tasks), len(cluster.kinds)))
    fused = np.zeros_like(alone)
    for k, kind in enumerate(cluster.kinds):
        rate, width = kind.flops_per_s * kind.efficiency, kind.bytes_per_s * kind.efficiency
        launch = np.where(tasks.launches > 0, tasks.launches * kind.loop_launch_s, kind.launch_s)
        work = tasks.flops / rate
        alone[:, k] = np.where(busy, np.maximum(work, tasks.traffic / width) + launch, 0.0)
        inside = np.maximum(work, tasks.fused_traffic / width)
        fused[:, k] = np.where(tasks.fusible, np.minimum(inside, alone[:, k]), alone[:, k])
    return TaskTimes(alone, fused)


def default_fuse(tasks: TaskGraph) -> NDArray[np.bool_]:
    """bool [N]; XLA's habit: a fusible value with one consumer is computed inside it."""
    uses = np.bincount(tasks.operands, minlength=len(tasks))
    chosen: NDArray[np.bool_] = tasks.fusible & (uses == 1) & ~tasks.output
    return chosen


def _bad(what: str) -> ConfigError:
    return ConfigError(what=what, where="TaskTimes", fix="Pass one time per task and device kind.")
