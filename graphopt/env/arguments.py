"""What callers pass to an environment, checked: arguments, and the choice of a graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.env.sources import GraphItem
from graphopt.errors import ConfigError
from graphopt.hlo import Graph


def bad_argument(
    where: str, what: str, fix: str = "See the environment's docstring, help(env.unwrapped)."
) -> ConfigError:
    """The error of an argument without a usable value."""
    return ConfigError(what=what, where=where, fix=fix)


def check_render_mode(mode: str | None, modes: Sequence[str]) -> None:
    """Checks a render mode; None draws nothing.

    Raises:
        ConfigError: there is no such mode.
    """
    if mode is not None and mode not in modes:
        raise bad_argument("render_mode", f"{mode!r} is none of {', '.join(modes)}")


def edge_count(graph: Graph) -> int:
    """Number L of edges of a graph's observation."""
    return len(graph.operands) + len(graph.control) + len(graph.computations) - 1


def fitting(
    items: Sequence[GraphItem], max_nodes: int | None, max_edges: int | None = None
) -> tuple[GraphItem, ...]:
    """The graphs with at most so many nodes and edges; None allows any number.

    Raises:
        ConfigError: there is none.
    """
    nodes = float("inf") if max_nodes is None else max_nodes
    edges = float("inf") if max_edges is None else max_edges
    fit = tuple(i for i in items if len(i.graph) <= nodes and edge_count(i.graph) <= edges)
    if not fit:
        limits = " and ".join(
            f"{limit} {what}"
            for limit, what in ((max_nodes, "nodes"), (max_edges, "edges"))
            if limit is not None
        )
        raise bad_argument(
            "max_nodes, max_edges",
            f"none of {len(items)} graphs has at most {limits}",
            "Allow more.",
        )
    return fit


def pick_graph(
    items: Sequence[GraphItem], wanted: int | str | None, rng: np.random.Generator
) -> int:
    """Index of a graph by index or name; a random one for None.

    Raises:
        ConfigError: there is no such graph.
    """
    if wanted is None:
        return int(rng.integers(len(items)))
    names = [item.name for item in items]
    if isinstance(wanted, str) and wanted in names:
        return names.index(wanted)
    if isinstance(wanted, int | np.integer) and 0 <= wanted < len(names):
        return int(wanted)
    raise bad_argument("options", f"there is no graph {wanted!r} among {', '.join(names)}")
