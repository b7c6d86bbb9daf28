"""What callers pass to an environment, checked: arguments, and the choice of a graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.env.sources import GraphItem
from graphopt.errors import ConfigError


def bad_argument(
    where: str, what: str, fix: str = "See help(graphopt.env.FusionPlacementEnv)."
) -> ConfigError:
    """The error of an argument without a usable value."""
    return ConfigError(what=what, where=where, fix=fix)


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
