"""Names under which Gymnasium makes the environments."""

from __future__ import annotations

from typing import Final

import gymnasium

_ENTRY_POINTS: Final = {
    "graphopt/FusionPlacement-v0": "graphopt.env.fusion_placement:FusionPlacementEnv",
    "graphopt/FusionPlacementPadded-v0": "graphopt.env.padded:FusionPlacementPaddedEnv",
}

IDS: Final = tuple(_ENTRY_POINTS)
"""Ids of the environments that decide everything at once."""

ALTERNATIVES_ID: Final = "graphopt/FusionPlacement-v1"
"""Id of the environment that chooses one alternative per step."""


def register() -> None:
    """Registers the environments with Gymnasium; those that are registered already stay.

    Gymnasium 1 has no entry points for packages: a package registers when it is imported.
    """
    points = {**_ENTRY_POINTS, ALTERNATIVES_ID: "graphopt.env.alternatives_env:AlternativesEnv"}
    for name, entry_point in points.items():
        if name not in gymnasium.registry:
            gymnasium.register(id=name, entry_point=entry_point)
