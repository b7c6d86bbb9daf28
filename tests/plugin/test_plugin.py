"""install() and report(), as a user's program meets them."""

from __future__ import annotations

import re
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.forks import run_forked
from support.reports import FELL_BACK, KEPT, REWRITTEN, agrees, only_record
from support.small_programs import STATE, is_native, named

import graphopt
from graphopt.errors import PolicyError
from graphopt.measure import compare_outputs
from graphopt.measure.capabilities.own import own_capabilities
from graphopt.outcomes import MAX_RECORDS, Ledger, ModuleRecord

pytestmark = pytest.mark.usefixtures("clean_plugin")


# What becomes of a program.


def test_a_loop_is_rewritten_and_computes_the_same():
    graphopt.install("heuristic")
    run = named("cart")
    assert agrees(run(STATE))
    report = graphopt.report()
    assert report.policy == "heuristic"
    assert report.seen == 1
    assert report.counts == {REWRITTEN: 1, KEPT: 0, FELL_BACK: 0}
    assert report.reasons == {}
    record = only_record()
    assert record.name == "jit_cart"
    assert record.outcome is REWRITTEN
    assert record.nodes > 20
    assert record.clusters_before > 1
    assert record.clusters_after > 1
    assert record.regions >= 1


def test_the_shipped_policy_says_who_decided_and_what_it_expects():
    graphopt.install()
    assert agrees(named("cart")(STATE))
    report = graphopt.report()
    assert report.policy == "checkpoint cpu"
    record = only_record()
    assert record.outcome is REWRITTEN
    assert record.reason in ("heuristic", "network")
    assert re.search(
        r"jit_cart: rewritten \(.*expected \d+\.\d+x by (heuristic|network)", str(report)
    )


def test_the_code_that_runs_is_the_rewritten_one():
    plain = named("cart").lower(STATE).compile()
    graphopt.install()
    rewritten = named("cart").lower(STATE).compile()
    assert not is_native(plain)
    assert is_native(rewritten)
    assert agrees(rewritten(STATE))


def test_the_report_reads_well():
    graphopt.install("heuristic")
    named("cart")(STATE)
    named("tiny", lambda x: x + 1)(STATE)
    text = str(graphopt.report())
    assert "policy heuristic" in text
    assert "2 modules seen: 1 rewritten, 1 kept, 0 fell back" in text
    assert "jit_cart: rewritten (" in text
    assert " clusters, " in text
    assert " regions" in text and "; steps: " in text
    assert "1 x kept: too small to matter" in text


def test_the_report_before_any_install():
    report = graphopt.report()
    assert report.policy is None
    assert report.seen == 0
    assert "not installed" in str(report)


def test_the_report_can_be_reset():
    graphopt.install()
    named("cart")(STATE)
    graphopt.reset_report()
    assert graphopt.report().seen == 0
    named("cart")(STATE)
    assert graphopt.report().seen == 1


def test_long_reports_keep_counting():
    ledger = Ledger()
    for _ in range(MAX_RECORDS + 5):
        ledger.add(ModuleRecord("jit_f", REWRITTEN))
    report = ledger.snapshot("heuristic", ())
    assert len(report.records) == MAX_RECORDS
    assert report.counts[REWRITTEN] == report.seen == MAX_RECORDS + 5
    assert len(str(report).splitlines()) < 30


def test_a_barrier_in_a_loop_that_xla_makes_native_is_no_reason_to_fall_back():
    def through(x):
        step = jax.checkpoint(lambda c: jnp.sin(jnp.sin(c)))
        return jax.lax.scan(lambda c, _: (step(c), None), x, None, length=5)[0]

    expected = jax.jit(jax.grad(through))(jnp.float32(3.0))
    graphopt.install()
    np.testing.assert_allclose(named("through", jax.grad(through))(jnp.float32(3.0)), expected)
    assert graphopt.report().counts[FELL_BACK] == 0


def test_tiny_modules_are_kept():
    graphopt.install()
    result = named("tiny", lambda x: x + 1)(STATE)
    np.testing.assert_array_equal(result, STATE + 1)
    assert only_record().outcome is KEPT
    assert graphopt.report().reasons == {"kept: too small to matter": 1}


def test_modules_without_gain_are_kept():
    def chain(x):
        return jnp.sin(x) * x + jnp.cos(x) * (x - 1) + jnp.exp(-x)

    graphopt.install("heuristic")
    result = named("chain", chain)(STATE[:16])
    assert compare_outputs(jax.device_get(chain(STATE[:16])), result).equal
    (record,) = (r for r in graphopt.report().records if r.name == "jit_chain")
    assert (record.outcome, record.reason) == (KEPT, "no gain expected")
    assert record.nodes == 0  # passed over before a graph was built


def test_modules_above_the_size_limit_are_left_alone():
    graphopt.install(max_instructions=10)
    assert agrees(named("cart")(STATE))
    assert graphopt.report().reasons == {"fell back: too-large": 1}


def test_programs_compiled_ahead_of_time_are_rewritten_too():
    graphopt.install()
    compiled = named("cart").lower(STATE).compile()
    assert only_record().outcome is REWRITTEN
    assert agrees(compiled(STATE))


def test_callbacks_keep_their_order():
    def traced(x):
        def step(state, i):
            state = jnp.sin(state) * 0.9 + jnp.cos(state) * 0.1
            jax.experimental.io_callback(seen.append, None, i, ordered=True)
            return state, jnp.sum(state)

        return jax.lax.scan(step, x, jnp.arange(6))

    seen: list[np.ndarray] = []
    expected = jax.device_get(named("plain", traced)(STATE))
    jax.effects_barrier()
    seen.clear()
    graphopt.install("xla-default")
    result = named("optimized", traced)(STATE)
    jax.effects_barrier()
    assert [int(i) for i in seen] == list(range(6))
    assert compare_outputs(expected, result).equal


# Named policies.


def test_xla_default_changes_nothing_but_goes_through_the_rewriter():
    def several(x):  # no jaxlib makes a loop native that sorts
        step = lambda _, c: jnp.sort(jnp.tanh(c[::-1]) * 0.9)  # noqa: E731
        return jax.lax.fori_loop(0, 5, step, x) * jnp.sum(x * x)

    expected = named("plain", several)(STATE)
    graphopt.install("xla-default")
    assert compare_outputs(expected, named("several", several)(STATE)).equal
    record = only_record()
    assert record.outcome is REWRITTEN
    assert record.clusters_after == record.clusters_before
    assert record.regions == 0


def test_an_alias_is_reported_under_the_real_name():
    graphopt.install("no-recompute")
    assert graphopt.report().policy == "heuristic"
    assert agrees(named("cart")(STATE))
    assert only_record().outcome is REWRITTEN


def test_no_policy_uninstalls():
    graphopt.install()
    graphopt.install(policy=None)
    assert graphopt.report().policy is None
    assert agrees(named("cart")(STATE))
    assert graphopt.report().seen == 0


@pytest.mark.parametrize("policy", ["nonsense", "", 3])
def test_unknown_policies_are_refused_and_the_installed_one_stays(policy):
    graphopt.install("xla-default")
    with pytest.raises(PolicyError):
        graphopt.install(policy)
    assert graphopt.report().policy == "xla-default"
    assert agrees(named("cart")(STATE))
    assert only_record().outcome is REWRITTEN


# Programs that are left alone.


def donated_update(policy):
    """A step that donates its first argument: was the buffer taken, and reused for the result?"""

    def update(weights, slope):
        return weights - 0.1 * slope * jnp.tanh(weights) + jnp.sin(slope), jnp.sum(slope)

    # Computed, so that XLA owns the buffer: one that numpy lent cannot be donated.
    weights = jnp.tile(STATE, (64, 1))
    slope = np.tile(0.5 * STATE, (64, 1))
    if policy is not None:
        graphopt.install(policy)
    run = jax.jit(update, donate_argnums=0)
    place = weights.unsafe_buffer_pointer()
    fresh, total = run(weights, slope)
    reused = fresh.unsafe_buffer_pointer() == place
    return weights.is_deleted(), reused, jax.device_get((fresh, total))


def test_donation_is_kept():
    *expected, default = donated_update(None)
    assert expected == [True, True]
    *found, result = donated_update("xla-default")
    assert found == expected
    assert compare_outputs(default, result).equal
    (record,) = (r for r in graphopt.report().records if r.name == "jit_update")
    if own_capabilities().donation:
        assert record.outcome is REWRITTEN
    else:
        assert (record.outcome, record.reason) == (FELL_BACK, "donation")
        assert "fell back: donation" in graphopt.report().reasons


def test_a_rewritten_program_keeps_its_donated_buffers_where_that_is_possible():
    """Every value in memory, so that the module is another one."""
    *_, default = donated_update(None)

    def kept(graph):
        return graph.default.with_changes(fuse=~graph.masks.fuse[:, 0])

    *found, result = donated_update(kept)
    assert found == [True, True]
    assert compare_outputs(default, result).equal
    (record,) = (r for r in graphopt.report().records if r.name == "jit_update")
    assert record.outcome is (REWRITTEN if own_capabilities().donation else FELL_BACK)


def test_programs_for_several_devices_are_rewritten():
    script = textwrap.dedent("""
        import jax
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        jax.config.update("jax_num_cpu_devices", 2)
        import graphopt
        from graphopt.measure import compare_outputs
        from support.small_programs import STATE, named

        first, second = jax.devices()
        plain = jax.device_get(named("plain")(STATE))
        graphopt.install(
            lambda graph: graph.default.with_changes(fuse=~graph.masks.fuse[:, 0])
        )
        mesh = Mesh(np.array([first, second]), ("half",))
        halves = jax.device_put(STATE, NamedSharding(mesh, PartitionSpec("half")))
        sharded = named("sharded")(halves)
        assert len(sharded[1].sharding.device_set) == 2
        moved = named("moved")(jax.device_put(STATE, second))
        assert moved[1].devices() == {second}
        for result in (sharded, moved):
            assert compare_outputs(plain, jax.device_get(result)).equal
        for record in graphopt.report().records:
            if record.name in ("jit_sharded", "jit_moved"):
                print(record.name, record.outcome)
    """)
    done = run_forked(script)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "jit_moved rewritten",
        "jit_sharded rewritten",
    ]
