"""The one place where graphopt talks to XLA's transformation hook.

XLA keeps transformations in a queue, not under keys, so registering one name twice would run it
twice. Here a single callback is registered while anybody is subscribed; it offers each module to
the subscribers in turn and returns the first answer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from graphopt.errors import UnsupportedJaxError

Handler = Callable[[bytes], bytes | None]
"""Takes serialised module bytes; returns new bytes, or None to pass. Must not raise."""

_NAME: Final = "graphopt"
_PLATFORMS: Final = ("cpu",)
_logger = logging.getLogger("graphopt")


class Subscription:
    """A handler's place in the queue; `close` removes it (idempotent)."""

    def __init__(self, handler: Handler, exclusive: bool = False) -> None:
        self.handler = handler
        self.exclusive = exclusive

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


def subscribe(handler: Handler, *, exclusive: bool = False) -> Subscription:
    """Offers every module that XLA:CPU compiles from now on to `handler`.

    Args:
        handler: called on XLA's own threads, several at once.
        exclusive: while subscribed, only this handler is asked: the newest exclusive one.

    Raises:
        UnsupportedJaxError: this jax has no transformation hook.
    """
    subscription = Subscription(handler, exclusive)
    with _lock:
        _register()
        _subscriptions.append(subscription)
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
    parts = []
    for part in version.split(".")[:3]:
        digits = "".join(c for c in part if c.isdigit())
        parts.append(int(digits or 0))
    return tuple(parts)


def _register() -> None:
    global _registered
    if _registered:
        return
    check_jax()
    from jax.extend import xla

    try:
        xla.register_hlo_module_transformation(_callback, name=_NAME, platforms=_PLATFORMS)
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

    xla.clear_hlo_module_transformation(name=_NAME, platforms=_PLATFORMS)
    _registered = False


def _callback(data: bytes) -> bytes | None:
    """What XLA calls. Raising here would raise in the user's program, so nothing escapes."""
    asked = tuple(_subscriptions)
    exclusive = [s for s in asked if s.exclusive]
    for subscription in exclusive[-1:] or asked:
        try:
            answer = subscription.handler(data)
        except BaseException:
            _logger.exception("an HLO handler failed; the module keeps XLA's default")
            continue
        if isinstance(answer, bytes):
            return answer
    return None
