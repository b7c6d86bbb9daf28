"""Modules of several devices: what waits for other devices keeps its order and its place."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.captures import LOCAL_ID, MACHINE, node, nodes, proto_of, unit
from support.legality_texts import named

from graphopt.errors import MeasureError, VerificationError
from graphopt.hlo import build_graph, rewrite, verify
from graphopt.hlo.graph.collectives import meetings, trace
from graphopt.hlo.graph.fingerprint import fingerprint
from graphopt.hlo.graph.in_place import InPlaceAnalysis
from graphopt.hlo.module.index import parse
from graphopt.hlo.module.schedule import write_schedule
from graphopt.hlo.restructure import CODE
from graphopt.jax_private import hlo_from_text
from graphopt.machine import UnitKind
from graphopt.measure.compiling.stub import signature

TEXT = """\
HloModule devices

sum (a: f32[], b: f32[]) -> f32[] {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

body (c: (s32[], f32[8])) -> (s32[], f32[8]) {
  c = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  v = f32[8]{0} get-tuple-element(c), index=1
  met = f32[8]{0} all-reduce(v), channel_id=1, GROUPS, to_apply=sum
  moved = f32[8]{0} sine(met)
  ROOT out = (s32[], f32[8]{0}) tuple(next, moved)
}

condition (d: (s32[], f32[8])) -> pred[] {
  d = (s32[], f32[8]{0}) parameter(0)
  j = s32[] get-tuple-element(d), index=0
  ten = s32[] constant(10)
  ROOT go = pred[] compare(j, ten), direction=LT
}

ENTRY main {
  p = f32[8]{0} parameter(0)
  warm = f32[8]{0} tanh(p)
  first = f32[8]{0} all-reduce(p), channel_id=1, GROUPS, to_apply=sum
  again = f32[8]{0} all-reduce(p), channel_id=1, GROUPS, to_apply=sum
  ring = f32[8]{0} collective-permute(warm), channel_id=1, source_target_pairs={{0,1},{1,0}}
  zero = s32[] constant(0)
  own = f32[8]{0} copy(warm)
  start = (s32[], f32[8]{0}) tuple(zero, own)
  loop = (s32[], f32[8]{0}) while(start), condition=condition, body=body
  carried = f32[8]{0} get-tuple-element(loop), index=1
  here = u32[] partition-id()
  place = f32[] convert(here)
  far = f32[8]{0} broadcast(place), dimensions={}
  gathered = f32[16]{0} all-gather(carried), channel_id=1, GROUPS, dimensions={0}
  half = f32[8]{0} slice(gathered), slice={[0:8]}
  x = f32[8]{0} add(first, ring)
  y = f32[8]{0} multiply(x, half)
  z = f32[8]{0} subtract(y, again)
  ROOT w = f32[8]{0} add(z, far)
}
""".replace("GROUPS", "replica_groups={{0,1}}, use_global_device_ids=true")
"""A collective between all work, equal ones side by side, and a loop around one; all of one channel."""

ORDER = ("first", "ring", "loop", "gathered", "again")
"""As the parser leaves them."""


def module_of(devices: int = 2, text: str = TEXT) -> bytes:
    proto = proto_of(hlo_from_text(text))
    proto.device_assignment.replica_count = 1
    proto.device_assignment.computation_count = devices
    write_schedule(proto)
    return bytes(proto.SerializeToString())


def names_of(data: bytes, computation: str) -> list[str]:
    module = parse(data)
    (found,) = (c for c in module.computations.values() if c.proto.name.startswith(computation))
    return [found.by_id[i].name for i in meetings(module).get(found.id, [])]


def test_what_meets_is_found_in_loops_too():
    assert tuple(names_of(module_of(), "main")) == ORDER
    assert names_of(module_of(), "body") == ["met"]
    assert names_of(module_of(), "condition") == []


def test_nothing_meets_on_one_device():
    assert meetings(parse(module_of(1))) == {}
    assert trace(parse(module_of(1))) == ()


def test_the_order_is_that_of_the_schedule():
    """Collectives of one channel are told apart by nothing else."""
    proto = proto_of(module_of())
    entry = next(c for c in proto.computations if c.id == proto.entry_computation_id)
    ids = {i.name: i.id for i in entry.instructions}
    sequence = next(s for s in proto.schedule.sequences if s.key == entry.id).value.instruction_ids
    order = [i for i in sequence if i != ids["first"]]
    order.insert(order.index(ids["ring"]) + 1, ids["first"])
    sequence[:] = order
    data = proto.SerializeToString()
    assert names_of(data, "main")[:3] == ["ring", "first", "loop"]
    assert trace(parse(data)) != trace(parse(module_of()))


def test_neighbours_are_ordered_in_the_graph():
    graph = build_graph(module_of(), MACHINE)
    order = [named(graph, name) for name in ORDER]
    assert set(itertools.pairwise(order)) <= set(map(tuple, graph.control.tolist()))
    assert build_graph(module_of(1), MACHINE).control.tolist() == []


def test_a_winner_of_one_device_is_none_of_two():
    one, two, again = (build_graph(module_of(n), MACHINE) for n in (1, 2, 2))
    assert fingerprint(two) == fingerprint(again) != fingerprint(one)


def test_equal_collectives_stay_two():
    graph = build_graph(module_of(), MACHINE)
    assert len(nodes(graph, "all-reduce")) == 3


@pytest.mark.parametrize("seed", range(12))
def test_any_legal_decisions_keep_the_order(seed):
    data = module_of()
    graph = build_graph(data, MACHINE)
    drawn = graph.masks.sample(np.random.default_rng(seed), graph.default, 0.6)
    after = rewrite(graph, drawn).data
    assert names_of(after, "main") == list(ORDER)
    assert trace(parse(after)) == trace(parse(data))
    assert parse(after).proto.device_assignment == parse(data).proto.device_assignment


def test_another_order_is_not_handed_to_xla():
    proto = proto_of(module_of())
    entry = next(c for c in proto.computations if c.id == proto.entry_computation_id)
    moved = [i for i in entry.instructions if i.name != "first"]
    (first,) = (i for i in entry.instructions if i.name == "first")
    moved.insert([i.name for i in moved].index("ring") + 1, first)
    del entry.instructions[:]
    entry.instructions.extend(moved)
    write_schedule(proto)
    verify(proto, parse(proto.SerializeToString()))
    with pytest.raises(VerificationError, match="another order") as caught:
        verify(proto, parse(module_of()))
    assert caught.value.rule == "collective-order"


def test_collectives_are_walls():
    graph = build_graph(module_of(), MACHINE)
    native = unit(graph, UnitKind.NATIVE)
    for name in (*ORDER, "here", "met"):
        at = named(graph, name)
        assert graph.masks.why_not(at, "fuse", 1) == "not-fusible"
        assert graph.masks.why_not(at, "unit", native) == "not-in-region"
    assert graph.masks.why_not(named(graph, "x"), "unit", native) is None


def test_a_loop_around_one_is_not_unrolled():
    graph = build_graph(module_of(), MACHINE)
    loop = node(graph, "while")
    assert not graph.masks.restructure[loop, CODE["unroll"]]
    assert not graph.masks.restructure[loop, CODE["unroll-by-4"]]


def test_new_kernels_use_the_cores_of_one_device():
    split = unit(build_graph(module_of(), MACHINE), UnitKind.LOOP, 2)
    alone = build_graph(module_of(1), MACHINE)
    assert alone.masks.why_not(named(alone, "y"), "unit", split) is None
    shared = build_graph(module_of(64), MACHINE)
    assert shared.masks.why_not(named(shared, "y"), "unit", split) == "shared-cores"
    shared.masks.check(shared.default)


def test_no_device_waits_on_the_thread_that_starts_the_others():
    code = CODE["caller-thread"]
    text = TEXT.replace("[8]", "[4096]").replace("[16]", "[8192]").replace("[0:8]", "[0:4096]")
    text = text.replace(
        "while(start)", 'while(start), backend_config={"known_trip_count":{"n":"10"}}'
    )
    one, two = (build_graph(module_of(n, text), MACHINE) for n in (1, 2))
    assert one.masks.why_not(named(one, "p"), "restructure", code) is None
    assert two.masks.why_not(named(two, "p"), "restructure", code) == "several-devices"


def test_a_module_of_several_devices_is_not_measured_alone():
    signature(module_of(1))
    with pytest.raises(MeasureError, match="a module of 2 devices"):
        signature(module_of())


def test_a_ragged_exchange_writes_into_its_second_operand():
    text = """\
HloModule ragged

ENTRY main {
  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  n = s32[2]{0} parameter(2)
  into = f32[8]{0} sine(q)
  reader = f32[8]{0} tanh(into)
  spread = f32[8]{0} ragged-all-to-all(p, into, n, n, n, n), EXTRA
  ROOT both = f32[8]{0} add(spread, reader)
}
""".replace("EXTRA", "replica_groups={{0,1}}, control-predecessors={reader}")
    module = parse(module_of(text=text))
    (entry,) = (c for c in module.graph_computations())
    ids = {i.name: i.proto.id & LOCAL_ID for i in entry.instructions}
    (hazard,) = InPlaceAnalysis(module).hazards[entry.id]
    assert (hazard.source, hazard.writer) == ((ids["into"], ()), ids["spread"])
    assert hazard.readers == {ids["reader"]}
