"""The decisive measurement: the real function, the real arguments, in turn with XLA's default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from graphopt.learn.tune.program import Subject
from graphopt.measure import Comparison, Compiled, compare
from graphopt.measure.inputs import host_array
from graphopt.measure.yardstick import Yardstick


@dataclass(frozen=True)
class Confirmation:
    """Default against winner.

    Attributes:
        times: in turn, on the real arguments.
        equal: results agree to rounding.
        relative: largest relative difference.
    """

    times: Comparison
    equal: bool
    relative: float


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
        jax.block_until_ready(result)  # type: ignore[no-untyped-call]
        return result


def _copy(args: tuple[Any, ...]) -> tuple[Any, ...]:
    copied = jax.tree.map(lambda leaf: leaf.copy() if hasattr(leaf, "copy") else leaf, args)
    jax.block_until_ready(copied)  # type: ignore[no-untyped-call]
    return tuple(copied)


def confirm(
    subject: Subject, transform: Callable[[bytes], bytes | None] | None, budget_s: float
) -> Confirmation:
    """Compiles the winner in this process, compares results, times it in turn with the default.

    Args:
        subject: the program.
        transform: applies the winner; None times the default against itself.
        budget_s: seconds of timing.
    """
    default = Runs(subject.default, subject.donates)
    winner = Runs(
        subject.default if transform is None else subject.compile(transform), subject.donates
    )
    yardstick = _yardstick(subject, default)
    judgement = yardstick.judge(jax.tree.leaves(_host(winner())))
    times = compare(default, winner, budget_s=budget_s, min_pairs=15, max_pairs=201)
    return Confirmation(times, judgement.equal, judgement.relative)


def _yardstick(subject: Subject, default: Runs) -> Yardstick:
    """Judges by the default's own results; perturbed runs go through its flat arguments."""
    args = subject.default.args
    leaves, tree = jax.tree.flatten(args)
    hosts = [host_array(leaf) for leaf in leaves]

    def run(inputs: Any) -> list[Any]:
        moved = [
            leaf if given is host else _like(given, leaf)
            for leaf, given, host in zip(leaves, inputs, hosts, strict=True)
        ]
        arguments = jax.tree.unflatten(tree, moved)
        if subject.donates:
            arguments = _copy(arguments)
        return jax.tree.leaves(_host(default.compiled.executable(*arguments)))

    return Yardstick(run, hosts)


def _like(value: np.ndarray[Any, Any], leaf: Any) -> Any:
    """A perturbed value as the argument it replaces: jax tells Python numbers from arrays."""
    return jax.device_put(value) if hasattr(leaf, "dtype") else type(leaf)(value.item())


def _host(tree: Any) -> Any:
    return jax.tree.map(host_array, tree)
