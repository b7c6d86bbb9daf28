"""Scores many placements of one graph at once: list scheduling in a fixed order, with transfers.

The model. Each device runs its tasks one after another in the order of `Simulator.order`. A task
starts when its device is free and its operands have arrived. A value goes to every device that needs
it once, as soon as it exists; each ordered pair of devices has one link, which carries one value at
a time. Kernels that use all cores of a host exclude each other (`Cluster.pool`). Weights are where
they are needed from the start. A value lives on a device from its place in the order to that of its
last consumer there; results of the program and arguments live for ever.

Axis letters: B placements, N tasks, D devices, P operands per row, G groups, K kinds.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from graphopt.errors import ConfigError, DecisionError
from graphopt.placement.cluster import NO_POOL, Cluster
from graphopt.placement.memory import peak_memory
from graphopt.placement.order import priority_order
from graphopt.placement.rows import Rows, make_rows
from graphopt.placement.tasks import TaskGraph, TaskKind
from graphopt.placement.times import TaskTimes, analytic_times, default_fuse

MAX_STATE_BYTES: Final = 256 * 1024 * 1024
"""Arrival times of one chunk of placements stay below this."""


@dataclass(frozen=True, eq=False)
class PlacementScores:
    """Outcome of B placements.

    Attributes:
        seconds: float64 [B]; step time; NaN where the placement does not fit in memory.
        unlimited_s: float64 [B]; step time as if memory did not matter.
        peak_bytes: float64 [B, D]; largest memory in use on each device.
        reasons: B entries; ``out of memory on p100:0: ...``, or None.
    """

    seconds: NDArray[np.float64]
    unlimited_s: NDArray[np.float64]
    peak_bytes: NDArray[np.float64]
    reasons: tuple[str | None, ...]


class Simulator:
    """Step times of placements of one graph on one cluster. Deterministic.

    Args:
        tasks: the graph.
        cluster: the machine.
        times: seconds per task and kind; None: `analytic_times`.
        order: int32 [N], a topological order; None: longest remaining path first.
        fuse: bool [N]; which values are computed inside their consumers where all of these are on
            the same device; None: `default_fuse`.

    Raises:
        ConfigError: times or order do not fit the graph.
    """

    def __init__(
        self,
        tasks: TaskGraph,
        cluster: Cluster,
        times: TaskTimes | None = None,
        *,
        order: NDArray[np.int32] | None = None,
        fuse: NDArray[np.bool_] | None = None,
    ) -> None:
        self.tasks = tasks
        self.cluster = cluster
        self.times = analytic_times(tasks, cluster) if times is None else times
        if self.times.alone.shape != (len(tasks), len(cluster.kinds)):
            raise _bad(f"times of shape {self.times.alone.shape} for {tasks} on {cluster}")
        self.order = priority_order(tasks, self.times.alone.mean(1)) if order is None else order
        if len(self.order) != len(tasks):
            raise _bad(f"an order of {len(self.order)} entries for {len(tasks)} tasks")
        self.fuse = default_fuse(tasks) if fuse is None else fuse
        self.evaluations = 0

    @cached_property
    def _rows(self) -> Rows:
        return make_rows(self.tasks, self.order)

    @cached_property
    def _fixed(self) -> dict[str, Any]:
        """Arrays that do not depend on the placement, padded and on the default device."""
        rows, tasks, cluster = self._rows, self.tasks, self.cluster
        pad = rows.length - len(rows.task)
        real = rows.task
        parallel = tasks.parallel[real] & rows.final
        present = (tasks.kind[real] == TaskKind.WEIGHT) & rows.final
        return {
            "operands": jnp.asarray(rows.operands),
            "nbytes": jnp.asarray(np.pad(np.where(rows.final, tasks.nbytes[real], 0), (0, pad))
                                  .astype(np.float32)),
            "occupies": jnp.asarray(np.pad(
                (tasks.kind[real] == TaskKind.COMPUTE) & rows.final, (0, pad))),
            "parallel": jnp.asarray(np.pad(parallel, (0, pad))),
            "present": jnp.asarray(np.pad(present, (0, pad))),
            "latency": jnp.asarray(cluster.latency_s, jnp.float32),
            "seconds_per_byte": jnp.asarray(
                np.where(np.eye(len(cluster), dtype=bool), 0.0, 1.0 / cluster.bytes_per_s),
                jnp.float32),
            "pooled": jnp.asarray(cluster.pool != NO_POOL),
        }  # fmt: skip

    def devices_of(self, placements: NDArray[np.integer[Any]]) -> NDArray[np.int16]:
        """int16 [B, N]: the device of every task, from one device per group [B, G].

        Raises:
            DecisionError: wrong shape, or a device that does not exist.
        """
        if placements.ndim != 2 or placements.shape[1] != self.tasks.groups:
            raise _not_a_placement(f"shape {placements.shape}, wanted [B, {self.tasks.groups}]")
        if placements.size and (placements.min() < 0 or placements.max() >= len(self.cluster)):
            raise _not_a_placement(f"a device outside 0..{len(self.cluster) - 1}")
        return placements.astype(np.int16)[:, self.tasks.group]

    def score(
        self,
        placements: NDArray[np.integer[Any]],
        fuse: NDArray[np.bool_] | None = None,
    ) -> PlacementScores:
        """Step times and peak memory of B placements.

        Args:
            placements: integer [B, G]; device of every colocation group.
            fuse: bool [B, N]; fuse decisions per placement; None: the simulator's own for all.

        Raises:
            DecisionError: a placement has the wrong shape or names a device that does not exist.
        """
        device = self.devices_of(placements)
        count, chunk = len(device), self._chunk(len(device))
        self.evaluations += count
        seconds = np.empty(count)
        peak = np.empty((count, len(self.cluster)))
        # numpy and compiled code both let go of the interpreter
        with ThreadPoolExecutor(1) as beside:
            for start in range(0, count, chunk):
                part = device[start : start + chunk]
                choice = None if fuse is None else fuse[start : start + chunk]
                fused = self.fused(part, choice)
                memory = beside.submit(
                    peak_memory, self.tasks, self.order, part, fused, len(self.cluster)
                )
                seconds[start : start + chunk] = self._makespan(part, fused, chunk)
                peak[start : start + chunk] = memory.result()
        return self._judge(seconds, peak)

    def fused(
        self, device: NDArray[np.int16], choice: NDArray[np.bool_] | None
    ) -> NDArray[np.bool_]:
        """bool [B, N]: chosen to be fused, and all consumers on the same device."""
        tasks = self.tasks
        away = np.zeros(device.shape, np.bool_)
        cut = device[:, tasks.consumer] != device[:, tasks.operands]
        row, edge = np.nonzero(cut)
        away[row, tasks.operands[edge]] = True
        return (self.fuse if choice is None else choice & tasks.fusible & ~tasks.output) & ~away

    def task_seconds(
        self, device: NDArray[np.int16], fused: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """float64 [B, N]: seconds of every task where it is placed."""
        kind = self.cluster.kind[device]
        nodes = np.arange(len(self.tasks))
        repeats = np.maximum(np.bincount(self.tasks.operands, minlength=len(nodes)), 1)
        inside = self.times.fused[nodes, kind] * repeats
        return np.where(fused, inside, self.times.alone[nodes, kind])

    def _chunk(self, count: int) -> int:
        per_placement = self._rows.length * len(self.cluster) * 8
        limit = max(1, MAX_STATE_BYTES // per_placement)
        size = 1 << max(0, min(count, limit, 512) - 1).bit_length()
        return max(1, size // 2 if size > limit else size)

    def _makespan(
        self, device: NDArray[np.int16], fused: NDArray[np.bool_], width: int
    ) -> NDArray[np.float64]:
        rows, count, devices = self._rows, len(device), len(self.cluster)
        used = np.zeros((len(self.tasks), devices, width), np.bool_)
        for b in range(count):
            used[self.tasks.operands, device[b, self.tasks.consumer], b] = True
        placed = np.zeros((rows.length, width), np.int8)
        placed[: len(rows.task), :count] = device.T[rows.task]
        seconds = np.zeros((rows.length, width), np.float32)
        costs = self.task_seconds(device, fused).T[rows.task]
        seconds[: len(rows.task), :count] = np.where(rows.final[:, None], costs, 0.0)
        needed = np.zeros((rows.length, devices, width), np.bool_)
        needed[: len(rows.task)] = used[rows.task] & rows.final[:, None, None]
        result = _schedule(**self._fixed, placed=placed, seconds=seconds, needed=needed)
        return np.asarray(result, np.float64)[:count]

    def _judge(self, seconds: NDArray[np.float64], peak: NDArray[np.float64]) -> PlacementScores:
        over = peak > self.cluster.memory_bytes
        reasons: list[str | None] = []
        for b in range(len(seconds)):
            worst = np.flatnonzero(over[b])
            reasons.append(None if not len(worst) else self._complaint(int(worst[0]), peak[b]))
        legal = np.where(over.any(1), np.nan, seconds)
        return PlacementScores(legal, seconds, peak, tuple(reasons))

    def _complaint(self, device: int, peak: NDArray[np.float64]) -> str:
        size = self.cluster.memory_bytes[device]
        name = self.cluster.device_name(device)
        return f"out of memory on {name}: needs {peak[device] / 1e9:.2f} GB of {size / 1e9:.2f} GB"


@jax.jit
def _schedule(
    operands: Any, nbytes: Any, occupies: Any, parallel: Any, present: Any, latency: Any,
    seconds_per_byte: Any, pooled: Any, placed: Any, seconds: Any, needed: Any,
) -> Any:  # fmt: skip
    """f32 [B]: step times. Rows R are in schedule order; operands i32 [R, P] name earlier rows.

    The state is the arrival time of every row's value on every device, f32 [R + 1, D, B]; the last
    row stands for no operand and stays 0.
    """
    rows, devices, width = needed.shape
    numbers = jnp.arange(devices, dtype=jnp.int8)[:, None]
    per_byte, delays = seconds_per_byte.T, latency.T  # [to, from]

    def step(state: Any, row: Any) -> Any:
        """One task: when it can begin and end on the device that each placement gives it."""
        arrival, free, port, pool, end = state
        here = numbers == row["placed"]  # [D, B]
        inputs = arrival[row["operands"]]  # [P, D, B]
        ready = jnp.max(jnp.where(here, inputs, 0.0), axis=(0, 1))  # [B]
        own = jnp.max(jnp.where(here, free, 0.0), axis=0)
        shares = row["parallel"] & jnp.any(here & pooled[:, None], axis=0)
        begin = jnp.where(row["occupies"], jnp.maximum(ready, own), ready)
        begin = jnp.where(shares, jnp.maximum(begin, pool), begin)
        finish = begin + row["seconds"]
        free = jnp.where(here & row["occupies"], finish, free)
        pool = jnp.where(shares, finish, pool)
        moves = row["needed"] & ~here
        local = here.astype(jnp.float32)
        wire = jnp.where(moves & ~row["present"], (per_byte @ local) * row["nbytes"], 0.0)
        busy = jnp.max(jnp.where(here, port, 0.0), axis=0)
        sent = jnp.maximum(busy, finish) + jnp.cumsum(wire, axis=0)
        port = jnp.where(here & jnp.any(wire > 0, axis=0), sent[-1], port)
        there = jnp.where(row["present"], 0.0, sent + delays @ local)
        value = jnp.where(moves, there, jnp.where(here, finish, 0.0))
        arrival = jax.lax.dynamic_update_index_in_dim(arrival, value, row["index"], 0)
        return (arrival, free, port, pool, jnp.maximum(end, finish)), None

    state = (
        jnp.zeros((rows + 1, devices, width), jnp.float32),
        jnp.zeros((devices, width), jnp.float32),
        jnp.zeros((devices, width), jnp.float32),
        jnp.zeros(width, jnp.float32),
        jnp.zeros(width, jnp.float32),
    )
    columns = {
        "operands": operands, "nbytes": nbytes, "occupies": occupies, "parallel": parallel,
        "present": present, "placed": placed, "seconds": seconds, "needed": needed,
        "index": jnp.arange(rows),
    }  # fmt: skip
    return jax.lax.scan(step, state, columns)[0][4]


def _bad(what: str) -> ConfigError:
    return ConfigError(what=what, where="Simulator", fix="Pass arrays that fit the task graph.")


def _not_a_placement(what: str) -> DecisionError:
    return DecisionError(
        what=what, where="placements", fix="Give one device per colocation group.", field="device"
    )
