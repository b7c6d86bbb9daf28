"""The graphs that XLA sees when it compiles a function."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from graphopt.hlo import Graph, build_graph
from graphopt.hlo.module.proto import HloModuleProto


def capture_modules(fn: Callable[..., Any], *args: Any) -> list[bytes]:
    """Serialised HLO modules of one call of a jittable function, as the hook receives them.

    XLA compiles up to the hook and generates no code; nothing is run. Operations have the forms that
    `graphopt.install` gives them, and an installed plugin does not touch the modules. They are named after
    the function, as jax names them.
    """
    from graphopt.measure import modules_of

    name = re.sub(r"\W", "_", getattr(fn, "__name__", type(fn).__name__)).rstrip("_")
    return [named_module(data, f"jit_{name}") for data in modules_of(fn, args, forms=True)]


def named_module(data: bytes, name: str) -> bytes:
    """A serialised module under another name."""
    proto = HloModuleProto.FromString(data)
    proto.name = name
    return bytes(proto.SerializeToString(deterministic=True))


def capture(fn: Callable[..., Any], *args: Any) -> list[Graph]:
    """Graphs of one call of a jittable function.

    Raises:
        UnsupportedModuleError: a module that graphopt leaves alone; `rule` says why.
    """
    return [build_graph(data) for data in capture_modules(fn, *args)]
