"""What a corpus program is, and an ordered registry of them.  Does not import jax."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Built = tuple[Callable[..., Any], tuple[Any, ...]]
"""A jittable function and the concrete positional arguments to call it with."""

Builder = Callable[[], Built]

_WORD = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")


@dataclass(frozen=True)
class Program:
    """A named, deterministic, jittable workload.

    Attributes:
        name: Lower-case words joined by dashes or underscores, unique within its set.
        family: The kind of workload, spelled like a name (``"loop"``, ``"grad"``, ...).
        build: Returns ``(fn, args)``.  ``fn(*args)`` can be jitted and returns a pytree of
            arrays; ``args`` is a tuple of pytrees of concrete numpy or jax arrays, of any shape
            and of dtypes up to 32 bits per real number.  Every call returns equal arguments.
        description: One line that says what is computed, with its main shapes and dtypes.
        chaotic: Whether rounding errors grow until results stop being comparable within a
            tolerance, so that only finiteness and shapes may be compared.
        gradient: Whether the program differentiates something.
        loops: Whether the module that XLA compiles has loops that are the program's own.
    """

    name: str
    family: str
    build: Builder
    description: str
    chaotic: bool = False
    gradient: bool = False
    loops: bool = False

    def __call__(self) -> Built:
        """Build the program, so that a program can be used where a builder is expected."""
        return self.build()

    def __post_init__(self) -> None:
        """Check the invariants stated for the attributes.

        Raises:
            ValueError: The name or the family is malformed, or the description is not one line.
            TypeError: ``build`` cannot be called.
        """
        for field, word in (("name", self.name), ("family", self.family)):
            if not _WORD.fullmatch(word):
                raise ValueError(
                    f"program {field} {word!r} is not lower-case words joined by '-' or '_'"
                )
        if not self.description.strip() or "\n" in self.description:
            raise ValueError(f"program {self.name!r} needs a description of exactly one line")
        if not callable(self.build):
            raise TypeError(f"program {self.name!r} has a builder that cannot be called")


class ProgramSet:
    """Programs by name, in the order in which they were registered."""

    def __init__(self) -> None:
        """Start with no programs."""
        self._programs: dict[str, Program] = {}

    def register(
        self, name: str, *, family: str, description: str, chaotic: bool = False
    ) -> Callable[[Builder], Builder]:
        """Return a decorator that adds a builder as a program and leaves it unchanged.

        Args:
            name: See :attr:`Program.name`.
            family: See :attr:`Program.family`.
            description: See :attr:`Program.description`.
            chaotic: See :attr:`Program.chaotic`.

        Raises:
            ValueError: When applied, if the name is taken or an argument is malformed.
        """

        def add(build: Builder) -> Builder:
            self.add(Program(name, family, build, description, chaotic))
            return build

        return add

    def add(self, program: Program) -> None:
        """Add a program.

        Raises:
            ValueError: The name is taken.
        """
        if program.name in self._programs:
            raise ValueError(f"a program named {program.name!r} is already registered")
        self._programs[program.name] = program

    def names(self) -> tuple[str, ...]:
        """Return the names in registration order."""
        return tuple(self._programs)

    def __getitem__(self, name: str) -> Program:
        """Return the program called ``name``.

        Raises:
            KeyError: There is none; the message lists the names that exist.
        """
        try:
            return self._programs[name]
        except KeyError:
            known = ", ".join(self._programs) or "none"
            raise KeyError(f"no program named {name!r}; registered: {known}") from None

    def __iter__(self) -> Iterator[Program]:
        """Iterate over the programs (not their names) in registration order."""
        return iter(self._programs.values())

    def __len__(self) -> int:
        """Return how many programs are registered."""
        return len(self._programs)

    def __contains__(self, name: object) -> bool:
        """Return whether a program is called ``name``."""
        return name in self._programs

    def __or__(self, other: ProgramSet) -> ProgramSet:
        """The programs of both sets, this one's first.

        Raises:
            ValueError: A name is in both.
        """
        union = ProgramSet()
        for program in (*self, *other):
            union.add(program)
        return union
