"""Gradient tapes: stretches of recordings, listed operation by operation when somebody asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphopt.lazy.core.node import Instr, Node
from graphopt.lazy.record import recorder
from graphopt.lazy.record.blocks import Block
from graphopt.lazy.record.moves import Move
from graphopt.lazy.record.traces import Recording

Entry = tuple[Node, Instr, tuple[Node, ...]]
"""A value, how it was computed, and from what."""


class Tape:
    """What a thread records inside of a ``with`` block.

    Attributes:
        parts: stretches: (recording, last move before, last move).
    """

    def __init__(self) -> None:
        self.parts: list[tuple[Recording, Move, Move]] = []
        self._start: Move | None = None

    def __enter__(self) -> Tape:
        local = recorder.state.now
        self._before = local.tapes
        local.tapes = (*self._before, self)
        self._start = local.next.parent
        return self

    def __exit__(self, *_: object) -> None:
        local = recorder.state.now
        self.pause(local)
        local.tapes = self._before

    def resume(self, local: Any) -> None:
        """A recording begins or goes on."""
        self._start = local.next.parent

    def pause(self, local: Any) -> None:
        """A recording ends."""
        if self._start is not None and local.next.parent is not self._start:
            self.parts.append((local.recording, self._start, local.next.parent))
        self._start = None

    def moves(self) -> list[tuple[Recording, Move]]:
        """Operations in the order of recording; equal ones once."""
        found: list[tuple[Recording, Move]] = []
        for recording, start, last in self.parts:
            stretch = []
            move: Any = last
            while move is not start:
                if not move.merged:
                    stretch.append((recording, move))
                move = move.parent
            found += reversed(stretch)
        return found

    def entries(self) -> list[Entry]:
        """What was recorded, in order."""
        found = []
        for recording, move in self.moves():
            assert move.instr is not None
            found.append((recording.values[move.slot], move.instr, recording.operands(move)))
        return found


@dataclass(frozen=True, slots=True)
class KnownPass:
    """A backward pass that was recorded before.

    Attributes:
        block: its operations.
        references: places of the values that the block is given; of a number, place and instruction.
        codes: how the block's operands stand in the trace.
    """

    block: Block
    references: list[Any]
    codes: tuple[int, ...]


class Place:
    """Where in a trace some values are pulled back along a tape: finds what is known about it.

    Attributes:
        recording: the recording under way.
        move: its last move.
        key: the stretch of the tape and the places of the values.
    """

    def __init__(self, recording: Recording, move: Move, key: Any) -> None:
        self.recording = recording
        self.move = move
        self.key = key

    def find(self) -> KnownPass | None:
        """What computes the gradients; None if unknown."""
        return None if self.move.blocks is None else self.move.blocks.get(self.key)

    def values(self, known: KnownPass) -> list[Node]:
        """The values that a known backward pass is given."""
        values = self.recording.values
        number = self.recording.number_of
        return [values[x] if type(x) is int else number(*x) for x in known.references]

    def keep(self, block: Block, given: list[Node]) -> None:
        """Remembers what `find` returns."""
        places = self.recording.number_places
        references: list[Any] = []
        for node in given:
            place = self.recording.place(node)
            if place is not None:
                references.append(place)
            elif node in places:
                references.append((places[node], node.instr))
            else:
                return
        if self.move.blocks is None:
            self.move.blocks = {}
        codes = self.recording.codes(tuple([given[k] for k in block.chosen]))
        self.move.blocks[self.key] = KnownPass(block, references, codes)


def place_of(tape: Tape, groups: Sequence[Sequence[Node]]) -> Place | None:
    """The place of a backward pass; None if it is not all in the recording under way.

    Args:
        tape: what is differentiated.
        groups: outputs, their cotangents, inputs.
    """
    local = recorder.state.now
    recording, now = local.recording, local.next.parent
    if len(tape.parts) != 1 or tape.parts[0][0] is not recording or now is None:
        return None
    _, start, last = tape.parts[0]
    key: list[Any] = [start, last]
    for group in groups:
        for node in group:
            key.append(recording.place(node))
        key.append(0)  # no place
    if None in key:
        return None
    return Place(recording, now, tuple(key))
