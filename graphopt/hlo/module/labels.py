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
    for instruction in _instructions(module):
        taken.append(instruction.metadata)
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
