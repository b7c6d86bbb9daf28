"""The decisive measurement: the real function, the real arguments, in turn with XLA's default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from graphopt.learn.tune.program import Subject
from graphopt.measure import Comparison, Compiled, compare
from graphopt.measure.comparing.yardstick import (
    Judgement,
    Yardstick,
    host_leaves,
    program_yardstick,
)
from graphopt.measure.compiling.functions import unoptimized


@dataclass(frozen=True)
class Confirmation:
    """Default against winner.

    Attributes:
        times: in turn, on the real arguments.
        judgement: whether results agree to rounding.
        beside_forms: the program in its forms without decisions, in turn with the winner; None where it
            has no forms, or the winner no decisions.
    """

    times: Comparison
    judgement: Judgement
    beside_forms: Comparison | None = None

    @property
    def equal(self) -> bool:
        """Results agree to rounding."""
        return self.judgement.equal

    @property
    def relative(self) -> float:
        """Largest relative difference of the results."""
        return self.judgement.relative

    @property
    def gain(self) -> Comparison:
        """What the decisions are worth: beside the forms of operations, which need none."""
        return self.times if self.beside_forms is None else self.beside_forms


class Runs:
    """Runs an executable again and again, with fresh copies of what it donates.

    `prepare` makes the copies, outside of what is timed.
    """

    def __init__(self, compiled: Compiled, donates: bool) -> None:
        """Wraps a compiled program."""
        self.compiled = compiled
        self.donates = donates
        self._ready: list[tuple[Any, ...]] = []

    def prepare(self, count: int) -> None:
        """Copies the arguments for the next `count` runs."""
        if self.donates:
            self._ready = [_copy(self.compiled.args) for _ in range(count)]

    def __call__(self) -> Any:
        """Runs once and waits."""
        args = self.compiled.args
        if self.donates:
            args = self._ready.pop() if self._ready else _copy(args)
        result = self.compiled.executable(*args)
        jax.block_until_ready(result)
        return result


def _copy(args: tuple[Any, ...]) -> tuple[Any, ...]:
    copied = jax.tree.map(lambda leaf: leaf.copy() if hasattr(leaf, "copy") else leaf, args)
    jax.block_until_ready(copied)
    return tuple(copied)


def confirm(
    subject: Subject, transform: Callable[[bytes], bytes | None] | None, budget_s: float
) -> Confirmation:
    """Compiles the winner in this process, compares results, times it in turn with the default.

    Args:
        subject: the program.
        transform: applies the winner; None times the default against the program in its forms, and where
            there are none against itself.
        budget_s: seconds of timing.
    """
    default = Runs(subject.default, subject.donates)
    winner = Runs(
        subject.start if transform is None else subject.compile(transform), subject.donates
    )
    yardstick = _yardstick(subject, default)
    judgement = yardstick.judge(host_leaves(winner()))
    times = compare(default, winner, budget_s=budget_s, min_pairs=15, max_pairs=201)
    beside = None
    if transform is not None and subject.forms:
        start = Runs(subject.start, subject.donates)
        beside = compare(start, winner, budget_s=budget_s, min_pairs=15, max_pairs=201)
    return Confirmation(times, judgement, beside)


def _yardstick(subject: Subject, default: Runs) -> Yardstick:
    """Judges by the default's own results."""
    again = unoptimized(subject.default)

    def run(executable: Callable[..., Any], *args: Any) -> Any:
        return executable(*(_copy(args) if subject.donates else args))

    return program_yardstick(
        partial(run, default.compiled.executable),
        subject.default.args,
        None if again is None else lambda: partial(run, again()),
    )
