"""Static verification of a rewritten module, before XLA sees it.

XLA checks shapes and structure itself, but it aborts the process on some illegal modules and silently
miscompiles others (inconsistent layouts, a reader ordered after an in-place write). Every such case that
is known is a check here. Checks are rows of a table; the first violation is reported by rule and node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import prod
from types import MappingProxyType
from typing import Any, Final

from graphopt.errors import ModuleFormatError, VerificationError
from graphopt.hlo.graph.collectives import trace
from graphopt.hlo.graph.in_place import InPlaceAnalysis, broken_hazards
from graphopt.hlo.module import backend_config
from graphopt.hlo.module.index import (
    ComputationIndex,
    Instruction,
    ModuleIndex,
    Role,
    index,
    leaves,
)
from graphopt.hlo.module.opcodes import OP_BY_NAME, is_native_product
from graphopt.hlo.module.proto import DTYPE_BYTES, DType
from graphopt.hlo.module.small_calls import is_small_call
from graphopt.machine.units import LIBRARY_OPS

Finding = tuple[str, str]
"""(instruction or computation name, what is wrong)."""


def verify(
    proto: Any,
    original: ModuleIndex | None = None,
    copied: Mapping[int, ComputationIndex] = MappingProxyType({}),
) -> None:
    """Checks a module that is about to be handed to XLA.

    Args:
        proto: ``HloModuleProto`` of the rewritten module.
        original: the incoming module, whose entry signature must be kept.
        copied: computations of it that should be in the new one as they were (see `index`).

    Raises:
        VerificationError: `rule` and `node` name the first violation.
    """
    try:
        module = index(proto, copied)
    except ModuleFormatError as error:
        raise _violation("structure", error.where, error.what) from error
    for rule, check in _CHECKS:
        for name, message in check(module):
            raise _violation(rule, name, message)
    for name, message in _fused_operations(module, original):
        raise _violation("fused-operation", name, message)
    for name, message in _lone_operations(module, original):
        raise _violation("lone-operation", name, message)
    if original is not None:
        check_signature(module, original)
    _check_in_place(module)


def _violation(rule: str, node: str, what: str) -> VerificationError:
    return VerificationError(
        what=f"the rewritten module breaks rule {rule}: {what}",
        where=node,
        fix="This is a defect of the rewriter: please report it with the program.",
        rule=rule,
        node=node,
    )


def check_signature(module: ModuleIndex, original: ModuleIndex) -> None:
    """Checks that a module takes, returns and exchanges with other devices what the incoming one does.

    Raises:
        VerificationError: rules ``entry-result``, ``entry-parameters`` and ``collective-order``.
    """
    ours = module.computations[module.proto.entry_computation_id]
    theirs = original.computations[original.proto.entry_computation_id]
    if _root_shape(ours) != _root_shape(theirs):
        raise _violation("entry-result", ours.proto.name, "the result shape changed")
    if _parameters(ours) != _parameters(theirs):
        raise _violation("entry-parameters", ours.proto.name, "the parameters changed")
    if trace(module) != trace(original):
        raise _violation("collective-order", ours.proto.name, "devices would meet in another order")


def _check_in_place(module: ModuleIndex) -> None:
    for hazard, reader in broken_hazards(InPlaceAnalysis(module)):
        computation = module.computations[hazard.computation]
        raise _violation(
            "in-place-order",
            computation.by_id[reader].name,
            f"it may run after {computation.by_id[hazard.writer].name} overwrote its operand",
        )


def _root_shape(computation: ComputationIndex) -> bytes:
    return computation.by_id[computation.root].shape_key


def _parameters(computation: ComputationIndex) -> dict[int, bytes]:
    return {
        i.proto.parameter_number: i.shape_key
        for i in computation.instructions
        if i.opcode == "parameter"
    }


def _names(module: ModuleIndex) -> Iterator[Finding]:
    names = [i.proto.name for c in module.computations.values() for i in c.instructions]
    if len(set(names)) < len(names):
        for name, count in Counter(names).items():
            if count > 1:
                yield name, "the name occurs twice"


def _callees(module: ModuleIndex) -> Iterator[Finding]:
    """Callees come first, so that the call graph has no cycle."""
    seen: set[int] = set()
    for computation in module.computations.values():
        for instruction in computation.instructions:
            if instruction.called and not seen.issuperset(instruction.called):
                yield instruction.name, "a called computation comes after its caller"
        seen.add(computation.id)


def _control_order(module: ModuleIndex) -> Iterator[Finding]:
    for computation in module.computations.values():
        if not any(i.control for i in computation.instructions):
            continue
        seen: set[int] = set()
        for instruction in computation.instructions:
            for before in instruction.control:
                if before not in seen:
                    yield instruction.name, "a control predecessor comes later"
            seen.add(instruction.local)


def _fusions(
    module: ModuleIndex,
) -> Iterator[tuple[Instruction, ComputationIndex, ComputationIndex]]:
    """(fusion, its computation, its body)."""
    for computation in module.computations.values():
        for instruction in computation.instructions:
            if instruction.opcode == "fusion":
                body = module.computations[instruction.called[0]]
                yield instruction, computation, body


def _fusion_kinds(module: ModuleIndex) -> Iterator[Finding]:
    for fusion, computation, body in _fusions(module):
        library = fusion.proto.fusion_kind == "kCustom"
        if fusion.proto.fusion_kind not in ("kLoop", "kOutput", "kCustom"):
            yield fusion.name, f"fusion kind {fusion.proto.fusion_kind!r} does not compile on CPU"
        if library and not fusion.proto.backend_config:
            yield fusion.name, "a library fusion needs a backend config"
        if library and fusion.shape.element_type == DType.TUPLE:
            yield fusion.name, "a library fusion has one array result"
        if computation.role is Role.FUSED:
            yield fusion.name, "a fusion inside a fusion"
        if not body.proto.is_fusion_computation:
            yield body.proto.name, "not marked as a fusion computation"


def _fused_operations(module: ModuleIndex, original: ModuleIndex | None) -> Iterator[Finding]:
    """What fusions contain; the library computes at least what XLA gives it by default."""
    given = _IN_LIBRARY
    for fusion, _, body in _fusions(original) if original is not None else ():
        if backend_config.is_library(fusion.proto.backend_config):
            given |= {i.opcode for i in body.instructions}
    for fusion, _, body in _fusions(module):
        library = backend_config.is_library(fusion.proto.backend_config)
        allowed = given if library else _IN_LOOPS
        for instruction in body.instructions:
            opcode = instruction.opcode
            if opcode not in allowed and library:
                yield instruction.name, f"the kernel library cannot compute {opcode}"
            elif opcode not in allowed:
                yield instruction.name, f"a loop fusion cannot contain {opcode}"


_ALSO_FUSED: Final = frozenset(
    {"parameter", "tuple", "get-tuple-element", "dot", "scatter", "convolution", "map"}
)
"""Not for new clusters, but XLA puts them into fusions itself, and those are kept whole."""

_IN_LIBRARY: Final = frozenset({*LIBRARY_OPS, "parameter"})
_IN_LOOPS: Final = _ALSO_FUSED | {name for name, op in OP_BY_NAME.items() if op.fusible}
"""What kernels of the library and of the loop generator may contain."""

_ALSO_NATIVE: Final = frozenset({"convolution"})
"""Not for new regions, but XLA makes small loops with them native itself."""


def _fusion_shapes(module: ModuleIndex) -> Iterator[Finding]:
    for fusion, computation, body in _fusions(module):
        if fusion.shape_key != _root_shape(body):
            yield fusion.name, "the result shape differs from the body's root"
        parameters = _parameters(body)
        if sorted(parameters) != list(range(len(fusion.operands))):
            yield fusion.name, "operands and parameters do not match"
            continue
        for number, operand in enumerate(fusion.operands):
            source = computation.by_id[operand]
            if source.shape.element_type == DType.TUPLE:
                yield fusion.name, "an operand is a tuple"
            if source.shape_key != parameters[number]:
                yield (
                    fusion.name,
                    f"operand {number} has another shape or layout than its parameter",
                )


def _fusion_outputs(module: ModuleIndex) -> Iterator[Finding]:
    for fusion, _, body in _fusions(module):
        if body.by_id[body.root].opcode == "tuple":
            sizes = {prod(leaf.dimensions) for leaf in leaves(fusion.shape)}
            if len(sizes) > 1:
                yield fusion.name, "outputs with different element counts crash the compiler"


def _fused_parameters(module: ModuleIndex) -> Iterator[Finding]:
    for _, _, body in _fusions(module):
        used = {body.root}.union(*[i.operands for i in body.instructions])
        for instruction in body.instructions:
            if instruction.opcode == "parameter" and instruction.local not in used:
                yield instruction.name, "a fused parameter without users"


def _layouts(module: ModuleIndex) -> Iterator[Finding]:
    checked: set[bytes] = set()
    for computation in module.computations.values():
        for instruction in computation.instructions:
            key = instruction.shape_key
            if key in checked:
                continue
            checked.add(key)
            for leaf in leaves(instruction.shape):
                rank = len(leaf.dimensions)
                if leaf.element_type not in DTYPE_BYTES:
                    continue
                if rank and sorted(leaf.layout.minor_to_major) != list(range(rank)):
                    yield instruction.name, "an array shape without a full layout"


def _partitions(module: ModuleIndex) -> Iterator[Finding]:
    for computation in module.graph_computations():
        for instruction in computation.instructions:
            if instruction.opcode in ("while", "custom-call", "dot"):
                continue
            data = instruction.proto.backend_config
            if not data:
                continue
            parts = backend_config.partitions(data)
            shape = next(leaves(instruction.shape), None)
            if not parts or shape is None:
                continue
            outer = list(reversed(shape.layout.minor_to_major))[: len(parts)]
            extents = [shape.dimensions[d] for d in outer]
            if len(parts) > len(extents) or any(
                not 1 <= part <= extent for part, extent in zip(parts, extents, strict=False)
            ):
                yield instruction.name, f"partitions {parts} do not fit the shape"


def _calls(module: ModuleIndex) -> Iterator[Finding]:
    for computation in module.graph_computations():
        for instruction in computation.instructions:
            if instruction.opcode == "call":
                callee = module.computations[instruction.called[0]]
                parameters = _parameters(callee)
                shapes = [computation.by_id[o].shape_key for o in instruction.operands]
                if shapes != [parameters.get(i) for i in range(len(shapes))]:
                    yield instruction.name, "operands and parameters do not match"
                if instruction.shape_key != _root_shape(callee):
                    yield instruction.name, "the result shape differs from the callee's root"
                if is_small_call(instruction):
                    yield from _region(module, callee)


def _region(module: ModuleIndex, computation: ComputationIndex) -> Iterator[Finding]:
    """What a native region contains, called computations included."""
    for instruction in computation.instructions:
        op = OP_BY_NAME.get(instruction.opcode)
        allowed = op is not None and (op.regional or op.name in _ALSO_NATIVE)
        if not allowed or instruction.proto.fusion_kind == "kCustom":
            yield instruction.name, f"a native region cannot contain {instruction.opcode}"
        if instruction.opcode == "dot" and not _is_native_dot(computation, instruction):
            yield instruction.name, "native code cannot multiply numbers of these types"
        for callee in instruction.called:
            called = module.computations[callee]
            if called.role < Role.FUSED:
                yield from _region(module, called)
            elif called.role is Role.FUSED and any(
                i.opcode == "scatter" for i in called.instructions
            ):
                yield instruction.name, "a native region cannot contain scatter"


def _lone_operations(module: ModuleIndex, original: ModuleIndex | None) -> Iterator[Finding]:
    """Operations outside any fusion where kernels are called one by one: jaxlib 0.12 compiles none."""
    found = list(_lone(module))
    given = {i.opcode for i in _lone(original)} if found and original is not None else set()
    for instruction in found:
        if instruction.opcode not in given:
            yield instruction.name, f"{instruction.opcode} must be part of a fusion"


_WITHOUT_KERNEL: Final = frozenset({"constant", "bitcast", "copy"})
"""Fusible operations that XLA computes by other means than a kernel."""


def _lone(module: ModuleIndex) -> Iterator[Instruction]:
    """Fusible operations that stand bare outside native code."""
    native: set[int] = set()
    for computation in reversed(list(module.graph_computations())):  # callers first
        inside = computation.id in native
        for instruction in computation.instructions:
            if inside or is_small_call(instruction):
                native.update(instruction.called)
            op = OP_BY_NAME.get(instruction.opcode)
            if op is not None and op.fusible and not inside and op.name not in _WITHOUT_KERNEL:
                yield instruction


def _is_native_dot(computation: ComputationIndex, dot: Instruction) -> bool:
    shapes = [dot.shape, *(computation.by_id[operand].shape for operand in dot.operands)]
    return is_native_product(int(shape.element_type) for shape in shapes)


_CHECKS: Final[tuple[tuple[str, Callable[[ModuleIndex], Iterator[Finding]]], ...]] = (
    ("unique-names", _names),
    ("callees-first", _callees),
    ("control-order", _control_order),
    ("fusion-kind", _fusion_kinds),
    ("fusion-shape", _fusion_shapes),
    ("fusion-outputs", _fusion_outputs),
    ("fused-parameter", _fused_parameters),
    ("layout", _layouts),
    ("partition", _partitions),
    ("native-region", _calls),
)
"""(rule name, check); a check yields violations."""
