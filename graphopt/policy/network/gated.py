"""A learned policy behind a gate: the heuristic stands unless clearly more is expected of something else.

The network's gain head judges whole decision vectors, its own, XLA's and the hand-written ones: what they
gain over the heuristic. It is trained on measured whole-module times, good ones and bad ones. A margin,
chosen on graphs it was not trained on, says how much it is to be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from graphopt.costs.model import CostModel
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.machine import Machine, UnitKind
from graphopt.policy.heuristic.caller_thread import is_negligible
from graphopt.policy.heuristic.loops.native_loops import MAX_NATIVE_CODE
from graphopt.policy.heuristic.steps import STEPS, choose, decide
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.native_code import native_code
from graphopt.policy.heuristic.support.step import Applied
from graphopt.policy.network.learned import LearnedPolicy, most_likely, proposal
from graphopt.policy.network.numpy_network import Encoded, NumpyPolicy
from graphopt.policy.proposals.vectors import candidates

NEVER: Final = 20.0
"""Log speed-up that nothing promises."""

PROMISING: Final = 0.02
"""Low quantile of the log speed-up from which a candidate's changes are combined with those of others."""

LEAVING: Final = 0.02
"""Log speed-up over what the policy starts from that it must expect of others: below, errors decide."""

LOST: Final = 0.02
"""Share of the program's time that its own changes may lose by taking kernels off other cores."""

HEURISTIC: Final = "heuristic"
DEFAULT: Final = "default"
"""Names of what the policy starts from, and of XLA's own decisions."""


@dataclass(frozen=True)
class Gate:
    """When the heuristic's decisions are replaced.

    Attributes:
        switch: log speed-up over the heuristic that the low quantile of another candidate must exceed.
        own: only what the network itself proposes may replace it; else any candidate.
    """

    switch: float
    own: bool = False

    def choose(self, low: Sequence[float], own: int = 0) -> int:
        """Index of the chosen candidate; 0, the heuristic's, unless another promises clearly more.

        Args:
            low: low quantile of each candidate's log speed-up over the first.
            own: index of the network's own proposal; 0 if that is the heuristic's.
        """
        allowed = [own] if self.own else range(1, len(low))
        others = [i for i in allowed if i and math.isfinite(low[i])]
        best = max(others, key=lambda i: low[i], default=0)
        return best if best and low[best] > self.switch else 0


@dataclass(frozen=True, eq=False)
class Judged:
    """One candidate for a graph.

    Attributes:
        name: who proposes it.
        decisions: the decisions.
        gain: expected log speed-up over XLA's default.
        low_gain: low quantile of the log speed-up over the heuristic.
        own: it is what the network itself proposes.
        steps: the heuristic's steps behind what the network started from.
        failed: steps of it that raised, each with its error.
    """

    name: str
    decisions: Decisions
    gain: float
    low_gain: float
    own: bool = False
    steps: tuple[Applied, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def speedup(self) -> float:
        """Expected speed-up; 0 where the network could not say."""
        return math.exp(min(self.gain, 20.0)) if math.isfinite(self.gain) else 0.0


def judge(
    network: NumpyPolicy,
    graph: Graph,
    encoded: Encoded,
    model: CostModel | None = None,
    start_only: bool = False,
    own_only: bool = False,
) -> list[Judged]:
    """All candidates with what the network expects of them, what the policy starts from first.

    Args:
        network: the judge, and the maker of one candidate.
        graph: of the program.
        encoded: the graph by the network.
        model: the graph's costs, if they are known already.
        start_only: judge no other candidate.
        own_only: judge no other than the network's own and XLA's.
    """
    start = encoded.features.start
    with np.errstate(all="ignore"):  # a broken checkpoint must not warn in a user's program
        gain, low = network.gain(encoded, graph.default).tolist()
        above_default = -gain
        default = Judged(DEFAULT, graph.default, 0.0, low)
        out = [default]
        if not start.same_as(graph.default):
            out.insert(0, Judged(HEURISTIC, start, above_default, 0.0))
        if start_only:
            return out[:1]
        model = CostModel(graph) if model is None else model
        for name, decisions in [] if own_only else candidates(graph, start, model):
            if not decisions.same_as(start):
                gain, low = network.gain(encoded, decisions).tolist()
                out.append(Judged(name, decisions, above_default + gain, low))
        several = together(start, out)
        if several is not None and _compiles_fast(graph, model, several, start):
            gain, low = network.gain(encoded, several).tolist()
            out.append(Judged("several changes", several, above_default + gain, low))
        own = proposal(graph, encoded, network.decode(encoded, most_likely))
    if own.changes and _may_stand(graph, model, own.decisions, start):
        out = [replace(j, own=own.decisions.same_as(j.decisions)) for j in out]
        if not any(j.own for j in out):
            gain = above_default + own.gain
            out.append(Judged("network", own.decisions, gain, own.low_gain, own=True))
    return out


def own_index(judged: Sequence[Judged]) -> int:
    """Index of the network's own proposal; 0 if there is none, or it is what the policy starts from."""
    return next((index for index, found in enumerate(judged) if found.own), 0)


def together(start: Decisions, judged: Sequence[Judged]) -> Decisions | None:
    """All changes of the start that promise something, the most promising last; None for fewer than two."""
    promising = [j for j in judged[1:] if math.isfinite(j.low_gain) and j.low_gain > PROMISING]
    if len(promising) < 2:
        return None
    out = start.copy()
    for found in sorted(promising, key=lambda j: j.low_gain):
        for field in FIELDS:
            ours, theirs = getattr(start, field), getattr(found.decisions, field)
            differs = ours != theirs
            getattr(out, field)[differs] = theirs[differs]
    return None if any(out.same_as(j.decisions) for j in judged) else out


def _may_stand(graph: Graph, model: CostModel, own: Decisions, start: Decisions) -> bool:
    """True if the network's own decisions compile fast and leave kernels that fill several cores there."""
    return _compiles_fast(graph, model, own, start) and _keeps_cores(graph, model, own, start)


def _keeps_cores(graph: Graph, model: CostModel, own: Decisions, start: Decisions) -> bool:
    """True unless loops that gain from several cores would run on one, for a share of the program's time."""
    threads = np.array([unit.threads for unit in graph.units])
    loops = np.array([unit.kind is UnitKind.LOOP for unit in graph.units])
    split = loops[start.unit] & (threads[start.unit] > 1) & ~start.fuse
    lost = 0.0
    for root in np.flatnonzero(split & (threads[own.unit] == 1)).tolist():
        saved = model.cluster_ns(start.fuse, root) * (1.0 - 1.0 / threads[start.unit[root]])
        lost += max(0.0, saved - model.costs.split_ns) * float(graph.executions[root])
    return lost <= LOST * Context(graph, model, start).program_ns


def _compiles_fast(graph: Graph, model: CostModel, own: Decisions, start: Decisions) -> bool:
    """True unless there is more native code than the heuristic would ever write: nothing else limits it."""
    limit = max(MAX_NATIVE_CODE, native_code(Context(graph, model, start)))
    return native_code(Context(graph, model, own)) <= limit


class GuardedPolicy:
    """A checkpoint's decision rule: a `graphopt.policy.Policy` that states the gain it expects.

    Attributes:
        learned: network and its own proposals.
        gate: when the heuristic is left.
    """

    def __init__(self, learned: LearnedPolicy, gate: Gate) -> None:
        """Takes both as they are."""
        self.learned = learned
        self.gate = gate

    @property
    def machine(self) -> Machine | None:
        """Machine whose caches the features refer to; None for this one."""
        return self.learned.machine

    def __call__(self, graph: Graph) -> Decisions | None:
        """The chosen decisions, or None for XLA's default."""
        chosen = self.choose(graph)
        return None if chosen is None else chosen.decisions

    def choose(self, graph: Graph) -> Judged | None:
        """The chosen candidate with its expected gain, or None for XLA's default."""
        if len(graph) == 0:
            return None
        try:
            return self._choose(graph)
        except Exception as error:  # a checkpoint may be bad; the heuristic needs no network
            found = choose(graph)
            if found is None:
                return None
            name = f"heuristic, because the network failed: {type(error).__name__}"
            judged = Judged(name, found.decisions, math.nan, math.nan)
            return replace(judged, steps=found.steps, failed=found.failed)

    def _choose(self, graph: Graph) -> Judged | None:
        model = CostModel(graph)
        if is_negligible(graph, model):
            return None
        decided = decide(graph, STEPS, model, tolerant=True)
        start = decided.decisions
        encoded = self.learned.encode(graph, start)
        never = self.gate.switch >= NEVER  # then nothing else needs to be made or judged
        network, own = self.learned.network, self.gate.own
        found = judge(network, graph, encoded, model, start_only=never, own_only=own)
        chosen = found[self.gate.choose([j.low_gain for j in found], own_index(found))]
        if not chosen.gain - found[0].gain > LEAVING:
            chosen = found[0]
        if not decided.failed and chosen.decisions.same_as(graph.default):
            return None
        return replace(chosen, steps=decided.steps, failed=decided.failed)
