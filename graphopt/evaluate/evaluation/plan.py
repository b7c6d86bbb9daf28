"""``graphopt evaluate``: policies and tuning on many programs, each in a process of its own."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

from graphopt.corpus.workloads import select_programs
from graphopt.errors import ConfigError
from graphopt.evaluate.evaluation.asking import ask_programs, exported
from graphopt.executing.opening import LOCAL
from graphopt.machine import machine_key, probe
from graphopt.measure.children.child import Child, ChildFailure
from graphopt.measure.comparing.yardstick import UNVERIFIABLE
from graphopt.policy import resolve
from graphopt.store import Store
from graphopt.version import VERSION

START_S: Final = 300.0
"""Time that a worker gets beyond the budget: imports, compiles, the last measurements."""


COLUMNS: Final = (
    "name", "family", "nodes", "default_s", "policy_s", "tuned_s", "speedup_policy",
    "speedup_tuned", "evaluations", "max_rel_err", "status",
)  # fmt: skip
"""What every row of a report has; None where it was not measured."""


def has_failed(row: dict[str, Any]) -> bool:
    """Whether a finished row is an error: results of a chaotic program, which nobody can verify, are not."""
    return row["status"] != "ok" and not row["status"].startswith(UNVERIFIABLE)


STORED: Final = "stored"
"""In place of a policy: the winners of the store, as a process that only installs the plugin uses them."""


@dataclass(frozen=True)
class Plan:
    """What is evaluated.

    Attributes:
        workloads: program set, as for `graphopt.corpus.workloads.load_programs`.
        names: programs; all if empty.
        policy: name or checkpoint of the policy of the zero-shot column; empty for none; ``stored`` for
            the winners of the store.
        budget_s: seconds of tuning per program; 0 for none.
        seed: of the tuner.
        store: path of the tuner's store; a fresh one inside `out` by default, so that earlier tuning
            does not count.
        out: folder of the results.
        rival: another policy for comparison; empty for none.
        limit_s: time that a program gets beyond its budget; imports, compiles, the last measurements.
        executor: where programs are measured, as for `graphopt.executing.opening.open_executor`.
    """

    workloads: str
    names: tuple[str, ...]
    policy: str
    budget_s: float
    seed: int
    store: str | Path | None
    out: Path
    rival: str = ""
    limit_s: float = START_S
    executor: str = LOCAL

    def __post_init__(self) -> None:
        """Checks the budget.

        Raises:
            ConfigError: it is negative.
        """
        if self.budget_s < 0:
            raise ConfigError(
                what=f"a budget of {self.budget_s} s", where="--budget-s", fix="Give 0 or more."
            )

    def request(self, name: str) -> dict[str, Any]:
        """What one worker is asked."""
        return {
            "workloads": self.workloads,
            "name": name,
            "policy": self.policy,
            "rival": self.rival,
            "budget_s": self.budget_s,
            "seed": self.seed,
            "store": str(self.store_path),
        }

    @property
    def store_path(self) -> str | Path:
        """The tuner's store."""
        return self.store or self.out / "store.sqlite"

    def body(self, name: str) -> dict[str, Any]:
        """What a machine of a cluster is asked."""
        fields = ("workloads", "policy", "budget_s", "seed", "rival", "limit_s")
        return {"name": name, **{field: getattr(self, field) for field in fields}}


def run_evaluation(
    plan: Plan, tell: Callable[[str, dict[str, Any] | None], None]
) -> dict[str, Any]:
    """Evaluates every program; writes ``report.json`` after each, so that nothing is lost.

    Programs that an earlier, interrupted run with the same settings has finished are taken from its
    report.

    Args:
        plan: what to do.
        tell: told (message, None) of progress and (name, row) of every finished program.

    Raises:
        WorkloadError: the program set cannot be loaded.
    """
    programs = select_programs(plan.workloads, plan.names, "graphopt evaluate")
    plan.out.mkdir(parents=True, exist_ok=True)
    path = plan.out / "report.json"
    rows = _finished(path, plan)
    for name in [name for name in programs if name in rows]:
        tell(name, rows[name])
    todo = [name for name in programs if name not in rows]
    for name, found in _measured(plan, todo, tell):
        row = {**dict.fromkeys(COLUMNS), "family": programs[name].family, **found}
        rows[name] = row
        _write(path, make_report(plan, [rows[n] for n in programs if n in rows]))
        tell(name, row)
    return make_report(plan, [rows[n] for n in programs])


def _measured(
    plan: Plan, names: Sequence[str], tell: Callable[[str, dict[str, Any] | None], None]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and rows of programs, as they are finished."""
    if plan.executor == LOCAL:
        for name in names:
            yield name, evaluate_one(plan, name, tell)
        return
    given = exported(Store(plan.store_path)) if plan.policy == STORED else None
    bodies = {name: plan.body(name) for name in names}
    yield from ask_programs(plan.executor, bodies, given, plan.store_path)


def evaluate_one(
    plan: Plan, name: str, tell: Callable[[str, dict[str, Any] | None], None]
) -> dict[str, Any]:
    """The row of one program, measured in a child process of this one."""
    try:
        with Child(["-m", "graphopt.evaluate.evaluation.worker"], f"worker for {name}") as child:
            line = child.ask(json.dumps(plan.request(name)), plan.limit_s)
            while True:
                answer = _parse(child, line)
                if "row" in answer:
                    return dict(answer["row"])
                tell(f"{name}: {answer['progress']}", None)
                line = child.greeting(plan.limit_s + plan.budget_s)
    except ChildFailure as failure:
        last = failure.detail.strip().splitlines()[-1:] or [""]
        return {"name": name, "status": f"{failure.kind}: {failure.what} {last[0]}".strip()}


def _parse(child: Child, line: str) -> dict[str, Any]:
    try:
        answer = json.loads(line)
        if isinstance(answer["row"] if "row" in answer else answer["progress"], dict | str):
            return dict(answer)
    except (ValueError, TypeError, KeyError):
        pass
    raise child.garbage(f"answered {line[:80]!r}")


def _settings(plan: Plan) -> dict[str, Any]:
    return {
        "workloads": plan.workloads,
        "policy": plan.policy,
        "policy_key": _policy_key(plan.policy),
        **({"rival": plan.rival} if plan.rival else {}),
        "budget_s": plan.budget_s,
        "seed": plan.seed,
    }


def _policy_key(policy: str) -> str:
    """What stands for a policy's decisions: two checkpoints at one path differ in it."""
    return "" if policy in ("", STORED) else resolve(policy).key


def _finished(path: Path, plan: Plan) -> dict[str, dict[str, Any]]:
    try:
        report = json.loads(path.read_text())
        if report["settings"] != _settings(plan) or report["machine"]["key"] != machine_key():
            return {}
        return {row["name"]: row for row in report["workloads"] if not has_failed(row)}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def make_report(plan: Plan, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The report as plain data; speed-ups are default time / new time."""
    import jax
    import jaxlib.version

    machine = probe()
    good = [row for row in rows if row["status"] == "ok"]
    return {
        "machine": {
            "key": machine_key(),
            "name": machine.name,
            "cores": machine.cores,
            "memory_gib": round(machine.memory_bytes / (1 << 30), 1),
            "system": platform.platform(),
        },
        "versions": {
            "graphopt": VERSION,
            "jax": jax.__version__,
            "jaxlib": str(jaxlib.version.__version__),
            "python": sys.version.split()[0],
        },
        "settings": _settings(plan),
        "date": time.strftime("%Y-%m-%d"),
        "workloads": list(rows),
        "geomean_policy": _geomean(good, "speedup_policy"),
        "geomean_tuned": _geomean(good, "speedup_tuned"),
        **({"geomean_rival": _geomean(good, "speedup_rival")} if plan.rival else {}),
    }


def _geomean(rows: Sequence[dict[str, Any]], column: str) -> float | None:
    values = [row[column] for row in rows if row.get(column) is not None]
    return geometric_mean(values) if values else None


def _finite(value: Any) -> Any:
    """JSON has no infinity, the relative difference of integers that differ: None stands for it."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(path: Path, report: dict[str, Any]) -> None:
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(_finite(report), indent=1, allow_nan=False))
    part.replace(path)
