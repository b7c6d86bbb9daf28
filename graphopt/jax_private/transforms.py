"""XLA's transformation hook on the CPU, without setting up jax's devices.

``jax.extend.xla`` sets them up since jax 0.11, whatever the platform. What must be said before (how many CPU
devices there are, ``jax.distributed.initialize``) could then no longer follow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from graphopt.jax_private import names

Transform = Callable[[bytes], bytes | None]


def register_transform(name: str, stage: Any, transform: Transform) -> None:
    """Have XLA:CPU offer every module that it compiles to `transform`.

    Args:
        name: of the transformation.
        stage: a ``jax.extend.xla.PipelineStage``.
        transform: called with a serialized HloModuleProto; returns another, or None.

    Raises:
        AttributeError, NotImplementedError: this jax has no such hook.
    """
    direct = names.find_private(names.XLA, "register_xla_transform")
    if direct is not None:
        with contextlib.suppress(TypeError):  # other arguments than those known
            direct(name, stage.value, transform)
            return
    from jax.extend import xla

    xla.register_hlo_module_transformation(transform, name=name, platforms=("cpu",), stage=stage)


def clear_transform(name: str, stage: Any) -> None:
    """Take the transformation of that name and stage away again."""
    direct = names.find_private(names.XLA, "clear_xla_transform")
    if direct is not None:
        with contextlib.suppress(TypeError):
            direct(name, stage.value)
            return
    from jax.extend import xla

    xla.clear_hlo_module_transformation(name=name, platforms=("cpu",), stage=stage)
