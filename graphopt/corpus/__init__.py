"""Programs that exercise the optimizer, and the graphs that XLA makes of them.

`load_corpus` gives the programs of a split with their graphs. ``TRAIN``, ``VALIDATION``, ``HELD_OUT`` and
``TUNING`` are dicts from name to builder, so that ``graphopt.corpus:HELD_OUT`` names a program set.
``graphopt.corpus.demo.DEMO`` holds a few workloads that are in no split, ``graphopt.corpus.fuzzing.FUZZ``
many small ones that cover the operations and loop shapes found in real code.

Programs import jax, so that they are imported when first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphopt.corpus.program import Program, ProgramSet

if TYPE_CHECKING:
    from graphopt.corpus.bulk import collect
    from graphopt.corpus.cache import CorpusCache
    from graphopt.corpus.entries import Entry, add_to_corpus, load_corpus
    from graphopt.corpus.registry import corpus_programs
    from graphopt.corpus.split import check_split

_LAZY = {
    "CorpusCache": "graphopt.corpus.cache",
    "Entry": "graphopt.corpus.entries",
    "add_to_corpus": "graphopt.corpus.entries",
    "check_split": "graphopt.corpus.split",
    "collect": "graphopt.corpus.bulk",
    "corpus_programs": "graphopt.corpus.registry",
    "load_corpus": "graphopt.corpus.entries",
}
_SELECTIONS = {
    "TRAIN": "train",
    "VALIDATION": "validation",
    "HELD_OUT": "held-out",
    "TUNING": "tuning",
}


def __getattr__(name: str) -> Any:
    """Imports what needs jax on first use."""
    import importlib

    if name in _SELECTIONS:
        from graphopt.corpus.registry import select_corpus

        return select_corpus(_SELECTIONS[name])
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CorpusCache",
    "Entry",
    "Program",
    "ProgramSet",
    "add_to_corpus",
    "check_split",
    "collect",
    "corpus_programs",
    "load_corpus",
]
