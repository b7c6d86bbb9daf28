"""The child that runs probes: ``{"probe": name}`` in, ``{"holds": bool, "detail": text}`` out."""

from __future__ import annotations

import sys
from typing import Any

from graphopt.measure.capabilities import probes
from graphopt.measure.children.serving import serve


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Runs one probe; an exception means that the capability does not hold."""
    try:
        return {"holds": bool(getattr(probes, request["probe"])()), "detail": ""}
    except Exception as error:
        return {"holds": False, "detail": f"{type(error).__name__}: {error}"[:900]}


if __name__ == "__main__":
    sys.exit(serve(answer))
