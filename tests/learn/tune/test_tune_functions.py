"""`graphopt.tune` takes all kinds of functions, arguments and stores."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.small_programs import named
from support.tuned import X, quick, wave

import graphopt
from benchmarks.faults import child_processes
from graphopt.errors import StoreError, WorkloadError
from graphopt.hlo import build_graph
from graphopt.learn.tune import replay, tune
from graphopt.learn.tune.subject import make_subject
from graphopt.measure.capabilities.own import own_capabilities
from graphopt.store import Store
from graphopt.store.winners import all_winners

pytestmark = pytest.mark.usefixtures("clean_plugin")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store.sqlite")


def many(p, key, n, flag):
    noise = jax.random.normal(key, p["x"].shape)
    return {"a": wave(p["x"]) + noise, "b": (p["h"] * 2, p["i"] + n)}, jnp.where(flag, noise, 0)


def test_trees_keys_and_several_results(store):
    p = {"x": X, "h": jnp.asarray(X, jnp.bfloat16), "i": np.arange(9)}
    result = quick(many, p, jax.random.key(1), 3, True, store=store)
    assert result.verified and result.program == "many"
    assert len(result.modules) == 1 and result.modules[0].note == ""


def test_donated_arguments_are_left_alive(store):
    fn = jax.jit(lambda x, y: (wave(x) + y, x.sum()), donate_argnums=0)
    x, events = jnp.asarray(X), []
    result = quick(fn, x, X, store=store, listener=events.append)
    assert result.verified
    assert not x.is_deleted()
    assert ("donates inputs" in events[0].message) is not own_capabilities().donation
    replay(fn, x, X, budget_s=0.5, store=store)
    assert not x.is_deleted()


@pytest.mark.parametrize("how", ["plain", "negative", "jitted", "names"])
def test_static_arguments(how):
    def power(x, n):
        for _ in range(n):
            x = wave(x)
        return x

    options = {}
    fn = power
    if how in ("plain", "negative"):
        options["static_argnums"] = (1,) if how == "plain" else (-1,)
    else:
        fn = jax.jit(
            power, **({"static_argnums": 1} if how == "jitted" else {"static_argnames": "n"})
        )
    subject = make_subject(fn, (X, 3), **options)
    ((data, inputs),) = subject.modules
    assert len(build_graph(data)) > 30
    assert [i.shape for i in inputs] == [X.shape]
    np.testing.assert_allclose(subject.default(), power(X, 3), rtol=1e-4, atol=1e-5)


def test_functions_of_graphopt_jit():
    subject = make_subject(graphopt.jit(lambda x, n: wave(x) * n, static_argnums=1), (X, 3))
    np.testing.assert_allclose(subject.default(), wave(X) * 3, rtol=1e-4, atol=1e-5)


def test_objects_that_can_be_called_and_names():
    class Layer:
        def __call__(self, x):
            return wave(x)

    assert make_subject(Layer(), (X,)).name == "Layer"
    assert make_subject(wave, (X,)).name == "wave"
    assert make_subject(wave, (X,), name="my wave").name == "my wave"


def test_small_modules_are_left_alone(store):
    result = quick(lambda x: -x, X, store=store)
    assert result.modules[0].note == "too small to matter"
    assert result.verified and not result.adopted
    assert result.evaluations == 0


def test_host_callbacks_are_left_alone(store):
    def calls_back(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(lambda v: np.asarray(v) * 2, shape, wave(x)) + wave(x)

    before = set(child_processes())
    result = quick(calls_back, X, store=store)
    assert not result.adopted and result.verified
    assert "left alone" in result.modules[0].note
    assert "left alone" in str(result)
    assert all_winners(store) == []
    assert set(child_processes()) == before


def test_python_code_around_jitted_functions(store):
    first, second = named("first", wave), named("second", lambda x: wave(jnp.sqrt(jnp.abs(x))))

    def steps(x):
        y = first(x)
        return second(y) if float(y.sum()) < 1e9 else y

    steps(X)
    result = quick(steps, X, store=store, evaluations=0)
    assert result.verified
    assert {"jit_first", "jit_second"} <= {m.name for m in result.modules}
    assert result.options == {}


def fails(x):
    raise ValueError("no such thing")


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (fails, (X,)),
        (wave, ("text",)),
        (wave, ()),
        (lambda x, y: x @ y, (X, X[:3])),
        (3, (X,)),
    ],
    ids=["raises", "text", "no arguments", "shapes", "no function"],
)
def test_what_cannot_be_compiled(fn, args, store):
    with pytest.raises(WorkloadError, match="cannot be compiled"):
        tune(fn, *args, store=store)
    assert not store.exists()


def test_a_store_that_cannot_be_used(tmp_path):
    (tmp_path / "store").write_text("something else")
    with pytest.raises(StoreError):
        tune(wave, X, budget_s=1.0, store=tmp_path / "store")


def test_a_damaged_stored_winner_does_not_stop_tuning(store):
    quick(wave, X, store=store, evaluations=0)
    with store.transaction() as connection:
        connection.exec_driver_sql("UPDATE winners SET decisions='{\"space\": 0}'")
    assert quick(wave, X, store=store).verified
