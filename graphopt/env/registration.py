"""Names under which Gymnasium makes the environments."""

from __future__ import annotations

from typing import Final

import gymnasium

_ENTRY_POINTS: Final = {
    "graphopt/FusionPlacement-v0": "graphopt.env.fusion_placement:FusionPlacementEnv",
    "graphopt/FusionPlacementPadded-v0": "graphopt.env.padded:FusionPlacementPaddedEnv",
}

IDS: Final = tuple(_ENTRY_POINTS)
"""Every registered id."""


def register() -> None:
    """Registers the environments with Gymnasium; those that are registered already stay.

    Gymnasium 1 has no entry points for packages: a package registers when it is imported.
    """
    for name, entry_point in _ENTRY_POINTS.items():
        if name not in gymnasium.registry:
            gymnasium.register(id=name, entry_point=entry_point)
