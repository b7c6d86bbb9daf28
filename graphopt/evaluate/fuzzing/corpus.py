"""``graphopt corpus verify``: every program rewritten by policies, each result compared with the default's.

Each program is compiled and run in a child process, so that an abort or a hang is a row of the report.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from graphopt.measure.children.child import ChildFailure
from graphopt.measure.children.pool import ask_all
from graphopt.measure.children.serving import serve

if TYPE_CHECKING:
    from graphopt.measure import Compiled

POLICIES: Final = ("xla-default", "heuristic")

CHAOTIC_SLACK: Final = 1e3
"""Factor on the tolerance for programs declared to amplify rounding."""


@dataclass(frozen=True)
class Verdict:
    """One program under one policy.

    Attributes:
        program: program name.
        policy: name of the policy; empty where the child failed before any.
        status: ``ok``, ``kept`` (the policy expects no gain), ``wrong``, ``error``, or how the child failed
            (``abort``, ``hang``, ``exit``).
        detail: what went wrong.
        relative: largest relative difference of a result.
        default_ms: shortest of a few runs of XLA's default, in milliseconds.
        policy_ms: the same after the rewrite.
    """

    program: str
    policy: str
    status: str
    detail: str = ""
    relative: float = 0.0
    default_ms: float = 0.0
    policy_ms: float = 0.0

    @property
    def fine(self) -> bool:
        """True if the result is the default's."""
        return self.status in ("ok", "kept")


def verify_programs(
    spec: str,
    names: Sequence[str],
    *,
    policies: Sequence[str] = POLICIES,
    workers: int = 2,
    timeout_s: float = 180.0,
    tell: Callable[[Verdict], None] | None = None,
) -> list[Verdict]:
    """Rewrites every program with every policy and compares results.

    Args:
        spec: program set, as for `graphopt.corpus.workloads.load_programs`.
        names: programs of it.
        policies: names of policies.
        workers: child processes at once.
        timeout_s: limit per program.
        tell: told every verdict.
    """
    verdicts: list[Verdict] = []

    def note(name: str, answer: dict[str, Any] | ChildFailure) -> None:
        """Keeps and reports what a child found about one program."""
        if isinstance(answer, ChildFailure):
            fresh = [Verdict(name, "", answer.kind, f"{answer.what}\n{answer.detail[-1500:]}")]
        else:
            fresh = [Verdict(name, **row) for row in answer["rows"]]
        verdicts.extend(fresh)
        for verdict in fresh:
            if tell is not None:
                tell(verdict)

    ask_all(
        ["-m", "graphopt.evaluate.fuzzing.corpus"],
        [(name, {"spec": spec, "name": name, "policies": list(policies)}) for name in names],
        tell=note,
        workers=workers,
        timeout_s=timeout_s,
    )
    return verdicts


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Verifies one program in this process."""
    from graphopt.corpus.workloads import build_program, load_programs
    from graphopt.measure import compile_with

    try:
        program = load_programs(request["spec"])[request["name"]]
        fn, args = build_program(program, request["name"])
        default = compile_with(fn, args)
        reference = default()
    except Exception as error:
        return {"rows": [_failed("", error)]}
    slack = CHAOTIC_SLACK if program.chaotic else 1.0
    base_ms = _time_ms(default)
    return {
        "rows": [
            _try(policy, fn, default, reference, slack, base_ms) for policy in request["policies"]
        ]
    }


def _try(
    policy: str, fn: Any, default: Compiled, reference: Any, slack: float, default_ms: float
) -> dict[str, Any]:
    from graphopt.hlo import build_graph, rewrite
    from graphopt.measure import compare_outputs, compile_with
    from graphopt.measure.comparing.yardstick import is_rounding
    from graphopt.policy.registry import resolve

    decide = resolve(policy).decide
    kept = False

    def transform(data: bytes) -> bytes | None:
        nonlocal kept
        graph = build_graph(data)
        decisions = decide(graph)
        kept = decisions is None
        return None if decisions is None else rewrite(graph, decisions).data

    try:
        compiled = compile_with(fn, default.args, transform, forms=True)
        result = compiled()
        difference = compare_outputs(reference, result, slack=slack)
        equal = difference.equal or is_rounding(default.executable, default.args, result)
    except Exception as error:
        return _failed(policy, error)
    status = "wrong" if not equal else "kept" if kept else "ok"
    return {
        "policy": policy,
        "status": status,
        "detail": "" if equal else difference.leaf,
        "relative": difference.relative,
        "default_ms": default_ms,
        "policy_ms": _time_ms(compiled),
    }


def _failed(policy: str, error: Exception) -> dict[str, Any]:
    text = f"{type(error).__name__}: {error}"
    return {"policy": policy, "status": "error", "detail": text[:1500]}


def _time_ms(run: Callable[[], Any], runs: int = 7) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


if __name__ == "__main__":
    sys.exit(serve(answer))
