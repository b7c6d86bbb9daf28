"""What a policy is, and the policies that have names."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from graphopt.errors import GraphOptError, PolicyError
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.module.index import ModuleIndex
from graphopt.policy.heuristic.steps import choose, heuristic
from graphopt.policy.heuristic.support.step import Applied
from graphopt.policy.nothing_to_gain import cannot_gain

Policy = Callable[[Graph], Decisions | None]
"""Decides for one graph; None means: no gain expected, leave the module to XLA."""


class Choice(Protocol):
    """Decisions, and who stands behind them."""

    @property
    def decisions(self) -> Decisions:
        """Inside the graph's masks."""

    @property
    def name(self) -> str:
        """Who proposed them."""

    @property
    def speedup(self) -> float:
        """Expected speed-up over XLA's default; 0 where nothing is promised."""

    @property
    def steps(self) -> tuple[Applied, ...]:
        """Steps of the heuristic behind them, in order."""

    @property
    def failed(self) -> tuple[str, ...]:
        """Steps that raised and were passed over, each with its error."""


@dataclass(frozen=True)
class NamedPolicy:
    """A policy with what the plugin needs to know about it.

    Attributes:
        name: for reports.
        key: part of compilation cache keys; equal keys promise equal decisions.
        decide: the policy itself.
        built_in: it is ours: bounded in time and free of jax calls, so it runs without a guard.
        note: what a report should say of it, such as why it stands in for another; or empty.
        choose: decides like `decide` and says who proposed it and what gain is expected; None if it cannot.
        passes_over: says of a parsed module, without a graph, that the policy would leave it to XLA; None if
            it cannot.
    """

    name: str
    key: str
    decide: Policy
    built_in: bool
    note: str = ""
    choose: Callable[[Graph], Choice | None] | None = None
    passes_over: Callable[[ModuleIndex], bool] | None = None


def xla_default(graph: Graph) -> Decisions:
    """XLA's own decisions: a rewrite that changes nothing but duplicate clusters."""
    return graph.default


_BUILT_IN: Final[dict[str, Policy]] = {"heuristic": heuristic, "xla-default": xla_default}
_ALIASES: Final = {"no-recompute": "heuristic"}

DEFAULT: Final = "shipped"
"""Policy of a plain ``install()``: the checkpoint that graphopt ships, else the heuristic."""


def names() -> list[str]:
    """Names that `resolve` takes, aliases included."""
    return sorted([*_BUILT_IN, *_ALIASES, DEFAULT])


def resolve(policy: str | os.PathLike[str] | Policy) -> NamedPolicy:
    """Finds a policy by name, loads a checkpoint directory, or wraps a callable.

    Raises:
        PolicyError: no policy has this name, the checkpoint does not fit, or it is none of the three.
    """
    if isinstance(policy, os.PathLike) or _is_checkpoint(policy):
        return _from_checkpoint(Path(policy))  # type: ignore[arg-type]
    if policy == DEFAULT:
        return _shipped()
    if isinstance(policy, str):
        name = _ALIASES.get(policy, policy)
        if name not in _BUILT_IN:
            raise PolicyError(
                what=f"there is no policy named {policy!r}",
                where="policy",
                fix=f"Use one of {', '.join(names())}, the directory of a checkpoint, or pass a "
                "function Graph -> Decisions | None.",
            )
        if name != "heuristic":
            return NamedPolicy(name, name, _BUILT_IN[name], built_in=True)
        return NamedPolicy(
            name, name, heuristic, built_in=True, choose=choose, passes_over=cannot_gain
        )
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
    if policy == DEFAULT:
        return False
    return os.sep in policy or Path(policy).is_dir()


SHIPPED: Final = Path(__file__).parent.parent / "checkpoints" / "cpu"
"""Directory of the checkpoint that graphopt ships."""


def _shipped() -> NamedPolicy:
    """The shipped checkpoint; the heuristic, with a note, where it is missing or does not fit."""
    try:
        if not SHIPPED.is_dir():
            return resolve("heuristic")
        return _from_checkpoint(SHIPPED)
    except Exception as error:  # whatever is wrong with it, the user's program must go on
        reason = (
            error.what if isinstance(error, GraphOptError) else f"{type(error).__name__}: {error}"
        )
        note = f"the shipped policy cannot be used ({reason}); the heuristic decides"
        return replace(resolve("heuristic"), note=note)


def _from_checkpoint(path: Path) -> NamedPolicy:
    """A learned policy: numpy only, so it needs no guard; its digest stands for its decisions.

    The kind that is written in the checkpoint says what decides: `graphopt.policy.network`, which decides
    node by node, or `graphopt.policy.advantages`.
    """
    # Not needed by the hand-written policies.
    from graphopt.policy.network.files import kind_of

    decider: Any
    checkpoint: Any
    if kind_of(path):
        from graphopt.policy.advantages.checkpoint import load_advantages

        checkpoint = load_advantages(path)
    else:
        from graphopt.policy.network.checkpoint import load

        checkpoint = load(path)
    name = f"checkpoint {path.name}"
    decider = checkpoint.decider()
    told = getattr(decider, "choose", None)
    return NamedPolicy(
        name,
        f"learned-{checkpoint.digest}",
        decider,
        built_in=True,
        choose=told,
        passes_over=None if told is None else cannot_gain,  # the heuristic speaks first there
    )
