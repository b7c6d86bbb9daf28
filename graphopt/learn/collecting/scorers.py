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
from graphopt.hlo import DecisionBatch, Decisions, Graph, build_graph
from graphopt.learn.tune.subject import make_subject
from graphopt.measure import Scores
from graphopt.measure.bank.predictor import KernelModel, model_of
from graphopt.measure.bank.scorer import BankScorer
from graphopt.measure.children.runner import Runner
from graphopt.measure.scoring import VectorMemory
from graphopt.store import Store
from graphopt.store.encoding import decisions_digest, encode_decisions
from graphopt.store.winners import outcomes

PROFILE_RUNS: Final = 5


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
    """

    def __init__(
        self, store: Store, look_s: float = 0.12, workers: int = 2, pessimism: float = 0.0
    ) -> None:
        """Opens nothing yet."""
        self.pessimism = pessimism
        self.store = store
        self.look_s = look_s
        self.workers = workers
        self._model: KernelModel | None = None
        self._runners: OrderedDict[str, Runner] = OrderedDict()
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
        runner = self.runner(problem)
        try:
            return 0 if runner is None else scorer.profile(runner, decisions, PROFILE_RUNS)
        except MeasureError:
            self._unmeasurable.add(problem.name)
            return 0

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
        """Times of B vectors in units of the default's time."""
        return self.memory.score(batch, self._measure)

    def _measure(self, decisions: Decisions) -> tuple[float, str | None]:
        runner = self._bench.runner(self._problem)
        if runner is None:
            return np.nan, "cannot be measured apart from its program"
        try:
            result = runner.measure(decisions, budget_s=self._bench.look_s, method="training")
        except MeasureError as error:
            return np.nan, error.what
        return (1.0 / result.ratio, None) if result.ok else (np.nan, result.status)
