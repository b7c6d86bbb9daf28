"""Training steps and sampling of models that their authors published as packages of their own."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program, normal


def _tokens(seed: int, shape: tuple[int, ...], vocabulary: int) -> jax.Array:
    """Random token numbers."""
    return jnp.asarray(np.random.RandomState(seed).randint(0, vocabulary, shape), jnp.int32)


def _step(loss, optimizer):
    """One optimizer step of ``loss(params, *batch)``."""
    import optax

    def run(params, opt_state, *batch):
        value, grads = jax.value_and_grad(loss)(params, *batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    return run


def _palm(seed, **sizes):
    """Parameters of a transformer with parallel layers and linear biases, and all else of it."""
    import equinox as eqx
    from palm_jax.palm_lite import PaLM

    return eqx.partition(PaLM(**sizes, key=jax.random.PRNGKey(seed)), eqx.is_inexact_array)


def palm_train_step() -> Program:
    """One Adam step of a transformer with parallel layers and linear biases."""
    import equinox as eqx
    import optax

    params, static = _palm(
        0, num_tokens=2000, dim=128, depth=3, heads=4, dim_head=32, max_seq_len=128
    )
    optimizer = optax.adam(3e-4)

    def loss(params, data):
        logits = jax.vmap(eqx.combine(params, static))(data[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, data[:, 1:]).mean()

    args = (params, optimizer.init(params), _tokens(0, (4, 65), 2000))
    return _step(loss, optimizer), args


def palm_sample() -> Program:
    """Twelve tokens continued to twenty-four, the whole sequence computed for each."""
    import equinox as eqx
    from palm_jax.utils import sample

    params, static = _palm(1, num_tokens=500, dim=64, depth=2, heads=3, dim_head=16, max_seq_len=64)

    def run(params, key, prime):
        return sample(key, eqx.combine(params, static), prime, 24, top_k=10)

    return run, (params, jax.random.PRNGKey(2), _tokens(1, (12,), 500))


def mlp_gpt_train_step() -> Program:
    """One Adam step of a language model of gated perceptrons, layers dropped at random."""
    import optax
    from mlp_gpt_jax.mlp_gpt_jax import TransformedMLPGpt
    from mlp_gpt_jax.utils import get_train_loss_fn

    model = TransformedMLPGpt(
        num_tokens=500, dim=64, seq_len=64, depth=4, attn_dim=32, layer_survival_prob=0.9
    )
    params = model.init(jax.random.PRNGKey(0), _tokens(0, (64,), 500))
    loss_and_grad = get_train_loss_fn(model)
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(2e-4))

    def run(params, opt_state, key, data):
        value, grads = loss_and_grad(params, key, data)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    args = (params, optimizer.init(params), jax.random.PRNGKey(3), _tokens(2, (4, 65), 500))
    return run, args


def nano_moe_train_step() -> Program:
    """One step of a small language model with a mixture of experts."""
    from nano_moe.config import NanoMoEConfig
    from nano_moe.train import create_train_state, train_step

    cfg = NanoMoEConfig(
        vocab_size=96, n_layers=2, n_heads=4, d_model=64, d_ff=128, block_size=64, batch_size=4
    )
    state = create_train_state(jax.random.PRNGKey(0), cfg)
    data = _tokens(0, (4, 65), 96)

    def run(params, opt_state, rng, x, y):
        before = state.replace(params=params, opt_state=opt_state, dropout_rng=rng)
        after, metrics = train_step(before, x, y, cfg)
        return after.params, after.opt_state, after.dropout_rng, metrics

    args = (state.params, state.opt_state, state.dropout_rng, data[:, :-1], data[:, 1:])
    return run, args


def mamba2_train_step() -> Program:
    """One AdamW step of a state space language model, computed in chunks."""
    import optax
    from flax import nnx
    from mamba2_jax.modeling import Mamba2Config, Mamba2ForCausalLM

    graph, params = nnx.split(Mamba2ForCausalLM(Mamba2Config.tiny(), rngs=nnx.Rngs(0)))
    optimizer = optax.adamw(1e-3)

    def loss(params, ids):
        return nnx.merge(graph, params)(ids, labels=ids)["loss"]

    args = (params, optimizer.init(params), _tokens(0, (2, 80), 1000))
    return _step(loss, optimizer), args


def mamba2_decode() -> Program:
    """Twenty-four tokens from a state space language model with its recurrent state."""
    from flax import nnx
    from mamba2_jax.modeling import Mamba2Config, Mamba2ForCausalLM, create_empty_cache

    cfg = Mamba2Config.tiny()
    graph, params = nnx.split(Mamba2ForCausalLM(cfg, rngs=nnx.Rngs(1)))

    def run(params, ids):
        cache = create_empty_cache(cfg, ids.shape[0])
        out = nnx.merge(graph, params)(ids[:, :1], cache=cache)

        def step(carry, _):
            token, cache = carry
            out = nnx.merge(graph, params)(token, cache=cache)
            token = jnp.argmax(out["logits"][:, -1:], -1).astype(jnp.int32)
            return (token, out["cache"]), (token[:, 0], out["logits"][:, -1].max(-1))

        return jax.lax.scan(step, (ids[:, 1:2], out["cache"]), None, length=24)[1]

    return run, (params, _tokens(0, (2, 2), 1000))


def rnn_jax_lru_train_step() -> Program:
    """One gradient step of two linear recurrent units with complex states."""
    import equinox as eqx
    import optax
    from rnn_jax.ssm.lru import LinearRecurrentUnit
    from rnn_jax.ssm.mixers import GLUMixer
    from rnn_jax.ssm.models import DeepStateSpaceModelEncoder

    k = jax.random.split(jax.random.PRNGKey(0), 5)
    layers = [LinearRecurrentUnit(32, 32, 32, key=k[i]) for i in (0, 1)]
    mixers = [GLUMixer(32, 32, key=k[i]) for i in (2, 3)]
    net = DeepStateSpaceModelEncoder(8, layers, mixers, out_dim=10, pool_method="mean", key=k[4])
    params, static = eqx.partition(net, eqx.is_inexact_array)
    params = jax.tree.map(jnp.asarray, params)

    def run(params, x, y):
        def loss(params):
            logits = jax.vmap(eqx.combine(params, static))(x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, d: p - 1e-3 * jnp.conj(d), params, grads), value

    return run, (params, normal(1, 4, 128, 8), _tokens(2, (4,), 10))


def rnn_jax_s5_forward() -> Program:
    """Two state space layers on four sequences."""
    import equinox as eqx
    from rnn_jax.ssm.mixers import FFNMixer
    from rnn_jax.ssm.models import DeepStateSpaceModelEncoder
    from rnn_jax.ssm.s5 import SimplifiedStateSpaceLayer

    k = jax.random.split(jax.random.PRNGKey(0), 5)
    layers = [SimplifiedStateSpaceLayer(24, 24, 24, blocks_lambda=3, key=k[i]) for i in (0, 1)]
    mixers = [FFNMixer(24, 48, 24, key=k[i]) for i in (2, 3)]
    net = DeepStateSpaceModelEncoder(6, layers, mixers, out_dim=4, pool_method="none", key=k[4])
    params, static = eqx.partition(net, eqx.is_inexact_array)

    def run(params, x):
        return jax.vmap(eqx.combine(params, static))(x)

    return run, (params, normal(1, 4, 200, 6))


def transformer_flow_sample() -> Program:
    """Two images from a flow of transformers, with guidance and denoising."""
    import equinox as eqx
    from transformer_flows.transformer_flow import TransformerFlow, sample_model

    model, state = eqx.nn.make_with_state(TransformerFlow)(
        n_channels=1,
        img_size=16,
        patch_size=4,
        channels=32,
        n_blocks=2,
        layers_per_block=1,
        head_dim=16,
        expansion=2,
        n_classes=4,
        conditioning_type="embed",
        key=jax.random.PRNGKey(0),
    )
    params, static = eqx.partition(model, eqx.is_inexact_array)
    # The last projection starts at zero.
    leaves, structure = jax.tree.flatten(params)
    leaves = [x + 0.05 * normal(i, *x.shape) for i, x in enumerate(leaves)]
    params = jax.tree.unflatten(structure, leaves)

    def run(params, z, y):
        model = eqx.combine(params, static)
        return sample_model(model, z, y, state, guidance=0.5, denoise_samples=True)

    return run, (params, normal(3, 2, 16, 16), _tokens(1, (2,), 4))


def flash_attention_grad() -> Program:
    """Causal attention in chunks of 32, with its own gradient."""
    import importlib

    # The package's own attribute of this name is the function.
    module = importlib.import_module("flash_attention_jax.causal_flash_attention")
    module.Q_CHUNK_SIZE = module.K_CHUNK_SIZE = 32

    def run(q, k, v):
        def loss(q, k, v):
            return (module.causal_flash_attention(q, k, v) ** 2).sum()

        return jax.value_and_grad(loss, (0, 1, 2))(q, k, v)

    return run, tuple(normal(i, 1, 2, 128, 24) for i in range(3))


def gamerl_double_dqn_steps() -> Program:
    """Eight AdamW steps of double Q-learning, each on its own batch."""
    import optax
    from gamerl.dqn.jax.dqn import td_loss

    sizes = [8, 128, 128, 4]
    rng = np.random.RandomState(0)

    def q_values(params, x):
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b)
        return x @ params[-1][0] + params[-1][1]

    def weights(seed):
        return [
            (normal(seed + i, a, b) * a**-0.5, jnp.zeros(b))
            for i, (a, b) in enumerate(itertools.pairwise(sizes))
        ]

    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))

    def run(params, target, opt_state, batches):
        def step(carry, batch):
            params, opt_state = carry
            value, grads = td_loss(batch, q_values, params, target, 0.99, 1.0)
            updates, opt_state = optimizer.update(grads, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), value

        return jax.lax.scan(step, (params, opt_state), batches)

    batches = (
        normal(10, 8, 64, 8),
        _tokens(1, (8, 64), 4),
        normal(11, 8, 64),
        normal(12, 8, 64, 8),
        jnp.asarray(rng.rand(8, 64) < 0.1),
    )
    params = weights(0)
    return run, (params, weights(5), optimizer.init(params), batches)


def megalodon_train_step() -> Program:
    """One AdamW step of a language model with complex moving averages."""
    import equinox as eqx
    import optax
    from megalodon_jax.config import MegalodonConfig
    from megalodon_jax.model import MegalodonForCausalLM

    cfg = MegalodonConfig(
        vocab_size=128,
        model_dim=32,
        num_layers=2,
        num_heads=2,
        z_dim=16,
        value_dim=32,
        ffn_hidden_dim=48,
        cema_ndim=4,
        chunk_size=16,
        norm_num_groups=4,
    )
    model = MegalodonForCausalLM(cfg, key=jax.random.PRNGKey(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    optimizer = optax.adamw(1e-3)

    def loss(params, ids):
        return eqx.combine(params, static).compute_loss(ids, ids)

    args = (params, optimizer.init(params), _tokens(0, (2, 48), 128))
    return _step(loss, optimizer), args


def tsnex_embedding() -> Program:
    """A hundred steps of an embedding of 120 points in the plane."""
    from tsnex.tsne import transform

    x = jnp.concatenate([0.5 * normal(i, 40, 16) + 2 * i for i in range(3)])
    run = functools.partial(
        transform, n_iter=100, perplexity=20.0, learning_rate=10.0, init="random"
    )
    return run, (x,)


WORKLOADS: dict[str, Builder] = {
    "palm-train-step": palm_train_step,
    "palm-sample": palm_sample,
    "mlp-gpt-train-step": mlp_gpt_train_step,
    "nano-moe-train-step": nano_moe_train_step,
    "mamba2-train-step": mamba2_train_step,
    "mamba2-decode": mamba2_decode,
    "rnn-jax-lru-train-step": rnn_jax_lru_train_step,
    "rnn-jax-s5-forward": rnn_jax_s5_forward,
    "transformer-flow-sample": transformer_flow_sample,
    "flash-attention-grad": flash_attention_grad,
    "gamerl-double-dqn-steps": gamerl_double_dqn_steps,
    "megalodon-train-step": megalodon_train_step,
    "tsnex-embedding": tsnex_embedding,
}
