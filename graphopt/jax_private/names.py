"""The private names of jax in use, and how they are looked up."""

from __future__ import annotations

import importlib
from typing import Any

from graphopt.errors import UnsupportedJaxError

CACHE_KEY = "jax._src.cache_key"
XLA_BRIDGE = "jax._src.xla_bridge"
HLO = "jaxlib._hlo"
COMPILER = "jax._src.compiler"
CORE = "jax._src.core"
PJIT = "jax._src.pjit"
PXLA = "jax._src.interpreters.pxla"
MLIR = "jax._src.interpreters.mlir"
JAXLIB = "jaxlib._jax"
XLA_CLIENT = "jaxlib.xla_client"
XLA = "jaxlib._xla"

PRIVATE_NAMES: tuple[tuple[str, str], ...] = (
    (CACHE_KEY, "custom_hook"),
    (XLA_BRIDGE, "backends_are_initialized"),
    (HLO, "HloModule"),
    (HLO, "HloPrintOptions"),
    (HLO, "hlo_module_from_text"),
    (COMPILER, "compile_or_get_cached"),
    (COMPILER, "backend_compile_and_load"),
    (CORE, "trace_state_clean"),
    (PXLA, "ExecuteReplicated"),
    (PJIT, "_need_to_rebuild_with_fdo"),
    (MLIR, "_lowerings"),
    (MLIR, "_platform_specific_lowerings"),
    (JAXLIB, "ArrayImpl"),
    (XLA_CLIENT, "batched_copy_array_to_devices_with_sharding"),
    (XLA_CLIENT, "ArrayCopySemantics"),
    (XLA, "register_xla_transform"),
    (XLA, "clear_xla_transform"),
)
"""The private names in use, as (module, attribute)."""


def find_private(module: str, attribute: str) -> Any | None:
    """Return a private object, or None when its module or its name is gone."""
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return None


def require_private(module: str, attribute: str) -> Any:
    """Return a private object.

    Raises:
        UnsupportedJaxError: its module or its name is gone.
    """
    found = find_private(module, attribute)
    if found is None:
        raise UnsupportedJaxError(
            what=f"{module}.{attribute} does not exist in this version of jax",
            where="graphopt.jax_private",
            fix="Install a jax and jaxlib in the range that graphopt's metadata names.",
        )
    return found
