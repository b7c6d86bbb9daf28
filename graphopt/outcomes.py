"""What became of every module: records, counts, and the report that people read."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

MAX_RECORDS: Final = 10_000
"""Records kept one by one; counts go on beyond that."""


MAX_OPERATIONS: Final = 8
"""Reasons to leave operations to XLA that a printed report shows."""


class Outcome(StrEnum):
    """How the compile of one module ended."""

    REWRITTEN = "rewritten"
    KEPT = "kept"
    """Left to XLA because no gain was expected."""
    FELL_BACK = "fell back"
    """Left to XLA because something forbade a rewrite; the reason says what."""
    PLACED = "placed"
    """Spread over several devices; the reason says how."""


@dataclass(frozen=True)
class ModuleRecord:
    """One module's outcome.

    Attributes:
        name: module name, ``jit_<function>``.
        outcome: what became of it.
        reason: rule name or short explanation; for rewritten modules who proposed the decisions, or empty.
        seconds: time spent on it in the hook.
        nodes: graph nodes; 0 if no graph was built.
        clusters_before: clusters that XLA made.
        clusters_after: those of the rewritten module.
        regions: native regions of the rewritten module.
        caller_thread: the program runs on the thread that calls it.
        sequences: computations whose kernels run in order.
        expected: speed-up that the policy expected; 0 where it says nothing.
        steps: names of the heuristic's steps behind the decisions, in order.
        failed: steps that raised and were passed over, each with its error.
        recalled: the answer was found in memory: an earlier compile, of this process or another, made it.
        tuned: it is what tuning has stored: a winner, or that nothing is faster than XLA's default.
    """

    name: str
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0
    nodes: int = 0
    clusters_before: int = 0
    clusters_after: int = 0
    regions: int = 0
    caller_thread: bool = False
    sequences: int = 0
    expected: float = 0.0
    steps: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    recalled: bool = False
    tuned: bool = False

    def __str__(self) -> str:
        """One line for logs and reports."""
        if self.outcome is Outcome.REWRITTEN:
            what = (
                f"{self.clusters_before} -> {self.clusters_after} clusters, {self.regions} regions"
            )
            what += f", {self.sequences} in order" if self.sequences else ""
            what += ", on the caller's thread" if self.caller_thread else ""
            what += f", expected {self.expected:.2f}x" if self.expected else ""
            what += f" by {self.reason}" if self.expected and self.reason else ""
            what += f"; steps: {', '.join(self.steps)}" if self.steps else ""
        else:
            what = self.reason
        what += f"; failed: {', '.join(self.failed)}" if self.failed else ""
        what += "; remembered" if self.recalled else ""
        return (
            f"{self.name}: {self.outcome} ({what}; {self.nodes} nodes, {self.seconds * 1e3:.1f} ms)"
        )


@dataclass(frozen=True)
class FormUse:
    """A form that stood in for operations, where jax lowered them.

    Attributes:
        name: of the form.
        count: operations that it computes.
        default_ns: estimate of what XLA's own way would take for all of them, each run once.
        form_ns: the same for the form.
        failed: operations on which it raised; jax lowered those.
        error: of the last of those; empty where there is none.
    """

    name: str
    count: int = 0
    default_ns: float = 0.0
    form_ns: float = 0.0
    failed: int = 0
    error: str = ""

    def __str__(self) -> str:
        """One line for reports."""
        parts = []
        if self.count:
            times = f"{self.default_ns / 1e3:,.0f} -> {self.form_ns / 1e3:,.0f} us"
            parts.append(f"{self.count} operations, estimated {times}")
        if self.failed:
            parts.append(f"failed on {self.failed}, which jax lowered: {self.error[:200]}")
        return f"{self.name}: {'; '.join(parts)}"


class Ledger:
    """Collects records from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: list[ModuleRecord] = []
        self._counts: Counter[Outcome] = Counter()
        self._reasons: Counter[tuple[Outcome, str]] = Counter()
        self._forms: dict[str, FormUse] = {}
        self._operations: Counter[str] = Counter()

    def add(self, record: ModuleRecord) -> None:
        """Adds one record."""
        with self._lock:
            self._counts[record.outcome] += 1
            if record.outcome is not Outcome.REWRITTEN:
                self._reasons[record.outcome, record.reason] += 1
            if len(self._records) < MAX_RECORDS:
                self._records.append(record)

    def add_form(self, name: str, default_ns: float, form_ns: float) -> None:
        """Adds an operation that a form computes."""
        with self._lock:
            use = self._forms.get(name, FormUse(name))
            self._forms[name] = replace(
                use,
                count=use.count + 1,
                default_ns=use.default_ns + default_ns,
                form_ns=use.form_ns + form_ns,
            )

    def add_failed_form(self, name: str, error: str) -> None:
        """Adds an operation on which a form raised."""
        with self._lock:
            use = self._forms.get(name, FormUse(name))
            self._forms[name] = replace(use, failed=use.failed + 1, error=error)

    def add_operation(self, primitive: str, reason: str) -> None:
        """Adds an operation that has forms and was left to XLA."""
        with self._lock:
            self._operations[f"{primitive}: {reason}"] += 1

    def withdraw(self, record: ModuleRecord) -> None:
        """Takes a record back: what it says did not last."""
        with self._lock:
            if record not in self._records:
                return
            self._records.remove(record)
            self._counts[record.outcome] -= 1
            if record.outcome is not Outcome.REWRITTEN:
                self._reasons[record.outcome, record.reason] -= 1

    def snapshot(self, policy: str | None, notes: tuple[str, ...]) -> Report:
        """The report up to now."""
        with self._lock:
            return Report(
                policy=policy,
                records=tuple(self._records),
                counts={
                    outcome: self._counts[outcome]
                    for outcome in Outcome
                    if outcome is not Outcome.PLACED or self._counts[outcome]
                },
                reasons={
                    f"{outcome}: {reason}": n
                    for (outcome, reason), n in self._reasons.most_common()
                },
                notes=notes,
                forms=tuple(sorted(self._forms.values(), key=lambda u: u.form_ns - u.default_ns)),
                operations=dict(self._operations.most_common()),
            )


@dataclass(frozen=True)
class Report:
    """What graphopt saw and did since it was first installed in this process.

    Attributes:
        policy: name of the installed policy; None if none is installed.
        records: one per module, the first `MAX_RECORDS`.
        counts: modules per outcome; placed functions only where there are any.
        reasons: "outcome: reason" -> modules, for those that were not rewritten.
        notes: what a user should know beside the counts.
        forms: forms of operations that were used or failed, those that save most first.
        operations: "primitive: reason" -> operations that have forms and were left to XLA.
    """

    policy: str | None
    records: tuple[ModuleRecord, ...] = ()
    counts: dict[Outcome, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    forms: tuple[FormUse, ...] = ()
    operations: dict[str, int] = field(default_factory=dict)

    @property
    def seen(self) -> int:
        """Modules seen."""
        return sum(self.counts.values())

    def __str__(self) -> str:
        """The report as text."""
        state = f"policy {self.policy}" if self.policy else "not installed"
        seconds = sum(record.seconds for record in self.records)
        shown = [o for o in Outcome if o is not Outcome.PLACED or o in self.counts]
        parts = ", ".join(f"{self.counts.get(outcome, 0)} {outcome}" for outcome in shown)
        lines = [
            f"graphopt ({state}): {self.seen} modules seen: {parts}; {seconds:.2f} s in the hook"
        ]
        rewritten = [r for r in self.records if r.outcome is Outcome.REWRITTEN]
        lines += [f"  {record}" for record in rewritten[:20]]
        if len(rewritten) > 20:
            lines.append(f"  ... and {len(rewritten) - 20} more rewritten")
        lines += [f"  {count} x {reason}" for reason, count in self.reasons.items()]
        lines += [f"  form {use}" for use in self.forms]
        if self.operations:
            shown_operations = list(self.operations.items())[:MAX_OPERATIONS]
            parts = ", ".join(f"{count} x {reason}" for reason, count in shown_operations)
            more = len(self.operations) - len(shown_operations)
            lines.append(f"  operations left to XLA: {parts}{f', and {more} more' if more else ''}")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)
