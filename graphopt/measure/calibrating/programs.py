"""Small programs, compiled by XLA with kernels and units of our choice, and their shortest times."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from graphopt.errors import MeasureError
from graphopt.hlo import Decisions, Graph, build_graph, rewrite
from graphopt.hlo.restructure import CODE
from graphopt.measure.compiling.functions import Compiled, compile_with

MIN_ROUNDS: Final = 3

Step = Callable[[Any], Any]
"""One operation on an array, whose result has the same shape."""


def chain(step: Step, times: int) -> Step:
    """A step, again and again."""

    def run(x: Any) -> Any:
        for _ in range(times):
            x = step(x)
        return x

    return run


def compile_on(
    fn: Callable[..., Any], args: tuple[Any, ...], unit: str, *, op: str = "", apart: bool = False
) -> Compiled:
    """Compiles a program whose kernels run on one unit, and which runs on the thread that calls it.

    Args:
        fn: the program.
        args: what it is called with.
        unit: name of an execution unit.
        op: only operations of this name go there; "" for every kernel.
        apart: every operation is a kernel of its own.

    Raises:
        MeasureError: nothing in the program may run there.
    """

    def transform(data: bytes) -> bytes:
        graph = build_graph(data)
        return rewrite(graph, _decide(graph, unit, op, apart)).data

    return compile_with(fn, args, transform)


def compile_loop(step: Step, x: Any) -> Callable[[int], Compiled]:
    """Compiles a while loop that the thunk executor runs, with kernels on one core.

    Returns:
        the program for a number of iterations.
    """

    def loop(count: Any, x: Any) -> Any:
        return jax.lax.fori_loop(0, count, lambda _, value: step(value), x)

    program = compile_on(loop, (jnp.asarray(1, jnp.int32), x), "loop@1")
    return lambda count: replace(program, args=(jnp.asarray(count, jnp.int32), x))


def _decide(graph: Graph, unit: str, op: str, apart: bool) -> Decisions:
    """Decisions as `compile_on` describes them; loops stay with the thunk executor."""
    out = graph.default.copy()
    if apart:
        out.fuse[graph.masks.fuse[:, 0]] = False
    names = [u.name for u in graph.units]
    column, runtime = names.index(unit), names.index("runtime")
    chosen = graph.masks.unit[:, column] & ~out.fuse
    if op:
        chosen &= np.array([o.name == op for o in graph.ops])
    loops = np.array([o.name == "while" for o in graph.ops]) & graph.masks.unit[:, runtime]
    if not (chosen & ~loops).any():
        raise MeasureError(
            what=f"no operation of the program may run on {unit}",
            where=graph.name,
            fix="The table's value is used instead.",
        )
    out.unit[chosen] = column
    out.unit[loops] = runtime
    code = CODE["caller-thread"]
    out.restructure[graph.masks.restructure[:, code]] = code
    return out


def shortest_ns(programs: Sequence[Callable[[], Any]], seconds: float) -> list[float]:
    """Shortest time of a call of each program, called in turn, in nanoseconds.

    What else the machine does can only add to a time; with the calls in turn it adds to all of them.

    Args:
        programs: each runs once and waits for its result.
        seconds: to spend; a few rounds are always made.
    """
    best = [float("inf")] * len(programs)
    for run in programs:
        run()
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < MIN_ROUNDS or time.perf_counter() < end:
        rounds += 1
        for number, run in enumerate(programs):
            start = time.perf_counter()
            run()
            best[number] = min(best[number], 1e9 * (time.perf_counter() - start))
    return best
