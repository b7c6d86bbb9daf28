"""A traced function as one flat list of equations: nested jits inlined, control flow left whole.

Placement cuts here, at the level of jax's own program form, and not in compiled HLO: each piece is
then an ordinary function that `jax.jit` compiles for whatever device it is given, with the plugin's
rewrite if it is a CPU; pytrees, closures and static arguments have been dealt with by jax's tracing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
from jax.extend import core

from graphopt.errors import UnsupportedModuleError

_INLINED: Final = {
    "jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}  # fmt: skip
"""Calls that mean nothing but their body once tracing is over, and the parameter that holds it."""

_REFUSED: Final = {
    "sharding_constraint": "sharded", "reshard": "sharded", "shard_map": "sharded",
    "xla_pmap": "sharded", "mesh_cast": "sharded", "psum": "collective", "psum2": "collective",
    "all_gather": "collective", "all_to_all": "collective", "ppermute": "collective",
    "reduce_scatter": "collective",
}  # fmt: skip
"""Primitives of programs that already say where things are -> rule name."""

_LAYER: Final = re.compile(r"layer_?(\d+)")


@dataclass(frozen=True)
class Equation:
    """One application of a primitive.

    Attributes:
        eqn: jax's equation: primitive, parameters, context; its variables are not used.
        inputs: value numbers, or literals.
        outputs: value numbers.
        layer: number in a ``layer3``-like name scope around it; -1 without one.
    """

    eqn: Any
    inputs: tuple[int | Any, ...]
    outputs: tuple[int, ...]
    layer: int

    @property
    def name(self) -> str:
        """Name of the primitive."""
        return str(self.eqn.primitive.name)

    @property
    def used(self) -> tuple[int, ...]:
        """Value numbers among the inputs, each once, in order."""
        return tuple(dict.fromkeys(v for v in self.inputs if isinstance(v, int)))


@dataclass(frozen=True)
class FlatProgram:
    """A traced function. Values are numbered: constants, then arguments, then results in order.

    Attributes:
        name: of the function.
        avals: abstract value of every value number.
        constants: concrete arrays that the function closes over; values ``0..len-1``.
        arguments: number of flat arguments; values after the constants.
        equations: in a valid order.
        outputs: value numbers or literals of the flat results.
    """

    name: str
    avals: tuple[Any, ...]
    constants: tuple[Any, ...]
    arguments: int
    equations: tuple[Equation, ...]
    outputs: tuple[int | Any, ...]

    @property
    def inputs(self) -> int:
        """Number of constants and arguments together."""
        return len(self.constants) + self.arguments


def flatten(closed: Any, name: str) -> FlatProgram:
    """Flattens a closed jaxpr.

    Raises:
        UnsupportedModuleError: it has side effects, or already says where things are; rules
            ``effects``, ``sharded``, ``collective``, ``explicit-device``.
    """
    if closed.effects:
        raise _unsupported("effects", f"side effects {sorted(map(str, closed.effects))}", name)
    flattener = _Flattener(name)
    inputs = [flattener.new(v.aval) for v in (*closed.jaxpr.constvars, *closed.jaxpr.invars)]
    results = flattener.add(closed.jaxpr, inputs, -1)
    return FlatProgram(
        name, tuple(flattener.avals), tuple(closed.consts), len(closed.jaxpr.invars),
        tuple(flattener.equations), tuple(results),
    )  # fmt: skip


class _Flattener:
    def __init__(self, name: str) -> None:
        self.name = name
        self.avals: list[Any] = []
        self.equations: list[Equation] = []

    def new(self, aval: Any) -> int:
        self.avals.append(aval)
        return len(self.avals) - 1

    def add(self, jaxpr: Any, inputs: Sequence[int | Any], layer: int) -> list[int | Any]:
        """Appends a jaxpr's equations; returns what its results are."""
        env: dict[Any, int | Any] = dict(
            zip((*jaxpr.constvars, *jaxpr.invars), inputs, strict=True)
        )

        def read(atom: Any) -> int | Any:
            return atom if isinstance(atom, core.Literal) else env[atom]

        for eqn in jaxpr.eqns:
            self._check(eqn)
            values = [read(atom) for atom in eqn.invars]
            inner_layer = _layer_of(eqn, layer)
            body = _INLINED.get(eqn.primitive.name)
            if body is not None:
                closed = eqn.params[body]
                constants = [self._constant(c) for c in getattr(closed, "consts", ())]
                inner = getattr(closed, "jaxpr", closed)
                outs = self.add(inner, [*constants, *values], inner_layer)
            else:
                numbers = [self.new(v.aval) for v in eqn.outvars]
                equation = Equation(eqn, tuple(values), tuple(numbers), inner_layer)
                self.equations.append(equation)
                outs = list(numbers)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _constant(self, value: Any) -> Any:
        raise _unsupported("nested-constants", "constants inside a nested call", self.name)

    def _check(self, eqn: Any) -> None:
        name, params = eqn.primitive.name, eqn.params
        if name in _REFUSED:
            raise _unsupported(_REFUSED[name], f"operation {name}", self.name)
        if name == "device_put" and any(d is not None for d in params["devices"]):
            raise _unsupported("explicit-device", "device_put to a named device", self.name)
        if name in ("jit", "pjit"):
            specified = [*params["in_shardings"], *params["out_shardings"]]
            if any(type(s).__name__ != "UnspecifiedValue" for s in specified):
                raise _unsupported("sharded", "a nested jit with shardings", self.name)


def _layer_of(eqn: Any, outside: int) -> int:
    found = _LAYER.findall(str(eqn.source_info.name_stack))
    return int(found[-1]) if found else outside


def _unsupported(rule: str, what: str, name: str) -> UnsupportedModuleError:
    return UnsupportedModuleError(
        what=f"cannot be placed on several devices: {what}", where=name,
        fix="It runs on one device.", rule=rule,
    )  # fmt: skip


def evaluate(
    equations: Sequence[Equation], env: dict[int, Any], *, scope: str | None = None
) -> None:
    """Applies equations to concrete or traced values, in place.

    Args:
        equations: in a valid order.
        env: value number -> value; results are added.
        scope: with it, equation ``i`` of a program is traced in a name scope ``<scope><i>``, so that
            the compiled module's instructions tell where they come from; `outputs[0]` is the number.
    """
    for equation in equations:
        eqn = equation.eqn
        values = [env[v] if isinstance(v, int) else v.val for v in equation.inputs]
        bind, params = eqn.primitive.bind, eqn.primitive.get_bind_params(eqn.params)
        with eqn.ctx.manager:
            if scope is None:
                results = bind(*values, **params)
            else:
                with jax.named_scope(f"{scope}{equation.outputs[0]}"):
                    results = bind(*values, **params)
        many = eqn.primitive.multiple_results
        env.update(zip(equation.outputs, results if many else (results,), strict=True))
