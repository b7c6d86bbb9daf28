"""Explanations as plain text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from graphopt.render.modules import ModuleExplanation
from graphopt.render.moves import Move, summarise
from graphopt.render.parts import Part, Side, main_node, shape_text, time_text


def explanation_text(
    title: str,
    policy: str,
    modules: Sequence[ModuleExplanation],
    moves: int = 12,
    head: Sequence[str] = (),
) -> str:
    """A summary per module; see `Explanation.text`.

    Args:
        title: what is explained.
        policy: who decided.
        modules: one entry per module.
        moves: groups of clusters shown of each.
        head: lines about the whole program.
    """
    lines = [f"{title}: {policy} against XLA's default", *head]
    for module in modules:
        lines += ["", *_module(module, moves)]
    return "\n".join(lines)


def _module(module: ModuleExplanation, limit: int) -> list[str]:
    graph = module.graph
    lines = [
        f"module {module.name}: {len(graph)} nodes, {len(graph.computations)} computations",
        f"  times estimated by the {module.clock}:",
        f"  default {_totals(module.default)}",
    ]
    if module.remark:
        lines.append(f"  {module.remark}")
    if not module.changes:
        return [*lines, "  nothing is decided otherwise than by XLA"]
    lines.append(f"  chosen  {_totals(module.chosen)}")
    lines.append("  decisions changed:")
    lines += [f"    {line}" for line in summarise(tuple(module.changes))]
    overrides = module.chosen.outcome.overrides
    if overrides:
        rules = ", ".join(f"{rule} {count}" for rule, count in overrides.items())
        lines.append(f"  settled where decisions interact: {rules}")
    for number, move in enumerate(module.moves[:limit], 1):
        lines += ["", *_move(module, number, move)]
    rest = len(module.moves) - limit
    if rest > 0:
        lines += ["", f"  and {rest} smaller changes; the page (save_html) shows all"]
    return lines


def _totals(side: Side) -> str:
    outcome = side.outcome
    regions = f", {outcome.regions} native regions" if outcome.regions else ""
    return f"{time_text(side.seconds):>8}  {len(side.parts)} parts, {outcome.clusters} clusters{regions}"


def _move(module: ModuleExplanation, number: int, move: Move) -> list[str]:
    default, chosen = module.default.parts, module.chosen.parts
    lines = [
        f"  {number}. {time_text(move.before_s)} -> {time_text(move.after_s)} "
        f"({len(move.before)} parts -> {len(move.after)}) "
        f"{_place(module, [default[i] for i in move.before] + [chosen[i] for i in move.after])}"
    ]
    lines += _parts(module, "-", [default[i] for i in move.before])
    lines += _parts(module, "+", [chosen[i] for i in move.after])
    lines += [f"       {line}" for line in summarise(move.changes)]
    return lines


def _parts(module: ModuleExplanation, mark: str, parts: list[Part], limit: int = 6) -> list[str]:
    """One line per part, all in execution order or the longest few."""
    shown = parts
    if len(parts) > limit:
        shown = sorted(parts, key=lambda part: -part.seconds)[: limit - 1]
    lines = [f"     {mark} {part_text(module, part)}" for part in shown]
    if len(parts) > limit:
        rest = sum(part.seconds for part in parts) - sum(part.seconds for part in shown)
        lines.append(f"     {mark} and {len(parts) - len(shown)} more, {time_text(rest)}")
    return lines


def part_text(module: ModuleExplanation, part: Part) -> str:
    """``tanh f32[8,64] (+6 operations) on loop@2, 50 times, 3.1 us``."""
    graph, node = module.graph, main_node(module.graph, part)
    outputs = "" if len(part.outputs) == 1 else f", {len(part.outputs)} outputs"
    inside = "" if len(part.nodes) == 1 else f" (+{len(part.nodes) - len(part.outputs)} operations)"
    times = "" if part.executions == 1 else f", {part.executions:g} times"
    return (
        f"{graph.ops[node].name} {shape_text(graph, node)}{outputs}{inside} on "
        f"{graph.units[part.unit].name}{times}, {time_text(part.seconds)}"
    )


def _place(module: ModuleExplanation, parts: list[Part]) -> str:
    """The computation and the source lines that most nodes come from."""
    graph = module.graph
    names = Counter(graph.computations[part.computation].name for part in parts)
    found = Counter(
        str(line)
        for part in parts
        for line in (module.sources.of(node) for node in part.nodes)
        if line is not None
    )
    place = f"in {names.most_common(1)[0][0]}" if names else ""
    lines = ", ".join(line for line, _ in found.most_common(3))
    return f"{place}, from {lines}" if lines else place
