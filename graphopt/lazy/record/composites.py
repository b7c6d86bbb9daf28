"""Composites: functions of tensors that consist of several operations and are recorded as one.

The first call with operands of given types runs the function on stand-ins and keeps its operations as a
block. Every call records one operation; plans contain the block's in its place, and gradients are taken
through them one by one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from graphopt.lazy.core.node import Aval, Instr, Node, Op, leaf
from graphopt.lazy.ops.arrays import OPS
from graphopt.lazy.record import operands, recorder
from graphopt.lazy.record.blocks import Block, make_block
from graphopt.lazy.record.recorder import record, record1, record2
from graphopt.lazy.record.tensor_base import TensorBase
from graphopt.lazy.record.threads import Recorder

_OPERAND: Final = object()
"""Stands in the parameters for an option that is an operand."""

_STRUCTURAL: Final = frozenset((bool, int, float, str))
"""Types of options that are part of an instruction."""


class _StandIn:
    """The value of an operand that is not known yet; functions look at types alone."""


class Composite:
    """How one function is recorded.

    Attributes:
        function: (*tensors, **options) -> tensor; it must neither observe nor create values.
        op: its operation; the parameters are the options, and which operands are left out.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.op = Op(function.__name__, lambda *_: None, None, self._rule)
        self.op.recipe = self._recipe
        self._blocks: dict[Any, tuple[Block, Aval]] = {}

    def _rule(self, avals: tuple[Aval, ...], params: tuple[Any, ...]) -> tuple[None, Aval]:
        return None, self._known(avals, params)[1]

    def _recipe(self, instr: Instr) -> Block:
        return self._known(instr.in_avals, instr.params)[0]

    def _known(self, avals: tuple[Aval, ...], params: tuple[Any, ...]) -> tuple[Block, Aval]:
        found = self._blocks.get((avals, params))
        if found is None:
            found = self._blocks.setdefault((avals, params), self._made(avals, params))
        return found

    def _made(self, avals: tuple[Aval, ...], params: tuple[Any, ...]) -> tuple[Block, Aval]:
        """Runs the function apart from all that is recorded."""
        given = [leaf(_StandIn(), aval) for aval in avals]
        threads, before = recorder.state, recorder.state.now
        threads.now = Recorder(apart=True)
        try:
            result = _called(self.function, given, params)._node
            if result in given or result.data is not None:
                result = record1(OPS["variable"], result)._node
            block = make_block(given, [result], single=True)
        finally:
            threads.now = before
        if block is None:
            raise RuntimeError(f"{self.op.name} takes gradients, or uses values of others")
        return block, result.aval


def _called(function: Callable[..., Any], given: list[Node], params: tuple[Any, ...]) -> Any:
    """The function on the operands that parameters describe."""
    rest = map(recorder.new_tensor, given)
    if not params:
        return function(*rest)
    present, *options = params
    arguments = [next(rest) if is_given else None for is_given in present]
    named = {name: next(rest) if value is _OPERAND else value for name, value in options}
    return function(*arguments, **named)


def composite(*names: str) -> Callable[[Callable[..., Any]], Any]:
    """Decorates a function of tensors, so that a call is recorded as one operation.

    Positional arguments are operands: tensors, arrays, numbers beside the first one, or None where
    they may be left out. Options are part of the structure: axes, flags. Numbers that the function has
    of itself, defaults among them, are constants of the graph.

    Args:
        *names: options that are operands, too; other values of them compile nothing anew.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        made = Composite(function)
        op = made.op

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            """The function, recorded as one operation."""
            if not options:
                if len(args) == 1:
                    if isinstance(args[0], TensorBase):
                        return record1(op, args[0]._node)
                elif len(args) == 2:
                    a, b = args
                    if isinstance(a, TensorBase) and isinstance(b, TensorBase):
                        return record2(op, a._node, b._node)
            return _record(made, names, args, options)

        return call

    return decorate


def _record(made: Composite, names: tuple[str, ...], args: Any, options: dict[str, Any]) -> Any:
    name = made.op.name
    if not args:
        return made.function(**options)  # says what is missing
    first = operands.node_of(args[0], name)
    nodes = [first]
    present = [True]
    for x in args[1:]:
        present.append(x is not None)
        if x is not None:
            nodes.append(operands.operand(x, first, name))
    params: list[Any] = [tuple(present)]
    for key, value in options.items():
        if key in names and value is not None:
            nodes.append(operands.operand(value, first, name))
            params.append((key, _OPERAND))
        elif _is_structure(value):
            params.append((key, value))
        else:
            return made.function(*args, **options)
    whole = len(params) == 1 and False not in present
    return record(made.op, tuple(nodes), () if whole else tuple(params))


def _is_structure(value: Any) -> bool:
    """Whether an option may be part of an instruction: equal values of it mean the same."""
    if type(value) is tuple:
        return all(map(_is_structure, value))
    return value is None or type(value) in _STRUCTURAL
