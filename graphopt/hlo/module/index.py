"""A parsed HLO module, indexed: computations by role, instructions by id.

This is the only place that interprets raw module bytes. Everything later works on `ModuleIndex`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from graphopt.errors import ModuleFormatError, UnsupportedModuleError
from graphopt.hlo.module.opcodes import ASYNCHRONOUS_OPS, OP_BY_NAME
from graphopt.hlo.module.proto import (
    SUB_BYTE_DTYPES,
    DType,
    HloInstructionProto,
    HloModuleProto,
)

LOCAL_ID: Final = 0xFFFFFFFF
"""Instruction ids are (computation id << 32) | local id; only the local part counts."""


_OF_A_PLACE: Final = ("name", "metadata", "id", "operand_ids", "original_value")


class Role(IntEnum):
    """What calls a computation."""

    ENTRY = 0
    LOOP_BODY = 1
    LOOP_CONDITION = 2
    BRANCH = 3
    CALLED = 4
    FUSED = 5
    """Body of a fusion instruction."""
    APPLIED = 6
    """Scalar function of a reduce, scatter, sort, map, ...; and computations only reached from one."""


class Instruction:
    """One instruction, with what every pass asks for taken out of the proto once.

    Attributes:
        proto: the ``HloInstructionProto``.
        local: local id.
        opcode: HLO opcode.
        operands: local ids of the operands.
        control: local ids of the control predecessors.
        called: ids of the called computations.
    """

    __slots__ = (
        "_attributes",
        "_shape_key",
        "called",
        "control",
        "local",
        "opcode",
        "operands",
        "proto",
    )

    def __init__(self, proto: Any) -> None:
        self.proto = proto
        self.local: int = proto.id & LOCAL_ID
        self.opcode: str = proto.opcode
        ids = proto.operand_ids
        count = len(ids)
        self.operands: tuple[int, ...] = ()
        if count == 1:
            self.operands = (ids[0] & LOCAL_ID,)
        elif count == 2:
            self.operands = (ids[0] & LOCAL_ID, ids[1] & LOCAL_ID)
        elif count:
            self.operands = tuple([i & LOCAL_ID for i in ids])
        ids = proto.control_predecessor_ids
        self.control: tuple[int, ...] = tuple([i & LOCAL_ID for i in ids]) if ids else ()
        ids = proto.called_computation_ids
        self.called: tuple[int, ...] = tuple(ids) if ids else ()
        self._shape_key: bytes | None = None
        self._attributes: tuple[bool, bytes] | None = None

    @property
    def name(self) -> str:
        """Instruction name."""
        return str(self.proto.name)

    @property
    def shape(self) -> Any:
        """``ShapeProto`` of the result."""
        return self.proto.shape

    @property
    def shape_key(self) -> bytes:
        """Serialised shape: equal keys are equal shapes and layouts."""
        if self._shape_key is None:
            self._shape_key = self.proto.shape.SerializeToString()
        return self._shape_key

    def attributes(self, keep_config: bool) -> bytes:
        """The serialised instruction without what only its place in the module gives it.

        Without name, metadata, ids of itself, operands, control predecessors and called computations.

        Args:
            keep_config: keep the ``backend_config``.
        """
        known = self._attributes
        if known is not None and known[0] is keep_config:
            return known[1]
        proto = HloInstructionProto()
        self.copy_attributes(proto, keep_config)
        out: bytes = proto.SerializeToString()
        self._attributes = (keep_config, out)
        return out

    def copy_attributes(self, target: Any, keep_config: bool) -> None:
        """Makes an empty ``HloInstructionProto`` one with the same `attributes`."""
        target.CopyFrom(self.proto)
        clear = target.ClearField
        for name in _OF_A_PLACE:
            clear(name)
        if self.control:
            clear("control_predecessor_ids")
        if self.called:
            clear("called_computation_ids")
        if not keep_config:
            clear("backend_config")


@dataclass
class ComputationIndex:
    """One computation of the module.

    Attributes:
        proto: the ``HloComputationProto``.
        role: what calls it.
        instructions: in their order in the module (operands first).
        by_id: local instruction id -> instruction.
        root: local id of the root instruction.
        caller: local id of the calling instruction and its computation's id, None for the entry and
            for applied computations (which may have several callers).
        id: computation id.
    """

    proto: Any
    role: Role
    instructions: list[Instruction]
    by_id: dict[int, Instruction]
    root: int
    caller: tuple[int, int] | None = None
    id: int = field(init=False)

    def __post_init__(self) -> None:
        """Takes the id out of the proto."""
        self.id = int(self.proto.id)

    @cached_property
    def serialized(self) -> bytes:
        """The serialised proto."""
        out: bytes = self.proto.SerializeToString()
        return out


@dataclass
class ModuleIndex:
    """A module with its computations by id.

    Attributes:
        proto: the ``HloModuleProto``.
        computations: computation id -> `ComputationIndex`, callees before callers.
    """

    proto: Any
    computations: dict[int, ComputationIndex] = field(default_factory=dict)

    def graph_computations(self) -> Iterator[ComputationIndex]:
        """Computations whose instructions run as thunks of their own, callees before callers."""
        return (c for c in self.computations.values() if c.role < Role.FUSED)

    @property
    def instruction_count(self) -> int:
        """Instructions in all computations."""
        return sum(len(c.instructions) for c in self.computations.values())


def parse(data: bytes) -> ModuleIndex:
    """Parses serialised ``HloModuleProto`` bytes.

    Raises:
        ModuleFormatError: the bytes are no module, or ids in it do not resolve.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise ModuleFormatError(
            what=f"an HLO module must be bytes, got {type(data).__name__}",
            where="module",
            fix="pass a serialised HloModuleProto",
        )
    try:
        proto = HloModuleProto.FromString(bytes(data))
    except Exception as error:
        raise ModuleFormatError(
            what=f"cannot parse the HLO module: {error}",
            where=f"{len(data)} bytes",
            fix="pass the bytes of an HloModuleProto as jaxlib hands them to the hook",
        ) from error
    return index(proto)


def index(proto: Any, known: Mapping[int, ComputationIndex] = MappingProxyType({})) -> ModuleIndex:
    """Indexes a parsed module and finds the role of each computation.

    Args:
        proto: ``HloModuleProto``.
        known: computation id -> one of another module that may be the same: where it is, to the byte, its
            instructions are not looked at again.

    Raises:
        ModuleFormatError: a computation, root, operand or called computation is missing.
    """
    module = ModuleIndex(proto)
    if not proto.computations:
        raise ModuleFormatError(
            what="the module has no computations",
            where=proto.name or "module",
            fix="check the bytes",
        )
    for computation in proto.computations:
        same = known.get(computation.id)
        if same is not None and computation.SerializeToString() == same.serialized:
            module.computations[computation.id] = ComputationIndex(
                computation, Role.APPLIED, same.instructions, same.by_id, same.root
            )
            continue
        instructions = [Instruction(i) for i in computation.instructions]
        by_id = {i.local: i for i in instructions}
        root = computation.root_id & LOCAL_ID
        if root not in by_id or len(by_id) != len(instructions):
            raise _broken(computation.name, "root id does not resolve or ids repeat")
        found = ComputationIndex(computation, Role.APPLIED, instructions, by_id, root)
        _check_operands(found)
        module.computations[computation.id] = found
    if proto.entry_computation_id not in module.computations:
        raise _broken(proto.name, "entry computation does not resolve")
    module.computations[proto.entry_computation_id].role = Role.ENTRY
    for computation in reversed(list(module.computations.values())):
        if computation.role < Role.FUSED:
            _mark_callees(module, computation)
    return module


def _broken(where: str, what: str) -> ModuleFormatError:
    return ModuleFormatError(what=what, where=where, fix="check the module with XLA's verifier")


def _check_operands(computation: ComputationIndex) -> None:
    seen: set[int] = set()
    see = seen.add
    for instruction in computation.instructions:
        operands = instruction.operands
        if operands and not seen.issuperset(operands):
            raise _broken(
                f"{computation.proto.name}/{instruction.name}",
                "an operand is missing or comes after its user",
            )
        see(instruction.local)


_CALLEE_ROLES: Final[dict[str, tuple[Role, ...]]] = {
    "while": (Role.LOOP_BODY, Role.LOOP_CONDITION),
    "conditional": (Role.BRANCH,),
    "call": (Role.CALLED,),
    "fusion": (Role.FUSED,),
}
"""Opcode -> roles of its called computations; the last role repeats."""


def _mark_callees(module: ModuleIndex, computation: ComputationIndex) -> None:
    for instruction in computation.instructions:
        if not instruction.called:
            continue
        roles = _CALLEE_ROLES.get(instruction.opcode, (Role.APPLIED,))
        for position, callee_id in enumerate(instruction.called):
            callee = module.computations.get(callee_id)
            if callee is None:
                raise _broken(instruction.name, "a called computation does not resolve")
            role = roles[min(position, len(roles) - 1)]
            if role is Role.APPLIED:
                continue
            if callee.caller is not None or callee.role is not Role.APPLIED:
                raise UnsupportedModuleError(
                    what=f"computation {callee.proto.name} has two callers",
                    where=instruction.name,
                    fix="nothing to do: the module keeps XLA's default",
                    rule="shared-computation",
                )
            callee.role = role
            callee.caller = (instruction.local, computation.id)


def check_supported(
    module: ModuleIndex, max_instructions: int = 200_000, *, allow_donation: bool = False
) -> None:
    """Refuses modules that graphopt leaves alone.

    Raises:
        UnsupportedModuleError: with the name of the rule in ``rule``: donation,
            asynchronous, dynamic-shape, unknown-opcode, sub-byte, too-large, shared-computation.
    """
    proto = module.proto
    rules: tuple[tuple[str, bool, str], ...] = (
        (
            "donation",
            has_donation(module) and not allow_donation,
            "a rewritten module would lose its donated buffers",
        ),
        ("dynamic-shape", bool(proto.is_dynamic), "the module has dynamic shapes"),
        (
            "too-large",
            module.instruction_count > max_instructions,
            f"the module has {module.instruction_count} instructions (limit {max_instructions})",
        ),
    )
    for rule, holds, message in rules:
        if holds:
            raise _unsupported(rule, message, proto.name)
    for computation in module.graph_computations():
        for instruction in computation.instructions:
            _check_instruction(instruction)


def has_donation(module: ModuleIndex) -> bool:
    """True if an input buffer of the module is donated to an output."""
    return bool(module.proto.input_output_alias) or bool(module.proto.buffer_donor)


def device_count(module: ModuleIndex) -> int:
    """How many devices run the module together, in all processes; 1 if it does not say."""
    assignment = module.proto.device_assignment
    return max(1, int(assignment.replica_count)) * max(1, int(assignment.computation_count))


def _unsupported(rule: str, message: str, where: str) -> UnsupportedModuleError:
    return UnsupportedModuleError(
        what=message, where=where, fix="nothing to do: the module keeps XLA's default", rule=rule
    )


def _check_instruction(instruction: Instruction) -> None:
    opcode = instruction.opcode
    if opcode in ASYNCHRONOUS_OPS:
        raise _unsupported("asynchronous", f"{opcode} goes on beside others", instruction.name)
    if opcode not in OP_BY_NAME:
        raise _unsupported("unknown-opcode", f"opcode {opcode!r} is not known", instruction.name)
    for leaf in leaves(instruction.shape):
        if leaf.is_dynamic_dimension and True in leaf.is_dynamic_dimension:
            raise _unsupported("dynamic-shape", "a dimension is dynamic", instruction.name)
        if leaf.element_type in SUB_BYTE_DTYPES:
            raise _unsupported("sub-byte", "elements smaller than a byte", instruction.name)


def leaves(shape: Any) -> Iterator[Any]:
    """The array (or token) shapes inside a shape, left to right."""
    if shape.element_type == DType.TUPLE:
        for part in shape.tuple_shapes:
            yield from leaves(part)
    else:
        yield shape


def leaf_paths(shape: Any, prefix: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Tuple index paths of the leaves of a shape, left to right; ``()`` for an array."""
    if shape.element_type == DType.TUPLE:
        for position, part in enumerate(shape.tuple_shapes):
            yield from leaf_paths(part, (*prefix, position))
    else:
        yield prefix
