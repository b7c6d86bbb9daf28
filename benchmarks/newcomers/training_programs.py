"""Training steps of small models of several kinds."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program, normal, uniform


def diffrax_neural_ode_train_step() -> Program:
    """One step of a neural differential equation on sixteen spirals, as diffrax's example does it."""
    import diffrax
    import equinox as eqx
    import optax

    class Func(eqx.Module):
        out_scale: jax.Array
        mlp: eqx.nn.MLP

        def __init__(self, data_size, width_size, depth, *, key):
            self.out_scale = jnp.float32(1.0)
            self.mlp = eqx.nn.MLP(
                in_size=data_size,
                out_size=data_size,
                width_size=width_size,
                depth=depth,
                activation=jax.nn.softplus,
                final_activation=jnp.tanh,
                key=key,
            )

        def __call__(self, t, y, args):
            return self.out_scale * self.mlp(y)

    class NeuralODE(eqx.Module):
        func: Func

        def __call__(self, ts, y0):
            solution = diffrax.diffeqsolve(
                diffrax.ODETerm(self.func),
                diffrax.Tsit5(),
                t0=ts[0],
                t1=ts[-1],
                dt0=ts[1] - ts[0],
                y0=y0,
                stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-6),
                saveat=diffrax.SaveAt(ts=ts),
            )
            return solution.ys

    model = NeuralODE(Func(2, 64, 2, key=jax.random.PRNGKey(0)))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    optim = optax.adabelief(3e-3)
    ts = jnp.linspace(0.0, 5.0, 24)
    start = 0.6 + 0.4 * uniform(1, 16, 1)
    angle = ts * (1.5 + uniform(2, 16, 1))
    radius = start * jnp.exp(-0.15 * ts)
    yi = jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle)], axis=-1)

    def step(params, opt_state, ti, yi):
        def loss_fn(params):
            y_pred = jax.vmap(eqx.combine(params, static), in_axes=(None, 0))(ti, yi[:, 0])
            return jnp.mean((yi - y_pred) ** 2)

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = optim.update(grads, opt_state)
        return eqx.apply_updates(params, updates), opt_state, loss

    return step, (params, optim.init(params), ts, yi)


def nnx_vae_train_step() -> Program:
    """One Adam step of a variational autoencoder of binary images with batch norm."""
    import optax
    from flax import nnx

    class Encoder(nnx.Module):
        def __init__(self, din, dmid, dout, *, rngs):
            # The batch norm after it cancels a bias.
            self.linear1 = nnx.Linear(din, dmid, use_bias=False, rngs=rngs)
            self.norm = nnx.BatchNorm(dmid, rngs=rngs)
            self.linear_mean = nnx.Linear(dmid, dout, rngs=rngs)
            self.linear_std = nnx.Linear(dmid, dout, rngs=rngs)

        def __call__(self, x):
            h = nnx.relu(self.norm(self.linear1(x)))
            return self.linear_mean(h), jnp.exp(self.linear_std(h))

    class Decoder(nnx.Module):
        def __init__(self, din, dmid, dout, *, rngs):
            self.linear1 = nnx.Linear(din, dmid, rngs=rngs)
            self.linear2 = nnx.Linear(dmid, dout, rngs=rngs)

        def __call__(self, z):
            return self.linear2(nnx.relu(self.linear1(z)))

    class VAE(nnx.Module):
        def __init__(self, *, rngs):
            self.encoder = Encoder(784, 256, 32, rngs=rngs)
            self.decoder = Decoder(32, 256, 784, rngs=rngs)

        def __call__(self, x, key):
            mean, std = self.encoder(x)
            z = mean + std * jax.random.normal(key, mean.shape)
            return self.decoder(z), mean, std

    model = VAE(rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    graph, state = nnx.split((model, optimizer))

    def train_step(state, x, key):
        model, optimizer = nnx.merge(graph, state)

        def loss_fn(model):
            logits, mean, std = model(x, key)
            kl = 0.5 * jnp.sum(-jnp.log(std**2) - 1.0 + std**2 + mean**2, axis=-1)
            reconstruction = jnp.sum(optax.sigmoid_binary_cross_entropy(logits, x), axis=-1)
            return jnp.mean(reconstruction + kl)

        loss, grads = nnx.value_and_grad(loss_fn)(model)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), loss

    x = (uniform(1, 64, 784) < 0.3).astype(jnp.float32)
    return train_step, (state, x, jax.random.PRNGKey(2))


def equinox_gpt_epoch() -> Program:
    """An epoch of four AdamW steps of a small GPT with dropout and tied embeddings."""
    import equinox as eqx
    import optax

    vocabulary, context, dim, heads, depth = 65, 32, 64, 4, 2

    class CausalSelfAttention(eqx.Module):
        c_attn: eqx.nn.Linear
        c_proj: eqx.nn.Linear
        dropout: eqx.nn.Dropout

        def __init__(self, key):
            k1, k2 = jax.random.split(key)
            self.c_attn = eqx.nn.Linear(dim, 3 * dim, use_bias=False, key=k1)
            self.c_proj = eqx.nn.Linear(dim, dim, use_bias=False, key=k2)
            self.dropout = eqx.nn.Dropout(0.1)

        def __call__(self, x, key):
            length = x.shape[0]
            q, k, v = jnp.split(jax.vmap(self.c_attn)(x), 3, axis=-1)
            q, k, v = (t.reshape(length, heads, dim // heads).transpose(1, 0, 2) for t in (q, k, v))
            att = (q @ k.swapaxes(-1, -2)) / np.sqrt(dim // heads)
            att = jnp.where(jnp.tril(jnp.ones((length, length), bool)), att, -jnp.inf)
            att = self.dropout(jax.nn.softmax(att, axis=-1), key=key)
            return jax.vmap(self.c_proj)((att @ v).transpose(1, 0, 2).reshape(length, dim))

    class Block(eqx.Module):
        ln_1: eqx.nn.LayerNorm
        attn: CausalSelfAttention
        ln_2: eqx.nn.LayerNorm
        mlp: eqx.nn.MLP
        dropout: eqx.nn.Dropout

        def __init__(self, key):
            k1, k2 = jax.random.split(key)
            self.ln_1, self.ln_2 = eqx.nn.LayerNorm(dim), eqx.nn.LayerNorm(dim)
            self.attn = CausalSelfAttention(k1)
            self.mlp = eqx.nn.MLP(dim, dim, 4 * dim, 1, activation=jax.nn.gelu, key=k2)
            self.dropout = eqx.nn.Dropout(0.1)

        def __call__(self, x, key):
            k1, k2 = jax.random.split(key)
            x = x + self.attn(jax.vmap(self.ln_1)(x), k1)
            return x + self.dropout(jax.vmap(self.mlp)(jax.vmap(self.ln_2)(x)), key=k2)

    class GPT(eqx.Module):
        wte: eqx.nn.Embedding
        wpe: eqx.nn.Embedding
        blocks: list[Block]
        ln_f: eqx.nn.LayerNorm

        def __init__(self, key):
            k1, k2, k3 = jax.random.split(key, 3)
            self.wte = eqx.nn.Embedding(weight=0.02 * jax.random.normal(k1, (vocabulary, dim)))
            self.wpe = eqx.nn.Embedding(weight=0.02 * jax.random.normal(k2, (context, dim)))
            self.blocks = [Block(k) for k in jax.random.split(k3, depth)]
            self.ln_f = eqx.nn.LayerNorm(dim)

        def __call__(self, tokens, key):
            x = jax.vmap(self.wte)(tokens) + jax.vmap(self.wpe)(jnp.arange(tokens.shape[0]))
            for block, k in zip(self.blocks, jax.random.split(key, depth), strict=True):
                x = block(x, k)
            return jax.vmap(self.ln_f)(x) @ self.wte.weight.T

    params, static = eqx.partition(GPT(jax.random.PRNGKey(0)), eqx.is_inexact_array)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 2, 100, 1e-4)
    tx = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(
            schedule,
            b2=0.95,
            weight_decay=0.1,
            mask=lambda params: jax.tree.map(lambda p: p.ndim > 1, params),
        ),
    )

    def loss_fn(params, batch, key):
        model = eqx.combine(params, static)
        logits = jax.vmap(model)(batch[:, :-1], jax.random.split(key, batch.shape[0]))
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()

    def epoch(params, opt_state, batches, key):
        def step(carry, inputs):
            params, opt_state = carry
            loss, grads = jax.value_and_grad(loss_fn)(params, *inputs)
            updates, opt_state = tx.update(grads, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), loss

        keys = jax.random.split(key, batches.shape[0])
        (params, opt_state), losses = jax.lax.scan(step, (params, opt_state), (batches, keys))
        return params, opt_state, losses

    rng = np.random.RandomState(0)
    batches = jnp.asarray(rng.randint(0, vocabulary, (4, 4, context + 1)), jnp.int32)
    return epoch, (params, tx.init(params), batches, jax.random.PRNGKey(1))


def distrax_spline_coupling_step() -> Program:
    """One Adam step of a flow of four masked couplings with rational quadratic splines."""
    import distrax
    import flax.linen as nn
    import optax

    dim, bins, layers = 6, 8, 4
    bijector_params = 3 * bins + 1

    class Conditioner(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(2):
                x = nn.relu(nn.Dense(64)(x))
            x = nn.Dense(
                dim * bijector_params,
                kernel_init=nn.initializers.normal(0.01),
                bias_init=nn.initializers.zeros,
            )(x)
            return x.reshape(*x.shape[:-1], dim, bijector_params)

    class Flow(nn.Module):
        def setup(self):
            self.conditioners = [Conditioner() for _ in range(layers)]

        def distribution(self):
            def bijector_fn(params):
                return distrax.RationalQuadraticSpline(params, range_min=-4.0, range_max=4.0)

            mask = jnp.arange(dim) % 2 == 0
            couplings = []
            for conditioner in self.conditioners:
                couplings.append(distrax.MaskedCoupling(mask, conditioner, bijector_fn))
                mask = jnp.logical_not(mask)
            base = distrax.Independent(distrax.Normal(jnp.zeros(dim), jnp.ones(dim)), 1)
            return distrax.Transformed(base, distrax.Inverse(distrax.Chain(couplings)))

        def __call__(self, x):
            return self.distribution().log_prob(x)

        def sample(self, key):
            return self.distribution().sample_and_log_prob(seed=key, sample_shape=(32,))

    flow = Flow()
    x = normal(0, 128, dim)
    x = jnp.tanh(x) + 0.5 * jnp.roll(x, 1, axis=1) ** 2
    params = flow.init(jax.random.PRNGKey(1), x)
    tx = optax.adam(1e-3)

    def step(params, opt_state, x, key):
        loss, grads = jax.value_and_grad(lambda params: -flow.apply(params, x).mean())(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return params, opt_state, loss, flow.apply(params, key, method="sample")

    return step, (params, tx.init(params), x, jax.random.PRNGKey(2))


def learned_optimizer_unroll() -> Program:
    """One meta-gradient through ten steps of a learned optimizer on four small problems."""
    import flax.linen as nn
    import optax

    unroll, tasks = 10, 4
    decays = jnp.array([0.5, 0.9, 0.99])

    class Rule(nn.Module):
        @nn.compact
        def __call__(self, p, g, momentum, second, step):
            scale = jax.lax.rsqrt(second[..., None] + 1e-6)
            features = jnp.concatenate(
                [p[..., None], g[..., None], momentum, g[..., None] * scale, momentum * scale], -1
            )
            axes = tuple(range(p.ndim))
            features = features * jax.lax.rsqrt(
                1e-5 + jnp.mean(features**2, axis=axes, keepdims=True)
            )
            times = jnp.tanh(step / jnp.array([1.0, 3.0, 10.0, 30.0]) - 1.0)
            times = jnp.broadcast_to(times, (*p.shape, 4))
            x = jnp.concatenate([features, times], -1)
            x = nn.relu(nn.Dense(16)(x))
            x = nn.relu(nn.Dense(16)(x))
            direction, magnitude = jnp.moveaxis(nn.Dense(2)(x), -1, 0)
            return 0.1 * direction * jnp.exp(0.1 * magnitude)

    rule = Rule()
    one = jnp.zeros(3)
    theta = rule.init(jax.random.PRNGKey(0), one, one, jnp.zeros((3, 3)), one, 0.0)

    def inner_loss(params, x, y):
        h = jnp.tanh(x @ params["w1"] + params["b1"])
        return optax.softmax_cross_entropy_with_integer_labels(
            h @ params["w2"] + params["b2"], y
        ).mean()

    def inner_init(key):
        k1, k2 = jax.random.split(key)
        return {
            "w1": jax.random.normal(k1, (8, 24)) / 8**0.5,
            "b1": jnp.zeros(24),
            "w2": jax.random.normal(k2, (24, 5)) / 24**0.5,
            "b2": jnp.zeros(5),
        }

    def unrolled(theta, key, xs, ys):
        params = inner_init(key)
        momentum = jax.tree.map(lambda p: jnp.zeros((*p.shape, 3)), params)
        second = jax.tree.map(jnp.zeros_like, params)

        @jax.checkpoint
        def step(carry, inputs):
            params, momentum, second = carry
            i, x, y = inputs
            loss, grads = jax.value_and_grad(inner_loss)(params, x, y)
            grads = jax.tree.map(lambda g: jnp.clip(g, -1.0, 1.0), grads)
            momentum = jax.tree.map(
                lambda m, g: decays * m + (1 - decays) * g[..., None], momentum, grads
            )
            second = jax.tree.map(lambda s, g: 0.95 * s + 0.05 * g**2, second, grads)
            updates = jax.tree.map(
                lambda p, g, m, s: rule.apply(theta, p, g, m, s, i),
                params,
                grads,
                momentum,
                second,
            )
            params = jax.tree.map(lambda p, u: p - u, params, updates)
            return (params, momentum, second), loss

        steps = jnp.arange(unroll, dtype=jnp.float32)
        _, losses = jax.lax.scan(step, (params, momentum, second), (steps, xs, ys))
        return losses.mean(), losses

    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-4))

    def meta_step(theta, opt_state, keys, xs, ys):
        def meta_loss(theta):
            losses, curves = jax.vmap(unrolled, (None, 0, 0, 0))(theta, keys, xs, ys)
            return losses.mean(), curves

        (loss, curves), grads = jax.value_and_grad(meta_loss, has_aux=True)(theta)
        updates, opt_state = tx.update(grads, opt_state, theta)
        return optax.apply_updates(theta, updates), opt_state, loss, curves

    ys = jax.random.randint(jax.random.PRNGKey(1), (tasks, unroll, 32), 0, 5)
    xs = normal(2, tasks, 1, 5, 8)[jnp.arange(tasks)[:, None, None], 0, ys]
    xs = xs + 0.5 * normal(3, tasks, unroll, 32, 8)
    keys = jax.random.split(jax.random.PRNGKey(4), tasks)
    return meta_step, (theta, tx.init(theta), keys, xs, ys)


WORKLOADS: dict[str, Builder] = {
    "diffrax-neural-ode-train-step": diffrax_neural_ode_train_step,
    "nnx-vae-train-step": nnx_vae_train_step,
    "equinox-gpt-epoch": equinox_gpt_epoch,
    "distrax-spline-coupling-step": distrax_spline_coupling_step,
    "learned-optimizer-unroll": learned_optimizer_unroll,
}
