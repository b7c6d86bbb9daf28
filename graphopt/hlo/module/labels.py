"""What a module carries for people only: where each instruction comes from, and the module's number.

Two compiles of one program may differ in nothing else: jax describes the whole stack of calls that led to an
operation, and XLA counts the modules of a process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError

from graphopt.errors import ModuleFormatError
from graphopt.hlo.module.proto import message_classes

_OUTLINE: Final = message_classes(
    {
        "Module": (
            ("computations", 3, "*Computation"),
            ("id", 5, "int64"),
            ("frames", 17, "bytes"),
        ),
        "Computation": (("instructions", 2, "*Instruction"),),
        "Instruction": (("metadata", 7, "bytes"),),
    }
)
"""As much of XLA's schema as is needed to find the labels; all else stays in unknown fields."""

_REFERENCE: Final = b"#"
"""Begins a reference to the label of another module; no ``OpMetadata`` begins so."""


@dataclass(frozen=True)
class Labels:
    """The labels of a module.

    Attributes:
        number: counts the modules of a process.
        frames: serialised ``StackFrameIndexProto``: files, functions and lines that metadata refers to.
        metadata: serialised ``OpMetadata`` per instruction, in the module's order; empty where there is none.
    """

    number: int
    frames: bytes
    metadata: tuple[bytes, ...]


_NUMBER_FIELD: Final = 5
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
"""Wire types: how the bytes of a field are counted."""


@dataclass(frozen=True)
class Numbered:
    """A serialised module beside its number, which says how many modules a process compiled before.

    Attributes:
        parts: the bytes in front of the number and behind it.
        number: of the module; 0 where the bytes hold none.
    """

    parts: tuple[bytes | memoryview, bytes | memoryview]
    number: int


def take_number(data: bytes) -> Numbered:
    """Takes the number out of a serialised module; nothing else is parsed. Never raises."""
    position, view = 0, memoryview(data)
    try:
        while position < len(data):
            start = position
            tag, position = _varint(data, position)
            kind = tag & 7
            if kind == _LENGTH:
                length, position = _varint(data, position)
                position += length
            elif kind == _VARINT:
                value, position = _varint(data, position)
                if tag >> 3 == _NUMBER_FIELD:
                    return Numbered((view[:start], view[position:]), value)
            elif kind in (_EIGHT, _FOUR):
                position += 8 if kind == _EIGHT else 4
            else:
                break
    except IndexError:  # no module
        pass
    return Numbered((data, b""), 0)


def numbered(data: bytes, number: int) -> bytes:
    """A serialised module without a number, with that number."""
    if not number:
        return data
    out = bytearray(data)
    out.append(_NUMBER_FIELD << 3 | _VARINT)
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """An integer, and where the bytes behind it begin."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def take_labels(data: bytes) -> tuple[bytes, Labels]:
    """A serialised module without its labels (equal programs give equal bytes), and the labels.

    Raises:
        ModuleFormatError: the bytes are not a module.
    """
    try:
        module = _OUTLINE["Module"].FromString(data)
    except DecodeError as error:
        raise ModuleFormatError(
            what=f"the bytes are not a serialized HLO module: {error}",
            where=f"{len(data):,} bytes",
            fix="Pass what the HLO hook or a capture file holds, unchanged.",
        ) from error
    taken = []
    for computation in module.computations:
        for instruction in computation.instructions:
            text = instruction.metadata
            taken.append(text)
            if text:
                instruction.ClearField("metadata")
    labels = Labels(module.id, module.frames, tuple(taken))
    module.ClearField("id")
    module.ClearField("frames")
    return bytes(module.SerializeToString()), labels


def refer_to(data: bytes, labels: Labels) -> bytes:
    """A module that was made from another, with references in place of the labels that are the other's.

    Args:
        data: serialised; for `labelled` only, as XLA cannot read the references.
        labels: of the module that it was made from.
    """
    first: dict[bytes, bytes] = {}
    for number, text in enumerate(labels.metadata):
        first.setdefault(text, b"%s%d" % (_REFERENCE, number))
    module = _OUTLINE["Module"].FromString(data)
    for instruction in _instructions(module):
        if instruction.metadata in first:
            instruction.metadata = first[instruction.metadata]
    module.ClearField("id")
    module.ClearField("frames")
    return bytes(module.SerializeToString())


def labelled(data: bytes, labels: Labels) -> bytes:
    """The inverse of `refer_to`, with the labels of an equal module."""
    module = _OUTLINE["Module"].FromString(data)
    for instruction in _instructions(module):
        text = instruction.metadata
        if text.startswith(_REFERENCE):
            instruction.metadata = labels.metadata[int(text[1:])]
    module.id, module.frames = labels.number, labels.frames
    return bytes(module.SerializeToString())


def _instructions(module: Any) -> Any:
    for computation in module.computations:
        yield from computation.instructions
