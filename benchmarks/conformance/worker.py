"""The child of ``python -m benchmarks.conformance``: programs of harnesses under several decisions.

Reads ``{"name": "add_...", "form": "loop", "seeds": [6, 8]}`` per line and answers with one line:
``{"unsuitable": "why"}``, or ``{"heuristic": {...}, "6": {...}, ...}``, each as
`graphopt.evaluate.fuzz_worker.Worker.trial` has it.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

from benchmarks.conformance.harnesses import program
from graphopt.evaluate.fuzz_worker import Worker
from graphopt.hlo import Decisions, Graph
from graphopt.policy.heuristic import heuristic


def decide(graph: Graph) -> Decisions:
    """The heuristic's decisions."""
    return heuristic(graph) or graph.default


def answer(name: str, form: str, seeds: list[int]) -> dict[str, Any]:
    """Trials of one program."""
    try:
        worker = Worker(program(name, form))
    except Exception as error:  # whatever jax, XLA or the harness have against this form
        return {"unsuitable": f"{type(error).__name__}: {error}"[:200]}
    return {"heuristic": worker.judge(decide), **{str(seed): worker.trial(seed) for seed in seeds}}


def main() -> int:
    """Serves requests until stdin closes."""
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        answers.write(json.dumps(answer(**json.loads(line))) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
