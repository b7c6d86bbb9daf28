"""Times one case: a loop of the operation by XLA's default, native, and as the heuristic decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.native_operations.cases import Case
from graphopt.costs.model import CostModel
from graphopt.hlo import Decisions, Graph, build_graph
from graphopt.learn.tune.subject import make_subject
from graphopt.measure.children.runner import Runner
from graphopt.policy.heuristic.steps import choose
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.native_code import make_native

TARGET_S: Final = 2e-3
ITERATIONS: Final = (20, 400)
"""Fewest and most iterations of the loop of a case."""


@dataclass(frozen=True)
class Found:
    """What one iteration takes.

    Attributes:
        name: of the case.
        size: elements of its array.
        default_us: microseconds by XLA's default.
        native_us: as a native loop; None where that is not legal or failed.
        heuristic_us: as the heuristic decides; equal to the default's where it changes nothing.
        default_estimate_us: what the cost model says of the default; None if the loop was written out.
        native_estimate_us: what it says of the native loop.
        note: what failed.
    """

    name: str
    size: int
    default_us: float
    native_us: float | None
    heuristic_us: float
    default_estimate_us: float | None
    native_estimate_us: float | None
    note: str = ""

    @property
    def regret(self) -> float:
        """Time of the heuristic's choice over that of the best of the three."""
        times = [t for t in (self.default_us, self.native_us, self.heuristic_us) if t is not None]
        return self.heuristic_us / min(times)


def mixed(x: Any, y: Any) -> Any:
    """Other values of the same range, after a result is known.

    A processor learns by heart where the branches of a short sort go if it sorts the same numbers twice.
    No value depends on a result, so that results that differ by rounding stay comparable.
    """
    known = y.ravel()[-1] > 100_000
    if jnp.issubdtype(x.dtype, jnp.integer):
        return (x * 7919 + known.astype(x.dtype)) & 1023
    moved = x * 97.31 + known.astype(x.dtype)
    return 0.1 + 0.9 * (moved - jnp.floor(moved))


def repeated(case: Case, iterations: int) -> Any:
    """A loop in which each iteration's array depends on the last one's result."""

    def run(x: Any) -> Any:
        def body(_: Any, carry: Any) -> Any:
            y = case.fn(carry[0])
            return mixed(carry[0], y), y

        return lax.fori_loop(0, iterations, body, (x, jnp.zeros_like(case.fn(x))))

    return run


def native_loop(graph: Graph) -> tuple[Decisions | None, float | None, float | None]:
    """The longest outer loop as native code; estimated nanoseconds of the default and of that."""
    model = CostModel(graph)
    loops = [
        n
        for n, op in enumerate(graph.ops)
        if op.name == "while" and int(graph.computation[n]) == len(graph.computations) - 1
    ]
    if not loops:
        return None, None, None
    loop = max(loops, key=lambda n: model.control(n).default_ns(model.cores))
    cost = model.control(loop)
    default_ns, native_ns = cost.default_ns(model.cores), cost.native_ns()
    context = Context(graph, model, graph.default)
    if not graph.masks.unit[loop, context.native]:
        return None, default_ns, native_ns
    wanted = graph.default.copy()
    make_native(context, wanted, loop)
    return wanted, default_ns, native_ns


def measure(case: Case, size: int, budget_s: float) -> Found:
    """Times a case at one size in a child process.

    Args:
        case: which.
        size: elements of its array.
        budget_s: seconds for each of the ways.

    Raises:
        MeasureError: the default cannot be measured.
    """
    x = case.make(np.random.default_rng(0), size)
    iterations = int(np.clip(TARGET_S / (2e-6 + 1e-9 * size), *ITERATIONS))
    data, inputs = make_subject(repeated(case, iterations), (x,)).modules[0]
    graph = build_graph(data)
    wanted, default_ns, native_ns = native_loop(graph)
    chosen = choose(graph)
    us, notes = 1e6 / iterations, []
    with Runner(data, inputs, None) as runner:
        runner.start()
        native = heuristic = None
        if wanted is not None:
            native = runner.measure(wanted, budget_s=budget_s)
            notes += [] if native.ok else [f"native: {native.status}"]
        if chosen is not None:
            heuristic = runner.measure(chosen.decisions, budget_s=budget_s)
            notes += [] if heuristic.ok else [f"heuristic: {heuristic.status}"]
        plain = runner.measure(graph.default, budget_s=budget_s)
    default_s = plain.seconds
    found = heuristic is not None and heuristic.ok
    return Found(
        case.name,
        size,
        default_s * us,
        default_s / native.ratio * us if native is not None and native.ok else None,
        default_s / heuristic.ratio * us if heuristic is not None and found else default_s * us,
        None if default_ns is None else default_ns / 1e3 / iterations,
        None if native_ns is None else native_ns / 1e3 / iterations,
        "; ".join(notes),
    )
