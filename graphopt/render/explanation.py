"""Explanations: default clusters beside chosen clusters, what moved, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import Decisions, Graph
from graphopt.render.image import explanation_image
from graphopt.render.measured import Measured
from graphopt.render.modules import ModuleExplanation, explain_module
from graphopt.render.moves import summarise
from graphopt.render.page import explanation_page
from graphopt.render.text import explanation_text


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a policy changes in a program, and why. ``print`` it, or save it as a page.

    Attributes:
        title: what is explained.
        policy: who decided.
        modules: one entry per HLO module of the program.
        measured: both programs run in turn; None where they were not.
        why_estimated: why not; empty if they were.
    """

    title: str
    policy: str
    modules: tuple[ModuleExplanation, ...]
    measured: Measured | None = None
    why_estimated: str = ""

    @property
    def speedup(self) -> float:
        """Measured where it was; else what the clock of the module that changes most says."""
        if self.measured is not None:
            return self.measured.times.speedup
        return self.modules[0].speedup if self.modules else 1.0

    def text(self, moves: int = 12) -> str:
        """A summary: what was measured, then totals per module and the `moves` groups of clusters
        whose time changes most."""
        return explanation_text(self.title, self.policy, self.modules, moves, self._head())

    def _head(self) -> list[str]:
        if self.measured is not None:
            return self.measured.text()
        return [f"not measured: {self.why_estimated}"] if self.why_estimated else []

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain data, for JSON: what was measured, and what is decided otherwise."""
        return {
            "title": self.title,
            "policy": self.policy,
            "speedup": self.speedup,
            "measured": self.measured.to_dict() if self.measured else None,
            "why_estimated": self.why_estimated,
            "modules": [
                {
                    "name": module.name,
                    "nodes": len(module.graph),
                    "remark": module.remark,
                    "clock": module.clock,
                    "estimated_default_s": module.default.seconds,
                    "estimated_chosen_s": module.chosen.seconds,
                    "changes": summarise(tuple(module.changes)),
                }
                for module in self.modules
            ],
        }

    def html(self) -> str:
        """One self-contained page: nothing is loaded from elsewhere."""
        return explanation_page(self.title, self.policy, self.modules, self._head())

    def save_html(self, path: str | Path) -> Path:
        """Writes the page; returns its path."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.html(), encoding="utf-8")
        return target

    def image(self) -> NDArray[np.uint8]:
        """uint8 [height, width, 3]; a picture of the first module: time by cluster, default and
        chosen."""
        return explanation_image(self.modules)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """A notebook shows the summary; the page is for a window of its own."""
        from html import escape

        return f"<pre>{escape(self.text())}</pre>"


def explain_decisions(
    graph: Graph, decisions: Decisions, title: str = "", policy: str = "decisions", **options: Any
) -> Explanation:
    """Explains decisions of one graph; options are those of `explain_module`.

    Raises:
        DecisionError: the decisions do not fit the graph or its masks.
    """
    module = explain_module(graph, decisions, label=title, **options)
    return Explanation(title or graph.name, policy, (module,))


def join_explanations(
    title: str,
    policy: str,
    modules: Sequence[ModuleExplanation],
    measured: Measured | None = None,
    why_estimated: str = "",
) -> Explanation:
    """One explanation of several modules, the one that changes most first."""
    ordered = sorted(modules, key=lambda m: -abs(m.default.seconds - m.chosen.seconds))
    return Explanation(title, policy, tuple(ordered), measured, why_estimated)
