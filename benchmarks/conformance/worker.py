"""The child of ``python -m benchmarks.conformance``: programs of harnesses under several decisions.

Answers ``{"name": "add_...", "form": "loop", "seeds": [6, 8]}`` with ``{"unsuitable": "why"}``, or with
``{"heuristic": {...}, "6": {...}, ...}``, each as `graphopt.evaluate.fuzzing.worker.Worker.trial` has it.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from benchmarks.conformance.harnesses import program
from graphopt.evaluate.fuzzing.worker import Worker
from graphopt.hlo import Decisions, Graph
from graphopt.measure.children.serving import serve
from graphopt.policy.heuristic.steps import heuristic


def decide(graph: Graph) -> Decisions:
    """The heuristic's decisions."""
    return heuristic(graph) or graph.default


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Trials of one program."""
    try:
        worker = Worker(program(request["name"], request["form"]))
    except Exception as error:  # XLA's default only so far: jax or the harness has no such form
        return {"unsuitable": f"{type(error).__name__}: {error}"[:200]}
    trials = {str(seed): worker.trial(seed) for seed in request["seeds"]}
    return {"heuristic": worker.judge(decide), **trials}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(serve(answer))
