"""install(record=True): what is left in the queue, and what of the user's program stays as it was."""

from __future__ import annotations

import functools
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.processes import run_python
from support.queued import only_item
from support.reports import agrees
from support.small_programs import STATE, named

import graphopt
from graphopt import jax_private
from graphopt.errors import ConfigError
from graphopt.learn.background.tuning import inputs_of
from graphopt.measure.compiling.stub import signature
from graphopt.plugin.recording import COUNTED, record_wanted
from graphopt.store import Store
from graphopt.store.queue import items, load
from graphopt.store.queue_items import State

pytestmark = pytest.mark.usefixtures("clean_plugin")


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    yield store
    store.close()


def test_a_module_is_left_with_types_ranges_and_calls(store):
    graphopt.install(record=True, store=store)
    cart = named("cart")
    for _ in range(3):
        assert agrees(cart(STATE))
    graphopt.uninstall()
    item = only_item(store)
    assert item.program == "jit_cart" and item.state is State.WAITING
    assert item.calls == 3.0 and item.processes == 1 and item.compile_s > 0.0
    (known,) = item.inputs
    assert (known.shape, known.dtype, known.low, known.high) == (STATE.shape, "float32", -1.0, 1.0)
    assert not item.has_values


def test_many_calls_are_estimated_and_at_least_those_counted(store):
    graphopt.install(record=True, store=store)
    cart = named("cart")
    for _ in range(3 * COUNTED):
        jax.block_until_ready(cart(STATE))
    graphopt.uninstall()
    assert only_item(store).calls >= COUNTED


def test_after_the_counted_calls_nothing_of_ours_is_in_the_way(store):
    told = []
    graphopt.install(record=True, store=store)
    recorder = graphopt.plugin.state.state.installed.recorder
    called = recorder._called
    recorder._called = lambda *args: (told.append(1), called(*args))
    cart = named("cart")
    for _ in range(COUNTED + 5):
        cart(STATE)
    assert len(told) == COUNTED


def test_labels_of_the_program_are_not_recorded(store):
    graphopt.install(record=True, store=store)
    named("cart")(STATE)
    graphopt.uninstall()
    module, values = load(store, only_item(store).id)
    assert b"small_programs" not in module and values is None


def test_values_are_recorded_only_where_asked_for(store):
    graphopt.install(record="inputs", store=store)
    named("cart")(STATE)
    graphopt.uninstall()
    assert only_item(store).has_values
    assert load(store, only_item(store).id)[1] is not None


def test_numbers_are_recorded_as_the_module_takes_them(store):
    graphopt.install(record="inputs", store=store)

    @jax.jit
    def descend(x, times, rate, start):
        step = lambda _, x: x - rate * jnp.tanh(x * x).sum() * x  # noqa: E731
        return jax.lax.fori_loop(0, times, step, x + start)

    descend(jnp.ones(512), 30, 0.25, np.ones(512))
    graphopt.uninstall()
    item = only_item(store)
    data, values = load(store, item.id)
    inputs = inputs_of(data, item, values, seed=0)
    wanted = [(tuple(p.shape), p.dtype.name) for p in signature(data).parameters]
    assert [(value.shape, value.dtype.name) for value in inputs] == wanted
    assert sorted(float(value) for value in inputs if not value.shape) == [0.25, 30.0]


def test_donated_arguments_stay_donated(store):
    graphopt.install(record=True, store=store)

    @functools.partial(jax.jit, donate_argnums=0)
    def update(weights, x):
        for _ in range(4):
            weights = weights - 0.1 * jnp.tanh(weights * x).sum() * weights
        return weights

    weights, x = jnp.ones(4096), jnp.ones(4096)
    for _ in range(4):
        before = weights
        weights = update(weights, x)
        assert before.is_deleted()
    graphopt.uninstall()
    assert only_item(store).calls == 4.0


def test_the_same_program_in_a_later_installation_is_the_same_item(store):
    for _ in range(2):
        jax.clear_caches()
        graphopt.install(record=True, store=store)
        named("cart")(STATE)
        graphopt.uninstall()
    item = only_item(store)
    assert item.processes == 2 and item.calls == 2.0


def test_small_modules_are_not_recorded(store):
    graphopt.install(record=True, store=store)
    jax.jit(lambda x: x + 1.0)(STATE)
    graphopt.uninstall()
    assert items(store).items == ()


def test_without_asking_nothing_is_recorded(store):
    graphopt.install(store=store)
    named("cart")(STATE)
    graphopt.uninstall()
    assert items(store).items == ()


def test_a_store_that_cannot_be_written_is_a_note_in_the_report(tmp_path):
    (tmp_path / "store.sqlite").mkdir()
    graphopt.install(record=True, store=tmp_path / "store.sqlite")
    assert agrees(named("cart")(STATE))
    graphopt.uninstall()
    assert any("not recorded" in text for text in graphopt.report().notes)


def test_without_a_store_nothing_can_be_recorded():
    graphopt.install(record=True, store=False)
    assert any("nothing is recorded" in text for text in graphopt.report().notes)


def test_without_jax_s_names_modules_are_recorded_all_the_same(store, monkeypatch):
    monkeypatch.setattr(jax_private.calls.names, "PJIT", "jax._src.moved")
    graphopt.install(record=True, store=store)
    assert agrees(named("cart")(STATE))
    graphopt.uninstall()
    assert any("calls are not counted" in text for text in graphopt.report().notes)
    assert only_item(store).calls == 0.0


@pytest.mark.parametrize(
    ("argument", "named_there", "wanted"),
    [
        (None, "", False),
        (None, "1", True),
        (None, "inputs", "inputs"),
        (None, "0", False),
        (True, "", True),
        (True, "0", False),
        ("inputs", "1", "inputs"),
        (False, "1", False),
    ],
)
def test_argument_and_environment(monkeypatch, argument, named_there, wanted):
    monkeypatch.setenv("GRAPHOPT_RECORD", named_there)
    assert record_wanted(argument) == wanted


@pytest.mark.parametrize(("argument", "named_there"), [("values", ""), (None, "yes")])
def test_what_cannot_be_recorded_is_named(monkeypatch, argument, named_there):
    monkeypatch.setenv("GRAPHOPT_RECORD", named_there)
    with pytest.raises(ConfigError, match=r"values|yes"):
        graphopt.install(record=argument)


def test_a_script_that_ends_at_once_has_left_its_module(store):
    script = """
        import graphopt, numpy as np
        from support.small_programs import STATE, named
        graphopt.install()
        print(np.asarray(named("cart")(STATE)[1]).sum())
        """
    there = {"GRAPHOPT_RECORD": "1", "GRAPHOPT_STORE": str(store.path)}
    done = run_python("-c", textwrap.dedent(script), env=there)
    assert done.returncode == 0, done.stderr
    assert only_item(store).calls == 1.0
    assert np.isfinite(float(done.stdout))
