"""Asking something that may never answer, with a deadline."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

MOST_PAUSE_S: Final = 60.0
"""Longest time for which nothing is asked after failures."""


class TooLateError(Exception):
    """Raised when there is no answer in time, or nothing is asked because there was none before."""


class _Asked(Generic[T]):
    """A question and what became of it."""

    def __init__(self, question: Callable[[], T]) -> None:
        self.question = question
        self.done = threading.Event()
        self.given_up = False
        self.value: T | None = None
        self.error: BaseException | None = None


class Asker:
    """Asks on a thread of its own, so that whoever asks waits no longer than he wants to.

    A thread that hangs is left behind, and another one started for the next question. After a failure
    nothing is asked for a while, at first `pause_s`, then twice as long after each further one: whoever
    asks is told at once. What a question does when it is answered late is still done.
    """

    def __init__(self, deadline_s: float, pause_s: float = 0.0) -> None:
        """Starts nothing yet.

        Args:
            deadline_s: longest wait for an answer.
            pause_s: first pause after a failure; 0 for none.
        """
        self.deadline_s = deadline_s
        self.pause_s = pause_s
        self._pause = pause_s
        self._until = 0.0
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._questions: queue.SimpleQueue[_Asked[Any] | None] | None = None

    def ask(self, question: Callable[[], T], deadline_s: float | None = None) -> T:
        """What a question answers.

        Args:
            question: called on the other thread.
            deadline_s: longest wait for this one.

        Raises:
            TooLateError: there is no answer in time, or it is not asked.
            BaseException: what the question raised.
        """
        if (
            self._process != os.getpid()
        ):  # a forked child has no thread, and maybe a lock that nobody frees
            self._process, self._lock, self._questions = os.getpid(), threading.Lock(), None
        asked = _Asked(question)
        with self._lock:
            if time.monotonic() < self._until:
                raise TooLateError("there was no answer a moment ago")
            questions = self._questions = self._questions or self._start()
            questions.put(asked)
        wait_s = self.deadline_s if deadline_s is None else deadline_s
        if not asked.done.wait(wait_s):
            asked.given_up = True
            self.failed()
            with self._lock:
                if self._questions is questions:
                    self._questions = None
                    questions.put(None)
            raise TooLateError(f"there is no answer within {1e3 * wait_s:.0f} ms")
        if asked.error is not None:
            raise asked.error
        return asked.value  # type: ignore[return-value]

    def failed(self) -> None:
        """Begins a pause: what was asked cannot answer at present."""
        with self._lock:
            self._until = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, MOST_PAUSE_S)

    def worked(self) -> None:
        """Ends a pause: what was asked answers."""
        with self._lock:
            self._until, self._pause = 0.0, self.pause_s

    def _start(self) -> queue.SimpleQueue[_Asked[Any] | None]:
        questions: queue.SimpleQueue[_Asked[Any] | None] = queue.SimpleQueue()
        name = "graphopt-store"
        threading.Thread(target=self._work, args=(questions,), name=name, daemon=True).start()
        return questions

    def _work(self, questions: queue.SimpleQueue[_Asked[Any] | None]) -> None:
        while (asked := questions.get()) is not None:
            if asked.given_up:
                continue
            try:
                asked.value = asked.question()
            except BaseException as error:
                asked.error = error
            else:
                self.worked()
            asked.done.set()
            del asked
