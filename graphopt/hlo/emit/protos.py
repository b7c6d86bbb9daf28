"""Writing protos: modules, computations, plain instructions and fusions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.graph.tiled import may_be_one_tile
from graphopt.hlo.graph.walks import own_kernel
from graphopt.hlo.module import backend_config
from graphopt.hlo.module.index import ComputationIndex, ModuleIndex, Role
from graphopt.hlo.module.layouts import FlatForm, array_shape
from graphopt.hlo.module.proto import DType, HloComputationProto, HloModuleProto, ShapeProto
from graphopt.hlo.plan.clusters import Cluster, Clustering
from graphopt.machine import UnitKind

LOOP_GENERATOR_ONLY = "bitcast-convert"
"""An elementwise operation that XLA's tiled code generator refuses; to its own type it changes nothing."""

_PARTS = {DType.C64: DType.F32, DType.C128: DType.F64}
"""Type of complex numbers -> that of their parts."""


Body = tuple[ComputationIndex, list[int]]
"""A fusion's body, and the nodes that it is applied to, by parameter."""


class ModuleWriter:
    """The module being written: its header, kept computations, ids and names."""

    def __init__(self, graph: Graph, clustering: Clustering) -> None:
        """Starts from the incoming module's header."""
        self.graph = graph
        self.clustering = clustering
        source = graph.source.module
        self.module = self.header_of(source)
        self._next_id = max(source.computations) + 1
        self._names: set[str] = set()
        self._serial = 0
        self.copied: dict[int, ComputationIndex] = {}
        """Computations of the incoming module that are in the new one as they were, by id."""
        self.entry_names: dict[str, int] = {}
        """Instruction name -> item, or first item of the native region, that it executes."""
        self.origin: dict[tuple[int, int], int] = {}
        """(computation id, local id) of an instruction written for a node -> the node; without `copied`."""
        self.bodies: dict[int, Body] = {}
        """First output of a cluster -> its body, where that is copied."""
        self.placed: dict[int, tuple[int, int]] = {}
        """First output of an item -> its instruction as (computation id, local id)."""

    @staticmethod
    def header_of(module: ModuleIndex) -> Any:
        """``HloModuleProto`` of a module without computations and schedule."""
        header = HloModuleProto()
        for field, value in module.proto.ListFields():
            if field.name in ("computations", "schedule"):
                continue
            if field.is_repeated:
                getattr(header, field.name).extend(value)
            elif field.message_type is not None:
                getattr(header, field.name).CopyFrom(value)
            else:
                setattr(header, field.name, value)
        return header

    def add_kept_computations(self) -> None:
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

    def keep_bodies(self) -> None:
        """Finds the kernels whose bodies stay as XLA wrote them; their instructions keep their names."""
        for root, cluster in self.clustering.clusters.items():
            body = own_body(self.graph, cluster)
            if body is not None:
                self.bodies[root] = body
                self._names.update([i.proto.name for i in body[0].instructions])

    def origins(self) -> dict[tuple[int, int], int]:
        """(computation id, local id) -> node, of everything written or copied for one."""
        out = dict(self.origin)
        for node, instances in enumerate(self.graph.source.instances):
            for instance in instances:
                if instance[0] in self.copied:
                    out[instance] = node
        return out

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
        name, names = base, self._names
        while name in names:
            self._serial += 1
            name = f"{base}.g{self._serial}"
        names.add(name)
        return name


class Scope:
    """A computation being written: adds instructions with consecutive ids."""

    def __init__(self, module: ModuleWriter, proto: Any) -> None:
        """Writes into an empty computation proto."""
        self.module = module
        self.graph = module.graph
        self.proto = proto
        self.id = int(proto.id)
        self._instructions = proto.instructions
        self._count = 0
        self._flat: dict[tuple[int, tuple[int, ...]], int] = {}
        """Id of an array, dimensions -> id of its elements under those, repeated if they are more."""

    def add(self, name: str, operands: Sequence[int]) -> Any:
        """A new instruction without opcode and shape."""
        instruction = self._instructions.add()
        instruction.name = self.module.unique_name(name)
        self._count += 1
        instruction.id = self._count
        if operands:
            instruction.operand_ids.extend(operands)
        return instruction

    def add_node(self, node: int, operands: Sequence[int]) -> Any:
        """An instruction with a node's own attributes."""
        source = self.graph.source
        instruction = self._instructions.add()
        source.instructions[node].copy_attributes(instruction, source.keep_config[node])
        proto, called = source.protos[node], source.called[node]
        instruction.name = self.module.unique_name(proto.name)
        self._count += 1
        instruction.id = self._count
        self.module.origin[self.id, self._count] = node
        if operands:
            instruction.operand_ids.extend(operands)
        metadata = proto.metadata
        if metadata:
            instruction.metadata = metadata
        if called:
            instruction.called_computation_ids.extend(called)
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

    def flat(self, operand: int, form: FlatForm) -> int:
        """What a kernel of other dimensions reads in place of an array; numbers as they are."""
        shape = self.proto.instructions[operand - 1].shape
        wanted = form.of(shape)
        if wanted is shape:
            return operand
        key = operand, tuple(wanted.dimensions)
        if key not in self._flat:
            if prod(wanted.dimensions) > prod(shape.dimensions):
                operand = self._add_repeated(operand, form.times)
            self._flat[key] = self._add_like("bitcast", (operand,), wanted, "flat")
        return self._flat[key]

    def _add_repeated(self, operand: int, times: int) -> int:
        """A kernel that repeats an array; the copies are the first dimension."""
        shape = self.proto.instructions[operand - 1].shape
        body = Scope(self.module, self.module.new_computation("repeated", self.module.module))
        body.proto.is_fusion_computation = True
        wide = array_shape(shape.element_type, [times, *shape.dimensions])
        root = body._add_like("broadcast", (body.add_parameter(shape, 0),), wide, "repeated")
        body.proto.instructions[-1].dimensions.extend(range(1, len(wide.dimensions)))
        fusion = self._add_like("fusion", (operand,), wide, "repeated")
        self._instructions[-1].fusion_kind = "kLoop"
        self._instructions[-1].called_computation_ids.append(body.finish(root).id)
        return fusion

    def unflat(self, operand: int, shape: Any) -> int:
        """A result of such a kernel under its own dimensions."""
        flat = self.proto.instructions[operand - 1].shape
        if list(flat.dimensions) == list(shape.dimensions):
            return operand
        out = self._add_like("bitcast", (operand,), shape, "flat")
        self._flat[out, tuple(flat.dimensions)] = operand
        return out

    def add_mark(self, operand: int) -> int:
        """An instruction that changes nothing and that only XLA's loop code generator takes.

        That generator fails on complex numbers: there the real part is marked.
        """
        shape = self.proto.instructions[operand - 1].shape
        part = _PARTS.get(shape.element_type)
        if part is None:
            return self._add_like(LOOP_GENERATOR_ONLY, (operand,), shape)
        reals = ShapeProto()
        reals.CopyFrom(shape)
        reals.element_type = part
        real = self._add_like("real", (operand,), reals)
        marked = self._add_like(LOOP_GENERATOR_ONLY, (real,), reals)
        imaginary = self._add_like("imag", (operand,), reals)
        return self._add_like("complex", (marked, imaginary), shape)

    def _add_like(
        self, opcode: str, operands: tuple[int, ...], shape: Any, name: str = "loop_kernel"
    ) -> int:
        """An operation that is in no graph, with a shape like another's."""
        instruction = self.add(name, operands)
        instruction.opcode = opcode
        instruction.shape.CopyFrom(shape)
        return int(instruction.id)

    def finish(self, root: int) -> Any:
        """Sets the root; returns the computation proto."""
        self.proto.root_id = root
        if not self.proto.program_shape.HasField("result"):
            shape = self.proto.instructions[root - 1].shape
            self.proto.program_shape.result.CopyFrom(shape)
        return self.proto


def write_item(scope: Scope, clustering: Clustering, item: int, values: dict[int, int]) -> Any:
    """Writes a plain instruction or a fusion; records the ids of its values in `values`."""
    cluster = clustering.clusters.get(item)
    if cluster is not None:
        fusion = _write_cluster(scope, cluster, values)
        scope.module.placed[item] = (scope.proto.id, fusion.id)
        return fusion
    graph = scope.graph
    instruction = scope.add_node(item, [values[o] for o in graph.operand_lists[item]])
    if graph.source.config[item] and graph.source.bare[item]:
        instruction.backend_config = graph.source.config[item]
    values[item] = int(instruction.id)
    scope.module.placed[item] = (scope.proto.id, instruction.id)
    return instruction


def _write_cluster(scope: Scope, cluster: Cluster, values: dict[int, int]) -> Any:
    graph = scope.graph
    root = cluster.outputs[0]
    kept = scope.module.bodies.get(root)
    operands = cluster.operands
    if kept is None:
        body = _fused_computation(scope.module, cluster)
    else:
        body, operands = kept
        scope.module.module.computations.add().CopyFrom(body.proto)
        scope.module.copied[body.id] = body
    name = f"{graph.ops[root].name.replace('-', '_')}_fusion"
    read = [values[o] for o in operands]
    fusion = scope.add(name, [scope.flat(o, cluster.flat) for o in read] if cluster.flat else read)
    fusion.opcode = "fusion"
    unit = graph.units[cluster.unit]
    fusion.fusion_kind = "kCustom" if unit.kind is UnitKind.LIBRARY else "kLoop"
    fusion.called_computation_ids.append(body.id)
    fusion.backend_config = cluster_config(graph, cluster)
    if graph.source.protos[root].metadata:
        fusion.metadata = graph.source.protos[root].metadata
    fusion.shape.CopyFrom(body.program_shape.result if kept is None else graph.source.shapes[root])
    for position, output in enumerate(cluster.outputs):
        value = int(fusion.id)
        if len(cluster.outputs) > 1:
            value = int(scope.add_element(value, position).id)
        shape = graph.source.shapes[output]
        values[output] = scope.unflat(value, shape) if cluster.flat else value
    return fusion


def own_body(graph: Graph, cluster: Cluster) -> Body | None:
    """XLA's own body of a kernel and what it is applied to; None where the kernel is another one.

    The body must read each of its parameters, and no value twice: then it can be copied.
    """
    root = cluster.outputs[0]
    if len(cluster.outputs) > 1 or cluster.loop_kernel or cluster.flat:
        return None
    if graph.default_fuse[root]:
        return None
    computations, source = graph.source.module.computations, graph.source
    body_id, local = source.instances[root][0]
    body = computations[body_id]
    if body.role is not Role.FUSED or body.root != local or body.caller is None:
        return None
    units, default = graph.units, int(graph.default.unit[root])
    if cluster.unit != default and UnitKind.LIBRARY in (
        units[cluster.unit].kind,
        units[default].kind,
    ):
        return None
    nodes = own_kernel(graph, root)
    if len(nodes) != len(cluster.nodes) or not nodes.issuperset(cluster.nodes):
        return None
    fusion, owner = body.caller
    operands = [
        source.values.get((owner, o), -1) for o in computations[owner].by_id[fusion].operands
    ]
    if len(operands) != len(cluster.operands) or set(operands) != set(cluster.operands):
        return None
    return body, operands


def cluster_config(graph: Graph, cluster: Cluster) -> bytes:
    """The ``backend_config`` of a cluster: XLA's own where nothing changed."""
    unit = graph.units[cluster.unit]
    root = cluster.outputs[0]
    if cluster.default and not cluster.flat and unit.kind is not UnitKind.NATIVE:
        return graph.source.config[root]
    if unit.kind is UnitKind.LIBRARY:
        return backend_config.LIBRARY_CONFIG
    if (
        unit.kind is UnitKind.LOOP
        and unit.threads > 1
        and not may_be_one_tile(graph, cluster.nodes, cluster.operands)
    ):
        shape = graph.source.shapes[root]
        shape = cluster.flat.of(shape) if cluster.flat else shape
        dims, layout = tuple(shape.dimensions), tuple(shape.layout.minor_to_major)
        return backend_config.partition_config(
            backend_config.split_outer_dimensions(dims, layout, unit.threads)
        )
    return b""


def _add_member(scope: Scope, cluster: Cluster, node: int, operands: list[int]) -> int:
    """A node of a kernel, in the kernel's computation."""
    added = scope.add_node(node, operands)
    if cluster.flat:
        added.shape.CopyFrom(cluster.flat.of(added.shape))
        if added.opcode == "broadcast" and added.dimensions:
            added.dimensions[:] = [1]  # of rows that are longer now
    return int(added.id)


def _fused_computation(module: ModuleWriter, cluster: Cluster) -> Any:
    graph = module.graph
    scope = Scope(module, module.new_computation("fused_computation", module.module))
    scope.proto.is_fusion_computation = True
    local: dict[int, int] = {}
    for number, operand in enumerate(cluster.operands):
        shape = graph.source.shapes[operand]
        shape = cluster.flat.of(shape) if cluster.flat else shape
        local[operand] = scope.add_parameter(shape, number)
    several = len(cluster.outputs) > 1
    operand_lists = graph.operand_lists
    if not several:
        for node in cluster.nodes:
            local[node] = _add_member(scope, cluster, node, [local[o] for o in operand_lists[node]])
        root = local[cluster.outputs[0]]
        return scope.finish(scope.add_mark(root) if cluster.loop_kernel else root)
    equal: dict[tuple[object, ...], int] = {}
    for node in cluster.nodes:
        operands = [local[o] for o in operand_lists[node]]
        # One kernel computes an output and its recomputed twin once.
        key = (graph.source.attributes(node), tuple(operands), graph.source.called[node])
        if key not in equal:
            equal[key] = _add_member(scope, cluster, node, operands)
        local[node] = equal[key]
    return scope.finish(int(scope.add_tuple([local[o] for o in cluster.outputs]).id))
