"""Duels at the states that a policy reaches: expert iteration for the policy over alternatives.

From the heuristic's decisions on, the policy goes where its means lead it. At each state some alternatives
are drawn without replacement (Gumbel top-k), likelier ones more often, and measured against that state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import ConfigError
from graphopt.hlo import Decisions
from graphopt.learn.collecting.duelling import Collector, Experiment
from graphopt.policy.advantages.checkpoint import load_advantages
from graphopt.policy.advantages.decider import AdvantagePolicy
from graphopt.policy.advantages.encoding import Encoder
from graphopt.policy.network.files import kind_of
from graphopt.policy.registry import resolve
from graphopt.store import encode_decisions

DRAWN: Final = 12
"""Alternatives that are measured at each state."""

TEMPERATURE: Final = 0.1
"""Log ratio that makes an alternative e times as likely to be drawn."""

STATES: Final = 4
"""States of a task, the heuristic's counted."""


@dataclass(frozen=True, eq=False)
class OwnStates:
    """Lists the experiments of a policy.

    Attributes:
        policy: whose states they are.
        digest: of its checkpoint, for the card of the part.
    """

    policy: AdvantagePolicy
    digest: str

    def experiments(self, collector: Collector) -> list[Experiment]:
        """The duels of one task, the same whenever they are asked for."""
        rng = np.random.default_rng(int(collector.task.fingerprint[:15], 16))
        out: list[Experiment] = []
        for number, state in enumerate(self.states(collector)):
            out += self._drawn(collector, state, number > 0, rng)
        return out

    def states(self, collector: Collector) -> Iterator[Decisions]:
        """The heuristic's decisions, then those after each alternative that the policy takes."""
        yield collector.start
        seen = {collector.heuristic}
        rule = self.policy.rule
        bold = replace(rule, deviations=min(rule.deviations, 0.0), most=STATES - 1)
        guided = AdvantagePolicy(self.policy.network, bold, self.policy.machine)
        for _, after in guided.steps(collector.graph, collector.model, collector.start):
            text = encode_decisions(collector.graph, after)
            if text not in seen:  # one alternative may take back another
                seen.add(text)
                yield after

    def _drawn(
        self, collector: Collector, state: Decisions, own: bool, rng: np.random.Generator
    ) -> list[Experiment]:
        """Alternatives of a state; the text of the state is kept where it is the policy's own."""
        table = collector.table
        encoder = Encoder(table, collector.model, self.policy.machine)
        given = encoder.state(table.flat(state))
        if not len(given):
            return []
        mean, _ = self.policy.network.of(encoder.graph).score(given)
        text = encode_decisions(collector.graph, state) if own else ""
        found = []
        for place in draw(mean.astype(np.float64), DRAWN, rng):
            row = table.rows[int(given.rows[place])]
            rival = "policy" if own else "heuristic"
            edits = row.changes(state)
            found.append(Experiment(row.kind, row.node, row.weight, rival, edits, text))
        return list({e.edits: e for e in found}.values())


def draw(mean: NDArray[np.float64], count: int, rng: np.random.Generator) -> list[int]:
    """Places drawn without replacement, in proportion to exp(mean / TEMPERATURE), best first.

    Args:
        mean: float64 [A]; expected log ratios; what is not finite counts as 0.
        count: most places.
        rng: source of randomness.
    """
    logits = np.where(np.isfinite(mean), mean, 0.0) / TEMPERATURE
    order = np.argsort(-(logits + rng.gumbel(size=len(mean))), kind="stable")
    found: list[int] = order[:count].tolist()
    return found


Lists = Callable[[Collector], list[Experiment]]
"""Lists the experiments of a task."""


def own_states(path: Path | None) -> OwnStates | None:
    """The experiments of a policy; None without one.

    Raises:
        ConfigError: it is no policy over alternatives.
        PolicyError: the checkpoint does not fit.
    """
    if path is None:
        return None
    if not kind_of(path):
        resolve(path)  # says what is wrong where it is no policy at all
        raise ConfigError(
            what="the policy decides node by node, not by alternatives",
            where=f"--states-of {path}",
            fix="Give the policy/ folder of a run of graphopt advantages.",
        )
    checkpoint = load_advantages(path)
    return OwnStates(checkpoint.decider(), checkpoint.digest)
