"""Gradients, vmap, random numbers and neural network functions, against jax."""

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
import pytest

import graphopt.lazy as lt

RNG = np.random.default_rng(0)
A = RNG.normal(size=(3, 4))
B = RNG.normal(size=(4, 3))

PROGRAMS = {
    "arithmetic": lambda xp, a, b: xp.sum((a * b.T - a / (b.T + 5)) * 2.5 - a + 1),
    "powers": lambda xp, a, b: xp.sum(a**2 + (xp.abs(a) + 1) ** 1.7 + 2.0 ** (a / 3) + a**3),
    "matmul": lambda xp, a, b: xp.sum(xp.tanh(a @ b) @ xp.ones((3, 2))),
    "vectors": lambda xp, a, b: xp.sum((a @ b[:, 0]) * (a[:, 0] @ a)[0]),
    "batched": lambda xp, a, b: xp.sum(xp.stack([a, a * 2]) @ b),
    "reductions": lambda xp, a, b: xp.sum(xp.max(a, axis=1)) + xp.mean(b) + xp.sum(xp.var(a, axis=0)),
    "minmax": lambda xp, a, b: xp.sum(xp.maximum(a, b.T) * xp.minimum(a, 0.3)),
    "functions": lambda xp, a, b: xp.sum(xp.exp(a) + xp.sin(a) * xp.cos(b.T) + xp.log(a * a + 1)),
    "more functions": lambda xp, a, b: xp.sum(xp.sqrt(a * a + 1) + xp.log1p(xp.abs(a)) + xp.expm1(a)),
    "shapes": lambda xp, a, b: xp.sum(xp.reshape(a, (2, 6)) * xp.reshape(b, (2, 6)) ** 2),
    "concat": lambda xp, a, b: xp.sum(xp.concat([a, b.T], axis=1) ** 3),
    "slices": lambda xp, a, b: xp.sum(a[1:, ::2] * b.T[:2, 1:3]) + a[0, 3] * a[-1, 0],
    "gather": lambda xp, a, b: (
        xp.sum(a[:, xp.asarray([0, 2, 2])] ** 2) + xp.sum(xp.take(b, xp.asarray([1, 1]), axis=0))
    ),
    "where": lambda xp, a, b: xp.sum(xp.where(a > 0, a * a, b.T * 3)),
    "triangles": lambda xp, a, b: xp.sum(xp.tril(a @ b) * xp.triu(a @ b)),
    "sorting": lambda xp, a, b: xp.sum(xp.sort(a, axis=1) * xp.asarray([1.0, 2.0, 3.0, 4.0])),
    "products": lambda xp, a, b: xp.sum(xp.prod(a, axis=1)),
    "linear algebra": lambda xp, a, b: xp.sum(xp.linalg.inv(a @ b + 9 * xp.eye(3))),
    "svd": lambda xp, a, b: xp.sum(xp.linalg.svd(a, full_matrices=False)[1] ** 3),
    "fft": lambda xp, a, b: xp.sum(xp.abs(xp.fft.rfft(a)) ** 2),
    "linalg norm": lambda xp, a, b: xp.sum(a[0] / xp.sqrt(xp.sum(a * a))),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_agree_with_jax(name):
    function = PROGRAMS[name]
    with jax.enable_x64(True):
        expected, grads = jax.value_and_grad(lambda a, b: function(jnp, a, b), argnums=(0, 1))(
            jnp.asarray(A), jnp.asarray(B)
        )
    for tier in ("op-by-op", "compiled"):
        with lt.config(tier=tier):
            value, found = lt.value_and_grad(lambda a, b: function(lt, a, b), argnums=(0, 1))(
                lt.asarray(A), lt.asarray(B)
            )
            assert float(value) == pytest.approx(float(expected), rel=1e-5)
            for ours, theirs in zip(found, grads, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)


def test_second_derivatives():
    cube = lambda x: x**3  # noqa: E731
    assert float(lt.grad(lt.grad(cube))(lt.asarray(2.0))) == pytest.approx(12.0)
    assert float(lt.grad(lambda x: lt.grad(lt.sin)(x) * x)(lt.asarray(0.7))) == pytest.approx(
        np.cos(0.7) - 0.7 * np.sin(0.7), rel=1e-5
    )


def test_python_control_flow():
    def squared_until_large(x):
        while float(x) < 10:
            x = x * x
        return x if x > 20 else 3 * x

    assert float(lt.grad(squared_until_large)(lt.asarray(1.5))) == pytest.approx(
        8 * 1.5**7, rel=1e-5
    )


def test_trees_aux_and_untouched_arguments():
    def loss(params, x):
        return lt.sum(params["w"] * x), {"seen": x + 1}

    (value, aux), grads = lt.value_and_grad(loss, has_aux=True)(
        {"w": lt.ones(2), "unused": [lt.ones(3)]}, lt.asarray([1.0, 2.0])
    )
    assert (float(value), aux["seen"].tolist()) == (3.0, [2.0, 3.0])
    assert grads["w"].tolist() == [1.0, 2.0]
    assert grads["unused"][0].tolist() == [0.0, 0.0, 0.0]
    assert lt.grad(lambda x: lt.sum(lt.stop_gradient(x) * x))(lt.asarray([3.0])).tolist() == [3.0]
    with pytest.raises(TypeError, match="returns"):
        lt.grad(lambda x: x)(lt.ones(2))
    with pytest.raises(TypeError, match="int64"):
        lt.grad(lambda x: lt.sum(x))(lt.arange(3))


def test_assignment_inside_a_gradient():
    def loss(x):
        y = x * 2
        y[0] = y[1] * 3
        y[lt.asarray([2])] = x[0]
        return lt.sum(y * y)

    def reference(x):
        y = x * 2
        y = y.at[0].set(y[1] * 3)
        y = y.at[jnp.asarray([2])].set(x[0])
        return jnp.sum(y * y)

    x = np.array([1.0, 2.0, 3.0], np.float32)
    np.testing.assert_allclose(lt.grad(loss)(lt.asarray(x)), jax.grad(reference)(x), rtol=1e-6)


def test_vjp():
    value, pull = lt.vjp(lambda a, b: (a @ b, lt.sum(a)), lt.asarray(A), lt.asarray(B))
    da, db = pull((lt.ones((3, 3), dtype=lt.float64), 2.0))
    np.testing.assert_allclose(da, np.ones((3, 3)) @ B.T + 2, rtol=1e-6)
    np.testing.assert_allclose(db, A.T @ np.ones((3, 3)), rtol=1e-6)
    assert value[0].shape == (3, 3)


def test_vmap():
    w = lt.asarray(B)
    batched = lt.vmap(lambda x: lt.sum(lt.tanh(x @ w) * 2.5))(lt.asarray(A))
    np.testing.assert_allclose(batched, np.sum(np.tanh(A @ B) * 2.5, axis=1), rtol=1e-6)
    pairs = lt.vmap(lambda x, y: x * y, in_axes=(0, 1))(lt.asarray(A), lt.asarray(B))
    np.testing.assert_allclose(pairs, A * B.T)
    gradient = lt.grad(lambda w: lt.sum(lt.vmap(lambda x: lt.tanh(x @ w))(lt.asarray(A))))(w)
    np.testing.assert_allclose(gradient, A.T @ (1 - np.tanh(A @ B) ** 2), rtol=1e-5)
    with pytest.raises(TypeError, match="vmap"):
        lt.vmap(lambda x: x if float(x[0]) > 0 else -x)(lt.asarray(A))
    with pytest.raises(ValueError, match="vmap"):
        lt.vmap(lambda x, y: x + y)(lt.ones(2), lt.ones(3))


def test_random_numbers():
    lt.random.seed(3)
    first = [lt.random.normal((2000,)), lt.random.uniform((2000,), -1, 1)]
    lt.random.seed(3)
    with lt.config(tier="compiled"):
        again = [lt.random.normal((2000,)), lt.random.uniform((2000,), -1, 1)]
        lt.sync()
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    normal, uniform = (np.asarray(x) for x in first)
    assert abs(normal.mean()) < 0.1 and abs(normal.std() - 1) < 0.1
    assert uniform.min() >= -1 and uniform.max() < 1 and abs(uniform.mean()) < 0.1
    assert normal[0] != np.asarray(lt.random.normal((2000,)))[0]
    key = lt.random.key(7)
    assert lt.random.normal((3,), key=key).tolist() == lt.random.normal((3,), key=key).tolist()
    a, b = lt.random.split(key)
    assert lt.random.normal((3,), key=a).tolist() != lt.random.normal((3,), key=b).tolist()
    assert sorted(lt.random.permutation(9).tolist()) == list(range(9))
    dice = np.asarray(lt.random.randint(1, 7, (500,)))
    assert set(dice) == set(range(1, 7))
    picks = np.asarray(lt.random.categorical(lt.asarray(np.log([[0.9, 0.1]] * 500))))
    assert 0.02 < picks.mean() < 0.2
    with pytest.raises(TypeError, match="key"):
        lt.random.normal((2,), key=lt.ones(2))


def test_drawing_again_compiles_nothing():
    lt.clear_caches()
    lt.reset_metrics()
    for _ in range(4):
        float(lt.sum(lt.random.normal((5,))))
    assert lt.metrics().distinct_graphs == 1


NN = {
    "relu": (lt.nn.relu, jax.nn.relu), "gelu": (lt.nn.gelu, jax.nn.gelu),
    "exact gelu": (lambda x: lt.nn.gelu(x, approximate=False), lambda x: jax.nn.gelu(x, approximate=False)),
    "silu": (lt.nn.silu, jax.nn.silu), "sigmoid": (lt.nn.sigmoid, jax.nn.sigmoid),
    "softplus": (lt.nn.softplus, jax.nn.softplus), "elu": (lt.nn.elu, jax.nn.elu),
    "leaky_relu": (lt.nn.leaky_relu, jax.nn.leaky_relu),
    "softmax": (lt.nn.softmax, jax.nn.softmax), "log_softmax": (lt.nn.log_softmax, jax.nn.log_softmax),
    "logsumexp": (lt.nn.logsumexp, lambda x: jax.scipy.special.logsumexp(x, axis=-1)),
    "layer_norm": (lt.nn.layer_norm, lambda x: jax.nn.standardize(x, axis=-1)),
}  # fmt: skip


@pytest.mark.parametrize("name", NN)
def test_nn_functions(name):
    ours, theirs = NN[name]
    x = (RNG.normal(size=(4, 5)) * 3).astype(np.float32)
    np.testing.assert_allclose(ours(lt.asarray(x)), theirs(jnp.asarray(x)), rtol=2e-4, atol=1e-5)
    found = lt.grad(lambda t: lt.sum(ours(t) ** 2))(lt.asarray(x))
    expected = jax.grad(lambda t: jnp.sum(theirs(t) ** 2))(jnp.asarray(x))
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-3)


def test_convolution_and_pooling():
    x, w = RNG.normal(size=(2, 6, 6, 3)).astype("f"), RNG.normal(size=(3, 3, 3, 4)).astype("f")
    expected = jax.lax.conv_general_dilated(
        x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    found = lt.nn.conv(lt.asarray(x), lt.asarray(w), strides=2, padding="same")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    pooled = lt.nn.max_pool(lt.asarray(x), 2)
    np.testing.assert_allclose(pooled, x.reshape(2, 3, 2, 3, 2, 3).max(axis=(2, 4)))
    mean = lt.nn.avg_pool(lt.asarray(x), 2)
    np.testing.assert_allclose(
        mean, x.reshape(2, 3, 2, 3, 2, 3).mean(axis=(2, 4)), rtol=1e-5, atol=1e-6
    )
    gradient = lt.grad(lambda t: lt.sum(lt.nn.conv(t, lt.asarray(w)) ** 2))(lt.asarray(x))
    reference = jax.grad(
        lambda t: jnp.sum(
            jax.lax.conv_general_dilated(
                t, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            ** 2
        )
    )(x)
    np.testing.assert_allclose(gradient, reference, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="conv"):
        lt.nn.conv(lt.ones((2, 2)), lt.asarray(w))


def test_losses_and_attention():
    x, labels = RNG.normal(size=(4, 5)).astype("f"), np.array([0, 4, 2, 2])
    logs = np.asarray(jax.nn.log_softmax(x))
    np.testing.assert_allclose(
        lt.nn.cross_entropy(lt.asarray(x), lt.asarray(labels)),
        -logs[np.arange(4), labels],
        rtol=1e-5,
    )
    np.testing.assert_array_equal(lt.nn.one_hot(lt.asarray(labels), 5), np.eye(5)[labels])
    q = RNG.normal(size=(2, 3, 4)).astype("f")
    mask = np.tril(np.ones((3, 3), bool))
    weights = jax.nn.softmax(np.where(mask, q @ q.swapaxes(1, 2) / 2, -1e30))
    found = lt.nn.scaled_dot_product_attention(*(lt.asarray(q),) * 3, mask=lt.asarray(mask))
    np.testing.assert_allclose(found, np.asarray(weights) @ q, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        lt.nn.einsum("bij,bkj->bik", lt.asarray(q), lt.asarray(q)),
        q @ q.swapaxes(1, 2),
        rtol=1e-4,
        atol=1e-5,
    )
    dropped = np.asarray(lt.nn.dropout(lt.ones(2000), 0.25))
    assert 0.2 < (dropped == 0).mean() < 0.3
