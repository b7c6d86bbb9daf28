"""How jax lowers primitives for the CPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from graphopt.jax_private import names

_LEVELS = 8
"""Programs around an equation that are looked at."""


@dataclass(frozen=True)
class LoweringEntry:
    """How jax lowers a primitive.

    Attributes:
        rule: the function that does it.
        inline: written where it is used; otherwise as a function of the module.
    """

    rule: Callable[..., Any]
    inline: bool


def find_primitive(name: str) -> Any | None:
    """The primitive of a name that jax lowers on the CPU; None when there is none."""
    for table in _lowering_tables():
        for primitive in tuple(table):
            if primitive.name == name:
                return primitive
    return None


def lowering_entry(primitive: Any) -> LoweringEntry | None:
    """How jax lowers a primitive for the CPU now; None when the names have moved."""
    found = next((t[primitive] for t in _lowering_tables() if primitive in t), None)
    if found is None:
        return None
    return LoweringEntry(found.rule, bool(getattr(found, "inline", True)))


def common_rule(primitive: Any) -> Callable[..., Any] | None:
    """The rule by which jax lowers a primitive on platforms without a rule of their own, now."""
    general = names.find_private(names.MLIR, "_lowerings")
    found = None if general is None else general.get(primitive)
    return None if found is None else found.rule


def own_cpu_entry(primitive: Any) -> Any | None:
    """jax's entry for a primitive that holds for the CPU only, as `set_cpu_entry` takes it."""
    tables = names.find_private(names.MLIR, "_platform_specific_lowerings")
    return None if tables is None else tables["cpu"].get(primitive)


def set_cpu_entry(primitive: Any, entry: Any | None) -> None:
    """Makes jax lower a primitive for the CPU by an entry; None: as on every platform."""
    tables = names.require_private(names.MLIR, "_platform_specific_lowerings")
    if entry is None:
        tables["cpu"].pop(primitive, None)
    else:
        tables["cpu"][primitive] = entry


def _lowering_tables() -> list[Any]:
    """jax's tables of lowering rules, those of the CPU first."""
    special = names.find_private(names.MLIR, "_platform_specific_lowerings")
    general = names.find_private(names.MLIR, "_lowerings")
    return [] if special is None or general is None else [special["cpu"], general]


def lowers_for_one_cpu(context: Any) -> bool:
    """Whether a lowering rule writes a module that this process runs on one device.

    False for exported modules, which others may run, for several devices, for what is to be computed
    elsewhere, and when the names have moved.
    """
    module = getattr(context, "module_context", None)
    parameters = getattr(module, "lowering_parameters", None)
    if module is None or getattr(parameters, "for_export", True):
        return False
    if tuple(getattr(module, "platforms", ())) != ("cpu",):
        return False
    equation = getattr(context, "jaxpr_eqn_ctx", None)
    if getattr(equation, "compute_type", None) is not None:
        return False
    axes = getattr(module, "axis_context", None)
    devices = getattr(axes, "num_devices", None)
    return devices == 1


def lowered_equations() -> list[tuple[Any, Any]]:
    """The program and its equation for which a rule is called, then those around it.

    jax hands a rule types and parameters. What it lowers stands in the functions that go through programs.
    Empty where it does not.
    """
    found: list[tuple[Any, Any]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < _LEVELS:
        if frame.f_code.co_name == "jaxpr_subcomp" and frame.f_globals["__name__"] == names.MLIR:
            level = frame.f_locals.get("jaxpr"), frame.f_locals.get("eqn")
            if None in level:
                break
            found.append(level)
        frame = frame.f_back
    return found


def lowered_apart(context: Any) -> Any:
    """A lowering rule's context whose lowered equations and functions are shared with no other.

    What is lowered under it does not become what jax writes for equal equations elsewhere in the module.
    The context itself when the names have moved.
    """
    module = context.module_context
    try:
        apart = module.replace(lowering_cache={}, cached_primitive_lowerings={})
        return context.replace(module_context=apart)
    except (AttributeError, TypeError):
        return context
