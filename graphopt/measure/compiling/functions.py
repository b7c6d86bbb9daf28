"""Compiles a jittable function with a rewrite of our choice, without touching jit caches."""

from __future__ import annotations

import contextlib
import functools
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import jax

from graphopt import forms as own_forms
from graphopt import jax_private, xla_hook
from graphopt.errors import MeasureError
from graphopt.signals import handed_on

Transform = Callable[[bytes], bytes | None]
"""Module bytes as the hook receives them -> replacement, or None for XLA's default."""


UNOPTIMIZED: Final[Mapping[str, str]] = MappingProxyType({"xla_backend_optimization_level": "0"})
"""Options for a compile that rounds otherwise: LLVM contracts and vectorizes nothing then."""


@dataclass
class Compiled:
    """An executable with the arguments it was lowered for.

    Attributes:
        executable: callable with the lowered arguments' structure.
        args: concrete arguments.
        compile_s: seconds from HLO to executable, the transform included.
        transform_s: seconds spent in the transform.
        modules: bytes of every module the hook saw.
        forms: names of the forms of operations in it, each once.
        recompile: compiles the same with other options of XLA's; None where it is not one executable.
    """

    executable: Any
    args: tuple[Any, ...]
    compile_s: float
    transform_s: float = 0.0
    modules: list[bytes] = field(default_factory=list)
    forms: tuple[str, ...] = ()
    recompile: Callable[[Mapping[str, str]], Compiled] | None = None

    def __call__(self) -> Any:
        """Runs once and waits for the result."""
        result = self.executable(*self.args)
        jax.block_until_ready(result)
        return result


def unoptimized(compiled: Compiled) -> Callable[[], Callable[..., Any]] | None:
    """Compiles a program anew, in a way that rounds otherwise, when it is called; None if that cannot be."""
    again = compiled.recompile
    return None if again is None else lambda: again(UNOPTIMIZED).executable


def compile_with(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    transform: Transform | None = None,
    forms: bool = False,
) -> Compiled:
    """Compiles ``fn(*args)`` anew, passing its module through `transform`.

    The module has a name of its own, so that what other threads compile meanwhile is not touched.
    See `compile_lowered` for the rest.
    """
    name = f"graphopt_measured_{uuid.uuid4().hex}"

    def wrapped(*arguments: Any) -> Any:
        return fn(*arguments)

    wrapped.__name__ = wrapped.__qualname__ = name
    return compile_lowered(lambda: jax.jit(wrapped).lower(*args), args, transform, forms=forms)


_STOP: Final = b"\xff"
"""No module: XLA gives up the compile where it reads the hook's answer, before it generates code."""


def modules_of(fn: Callable[..., Any], args: tuple[Any, ...], forms: bool = False) -> list[bytes]:
    """Modules of ``fn(*args)`` as the hook receives them; no code is generated for them.

    Most of a compile is code generation, so this takes a fraction of `compile_with`.

    Args:
        fn: jittable.
        args: arguments; only their shapes and types count.
        forms: see `compile_lowered`.

    Raises:
        jax.errors.JaxRuntimeError: XLA refuses the program before it asks the hook.
    """
    seen: list[bytes] = []

    def note(data: bytes) -> bytes:
        seen.append(data)
        return _STOP

    try:
        compile_with(fn, args, note, forms=forms)
    except jax.errors.JaxRuntimeError:
        if not seen:
            raise
    return seen


def compile_lowered(
    lower: Callable[[], Any],
    args: tuple[Any, ...],
    transform: Transform | None = None,
    options: Mapping[str, str] | None = None,
    forms: bool = False,
) -> Compiled:
    """Compiles what `lower` returns (a fresh ``jax.stages.Lowered``), its module through `transform`.

    An exception of the transform is raised here, after XLA has compiled its default; it never
    travels through XLA. An installed plugin does not touch the module, and the persistent cache is
    bypassed.

    Args:
        lower: lowers the program; traced anew at every call, so that no cache of jax has its code.
        args: what the executable will be called with (no static arguments).
        transform: see `Transform`; None keeps XLA's default.
        options: XLA compile options.
        forms: lower operations in their best forms, as under `graphopt.install`; otherwise as jax does,
            whatever is installed.

    Raises:
        MeasureError: see `refuse_forked`.
    """
    refuse_forked()
    with trace_context(uuid.uuid4().hex), lowering(forms) as choices:
        lowered = lower()
    modules: list[bytes] = []
    errors: list[Exception] = []
    spent = 0.0

    def handler(data: bytes) -> bytes | None:
        """Notes the module, and answers with the transformed one."""
        nonlocal spent
        modules.append(data)
        if transform is None:
            return None
        start = time.perf_counter()
        try:
            return transform(data)
        except Exception as error:
            errors.append(error)
            return None
        finally:
            spent += time.perf_counter() - start

    subscription = xla_hook.subscribe(handler, module_name=lowered_name(lowered))
    try:
        with jax_private.private_cache_entries(uuid.uuid4().hex):
            start = time.perf_counter()
            with handed_on():
                executable = lowered.compile(compiler_options=dict(options) if options else None)
            elapsed = time.perf_counter() - start
    finally:
        subscription.close()
    if errors:
        raise errors[0]
    again = functools.partial(compile_lowered, lower, args, transform, forms=forms)
    return Compiled(executable, args, elapsed, spent, modules, form_names(choices), again)


@functools.cache
def _first_process() -> int:
    """Id of the process that compiled first, also for processes forked from it."""
    return os.getpid()


def refuse_forked() -> None:
    """Called before a program is built and compiled.

    Raises:
        MeasureError: this process was forked from one that had compiled: XLA's threads stayed there, and a
            compile, or an operation, would wait for them for ever.
    """
    if _first_process() != os.getpid():
        raise MeasureError(
            what="this process was forked from one that had compiled, and XLA does not survive a fork",
            where=f"process {os.getpid()}",
            fix='Start processes anew: multiprocessing.get_context("spawn"), or context="spawn" for '
            "Gymnasium's vector environments.",
        )


@contextlib.contextmanager
def lowering(forms: bool) -> Iterator[list[own_forms.Choice]]:
    """Within it, this thread lowers operations in their best forms, or all as jax does by itself.

    Yields:
        a list that takes in every choice of a form.
    """
    if forms:
        with own_forms.enabled() as choices:
            yield choices
    else:
        with own_forms.disabled():
            yield []


def form_names(choices: Iterable[own_forms.Choice]) -> tuple[str, ...]:
    """Names of the forms that were chosen, each once."""
    return tuple(dict.fromkeys(c.form.name for c in choices if c.form is not None))


@functools.cache
def _user_context() -> Any:
    return jax.make_user_context(default_value=None)


def trace_context(token: str) -> contextlib.AbstractContextManager[Any]:
    """A context in which jax's caches hold only what was compiled under the same token.

    Without it, lowering a jitted function a second time finds its first executable again, and the
    transform is never asked.
    """
    context: contextlib.AbstractContextManager[Any] = _user_context()(token)
    return context


def lowered_name(lowered: Any) -> str:
    """Name that the module of a ``Lowered`` will have in XLA."""
    return str(lowered.compiler_ir().operation.attributes["sym_name"].value)
