"""Programs with their split and their captured graphs."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import graphopt.corpus.programs
from graphopt.corpus.cache import CorpusCache, Record, digest_of
from graphopt.corpus.program import Program
from graphopt.corpus.registry import corpus_programs
from graphopt.corpus.split import SPLITS, split_of
from graphopt.errors import WorkloadError
from graphopt.hlo import Graph, build_graph
from graphopt.store.database import environment

_LIBRARIES: Final = ("jax", "flax", "optax", "jraph")
"""Packages beside jaxlib that change what a program compiles to."""


@dataclass(frozen=True)
class Entry:
    """A program of the corpus; its graphs are captured when first asked for, and kept on disk.

    Attributes:
        program: what is captured.
        split: ``train``, ``validation`` or ``held-out``.
        cache: where captures are kept.
        workload: ``pkg.module:builder`` of a program that a user added; else empty.
    """

    program: Program
    split: str
    cache: CorpusCache = field(repr=False)
    workload: str = ""

    @property
    def name(self) -> str:
        """Program name."""
        return self.program.name

    @property
    def family(self) -> str:
        """Family of the program."""
        return self.program.family

    @cached_property
    def key(self) -> str:
        """Digest of all that the captured modules depend on."""
        return capture_key(self.program, self.workload)

    @property
    def record(self) -> Record | None:
        """What the cache knows about this program as it is now; None if it is not captured."""
        record = self.cache.record(self.name)
        return record if record is not None and record.key == self.key else None

    @property
    def is_captured(self) -> bool:
        """True if the modules are on disk, whole."""
        return self.record is not None and self.cache.modules(self.record) is not None

    @property
    def modules(self) -> list[bytes]:
        """Serialised modules, the one with the most nodes first; captured now if need be.

        Raises:
            WorkloadError: the program cannot be built, or the cache cannot be written.
            UnsupportedModuleError: graphopt leaves a module of it alone.
        """
        if (record := self.record) is not None:
            modules = self.cache.modules(record)
            if modules is not None:
                return modules
        return self.capture()

    @cached_property
    def graphs(self) -> list[Graph]:
        """Graphs of `modules`, in the same order."""
        return [build_graph(data) for data in self.modules]

    def capture(self) -> list[bytes]:
        """Compiles the program in this process, writes its modules to the cache, returns them.

        Raises:
            WorkloadError: the program cannot be built, or the cache cannot be written.
            UnsupportedModuleError: graphopt leaves a module of it alone.
        """
        import jax

        from graphopt.corpus.capture import capture_modules, named_module
        from graphopt.corpus.workloads import build_program

        start = time.perf_counter()
        fn, args = build_program(self.program, self.workload or self.name)
        modules = [named_module(data, f"jit_{self.name}") for data in capture_modules(fn, *args)]
        if not modules:
            raise WorkloadError(
                what="compiles to no module", where=self.name, fix="Let it compute something."
            )
        seconds = time.perf_counter() - start
        pairs = sorted(((build_graph(data), data) for data in modules), key=lambda p: -len(p[0]))
        modules = [data for _, data in pairs]
        record = Record(
            name=self.name,
            family=self.family,
            split=self.split,
            key=self.key,
            modules=tuple(digest_of(data) for data in modules),
            nodes=tuple(len(graph) for graph, _ in pairs),
            loops=sum(op.name == "while" for graph, _ in pairs for op in graph.ops),
            argument_bytes=sum(int(getattr(leaf, "nbytes", 0)) for leaf in jax.tree.leaves(args)),
            seconds=round(seconds, 3),
            workload=self.workload,
        )
        self.cache.store(record, modules)
        return modules


def load_corpus(
    split: str | None = None,
    directory: str | os.PathLike[str] | None = None,
    names: Collection[str] = (),
) -> list[Entry]:
    """Programs of the corpus, and those that a user added to the directory.

    Args:
        split: ``train``, ``validation`` or ``held-out``; None for all.
        directory: where captures are kept; by default the user's cache directory.
        names: only these programs; all if empty.

    Raises:
        WorkloadError: there is no such split or program.
    """
    if split is not None and split not in SPLITS:
        raise WorkloadError(
            what=f"no split {split!r}", where="corpus", fix=f"Use one of {', '.join(SPLITS)}."
        )
    cache = CorpusCache(directory)
    entries = [Entry(program, split_of(program.family), cache) for program in corpus_programs()]
    entries += [_added(record, cache) for record in cache.records() if record.workload]
    unknown = sorted(set(names) - {entry.name for entry in entries})
    if unknown:
        raise WorkloadError(
            what=f"no program {', '.join(unknown)}",
            where="corpus",
            fix="See `graphopt corpus list` for the names.",
        )
    return [
        entry
        for entry in entries
        if split in (None, entry.split) and (not names or entry.name in names)
    ]


def add_to_corpus(
    workload: str, split: str = "train", directory: str | os.PathLike[str] | None = None
) -> Entry:
    """Captures a user's ``pkg.module:builder`` into the corpus directory, replacing an older capture.

    Raises:
        WorkloadError: it cannot be built, or its name or split is not free to use.
        UnsupportedModuleError: graphopt leaves a module of it alone.
    """
    from graphopt.corpus.workloads import find_program, program_name

    if split not in SPLITS:
        raise WorkloadError(
            what=f"no split {split!r}", where=workload, fix=f"Use one of {', '.join(SPLITS)}."
        )
    if ":" not in workload or program_name(workload) in corpus_programs():
        raise WorkloadError(
            what="is no program of your own", where=workload, fix="Name pkg.module:builder."
        )
    entry = Entry(find_program(workload), split, CorpusCache(directory), workload)
    entry.capture()
    return entry


def _added(record: Record, cache: CorpusCache) -> Entry:
    def build() -> object:
        from graphopt.corpus.workloads import find_program

        return find_program(record.workload).build()

    described = f"added from {record.workload}"
    program = Program(record.name, record.family, build, described, loops=record.loops > 0)  # type: ignore[arg-type]
    return Entry(program, record.split, cache, record.workload)


def capture_key(program: Program, workload: str = "") -> str:
    """Digest of all that a program's modules depend on.

    That is the program's source file and what such files share, the versions of jax, jaxlib and the
    libraries that programs are written with, the machine, and XLA's options. The source of a program that a
    user added is not part of it: it stays as it was when it was added.
    """
    versions = [importlib.metadata.version(name) for name in _LIBRARIES]
    code = "" if workload else _source_digest(program.build.__module__)
    parts = (program.name, workload, code, versions, environment())
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _source_digest(module: str) -> str:
    """Digest of a program's module and of the helpers that program modules share."""
    root = Path(next(iter(graphopt.corpus.programs.__path__)))
    own = sys.modules[module].__file__
    shared = (root.parent / "inputs.py", *sorted(root.glob("_*.py")))
    digest = hashlib.sha256()
    for path in (*shared, *([Path(own)] if own else [])):
        digest.update(path.read_bytes())
    return digest.hexdigest()
