"""The machine model: devices of several kinds, their memories, and the links between them.

Axis letters: D devices, K device kinds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import ConfigError

NO_POOL: Final = -1
"""Entry of `Cluster.pool`: the device computes on hardware of its own."""


@dataclass(frozen=True)
class DeviceKind:
    """What one kind of device can do.

    Attributes:
        name: for reports and for the cost model.
        flops_per_s: peak floating-point operations per second.
        bytes_per_s: memory bandwidth.
        launch_s: seconds that starting one kernel costs.
        loop_launch_s: seconds per kernel inside a loop that the device runs by itself.
        efficiency: share of the peaks that large kernels reach, in (0, 1].
    """

    name: str
    flops_per_s: float
    bytes_per_s: float
    launch_s: float
    loop_launch_s: float
    efficiency: float = 1.0

    def __post_init__(self) -> None:
        """Checks that rates are positive and times are not negative.

        Raises:
            ConfigError: one is not.
        """
        positive = self.flops_per_s > 0 and self.bytes_per_s > 0 and 0 < self.efficiency <= 1
        if not positive or self.launch_s < 0 or self.loop_launch_s < 0:
            raise _bad("device kind", f"{self} has an impossible rate or time")


@dataclass(frozen=True, eq=False)
class Cluster:
    """D devices and the links between them.

    Attributes:
        kinds: K device kinds.
        kind: int16 [D]; index into `kinds`.
        memory_bytes: float64 [D]; capacity; inf where it does not matter.
        latency_s: float64 [D, D]; seconds before the first byte arrives, from axis 0 to axis 1.
        bytes_per_s: float64 [D, D]; bandwidth from axis 0 to axis 1; the diagonal is not used.
        pool: int16 [D]; devices of one non-negative number share the hardware that parallel kernels
            use (several CPU devices of one host), so that only one such kernel runs at a time;
            `NO_POOL` for devices with hardware of their own.
        dispatch_s: seconds of the host per segment started; the host starts one at a time.
        copy_dispatch_s: seconds of the host per value sent from one device to another.
    """

    kinds: tuple[DeviceKind, ...]
    kind: NDArray[np.int16]
    memory_bytes: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    bytes_per_s: NDArray[np.float64]
    pool: NDArray[np.int16]
    dispatch_s: float = 0.0
    copy_dispatch_s: float = 0.0

    def __post_init__(self) -> None:
        """Checks shapes and ranges.

        Raises:
            ConfigError: a shape does not fit, or a rate or index is impossible.
        """
        count = len(self.kind)
        square = (count, count)
        if not count or self.latency_s.shape != square or self.bytes_per_s.shape != square:
            raise _bad("cluster", f"links must be [D, D] for D = {count} devices, at least one")
        if len(self.memory_bytes) != count or len(self.pool) != count:
            raise _bad("cluster", f"memory and pool must have {count} entries")
        if self.kind.min() < 0 or self.kind.max() >= len(self.kinds):
            raise _bad("cluster", "a device has a kind that does not exist")
        if (self.memory_bytes <= 0).any() or (self.latency_s < 0).any():
            raise _bad("cluster", "memory must be positive, latency not negative")
        if (self.bytes_per_s[~np.eye(count, dtype=bool)] <= 0).any():
            raise _bad("cluster", "bandwidth between different devices must be positive")

    def __len__(self) -> int:
        """Number of devices D."""
        return len(self.kind)

    def __repr__(self) -> str:
        """One line: how many devices of which kind."""
        names = [self.kinds[k].name for k in self.kind.tolist()]
        counts = {name: names.count(name) for name in dict.fromkeys(names)}
        return "Cluster(" + ", ".join(f"{n} x {name}" for name, n in counts.items()) + ")"

    def device_name(self, device: int) -> str:
        """Kind and number, such as ``p100:3``."""
        return f"{self.kinds[int(self.kind[device])].name}:{device}"

    def without(self, lost: int) -> Cluster:
        """The cluster that is left when a device is gone.

        Raises:
            ConfigError: it was the only one.
        """
        keep = np.arange(len(self)) != lost
        return Cluster(
            self.kinds, self.kind[keep], self.memory_bytes[keep], self.latency_s[keep][:, keep],
            self.bytes_per_s[keep][:, keep], self.pool[keep], self.dispatch_s, self.copy_dispatch_s,
        )  # fmt: skip


def uniform(
    kind: DeviceKind,
    count: int,
    *,
    memory_bytes: float,
    latency_s: float,
    bytes_per_s: float,
    shared_host: bool = False,
    dispatch_s: float = 0.0,
    copy_dispatch_s: float = 0.0,
) -> Cluster:
    """`count` equal devices, all pairs linked alike.

    Args:
        kind: of every device.
        count: number of devices D, at least one.
        memory_bytes: capacity of each.
        latency_s: of each link.
        bytes_per_s: of each link.
        shared_host: the devices share one host's cores (several CPU devices).
        dispatch_s: see `Cluster`.
        copy_dispatch_s: see `Cluster`.

    Raises:
        ConfigError: a number is impossible.
    """
    away = 1.0 - np.eye(count)
    return Cluster(
        (kind,),
        np.zeros(count, np.int16),
        np.full(count, memory_bytes, np.float64),
        latency_s * away,
        np.full((count, count), bytes_per_s, np.float64),
        np.full(count, 0 if shared_host else NO_POOL, np.int16),
        dispatch_s,
        copy_dispatch_s,
    )


def known(name: str, count: int) -> Cluster:
    """`count` devices of a kind that graphopt has figures for (`known_names`).

    Raises:
        ConfigError: there is no such kind.
    """
    if name not in known_names():
        raise _bad(name, f"no figures for {name!r}; known: {', '.join(known_names())}")
    row: dict[str, Any] = json.loads((_data() / f"{name}.json").read_text())
    return uniform(
        DeviceKind(**row["kind"]), count, memory_bytes=row["memory_bytes"], **row["link"]
    )


def known_names() -> list[str]:
    """Kinds of accelerators with figures in `graphopt/placement/data`."""
    return sorted(
        p.name.removesuffix(".json") for p in _data().iterdir() if p.name.endswith("json")
    )


def _data() -> Any:
    return resources.files("graphopt.placement") / "data"


def _bad(where: str, what: str) -> ConfigError:
    return ConfigError(what=what, where=where, fix="Correct the machine description.")
