"""Explanations: default clusters beside chosen clusters, what moved, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.module.source_lines import SourceLines
from graphopt.measure.analytic import AnalyticModel
from graphopt.render.moves import Change, Move, find_changes, find_moves
from graphopt.render.parts import PartTimes, Side, make_side


@dataclass(frozen=True, eq=False)
class ModuleExplanation:
    """One module under XLA's decisions and under others.

    Attributes:
        graph: the module's graph.
        default: what it executes by XLA's decisions.
        chosen: what it executes by the others.
        clock: who says the times: ``analytic model``, ``kernel bank`` ...
        remark: what the policy had to say about the module; empty if nothing.
        label: what to call it; empty for the module's own name.
    """

    graph: Graph
    default: Side
    chosen: Side
    clock: str
    remark: str = ""
    label: str = ""

    @property
    def name(self) -> str:
        """The label, or the module's own name."""
        return self.label or self.graph.name

    @cached_property
    def changes(self) -> list[Change]:
        """Every decision that differs from XLA's, in node order."""
        return find_changes(self.graph, self.chosen)

    @cached_property
    def moves(self) -> list[Move]:
        """Groups of parts that replace each other; most seconds changed first."""
        return find_moves(self.graph, self.default, self.chosen)

    @cached_property
    def sources(self) -> SourceLines:
        """The user's source lines."""
        return SourceLines(self.graph)

    @property
    def speedup(self) -> float:
        """Default seconds / chosen seconds, by the clock; 1 for a module that executes nothing."""
        return self.default.seconds / self.chosen.seconds if self.chosen.seconds > 0 else 1.0


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a policy changes in a program, and why. ``print`` it, or save it as a page.

    Attributes:
        title: what is explained.
        policy: who decided.
        modules: one entry per HLO module of the program.
    """

    title: str
    policy: str
    modules: tuple[ModuleExplanation, ...]

    def text(self, moves: int = 12) -> str:
        """A summary: totals, then the `moves` groups of clusters whose time changes most, per
        module."""
        from graphopt.render.text import explanation_text

        return explanation_text(self, moves)

    def html(self) -> str:
        """One self-contained page: nothing is loaded from elsewhere."""
        from graphopt.render.page import explanation_page

        return explanation_page(self)

    def save_html(self, path: str | Path) -> Path:
        """Writes the page; returns its path."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.html(), encoding="utf-8")
        return target

    def image(self) -> NDArray[np.uint8]:
        """uint8 [height, width, 3]; a picture of the first module: time by cluster, default and
        chosen."""
        from graphopt.render.image import explanation_image

        return explanation_image(self)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """A notebook shows the summary; the page is for a window of its own."""
        from html import escape

        return f"<pre>{escape(self.text())}</pre>"


def explain_module(
    graph: Graph,
    decisions: Decisions,
    *,
    times: PartTimes | None = None,
    clock: str = "analytic model",
    remark: str = "",
    label: str = "",
) -> ModuleExplanation:
    """Explains one module.

    Args:
        graph: its graph.
        decisions: inside the graph's masks.
        times: seconds of every part; the analytic model's by default.
        clock: who says the times.
        remark: what the policy had to say.
        label: what to call the module.

    Raises:
        DecisionError: the decisions do not fit the graph or its masks.
    """
    graph.masks.check(decisions)
    clocked = AnalyticModel(graph).item_seconds if times is None else times
    default = make_side(graph, graph.default, clocked)
    same = decisions.same_as(graph.default)
    chosen = default if same else make_side(graph, decisions, clocked)
    return ModuleExplanation(graph, default, chosen, clock, remark, label)


def explain_decisions(
    graph: Graph, decisions: Decisions, title: str = "", policy: str = "decisions", **options: Any
) -> Explanation:
    """Explains decisions of one graph; options are those of `explain_module`.

    Raises:
        DecisionError: the decisions do not fit the graph or its masks.
    """
    module = explain_module(graph, decisions, label=title, **options)
    return Explanation(title or graph.name, policy, (module,))


def join_explanations(title: str, policy: str, modules: Sequence[ModuleExplanation]) -> Explanation:
    """One explanation of several modules, the one that changes most first."""
    ordered = sorted(modules, key=lambda m: -abs(m.default.seconds - m.chosen.seconds))
    return Explanation(title, policy, tuple(ordered))
