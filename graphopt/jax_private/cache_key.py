"""graphopt's part of the keys of jax's persistent compilation cache."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from graphopt.jax_private import names


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
    if not callable(names.find_private(names.CACHE_KEY, "custom_hook")):
        return None
    return sys.modules[names.CACHE_KEY]


def _is_called(cache_key: Any, hook: _KeyHook) -> bool:
    """Whether jax's hook calls `hook`, directly or through hooks that others put around it."""
    hook.was_called = False
    cache_key.custom_hook()
    return hook.was_called
