"""Programs over several CPU devices, with the plugin installed: rewritten, and equal."""

from __future__ import annotations

import json
import textwrap

import pytest
from support.forks import run_forked

SCRIPT = textwrap.dedent("""
    import json
    import sys

    import jax
    import numpy as np
    from jax import lax
    from jax.sharding import PartitionSpec

    devices, *names = sys.argv[1:]
    jax.config.update("jax_num_cpu_devices", int(devices))
    import graphopt
    from graphopt.corpus.fuzzing.several_devices import DEVICES
    from graphopt.measure import compare_outputs


    def run(name):
        fn, args = DEVICES[name].build()

        def program(*args):
            return fn(*args)

        program.__name__ = name
        return jax.device_get(jax.jit(program)(*args))


    def mapped(x, key):
        def body(x, key):
            x = x + 0.1 * jax.random.normal(key, x.shape)
            return x, lax.pmean(x, "d").sum()

        return lax.scan(body, x, jax.random.split(key, 20))


    def by_pmap():
        count = len(jax.devices())
        keys = jax.random.split(jax.random.key(0), count)
        done = jax.pmap(mapped, axis_name="d")(np.ones((count, 4), np.float32), keys)
        assert len(done[0].sharding.device_set) == count
        return jax.device_get(done)


    programs = {name: lambda name=name: run(name) for name in names} | {"pmap": by_pmap}
    default = {name: program() for name, program in programs.items()}
    jax.clear_caches()
    graphopt.install("heuristic")
    for name, program in programs.items():
        graphopt.reset_report()
        result = program()
        records = sorted(graphopt.report().records, key=lambda r: r.nodes)
        rewritten = any(str(record.outcome) == "rewritten" for record in records)
        equal = compare_outputs(default[name], result).equal
        reasons = [r.reason for r in records if str(r.outcome) == "fell back"]
        print(json.dumps([name, equal, rewritten, reasons, any(r.caller_thread for r in records[-1:])]))
""")

NAMES = ("halo_steps", "random_walk", "looks_outside")


@pytest.mark.parametrize("devices", [2, 8])
def test_programs_of_several_devices_are_rewritten_and_equal(devices):
    done = run_forked(SCRIPT, str(devices), *NAMES)
    assert done.returncode == 0, done.stderr
    rows = {name: rest for name, *rest in map(json.loads, done.stdout.splitlines())}
    assert list(rows) == [*NAMES, "pmap"]
    for name, (equal, _, reasons, on_caller) in rows.items():
        assert equal, name
        assert reasons == [], name
        assert not on_caller, name
    assert rows["random_walk"][1]
    assert rows["pmap"][1]
