"""Networks of advantages with random parameters, and parts of made-up duels of real tasks."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from graphopt.hlo import RESTRUCTURES
from graphopt.learn.collecting.duelling import Collector
from graphopt.policy.advantages.config import AdvantageConfig
from graphopt.policy.advantages.numpy_network import NumpyAdvantages
from graphopt.policy.advantages.parameters import create
from graphopt.policy.alternatives.alternative import KINDS
from graphopt.policy.network.parameters import flatten
from graphopt.tasks import cut
from graphopt.tasks.duel import Duel, Look
from graphopt.tasks.parts import provenance, write_part
from support.captures import captured

SMALL = AdvantageConfig(hidden=16, layers=2, heads=2, kind_width=4, op_width=4, dtype_width=2)

ALL_KINDS = tuple(kind.name for kind in KINDS)

PROGRAMS = ("layernorm", "lstm", "adam_step", "scan_grad", "sorting", "cartpole_rollout")


@functools.cache
def parameters(config: AdvantageConfig = SMALL, seed: int = 0, noise: float = 0.2):
    """Flat parameters: initial ones plus noise."""
    flat = flatten(create(config, seed)[1])
    rng = np.random.default_rng(seed)
    return {
        name: (value + rng.normal(0, noise, value.shape)).astype(np.float32)
        for name, value in flat.items()
    }


def random_network(config: AdvantageConfig = SMALL, seed: int = 0) -> NumpyAdvantages:
    """A network that has opinions."""
    return NumpyAdvantages(config, parameters(config, seed))


def gain_of_kind(kind: str) -> float:
    """The log ratio that made-up duels have: native code and single cores gain, all else loses."""
    if kind in ("kernel native", "run native", "short run native", "kernel on one core"):
        return 0.4
    return -0.1 if kind in {row.name for row in RESTRUCTURES} else -0.3


def made_up_duel(ratio: float) -> Duel:
    """A duel with two looks that agree."""
    looks = tuple(Look(ratio + x, ratio + x - 0.03, ratio + x + 0.03, 9) for x in (0.01, -0.01))
    return Duel("ok", looks, 1e-4, 1e-4 * float(np.exp(ratio)), 0.01, 0.0)


def write_made_up(folder: Path, names=PROGRAMS) -> int:
    """A part with the tasks of some programs, each a family of its own; how many duels it holds."""
    tasks, duels, seen = [], [], set()
    for name in names:
        for task in cut(captured(name).graph, least_share=0.2)[:2]:
            if task.fingerprint in seen:
                continue
            seen.add(task.fingerprint)
            collector = Collector(task)
            tasks.append((collector.row(name, f"family {name}", False), task.data))
            for experiment in collector.singles()[:40]:
                duel = made_up_duel(gain_of_kind(experiment.kind))
                duels.append(collector.duel_row(experiment, duel))
    write_part(folder, provenance(), tasks, duels)
    return len(duels)
