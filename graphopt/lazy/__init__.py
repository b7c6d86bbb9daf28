"""Lazy tensors: define-by-run arrays that are recorded, compiled, cached and run behind the scenes.

>>> import graphopt.lazy as lt
>>> x = lt.linspace(0, 1, 5)
>>> y = lt.sum(x * x)          # recorded, nothing runs
>>> round(float(y), 3)         # runs
1.875

The namespace is that of the Python array API standard 2025.12, with the names below on top.
"""

# ruff: noqa: F403, F405 - this module is the public namespace; it uses little of it itself
from __future__ import annotations

from typing import Any

from graphopt.lazy import nn
from graphopt.lazy.array.interop import from_jax, register_pytree, to_jax
from graphopt.lazy.array.tensor import Tensor
from graphopt.lazy.core.dtypes import (
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from graphopt.lazy.core.dtypes import bool_ as bool
from graphopt.lazy.core.metrics import metrics, recompile_report, reset_metrics
from graphopt.lazy.errors import (
    ConversionError,
    CutForbiddenError,
    ExecutionError,
    LazyBufferError,
    LazyError,
    LazyIndexError,
    LazyTypeError,
    LazyValueError,
)
from graphopt.lazy.namespace import fft, linalg, random
from graphopt.lazy.namespace.beyond import *
from graphopt.lazy.namespace.creation import *
from graphopt.lazy.namespace.elementwise import FUNCTIONS as _elementwise
from graphopt.lazy.namespace.elementwise import clip
from graphopt.lazy.namespace.linalg import matmul, matrix_transpose, outer, tensordot, vecdot
from graphopt.lazy.namespace.manipulation import *
from graphopt.lazy.namespace.searching import *
from graphopt.lazy.namespace.statistics import *
from graphopt.lazy.namespace.types import (
    __array_namespace_info__,
    astype,
    can_cast,
    e,
    finfo,
    iinfo,
    inf,
    isdtype,
    nan,
    newaxis,
    pi,
    result_type,
)
from graphopt.lazy.nn import einsum
from graphopt.lazy.record.settings import config, configure
from graphopt.lazy.runtime.control import clear_caches, eval, step, sync
from graphopt.lazy.runtime.devices import set_devices
from graphopt.lazy.runtime.optimizer import checked, set_optimizer
from graphopt.lazy.tools.capture import capture, tune
from graphopt.lazy.tools.show import show
from graphopt.lazy.transforms.grad import grad, stop_gradient, value_and_grad, vjp
from graphopt.lazy.transforms.vmap import vmap

globals().update(_elementwise)


def __getattr__(name: str) -> Any:
    """Says that a name is missing; tells type checkers that elementwise functions are not."""
    raise AttributeError(f"module 'graphopt.lazy' has no attribute {name!r}")


register_pytree(Tensor)

__array_api_version__ = "2025.12"

__all__ = [
    "ConversionError",
    "CutForbiddenError",
    "ExecutionError",
    "LazyBufferError",
    "LazyError",
    "LazyIndexError",
    "LazyTypeError",
    "LazyValueError",
    "Tensor",
    "__array_api_version__",
    "__array_namespace_info__",
    "all",
    "allclose",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "asarray",
    "astype",
    "bfloat16",
    "bool",
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "can_cast",
    "capture",
    "checked",
    "clear_caches",
    "clip",
    "complex64",
    "complex128",
    "concat",
    "config",
    "configure",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "diag",
    "diff",
    "e",
    "einsum",
    "empty",
    "empty_like",
    "eval",
    "expand_dims",
    "eye",
    "fft",
    "finfo",
    "flip",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "from_jax",
    "full",
    "full_like",
    "grad",
    "iinfo",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "isclose",
    "isdtype",
    "isin",
    "linalg",
    "linspace",
    "logspace",
    "matmul",
    "matrix_transpose",
    "max",
    "mean",
    "meshgrid",
    "metrics",
    "min",
    "moveaxis",
    "nan",
    "newaxis",
    "nn",
    "nonzero",
    "ones",
    "ones_like",
    "outer",
    "pad",
    "permute_dims",
    "pi",
    "prod",
    "random",
    "recompile_report",
    "register_pytree",
    "repeat",
    "reset_metrics",
    "reshape",
    "result_type",
    "roll",
    "searchsorted",
    "set_devices",
    "set_optimizer",
    "show",
    "sort",
    "split",
    "squeeze",
    "stack",
    "std",
    "step",
    "stop_gradient",
    "sum",
    "sync",
    "take",
    "take_along_axis",
    "tensordot",
    "tile",
    "to_jax",
    "tril",
    "triu",
    "tune",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unstack",
    "value_and_grad",
    "var",
    "vecdot",
    "vjp",
    "vmap",
    "where",
    "zeros",
    "zeros_like",
]
__all__ += list(_elementwise)
