"""Finds programs by name: the built-in sets, or ``pkg.module:ATTRIBUTE``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from graphopt.corpus.program import Program
from graphopt.errors import WorkloadError


def builtin_programs() -> dict[str, Program]:
    """All programs that ship with graphopt, by name."""
    from graphopt.corpus.demo import DEMO
    from graphopt.corpus.fuzzing import FUZZ

    return {program.name: program for program in [*DEMO, *FUZZ]}


def load_programs(spec: str) -> dict[str, Program]:
    """Programs of a specification.

    Args:
        spec: ``demo``, ``fuzz``, or ``pkg.module:ATTRIBUTE`` naming a dict from name to builder; a builder
            takes no arguments and returns ``(fn, args)``. Modules are also looked up in the current
            directory.

    Raises:
        WorkloadError: it cannot be imported or is no such dict.
    """
    if spec in ("demo", "fuzz"):
        from graphopt.corpus.demo import DEMO
        from graphopt.corpus.fuzzing import FUZZ

        return {program.name: program for program in (DEMO if spec == "demo" else FUZZ)}
    attribute = load_attribute(spec)
    if not isinstance(attribute, Mapping):
        raise _error(spec, f"is a {type(attribute).__name__}, not a dict from name to builder")
    return {name: _program(spec, name, builder) for name, builder in attribute.items()}


def load_attribute(spec: str) -> Any:
    """The object that ``pkg.module:ATTRIBUTE`` names.

    Raises:
        WorkloadError: it cannot be imported or found.
    """
    module_name, colon, attribute = spec.partition(":")
    if not colon or not module_name or not attribute:
        raise _error(spec, "is not of the form pkg.module:ATTRIBUTE")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise _error(spec, f"cannot be imported: {type(error).__name__}: {error}") from error
    if not hasattr(module, attribute):
        raise _error(spec, f"has no attribute {attribute}")
    return getattr(module, attribute)


def _program(spec: str, name: str, builder: Callable[[], Any]) -> Program:
    if not callable(builder):
        raise _error(spec, f"holds {name!r}, which is not a builder function")
    label = "".join(c if c.isalnum() or c in "-_" else "-" for c in name.lower())
    return Program(name=label, family="user", build=builder, description=f"{name} of {spec}")


def _error(spec: str, what: str) -> WorkloadError:
    return WorkloadError(
        what=f"{spec} {what}", where=spec, fix="Name a dict: pkg.module:WORKLOADS."
    )
