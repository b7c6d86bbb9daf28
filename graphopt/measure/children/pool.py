"""Asks many questions of a few child processes; a child that dies is replaced and the rest goes on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from graphopt.errors import ConfigError
from graphopt.measure.children.child import Child, ChildFailure

Request = dict[str, Any]
Answer = dict[str, Any]
Tell = Callable[[str, Answer | ChildFailure], None]
"""Told the name of a question and its answer, or how the child failed; from any thread, one at a time."""


def ask_all(
    arguments: Sequence[str],
    questions: Iterable[tuple[str, Request]],
    *,
    tell: Tell,
    workers: int = 2,
    timeout_s: float = 180.0,
) -> None:
    """Asks every question of one of several children, each an endless reader of JSON lines.

    Args:
        arguments: how to start a child, as for `Child`.
        questions: (name, request) pairs, in the order in which they are asked.
        tell: told every answer.
        workers: children at once.
        timeout_s: limit per question, the start of a child included.

    Raises:
        ConfigError: `workers` is below 1.
    """
    if workers < 1:
        raise ConfigError(
            what=f"workers={workers}", where="child processes", fix="Use one per core, at least 1."
        )
    pool = _Pool(arguments, questions, tell, timeout_s)
    threads = [threading.Thread(target=pool.serve) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:  # also Ctrl-C: nothing may go on in the background
        pool.stop()
        raise
    if pool.errors:
        raise pool.errors[0]


class _Pool:
    """The threads of one call, each with a child of its own."""

    def __init__(
        self,
        arguments: Sequence[str],
        questions: Iterable[tuple[str, Request]],
        tell: Tell,
        timeout_s: float,
    ) -> None:
        self.arguments, self.tell, self.timeout_s = list(arguments), tell, timeout_s
        self.questions: SimpleQueue[tuple[str, Request]] = SimpleQueue()
        for question in questions:
            self.questions.put(question)
        self.errors: list[Exception] = []
        self._lock = threading.Lock()
        self._children: set[Child] = set()
        self._stopped = False

    def serve(self) -> None:
        """Asks one question after the other until none is left."""
        child: Child | None = None
        try:
            while not self._stopped:
                try:
                    name, request = self.questions.get_nowait()
                except Empty:
                    break
                child = child or self._start(name)
                if child is None:
                    break
                child = self._ask(child, name, request)
        except Exception as error:
            self.errors.append(error)
        finally:
            if child is not None:
                self._end(child)

    def _ask(self, child: Child, name: str, request: Request) -> Child | None:
        """Asks once; returns the child if it can be asked again."""
        alive: Child | None = child
        answer: Answer | ChildFailure
        try:
            answer = json.loads(child.ask(json.dumps(request), self.timeout_s))
        except ChildFailure as failure:
            self._end(child)
            answer, alive = failure, None
        if not self._stopped:
            with self._lock:
                self.tell(name, answer)
        return alive

    def stop(self) -> None:
        """Ends all children and starts no more; the threads that use them free them."""
        with self._lock:
            self._stopped = True
            for child in self._children:
                child.kill()

    def _start(self, name: str) -> Child | None:
        with self._lock:
            if self._stopped:
                return None
            child = Child(self.arguments, name)
            self._children.add(child)
            return child

    def _end(self, child: Child) -> None:
        with self._lock:
            self._children.discard(child)
        child.close()
