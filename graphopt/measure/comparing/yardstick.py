"""Is a difference rounding, or is the candidate wrong? Judged by how the program treats rounding itself.

A correct rewrite reorders floating-point operations, so its result differs from the default's by
rounding, amplified by the program. How much a program amplifies is measured: the default itself is run on
inputs that differ in their last bits. That says nothing of what a program makes of a random key or of whole
numbers, such as the states of a simulation: results that do not move are judged by the default compiled in a
way that rounds otherwise. A candidate may differ as much as a fixed tolerance per dtype allows, or some times
as much as the default differs from itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from graphopt.measure.comparing.numeric import TOLERANCE, compare_outputs, tolerance_name
from graphopt.measure.inputs import host_array

Array = np.ndarray[Any, Any]

GROWTH_FACTOR: Final = 16.0
"""How much further than the perturbed defaults a correct candidate may be: one perturbation stands for
one reordered operation, and programs have many."""

RECOMPILED_FACTOR: Final = 4.0
"""The same of another compile, which rounds otherwise in as many places as a candidate; but chance decides
how far each carries."""

CHAOTIC: Final = 0.03
"""Relative deviation of a perturbed default from which a result says nothing about correctness."""

PERTURBATIONS: Final = 3

UNVERIFIABLE: Final = "cannot be verified: chaotic"
"""How `Judgement.problem` begins where the candidate is not known to be wrong."""

WRONG: Final = "wrong result"
"""How it begins where the candidate is."""

MOVED: Final = ", the default's own by {:.1e} when its inputs move by one unit in the last place"
RECOMPILED: Final = ", the default's own by {:.1e} when LLVM does not optimize it"

Run = Callable[[Sequence["Array"]], Sequence["Array"]]
"""A program from inputs to results, on the host."""


@dataclass(frozen=True)
class Judgement:
    """What the comparison of a candidate's results says.

    Attributes:
        equal: every comparable result is within its limit, and at least one is comparable. Integers that
            do not depend on rounding must be equal.
        relative: largest relative difference over the comparable results, over all where none is; of
            integers, the share of elements that differ.
        comparable: results (of all) that are not chaotic.
        results: number of results.
        moved: largest relative difference of the default from itself, over all results, when its inputs
            move by one unit in the last place; None where that was not needed.
        recompiled: `moved` is, of results that do not, when it is compiled in a way that rounds otherwise.
        chaotic: nothing can be said: no result is comparable, and the default itself moves by as much.
    """

    equal: bool
    relative: float
    comparable: int
    results: int
    moved: float | None = None
    recompiled: bool = False
    chaotic: bool = False

    def __post_init__(self) -> None:
        """Checks that the verdicts exclude each other."""
        assert not (self.equal and self.chaotic)

    def problem(self) -> str:
        """What keeps the candidate from being right, with both errors; empty where it is."""
        if self.equal:
            return ""
        return f"{UNVERIFIABLE if self.chaotic else WRONG}: {self.errors()}"

    def errors(self) -> str:
        """How far the candidate is off and, where that was looked at, the default from itself."""
        text = RECOMPILED if self.recompiled else MOVED
        moved = "" if self.moved is None else text.format(self.moved)
        return f"off by {self.relative:.1e}{moved}"


class Yardstick:
    """The default's results, and per result how far a candidate's may be from them."""

    def __init__(
        self,
        run: Run,
        inputs: Sequence[Array],
        seed: int = 0,
        recompile: Callable[[], Run] | None = None,
    ) -> None:
        """Runs the default once; perturbed runs are made when first needed.

        Args:
            run: the default.
            inputs: one array per parameter.
            seed: of the perturbations.
            recompile: compiles the default in a way that rounds otherwise, for results that do not move
                with the inputs; None where those are judged without.
        """
        self._run = run
        self._inputs = inputs
        self._seed = seed
        self.reference = [np.asarray(r) for r in run(inputs)]
        self._recompile = recompile

    @cached_property
    def growth(self) -> list[float]:
        """Per result, largest deviation of the default under perturbed inputs; see `_deviation`."""
        rng = np.random.default_rng(self._seed)
        worst = [0.0] * len(self.reference)
        if not any(_can_move(value) for value in self._inputs):
            return worst
        for _ in range(PERTURBATIONS):
            worst = self._largest(worst, self._run([_perturb(rng, i) for i in self._inputs]))
        return worst

    @cached_property
    def _growth_recompiled(self) -> list[float] | None:
        """Per result, deviation of the default compiled in a way that rounds otherwise; None without it."""
        if self._recompile is None:
            return None
        try:
            return self._largest([0.0] * len(self.reference), self._recompile()(self._inputs))
        except jax.errors.JaxRuntimeError:
            return None

    def _largest(self, worst: Sequence[float], results: Sequence[Array]) -> list[float]:
        """Per result the larger of a deviation and that of a run."""
        pairs = zip(worst, self.reference, results, strict=True)
        return [max(known, _deviation(a, np.asarray(b))) for known, a, b in pairs]

    def judge(self, results: Sequence[Any]) -> Judgement:
        """Compares a candidate's results with the default's."""
        if len(results) != len(self.reference):
            return Judgement(False, np.inf, 0, len(self.reference))
        host = [np.asarray(r) for r in results]
        plain = [compare_outputs(a, b) for a, b in zip(self.reference, host, strict=True)]
        worst = max((d.relative for d in plain), default=0.0)
        if all(d.equal for d in plain):
            return Judgement(True, worst, len(plain), len(plain))
        same = [d.equal for d in plain]
        limits = [(growth, GROWTH_FACTOR) for growth in self.growth]
        still = [not s and growth == 0.0 for s, growth in zip(same, self.growth, strict=True)]
        if not any(still) or self._growth_recompiled is None:
            return self._judge_amplified(host, same, limits)
        other = [(growth, RECOMPILED_FACTOR) for growth in self._growth_recompiled]
        limits = [b if s else a for a, b, s in zip(limits, other, still, strict=True)]
        return replace(self._judge_amplified(host, same, limits), recompiled=True)

    def _judge_amplified(
        self, host: list[Array], same: list[bool], amplified: list[tuple[float, float]]
    ) -> Judgement:
        """Judges by how the default treats rounding.

        Args:
            host: a candidate's results.
            same: they are within the fixed tolerance of their dtype.
            amplified: how far the default's own move, and how many times as far these may be.
        """
        growths = [growth for growth, _ in amplified]
        comparable = [growth <= CHAOTIC for growth in growths]
        deviations = [_deviation(a, b) for a, b in zip(self.reference, host, strict=True)]
        limits = [
            max(factor * growth, _tolerance(a))
            for (growth, factor), a in zip(amplified, self.reference, strict=True)
        ]
        within = [s or d <= most for s, d, most in zip(same, deviations, limits, strict=True)]
        alike = [_same_scale(a, b) for a, b in zip(self.reference, host, strict=True)]
        fine = all(w if c else a for w, c, a in zip(within, comparable, alike, strict=True))
        known = [d for d, c in zip(deviations, comparable, strict=True) if c]
        return Judgement(
            equal=fine and bool(known),
            relative=max(known or deviations),
            comparable=len(known),
            results=len(host),
            moved=max(growths),
            chaotic=not known and fine and all(within),
        )


def program_yardstick(
    run: Callable[..., Any],
    args: tuple[Any, ...],
    recompile: Callable[[], Callable[..., Any]] | None = None,
) -> Yardstick:
    """The yardstick of a whole program, judging the leaves of its results (see `host_leaves`).

    Args:
        run: the default: takes arguments of the structure of `args`, returns any pytree.
        args: its arguments; Python numbers stay such, because jax tells them from arrays.
        recompile: compiles it in a way that rounds otherwise; see `Yardstick`.
    """
    leaves, tree = jax.tree.flatten(args)
    hosts = [host_array(leaf) for leaf in leaves]

    def flat(called: Callable[..., Any], inputs: Sequence[Array]) -> list[Array]:
        moved = [
            leaf if given is host else _like(given, leaf)
            for leaf, given, host in zip(leaves, inputs, hosts, strict=True)
        ]
        return host_leaves(called(*jax.tree.unflatten(tree, moved)))

    def again() -> Run:
        assert recompile is not None
        return partial(flat, recompile())

    return Yardstick(partial(flat, run), hosts, recompile=None if recompile is None else again)


def is_rounding(run: Callable[..., Any], args: tuple[Any, ...], result: Any) -> bool:
    """Judges a result beyond the fixed tolerances by how the default treats rounding.

    Args:
        run: the default.
        args: its arguments.
        result: what a candidate returned for them.
    """
    return program_yardstick(run, args).judge(host_leaves(result)).equal


def host_leaves(tree: Any) -> list[Array]:
    """Host copies of all arrays of a result; of random keys, their words."""
    return [host_array(leaf) for leaf in jax.tree.leaves(tree)]


def _like(value: Array, leaf: Any) -> Any:
    """A perturbed value as the argument that it replaces."""
    return jax.device_put(value) if hasattr(leaf, "dtype") else type(leaf)(value.item())


def _deviation(reference: Array, result: Array) -> float:
    """How far two results are apart.

    Floating point: the largest difference relative to the largest magnitude. Integers and booleans: the
    share of elements that differ, since one that depends on rounding jumps. Infinite where shapes or
    types differ.
    """
    if jnp.issubdtype(reference.dtype, jnp.inexact):
        return compare_outputs(reference, result).relative
    if reference.shape != result.shape or reference.dtype != result.dtype:
        return float("inf")
    return float(np.mean(reference != result)) if reference.size else 0.0


def _tolerance(reference: Array) -> float:
    return TOLERANCE.get(tolerance_name(reference.dtype), 0.0)


def _can_move(value: Array) -> bool:
    """True for an input that has last bits to move."""
    return bool(jnp.issubdtype(value.dtype, jnp.inexact) and value.size)


def _perturb(rng: np.random.Generator, value: Array) -> Array:
    """Moves every floating-point element by about one unit in its last place, up or down."""
    if not _can_move(value):
        return value
    kind = value.real.dtype if np.iscomplexobj(value) else value.dtype
    eps = float(jnp.finfo(kind).eps)
    step = eps * rng.choice([-1.0, 1.0], value.shape)
    wide = np.complex128 if np.iscomplexobj(value) else np.float64
    return np.asarray(value.astype(wide) * (1.0 + step)).astype(value.dtype)


def _same_scale(reference: Array, result: Array) -> bool:
    """Chaotic results must at least be of one kind: as finite and as large as the default's."""
    if reference.shape != result.shape or reference.dtype != result.dtype:
        return False
    if not jnp.issubdtype(reference.dtype, jnp.inexact):
        return True
    a, b = (np.abs(x.astype(np.complex128)) for x in (reference, result))
    if np.isfinite(a).all() != np.isfinite(b).all():
        return False
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    if not a.size or not b.size:
        return a.size == b.size
    return bool(b.mean() <= 10.0 * a.mean() + 1e-30 and a.mean() <= 10.0 * b.mean() + 1e-30)
