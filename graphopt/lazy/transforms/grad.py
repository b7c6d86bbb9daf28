"""Gradients: a tape over what is recorded while a function runs, Python control flow included."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import jax

from graphopt.lazy.core import source_lines
from graphopt.lazy.core.node import CONST, Instr, Node, value_node
from graphopt.lazy.errors import LazyTypeError, LazyValueError
from graphopt.lazy.ops.arrays import OPS
from graphopt.lazy.record import operands, recorder
from graphopt.lazy.record.blocks import (
    Block,
    follow_block,
    make_block,
    record_block,
    structure,
)
from graphopt.lazy.record.recorder import record
from graphopt.lazy.record.tapes import Entry, Tape, place_of
from graphopt.lazy.transforms.containers import closed, flatten, is_tensor, opened
from graphopt.lazy.transforms.vjp_rules import pull_back


def _as_tensor(x: Any, name: str) -> Any:
    if is_tensor(x):
        return x
    from graphopt.lazy.namespace.creation import asarray

    if isinstance(x, (float, complex)) or hasattr(x, "dtype"):
        return asarray(x)
    raise LazyTypeError(
        what=f"{name} with respect to {type(x).__name__}",
        where=source_lines.line_of(source_lines.here()),
        fix="Differentiate with respect to floating-point tensors.",
    )


def _variables(leaves: list[Any], name: str) -> list[Any]:
    """Fresh tensors with the same values: whatever depends on them was recorded later."""
    fresh = []
    for x in leaves:
        tensor = x if type(x) is recorder.tensor_class else _as_tensor(x, name)
        node = tensor._node
        if not node.aval.dtype.is_float:
            raise LazyTypeError(
                what=f"{name} with respect to a {tensor.dtype} tensor",
                where=source_lines.line_of(source_lines.here()),
                fix="Differentiate with respect to floating-point tensors.",
            )
        fresh.append(recorder.record_unique(_VARIABLE, (node,)))
    return fresh


_VARIABLE: Final = OPS["variable"]
_FULL: Final = OPS["full"]


_blocks: Final[OrderedDict[tuple[int, ...], Block | None]] = OrderedDict()
"""Structure of what is differentiated -> its backward pass; None where it cannot be a block."""

MAX_BLOCKS: Final = 1024
"""Backward passes kept; the oldest go first."""

MIN_TAPE: Final = 4
"""Shorter tapes are walked each time."""


def _backward(
    tape: Tape, outputs: list[Node], cotangents: list[Node], inputs: list[Node]
) -> list[Any]:
    """Gradients of the inputs; see `_walk`. A structure seen before is not walked again."""
    if recorder.state.now.tapes:  # an outer tape wants each operation
        return _walk(tape.entries(), outputs, cotangents, inputs)
    place = place_of(tape, (outputs, cotangents, inputs))
    if place is not None and (known := place.find()) is not None:
        found = follow_block(known.block, known.codes)
        return record_block(known.block, place.values(known)) if found is None else found
    entries = tape.entries()
    if len(entries) < MIN_TAPE and not any(instr.op.recipe for _, instr, _ in entries):
        return _walk(entries, outputs, cotangents, inputs)
    key, given = structure(entries, (outputs, cotangents, inputs))
    block = _blocks.get(key)
    if block is None:
        if key in _blocks:
            return _walk(entries, outputs, cotangents, inputs)
        found = _walk(entries, outputs, cotangents, inputs)
        block = _blocks[key] = make_block(given, [x._node for x in found])
        if len(_blocks) > MAX_BLOCKS:
            _blocks.popitem(last=False)
        if block is None:
            return found
        del found
    elif place is not None:
        place.keep(block, given)
    return record_block(block, given)


def _walk(
    tape: list[Entry], outputs: list[Node], cotangents: list[Node], inputs: list[Node]
) -> list[Any]:
    """Gradients of the inputs: the tape walked backwards.

    Args:
        tape: what was recorded, in order.
        outputs: nodes to start from.
        cotangents: their gradients.
        inputs: variables; each came from one that is on the tape.

    Returns:
        One tensor per input, zeros where an output does not depend on it.
    """
    tape = _written_out(tape)
    wanted = set(inputs)
    depends = set(inputs)
    for node, _, operands_ in tape:
        if not depends.isdisjoint(operands_):
            depends.add(node)
    grads: dict[Node, Any] = {}
    for node, cotangent in zip(outputs, cotangents, strict=True):
        _accumulate(grads, node, recorder.hold(cotangent))
    for node, instr, operands_ in reversed(tape):
        if node in wanted or node not in depends or node not in grads:
            continue
        gradient = grads.pop(node)
        needs = [x in depends and x.aval.parts is None and x.aval.dtype.is_float for x in operands_]
        if instr.aval.parts is None and not instr.aval.dtype.is_float:
            continue
        needs = [
            n or (x in depends and x.aval.parts is not None)
            for n, x in zip(needs, operands_, strict=True)
        ]
        if not any(needs):
            continue
        for operand, part in zip(
            operands_, pull_back(instr, operands_, node, gradient, needs), strict=True
        ):
            if part is not None:
                _accumulate(grads, operand, part)
    return [_gradient_of(grads, node) for node in inputs]


def _written_out(tape: list[Entry]) -> list[Entry]:
    """A tape with the operations of composites one by one, recorded again for their values.

    Graphs hold them once: they are equal to those that the composites stand for.
    """
    found: list[Entry] = []
    for node, instr, inputs in tape:
        if instr.op.recipe is None:
            found.append((node, instr, inputs))
        else:
            same = _record_all(found, instr, inputs)
            found.append((node, recorder.instruction(_VARIABLE, (same,)), (same,)))
    return found


def _record_all(found: list[Entry], instr: Instr, inputs: tuple[Node, ...]) -> Node:
    """Records the operations of a composite, and appends them to a tape; the node of its result."""
    assert instr.op.recipe is not None
    block: Block = instr.op.recipe(instr)
    values = [*inputs, *map(_own_number, block.consts)]
    for step in block.steps:
        operands_ = tuple([values[k] for k in step.inputs])
        if step.instr.op.recipe is not None:
            values.append(_record_all(found, step.instr, operands_))
            continue
        values.append(recorder.record_known(step.instr, operands_)._node)
        found.append((values[-1], step.instr, operands_))
    return values[block.outputs[0]]


def _own_number(node: Node) -> Node:
    """A constant, or a number as a node of its own: numbers of a trace are never those of a block."""
    if node.instr is None or node.instr.op is CONST:
        return node
    return value_node(node.data, node.aval, node.instr)


def _gradient_of(grads: dict[Node, Any], node: Node) -> Any:
    if node in grads:
        return grads[node]
    from graphopt.lazy.namespace.creation import zeros

    return zeros(node.aval.shape, dtype=node.aval.dtype, device=node.aval.device)


def _accumulate(grads: dict[Node, Any], node: Node, part: Any) -> None:
    known = grads.get(node)
    if isinstance(part, dict):  # parts of an operation with several outputs
        whole = known if known is not None else {}
        for k, value in part.items():
            whole[k] = value if k not in whole else whole[k] + value
        grads[node] = whole
    else:
        grads[node] = part if known is None else known + part


def _split(args: tuple[Any, ...], argnums: int | tuple[int, ...]) -> tuple[int, ...]:
    if type(argnums) is int and 0 <= argnums < len(args):
        return (argnums,)
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for number in numbers:
        if not -len(args) <= number < len(args):
            raise LazyValueError(
                what=f"argument {number} of a call with {len(args)} arguments",
                where=source_lines.line_of(source_lines.here()),
                fix="Name existing positional arguments in argnums.",
            )
    return tuple(number % len(args) for number in numbers)


def value_and_grad(
    fn: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the value of `fn` and its gradient.

    `fn` runs as it is, on lazy tensors: loops and branches on values work, since the tape holds what was
    recorded on the way that was taken. Gradients of gradients work, too.

    Args:
        fn: returns a real tensor without axes (and anything else with `has_aux`).
        argnums: positional arguments (tensors or nested containers of them) to differentiate for.
        has_aux: `fn` returns (value, auxiliary result).

    Raises:
        LazyTypeError: at the call: a value that is not one real number, or an integer argument.
    """

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        """Runs `fn` on a tape, and walks the tape back."""
        numbers = _split(args, argnums)
        parts = [opened(args[k]) for k in numbers]
        leaves = parts[0][0] if len(parts) == 1 else [x for part, _ in parts for x in part]
        with Tape() as tape:
            fresh = _variables(leaves, "grad")
            rest = iter(fresh)
            call = list(args)
            for k, (_, form) in zip(numbers, parts, strict=True):
                call[k] = closed(form, rest)
            result = fn(*call, **kwargs)
        value, aux = result if has_aux else (result, None)
        _check_scalar(value)
        one = recorder.scalar_beside(1, value._node.aval)
        start = record(_FULL, (one,), ((),))
        gradients = iter(_backward(tape, [value._node], [start._node], [x._node for x in fresh]))
        shaped = [closed(form, gradients) for _, form in parts]
        gradient = shaped[0] if isinstance(argnums, int) else tuple(shaped)
        return ((value, aux) if has_aux else value), gradient

    return wrapped


def _check_scalar(value: Any) -> None:
    aval = value._node.aval if is_tensor(value) else None
    if aval is None or aval.shape != () or aval.dtype.kind != "float":
        what = f"{value._node.aval!r}" if is_tensor(value) else type(value).__name__
        raise LazyTypeError(
            what=f"gradient of a function that returns {what}",
            where=source_lines.line_of(source_lines.here()),
            fix="Return one real number, as a tensor of shape (); or use lt.vjp.",
        )


def grad(
    fn: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the gradient of `fn`; see `value_and_grad`."""
    both = value_and_grad(fn, argnums, has_aux)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapped


def vjp(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """The value of `fn` and a function from cotangents of its result to cotangents of its arguments.

    Args:
        fn: a function of tensors (or nested containers of them) that returns such.
        *primals: its arguments.
    """
    flat, tree = flatten(primals)
    with Tape() as tape:
        fresh = _variables(flat, "vjp")
        result = fn(*jax.tree_util.tree_unflatten(tree, fresh))
    outputs, out_tree = flatten(result)

    def pull(cotangent: Any) -> tuple[Any, ...]:
        """Cotangents of the arguments for one of the result.

        Raises:
            LazyValueError: its structure is not the result's.
        """
        given, given_tree = flatten(cotangent)
        if given_tree != out_tree:
            raise LazyValueError(
                what=f"cotangents {given_tree} for a result {out_tree}",
                where=source_lines.line_of(source_lines.here()),
                fix="Give one cotangent per result.",
            )
        pairs = [
            (out._node, operands.cast(operands.operand(g, out._node, "vjp"), out.dtype))
            for out, g in zip(outputs, given, strict=True)
            if is_tensor(out) and out.dtype.is_float
        ]
        for node, part in pairs:
            if part.aval.shape != node.aval.shape:
                raise LazyValueError(
                    what=f"a cotangent {part.aval!r} for a result {node.aval!r}",
                    where=source_lines.line_of(source_lines.here()),
                    fix="Give cotangents the shapes of the results.",
                )
        ins = [x._node for x in fresh]
        found = _backward(tape, [a for a, _ in pairs], [b for _, b in pairs], ins)
        back: tuple[Any, ...] = jax.tree_util.tree_unflatten(tree, found)
        return back

    return result, pull


def stop_gradient(x: Any, /) -> Any:
    """`x`, as a constant for gradients."""
    return record(OPS["stop_gradient"], (operands.node_of(x, "stop_gradient"),))
