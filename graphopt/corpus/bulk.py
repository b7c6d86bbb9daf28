"""Captures many programs in child processes: one that fails is reported, the others go on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from graphopt.corpus.entries import Entry
from graphopt.measure.children.child import ChildFailure
from graphopt.measure.children.pool import ask_all
from graphopt.measure.children.serving import serve

TIMEOUT_S: Final = 180.0
"""A capture that takes longer counts as a failure."""


@dataclass
class Collection:
    """What a bulk capture did.

    Attributes:
        captured: names of the programs captured now.
        cached: names of those that were there already.
        failures: name -> reason of those that could not be captured.
        seconds: time taken.
    """

    captured: list[str] = field(default_factory=list)
    cached: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def __str__(self) -> str:
        """A summary, and one line per failure."""
        lines = [
            f"{len(self.captured)} captured, {len(self.cached)} in the cache, "
            f"{len(self.failures)} failed, {self.seconds:.0f} s"
        ]
        return "\n".join(lines + [f"  {name}: {why}" for name, why in self.failures.items()])


def collect(
    entries: Sequence[Entry],
    *,
    workers: int = 2,
    timeout_s: float = TIMEOUT_S,
    tell: Callable[[str, str], None] | None = None,
) -> Collection:
    """Captures all programs that the cache lacks, in child processes.

    Args:
        entries: the programs.
        workers: child processes at once.
        timeout_s: limit per program.
        tell: told (name, reason of failure or nothing) of every program that is finished.

    Raises:
        ConfigError: `workers` is below 1.
    """
    start = time.monotonic()
    result = Collection()
    missing = [entry for entry in entries if not entry.is_captured]
    result.cached += [entry.name for entry in entries if entry not in missing]

    def note(name: str, answer: dict[str, Any] | ChildFailure) -> None:
        if isinstance(answer, ChildFailure):
            failure = f"{answer.what}\n{answer.detail[-1000:]}".strip()
        else:
            failure = str(answer["failure"])
        if failure:
            result.failures[name] = failure
        else:
            result.captured.append(name)
        if tell is not None:
            tell(name, failure)

    ask_all(
        ["-m", "graphopt.corpus.bulk"],
        [(entry.name, _request(entry)) for entry in missing],
        tell=note,
        workers=min(workers, max(1, len(missing))),
        timeout_s=timeout_s,
    )
    result.seconds = time.monotonic() - start
    return result


def _request(entry: Entry) -> dict[str, str]:
    return {
        "name": entry.name,
        "split": entry.split,
        "workload": entry.workload,
        "directory": str(entry.cache.directory),
    }


def answer(request: dict[str, str]) -> dict[str, str]:
    """Captures one program in this process; says why it failed, or nothing."""
    from graphopt.corpus.entries import add_to_corpus, load_corpus

    try:
        if request["workload"]:
            add_to_corpus(request["workload"], request["split"], request["directory"])
        else:
            (entry,) = load_corpus(None, request["directory"], [request["name"]])
            entry.capture()
    except Exception as error:
        return {"failure": f"{type(error).__name__}: {error}"}
    return {"failure": ""}


if __name__ == "__main__":
    sys.exit(serve(answer))
