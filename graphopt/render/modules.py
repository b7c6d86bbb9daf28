"""One module under XLA's decisions and under others: what executes, what moved, how long it takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.source_lines import SourceLines
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
