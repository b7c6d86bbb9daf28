"""Facts derived from a graph once: kept with it, computed by modules that know more than the graph does.

`Graph` offers some facts as properties (masks, fingerprint ...) whose rules read graphs. Those modules
register what computes a fact by name, so that the graph imports none of them. Facts that only one module
needs are functions with `per_graph`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, Protocol, TypeVar


class Remembers(Protocol):
    """A graph: what was derived from it is kept in `derived`, by name or function."""

    @property
    def derived(self) -> dict[Any, Any]:
        """What was derived so far."""


G = TypeVar("G", bound=Remembers)
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_FACTS: Final[dict[str, Callable[[Any], Any]]] = {}
"""Name of a fact -> what computes it from a graph."""


def derives(name: str) -> Callable[[F], F]:
    """Registers the decorated function, of a graph, as the one that computes a fact."""

    def register(compute: F) -> F:
        _FACTS[name] = compute
        return compute

    return register


def fact(graph: Remembers, name: str) -> Any:
    """A registered fact of a graph, computed when first asked for."""
    known = graph.derived
    if name not in known:
        known[name] = _FACTS[name](graph)
    return known[name]


def per_graph(compute: Callable[[G], T]) -> Callable[[G], T]:
    """A function of a graph whose result is kept with the graph."""

    @wraps(compute)
    def remembered(graph: G) -> T:
        known = graph.derived
        if remembered not in known:
            known[remembered] = compute(graph)
        found: T = known[remembered]
        return found

    return remembered
