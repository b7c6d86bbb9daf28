"""Loops that nobody marked as steps: what repeats in a long trace is found, and recorded round by round.

A loop of Python is recorded operation by operation. When a trace has grown to its limit, its end is looked
at: if the same operations came twice, on values that stand in the same relation to each other, the loop is
cut between two rounds from then on, as `lt.step` would.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from graphopt.lazy.core.node import Instr
from graphopt.lazy.record.moves import Move, path

MIN_MOVES: Final = 128
"""Recorded operations of a round: shorter ones are taken together."""

Instrs = tuple[Instr | None, ...]


@dataclass(frozen=True)
class Rounds:
    """What repeats at the end of a trace.

    Attributes:
        rest: what is still to come of the round under way; empty between two rounds.
        whole: instructions of one round.
        first: the move after which the first round of this trace began, or ended if the trace began
            with it; cuts there keep the trace short when it comes again.
    """

    rest: Instrs
    whole: Instrs
    first: Move


def find_rounds(last: Move) -> Rounds | None:
    """What repeats at the end of a trace; None if nothing does.

    Args:
        last: its last move.
    """
    moves = path(last)
    period = _period(moves)
    if period is None:
        return None
    end = len(moves)
    begin = _between_rounds(moves, period)
    if begin is None:
        return None
    instrs = [move.instr for move in moves]
    once = (*instrs[begin:], *instrs[end - period : begin])
    times = -(-MIN_MOVES // period)
    start = end - period
    while start > 0 and instrs[start - 1] is instrs[start - 1 + period]:
        start -= 1
    first = next(k for k in range(begin % period, end, period) if k >= start and k > 0)
    if first - start < period and start == 0:
        first = min(period * times + begin % period, begin)
    return Rounds(tuple(instrs[end - period : begin]), once * times, moves[first - 1])


def _period(moves: list[Move]) -> int | None:
    """Moves of the shortest round that came several times at the end of a trace: twice, if it is long."""
    end = len(moves)
    instrs = [move.instr for move in moves]
    for period in range(1, end // 2 + 1):
        begin = end - period - max(period, MIN_MOVES)
        if begin < 0 or instrs[end - 1 - period] is not instrs[end - 1]:
            continue
        if instrs[begin:-period] == instrs[begin + period :] and _alike(moves[begin:], period):
            return period
    return None


def _alike(moves: list[Move], period: int) -> bool:
    """Whether rounds work on values that stand in the same relation to each other.

    A value that a round uses is that which the round before used, or as many places behind it as all
    the others.
    """
    behind: dict[tuple[int, int], int] = {}  # (place in the round, operand) -> places behind
    shift = 0
    for k, (earlier, later) in enumerate(zip(moves[:-period], moves[period:], strict=True)):
        pairs = [*zip(earlier.operands, later.operands, strict=True), (earlier.slot, later.slot)]
        for position, (a, b) in enumerate(pairs):
            if a < 0 and b < 0:
                continue  # numbers
            distance = b - a
            shift = shift or distance
            if min(a, b) < 0 or distance not in (0, shift):
                return False
            if behind.setdefault((k % period, position), distance) != distance:
                return False
    return True


def _between_rounds(moves: list[Move], period: int) -> int | None:
    """The place among the last `period` moves before which a round begins best.

    That is where fewest values are computed before and used behind; None if no cut is possible.
    """
    end = len(moves)
    used: dict[int, int] = {}
    for k, move in enumerate(moves[-2 * period :], end - 2 * period):
        for place in move.operands:
            used[place] = k
    crossing: Counter[int] = Counter()
    for k, move in enumerate(moves[-2 * period : -period], end - 2 * period):
        if not move.merged:
            crossing.update(c % period for c in range(k + 1, used.get(move.slot, k) + 1))
    places = [k for k in range(end - period, end) if moves[k - 1].cuttable]
    return min(places, key=lambda k: crossing[k % period], default=None)


def comes_as(last: Move, expected: Any) -> bool:
    """Whether a trace consists of these instructions."""
    return last.depth == len(expected) and all(
        move.instr is instr for move, instr in zip(path(last), expected, strict=True)
    )
