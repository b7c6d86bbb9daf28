"""Tasks compute what their part of the program does, are told apart by what they are, and compose."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.captures import MACHINE, capture, captured, normal

from graphopt.costs.model import CostModel
from graphopt.errors import MeasureError, UnsupportedModuleError
from graphopt.hlo import build_graph, rewrite
from graphopt.hlo.module.proto import HloModuleProto
from graphopt.measure.inputs import recorded_inputs
from graphopt.policy.alternatives.alternative import apply, difference
from graphopt.policy.alternatives.table import alternatives
from graphopt.policy.heuristic.steps import STEPS, heuristic_steps
from graphopt.tasks import compose, cut
from graphopt.tasks.composing import restrict
from graphopt.tasks.cutting import distinct, pieces
from graphopt.tasks.extract import extract
from graphopt.tasks.inputs import Recorder
from graphopt.tasks.running import ModuleRunner

NAMES = ["adam_step", "cartpole_rollout", "scan_grad", "lstm", "reductions", "viterbi"]


def heuristic_of(graph):
    return heuristic_steps(graph, STEPS, CostModel(graph))


def inputs_of(found):
    compiled = jax.jit(found.fn).lower(*found.args).compile()
    return recorded_inputs(compiled, found.args)


@pytest.fixture(scope="module")
def run():
    with ModuleRunner() as runner:
        yield runner


@pytest.mark.parametrize("name", NAMES)
def test_tasks_stand_for_the_program_and_share_no_instruction(name):
    graph = captured(name).graph
    tasks = cut(graph, least_share=0.0)
    assert 0.9 < sum(task.share for task in tasks) < 1.01
    assert [t.share for t in tasks] == sorted((t.share for t in tasks), reverse=True)
    members = [(t.piece.computation, m) for t in tasks for m in t.piece.members]
    assert len(members) == len(set(members))
    for task in tasks:
        for node, target in enumerate(task.nodes.tolist()):
            if target >= 0:
                assert task.graph.ops[node].name == graph.ops[target].name
                assert task.graph.dim_lists[node] == graph.dim_lists[target]
        assert task.executions == graph.executions[task.nodes[task.nodes >= 0].max()]


@pytest.mark.parametrize("name", ["cartpole_rollout", "scan_grad", "adam_step", "viterbi"])
def test_a_task_computes_what_its_part_of_the_program_does(name, run):
    found = captured(name)
    tasks = cut(found.graph)[:3]
    recorder = Recorder(found.graph.source.module, inputs_of(found), run)
    for task, inputs in zip(tasks, recorder.of(tasks), strict=True):
        results = run(task.data, inputs)
        places = result_places(found.graph, task)
        recorder.record(set(places))
        assert len(places) == len(results) > 0
        for place, result in zip(places, results, strict=True):
            np.testing.assert_array_equal(recorder.value(place), result)


def result_places(graph, task):
    """Which values of the program a task returns."""
    entry = task.graph.source.module.computations[task.piece.computation]
    known = graph.source.module.computations[task.piece.computation].by_id
    root = entry.by_id[entry.root]
    places = []
    for local in [root.local] if root.local in known else root.operands:
        path = ()
        while local not in known:
            made = entry.by_id[local]
            if made.opcode == "get-tuple-element":
                path = (made.proto.tuple_index, *path)
            (local,) = made.operands
        places.append((task.piece.computation, local, path))
    return places


def test_equal_tasks_of_other_programs_have_one_fingerprint():
    def step(x, _):
        return jnp.tanh(x * 1.5) - 0.25 * x, x.sum()

    def one(x):
        return lax.scan(step, x, None, length=12)

    def other(y, z):
        carried, sums = lax.scan(step, jnp.sin(y) @ z, None, length=12)
        return carried.T, sums * 2.0

    first, second = (
        next(t for t in cut(graph) if t.piece.kind == "loop")
        for graph in (
            capture(one, normal(32, 8)).graph,
            capture(other, normal(32, 8), normal(8, 8)).graph,
        )
    )
    assert first.fingerprint == second.fingerprint
    longer = capture(lambda x: lax.scan(step, x, None, length=13), normal(32, 8)).graph
    assert first.fingerprint not in {task.fingerprint for task in cut(longer)}


def test_names_do_not_matter():
    (task, *_) = cut(captured("scan_grad").graph)
    proto = HloModuleProto.FromString(task.data)
    for computation in proto.computations:
        for instruction in computation.instructions:
            instruction.name = f"other.{instruction.name}"
    renamed = build_graph(proto.SerializeToString(), MACHINE)
    assert renamed.fingerprint == task.fingerprint


def test_equal_tasks_of_one_program_are_found():
    tasks = cut(captured("keys_in_loops").graph)
    assert max(len(equal) for equal in distinct(tasks).values()) > 1


@pytest.mark.parametrize("name", NAMES)
def test_decisions_of_tasks_compose_to_legal_ones_of_the_program(name):
    graph = captured(name).graph
    rng = np.random.default_rng(1)
    base = heuristic_of(graph)
    chosen = []
    for task in cut(graph):
        before = restrict(task, base)
        task.graph.masks.check(before)
        table = alternatives(task.graph, program=False)
        offered = np.flatnonzero(table.available(table.flat(before)))[1:]
        if len(offered):
            chosen.append((task, before, apply(before, [table.rows[int(rng.choice(offered))]])))
    composed = compose(graph, base, chosen)
    graph.masks.check(composed.decisions)
    assert composed.made > 0
    assert composed.made >= len(difference(base, composed.decisions)) > 0
    rewrite(graph, composed.decisions)


def test_nothing_chosen_changes_nothing():
    graph = captured("scan_grad").graph
    base = heuristic_of(graph)
    chosen = [(task, restrict(task, base), restrict(task, base)) for task in cut(graph)]
    composed = compose(graph, base, chosen)
    assert composed.decisions.same_as(base) and composed.made == composed.left == 0


def test_what_cannot_stand_alone_is_no_task():
    def printing(x):
        jax.debug.print("{}", x.sum(), ordered=True)
        return x * 2.0

    graph = capture(printing, normal(8)).graph
    kinds = [piece.kind for piece in pieces(graph)]
    assert kinds and len(cut(graph, least_share=0.0)) < len(kinds)
    with pytest.raises(UnsupportedModuleError, match="no array"):
        for piece in pieces(graph):
            extract(graph.source.module, piece.computation, piece.members)


def test_a_large_loop_is_cut_inside(monkeypatch):
    graph = captured("lstm").graph
    (whole,) = cut(graph, least_share=0.1)
    assert whole.piece.kind == "loop" and whole.executions == 1.0
    monkeypatch.setattr("graphopt.tasks.cutting.MAX_LOOP_NODES", 10)
    parts = cut(graph, least_share=0.1)
    assert parts and {task.piece.kind for task in parts} == {"run"}
    assert all(task.executions > 1.0 for task in parts)


def test_a_module_that_cannot_run_says_so(run):
    with pytest.raises(MeasureError, match="cannot run by itself"):
        run(b"no module", [])
    task = cut(captured("adam_step").graph)[0]
    with pytest.raises(MeasureError, match="cannot run by itself"):
        run(task.data, [])
