"""Finds programs by name: the built-in sets, or ``pkg.module:ATTRIBUTE``."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from graphopt.corpus.program import Built, Program
from graphopt.corpus.registry import SELECTIONS, select_corpus
from graphopt.errors import WorkloadError


def builtin_programs() -> dict[str, Program]:
    """All programs that ship with graphopt, by name."""
    return {name: p for spec in BUILT_IN for name, p in load_programs(spec).items()}


def builtin_program(name: str) -> Program | None:
    """The program of a name that ships with graphopt; None if there is none.

    The corpus is looked at last: its programs need libraries that those of the other sets do not.
    """
    return next((p for s in BUILT_IN if (p := load_programs(s).get(name)) is not None), None)


BUILT_IN: Final = ("demo", "fuzz", "corpus")
"""Program sets that together hold every program that ships with graphopt, each once."""


def find_program(workload: str) -> Program:
    """A built-in program, or that of the builder ``pkg.module:builder``.

    Raises:
        WorkloadError: there is no such program.
    """
    if ":" not in workload and (program := builtin_program(workload)) is not None:
        return program
    builder = load_attribute(workload)
    if not callable(builder):
        raise WorkloadError(
            what=f"{workload} is a {type(builder).__name__}, not a builder function",
            where=workload,
            fix="Name a function that returns (fn, args).",
        )
    return Program(program_name(workload), "user", builder, f"built by {workload}")


def load_programs(spec: str) -> dict[str, Program]:
    """Programs of a specification.

    Args:
        spec: ``demo``, ``fuzz``, ``devices``, ``generated``, one of
            `graphopt.corpus.registry.SELECTIONS` (``corpus``, ``train``, ...), or ``pkg.module:ATTRIBUTE``
            naming a dict from name to builder; a builder takes no arguments and returns ``(fn, args)``.
            Modules are also looked up in the current directory.

    Raises:
        WorkloadError: it cannot be imported or is no such dict.
    """
    if spec in ("demo", "fuzz"):
        from graphopt.corpus.demo import DEMO
        from graphopt.corpus.fuzzing import FUZZ

        return {program.name: program for program in (DEMO if spec == "demo" else FUZZ)}
    if spec in SELECTIONS:
        return select_corpus(spec)
    if spec == "devices":
        from graphopt.corpus.fuzzing.several_devices import DEVICES

        return {program.name: program for program in DEVICES}
    if spec == "generated":
        from graphopt.corpus.fuzzing.generated import generated_programs

        return generated_programs()
    attribute = load_attribute(spec)
    if not isinstance(attribute, Mapping):
        raise _error(spec, f"is a {type(attribute).__name__}, not a dict from name to builder")
    if not attribute:
        raise _error(spec, "holds no programs")
    return {name: _program(spec, name, builder) for name, builder in attribute.items()}


def select_programs(spec: str, names: Sequence[str], where: str) -> dict[str, Program]:
    """Programs of a specification: those named, or all if no name is given.

    Raises:
        WorkloadError: a name is not among them; `where` says who asked.
    """
    programs = load_programs(spec)
    unknown = sorted(set(names) - set(programs))
    if unknown:
        raise WorkloadError(
            what=f"no program {', '.join(unknown)} in {spec}",
            where=where,
            fix=f"Choose from {', '.join(programs)}.",
        )
    return {name: p for name, p in programs.items() if not names or name in names}


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
    except (Exception, SystemExit) as error:
        raise _error(spec, f"cannot be imported: {type(error).__name__}: {error}") from error
    if not hasattr(module, attribute):
        raise _error(spec, f"has no attribute {attribute}")
    return getattr(module, attribute)


def _program(spec: str, name: str, builder: Callable[[], Any]) -> Program:
    if not isinstance(name, str):
        raise _error(spec, f"has a key that is no text: {name!r}")
    if isinstance(builder, Program):
        return builder
    if not callable(builder):
        raise _error(spec, f"holds {name!r}, which is not a builder function")
    return Program(
        name=program_name(name), family="user", build=builder, description=f"a program of {spec}"
    )


def program_name(text: str) -> str:
    """A valid program name made of any text."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    name = "-".join(words)
    return name if name[:1].isalpha() else f"program-{name}".rstrip("-")


def build_program(program: Program, name: str) -> Built:
    """Builds a program that may be a user's.

    Raises:
        WorkloadError: the builder raises, or returns something else than ``(fn, args)``.
    """
    try:
        built = program.build()
    except Exception as error:
        raise _error(name, f"cannot be built: {type(error).__name__}: {error}") from error
    if not (isinstance(built, tuple) and len(built) == 2 and callable(built[0])):
        raise _error(name, f"builds {_shorten(built)}, not (fn, args)")
    if not isinstance(built[1], tuple | list):
        raise _error(name, f"builds arguments of type {type(built[1]).__name__}, not a tuple")
    return built[0], tuple(built[1])


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _error(spec: str, what: str) -> WorkloadError:
    return WorkloadError(
        what=f"{spec} {what}", where=spec, fix="Name a dict: pkg.module:WORKLOADS."
    )
