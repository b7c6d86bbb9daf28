"""graphopt: a learned fusion-and-placement pass for XLA.

>>> import graphopt
>>> graphopt.install()            # every jax.jit from now on
>>> print(graphopt.report())      # what was seen, rewritten, kept, and why
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from graphopt.corpus.capture import capture, capture_modules
from graphopt.errors import GraphOptError
from graphopt.hlo import Decisions, Graph, build_graph, rewrite
from graphopt.plugin import install, report, reset_report, uninstall
from graphopt.store import Store
from graphopt.version import VERSION as __version__

if TYPE_CHECKING:
    from graphopt.devices.place import place as place
    from graphopt.evaluate.commands.explain import explain as explain
    from graphopt.learn.tune import TuneResult as TuneResult
    from graphopt.learn.tune import replay as replay
    from graphopt.learn.tune import tune as tune
    from graphopt.own_jit import jit as jit

_ON_DEMAND = {
    "TuneResult": "graphopt.learn.tune",
    "explain": "graphopt.evaluate.commands.explain",
    "jit": "graphopt.own_jit",
    "place": "graphopt.devices.place",
    "replay": "graphopt.learn.tune",
    "tune": "graphopt.learn.tune",
}
"""Names whose modules import jax: loaded when first used, so that importing graphopt stays cheap."""

__all__ = [
    "Decisions",
    "Graph",
    "GraphOptError",
    "Store",
    "TuneResult",
    "__version__",
    "build_graph",
    "capture",
    "capture_modules",
    "explain",
    "install",
    "jit",
    "place",
    "replay",
    "report",
    "reset_report",
    "rewrite",
    "tune",
    "uninstall",
]


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_ON_DEMAND[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
