"""What was answered for modules before: by this process and, where there is a store, by earlier ones.

An answer is a function of the module without its labels (lines of the user's code) and of what a policy
depends on: the same program gets the same answer without deciding anew, with its own labels. A module that
XLA refused with our answer keeps XLA's default from then on.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from graphopt.errors import ModuleFormatError
from graphopt.hlo.module.labels import Labels, labelled, refer_to, take_labels
from graphopt.outcomes import ModuleRecord, Outcome
from graphopt.store.answers import Answer, Answers, digest_of

MOST_RECENT: Final = 256
"""Rewritten modules that are remembered until their compile has ended: more than are compiled at once."""


@dataclass(frozen=True)
class Key:
    """What an answer is found by.

    Attributes:
        digest: of the module without its labels, and of what answers depend on.
        labels: of the module.
    """

    digest: bytes
    labels: Labels


@dataclass(frozen=True)
class Rewritten:
    """A module that was rewritten a moment ago.

    Attributes:
        number: counts the rewritten modules of the process.
        digest: of its key.
        record: what the report says of it.
    """

    number: int
    digest: bytes
    record: ModuleRecord


class Memory:
    """Answers by digest, and which modules have been rewritten most recently."""

    def __init__(self, answers: Answers | None = None, depends_on: Callable[[], str] = str) -> None:
        """Starts empty.

        Args:
            answers: kept between processes; None keeps nothing but what XLA refused.
            depends_on: text of everything that an answer depends on beside the module.
        """
        self._answers = answers
        self._depends_on = depends_on
        self._lock = threading.Lock()
        self._count = 0
        self._recent: deque[Rewritten] = deque(maxlen=MOST_RECENT)
        self._refused: dict[bytes, ModuleRecord] = {}

    def key(self, data: bytes) -> Key | None:
        """Under which the answer for a module is kept; None for bytes that are no module."""
        try:
            bare, labels = take_labels(data)
        except ModuleFormatError:
            return None
        return Key(digest_of(bare, self._depends_on()), labels)

    def recall(self, key: Key) -> tuple[ModuleRecord, bytes | None] | None:
        """The answer given before; None if there is none."""
        refused = self._refused.get(key.digest)
        if refused is not None:
            return refused, None
        found = None if self._answers is None else self._answers.get(key.digest)
        record = None if found is None else _record_of(found.record)
        if found is None or record is None:
            return None
        data = None if found.data is None else labelled(found.data, key.labels)
        return replace(record, recalled=True), data

    def keep(self, key: Key, record: ModuleRecord, data: bytes | None) -> None:
        """Remembers an answer; a rewritten module also as one whose compile has not ended yet."""
        if record.outcome is Outcome.REWRITTEN:
            with self._lock:
                self._count += 1
                self._recent.append(Rewritten(self._count, key.digest, record))
        if self._answers is not None and not record.recalled:
            bare = None if data is None else refer_to(data, key.labels)
            self._answers.put(key.digest, Answer(json.dumps(asdict(record)), bare))

    def rewritten(self) -> int:
        """Number of modules rewritten so far."""
        return self._count

    def rewritten_since(self, number: int, name: str) -> list[Rewritten]:
        """Modules of a name that were rewritten after `rewritten` was `number`."""
        with self._lock:
            return [r for r in self._recent if r.number > number and r.record.name == name]

    def refuse(self, digest: bytes, record: ModuleRecord) -> None:
        """From now on the module keeps XLA's default, in this process and in later ones."""
        self._refused[digest] = record
        if self._answers is not None:
            self._answers.put(digest, Answer(json.dumps(asdict(record)), None))


def _record_of(text: str) -> ModuleRecord | None:
    """A record from its JSON; None for one that another version wrote."""
    try:
        values: dict[str, Any] = json.loads(text)
        known = {field.name for field in fields(ModuleRecord)}
        if set(values) != known:
            return None
        for name in ("steps", "failed"):
            values[name] = tuple(values[name])
        return ModuleRecord(**{**values, "outcome": Outcome(values["outcome"])})
    except (ValueError, TypeError):
        return None
