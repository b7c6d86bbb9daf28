"""Writes a rewritten module, computation by computation, callees first."""

from __future__ import annotations

from typing import Any

from graphopt.hlo.emit.protos import ModuleWriter, Scope, write_item
from graphopt.hlo.emit.regions import Outer, RegionWriter
from graphopt.hlo.graph.graph import Computation, Graph
from graphopt.hlo.module.proto import HloComputationProto
from graphopt.hlo.plan.clusters import Clustering
from graphopt.hlo.plan.regions import Plan, Region


def emit(graph: Graph, clustering: Clustering, plans: list[Plan]) -> ModuleWriter:
    """The rewritten module, with where each node went; the proto is its ``module``."""
    module = ModuleWriter(graph, clustering)
    module.add_kept_computations()
    module.keep_bodies()
    for plan in plans:
        proto = ComputationWriter(module, plan).run()
        module.module.computations.add().CopyFrom(proto)
    return module


class ComputationWriter:
    """Writes one graph computation according to its plan."""

    def __init__(self, module: ModuleWriter, plan: Plan) -> None:
        """Keeps the computation's name, id and signature."""
        self.module = module
        self.graph = module.graph
        self.plan = plan
        self.computation: Computation = plan.items.computation
        original = self.graph.source.module.computations[self.computation.id].proto
        proto = HloComputationProto(
            name=original.name, id=original.id, execution_thread=original.execution_thread
        )
        proto.program_shape.CopyFrom(original.program_shape)
        self.scope = Scope(module, proto)
        self.values: dict[int, int] = {}
        """Node in memory -> local instruction id."""
        self.last: dict[int, int] = {}
        """Item or first item of a region -> the instruction that stands for it in control edges."""

    def run(self) -> Any:
        """The finished computation."""
        for entry in self.plan.entries:
            if isinstance(entry, Region):
                self._write_region(entry)
            else:
                self._write_item(entry)
        proto = self.scope.finish(self.values[self.computation.root])
        if any(isinstance(entry, Region) for entry in self.plan.entries):
            _drop_unread(proto)
        return proto

    def _write_item(self, item: int) -> None:
        instruction = write_item(self.scope, self.module.clustering, item, self.values)
        self._add_control(instruction, [item], item)

    def _add_control(self, instruction: Any, items: list[int], name: int) -> None:
        """Control dependencies of an instruction that stands for `items`."""
        self.last[name] = instruction.id
        self.module.entry_names[instruction.name] = name
        inside = set(items)
        before: set[int] = set()
        for item in items:
            for earlier in self.plan.items.ordered[item]:
                if earlier not in inside:
                    region = self.plan.region_of.get(earlier)
                    before.add(self.last[earlier if region is None else region.items[0]])
        instruction.control_predecessor_ids.extend(sorted(before))

    def _write_region(self, region: Region) -> None:
        writer = RegionWriter(Outer(self.module, self.plan, self.scope, self.values), region)
        call = writer.run()
        self._add_control(call, region.items, region.items[0])


def _drop_unread(computation: Any) -> None:
    """Leaves out constants that native regions repeat inside: each takes some 70 ns of every call."""
    read = {computation.root_id}
    for instruction in computation.instructions:
        read.update(instruction.operand_ids, instruction.control_predecessor_ids)
    unread = [
        position
        for position, instruction in enumerate(computation.instructions)
        if instruction.opcode == "constant" and instruction.id not in read
    ]
    for position in reversed(unread):
        del computation.instructions[position]
