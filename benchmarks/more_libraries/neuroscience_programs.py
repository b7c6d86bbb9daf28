"""Spiking and recurrent networks, and models of neurons."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program


def spyx_snn_surrogate_train_step() -> Program:
    """One Adam step of a spiking network with surrogate gradients."""
    import optax
    import spyx.nn as snn
    from flax import nnx

    rngs = nnx.Rngs(0)
    m = snn.Sequential(
        nnx.Linear(64, 64, rngs=rngs),
        snn.LIF((64,), rngs=rngs),
        nnx.Linear(64, 10, rngs=rngs),
        snn.LI((10,), rngs=rngs),
    )
    graph, state, rest = nnx.split(m, nnx.Param, ...)
    optimizer = optax.adam(1e-3)
    rng = np.random.default_rng(102)
    x = jnp.asarray(rng.random((100, 128, 64)) < 0.2, jnp.float32)
    y = jnp.asarray(rng.integers(0, 10, 128))

    def run(state, opt_state, x, y):
        def loss(state):
            tr, _ = snn.run(nnx.merge(graph, state, rest), x)
            return optax.softmax_cross_entropy_with_integer_labels(tr.sum(0), y).mean()

        value, grads = jax.value_and_grad(loss)(state)
        updates, opt_state = optimizer.update(grads, opt_state, state)
        return optax.apply_updates(state, updates), opt_state, value

    return run, (state, optimizer.init(state), x, y)


def spyx_lru_state_space_forward_grad() -> Program:
    """Loss of two linear state space layers, and its gradient."""
    from flax import nnx
    from spyx.ssm import LRU, S5Diag

    rngs = nnx.Rngs(0)
    a, b = LRU(32, 64, rngs=rngs), S5Diag(32, 64, rngs=rngs)
    ga, sa = nnx.split(a)
    gb, sb = nnx.split(b)
    x = jnp.asarray(np.random.default_rng(103).normal(size=(256, 8, 32)), jnp.float32)

    def run(sa, sb, x):
        def loss(s):
            h = nnx.merge(ga, s[0])(x)
            return (nnx.merge(gb, s[1])(jax.nn.gelu(h)) ** 2).mean()

        return jax.value_and_grad(loss)((sa, sb))

    return run, (sa, sb, x)


def brainstate_gru_sequence_grad() -> Program:
    """Loss of a GRU over a sequence, and its gradient."""
    import brainstate as bst

    bst.random.seed(0)
    cell = bst.nn.GRUCell(16, 64)
    ro = bst.nn.Linear(64, 4)
    bst.nn.init_all_states(cell, 32)
    params = {
        m + str(k): v
        for m, mod in (("cell", cell), ("ro", ro))
        for k, v in mod.states(bst.ParamState).items()
    }
    x = jnp.asarray(np.random.default_rng(120).normal(size=(40, 32, 16)), jnp.float32)
    y = jnp.asarray(np.random.default_rng(121).normal(size=(32, 4)), jnp.float32)

    def step(x, y):
        def loss():
            cell.h.value = jnp.zeros((32, 64))
            hs = bst.transform.for_loop(cell.update, x)
            return ((ro(hs[-1]) - y) ** 2).mean()

        return bst.transform.grad(loss, params, return_value=True)()

    sf = bst.transform.StatefulFunction(step)
    sf.make_jaxpr(x, y)
    vals = [st.value for st in sf.get_states(x, y)]

    def run(vals, x, y):
        return sf.jaxpr_call(vals, x, y)

    return run, (vals, x, y)


def _hodgkin_huxley():
    """Runge-Kutta integrator of the Hodgkin-Huxley equations."""
    import brainpy as bp
    import brainpy.math as bm

    def dV(V, t, m, h, gate, current):
        return (
            current
            - 120.0 * m**3 * h * (V - 50.0)
            - 36.0 * gate**4 * (V + 77.0)
            - 0.03 * (V + 54.387)
        )

    def dm(m, t, V):
        return (
            0.1 * (V + 40) / (1 - bm.exp(-(V + 40) / 10)) * (1 - m)
            - 4.0 * bm.exp(-(V + 65) / 18) * m
        )

    def dh(h, t, V):
        return 0.07 * bm.exp(-(V + 65) / 20.0) * (1 - h) - h / (1 + bm.exp(-(V + 35) / 10))

    def dn(gate, t, V):
        return (
            0.01 * (V + 55) / (1 - bm.exp(-(V + 55) / 10)) * (1 - gate)
            - 0.125 * bm.exp(-(V + 65) / 80) * gate
        )

    return bp.odeint(bp.JointEq([dV, dm, dh, dn]), method="rk4")


def brainpy_hodgkin_huxley_network() -> Program:
    """Three hundred Runge-Kutta steps of 2000 Hodgkin-Huxley neurons."""
    n = 2000
    integ = _hodgkin_huxley()

    def run(V, current):
        z = jnp.zeros(n)

        def step(c, t):
            V, m, h, q = integ(*c, t, current=current, dt=0.02)
            return (V, m, h, q), V.mean()

        return jax.lax.scan(step, (V, z + 0.05, z + 0.6, z + 0.32), jnp.arange(300) * 0.02)

    return run, (
        jnp.asarray(-65.0 + np.random.default_rng(122).normal(size=n), jnp.float32),
        jnp.linspace(0.0, 10.0, n),
    )


def brainpy_kuramoto_network_rk4() -> Program:
    """Sixty Runge-Kutta steps of 300 coupled oscillators."""
    import brainpy as bp

    W = jnp.asarray(np.random.default_rng(123).random((300, 300)) / 300, jnp.float32)

    def run(th, om, W):
        def f(th, t):
            return om + 2.0 * (W * jnp.sin(th[None, :] - th[:, None])).sum(1)

        integ = bp.odeint(f, method="rk4")

        def step(th, t):
            th = integ(th, t, dt=0.05)
            return th, jnp.abs(jnp.exp(1j * th).mean())

        return jax.lax.scan(step, th, jnp.arange(60) * 0.05)

    return run, (jnp.linspace(0.0, 3.0, 300), jnp.linspace(-1.0, 1.0, 300), W)


def braintools_spike_metrics_surrogate_grad() -> Program:
    """Spike trains with surrogate gradients, firing rates and synchrony."""
    import braintools as bt

    x = jnp.asarray(np.random.default_rng(124).normal(size=(100, 200)), jnp.float32)

    def run(x):
        def loss(x):
            def step(v, i):
                v = 0.9 * v + i
                s = bt.surrogate.sigmoid(v - 1.0, alpha=4.0)
                return v * (1 - s), s

            _, s = jax.lax.scan(step, jnp.zeros(200), x)
            return (s.mean(0) - 0.1) @ (s.mean(0) - 0.1), s

        (value, s), grads = jax.value_and_grad(loss, has_aux=True)(x)
        return (
            value,
            grads,
            bt.metric.firing_rate(s, 5.0, dt=1.0),
            bt.metric.cross_correlation(s, 2.0, dt=1.0),
        )

    return run, (x,)


WORKLOADS: dict[str, Builder] = {
    "spyx-snn-surrogate-train-step": spyx_snn_surrogate_train_step,
    "spyx-lru-state-space-forward-grad": spyx_lru_state_space_forward_grad,
    "brainstate-gru-sequence-grad": brainstate_gru_sequence_grad,
    "brainpy-hodgkin-huxley-network": brainpy_hodgkin_huxley_network,
    "brainpy-kuramoto-network-rk4": brainpy_kuramoto_network_rk4,
    "braintools-spike-metrics-surrogate-grad": braintools_spike_metrics_surrogate_grad,
}
