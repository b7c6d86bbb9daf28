"""All settings of training, as dataclasses: the field docs are the command line's help.

A YAML file names only what differs from the defaults. An unknown name is an error.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from graphopt.errors import ConfigError
from graphopt.policy.network.config import ModelConfig

Baseline = Literal["greedy", "value", "mean"]


@dataclass(frozen=True)
class CorpusConfig:
    """Which graphs to learn from."""

    source: str = "corpus"
    """corpus (its train and validation splits), builtin (demo and fuzz programs) or pkg.module:WORKLOADS."""
    names: tuple[str, ...] = ()
    """Names of training programs; all if none is given."""
    validation_names: tuple[str, ...] = ()
    """Names of validation programs; all if none is given."""
    max_nodes: int = 2000
    """Larger graphs are left out."""
    limit: int = 0
    """Most training graphs, 0 for no limit."""
    validation_limit: int = 0
    """Most validation graphs, 0 for no limit."""


@dataclass(frozen=True)
class RolloutConfig:
    """How decisions are sampled and rewarded."""

    graphs: int = 4
    """Graphs per step."""
    samples: int = 12
    """Decision vectors per graph and step; the first is the most likely one."""
    temperature: float = 1.0
    """Divides the logits while sampling."""
    min_free: int = 8
    """Fewest nodes that explore in one vector; the others take their likeliest values."""
    reward_clip: float = 3.0
    """Largest absolute reward; the reward is log(default time / time)."""
    failure: float = -3.0
    """Reward of decisions that fail."""


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation with one ratio per node."""

    epochs: int = 3
    """Passes over a step's rollouts."""
    clip: float = 0.2
    """Ratios are clipped to [1 - clip, 1 + clip]."""
    baseline: Baseline = "greedy"
    """What rewards are compared with: the likeliest decisions, the value head, or the mean."""
    min_spread: float = 0.02
    """Smallest standard deviation that advantages are divided by: differences below it are noise."""
    advantage_clip: float = 4.0
    """Largest absolute advantage."""
    entropy: float = 0.002
    """Weight of the entropy bonus."""
    value: float = 0.25
    """Weight of the value head's loss."""
    gain: float = 0.25
    """Weight of the gain head's loss."""
    gain_quantile: float = 0.2
    """Quantile that the gain head's second output learns."""
    max_kl: float = 0.05
    """A step's passes end when the mean divergence per node exceeds it."""


@dataclass(frozen=True)
class ImitationConfig:
    """Labels: the best decisions known per graph, from XLA, the heuristic, a local search and rollouts."""

    enabled: bool = True
    """Off: an ablation; stages named imitation are skipped and nothing is imitated."""
    evaluations: int = 192
    """Decision vectors scored per graph by the search that makes labels."""
    rounds: int = 2
    """Searches per graph; after each, the kernels of what it found are measured in place (bank only)."""
    min_gain: float = 0.01
    """Log speed-up from which decisions are worth imitating; below it XLA's are the label."""
    deviation_weight: float = 3.0
    """Weight of nodes where the label differs from XLA's decision, against the others."""


@dataclass(frozen=True)
class StageConfig:
    """One stage of training."""

    name: str = "bank"
    """For logs."""
    scorer: str = "bank"
    """Who says what decisions cost: analytic, bank, measured; or recorded: nothing is drawn, vectors that the
    store knows are learned from."""
    steps: int = 200
    """Optimizer steps (groups of epochs)."""
    learning_rate: float = 3e-4
    """Of Adam, at the start of the stage; falls to a tenth by a cosine."""
    policy: float = 1.0
    """Weight of the policy gradient."""
    imitation: float = 0.1
    """Weight of imitating the best decisions known."""
    search: bool = True
    """Search for labels at the start, where no earlier stage with the same scorer has."""
    start_nodes: int = 0
    """Largest graphs at the start of the stage; grows to all of them by mid-stage. 0: all at once."""


@dataclass(frozen=True)
class TrainConfig:
    """Everything that determines a training run, together with the machine's times."""

    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    """Graphs."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Network."""
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    """Sampling and rewards."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    """Learning from rewards."""
    imitation: ImitationConfig = field(default_factory=ImitationConfig)
    """Learning from labels."""
    stages: tuple[StageConfig, ...] = (
        StageConfig("imitation", "analytic", 60, 1e-3, policy=0.0, imitation=1.0),
        StageConfig("bank", "bank", 300),
        StageConfig("measured", "measured", 15, 1e-4, search=False),
    )
    """Stages, in order."""
    max_grad_norm: float = 0.5
    """Gradients are scaled down to this norm."""
    weight_decay: float = 0.0
    """Part of each matrix, times the learning rate, that a step takes away; against learning by heart."""
    averaging: float = 0.0
    """Weight of the old average when the weights that are validated and kept are averaged over steps; 0: the
    weights after the last step."""
    seed: int = 0
    """Seed of the network's initial weights and of all sampling."""
    validate_every: int = 20
    """Steps between validations."""
    validation_scorer: str = ""
    """Who judges on validation graphs: analytic, bank or measured; empty: the scorer of the stage."""
    save_every: int = 10
    """Steps between saved states."""
    store: str = ""
    """File of the kernel bank; empty: the user's store."""
    other_machines: bool = False
    """The recorded stage also learns from what the store knows of other machines with the same jaxlib: of
    decisions measured on several the mean gain over the start counts."""
    pessimism: float = 0.0
    """Standard deviations added to predicted kernel times (bank only), so that doubt is not rewarded."""
    confirm: bool = True
    """Measure the kernels of decisions that beat the best known ones, in place (bank only)."""
    budget_s: float = 0.0
    """Training ends after so many seconds (saved, validated), 0 for no limit."""

    def __post_init__(self) -> None:
        """Checks what the types do not.

        Raises:
            ConfigError: a count is not positive, or there is no stage.
        """
        counts = {
            "rollout.graphs": self.rollout.graphs,
            "rollout.samples": self.rollout.samples - 1,
            "rollout.min_free": self.rollout.min_free,
            "ppo.epochs": self.ppo.epochs,
            "imitation.evaluations": self.imitation.evaluations,
            "imitation.rounds": self.imitation.rounds,
            "validate_every": self.validate_every,
            "save_every": self.save_every,
            "stages": len(self.stages),
        }
        for name, value in counts.items():
            if value < 1:
                raise _bad(name, "is too small")
        if self.ppo.baseline not in typing.get_args(Baseline):
            raise _bad("ppo.baseline", f"must be one of {typing.get_args(Baseline)}")


CONFIG_NAME: Final = "config.yaml"
"""A run's settings, in its directory."""


def load_config(path: Path) -> TrainConfig:
    """Reads a YAML file over the defaults.

    Raises:
        ConfigError: the file cannot be read, or names an unknown setting, or one of another type.
    """
    return from_dict(read_yaml(path))


def read_yaml(path: Path) -> Any:
    """What a YAML file holds; an empty mapping if nothing.

    Raises:
        ConfigError: the file cannot be read.
    """
    import yaml  # type: ignore[import-untyped, unused-ignore]  # only training has it

    try:
        return yaml.safe_load(path.read_text()) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _bad(str(path), f"cannot be read: {error}") from error


def from_dict(data: Any) -> TrainConfig:
    """Settings from nested dicts; what is missing keeps its default.

    Raises:
        ConfigError: an unknown setting, or one of another type.
    """
    config: TrainConfig = build(TrainConfig, data)
    return config


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Nested dicts and lists that `from_dict` takes and YAML and JSON can hold."""
    plain: dict[str, Any] = _plain(dataclasses.asdict(config))
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple | list) else value


def build(kind: Any, data: Any, where: str = "") -> Any:
    """`data` as an instance of the dataclass `kind`; what is missing keeps its default.

    Raises:
        ConfigError: an unknown setting, or one of another type.
    """
    if not isinstance(data, dict):
        raise _bad(where or "configuration", "must be a mapping of settings")
    hints = typing.get_type_hints(kind)
    values = {}
    for key, value in data.items():
        name = f"{where}.{key}" if where else str(key)
        if key not in hints:
            raise _bad(name, f"is not a setting; there are {', '.join(hints)}")
        values[key] = _convert(hints[key], value, name)
    return kind(**values)


def _convert(hint: Any, value: Any, name: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return build(hint, value, name)
    origin = typing.get_origin(hint)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _bad(name, "must be a list")
        inner = typing.get_args(hint)[0]
        return tuple(_convert(inner, item, f"{name}[{i}]") for i, item in enumerate(value))
    if origin in (Literal, types.UnionType):
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise _bad(name, f"must be {hint.__name__}, got {value!r}")
    return value


def _bad(name: str, problem: str) -> ConfigError:
    return ConfigError(what=f"{name} {problem}", where="training configuration", fix=_FIX)


_FIX: Final = "train-policy --help lists all settings; configs/ holds examples."


TOY: Final = TrainConfig(
    corpus=CorpusConfig(source="builtin", max_nodes=127, limit=10, validation_limit=8),
    model=ModelConfig(hidden=32, layers=2, key=8, decision=8),
    rollout=RolloutConfig(graphs=4, samples=8),
    ppo=PPOConfig(epochs=2),
    imitation=ImitationConfig(evaluations=64),
    stages=(
        StageConfig("imitation", "analytic", 20, 3e-3, policy=0.0, imitation=1.0),
        StageConfig("analytic", "analytic", 40, 1e-3, imitation=0.1),
    ),
    validate_every=10,
)
"""The settings of ``train-policy --toy``; configs/toy.yaml says the same."""
