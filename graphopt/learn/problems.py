"""What is learned from: a graph, who scores its decisions, and its features, computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from graphopt.corpus import Program
from graphopt.errors import ConfigError, GraphOptError
from graphopt.hlo import Graph, build_graph
from graphopt.learn.analytic import AnalyticScorer
from graphopt.learn.config import CorpusConfig
from graphopt.machine import probe
from graphopt.measure import Scorer, compile_with
from graphopt.policy.features import Features, extract

ScorerFactory = Callable[["Problem"], Scorer]


@dataclass(eq=False)
class Problem:
    """One graph of the corpus.

    Attributes:
        name: program and module.
        family: kind of program; splits go by it.
        graph: the graph.
        program: where it comes from, for scorers that run it; None if unknown.
        scorers: scorers made so far, by kind.
    """

    name: str
    family: str
    graph: Graph
    program: Program | None = None
    scorers: dict[str, Scorer] = field(default_factory=dict)

    @cached_property
    def features(self) -> Features:
        """Features of the graph on this machine."""
        return extract(self.graph)

    def scorer(self, kind: str) -> Scorer:
        """The scorer of a kind, made at first use.

        Raises:
            ConfigError: there is no such kind.
        """
        if kind not in self.scorers:
            if kind not in SCORERS:
                raise ConfigError(
                    what=f"there is no scorer named {kind!r}",
                    where=f"problem {self.name}",
                    fix=f"Use one of {', '.join(sorted(SCORERS))}.",
                )
            self.scorers[kind] = SCORERS[kind](self)
        return self.scorers[kind]


SCORERS: Final[dict[str, ScorerFactory]] = {
    "analytic": lambda problem: AnalyticScorer(problem.graph),
}
"""Kinds of scorers that stages can name."""


def load_problems(config: CorpusConfig, split: str) -> list[Problem]:
    """The problems of a split (train or validation), in a fixed order, smallest graphs first.

    Raises:
        ConfigError: no graph is left.
        WorkloadError: a program cannot be found or built.
    """
    limit = config.limit if split == "train" else config.validation_limit
    found = []
    for problem in _source(config, split):
        named = not config.names or split != "train" or problem.name in config.names
        if named and 2 <= len(problem.graph) <= config.max_nodes and _has_choice(problem.graph):
            found.append(problem)
            if limit and len(found) == limit:
                break
    if not found:
        raise ConfigError(
            what=f"no graph of the {split} split is left",
            where="corpus",
            fix="raise max_nodes, or name other programs",
        )
    return sorted(found, key=lambda problem: (len(problem.graph), problem.name))


def _has_choice(graph: Graph) -> bool:
    return bool((graph.masks.fuse.all(axis=1) | (graph.masks.unit.sum(axis=1) > 1)).any())


def _source(config: CorpusConfig, split: str) -> Iterator[Problem]:
    if config.source == "builtin":
        yield from from_programs(_builtin(split))
        return
    from graphopt.corpus.workloads import load_programs

    programs = load_programs(config.source).values()
    yield from from_programs(
        p for i, p in enumerate(programs) if (i % 4 == 3) == (split != "train")
    )


VALIDATION_FAMILIES: Final = frozenset({"table", "sort", "low-precision", "recurrent", "stencil"})
"""Families of built-in programs that are never trained on."""


def _builtin(split: str) -> Iterator[Program]:
    from graphopt.corpus.demo import DEMO
    from graphopt.corpus.fuzzing import FUZZ

    for program in (*DEMO, *FUZZ):
        if (program.family in VALIDATION_FAMILIES) == (split != "train"):
            yield program


def from_programs(programs: Iterable[Program]) -> Iterator[Problem]:
    """Compiles each program by XLA's default and takes the graphs; modules left alone are skipped."""
    for program in programs:
        fn, args = program.build()
        for index, data in enumerate(compile_with(fn, args).modules):
            graph = _graph(data)
            if graph is not None:
                name = program.name if index == 0 else f"{program.name}:{index}"
                yield Problem(name, program.family, graph, program)


def _graph(data: bytes) -> Any:
    try:
        return build_graph(data, probe())
    except GraphOptError:
        return None
