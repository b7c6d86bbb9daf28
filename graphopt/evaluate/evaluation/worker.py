"""One program of ``graphopt evaluate``: default, policy, tuned; answers in lines of JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from graphopt.corpus.workloads import build_program, load_programs
from graphopt.errors import GraphOptError, own_traceback
from graphopt.evaluate.evaluation.plan import STORED
from graphopt.hlo import build_graph
from graphopt.learn.tune import Event, tune
from graphopt.learn.tune.confirm import confirm
from graphopt.learn.tune.program import Subject
from graphopt.learn.tune.subject import make_subject
from graphopt.measure.adoption import StoredWinners
from graphopt.plugin import optimize_module
from graphopt.policy import NamedPolicy, resolve
from graphopt.store import Store

POLICY_BUDGET_S: Final = 4.0


def evaluate(request: dict[str, Any], tell: Callable[[str], None]) -> dict[str, Any]:
    """The row of one program."""
    name = request["name"]
    program = load_programs(request["workloads"])[name]
    row: dict[str, Any] = {"name": name, "family": program.family, "status": "ok"}
    try:
        fn, args = build_program(program, name)
        subject = make_subject(fn, args, name=name)
        row["nodes"] = sum(_nodes(data) for data, _ in subject.modules)
        if request["policy"]:
            tell("policy")
            row.update(_policy_columns(subject, *_policy(request)))
        if request.get("rival"):
            tell("rival policy")
            row.update(_rival_columns(subject, request["rival"], row))
        if request["budget_s"]:
            row.update(_tuned_columns(fn, args, name, request, tell))
    except GraphOptError as error:
        row["status"] = f"failed: {error}"
        row["traceback"] = own_traceback(error)
    return row


def _nodes(data: bytes) -> int:
    try:
        return len(build_graph(data, allow_donation=True))
    except GraphOptError:
        return 0


def _policy(request: dict[str, Any]) -> tuple[NamedPolicy, StoredWinners | None]:
    """The policy of a request, and the winners that come before it."""
    if request["policy"] != STORED:
        return resolve(request["policy"]), None
    return (
        NamedPolicy(STORED, STORED, lambda graph: None, built_in=True),
        StoredWinners(Store(request["store"])),
    )


def _policy_columns(
    subject: Subject, policy: NamedPolicy, winners: StoredWinners | None
) -> dict[str, Any]:
    """Times what a process with `graphopt.install(policy)` would run against XLA's default."""
    changed = False
    proposed: list[str] = []
    expected: list[float] = []

    def transform(data: bytes) -> bytes | None:
        nonlocal changed
        record, answer = optimize_module(data, policy, winners=winners)
        if answer is not None:
            changed = True
            proposed.append(record.reason or policy.name)
            expected.append(record.expected)
        return answer

    subject_compile = subject.compile(transform)
    outcome = confirm(subject, transform if changed else None, POLICY_BUDGET_S)
    times = outcome.times
    changed = changed or bool(subject.forms)
    speedup = times.speedup if changed else 1.0
    return {
        "default_s": times.baseline_s,
        "policy_s": times.candidate_s if changed else times.baseline_s,
        "speedup_policy": speedup,
        "policy_low": times.low if changed else 1.0,
        "policy_high": times.high if changed else 1.0,
        "policy_changed": changed,
        "policy_forms": list(subject.forms),
        "policy_chosen": ", ".join(dict.fromkeys(proposed)),
        "policy_expected": max(expected, default=None),
        "policy_compile_s": subject_compile.compile_s,
        "default_compile_s": subject.default.compile_s,
        "max_rel_err": outcome.relative,
        **_verdict("policy", outcome.judgement.problem()),
    }


def _rival_columns(subject: Subject, rival: str, row: dict[str, Any]) -> dict[str, Any]:
    """The same for another policy; not measured again where the first one has chosen its decisions."""
    same = row.get("policy_chosen") == rival
    found = row if same else _policy_columns(subject, resolve(rival), None)
    return {
        "speedup_rival": found["speedup_policy"],
        **{f"rival_{k}": found[f"policy_{k}"] for k in ("low", "high", "changed")},
    }


def _tuned_columns(
    fn: Any, args: Any, name: str, request: dict[str, Any], tell: Callable[[str], None]
) -> dict[str, Any]:
    def listener(event: Event) -> None:
        tell(f"{event.stage} {event.evaluations} candidates, best {event.best:.2f}x")

    result = tune(
        fn,
        *args,
        budget_s=request["budget_s"],
        store=Store(request["store"]),
        seed=request["seed"],
        name=name,
        listener=listener,
    )
    return {
        "default_s": result.baseline_s,
        "tuned_s": result.tuned_s,
        "speedup_tuned": result.speedup,
        "tuned_low": result.times.low if result.changed else 1.0,
        "tuned_high": result.times.high if result.changed else 1.0,
        "evaluations": result.evaluations,
        "max_rel_err": result.max_rel_err,
        "winner": ", ".join(m.winner for m in result.modules),
        "changes": {k: v for m in result.modules for k, v in m.changes.items()},
        "why": "; ".join(filter(None, (m.why() for m in result.modules))),
        "failures": {k: v for m in result.modules for k, v in m.failures.items()},
        "history": [h for m in result.modules for h in m.history],
        "options": result.options,
        "options_speedup": result.options_times.speedup if result.options_times else 1.0,
        "tune_s": result.seconds,
        **_verdict("winner", result.problem),
    }


def _verdict(what: str, problem: str) -> dict[str, str]:
    """The status where results of a policy or winner are not verified; nothing where they are."""
    return {"status": f"{problem} ({what})"} if problem else {}


def main() -> int:
    """Answers one request."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    request = json.loads(sys.stdin.readline())
    row = evaluate(request, lambda text: say({"progress": text}))
    say({"row": row})
    return 0


if __name__ == "__main__":
    sys.exit(main())
