"""graphopt: a learned fusion-and-placement pass for XLA.

>>> import graphopt
>>> graphopt.install()            # every jax.jit from now on
>>> print(graphopt.report())      # what was seen, rewritten, kept, and why
"""

from graphopt.corpus.capture import capture, capture_modules
from graphopt.errors import GraphOptError
from graphopt.evaluate.explain import explain
from graphopt.hlo import Decisions, Graph, build_graph, rewrite
from graphopt.learn.tune import TuneResult, replay, tune
from graphopt.own_jit import jit
from graphopt.plugin import install, report, reset_report, uninstall
from graphopt.store import Store
from graphopt.version import VERSION as __version__

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
    "replay",
    "report",
    "reset_report",
    "rewrite",
    "tune",
    "uninstall",
]
