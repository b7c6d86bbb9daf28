"""The child's side of a calibration: one probe per request.

Requests are ``{"probe": NAME, "seconds": S}``, answers ``{"reading_ns": R}`` or ``{"failed": WHY}``. The name
"" asks whether the child is ready.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Answers one request; what a probe raises becomes an answer."""
    from graphopt.errors import GraphOptError
    from graphopt.measure.calibrating.probes import PROBES

    if not request["probe"]:
        return {"reading_ns": 1.0}
    (probe,) = (p for p in PROBES if p.name == request["probe"])
    try:
        return {"reading_ns": probe.read(request["seconds"])}
    except GraphOptError as error:
        return {"failed": error.what}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:300]}


def main() -> int:
    """Serves requests until standard input ends."""
    # The facts are those of XLA's usual options and of no other program.
    os.environ.pop("XLA_FLAGS", None)
    import jax

    from graphopt.measure.children.serving import serve

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    return serve(answer)


if __name__ == "__main__":
    sys.exit(main())
