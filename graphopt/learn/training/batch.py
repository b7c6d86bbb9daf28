"""Rollouts as padded arrays for the loss. Axis letters: B decision vectors, N padded nodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import jraph
import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import Decisions
from graphopt.learn.config import TrainConfig
from graphopt.learn.training.advantages import advantages
from graphopt.learn.training.elites import Elite
from graphopt.learn.training.rollout import Rollout
from graphopt.policy.network.features import Features
from graphopt.policy.network.padding import pad, pad_rows


class Batch(NamedTuple):
    """What the loss needs of one graph; the last vector is the label (an `Elite`).

    Attributes:
        graph: the padded graph, see `graphopt.policy.network.padding.pad`.
        actions: field -> int32 [B, N].
        old: field -> float32 [B, N]; log-probability when drawn.
        drawn: field -> float32 [B, N]; 1 where the policy drew the action, else 0.
        imitate: field -> float32 [B, N]; weights of imitation, summing to 1 over all fields, 0 outside
            the label's row.
        advantages: float32 [B].
        log_speedup: float32 [B]; measured log speed-up over the start, what the gain head learns.
        known: float32 [B]; 1 where `log_speedup` is there and the vector differs from the start.
        value: float32 []; mean reward of the drawn vectors, what the value head learns.
    """

    graph: jraph.GraphsTuple
    actions: dict[str, Any]
    old: dict[str, Any]
    drawn: dict[str, Any]
    imitate: dict[str, Any]
    advantages: Any
    log_speedup: Any
    known: Any
    value: Any


def make_batch(rollout: Rollout, label: Elite, config: TrainConfig, trusted: bool = True) -> Batch:
    """A rollout and a label as one batch of B = samples + 1 vectors.

    Args:
        rollout: drawn vectors.
        label: what is imitated.
        config: settings.
        trusted: the gain head learns from the rollout's rewards; False where they are predictions and
            measured ones are at hand.
    """
    features = rollout.problem.features
    graph = pad(features, config.model.segment)
    size = len(graph.nodes["real"])
    weights = imitation_weights(features, label.decisions, config.imitation.deviation_weight)
    batch = Batch(graph, {}, {}, {}, {}, *_scalars(rollout, label, config, trusted))
    zero = np.zeros((1, len(features)), np.float32)
    for field in features.fields:
        name = field.name
        chosen = getattr(label.decisions, name)[None]
        drawn = rollout.samples.drawn[name]
        rows = {
            "actions": np.concatenate([rollout.samples.actions[name], chosen]).astype(np.int32),
            "old": np.concatenate([rollout.samples.log_probs[name], zero]),
            "drawn": np.concatenate([drawn, zero]).astype(np.float32),
            "imitate": np.concatenate([np.repeat(zero, len(drawn), 0), weights[name][None]]),
        }
        for column, value in rows.items():
            getattr(batch, column)[name] = pad_rows(value, size)
    return batch


def _scalars(
    rollout: Rollout, label: Elite, config: TrainConfig, trusted: bool
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], np.float32]:
    """Advantages, log speed-ups, which of them are known, and the value target."""
    gained = np.append(rollout.rewards, label.log_speedup)
    limit = config.rollout.reward_clip
    differs = np.zeros(len(gained), np.bool_)
    for field in rollout.problem.features.fields:
        chosen = getattr(label.decisions, field.name)[None]
        rows = np.concatenate([rollout.samples.actions[field.name], chosen])
        differs |= (rows != field.start).any(axis=1)
    return (
        np.append(advantages(rollout.rewards, rollout.value, config.ppo), 0.0).astype(np.float32),
        np.clip(gained - rollout.base, -limit, limit).astype(np.float32),
        (differs & np.append(~rollout.failed & trusted, True)).astype(np.float32),
        np.float32(rollout.rewards[1:].mean()),
    )


def imitation_weights(
    features: Features, label: Decisions, deviation_weight: float
) -> dict[str, NDArray[np.float32]]:
    """Field -> float32 [nodes]; sums to 1 over all fields; 0 where the field has no choice or no meaning."""
    weights = {}
    for field in features.fields:
        chosen = getattr(label, field.name)
        counts = field.free & ~label.fuse if field.roots_only else field.free
        weights[field.name] = np.where(chosen != field.start, deviation_weight, 1.0) * counts
    total = max(sum(float(w.sum()) for w in weights.values()), 1.0)
    return {name: (w / total).astype(np.float32) for name, w in weights.items()}
