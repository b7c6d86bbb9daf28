"""Programs that cannot gain, recognised before a graph is built: one or two short kernels, and nothing else.

A single call of a library function compiles into such a program. They are those that
`graphopt.policy.heuristic.caller_thread.is_negligible` leaves alone, as far as a bound on their time tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Final

from graphopt.hlo.module import backend_config
from graphopt.hlo.module.index import Instruction, ModuleIndex, Role
from graphopt.hlo.module.opcodes import OP_BY_NAME, OpKind
from graphopt.hlo.module.proto import DTYPE_BYTES
from graphopt.machine import CpuCosts, own_costs
from graphopt.policy.heuristic.caller_thread import LIMITS

_FREE: Final = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast"})
"""No kernels, and no work inside of one."""

_SAME_ELEMENTS: Final = frozenset(
    {"broadcast", "iota", "reshape", "slice", "pad", "concatenate", "reverse"}
)
"""Operations beside elementwise ones whose time is that of the elements they make."""


def is_split(module: ModuleIndex) -> bool:
    """True for a module with a kernel that XLA splits over cores."""
    return any(
        backend_config.partition_count(instruction.proto.backend_config) > 1
        for computation in module.graph_computations()
        for instruction in computation.instructions
    )


def cannot_gain(module: ModuleIndex, costs: CpuCosts | None = None) -> bool:
    """True for a module of so few and short kernels that no decision in it could be noticed.

    Args:
        module: parsed, supported.
        costs: of the machine; this one's if None.
    """
    costs = costs or own_costs()
    graphs = list(module.graph_computations())
    if len(graphs) != 1 or graphs[0].role is not Role.ENTRY:
        return False
    kernels = [i for i in graphs[0].instructions if i.opcode not in _FREE]
    if len(kernels) > LIMITS.few_kernels:
        return False
    total = costs.thunk_ns * len(kernels)
    for kernel in kernels:
        inside: Iterable[Instruction] = (kernel,)
        if kernel.opcode == "fusion":
            if kernel.proto.fusion_kind != "kLoop":
                return False
            inside = module.computations[kernel.called[0]].instructions
        for instruction in inside:
            if instruction.opcode in _FREE:
                continue
            ns = _most_ns(instruction, costs)
            if ns is None:
                return False
            total += ns
            if total >= LIMITS.min_program_ns:
                return False
    return True


def _most_ns(instruction: Instruction, costs: CpuCosts) -> float | None:
    """A bound on an operation's time, its results written to memory and handed over; None without one."""
    opcode, shape = instruction.opcode, instruction.shape
    size = DTYPE_BYTES.get(shape.element_type)
    op = OP_BY_NAME.get(opcode)
    if size is None or op is None or not op.fusible:
        return None
    if op.kind is not OpKind.ELEMENTWISE and opcode not in _SAME_ELEMENTS:
        return None
    element = _element_ns(opcode, costs) + size / min(costs.bytes_per_ns, costs.cached_bytes_per_ns)
    return 2.0 * float(prod(shape.dimensions)) * element


def _element_ns(opcode: str, costs: CpuCosts) -> float:
    """Nanoseconds that an operation takes at most for one element."""
    rate = min(costs.scalar_operations_per_ns, costs.operations_per_ns / 2)
    tables = (costs.integer_ns.get(opcode, 0.0), *costs.function_ns.get(opcode, ()))
    return float(max(OP_BY_NAME[opcode].cost / rate, costs.turn_ns, costs.gather_ns, *tables))
