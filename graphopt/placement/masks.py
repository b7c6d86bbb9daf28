"""Which device may hold which colocation group. Axis letters: G groups, D devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import DecisionError
from graphopt.placement.cluster import Cluster
from graphopt.placement.tasks import TaskGraph

ALLOWED: Final = -1

RULES: Final = ("arguments-at-home", "memory")
"""Rule names: `DeviceMasks.rule` indexes them."""


@dataclass(frozen=True, eq=False)
class DeviceMasks:
    """Legal devices of every group.

    Tasks that must stay together (all results of one operation, what an in-place operation overwrites,
    the inside of a loop) are one group, so that any choice inside the mask can be cut and run.

    Attributes:
        rule: int8 [G, D]; `ALLOWED`, or the index into `RULES` of the rule that forbids it.
    """

    rule: NDArray[np.int8]

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """bool [G, D]; True = allowed. Every group has at least one."""
        return np.equal(self.rule, ALLOWED)

    def why_not(self, group: int, device: int) -> str | None:
        """Name of the rule that forbids a device; None if it is allowed."""
        rule = int(self.rule[group, device])
        return None if rule == ALLOWED else RULES[rule]

    def check(self, placement: NDArray[np.integer[Any]]) -> None:
        """Checks a placement, integer [G].

        Raises:
            DecisionError: wrong length, a device that does not exist, or one that a rule forbids.
        """
        groups, devices = self.rule.shape
        if placement.shape != (groups,):
            raise _error(f"a placement of shape {placement.shape}, wanted [{groups}]")
        outside = np.flatnonzero((placement < 0) | (placement >= devices))
        if len(outside):
            raise _error("a device that does not exist", int(outside[0]))
        bad = np.flatnonzero(self.rule[np.arange(groups), placement] != ALLOWED)
        if len(bad):
            group = int(bad[0])
            rule = self.why_not(group, int(placement[group]))
            raise _error(f"device {placement[group]} is forbidden by rule {rule}", group, rule)

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.int16]:
        """int16 [count, G]; every group on a random allowed device."""
        keys = rng.random((count, *self.rule.shape))
        keys[:, ~self.allowed] = -1.0
        drawn: NDArray[np.int16] = keys.argmax(axis=2).astype(np.int16)
        return drawn

    def repair(self, placement: NDArray[np.integer[Any]]) -> NDArray[np.int16]:
        """int16, same shape [..., G]: forbidden choices moved to the group's first allowed device."""
        first = self.allowed.argmax(axis=1)
        groups = np.arange(len(first))
        legal = self.allowed[groups, placement]
        return np.where(legal, placement, first).astype(np.int16)


def device_masks(tasks: TaskGraph, cluster: Cluster) -> DeviceMasks:
    """Masks of a graph on a cluster.

    Arguments stay at home, device 0; their copies elsewhere follow from who needs them. A group whose own
    values exceed a device's memory is forbidden there, unless no device could hold it.
    """
    rule = np.full((tasks.groups, len(cluster)), ALLOWED, np.int8)
    own = np.bincount(tasks.group, np.where(tasks.is_input, 0, tasks.nbytes), tasks.groups)
    too_large: NDArray[np.bool_] = own[:, np.newaxis] > cluster.memory_bytes[np.newaxis]
    nowhere: NDArray[np.bool_] = np.all(too_large, axis=1, keepdims=True)
    rule[too_large & ~nowhere] = RULES.index("memory")
    arguments = np.unique(tasks.group[tasks.is_input])
    rule[np.ix_(arguments, np.arange(1, len(cluster)))] = RULES.index("arguments-at-home")
    rule[arguments, 0] = ALLOWED
    return DeviceMasks(rule)


def _error(what: str, group: int | None = None, rule: str | None = None) -> DecisionError:
    return DecisionError(
        what=what, where="placement" if group is None else f"group {group}",
        fix="Choose only devices that the masks allow.", field="device", node=group, rule=rule,
    )  # fmt: skip
