"""Powers with a constant exponent: it is structure of the graph, and may mean another operation."""

from __future__ import annotations

from typing import Any

from graphopt.lazy.core import dtypes
from graphopt.lazy.core.node import Node
from graphopt.lazy.ops.elementwise import OPS
from graphopt.lazy.record.recorder import record1, record2, scalar

_CONSTANT_EXPONENTS = frozenset((-2, -1, -0.5, 0.5, 2, 3, 4, 1.5))


def constant_power(node: Node, exponent: Any) -> Any:
    """A node to a small constant power: ``x ** 2`` is a product, no call of a power function.

    None for any other exponent.
    """
    if type(exponent) not in (int, float) or exponent not in _CONSTANT_EXPONENTS:
        return None
    dtype = dtypes.scalar_dtype(exponent, node.aval.dtype)
    if exponent == 2 and dtype is node.aval.dtype:
        return record1(OPS["square"], node)
    if dtype.kind != "unsigned" or exponent >= 0:
        return record2(OPS["pow"], node, scalar(exponent, dtype, node.aval.device, True))
    return None
