"""What each thread has recorded and not yet computed."""

from __future__ import annotations

import sys
import weakref
from typing import Any, Final

from graphopt.lazy.core.node import Node
from graphopt.lazy.record import traces
from graphopt.lazy.record.held import held_elsewhere
from graphopt.lazy.record.moves import End, Move, root_move
from graphopt.lazy.record.tensor_base import TensorBase
from graphopt.lazy.record.traces import Recording

_ref: Final = weakref.ref


class Settings:
    """Process-wide settings; `lt.config` changes them.

    Attributes:
        trace_limit: recorded operations that cause an automatic cut, outside of a step.
        step_limit: the same inside of a step.
        replay: recordings follow what was recorded before.
    """

    trace_limit = 2_000
    step_limit = 20_000
    replay = True


settings: Final = Settings()


class Recorder:
    """What one thread has recorded and not yet computed.

    Attributes:
        next: the move that is expected, or the end of what is known; its parent is the last one.
        end: `next` while recording anew: this recorder's own, whose parent is the last move.
        equal: while recording anew: (instruction, operands) -> place of the result.
        fork: the last move that is part of the tree, while recording anew.
        root: root of the tree that is followed; None if what is recorded anew stays apart.
        recording: values since the last cut.
        values: those of `recording`.
        numbers: those of `recording`.
        handles: those of `recording`.
        left: weak references to tensors that were pending at the last cut and stayed so.
        tapes: active gradient tapes, innermost last; each covers what is recorded under it.
        limit: recorded values that cause an automatic cut.
        step: innermost `lt.step()` that is active, or the round of a loop that ends; None if neither.
        apart: what is recorded is no part of the tree of traces, and is never cut.
        expected: instructions of the round of a loop that is under way, up to its end.
        following: those of the round after it.
        stop: moves after which the round under way ends; 0 outside of such loops.
        later: steps that were recorded and are not run yet (`runtime.steps`).
    """

    __slots__ = (
        "apart", "end", "equal", "expected", "following", "fork", "handles", "later", "left", "limit",
        "next", "numbers", "recording", "root", "step", "stop", "tapes", "values",
    )  # fmt: skip

    def __init__(self, apart: bool = False) -> None:
        self.left: list[weakref.ref[TensorBase]] = []
        self.tapes: tuple[Any, ...] = ()
        self.apart = apart
        self.later: list[Any] = []
        self.stop = 0
        self.expected: Any = ()
        self.following: Any = ()
        self.limit = sys.maxsize if apart else settings.trace_limit
        self.step: Any = None
        self.end: Move = End(root_move())
        self.next: Move = self.end
        self.equal: dict[Any, int] = {}
        self.fork: Move | None = None
        self.root: Move | None = None
        self.restart()

    def restart(self) -> None:
        """Begins a recording at the root of the tree; what was recorded stays with its nodes."""
        for tape in self.tapes:
            tape.pause(self)
        self.publish()
        if traces.tree.moves > traces.MAX_MOVES:
            traces.tree.clear()
        self.stop = 0
        self.recording = Recording()
        self.values = self.recording.values
        self.numbers = self.recording.numbers
        self.handles = self.recording.handles
        if settings.replay and not self.apart:
            self.root = traces.tree.root
            self.next = self.root.next
        else:
            self.root = None
            self._record_anew(root_move())
        for tape in self.tapes:
            tape.resume(self)

    def expect(self, expected: Any, following: Any) -> None:
        """Awaits the end of a round of a loop.

        Args:
            expected: instructions from here to the end of the round, one at least.
            following: those of the round behind it.
        """
        self.expected, self.following, self.stop = expected, following, len(expected)

    def leave_tree(self) -> None:
        """From here on, what is recorded is new, and looked up nowhere."""
        last = self.next.parent
        self._record_anew(last)
        self.equal = traces.equal_operations(last)

    def _record_anew(self, last: Move) -> None:
        self.fork = self.end.parent = last
        self.next = self.end
        self.equal = {}

    def publish(self) -> None:
        """Makes what was recorded anew part of the tree, so that later recordings follow it."""
        if self.next is not self.end:
            return
        if self.root is not None and self.root is traces.tree.root:
            assert self.fork is not None
            last = self.end.parent
            self.fork = traces.add_to_tree(self.fork, last)
            if self.fork is last:
                self.next = last.next

    def live(self) -> list[Node]:
        """Nodes of tensors that somebody holds and that are pending, each once, oldest first."""
        nodes: dict[Node, None] = {}
        for reference in self.left:
            tensor = reference()
            if tensor is not None and tensor._node.data is None:
                nodes[tensor._node] = None
        for tensor in held_elsewhere(self.handles):
            if tensor._node.data is None:
                nodes[tensor._node] = None
        return list(nodes)

    def leave(self, failed: Any = ()) -> None:
        """Ends the recording after a cut; pending tensors stay known as live.

        Args:
            failed: nodes that could not be computed: they are forgotten.
        """
        kept = [r for r in self.left if _pending(r(), failed)]
        kept += [_ref(t) for t in held_elsewhere(self.handles) if _pending(t, failed)]
        if kept:
            for node in behind(self.live()):
                node.detach()
        self.restart()
        self.left = kept


def _pending(tensor: Any, failed: Any) -> bool:
    return tensor is not None and tensor._node.data is None and tensor._node not in failed


def behind(roots: list[Node]) -> list[Node]:
    """Some nodes and all that they are computed from."""
    todo, seen = list(roots), set(roots)
    for node in todo:
        for each in node.inputs:
            if each not in seen:
                seen.add(each)
                todo.append(each)
    return todo
