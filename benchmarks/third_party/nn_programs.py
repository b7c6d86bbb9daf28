"""Neural networks, their optimizers, and image augmentation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .common import Builder, Program, as_arrays, mlp_apply, mlp_params, normal, uniform


def equinox_transformer_grad() -> Program:
    """Gradient of a causal pre-norm transformer block with respect to its parameters."""
    import equinox as eqx

    class Block(eqx.Module):
        attention: eqx.nn.MultiheadAttention
        mlp: eqx.nn.MLP
        norm1: eqx.nn.LayerNorm
        norm2: eqx.nn.LayerNorm

        def __call__(self, x: jax.Array) -> jax.Array:
            causal = jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool))
            h = jax.vmap(self.norm1)(x)
            x = x + self.attention(h, h, h, mask=causal)
            return x + jax.vmap(self.mlp)(jax.vmap(self.norm2)(x))

    keys = jax.random.split(jax.random.PRNGKey(0), 2)
    block = Block(
        eqx.nn.MultiheadAttention(4, 64, key=keys[0]),
        eqx.nn.MLP(64, 64, 128, 1, jax.nn.gelu, key=keys[1]),
        eqx.nn.LayerNorm(64),
        eqx.nn.LayerNorm(64),
    )
    params, static = eqx.partition(block, eqx.is_array)

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean((jax.vmap(eqx.combine(params, static))(x) - y) ** 2)

    return jax.value_and_grad(loss), (params, normal(1, 4, 32, 64), normal(2, 4, 32, 64))


def equinox_conv_forward() -> Program:
    """Forward pass of a small convolutional classifier with group normalisation."""
    import equinox as eqx

    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    model = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(3, 16, 3, padding=1, key=keys[0]),
            eqx.nn.GroupNorm(4, 16),
            eqx.nn.Lambda(jax.nn.silu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Conv2d(16, 32, 3, padding=1, key=keys[1]),
            eqx.nn.GroupNorm(8, 32),
            eqx.nn.Lambda(jax.nn.silu),
            eqx.nn.AdaptiveAvgPool2d(2),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(128, 10, key=keys[2]),
            eqx.nn.Lambda(jax.nn.log_softmax),
        ]
    )
    params, static = eqx.partition(model, eqx.is_array)

    def forward(params: Any, images: jax.Array) -> jax.Array:
        return jax.vmap(eqx.combine(params, static))(images)

    return forward, (params, normal(1, 8, 3, 32, 32))


def haiku_lstm_grad() -> Program:
    """Gradient of a next-step prediction loss through an unrolled LSTM."""
    import haiku as hk

    def network(x: jax.Array) -> jax.Array:
        core = hk.LSTM(32)
        hidden, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
        return hk.BatchApply(hk.Linear(x.shape[-1]))(hidden)

    model = hk.without_apply_rng(hk.transform(network))
    x = normal(1, 24, 8, 16)
    params = model.init(jax.random.PRNGKey(0), x)

    def loss(params: Any, x: jax.Array) -> jax.Array:
        return jnp.mean((model.apply(params, x)[:-1] - x[1:]) ** 2)

    return jax.value_and_grad(loss), (params, x)


def haiku_resnet_train_step() -> Program:
    """One SGD step of a narrow residual network that carries batch statistics."""
    import haiku as hk

    def network(images: jax.Array) -> jax.Array:
        net = hk.nets.ResNet(
            blocks_per_group=(1, 1, 1, 1),
            num_classes=10,
            bottleneck=False,
            channels_per_group=(8, 16, 32, 32),
            use_projection=(True, True, True, True),
            logits_config={"w_init": hk.initializers.RandomNormal(0.1)},
        )
        return net(images, is_training=True)

    model = hk.without_apply_rng(hk.transform_with_state(network))
    images, labels = normal(1, 4, 32, 32, 3), jnp.array([0, 3, 7, 9])
    params, state = model.init(jax.random.PRNGKey(0), images)

    def loss(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> Any:
        logits, state = model.apply(params, state, images)
        log_probs = jax.nn.log_softmax(logits)
        return -jnp.mean(jnp.take_along_axis(log_probs, labels[:, None], axis=1)), state

    def step(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> Any:
        grads, state = jax.grad(loss, has_aux=True)(params, state, images, labels)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), state

    return step, (params, state, images, labels)


def haiku_vector_quantizer() -> Program:
    """Vector quantisation of a batch of codes with an averaged codebook."""
    import haiku as hk

    def quantize(x: jax.Array) -> Any:
        quantizer = hk.nets.VectorQuantizerEMA(16, 64, commitment_cost=0.25, decay=0.99)
        out = quantizer(x, is_training=True)
        return out["quantize"], out["loss"], out["perplexity"]

    model = hk.without_apply_rng(hk.transform_with_state(quantize))
    x = normal(1, 512, 16)
    params, state = model.init(jax.random.PRNGKey(0), x)
    return model.apply, (params, state, x)


def flax_linen_encoder_grad() -> Program:
    """Gradient of a linen self-attention encoder with an embedding table."""
    import flax.linen as nn

    class Encoder(nn.Module):
        @nn.compact
        def __call__(self, tokens: jax.Array) -> jax.Array:
            x = nn.Embed(100, 32)(tokens)
            for _ in range(2):
                x = x + nn.MultiHeadDotProductAttention(4, use_bias=False)(nn.RMSNorm()(x))
                x = x + nn.Dense(32)(nn.gelu(nn.Dense(64)(nn.LayerNorm()(x))))
            return nn.Dense(100)(x)

    model = Encoder()
    tokens = jax.random.randint(jax.random.PRNGKey(1), (4, 16), 0, 100)
    params = model.init(jax.random.PRNGKey(0), tokens)

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        logits: Any = model.apply(params, tokens)
        log_probs = jax.nn.log_softmax(logits)
        return -jnp.mean(jnp.take_along_axis(log_probs, tokens[..., None], axis=-1))

    return jax.value_and_grad(loss), (params, tokens)


def flax_nnx_cnn_train_step() -> Program:
    """One Adam step of an nnx convolutional classifier."""
    import optax
    from flax import nnx

    class Cnn(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.conv1 = nnx.Conv(1, 8, (3, 3), rngs=rngs)
            self.conv2 = nnx.Conv(8, 16, (3, 3), rngs=rngs)
            self.head = nnx.Linear(16 * 7 * 7, 10, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            x = nnx.avg_pool(nnx.relu(self.conv1(x)), (2, 2), (2, 2))
            x = nnx.avg_pool(nnx.relu(self.conv2(x)), (2, 2), (2, 2))
            return self.head(x.reshape(x.shape[0], -1))

    graph, params = nnx.split(Cnn(nnx.Rngs(0)), nnx.Param)
    optimizer = optax.adam(1e-3)

    def loss(params: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
        logits = nnx.merge(graph, params)(images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def step(params: Any, opt_state: Any, images: jax.Array, labels: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, images, labels)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    labels = jax.random.randint(jax.random.PRNGKey(2), (8,), 0, 10)
    return step, (params, optimizer.init(params), normal(1, 8, 28, 28, 1), labels)


def _optimizer_update(optimizer: Any) -> Program:
    """Program that applies one update of an optax optimizer to perceptron parameters."""
    import optax

    params = mlp_params(0, (64, 128, 128, 16))

    def step(grads: Any, opt_state: Any, params: Any) -> Any:
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    return step, (mlp_params(7, (64, 128, 128, 16)), as_arrays(optimizer.init(params)), params)


def optax_lamb_update() -> Program:
    """One clipped LAMB update under a cosine schedule."""
    import optax

    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 10, 100)
    return _optimizer_update(optax.chain(optax.clip_by_global_norm(1.0), optax.lamb(schedule)))


def optax_muon_update() -> Program:
    """One Muon update, which orthogonalises the matrices by a Newton-Schulz iteration."""
    import optax.contrib

    return _optimizer_update(optax.contrib.muon(1e-2))


def optax_lbfgs_minimize() -> Program:
    """Eight L-BFGS iterations with the zoom line search on a least-squares fit."""
    import optax

    optimizer = optax.lbfgs(memory_size=5)

    def minimize(weights: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        def loss(w: jax.Array) -> jax.Array:
            return jnp.mean((jnp.tanh(x @ w) - y) ** 2)

        def step(carry: Any, _: None) -> Any:
            w, state = carry
            value, grad = optax.value_and_grad_from_state(loss)(w, state=state)
            updates, state = optimizer.update(grad, state, w, value=value, grad=grad, value_fn=loss)
            return (optax.apply_updates(w, updates), state), value

        (w, _), values = jax.lax.scan(step, (weights, optimizer.init(weights)), length=8)
        return w, values

    return minimize, (0.1 * normal(0, 20), normal(1, 256, 20), jnp.tanh(normal(2, 256)))


def optax_ctc_loss_grad() -> Program:
    """Gradient of the connectionist temporal classification loss."""
    import optax

    def loss(logits: jax.Array, labels: jax.Array, label_padding: jax.Array) -> jax.Array:
        return optax.ctc_loss(logits, jnp.zeros(logits.shape[:2]), labels, label_padding).mean()

    labels = jax.random.randint(jax.random.PRNGKey(1), (4, 8), 1, 20)
    padding = (jnp.arange(8)[None] >= jnp.array([8, 6, 5, 3])[:, None]).astype(jnp.float32)
    return jax.value_and_grad(loss), (normal(0, 4, 30, 20), labels, padding)


def _random_graph(nodes: int, edges: int, features: int) -> Any:
    """Two-graph ``GraphsTuple`` with random edges and normal features."""
    import jraph

    half = nodes // 2
    offsets = jnp.repeat(jnp.array([0, half]), edges // 2)
    keys = jax.random.split(jax.random.PRNGKey(3))
    return jraph.GraphsTuple(
        nodes=normal(0, nodes, features),
        edges=normal(1, edges, features),
        senders=jax.random.randint(keys[0], (edges,), 0, half) + offsets,
        receivers=jax.random.randint(keys[1], (edges,), 0, half) + offsets,
        globals=normal(2, 2, features),
        n_node=jnp.array([half, half]),
        n_edge=jnp.array([edges // 2, edges // 2]),
    )


def jraph_graphnet_grad() -> Program:
    """Gradient through two rounds of full graph-network message passing."""
    import jraph

    def loss(params: Any, graph: Any) -> jax.Array:
        def updater(which: str) -> Any:
            return lambda *xs: mlp_apply(params[which], jnp.concatenate(xs, axis=-1))

        net = jraph.GraphNetwork(updater("edge"), updater("node"), updater("globals"))
        return jnp.mean(net(net(graph)).globals ** 2)

    params = {
        "edge": mlp_params(10, (64, 32, 16)),
        "node": mlp_params(20, (64, 32, 16)),
        "globals": mlp_params(30, (48, 32, 16)),
    }
    return jax.value_and_grad(loss), (params, _random_graph(40, 160, 16))


def jraph_gat_forward() -> Program:
    """Forward pass of a graph attention layer with a segment softmax."""
    import jraph

    def forward(params: Any, graph: Any) -> jax.Array:
        def logits(sent: jax.Array, received: jax.Array, edges: jax.Array) -> jax.Array:
            del edges
            return jax.nn.leaky_relu(jnp.concatenate([sent, received], axis=-1) @ params["logit"])

        layer = jraph.GAT(lambda nodes: nodes @ params["query"], logits, jax.nn.elu)
        return layer(graph).nodes

    params = {"query": normal(4, 32, 32), "logit": normal(5, 64, 1)}
    return forward, (params, _random_graph(256, 2048, 32))


def e3nn_message_passing_grad() -> Program:
    """Gradient with respect to positions through equivariant tensor-product messages."""
    import e3nn_jax as e3nn

    irreps = e3nn.Irreps("8x0e + 4x1o + 2x2e")

    def energy(pos: jax.Array, feats: jax.Array, senders: jax.Array, receivers: jax.Array) -> Any:
        vectors = pos[receivers] - pos[senders]
        harmonics = e3nn.spherical_harmonics("0e + 1o + 2e", vectors, normalize=True)
        radial = e3nn.bessel(jnp.linalg.norm(vectors, axis=-1), 4, x_max=6.0).sum(-1)
        nodes = e3nn.IrrepsArray(irreps, feats)
        messages = e3nn.tensor_product(nodes[senders], harmonics).filter(irreps) * radial[:, None]
        gathered = e3nn.scatter_sum(messages, dst=receivers, output_size=pos.shape[0])
        return jnp.sum(e3nn.norm(gathered).array)

    senders = jnp.arange(48) % 12
    receivers = (senders + 1 + jnp.arange(48) // 12) % 12
    args = (2.0 * normal(0, 12, 3), normal(1, 12, irreps.dim), senders, receivers)
    return jax.value_and_grad(energy), args


def quax_lora_grad() -> Program:
    """Gradient of a perceptron whose weights are low-rank adapted array-like values."""
    import equinox as eqx
    import quax
    from quax.examples import lora

    mlp = eqx.nn.MLP(32, 8, 64, 2, jax.nn.relu, key=jax.random.PRNGKey(0))
    adapted = lora.loraify(mlp, rank=4, key=jax.random.PRNGKey(1))
    params, static = eqx.partition(adapted, eqx.is_array)
    params = jax.tree.map(lambda leaf: leaf + 0.01, params)  # one factor starts at zero

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        model = eqx.combine(params, static)
        return jnp.mean((jax.vmap(quax.quaxify(model))(x) - y) ** 2)

    return jax.value_and_grad(loss), (params, normal(2, 256, 32), normal(3, 256, 8))


def dm_pix_augment() -> Program:
    """Random colour, flip, crop and blur augmentation of a batch of images."""
    import dm_pix as pix

    def augment(key: jax.Array, image: jax.Array) -> jax.Array:
        keys = jax.random.split(key, 6)
        image = pix.random_flip_left_right(keys[0], image)
        image = pix.random_brightness(keys[1], image, 0.2)
        image = pix.random_contrast(keys[2], image, 0.8, 1.2)
        image = pix.random_saturation(keys[3], image, 0.8, 1.2)
        image = pix.random_hue(keys[4], image, 0.1)
        image = pix.random_crop(keys[5], image, (28, 28, 3))
        return jnp.clip(pix.gaussian_blur(image, 1.0, 5), 0.0, 1.0)

    keys = jax.random.split(jax.random.PRNGKey(1), 8)
    return jax.vmap(augment), (keys, uniform(0, 8, 32, 32, 3))


def dm_pix_warp_ssim_grad() -> Program:
    """Gradient of the structural similarity of a rotated image by the angle and pixels."""
    import dm_pix as pix

    def loss(angle: jax.Array, image: jax.Array, target: jax.Array) -> jax.Array:
        rotated = pix.rotate(image, angle, mode="nearest")
        return 1.0 - pix.ssim(rotated, target)

    args = (jnp.float32(0.1), uniform(0, 32, 32, 3), uniform(1, 32, 32, 3))
    return jax.value_and_grad(loss, argnums=(0, 1)), args


WORKLOADS: dict[str, Builder] = {
    "equinox-transformer-grad": equinox_transformer_grad,
    "equinox-conv-forward": equinox_conv_forward,
    "haiku-lstm-grad": haiku_lstm_grad,
    "haiku-resnet-train-step": haiku_resnet_train_step,
    "haiku-vector-quantizer": haiku_vector_quantizer,
    "flax-linen-encoder-grad": flax_linen_encoder_grad,
    "flax-nnx-cnn-train-step": flax_nnx_cnn_train_step,
    "optax-lamb-update": optax_lamb_update,
    "optax-muon-update": optax_muon_update,
    "optax-lbfgs-minimize": optax_lbfgs_minimize,
    "optax-ctc-loss-grad": optax_ctc_loss_grad,
    "jraph-graphnet-grad": jraph_graphnet_grad,
    "jraph-gat-forward": jraph_gat_forward,
    "e3nn-message-passing-grad": e3nn_message_passing_grad,
    "quax-lora-grad": quax_lora_grad,
    "dm_pix-augment": dm_pix_augment,
    "dm_pix-warp-ssim-grad": dm_pix_warp_ssim_grad,
}
