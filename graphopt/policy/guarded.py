"""A learned policy behind a gate: the heuristic stands unless clearly more is expected of something else.

The network's gain head judges whole decision vectors, its own and the hand-written ones. It is trained on
measured whole-module times, good ones and bad ones. Two margins, chosen on graphs it was not trained on, say
how much it is to be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphopt.hlo import Decisions, Graph
from graphopt.machine import Machine
from graphopt.policy.candidates import candidates
from graphopt.policy.features import extract
from graphopt.policy.heuristic import heuristic
from graphopt.policy.inference import Encoded, NumpyPolicy
from graphopt.policy.learned import LearnedPolicy, most_likely, proposal

NEVER: Final = 20.0
"""Log speed-up that nothing promises."""


@dataclass(frozen=True)
class Gate:
    """When the heuristic's decisions are replaced.

    Attributes:
        switch: log speed-up by which another candidate's low quantile must exceed the heuristic's (or that of
            XLA's default, which is 0, if the heuristic changes nothing).
        drop: low quantile of the heuristic's own gain below which XLA's default is kept.
    """

    switch: float
    drop: float

    def choose(self, base: bool, low: Sequence[float]) -> int:
        """Index of the chosen candidate, -1 for XLA's default.

        Args:
            base: the first candidate is the heuristic's.
            low: low quantile of each candidate's log speed-up.
        """
        index, standing = -1, 0.0
        if base and not low[0] < self.drop:  # a NaN keeps the heuristic
            index, standing = 0, low[0]
        others = [i for i in range(1 if base else 0, len(low)) if math.isfinite(low[i])]
        best = max(others, key=lambda i: low[i], default=-1)
        if best >= 0 and low[best] > max(standing, 0.0) + self.switch:
            return best
        return index


@dataclass(frozen=True, eq=False)
class Judged:
    """One candidate for a graph.

    Attributes:
        name: who proposes it.
        decisions: the decisions.
        gain: expected log speed-up.
        low_gain: its low quantile.
    """

    name: str
    decisions: Decisions
    gain: float
    low_gain: float

    @property
    def speedup(self) -> float:
        """Expected speed-up; 0 where the network could not say."""
        return math.exp(min(self.gain, 20.0)) if math.isfinite(self.gain) else 0.0


def judge_heuristic(network: NumpyPolicy, graph: Graph, encoded: Encoded) -> list[Judged]:
    """The heuristic's decisions alone, if it changes anything, with what the network expects of them."""
    found = heuristic(graph)
    if found is None:
        return []
    with np.errstate(all="ignore"):
        gain, low = network.gain(encoded, found).tolist()
    return [Judged("heuristic", found, gain, low)]


def judge(network: NumpyPolicy, graph: Graph, encoded: Encoded) -> list[Judged]:
    """All candidates with what the network expects of them; the heuristic's first if there is one."""
    with np.errstate(all="ignore"):  # a broken checkpoint must not warn in a user's program
        out = []
        for name, decisions in candidates(graph):
            gain, low = network.gain(encoded, decisions).tolist()
            out.append(Judged(name, decisions, gain, low))
        own = proposal(graph, encoded, network.decode(encoded, most_likely))
    if own.changes and not any(own.decisions.same_as(j.decisions) for j in out):
        out.append(Judged("network", own.decisions, own.gain, own.low_gain))
    return out


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
            found = heuristic(graph)
            name = f"heuristic, because the network failed: {type(error).__name__}"
            return None if found is None else Judged(name, found, math.nan, math.nan)

    def _choose(self, graph: Graph) -> Judged | None:
        with np.errstate(all="ignore"):
            encoded = self.learned.network.encode(extract(graph, self.machine))
        never = self.gate.switch >= NEVER  # then nothing else needs to be made or judged
        found = (judge_heuristic if never else judge)(self.learned.network, graph, encoded)
        index = self.gate.choose(has_base(found), [j.low_gain for j in found])
        return None if index < 0 else found[index]


def has_base(found: Sequence[Judged]) -> bool:
    """True if the first candidate is the heuristic's."""
    return bool(found) and found[0].name == "heuristic"
