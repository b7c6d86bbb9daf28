"""Everything graphopt takes from jax that jax does not promise to keep.

This is the only package that may name `jax._src` or `jaxlib._hlo`. `PRIVATE_NAMES` lists what is
used; each function says what happens when its name has moved, and `tests/test_jax_private.py` fails
for every one that has. Nothing here imports jax before a function is called.
"""

from graphopt.jax_private.cache_key import (
    private_cache_entries,
    reset_cache_key_hook,
    set_cache_key_hook,
)
from graphopt.jax_private.calls import watch_calls
from graphopt.jax_private.compiles import watch_compiles
from graphopt.jax_private.hlo import hlo_from_text, hlo_text
from graphopt.jax_private.lowering import (
    LoweringEntry,
    common_rule,
    find_primitive,
    lowered_apart,
    lowered_equations,
    lowering_entry,
    lowers_for_one_cpu,
    own_cpu_entry,
    set_cpu_entry,
)
from graphopt.jax_private.names import PRIVATE_NAMES, find_private
from graphopt.jax_private.state import (
    backends_initialized,
    copy_arrays,
    is_compiler_frame,
    is_tracing,
    jit_cache_size,
    kept_arguments,
    persistent_cache_enabled,
    static_positions,
)
from graphopt.jax_private.transforms import clear_transform, register_transform

__all__ = [
    "PRIVATE_NAMES",
    "LoweringEntry",
    "backends_initialized",
    "clear_transform",
    "common_rule",
    "copy_arrays",
    "find_primitive",
    "find_private",
    "hlo_from_text",
    "hlo_text",
    "is_compiler_frame",
    "is_tracing",
    "jit_cache_size",
    "kept_arguments",
    "lowered_apart",
    "lowered_equations",
    "lowering_entry",
    "lowers_for_one_cpu",
    "own_cpu_entry",
    "persistent_cache_enabled",
    "private_cache_entries",
    "register_transform",
    "reset_cache_key_hook",
    "set_cache_key_hook",
    "set_cpu_entry",
    "static_positions",
    "watch_calls",
    "watch_compiles",
]
