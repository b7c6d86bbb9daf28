"""Graph networks, optimizers of optax, units and images."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.tutorials.common import Builder, Program, as_arrays, normal, uniform


def jraph_molecule_gcn_train_step() -> Program:
    """Graph classification in the way of ogbg_molpcba: padded batch, GCN layers, masked loss, Adam."""
    import haiku as hk
    import jraph
    import numpy as np
    import optax

    rng = np.random.default_rng(0)
    graphs = []
    for _ in range(16):
        n, e = int(rng.integers(8, 20)), int(rng.integers(16, 40))
        graphs.append(
            jraph.GraphsTuple(
                nodes=rng.normal(size=(n, 9)).astype(np.float32),
                edges=rng.normal(size=(e, 3)).astype(np.float32),
                senders=rng.integers(0, n, e),
                receivers=rng.integers(0, n, e),
                n_node=np.array([n]),
                n_edge=np.array([e]),
                globals=np.zeros((1, 1), np.float32),
            )
        )
    graph = jraph.pad_with_graphs(jraph.batch_np(graphs), 320, 640, 17)
    graph = jax.tree.map(jnp.asarray, graph)

    def forward(graph: Any) -> jax.Array:
        graph = graph._replace(nodes=hk.Linear(64)(graph.nodes))
        for _ in range(3):
            gcn = jraph.GraphConvolution(
                update_node_fn=lambda n: jax.nn.relu(hk.Linear(64)(n)), add_self_edges=True
            )
            graph = gcn(graph)
        index = jnp.repeat(jnp.arange(17), graph.n_node, total_repeat_length=320)
        pooled = jraph.segment_mean(graph.nodes, index, 17)
        return hk.Linear(2)(pooled)

    net = hk.without_apply_rng(hk.transform(forward))
    params = net.init(jax.random.PRNGKey(0), graph)
    opt = optax.adam(1e-3)
    labels = jax.random.randint(jax.random.PRNGKey(1), (17,), 0, 2)

    def step(params: Any, state: Any, graph: Any, labels: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            mask = jraph.get_graph_padding_mask(graph)
            logits = net.apply(params, graph)
            xent = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            return jnp.sum(xent * mask) / jnp.sum(mask)

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = opt.update(grads, state)
        return optax.apply_updates(params, updates), state, value

    return step, (params, opt.init(params), graph, labels)


def jraph_karate_interaction_network_grad() -> Program:
    """Node classification of a club of 34 by an interaction network, 5 SGD steps on two labels."""
    import jraph
    import networkx as nx
    import numpy as np

    edges = np.array(nx.karate_club_graph().edges)
    senders = jnp.asarray(np.concatenate([edges[:, 0], edges[:, 1]]), jnp.int32)
    receivers = jnp.asarray(np.concatenate([edges[:, 1], edges[:, 0]]), jnp.int32)
    graph = jraph.GraphsTuple(
        nodes=jnp.eye(34),
        edges=jnp.ones((len(senders), 1)),
        senders=senders,
        receivers=receivers,
        n_node=jnp.array([34]),
        n_edge=jnp.array([len(senders)]),
        globals=None,
    )

    def apply(params: Any, graph: Any) -> jax.Array:
        first = jraph.InteractionNetwork(
            update_edge_fn=lambda e, s, r: jax.nn.relu(
                jnp.concatenate([e, s, r], -1) @ params["e1"]
            ),
            update_node_fn=lambda n, r: jax.nn.relu(jnp.concatenate([n, r], -1) @ params["n1"]),
        )
        second = jraph.InteractionNetwork(
            update_edge_fn=lambda e, s, r: jax.nn.relu(
                jnp.concatenate([e, s, r], -1) @ params["e2"]
            ),
            update_node_fn=lambda n, r: jnp.concatenate([n, r], -1) @ params["n2"],
        )
        return second(first(graph)).nodes

    def train(params: Any, graph: Any) -> Any:
        def loss(params: Any) -> jax.Array:
            logp = jax.nn.log_softmax(apply(params, graph))
            return -(logp[0, 0] + logp[33, 1])

        def step(params: Any, _: None) -> Any:
            value, grads = jax.value_and_grad(loss)(params)
            return jax.tree.map(lambda p, g: p - 0.05 * g, params, grads), value

        params, losses = jax.lax.scan(step, params, None, length=5)
        return apply(params, graph).argmax(-1), losses

    params = {
        "e1": 0.1 * normal(0, 69, 16),
        "n1": 0.1 * normal(1, 50, 16),
        "e2": 0.1 * normal(2, 48, 16),
        "n2": 0.1 * normal(3, 32, 2),
    }
    return train, (params, graph)


_PIECES = [
    [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 1, 0]],
    [[1, 1, 1], [1, 1, 2], [2, 1, 1], [2, 0, 1]],
    [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]],
    [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 0, 3]],
    [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]],
    [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0]],
    [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 1]],
    [[0, 0, 0], [1, 0, 0], [1, 1, 0], [2, 1, 0]],
]
"""Where the four blocks of each of eight pieces lie."""


def _tetris_network() -> Any:
    """Two equivariant layers with gates, and one score per piece and class."""
    import e3nn_jax as e3nn
    import flax.linen as nn

    class Layer(nn.Module):
        target: str
        denominator: float = 1.5

        @nn.compact
        def __call__(self, nodes: Any, sh: Any, senders: jax.Array, receivers: jax.Array) -> Any:
            target = e3nn.Irreps(self.target)
            messages = nodes[senders]
            messages = e3nn.concatenate([messages, e3nn.tensor_product(messages, sh)])
            gathered = e3nn.scatter_sum(messages, dst=receivers, output_size=32) / self.denominator
            gates = e3nn.Irreps(f"{sum(m for m, ir in target if ir.l > 0)}x0e")
            shortcut = e3nn.flax.Linear(target)(nodes)
            out = (
                e3nn.gate(e3nn.flax.Linear(gates + target)(gathered).sort().regroup())
                if gates.dim
                else e3nn.flax.Linear(target)(gathered)
            )
            return out + shortcut if out.irreps == shortcut.irreps else out

    class Model(nn.Module):
        @nn.compact
        def __call__(self, pos: jax.Array, senders: jax.Array, receivers: jax.Array) -> jax.Array:
            sh = e3nn.spherical_harmonics("1o + 2e", pos[receivers] - pos[senders], True)
            nodes = e3nn.IrrepsArray("0e", jnp.ones((32, 1)))
            for irreps in ("16x0e + 8x1o + 4x2e", "16x0e + 8x1o + 4x2e"):
                nodes = Layer(irreps)(nodes, sh, senders, receivers)
            nodes = e3nn.flax.Linear("8x0e")(nodes)
            return e3nn.scatter_sum(nodes, dst=jnp.repeat(jnp.arange(8), 4), output_size=8).array

    return Model()


def e3nn_tetris_train_step() -> Program:
    """Tetris example: flax layers with equivariant linear maps and gates on eight pieces, Adam step."""
    import optax

    pos = jnp.array(_PIECES, jnp.float32).reshape(32, 3)
    pairs = [
        (8 * 0 + 4 * g + i, 4 * g + j)
        for g in range(8)
        for i in range(4)
        for j in range(4)
        if i != j
    ]
    senders, receivers = (jnp.array(v, jnp.int32) for v in zip(*pairs, strict=True))

    model = _tetris_network()
    params = model.init(jax.random.PRNGKey(0), pos, senders, receivers)
    opt = optax.adam(1e-2)

    def step(
        params: Any, state: Any, pos: jax.Array, senders: jax.Array, receivers: jax.Array
    ) -> Any:
        def loss(params: Any) -> jax.Array:
            logits = model.apply(params, pos, senders, receivers)
            return optax.softmax_cross_entropy_with_integer_labels(logits, jnp.arange(8)).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = opt.update(grads, state)
        return optax.apply_updates(params, updates), state, value

    return step, (params, opt.init(params), pos, senders, receivers)


def optax_sophia_cnn_steps() -> Program:
    """Sophia with its Hutchinson diagonal Hessian on a small convolutional network, 2 steps."""
    import optax
    from flax import linen as nn
    from optax import contrib

    class CNN(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            x = nn.avg_pool(nn.gelu(nn.Conv(8, (3, 3))(x)), (2, 2), (2, 2))
            x = nn.avg_pool(nn.gelu(nn.Conv(16, (3, 3))(x)), (2, 2), (2, 2))
            return nn.Dense(10)(x.reshape(x.shape[0], -1))

    model = CNN()
    x = normal(0, 8, 12, 12, 1)
    y = jax.random.randint(jax.random.PRNGKey(1), (8,), 0, 10)
    params = model.init(jax.random.PRNGKey(2), x)
    opt = contrib.sophia(
        1e-3,
        update_interval=2,
        hessian_diagonal_fn=contrib.hutchinson_estimator_diag_hessian(jax.random.PRNGKey(3)),
    )

    def train(params: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            logits = model.apply(params, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        def step(carry: Any, _: None) -> Any:
            params, state = carry
            value, grads = jax.value_and_grad(loss)(params)
            updates, state = opt.update(grads, state, params, obj_fn=loss)
            return (optax.apply_updates(params, updates), state), value

        (params, _), losses = jax.lax.scan(step, (params, state), None, length=2)
        return params, losses

    return train, (params, as_arrays(opt.init(params)), x, y)


def optax_dp_lookahead_multi_transform_steps() -> Program:
    """Private per-example gradients, then galore/adopt/cocob by parameter label, 3 steps of an MLP."""
    import optax
    from optax import contrib

    def init(i: int, a: int, b: int) -> Any:
        return {"w": normal(i, a, b) / a**0.5, "b": jnp.zeros(b)}

    params = {"l1": init(0, 20, 64), "l2": init(1, 64, 64), "l3": init(2, 64, 5)}
    opt = optax.chain(
        contrib.differentially_private_aggregate(1.0, 0.5, 0),
        optax.multi_transform(
            {"w": contrib.adopt(1e-3), "b": optax.chain(optax.trace(0.9), optax.scale(-0.01))},
            lambda p: {k: {"w": "w", "b": "b"} for k in p},
        ),
    )
    x = normal(3, 64, 20)
    y = jax.random.randint(jax.random.PRNGKey(4), (64,), 0, 5)

    def loss(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        h = jax.nn.relu(x @ p["l1"]["w"] + p["l1"]["b"])
        h = jax.nn.relu(h @ p["l2"]["w"] + p["l2"]["b"])
        logits = h @ p["l3"]["w"] + p["l3"]["b"]
        return optax.safe_softmax_cross_entropy(logits, jax.nn.one_hot(y, 5))

    def train(params: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
        def step(carry: Any, _: None) -> Any:
            params, state = carry
            values, grads = jax.vmap(jax.value_and_grad(loss), (None, 0, 0))(params, x, y)
            updates, state = opt.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), values.mean()

        (params, _), losses = jax.lax.scan(step, (params, state), None, length=3)
        return params, losses

    return train, (params, opt.init(params), x, y)


def quax_unitful_leapfrog() -> Program:
    """Values with units through quaxify: 20 steps of 10 springs in metres, with energies in square metres."""
    import quax
    from quax.examples.unitful import Unitful, meters

    def force(x: Any, k: Any) -> Any:
        return k * x

    def kick(w: Any, x: Any, k: Any, inv_mass: Any) -> Any:
        return w + inv_mass * force(x, k)

    def drift(x: Any, w: Any) -> Any:
        return x + w

    def energy(x: Any, w: Any, mass: Any) -> Any:
        return mass * w**2 + x**2

    def run(x: jax.Array, w: jax.Array, mass: jax.Array) -> Any:
        def step(carry: Any, _: None) -> Any:
            x, w = (Unitful(v, {meters: 1}) for v in carry)
            w = quax.quaxify(kick)(w, x, jnp.float32(-0.01), 1.0 / mass)
            x = quax.quaxify(drift)(x, w)
            total = quax.quaxify(energy)(x, w, mass)
            return (x.array, w.array), (x.array, total.array.sum())

        return jax.lax.scan(step, (x, w), None, length=20)

    return run, (normal(0, 10, 3), 0.05 * normal(1, 10, 3), 1.0 + uniform(2, 10, 3))


def dm_pix_colour_rotate_batch() -> Program:
    """Rotation, elastic deformation, hue and contrast jitter and patches of eight 32 x 32 images."""
    import dm_pix as pix

    def augment(key: jax.Array, images: jax.Array) -> Any:
        def one(key: jax.Array, image: jax.Array) -> Any:
            k1, k2, k3, k4 = jax.random.split(key, 4)
            angle = jax.random.uniform(k1, (), minval=-0.3, maxval=0.3)
            image = pix.rotate(image, angle, order=1, mode="nearest")
            image = pix.elastic_deformation(k2, image, alpha=2.0, sigma=1.0)
            image = pix.random_hue(k3, image, max_delta=0.1)
            image = pix.random_contrast(k4, image, lower=0.7, upper=1.3)
            return pix.rgb_to_hsl(jnp.clip(image, 0, 1)), pix.solarize(image, 0.6)

        hsl, solar = jax.vmap(one)(jax.random.split(key, images.shape[0]), images)
        patches = pix.extract_patches(solar, (1, 8, 8, 1), (1, 8, 8, 1), (1, 1, 1, 1))
        return hsl, patches

    return augment, (jax.random.PRNGKey(0), uniform(1, 8, 32, 32, 3))


WORKLOADS: dict[str, Builder] = {
    "jraph-padded-gcn-step": jraph_molecule_gcn_train_step,
    "jraph-karate-club-steps": jraph_karate_interaction_network_grad,
    "e-three-nn-tetris-step": e3nn_tetris_train_step,
    "optax-sophia-convnet-steps": optax_sophia_cnn_steps,
    "optax-private-multi-transform-steps": optax_dp_lookahead_multi_transform_steps,
    "quax-unitful-springs": quax_unitful_leapfrog,
    "dm-pix-colour-rotate-batch": dm_pix_colour_rotate_batch,
}
