"""Random loops of lazy tensors: following earlier traces gives the values that recording anew gives.

A program is a state of a few tensors and a body, both decided by a seed. The body's statements come back in
every round, some of them in some rounds only, with numbers that change: gradients and updates, composites,
tensors kept from earlier rounds, values that are looked at, writes, exceptions, steps. What it computes is
compared with the same loop recorded without replay, and nothing may be left behind by further rounds.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from rich.console import Console

import graphopt.lazy as lt
from graphopt.evaluate.fuzzing.lazy import Mismatch, Result, check_all, compare
from graphopt.lazy.core.node import Node
from graphopt.lazy.record.traces import Recording

ROUNDS: Final = 12
"""Rounds of a loop that is compared."""

PERIODS: Final = (1, 1, 1, 2, 3)
"""A statement comes in every k-th round; after as many rounds as their product all has been seen."""

STATEMENTS: Final = 7
"""Statements of a body, more or less."""

SHAPE: Final = (3, 4)

MODES: Final[dict[str, dict[str, Any]]] = {
    "op-by-op": {"tier": "op-by-op"},
    "compiled": {"tier": "compiled", "batch_steps": False},
    "together": {"tier": "compiled", "batch_steps": "at once"},
    "rounds": {"tier": "compiled", "batch_steps": "at once", "trace_limit": 150},
}
"""How loops run -> settings: steps that run together, and loops whose rounds are found."""

STEADY: Final = ("together", "rounds")
"""Modes in which the rounds of a loop are alike, but for values that are looked at now and then."""

RARELY: Final = {"together": 5, "rounds": 16}
"""In which rounds of such loops values are looked at: in every k-th."""


@dataclass
class _Loop:
    """A loop while it runs.

    Attributes:
        pool: the state: float32 tensors [3, 4], overwritten in turn.
        kept: tensors of earlier rounds, the newest last; at most three.
        seen: values that were looked at.
        number: of the round, from 0.
    """

    pool: list[Any]
    kept: list[Any] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)
    number: int = 0

    def rate(self) -> float:
        """A number that changes from round to round, and is never 0 or 1."""
        return 0.05 + 0.01 * (self.number % 7)


Statement = Callable[[_Loop, Any, Any], Any]
"""(loop, two tensors of the state) -> a new tensor of the state or None."""


def _composite(name: str) -> Statement:
    return lambda loop, x, y: getattr(lt.nn, name)(x) + y * 0.5


def _clipped(loop: _Loop, x: Any, y: Any) -> Any:
    return lt.clip(x + y, -1.5 - loop.rate(), 1.5 + loop.rate())


def _normed(loop: _Loop, x: Any, y: Any) -> Any:
    return lt.nn.layer_norm(x, y, eps=1e-3 + 1e-4 * loop.number)


def _cross(loop: _Loop, x: Any, y: Any) -> Any:
    labels = lt.asarray(np.array([0, loop.number % 4, 2], np.int32))
    loss = lt.grad(lambda w: lt.mean(lt.nn.cross_entropy(w * 1.5, labels)))
    return x - loop.rate() * loss(x) + y * 0.1


def _descend(loop: _Loop, x: Any, y: Any) -> Any:
    def loss(w: Any) -> Any:
        return lt.mean(lt.square(lt.nn.gelu(w @ y.T) - loop.rate())) + lt.std(w)

    return x - loop.rate() * lt.grad(loss)(x)


def _momentum(loop: _Loop, x: Any, y: Any) -> Any:
    _, (a, b) = lt.value_and_grad(lambda p: lt.sum(lt.tanh(p[0] * p[1])))([x, y])
    return 0.9 * y + 0.1 * a - loop.rate() * b


def _keep(loop: _Loop, x: Any, y: Any) -> None:
    loop.kept.append(x * y)
    del loop.kept[:-3]


def _use_kept(loop: _Loop, x: Any, y: Any) -> Any:
    return x + 0.25 * loop.kept[0] if loop.kept else x - y


def _look(loop: _Loop, x: Any, y: Any) -> Any:
    total = float(lt.sum(x))
    loop.seen.append(total)
    return x * 0.5 if total > 0 else y + 0.125


def _write(loop: _Loop, x: Any, y: Any) -> Any:
    z = x + 0
    z[loop.number % 3, :2] = loop.rate()
    return z * y


def _same_number(loop: _Loop, x: Any, y: Any) -> Any:
    rate = loop.rate() if loop.number % 2 else 0.5
    return (x * rate + y * rate) * (0 if loop.number % 5 == 4 else rate)


def _fail(loop: _Loop, x: Any, y: Any) -> None:
    try:
        x + lt.ones((5, 7))
    except lt.LazyValueError:
        return
    raise AssertionError("shapes that do not fit were added")


def _cut(loop: _Loop, x: Any, y: Any) -> None:
    lt.sync()


def _alias(loop: _Loop, x: Any, y: Any) -> Any:
    return x * x if loop.number % 2 else x * y


_STATEMENTS: Final[tuple[Statement, ...]] = (
    *map(_composite, ("gelu", "softmax", "silu", "log_softmax", "relu")),
    _clipped, _normed, _cross, _descend, _descend, _momentum, _keep, _use_kept, _look, _write,
    _same_number, _fail, _cut, _alias,
)  # fmt: skip


_RARE: Final = (_look, _cut)
"""Statements that come in few of the steady rounds."""


def body(seed: int, mode: str) -> Callable[[_Loop], None]:
    """One round of the program of a seed; see `MODES`."""
    rng = random.Random(seed)
    plan = [
        (rng.choice(_STATEMENTS), rng.choice(PERIODS), rng.randrange(3), rng.randrange(3), rng.randrange(3))
        for _ in range(rng.randint(STATEMENTS - 3, STATEMENTS + 3))
    ]  # fmt: skip
    in_step = rng.random() < 0.6 if mode not in STEADY else mode == "together"

    def statements(loop: _Loop) -> None:
        for statement, period, a, b, to in plan:
            every = (RARELY[mode] if statement in _RARE else 1) if mode in STEADY else period
            if loop.number % every == every - 1:
                result = statement(loop, loop.pool[a], loop.pool[b])
                if result is not None:
                    loop.pool[to] = lt.tanh(result) * 1.5

    def whole(loop: _Loop) -> None:
        if in_step:
            with lt.step():
                statements(loop)
        else:
            statements(loop)
        loop.number += 1

    return whole


def start(seed: int) -> _Loop:
    """The state that a program begins with."""
    data = np.random.default_rng(seed)
    return _Loop([lt.asarray(data.normal(size=SHAPE).astype(np.float32)) for _ in range(3)])


def run_loop(seed: int, mode: str = "op-by-op") -> Result:
    """Runs a program; the state at its end, what it kept, and what it looked at."""
    loop, once = start(seed), body(seed, mode)
    for _ in range(3 * ROUNDS if mode == "rounds" else ROUNDS):
        once(loop)
    return [np.array(x) for x in (*loop.pool, *loop.kept)] + [np.array(loop.seen)]


def left_behind(seed: int) -> int:
    """Nodes and recordings that further rounds of a program leave behind, once all has been seen."""
    loop, once = start(seed), body(seed, "op-by-op")

    def count() -> int:
        lt.sync()
        loop.seen.clear()
        gc.collect()
        return sum(type(x) is Node or type(x) is Recording for x in gc.get_objects())

    def grown(before: int) -> tuple[int, int]:
        for _ in range(2 * ROUNDS):  # as many as make the same rounds come last
            once(loop)
        now = count()
        return max(0, now - before), now

    for _ in range(ROUNDS):
        once(loop)
    found, last = grown(count())
    return min(found, grown(last)[0]) if found else 0  # what is left behind grows on


def check_loop(seed: int, mode: str) -> Mismatch | None:
    """Runs one program with replay and without, and compares.

    Args:
        seed: of the program.
        mode: one of `MODES`; op by op, results have to be equal bit by bit.
    """
    with lt.config(**MODES[mode], background=False), np.errstate(all="ignore"):
        with lt.config(replay=False):
            expected = run_loop(seed, mode)
        for _ in range(2):  # the second one follows from its first round on
            result = run_loop(seed, mode)
            found = compare(result, expected)
            if not found and mode == "op-by-op" and not all(map(_same_bits, result, expected)):
                found = "values differ in their last bits"
            if found:
                return Mismatch(seed, mode, found)
        if mode == "op-by-op" and (left := left_behind(seed)):
            return Mismatch(seed, mode, f"{left} nodes are left behind")
    return None


def _same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return np.array_equal(a, b, equal_nan=True)


def fuzz_lazy_loops(programs: int, seed: int, console: Console | None = None) -> list[Mismatch]:
    """Checks random loops and prints what differs; after an interrupt, in those checked.

    Args:
        programs: how many.
        seed: of the first.
        console: where to print; standard output by default.
    """
    return check_all("loop", range(seed, seed + programs), _mismatches, console)


def _mismatches(number: int) -> Iterator[Mismatch]:
    """Checks one loop; compiled, every fifth, and with steps and rounds, every fiftieth."""
    chosen = list(MODES)[: 4 if number % 50 == 0 else 2 if number % 5 == 0 else 1]
    for mode in chosen:
        mismatch = check_loop(number, mode)
        if mismatch is not None:
            yield mismatch
