"""The decision rule: the best alternative whose lower bound promises a gain, then anew, until none does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.costs.model import CostModel
from graphopt.errors import ConfigError
from graphopt.hlo import Decisions, Graph
from graphopt.machine import Machine
from graphopt.policy.advantages.encoding import Encoder, StateInput
from graphopt.policy.advantages.numpy_network import GraphScorer, NumpyAdvantages
from graphopt.policy.alternatives.alternative import KIND_CODE, Alternative
from graphopt.policy.alternatives.table import AlternativeTable, Values, alternatives
from graphopt.policy.heuristic.caller_thread import is_negligible
from graphopt.policy.heuristic.loops.native_loops import MAX_NATIVE_CODE
from graphopt.policy.heuristic.steps import STEPS, Decided, choose, decide
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.native_code import native_code
from graphopt.policy.heuristic.support.step import Applied

HEURISTIC: Final = "heuristic"
DEFAULT: Final = "default"
_STARTS: Final = (HEURISTIC, DEFAULT)


@dataclass(frozen=True)
class Rule:
    """How advantages become decisions.

    Attributes:
        start: where it begins: ``heuristic``, or ``default`` for XLA's own decisions.
        deviations: standard deviations below the mean at which the lower bound lies.
        least: log ratio that the lower bound must exceed.
        most: alternatives that are applied, one after the other.
        sites: heaviest alternatives of the graph that are looked at.
        kinds: kinds that were trained; others are never chosen.
    """

    start: str = HEURISTIC
    deviations: float = 1.0
    least: float = 0.0
    most: int = 8
    sites: int = 256
    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ConfigError: one makes no sense.
        """
        bad = [n for n in ("deviations", "least") if not math.isfinite(getattr(self, n))]
        bad += [name for name in ("most", "sites") if getattr(self, name) < 1]
        bad += ["start"] if self.start not in _STARTS else []
        if bad:
            raise ConfigError(
                what=f"unusable rule {bad[0]}={getattr(self, bad[0])!r}",
                where="advantage policy",
                fix=f"Numbers are finite, counts positive; start is one of {', '.join(_STARTS)}.",
            )


@dataclass(frozen=True, eq=False)
class Taken:
    """One alternative that was applied.

    Attributes:
        alternative: what.
        before: the decisions before it.
        mean: expected log ratio.
        deviation: its standard deviation.
    """

    alternative: Alternative
    before: Decisions
    mean: float
    deviation: float


@dataclass(frozen=True, eq=False)
class Advantageous:
    """What the policy decides for a graph.

    Attributes:
        decisions: inside the graph's masks.
        name: who decided, for reports.
        gain: expected log ratio over what the policy started from.
        taken: alternatives that were applied, in order.
        steps: steps of the heuristic behind the start.
        failed: steps of it that raised, each with its error.
        speedup: expected over XLA's default; 0, nothing promised, where the heuristic was the start.
    """

    decisions: Decisions
    name: str
    gain: float = 0.0
    taken: tuple[Taken, ...] = ()
    steps: tuple[Applied, ...] = ()
    failed: tuple[str, ...] = ()
    speedup: float = 0.0


class AdvantagePolicy:
    """A network of advantages with its decision rule: a `graphopt.policy.Policy`.

    Attributes:
        network: in numpy.
        rule: how it decides.
        machine: machine whose caches the columns refer to; None for this one.
    """

    def __init__(
        self, network: NumpyAdvantages, rule: Rule, machine: Machine | None = None
    ) -> None:
        """Takes a network as it is."""
        self.network, self.rule, self.machine = network, rule, machine

    def __call__(self, graph: Graph) -> Decisions | None:
        """The chosen decisions, or None for XLA's default."""
        chosen = self.choose(graph)
        return None if chosen is None else chosen.decisions

    def choose(self, graph: Graph) -> Advantageous | None:
        """The chosen decisions with what is expected of them, or None for XLA's default."""
        if len(graph) == 0:
            return None
        try:
            model = CostModel(graph)
            if is_negligible(graph, model):
                return None
            found = self.decide(graph, model)
        except Exception as error:  # a checkpoint may be bad; the heuristic needs no network
            plain = choose(graph)
            if plain is None:
                return None
            name = f"heuristic, because the network failed: {type(error).__name__}"
            return Advantageous(plain.decisions, name, steps=plain.steps, failed=plain.failed)
        return found if found.failed or not found.decisions.same_as(graph.default) else None

    def decide(self, graph: Graph, model: CostModel) -> Advantageous:
        """Decisions, also where they are XLA's own."""
        decided = self._start(graph, model)
        taken: list[Taken] = []
        out = decided.decisions
        for step, after in self.steps(graph, model, out):
            taken.append(step)
            out = after
        gain = sum(step.mean for step in taken)
        plain = self.rule.start == DEFAULT
        return Advantageous(
            out, "advantages" if taken else self.rule.start, gain, tuple(taken), decided.steps,
            decided.failed, math.exp(min(gain, 20.0)) if plain else 0.0,
        )  # fmt: skip

    def _start(self, graph: Graph, model: CostModel) -> Decided:
        if self.rule.start == DEFAULT:
            return Decided(graph.default, ())
        return decide(graph, STEPS, model, tolerant=True)

    def steps(
        self, graph: Graph, model: CostModel, start: Decisions, program: bool = False
    ) -> Iterator[tuple[Taken, Decisions]]:
        """Alternatives that the policy applies from a state on, each with the decisions after it.

        Args:
            graph: of the program or task.
            model: its costs.
            start: the first state.
            program: with alternatives about the whole program.
        """
        table = alternatives(graph, model, limit=self.rule.sites, program=program)
        if len(table) < 2:
            return
        encoder = Encoder(table, model, self.machine)
        scorer = self.network.of(encoder.graph)
        limit = _most_code(graph, model, start)
        known = np.isin(table.kind, [KIND_CODE[k] for k in self.rule.kinds if k in KIND_CODE])
        flat = table.flat(start)
        used = np.zeros(len(table), np.bool_)
        for _ in range(self.rule.most):
            state = encoder.state(flat)
            found = self._best(table, flat, state, scorer, known & ~used, limit, model)
            if found is None:
                return
            index, mean, deviation = found
            before = table.decisions(flat)
            table.choose(flat, index)
            used[index] = True  # nothing goes back and forth
            yield Taken(table.rows[index], before, mean, deviation), table.decisions(flat)

    def _best(
        self,
        table: AlternativeTable,
        flat: Values,
        state: StateInput,
        scorer: GraphScorer,
        allowed: NDArray[np.bool_],
        limit: float,
        model: CostModel,
    ) -> tuple[int, float, float] | None:
        """Index, mean, deviation of the alternative with the highest lower bound; None to stop."""
        with np.errstate(all="ignore"):  # a broken checkpoint must not warn in a user's program
            mean, deviation = scorer.score(state)
            low = mean - self.rule.deviations * deviation
        low[~(allowed[state.rows] & (low > self.rule.least))] = -np.inf  # NaN too
        for place in np.argsort(-low, kind="stable").tolist():
            if not low[place] > -np.inf:
                return None
            index = int(state.rows[place])
            if _compiles_fast(table, flat, index, limit, model):
                return index, float(mean[place]), float(deviation[place])
        return None


def _most_code(graph: Graph, model: CostModel, start: Decisions) -> float:
    """Native code that may be written: what the heuristic would write at most, or the start has."""
    return max(MAX_NATIVE_CODE, native_code(Context(graph, model, start)))


def _compiles_fast(
    table: AlternativeTable, flat: Values, index: int, limit: float, model: CostModel
) -> bool:
    """True unless an alternative makes more native code than `limit`: nothing else would stop it."""
    if not any(field == "unit" for field, _, _ in table.rows[index].edits):
        return True
    wanted = flat.copy()
    table.choose(wanted, index)
    return native_code(Context(table.graph, model, table.decisions(wanted))) <= limit
