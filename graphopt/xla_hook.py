"""The one place where graphopt talks to XLA's transformation hook.

XLA keeps transformations in a queue, not under keys, so registering one name twice would run it
twice. Here a single callback is registered while anybody is subscribed; it offers each module to
the subscribers in turn and returns the first answer.

The stage is the one after scheduling. A module that is handed back before it is scheduled anew, and not in
the order that XLA gave it: its tie-breaks depend on the history of its passes, which no module carries. That
order alone moves a program's time by several per cent.
"""

from __future__ import annotations

import logging
import re
import signal
import threading
from collections.abc import Callable
from typing import Final

from graphopt import jax_private
from graphopt.errors import UnsupportedJaxError
from graphopt.signals import Interrupted


class Keep:
    """Answer of a handler: XLA's default, and nobody else is asked."""


KEEP: Final = Keep()

Handler = Callable[[bytes], bytes | Keep | None]
"""Takes serialised module bytes; returns new bytes, `KEEP`, or None to pass. Must not raise."""

_NAME: Final = "graphopt"
_logger = logging.getLogger("graphopt")


class Subscription:
    """A handler's place in the queue; `close` removes it (idempotent)."""

    def __init__(self, handler: Handler, module_name: str | None = None) -> None:
        self.handler = handler
        self.module_name = module_name

    def close(self) -> None:
        """Stops offering modules to the handler."""
        with _lock:
            if self in _subscriptions:
                _subscriptions.remove(self)
            if not _subscriptions:
                _unregister()


_lock = threading.RLock()
_subscriptions: list[Subscription] = []
_registered = False


def subscribe(
    handler: Handler, *, module_name: str | None = None, first: bool = False
) -> Subscription:
    """Offers every module that XLA:CPU compiles from now on to `handler`.

    Args:
        handler: called on XLA's own threads, several at once.
        module_name: ask only for the module of this name, and nobody else for it.
        first: ask before those who subscribed earlier.

    Raises:
        UnsupportedJaxError: this jax has no transformation hook.
    """
    subscription = Subscription(handler, module_name)
    with _lock:
        _register()
        _subscriptions.insert(0 if first else len(_subscriptions), subscription)
    return subscription


def check_jax() -> None:
    """Checks that this jax offers the hook.

    Raises:
        UnsupportedJaxError: jax or jaxlib is older than 0.10.2.
    """
    import jax
    import jaxlib.version

    for name, version in (("jax", jax.__version__), ("jaxlib", jaxlib.version.__version__)):
        if _version_tuple(version) < (0, 10, 2):
            raise UnsupportedJaxError(
                what=f"{name} {version} has no HLO transformation hook",
                where=f"{name} {version}",
                fix="Install jax>=0.10.2 and jaxlib>=0.10.2.",
            )


def _version_tuple(version: str) -> tuple[int, ...]:
    """Leading numbers of the first three parts: 0.10.1rc2 and 0.10.1+cuda12 count as 0.10.1."""
    numbers = [re.match(r"\d*", part) for part in version.partition("+")[0].split(".")[:3]]
    return tuple(int(found.group() or 0) for found in numbers if found is not None)


def _register() -> None:
    global _registered
    if _registered:
        return
    check_jax()
    from jax.extend import xla

    try:
        jax_private.register_transform(_NAME, xla.PipelineStage.POST_SCHEDULER, _callback)
    except (AttributeError, NotImplementedError) as error:
        raise UnsupportedJaxError(
            what=f"this jax cannot register HLO transformations: {error}",
            where="jax.extend.xla",
            fix="Install jax>=0.10.2 and jaxlib>=0.10.2.",
        ) from error
    _registered = True


def _unregister() -> None:
    global _registered
    if not _registered:
        return
    from jax.extend import xla

    jax_private.clear_transform(_NAME, xla.PipelineStage.POST_SCHEDULER)
    _registered = False


def module_name(data: bytes) -> str:
    """Name of a serialised ``HloModuleProto``: its first field, read without parsing the rest."""
    if data[:1] != b"\x0a":
        return ""
    length = shift = 0
    position = 1
    while position < len(data):
        byte = data[position]
        length |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if not byte & 0x80:
            break
    return data[position : position + length].decode(errors="replace")


INTERRUPT_AFTER_S: Final = 0.05
"""Seconds in which the hook has answered XLA."""


def _interrupt_later() -> None:
    """Raises KeyboardInterrupt in the main thread soon: out of the hook, XLA would make an error of it."""
    main = threading.main_thread()
    if threading.current_thread() is main:
        again = threading.Timer(INTERRUPT_AFTER_S, signal.pthread_kill, (main.ident, signal.SIGINT))
        again.daemon = True
        again.start()


def _callback(data: bytes) -> bytes | None:
    """What XLA calls. Raising here would raise in the user's program, so nothing escapes."""
    try:
        return _ask(data)
    except Interrupted:
        return None  # whoever compiles raises it when that is over
    except KeyboardInterrupt:
        _interrupt_later()
        return None


def _ask(data: bytes) -> bytes | None:
    """The first answer of the subscribers; None for XLA's default."""
    subscriptions = tuple(_subscriptions)
    asked = [s for s in subscriptions if s.module_name is None]
    if len(asked) < len(subscriptions):
        name = module_name(data)
        asked = [s for s in subscriptions if s.module_name == name] or asked
    for subscription in asked:
        try:
            answer = subscription.handler(data)
        except KeyboardInterrupt:
            raise
        except BaseException:
            _logger.exception("an HLO handler failed; the module keeps XLA's default")
            continue
        if isinstance(answer, bytes):
            return answer
        if isinstance(answer, Keep):
            return None
    return None
