"""What the optimizer decides, one record per node, and which values are legal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import DecisionError

ALLOWED: Final = -1
"""Entry of a `Masks` rule array: no rule forbids the value."""

FIELDS: Final = ("fuse", "join", "unit", "restructure")

_DTYPES: Final[dict[str, type[np.generic]]] = {
    "fuse": np.bool_, "join": np.bool_, "unit": np.int16, "restructure": np.int8,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Decisions:
    """One decision vector for a graph of N nodes.

    Attributes:
        fuse: bool [N]; True: the node is computed inside every cluster that consumes it;
            False: its value is written to memory, it is the root of a cluster.
        join: bool [N]; True: a root becomes a further output of another root's cluster
            (multi-output fusion) where a legal partner exists.
        unit: int16 [N]; index into `Graph.units`: the execution unit of the cluster rooted here.
            Ignored for fused nodes, which run where their consumers run.
        restructure: int8 [N]; index into `graphopt.hlo.restructure.RESTRUCTURES`: what the operation
            is replaced with before anything else is decided; 0, which is also what leaving the
            argument out means, keeps it. The other fields of a replaced node go to its replacement.
    """

    fuse: NDArray[np.bool_]
    join: NDArray[np.bool_]
    unit: NDArray[np.int16]
    restructure: NDArray[np.int8] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Fills in `restructure`; checks that the vectors have one length and the right dtypes.

        Raises:
            DecisionError: a vector is not one-dimensional, differs in length or has another dtype.
        """
        if self.restructure is None:
            count = len(self.fuse) if isinstance(self.fuse, np.ndarray) and self.fuse.ndim else 0
            object.__setattr__(self, "restructure", np.zeros(count, np.int8))
        for name, dtype in _DTYPES.items():
            value = getattr(self, name)
            if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype != dtype:
                raise _error(
                    name,
                    f"{name} must be a one-dimensional {np.dtype(dtype).name} array, got "
                    f"{_describe(value)}",
                )
            if len(value) != len(self.fuse):
                raise _error(name, f"{name} has {len(value)} entries, fuse has {len(self.fuse)}")

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.fuse)

    def copy(self) -> Decisions:
        """A copy whose arrays may be changed."""
        return Decisions(**{name: getattr(self, name).copy() for name in FIELDS})

    def with_changes(self, **fields: NDArray[Any]) -> Decisions:
        """These decisions with some vectors replaced."""
        return replace(self, **fields)

    def same_as(self, other: Decisions) -> bool:
        """True if all vectors are equal."""
        return all(np.array_equal(getattr(self, f), getattr(other, f)) for f in FIELDS)


@dataclass(frozen=True, eq=False)
class DecisionBatch:
    """B decision vectors of one graph, stacked: what a batched scorer takes.

    Attributes:
        fields: field name -> array [B, N] with the dtype of that field in `Decisions`.
    """

    fields: dict[str, NDArray[Any]]

    def __post_init__(self) -> None:
        """Checks that all fields are there and of one shape.

        Raises:
            DecisionError: a field is missing, unknown, or has another shape.
        """
        if set(self.fields) != set(FIELDS):
            raise _error("decisions", f"fields {sorted(self.fields)} instead of {sorted(FIELDS)}")
        shape = self.fields["fuse"].shape
        for name, value in self.fields.items():
            if value.ndim != 2 or value.shape != shape:
                raise _error(name, f"{name} has shape {value.shape}, fuse has {shape}")

    @classmethod
    def stack(cls, decisions: Sequence[Decisions]) -> DecisionBatch:
        """Stacks decision vectors of one graph; at least one.

        Raises:
            DecisionError: none given, or lengths differ.
        """
        if not decisions or len({len(d) for d in decisions}) != 1:
            raise _error("decisions", "a batch needs decision vectors of one length, at least one")
        return cls({f: np.stack([getattr(d, f) for d in decisions]) for f in FIELDS})

    def __len__(self) -> int:
        """Number of decision vectors B."""
        return len(self.fields["fuse"])

    def __getitem__(self, index: int) -> Decisions:
        """One decision vector; its arrays are views."""
        return Decisions(**{name: value[index] for name, value in self.fields.items()})


@dataclass(frozen=True, eq=False)
class Masks:
    """Legal values of every field, and the rule that forbids each illegal one.

    Attributes:
        rules: rule names; the integers below index it.
        fuse_rule: int16 [N, 2]; axis 1 is the value of `Decisions.fuse`; `ALLOWED` or a rule index.
        join_rule: int16 [N, 2]; likewise for `Decisions.join`.
        unit_rule: int16 [N, U]; likewise for `Decisions.unit`, U execution units.
        restructure_rule: int16 [N, R]; likewise for `Decisions.restructure`, R rows of the table of
            restructures.
    """

    rules: tuple[str, ...]
    fuse_rule: NDArray[np.int16]
    join_rule: NDArray[np.int16]
    unit_rule: NDArray[np.int16]
    restructure_rule: NDArray[np.int16]

    @cached_property
    def fuse(self) -> NDArray[np.bool_]:
        """bool [N, 2]; True = allowed."""
        return _allowed(self.fuse_rule)

    @cached_property
    def join(self) -> NDArray[np.bool_]:
        """bool [N, 2]; True = allowed."""
        return _allowed(self.join_rule)

    @cached_property
    def unit(self) -> NDArray[np.bool_]:
        """bool [N, U]; True = allowed."""
        return _allowed(self.unit_rule)

    @cached_property
    def restructure(self) -> NDArray[np.bool_]:
        """bool [N, R]; True = allowed."""
        return _allowed(self.restructure_rule)

    def why_not(self, node: int, field: str, value: int) -> str | None:
        """Name of the rule that forbids `value` for `field` of `node`; None if it is allowed."""
        rule = int(getattr(self, f"{field}_rule")[node, value])
        return None if rule == ALLOWED else self.rules[rule]

    def check(self, decisions: Decisions) -> None:
        """Checks that every decision lies inside the masks.

        Raises:
            DecisionError: wrong length, or a value that a rule forbids (named, with the node).
        """
        count = len(self.fuse_rule)
        if not isinstance(decisions, Decisions):
            raise _error("decisions", f"expected Decisions, got {type(decisions).__name__}")
        if len(decisions) != count:
            raise _error("decisions", f"{len(decisions)} decisions for a graph of {count} nodes")
        nodes = np.arange(count)
        for field in FIELDS:
            table = getattr(self, f"{field}_rule")
            value = getattr(decisions, field).astype(np.intp)
            outside = (value < 0) | (value >= table.shape[1])
            if outside.any():
                node = int(np.flatnonzero(outside)[0])
                raise _error(field, f"{field}={value[node]} does not exist", node=node)
            rule = table[nodes, value]
            bad = np.flatnonzero(rule != ALLOWED)
            if len(bad):
                node = int(bad[0])
                name = self.rules[int(rule[node])]
                raise _error(
                    field, f"{field}={value[node]} is forbidden by rule {name}", node, name
                )

    def sample(self, rng: np.random.Generator, default: Decisions, change: float) -> Decisions:
        """Random legal decisions: each field of each node is redrawn with probability `change`."""
        out = default.copy()
        for field in FIELDS:
            mask = getattr(self, field)
            keys = rng.random(mask.shape)
            keys[~mask] = -1.0
            drawn = keys.argmax(axis=1)
            value = getattr(out, field)
            value[...] = np.where(rng.random(len(value)) < change, drawn, value)
        return out


def _allowed(rules: NDArray[np.int16]) -> NDArray[np.bool_]:
    """A mask of finished rules; read-only, because it is made once."""
    mask = np.equal(rules, ALLOWED)
    mask.flags.writeable = False
    return mask


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} array of shape {value.shape}"
    return type(value).__name__


def _error(
    field: str, what: str, node: int | None = None, rule: str | None = None
) -> DecisionError:
    where = "decisions" if node is None else f"node {node}"
    return DecisionError(
        what=what,
        where=where,
        fix="start from graph.default and change only values that graph.masks allows",
        field=field,
        node=node,
        rule=rule,
    )
