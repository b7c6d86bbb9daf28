"""Variants of a module as requests: whole times and kernel times that machines of an executor measure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from graphopt.errors import MeasureError
from graphopt.executing.executor import Executor, own_needs
from graphopt.executing.request import Answer, Body, Request
from graphopt.executing.work import Result
from graphopt.hlo import Decisions, Graph
from graphopt.learn.collecting.circumstances import may_pass
from graphopt.learn.collecting.duel_requests import DIED, UNMEASURABLE
from graphopt.learn.collecting.warm import WARM, Inputs, packed_inputs
from graphopt.measure.children.runner import Measurement, record
from graphopt.store import Store, decisions_digest, decode_decisions, encode_decisions
from graphopt.store.kernels import Kernel, put_kernels
from graphopt.store.winners import quarantined

WORK: Final = "variants"
"""Kind of work of the requests."""

TRIES: Final = 3
"""Times that a request is made whose process died, or whose work failed."""

Profile = list[tuple[Kernel, int, float]]
"""Kernels of a variant in place: (kernel, first item, executions per run)."""


class ElsewhereRunner:
    """What `graphopt.measure.children.runner.Runner` does, by the machines of an executor.

    The results go to the store of whoever asks: the machines need not reach it.

    Attributes:
        graph: of the module.
    """

    def __init__(
        self, graph: Graph, data: bytes, inputs: Inputs | None, store: Store, executor: Executor
    ) -> None:
        """Asks for nothing yet.

        Args:
            graph: of the module.
            data: the default module, as the hook received it.
            inputs: one array per parameter; None for made-up ones.
            store: where results go, and which decisions are never tried again.
            executor: whose machines measure. Nothing else may be outstanding there.
        """
        self.graph = graph
        self._blobs = (data, *packed_inputs(inputs))
        self._store, self._executor = store, executor
        self._refused = quarantined(store, graph.fingerprint)

    def measure(
        self, variants: Sequence[Decisions], *, budget_s: float, method: str
    ) -> list[Measurement]:
        """Times of variants beside XLA's default, in their order; each is a request of its own.

        Args:
            variants: decisions inside the masks.
            budget_s: seconds of timing of each.
            method: what proposed them, for the store.

        Raises:
            MeasureError: the module cannot be measured apart from its program.
        """
        texts = [encode_decisions(self.graph, one) for one in variants]
        todo = [t for t in dict.fromkeys(texts) if decisions_digest(t) not in self._refused]
        bodies = {t: {"op": "measure", "decisions": t, "budget_s": budget_s} for t in todo}
        found = {}
        for text, answer in self._answers(bodies).items():
            found[text] = Measurement(**answer.body["result"])
            reason = record(self._store, self.graph.fingerprint, text, "{}", found[text], method)
            if reason:
                self._refused[decisions_digest(text)] = reason
        return [
            found.get(text) or Measurement("quarantined", self._refused[decisions_digest(text)])
            for text in texts
        ]

    def profile(self, decisions: Decisions, runs: int = 5) -> Profile:
        """Kernels of a variant in place, which go to the store; empty if the variant fails.

        Raises:
            MeasureError: the module cannot be measured apart from its program.
        """
        text = encode_decisions(self.graph, decisions)
        if decisions_digest(text) in self._refused:
            return []
        answer = self._answers({text: {"op": "profile", "decisions": text, "runs": runs}})[text]
        found = [
            (Kernel(key, ns, samples, tuple(features)), item, executions)
            for key, ns, samples, features, item, executions in answer.body["kernels"]
        ]
        put_kernels(self._store, [kernel for kernel, _, _ in found])
        return found

    def _answers(self, bodies: dict[str, Body]) -> dict[str, Answer]:
        """An answer to each body; what failed by circumstances is asked again."""
        needs = own_needs()
        found: dict[str, Answer] = {}
        for _ in range(TRIES):
            asked = {}
            for name in bodies.keys() - found.keys():
                request = Request(WORK, bodies[name], self._blobs, needs, self.graph.name)
                asked[request.id] = name
                self._executor.submit(request)
            last = list(self._executor.results())
            found |= {asked[a.id]: a for a in last if a.ok and DIED not in a.body}
            if len(found) == len(bodies):
                break
        else:
            raise _cannot(self.graph.name, next(_reasons(last)))
        for answer in found.values():
            if UNMEASURABLE in answer.body:
                raise _cannot(self.graph.name, str(answer.body[UNMEASURABLE]))
        return found


def _reasons(answers: Iterable[Answer]) -> Any:
    return (str(a.body.get(DIED, a.detail)) for a in answers if not a.ok or DIED in a.body)


def _cannot(name: str, why: str) -> MeasureError:
    return MeasureError(what=why, where=name, fix="The program is left out of what is measured.")


def measure(body: Body, blobs: tuple[bytes, ...]) -> Result:
    """Does the work of a request.

    Args:
        body: ``op``, ``measure`` with ``budget_s`` or ``profile`` with ``runs``; ``decisions`` as text.
        blobs: the module and its inputs, if any.
    """
    try:
        runner = WARM.of(blobs).runner
        decisions = decode_decisions(runner.graph, body["decisions"])
        if body["op"] == "profile":
            kernels = runner.profile(decisions, body["runs"])
            return {"kernels": [_row(*row) for row in kernels]}, ()
        result = runner.measure(decisions, budget_s=body["budget_s"])
    except MeasureError as error:
        WARM.close()
        return {DIED if may_pass(error) else UNMEASURABLE: error.what}, ()
    except BaseException:
        WARM.close()
        raise
    short = {"status": result.status, "detail": result.detail}
    return {"result": asdict(result) if result.ok else short}, ()


def _row(kernel: Kernel, item: int, executions: float) -> list[Any]:
    return [kernel.key, kernel.ns, kernel.samples, list(kernel.features), item, executions]
