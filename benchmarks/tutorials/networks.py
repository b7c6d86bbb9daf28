"""Training steps of networks: flax, equinox and haiku."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.tutorials.common import Builder, Program, normal, uniform


def flax_nnx_gpt_train_step() -> Program:
    """Decoder-only language model of the nnx tutorial: causal attention, AdamW step, 8 x 32 tokens."""
    import optax
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, dim: int, heads: int, rngs: nnx.Rngs) -> None:
            self.ln1 = nnx.LayerNorm(dim, rngs=rngs)
            self.attn = nnx.MultiHeadAttention(heads, dim, decode=False, rngs=rngs)
            self.ln2 = nnx.LayerNorm(dim, rngs=rngs)
            self.up = nnx.Linear(dim, 4 * dim, rngs=rngs)
            self.down = nnx.Linear(4 * dim, dim, rngs=rngs)

        def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
            x = x + self.attn(self.ln1(x), mask=mask)
            return x + self.down(nnx.gelu(self.up(self.ln2(x))))

    class MiniGPT(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.tok = nnx.Embed(256, 64, rngs=rngs)
            self.pos = nnx.Embed(32, 64, rngs=rngs)
            self.block1 = Block(64, 4, rngs)
            self.block2 = Block(64, 4, rngs)
            self.head = nnx.Linear(64, 256, rngs=rngs)

        def __call__(self, ids: jax.Array) -> jax.Array:
            x = self.tok(ids) + self.pos(jnp.arange(ids.shape[1]))[None]
            mask = nnx.make_causal_mask(ids)
            return self.head(self.block2(self.block1(x, mask), mask))

    model = MiniGPT(nnx.Rngs(0))
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)
    opt = optax.adamw(1e-3)
    state = opt.init(params)

    def step(params: Any, rest: Any, state: Any, ids: jax.Array, targets: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            logits = nnx.merge(graphdef, params, rest)(ids)
            return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = opt.update(grads, state, params)
        return jax.tree.leaves(optax.apply_updates(params, updates)), jax.tree.leaves(state), value

    ids = jax.random.randint(jax.random.PRNGKey(1), (8, 33), 0, 256)
    return step, (params, rest, state, ids[:, :-1], ids[:, 1:])


def flax_linen_seq2seq_lstm_step() -> Program:
    """Encoder-decoder LSTM of the flax seq2seq addition example, with teacher forcing and Adam."""
    import optax
    from flax import linen as nn

    class Seq2seq(nn.Module):
        @nn.compact
        def __call__(self, source: jax.Array, target: jax.Array, lengths: jax.Array) -> jax.Array:
            carry, _ = nn.RNN(nn.LSTMCell(64), return_carry=True)(source, seq_lengths=lengths)
            hidden = nn.RNN(nn.LSTMCell(64))(target[:, :-1], initial_carry=carry)
            return nn.Dense(15)(hidden)

    model = Seq2seq()
    source = jax.nn.one_hot(jax.random.randint(jax.random.PRNGKey(0), (64, 8), 0, 15), 15)
    target = jax.nn.one_hot(jax.random.randint(jax.random.PRNGKey(1), (64, 5), 0, 15), 15)
    lengths = jax.random.randint(jax.random.PRNGKey(2), (64,), 4, 9)
    params = model.init(jax.random.PRNGKey(3), source, target, lengths)
    opt = optax.adam(3e-3)

    def step(
        params: Any, state: Any, source: jax.Array, target: jax.Array, lengths: jax.Array
    ) -> Any:
        def loss(params: Any) -> Any:
            logits = model.apply(params, source, target, lengths)
            xent = optax.softmax_cross_entropy(logits, target[:, 1:])
            accuracy = jnp.mean(logits.argmax(-1) == target[:, 1:].argmax(-1))
            return xent.mean(), accuracy

        (value, accuracy), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, state = opt.update(grads, state)
        return optax.apply_updates(params, updates), state, value, accuracy

    return step, (params, opt.init(params), source, target, lengths)


def equinox_gru_classifier_steps() -> Program:
    """Equinox RNN example: GRU over spirals by lax.scan, binary cross-entropy, 3 Adam steps."""
    import equinox as eqx
    import optax

    class RNN(eqx.Module):
        cell: eqx.Module
        linear: eqx.nn.Linear
        bias: jax.Array

        def __init__(self, key: jax.Array) -> None:
            ckey, lkey = jax.random.split(key)
            self.cell = eqx.nn.GRUCell(2, 16, key=ckey)
            self.linear = eqx.nn.Linear(16, 1, use_bias=False, key=lkey)
            self.bias = jnp.zeros(1)

        def __call__(self, xs: jax.Array) -> jax.Array:
            out, _ = jax.lax.scan(lambda h, x: (self.cell(x, h), None), jnp.zeros(16), xs)
            return jax.nn.sigmoid(self.linear(out) + self.bias)

    model = RNN(jax.random.PRNGKey(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    adam = optax.adam(3e-3)
    t = jnp.linspace(0, 2 * jnp.pi, 16)
    offset = 2 * jnp.pi * uniform(1, 32, 1)
    spirals = jnp.stack([jnp.sin(t + offset), jnp.cos(t + offset)], -1) / (1 + t)[None, :, None]
    half = jnp.where((jnp.arange(32) < 16)[:, None], 1.0, -1.0)
    spirals = spirals.at[..., 0].multiply(half)
    labels = (jnp.arange(32) < 16).astype(jnp.float32)

    def train(params: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            pred = jax.vmap(eqx.combine(params, static))(x)[:, 0]
            return -jnp.mean(y * jnp.log(pred) + (1 - y) * jnp.log(1 - pred))

        def step(carry: Any, _: None) -> Any:
            params, state = carry
            value, grads = eqx.filter_value_and_grad(loss)(params)
            updates, state = adam.update(grads, state)
            return (eqx.apply_updates(params, updates), state), value

        (params, _), losses = jax.lax.scan(step, (params, state), None, length=3)
        return jax.tree.leaves(params), losses

    return train, (params, adam.init(params), spirals, labels)


def _mixer(key: jax.Array) -> Any:
    """An MLP-Mixer over patches of 4 x 4 pixels, with time as a second channel."""
    import equinox as eqx

    class MixerBlock(eqx.Module):
        patch_mixer: eqx.nn.MLP
        hidden_mixer: eqx.nn.MLP
        norm1: eqx.nn.LayerNorm
        norm2: eqx.nn.LayerNorm

        def __init__(self, patches: int, hidden: int, key: jax.Array) -> None:
            k1, k2 = jax.random.split(key)
            self.patch_mixer = eqx.nn.MLP(patches, patches, 32, depth=1, key=k1)
            self.hidden_mixer = eqx.nn.MLP(hidden, hidden, 64, depth=1, key=k2)
            self.norm1 = eqx.nn.LayerNorm((hidden, patches))
            self.norm2 = eqx.nn.LayerNorm((patches, hidden))

        def __call__(self, y: jax.Array) -> jax.Array:
            y = y + jax.vmap(self.patch_mixer)(self.norm1(y))
            y = y.T
            y = y + jax.vmap(self.hidden_mixer)(self.norm2(y))
            return y.T

    class Mixer2d(eqx.Module):
        conv_in: eqx.nn.Conv2d
        conv_out: eqx.nn.ConvTranspose2d
        blocks: list
        norm: eqx.nn.LayerNorm

        def __init__(self, key: jax.Array) -> None:
            k1, k2, *ks = jax.random.split(key, 4)
            self.conv_in = eqx.nn.Conv2d(2, 32, 4, stride=4, key=k1)
            self.conv_out = eqx.nn.ConvTranspose2d(32, 1, 4, stride=4, key=k2)
            self.blocks = [MixerBlock(16, 32, k) for k in ks]
            self.norm = eqx.nn.LayerNorm((32, 16))

        def __call__(self, t: jax.Array, y: jax.Array) -> jax.Array:
            t = jnp.broadcast_to(t / 10.0, (1, *y.shape[1:]))
            y = self.conv_in(jnp.concatenate([y, t]))
            shape = y.shape
            y = y.reshape(shape[0], -1)
            for block in self.blocks:
                y = block(y)
            return self.conv_out(self.norm(y).reshape(shape))

    return Mixer2d(key)


def equinox_mlp_mixer_score_step() -> Program:
    """Score-based diffusion with an MLP-Mixer (equinox example): one AdaBelief step, 16x16 images."""
    import equinox as eqx
    import optax

    params, static = eqx.partition(_mixer(jax.random.PRNGKey(0)), eqx.is_inexact_array)
    opt = optax.adabelief(3e-4)

    def step(params: Any, state: Any, data: jax.Array, key: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            model = eqx.combine(params, static)
            tkey, nkey = jax.random.split(key)
            n = data.shape[0]
            t = jax.random.uniform(tkey, (n,), maxval=10.0 / n) + (10.0 / n) * jnp.arange(n)

            def single(y: jax.Array, t: jax.Array, key: jax.Array) -> jax.Array:
                mean = y * jnp.exp(-0.5 * t)
                var = jnp.maximum(1 - jnp.exp(-t), 1e-5)
                noise = jax.random.normal(key, y.shape)
                pred = model(t, mean + jnp.sqrt(var) * noise)
                return (1 - jnp.exp(-t)) * jnp.mean((pred + noise / jnp.sqrt(var)) ** 2)

            return jnp.mean(jax.vmap(single)(data, t, jax.random.split(nkey, n)))

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = opt.update(grads, state)
        return jax.tree.leaves(eqx.apply_updates(params, updates)), value

    return step, (params, opt.init(params), normal(1, 32, 1, 16, 16), jax.random.PRNGKey(2))


def haiku_transformer_ema_step() -> Program:
    """Haiku transformer example: two layers, causal mask, clipped Adam and an average of the weights."""
    import haiku as hk
    import optax

    def forward(tokens: jax.Array) -> jax.Array:
        seq, dim = tokens.shape[1], 64
        init = hk.initializers.VarianceScaling(2.0 / 2)
        h = hk.Embed(100, dim)(tokens) + hk.get_parameter("pos", [seq, dim], init=init)
        mask = jnp.tril(jnp.ones((1, 1, seq, seq)))
        for _ in range(2):
            a = hk.LayerNorm(-1, True, True)(h)
            a = hk.MultiHeadAttention(4, 16, w_init=init)(a, a, a, mask)
            h = h + hk.dropout(hk.next_rng_key(), 0.1, a)
            d = hk.Sequential(
                [hk.Linear(256, w_init=init), jax.nn.gelu, hk.Linear(dim, w_init=init)]
            )
            h = h + hk.dropout(hk.next_rng_key(), 0.1, d(hk.LayerNorm(-1, True, True)(h)))
        return hk.Linear(100)(hk.LayerNorm(-1, True, True)(h))

    net = hk.transform(forward)
    ids = jax.random.randint(jax.random.PRNGKey(0), (8, 33), 0, 100)
    params = net.init(jax.random.PRNGKey(1), ids[:, :-1])
    opt = optax.chain(optax.clip_by_global_norm(0.25), optax.adam(2e-4, b1=0.9, b2=0.99))

    def step(params: Any, average: Any, state: Any, key: jax.Array, ids: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            logits = net.apply(params, key, ids[:, :-1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, ids[:, 1:]).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = opt.update(grads, state)
        params = optax.apply_updates(params, updates)
        return params, optax.incremental_update(params, average, 0.001), state, value

    return step, (params, params, opt.init(params), jax.random.PRNGKey(2), ids)


def haiku_vae_train_step() -> Program:
    """Haiku VAE example with a categorical-free Gaussian code, RMSProp, 32 images of 28 x 28."""
    import haiku as hk
    import optax

    def forward(x: jax.Array) -> Any:
        h = jax.nn.relu(hk.Linear(256)(hk.Flatten()(x)))
        mean, log_std = hk.Linear(10)(h), hk.Linear(10)(h)
        z = mean + jnp.exp(log_std) * jax.random.normal(hk.next_rng_key(), mean.shape)
        logits = hk.nets.MLP([256, 784], activation=jax.nn.relu)(z)
        return mean, jnp.exp(2 * log_std), logits.reshape(x.shape)

    net = hk.transform(forward)
    images = (uniform(0, 32, 28, 28, 1) > 0.8).astype(jnp.float32)
    params = net.init(jax.random.PRNGKey(1), images)
    opt = optax.rmsprop(1e-3, momentum=0.9)

    def step(params: Any, state: Any, key: jax.Array, images: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            mean, var, logits = net.apply(params, key, images)
            ll = jnp.sum(images * logits - jnp.logaddexp(0.0, logits), axis=(1, 2, 3))
            kl = 0.5 * jnp.sum(-jnp.log(var) - 1.0 + var + mean**2, axis=-1)
            return jnp.mean(kl - ll)

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = opt.update(grads, state)
        return optax.apply_updates(params, updates), state, value

    return step, (params, opt.init(params), jax.random.PRNGKey(2), images)


WORKLOADS: dict[str, Builder] = {
    "flax-nnx-causal-lm-step": flax_nnx_gpt_train_step,
    "flax-linen-seq-to-seq-step": flax_linen_seq2seq_lstm_step,
    "equinox-gru-spirals-steps": equinox_gru_classifier_steps,
    "equinox-mixer-score-step": equinox_mlp_mixer_score_step,
    "haiku-transformer-ema-step": haiku_transformer_ema_step,
    "haiku-vae-step": haiku_vae_train_step,
}
