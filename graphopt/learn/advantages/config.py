"""Settings of ``graphopt advantages``: the field docs are the command line's help."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from graphopt.errors import ConfigError
from graphopt.learn.config import build, read_yaml
from graphopt.policy.advantages.config import AdvantageConfig

VARIANTS: Final = ("trees", "mlp", "no-graph", "no-attention", "quarter")
"""What the network is compared with: boosted trees and a network without messages and attention, both on the
same columns; the network without one of its parts; the network on a quarter of the data."""


@dataclass(frozen=True)
class FitConfig:
    """How one network is trained."""

    epochs: int = 60
    """Passes over the states."""
    learning_rate: float = 2e-3
    """Of Adam, at the start; falls to a tenth by a cosine."""
    weight_decay: float = 0.05
    """Part of each matrix, times the learning rate, that a step takes away."""
    dropout: float = 0.1
    """Part of an alternative's hidden state that is left out in training."""
    ranking: float = 0.2
    """Weight of the order within a state against the likelihood."""
    least_effect: float = 0.05
    """Differences of log ratios from which the order within a state counts."""
    clip: float = 1.0
    """Largest absolute log ratio that is learned."""
    nodes: int = 2048
    """Nodes of a batch."""
    alternatives: int = 384
    """Alternatives of a batch."""


@dataclass(frozen=True)
class AdvantagesConfig:
    """Everything that determines what is learned from a folder of duels."""

    model: AdvantageConfig = field(default_factory=AdvantageConfig)
    """Network."""
    fit: FitConfig = field(default_factory=FitConfig)
    """Training of one network."""
    folds: int = 4
    """Parts of the families; each is judged by networks that have seen none of it."""
    members: int = 3
    """Networks of an ensemble, from which the policy's own is taught."""
    variants: tuple[str, ...] = VARIANTS
    """What the network is compared with, on the same folds: some of trees, mlp, no-graph, no-attention,
    quarter."""
    data_share: float = 1.0
    """Part of the states that is learned from."""
    least_seen: int = 20
    """Duels of a kind of alternative from which the policy may choose it."""
    deviations: float = 1.0
    """Standard deviations below the mean at which the policy's lower bound lies."""
    start: str = "heuristic"
    """Where the policy begins: heuristic or default."""
    seed: int = 0
    """Of initial weights, of the order of states and of the folds."""

    def __post_init__(self) -> None:
        """Checks what the types do not.

        Raises:
            ConfigError: a count or share makes no sense, or there is no such variant.
        """
        bad = [n for n in ("members", "least_seen") if getattr(self, n) < 1]
        bad += [f"fit.{n}" for n in ("epochs", "nodes", "alternatives") if getattr(self.fit, n) < 1]
        bad += ["folds"] if self.folds < 2 else []
        bad += [] if 0.0 < self.data_share <= 1.0 else ["data_share"]
        bad += [] if 0.0 <= self.fit.dropout < 1.0 else ["fit.dropout"]
        bad += [f"variants ({name})" for name in self.variants if name not in VARIANTS]
        if bad:
            raise ConfigError(
                what=f"{bad[0]} is out of range",
                where="settings of advantages",
                fix=f"Counts are positive, shares below 1, folds 2 or more; variants: {', '.join(VARIANTS)}.",
            )


def load_settings(path: Path) -> AdvantagesConfig:
    """Reads a YAML file over the defaults.

    Raises:
        ConfigError: the file cannot be read, or names an unknown setting, or one of another type.
    """
    config: AdvantagesConfig = build(AdvantagesConfig, read_yaml(path))
    return config
