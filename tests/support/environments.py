"""What tests of the environments share."""

from __future__ import annotations

import gymnasium
import numpy as np

from graphopt.env import (
    IDS,
    FusionPlacementEnv,
)
from graphopt.hlo.graph.decisions import FIELDS

GRAPHS = ("layernorm", "adam_step", "heat_stencil")
NATURAL, PADDED = IDS


def make(env_id: str = NATURAL, **arguments) -> FusionPlacementEnv:
    """A bare environment."""
    env = gymnasium.make(env_id, **arguments).unwrapped
    assert isinstance(env, FusionPlacementEnv)
    return env


def table(env: FusionPlacementEnv, action) -> np.ndarray:
    """An action as rows of nodes."""
    return np.asarray(action).reshape(-1, len(FIELDS))[: len(env.graph)]


def same(a, b) -> bool:
    """Equal observations or information, arrays included."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b))


def first_forbidden(env: FusionPlacementEnv) -> tuple[int, int, int]:
    """Node, column and value of a decision that a rule forbids."""
    codec = env.codec
    for column, size in enumerate(codec.sizes):
        bad = np.argwhere(~codec.legal[:, column, :size])
        if len(bad):
            return int(bad[0, 0]), column, int(bad[0, 1])
    raise AssertionError("nothing is forbidden")
