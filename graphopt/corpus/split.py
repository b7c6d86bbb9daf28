"""Train, validation and held-out: every family of programs is in exactly one of them."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, Protocol

from graphopt.errors import ConfigError
from graphopt.hlo import Graph

TRAIN: Final = "train"
VALIDATION: Final = "validation"
HELD_OUT: Final = "held-out"
SPLITS: Final = (TRAIN, VALIDATION, HELD_OUT)

TRIVIAL_NODES: Final = 8
"""Modules below this size (a single product, a copy) may occur anywhere."""


@cache
def load_split() -> Mapping[str, str]:
    """Split of every family, from the file ``split.json`` of this package.

    Raises:
        ConfigError: the file holds something else than a split per family.
    """
    text = files("graphopt.corpus").joinpath("split.json").read_text()
    return parse_split(text)


def parse_split(text: str) -> dict[str, str]:
    """A split per family from JSON.

    Raises:
        ConfigError: it holds something else, or a family twice.
    """

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise _error("a family is listed twice")
        return dict(pairs)

    try:
        loaded = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise _error(f"is not JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise _error("is not an object")
    for family, split in loaded.items():
        if split not in SPLITS:
            raise _error(f"family {family!r} has the split {split!r}")
    return {family: str(split) for family, split in loaded.items()}


def split_of(family: str) -> str:
    """Split of a family of the corpus.

    Raises:
        ConfigError: the family has none.
    """
    try:
        return load_split()[family]
    except KeyError:
        raise _error(f"family {family!r} is missing") from None


def _error(what: str) -> ConfigError:
    choices = ", ".join(SPLITS)
    return ConfigError(what=what, where="split.json", fix=f"Give every family one of {choices}.")


def structure(graph: Graph) -> str:
    """Hex digest of operations, edges and loops alone: equal for one program at two sizes."""
    digest = hashlib.sha256()
    for op, operands in zip(graph.ops, graph.operand_lists, strict=True):
        digest.update(repr((op.name, operands)).encode())
    for computation in graph.computations:
        row = (int(computation.role), computation.first, computation.end, computation.root)
        digest.update(repr((*row, computation.caller)).encode())
    return digest.hexdigest()


class Captured(Protocol):
    """A program with its split and its graphs, such as `graphopt.corpus.Entry`."""

    @property
    def name(self) -> str:
        """Program name."""

    @property
    def split(self) -> str:
        """One of `SPLITS`."""

    @property
    def graphs(self) -> list[Graph]:
        """Graphs of its modules."""


@dataclass(frozen=True)
class Overlap:
    """Programs that have a module in common.

    Attributes:
        kind: ``fingerprint`` (the same module) or ``structure`` (the same but for sizes and types).
        programs: (name, split) of each, in the order given.
        nodes: size of the module.
    """

    kind: str
    programs: tuple[tuple[str, str], ...]
    nodes: int

    @property
    def leaks(self) -> bool:
        """True if the programs are in different splits."""
        return len({split for _, split in self.programs}) > 1

    def __str__(self) -> str:
        """One line."""
        names = ", ".join(f"{name} ({split})" for name, split in self.programs)
        return f"same {self.kind}, {self.nodes} nodes: {names}"


def find_overlaps(entries: Iterable[Captured]) -> list[Overlap]:
    """Modules that several programs share, trivial ones left out; one `Overlap` per module.

    Modules with the same fingerprint have the same structure; they are listed once, as the former.
    """
    found: dict[str, dict[str, dict[tuple[str, str], str]]] = defaultdict(lambda: defaultdict(dict))
    sizes: dict[str, int] = {}
    for entry in entries:
        for graph in entry.graphs:
            if len(graph) >= TRIVIAL_NODES:
                key = structure(graph)
                sizes[key] = len(graph)
                found[key][graph.fingerprint][entry.name, entry.split] = graph.fingerprint
    overlaps = []
    for key, prints in found.items():
        programs = tuple(dict.fromkeys(p for same in prints.values() for p in same))
        if len(programs) > 1:
            kind = "fingerprint" if len(prints) == 1 else "structure"
            overlaps.append(Overlap(kind, programs, sizes[key]))
    return overlaps


def check_split(entries: Iterable[Captured]) -> None:
    """Checks that no module is in two splits, whatever its sizes.

    Raises:
        ConfigError: one is; the message names the programs.
    """
    leaks = [overlap for overlap in find_overlaps(entries) if overlap.leaks]
    if leaks:
        raise _error("; ".join(str(leak) for leak in leaks))
