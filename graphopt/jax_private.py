"""Everything graphopt takes from jax that jax does not promise to keep.

This is the only module that may name `jax._src` or `jaxlib._hlo`. `PRIVATE_NAMES` lists what is
used; each function says what happens when its name has moved, and `tests/test_jax_private.py` fails
for every one that has. Nothing here imports jax before a function is called.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from graphopt.errors import ModuleFormatError, UnsupportedJaxError

_CACHE_KEY = "jax._src.cache_key"
_XLA_BRIDGE = "jax._src.xla_bridge"
_HLO = "jaxlib._hlo"
_COMPILER = "jax._src.compiler"
_CORE = "jax._src.core"
_JAXLIB = "jaxlib._jax"
_XLA_CLIENT = "jaxlib.xla_client"

PRIVATE_NAMES: tuple[tuple[str, str], ...] = (
    (_CACHE_KEY, "custom_hook"),
    (_XLA_BRIDGE, "backends_are_initialized"),
    (_HLO, "HloModule"),
    (_HLO, "HloPrintOptions"),
    (_HLO, "hlo_module_from_text"),
    (_COMPILER, "compile_or_get_cached"),
    (_COMPILER, "backend_compile_and_load"),
    (_CORE, "trace_state_clean"),
    (_JAXLIB, "ArrayImpl"),
    (_XLA_CLIENT, "batched_copy_array_to_devices_with_sharding"),
    (_XLA_CLIENT, "ArrayCopySemantics"),
)
"""The private names in use, as (module, attribute)."""


def find_private(module: str, attribute: str) -> Any | None:
    """Return a private object, or None when its module or its name is gone."""
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return None


def _require_private(module: str, attribute: str) -> Any:
    found = find_private(module, attribute)
    if found is None:
        raise UnsupportedJaxError(
            what=f"{module}.{attribute} does not exist in this version of jax",
            where="graphopt.jax_private",
            fix="Install a jax and jaxlib in the range that graphopt's metadata names.",
        )
    return found


class _KeyHook:
    """A cache-key hook that adds graphopt's text to whatever the hook before it returns."""

    def __init__(self, previous: Callable[[], str], text: Callable[[], str] | None) -> None:
        self.previous = previous
        self.text = text  # None: adds nothing
        self.was_called = False

    def __call__(self) -> str:
        self.was_called = True
        before = self.previous()
        private = getattr(_private_key, "text", None)
        if private is not None:
            return f"{before}[graphopt:{private}]"
        text = self.text  # read once: a compile in another thread may run while it is changed
        return before if text is None else f"{before}[graphopt:{text()}]"


_lock = threading.Lock()
_key_hook: _KeyHook | None = None
_private_key = threading.local()
_private_users = 0


def set_cache_key_hook(text: str | Callable[[], str]) -> bool:
    """Make `text` part of every key of jax's persistent compilation cache.

    A hook that is already there keeps its say; a second call replaces only graphopt's part.

    Args:
        text: what to add, or a function asked for it at every compile, in the compiling thread.

    Returns:
        Whether the keys now carry the text. False when jax no longer has the hook: entries made
        with and without graphopt are then not told apart, so the caller must isolate the cache.
    """
    global _key_hook
    provider = text if callable(text) else lambda: text
    with _lock:
        cache_key = _cache_key_module()
        if cache_key is None:
            return False
        if _key_hook is not None and _is_called(cache_key, _key_hook):
            _key_hook.text = provider
        else:  # the first call, or somebody replaced the hook without calling ours
            _key_hook = _KeyHook(cache_key.custom_hook, provider)
            cache_key.custom_hook = _key_hook
    return True


@contextmanager
def private_cache_entries(text: str) -> Iterator[None]:
    """Within it, what this thread compiles has cache entries of its own, whatever else is set.

    Does nothing when jax no longer has the hook.
    """
    global _key_hook
    global _private_users
    with _lock:
        _private_users += 1
        cache_key = _cache_key_module()
        if cache_key is not None and (_key_hook is None or not _is_called(cache_key, _key_hook)):
            text_before = None if _key_hook is None else _key_hook.text
            _key_hook = _KeyHook(cache_key.custom_hook, text_before)
            cache_key.custom_hook = _key_hook
    _private_key.text = text
    try:
        yield
    finally:
        _private_key.text = None
        with _lock:
            _private_users -= 1
            if _key_hook is not None and _key_hook.text is None:
                _remove_key_hook()


def reset_cache_key_hook() -> None:
    """Take graphopt's text out of the cache keys again; a hook that others set stays.

    Does nothing when no text was set, or when jax no longer has the hook.
    """
    global _key_hook
    with _lock:
        if _key_hook is None:
            return
        _key_hook.text = None
        _remove_key_hook()


def _remove_key_hook() -> None:
    """Restore the hook before ours, unless a thread still has private entries.

    A later hook may call ours. Then ours stays where it is, adding nothing, for the next set.
    """
    global _key_hook
    cache_key = _cache_key_module()
    if _private_users or cache_key is None or _key_hook is None:
        return
    if cache_key.custom_hook is _key_hook:
        cache_key.custom_hook = _key_hook.previous
        _key_hook = None


def _cache_key_module() -> Any | None:
    if not callable(find_private(_CACHE_KEY, "custom_hook")):
        return None
    return sys.modules[_CACHE_KEY]


def _is_called(cache_key: Any, hook: _KeyHook) -> bool:
    """Whether jax's hook calls `hook`, directly or through hooks that others put around it."""
    hook.was_called = False
    cache_key.custom_hook()
    return hook.was_called


_COMPILE = "backend_compile_and_load"
_compile_before: Callable[..., Any] | None = None
"""jax's own function while a watcher stands around it."""


def watch_compiles(
    begin: Callable[[], int] | None, withdraw: Callable[[str, int, Exception], bool] | None
) -> bool:
    """Repeats a compile that failed, once, if a watcher says that it is worth it; None ends the watch.

    Args:
        begin: called before a compile; what it returns is handed to `withdraw`.
        withdraw: called with the module's name, that value and the error; True repeats the compile.

    Returns:
        Whether compiles are watched now. False when the name has moved: errors then reach the user.
    """
    global _compile_before
    with _lock:
        original = _compile_before or find_private(_COMPILER, _COMPILE)
        if original is None:
            return False
        compiler = sys.modules[_COMPILER]
        if begin is None or withdraw is None:
            if _compile_before is not None:
                setattr(compiler, _COMPILE, _compile_before)
                _compile_before = None
            return False
        _compile_before = original
        setattr(compiler, _COMPILE, functools.partial(_watched, original, begin, withdraw))
        return True


def _watched(
    compile_and_load: Callable[..., Any],
    begin: Callable[[], int],
    withdraw: Callable[[str, int, Exception], bool],
    *args: Any,
    **options: Any,
) -> Any:
    begun = begin()
    try:
        return compile_and_load(*args, **options)
    except Exception as error:
        if not withdraw(_compiled_name(args, options), begun, error):
            raise
    return compile_and_load(*args, **options)


def _compiled_name(args: tuple[Any, ...], options: dict[str, Any]) -> str:
    """Name of the module that is compiled; empty when jax passes it in another way."""
    module = options.get("module", args[1] if len(args) > 1 else None)
    try:
        return str(module.operation.attributes["sym_name"].value)  # type: ignore[union-attr]
    except (AttributeError, KeyError):
        return ""


def hlo_text(module_bytes: bytes, *, large_constants: bool = True) -> str:
    """Return a serialized HloModuleProto as HLO text.

    Args:
        module_bytes: the serialized module.
        large_constants: print constants of more than ten elements in full. Without it they become
            `{...}`: easier to read, but no longer the same module.

    Raises:
        ModuleFormatError: the bytes are not a module.
        UnsupportedJaxError: jaxlib's HLO printer has moved.
    """
    module_type = _require_private(_HLO, "HloModule")
    options = _require_private(_HLO, "HloPrintOptions")()
    options.print_large_constants = large_constants
    try:
        module = module_type.from_serialized_hlo_module_proto(module_bytes)
    except (RuntimeError, TypeError) as error:
        raise ModuleFormatError(
            what=f"the bytes are not a serialized HLO module: {_reason(error)}",
            where=_size(module_bytes, "bytes"),
            fix="Pass what the HLO hook or a capture file holds, unchanged.",
        ) from error
    return str(module.to_string(options))


def hlo_from_text(text: str) -> bytes:
    """Return HLO text as a serialized HloModuleProto.

    For text that XLA printed or a developer wrote. The parser reports most mistakes, but some, such
    as a tuple instruction of array shape, end the process.

    Raises:
        ModuleFormatError: the text is not a module.
        UnsupportedJaxError: jaxlib's HLO parser has moved.
    """
    parse = _require_private(_HLO, "hlo_module_from_text")
    try:
        module = parse(text)
    except (RuntimeError, TypeError) as error:
        raise ModuleFormatError(
            what=f"the text is not an HLO module: {_reason(error)}",
            where=_size(text, "characters"),
            fix="Print modules with graphopt.jax_private.hlo_text, or correct the text there.",
        ) from error
    return bytes(module.as_serialized_hlo_module_proto())


def _reason(error: Exception) -> str:
    """The line of XLA's message that says what is wrong: the parser puts it second."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line for line in lines if "error:" in line), lines[0]).strip().rstrip(".:")


def _size(data: object, unit: str) -> str:
    return f"{len(data):,} {unit}" if isinstance(data, bytes | str) else f"a {type(data).__name__}"


def backends_initialized() -> bool:
    """Return whether jax has already set up its devices, without setting them up.

    When the name has moved, the answer is True as soon as jax is imported: callers warn by it that
    something may have been compiled already, and a needless warning is the smaller harm.
    """
    if "jax" not in sys.modules:
        return False
    ask = find_private(_XLA_BRIDGE, "backends_are_initialized")
    return True if ask is None else bool(ask())


def is_tracing() -> bool:
    """Return whether this thread is inside a jax transformation; True when the name has moved."""
    clean = find_private(_CORE, "trace_state_clean")
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
    return frame.f_globals.get("__name__") == _COMPILER


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
    copy = find_private(_XLA_CLIENT, "batched_copy_array_to_devices_with_sharding")
    semantics = find_private(_XLA_CLIENT, "ArrayCopySemantics")
    plain = find_private(_JAXLIB, "ArrayImpl")
    if copy is None or semantics is None or plain is None:
        return None
    return copy, semantics.REUSE_INPUT, plain
