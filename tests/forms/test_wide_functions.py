"""Functions in vector code: as near to the true value as single precision allows, for all floats."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy import special
from support.captures import capture, normal

from graphopt import forms
from graphopt.forms.functions import circular, remainders
from graphopt.forms.rows import wide_functions
from graphopt.machine import CpuCosts
from tests.forms.equations import operation_of

SMALL = (0, 1e-45, 1e-42, 1.1754942e-38, 1.1754944e-38, 1e-20, 2.4e-4, 0.41421357, 0.5, 0.50000006)
LARGE = (0.99999994, 1, 1.0000001, 2, 7, 16777216, 3.4028235e38, np.inf, np.nan)
EDGES = np.array([*SMALL, *LARGE], np.float32)
TRUE = {
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "cbrt": np.cbrt,
    "cos": np.cos,
    # At zero and minus infinity XLA has limits of its own.
    "digamma": lambda x: np.where(x == 0, -np.inf, special.digamma(x)),
    "lgamma": lambda x: np.where(np.isinf(x), np.inf, special.gammaln(x)),
    "pow": np.power,
    "sin": np.sin,
    "tan": np.tan,
}
OF_TWO = ("atan2", "pow", "rem")
DENORMAL_RESULTS = ("atan2", "pow")
CANCELLED = {"digamma": 2e-14, "lgamma": 2e-14}
"""How near results of negative arguments are to the true value where that is nearly zero."""


OF_XLA = {"digamma": 1e-5, "lgamma": 3e-5}
"""XLA's own relative error, where it is more than some units in the last place."""


def arguments(name):
    """Every pair of edges of either sign, floats of all exponents, and the usual range."""
    rng = np.random.default_rng(0)
    edges = np.concatenate([EDGES, -EDGES])
    bits = rng.integers(0, 2**32, (2, 20_000), np.uint32).view(np.float32)
    usual = rng.uniform(-1, 1, (2, 20_000)).astype(np.float32)
    pairs = np.stack([np.repeat(edges, len(edges)), np.tile(edges, len(edges))])
    both = np.concatenate([pairs, bits, usual], axis=1)
    return list(both) if name in OF_TWO else [both[0]]


def computed(name, *args):
    function = getattr(lax, name)
    operation = operation_of(function, name, *args)
    assert wide_functions.forbids(operation) is None
    return np.asarray(jax.jit(lambda *a: wide_functions.compute(operation, a)[0])(*args))


def errors(name, found, *args):
    """Distances from the true values in units of the last place, where those are numbers of single precision.

    Everything else must be equal: signs, infinities, what is no number.
    """
    assert found.dtype == np.float32
    with np.errstate(all="ignore"):
        true = TRUE[name](*[a.astype(np.float64) for a in args])
        rounded = true.astype(np.float32)
    assert (np.isnan(found) == np.isnan(true)).all()
    real = ~np.isnan(true)
    np.testing.assert_array_equal(found[np.isinf(rounded)], rounded[np.isinf(rounded)])
    # XLA flushes what would be denormal here, and so may the form of an arc sine.
    denormal = np.abs(true) < np.finfo(np.float32).tiny
    real &= np.isfinite(rounded) & (~denormal | (name in DENORMAL_RESULTS))
    assert (np.signbit(found) == np.signbit(true))[real].all()
    place = np.ldexp(1.0, np.maximum(np.frexp(rounded[real])[1] - 24, -149))
    return np.maximum(np.abs(found[real] - true[real]) - CANCELLED.get(name, 0.0), 0.0) / place


@pytest.mark.parametrize("name", sorted(TRUE))
def test_functions_are_right_to_the_last_place(name):
    args = arguments(name)
    assert errors(name, computed(name, *args), *args).max() < 0.501


NEAR = {"cos": circular.near_cosine, "sin": circular.near_sine, "tan": circular.near_tangent}


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4, 2.0**20])
@pytest.mark.parametrize("name", sorted(NEAR))
def test_angles_that_are_near_take_the_shorter_way(name, scale):
    """The floats nearest to a zero or a pole of the function are among them."""
    rng = np.random.default_rng(4)
    quarters = np.arange(1, 400_000) * (np.pi / 2)
    zeros = quarters[quarters < scale].astype(np.float32)
    around = [zeros, np.nextafter(zeros, np.float32(0)), np.nextafter(zeros, np.float32(np.inf))]
    edges = np.array(SMALL, np.float32)
    x = np.concatenate([edges, rng.uniform(0, scale, 50_000), *around]).astype(np.float32)
    x = x[x <= scale]
    x = np.concatenate([x, -x])
    assert np.abs(x).max() <= circular.FARTHEST
    with jax.enable_x64(True):
        near = np.asarray(jax.jit(NEAR[name])(x))
    assert errors(name, near, x).max() < 0.501
    np.testing.assert_array_equal(computed(name, x), near)


@pytest.mark.parametrize("name", sorted(NEAR))
def test_one_angle_that_is_far_takes_the_longer_way_for_all(name):
    x = np.linspace(-8, 8, 5_000, dtype=np.float32)
    far = np.append(x, np.float32(3e7))
    found = computed(name, far)
    assert errors(name, found, far).max() < 0.501
    np.testing.assert_allclose(found[:-1], computed(name, x), rtol=2e-7)


@pytest.mark.parametrize("name", sorted(NEAR))
def test_what_is_no_number_does_not_hide_an_angle_that_is_far(name):
    """XLA's maximum of an array forgets what comes before what is no number."""
    for place in range(0, 3_000, 500):
        x = np.linspace(-1, 1, 4_096, dtype=np.float32)
        x[place] = 1e30
        x[place + 1 : place + 200] = np.nan
        assert errors(name, computed(name, x), x).max() < 0.501


def test_powers_of_usual_numbers():
    rng = np.random.default_rng(2)
    x = 2.0 ** rng.uniform(-3, 3, 50_000)
    y = rng.uniform(-40, 40, x.size)
    whole = np.round(y)
    near_one = 1 + rng.uniform(-1e-3, 1e-3, x.size)
    pairs = [
        (x, y),
        (-x, whole),
        (near_one, 1000 * y),
        (-x, 2 * whole + 1),
        (x, np.round(3 * y) / 4),
    ]
    for pair in pairs:
        args = [a.astype(np.float32) for a in pair]
        assert errors("pow", computed("pow", *args), *args).max() < 0.501


@pytest.mark.parametrize("name", ["digamma", "lgamma"])
def test_gammas_near_their_zeros_and_where_their_ways_meet(name):
    rng = np.random.default_rng(3)
    places = np.array([0.5, 1, 1.4616321, 1.5, 2, 2.5, 8, 100, 1e30])
    spread = 10.0 ** rng.uniform(-7, -1, (places.size, 2000)) * rng.choice(
        [-1, 1], (places.size, 2000)
    )
    x = (places[:, None] * (1 + spread)).astype(np.float32).ravel()
    assert errors(name, computed(name, x), x).max() < 0.501


def is_normal(x):
    return (np.abs(x) >= np.finfo(np.float32).tiny) | (x == 0) | np.isnan(x)


@pytest.mark.parametrize("name", sorted(TRUE))
def test_special_values_are_those_of_xla(name):
    args = [a[: 4 * EDGES.size**2] for a in arguments(name)]
    kept = np.logical_and.reduce([is_normal(a) for a in args])  # XLA takes denormal ones for zero
    args = [a[kept] for a in args]
    found, expected = computed(name, *args), np.asarray(jax.jit(getattr(lax, name))(*args))
    zero = np.logical_or.reduce([a == 0 for a in args])
    kept = zero | ~np.isfinite(found) | ~np.isfinite(expected)
    kept &= is_normal(found)  # denormal ones as results, too
    if (
        name == "digamma"
    ):  # jax 0.10 says that it is no number at zero, jax 0.11 and the form minus infinity
        kept &= ~(zero & np.isnan(expected) & (found == -np.inf))
    assert equal_bits(found[kept], expected[kept]) and kept.sum() > 2 * len(args)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_near_multiples_of_a_quarter_turn(name):
    """Where sine or cosine nearly vanish, and all of the result's digits come from the reduction."""
    quarters = np.concatenate([np.arange(1, 50_000), 2.0 ** np.arange(16, 120)]) * (np.pi / 2)
    near = quarters.astype(np.float32)
    args = np.concatenate([near, np.nextafter(near, np.float32(0)), [np.float32(-21677404.0)]])
    true = TRUE[name](args.astype(np.float64))
    place = np.spacing(np.abs(true).astype(np.float32)).astype(np.float64)
    assert (np.abs(computed(name, args) - true) / place).max() < 0.501


def equal_bits(found, expected):
    same = (found.view(np.uint32) == expected.view(np.uint32)) | (
        np.isnan(found) & np.isnan(expected)
    )
    return bool(same.all())


def test_remainders_are_those_of_xla_bit_for_bit():
    expected = jax.jit(lax.rem)
    args = arguments("rem")  # quotients of every size, zeros, infinities: XLA computes them
    assert equal_bits(computed("rem", *args), np.asarray(expected(*args)))
    x, y = args
    with np.errstate(all="ignore"):
        within = (np.abs(y) >= 2.0**-100) & (np.abs(x) < np.abs(y) * np.float32(2.0**28))
    assert within.sum() > 10_000
    usual = [x[within], y[within]]  # all in vector code
    assert equal_bits(computed("rem", *usual), np.asarray(expected(*usual)))


def test_remainders_of_quotients_just_below_whole_numbers():
    rng = np.random.default_rng(1)
    y = rng.uniform(1, 2, 50_000).astype(np.float32)
    whole = np.floor(2.0 ** rng.uniform(0, 27.9, y.size))
    above = (whole * y.astype(np.float64)).astype(np.float32)
    x = np.concatenate([above, np.nextafter(above, np.float32(0))])
    y = np.concatenate([y, y])
    assert equal_bits(computed("rem", x, y), np.asarray(jax.jit(lax.rem)(x, y)))


@pytest.mark.parametrize("y", [64.0, 63.5, -0.25, 1e-30, 1e-42, 0.0, np.inf, np.nan])
def test_remainders_by_one_number_are_those_of_xla_bit_for_bit(y):
    line = np.linspace(-300, 300, 5000, dtype=np.float32)
    x, number = np.concatenate([*arguments("rem"), line]), np.float32(y)
    expected = np.asarray(jax.jit(lax.rem)(x, np.full_like(x, number)))

    def by_form(x, y):
        with jax.enable_x64(True):
            return remainders.remainder_by_number(x, y)

    assert equal_bits(np.asarray(jax.jit(by_form)(x, number)), expected)
    constant = jax.jit(lambda x: by_form(x, jnp.float32(y)))
    assert equal_bits(np.asarray(constant(x)), np.asarray(jax.jit(lambda x: lax.rem(x, number))(x)))


@pytest.mark.parametrize(("y", "stays"), [(64.0, True), (63.5, False)])
def test_remainders_by_a_power_of_two_stay_with_xla(y, stays):
    """They compile to a few vector operations; choosing at run time would keep them from being fused."""
    with forms.enabled(always=True) as chosen:
        text = jax.jit(lambda x: x % y).lower(jnp.zeros((1024, 64))).compile().as_text()
    assert len(chosen) == 1
    assert ("conditional" not in text and "f64" not in text) is stays
    assert (text.count(" fusion(") == 1) is stays


@pytest.mark.parametrize("name", [*sorted(TRUE), "rem"])
def test_forms_are_used_in_programs_and_gradients(name):
    args = [np.linspace(0.1, 0.9, 300_000, dtype=np.float32)] * (2 if name in OF_TWO else 1)
    gradient = jax.grad(lambda *a: getattr(lax, name)(*a).sum())
    expected = jax.jit(getattr(lax, name))(*args), jax.jit(gradient)(*args)
    chosen = []
    assert forms.install(chosen.append) == ()
    try:
        found = (
            jax.jit(jax.vmap(lambda *a: getattr(lax, name)(*a)))(*args),
            jax.jit(lambda *a: gradient(*a))(*args),
        )
    finally:
        forms.remove()
    assert {choice.form.name for choice in chosen} == {"wide-functions"}
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == jnp.float32
        np.testing.assert_allclose(one, other, rtol=OF_XLA.get(name, 1e-6))


@pytest.mark.parametrize("name", sorted(TRUE))
def test_forms_hold_inside_loops(name):
    def run(x):
        def step(carry, row):
            value = getattr(lax, name)(*[row + carry] * (2 if name in OF_TWO else 1))
            return carry + value[0] * 1e-3, jax.vmap(lambda v: v * 0.5)(value)

        return lax.scan(step, x[0, 0], x)

    x = np.linspace(0.1, 0.8, 4 * 60_000, dtype=np.float32).reshape(4, -1)
    expected = jax.jit(run)(x)
    with forms.enabled() as chosen:
        found = jax.jit(lambda a: run(a))(x)
    assert {choice.form.name for choice in chosen} == {"wide-functions"}
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=10 * OF_XLA.get(name, 1e-6))


@pytest.mark.parametrize("name", sorted(TRUE))
def test_a_form_is_one_kernel_and_what_looks_at_its_angles(name):
    """XLA writes quotients and roots that several operations read to memory."""
    args = [normal(256, 256)] * (2 if name in OF_TWO else 1)
    operation = operation_of(getattr(lax, name), name, *args)

    def near(x):
        with jax.enable_x64(True):
            return NEAR[name](x)

    function = near if name in NEAR else lambda *a: wide_functions.compute(operation, a)[0]
    graph = capture(function, *args).graph
    written = [
        op.name for op, fused in zip(graph.ops, graph.default.fuse, strict=True) if not fused
    ]
    assert len([op for op in written if op not in ("parameter", "opt-barrier")]) == 1


def test_values_are_computed_once_whoever_reads_them_but_for_loops():
    def function(x):
        found = lax.sin(x)
        return found.sum(0), found * 2, found[::2] + 1

    def lowered(function, rows):
        with forms.enabled({"wide-functions"}, always=True):
            return jax.jit(lambda x: function(x)).lower(normal(rows, 256))

    def rounded(function):
        return lowered(function, 64).compile().as_text().count("round-nearest-even(")

    assert rounded(function) == rounded(lax.sin)
    loop = lambda x: lax.fori_loop(0, 3, lambda _, y: lax.sin(y), x)  # noqa: E731
    assert "optimization_barrier" not in lowered(loop, 64).as_text()
    assert all("optimization_barrier" in lowered(lax.sin, rows).as_text() for rows in (64, 4096))


@pytest.mark.parametrize("exponent", [-1.0, 0.0, 1.0, 2.0, 3.0, 0.5, -0.5, 2.5, np.inf, np.nan])
def test_powers_by_one_number(exponent):
    """Known when the program is compiled, or when it runs."""
    x = EDGES[np.isnan(EDGES) | (np.abs(EDGES) >= 1e-20)]
    x = np.concatenate([x, -x, np.linspace(-9, 9, 1000, dtype=np.float32)])
    expected = jax.jit(lambda a: lax.pow(a, exponent))(x)
    with forms.enabled(always=True) as chosen:
        known = jax.jit(lambda a: lax.pow(a, exponent)).lower(x).compile()
        later = jax.jit(lambda a, b: lax.pow(a, b))(x, exponent)
    assert len(chosen) == 2
    assert "conditional(" not in known.as_text()
    # Products, a division, or the form; LLVM takes a root for half a power.
    assert (" power(" in known.as_text()) == (exponent == 0.5)
    for found in (known(x), later):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        zero = expected == 0
        np.testing.assert_array_equal(np.signbit(found)[zero], np.signbit(expected)[zero])


def test_inverse_roots_as_powers_are_right_to_the_last_place():
    (x,) = arguments("asin")
    with forms.enabled(always=True):
        found = np.asarray(jax.jit(lambda a: lax.pow(a, -0.5))(x))
    assert errors("pow", found, x, np.full_like(x, -0.5)).max() < 0.501


@pytest.mark.parametrize("name", [*sorted(TRUE), "rem"])
def test_small_arrays_stay_with_xla(name):
    def chosen(size):
        args = [np.ones(size, np.float32)] * (2 if name in OF_TWO else 1)
        return forms.choose(operation_of(getattr(lax, name), name, *args), CpuCosts()).form

    assert chosen(512) is None
    assert chosen(100_000) is wide_functions.FORM


def test_other_types_stay_with_xla():
    operation = operation_of(lax.asin, "asin", jnp.zeros(4, jnp.bfloat16))
    assert wide_functions.forbids(operation) == "wide-function-type"
