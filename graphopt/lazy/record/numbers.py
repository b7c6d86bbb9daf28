"""Python numbers as operands: scalar parameters and constants."""

from __future__ import annotations

from math import copysign
from typing import Any, Final

import numpy as np

from graphopt.lazy.core import dtypes, source_lines
from graphopt.lazy.core.dtypes import DType
from graphopt.lazy.core.node import (
    CONST,
    Aval,
    Instr,
    Node,
    aval_of,
    leaf,
    scalar_instr,
    value_node,
)
from graphopt.lazy.errors import ConversionError

_consts: dict[Any, Node] = {}
_INTEGER_LIMITS: Final = {
    d: (int(np.iinfo(d.np).min), int(np.iinfo(d.np).max))
    for d in dtypes.ALL
    if d.kind in ("signed", "unsigned")
}
_STRUCTURAL: Final = frozenset((0, 1))


_quick: Final[dict[Any, Any]] = {}
_quick_consts: Final[dict[Any, Node]] = {}


def scalar_beside(value: Any, aval: Aval) -> Node:
    """The node of a Python number next to an array of this aval: `scalar`, with remembered types."""
    kind = type(value)
    known = _quick.get((kind, aval))
    if known is None:
        dtype = dtypes.scalar_dtype(value, aval.dtype)
        own = aval_of((), dtype, aval.device)
        low, high = _INTEGER_LIMITS.get(dtype, (None, None))
        known = _quick[kind, aval] = (own, scalar_instr(own), dtype, low, high)
    own, instr, dtype, low, high = known
    if value == 0 or value == 1 or kind is bool:
        if kind is float and value == 0 and copysign(1.0, value) < 0:
            return scalar(value, dtype, aval.device)  # zero and minus zero are equal
        key = (value, kind, own)
        found = _quick_consts.get(key)
        if found is None:
            found = _quick_consts[key] = scalar(value, dtype, aval.device)
        return found
    if low is not None and not low <= value <= high:
        return scalar(value, dtype, aval.device)  # raises
    return value_node(value, own, instr)


def number_type(kind: type, aval: Aval) -> Instr | None:
    """The instruction of a number of a Python type beside such an array, if that met before.

    None, too, where not every such number is a parameter: booleans, integers that may not fit.
    """
    known = _quick.get((kind, aval))
    return None if known is None or known[3] is not None or kind is bool else known[1]


def scalar(value: Any, dtype: DType, device: Any, structural: bool = False) -> Node:
    """A node for a Python number.

    Zero, one and booleans are part of the structure (a graph that multiplies by 1 is another
    graph); any other number is a parameter, so that changing it compiles nothing. Each occurrence is
    a parameter of its own: whether two numbers happen to be equal never shapes a graph.

    Args:
        value: bool, int, float or complex.
        dtype: what it becomes.
        device: of the array it meets.
        structural: make it a constant whatever it is.

    Raises:
        ConversionError: an integer that the dtype cannot hold.
    """
    kind = dtype.kind
    if kind == "float":
        value = float(value)
    elif kind == "complex":
        value = complex(value)
    elif kind == "bool":
        value = bool(value)
    else:
        value = int(value)
        low, high = _INTEGER_LIMITS[dtype]
        if not low <= value <= high:
            raise ConversionError(
                what=f"{value} does not fit into {dtype}",
                where=source_lines.line_of(source_lines.here()),
                fix="Use a wider dtype.",
            )
    aval = aval_of((), dtype, device)
    if structural or value in _STRUCTURAL or kind == "bool":
        text = repr(value)  # tells 0.0 from -0.0
        if structural or text[0] != "-":
            return _const(value, text, aval)
    return value_node(value, aval, scalar_instr(aval))


def _const(value: Any, text: str, aval: Aval) -> Node:
    key = (text, aval.id)
    found = _consts.get(key)
    if found is None:
        node = leaf(value, aval)
        node.instr = CONST.table.setdefault(key, Instr(CONST, (value,), (), aval, None))
        found = _consts.setdefault(key, node)
    return found
