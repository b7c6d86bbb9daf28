"""Fills the kernel bank from programs: profiles of starting points and of random neighbours of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graphopt.corpus.program import Program
from graphopt.corpus.workloads import build_program
from graphopt.errors import GraphOptError
from graphopt.hlo import Decisions, Graph
from graphopt.learn.search.moves import Mover
from graphopt.learn.search.portfolio import portfolio
from graphopt.measure import compile_with
from graphopt.measure.inputs import recorded_inputs
from graphopt.measure.runner import Runner
from graphopt.store import Store


@dataclass(frozen=True)
class Filled:
    """What one program added.

    Attributes:
        name: program name.
        vectors: decision vectors profiled.
        kernels: kernel times measured.
        note: why it added nothing, or empty.
    """

    name: str
    vectors: int
    kernels: int
    note: str = ""


def fill_bank(
    programs: Sequence[Program],
    store: Store,
    vectors: int,
    seed: int,
    tell: Callable[[Filled], None],
) -> list[Filled]:
    """Profiles each program's largest module; a program that fails is reported and left out.

    Args:
        programs: whose kernels are measured.
        store: the bank.
        vectors: random neighbours per program beside the starting points.
        seed: of the neighbours.
        tell: told of every finished program.
    """
    out = []
    for program in programs:
        try:
            filled = _fill_one(program, store, vectors, seed)
        except GraphOptError as error:
            filled = Filled(program.name, 0, 0, error.what)
        except Exception as error:
            filled = Filled(program.name, 0, 0, f"{type(error).__name__}: {error}"[:200])
        out.append(filled)
        tell(filled)
    return out


def _fill_one(program: Program, store: Store, vectors: int, seed: int) -> Filled:
    fn, args = build_program(program, program.name)
    compiled = compile_with(fn, args)
    data = max(compiled.modules, key=len)
    with Runner(data, recorded_inputs(compiled.executable, args), store) as runner:
        runner.start()
        starts = [start.decisions for start in portfolio(runner.graph)]
        rng = np.random.default_rng(seed)
        wanted = [*starts, *neighbours(runner.graph, starts, rng, vectors)]
        kernels = [len(runner.profile(vector)) for vector in wanted]
    return Filled(program.name, sum(k > 0 for k in kernels), sum(kernels))


def neighbours(
    graph: Graph, starts: Sequence[Decisions], rng: np.random.Generator, count: int
) -> list[Decisions]:
    """Vectors one to six moves away from random starting points."""
    mover = Mover(graph, rng)
    out = []
    for _ in range(count):
        vector = starts[int(rng.integers(len(starts)))]
        for _ in range(int(rng.integers(1, 7))):
            vector, _ = mover.move(vector)
        out.append(vector)
    return out
