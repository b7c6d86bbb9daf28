"""Pictures of an environment's last step: default against chosen clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import gymnasium

from graphopt.env.rewards import RewardSource
from graphopt.env.sources import GraphItem
from graphopt.hlo import Decisions

RENDER_MODES: Final = ("ansi", "rgb_array", "html")
"""Text, a picture, a page."""


def explained(item: GraphItem, decisions: Decisions, source: RewardSource) -> Any:
    """What decisions change and why: a `graphopt.render.Explanation`."""
    from graphopt.render import explain_decisions  # drawing is needed only here
    from graphopt.render.clocks import best_times

    options: dict[str, Any] = {}
    if source.name != "analytic":
        options["times"], options["clock"] = best_times(item.graph)
    return explain_decisions(item.graph, decisions, title=item.name, **options)


def draw(mode: str | None, explanation: Callable[[], Any]) -> Any:
    """An explanation in a render mode: text, a picture or a page; None, with a warning, without a mode."""
    if mode is None:
        gymnasium.logger.warn("render() without a render_mode shows nothing; pass one to make()")
        return None
    shown = explanation()
    if mode == "ansi":
        return shown.text()
    return shown.image() if mode == "rgb_array" else shown.html()
