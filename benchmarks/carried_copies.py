"""Loops that read and update an array they carry: with and without copies of it.

    python -m benchmarks.carried_copies

Every cell: microseconds of one iteration by XLA's default / by the heuristic without its step "carried
copies" / by all of its steps; and how many times faster the last is than the second.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp

from benchmarks.dispatch import heads, row
from benchmarks.progress import counted, ended
from graphopt.hlo import build_graph
from graphopt.learn.tune.subject import make_subject
from graphopt.measure.children.runner import Runner
from graphopt.policy.heuristic.steps import STEPS, heuristic_steps

ELEMENTS: Final = (100, 1_000, 10_000, 100_000)
TRIPS: Final = 200
STEP: Final = "carried copies"


def exchange(i: Any, x: Any) -> Any:
    """Two elements change places."""
    a, b = (5 * i + 2) % x.size, (7 * i) % x.size
    return x.at[a].set(x[b]).at[b].set(x[a])


def walker(i: Any, state: Any) -> Any:
    """What an element is decides what it becomes, and where the walker goes."""
    x, place = state
    here = x[place]
    x = x.at[place].set(1.0 - here)
    return x, (place + jnp.where(here > 0.5, 3, 7) + i) % x.size


def learner(i: Any, table: Any) -> Any:
    """A table of four values a row: one of them moves towards the largest of another row."""
    here, there, action = (7 * i) % len(table), (11 * i + 3) % len(table), i % 4
    error = 0.1 + 0.9 * table[there].max() - table[here, action]
    return table.at[here, action].add(0.1 * error)


def experience(i: Any, state: Any) -> Any:
    """A row is written into a buffer, eight others are read."""
    x, mean = state
    x = jax.lax.dynamic_update_slice(x, mean[None] + i, ((3 * i) % len(x), 0))
    chosen = (jnp.arange(8) * 5 + i) % len(x)
    return x, 0.9 * mean + 0.1 * x[chosen].mean(0)


def counts(i: Any, x: Any) -> Any:
    """Sixteen elements are added to, by how large they are."""
    places = (jnp.arange(16) * 3 + 5 * i) % x.size
    return x.at[places].add(0.1 * x[places])


PROGRAMS: Final[dict[str, tuple[Callable[..., Any], Callable[[int], Any]]]] = {
    "two elements change places": (exchange, lambda n: jnp.linspace(0.0, 1.0, n)),
    "a walker on a grid": (walker, lambda n: (jnp.linspace(0.0, 1.0, n), jnp.int32(0))),
    "a table of values": (learner, lambda n: jnp.zeros((n // 4, 4))),
    "a buffer of experience": (experience, lambda n: (jnp.zeros((n // 4, 4)), jnp.ones(4))),
    "elements added to": (counts, lambda n: jnp.linspace(0.0, 1.0, n)),
}


def cell(step: Callable[..., Any], state: Any, budget_s: float) -> str:
    """Measures one loop."""
    subject = make_subject(lambda s: jax.lax.fori_loop(0, TRIPS, step, s), (state,))
    ((data, inputs),) = subject.modules
    graph = build_graph(data, allow_donation=True)
    without = heuristic_steps(graph, [name for name in STEPS if name != STEP])
    whole = heuristic_steps(graph, STEPS)
    with Runner(data, inputs, None) as runner:
        runner.start()
        over = runner.measure(whole, budget_s=budget_s)
        beside = runner.measure(whole, against=without, budget_s=budget_s)
    if not (over.ok and beside.ok):
        return over.status if not over.ok else beside.status
    us = 1e6 * beside.seconds / TRIPS
    default, before = us * over.ratio, us * beside.ratio
    return f"{default:.2f} / {before:.2f} / {us:.2f}: {beside.ratio:.2f}x"


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.carried_copies")
    parser.add_argument("--budget-s", type=float, default=0.4, help="of timing per comparison")
    budget_s = parser.parse_args().budget_s
    heads("loop", *(f"{n:,} elements" for n in ELEMENTS))
    with counted(PROGRAMS.items(), "loops measured") as rest:
        for name, (step, make) in rest:
            row([name, *(cell(step, make(n), budget_s) for n in ELEMENTS)])


if __name__ == "__main__":
    sys.exit(ended(main))
