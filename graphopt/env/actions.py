"""Actions: integer arrays that name one value per node and decision field."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from graphopt.errors import DecisionError
from graphopt.hlo import DecisionBatch, Decisions, Graph
from graphopt.hlo.graph.decisions import FIELDS

_FIX: Final = "Pass an integer array from env.action_space, inside info['action_mask']."


def field_sizes(graphs: Iterable[Graph]) -> tuple[int, ...]:
    """F entries: how many values each field of `FIELDS` has, in the graph where it has most."""
    sizes = [tuple(getattr(graph.masks, field).shape[1] for field in FIELDS) for graph in graphs]
    return tuple(max(column) for column in zip(*sizes, strict=True))


@dataclass(frozen=True, eq=False)
class ActionCodec:
    """Translates between actions and decisions of one graph.

    Axis letters: N nodes of the graph, M rows of the action space (at least N), F fields, V largest
    number of values of a field, S sum of `sizes`.

    Attributes:
        graph: the graph.
        sizes: F entries; number of values of each field in the action space.
        legal: bool [N, F, V]; True = allowed.
        default: int64 [N, F]; XLA's own decisions.
    """

    graph: Graph
    sizes: tuple[int, ...]
    legal: NDArray[np.bool_]
    default: NDArray[np.int64]

    @classmethod
    def of(cls, graph: Graph, sizes: tuple[int, ...]) -> ActionCodec:
        """The codec of a graph in an action space with these field sizes."""
        legal = np.zeros((len(graph), len(FIELDS), max(sizes)), np.bool_)
        for column, field in enumerate(FIELDS):
            mask = getattr(graph.masks, field)
            legal[:, column, : mask.shape[1]] = mask
        return cls(graph, sizes, legal, encode(graph.default))

    def padded_mask(self, rows: int) -> NDArray[np.bool_]:
        """bool [rows, F, V]; True = allowed; rows without a node allow the value 0 only."""
        mask = np.zeros((rows, *self.legal.shape[1:]), np.bool_)
        mask[: len(self.graph)] = self.legal
        mask[len(self.graph) :, :, 0] = True
        return mask

    def flat_mask(self, rows: int) -> NDArray[np.bool_]:
        """bool [rows * S]; True = allowed: for every row and field, its values in a line.

        The order is that of ``MultiDiscrete`` over a flattened [rows, F] array. Rows without a node
        allow the value 0 only.
        """
        mask = self.padded_mask(rows)
        columns = [mask[:, column, :size] for column, size in enumerate(self.sizes)]
        return np.concatenate(columns, axis=1).reshape(-1)

    def decode(self, action: Any, rows: int, strict: bool) -> tuple[Decisions, int]:
        """The decisions that an action means.

        Args:
            action: integers, [M, F], flattened to [M * F], or [N, F]; or `Decisions`.
            rows: M.
            strict: refuse forbidden values; otherwise such a value becomes XLA's own for that node.

        Returns:
            The decisions, and how many values were replaced by XLA's own.

        Raises:
            DecisionError: another shape or dtype, a value that no field has, or, if strict, a
            forbidden one.
        """
        if isinstance(action, Decisions):
            self.graph.masks.check(action)
            return action, 0
        values = self._table(action, rows)
        count = len(self.graph)
        inside = np.take_along_axis(self.legal, values[:, :, None], axis=2)[:, :, 0]
        if inside.all():
            return self._decisions(values), 0
        if strict:
            self._refuse(values, inside)
        replaced = count * len(FIELDS) - int(inside.sum())
        return self._decisions(np.where(inside, values, self.default)), replaced

    def _table(self, action: Any, rows: int) -> NDArray[np.int64]:
        """int64 [N, F]; the rows of an action that belong to nodes, every value that of a field."""
        array = np.asarray(action)
        if array.dtype.kind not in "biu":
            raise _error("action", f"an action holds integers, got {array.dtype}")
        count, fields = len(self.graph), len(FIELDS)
        if array.shape not in ((rows, fields), (rows * fields,), (count, fields)):
            raise _error(
                "action",
                f"an action has shape {(rows, fields)} or {(count, fields)}, got {array.shape}",
            )
        table = array.reshape(-1, fields)[:count]
        for column, (field, size) in enumerate(zip(FIELDS, self.sizes, strict=True)):
            outside = (table[:, column] < 0) | (table[:, column] >= size)
            if outside.any():
                node = int(np.flatnonzero(outside)[0])
                raise _error(field, f"{field}={table[node, column]} does not exist", node)
        return table.astype(np.int64)

    def _decisions(self, values: NDArray[np.int64]) -> Decisions:
        default = self.graph.default
        return default.with_changes(
            **{
                field: values[:, column].astype(getattr(default, field).dtype)
                for column, field in enumerate(FIELDS)
            }
        )

    def _refuse(self, values: NDArray[np.int64], inside: NDArray[np.bool_]) -> None:
        node, column = (int(i) for i in np.argwhere(~inside)[0])
        field, value = FIELDS[column], int(values[node, column])
        table = getattr(self.graph.masks, f"{field}_rule")
        rule = None
        if value < table.shape[1]:
            rule = self.graph.masks.rules[int(table[node, value])]
        reason = "does not exist here" if rule is None else f"is forbidden by rule {rule}"
        raise _error(field, f"{field}={value} {reason}", node, rule)

    def check_batch(self, batch: DecisionBatch, strict: bool) -> tuple[DecisionBatch, int]:
        """The batch inside the masks, and how many values were replaced by XLA's own.

        Raises:
            DecisionError: another number of nodes, a value that no field has, or, if strict, a
            forbidden one.
        """
        if batch.fields["fuse"].shape[1] != len(self.graph):
            raise _error(
                "decisions",
                f"{batch.fields['fuse'].shape[1]} decisions for a graph of {len(self.graph)} nodes",
            )
        fields, replaced = {}, 0
        for column, field in enumerate(FIELDS):
            value = batch.fields[field]
            fields[field], wrong = self._check_field(column, field, value, strict)
            replaced += wrong
        return (batch if replaced == 0 else DecisionBatch(fields)), replaced

    def _check_field(
        self, column: int, field: str, value: NDArray[Any], strict: bool
    ) -> tuple[NDArray[Any], int]:
        wanted = getattr(self.graph.default, field).dtype
        if value.dtype != wanted:
            raise _error(field, f"{field} must be {wanted}, got {value.dtype}")
        size = self.sizes[column]
        legal = self.legal[:, column, :size]
        if size == 2 and value.dtype == np.bool_:  # two comparisons instead of a gather
            wrong = (value & ~legal[:, 1]) | (~value & ~legal[:, 0])
        else:
            if ((value < 0) | (value >= size)).any():
                node = int(np.argwhere((value < 0) | (value >= size))[0][1])
                raise _error(field, f"{field} has a value that does not exist", node)
            offsets = np.arange(len(self.graph), dtype=np.intp) * size
            wrong = ~np.take(legal.reshape(-1), value + offsets)
        count = int(wrong.sum())
        if count and strict:
            vector, node = (int(i) for i in np.argwhere(wrong)[0])
            raise _error(field, f"{field} of vector {vector} has a forbidden value", node)
        if count:
            value = np.where(wrong, self.default[:, column].astype(wanted), value)
        return value, count


def encode(decisions: Decisions) -> NDArray[np.int64]:
    """int64 [N, F]; decisions as an action."""
    return np.stack([getattr(decisions, field).astype(np.int64) for field in FIELDS], axis=1)


class DecisionSpace(spaces.MultiDiscrete):
    """Integers [M, F]: one value per row and decision field.

    It knows the masks of the graph at hand, which `reset` of the environment sets: `sample` draws
    legal actions and `contains` is true of no other. Two spaces are equal if their sizes are: masks
    do not count. A batch of such spaces (in a vector environment) is a plain ``MultiDiscrete``
    batch that knows no masks.
    """

    def __init__(self, rows: int, sizes: tuple[int, ...], seed: int | None = None) -> None:
        super().__init__(np.tile(np.asarray(sizes, np.int64), (rows, 1)), np.int64, seed)
        self.legal: NDArray[np.bool_] = np.ones((rows, len(sizes), max(sizes)), np.bool_)
        for column, size in enumerate(sizes):
            self.legal[:, column, size:] = False

    def allow(self, legal: NDArray[np.bool_]) -> None:
        """Sets the masks of the graph at hand.

        Args:
            legal: bool [M, F, V]; True = allowed; see `ActionCodec.padded_mask`.
        """
        self.legal = legal.copy()

    def sample(self, mask: Any = None, probability: Any = None) -> NDArray[np.int64]:
        """A random legal action.

        Args:
            mask: [M, F, V], nonzero = allowed, as in ``info["action_mask"]``; or nested tuples as
                ``MultiDiscrete.sample`` takes them. By default the masks of the graph at hand.
            probability: as ``MultiDiscrete.sample`` takes it.
        """
        if probability is not None or isinstance(mask, tuple):
            return super().sample(mask=mask, probability=probability)
        legal = self.legal if mask is None else np.asarray(mask, np.bool_)
        keys = self.np_random.random(self.legal.shape)
        keys[~legal] = -1.0
        drawn: NDArray[np.int64] = keys.argmax(axis=2)
        return drawn

    def contains(self, x: Any) -> bool:
        """True if `x` has the right shape and every value is legal for its node."""
        if not super().contains(x):
            return False
        values = np.asarray(x, np.int64)
        return bool(np.take_along_axis(self.legal, values[:, :, None], axis=2).all())


def _error(
    field: str, what: str, node: int | None = None, rule: str | None = None
) -> DecisionError:
    where = "action" if node is None else f"node {node}"
    return DecisionError(what=what, where=where, fix=_FIX, field=field, node=node, rule=rule)
