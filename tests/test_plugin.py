"""install(), uninstall() and report(), as a user's program meets them."""

from __future__ import annotations

import functools
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
import pytest
from processes import becomes, run_python
from small_programs import STATE, is_native, named, rollout

import graphopt
from graphopt import Decisions, capture_modules, jax_private, plugin, xla_hook
from graphopt.errors import PolicyError, UnsupportedJaxError, VerificationError
from graphopt.measure import compare_outputs, compile_with
from graphopt.outcomes import MAX_RECORDS, Ledger, ModuleRecord, Outcome

REWRITTEN, KEPT, FELL_BACK = Outcome.REWRITTEN, Outcome.KEPT, Outcome.FELL_BACK


@pytest.fixture(autouse=True)
def clean_plugin():
    """Nothing installed and nothing reported, before and after."""
    graphopt.uninstall()
    graphopt.reset_report()
    yield
    graphopt.uninstall()
    graphopt.reset_report()


@functools.cache
def reference():
    """What XLA's default computes."""
    return compile_with(rollout, (STATE,))()


def agrees(result) -> bool:
    return compare_outputs(reference(), result).equal


def only_record() -> ModuleRecord:
    (record,) = graphopt.report().records
    return record


def as_it_is(graph):
    """A policy that XLA's own decisions satisfy."""
    return graph.default


# What becomes of a program.


def test_a_loop_is_rewritten_and_computes_the_same():
    graphopt.install()
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


def test_the_code_that_runs_is_the_rewritten_one():
    plain = named("cart").lower(STATE).compile()
    graphopt.install()
    rewritten = named("cart").lower(STATE).compile()
    assert not is_native(plain)
    assert is_native(rewritten)
    assert agrees(rewritten(STATE))


def test_the_report_reads_well():
    graphopt.install()
    named("cart")(STATE)
    named("tiny", lambda x: x + 1)(STATE)
    text = str(graphopt.report())
    assert "policy heuristic" in text
    assert "2 modules seen: 1 rewritten, 1 kept, 0 fell back" in text
    assert "jit_cart: rewritten (" in text
    assert " clusters, " in text
    assert " regions; " in text
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


def test_tiny_modules_are_kept():
    graphopt.install()
    result = named("tiny", lambda x: x + 1)(STATE)
    np.testing.assert_array_equal(result, STATE + 1)
    assert only_record().outcome is KEPT
    assert graphopt.report().reasons == {"kept: too small to matter": 1}


def test_modules_without_gain_are_kept():
    def chain(x):
        return jnp.sin(x) * x + jnp.cos(x) * (x - 1) + jnp.exp(-x)

    graphopt.install()
    result = named("chain", chain)(STATE[:16])
    assert compare_outputs(jax.device_get(chain(STATE[:16])), result).equal
    (record,) = (r for r in graphopt.report().records if r.name == "jit_chain")
    assert (record.outcome, record.reason) == (KEPT, "no gain expected")
    assert record.nodes > 8


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
    graphopt.install("xla-default")
    assert agrees(named("cart")(STATE))
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


# Policies of the user.


def raises(error):
    def policy(graph):
        raise error

    return policy


def outside_the_masks(graph):
    out = graph.default.copy()
    out.fuse[...] = True
    return out


def no_such_unit(graph):
    out = graph.default.copy()
    out.unit[...] = len(graph.units)
    return out


def too_short(graph):
    one = graph.default
    return Decisions(one.fuse[:-1].copy(), one.join[:-1].copy(), one.unit[:-1].copy())


class SpeechlessError(Exception):
    def __str__(self):
        raise RuntimeError("no message either")


@pytest.mark.parametrize(
    ("policy", "outcome", "reason"),
    [
        (lambda graph: None, KEPT, "no gain expected"),
        (raises(ValueError("bad luck")), FELL_BACK, "policy raised ValueError: bad luck"),
        (raises(SystemExit(3)), FELL_BACK, "policy raised SystemExit: 3"),
        (raises(KeyboardInterrupt()), FELL_BACK, "policy raised KeyboardInterrupt"),
        (raises(SpeechlessError()), FELL_BACK, "policy raised SpeechlessError"),
        (lambda graph: 3, FELL_BACK, "policy returned int"),
        (lambda graph: (graph.default, 1), FELL_BACK, "policy returned tuple"),
        (lambda: None, FELL_BACK, "policy raised TypeError"),
        (too_short, FELL_BACK, "DecisionError"),
        (outside_the_masks, FELL_BACK, "is forbidden by rule"),
        (no_such_unit, FELL_BACK, "does not exist"),
    ],
    ids=[
        "none", "raises", "exits", "interrupts", "raises-speechless", "int", "tuple",
        "takes-no-argument", "too-short", "outside-the-masks", "no-such-unit",
    ],
)  # fmt: skip
def test_whatever_a_policy_does_the_program_runs(policy, outcome, reason):
    graphopt.install(policy)
    assert agrees(named("cart")(STATE))
    assert only_record().outcome is outcome
    (text,) = graphopt.report().reasons
    assert text.startswith(f"{outcome}: ")
    assert reason in text


def test_a_slow_policy_is_given_up():
    release = threading.Event()

    def slow(graph):
        release.wait(60)
        return graph.default

    try:
        graphopt.install(slow, policy_timeout_s=0.2)
        assert agrees(named("cart")(STATE))
        assert graphopt.report().reasons == {"fell back: policy took longer than 0.2 s": 1}
    finally:
        release.set()


def test_a_policy_that_never_returns_does_not_keep_the_process():
    script = textwrap.dedent("""
        import time
        import graphopt
        from small_programs import STATE, named

        graphopt.install(lambda graph: time.sleep(1e6), policy_timeout_s=0.2)
        named("cart")(STATE)
        print(graphopt.report().reasons)
    """)
    done = run_python("-c", script)
    assert done.returncode == 0, done.stderr
    assert "policy took longer than 0.2 s" in done.stdout


def test_a_policy_that_still_compiles_at_exit_does_not_abort_the_process():
    script = textwrap.dedent("""
        import graphopt
        from small_programs import STATE, named

        def search(graph):
            while True:
                named("candidate")(STATE)

        graphopt.install(search, policy_timeout_s=0.2)
        named("cart")(STATE)
    """)
    done = run_python("-c", script)
    assert done.returncode == 0, done.stderr


def test_the_report_names_the_users_policy():
    graphopt.install(as_it_is)
    assert graphopt.report().policy == "as_it_is"
    graphopt.install(functools.partial(lambda graph, _: None, _=1))
    assert graphopt.report().policy == "partial"


def test_a_policy_sees_the_graph_and_its_choice_is_applied():
    seen = []

    def native_loop(graph):
        seen.append((graph.name, len(graph)))
        (loop,) = (node for node, op in enumerate(graph.ops) if op.name == "while")
        out = graph.default.copy()
        out.unit[loop] = [unit.name for unit in graph.units].index("native")
        return out

    graphopt.install(native_loop)
    compiled = named("cart").lower(STATE).compile()
    assert agrees(compiled(STATE))
    assert is_native(compiled)
    assert seen == [("jit_cart", only_record().nodes)]


def test_a_policy_that_edits_xlas_decisions_in_place_does_no_harm():
    def careless(graph):
        drawn = graph.masks.sample(np.random.default_rng(0), graph.default, 0.5)
        for field in ("fuse", "join", "unit"):
            getattr(graph.default, field)[...] = getattr(drawn, field)
        return graph.default

    graphopt.install(careless)
    assert agrees(named("cart")(STATE))
    assert graphopt.report().seen == 1


def test_a_policy_may_compile_inside_the_hook():
    @jax.jit
    def score(x):
        return jax.lax.fori_loop(0, 9, lambda i, x: jnp.sin(x) + jnp.cos(x) * i, x)

    def with_jax(graph):
        score(STATE).block_until_ready()
        return graph.default

    graphopt.install(with_jax, policy_timeout_s=60)
    assert agrees(named("cart")(STATE))
    by_name = {record.name: record for record in graphopt.report().records}
    assert by_name["jit_cart"].outcome is REWRITTEN
    assert by_name["jit_score"].outcome is KEPT
    assert by_name["jit_score"].reason == "compiled by a policy"


def test_a_policy_may_capture_inside_the_hook():
    def with_capture(graph):
        (inner,) = graphopt.capture(lambda x: jnp.sum(jnp.sin(x) * jnp.cos(x)), STATE)
        return graph.default if len(inner) else None

    graphopt.install(with_capture, policy_timeout_s=60)
    assert agrees(named("cart")(STATE))
    assert only_record().outcome is REWRITTEN


def test_a_policy_may_uninstall_inside_the_hook():
    def once(graph):
        graphopt.uninstall()
        return graph.default

    graphopt.install(once)
    assert agrees(named("cart")(STATE))
    assert agrees(named("again")(STATE))
    assert [record.name for record in graphopt.report().records] == ["jit_cart"]


# Failures of graphopt itself.


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("a defect"), "internal error RuntimeError: a defect"),
        (MemoryError(), "internal error MemoryError"),
        (
            VerificationError(what="shapes differ", where="a", fix="Report it.", rule="shape"),
            "VerificationError: shapes differ",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_defect_of_the_rewriter_keeps_the_default(monkeypatch, error, reason):
    def broken(graph, decisions):
        raise error

    monkeypatch.setattr(plugin, "rewrite", broken)
    graphopt.install()
    assert agrees(named("cart")(STATE))
    (text,) = graphopt.report().reasons
    assert text.startswith(f"fell back: {reason}")


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x00" * 64])
def test_bytes_that_are_no_module_are_recorded(data):
    graphopt.install()
    assert plugin._handle(data) is None
    record = only_record()
    assert record.outcome is FELL_BACK
    assert record.name == "unreadable module"
    assert "ModuleFormatError" in record.reason


def test_modules_that_arrive_after_uninstall_are_passed_on():
    assert plugin._handle(b"garbage") is None
    assert graphopt.report().seen == 0


# Threads.


@pytest.mark.parametrize("policy", ["heuristic", as_it_is], ids=["built-in", "of-the-user"])
def test_several_threads_compile_at_once(policy):
    barrier = threading.Barrier(4)

    def compile_and_run(number):
        run = named(f"thread_{number}")
        barrier.wait(60)
        return run(STATE)

    graphopt.install(policy)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(compile_and_run, range(4)))
    assert all(agrees(result) for result in results)
    records = graphopt.report().records
    assert sorted(record.name for record in records) == [f"jit_thread_{i}" for i in range(4)]
    assert {record.outcome for record in records} == {REWRITTEN}


def test_measuring_in_one_thread_leaves_another_threads_program_alone():
    (own,) = capture_modules(rollout, STATE)
    holding, release = threading.Event(), threading.Event()

    def candidate(data):
        holding.set()
        release.wait(60)
        return own

    def halved(x):
        return rollout(0.5 * x)

    expected = compile_with(halved, (STATE,))()
    graphopt.install()
    with ThreadPoolExecutor(2) as pool:
        measured = pool.submit(lambda: compile_with(rollout, (STATE,), candidate))
        assert holding.wait(60)
        other = pool.submit(lambda: named("other", halved)(STATE))
        becomes(other.done, within_s=3)  # or it waits until the first is done
        release.set()
        assert compare_outputs(expected, other.result(60)).equal
        assert len(measured.result(60).modules) == 1
    assert [record.name for record in graphopt.report().records] == ["jit_other"]


# Installing, again and again.


def test_installing_twice_asks_once():
    asked = []

    def counting(graph):
        asked.append(graph.name)
        return graph.default

    graphopt.install(counting)
    graphopt.install(counting)
    assert agrees(named("cart")(STATE))
    assert asked == ["jit_cart"]
    assert graphopt.report().seen == 1


def test_installing_again_replaces_the_policy():
    first, second = [], []
    graphopt.install(lambda graph: first.append(graph.name))
    graphopt.install(lambda graph: second.append(graph.name))
    named("cart")(STATE)
    assert (first, second) == ([], ["jit_cart"])


def test_uninstalling_stops_rewriting():
    graphopt.install()
    named("before")(STATE)
    graphopt.uninstall()
    graphopt.uninstall()
    assert agrees(named("after")(STATE))
    report = graphopt.report()
    assert report.policy is None
    assert [record.name for record in report.records] == ["jit_before"]


def test_compiled_programs_keep_their_code_when_uninstalling():
    graphopt.install()
    run = named("cart")
    run(STATE)
    graphopt.uninstall()
    assert agrees(run(STATE))
    assert graphopt.report().seen == 1


def test_programs_compiled_before_keep_their_code_until_caches_are_cleared():
    run = named("cart")
    run(STATE)
    graphopt.install()
    assert any("jax.clear_caches()" in note for note in graphopt.report().notes)
    assert "note: functions compiled before install()" in str(graphopt.report())
    assert agrees(run(STATE))
    assert graphopt.report().seen == 0
    jax.clear_caches()
    assert agrees(run(STATE))
    assert only_record().outcome is REWRITTEN


def test_a_fresh_process_has_nothing_to_note():
    script = textwrap.dedent("""
        import graphopt
        graphopt.install()
        print(graphopt.report().notes)
    """)
    done = run_python("-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "()\n"


def test_another_platform_is_mentioned(monkeypatch):
    named("cart")(STATE)
    graphopt.install()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert any("modules for gpu are left alone" in note for note in graphopt.report().notes)


def test_it_can_be_disabled_from_outside():
    script = textwrap.dedent("""
        import graphopt
        from small_programs import STATE, is_native, named

        graphopt.install()
        assert not is_native(named("cart").lower(STATE).compile())
        assert graphopt.report().seen == 0
        print(graphopt.report())
    """)
    done = run_python("-c", script, env={"GRAPHOPT_DISABLE": "1"})
    assert done.returncode == 0, done.stderr
    assert "GRAPHOPT_DISABLE is set" in done.stdout
    assert "not installed" in done.stdout


@pytest.mark.parametrize(("value", "policy"), [("1", None), ("0", "heuristic"), ("", "heuristic")])
def test_disabling_takes_a_value(monkeypatch, value, policy):
    monkeypatch.setenv("GRAPHOPT_DISABLE", value)
    graphopt.install()
    assert graphopt.report().policy == policy


def test_disabling_removes_what_was_installed(monkeypatch):
    graphopt.install()
    monkeypatch.setenv("GRAPHOPT_DISABLE", "1")
    graphopt.install()
    named("cart")(STATE)
    assert graphopt.report().seen == 0


# Which jax.


@pytest.mark.parametrize("module", [jax, jaxlib.version], ids=["jax", "jaxlib"])
@pytest.mark.parametrize(
    "version", ["0.9.9", "0.10", "0.10.1", "0.10.1.dev20260101", "0.10.1rc2", "0.10.1+cuda12"]
)
def test_an_older_jax_is_refused(monkeypatch, module, version):
    monkeypatch.setattr(module, "__version__", version)
    with pytest.raises(UnsupportedJaxError, match=r"0\.10\.2"):
        graphopt.install()
    assert graphopt.report().policy is None


@pytest.mark.parametrize("version", ["0.10.2", "0.10.2.dev20260101", "0.10.10", "0.11.0", "1.0"])
def test_a_newer_jax_is_accepted(monkeypatch, version):
    monkeypatch.setattr(jax, "__version__", version)
    graphopt.install()
    assert graphopt.report().policy == "heuristic"


def test_a_jax_that_refuses_the_hook_leaves_nothing_behind(monkeypatch):
    def refuse(*args, **kwargs):
        raise NotImplementedError("this jaxlib is too old")

    cache_key = pytest.importorskip("jax._src.cache_key")
    before = cache_key.custom_hook()
    monkeypatch.setattr("jax.extend.xla.register_hlo_module_transformation", refuse)
    with pytest.raises(UnsupportedJaxError, match="too old"):
        graphopt.install()
    try:
        assert graphopt.report().policy is None
        assert cache_key.custom_hook() == before, "entries would be kept apart for no reason"
    finally:
        jax_private.reset_cache_key_hook()


def test_the_hook_is_registered_only_while_it_is_needed(monkeypatch):
    calls = []
    for name in ("register_hlo_module_transformation", "clear_hlo_module_transformation"):
        monkeypatch.setattr(f"jax.extend.xla.{name}", lambda *a, n=name, **k: calls.append(n[:5]))
    graphopt.install()
    other = xla_hook.subscribe(lambda data: None)
    graphopt.uninstall()
    assert calls == ["regis"]
    other.close()
    other.close()
    assert calls == ["regis", "clear"]


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


def test_donation_is_kept_and_reported():
    *expected, default = donated_update(None)
    assert expected == [True, True]
    *found, result = donated_update("xla-default")
    assert found == expected
    assert compare_outputs(default, result).equal
    (record,) = (r for r in graphopt.report().records if r.name == "jit_update")
    assert (record.outcome, record.reason) == (FELL_BACK, "donation")
    assert "fell back: donation" in graphopt.report().reasons


def test_programs_for_several_devices_are_left_alone():
    script = textwrap.dedent("""
        import jax
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        jax.config.update("jax_num_cpu_devices", 2)
        import graphopt
        from graphopt.measure import compare_outputs
        from small_programs import STATE, named

        first, second = jax.devices()
        plain = jax.device_get(named("plain")(STATE))
        graphopt.install()
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
                print(record.name, record.outcome, record.reason)
    """)
    done = run_python("-c", script)
    assert done.returncode == 0, done.stderr
    # One device is one device, whichever it is.
    assert sorted(done.stdout.splitlines()) == [
        "jit_moved rewritten ",
        "jit_sharded fell back multi-device",
    ]
