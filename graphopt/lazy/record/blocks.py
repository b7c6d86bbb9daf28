"""Blocks: recorded operations that are known as a whole and stand in a graph as one node.

A backward pass follows from the structure of what it differentiates. The first one of a structure is
recorded operation by operation and becomes a block; later ones record the block. Plans contain the
operations of a block one by one, so executors, checks and displays never meet one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from graphopt.lazy.core.infer import infer
from graphopt.lazy.core.node import CONST, SCALAR, Instr, Node, Op, in_order, tuple_aval
from graphopt.lazy.core.source_lines import Source
from graphopt.lazy.record import recorder
from graphopt.lazy.record.traces import waits

BLOCK: Final = Op("block", lambda *_: None)
"""Several operations; its only parameter is the `Block`. Plans never contain it."""

BLOCK.recipe = lambda instr: instr.params[0]


@dataclass(frozen=True)
class BlockStep:
    """One operation of a block.

    Attributes:
        instr: what is computed.
        inputs: numbers of its operands: inputs of the block first, then constants, then steps.
        src: the user's line that recorded it the first time.
    """

    instr: Instr
    inputs: tuple[int, ...]
    src: Source | None


@dataclass(frozen=True, eq=False)
class Block:
    """Operations from some input values to some results; equal only to itself.

    Attributes:
        chosen: which of the given values are its inputs, in order.
        consts: constants and numbers that the operations use.
        steps: operations, inputs first.
        outputs: numbers of the results, as in `BlockStep.inputs`.
        results: per value asked for: position among `outputs`, or minus one minus the position
            among the given values if it is one of them, or a constant node.
        single: it has one output, which is the value of whatever records it; else that value is the
            tuple of outputs.
        instr: the instruction that records the block.
        parts: the instructions that take its outputs.
        computed: every value asked for is an output.
    """

    chosen: tuple[int, ...]
    consts: tuple[Node, ...]
    steps: tuple[BlockStep, ...]
    outputs: tuple[int, ...]
    results: tuple[int | Node, ...]
    single: bool = False
    instr: Instr | None = field(init=False, default=None)
    parts: tuple[Instr, ...] = field(init=False, default=())
    computed: bool = field(init=False, default=False)


def make_block(given: Sequence[Node], asked: Sequence[Node], single: bool = False) -> Block | None:
    """The pending operations between some values and others.

    Args:
        given: where the block begins; pending or not.
        asked: values to compute.
        single: all given values are its inputs, and one value is asked for, which an operation has
            computed; the block has no instruction.

    Returns:
        The block; None if `asked` depend on buffers that are not among `given`, or on another block.
    """
    position = {node: k for k, node in enumerate(given)}
    used: dict[Node, None] = dict.fromkeys(given if single else ())
    consts: dict[Node, None] = {}
    inner: dict[Node, None] = {}
    todo = list(asked)
    while todo:
        node = todo.pop()
        if node in position:
            used[node] = None
        elif node.data is None and not waits(node):
            if node not in inner:
                inner[node] = None
                todo.extend(node.inputs)
        elif node.instr is not None:
            consts[node] = None
        else:
            return None
    numbers, steps = _steps(used, consts, in_order(inner))
    if any(step.instr.op is BLOCK for step in steps):
        return None
    outputs = list(dict.fromkeys(node for node in asked if node in inner))
    results: list[int | Node] = []
    for node in asked:
        if node in position:
            results.append(-1 - position[node])
        else:
            results.append(outputs.index(node) if node in inner else node)
    chosen = tuple(position[node] for node in used)
    places = tuple(numbers[n] for n in outputs)
    block = Block(chosen, tuple(consts), steps, places, tuple(results), single)
    if outputs and not single:
        _add_instructions(block, tuple(used), outputs)
    return block


def _steps(
    used: Iterable[Node], consts: Iterable[Node], order: Sequence[Node]
) -> tuple[dict[Node, int], tuple[BlockStep, ...]]:
    """The number of each value of a block, and its operations."""
    numbers = {node: k for k, node in enumerate((*used, *consts, *order))}
    steps = tuple(
        BlockStep(node.instr, tuple(numbers[x] for x in node.inputs), node.src)
        for node in order
        if node.instr is not None
    )
    return numbers, steps


def _add_instructions(block: Block, used: tuple[Node, ...], outputs: Sequence[Node]) -> None:
    """Adds the instructions that record a block and take its outputs."""
    device = outputs[0].aval.device
    aval = tuple_aval(tuple(node.aval for node in outputs), device)
    instr = Instr(BLOCK, (block,), tuple(node.aval for node in used), aval, None)
    parts = tuple(
        recorder.PART.table.get(((k,), (aval,)))
        or infer(recorder.PART, (k,), (aval,), ((k,), (aval,)), device)
        for k in range(len(outputs))
    )
    object.__setattr__(block, "instr", instr)
    object.__setattr__(block, "parts", parts)
    computed = all(type(result) is int and result >= 0 for result in block.results)
    object.__setattr__(block, "computed", computed)


def follow_block(block: Block, codes: tuple[int, ...]) -> list[Any] | None:
    """`record_block` where the trace goes on with this block; None where it does not.

    Args:
        block: what to record.
        codes: of its operands in the trace; none of them is new to it.
    """
    local = recorder.state.now
    move = local.next
    if not block.computed or move.unique or move is local.end:
        return None
    if move.instr is not block.instr or move.codes != codes:
        known = move.parent.child((block.instr, codes, False))
        if known is None:
            return None
        move = known
    whole = recorder.entered(local, move)._node
    values, outputs = local.values, []
    for part in block.parts:
        move = local.next
        if move.instr is part and values[move.a] is whole:
            local.next = move.next
            outputs.append(recorder.result(local, move))
        else:
            outputs.append(recorder.record_known(part, (whole,)))
    found = [outputs[k] for k in block.results if isinstance(k, int)]  # all are computed
    recorder.look_at_limit(local)
    return found


def record_block(block: Block, given: Sequence[Node]) -> list[Any]:
    """Records a block on new values of the same structure; one tensor per value asked for."""
    outputs: list[Any] = []
    if block.instr is not None:
        node = recorder.record_known(block.instr, tuple([given[k] for k in block.chosen]))._node
        outputs = [recorder.record_known(part, (node,)) for part in block.parts]
    found = []
    for result in block.results:
        if isinstance(result, Node):
            found.append(recorder.hold(result))
        elif result < 0:
            found.append(recorder.hold(given[-1 - result]))
        else:
            found.append(outputs[result])
    recorder.look_at_limit(recorder.state.now)
    return found


def structure(
    tape: Sequence[tuple[Node, Instr, tuple[Node, ...]]], ends: Sequence[Sequence[Node]]
) -> tuple[tuple[int, ...], list[Node]]:
    """What the operations of a tape compute from what, as integers; and all values they touch.

    Two tapes with equal integers hold the same operations on the same pattern of values; the values
    are listed in the same order then. Constants count with their value, numbers with their type.

    Args:
        tape: (value, instruction, operands), in the order of recording.
        ends: further values that belong to the structure, in groups.
    """
    positions: dict[Node, int] = {}
    known = positions.get
    code = [len(tape)]
    append = code.append
    for node, instr, operands in tape:
        append(instr.id)
        for x in operands:
            k = known(x)
            if k is None:
                positions[x] = len(positions)
                k = _kind(x)
            append(k)
        positions[node] = len(positions)
    for group in ends:
        append(len(group))
        for x in group:
            k = known(x)
            if k is None:
                positions[x] = len(positions)
                k = _kind(x)
            append(k)
    return tuple(code), list(positions)


def _kind(node: Node) -> int:
    """Minus the number of a value's type, or of itself for a constant."""
    instr = node.instr
    if instr is not None and (instr.op is CONST or instr.op is SCALAR):
        return -instr.id
    return -node.aval.id
