"""Displays of a pending (or computed) tensor's graph: text, HLO, dot, SVG."""

from __future__ import annotations

import html
from typing import Any, Final

import jax

from graphopt.errors import ConfigError
from graphopt.lazy.core import source_lines
from graphopt.lazy.core.node import Node
from graphopt.lazy.record import operands
from graphopt.lazy.runtime import cut, executors
from graphopt.lazy.runtime.trace import Plan, Trace, make_plan

FORMATS: Final = ("text", "hlo", "stablehlo", "dot", "svg")


def show(*xs: Any, format: str = "text") -> str:
    """The graph that computing tensors would run; computes nothing but steps that wait.

    Args:
        *xs: tensors.
        format: ``text`` (one line per operation with its source line), ``hlo`` (XLA's input after
            lowering), ``stablehlo``, ``dot`` (for Graphviz) or ``svg``.

    Raises:
        ConfigError: another format.
    """
    if format not in FORMATS:
        raise ConfigError(
            what=f"format={format!r}", where="lt.show", fix=f"Use one of {', '.join(FORMATS)}."
        )
    cut.run_waiting()
    nodes = [operands.node_of(x, "show") for x in xs]
    pending = [n for n in dict.fromkeys(nodes) if n.data is None]
    if not pending:
        return _computed(nodes, format)
    plan = make_plan(Trace(pending))
    if format == "text":
        return _text(plan)
    if format in ("hlo", "stablehlo"):
        return lowered(plan, format)
    return _dot(plan) if format == "dot" else _svg(plan)


def _computed(nodes: list[Node], format: str) -> str:
    lines = [f"computed {node.aval!r}" for node in nodes]
    if format == "svg":
        return _svg_page([(text, 10, 10 + 40 * k, "leaf") for k, text in enumerate(lines)], [])
    if format == "dot":
        return "digraph {\n" + "".join(f'  "{line}";\n' for line in lines) + "}\n"
    return "\n".join(lines)


def _names(plan: Plan) -> dict[int, str]:
    names = {slot: f"in{k}" for k, slot in enumerate(plan.leaf_slots)}
    names |= {slot: f"s{k}" for k, slot in enumerate(plan.scalar_slots)}
    for slot, value in zip(plan.const_slots, plan.const_values, strict=True):
        names[slot] = str(value.item())
    names |= {step.out: f"t{k}" for k, step in enumerate(plan.steps)}
    return names


def _text(plan: Plan) -> str:
    names = _names(plan)
    lines = [
        f"{names[s]:>5} = input {aval!r}"
        for s, aval in zip(plan.leaf_slots, plan.leaf_avals, strict=True)
    ]
    lines += [
        f"{names[s]:>5} = scalar {aval!r}"
        for s, aval in zip(plan.scalar_slots, plan.scalar_avals, strict=True)
    ]
    for step in plan.steps:
        inner = ", ".join(names[k] for k in step.inputs)
        params = f" {step.instr.params}" if step.instr.params else ""
        left = f"{names[step.out]:>5} = {step.instr.op.name}({inner}){params}"
        lines.append(f"{left} : {step.instr.aval!r}    # {source_lines.short_line_of(step.src)}")
    lines.append("return " + ", ".join(names[s] for s in plan.root_slots))
    return "\n".join(lines)


def lowered(plan: Plan, format: str) -> str:
    """The plan as XLA receives it, as text."""
    packing = executors.packing_of(plan)
    leaves, packs = executors.abstract_arguments(plan, packing)
    with jax.enable_x64(True):
        low = jax.jit(executors.as_function(plan, packing)).lower(leaves, packs)
    return str(low.as_text(dialect=format))


def _dot(plan: Plan) -> str:
    names = _names(plan)
    lines = ["digraph {", "  node [shape=box, fontname=monospace];"]
    for slot, label, kind in _boxes(plan, names):
        style = ', style=filled, fillcolor="#e0e8f0"' if kind == "leaf" else ""
        lines.append(f'  n{slot} [label="{_quoted(label)}"{style}];')
    lines += [f"  n{k} -> n{step.out};" for step in plan.steps for k in step.inputs]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _boxes(plan: Plan, names: dict[int, str]) -> list[tuple[int, str, str]]:
    """(slot, label, kind) of every value."""
    boxes = [
        (slot, f"{names[slot]}: {aval!r}", "leaf")
        for slot, aval in zip(
            (*plan.leaf_slots, *plan.scalar_slots),
            (*plan.leaf_avals, *plan.scalar_avals),
            strict=True,
        )
    ]
    boxes += [(slot, names[slot], "leaf") for slot in plan.const_slots]
    boxes += [
        (s.out, f"{names[s.out]} {s.instr.op.name}: {s.instr.aval!r}", "operation")
        for s in plan.steps
    ]
    return boxes


def _svg(plan: Plan) -> str:
    """Layers from top to bottom by distance from the inputs."""
    depth: dict[int, int] = {
        slot: 0 for slot, _, kind in _boxes(plan, _names(plan)) if kind == "leaf"
    }
    for step in plan.steps:
        depth[step.out] = 1 + max((depth[k] for k in step.inputs), default=0)
    used: dict[int, int] = {}
    place: dict[int, tuple[int, int]] = {}
    boxes = []
    for slot, label, kind in _boxes(plan, _names(plan)):
        layer = depth[slot]
        column = used[layer] = used.get(layer, -1) + 1
        place[slot] = (10 + 230 * column, 10 + 60 * layer)
        boxes.append((label, *place[slot], kind))
    edges = [(place[k], place[step.out]) for step in plan.steps for k in step.inputs]
    return _svg_page(boxes, edges)


def _svg_page(
    boxes: list[tuple[str, int, int, str]], edges: list[tuple[tuple[int, int], tuple[int, int]]]
) -> str:
    width = max((x for _, x, _, _ in boxes), default=0) + 240
    height = max((y for _, _, y, _ in boxes), default=0) + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="monospace" font-size="11">'
    ]
    for (x1, y1), (x2, y2) in edges:
        parts.append(
            f'<line x1="{x1 + 105}" y1="{y1 + 30}" x2="{x2 + 105}" y2="{y2}" stroke="#888"/>'
        )
    for label, x, y, kind in boxes:
        fill = "#e0e8f0" if kind == "leaf" else "#fff6e0"
        parts.append(
            f'<rect x="{x}" y="{y}" width="210" height="30" rx="4" fill="{fill}" stroke="#444"/>'
            f'<text x="{x + 6}" y="{y + 19}">{html.escape(label[:32])}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"
