"""Duels as states: a task under some decisions, its measured alternatives, and what each gained.

Axis letters: A alternatives of a state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import ConfigError, GraphOptError
from graphopt.hlo import Decisions, Graph, build_graph
from graphopt.hlo.restructure import CODE
from graphopt.policy.advantages.alternative_columns import SEVERAL
from graphopt.policy.advantages.encoding import Encoder, GraphInput, StateInput
from graphopt.policy.alternatives.alternative import KIND, Alternative, Edit
from graphopt.policy.alternatives.table import AlternativeTable
from graphopt.store import decode_decisions
from graphopt.tasks.parts import Part, Row, read_parts

_NORMAL: Final = 1.96

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Labelled:
    """One state with what was measured there.

    Attributes:
        task: fingerprint of the task.
        family: of the program where the task was found.
        graph: the task's graph for the network.
        state: the state for the network.
        kinds: A names of kinds.
        target: float64 [A]; log ratio of the state's time to the time with the alternative.
        noise: float64 [A]; standard deviation of `target`.
        looks: float64 [A, 3]; first and second look at the log ratio, equal where there was one, and the
            lower end of the first one's 95 % interval.
        start: ``heuristic``, ``default`` or ``policy``: whose state it is.
    """

    task: str
    family: str
    graph: GraphInput
    state: StateInput
    kinds: tuple[str, ...]
    target: Floats
    noise: Floats
    looks: Floats = field(repr=False)
    start: str = "heuristic"

    def __len__(self) -> int:
        """Number of alternatives A."""
        return len(self.target)


@dataclass
class Counted:
    """What reading has found.

    Attributes:
        duels: that were taken.
        failed: that have no time.
        unfit: that do not fit this version: rows or decisions that there are no more.
    """

    duels: int = 0
    failed: int = 0
    unfit: int = 0


def read_states(
    folder: Path, tell: Callable[[int, int], None] = lambda done, total: None
) -> tuple[list[Labelled], Counted]:
    """All states in the parts of a folder, in the order of the parts.

    Args:
        folder: as `graphopt collect` fills it.
        tell: told of tasks read, and how many there are.

    Raises:
        ConfigError: there is no duel with a time.
        StoreError: a part is damaged.
    """
    counted = Counted()
    found: list[Labelled] = []
    parts = list(read_parts(folder))
    total, done = sum(len(part.tasks) for part in parts), 0
    seen: set[tuple[str, str, str]] = set()
    for part in parts:
        rows = _by_task(part, seen)
        for task in part.tasks:
            found += _states_of(part, task, rows.get(task["task"], []), counted)
            done += 1
            tell(done, total)
    if not found:
        raise ConfigError(
            what="there is no duel to learn from",
            where=str(folder),
            fix="Measure some: graphopt collect --out FOLDER.",
        )
    return found, counted


def _by_task(part: Part, seen: set[tuple[str, str, str]]) -> dict[str, list[Row]]:
    """Duels of a part by task, those left out that an earlier part of such a machine and jaxlib holds."""
    out: dict[str, list[Row]] = {}
    for row in part.duels:
        key = (part.card["machine"], part.card["jaxlib"], row["key"])
        if key not in seen:
            seen.add(key)
            out.setdefault(row["task"], []).append(row)
    return out


def _states_of(part: Part, task: Row, rows: Sequence[Row], counted: Counted) -> Iterator[Labelled]:
    good = [row for row in rows if row["status"] == "ok"]
    counted.failed += len(rows) - len(good)
    if not good:
        return
    try:
        graph = build_graph(part.module(task), allow_donation=True)
    except GraphOptError:
        counted.unfit += len(good)
        return
    states: dict[tuple[str, str], list[Row]] = {}
    for row in good:
        states.setdefault((row["rival"], row.get("state", "")), []).append(row)
    for (rival, text), own in states.items():
        try:
            start = _start(graph, task, rival, text)
            made = _labelled(graph, start, own)
        except (GraphOptError, KeyError, ValueError, IndexError):
            made = None
        if made is None:
            counted.unfit += len(own)
            continue
        encoder, index, alternatives, state = made
        taken = [own[i] for i in index]
        counted.duels += len(taken)
        counted.unfit += len(own) - len(taken)
        yield Labelled(
            task["task"], task["family"], encoder.graph, state,
            tuple(alternatives[i].kind for i in index),
            np.array([row["log_ratio"] for row in taken]),
            np.array([max(row["high"] - row["low"], 0.0) / (2.0 * _NORMAL) for row in taken]),
            np.array([_looks(row["looks"]) for row in taken]),
            rival,
        )  # fmt: skip


def _looks(looks: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """A row of `Labelled.looks`."""
    return looks[0][0], looks[min(1, len(looks) - 1)][0], looks[0][1]


def _start(graph: Graph, task: Row, rival: str, text: str) -> Decisions:
    """The decisions of a state."""
    if rival == "default":
        return graph.default
    return decode_decisions(graph, task["heuristic"] if rival == "heuristic" else text)


def _labelled(
    graph: Graph, start: Decisions, rows: Sequence[Row]
) -> tuple[Encoder, list[int], list[Alternative], StateInput] | None:
    """The encoded state; which rows it holds, in its order; their alternatives. None if it holds none."""
    alternatives = [_alternative(graph, row) for row in rows]
    table = AlternativeTable(graph, alternatives)
    encoder = Encoder(table)
    state = encoder.state(table.flat(start))
    if not len(state):
        return None
    return encoder, [int(i) - 1 for i in state.rows], alternatives, state


def _alternative(graph: Graph, row: Row) -> Alternative:
    """The alternative that a row is about; kinds that there are no more count as combinations."""
    kind = row["kind"] if row["kind"] in KIND else SEVERAL
    edits = tuple(decode_edit(graph, edit) for edit in row["edits"])
    weight = row["weight_ns"]
    return Alternative(kind, int(row["node"]), edits, float(weight))


def decode_edit(graph: Graph, edit: Sequence[Any]) -> Edit:
    """An edit of a row of duels, its unit or restructure by name.

    Raises:
        KeyError: there is no such unit or restructure.
        IndexError: there is no such node.
    """
    name, node, value = edit
    if not 0 <= int(node) < len(graph):
        raise IndexError(node)
    if name == "unit":
        units = {unit.name: index for index, unit in enumerate(graph.units)}
        return name, int(node), units[value]
    return name, int(node), CODE[value] if name == "restructure" else int(value)


def folds_of(states: Sequence[Labelled], folds: int, seed: int) -> NDArray[np.int64]:
    """int64 [states]; the fold of each one, families whole and folds of about equal numbers of duels.

    Raises:
        ConfigError: there are fewer families than folds.
    """
    sizes: dict[str, int] = {}
    for one in states:
        sizes[one.family] = sizes.get(one.family, 0) + len(one)
    if len(sizes) < folds:
        raise ConfigError(
            what=f"{folds} folds of {len(sizes)} families",
            where="--folds",
            fix="Measure programs of more families, or make fewer folds.",
        )
    names = sorted(sizes)
    np.random.default_rng(seed).shuffle(names)
    filled = [0] * folds
    place: dict[str, int] = {}
    for name in sorted(names, key=lambda name: -sizes[name]):
        place[name] = int(np.argmin(filled))
        filled[place[name]] += sizes[name]
    return np.array([place[one.family] for one in states])
