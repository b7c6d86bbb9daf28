"""The measuring child: one module, one JSON request per line, one JSON answer per line."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from graphopt.errors import GraphOptError
from graphopt.measure.children.session import Session, WrongResult


def serve(session: Session, request: dict[str, Any]) -> dict[str, Any]:
    """Answers one request; a failure becomes a status, never an exception."""
    try:
        if request["op"] == "measure":
            answer = session.measure(
                request["decisions"],
                request.get("against", "{}"),
                request.get("options", {}),
                request["budget_s"],
            )
        else:
            answer = session.profile(request["decisions"], request["runs"])
    except WrongResult as error:
        return {"status": error.status, "detail": str(error)}
    except GraphOptError as error:
        return {"status": "illegal", "detail": str(error)}
    except MemoryError:
        return {"status": "memory", "detail": "out of memory"}
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        status = "memory" if "RESOURCE_EXHAUSTED" in text else "compile or run error"
        return {"status": status, "detail": text[:900]}
    return {"status": "ok", **answer}


def limit_memory(gigabytes: float) -> None:
    """Lets an allocation beyond the limit fail instead of taking the machine down."""
    limit = int(gigabytes * (1 << 30))
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main(arguments: list[str]) -> int:
    """``MODULE INPUTS-or-"-" MEMORY_GB``: serves requests until stdin closes."""
    module, inputs, memory = arguments
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # prints must not look like answers
    limit_memory(float(memory))
    try:
        session = Session(Path(module), None if inputs == "-" else Path(inputs))
        greeting: dict[str, Any] = {
            "status": "ok",
            "compile_s": session.default.compile_s,
            "run_s": session.run_s,
            "fingerprint": session.graph.fingerprint,
        }
    except Exception as error:
        greeting = {"status": "cannot measure", "detail": f"{type(error).__name__}: {error}"[:900]}
    answers.write(json.dumps(greeting) + "\n")
    answers.flush()
    if greeting["status"] != "ok":
        return 0
    for line in sys.stdin:
        answers.write(json.dumps(serve(session, json.loads(line))) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
