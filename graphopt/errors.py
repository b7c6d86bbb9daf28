"""The errors graphopt raises, one class per situation that a user can act on.

Every error says three things, each kept as an attribute: `what` happened, `where`, and how to
`fix` it. All of them survive pickling, because they cross the border to measuring processes.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any, Final


class GraphOptError(Exception):
    """The root of the tree: catch it to catch everything graphopt raises on purpose.

    Attributes:
        what: what happened, without a full stop.
        where: the module, instruction, file or argument it happened in.
        fix: what the user can do about it.
    """

    def __init__(self, *, what: str, where: str, fix: str) -> None:
        super().__init__(f"{what} ({where}). {fix}")
        self.what = what
        self.where = where
        self.fix = fix

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own version calls the class with `args`, which keyword-only parameters refuse.
        # Restoring the attributes instead also covers the fields of subclasses, and notes.
        return _without_init, (type(self), self.args), self.__dict__


def _without_init(kind: type[GraphOptError], args: tuple[str, ...]) -> GraphOptError:
    return kind.__new__(kind, *args)


def message(error: BaseException) -> str:
    """Type and text of an exception, also of one whose text cannot be had."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


class ModuleFormatError(GraphOptError):
    """Raised when bytes or text are not an HLO module that graphopt can read."""


class UnsupportedModuleError(GraphOptError):
    """Raised for a module that was read and understood, but that a rule says to leave alone.

    Attributes:
        rule: name of that rule.
    """

    def __init__(self, *, what: str, where: str, fix: str, rule: str) -> None:
        super().__init__(what=what, where=where, fix=fix)
        self.rule = rule


class DecisionError(GraphOptError):
    """Raised when decisions do not fit their graph: length, dtype, or a value outside the mask.

    Attributes:
        field: the decision field at fault, such as `fuse` or `unit`.
        node: index of the node in the graph, or its instruction's name; None when the whole field
            is at fault.
        rule: name of the legality rule that forbids the value; None when no rule is involved.
    """

    def __init__(
        self,
        *,
        what: str,
        where: str,
        fix: str,
        field: str,
        node: int | str | None = None,
        rule: str | None = None,
    ) -> None:
        super().__init__(what=what, where=where, fix=fix)
        self.field = field
        self.node = node
        self.rule = rule


class VerificationError(GraphOptError):
    """Raised when a rewritten module breaks a static rule; the module is never handed to XLA.

    Attributes:
        rule: name of the broken rule.
        node: name of the instruction that breaks it, or its index; None when it is the module as
            a whole.
    """

    def __init__(
        self, *, what: str, where: str, fix: str, rule: str, node: int | str | None = None
    ) -> None:
        super().__init__(what=what, where=where, fix=fix)
        self.rule = rule
        self.node = node


class PolicyError(GraphOptError):
    """Raised when a policy is unknown, cannot be loaded, or returns something unusable."""


class UnsupportedJaxError(GraphOptError):
    """Raised when the installed jax or jaxlib lacks something graphopt depends on."""


class WorkloadError(GraphOptError):
    """Raised when a `pkg.module:attribute` workload cannot be imported, found or built."""


class ConfigError(GraphOptError):
    """Raised when a setting has a value that graphopt cannot use."""


class MissingExtraError(GraphOptError, ImportError):
    """Raised when something is asked for whose optional dependencies are not installed."""


class StoreError(GraphOptError):
    """Raised when the store or a file of winners cannot be read, written or trusted."""


class MeasureError(GraphOptError):
    """Raised when a module cannot be compiled, run or timed apart from its program."""


_NOT_THE_USERS: Final = ("graphopt", "jax", "jaxlib")
"""Packages whose frames say nothing to the author of a program."""


def own_traceback(error: GraphOptError) -> str:
    """Traceback of the user's program that an error stands on, without frames of graphopt, jax and Python.

    Returns:
        text that ends with a new line; empty where no line of the user's was running.
    """
    cause = error.__cause__
    if cause is None or isinstance(cause, GraphOptError):
        return ""
    found = traceback.TracebackException.from_exception(cause, compact=True)
    found.stack = traceback.StackSummary.from_list([f for f in found.stack if _is_users(f)])
    return "".join(found.format(chain=False)) if found.stack else ""


def _is_users(frame: traceback.FrameSummary) -> bool:
    """Whether a frame is outside of the packages that are not the user's, wherever they are installed."""
    if frame.filename.startswith("<frozen "):
        return False
    packages = (sys.modules.get(name) for name in _NOT_THE_USERS)
    homes = [Path(p.__file__).parent for p in packages if p is not None and p.__file__]
    above = PurePath(frame.filename).parents
    of_python = Path(os.__file__).parent in above and not any(
        p.name == "site-packages" for p in above
    )
    return not of_python and not any(home in above for home in homes)


def exit_status(program: str, run: Callable[[], int]) -> int:
    """What a command returns: `run`'s status, 2 with a message for our errors, 130 after an interrupt.

    Where the user's program raised, its own traceback comes before the message.
    """
    try:
        return run()
    except GraphOptError as error:
        print(f"{own_traceback(error)}{program}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
