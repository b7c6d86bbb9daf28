"""All alternatives of one task in duels with the heuristic, as rows of the data set."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphopt.costs.model import CostModel
from graphopt.hlo import RESTRUCTURES, Decisions, Graph
from graphopt.policy.alternatives.alternative import Alternative, Edit, apply, difference
from graphopt.policy.alternatives.table import alternatives
from graphopt.policy.heuristic.steps import STEPS, heuristic_steps
from graphopt.store import decode_decisions, encode_decisions
from graphopt.tasks.cutting import Task
from graphopt.tasks.duel import Duel

Row = dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """One duel to be held.

    Attributes:
        kind: of the alternative; ``heuristic`` against XLA's default, ``together`` for several.
        node: the site; -1 for none in particular.
        weight: estimated nanoseconds that it is about.
        rival: ``heuristic``, ``default``, or ``policy`` for a state that a policy reached.
        edits: what differs from the rival.
        state: the policy's state as text, what differs from XLA's decisions; else empty.
    """

    kind: str
    node: int
    weight: float
    rival: str
    edits: tuple[Edit, ...]
    state: str = ""


class Collector:
    """The experiments of one task.

    Attributes:
        task: to be measured.
        start: the heuristic's decisions for it.
    """

    def __init__(
        self,
        task: Task,
        own: Callable[[Collector], list[Experiment]] | None = None,
        most: int = 0,
    ) -> None:
        """Asks the heuristic and lists the alternatives.

        Args:
            task: to be measured.
            own: lists other experiments than `every`; None for these.
            most: experiments, the first of the list; 0 for all.
        """
        self.task = task
        self.graph: Graph = task.graph
        self.model = CostModel(self.graph)
        self.start: Decisions = heuristic_steps(self.graph, STEPS, self.model)
        self.table = alternatives(self.graph, self.model, program=False)
        self._own, self._most = own, most

    def singles(self) -> list[Experiment]:
        """The experiments, those of all gains together left out."""
        return self._listed

    @cached_property
    def _listed(self) -> list[Experiment]:
        found = self.every() if self._own is None else self._own(self)
        return found[: self._most] if self._most else found

    def every(self) -> list[Experiment]:
        """The heuristic against XLA's default, and all that changes its decisions, by weight."""
        offered = np.flatnonzero(self.table.available(self.table.flat(self.start)))[1:].tolist()
        found = [_experiment(self.table.rows[index], self.start) for index in offered]
        own = difference(self.graph.default, self.start)
        if own:
            found.insert(0, Experiment("heuristic", -1, 0.0, "default", own))
        return list({(e.rival, e.edits): e for e in reversed(found)}.values())[::-1]

    def together(self, gains: Mapping[str, float]) -> Experiment | None:
        """All alternatives that gained, best first, as far as none changes what another does.

        Args:
            gains: key -> log ratio of duels with a gain beyond doubt.
        """
        keys = {self.key(e): e for e in self.singles() if e.rival == "heuristic"}
        clear = [(experiment, gains[key]) for key, experiment in keys.items() if key in gains]
        taken: dict[tuple[str, int], Edit] = {}
        count = 0
        for experiment, _ in sorted(clear, key=lambda pair: -pair[1]):
            places = {(field, node) for field, node, _ in experiment.edits}
            if not places & taken.keys():
                taken |= {(e[0], e[1]): e for e in experiment.edits}
                count += 1
        if count < 2:
            return None
        return Experiment("together", -1, 0.0, "heuristic", tuple(taken.values()))

    def is_open(self, known: Callable[[str], bool], gains: Mapping[str, float]) -> bool:
        """True if there is a duel that is not known, the one of all gains together counted."""
        if any(not known(self.key(experiment)) for experiment in self.singles()):
            return True
        last = self.together(gains)
        return last is not None and not known(self.key(last))

    def rival(self, experiment: Experiment) -> Decisions:
        """What an experiment is measured against."""
        if experiment.state:
            return decode_decisions(self.graph, experiment.state)
        return self.graph.default if experiment.rival == "default" else self.start

    def key(self, experiment: Experiment) -> str:
        """Names a duel: equal for equal duels of equal tasks under an equal heuristic."""
        own = "{}" if experiment.rival == "default" else self.heuristic
        rival = experiment.state or own
        return json.dumps([self.task.fingerprint, rival, self.encoded(experiment.edits)])

    @property
    def heuristic(self) -> str:
        """The heuristic's decisions as text: what differs from XLA's."""
        return encode_decisions(self.graph, self.start)

    def encoded(self, edits: Sequence[Edit]) -> list[list[Any]]:
        """Edits with units and restructures by name: numbers depend on the machine and the version."""
        return [[field, node, _value(self.graph, field, value)] for field, node, value in edits]

    def row(self, program: str, family: str, recorded: bool) -> Row:
        """The task's row of the data set."""
        return {
            "task": self.task.fingerprint,
            "kind": self.task.piece.kind,
            "nodes": len(self.graph),
            "program": program,
            "family": family,
            "share": round(self.task.share, 4),
            "executions": self.task.executions,
            "inputs": "recorded" if recorded else "made up",
            "heuristic": self.heuristic,
        }

    def pair(self, experiment: Experiment) -> tuple[Decisions, Decisions]:
        """Rival and decisions of an experiment."""
        rival = self.rival(experiment)
        return rival, apply(rival, [Alternative("", -1, experiment.edits)])

    def duel_row(self, experiment: Experiment, duel: Duel) -> Row:
        """The row of a duel that was held."""
        out: Row = {
            "task": self.task.fingerprint,
            "key": self.key(experiment),
            "kind": experiment.kind,
            "node": experiment.node,
            "rival": experiment.rival,
            **({"state": experiment.state} if experiment.state else {}),
            "edits": self.encoded(experiment.edits),
            "weight_ns": round(experiment.weight, 1),
            "status": duel.status,
        }
        if not duel.ok:
            return {**out, "detail": duel.detail[:200]}
        looks = [
            [round(x, 5) for x in (k.log_ratio, k.low, k.high)] + [k.pairs] for k in duel.looks
        ]
        return {
            **out,
            "log_ratio": round(duel.log_ratio, 5),
            "low": round(duel.low, 5),
            "high": round(duel.high, 5),
            "looks": looks,
            "seconds": float(f"{duel.seconds:.5g}"),
            "rival_s": float(f"{duel.rival_s:.5g}"),
            "compile_s": round(duel.compile_s, 4),
            "error": float(f"{duel.error:.3g}"),
        }


def _experiment(alternative: Alternative, start: Decisions) -> Experiment:
    edits = alternative.changes(start)
    return Experiment(alternative.kind, alternative.node, alternative.weight, "heuristic", edits)


def _value(graph: Graph, field: str, value: int) -> int | str:
    if field == "unit":
        return graph.units[value].name
    return RESTRUCTURES[value].name if field == "restructure" else value
