"""From a traced function to the best way to run it: on one device, or cut over several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from graphopt.devices.calibrate import calibrate
from graphopt.devices.predict import Prediction, equation_seconds, predict
from graphopt.devices.profile import profile
from graphopt.devices.segments import Cut, cut
from graphopt.errors import PolicyError
from graphopt.placement.baselines import BASELINES, Placement, Problem
from graphopt.placement.build import Traced
from graphopt.placement.cluster import Cluster
from graphopt.placement.search import anneal, blocks_of
from graphopt.placement.simulator import Simulator
from graphopt.placement.times import TaskTimes, analytic_times
from graphopt.policy.placement import load_policy

PlacementPolicy = Callable[[Problem], Placement | None]
"""Decides for one graph: device of every group, or None for one device."""

MIN_GAIN: Final = 1.05
"""Predicted speed-up below which a program stays on one device."""

SEARCH_EVALUATIONS: Final = 400
SEARCH_BLOCKS: Final = 96
CANDIDATES: Final = 3
"""Cuts that are handed on to be measured."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """One way to cut a program.

    Attributes:
        name: of the placement it comes from.
        placement: int16 [G].
        cut: the segments.
        predicted: what the machine model says.
    """

    name: str
    placement: Placement
    cut: Cut
    predicted: Prediction


@dataclass(frozen=True, eq=False)
class Candidates:
    """Cuts of one program, best prediction first.

    Attributes:
        single_s: predicted seconds on one device.
        found: cuts over several devices that the model expects to gain; may be empty.
        best_s: best prediction over several devices, whether or not it gains; inf if there is none.
    """

    single_s: float
    found: tuple[Candidate, ...]
    best_s: float


def measured_times(
    traced: Traced, arguments: Sequence[Any], devices: Sequence[Any], cluster: Cluster
) -> TaskTimes:
    """Times of every task on every kind of device that is there, measured with real arguments."""
    times = analytic_times(traced.tasks, cluster)
    for kind in range(len(cluster.kinds)):
        device = devices[int(np.flatnonzero(cluster.kind == kind)[0])]
        times = profile(traced, arguments, device, times, kind, cluster.dispatch_s)
    return times


def cut_placement(traced: Traced, placement: Placement, cluster: Cluster, times: TaskTimes) -> Cut:
    """The segments of a placement, int [G]."""
    tasks = np.array(traced.equation_task, np.int64)
    device = placement[traced.tasks.group[tasks]].astype(int).tolist()
    seconds = equation_seconds(traced, times, int(cluster.kind[0]))
    worth = 2.0 * (cluster.dispatch_s + cluster.copy_dispatch_s)
    return cut(traced, device, seconds=seconds, worth_s=worth)


def find_candidates(
    traced: Traced,
    cluster: Cluster,
    times: TaskTimes,
    policy: str | PlacementPolicy,
    min_gain: float = MIN_GAIN,
) -> Candidates:
    """Asks the policy, and the model what its placements are worth.

    Args:
        traced: the program.
        cluster: the machine.
        times: seconds per task and kind.
        policy: ``search`` (all baselines, and annealing from them), ``learned``, a name in
            `BASELINES`, or a function.
        min_gain: predicted speed-up that a cut needs to be returned.

    Raises:
        PolicyError: no policy has this name, or a policy's answer is not a placement.
    """
    problem = Problem(Simulator(traced.tasks, cluster, times))
    rows = _ask(problem, policy)
    single = cut(traced, [0] * len(traced.equation_task))
    single_s = predict(traced, single, cluster, times).seconds
    seen: set[tuple[Any, ...]] = set()
    found = []
    for name, placement in rows:
        program = cut_placement(traced, placement, cluster, times)
        key = tuple((s.device, s.equations) for s in program.segments)
        if program.used_devices > 1 and key not in seen:
            seen.add(key)
            outcome = predict(traced, program, cluster, times)
            found.append(Candidate(name, placement, program, outcome))
    found.sort(key=lambda c: c.predicted.seconds)
    best_s = found[0].predicted.seconds if found else np.inf
    gaining = [c for c in found if single_s >= min_gain * c.predicted.seconds]
    return Candidates(single_s, tuple(gaining[:CANDIDATES]), best_s)


def _ask(problem: Problem, policy: str | PlacementPolicy) -> list[tuple[str, Placement]]:
    if callable(policy):
        placement = policy(problem)
        if placement is None:
            return []
        _check(problem, placement)
        return [(getattr(policy, "__name__", type(policy).__name__), placement)]
    if policy in BASELINES:
        return [(policy, BASELINES[policy](problem))]
    if policy == "learned":
        placement = load_policy()(problem)
        return [] if placement is None else [("learned", placement)]
    if policy != "search":
        raise PolicyError(
            what=f"there is no placement policy named {policy!r}",
            where="place",
            fix=f"Use search, learned, {', '.join(BASELINES)}, or a function Problem -> placement.",
        )
    rows = [(name, baseline(problem)) for name, baseline in BASELINES.items()]
    blocks = blocks_of(problem, SEARCH_BLOCKS)
    found = anneal(
        problem, SEARCH_EVALUATIONS, start=[placement for _, placement in rows], blocks=blocks
    )
    return [*rows, ("annealing", found.placement)]


def _check(problem: Problem, placement: object) -> None:
    if not isinstance(placement, np.ndarray) or placement.dtype.kind not in "iu":
        raise PolicyError(
            what=f"a placement policy returned {type(placement).__name__}",
            where="place",
            fix="Return an integer array with one device per colocation group.",
        )
    problem.masks.check(placement)


__all__ = [
    "CANDIDATES", "MIN_GAIN", "Candidate", "Candidates", "PlacementPolicy", "calibrate",
    "cut_placement", "find_candidates", "measured_times",
]  # fmt: skip
