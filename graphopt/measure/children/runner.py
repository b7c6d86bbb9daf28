"""Measures variants of a module in a child process that may abort, hang or run out of memory."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from graphopt.closing import Closing, ends_with
from graphopt.errors import MeasureError
from graphopt.hlo import Decisions, Graph, build_graph
from graphopt.measure.children.child import Child, ChildFailure
from graphopt.measure.inputs import save_inputs
from graphopt.store import Store, decisions_digest, encode_decisions
from graphopt.store.kernels import Kernel, put_kernels
from graphopt.store.winners import put_evaluation, put_quarantine, quarantined

START_TIMEOUT_S: Final = 300.0
"""Longest start of a worker: imports, XLA's own compile, one run."""

RUNS: Final = 40
"""More runs of a slow program than one measurement makes."""

_LASTING: Final = frozenset(
    {"abort", "hang", "exit", "garbage", "wrong result", "chaotic", "memory"}
)
"""Failures that quarantine a decision vector."""


@dataclass(frozen=True)
class Measurement:
    """One variant against another.

    Attributes:
        status: ``ok``, or why there is no time.
        detail: the reason in full.
        ratio: median of paired ratios rival / variant; above 1 the variant is faster.
        low: lower end of its 95 % interval.
        high: upper end.
        rival_s: median seconds of what it was measured against.
        seconds: median seconds of the variant.
        pairs: interleaved pairs.
        compile_s: seconds of XLA's compile of the variant.
        default_compile_s: the same of XLA's default.
        error: largest relative difference from the default's results.
        clusters: clusters of the variant.
        regions: native regions of the variant.
    """

    status: str
    detail: str = ""
    ratio: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    rival_s: float = float("nan")
    seconds: float = float("nan")
    pairs: int = 0
    compile_s: float = float("nan")
    default_compile_s: float = float("nan")
    error: float = float("nan")
    clusters: int = 0
    regions: int = 0

    @property
    def ok(self) -> bool:
        """True if there are times."""
        return self.status == "ok"


class Runner(Closing):
    """A worker process for one module, started anew after it died.

    Every result goes to the store at once. Decisions that killed or hung a worker, or gave a wrong result,
    are quarantined there and refused without another try.

    Attributes:
        graph: of the module.
        store: where results go; None keeps none.
        timeout_s: time limit of a request.
        requests: requests that went to a worker.
        measured: candidates that it timed.
        restarts: workers that died.
    """

    def __init__(
        self,
        data: bytes,
        inputs: Sequence[np.ndarray[Any, Any]] | None,
        store: Store | None = None,
        *,
        timeout_s: float = 60.0,
        memory_gb: float = 12.0,
        worker: Sequence[str] = ("-m", "graphopt.measure.children.worker"),
    ) -> None:
        """Writes module and inputs where the worker finds them; starts nothing yet.

        Args:
            data: the default module, as the hook received it.
            inputs: one array per parameter; None for made-up ones.
            store: where results go; None keeps none.
            timeout_s: a variant that takes longer to compile, run and time hangs; `RUNS` runs of the
                default come on top.
            memory_gb: address space of the worker.
            worker: command line of the worker, for tests of failures.
        """
        self.graph: Graph = build_graph(data, allow_donation=True)
        self.store = store
        self.timeout_s = timeout_s
        self.restarts = 0
        self.requests = 0
        self.measured = 0
        self._run_s = 0.0
        self._refused: dict[str, str] = (
            quarantined(store, self.graph.fingerprint) if store is not None else {}
        )
        self._folder = Path(tempfile.mkdtemp(prefix="graphopt-measure-"))
        # Not a TemporaryDirectory: that warns where its owner was dropped without `close`.
        self._remove = ends_with(self, shutil.rmtree, self._folder, True)
        module = self._folder / "module.pb"
        module.write_bytes(data)
        self._arguments = [*worker, str(module), "-", f"{memory_gb:g}"]
        if inputs is not None:
            path = self._folder / "inputs.npz"
            save_inputs(path, inputs)
            self._arguments[-2] = str(path)
        self._child: Child | None = None

    def start(self) -> None:
        """Starts the worker if there is none.

        Raises:
            MeasureError: the module cannot be measured: its default fails in the worker.
        """
        if self._child is not None:
            return
        child = Child(self._arguments, f"worker for {self.graph.name}")
        try:
            answer = _parse(child, child.greeting(START_TIMEOUT_S))
        except ChildFailure as failure:
            raise _cannot(self.graph.name, f"{failure.what}: {failure.detail[-300:]}") from failure
        except BaseException:
            child.close()
            raise
        if answer["status"] != "ok":
            child.close()
            raise _cannot(self.graph.name, str(answer.get("detail", answer["status"])))
        self._run_s = float(answer.get("run_s", 0.0))
        self._child = child

    def measure(
        self,
        decisions: Decisions,
        *,
        against: Decisions | None = None,
        options: dict[str, str] | None = None,
        budget_s: float = 0.5,
        method: str = "",
    ) -> Measurement:
        """Compiles, checks and times a variant in turn with another (default: XLA's own)."""
        encoded = encode_decisions(self.graph, decisions)
        refused = self._refused.get(decisions_digest(encoded))
        if refused is not None:
            return Measurement("quarantined", refused)
        rival = "{}" if against is None else encode_decisions(self.graph, against)
        answer = self._ask(
            {
                "op": "measure",
                "decisions": encoded,
                "against": rival,
                "options": options or {},
                "budget_s": budget_s,
            }
        )
        result = _measurement(answer)
        self.measured += result.ok
        if not options:
            self._record(encoded, rival, result, method)
        return result

    def profile(self, decisions: Decisions, runs: int = 5) -> list[tuple[Kernel, int, float]]:
        """Kernels of a variant in place: (kernel, first item, executions per run); stored in the bank.

        Empty if the variant fails.
        """
        encoded = encode_decisions(self.graph, decisions)
        if decisions_digest(encoded) in self._refused:
            return []
        answer = self._ask({"op": "profile", "decisions": encoded, "runs": runs})
        if answer["status"] != "ok":
            return []
        found = [
            (Kernel(key, ns, runs, tuple(features)), int(item), float(executions))
            for key, ns, executions, item, features in answer["kernels"]
        ]
        if self.store is not None:
            put_kernels(self.store, [kernel for kernel, _, _ in found])
        return found

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self.start()
        child = self._child
        assert child is not None
        self.requests += 1
        timeout_s = self.timeout_s + RUNS * self._run_s
        try:
            answer = _parse(child, child.ask(json.dumps(request), timeout_s))
            if answer["status"] == "ok" and not _FITS[request["op"]](answer):
                raise child.garbage(f"answered {str(answer)[:200]} to {request['op']}")
            return answer
        except ChildFailure as failure:
            self._child = None
            self.restarts += 1
            kind = "memory" if _is_memory(failure) else failure.kind
            return {"status": kind, "detail": f"{failure.what} {failure.detail[-300:]}".strip()}
        except BaseException:
            self.close_worker()
            raise

    def _record(self, encoded: str, rival: str, result: Measurement, method: str) -> None:
        reason = record(self.store, self.graph.fingerprint, encoded, rival, result, method)
        if reason:
            self._refused[decisions_digest(encoded)] = reason

    def close_worker(self) -> None:
        """Ends the worker; the next request starts another."""
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def close(self) -> None:
        """Ends the worker and removes its files."""
        self.close_worker()
        self._remove()


def record(
    store: Store | None,
    fingerprint: str,
    encoded: str,
    rival: str,
    result: Measurement,
    method: str,
) -> str:
    """Writes what came of a variant into a store.

    Args:
        store: None writes nothing.
        fingerprint: of the module's graph.
        encoded: the variant.
        rival: what it was measured against, encoded; ratios to others than XLA's default are not kept.
        result: of the measurement.
        method: what proposed it.

    Returns:
        Why it is never to be tried again; "" where it may be.
    """
    lasting = result.status in _LASTING
    if store is not None:
        if lasting:
            put_quarantine(store, fingerprint, encoded, f"{result.status}: {result.detail}")
        if not result.ok or rival == "{}":
            ratio = result.ratio if result.ok else None
            put_evaluation(store, fingerprint, encoded, ratio, result.status, method)
    return result.status if lasting else ""


def _parse(child: Child, line: str) -> dict[str, Any]:
    """A line of answer; anything but an object with a status ends the child."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("status"), str):
        raise child.garbage(f"answered {line[:200]!r}")
    return answer


_TIMES: Final = ("ratio", "low", "high", "baseline_s", "candidate_s")
_NUMBERS: Final = (
    *_TIMES,
    "pairs",
    "compile_s",
    "default_compile_s",
    "error",
    "clusters",
    "regions",
)


def _fits_measure(answer: dict[str, Any]) -> bool:
    if not all(type(answer.get(name)) in (int, float) for name in _NUMBERS):
        return False
    return all(0.0 < answer[name] < float("inf") for name in _TIMES)


def _fits_profile(answer: dict[str, Any]) -> bool:
    kernels = answer.get("kernels")
    return isinstance(kernels, list) and all(isinstance(k, list) and len(k) == 5 for k in kernels)


_FITS: Final = {"measure": _fits_measure, "profile": _fits_profile}
"""Operation -> whether a successful answer has everything it should."""


def _measurement(answer: dict[str, Any]) -> Measurement:
    if answer["status"] != "ok":
        return Measurement(answer["status"], str(answer.get("detail", "")))
    values = {k: answer[k] for k in _NUMBERS if k not in ("baseline_s", "candidate_s")}
    return Measurement("ok", rival_s=answer["baseline_s"], seconds=answer["candidate_s"], **values)


def _is_memory(failure: ChildFailure) -> bool:
    words = ("bad_alloc", "Cannot allocate memory", "MemoryError", "out of memory", "OOM")
    return any(word in failure.detail for word in words) or "SIGKILL" in failure.what


def _cannot(name: str, why: str) -> MeasureError:
    return MeasureError(
        what=f"the module cannot be measured apart from its program: {why}",
        where=name,
        fix="Its host callbacks, tokens or types have no place in a measuring process.",
    )
