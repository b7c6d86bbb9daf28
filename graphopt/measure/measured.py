"""Whole-module measurement as a scorer: the truth, at the price of a compile per vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from graphopt.errors import MeasureError
from graphopt.hlo import DecisionBatch, Decisions, Graph, build_graph
from graphopt.measure.children.runner import Runner
from graphopt.measure.compiling.functions import compile_with
from graphopt.measure.inputs import recorded_inputs
from graphopt.measure.scoring import Scores, VectorMemory
from graphopt.store import Store

BUDGET_S: Final = 0.3
"""Seconds of timing per vector."""


class MeasuredScorer:
    """Compiles, checks and times every vector in a child process, in turn with XLA's default.

    A vector is measured once and remembered: within one scorer equal vectors get equal scores.

    Attributes:
        name: ``measured``.
        graph: the graph whose vectors it scores.
        deterministic: False.
        runner: the child process.
    """

    name = "measured"
    deterministic = False

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[np.ndarray[Any, Any]] | None = None,
        store: Store | None = None,
        budget_s: float = BUDGET_S,
    ) -> None:
        """Names what will be measured; nothing runs yet.

        Args:
            graph: whose vectors are scored.
            inputs: one array per parameter; None for made-up ones.
            store: where measurements go; None keeps none.
            budget_s: seconds of timing per vector.
        """
        self.graph = graph
        self.runner = Runner(graph.source.module.proto.SerializeToString(), inputs, store)
        self.budget_s = budget_s
        self._default_s: float | None = None
        self.memory = VectorMemory()

    @classmethod
    def of_program(
        cls, graph: Graph, fn: Callable[..., Any], args: tuple[Any, ...], **options: Any
    ) -> MeasuredScorer:
        """A scorer that runs the graph on a program's own arguments.

        Raises:
            MeasureError: the program compiles to another graph by now.
        """
        for forms in (True, False):  # as it is installed, else as jax lowers it by itself
            compiled = compile_with(fn, args, forms=forms)
            found = [build_graph(data).fingerprint for data in compiled.modules]
            if graph.fingerprint in found:
                break
        if graph.fingerprint not in found:
            raise MeasureError(
                what="the program no longer compiles to this graph",
                where=graph.name,
                fix="Capture the graph anew, with this jax and on this machine.",
            )
        return cls(graph, recorded_inputs(compiled.executable, args), **options)

    @property
    def default_s(self) -> float:
        """Seconds of XLA's own decisions.

        Raises:
            MeasureError: the module cannot be measured apart from its program.
        """
        if self._default_s is None:
            found = self.runner.measure(self.graph.default, budget_s=self.budget_s)
            if not found.ok:
                raise MeasureError(
                    what=f"XLA's own decisions cannot be measured: {found.status} {found.detail}",
                    where=self.graph.name,
                    fix="Use the kernel bank or the analytic model for this graph.",
                )
            self._default_s = found.rival_s
        return self._default_s

    def score(self, batch: DecisionBatch) -> Scores:
        """Times of B vectors inside the graph's masks; each is one compile unless it is known."""
        return self.memory.score(batch, self._measure)

    def _measure(self, decisions: Decisions) -> tuple[float, str | None]:
        default_s = self.default_s
        if decisions.same_as(self.graph.default):
            return default_s, None
        found = self.runner.measure(decisions, budget_s=self.budget_s)
        if not found.ok:
            return float("nan"), f"{found.status} {found.detail}".strip()
        # A paired ratio holds where two times taken minutes apart do not.
        return default_s / found.ratio, None

    def close(self) -> None:
        """Ends the child process."""
        self.runner.close()
