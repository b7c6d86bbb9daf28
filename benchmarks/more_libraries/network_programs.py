"""Graph networks, transformers, image models and rankers, trained or applied."""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program

# Keras reads this variable once, when it is first imported.
os.environ.setdefault("KERAS_BACKEND", "jax")


def jraphx_gcn_node_classify_train_step() -> Program:
    """One Adam step of a graph convolutional network that labels nodes."""
    import optax
    from flax import nnx
    from jraphx.nn.models import GCN

    rng = np.random.default_rng(95)
    n, e = 1000, 5000
    x = jnp.asarray(rng.normal(size=(n, 64)), jnp.float32)
    ei = jnp.asarray(rng.integers(0, n, (2, e)), jnp.int32)
    y = jnp.asarray(rng.integers(0, 7, n))
    m = GCN(in_features=64, hidden_features=64, num_layers=2, out_features=7, rngs=nnx.Rngs(0))
    graph, state, rest = nnx.split(m, nnx.Param, ...)
    optimizer = optax.adam(1e-2)

    def run(state, opt_state, rest, x, ei, y):
        def loss(state):
            return optax.softmax_cross_entropy_with_integer_labels(
                nnx.merge(graph, state, rest)(x, ei), y
            ).mean()

        value, grads = jax.value_and_grad(loss)(state)
        updates, opt_state = optimizer.update(grads, opt_state, state)
        return optax.apply_updates(state, updates), opt_state, value

    return run, (state, optimizer.init(state), rest, x, ei, y)


def jraphx_gat_transformer_forward() -> Program:
    """Graph attention and a graph transformer on 40000 edges, pooled over twenty graphs."""
    from flax import nnx
    from jraphx.nn.conv import GATv2Conv, TransformerConv
    from jraphx.nn.pool import global_mean_pool

    rng = np.random.default_rng(96)
    n, e = 5000, 40000
    x = jnp.asarray(rng.normal(size=(n, 32)), jnp.float32)
    ei = jnp.asarray(rng.integers(0, n, (2, e)), jnp.int32)
    b = jnp.asarray(np.sort(rng.integers(0, 20, n)), jnp.int32)
    rngs = nnx.Rngs(0)
    m = [GATv2Conv(32, 16, heads=4, rngs=rngs), TransformerConv(64, 16, heads=2, rngs=rngs)]
    sp = [nnx.split(k) for k in m]

    def run(sts, x, ei, b):
        a, c = [nnx.merge(graph, s) for (graph, _), s in zip(sp, sts, strict=True)]
        h = jax.nn.elu(a(x, ei))
        return global_mean_pool(c(h, ei), b, size=20)

    return run, ([s for _, s in sp], x, ei, b)


def penzai_llama_loss_grad() -> Program:
    """Next-token loss of a small Llama-like model, and its gradient."""
    from penzai import pz
    from penzai.models.transformer.variants import llamalike_common as lc

    cfg = lc.LlamalikeTransformerConfig(
        num_kv_heads=2,
        query_head_multiplier=2,
        embedding_dim=96,
        projection_dim=24,
        mlp_hidden_dim=256,
        num_decoder_blocks=3,
        vocab_size=256,
        mlp_variant="swiglu",
        tie_embedder_and_logits=True,
    )
    m = lc.build_llamalike_transformer(cfg, init_base_rng=jax.random.key(0))
    model, ps = pz.unbind_params(m)
    frozen = [p.freeze() for p in ps]
    tok = jnp.asarray(np.random.default_rng(97).integers(0, 256, (8, 128)), jnp.int32)

    def run(frozen, tok):
        def loss(fr):
            mm = pz.bind_variables(model, fr)
            lg = (
                mm(pz.nx.wrap(tok).tag("batch", "seq"), token_positions=pz.nx.arange("seq", 128))
                .untag("batch", "seq", "vocabulary")
                .unwrap()
            )
            lp = jax.nn.log_softmax(lg[:, :-1])
            return -jnp.take_along_axis(lp, tok[:, 1:, None], -1).mean()

        return jax.value_and_grad(loss)(frozen)

    return run, (frozen, tok)


def _values(variables):
    """Values of Keras variables as arrays."""
    return [jnp.asarray(v.value) for v in variables]


def keras_convnet_train_step() -> Program:
    """One momentum step of a convolutional network with batch normalization."""
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.BatchNormalization(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )
    optimizer = keras.optimizers.SGD(1e-2, momentum=0.9, nesterov=True)
    optimizer.build(model.trainable_variables)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    rng = np.random.default_rng(98)
    x = jnp.asarray(rng.random((32, 28, 28, 1)), jnp.float32)
    y = jnp.asarray(rng.integers(0, 10, 32))

    def run(tv, ntv, ov, x, y):
        def loss(tv, ntv):
            logits, ntv = model.stateless_call(tv, ntv, x, training=True)
            return loss_fn(y, logits), ntv

        (value, ntv), grads = jax.value_and_grad(loss, has_aux=True)(tv, ntv)
        tv, ov = optimizer.stateless_apply(ov, grads, tv)
        return value, tv, ntv, ov

    return run, (
        _values(model.trainable_variables),
        _values(model.non_trainable_variables),
        _values(optimizer.variables),
        x,
        y,
    )


def keras_bidirectional_lstm_attention_forward() -> Program:
    """A text classifier of a bidirectional LSTM, attention and a GRU."""
    import keras

    keras.utils.set_random_seed(1)
    layers = keras.layers
    inputs = keras.Input((40,), dtype="int32")
    hidden = layers.Embedding(500, 32)(inputs)
    hidden = layers.Bidirectional(layers.LSTM(32, return_sequences=True))(hidden)
    hidden = layers.LayerNormalization()(hidden + layers.MultiHeadAttention(4, 16)(hidden, hidden))
    outputs = layers.Dense(5, activation="softmax")(layers.GRU(24)(hidden))
    model = keras.Model(inputs, outputs)
    tokens = jnp.asarray(np.random.default_rng(99).integers(0, 500, (16, 40)), jnp.int32)

    def run(tv, ntv, tokens):
        return model.stateless_call(tv, ntv, tokens, training=False)[0]

    return run, (_values(model.trainable_variables), _values(model.non_trainable_variables), tokens)


def keras_resblock_image_train_step_large() -> Program:
    """One momentum step of an image model of three residual blocks."""
    import keras

    keras.utils.set_random_seed(2)
    layers = keras.layers
    inputs = keras.Input((32, 32, 3))
    hidden = layers.Conv2D(24, 3, padding="same")(inputs)
    for _ in range(3):
        k = layers.Conv2D(24, 3, padding="same")(
            layers.Activation("swish")(layers.GroupNormalization(8)(hidden))
        )
        hidden = hidden + layers.SeparableConv2D(24, 3, padding="same")(k)
    outputs = layers.Dense(10)(layers.GlobalMaxPooling2D()(hidden))
    model = keras.Model(inputs, outputs)
    optimizer = keras.optimizers.SGD(1e-2, momentum=0.9)
    optimizer.build(model.trainable_variables)
    loss_fn = keras.losses.CategoricalFocalCrossentropy(from_logits=True)
    rng = np.random.default_rng(134)
    x = jnp.asarray(rng.random((32, 32, 32, 3)), jnp.float32)
    y = jnp.asarray(np.eye(10)[rng.integers(0, 10, 32)], jnp.float32)

    def run(tv, ntv, ov, x, y):
        def loss(tv):
            logits, n = model.stateless_call(tv, ntv, x, training=True)
            return loss_fn(y, logits), n

        (value, _), grads = jax.value_and_grad(loss, has_aux=True)(tv)
        tv, ov = optimizer.stateless_apply(ov, grads, tv)
        return value, tv, ov

    return run, (
        _values(model.trainable_variables),
        _values(model.non_trainable_variables),
        _values(optimizer.variables),
        x,
        y,
    )


def equimo_vit_forward_batch() -> Program:
    """A vision transformer applied to eight images."""
    import equinox as eqx
    from equimo.vision.models import VisionTransformer

    m = VisionTransformer(
        img_size=64,
        in_channels=3,
        dim=96,
        patch_size=8,
        num_heads=[4],
        depths=[4],
        num_classes=10,
        key=jax.random.PRNGKey(100),
    )
    params, static = eqx.partition(m, eqx.is_array)
    x = jnp.asarray(np.random.default_rng(100).normal(size=(8, 3, 64, 64)), jnp.float32)

    def run(params, x, k):
        m = eqx.combine(params, static)
        return jax.vmap(lambda a, k: m(a, key=k, inference=True))(x, jax.random.split(k, 8))

    return run, (params, x, jax.random.PRNGKey(101))


def equimo_convnext_forward_grad() -> Program:
    """Loss of a ConvNeXt on eight images, and its gradient."""
    import equinox as eqx
    from equimo.vision.models import ConvNeXt

    m = ConvNeXt(
        in_channels=3,
        dims=[24, 48, 96, 192],
        depths=[1, 1, 2, 1],
        num_classes=10,
        key=jax.random.PRNGKey(135),
    )
    params, static = eqx.partition(m, eqx.is_inexact_array)
    x = jnp.asarray(np.random.default_rng(135).normal(size=(8, 3, 64, 64)), jnp.float32)

    def run(params, x, k):
        def loss(params):
            m = eqx.combine(params, static)
            o = jax.vmap(lambda a, k: m(a, key=k, inference=True))(x, jax.random.split(k, 8))
            return jax.nn.log_softmax(o)[:, 0].mean()

        return jax.value_and_grad(loss)(params)

    return run, (params, x, jax.random.PRNGKey(136))


def rax_listwise_ranker_train_step() -> Program:
    """One gradient step of a ranker under three ranking losses, with its metrics."""
    import optax
    import rax

    rng = np.random.default_rng(67)
    x = jnp.asarray(rng.normal(size=(32, 50, 24)), jnp.float32)
    y = jnp.asarray(rng.integers(0, 4, (32, 50)), jnp.float32)
    mask = jnp.asarray(rng.random((32, 50)) < 0.85)

    def weights(*s):
        return jnp.asarray(rng.normal(size=s) * 0.2, jnp.float32)

    # No last bias: the losses do not see it.
    params = [(weights(24, 64), jnp.zeros(64)), weights(64, 1)]
    optimizer = optax.sgd(1e-2)

    def run(params, opt_state, x, y, mask):
        def score(params):
            return (jax.nn.relu(x @ params[0][0] + params[0][1]) @ params[1])[..., 0]

        def loss(params):
            s = score(params)
            return (
                rax.softmax_loss(s, y, where=mask)
                + rax.listmle_loss(s, y, where=mask)
                + 0.1 * rax.pairwise_logistic_loss(s, y, where=mask)
            )

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt_state = optimizer.update(grads, opt_state)
        params = optax.apply_updates(params, updates)
        return (
            params,
            opt_state,
            value,
            rax.ndcg_metric(score(params), y, where=mask, topn=10),
            rax.mrr_metric(score(params), y > 2, where=mask),
        )

    return run, (params, optimizer.init(params), x, y, mask)


WORKLOADS: dict[str, Builder] = {
    "jraphx-gcn-node-classify-train-step": jraphx_gcn_node_classify_train_step,
    "jraphx-gat-transformer-forward": jraphx_gat_transformer_forward,
    "penzai-llama-loss-grad": penzai_llama_loss_grad,
    "keras-convnet-train-step": keras_convnet_train_step,
    "keras-bidirectional-lstm-attention-forward": keras_bidirectional_lstm_attention_forward,
    "keras-resblock-image-train-step-large": keras_resblock_image_train_step_large,
    "equimo-vit-forward-batch": equimo_vit_forward_batch,
    "equimo-convnext-forward-grad": equimo_convnext_forward_grad,
    "rax-listwise-ranker-train-step": rax_listwise_ranker_train_step,
}
