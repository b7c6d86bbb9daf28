"""Writes the protos of a rewritten module: fusions, regions, and everything that stays as it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphopt.hlo import config
from graphopt.hlo.clusters import Cluster, Clustering
from graphopt.hlo.graph import Computation, Graph
from graphopt.hlo.module import SMALL_CALL, Role
from graphopt.hlo.regions import Plan, Region, item_reads, region_inputs
from graphopt.hlo.schema import DType, HloComputationProto, HloModuleProto, ShapeProto
from graphopt.machine import UnitKind


class ModuleEmitter:
    """Builds the output module, computation by computation, callees first."""

    def __init__(self, graph: Graph, clustering: Clustering, plans: list[Plan]) -> None:
        """Starts from the incoming module's header."""
        self.graph = graph
        self.clustering = clustering
        self.plans = plans
        source = graph.source.module
        self.module = HloModuleProto()
        self.module.CopyFrom(source.proto)
        self.module.ClearField("computations")
        self._next_id = max(source.computations) + 1
        self._names: set[str] = set()
        self._serial = 0

    def run(self) -> Any:
        """The rewritten ``HloModuleProto``."""
        self._add_kept_computations()
        for plan in self.plans:
            writer = ComputationWriter(self, plan)
            proto = writer.run()
            self.module.computations.add().CopyFrom(proto)
        return self.module

    def _add_kept_computations(self) -> None:
        """Applied functions and opaque fusion bodies, unchanged."""
        source = self.graph.source.module
        needed = {c for called in self.graph.source.called for c in called}
        kept = []
        for computation in reversed(source.computations.values()):
            if computation.role < Role.FUSED or computation.id not in needed:
                continue
            kept.append(computation)
            for instruction in computation.instructions:
                needed.update(instruction.called)
        for computation in reversed(kept):
            self.module.computations.add().CopyFrom(computation.proto)
            self._names.update(i.name for i in computation.instructions)

    def new_computation(self, name: str, module: Any = None) -> Any:
        """An empty computation with a fresh id, at the end of `module` if that is given.

        A computation that calls others must not be there before them: it is added when finished.
        """
        proto = HloComputationProto() if module is None else module.computations.add()
        proto.name, proto.id = f"{name}.{self._next_id}", self._next_id
        self._next_id += 1
        return proto

    def unique_name(self, base: str) -> str:
        """`base`, or a variant of it that the module does not use yet."""
        name = base
        while name in self._names:
            self._serial += 1
            name = f"{base}.g{self._serial}"
        self._names.add(name)
        return name


class Scope:
    """A computation being written: adds instructions with consecutive ids."""

    def __init__(self, module: ModuleEmitter, proto: Any) -> None:
        """Writes into an empty computation proto."""
        self.module = module
        self.graph = module.graph
        self.proto = proto

    def add(self, name: str, operands: Iterable[int]) -> Any:
        """A new instruction without opcode and shape."""
        instruction = self.proto.instructions.add()
        instruction.name = self.module.unique_name(name)
        instruction.id = len(self.proto.instructions)
        instruction.operand_ids.extend(operands)
        return instruction

    def add_node(self, node: int, operands: Iterable[int]) -> Any:
        """An instruction with a node's own attributes."""
        source = self.graph.source
        instruction = self.proto.instructions.add()
        instruction.MergeFromString(source.attributes[node])
        instruction.name = self.module.unique_name(source.names[node])
        instruction.id = len(self.proto.instructions)
        instruction.operand_ids.extend(operands)
        if source.metadata[node]:
            instruction.metadata = source.metadata[node]
        if source.called[node]:
            instruction.called_computation_ids.extend(source.called[node])
        return instruction

    def add_parameter(self, shape: Any, number: int) -> int:
        """A parameter of a new computation."""
        instruction = self.add(f"param_{number}", ())
        instruction.opcode = "parameter"
        instruction.parameter_number = number
        instruction.shape.CopyFrom(shape)
        self.proto.program_shape.parameters.add().CopyFrom(shape)
        self.proto.program_shape.parameter_names.append(instruction.name)
        return int(instruction.id)

    def add_tuple(self, parts: list[int]) -> Any:
        """A tuple of instructions of this computation."""
        instruction = self.add("tuple", parts)
        instruction.opcode = "tuple"
        instruction.shape.element_type = DType.TUPLE
        for part in parts:
            shape = self.proto.instructions[part - 1].shape
            instruction.shape.tuple_shapes.add().CopyFrom(shape)
        return instruction

    def add_element(self, operand: int, position: int) -> Any:
        """A get-tuple-element of an instruction of this computation."""
        source = self.proto.instructions[operand - 1]
        instruction = self.add("get-tuple-element", (operand,))
        instruction.opcode = "get-tuple-element"
        instruction.tuple_index = position
        instruction.shape.CopyFrom(source.shape.tuple_shapes[position])
        return instruction

    def finish(self, root: int) -> Any:
        """Sets the root; returns the computation proto."""
        self.proto.root_id = root
        if not self.proto.program_shape.HasField("result"):
            shape = self.proto.instructions[root - 1].shape
            self.proto.program_shape.result.CopyFrom(shape)
        return self.proto


class ComputationWriter:
    """Writes one graph computation according to its plan."""

    def __init__(self, module: ModuleEmitter, plan: Plan) -> None:
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
        return self.scope.finish(self.values[self.computation.root])

    def _write_item(self, item: int) -> None:
        instruction = write_item(self.scope, self.module.clustering, item, self.values)
        self._add_control(instruction, [item], item)

    def _add_control(self, instruction: Any, items: list[int], name: int) -> None:
        """Control dependencies of an instruction that stands for `items`."""
        self.last[name] = instruction.id
        inside = set(items)
        before: set[int] = set()
        for item in items:
            for earlier in self.plan.items.ordered[item]:
                if earlier not in inside:
                    region = self.plan.region_of.get(earlier)
                    before.add(self.last[earlier if region is None else region.items[0]])
        instruction.control_predecessor_ids.extend(sorted(before))

    def _write_region(self, region: Region) -> None:
        writer = RegionWriter(self, region)
        call = writer.run()
        self._add_control(call, region.items, region.items[0])


class RegionWriter:
    """Outlines a region into a computation of its own and calls it."""

    def __init__(self, outer: ComputationWriter, region: Region) -> None:
        """Prepares the outlined computation."""
        self.outer = outer
        self.graph = outer.graph
        self.region = region
        self.members = set(region.items)
        self.clustering = outer.module.clustering
        name = f"native_region_{outer.computation.name}"
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
        root = self.outer.computation.root
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
        metadata = self.graph.source.metadata[self.region.items[-1]]
        if metadata:
            call.metadata = metadata
        return call

    def _call_single(self, root: int) -> Any:
        computation = self.scope.finish(root)
        item = self.region.items[0]
        call = self._call_instruction(computation, self.scope.proto.instructions[root - 1].shape)
        self.outer.values[item] = int(call.id)
        cluster = self.clustering.clusters.get(item)
        if cluster is not None and len(cluster.outputs) > 1:
            for position, output in enumerate(cluster.outputs):
                element = self.outer.scope.add_element(int(call.id), position)
                self.outer.values[output] = int(element.id)
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


def write_item(scope: Scope, clustering: Clustering, item: int, values: dict[int, int]) -> Any:
    """Writes a plain instruction or a fusion; records the ids of its values in `values`."""
    cluster = clustering.clusters.get(item)
    if cluster is not None:
        return _write_cluster(scope, cluster, values)
    graph = scope.graph
    instruction = scope.add_node(item, [values[o] for o in graph.operand_lists[item]])
    if graph.source.config[item] and graph.source.bare[item]:
        instruction.backend_config = graph.source.config[item]
    values[item] = int(instruction.id)
    return instruction


def _write_cluster(scope: Scope, cluster: Cluster, values: dict[int, int]) -> Any:
    graph = scope.graph
    body = _fused_computation(scope.module, cluster)
    root = cluster.outputs[0]
    name = f"{graph.ops[root].name.replace('-', '_')}_fusion"
    fusion = scope.add(name, [values[o] for o in cluster.operands])
    fusion.opcode = "fusion"
    unit = graph.units[cluster.unit]
    fusion.fusion_kind = "kCustom" if unit.kind is UnitKind.LIBRARY else "kLoop"
    fusion.called_computation_ids.append(body.id)
    fusion.backend_config = cluster_config(graph, cluster)
    if graph.source.metadata[root]:
        fusion.metadata = graph.source.metadata[root]
    if len(cluster.outputs) == 1:
        fusion.shape.CopyFrom(graph.source.shapes[root])
        values[root] = int(fusion.id)
        return fusion
    fusion.shape.CopyFrom(_tuple_shape(graph, cluster.outputs))
    for position, output in enumerate(cluster.outputs):
        values[output] = int(scope.add_element(int(fusion.id), position).id)
    return fusion


def _tuple_shape(graph: Graph, nodes: list[int]) -> Any:
    shape = ShapeProto(element_type=DType.TUPLE)
    for node in nodes:
        shape.tuple_shapes.add().CopyFrom(graph.source.shapes[node])
    return shape


def cluster_config(graph: Graph, cluster: Cluster) -> bytes:
    """The ``backend_config`` of a cluster: XLA's own where nothing changed."""
    unit = graph.units[cluster.unit]
    root = cluster.outputs[0]
    if cluster.default and unit.kind is not UnitKind.NATIVE:
        return graph.source.config[root]
    if unit.kind is UnitKind.LIBRARY:
        return config.LIBRARY_CONFIG
    if unit.kind is UnitKind.LOOP and unit.threads > 1:
        layout = tuple(graph.source.shapes[root].layout.minor_to_major)
        return config.partition_config(
            config.split_outer_dimensions(tuple(graph.dim_lists[root]), layout, unit.threads)
        )
    return b""


def _fused_computation(module: ModuleEmitter, cluster: Cluster) -> Any:
    graph = module.graph
    scope = Scope(module, module.new_computation("fused_computation", module.module))
    scope.proto.is_fusion_computation = True
    local: dict[int, int] = {}
    for number, operand in enumerate(cluster.operands):
        local[operand] = scope.add_parameter(graph.source.shapes[operand], number)
    several = len(cluster.outputs) > 1
    equal: dict[tuple[object, ...], int] = {}
    for node in cluster.nodes:
        operands = [local[o] for o in graph.operand_lists[node]]
        # One kernel computes an output and its recomputed twin once.
        key = (graph.source.attributes[node], tuple(operands), graph.source.called[node])
        if several and key in equal:
            local[node] = equal[key]
            continue
        local[node] = equal[key] = int(scope.add_node(node, operands).id)
    if not several:
        return scope.finish(local[cluster.outputs[0]])
    return scope.finish(int(scope.add_tuple([local[o] for o in cluster.outputs]).id))
