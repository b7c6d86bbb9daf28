"""What tuning reports."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from graphopt.learn.tune.attribution import Share
from graphopt.measure import Comparison


@dataclass(frozen=True)
class ModuleResult:
    """One module of the program.

    Attributes:
        name: module name.
        fingerprint: under which the winner is stored.
        nodes: nodes of its graph.
        evaluations: candidates measured.
        failures: status -> candidates that ended so.
        winner: which starting point or move led to the winner; ``default`` if none.
        changes: field and value -> number of nodes that differ from XLA's default.
        decisions: the winner, encoded.
        ratio: default / winner as the search measured it.
        history: (evaluations, seconds since the start, best ratio) whenever the best improved.
        shares: what each kind of change is worth beside the others, where it was measured.
        steps: the heuristic's steps whose changes the winner has, each with what it found and expected.
        note: why the module was left alone, or empty.
    """

    name: str
    fingerprint: str
    nodes: int
    evaluations: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    winner: str = "default"
    changes: dict[str, int] = field(default_factory=dict)
    decisions: str = "{}"
    ratio: float = 1.0
    history: tuple[tuple[int, float, float], ...] = ()
    shares: tuple[Share, ...] = ()
    steps: tuple[str, ...] = ()
    note: str = ""

    def why(self) -> str:
        """What differs from XLA's default and, where it was measured, what each kind of change is worth."""
        if self.shares:
            return ", ".join(map(str, self.shares))
        return ", ".join(f"{count} x {what}" for what, count in self.changes.items())


@dataclass(frozen=True)
class TuneResult:
    """The outcome of `graphopt.tune`.

    Attributes:
        program: what was tuned.
        modules: one entry per module, largest first.
        times: XLA's default against the winner on the real inputs, in turn.
        adopted: the winner is stored and used from now on: it is faster with confidence.
        verified: results were compared and agree.
        max_rel_err: largest relative difference of the results.
        seconds: time spent.
        options: compile options that help beyond the decisions; for ``graphopt.jit``, or a flag.
        options_times: winner without against winner with these options, if any help.
        forms: names of the forms of operations that `graphopt.install` gives the program, whose gain is
            part of `times`, whether or not decisions are adopted.
        problem: why results are not verified, with their error; empty where they are.
        chaotic: they cannot be: the program's own results move as much with the last bits of its inputs.
    """

    program: str
    modules: tuple[ModuleResult, ...]
    times: Comparison
    adopted: bool
    verified: bool
    max_rel_err: float
    seconds: float
    options: dict[str, str] = field(default_factory=dict)
    options_times: Comparison | None = None
    forms: tuple[str, ...] = ()
    problem: str = ""
    chaotic: bool = False

    @property
    def changed(self) -> bool:
        """Whether what is used from now on is other than XLA's default."""
        return self.adopted or bool(self.forms)

    @property
    def speedup(self) -> float:
        """Default time / time of what is used from now on: 1 where the default is kept."""
        return self.times.speedup if self.changed else 1.0

    @property
    def baseline_s(self) -> float:
        """Median seconds of XLA's default."""
        return self.times.baseline_s

    @property
    def tuned_s(self) -> float:
        """Median seconds of what is used from now on."""
        return self.times.candidate_s if self.changed else self.times.baseline_s

    @property
    def evaluations(self) -> int:
        """Candidates measured."""
        return sum(m.evaluations for m in self.modules)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            **asdict(self),
            "speedup": self.speedup,
            "baseline_s": self.baseline_s,
            "tuned_s": self.tuned_s,
            "evaluations": self.evaluations,
        }

    def __str__(self) -> str:
        """A few lines for people."""
        times = self.times
        lines = [
            f"{self.program}: {times.baseline_s * 1e3:.3f} ms -> {self.tuned_s * 1e3:.3f} ms, "
            f"{self.speedup:.2f}x "
            + (
                f"({times.low:.2f}-{times.high:.2f})" if self.changed else "(XLA's default is kept)"
            ),
            f"{self.evaluations} candidates in {self.seconds:.0f} s, largest relative difference "
            f"{self.max_rel_err:.1e}",
        ]
        if self.problem:
            lines.append(f"  {self.problem}")
        if self.forms:
            lines.append(f"  forms of operations: {', '.join(self.forms)}")
        for module in self.modules:
            lines.append(
                f"  {module.name}: {module.note or module.winner}  {module.why()}".rstrip()
            )
            lines += [f"    {step}" for step in module.steps]
        if self.options_times is not None:
            flags = " ".join(f"--{k}={v}" for k, v in self.options.items())
            lines.append(
                f"compile options {flags} give another {self.options_times.speedup:.2f}x: "
                "graphopt.jit(fn) uses them, or set XLA_FLAGS"
            )
        return "\n".join(lines)
