"""What the queue of modules holds: items, what is known of their inputs, limits."""

from __future__ import annotations

import hashlib
import json
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from graphopt.errors import StoreError

MAX_MODULE_BYTES: Final = 32 << 20
"""Larger modules are not recorded, and no longer ones are unpacked."""

MAX_RECORDED_BYTES: Final = 16 << 20
"""Recorded values of inputs that are larger, compressed, are not kept: their ranges are."""

MAX_INPUTS: Final = 10_000
"""Modules with more parameters are not recorded."""

MAX_ITEMS: Final = 2_000
"""Items of one machine; beyond, those that were seen longest ago are forgotten."""

MAX_BYTES: Final = 256 << 20
"""Modules and values of one machine, compressed; beyond, those seen longest ago are forgotten."""

KEPT_S: Final = 30 * 86_400.0
"""Items that no process compiled for so long are forgotten."""

MAX_REASON: Final = 500
"""Characters of a reason that are kept."""

_ID: Final = re.compile(r"[0-9a-f]{16}")
_DTYPE: Final = re.compile(r"[a-z][a-z0-9_]{0,30}")


class State(StrEnum):
    """What becomes of an item."""

    WAITING = "waiting"
    RUNNING = "running"
    """A worker has leased it; when the lease is over, it waits again."""
    DONE = "done"
    FAILED = "failed"
    """Refused, or given up; the reason says why."""


@dataclass(frozen=True)
class InputRange:
    """What is known of one input of a module.

    Attributes:
        shape: its dimensions.
        dtype: name of its type, such as ``float32``.
        low: smallest value that was seen; None where nobody looked.
        high: largest one.
    """

    shape: tuple[int, ...]
    dtype: str
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        """Checks what a damaged row could get wrong.

        Raises:
            StoreError: a field cannot be.
        """
        if not all(type(size) is int and 0 <= size < 1 << 48 for size in self.shape):
            raise damaged(f"an input of shape {str(self.shape)[:80]}")
        if not isinstance(self.dtype, str) or not _DTYPE.fullmatch(self.dtype):
            raise damaged(f"an input of type {str(self.dtype)[:80]!r}")
        if (self.low is None) != (self.high is None):
            raise damaged("an input with one end of its range")
        if self.low is not None and self.high is not None:
            if not all(isinstance(end, int | float) for end in (self.low, self.high)):
                raise damaged("an input whose range is no number")
            if not -math.inf < self.low <= self.high < math.inf:
                raise damaged(f"an input between {self.low} and {self.high}")

    def widened(self, other: InputRange) -> InputRange:
        """The range that holds both; the other's where they are of different inputs."""
        if (self.shape, self.dtype) != (other.shape, other.dtype) or self.low is None:
            return other
        if other.low is None or other.high is None or self.high is None:
            return self
        return InputRange(
            self.shape, self.dtype, min(self.low, other.low), max(self.high, other.high)
        )


@dataclass(frozen=True)
class Item:
    """A module of the queue, without its bytes.

    Attributes:
        id: digest of the module without its labels, 16 hexadecimal digits.
        program: name of the module, for people.
        module_bytes: its size.
        inputs: what is known of its inputs, in the order of its parameters.
        has_values: values of its inputs were recorded.
        compile_s: seconds of its last compile.
        processes: processes that compiled it.
        calls: calls in all of them; counted while few, estimated beyond.
        first_seen: Unix time.
        last_seen: Unix time.
        state: what becomes of it.
        reason: why it failed, or what was found.
        owner: who has leased it.
        lease_until: Unix time at which the lease is over.
        attempts: leases so far.
        call_s: seconds of a call by XLA's default: estimated, once tuned measured; None while unknown.
        gain: share of a call that tuning may save by estimate, once tuned what it does save.
        speedup: time of a call without the winner / with it; None until tuned.
        low: lower end of its 95 % interval.
        high: upper end of it.
        spent_s: seconds of tuning.
    """

    id: str
    program: str
    module_bytes: int
    inputs: tuple[InputRange, ...]
    has_values: bool
    compile_s: float
    processes: int
    calls: float
    first_seen: float
    last_seen: float
    state: State
    reason: str
    owner: str
    lease_until: float
    attempts: int
    call_s: float | None
    gain: float | None
    speedup: float | None
    low: float | None
    high: float | None
    spent_s: float

    def __post_init__(self) -> None:
        """Checks what a damaged row could get wrong.

        Raises:
            StoreError: a field cannot be.
        """
        check_id(self.id)
        for name in ("program", "reason", "owner"):
            if not isinstance(getattr(self, name), str):
                raise damaged(f"{name} is no text")
        for name in ("module_bytes", "processes", "attempts"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value < 1 << 53:
                raise damaged(f"{name} is {str(value)[:40]}")
        numbers = ("compile_s", "calls", "first_seen", "last_seen", "lease_until", "spent_s")
        optional = ("call_s", "gain", "speedup", "low", "high")
        for name in (*numbers, *optional):
            value = getattr(self, name)
            if value is None and name in optional:
                continue
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise damaged(f"{name} is {str(value)[:40]}")

    @property
    def calls_per_day(self) -> float:
        """Calls, over the days since it was first seen, at least one."""
        return self.calls / max(1.0, (self.last_seen - self.first_seen) / 86_400.0)

    @property
    def saving_s(self) -> float:
        """Seconds a day that tuning may save by estimate, once tuned what it does save; 0 while unknown."""
        if self.call_s is None or self.gain is None:
            return 0.0
        return self.calls_per_day * self.call_s * self.gain

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            **asdict(self),
            "state": str(self.state),
            "calls_per_day": self.calls_per_day,
            "saving_s": self.saving_s,
        }


@dataclass(frozen=True)
class Sighting:
    """What a process says of a module that it has compiled, once.

    Attributes:
        program: name of the module.
        module: its bytes, without labels.
        inputs: what is known of its inputs.
        values: their values in a file of `graphopt.measure.inputs`, compressed; None where not asked for.
        compile_s: seconds of the compile.
        calls: calls so far.
        tuned: a winner was adopted already; it enters no queue.
    """

    program: str
    module: bytes
    inputs: tuple[InputRange, ...] = ()
    values: bytes | None = None
    compile_s: float = 0.0
    calls: float = 0.0
    tuned: bool = False

    @property
    def id(self) -> str:
        """Of the item."""
        return id_of(self.module)


def id_of(module: bytes) -> str:
    """The id under which a module without labels stands in the queue."""
    return hashlib.blake2b(module, digest_size=8).hexdigest()


def check_id(text: object) -> None:
    """Checks an id.

    Raises:
        StoreError: it is none.
    """
    if not isinstance(text, str) or not _ID.fullmatch(text):
        raise damaged(f"an id that is none: {str(text)[:40]!r}")


def pack(module: bytes) -> bytes:
    """A module as the queue keeps it."""
    return zlib.compress(module, 6)


def unpack(item_id: str, packed: object, most: int = MAX_MODULE_BYTES) -> bytes:
    """The module of a row, checked against the row's id; no more than `most` bytes are unpacked.

    Raises:
        StoreError: it is damaged, larger, or another module than the id says.
    """
    if not isinstance(packed, bytes | memoryview):
        raise damaged("a module that is no bytes")
    unpacker = zlib.decompressobj()
    try:
        module = unpacker.decompress(packed, most)
    except zlib.error as error:
        raise damaged(f"a module that cannot be unpacked: {error}") from error
    if not unpacker.eof:
        raise damaged(f"a module of more than {most} bytes, or one that was cut off")
    if id_of(module) != item_id:
        raise damaged("a module that is not the one of its id")
    return module


def encode_inputs(inputs: Sequence[InputRange]) -> str:
    """As the queue keeps them: a JSON list of ``[shape, dtype, low, high]``."""
    return json.dumps([[list(i.shape), i.dtype, i.low, i.high] for i in inputs])


def decode_inputs(text: object) -> tuple[InputRange, ...]:
    """The inputs of a row.

    Raises:
        StoreError: the text is damaged.
    """
    try:
        rows = json.loads(str(text))
        if not isinstance(rows, list) or len(rows) > MAX_INPUTS:
            raise ValueError(f"not a list of at most {MAX_INPUTS}")
        return tuple(InputRange(tuple(shape), dtype, low, high) for shape, dtype, low, high in rows)
    except (ValueError, TypeError, RecursionError) as error:
        raise damaged(f"inputs that cannot be read: {str(error)[:200]}") from error


def damaged(what: str) -> StoreError:
    """The error for a row that cannot be used."""
    return StoreError(
        what=f"the queue holds {what}",
        where="queue of modules",
        fix="Forget the item: graphopt queue forget ID.",
    )
