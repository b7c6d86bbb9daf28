"""What a change of the heuristic or of costs does to whole sets of programs, timed where decisions differ.

    python -m benchmarks.changes keep FOLDER --programs benchmarks.everyday.programs:MIDDLE
    (change the code)
    python -m benchmarks.changes compare FOLDER [--cost loop_ns=250] [--only REGEX] [--dry]
    python -m benchmarks.changes accept FOLDER

``keep`` stores every program's modules, their inputs and the decisions of the code as it is; programs that
are there are not built again. ``compare`` decides anew and times new decisions against the kept ones, in turn
in one process, and prints a Markdown table, slowest first. Forms of operations that are chosen while jax
lowers a program stay as they were kept. ``accept`` keeps the new decisions in place of the old.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Final

import jax

from benchmarks.progress import counted, ended
from graphopt.corpus.workloads import load_programs
from graphopt.errors import GraphOptError
from graphopt.hlo import Decisions, Graph, build_graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.learn.tune.subject import make_subject
from graphopt.machine import CpuCosts, own_costs
from graphopt.machine.cost_rows import decide_with
from graphopt.measure.children.runner import Runner
from graphopt.measure.inputs import load_inputs, save_inputs
from graphopt.policy.heuristic.steps import heuristic
from graphopt.store import decode_decisions, encode_decisions

KINDS_SHOWN: Final = 6
"""Most kinds of differing decisions that a row names."""


@dataclass(frozen=True)
class Kept:
    """One module of a program.

    Attributes:
        path: of the module's bytes; inputs and decisions lie beside it.
        graph: of the module.
        decisions: the kept ones.
    """

    path: Path
    graph: Graph
    decisions: Decisions

    @property
    def name(self) -> str:
        """Program and module."""
        return self.path.stem

    def differing(self, other: Decisions) -> str:
        """The first kinds of decisions that differ: ``unit of dot, restructure of reduce``."""
        found: dict[str, None] = {}
        for field in FIELDS:
            changed = getattr(self.decisions, field) != getattr(other, field)
            found.update(
                {f"{field} of {self.graph.ops[n].name}": None for n in changed.nonzero()[0]}
            )
        return ", ".join(list(found)[:KINDS_SHOWN])


def decided(graph: Graph) -> Decisions:
    """What the heuristic decides; XLA's own decisions where it decides nothing."""
    return heuristic(graph) or graph.default


def keep(folder: Path, specs: list[str], only: str) -> None:
    """Stores modules, inputs and decisions of all programs that are not in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    programs = [p for s in specs for n, p in load_programs(s).items() if re.search(only, n)]
    with counted(programs, "programs kept") as rest:
        for program in rest:
            if (folder / f"{program.name}.done").exists():
                continue
            try:
                fn, args = program()
                modules = make_subject(fn, args).modules
            except GraphOptError as error:
                print(f"{program.name}: {error}", flush=True)
                continue
            for i, (data, inputs) in enumerate(modules):
                path = folder / f"{program.name}.{i}.pb"
                if inputs is not None:
                    save_inputs(path.with_suffix(".npz"), inputs)
                graph = build_graph(data, allow_donation=True)
                path.with_suffix(".json").write_text(encode_decisions(graph, decided(graph)))
                path.write_bytes(data)  # at last: what lies beside it is whole then
            (folder / f"{program.name}.done").touch()
            jax.clear_caches()


def graphs(folder: Path, only: str) -> Iterator[tuple[Path, Graph]]:
    """All modules of a folder whose names match."""
    for path in sorted(folder.glob("*.pb")):
        if re.search(only, path.stem):
            yield path, build_graph(path.read_bytes(), allow_donation=True)


def kept(folder: Path, only: str) -> Iterator[Kept]:
    """The same with their kept decisions."""
    for path, graph in graphs(folder, only):
        text = path.with_suffix(".json").read_text()
        yield Kept(path, graph, decode_decisions(graph, text))


def accept(folder: Path, only: str) -> None:
    """Stores the decisions of the code as it is, also where the kept ones name nodes that it has no more."""
    with counted(graphs(folder, only), "modules decided") as rest:
        for path, graph in rest:
            path.with_suffix(".json").write_text(encode_decisions(graph, decided(graph)))


def time_one(module: Kept, wanted: Decisions, budget_s: float) -> tuple[float, float] | str:
    """Speed of new decisions over the kept ones and over XLA's own; a word where that fails."""
    inputs = module.path.with_suffix(".npz")
    with Runner(
        module.path.read_bytes(), load_inputs(inputs) if inputs.exists() else None, None
    ) as runner:
        runner.start()
        found = runner.measure(wanted, against=module.decisions, budget_s=budget_s)
        over_default = runner.measure(wanted, budget_s=budget_s)
    if not found.ok or not over_default.ok:
        return f"{found.status}, {over_default.status}: {found.detail[-200:]}"
    return found.ratio, over_default.ratio


def compare(folder: Path, costs: CpuCosts | None, options: argparse.Namespace) -> None:
    """Decides anew, times what differs, prints the table."""
    rows: list[tuple[float, str]] = []
    modules = list(kept(folder, options.only))
    with decide_with(costs) if costs else nullcontext(), counted(modules, "modules") as rest:
        for module in rest:
            wanted = decided(module.graph)
            if wanted.same_as(module.decisions):
                continue
            what = module.differing(wanted)
            if options.dry:
                print(f"{module.name}: {what}", flush=True)
                continue
            found = time_one(module, wanted, options.budget_s)
            if isinstance(found, str):
                print(f"{module.name}: {found}", flush=True)
                continue
            rows.append((found[0], f"| {module.name} | {found[0]:.2f} | {found[1]:.2f} | {what} |"))
            print(rows[-1][1], flush=True)
    print(f"{len(modules)} modules, {len(rows)} timed with other decisions than kept")
    if rows:
        print("\n| module | over the kept decisions | over XLA's default | differs in |")
        print("| --- | --- | --- | --- |", *(text for _, text in sorted(rows)), sep="\n")
        print(f"\n{geometric_mean(r for r, _ in rows):.3f}x on geometric mean")


def changed_costs(texts: list[str]) -> CpuCosts | None:
    """This machine's costs with some changed: ``loop_ns=250``; None if none are."""
    if not texts:
        return None
    pairs = (text.split("=", 1) for text in texts)
    return replace(own_costs(), **{name: json.loads(value) for name, value in pairs})


def main() -> None:
    """Keeps, compares or accepts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.changes", description=__doc__)
    parser.add_argument("action", choices=("keep", "compare", "accept"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--programs", nargs="+", default=[], help="sets of programs to keep")
    parser.add_argument("--only", default="", help="programs whose name holds this expression")
    parser.add_argument("--cost", action="append", default=[], help="a fact: loop_ns=250")
    parser.add_argument("--budget-s", type=float, default=0.6, help="of timing per comparison")
    parser.add_argument("--dry", action="store_true", help="say what differs, time nothing")
    options = parser.parse_args()
    if options.action == "keep":
        keep(options.folder, options.programs, options.only)
    elif options.action == "accept":
        accept(options.folder, options.only)
    else:
        compare(options.folder, changed_costs(options.cost), options)


if __name__ == "__main__":
    sys.exit(ended(main))
