"""`place`: a function over several devices, or on one where that is better.

Every signature of arguments is planned once, at its first call, or at its second if nothing was placed
before. Planning traces the function, times
its parts, searches a placement with the machine model, and (``measure=True``) runs the best candidates
against one device in turn; what wins is kept. Any failure on the way, or later, ends on fewer devices, in
the end on one, with the reason in the report; the results are those of the function.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import jax

from graphopt import jax_private
from graphopt.devices.calibrate import calibrate
from graphopt.devices.copies import PlacedCopies
from graphopt.devices.options import Options
from graphopt.devices.plan import (
    Candidate,
    PlacementPolicy,
    find_candidates,
    measured_times,
)  # fmt: skip
from graphopt.devices.runtime import PlacedProgram
from graphopt.errors import ConfigError, GraphOptError, UnsupportedModuleError
from graphopt.measure import compare, compare_outputs
from graphopt.outcomes import ModuleRecord, Outcome
from graphopt.placement.build import build_tasks
from graphopt.placement.flat import flatten
from graphopt.placement.times import analytic_times
from graphopt.plugin import add_record

MAX_SIGNATURES: Final = 256
"""Plans kept per placed function; the one not used for longest goes first."""

MIN_MEASURED_GAIN: Final = 1.03
"""Lower end of the measured speed-up's interval that a placement needs to be kept."""

_logger = logging.getLogger("graphopt")


@dataclass
class Plan:
    """How one signature runs.

    Attributes:
        devices: names of the devices it runs on; one name if it runs on one.
        reason: why so, one line.
        segments: number of segments; 1 on one device.
        predicted: predicted speed-up over one device; 1 without a prediction.
        measured: measured speed-up; None if it was not measured.
        plan_s: seconds that planning took.
    """

    devices: tuple[str, ...]
    reason: str
    segments: int = 1
    predicted: float = 1.0
    measured: float | None = None
    plan_s: float = 0.0
    program: PlacedProgram | None = field(default=None, repr=False)
    out_tree: Any = field(default=None, repr=False)

    def __str__(self) -> str:
        """One line for logs and reports."""
        gain = f", measured {self.measured:.2f}x" if self.measured is not None else ""
        return (
            f"{len(self.devices)} device(s), {self.segments} segment(s), predicted "
            f"{self.predicted:.2f}x{gain}: {self.reason}"
        )


def place(
    fn: Callable[..., Any],
    devices: Sequence[Any] | None = None,
    policy: str | PlacementPolicy | None = "search",
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    options: Options | None = None,
    **changes: Any,
) -> Placed:
    """A callable that runs `fn` over several devices.

    `fn` must be pure and jittable (it may be jitted already; buffers that it donates are kept). Results are
    committed to the first device. Inside another jit, grad or vmap it is simply `fn`.

    Args:
        fn: the function; pytrees, keyword arguments and closures as for ``jax.jit``.
        devices: jax devices, the first one is home; None: all of the default platform.
        policy: ``search``, ``learned``, the name of a baseline, or a function
            ``graphopt.placement.baselines.Problem -> int16 [G] | None``; None: one device.
        static_argnums: as for ``jax.jit``.
        static_argnames: as for ``jax.jit``.
        options: see `Options`; the defaults if None.
        **changes: fields of `Options` to be changed.

    Raises:
        ConfigError: there is no device, one is given twice, or there is no such option.
    """
    chosen = tuple(jax.devices() if devices is None else devices)
    if not chosen or len(set(chosen)) < len(chosen):
        raise ConfigError(
            what=f"{len(chosen)} devices, {len(set(chosen))} of them different",
            where="place",
            fix="Pass at least one jax device, each once.",
        )
    statics = {"static_argnums": static_argnums, "static_argnames": static_argnames}
    unknown = set(changes) - set(Options.__dataclass_fields__)
    if unknown:
        raise ConfigError(
            what=f"no option {', '.join(sorted(unknown))}",
            where="place",
            fix=f"Options are {', '.join(Options.__dataclass_fields__)}.",
        )
    return Placed(fn, chosen, policy, statics, replace(options or Options(), **changes))


class Placed(functools.partial[Any]):
    """What `place` returns. Thread-safe; `plans` tells how each signature runs.

    It is a `functools.partial` because that calls its target without the interpreter: while nothing is
    placed, the target is the jitted function itself. When jax traces that for a new signature, the target
    becomes `_call`, so that the next call plans it.
    """

    def __new__(cls, fn: Callable[..., Any], *_: Any) -> Placed:  # noqa: D102
        return super().__new__(cls, fn)

    def __init__(
        self,
        fn: Callable[..., Any],
        devices: tuple[Any, ...],
        policy: str | PlacementPolicy | None,
        statics: dict[str, Any],
        options: Options,
    ) -> None:
        functools.update_wrapper(self, fn)
        ready = _has_trace(fn) and not any(s not in ((), []) for s in statics.values())
        # Kept: a partial does not hold its target while it runs it.
        self._planned: Callable[..., Any] = self._run_planned
        self._jitted: Any = fn if ready else jax.jit(self._noting(fn), **statics)
        self._single: Callable[..., Any] = self._run_watched if ready else self._jitted
        """What a call runs while nothing is placed."""
        self._size = jax_private.jit_cache_size(self._jitted)
        self._known_size: int | None = None
        self._name = getattr(fn, "__name__", type(fn).__name__).strip("<>")
        self.devices = devices
        """Devices in use; shrinks when one is lost."""
        self._policy = policy
        self._options = options
        self._copies = PlacedCopies()
        self._plans: OrderedDict[Any, Plan] = OrderedDict()
        self._lock = threading.RLock()
        self._static_numbers = _tuple(statics["static_argnums"])
        self._static_names = _tuple(statics["static_argnames"])
        self._aim(self._planned)

    def _aim(self, target: Callable[..., Any]) -> None:
        """Sets what a call runs."""
        set_state: Any = super().__setstate__  # type: ignore[misc]
        set_state((target, (), {}, self.__dict__))

    def _noting(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn`; when jax traces it, which it does for a new signature, the next call looks for a plan."""

        @functools.wraps(fn)
        def noting(*args: Any, **kwargs: Any) -> Any:
            self._aim(self._planned)
            return fn(*args, **kwargs)

        return noting

    def _run_watched(self, *args: Any, **kwargs: Any) -> Any:
        """The single device, for what the caller has jitted: its traces cannot be noted, but counted."""
        result = self._jitted(*args, **kwargs)
        if self._size() != self._known_size:
            self._aim(self._planned)
        return result

    def _settle(self) -> None:
        """While nothing is placed, a call costs what `jax.jit` costs."""
        if any(plan.program is not None for plan in self._plans.values()):
            return
        self._known_size = self._size()
        if self._known_size is not None or self._single is self._jitted:
            self._aim(self._single)

    def _run_planned(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten(self._dynamic(args, kwargs))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self._jitted(*args, **kwargs)
        try:
            key = (tree, tuple(map(_type, leaves)), self._static(args, kwargs))
            plan = self._plans.get(key)
        except TypeError:
            return self._jitted(*args, **kwargs)  # jax says what it thinks of the arguments
        if plan is None:
            plan = self._plan(key, leaves, args, kwargs)
        if plan.program is None:
            result = self._jitted(*args, **kwargs)
            self._settle()
            return result
        try:
            results = plan.program(leaves)
            if self._options.check:
                jax.block_until_ready(results)
        except Exception as error:
            return self._recover(key, error, args, kwargs)
        return jax.tree.unflatten(plan.out_tree, results)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """One plan per signature that is remembered, in order of first use."""
        return tuple(self._plans.values())

    def lose_device(self, device: Any) -> None:
        """Leaves a device out from now on; every signature is planned anew.

        Raises:
            ConfigError: it is the only one, or not in use.
        """
        with self._lock:
            left = tuple(d for d in self.devices if d != device)
            if not left or len(left) == len(self.devices):
                raise ConfigError(
                    what=f"cannot leave out {device}",
                    where="place",
                    fix="Name a device in use that is not the only one.",
                )
            self.devices = left
            self._copies = PlacedCopies()
            self._plans.clear()
            self._aim(self._planned)  # jax knows the signatures, and would not trace them again

    def _dynamic(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._static_numbers and not self._static_names:
            return args, kwargs
        numbers = {n % len(args) for n in self._static_numbers if -len(args) <= n < len(args)}
        return (
            tuple(a for n, a in enumerate(args) if n not in numbers),
            {k: v for k, v in kwargs.items() if k not in self._static_names},
        )

    def _static(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        numbers = tuple(args[n] for n in self._static_numbers if -len(args) <= n < len(args))
        return (
            len(args),
            numbers,
            tuple((k, kwargs[k]) for k in self._static_names if k in kwargs),
        )

    def _plan(self, key: Any, leaves: list[Any], args: Any, kwargs: Any) -> Plan:
        with self._lock:
            plan = self._plans.get(key)
            if plan is not None:
                return plan
            start = time.perf_counter()
            try:
                plan = self._make(leaves, args, kwargs)
                outcome = Outcome.PLACED if plan.program is not None else Outcome.KEPT
            except UnsupportedModuleError as error:
                plan, outcome = self._one(error.rule), Outcome.FELL_BACK
            except GraphOptError:
                raise  # a mistake in what the user passed, such as an unknown policy
            except Exception as error:
                _logger.warning("%s: placement failed; it runs on one device", self._name)
                plan = self._one(f"{type(error).__name__}: {error}"[:200])
                outcome = Outcome.FELL_BACK
            plan.plan_s = time.perf_counter() - start
            self._remember(key, plan, outcome)
            return plan

    def _remember(self, key: Any, plan: Plan, outcome: Outcome) -> None:
        self._plans[key] = plan
        while len(self._plans) > MAX_SIGNATURES:
            self._plans.popitem(last=False)
        reason = f"{plan.reason}, on {len(plan.devices)} devices"
        add_record(ModuleRecord(f"place:{self._name}", outcome, reason, plan.plan_s))

    def _one(self, reason: str) -> Plan:
        return Plan((str(self.devices[0]),), reason)

    def _make(self, leaves: list[Any], args: Any, kwargs: Any) -> Plan:
        if self._policy is None:
            return self._one("no policy")
        if len(self.devices) < 2:
            return self._one("one device")
        trace = self._jitted.trace(*args, **kwargs)
        program = flatten(trace.jaxpr, self._name)
        if program.arguments != len(leaves):
            return self._one("static-arguments")
        traced = build_tasks(program)
        cluster = calibrate(self.devices)
        times = (
            measured_times(traced, leaves, self.devices, cluster) if self._options.profile
            else analytic_times(traced.tasks, cluster)
        )  # fmt: skip
        options = find_candidates(traced, cluster, times, self._policy, self._options.min_gain)
        if not options.found:
            gain = options.single_s / options.best_s if options.best_s > 0 else 0.0
            return self._one(f"no gain expected ({gain:.2f}x)")
        out_tree = jax.tree.structure(trace.out_info)
        failure: Exception | None = None
        best: Plan | None = None
        for candidate in options.found:
            try:
                placed = PlacedProgram(traced, candidate.cut, self.devices, self._copies)
                plan = self._describe(candidate, placed, options.single_s, out_tree)
                if not self._options.measure:
                    return plan
                plan.measured = self._try(plan, leaves, args, kwargs)
            except Exception as error:
                failure = error
                continue
            if plan.measured is not None and (
                best is None or best.measured is None or plan.measured > best.measured
            ):
                best = plan
        if best is not None and best.measured is not None and best.measured >= MIN_MEASURED_GAIN:
            return best
        if best is None and failure is not None:
            raise failure
        return self._one("measured slower than one device")

    def _describe(
        self, candidate: Candidate, placed: PlacedProgram, single_s: float, out_tree: Any
    ) -> Plan:
        used = sorted({s.device for s in candidate.cut.segments})
        return Plan(
            tuple(str(self.devices[d]) for d in used),
            f"by {candidate.name}",
            len(candidate.cut.segments),
            single_s / candidate.predicted.seconds,
            program=placed,
            out_tree=out_tree,
        )

    def _try(self, plan: Plan, leaves: list[Any], args: Any, kwargs: Any) -> float | None:
        """Lower end of the measured speed-up over one device; None if results differ."""
        assert plan.program is not None
        program = plan.program

        def single() -> Any:
            return jax.block_until_ready(self._jitted(*args, **kwargs))

        def spread() -> Any:
            return jax.block_until_ready(program(leaves))

        reference = jax.tree.leaves(single())
        if not compare_outputs(reference, spread(), slack=10.0).equal:
            _logger.warning("%s: results differ when placed; it runs on one device", self._name)
            return None
        return compare(single, spread, budget_s=self._options.budget_s, max_pairs=41).low

    def _recover(self, key: Any, error: Exception, args: Any, kwargs: Any) -> Any:
        """After a failed run: this signature runs on one device from now on."""
        with self._lock:
            reason = f"failed while running: {type(error).__name__}: {error}"[:200]
            self._remember(key, self._one(reason), Outcome.FELL_BACK)
        return self._jitted(*args, **kwargs)


def _has_trace(fn: Any) -> bool:
    return hasattr(fn, "trace") and hasattr(fn, "lower")


def _tuple(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, int | str) else tuple(value)


def _type(leaf: Any) -> Any:
    """What distinguishes arguments for tracing: shape, dtype, weak type."""
    return jax.typeof(leaf)
