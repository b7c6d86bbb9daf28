"""What an expansion sees of the operation that it replaces, before and while it does so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.values import Value, is_row_major


@dataclass
class Site:
    """An operation at the point of its replacement.

    Attributes:
        block: where the replacement is written.
        instruction: ``HloInstructionProto`` of the operation.
        operands: its operands, all in memory.
        computations: computation id -> ``HloComputationProto``, to look up applied functions.
        producers: finds what `producer` returns.
        instructions: local id -> instruction of the computation around the operation.
        node: of the graph, for a plain operation; else -1.
        nested: a plain operation in the body of a loop.
    """

    block: Block
    instruction: Any
    operands: list[Value]
    computations: dict[int, Any]
    producers: Callable[[Value], Site | None] = lambda _: None
    instructions: dict[int, Any] = field(default_factory=dict)
    node: int = -1
    nested: bool = False

    def producer(self, value: Value) -> Site | None:
        """The operation that made an operand, if it stands alone with its operands in memory."""
        return self.producers(value)

    @property
    def applied(self) -> Any:
        """The first applied computation: the combiner of a scatter, reduce or reduce-window."""
        return self.computations[self.instruction.called_computation_ids[0]]


class Candidate:
    """A node that might be replaced, with what legality rules ask about it."""

    def __init__(self, graph: Graph, node: int) -> None:
        """Looks at nothing yet."""
        self.graph = graph
        self.node = node
        self.computations = graph.source.module.computations

    @cached_property
    def instruction(self) -> Any:
        """``HloInstructionProto`` of the operation."""
        return self.graph.source.protos[self.node]

    @property
    def operands(self) -> list[int]:
        """Operand nodes."""
        return self.graph.operand_lists[self.node]

    @property
    def shape(self) -> Any:
        """``ShapeProto`` of the result."""
        return self.graph.source.shapes[self.node]

    def operand_shape(self, number: int) -> Any:
        """``ShapeProto`` of an operand."""
        return self.graph.source.shapes[self.operands[number]]

    @property
    def applied(self) -> Any:
        """``HloComputationProto`` of the first applied computation."""
        return self.computations[self.graph.source.called[self.node][0]].proto

    def arrays(self) -> Iterator[Any]:
        """Shapes of the operands and of the result's parts."""
        for operand in self.operands:
            yield self.graph.source.shapes[operand]
        shape = self.shape
        yield from shape.tuple_shapes if shape.element_type == DType.TUPLE else (shape,)

    def has_default_layouts(self) -> bool:
        """True if all arrays are row-major."""
        return all(is_row_major(shape) for shape in self.arrays())
