"""Where measured scores come from: the store, one kernel model, a few worker processes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from graphopt.closing import Closing
from graphopt.corpus.program import Program
from graphopt.errors import GraphOptError, MeasureError
from graphopt.executing.executor import Executor
from graphopt.hlo import DecisionBatch, Decisions, Graph, build_graph
from graphopt.learn.collecting.variants import ElsewhereRunner
from graphopt.learn.tune.subject import make_subject
from graphopt.measure import Scores
from graphopt.measure.bank.predictor import KernelModel, model_of
from graphopt.measure.bank.scorer import BankScorer
from graphopt.measure.children.runner import Measurement, Runner
from graphopt.measure.scoring import VectorMemory
from graphopt.store import Store
from graphopt.store.encoding import decisions_digest, encode_decisions
from graphopt.store.winners import outcomes

PROFILE_RUNS: Final = 5

METHOD: Final = "training"
"""Who proposed what is measured here, for the store."""

Time = tuple[float, str | None]
"""Of a variant, NaN where it has none, and then why."""

_NO_TIME: Final[Time] = (np.nan, "cannot be measured apart from its program")


class Problem(Protocol):
    """What scorers ask of a graph that is learned from (see `graphopt.learn.collecting.problems`)."""

    @property
    def name(self) -> str:
        """Program and module."""

    @property
    def graph(self) -> Graph:
        """The graph."""

    @property
    def data(self) -> bytes | None:
        """Its module; None where nothing is to be measured."""

    @property
    def program(self) -> Program | None:
        """Where it comes from, for its inputs; None if unknown."""


class Bench(Closing):
    """Makes scorers and measures; its worker processes end with it.

    Attributes:
        store: the kernel bank; grows while training.
        look_s: seconds of timing per decision vector of the ``measured`` scorer.
        workers: worker processes kept alive, one per module.
        pessimism: of bank scorers towards kernels that were never measured; see `KernelPricer`.
        executor: whose machines measure what training asks for; None for worker processes of this one.
    """

    def __init__(
        self,
        store: Store,
        look_s: float = 0.12,
        workers: int = 2,
        pessimism: float = 0.0,
        executor: Executor | None = None,
    ) -> None:
        """Opens nothing yet."""
        self.pessimism = pessimism
        self.executor = executor
        self.store = store
        self.look_s = look_s
        self.workers = workers
        self._model: KernelModel | None = None
        self._runners: OrderedDict[str, Runner] = OrderedDict()
        self._elsewhere: dict[str, ElsewhereRunner] = {}
        self._unmeasurable: set[str] = set()

    def close(self) -> None:
        """Ends all workers."""
        while self._runners:
            self._runners.popitem()[1].close()

    @property
    def model(self) -> KernelModel:
        """Predicts kernels that the bank does not know; trained once from the bank."""
        if self._model is None:
            self._model = model_of(self.store)
        return self._model

    def bank(self, problem: Problem) -> BankScorer:
        """A scorer by the kernel bank."""
        return BankScorer(problem.graph, self.store, self.model, self.pessimism)

    def measured(self, problem: Problem) -> RatioScorer:
        """A scorer that compiles and times whole modules."""
        return RatioScorer(self, problem)

    def profile(self, problem: Problem, scorer: BankScorer, decisions: Decisions) -> int:
        """Measures the kernels of a vector in place, into the bank; kernels measured, 0 if impossible."""
        runner = self.runner(problem) if self.executor is None else self._other(problem)
        try:
            return 0 if runner is None else scorer.profile(runner, decisions, PROFILE_RUNS)
        except MeasureError:
            self._unmeasurable.add(problem.name)
            return 0

    def times(self, problem: Problem, variants: Sequence[Decisions]) -> list[Time]:
        """Times of variants in units of the default's time, in their order; by all machines at once."""
        if self.executor is None:
            return [self._time(problem, decisions) for decisions in variants]
        other = self._other(problem)
        if other is None:
            return [_NO_TIME] * len(variants)
        try:
            found = other.measure(variants, budget_s=self.look_s, method=METHOD)
        except MeasureError as error:
            return [(np.nan, error.what)] * len(variants)
        return [_time(result) for result in found]

    def _time(self, problem: Problem, decisions: Decisions) -> Time:
        runner = self.runner(problem)
        if runner is None:
            return _NO_TIME
        try:
            return _time(runner.measure(decisions, budget_s=self.look_s, method=METHOD))
        except MeasureError as error:
            return np.nan, error.what

    def _other(self, problem: Problem) -> ElsewhereRunner | None:
        """What asks the executor about a problem's module; None if it cannot be measured alone."""
        if problem.name in self._unmeasurable or problem.data is None or self.executor is None:
            return None
        if problem.name not in self._elsewhere:
            inputs = program_inputs(problem)
            self._elsewhere[problem.name] = ElsewhereRunner(
                problem.graph, problem.data, inputs, self.store, self.executor
            )
        return self._elsewhere[problem.name]

    def runner(self, problem: Problem) -> Runner | None:
        """The worker for a problem's module, made if need be; None if it cannot be measured alone."""
        if problem.name in self._unmeasurable or problem.data is None:
            return None
        if problem.name not in self._runners:
            while len(self._runners) >= self.workers:
                self._runners.popitem(last=False)[1].close()
            inputs = program_inputs(problem)
            self._runners[problem.name] = Runner(problem.data, inputs, self.store)
        self._runners.move_to_end(problem.name)
        return self._runners[problem.name]


def program_inputs(problem: Problem) -> Sequence[NDArray[np.generic]] | None:
    """What the program passes to the problem's module; None if that is not known."""
    if problem.program is None:
        return None
    try:
        fn, args = problem.program.build()
        data, inputs = make_subject(fn, args).modules[0]
        same = build_graph(data, allow_donation=True).fingerprint == problem.graph.fingerprint
    except GraphOptError:
        return None
    return inputs if same else None


class RatioScorer:
    """Compiles and times whole modules against XLA's default, each decision vector once.

    What the store knows from earlier runs is not measured again.

    Attributes:
        name: ``measured``.
        graph: the graph whose decisions it scores.
        deterministic: False; repeated questions are answered from memory.
        default_s: 1: times are in units of the time of XLA's own decisions.
    """

    name = "measured"
    deterministic = False
    default_s = 1.0

    def __init__(self, bench: Bench, problem: Problem) -> None:
        """Measures nothing yet."""
        self.graph: Graph = problem.graph
        self._bench = bench
        self._problem = problem
        self.memory = VectorMemory(self._digest)
        known = self.memory.known
        known[self._digest(self.graph.default)] = (1.0, None)
        if bench.store.exists():
            for text, ratio in outcomes(bench.store, self.graph.fingerprint):
                failed = (np.nan, "failed when it was measured")
                known.setdefault(decisions_digest(text), (1.0 / ratio, None) if ratio else failed)

    def _digest(self, decisions: Decisions) -> str:
        return decisions_digest(encode_decisions(self.graph, decisions))

    def score(self, batch: DecisionBatch) -> Scores:
        """Times of B vectors in units of the default's time; those that are new are measured together."""
        found = {}
        for index in range(len(batch)):
            decisions = batch[index]
            if self._digest(decisions) not in self.memory.known:
                found[self._digest(decisions)] = decisions
        times = dict(
            zip(found, self._bench.times(self._problem, list(found.values())), strict=True)
        )
        return self.memory.score(batch, lambda decisions: times[self._digest(decisions)])


def _time(result: Measurement) -> Time:
    return (1.0 / result.ratio, None) if result.ok else (np.nan, result.status)
