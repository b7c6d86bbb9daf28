"""The machine model, task graphs, the simulator, masks, classical placements and searches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.placements import KIND, cluster, random_program, random_tasks, traced_program

from graphopt.corpus.placement import LARGE
from graphopt.devices.timeline import to_svg
from graphopt.errors import ConfigError, DecisionError, UnsupportedModuleError
from graphopt.placement import (
    Simulator,
    TaskGraph,
    TaskKind,
    build_tasks,
    flatten,
    known,
    known_names,
    run_event_loop,
    uniform,
)  # fmt: skip
from graphopt.placement.baselines import BASELINES, Problem, single_device
from graphopt.placement.coarsen import coarsen
from graphopt.placement.masks import device_masks
from graphopt.placement.order import priority_order, upward_rank
from graphopt.placement.partition import partition
from graphopt.placement.search import anneal, blocks_of, evolve
from graphopt.placement.times import TaskTimes


def chain_and_branch() -> TaskGraph:
    """argument -> a -> b -> d, a -> c -> d; 8 bytes each, a to d compute."""
    kinds = [TaskKind.INPUT, *[TaskKind.COMPUTE] * 4]
    count = len(kinds)
    return TaskGraph(
        name="diamond",
        kind=np.array(kinds, np.int8),
        op=np.zeros(count, np.int16),
        op_names=("op",),
        nbytes=np.full(count, 8, np.int64),
        flops=np.ones(count),
        traffic=np.ones(count),
        fused_traffic=np.zeros(count),
        launches=np.zeros(count),
        parallel=np.zeros(count, bool),
        fusible=np.zeros(count, bool),
        operand_start=np.array([0, 0, 1, 2, 3, 5], np.int32),
        operands=np.array([0, 1, 1, 2, 3], np.int32),
        output=np.array([0, 0, 0, 0, 1], bool),
        group=np.arange(count, dtype=np.int32),
        layer=np.full(count, -1, np.int32),
    )


def diamond_times(a=1.0, b=2.0, c=3.0, d=4.0) -> TaskTimes:
    column = np.array([[0.0], [a], [b], [c], [d]])
    return TaskTimes(column, column)


def diamond(devices=2, **changes) -> Simulator:
    link = {"latency_s": 0.5, "bytes_per_s": 16.0} | changes
    return Simulator(chain_and_branch(), cluster(devices, **link), diamond_times())


@pytest.mark.parametrize(
    ("placement", "seconds"),
    [
        ([0, 0, 0, 0, 0], 1 + 2 + 3 + 4),
        # a goes over in 8/16 s and 0.5 s more; b there ends at 4 and is back at 5; c ends at 4
        ([0, 0, 1, 0, 0], 5 + 4),
        # the argument and a's result travel; d waits for c, which took the same way back
        ([0, 1, 1, 1, 1], 1 + 1 + 2 + 3 + 4),
    ],
)
def test_the_simulator_by_hand(placement, seconds):
    simulator = diamond()
    scores = simulator.score(np.array([placement]))
    assert scores.seconds[0] == pytest.approx(seconds)
    assert run_event_loop(simulator, np.array(placement))[0] == pytest.approx(seconds)


def test_one_value_goes_to_one_device_once():
    events = run_event_loop(diamond(), np.array([0, 0, 1, 1, 1]))[1]
    moved = [(e.device, e.to) for e in events if e.to is not None]
    assert moved == [(0, 1)]


def test_a_port_sends_one_value_at_a_time():
    simulator = diamond(3)
    events = run_event_loop(simulator, np.array([0, 0, 1, 2, 0]))[1]
    first, second = (e for e in events if e.to is not None and e.device == 0)
    assert second.start_s == pytest.approx(first.end_s - 0.5)  # after the bytes, not the latency


def test_memory_is_counted_and_limits():
    simulator = diamond(memory_bytes=30.0)
    scores = simulator.score(np.array([[0, 0, 0, 0, 0], [0, 0, 1, 1, 1]]))
    # Together at the end of c: the argument, b and c; and then d's result, with a freed before.
    assert scores.peak_bytes[0].tolist() == [32.0, 0.0]
    assert np.isnan(scores.seconds[0]) and "out of memory on test:0" in scores.reasons[0]
    assert scores.reasons[1] is None and np.isfinite(scores.seconds[1])


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 7), devices=st.integers(1, 4), draw=st.integers(0, 10**6),
    pooled=st.booleans(),
)  # fmt: skip
def test_the_compiled_simulator_agrees_with_the_event_loop(seed, devices, draw, pooled):
    tasks = random_tasks(seed)
    simulator = Simulator(tasks, cluster(devices, shared_host=pooled))
    placements = device_masks(tasks, simulator.cluster).sample(np.random.default_rng(draw), 3)
    scores = simulator.score(placements)
    for placement, seconds in zip(placements, scores.unlimited_s, strict=True):
        assert run_event_loop(simulator, placement)[0] == pytest.approx(seconds, rel=1e-4)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 7), draw=st.integers(0, 10**6))
def test_bounds_on_step_time_and_memory(seed, draw):
    tasks = random_tasks(seed)
    simulator = Simulator(tasks, cluster(3), fuse=np.zeros(len(tasks), bool))
    masks = device_masks(tasks, simulator.cluster)
    placement = masks.sample(np.random.default_rng(draw), 1)
    scores = simulator.score(placement)
    seconds = simulator.times.alone[:, 0]
    path = upward_rank(tasks, seconds).max()
    assert scores.seconds[0] >= 0.999 * max(path, seconds.sum() / 3)
    together = single_device(Problem(simulator))
    assert simulator.score(together[None]).seconds[0] == pytest.approx(seconds.sum(), rel=1e-4)


def test_a_cut_between_fused_operations_costs_memory_traffic():
    def fn(x):
        return jnp.tanh(jnp.sin(x) * 2.0)

    tasks = traced_program(fn, (np.ones((512, 512), np.float32),)).tasks
    simulator = Simulator(tasks, cluster(2, latency_s=0.0, bytes_per_s=1e18))
    together = np.zeros(tasks.groups, int)
    apart = together.copy()
    apart[-1] = 1
    scores = simulator.score(np.stack([together, apart]))
    assert scores.seconds[1] > 1.2 * scores.seconds[0]
    written = simulator.score(together[None], np.zeros((1, len(tasks)), bool))
    assert written.seconds[0] > 1.2 * scores.seconds[0]


def test_the_order_is_topological_and_prefers_long_paths():
    tasks = chain_and_branch()
    order = priority_order(tasks, diamond_times().alone[:, 0]).tolist()
    assert order == [0, 1, 3, 2, 4]


@pytest.mark.parametrize("name", known_names())
def test_known_accelerators(name):
    machine = known(name, 4)
    assert len(machine) == 4 and machine.memory_bytes.min() > 1e9
    assert machine.device_name(3) == f"{name}:3"
    assert len(machine.without(1)) == 3
    with pytest.raises(ConfigError):
        known("no such device", 2)


def test_machine_descriptions_are_checked():
    with pytest.raises(ConfigError):
        uniform(KIND, 0, memory_bytes=1.0, latency_s=0.0, bytes_per_s=1.0)
    with pytest.raises(ConfigError):
        uniform(KIND, 2, memory_bytes=1.0, latency_s=0.0, bytes_per_s=-1.0)
    with pytest.raises(ConfigError):
        known("p100", 1).without(0)


def test_masks_name_their_rules():
    simulator = diamond(memory_bytes=4.0)
    assert device_masks(simulator.tasks, simulator.cluster).allowed[1].all(), "no device fits: all"
    masks = device_masks(simulator.tasks, cluster(2))
    assert masks.why_not(0, 1) == "arguments-at-home" and masks.why_not(0, 0) is None
    with pytest.raises(DecisionError, match="arguments-at-home"):
        masks.check(np.array([1, 0, 0, 0, 0]))
    for wrong in (np.zeros(4, int), np.array([0, 0, 0, 0, 2])):
        with pytest.raises(DecisionError):
            masks.check(wrong)


def test_wrong_placements_are_refused():
    simulator = diamond()
    for wrong in (np.zeros((1, 4), int), np.full((1, 5), 2), np.full((1, 5), -1)):
        with pytest.raises(DecisionError):
            simulator.score(wrong)
    with pytest.raises(ConfigError):
        Simulator(chain_and_branch(), cluster(2), TaskTimes(np.ones((3, 1)), np.ones((3, 1))))


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_are_legal(name):
    for seed in range(3):
        problem = Problem(Simulator(random_tasks(seed), cluster(3)))
        problem.masks.check(BASELINES[name](problem))


def test_the_classical_placements_use_parallelism_where_there_is_some():
    simulator = diamond(latency_s=1e-3, bytes_per_s=1e6)
    problem = Problem(simulator)
    best = simulator.score(np.stack([BASELINES[n](problem) for n in ("HEFT", "single device")]))
    assert best.seconds[0] == pytest.approx(8.0, rel=0.01)
    assert best.seconds[1] == pytest.approx(10.0)


@pytest.mark.parametrize("search", [anneal, evolve])
def test_searches_improve_count_and_repeat(search):
    problem = Problem(Simulator(random_tasks(1), cluster(2, latency_s=0.0, bytes_per_s=1e15)))
    start = [single_device(problem)]
    blocks = blocks_of(problem, 64)
    found = search(problem, 300, start=start, blocks=blocks)
    again = search(problem, 300, start=start, blocks=blocks)
    assert found.seconds < 0.9 * problem.simulator.score(start[0][None]).seconds[0]
    assert found.evaluations <= 300 and len(found.history) == found.evaluations
    assert (np.diff(found.history) <= 0).all() and found.history[-1] == found.seconds
    np.testing.assert_array_equal(found.placement, again.placement)
    problem.masks.check(found.placement)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 300), st.integers(1, 6), st.integers(0, 1000))
def test_partitions_cover_all_parts_evenly(count, parts, seed):
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, count, (2, 3 * count))
    found = partition(np.ones(count), source, target, rng.random(3 * count), parts)
    assert found.min() >= 0 and found.max() < parts
    if count >= 40 * parts:
        sizes = np.bincount(found, minlength=parts)
        assert sizes.max() <= 1.6 * count / parts


def test_two_cliques_are_cut_in_between():
    pairs = np.array([(s + a, s + b) for s in (0, 10) for a in range(10) for b in range(a)])
    source, target = np.append(pairs[:, 0], 0), np.append(pairs[:, 1], 10)
    shuffle = np.random.default_rng(0).permutation(20)
    found = partition(np.ones(20), shuffle[source], shuffle[target], np.ones(len(source)), 2)
    assert len(set(found[shuffle[:10]])) == len(set(found[shuffle[10:]])) == 1


def test_blocks_hold_groups_together():
    problem = Problem(Simulator(random_tasks(2), cluster(2)))
    blocks = blocks_of(problem, 5)
    assert len(blocks) == problem.groups and blocks.max() < 5


@settings(max_examples=20, deadline=None)
@given(st.integers(60, 400), st.integers(0, 1000))
def test_coarsening_keeps_weight_and_edges_between(count, seed):
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, count, (2, 3 * count))
    weight, cost = rng.random(count), rng.random(3 * count)
    limit = 8.0 * weight.sum() / count + 1.0
    mapping, coarse, a, b, price = coarsen(weight, source, target, cost, count // 4, limit)
    assert len(coarse) == mapping.max() + 1 < count
    np.testing.assert_allclose(np.bincount(mapping, weight), coarse)
    assert coarse.max() <= limit
    apart = mapping[source] != mapping[target]
    assert price.sum() == pytest.approx(cost[apart].sum())
    assert (a < b).all() and len({*zip(a, b, strict=True)}) == len(a)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 7), draw=st.integers(0, 10**6), share=st.floats(0.2, 1.2))
def test_what_does_not_fit_in_memory_is_illegal_for_every_method(seed, draw, share):
    tasks = random_tasks(seed)
    free = Simulator(tasks, cluster(2))
    together = single_device(Problem(free))
    limit = share * float(free.score(together[None]).peak_bytes.max())
    simulator = Simulator(tasks, cluster(2, memory_bytes=limit))
    problem = Problem(simulator)
    placements = problem.masks.sample(np.random.default_rng(draw), 16)
    scores = simulator.score(placements)
    over = (scores.peak_bytes > limit).any(axis=1)
    np.testing.assert_array_equal(over, np.isnan(scores.seconds))
    assert [reason is not None for reason in scores.reasons] == over.tolist()
    found = evolve(problem, 100, start=[together], blocks=blocks_of(problem, 16))
    if np.isfinite(found.seconds):
        best = simulator.score(found.placement[None])
        assert best.reasons[0] is None and best.seconds[0] == pytest.approx(found.seconds, rel=1e-5)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 7), draw=st.integers(0, 10**6))
def test_results_of_one_operation_and_all_arguments_stay_together(seed, draw):
    traced = traced_program(*random_program(seed))
    tasks = traced.tasks
    simulator = Simulator(tasks, cluster(3))
    placement = device_masks(tasks, simulator.cluster).sample(np.random.default_rng(draw), 1)
    device = simulator.devices_of(placement)[0]
    assert (device[tasks.is_input] == 0).all()
    for number, equation in enumerate(traced.program.equations):
        if number not in traced.replicated:
            makers = {traced.equation_task[number]}
            makers |= {traced.task_of_value[v] for v in equation.outputs}
            assert len({int(device[t]) for t in makers if t >= 0}) == 1


def test_nested_calls_are_inlined_and_layers_noted():
    @jax.jit
    def inner(x):
        return jax.nn.relu(x) + 1.0

    def fn(x):
        with jax.named_scope("layer3"):
            return inner(inner(x))

    program = flatten(jax.jit(fn).trace(jnp.ones(4)).jaxpr, "fn")
    assert [e.name for e in program.equations] == ["max", "add"] * 2
    assert {e.layer for e in program.equations} == {3}


def test_programs_with_effects_are_refused():
    def fn(x):
        jax.debug.print("{}", x)
        return x

    with pytest.raises(UnsupportedModuleError) as caught:
        flatten(jax.jit(fn).trace(1.0).jaxpr, "fn")
    assert caught.value.rule == "effects"


def test_large_models_are_traced_without_being_run():
    model = next(m for m in LARGE if m.name == "wavenet-2x18")
    closed, weights = model.trace()
    tasks = build_tasks(flatten(closed, model.name), weights).tasks
    assert len(tasks) > 1500 and tasks.layer.max() == 35
    assert tasks.flops.sum() > 1e12
    assert {m.devices for m in LARGE} == {2, 4, 8} and len(LARGE) == 13


def test_timelines_show_every_event():
    simulator = diamond()
    seconds, events = run_event_loop(simulator, np.array([0, 0, 1, 0, 0]))
    drawing = to_svg(events, ["first & only", "second"], "a <title>")
    assert drawing.count("<rect") == len(events) == 6
    assert "first &amp; only" in drawing and "a &lt;title&gt;" in drawing
    assert f"{seconds * 1e3:.3f} ms" in drawing
