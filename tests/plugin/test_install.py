"""Installing and uninstalling: again and again, in fresh processes, under other versions of jax."""

from __future__ import annotations

import textwrap

import jax
import jaxlib.version
import pytest
from support.processes import run_python
from support.reports import REWRITTEN, agrees, only_record
from support.small_programs import STATE, named

import graphopt
from graphopt import jax_private, xla_hook
from graphopt.errors import UnsupportedJaxError

SHIPPED = "checkpoint cpu"
"""What `install()` reports as its policy."""

pytestmark = pytest.mark.usefixtures("clean_plugin")


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


def test_how_many_devices_there_are_can_still_be_said():
    script = textwrap.dedent("""
        import graphopt
        import graphopt.lazy as lt
        graphopt.install()
        lt.random.seed(1)
        assert graphopt.report().seen == 0

        import jax
        jax.config.update("jax_num_cpu_devices", 3)
        assert len(jax.devices()) == 3

        from support.small_programs import STATE, named
        named("cart")(STATE)
        assert [record.name for record in graphopt.report().records] == ["jit_cart"]
        assert float(lt.random.uniform()) > 0
    """)
    done = run_python("-c", script)
    assert done.returncode == 0, done.stderr


def test_it_can_be_disabled_from_outside():
    script = textwrap.dedent("""
        import graphopt
        from support.small_programs import STATE, is_native, named

        graphopt.install()
        assert not is_native(named("cart").lower(STATE).compile())
        assert graphopt.report().seen == 0
        print(graphopt.report())
    """)
    done = run_python("-c", script, env={"GRAPHOPT_DISABLE": "1"})
    assert done.returncode == 0, done.stderr
    assert "GRAPHOPT_DISABLE is set" in done.stdout
    assert "not installed" in done.stdout


@pytest.mark.parametrize(("value", "policy"), [("1", None), ("0", SHIPPED), ("", SHIPPED)])
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
    assert graphopt.report().policy == SHIPPED


def test_a_jax_that_refuses_the_hook_leaves_nothing_behind(monkeypatch):
    def refuse(*args, **kwargs):
        raise NotImplementedError("this jaxlib is too old")

    cache_key = pytest.importorskip("jax._src.cache_key")
    before = cache_key.custom_hook()
    monkeypatch.setattr(jax_private, "register_transform", refuse)
    with pytest.raises(UnsupportedJaxError, match="too old"):
        graphopt.install()
    try:
        assert graphopt.report().policy is None
        assert cache_key.custom_hook() == before, "entries would be kept apart for no reason"
    finally:
        jax_private.reset_cache_key_hook()


def test_the_hook_is_registered_only_while_it_is_needed(monkeypatch):
    calls = []
    for name in ("register_transform", "clear_transform"):
        monkeypatch.setattr(jax_private, name, lambda *a, n=name, **k: calls.append(n[:5]))
    graphopt.install()
    other = xla_hook.subscribe(lambda data: None)
    graphopt.uninstall()
    assert calls == ["regis"]
    other.close()
    other.close()
    assert calls == ["regis", "clear"]


@pytest.mark.parametrize("policy", ["heuristic", "shipped"])
def test_the_first_compile_imports_nothing_of_ours(policy):
    script = f"""
import sys
import graphopt
import jax, jax.numpy as jnp
graphopt.install({policy!r}, store=False)
before = set(sys.modules)
x = jnp.ones((64, 64))
jax.jit(lambda x: jax.lax.fori_loop(0, 9, lambda i, c: jnp.sin(c @ x) + c.T, x).sum())(x)
late = [name for name in set(sys.modules) - before if name.startswith("graphopt")]
assert graphopt.report().seen and not late, late
"""
    done = run_python("-c", script)
    assert done.returncode == 0, done.stderr
