"""What is asked of an executor, and what it answers: plain data that travels between machines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from graphopt.errors import ConfigError

Body = dict[str, Any]

OK: Final = "ok"
FAILED: Final = "failed"
LOST: Final = "lost"

STATUSES: Final = {
    OK: "the work was done; what was measured may still have failed, which its body says",
    FAILED: "the work raised an error: the detail says which; asking again would raise it again",
    LOST: "its process died each time it was tried",
}
"""Status of an answer -> what it means."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a machine must be to answer a request; empty fields accept any.

    Attributes:
        machine: key of the machine, as `graphopt.machine.machine_key` makes it.
        jaxlib: version.
        flags: ``XLA_FLAGS`` that are set while the work is done. Any machine can set them.
    """

    machine: str = ""
    jaxlib: str = ""
    flags: str = ""

    def met_by(self, machine: str, jaxlib: str) -> bool:
        """True if a machine with this key and jaxlib may answer."""
        return self.machine in ("", machine) and self.jaxlib in ("", jaxlib)

    def __str__(self) -> str:
        return f"machine {self.machine or 'of any kind'}, jaxlib {self.jaxlib or 'of any version'}"


@dataclass(frozen=True)
class Request:
    """One piece of work for one machine.

    Attributes:
        work: a name of `graphopt.executing.work.WORK`, or ``module:function``.
        body: arguments, as JSON has them.
        blobs: arguments that JSON cannot hold: modules, arrays.
        needs: which machines may answer.
        label: what it is, for people; not part of its identity.
    """

    work: str
    body: Body
    blobs: tuple[bytes, ...] = field(default=(), repr=False)
    needs: Needs = Needs()
    label: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Checks that the body is JSON.

        Raises:
            ConfigError: it is not.
        """
        try:
            json.dumps(self.body, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                what=f"the body of a request is no JSON: {error}",
                where=self.work,
                fix="Give numbers, texts, lists and dicts; put bytes into its blobs.",
            ) from error

    @cached_property
    def id(self) -> str:
        """Hex digest of all that matters: equal requests have equal answers, and are answered once."""
        digest = hashlib.sha256()
        needs = [self.needs.machine, self.needs.jaxlib, self.needs.flags]
        digest.update(json.dumps([self.work, self.body, needs], sort_keys=True).encode())
        for blob in self.blobs:
            digest.update(b"%d:" % len(blob) + blob)
        return digest.hexdigest()[:32]


@dataclass(frozen=True)
class Answer:
    """What came of a request.

    Attributes:
        id: of the request.
        status: a key of `STATUSES`.
        body: what the work returned, as JSON has it.
        blobs: what JSON cannot hold.
        place: which machine answered: host, process, kind of machine.
        seconds: that the work took there.
        tries: how often it was begun; above 1 if a process or machine died meanwhile.
        detail: why it failed.
    """

    id: str
    status: str
    body: Mapping[str, Any] = field(default_factory=dict)
    blobs: tuple[bytes, ...] = field(default=(), repr=False)
    place: str = ""
    seconds: float = 0.0
    tries: int = 1
    detail: str = ""

    def __post_init__(self) -> None:
        """Checks the status.

        Raises:
            ConfigError: it is none.
        """
        if self.status not in STATUSES:
            raise ConfigError(
                what=f"an answer with status {self.status!r}",
                where=self.id,
                fix=f"Use one of {', '.join(STATUSES)}.",
            )

    @property
    def ok(self) -> bool:
        """True if the work was done."""
        return self.status == OK
