"""Loops block by block: the results of loops over whole arrays, and which loops are none over elements."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.scipy.special import gammainc

from graphopt import forms
from graphopt.forms.element_loops import estimates, row
from graphopt.forms.element_loops.row import FEWEST
from graphopt.machine import CpuCosts, probe
from tests.forms.equations import operation_of

SIZE = FEWEST + 37
RNG = np.random.default_rng(0)
X = RNG.uniform(0.5, 4, SIZE).astype(np.float32)
TABLE = jnp.asarray(RNG.permutation(64).astype(np.int32))
MATRIX = jnp.asarray(0.3 * RNG.normal(size=(3, 3)).astype(np.float32))


def halved(x):
    return lax.while_loop(lambda s: s[0] > 1, lambda s: (s[0] * 0.5, s[1] + 1), (x, 0))


def turned(x):
    def step(state):
        vector, count = state
        return MATRIX @ jnp.flip(vector), count + 1

    more = lambda s: (jnp.max(jnp.abs(s[0])) > 0.1) & (s[1] < 40)  # noqa: E731
    return lax.while_loop(more, step, (jnp.stack([x, x + 1, x * 2]), 0))


def from_table(x):
    start = (x * 15).astype(np.int32), 0
    more = lambda s: (s[0] > 20) & (s[1] < 30)  # noqa: E731
    return lax.while_loop(more, lambda s: (TABLE[s[0]], s[1] + 1), start)


def vectors(x):
    def more(state):
        return (jnp.dot(state[0], state[0]) > 0.5) & (state[1] < 40)

    def step(state):
        vector, count = state
        turned = jnp.concatenate([vector[1:], vector[:1]]) * 0.5
        return turned @ MATRIX + 0.01 * jnp.max(vector) * turned, count + 1

    return lax.while_loop(more, step, (jnp.stack([x, x + 1, x * 2]), 0))


def root(x):
    def solve(function, start):
        newton = lambda y: y - function(y) / (3 * y * y + 1)  # noqa: E731
        return lax.while_loop(lambda y: jnp.abs(function(y)) > 1e-4, newton, start)

    return lax.custom_root(lambda y: y**3 + y - x, x, solve, lambda g, y: y / g(1.0))


def grid(x):
    def one(x, y):
        step = lambda s: (s[0] * 0.5, s[1] + y)  # noqa: E731
        return lax.while_loop(lambda s: s[0] > y, step, (x, 0.0))

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(x[:40], 0.125 * x[:60])


def while_any(x):
    def step(state):
        y, count, trips = state
        on = y > 1
        return jnp.where(on, y * 0.5, y), jnp.where(on, count + 1, count), trips + 1

    more = lambda s: jnp.any(s[0] > 1) & (s[2] < 50)  # noqa: E731
    return lax.while_loop(more, step, (x, jnp.zeros(x.shape, np.int32), 0))


def until_all(x):
    def step(state):
        y, done = state
        y = jnp.where(done, y, y * 0.5)
        return y, done | (y < 1)

    return lax.while_loop(lambda s: ~jnp.all(s[1]), step, (x, x < 1))


def as_long_as_active(x):
    def step(state):
        y, on = state
        y = jnp.where(on, y * 0.5, y)
        return y, on & (y > 1)

    return lax.while_loop(lambda s: jnp.any(s[1]), step, (x, x > 1))


OWN = {f.__name__: jax.vmap(f) for f in (halved, from_table, vectors, turned, root)}
LOOPS = {**OWN, **{f.__name__: f for f in (grid, while_any, until_all, as_long_as_active)}}


def compare(function, *args, blocked=True, **close):
    expected = jax.jit(lambda *a: function(*a))(*args)
    with forms.enabled({"loop-blocks"}, always=True) as choices:
        found = jax.jit(lambda *a: function(*a))(*args)
    assert bool(choices) == blocked
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, **{"rtol": 2e-5, "atol": 1e-6, **close}),
        found,
        expected,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_results_of_whole_arrays(name):
    compare(LOOPS[name], X)


@pytest.mark.parametrize("name", ["halved", "while_any", "grid"])
def test_in_double_precision(name):
    with jax.enable_x64(True):
        compare(LOOPS[name], X.astype(np.float64), rtol=1e-12)


BODIES = {
    "checkpoint": jax.checkpoint(lambda y: y * 0.5),
    "clip": lambda y: jnp.clip(y * 0.5, 0, 9),
    "cond": lambda y: lax.cond(y > 2, lambda y: y * 0.5, lambda y: y * 0.75, y),
    "complex": lambda y: jnp.abs(0.5 * y * jnp.exp(1j * y)),
    "einsum": lambda y: jnp.einsum("i,j,ij->", 0.25 * jnp.stack([y, y]), jnp.ones(2), jnp.eye(2)),
    "half": lambda y: (y.astype(jnp.bfloat16) * 0.5).astype(np.float32),
    "norm": lambda y: jnp.linalg.norm(jnp.stack([0.25 * y, 0.25 * y])),
    "switch": lambda y: lax.switch((y > 2).astype(int), [lambda y: y * 0.5, lambda y: y * 0.75], y),
}
LEFT = {
    "cumsum": lambda y: jnp.cumsum(jnp.stack([0.25 * y, 0.25 * y]))[1],
    "scan": lambda y: lax.scan(lambda c, _: (c * 0.75, None), y, None, 3)[0],
    "solve": lambda y: 0.25 * jnp.linalg.solve(jnp.eye(2) * y, jnp.ones(2))[0],
    "sort": lambda y: jnp.sort(0.25 * jnp.stack([y, y]))[0],
}


@pytest.mark.parametrize("name", [*BODIES, *LEFT])
def test_what_a_step_may_call(name):
    step = {**BODIES, **LEFT}[name]
    more = lambda s: (s[0] > 1) & (s[1] < 9)  # noqa: E731
    one = lambda y: lax.while_loop(more, lambda s: (step(s[0]), s[1] + 1), (y, 0))  # noqa: E731
    compare(jax.vmap(one), X, blocked=name in BODIES)


def test_gradients_and_functions_of_jax_itself():
    compare(jax.grad(lambda x: jnp.sum(jnp.sin(jax.vmap(root)(x)))), X)
    compare(lambda x: gammainc(x, x[::-1]), X)


def test_nothing_and_everything_goes_on():
    compare(jax.vmap(halved), np.zeros(SIZE, np.float32))
    compare(jax.vmap(halved), np.full(SIZE, 2.0**40, np.float32))
    compare(jax.vmap(halved), np.full(SIZE, np.nan, np.float32))


def test_blocks_within_loops():
    def function(x):
        return lax.fori_loop(0, 3, lambda _, x: jax.vmap(halved)(x * 3)[0], x)

    compare(function, X)


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_any_loop_by_element(data):
    steps = data.draw(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4))
    limit, most = data.draw(st.sampled_from([0.3, 1.0, 5.0])), data.draw(st.integers(0, 20))

    def one(x, scale):
        def step(state):
            y, z, count = state
            for name in steps:
                y, z = STEPS[name](y, z, scale)
            return y, z, count + 1

        more = lambda s: (jnp.abs(s[0]) < limit * scale) & (s[2] < most)  # noqa: E731
        return lax.while_loop(more, step, (x, x * 0.5, 0))

    scale = np.linspace(0.9, 1.1, 3, dtype=np.float32)
    batched = jax.vmap(jax.vmap(one, (0, None)), (None, 0))
    compare(batched, X[: FEWEST // 2] - 2, scale)


STEPS = {
    "swap": lambda y, z, scale: (z, y),
    "half": lambda y, z, scale: (y * 0.5, z),
    "select": lambda y, z, scale: (jnp.where(z > 0, y, -y), z),
    "scale": lambda y, z, scale: (y * scale, jnp.minimum(z, scale)),
    "round": lambda y, z, scale: (y, jnp.floor(z * 4) / 4),
    "place": lambda y, z, scale: (jnp.stack([y, z]).max(), jnp.stack([y, z]).min()),
}
"""Steps without a multiplication beside an addition: what the compiler makes one of them changes bits."""


def test_values_that_are_used_many_times():
    """Each value is looked at once, however often it is used: the expression written out has 2^200 places."""

    def step(y):
        far = y
        for _ in range(200):
            far = far * 0.5 + far * 0.25
        return jnp.where(y > 1, jnp.minimum(far, y * 0.5), y)

    compare(lambda x: lax.while_loop(lambda y: jnp.any(y > 1), step, x), X)


def not_frozen(x):
    return lax.while_loop(lambda y: jnp.any(y > 1), lambda y: y * 0.7, x)


def let_go_again(x):
    def step(state):
        y, on, trips = state
        y = jnp.where(on, y * 0.5, y + 0.3)
        return y, y > 1, trips + 1

    more = lambda s: jnp.any(s[1]) & (s[2] < 9)  # noqa: E731
    return lax.while_loop(more, step, (x, x > 1, 0))


def by_what_all_share(x):
    def step(state):
        y, trips = state
        return jnp.where(y > trips, y * 0.5, y), trips - 0.1

    return lax.while_loop(lambda s: jnp.any(s[0] > s[1]) & (s[1] > -1), step, (x, 1.0))


def joined(x):
    return lax.while_loop(lambda y: y.max() > 1, lambda y: y * 0.7, x)


def with_neighbours(x):
    def step(y):
        return jnp.where(y > 1, y * 0.5 + 0.01 * jnp.roll(y, 1), y)

    return lax.while_loop(lambda y: jnp.any(y > 1), step, x)


def with_all(x):
    return lax.while_loop(lambda y: jnp.any(y > 1), lambda y: jnp.where(y > 1, y - y.mean(), y), x)


def with_a_print(x):
    def step(y):
        jax.debug.print("{}", y)
        return y * 0.5

    return lax.while_loop(lambda y: y > 1, step, x)


def with_state_of_all(x):
    def step(state):
        y, seen = state
        return jnp.where(y > 1, y * 0.5, y), jnp.roll(seen, 1)

    return lax.while_loop(lambda s: jnp.any(s[0] > 1), step, (x, jnp.arange(5)))


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        (not_frozen, "loop-ended"),
        (let_go_again, "loop-ended"),
        (by_what_all_share, "loop-ended"),
        (joined, "loop-condition"),
        (with_neighbours, "loop-elements"),
        (with_all, "loop-elements"),
        (with_state_of_all, "loop-state"),
        (jax.vmap(with_a_print), "loop-effects"),
        (lambda x: jax.vmap(halved)(x[:100]), "loop-short"),
        (lambda x: lax.fori_loop(0, 9, lambda _, y: y * 0.5, x), None),
    ],
)
def test_loops_that_are_left_alone(function, rule):
    operation = operation_of(function, "while", X)
    if operation is None:  # jax traces loops of known length to a scan, which it lowers to a loop
        compare(function, X, blocked=False)
        return
    assert row.forbids(operation) == rule
    if rule != "loop-effects":
        compare(function, X, blocked=False)


def angles(x):
    return lax.while_loop(lambda y: y > 1, lambda y: jnp.sin(y) * jnp.tan(y), x)


def test_reports_tell_of_loops_over_elements_only():
    counted = operation_of(
        lambda x: lax.while_loop(lambda y: y[0] > 1, lambda y: y * 0.5, x), "while", X
    )
    assert row.forbids(counted) == "loop-condition"
    assert not forms.choose(counted, CpuCosts()).reason
    assert forms.choose(operation_of(not_frozen, "while", X), CpuCosts()).reason == "loop-ended"


@pytest.mark.parametrize(("cores", "formed"), [(1, True), (64, False)])
def test_what_many_cores_do_faster_is_left_to_them(cores, formed, monkeypatch):
    machine = replace(probe(), cores=cores)
    monkeypatch.setattr(estimates, "probe", lambda: machine)
    operation = operation_of(jax.vmap(angles), "while", np.ones(1 << 21, np.float32))
    choice = forms.choose(operation, CpuCosts(), {"loop-blocks"})
    assert (choice.form is row.FORM) == formed
