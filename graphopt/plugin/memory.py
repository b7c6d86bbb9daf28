"""What was answered for modules before: by this process and, where there is a store, by earlier ones.

An answer is a function of the module without its labels (lines of the user's code) and of what a policy
depends on: the same program gets the same answer without deciding anew, with its own labels. A module that
XLA refused with our answer keeps XLA's default from then on.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from graphopt.errors import ModuleFormatError
from graphopt.hlo.module.labels import (
    Labels,
    labelled,
    numbered,
    refer_to,
    take_labels,
    take_number,
)
from graphopt.outcomes import ModuleRecord, Outcome
from graphopt.store.answers import Answer, Answers, digest_of

MOST_RECENT: Final = 256
"""Rewritten modules that are remembered until their compile has ended: more than are compiled at once."""


@dataclass(frozen=True)
class Key:
    """What an answer is found by.

    Attributes:
        digest: of the module with its labels, and of what answers depend on.
        number: of the module.
        plain: the same without labels; None where nobody needed it yet.
        labels: of the module, with `plain`.
    """

    digest: bytes
    number: int
    plain: bytes | None = None
    labels: Labels | None = None

    @property
    def digests(self) -> tuple[bytes, ...]:
        """All that are known."""
        return (self.digest,) if self.plain is None else (self.digest, self.plain)


@dataclass(frozen=True)
class Recalled:
    """An answer that was given before.

    Attributes:
        key: as far as it had to be found out.
        record: what the report says.
        data: the rewritten module; None where XLA's default stands.
    """

    key: Key
    record: ModuleRecord
    data: bytes | None


@dataclass(frozen=True)
class Rewritten:
    """A module that was rewritten a moment ago.

    Attributes:
        number: counts the rewritten modules of the process.
        digests: of its key.
        record: what the report says of it.
    """

    number: int
    digests: tuple[bytes, ...]
    record: ModuleRecord


class Memory:
    """Answers by digest, and which modules have been rewritten most recently.

    A module is looked up as it stands, its number aside: where the same program is compiled again, that
    costs no parsing. Only where it is not found, it is looked up without its labels.
    """

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

    def find(self, data: bytes) -> Recalled | Key | None:
        """The answer given to a module before, else the key under which to keep one; None for no module."""
        depends_on = self._depends_on()
        taken = take_number(data)
        key = Key(digest_of(depends_on, *taken.parts), taken.number)
        found = self._look_up(key, key.digest)
        if found is not None:
            return found
        try:
            bare, labels = take_labels(data)
        except ModuleFormatError:
            return None
        key = replace(key, plain=digest_of(depends_on, bare), labels=labels)
        return self._look_up(key, key.digests[-1]) or key

    def _look_up(self, key: Key, digest: bytes) -> Recalled | None:
        refused = self._refused.get(digest)
        if refused is not None:
            return Recalled(key, refused, None)
        found = None if self._answers is None else self._answers.get(digest)
        record = None if found is None else _record_of(found.record)
        if found is None or record is None:
            return None
        record, data = replace(record, recalled=True), found.data
        if key.labels is not None:
            data = None if data is None else labelled(data, key.labels)
            recalled = Recalled(key, record, data)
            self._keep_as_it_is(key, record, data)
            return recalled
        data = None if data is None else numbered(data, key.number)
        return Recalled(replace(key, plain=found.plain), record, data)

    def keep(self, key: Key, record: ModuleRecord, data: bytes | None) -> None:
        """Remembers an answer that was decided now."""
        if self._answers is None:
            return
        labels, plain = key.labels, key.plain

        def make() -> dict[bytes, Answer]:
            text = json.dumps(asdict(record))
            out = {key.digest: Answer(text, _unnumbered(data), plain)}
            if plain is not None and labels is not None:
                bare = None if data is None else refer_to(data, labels)
                out[plain] = Answer(text, bare)
            return out

        self._answers.put_later(make, *key.digests)

    def _keep_as_it_is(self, key: Key, record: ModuleRecord, data: bytes | None) -> None:
        """Next time the module is found with its labels."""
        if self._answers is not None:
            text = json.dumps(asdict(replace(record, recalled=False)))
            self._answers.put_later(
                lambda: {key.digest: Answer(text, _unnumbered(data), key.plain)}, key.digest
            )

    def note_rewritten(self, key: Key, record: ModuleRecord) -> None:
        """Remembers a rewritten module as one whose compile has not ended yet."""
        with self._lock:
            self._count += 1
            self._recent.append(Rewritten(self._count, key.digests, record))

    def rewritten(self) -> int:
        """Number of modules rewritten so far."""
        return self._count

    def rewritten_since(self, number: int, name: str) -> list[Rewritten]:
        """Modules of a name that were rewritten after `rewritten` was `number`."""
        with self._lock:
            return [r for r in self._recent if r.number > number and r.record.name == name]

    def refuse(self, digests: Collection[bytes], record: ModuleRecord) -> None:
        """From now on the module keeps XLA's default, in this process and in later ones."""
        for digest in digests:
            self._refused[digest] = record
            if self._answers is not None:
                self._answers.put(digest, Answer(json.dumps(asdict(record)), None))


def _unnumbered(data: bytes | None) -> bytes | None:
    """A serialised module without its number."""
    return None if data is None else b"".join(take_number(data).parts)


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
