"""Gradients of likelihoods and losses that scan over time, and fits by them."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.third_party.common import Builder, Program

BRANCHES = 4

Node = dict[str, Any]


def _value_node() -> Node:
    return {
        "mean": 0.0,
        "precision": 1.0,
        "expected_mean": 0.0,
        "expected_precision": 1.0,
        "effective_precision": 0.5,
        "tonic_volatility": -4.0,
        "volatility_coupling": 1.0,
    }


def _volatility_node() -> Node:
    return {
        "mean": 0.0,
        "precision": 1.0,
        "expected_mean": 0.0,
        "expected_precision": 1.0,
        "tonic_volatility": -6.0,
        "effective_precision": 0.0,
        "value_pe": 0.0,
    }


def _hgf_predicted(nodes: dict[str, Node]) -> dict[str, Node]:
    nodes = dict(nodes)
    for b in range(BRANCHES):
        v = dict(nodes[f"v{b}"])
        v["expected_mean"] = v["mean"]
        volatility = jnp.exp(jnp.clip(v["tonic_volatility"], -80.0, 80.0))
        v["expected_precision"] = 1.0 / (1.0 / v["precision"] + volatility)
        v["effective_precision"] = volatility * v["expected_precision"]
        x = dict(nodes[f"x{b}"])
        x["expected_mean"] = x["mean"]
        total = x["tonic_volatility"] + x["volatility_coupling"] * v["mean"]
        volatility = jnp.exp(jnp.clip(total, -80.0, 80.0))
        x["expected_precision"] = 1.0 / (1.0 / x["precision"] + volatility)
        x["effective_precision"] = volatility * x["expected_precision"]
        nodes[f"v{b}"], nodes[f"x{b}"] = v, x
    return nodes


def _hgf_updated(nodes: dict[str, Node], observed: jax.Array, input_precision: Any) -> Any:
    nodes = dict(nodes)
    surprise: Any = 0.0
    for b in range(BRANCHES):
        x, v = dict(nodes[f"x{b}"]), dict(nodes[f"v{b}"])
        error = observed[b] - x["expected_mean"]
        variance = 1.0 / input_precision + 1.0 / x["expected_precision"]
        surprise = surprise + 0.5 * (jnp.log(2 * jnp.pi * variance) + error**2 / variance)
        x["precision"] = x["expected_precision"] + input_precision
        x["mean"] = x["expected_mean"] + input_precision / x["precision"] * error
        delta = (
            x["expected_precision"] / x["precision"]
            + x["expected_precision"] * (x["mean"] - x["expected_mean"]) ** 2
            - 1.0
        )
        gain = x["volatility_coupling"] * x["effective_precision"]
        precision = (
            v["expected_precision"]
            + 0.5 * gain**2
            + gain**2 * delta
            - 0.5 * x["volatility_coupling"] ** 2 * x["effective_precision"] * delta
        )
        v["precision"] = jnp.where(precision <= 1e-2, 1e-2, precision)
        v["mean"] = v["expected_mean"] + 0.5 * gain / v["expected_precision"] * delta
        v["value_pe"] = delta
        nodes[f"x{b}"], nodes[f"v{b}"] = x, v
    return nodes, surprise


def hgf_scalar_leaves_grad() -> Program:
    """Gradient of a Gaussian filter whose carry is many scalars; https://github.com/jax-ml/jax/issues/40150."""
    length = 614
    attributes: dict[str, Node] = {}
    for b in range(BRANCHES):
        attributes[f"x{b}"] = _value_node()
        attributes[f"v{b}"] = _volatility_node()
    attributes = jax.tree.map(jnp.float32, attributes)

    def loss(params: Any, data: jax.Array) -> jax.Array:
        nodes = {name: dict(node) for name, node in attributes.items()}
        for b in range(BRANCHES):
            nodes[f"x{b}"]["tonic_volatility"] = params["omega_1"][b]
            nodes[f"v{b}"]["tonic_volatility"] = params["omega_2"][b]
        input_precision = jnp.exp(params["log_input_precision"])

        def step(nodes: Any, observed: jax.Array) -> Any:
            return _hgf_updated(_hgf_predicted(nodes), observed, input_precision)

        _, surprise = lax.scan(step, nodes, data)
        return jnp.sum(surprise)

    noise = jax.random.normal(jax.random.PRNGKey(614), (length, BRANCHES))
    data = jnp.cumsum(0.05 * noise, axis=0)
    params = {
        "omega_1": jnp.linspace(-5.0, -3.5, BRANCHES),
        "omega_2": jnp.linspace(-6.0, -5.0, BRANCHES),
        "log_input_precision": jnp.float32(4.0),
    }
    return jax.value_and_grad(loss), (params, data)


def _garch_parameters(p: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    omega = jnp.exp(p[0])
    persistence = jax.nn.sigmoid(p[1])
    alpha = persistence * jax.nn.sigmoid(p[2])
    return omega, alpha, persistence - alpha, p[3]


def _garch_nll(p: jax.Array, returns: jax.Array) -> jax.Array:
    omega, alpha, beta, mu = _garch_parameters(p)

    def step(h: Any, x: jax.Array) -> Any:
        nll = 0.5 * (jnp.log(2 * jnp.pi) + jnp.log(h) + (x - mu) ** 2 / h)
        return omega + alpha * (x - mu) ** 2 + beta * h, nll

    _, nll = lax.scan(step, jnp.var(returns), returns)
    return jnp.mean(nll)


def garch_fit() -> Program:
    """Fits of GARCH(1, 1) by forty steps of Adam, by vmap over assets."""
    n_times, n_assets, n_steps = 750, 6, 40

    def fit(returns: jax.Array) -> Any:
        def body(i: Any, state: Any) -> Any:
            p, m, v, _ = state
            loss, gradient = jax.value_and_grad(_garch_nll)(p, returns)
            m = 0.9 * m + 0.1 * gradient
            v = 0.99 * v + 0.01 * gradient**2
            t = i + 1
            p = p - 0.05 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.99**t)) + 1e-8)
            return p, m, v, loss

        start = jnp.array([-2.0, 2.0, -1.5, 0.0])
        init = (start, jnp.zeros(4), jnp.zeros(4), jnp.float32(0))
        p, _, _, loss = lax.fori_loop(0, n_steps, body, init)
        return jnp.stack(_garch_parameters(p)), loss

    return jax.vmap(fit), (jax.random.t(jax.random.PRNGKey(8), 6.0, (n_assets, n_times)),)


@jax.custom_jvp
def _spike(x: jax.Array) -> jax.Array:
    return (x > 0).astype(x.dtype)


@_spike.defjvp
def _spike_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return _spike(x), dx / (1.0 + 10.0 * jnp.abs(x)) ** 2


MAX_DELAY = 8


def _lif_step(params: Any, delays: jax.Array, post: jax.Array, state: Any, inputs: Any) -> Any:
    t, x = inputs
    v, current, refractory, ring, out, trace = state
    delayed = ring[(t - delays) % MAX_DELAY, post]
    current = 0.85 * current + x @ params["w_in"] + delayed @ params["w_rec"]
    v = jnp.where(refractory > 0, 0.0, 0.95 * v + 0.3 * current)
    z = _spike(v - 1.0)
    v = v - z * 1.0
    refractory = jnp.where(z > 0, 2, jnp.maximum(refractory - 1, 0))
    ring = ring.at[t % MAX_DELAY].set(z)
    trace = 0.9 * trace + z
    out = 0.9 * out + z @ params["w_out"]
    return (v, current, refractory, ring, out, trace), (out, jnp.sum(z))


def lif_surrogate_grad() -> Program:
    """Surrogate gradient of a recurrent network of spiking neurons with delays."""
    n_in, n, n_out, n_times = 16, 32, 4, 400

    def run(params: Any, spikes: jax.Array, delays: jax.Array) -> Any:
        post = jnp.arange(n)
        init = (
            jnp.zeros(n),
            jnp.zeros(n),
            jnp.zeros(n, jnp.int32),
            jnp.zeros((MAX_DELAY, n)),
            jnp.zeros(n_out),
            jnp.zeros(n),
        )
        step = partial(_lif_step, params, delays, post)
        return lax.scan(step, init, (jnp.arange(n_times), spikes))[1]

    def loss(params: Any, spikes: jax.Array, delays: jax.Array, label: jax.Array) -> Any:
        outs, rate = run(params, spikes, delays)
        logits = jnp.max(outs, axis=0)
        return -jax.nn.log_softmax(logits)[label] + 1e-3 * jnp.mean(rate)

    keys = jax.random.split(jax.random.PRNGKey(21), 5)
    params = {
        "w_in": 0.5 * jax.random.normal(keys[0], (n_in, n)),
        "w_rec": 0.2 * jax.random.normal(keys[1], (n, n)),
        "w_out": 0.3 * jax.random.normal(keys[2], (n, n_out)),
    }
    spikes = jax.random.bernoulli(keys[3], 0.15, (n_times, n_in)).astype(jnp.float32)
    delays = jax.random.randint(keys[4], (n,), 1, MAX_DELAY)
    return jax.value_and_grad(loss), (params, spikes, delays, jnp.int32(2))


def _matern52(t: jax.Array, scale: jax.Array, sigma: jax.Array) -> Any:
    """Generators of the covariance as a quasiseparable matrix."""
    f = jnp.sqrt(5.0) / scale
    nil = jnp.array([[f, 1.0, 0.0], [0.0, f, 1.0], [-(f**3), -3 * f**2, -2 * f]])

    def transition(d: jax.Array) -> jax.Array:
        return jnp.exp(-f * d) * (jnp.eye(3) + nil * d + nil @ nil * (0.5 * d**2))

    stationary = sigma**2 * jnp.array(
        [[1.0, 0.0, -(f**2) / 3], [0.0, f**2 / 3, 0.0], [-(f**2) / 3, 0.0, f**4]]
    )
    h = jnp.array([1.0, 0.0, 0.0])
    a = jax.vmap(transition)(jnp.diff(t, prepend=t[:1]))
    p = jax.vmap(lambda ak: h @ ak)(a)
    q = jnp.tile(stationary @ h, (t.shape[0], 1))
    return p, q, a, jnp.full(t.shape[0], h @ stationary @ h)


def _quasisep_cholesky(p: jax.Array, q: jax.Array, a: jax.Array, d: jax.Array) -> Any:
    def step(f: Any, data: Any) -> Any:
        pk, qk, ak, dk = data
        ck = jnp.sqrt(dk - pk @ f @ pk)
        product = f @ ak.T
        wk = (qk - pk @ product) / ck
        return ak @ product + jnp.outer(wk, wk), (ck, wk)

    return lax.scan(step, jnp.zeros((3, 3)), (p, q, a, d))[1]


def _quasisep_solve(p: Any, w: Any, a: Any, c: Any, y: Any) -> Any:
    def step(f: Any, data: Any) -> Any:
        pn, wn, an, cn, yn = data
        x = (yn - pn @ f) / cn
        return an @ f + wn * x, x

    return lax.scan(step, jnp.zeros(3), (p, w, a, c, y))[1]


def quasisep_gp_grad() -> Program:
    """Gradient of a Gaussian process in scans, as tinygp does it; https://github.com/jax-ml/jax/issues/36799."""
    n = 400

    def nll(theta: jax.Array, t: jax.Array, y: jax.Array) -> jax.Array:
        scale, sigma, jitter = jnp.exp(theta)
        p, q, a, d = _matern52(t, scale, sigma)
        c, w = _quasisep_cholesky(p, q, a, d + jitter**2)
        alpha = _quasisep_solve(p, w, a, c, y)
        return 0.5 * jnp.sum(alpha**2) + jnp.sum(jnp.log(c)) + 0.5 * n * jnp.log(2 * jnp.pi)

    k1, k2 = jax.random.split(jax.random.PRNGKey(52))
    t = jnp.sort(jax.random.uniform(k1, (n,), dtype=jnp.float64, maxval=40.0))
    y = jnp.sin(t) + 0.1 * jax.random.normal(k2, (n,), dtype=jnp.float64)
    theta = jnp.log(jnp.array([1.5, 1.0, 0.3], jnp.float64))
    return jax.value_and_grad(nll), (theta, t, y)


WORKLOADS: dict[str, Builder] = {
    "hgf-scalar-leaves-grad": hgf_scalar_leaves_grad,
    "garch-fit": garch_fit,
    "lif-surrogate-grad": lif_surrogate_grad,
}

WORKLOADS64: dict[str, Builder] = {
    "quasisep-gp-grad": quasisep_gp_grad,
}
