"""Duels: two decision vectors of one module, timed in turn in one process.

The label is the log of the ratio of their times with its interval. Numbers of different processes are never
compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Any, Final

import numpy as np

from graphopt.closing import Closing
from graphopt.hlo import Decisions, Graph
from graphopt.measure.children.runner import Measurement, Runner
from graphopt.store import Store

LOOK_S: Final = 0.05
"""Seconds of timing of one look; it ends before where the answer is clear."""

LOOKS: Final = 2
"""Looks at every duel: what differs between them is noise that no interval of one look shows."""

MAX_LOOKS: Final = 4
"""Looks where the interval holds zero."""

LOOK_NOISE: Final = 0.02
"""Standard deviation of the log ratio between looks at least, until a duel's own looks say more."""

_NORMAL: Final = 1.96


@dataclass(frozen=True)
class Look:
    """One interleaved comparison.

    Attributes:
        log_ratio: log of rival's time / time; above 0 the vector is faster.
        low: lower end of its 95 % interval.
        high: upper end.
        pairs: interleaved pairs.
    """

    log_ratio: float
    low: float
    high: float
    pairs: int

    @property
    def deviation(self) -> float:
        """Standard deviation that the interval stands for."""
        return (self.high - self.low) / (2.0 * _NORMAL)


@dataclass(frozen=True)
class Duel:
    """What came of a duel.

    Attributes:
        status: ``ok``, or why there is no time (see `Measurement.status`).
        looks: repeats of the measurement; none if it failed.
        seconds: median seconds of the vector in the last look; NaN if it failed.
        rival_s: the same of its rival.
        compile_s: seconds of XLA's compile of the vector.
        error: largest relative difference of its results from XLA's default's.
        detail: why it failed.
    """

    status: str
    looks: tuple[Look, ...] = ()
    seconds: float = float("nan")
    rival_s: float = float("nan")
    compile_s: float = float("nan")
    error: float = float("nan")
    detail: str = ""

    @property
    def ok(self) -> bool:
        """True if there are times."""
        return self.status == "ok"

    @property
    def log_ratio(self) -> float:
        """Log of rival's time / time: mean of the looks, weighted by intervals; NaN if it failed."""
        return _pooled(self.looks)[0]

    @property
    def deviation(self) -> float:
        """Standard deviation of `log_ratio`: of the looks, or by what they differ, whichever is more."""
        return _pooled(self.looks)[1]

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval of `log_ratio`."""
        mean, deviation = _pooled(self.looks)
        return mean - _NORMAL * deviation

    @property
    def high(self) -> float:
        """Upper end of it."""
        mean, deviation = _pooled(self.looks)
        return mean + _NORMAL * deviation

    @property
    def is_clear(self) -> bool:
        """True if the interval does not hold zero."""
        return self.ok and (self.low > 0.0 or self.high < 0.0)


def _pooled(looks: Sequence[Look]) -> tuple[float, float]:
    """Mean and standard deviation."""
    if not looks:
        return float("nan"), float("nan")
    values = np.array([look.log_ratio for look in looks])
    spread = np.array([sqrt(look.deviation**2 + LOOK_NOISE**2) for look in looks])
    weights = spread**-2 / (spread**-2).sum()
    mean = float(weights @ values)
    own = 1.0 / sqrt(float((spread**-2).sum()))
    between = 0.0
    if len(looks) > 1:
        between = sqrt(float(weights @ (values - mean) ** 2) / (len(looks) - 1))
    return mean, max(own, between)


class Duels(Closing):
    """Duels of one module, in one child process that is replaced when it dies.

    Attributes:
        graph: of the module.
        held: duels held.
    """

    def __init__(
        self,
        data: bytes,
        inputs: Sequence[np.ndarray[Any, Any]] | None = None,
        store: Store | None = None,
        *,
        look_s: float = LOOK_S,
        timeout_s: float = 20.0,
    ) -> None:
        """Starts nothing yet.

        Args:
            data: serialised module of a task or program.
            inputs: one array per parameter; None for made-up ones.
            store: where results and quarantined vectors go too; None keeps none.
            look_s: seconds of timing of one look.
            timeout_s: longest compile, check and timing of one vector.
        """
        self.runner = Runner(data, inputs, store, timeout_s=timeout_s)
        self.graph: Graph = self.runner.graph
        self.look_s = look_s
        self.held = 0

    def start(self) -> None:
        """Compiles and runs XLA's default.

        Raises:
            MeasureError: the module cannot be measured apart from its program.
        """
        self.runner.start()

    def duel(
        self, rival: Decisions, decisions: Decisions, looks: int = LOOKS, most: int = MAX_LOOKS
    ) -> Duel:
        """Times decisions in turn with a rival.

        Args:
            rival: decisions inside the masks.
            decisions: others.
            looks: repeats.
            most: repeats while the interval holds zero.

        Raises:
            MeasureError: the module cannot be measured at all.
        """
        found: list[Look] = []
        self.held += 1
        while True:
            result = self.runner.measure(
                decisions, against=rival, budget_s=self.look_s, method="duel"
            )
            if not result.ok:
                return Duel(result.status, detail=result.detail)
            found.append(_look(result))
            duel = Duel(
                "ok", tuple(found), result.seconds, result.rival_s, result.compile_s, result.error
            )
            if len(found) >= looks and (duel.is_clear or len(found) >= most):
                return duel

    def close(self) -> None:
        """Ends the child process."""
        self.runner.close()


def _look(result: Measurement) -> Look:
    return Look(log(result.ratio), log(result.low), log(result.high), result.pairs)
