"""What is learned from: a graph, who scores its decisions, and its features, computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from graphopt.corpus import Entry, Program, load_corpus
from graphopt.errors import ConfigError, GraphOptError
from graphopt.hlo import DecisionBatch, Decisions, Graph, build_graph
from graphopt.learn.collecting.scorers import Bench
from graphopt.learn.config import CorpusConfig
from graphopt.machine import probe
from graphopt.measure import Scorer, modules_of
from graphopt.measure.analytic import AnalyticScorer
from graphopt.measure.bank.scorer import BankScorer
from graphopt.policy.network.features import Features, extract

MIN_NODES: Final = 8
"""Smaller graphs hold one kernel or none: nothing to learn."""

ScorerFactory = Callable[["Problem"], Scorer]


@dataclass(eq=False)
class Problem:
    """One graph of the corpus.

    Attributes:
        name: program and module.
        family: kind of program; splits go by it.
        graph: the graph.
        data: its module, as XLA hands it to the hook; None where nothing is to be measured.
        program: where it comes from, for its inputs; None if unknown.
        bench: where measured scores come from; None where nothing is to be measured.
        scorers: scorers made so far, by kind.
    """

    name: str
    family: str
    graph: Graph
    data: bytes | None = None
    program: Program | None = None
    bench: Bench | None = None
    scorers: dict[str, Scorer] = field(default_factory=dict)

    def confirm(self, kind: str, decisions: Decisions) -> float | None:
        """Measures what a scorer had to predict about decisions; their log speed-up after that.

        None if the scorer predicts nothing, or the measurement failed.
        """
        scorer = self.scorer(kind)
        if not isinstance(scorer, BankScorer) or self.bench is None:
            return None
        if not self.bench.profile(self, scorer, decisions):
            return None
        seconds = scorer.score(DecisionBatch.stack([decisions])).seconds
        return float(np.log(scorer.default_s / seconds[0]))

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


def _bench(problem: Problem) -> Bench:
    if problem.bench is None:
        raise ConfigError(
            what="nothing can be measured without a store",
            where=f"problem {problem.name}",
            fix="use the analytic scorer, or give the problem a bench",
        )
    return problem.bench


SCORERS: Final[dict[str, ScorerFactory]] = {
    "analytic": lambda problem: AnalyticScorer(problem.graph),
    "bank": lambda problem: _bench(problem).bank(problem),
    "measured": lambda problem: _bench(problem).measured(problem),
}
"""Kinds of scorers that stages can name."""


def load_problems(config: CorpusConfig, split: str, bench: Bench | None = None) -> list[Problem]:
    """The problems of a split (train or validation), in a fixed order, smallest graphs first.

    Raises:
        ConfigError: no graph is left.
        WorkloadError: a program cannot be found or built.
    """
    limit = config.limit if split == "train" else config.validation_limit
    found = []
    for problem in _source(config, split):
        names = config.names if split == "train" else config.validation_names
        named = not names or problem.name in names
        size = len(problem.graph)
        if named and MIN_NODES <= size <= config.max_nodes and _has_choice(problem.graph):
            problem.bench = bench
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
    if config.source == "corpus":
        names = config.names if split == "train" else config.validation_names
        yield from from_entries(
            load_corpus(split=split, names={n.partition(":")[0] for n in names})
        )
        return
    if config.source == "builtin":
        yield from from_programs(_builtin(split))
        return
    from graphopt.corpus.workloads import load_programs

    programs = load_programs(config.source).values()
    yield from from_programs(
        p for i, p in enumerate(programs) if (i % 4 == 3) == (split != "train")
    )


def from_entries(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Programs of the corpus; those that cannot be captured are left out."""
    for entry in entries:
        try:
            modules = entry.modules
        except GraphOptError:
            continue
        for index, data in enumerate(modules):
            graph = _graph(data)
            if graph is not None:
                name = entry.name if index == 0 else f"{entry.name}:{index}"
                yield Problem(name, entry.family, graph, data, entry.program)


VALIDATION_FAMILIES: Final = frozenset({"table", "sort", "low-precision", "recurrent", "stencil"})
"""Families of built-in programs that are never trained on."""


def _builtin(split: str) -> Iterator[Program]:
    from graphopt.corpus.demo import DEMO
    from graphopt.corpus.fuzzing import FUZZ

    for program in (*DEMO, *FUZZ):
        if (program.family in VALIDATION_FAMILIES) == (split != "train"):
            yield program


def from_programs(programs: Iterable[Program]) -> Iterator[Problem]:
    """Compiles each program in its forms and takes the graphs; modules left alone are skipped."""
    for program in programs:
        fn, args = program.build()
        for index, data in enumerate(modules_of(fn, args, forms=True)):
            graph = _graph(data)
            if graph is not None:
                name = program.name if index == 0 else f"{program.name}:{index}"
                yield Problem(name, program.family, graph, data, program)


def _graph(data: bytes) -> Any:
    try:
        return build_graph(data, probe())
    except GraphOptError:
        return None
