"""What a policy is, and the policies that have names."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphopt.errors import PolicyError
from graphopt.hlo import Decisions, Graph
from graphopt.policy.heuristic import heuristic

Policy = Callable[[Graph], Decisions | None]
"""Decides for one graph; None means: no gain expected, leave the module to XLA."""


@dataclass(frozen=True)
class NamedPolicy:
    """A policy with what the plugin needs to know about it.

    Attributes:
        name: for reports.
        key: part of compilation cache keys; equal keys promise equal decisions.
        decide: the policy itself.
        built_in: it is ours: bounded in time and free of jax calls, so it runs without a guard.
    """

    name: str
    key: str
    decide: Policy
    built_in: bool


def xla_default(graph: Graph) -> Decisions:
    """XLA's own decisions: a rewrite that changes nothing but duplicate clusters."""
    return graph.default


_BUILT_IN: Final[dict[str, Policy]] = {"heuristic": heuristic, "xla-default": xla_default}
_ALIASES: Final = {"no-recompute": "heuristic"}

DEFAULT: Final = "heuristic"
"""Policy of a plain ``install()``."""


def names() -> list[str]:
    """Names that `resolve` takes, aliases included."""
    return sorted([*_BUILT_IN, *_ALIASES])


def resolve(policy: str | os.PathLike[str] | Policy) -> NamedPolicy:
    """Finds a policy by name, loads a checkpoint directory, or wraps a callable.

    Raises:
        PolicyError: no policy has this name, the checkpoint does not fit, or it is none of the three.
    """
    if isinstance(policy, os.PathLike) or _is_checkpoint(policy):
        return _from_checkpoint(Path(policy))  # type: ignore[arg-type]
    if isinstance(policy, str):
        name = _ALIASES.get(policy, policy)
        if name not in _BUILT_IN:
            raise PolicyError(
                what=f"there is no policy named {policy!r}",
                where="policy",
                fix=f"Use one of {', '.join(names())}, the directory of a checkpoint, or pass a "
                "function Graph -> Decisions | None.",
            )
        return NamedPolicy(name, name, _BUILT_IN[name], built_in=True)
    if not callable(policy):
        raise PolicyError(
            what=f"a policy must be a name or a function, got {type(policy).__name__}",
            where="policy",
            fix="Pass a function Graph -> Decisions | None.",
        )
    label = getattr(policy, "__qualname__", type(policy).__qualname__)
    # Nothing says that a function decides the same in another process.
    return NamedPolicy(label, f"{label}-{uuid.uuid4().hex}", policy, built_in=False)


def _is_checkpoint(policy: object) -> bool:
    """True for a string that names no policy but a directory (or something written like a path)."""
    if not isinstance(policy, str) or not policy or policy in _BUILT_IN or policy in _ALIASES:
        return False
    return os.sep in policy or Path(policy).is_dir()


def _from_checkpoint(path: Path) -> NamedPolicy:
    """A learned policy: numpy only, so it needs no guard; its digest stands for its decisions."""
    from graphopt.policy.checkpoint import load  # not needed by the hand-written policies

    checkpoint = load(path)
    name = f"checkpoint {path.name}"
    return NamedPolicy(name, f"learned-{checkpoint.digest}", checkpoint.decider(), built_in=True)
