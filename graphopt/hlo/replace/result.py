"""A graph after some operations were replaced, and what decisions on the old graph mean on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo.graph.decisions import FIELDS, DecisionBatch, Decisions
from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.legal.rules import settled_masks
from graphopt.hlo.restructure.table import ON_CALLER, replacing
from graphopt.machine import UnitKind, unit_index


@dataclass(frozen=True, eq=False)
class Restructured:
    """A graph after some operations were replaced.

    Attributes:
        graph: of the new module; N' nodes.
        origin: int32 [N']; the old graph's node that a node is, or was written for; -1 for tuples and
            elements that the rewriter adds.
        fresh: bool [N']; True for nodes written for a replaced operation.
        regrouped: bool [N']; old nodes that a new kernel begins or ends with.
        together: bool [N']; new nodes that had best join one another's clusters.
        users: `Graph.user_lists` of the old graph, which itself is not kept: it keeps this.
    """

    graph: Graph
    origin: NDArray[np.int32]
    fresh: NDArray[np.bool_]
    regrouped: NDArray[np.bool_]
    together: NDArray[np.bool_]
    users: list[list[int]]

    def carry(self, decisions: Decisions) -> Decisions:
        """The old graph's decisions on the new one; see `carry_batch`."""
        return self.carry_batch(DecisionBatch.stack([decisions]))[0]

    def carry_batch(self, batch: DecisionBatch) -> DecisionBatch:
        """B decision vectors of the old graph on the new one.

        Old nodes keep theirs where the new masks allow it; new nodes keep the new default, except
        that replacements of native operations are native, and that values which had best be computed
        together join.
        """
        default, masks = self.graph.default, settled_masks(self.graph)
        source = np.maximum(self.origin, 0)
        rows = np.arange(len(self.graph))
        kept = ~self.fresh & (self.origin >= 0)
        fields: dict[str, NDArray[Any]] = {}
        for field in FIELDS:
            own = np.broadcast_to(getattr(default, field), (len(batch), len(self.graph)))
            wanted = batch.fields[field][:, source]
            if field == "restructure":
                wanted = np.where(replacing(wanted) == wanted, np.int8(0), wanted)
            allowed = getattr(masks, field)[rows, wanted.astype(np.intp)]
            fields[field] = np.where(kept & allowed, wanted, own)
        self._regroup(batch, fields)
        unit = unit_index(self.graph.units, UnitKind.NATIVE)
        native = self._native_origins(batch) & masks.unit[:, unit]
        fields["unit"][native] = unit
        fields["join"][:, self.together & masks.join[:, 1]] = True
        self._carry_thread(batch, fields["restructure"])
        return DecisionBatch(fields)

    def _regroup(self, batch: DecisionBatch, fields: dict[str, NDArray[Any]]) -> None:
        """Operations that a new kernel begins or ends with follow its decisions, unless they are native."""
        loops = np.array([u.kind is UnitKind.LOOP for u in self.graph.units], np.bool_)
        nodes = np.flatnonzero(self.regrouped)
        old = self.origin[nodes]
        kernels = loops[batch.fields["unit"][:, old]] | batch.fields["fuse"][:, old]
        for field in ("fuse", "join", "unit"):
            default = getattr(self.graph.default, field)[nodes]
            fields[field][:, nodes] = np.where(kernels, default, fields[field][:, nodes])

    def _carry_thread(self, batch: DecisionBatch, restructure: NDArray[Any]) -> None:
        """Decides about the program's thread at the node that stands for the program in the new graph."""
        allowed = settled_masks(self.graph).restructure
        for code in np.flatnonzero(ON_CALLER):
            moved = (batch.fields["restructure"] == code).any(axis=1)
            for node in np.flatnonzero(allowed[:, code]):
                restructure[moved, node] = code

    def _native_origins(self, batch: DecisionBatch) -> NDArray[np.bool_]:
        """bool [B, N']; fresh nodes whose origin is native, or fused into something that is."""
        out = np.zeros((len(batch), len(self.graph)), np.bool_)
        kinds = np.array([u.kind is UnitKind.NATIVE for u in self.graph.units], np.bool_)
        native, fuse = kinds[batch.fields["unit"]], batch.fields["fuse"]
        if not native.any():
            return out
        fused_somewhere: list[bool] = np.ravel(fuse.any(axis=0)).tolist()
        nowhere = np.zeros(len(batch), np.bool_)
        known: dict[int, NDArray[np.bool_]] = {}

        def at(node: int) -> NDArray[np.bool_]:
            """bool [B]; a node of the old graph is native, or computed inside something that is."""
            stack = [node]
            while stack:
                top = stack[-1]
                users = self.users[top] if fused_somewhere[top] else []
                missing = [user for user in users if user not in known]
                if missing:
                    stack += missing
                    continue
                stack.pop()
                through = nowhere
                for user in users:
                    through = through | known[user]
                known[top] = np.where(fuse[:, top], through, native[:, top])
            return known[node]

        for node in np.flatnonzero(self.fresh & (self.origin >= 0)).tolist():
            out[:, node] = at(int(self.origin[node]))
        return out
