"""Where an environment's graphs come from: graphs, programs, program sets or a corpus split."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Union

from graphopt.corpus.program import Program
from graphopt.corpus.workloads import build_program, builtin_program, load_programs
from graphopt.errors import ConfigError
from graphopt.hlo import Graph

DEFAULT_GRAPHS: Final = "adam_step"
"""The small built-in program that an environment made without arguments optimises."""

SPLITS: Final = ("train", "validation", "held-out")
"""Names that mean a split of the corpus."""

CAPTURED_PROGRAMS: Final = 512
"""Programs whose graphs are remembered within a process."""


@dataclass(frozen=True, eq=False)
class GraphItem:
    """A graph with its name and, if it is known, the program that it belongs to.

    Attributes:
        name: unique within one environment.
        graph: the graph.
        program: builds the function and arguments; None where only the graph is known, so that
            nothing can be run.
    """

    name: str
    graph: Graph
    program: Program | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphItem:
        """The item itself: it never changes, and environments' keyword arguments are copied
        often."""
        return self


GraphSource = Union[str, Graph, Program, GraphItem]  # noqa: UP007 - a run-time alias for documentation
GraphSources = Union[GraphSource, Iterable[GraphSource]]  # noqa: UP007


def load_graphs(sources: GraphSources) -> tuple[GraphItem, ...]:
    """Graphs of one source or several.

    Args:
        sources: a `Graph`, a `Program`, a `GraphItem`, or text; or several of these. Text is the
            name of a built-in program, ``demo``, ``fuzz``, ``pkg.module:WORKLOADS``, or a split of
            the corpus.

    Raises:
        ConfigError: there are no graphs, or something else was given.
        WorkloadError: a program cannot be found or built.
        UnsupportedModuleError: a program's module is one that graphopt leaves alone.
    """
    single = isinstance(sources, str | Graph | Program | GraphItem)
    listed: Iterable[Any] = (sources,) if single else sources  # type: ignore[assignment]
    if not isinstance(listed, Iterable):
        raise _error(f"a {type(sources).__name__} is no source of graphs")
    items = [item for source in listed for item in _items(source)]
    if not items:
        raise _error("there are no graphs")
    return tuple(_with_unique_names(items))


def _items(source: object) -> list[GraphItem]:
    if isinstance(source, GraphItem):
        return [source]
    if isinstance(source, Graph):
        return [GraphItem(source.name, source)]
    if isinstance(source, Program):
        return list(_captured(source))
    if isinstance(source, str):
        return _named(source)
    graphs, program = getattr(source, "graphs", None), getattr(source, "program", None)
    if isinstance(graphs, list) and isinstance(program, Program):  # an entry of the corpus
        return _numbered(program, graphs)
    raise _error(f"a {type(source).__name__} is no source of graphs")


def _named(name: str) -> list[GraphItem]:
    if name in SPLITS:
        return _split(name)
    if name in ("demo", "fuzz") or ":" in name:
        return [item for program in load_programs(name).values() for item in _captured(program)]
    if (program := builtin_program(name)) is not None:
        return list(_captured(program))
    raise ConfigError(
        what=f"no program or program set is named {name!r}",
        where="graphs",
        fix=f"Use demo, fuzz, {', '.join(SPLITS)}, pkg.module:WORKLOADS, or a built-in program such as "
        f"{DEFAULT_GRAPHS}.",
    )


def _split(name: str) -> list[GraphItem]:
    corpus = importlib.import_module("graphopt.corpus")
    load = getattr(corpus, "load_corpus", None)
    if load is None:
        raise ConfigError(
            what=f"this installation has no corpus to take the split {name!r} from",
            where="graphs",
            fix="Pass programs or graphs.",
        )
    return [item for entry in load(split=name) for item in _items(entry)]


@functools.lru_cache(maxsize=CAPTURED_PROGRAMS)
def _captured(program: Program) -> tuple[GraphItem, ...]:
    """Graphs of a program; one item per module, compiled once per process."""
    from graphopt.corpus.capture import capture
    from graphopt.measure.compiling.functions import refuse_forked

    refuse_forked()
    fn, args = build_program(program, program.name)
    graphs = capture(fn, *args)
    return tuple(_numbered(program, graphs))


def _numbered(program: Program, graphs: list[Graph]) -> list[GraphItem]:
    """One item per module of a program."""
    if len(graphs) == 1:
        return [GraphItem(program.name, graphs[0], program)]
    return [
        GraphItem(f"{program.name}-{number}", graph, program) for number, graph in enumerate(graphs)
    ]


def _with_unique_names(items: list[GraphItem]) -> list[GraphItem]:
    used: dict[str, int] = {}
    out = []
    for item in items:
        used[item.name] = used.get(item.name, 0) + 1
        count = used[item.name]
        out.append(
            item if count == 1 else GraphItem(f"{item.name}-{count}", item.graph, item.program)
        )
    return out


def _error(what: str) -> ConfigError:
    return ConfigError(
        what=what, where="graphs", fix="Pass graphs, programs, or names of programs or splits."
    )
