"""How long primitives take, element by element."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from graphopt.machine import CpuCosts

OPCODES: Final[dict[str, str]] = {
    "acos": "acos",
    "asin": "asin",
    "atan": "atan2",
    "atan2": "atan2",
    "cbrt": "cbrt",
    "cos": "cosine",
    "erf": "erf",
    "exp": "exponential",
    "exp2": "exponential",
    "expm1": "exponential-minus-one",
    "log": "log",
    "log1p": "log-plus-one",
    "logistic": "logistic",
    "pow": "power",
    "rem": "remainder",
    "rsqrt": "rsqrt",
    "sin": "sine",
    "tan": "tan",
    "tanh": "tanh",
}
"""Primitive -> the opcode whose time is a fact of the machine."""


def element_ns(name: str, dtype: Any, costs: CpuCosts) -> float:
    """Nanoseconds of a primitive per element, in vector code."""
    wide = np.dtype(dtype).itemsize > 4
    opcode = OPCODES.get(name)
    if opcode is not None:
        return float(costs.function_ns[opcode][wide])
    return float(1 + wide) / costs.operations_per_ns
