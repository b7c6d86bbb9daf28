"""All of a training run's state on disk, so that a resumed run continues bit for bit.

A state is a directory: ``state.json`` (counters, settings, random generator), ``elites.npz`` (plain arrays)
and ``orbax/`` (parameters and optimizer state).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import orbax.checkpoint as ocp

from graphopt.errors import ConfigError
from graphopt.files import write_directory
from graphopt.learn.config import TrainConfig, to_dict
from graphopt.learn.training.elites import Elite, from_arrays, to_arrays
from graphopt.learn.training.update import Learner, new_learner

STATE: Final = "state"
_FORMAT: Final = 2


@dataclass(eq=False)
class TrainState:
    """Everything that changes while training.

    Attributes:
        learner: parameters and optimizer state.
        rng: source of all sampling.
        stage: index of the stage in progress.
        stage_step: steps done in it.
        step: steps done in all.
        seconds: seconds spent.
        elites: best decisions known, by problem name, for the scorer of the stage in progress.
        best: validation/worth of the best policy so far.
    """

    learner: Learner
    rng: np.random.Generator
    stage: int = 0
    stage_step: int = 0
    step: int = 0
    seconds: float = 0.0
    elites: dict[str, Elite] = field(default_factory=dict)
    best: float = -1e9

    @contextmanager
    def whole_step(self) -> Iterator[None]:
        """Undoes all changes if the body is interrupted: what is saved is always between two steps."""
        before = {**self.__dict__, "elites": dict(self.elites)}
        generator = self.rng.bit_generator.state
        try:
            yield
        except BaseException:
            self.__dict__.update(before)
            self.rng.bit_generator.state = generator
            raise


def fresh_state(config: TrainConfig) -> TrainState:
    """The state before the first step."""
    learner = new_learner(config.model, config.seed, config.max_grad_norm)
    return TrainState(learner, np.random.default_rng(config.seed))


def save_state(out: Path, state: TrainState, config: TrainConfig) -> None:
    """Writes the state of a run; the one before is replaced at once."""
    data = {
        "format": _FORMAT,
        "config": to_dict(config),
        "rng": state.rng.bit_generator.state,
        **{name: getattr(state, name) for name in _COUNTERS},
    }

    def fill(folder: Path) -> None:
        (folder / "state.json").write_text(json.dumps(data, indent=1) + "\n")
        np.savez(folder / "elites.npz", **to_arrays(state.elites))  # type: ignore[arg-type]
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save((folder / "orbax").absolute(), _arrays(state.learner))

    write_directory(out / STATE, fill)


def load_state(out: Path, config: TrainConfig) -> TrainState:
    """The state of a run, to be continued with the same settings (steps and intervals may differ).

    Raises:
        ConfigError: there is none, or it belongs to other settings; the first that differs is named.
    """
    folder = out / STATE
    try:
        data = json.loads((folder / "state.json").read_text())
        with np.load(folder / "elites.npz", allow_pickle=False) as arrays:
            elites = from_arrays({name: arrays[name] for name in arrays})
    except (OSError, ValueError) as error:
        raise _bad(folder, f"cannot be read: {type(error).__name__}: {error}") from error
    if data.get("format") != _FORMAT:
        raise _bad(folder, f"has format {data.get('format')}, expected {_FORMAT}")
    _check_same(folder, data["config"], to_dict(config))
    state = fresh_state(config)
    like = jax.tree.map(np.asarray, _arrays(state.learner))
    with ocp.StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore((folder / "orbax").absolute(), like)
    state.learner = _learner(config, restored, state.learner)
    state.rng.bit_generator.state = data["rng"]
    state.elites = elites
    for name in _COUNTERS:
        setattr(state, name, data[name])
    return state


_COUNTERS: Final = ("stage", "stage_step", "step", "seconds", "best")

_MAY_CHANGE: Final = frozenset({"validate_every", "save_every", "budget_s", "store"})


def _arrays(learner: Learner) -> dict[str, Any]:
    """All of the learner as numbered leaves: orbax needs no knowledge of optax's types."""
    leaves = jax.tree.leaves((learner.parameters, learner.optimizer_state, learner.average))
    return {f"{index:04d}": leaf for index, leaf in enumerate(leaves)}


def _learner(config: TrainConfig, arrays: Mapping[str, Any], like: Learner) -> Learner:
    structure = jax.tree.structure((like.parameters, like.optimizer_state, like.average))
    leaves = [jax.numpy.asarray(arrays[name]) for name in sorted(arrays)]
    return Learner(config.model, *jax.tree.unflatten(structure, leaves))


def _check_same(folder: Path, saved: Any, wanted: Any, name: str = "") -> None:
    """Compares settings recursively; stage lists may be extended."""
    if isinstance(wanted, dict) and isinstance(saved, dict):
        for key in [*wanted, *(k for k in saved if k not in wanted)]:
            if name or key not in _MAY_CHANGE:
                _check_same(folder, saved.get(key), wanted.get(key), f"{name}.{key}".strip("."))
    elif saved != wanted:
        raise _bad(folder, f"was trained with {name}={saved!r}, not {wanted!r}")


def _bad(folder: Path, problem: str) -> ConfigError:
    return ConfigError(
        what=f"the saved state {problem}",
        where=str(folder),
        fix="Resume with the settings that the run was started with, or start another with --out.",
    )
