"""`graphopt.jit`: stored compile options reach XLA, and nothing else differs from ``jax.jit``."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import graphopt
from graphopt import own_jit
from graphopt.learn.tune.subject import lowered_digest
from graphopt.store import Store
from graphopt.store.winners import put_options

X = np.linspace(0.0, 1.0, 33, dtype=np.float32)
JIT = jax.jit
"""Whatever a test puts in its place."""

WIDTH = {"xla_cpu_prefer_vector_width": "128"}
UNKNOWN = {"no_such_option": "1"}
"""XLA refuses it by name: a proof that it was asked."""


def wave(x, n=2.0):
    return jnp.sin(x) * n


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store.sqlite")


def remember(store: Store, options: dict[str, str], fn, *args, **jit_options) -> None:
    digest = lowered_digest(JIT(fn, **jit_options).lower(*args))
    put_options(store, digest, options, (1.2, 1.1, 1.3))


@pytest.fixture
def used(monkeypatch):
    """Compile options of every ``jax.jit`` that `graphopt.jit` makes."""
    seen = []
    before = jax.jit

    def spy(*args, **options):
        seen.append(options.get("compiler_options"))
        return before(*args, **options)

    monkeypatch.setattr(own_jit.jax, "jit", spy)
    return seen


def test_stored_options_reach_xla(store):
    remember(store, UNKNOWN, wave, X)
    with pytest.raises(jax.errors.JaxRuntimeError, match="no_such_option"):
        graphopt.jit(wave, store=store)(X)
    np.testing.assert_allclose(graphopt.jit(wave, store="/nowhere/x")(X), wave(X))


def test_results_are_those_of_jax(store, used):
    remember(store, WIDTH, wave, X)
    fn = graphopt.jit(wave, store=str(store.path))
    for _ in range(3):
        np.testing.assert_allclose(fn(X), wave(X), rtol=1e-6)
    assert used == [None, WIDTH]


def test_only_the_signature_with_options_gets_them(store, used):
    remember(store, WIDTH, wave, X)
    fn = graphopt.jit(wave, store=store)
    for args in ((X[:5],), (X.astype(np.int32),), (X, 3.0), (X,)):
        np.testing.assert_allclose(fn(*args), wave(*args), rtol=1e-6)
    assert used == [None, WIDTH]


def test_without_a_store_it_is_plain(store, used):
    np.testing.assert_allclose(graphopt.jit(wave, store=store)(X), wave(X), rtol=1e-6)
    assert used == [None]
    assert not store.exists()


def test_an_unreadable_store_does_not_stop_the_program(store):
    store.path.write_text("something else")
    np.testing.assert_allclose(graphopt.jit(wave, store=store)(X), wave(X), rtol=1e-6)


def test_options_of_the_caller_win(store, used):
    remember(store, {**WIDTH, **UNKNOWN}, wave, X)
    mine = {"no_such_option": "2"}
    fn = graphopt.jit(wave, store=store, compiler_options=mine)
    with pytest.raises(jax.errors.JaxRuntimeError, match="no_such_option"):
        fn(X)
    assert used == [mine, {**WIDTH, **mine}]


def test_inside_transformations_it_is_plain_jit(store, used):
    remember(store, UNKNOWN, wave, X)
    remember(store, UNKNOWN, wave, 1.5)
    fn = graphopt.jit(wave, store=store)
    np.testing.assert_allclose(jax.jit(lambda x: fn(x) + 1)(X), wave(X) + 1, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda x: fn(X) + x)(X), wave(X) + X, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda x: fn(1.5) + x)(X), wave(1.5) + X, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: fn(x).sum())(X), 2 * np.cos(X), rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(fn)(X[:, None]), wave(X)[:, None], rtol=1e-6)
    _, total = jax.lax.scan(lambda c, x: (c, fn(x)), 0.0, jnp.asarray(X))
    np.testing.assert_allclose(total, wave(X), rtol=1e-6)
    assert used[0] is None and UNKNOWN not in used


def test_python_numbers_do_not_make_new_signatures(store, monkeypatch):
    remember(store, WIDTH, wave, X, 2.5)
    asked = []
    before = own_jit.get_options
    monkeypatch.setattr(own_jit, "get_options", lambda *a: asked.append(a) or before(*a))
    traces = []

    def counted(x, n):
        traces.append(n)
        return wave(x, n)

    fn = graphopt.jit(counted, store=store)
    for n in (0.5, 1.5, 2.5, 3.5):
        np.testing.assert_allclose(fn(X, n), wave(X, n), rtol=1e-6)
    assert len(asked) == 1 and len(traces) <= 2
    fn(X, 3)
    assert len(asked) == 2


@pytest.mark.parametrize("options", [{"static_argnums": 1}, {"static_argnames": ("n",)}])
def test_static_arguments(store, used, options):
    def power(x, n):
        return x**n if n > 2 else x * n

    remember(store, WIDTH, power, X, 3, **options)
    fn = graphopt.jit(power, store=store, **options)
    for n in (3, 2, 3):
        np.testing.assert_allclose(fn(X, n), power(X, n), rtol=1e-6)
    assert used == [None, WIDTH]
    if "static_argnames" in options:
        np.testing.assert_allclose(fn(X, n=5), power(X, 5), rtol=1e-6)
        np.testing.assert_allclose(fn(X, n=2), power(X, 2), rtol=1e-6)


def test_keywords_trees_and_donation(store):
    fn = graphopt.jit(lambda p, *, k: {"y": p["x"] * k}, store=store, donate_argnums=0)
    x = jnp.asarray(X)
    np.testing.assert_allclose(fn({"x": x}, k=2.0)["y"], X * 2, rtol=1e-6)
    assert x.is_deleted()


def test_as_a_decorator(store):
    @graphopt.jit
    def one(x):
        """Doc."""
        return x + 1

    @graphopt.jit(static_argnums=1, store=store)
    def two(x, n):
        return x + n

    assert (one.__name__, one.__doc__) == ("one", "Doc.")
    np.testing.assert_allclose(one(X), X + 1)
    np.testing.assert_allclose(two(X, 2), X + 2)
    assert "stablehlo" in two.lower(X, 2).as_text()


def test_errors_are_those_of_jax(store):
    fn = graphopt.jit(lambda x: x if x > 0 else -x, store=store)
    with pytest.raises(jax.errors.TracerBoolConversionError):
        fn(1.0)
    with pytest.raises(TypeError):
        graphopt.jit(wave, store=store)("text")
    with pytest.raises(ValueError, match="static"):
        graphopt.jit(wave, store=store, static_argnums=1)(X, [1])


def test_many_signatures_are_forgotten(store, monkeypatch):
    monkeypatch.setattr(own_jit, "MAX_SIGNATURES", 3)
    asked = []
    monkeypatch.setattr(own_jit, "_options", lambda *call: asked.append(call) or {})
    fn = graphopt.jit(wave, store=store)
    for n in (1, 2, 3, 3, 2, 1, 4, 1):
        np.testing.assert_allclose(fn(X[:n]), wave(X[:n]), rtol=1e-6)
    # Three are remembered; the fourth makes room for itself by forgetting them, the first among them.
    assert len(asked) == 5
