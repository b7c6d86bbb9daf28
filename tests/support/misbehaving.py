"""Programs that go wrong once they are compiled a second time: for ``graphopt fuzz`` to catch.

Each notes its process in a file of the folder ``MISBEHAVING`` just before, and behaves while that file
exists.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Built = tuple[Callable[..., Any], tuple[Any, ...]]


def _wave(x: Any) -> Any:
    return jnp.sin(x) * x + jnp.cos(x) * (x - 1.0) + jnp.exp(-x) * jnp.tanh(x)


def _first_time(name: str) -> bool:
    note = Path(os.environ["MISBEHAVING"]) / name
    if note.exists():
        return False
    note.write_text(str(os.getpid()))
    return True


def _when_compiled_again(name: str, misbehave: Callable[[Any], Any]) -> Callable[[], Built]:
    """A builder of a wave that misbehaves at its second compile, which is the first trial's."""

    def build() -> Built:
        compiles = 0

        def fn(x: Any) -> Any:
            nonlocal compiles
            compiles += 1
            return misbehave(x) if compiles > 1 and _first_time(name) else _wave(x)

        return fn, (np.linspace(0.1, 2.0, 32, dtype=np.float32),)

    return build


def _abort(_: Any) -> Any:
    os.abort()


def _hang(_: Any) -> Any:
    time.sleep(1e6)


def _raise(_: Any) -> Any:
    raise ValueError("cannot be traced")


def _wrong(x: Any) -> Any:
    return _wave(x) + 0.1


def _fails_to_run(x: Any) -> Any:
    def fail(_: Any) -> Any:
        raise ValueError("cannot be run")

    return jax.pure_callback(fail, jax.ShapeDtypeStruct(x.shape, x.dtype), _wave(x))


def _noisy(x: Any) -> Any:
    print('{"status": "ok", "detail": "this is not an answer"}', flush=True)
    os.write(1, b"nor is this\n")
    return _wave(x)


def _unbuildable() -> Built:
    raise OSError("no such data set")


def _exits() -> Built:
    os._exit(5)


ONCE = {
    name: _when_compiled_again(name, misbehave)
    for name, misbehave in {
        "aborts": _abort,
        "hangs": _hang,
        "raises": _raise,
        "wrong": _wrong,
        "fails-to-run": _fails_to_run,
        "noisy": _noisy,
    }.items()
}
NEVER_BUILT = {
    "unbuildable": _unbuildable,
    "exits": _exits,
    "fine": lambda: (_wave, (np.ones(32),)),
}
EMPTY: dict[str, Callable[[], Built]] = {}


def not_a_program() -> int:
    return 3
