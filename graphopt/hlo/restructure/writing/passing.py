"""Passing further values into what a loop calls: its body, and the loops, conditionals and calls inside.

Everything that takes a tuple takes a longer one, whose new elements loops leave as they are. The computations
are changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphopt.hlo.module.index import LOCAL_ID
from graphopt.hlo.restructure.writing.blocks import Block, ModuleEditor
from graphopt.hlo.restructure.writing.values import Value, tuple_shape


def parameter_of(computation: Any) -> Any:
    """``HloInstructionProto`` of the only parameter of a computation."""
    return next(i for i in computation.instructions if i.opcode == "parameter")


def kept_places(body: Any) -> frozenset[int]:
    """Places of the carried tuple that an iteration leaves as they are."""
    by_id = {i.id & LOCAL_ID: i for i in body.instructions}
    root = by_id[body.root_id & LOCAL_ID]
    if root.opcode != "tuple":
        return frozenset()
    kept = set()
    for place, operand in enumerate(root.operand_ids):
        source = by_id[operand & LOCAL_ID]
        while source.opcode == "copy":
            source = by_id[source.operand_ids[0] & LOCAL_ID]
        unchanged = source.opcode == "get-tuple-element" and source.tuple_index == place
        if unchanged and by_id[source.operand_ids[0] & LOCAL_ID].opcode == "parameter":
            kept.add(place)
    return frozenset(kept)


def inner_loop(instruction: Any, computation: Callable[[int], Any]) -> Any | None:
    """The ``while`` that an instruction is, or that is all of what it calls; else None."""
    if instruction.opcode == "while":
        return instruction
    if instruction.opcode != "call" or len(instruction.operand_ids) != 1:
        return None
    callee = computation(instruction.called_computation_ids[0])
    if len(callee.instructions) != 2:
        return None
    root = next(i for i in callee.instructions if i.id & LOCAL_ID == callee.root_id & LOCAL_ID)
    return root if root.opcode == "while" else None


@dataclass(frozen=True)
class Given:
    """What an instruction finds in its computation.

    Attributes:
        block: what is written into it comes before the instruction.
        computation: ``HloComputationProto``.
        values: key -> value that was passed here.
    """

    block: Block
    computation: Any
    values: Mapping[Hashable, Value]


@dataclass
class Passing:
    """Passes values, each under a key, to where they are needed.

    Attributes:
        editor: of the module.
        origin: node that new instructions are recorded under.
        shapes: key -> ``ShapeProto`` of the value.
        needs: (computation id, local id) of a loop, conditional or call inside -> for each body that it
            calls, keys of the values that this needs, in an order. It is looked into even if it needs none.
        moved: (computation id, local id) -> key of the value that is read in its place.
        gone: (computation id, local id) of instructions to leave out.
        read: changes an instruction that may read passed values.
    """

    editor: ModuleEditor
    origin: int
    shapes: Mapping[Hashable, Any]
    needs: Mapping[tuple[int, int], Sequence[Sequence[Hashable]]]
    moved: Mapping[tuple[int, int], Hashable]
    gone: frozenset[tuple[int, int]]
    read: Callable[[Any, Given], None]

    def into_loop(self, loop: Any, keys: Sequence[Hashable]) -> None:
        """Makes body and condition of a ``while`` take the values behind all that it carries."""
        body, condition = (self.editor.computations[c] for c in loop.called_computation_ids)
        self._into(body, keys, returned=True)
        if keys:
            set_parameter(condition, parameter_of(body).shape)

    def _into(self, computation: Any, keys: Sequence[Hashable], *, returned: bool) -> None:
        """Makes a computation take the values, and return them if it is the body of a loop."""
        given, out = self._take(computation, keys)
        block = given.block
        by_id = {i.id & LOCAL_ID: i for i in computation.instructions}
        direct = {
            local: given.values[key].id
            for (owner, local), key in self.moved.items()
            if owner == computation.id and key in given.values
        }
        left_out = {i: p for i, p in by_id.items() if (computation.id, i) in self.gone}
        for local in left_out:
            self.editor.fresh.pop((computation.id, local), None)
        for local, instruction in by_id.items():
            if instruction.opcode == "parameter" or local in left_out:
                continue
            written = len(block.protos)
            _redirect(instruction, direct, left_out)
            if (computation.id, local) in self.needs:
                instruction = self._called(given, instruction, by_id)
            elif returned and keys and local == computation.root_id & LOCAL_ID:
                instruction.operand_ids.extend([given.values[key].id for key in keys])
                _lengthen(instruction, [self.shapes[key] for key in keys])
                computation.program_shape.result.CopyFrom(instruction.shape)
            else:
                self.read(instruction, given)
            out += [*block.protos[written:], instruction]
        set_instructions(computation, out)

    def _take(self, computation: Any, keys: Sequence[Hashable]) -> tuple[Given, list[Any]]:
        """Lengthens the parameter; also returns the first instructions, which take it apart."""
        parameter = parameter_of(computation)
        count = len(parameter.shape.tuple_shapes)
        if keys:
            _lengthen(parameter, [self.shapes[key] for key in keys])
            computation.program_shape.parameters[0].CopyFrom(parameter.shape)
        first = max(i.id & LOCAL_ID for i in computation.instructions) + 1
        block = Block(self.editor, computation.id, self.origin, first)
        whole = Value(parameter.id & LOCAL_ID, parameter.shape)
        values = {key: block.part(whole, count + i) for i, key in enumerate(keys)}
        return Given(block, computation, values), [parameter, *block.protos]

    def _called(self, given: Given, instruction: Any, by_id: Mapping[int, Any]) -> Any:
        """A loop, conditional or call that passes on what it is given; a call of a loop becomes that loop."""
        needs = self.needs[given.computation.id, instruction.id & LOCAL_ID]
        first = 1 if instruction.opcode == "conditional" else 0
        for i, keys in enumerate(needs, first):
            if keys:
                passed = by_id[instruction.operand_ids[i] & LOCAL_ID]
                parts = _parts(given.block, passed, by_id)
                parts += [given.values[key] for key in keys]
                instruction.operand_ids[i] = given.block.tuple(parts).id
        loop = inner_loop(instruction, self.editor.computations.__getitem__)
        if loop is None:
            for callee, keys in zip(instruction.called_computation_ids, needs, strict=True):
                self._into(self.editor.computations[callee], keys, returned=False)
            return instruction
        (keys,) = needs
        self.into_loop(loop, keys)
        out = instruction
        if loop is not instruction:
            out = self._bare_loop(given.computation, instruction, loop)
        if keys:
            _lengthen(out, [self.shapes[key] for key in keys])
        return out

    def _bare_loop(self, computation: Any, call: Any, loop: Any) -> Any:
        """The loop that is all of what a call calls, in place of the call."""
        out = type(loop)()
        out.CopyFrom(loop)
        out.name, out.id = call.name, call.id
        out.operand_ids[:] = call.operand_ids
        out.control_predecessor_ids[:] = call.control_predecessor_ids
        source = (call.called_computation_ids[0], loop.id & LOCAL_ID)
        self.editor.stands_for((computation.id, call.id & LOCAL_ID), source, self.origin)
        return out


def _redirect(instruction: Any, direct: Mapping[int, int], gone: Mapping[int, Any]) -> None:
    """Makes an instruction read other values, and follow what instructions that are left out followed."""
    operands = [o & LOCAL_ID for o in instruction.operand_ids]
    for i, operand in enumerate(operands):
        if operand in direct:
            instruction.operand_ids[i] = direct[operand]
    if any(before & LOCAL_ID in gone for before in instruction.control_predecessor_ids):
        instruction.control_predecessor_ids[:] = predecessors(
            instruction.control_predecessor_ids, gone
        )


def predecessors(ids: Sequence[int], gone: Mapping[int, Any]) -> list[int]:
    """Control predecessors, with those of removed instructions instead of these.

    Args:
        ids: of the predecessors.
        gone: local id -> ``HloInstructionProto`` of what is removed.
    """
    out: list[int] = []
    stack = list(ids)[::-1]
    while stack:
        number = stack.pop()
        removed = gone.get(number & LOCAL_ID)
        if removed is None:
            out.append(number)
        else:
            stack += list(removed.control_predecessor_ids)
    return list(dict.fromkeys(out))


def _parts(block: Block, passed: Any, by_id: Mapping[int, Any]) -> list[Value]:
    """The elements of a tuple."""
    if passed.opcode == "tuple":
        return [Value(o & LOCAL_ID, by_id[o & LOCAL_ID].shape) for o in passed.operand_ids]
    whole = Value(passed.id & LOCAL_ID, passed.shape)
    return [block.part(whole, i) for i in range(len(passed.shape.tuple_shapes))]


def _lengthen(instruction: Any, more: Sequence[Any]) -> None:
    """Gives an instruction a tuple with more elements as its shape."""
    instruction.shape.CopyFrom(tuple_shape([*instruction.shape.tuple_shapes, *more]))
    instruction.ClearField("original_value")


def set_parameter(computation: Any, shape: Any) -> None:
    """Gives the only parameter of a computation another shape."""
    parameter_of(computation).shape.CopyFrom(shape)
    computation.program_shape.parameters[0].CopyFrom(shape)


def set_instructions(computation: Any, instructions: Sequence[Any]) -> None:
    """Replaces the instructions of a computation, some of which may be its own."""
    copies = [type(i).FromString(i.SerializeToString()) for i in instructions]
    computation.ClearField("instructions")
    computation.instructions.extend(copies)
