"""Why was this graph compiled? Its difference to the nearest graph that was known before."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from graphopt.lazy.core import metrics, source_lines
from graphopt.lazy.runtime.cache import Entry
from graphopt.lazy.runtime.trace import Plan, Step

MAX_CANDIDATES: Final = 64
"""Graphs that a new one is compared with, the most recently used first."""

MAX_LINES: Final = 8
"""Differences named one by one."""


@dataclass(frozen=True)
class Recompile:
    """A graph that was not in the cache.

    Attributes:
        graph: its name.
        operations: its size.
        nearest: name of the most similar known graph; empty if there was none.
        differences: what differs, with the source lines.
    """

    graph: str
    operations: int
    nearest: str
    differences: tuple[str, ...]

    def __str__(self) -> str:
        head = f"{self.graph} ({self.operations} operations)"
        if not self.nearest:
            return f"{head}: first graph of its kind"
        return "\n  ".join([f"{head} differs from {self.nearest}:", *self.differences])


def explain_new(entry: Entry, known: list[Entry]) -> None:
    """Records how a new graph differs from the nearest of those known (least recently used first)."""
    candidates = [e for e in known if e is not entry][-MAX_CANDIDATES:]
    metrics.recompiled(_Pending(entry, candidates))


class _Pending:
    """A report that is worked out when it is read: most never are."""

    def __init__(self, entry: Entry, candidates: list[Entry]) -> None:
        self._plan = entry.plan
        self._name = entry.name
        self._known = [(e.name, e.plan) for e in candidates]
        self._report: Recompile | None = None

    def report(self) -> Recompile:
        """The report."""
        if self._report is None:
            self._report = _explain(self._name, self._plan, self._known)
            self._known = []
        return self._report

    def __str__(self) -> str:
        return str(self.report())

    def __repr__(self) -> str:
        return f"<recompile of {self._name}>"

    @property
    def nearest(self) -> str:
        """Name of the nearest known graph."""
        return self.report().nearest

    @property
    def differences(self) -> tuple[str, ...]:
        """What differs."""
        return self.report().differences

    @property
    def graph(self) -> str:
        """Name of the new graph."""
        return self._name


def _features(plan: Plan) -> Counter[str]:
    found = Counter(step.instr.op.name for step in plan.steps)
    found.update(repr(step.instr) for step in plan.steps)
    return found


def _explain(name: str, plan: Plan, known: list[tuple[str, Plan]]) -> Recompile:
    size = len(plan.steps)
    own = _features(plan)
    best, nearest = 0.25, None
    for other_name, other in known:
        theirs = _features(other)
        shared = (own & theirs).total()
        score = shared / max(own.total(), theirs.total(), 1)
        if score >= best:
            best, nearest = score, (other_name, other)
    if nearest is None:
        return Recompile(name, size, "", ())
    return Recompile(name, size, nearest[0], tuple(differences(nearest[1], plan)))


def differences(old: Plan, new: Plan) -> list[str]:
    """What differs between two plans, in words, with source lines of the new one."""
    found = _leaf_differences(old, new)
    a, b = [_signature(s) for s in old.steps], [_signature(s) for s in new.steps]
    prefix = 0
    while prefix < min(len(a), len(b)) and a[prefix] == b[prefix]:
        prefix += 1
    suffix = 0
    while suffix < min(len(a), len(b)) - prefix and a[-1 - suffix] == b[-1 - suffix]:
        suffix += 1
    gone = old.steps[prefix : len(a) - suffix]
    come = new.steps[prefix : len(b) - suffix]
    if len(gone) == len(come):
        found += [
            _changed(x, y)
            for x, y in zip(gone, come, strict=True)
            if _signature(x) != _signature(y)
        ]
    else:
        found += [f"operation no longer there: {_text(step)}" for step in gone]
        found += [f"new operation: {_text(step)}" for step in come]
    if not found:
        found = _structure_differences(old, new)
    if len(found) > MAX_LINES:
        found = [*found[:MAX_LINES], f"... and {len(found) - MAX_LINES} more differences"]
    return found


def _signature(step: Step) -> str:
    return repr(step.instr)


def _text(step: Step) -> str:
    return f"{step.instr!r} at {source_lines.line_of(step.src)}"


def _changed(old: Step, new: Step) -> str:
    where = f"at {source_lines.line_of(new.src)}"
    if old.instr.op is not new.instr.op:
        return f"operation {old.instr.op.name} became {new.instr.op.name} {where}"
    name = new.instr.op.name
    if old.instr.in_avals != new.instr.in_avals:
        before, after = (", ".join(map(repr, s.instr.in_avals)) for s in (old, new))
        return f"{name}: operands ({before}) became ({after}) {where}"
    return f"{name}: parameters {old.instr.params} became {new.instr.params} {where}"


def _leaf_differences(old: Plan, new: Plan) -> list[str]:
    if len(old.leaf_avals) != len(new.leaf_avals):
        return [f"{len(old.leaf_avals)} computed inputs became {len(new.leaf_avals)}"]
    found = [
        f"input {k}: {a!r} became {b!r}"
        for k, (a, b) in enumerate(zip(old.leaf_avals, new.leaf_avals, strict=True))
        if a is not b
    ]
    if len(old.scalar_avals) != len(new.scalar_avals):
        found.append(
            f"{len(old.scalar_avals)} scalar parameters became {len(new.scalar_avals)} "
            "(0 and 1 are constants, other numbers parameters)"
        )
    return found


def _structure_differences(old: Plan, new: Plan) -> list[str]:
    constants = [[repr(v.item()) for v in plan.const_values] for plan in (old, new)]
    if constants[0] != constants[1]:
        return [f"constants {', '.join(constants[0])} became {', '.join(constants[1])}"]
    for a, b in zip(old.steps, new.steps, strict=False):
        if a.inputs != b.inputs:
            return [f"{b.instr.op.name} takes other operands at {source_lines.line_of(b.src)}"]
    if old.root_slots != new.root_slots:
        return [
            f"other results are kept: {len(old.root_slots)} tensors alive became "
            f"{len(new.root_slots)}"
        ]
    return ["the optimizer or its version changed"]
