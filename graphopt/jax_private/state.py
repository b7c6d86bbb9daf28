"""What jax knows of its devices, its traces, its compiled functions and its arrays."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from graphopt.jax_private import names


def backends_initialized() -> bool:
    """Return whether jax has already set up its devices, without setting them up.

    When the name has moved, the answer is True as soon as jax is imported: callers warn by it that
    something may have been compiled already, and a needless warning is the smaller harm.
    """
    if "jax" not in sys.modules:
        return False
    ask = names.find_private(names.XLA_BRIDGE, "backends_are_initialized")
    return True if ask is None else bool(ask())


def is_tracing() -> bool:
    """Return whether this thread is inside a jax transformation; True when the name has moved."""
    clean = names.find_private(names.CORE, "trace_state_clean")
    return True if clean is None else not clean()


def persistent_cache_enabled() -> bool:
    """Return whether jax keeps compiled programs on disk, where they outlive this process.

    Uses public settings only, which cannot move: a cache directory is set, and the cache is on.
    """
    import jax

    config: Any = jax.config  # its settings are attributes that jax's annotations do not list
    return bool(config.jax_enable_compilation_cache and config.jax_compilation_cache_dir)


def kept_arguments(compiled: Any) -> tuple[list[Any], list[int]] | None:
    """Which flat arguments of a ``jax.stages.Compiled`` its module takes as parameters.

    Returns:
        (constants that jax passes before the arguments, indices into constants + flat arguments in
        parameter order); None when the names have moved.
    """
    executable = getattr(compiled, "_executable", None)
    indices = getattr(executable, "_kept_var_idx", None)
    constants = getattr(getattr(compiled, "_params", None), "const_args", None)
    if indices is None or constants is None:
        return None
    return list(constants), sorted(indices)


def static_positions(jitted: Any, count: int) -> tuple[int, ...]:
    """Positions of the static arguments of a jitted function called with `count` arguments.

    Empty when there are none, or when the names have moved.
    """
    info = getattr(jitted, "_jit_info", None)
    found = getattr(info, "static_argnums", None) or ()
    return tuple(sorted(i % count if i < 0 else i for i in found))


def is_compiler_frame(frame: FrameType) -> bool:
    """Return whether a Python frame belongs to jax's compiler; False for all when it has moved."""
    return frame.f_globals.get("__name__") == names.COMPILER


def jit_cache_size(jitted: Any) -> Callable[[], int | None]:
    """Return what tells how many signatures a jitted function holds code for.

    Where jax no longer tells, the answer is always None.
    """
    size: Callable[[], int | None] | None = getattr(jitted, "_cache_size", None)
    return size if size is not None else lambda: None


def copy_arrays(arrays: list[Any], sharding: Any) -> list[Any]:
    """Start copying arrays to the one device of `sharding`; several cost little more than one.

    Falls back to ``jax.device_put``, which does the same at several times the cost per call, when the
    names have moved or an array is not a plain one (typed random keys).
    """
    import jax

    found = _copier()
    devices = getattr(sharding, "_internal_device_list", None)
    if found is None or devices is None or any(type(a) is not found[2] for a in arrays):
        return [jax.device_put(array, sharding) for array in arrays]
    copy, reuse, _ = found
    count = len(arrays)
    copied: list[Any] = copy(arrays, [devices] * count, [sharding] * count, [reuse] * count)
    return copied


@functools.cache
def _copier() -> tuple[Callable[..., Any], Any, type] | None:
    """jaxlib's batched copy, its argument for "may share memory", and the type it takes."""
    copy = names.find_private(names.XLA_CLIENT, "batched_copy_array_to_devices_with_sharding")
    semantics = names.find_private(names.XLA_CLIENT, "ArrayCopySemantics")
    plain = names.find_private(names.JAXLIB, "ArrayImpl")
    if copy is None or semantics is None or plain is None:
        return None
    return copy, semantics.REUSE_INPUT, plain
