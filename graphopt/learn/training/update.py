"""One optimizer step over the batches of several graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax

from graphopt.learn.config import PPOConfig, StageConfig
from graphopt.learn.training.batch import Batch
from graphopt.learn.training.losses import Weights, objective
from graphopt.policy.network.config import ModelConfig
from graphopt.policy.network.parameters import Nested, create

Gradients = Callable[[Nested, Batch, Weights], tuple[Nested, dict[str, jax.Array]]]


@dataclass(frozen=True, eq=False)
class Learner:
    """Parameters and optimizer state; a new one after every step.

    Attributes:
        model: sizes of the network.
        parameters: nested parameters, see `graphopt.policy.network.parameters`.
        optimizer_state: state of `make_optimizer`.
        average: running mean of the parameters over the steps: what is validated and saved.
    """

    model: ModelConfig
    parameters: Nested
    optimizer_state: Any
    average: Nested


def make_optimizer(max_grad_norm: float) -> Any:
    """Adam on clipped gradients, without a learning rate: stages multiply by theirs."""
    return optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.scale_by_adam(eps=1e-6))


def new_learner(model: ModelConfig, seed: int, max_grad_norm: float) -> Learner:
    """A learner with fresh parameters."""
    _, parameters = create(model, seed)
    return Learner(model, parameters, make_optimizer(max_grad_norm).init(parameters), parameters)


def objective_weights(stage: StageConfig, ppo: PPOConfig, imitate: bool) -> Weights:
    """Weights of the objective in a stage."""
    drawn = float(stage.policy > 0.0)
    values = Weights(
        policy=stage.policy,
        imitation=stage.imitation if imitate else 0.0,
        entropy=ppo.entropy * drawn,
        value=ppo.value,
        gain=ppo.gain,
        clip=ppo.clip,
        quantile=ppo.gain_quantile,
    )
    return Weights(*(np.float32(value) for value in values))


def learning_rate(stage: StageConfig, step: int) -> float:
    """Learning rate at a step of a stage: a cosine from its start value down to a tenth."""
    progress = step / max(stage.steps, 1)
    return float(stage.learning_rate * (0.55 + 0.45 * np.cos(np.pi * progress)))


@functools.lru_cache(maxsize=4)
def gradients_of(model: ModelConfig) -> Gradients:
    """(parameters, batch, weights) -> (gradients, metrics), compiled once per padded size."""
    definition, _ = create(model, 0)
    differentiate = jax.grad(objective, argnums=1, has_aux=True)
    compiled: Gradients = jax.jit(functools.partial(differentiate, definition))
    return compiled


@functools.lru_cache(maxsize=4)
def _apply_function(max_grad_norm: float) -> Any:
    optimizer = make_optimizer(max_grad_norm)

    def apply(parameters: Nested, state: Any, gradients: Nested, rate: Any, decay: Any) -> Any:
        def move(parameter: jax.Array, update: jax.Array) -> jax.Array:
            shrunk = decay * parameter if parameter.ndim > 1 else 0.0
            moved: jax.Array = parameter - rate * (update + shrunk)
            return moved

        updates, state = optimizer.update(gradients, state)
        return jax.tree.map(move, parameters, updates), state, optax.tree.norm(gradients)

    return jax.jit(apply)


# Jitted: a call per leaf costs more than the arithmetic.
_added = jax.jit(optax.tree.add)
_averaged = jax.jit(optax.incremental_update)


@jax.jit
def _divided(tree: Any, by: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf / by, tree)


def update_epoch(
    learner: Learner,
    batches: Sequence[Batch],
    weights: Weights,
    rate: float,
    max_grad_norm: float,
    max_kl: float,
    *,
    weight_decay: float = 0.0,
    averaging: float = 0.0,
) -> tuple[Learner, dict[str, float], bool]:
    """One pass: mean gradient over the graphs, one step, matrices shrunk by `rate * weight_decay`.

    `averaging` is the weight of the old average of the parameters against the new parameters.

    Returns:
        The learner after the step, mean metrics over the graphs, and False if nothing was changed because the
        policy had already moved further than `max_kl` per choice.
    """
    compute = gradients_of(learner.model)
    total: Any = None
    measured: list[dict[str, jax.Array]] = []
    for batch in batches:
        gradients, metrics = compute(learner.parameters, batch, weights)
        total = gradients if total is None else _added(total, gradients)
        measured.append(metrics)
    means = {
        name: float(np.mean([float(metrics[name]) for metrics in measured])) for name in measured[0]
    }
    if means["ppo/kl"] > max_kl:
        return learner, means, False
    parameters, state, norm = _apply_function(max_grad_norm)(
        learner.parameters,
        learner.optimizer_state,
        _divided(total, np.float32(len(batches))),
        np.float32(rate),
        np.float32(weight_decay),
    )
    means["ppo/grad_norm"] = float(norm)
    average = parameters
    if averaging:
        average = _averaged(parameters, learner.average, np.float32(1.0 - averaging))
    return Learner(learner.model, parameters, state, average), means, True
