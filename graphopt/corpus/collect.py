"""Captures many programs in child processes: one that fails is reported, the others go on."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Final

from graphopt.corpus.entries import Entry
from graphopt.errors import ConfigError
from graphopt.measure.child import Child, ChildFailure

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


Tell = Callable[[str, str], None]


def collect(
    entries: Sequence[Entry],
    *,
    workers: int = 2,
    timeout_s: float = TIMEOUT_S,
    tell: Tell | None = None,
) -> Collection:
    """Captures all programs that the cache lacks.

    Args:
        entries: the programs.
        workers: child processes at once.
        timeout_s: limit per program.
        tell: told (name, status) of every program that is finished.

    Raises:
        ConfigError: `workers` is below 1.
    """
    if workers < 1:
        raise ConfigError(
            what=f"workers={workers}", where="corpus", fix="Use one child process per core."
        )
    start = time.monotonic()
    result = Collection()
    jobs: SimpleQueue[Entry] = SimpleQueue()
    for entry in entries:
        if entry.is_captured:
            result.cached.append(entry.name)
        else:
            jobs.put(entry)
    run = _Run(jobs, result, timeout_s, tell)
    threads = [threading.Thread(target=run.serve) for _ in range(min(workers, jobs.qsize()))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:  # also Ctrl-C: nothing may go on in the background
        run.stop()
        raise
    result.seconds = time.monotonic() - start
    return result


class _Run:
    """The threads of one bulk capture, each with a child of its own."""

    def __init__(
        self, jobs: SimpleQueue[Entry], result: Collection, timeout_s: float, tell: Tell | None
    ) -> None:
        self.jobs, self.result, self.timeout_s, self.tell = jobs, result, timeout_s, tell
        self._lock = threading.Lock()
        self._children: set[Child] = set()
        self._stopped = False

    def serve(self) -> None:
        """Captures one program after the other until none is left."""
        child: Child | None = None
        try:
            while not self._stopped:
                try:
                    entry = self.jobs.get_nowait()
                except Empty:
                    break
                child = child or self._start()
                try:
                    answer = json.loads(child.ask(_request(entry), self.timeout_s))
                    failure = answer["failure"]
                except ChildFailure as error:
                    failure = f"{error.what}\n{error.detail[-1000:]}"
                    self._end(child)
                    child = None
                self._note(entry.name, failure)
        finally:
            if child is not None:
                self._end(child)

    def stop(self) -> None:
        """Ends all children; the threads that use them free them."""
        with self._lock:
            self._stopped = True
            for child in self._children:
                child.kill()

    def _start(self) -> Child:
        child = Child(["-m", "graphopt.corpus.collect"], "corpus")
        with self._lock:
            self._children.add(child)
        return child

    def _end(self, child: Child) -> None:
        with self._lock:
            self._children.discard(child)
        child.close()

    def _note(self, name: str, failure: str) -> None:
        with self._lock:
            if failure:
                self.result.failures[name] = failure
            else:
                self.result.captured.append(name)
        if self.tell is not None:
            self.tell(name, "failed" if failure else "captured")


def _request(entry: Entry) -> str:
    return json.dumps(
        {
            "name": entry.name,
            "split": entry.split,
            "workload": entry.workload,
            "directory": str(entry.cache.directory),
        }
    )


def _answer(request: dict[str, str]) -> str:
    """Captures one program; returns why it failed, or nothing."""
    from graphopt.corpus.entries import add_to_corpus, load_corpus

    try:
        if request["workload"]:
            add_to_corpus(request["workload"], request["split"], request["directory"])
        else:
            (entry,) = load_corpus(None, request["directory"], [request["name"]])
            entry.capture()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> int:
    """The child: one JSON request per line of input, one JSON answer per line of output."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a program's prints are no answers
    for line in sys.stdin:
        answers.write(json.dumps({"failure": _answer(json.loads(line))}) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
