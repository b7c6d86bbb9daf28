"""Outlining native regions: one called computation and one call each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphopt.hlo.emit.protos import ModuleWriter, Scope, write_item
from graphopt.hlo.module.proto import DType
from graphopt.hlo.module.small_calls import SMALL_CALL
from graphopt.hlo.plan.regions import Plan, Region, item_reads, region_inputs


@dataclass(frozen=True)
class Outer:
    """The computation around a region, while it is written.

    Attributes:
        module: the module being written.
        plan: of the computation.
        scope: where its instructions go.
        values: node in memory -> local instruction id.
    """

    module: ModuleWriter
    plan: Plan
    scope: Scope
    values: dict[int, int]


class RegionWriter:
    """Outlines a region into a computation of its own and calls it."""

    def __init__(self, outer: Outer, region: Region) -> None:
        """Prepares the outlined computation."""
        self.outer = outer
        self.graph = outer.module.graph
        self.region = region
        self.members = set(region.items)
        self.clustering = outer.module.clustering
        name = f"native_region_{outer.plan.items.computation.name}"
        self.scope = Scope(outer.module, outer.module.new_computation(name))
        self.values: dict[int, int] = {}
        self.arguments: list[int] = []
        """Nodes of the outer computation that the call passes, in parameter order."""

    def run(self) -> Any:
        """Writes the computation; returns the call instruction in the outer one."""
        single = len(self.region.items) == 1
        inputs = region_inputs(self.graph, self.clustering, self.outer.plan.items, self.region)
        for node in inputs:
            self.values[node] = self.scope.add_parameter(
                self.graph.source.shapes[node], len(self.arguments)
            )
            self.arguments.append(node)
        written: dict[int, int] = {}
        for item in self.region.items:
            for node in item_reads(self.graph, self.clustering, item):
                self._value(node)
            instruction = write_item(self.scope, self.clustering, item, self.values)
            written[item] = instruction.id
            before = sorted(written[b] for b in self.outer.plan.items.ordered[item] if b in written)
            instruction.control_predecessor_ids.extend(before)
        if single:
            root = written[self.region.items[0]]
            return self._call_single(root)
        return self._call(self._outputs())

    def _value(self, node: int) -> int:
        """Local id of a value inside the region; repeats views, tuples and scalar constants."""
        found = self.values.get(node)
        if found is None:
            operands = [self._value(o) for o in self.graph.operand_lists[node]]
            found = int(self.scope.add_node(node, operands).id)
            self.values[node] = found
        return found

    def _outputs(self) -> list[int]:
        """Nodes of the region whose values are needed outside, as arrays or whole tuples."""
        plan = self.outer.plan
        needed: dict[int, None] = {}
        for item in plan.items.members:
            if item in self.members:
                continue
            for node in item_reads(self.graph, self.clustering, item):
                if plan.items.item_of[node] in self.members:
                    needed[node] = None
        root = self.outer.plan.items.computation.root
        if plan.items.item_of[root] in self.members:
            needed[root] = None
        return list(needed)

    def _call_instruction(self, computation: Any, shape: Any) -> Any:
        self.outer.module.module.computations.add().CopyFrom(computation)
        operands = [self.outer.values[node] for node in self.arguments]
        call = self.outer.scope.add("native_region", operands)
        call.opcode = "call"
        call.shape.CopyFrom(shape)
        call.called_computation_ids.append(computation.id)
        attribute = call.frontend_attributes.map.add()
        attribute.key, attribute.value = SMALL_CALL, "true"
        metadata = self.graph.source.protos[self.region.items[-1]].metadata
        if metadata:
            call.metadata = metadata
        return call

    def _call_single(self, root: int) -> Any:
        computation = self.scope.finish(root)
        item = self.region.items[0]
        call = self._call_instruction(computation, self.scope.proto.instructions[root - 1].shape)
        self.outer.values[item] = int(call.id)
        return call

    def _call(self, outputs: list[int]) -> Any:
        """Returns every output; tuples leave the region element by element."""
        parts: list[int] = []
        layout: list[tuple[int, int]] = []
        """(output node, number of tuple elements or 0 for an array)."""
        for node in outputs:
            local = self.values[node]
            shape = self.graph.source.shapes[node]
            if shape.element_type != DType.TUPLE:
                parts.append(local)
                layout.append((node, 0))
                continue
            for position in range(len(shape.tuple_shapes)):
                parts.append(int(self.scope.add_element(local, position).id))
            layout.append((node, len(shape.tuple_shapes)))
        if len(parts) == 1 and layout[0][1] == 0:
            call = self._call_instruction(
                self.scope.finish(parts[0]), self.scope.proto.instructions[parts[0] - 1].shape
            )
            self.outer.values[layout[0][0]] = int(call.id)
            return call
        root = self.scope.add_tuple(parts)
        call = self._call_instruction(self.scope.finish(int(root.id)), root.shape)
        self._unpack(call, layout)
        return call

    def _unpack(self, call: Any, layout: list[tuple[int, int]]) -> None:
        scope = self.outer.scope
        position = 0
        for node, count in layout:
            if not count:
                element = scope.add_element(int(call.id), position)
                self.outer.values[node] = int(element.id)
                position += 1
                continue
            elements = []
            for _ in range(count):
                elements.append(int(scope.add_element(int(call.id), position).id))
                position += 1
            self.outer.values[node] = int(scope.add_tuple(elements).id)
