"""Cutting programs and running the pieces on two CPU devices (in child processes)."""

import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.forks import run_forked
from support.placements import random_program, traced_program

from graphopt.devices.predict import predict
from graphopt.devices.segments import Cut, cut
from graphopt.placement import Traced, uniform
from graphopt.placement.cluster import DeviceKind
from graphopt.placement.times import analytic_times

HERE = Path(__file__).parent
KIND = DeviceKind("test", 1e9, 1e9, 1e-6, 1e-7)


def run_case(*case: str) -> None:
    code = f"""
        import runpy, warnings
        warnings.simplefilter("error")
        runpy.run_path({str(HERE / "two_devices.py")!r}, run_name="__main__")
    """
    done = run_forked(textwrap.dedent(code), *case, limit_s=240.0)
    assert done.returncode == 0 and done.stdout.strip().endswith("ok"), done.stderr[-3000:]


@pytest.mark.parametrize("case", ["random 0-4", "random 4-8"])
def test_any_placement_runs_and_agrees_with_one_device(case):
    run_case(*case.split())


@pytest.mark.parametrize(
    "case", ["place", "weights", "faults", "compile_failure", "refusals", "measured", "plugin"]
)
def test_on_two_devices(case):
    run_case(case)


def check_cut(traced: Traced, device: list[int], program: Cut) -> None:
    """Every equation runs once on its device; every value is there when it is used; no more is sent."""
    program_values = traced.program
    there = {(v, d) for d, values in program.arguments for v in values}
    done: dict[int, int] = {}
    needed: set[tuple[int, int]] = set()
    for segment in program.segments:
        made = {v for n in segment.equations for v in program_values.equations[n].outputs}
        for number in segment.equations:
            if number not in traced.replicated:
                assert number not in done, "an equation runs twice"
                done[number] = segment.device
            for value in program_values.equations[number].used:
                assert value in made or value in segment.inputs
        for value in segment.inputs:
            assert (value, segment.device) in there, "a value is used before it arrives"
            needed.add((value, segment.device))
        there |= {(v, segment.device) for v in segment.outputs}
        there |= {(v, d) for d, values in segment.sends for v in values}
    needed |= {(v, 0) for v in program_values.outputs if isinstance(v, int)}
    made_on = {(v, s.device) for s in program.segments for v in s.outputs}
    assert all((v, 0) in there for v in program_values.outputs if isinstance(v, int))
    wanted = {n: d for n, d in enumerate(device) if n not in traced.replicated}
    assert done == wanted
    sent = [(v, d) for s in program.segments for d, values in s.sends for v in values]
    assert len(sent) == len(set(sent)) and set(sent) <= needed, "something is sent for nothing"
    assert not set(sent) & made_on, "something is sent to where it was made"
    arguments = {(v, d) for d, values in program.arguments for v in values}
    assert set(sent) | arguments | made_on >= needed
    assert arguments <= needed


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 11), data=st.data())
def test_a_cut_carries_exactly_what_is_needed(seed, data):
    traced = _traced(seed)
    count = len(traced.equation_task)
    devices = data.draw(st.integers(1, 4))
    device = data.draw(st.lists(st.integers(0, devices - 1), min_size=count, max_size=count))
    check_cut(traced, device, cut(traced, device))
    seconds = data.draw(st.lists(st.sampled_from([0.0, 1e-6, 1.0]), min_size=count, max_size=count))
    merged = cut(traced, device, seconds=seconds, worth_s=1e-3)
    check_cut(traced, device, merged)
    assert len(merged.segments) <= len(cut(traced, device).segments)


def test_what_others_wait_for_is_a_segment_of_its_own():
    def fn(x):
        import jax
        import jax.numpy as jnp

        shared = jnp.sin(x)

        def loop(v):
            return jax.lax.fori_loop(0, 9, lambda _, a: jnp.tanh(a @ a), v)

        return loop(shared) + loop(shared + 1.0)

    traced = traced_program(fn, (np.ones((4, 4), np.float32),))
    names = [e.name for e in traced.program.equations]
    loops = [n for n, name in enumerate(names) if name in ("scan", "while")]
    device = [0] * len(names)
    device[loops[1]] = 1
    program = cut(traced, device)
    sending = next(s for s in program.segments if s.sends)
    assert loops[0] not in sending.equations, "the first loop would delay the second device"
    times = analytic_times(traced.tasks, cluster := uniform(
        KIND, 2, memory_bytes=1e9, latency_s=0.0, bytes_per_s=1e12))  # fmt: skip
    one = predict(traced, cut(traced, [0] * len(names)), cluster, times).seconds
    assert predict(traced, program, cluster, times).seconds < 0.75 * one


_cache: dict[int, Traced] = {}


def _traced(seed: int) -> Traced:
    if seed not in _cache:
        _cache[seed] = traced_program(*random_program(seed))
    return _cache[seed]
