"""The order of execution: XLA's own is kept, and every answer to the hook brings one along."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import captured, proto_of

from graphopt.hlo import Graph, build_graph, rewrite
from graphopt.hlo.module.index import LOCAL_ID, parse
from graphopt.hlo.module.schedule import read_schedule, scheduled, write_schedule
from graphopt.jax_private import hlo_from_text
from graphopt.measure.compiling.stub import StubCompiler

PROGRAMS = ("transformer_block", "lstm", "hmc_chain", "gauss_seidel", "twin_carry", "ring_buffer")

TEXT = """HloModule two_results
ENTRY main {
  x = f32[8]{0} parameter(0)
  late = f32[8]{0} copy(x)
  early = f32[] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT both = (f32[], f32[8]{0}) tuple(early, late)
}
"""


def executed(data: bytes) -> dict[int, list[int]]:
    """Computation id -> local ids in the order of the schedule."""
    sequences = proto_of(data).schedule.sequences
    return {e.key: [i & LOCAL_ID for i in e.value.instruction_ids] for e in sequences}


def xla_order(graph: Graph, data: bytes) -> dict[int, list[int]]:
    """Computation id -> nodes at which XLA's kernels and calls end, in the order of its schedule."""
    node_of = {place: n for n, places in enumerate(graph.source.instances) for place in places}
    module, out = parse(data), {}
    for computation, locals_ in executed(data).items():
        found = []
        for local in locals_:
            instruction = module.computations[computation].by_id[local]
            place = (computation, local)
            if instruction.opcode == "fusion":
                body = module.computations[instruction.called[0]]
                place = (body.id, body.root)
            if place in node_of:
                found.append(node_of[place])
        out[computation] = found
    return out


@pytest.mark.parametrize("name", PROGRAMS)
def test_xlas_own_decisions_keep_its_order(name):
    program = captured(name)
    graph = program.graph
    result = rewrite(graph, graph.default)
    before, after = xla_order(graph, program.data), executed(result.data)
    modules = parse(result.data).computations
    for computation in graph.computations:
        names = [modules[computation.id].by_id[i].name for i in after[computation.id]]
        items = [result.items[n] for n in names if n in result.items]
        place = {node: p for p, node in enumerate(before[computation.id])}
        places = [place[item] for item in items if item in place]
        assert places == sorted(places)
    assert len(places) > 3  # the entry comes last


@settings(max_examples=20, deadline=None, derandomize=True)
@given(name=st.sampled_from(PROGRAMS), seed=st.integers(0, 2**32 - 1))
def test_every_instruction_is_scheduled_once_after_what_it_needs(name, seed):
    graph = captured(name).graph
    chosen = graph.masks.sample(np.random.default_rng(seed), graph.default, 0.3)
    data = rewrite(graph, chosen).data
    module, order = parse(data), executed(data)
    for computation in module.computations.values():
        if computation.proto.is_fusion_computation:
            assert computation.id not in order
            continue
        place = {local: p for p, local in enumerate(order[computation.id])}
        assert place.keys() == computation.by_id.keys()
        for instruction in computation.instructions:
            for earlier in (*instruction.operands, *instruction.control):
                assert place[earlier] < place[instruction.local]


def test_places_are_a_ranking_and_those_of_one_kernel_follow_each_other():
    graph = captured("transformer_block").graph
    assert sorted(graph.source.position) == list(range(len(graph)))
    bodies: dict[int, list[int]] = {}
    for place, instances in zip(graph.source.position, graph.source.instances, strict=True):
        bodies.setdefault(instances[0][0], []).append(place)
    entry = graph.computations[-1].id
    sizes = [len(places) for body, places in bodies.items() if body != entry]
    assert max(sizes) > 5
    for body, places in bodies.items():
        if body != entry:
            assert max(places) - min(places) == len(places) - 1


def test_a_module_without_a_schedule_gets_the_order_of_its_text():
    data = hlo_from_text(TEXT)
    assert not proto_of(data).schedule.sequences
    module = parse(scheduled(data))
    (places,) = read_schedule(module).values()
    by_place = sorted(places, key=places.__getitem__)
    (computation,) = module.computations.values()
    assert by_place == [i.local for i in computation.instructions]
    assert scheduled(scheduled(data)) == scheduled(data)


def test_a_schedule_that_does_not_fit_is_not_believed():
    proto = proto_of(scheduled(hlo_from_text(TEXT)))
    del proto.schedule.sequences[0].value.instruction_ids[0]
    assert read_schedule(parse(proto.SerializeToString())) == read_schedule(
        parse(hlo_from_text(TEXT))
    )


def test_xla_executes_in_the_order_it_is_given():
    proto = proto_of(scheduled(hlo_from_text(TEXT)))
    orders = []
    for swap in (False, True):
        ids = proto.schedule.sequences[0].value.instruction_ids
        if swap:
            ids[1], ids[2] = ids[2], ids[1]
        data = proto.SerializeToString()
        compiler = StubCompiler(data, [np.ones(8, np.float32)])
        text = compiler.compile(data).compiled.as_text()
        orders.append(text.index(" copy(") < text.index(" dot("))
    assert orders[0] != orders[1]


def test_graphs_do_not_depend_on_the_schedule():
    proto = proto_of(captured("transformer_block").data)
    graph = build_graph(proto.SerializeToString())
    write_schedule(proto)
    assert build_graph(proto.SerializeToString()).fingerprint == graph.fingerprint
