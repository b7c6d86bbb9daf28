"""Nested sampling, flows and probabilistic programs."""

from __future__ import annotations

import linecache
import textwrap
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program, as_arrays


def jaxns_prior_draw_evidence() -> Program:
    """Likelihoods of 2000 prior draws of a line with outliers, their evidence and posterior mean."""
    from jaxns.model import Model
    from jaxns.priors import Prior
    from tensorflow_probability.substrates import jax as tfp

    tfd = tfp.distributions
    rng = np.random.default_rng(200)
    x = jnp.linspace(0.0, 1.0, 60)
    y = 0.2 + 1.6 * x + jnp.asarray(rng.normal(size=60) * 0.3, jnp.float32)

    def line(x, y):
        intercept = Prior(tfd.Normal(loc=0.0, scale=1.0), name="intercept").realise()
        slope = Prior(tfd.Normal(loc=0.0, scale=2.0), name="slope").realise()
        sigma = Prior(tfd.HalfNormal(scale=1.0), name="sigma").realise()
        rate = Prior(tfd.Uniform(low=0.0, high=0.5), name="rate").realise()
        good = tfd.Normal(loc=intercept + slope * x, scale=sigma + 0.05).log_prob(y)
        bad = tfd.Normal(loc=0.0, scale=5.0).log_prob(y)
        return jnp.sum(jnp.logaddexp(jnp.log1p(-rate) + good, jnp.log(rate + 1e-6) + bad))

    model = Model(prior_model=line)

    def run(keys, x, y):
        def one(key):
            u = model.sample_U(key, args=(x, y))
            return model.transform_to_X(u, args=(x, y)), model.log_likelihood(u, args=(x, y))

        samples, log_l = jax.vmap(one)(keys)
        weights = jax.nn.softmax(log_l)
        evidence = jax.nn.logsumexp(log_l) - jnp.log(log_l.size)
        return evidence, jax.tree.map(lambda v: (weights * v).sum(), samples), log_l

    return run, (jax.random.split(jax.random.PRNGKey(200), 2000), x, y)


def _rosenbrock(x, data):
    """Log density of a mild banana in pairs of coordinates."""
    return -((1.0 - x[::2]) ** 2 + data["scale"] * (x[1::2] - x[::2] ** 2) ** 2).sum()


def flowmc_mala_chain() -> Program:
    """Forty Langevin steps of 32 chains of flowMC on a banana in eight dimensions."""
    from flowMC.resource.kernel.MALA import MALA
    from flowMC.resource.logPDF import LogPDF

    log_pdf = LogPDF(_rosenbrock, n_dims=8)

    def run(key, position, step_size, data):
        kernel = MALA(step_size=step_size)

        def chain(key, position):
            def step(carry, key):
                position, log_prob = carry
                position, log_prob, accept = kernel.kernel(key, position, log_prob, log_pdf, data)
                return (position, log_prob), (position, log_prob, accept)

            start = (position, log_pdf(position, data))
            return jax.lax.scan(step, start, jax.random.split(key, 40))[1]

        return jax.vmap(chain)(jax.random.split(key, position.shape[0]), position)

    position = jax.random.normal(jax.random.PRNGKey(201), (32, 8)) * 0.5
    data = {"scale": jnp.float32(2.0)}
    return run, (jax.random.PRNGKey(202), position, jnp.full(8, 0.1), data)


def _flow(kind):
    """Arrays and static rest of a normalizing flow of flowMC in five dimensions."""
    import equinox as eqx

    if kind == "spline":
        from flowMC.resource.model.nf_model.rqSpline import MaskedCouplingRQSpline

        model = MaskedCouplingRQSpline(5, 4, [32, 32], 8, jax.random.PRNGKey(203))
    else:
        from flowMC.resource.model.nf_model.realNVP import RealNVP

        model = RealNVP(5, 6, 32, jax.random.PRNGKey(204))
    return eqx.partition(model, eqx.is_array)


def flowmc_rqspline_train_step() -> Program:
    """One Adam step of the rational quadratic spline flow of flowMC on 256 samples."""
    import equinox as eqx
    import optax

    params, static = _flow("spline")
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    rng = np.random.default_rng(205)
    x = jnp.asarray(rng.normal(size=(256, 5)) @ (np.eye(5) + 0.3), jnp.float32)

    def run(params, opt_state, x):
        model = eqx.combine(params, static)
        loss, model, opt_state = model.train_step(x, optimizer, opt_state)
        return loss, eqx.filter(model, eqx.is_array), opt_state

    opt_state = optimizer.init(eqx.filter(params, eqx.is_inexact_array))
    return run, (params, opt_state, x)


def flowmc_flow_proposal_steps() -> Program:
    """Fifty independence Metropolis steps of eight chains that a spline flow proposes."""
    import equinox as eqx
    from flowMC.resource.kernel.NF_proposal import NFProposal
    from flowMC.resource.logPDF import LogPDF

    params, static = _flow("spline")

    def log_density(x, data):
        return -0.5 * (((x - data["mean"]) / data["scale"]) ** 2).sum()

    log_pdf = LogPDF(log_density, n_dims=5)

    def run(params, key, position, data):
        kernel = NFProposal(eqx.combine(params, static), n_NFproposal_batch_size=100)
        data = {**data, "n_steps": 50}

        def chain(key, position):
            return kernel.kernel(key, position, log_pdf(position, data), log_pdf, data)

        return jax.vmap(chain)(jax.random.split(key, position.shape[0]), position)

    position = jax.random.normal(jax.random.PRNGKey(206), (8, 5))
    data = {"mean": jnp.linspace(-0.5, 0.5, 5), "scale": jnp.linspace(0.7, 1.1, 5)}
    return run, (params, jax.random.PRNGKey(207), position, data)


def flowmc_realnvp_train_epochs() -> Program:
    """Two epochs of eight batches for the RealNVP flow of flowMC, with the best model kept."""
    import equinox as eqx
    import optax

    params, static = _flow("realnvp")
    optimizer = optax.sgd(1e-2, momentum=0.9)
    rng = np.random.default_rng(208)
    x = jnp.asarray(rng.normal(size=(1024, 5)) @ (np.eye(5) + 0.3) + 1.0, jnp.float32)

    def run(params, opt_state, key, x):
        model = eqx.combine(params, static)
        _, model, opt_state, losses = model.train_jit(key, x, optimizer, opt_state, 2, 128)
        return eqx.filter(model, eqx.is_array), opt_state, losses

    opt_state = optimizer.init(eqx.filter(params, eqx.is_inexact_array))
    return run, (params, opt_state, jax.random.PRNGKey(209), x)


def bayex_fit_and_acquire() -> Program:
    """A new observation for the Gaussian process of bayex, then its expected improvement."""
    import bayex
    from bayex.acq import expected_improvement

    domain = {"lr": bayex.domain.Real(0.0, 1.0), "width": bayex.domain.Real(-2.0, 2.0)}
    optimizer = bayex.Optimizer(domain=domain, acq="EI", maximize=True)
    rng = np.random.default_rng(210)
    observed = {"lr": rng.uniform(0, 1, 34), "width": rng.uniform(-2, 2, 34)}
    ys = np.sin(6.0 * observed["lr"]) * np.cos(observed["width"])
    state = as_arrays(optimizer.init(ys.astype(np.float32), observed))

    def run(state, y, new, key):
        state = optimizer._fit(state, y, new)
        space = optimizer.param_space
        candidates = space.to_array(space.sample_params(key, (400,)))
        xs = space.to_array(state.params)
        values = expected_improvement(candidates, xs, state.ys, state.mask, state.gp_params)
        return state, candidates, values

    new = {"lr": jnp.float32(0.31), "width": jnp.float32(0.4)}
    return run, (state, jnp.float32(0.87), new, jax.random.PRNGKey(211))


def genjax_curve_importance_sampling() -> Program:
    """Two thousand importance samples of a curve with outliers in genjax, their evidence and mean."""
    import genjax
    from genjax import const, gen, normal, seed, uniform

    rng = np.random.default_rng(212)
    x = jnp.linspace(-1.0, 1.0, 40)
    y = 0.5 - 0.8 * x + 0.6 * x**2 + jnp.asarray(rng.normal(size=40) * 0.2, jnp.float32)

    @gen
    def point(x, a, b, c, noise):
        return normal(a + b * x + c * x**2, noise) @ "obs"

    @gen
    def curve(x):
        a = normal(0.0, 1.0) @ "a"
        b = normal(0.0, 1.0) @ "b"
        c = normal(0.0, 1.0) @ "c"
        noise = uniform(0.1, 1.0) @ "noise"
        return point.vmap(in_axes=(0, None, None, None, None))(x, a, b, c, noise) @ "ys"

    def run(key, x, y):
        particles = seed(genjax.init)(key, curve, (x,), const(2000), {"ys": {"obs": y}})
        choices = particles.traces.get_choices()
        weights = jax.nn.softmax(particles.log_weights)
        means = {name: (weights * choices[name]).sum() for name in ("a", "b", "c", "noise")}
        return particles.log_marginal_likelihood(), means, particles.log_weights

    return run, (jax.random.PRNGKey(213), x, y)


def genjax_hmc_regression_chain() -> Program:
    """Forty Hamiltonian transitions of genjax over the parameters of a regression."""
    from genjax import const, gen, normal, seed, sel
    from genjax.inference.mcmc import chain, hmc

    rng = np.random.default_rng(214)
    x = jnp.asarray(rng.normal(size=100), jnp.float32)
    y = 0.3 + 1.2 * x + jnp.asarray(rng.normal(size=100) * 0.5, jnp.float32)

    @gen
    def point(x, slope, offset):
        return normal(offset + slope * x, 0.5) @ "obs"

    @gen
    def regression(x):
        slope = normal(0.0, 2.0) @ "slope"
        offset = normal(0.0, 2.0) @ "offset"
        return point.vmap(in_axes=(0, None, None))(x, slope, offset) @ "ys"

    def run(key, x, y):
        def infer(x, y):
            start = {"slope": jnp.float32(1.0), "offset": jnp.float32(0.0), "ys": {"obs": y}}
            trace, _ = regression.generate(start, x)
            moves = chain(lambda tr: hmc(tr, sel("slope") | sel("offset"), 0.01, 5))
            result = moves(trace, const(40))
            choices = result.traces.get_choices()
            return choices["slope"], choices["offset"], result.accepts

        return seed(infer)(key, x, y)

    return run, (jax.random.PRNGKey(215), x, y)


def genjax_kalman_smoother_batch() -> Program:
    """Kalman filter and smoother of genjax for eight series of sixty steps."""
    from genjax import kalman_filter, kalman_smoother

    rng = np.random.default_rng(216)
    obs = jnp.asarray(np.cumsum(rng.normal(size=(8, 60, 2)) * 0.3, 1), jnp.float32)
    a = jnp.array([[1.0, 0.1, 0, 0], [0, 0.95, 0, 0], [0, 0, 1.0, 0.1], [0, 0, 0, 0.95]])
    c = jnp.array([[1.0, 0, 0, 0], [0, 0, 1.0, 0]])
    model = (jnp.zeros(4), jnp.eye(4), a, 0.1 * jnp.eye(4), c, 0.2 * jnp.eye(2))

    def run(obs, model):
        def one(y):
            return kalman_filter(y, *model)[2], kalman_smoother(y, *model)

        return jax.vmap(one)(obs)

    return run, (obs, model)


_MAZE = """
    import jax
    import jax.numpy as jnp
    from memo import memo

    W = 9
    S = jnp.arange(W * W)
    A = jnp.arange(4)
    G = jnp.array([0, W * W - 1])
    MOVES = jnp.array([[-1, 0], [1, 0], [0, -1], [0, 1]])

    @jax.jit
    def moves(s, a, s_, maze):
        x, y = jnp.clip(jnp.array([s % W, s // W]) + MOVES[a], 0, W - 1)
        target = x + W * y
        return jnp.where(maze[target] == 0, target == s_, s == s_) * 1.0

    @jax.jit
    def reward(s, g):
        return 1.0 * (s == g) - 0.1

    @jax.jit
    def finished(s, g):
        return 1.0 * (s == g)

    @memo
    def backup[s: S, a: A, g: G](discount, maze: ..., q: ...):
        alice: knows(s, a, g)
        alice: given(s_ in S, wpp=moves(s, a, s_, maze))
        alice: chooses(a_ in A, to_maximize=array_index(q, s_, a_, g))
        return E[
            reward(s, g)
            + (1 - finished(s, g)) * discount * array_index(q, alice.s_, alice.a_, g)
        ]

    @memo
    def goal[s: S, a: A, g: G](beta, q: ...):
        observer: knows(a, s, g)
        observer: thinks[
            alice: chooses(g in G, wpp=1),
            alice: knows(s),
            alice: chooses(a in A, wpp=exp(beta * array_index(q, s, a, g))),
        ]
        observer: observes [alice.a] is a
        return observer[E[alice.g == g]]
"""

_IMPLICATURE = """
    import jax
    import jax.numpy as jnp
    from memo import memo

    COUNT = 60
    N = jnp.arange(COUNT + 1)
    U = jnp.arange(4)

    @jax.jit
    def meaning(n, u):
        half = 1.0 * (n > COUNT // 2)
        return jnp.array([1.0 * (n == 0), 1.0 * (n > 0), half, 1.0 * (n == COUNT)])[u]

    @jax.jit
    def prior(n, theta):
        return jnp.exp(-theta * jnp.abs(n - 30) / 30)

    @memo
    def listener[n: N, u: U](alpha, theta):
        listener: thinks[
            speaker: chooses(n in N, wpp=prior(n, theta)),
            speaker: chooses(u in U, wpp=imagine[
                hearer: knows(u),
                hearer: chooses(n in N, wpp=prior(n, theta) * meaning(n, u)),
                exp(alpha * log(Pr[hearer.n == n] + 1e-4))
            ])
        ]
        listener: observes [speaker.u] is u
        listener: chooses(n in N, wpp=E[speaker.n == n])
        return Pr[listener.n == n]
"""


def _memo_models(name: str, source: str) -> dict[str, Any]:
    """Names that a module with memo models defines; memo reads the source text of each model."""
    source = textwrap.dedent(source)
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {"__name__": name}
    exec(compile(source, file, "exec"), names)
    return names


def memo_maze_inverse_planning() -> Program:
    """Value iteration in a maze and the goal that an observer infers from each move, in memo."""
    models = _memo_models("memo_maze", _MAZE)
    maze = np.zeros((9, 9), np.int32)
    maze[2, 1:8] = maze[6, 1:8] = maze[4, :3] = 1

    def run(maze, discount, beta):
        def step(q, _):
            return models["backup"](discount, maze, q), None

        q, _ = jax.lax.scan(step, jnp.zeros((81, 4, 2)), None, 30)
        return models["goal"](beta, q), q

    return run, (jnp.asarray(maze.reshape(-1)), jnp.float32(0.95), jnp.float32(2.0))


def memo_scalar_implicature_fit() -> Program:
    """Likelihood of answers under a pragmatic listener in memo, and its gradient."""
    models = _memo_models("memo_implicature", _IMPLICATURE)
    rng = np.random.default_rng(217)
    u = jnp.asarray(rng.integers(0, 4, 200))
    low, high = np.array([0, 1, 31, 60]), np.array([0, 30, 55, 60])
    n = jnp.asarray(rng.integers(low[np.asarray(u)], high[np.asarray(u)] + 1))

    def run(p, n, u):
        def nll(p):
            table = models["listener"](p["alpha"], p["theta"])
            return -jnp.log(table[n, u] + 1e-6).mean()

        return jax.value_and_grad(nll)(p)

    return run, ({"alpha": jnp.float32(1.5), "theta": jnp.float32(0.8)}, n, u)


WORKLOADS: dict[str, Builder] = {
    "jaxns-prior-draw-evidence": jaxns_prior_draw_evidence,
    "flowmc-mala-chain": flowmc_mala_chain,
    "flowmc-rqspline-train-step": flowmc_rqspline_train_step,
    "flowmc-flow-proposal-steps": flowmc_flow_proposal_steps,
    "flowmc-realnvp-train-epochs": flowmc_realnvp_train_epochs,
    "bayex-fit-and-acquire": bayex_fit_and_acquire,
    "genjax-curve-importance-sampling": genjax_curve_importance_sampling,
    "genjax-hmc-regression-chain": genjax_hmc_regression_chain,
    "genjax-kalman-smoother-batch": genjax_kalman_smoother_batch,
    "memo-maze-inverse-planning": memo_maze_inverse_planning,
    "memo-scalar-implicature-fit": memo_scalar_implicature_fit,
}
