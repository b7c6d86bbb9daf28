"""Calls whose instruction is looked up by their arguments, where an equal call was worked out before."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from graphopt.lazy.core.node import Aval, Instr, Node
from graphopt.lazy.record.recorder import record_known
from graphopt.lazy.record.tensor_base import TensorBase

MAX_KNOWN: Final = 4096
"""Calls of one function that are remembered; beyond that, all are forgotten."""

Known = tuple[Instr | None, Instr]
"""The instruction that converts the operand, or None; and the instruction itself."""


def remembered(function: Callable[..., Any]) -> Any:
    """Decorates a function of one tensor and arguments that are no tensors."""
    plain: dict[Aval, Known] = {}  # of calls without arguments
    others: dict[Any, Known] = {}

    @functools.wraps(function)
    def wrapper(x: Any, /, *arguments: Any, **options: Any) -> Any:
        """The function, recorded at once where an equal call was traced before."""
        if not isinstance(x, TensorBase):
            return function(x, *arguments, **options)
        node = x._node
        key: Any = node.aval
        table: dict[Any, Known] = plain
        if arguments or options:
            table, key = others, (key, *arguments, *options.items())
        try:
            known = table.get(key)
        except TypeError:  # an argument is a list
            return function(x, *arguments, **options)
        if known is None:
            result = function(x, *arguments, **options)
            _remember(table, key, node, result._node)
            return result
        convert, instr = known
        if convert is not None:
            node = record_known(convert, (node,))._node
        return record_known(instr, (node,))

    return wrapper


def _remember(table: dict[Any, Known], key: Any, node: Node, last: Node) -> None:
    if last.instr is None or len(last.inputs) != 1:
        return
    if len(table) >= MAX_KNOWN:
        table.clear()
    (before,) = last.inputs
    if before is node:
        table[key] = (None, last.instr)
    elif before.inputs == (node,) and before.instr is not None:
        table[key] = (before.instr, last.instr)
