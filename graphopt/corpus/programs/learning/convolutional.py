"""Convolutional networks with branching blocks: Inception, AmoebaNet, WaveNet."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree, conv, cross_entropy, pool

INCEPTION = Family("inception")
AMOEBANET = Family("amoebanet")
WAVENET = Family("wavenet")
FAMILIES = (INCEPTION, AMOEBANET, WAVENET)

Layer = Callable[[Array], Array]


class _Maker:
    """Makes parameters while a network is traced for its shapes, then hands them out in order.

    Attributes:
        params: (kernel, scale, bias) per convolution, in the order of use.
    """

    def __init__(self, draws: Draws | None, params: Tree = ()) -> None:
        self.draws, self.params, self._next = draws, list(params), 0

    def unit(
        self,
        x: Array,
        channels: int,
        size: tuple[int, int] = (1, 1),
        stride: int = 1,
        **options: int,
    ) -> Array:
        """Convolution, normalisation with stored statistics folded into scale and bias, ReLU."""
        groups = options.get("groups", 1)
        if self.draws is not None:
            kernel = self.draws.kernel(*size, x.shape[-1] // groups, channels)
            scale = 1.0 + self.draws.normal(channels, scale=0.1)
            self.params.append((kernel, scale, self.draws.normal(channels, scale=0.1)))
        kernel, scale, bias = self.params[self._next]
        self._next += 1
        y = conv(x, kernel, stride, feature_group_count=groups)
        return jax.nn.relu(y * scale + bias)


Network = Callable[[_Maker, Array], Array]


def _make(network: Network, x: Array, seed: int) -> tuple[Callable[[Tree, Array], Array], Tree]:
    """The network as a function of parameters, and its parameters."""
    maker = _Maker(Draws(seed))
    jax.eval_shape(lambda x: network(maker, x), x)

    def apply(params: Tree, x: Array) -> Array:
        return network(_Maker(None, params), x)

    return apply, maker.params


def _inception_a(make: _Maker, x: Array, width: int) -> Array:
    """35x35 block: 1x1, 5x5, double 3x3 and pooled branches."""
    five = make.unit(make.unit(x, width), width, (5, 5))
    triple = make.unit(make.unit(make.unit(x, width), width, (3, 3)), width, (3, 3))
    pooled = make.unit(pool(x, 3, 1, "mean"), width)
    return jnp.concatenate([make.unit(x, width), five, triple, pooled], axis=-1)


def _reduction(make: _Maker, x: Array, width: int) -> Array:
    """Grid reduction: strided 3x3, strided double 3x3, max pool."""
    double = make.unit(make.unit(make.unit(x, width), width, (3, 3)), width, (3, 3), 2)
    return jnp.concatenate([make.unit(x, width, (3, 3), 2), double, pool(x, 3, 2)], axis=-1)


def _inception_b(make: _Maker, x: Array, width: int) -> Array:
    """17x17 block: factorized 7x7 convolutions."""
    seven = make.unit(make.unit(make.unit(x, width), width, (1, 7)), width, (7, 1))
    double = make.unit(make.unit(x, width), width, (7, 1))
    double = make.unit(make.unit(double, width, (1, 7)), width, (7, 1))
    double = make.unit(double, width, (1, 7))
    pooled = make.unit(pool(x, 3, 1, "mean"), width)
    return jnp.concatenate([make.unit(x, width), seven, double, pooled], axis=-1)


def _inception_c(make: _Maker, x: Array, width: int) -> Array:
    """8x8 block: branches that fan out into 1x3 and 3x1."""
    three = make.unit(x, width)
    three = jnp.concatenate([make.unit(three, width, (1, 3)), make.unit(three, width, (3, 1))], -1)
    double = make.unit(make.unit(x, width), width, (3, 3))
    fan = [make.unit(double, width, (1, 3)), make.unit(double, width, (3, 1))]
    pooled = make.unit(pool(x, 3, 1, "mean"), width)
    return jnp.concatenate([make.unit(x, width), three, *fan, pooled], axis=-1)


def _inception_v3(make: _Maker, x: Array) -> Array:
    """The block structure of Inception-v3 at an eighth of its width; returns [B, 10] logits."""
    x = make.unit(make.unit(x, 8, (3, 3), 2), 16, (3, 3))
    x = _inception_a(make, pool(x, 3, 2), 8)
    x = _reduction(make, _inception_a(make, x, 8), 16)
    x = _inception_b(make, x, 16)
    x = _inception_c(make, _reduction(make, x, 16), 16)
    features = jnp.mean(x, axis=(1, 2))
    return make.unit(features[:, None, None], 10)[:, 0, 0]


def _network_loss(
    apply: Callable[[Tree, Array], Array],
) -> Callable[[Tree, Array, Array], Array]:
    def loss(params: Tree, x: Array, labels: Array) -> Array:
        return cross_entropy(apply(params, x), labels)

    return loss


@INCEPTION.program("inception_v3_forward", "scaled-down Inception-v3 logits of f32[1,64,64,3]")
def _inception_v3_forward() -> Built:
    x = Draws(0).normal(1, 64, 64, 3)
    apply, params = _make(_inception_v3, x, 0)
    return apply, (params, x)


@INCEPTION.program(
    "inception_v3_grad",
    "scaled-down Inception-v3, loss and gradient on f32[2,32,32,3]",
    gradient=True,
)
def _inception_v3_grad() -> Built:
    draws = Draws(1)
    x = draws.normal(2, 32, 32, 3)
    apply, params = _make(_inception_v3, x, 1)
    return jax.value_and_grad(_network_loss(apply)), (params, x, draws.integers(10, 2))


@INCEPTION.program("inception_a_block", "35x35-type block on f32[2,24,24,32]")
def _inception_a_block() -> Built:
    x = Draws(2).normal(2, 24, 24, 32)
    apply, params = _make(lambda make, x: _inception_a(make, x, 16), x, 2)
    return apply, (params, x)


@INCEPTION.program(
    "inception_b_grad",
    "gradient of a reduction and a factorized 7x7 block, f32[1,16,16,16]",
    gradient=True,
)
def _inception_b_grad() -> Built:
    x = Draws(3).normal(1, 16, 16, 16)

    def network(make: _Maker, x: Array) -> Array:
        return _inception_b(make, _reduction(make, x, 12), 12)

    apply, params = _make(network, x, 3)
    return jax.grad(lambda params, x: jnp.mean(apply(params, x) ** 2)), (params, x)


def _separable(make: _Maker, x: Array, channels: int, size: int, stride: int = 1) -> Array:
    """Depthwise, then pointwise convolution."""
    x = make.unit(x, x.shape[-1], (size, size), stride, groups=x.shape[-1])
    return make.unit(x, channels)


def _normal_cell(make: _Maker, before: Array, x: Array, width: int) -> Array:
    """AmoebaNet-A's normal cell: five pairwise combinations of two inputs."""
    left, right = make.unit(before, width), make.unit(x, width)
    first = pool(left, 3, 1, "mean") + pool(right, 3, 1)
    second = right + pool(left, 3, 1, "mean")
    third = _separable(make, left, width, 3) + _separable(make, second, width, 5)
    fourth = _separable(make, right, width, 3) + right
    fifth = pool(right, 3, 1, "mean") + _separable(make, left, width, 3)
    return jnp.concatenate([first, third, fourth, fifth], axis=-1)


def _reduction_cell(make: _Maker, before: Array, x: Array, width: int) -> Array:
    """AmoebaNet-A's reduction cell: every path has one operation of stride two."""
    left, right = make.unit(before, width), make.unit(x, width)
    first = pool(left, 3, 2, "mean") + _separable(make, right, width, 3, 2)
    second = pool(left, 3, 2) + make.unit(make.unit(right, width, (1, 7), 2), width, (7, 1))
    third = _separable(make, left, width, 7, 2) + pool(first, 3, 1, "mean")
    fourth = _separable(make, first, width, 3) + pool(right, 3, 2)
    return jnp.concatenate([second, third, fourth], axis=-1)


def _amoebanet(make: _Maker, x: Array) -> Array:
    x = make.unit(x, 12, (3, 3), 2)
    first = _normal_cell(make, x, x, 8)
    second = _normal_cell(make, x, first, 8)
    third = _reduction_cell(make, first, second, 12)
    fourth = _normal_cell(make, third, third, 12)
    features = jnp.mean(jax.nn.relu(fourth), axis=(1, 2))
    return make.unit(features[:, None, None], 10)[:, 0, 0]


@AMOEBANET.program("amoebanet_forward", "three normal cells and a reduction cell, f32[2,32,32,3]")
def _amoebanet_forward() -> Built:
    x = Draws(4).normal(2, 32, 32, 3)
    apply, params = _make(_amoebanet, x, 4)
    return apply, (params, x)


@AMOEBANET.program(
    "amoebanet_grad", "loss and gradient of a four-cell AmoebaNet on f32[2,16,16,3]", gradient=True
)
def _amoebanet_grad() -> Built:
    draws = Draws(5)
    x = draws.normal(2, 16, 16, 3)
    apply, params = _make(_amoebanet, x, 5)
    return jax.value_and_grad(_network_loss(apply)), (params, x, draws.integers(10, 2))


@AMOEBANET.program("amoebanet_normal_cell", "one normal cell on f32[1,28,28,24]")
def _amoebanet_normal_cell() -> Built:
    x = Draws(6).normal(1, 28, 28, 24)
    apply, params = _make(lambda make, x: _normal_cell(make, x, jnp.roll(x, 1, axis=1), 16), x, 6)
    return apply, (params, x)


@AMOEBANET.program("amoebanet_reduction_grad", "gradient of a reduction cell", gradient=True)
def _amoebanet_reduction_grad() -> Built:
    x = Draws(7).normal(1, 16, 16, 16)
    apply, params = _make(lambda make, x: _reduction_cell(make, x, x, 12), x, 7)
    return jax.grad(lambda p, x: jnp.mean(apply(p, x) ** 2), argnums=(0, 1)), (params, x)


def _wavenet_params(draws: Draws, layers: int, width: int) -> Tree:
    def layer() -> Tree:
        return {
            "gate": draws.normal(2, width, 2 * width, scale=0.7 * width**-0.5),
            "skip": draws.dense(width, width),
            "residual": draws.dense(width, width),
        }

    return {
        "embed": draws.normal(64, width),
        "layers": [layer() for _ in range(layers)],
        "out": draws.dense(width, 64),
    }


def _gated(layer: Tree, past: Array, now: Array) -> Array:
    mixed = past @ layer["gate"][0] + now @ layer["gate"][1]
    filtered, gate = jnp.split(mixed, 2, axis=-1)
    return jnp.tanh(filtered) * jax.nn.sigmoid(gate)


def _wavenet_loss(params: Tree, samples: Array) -> Array:
    """Cross entropy of predicting i32[B, T] samples one ahead; dilations 1, 2, 4, ..."""
    x = params["embed"][samples[:, :-1]]
    skips = jnp.zeros_like(x)
    for depth, layer in enumerate(params["layers"]):
        hidden = _gated(layer, _delayed(x, 2 ** (depth % 6)), x)
        skips = skips + hidden @ layer["skip"]
        x = x + hidden @ layer["residual"]
    return cross_entropy(jax.nn.relu(skips) @ params["out"], samples[:, 1:])


def _delayed(x: Array, steps: int) -> Array:
    return jnp.pad(x, ((0, 0), (steps, 0), (0, 0)))[:, : x.shape[1]]


@WAVENET.program("wavenet_forward", "12 gated dilated layers over i32[2,257], width 32")
def _wavenet_forward() -> Built:
    draws = Draws(8)
    return _wavenet_loss, (_wavenet_params(draws, 12, 32), draws.integers(64, 2, 257))


@WAVENET.program(
    "wavenet_grad", "gradient through 8 gated dilated layers over i32[2,129]", gradient=True
)
def _wavenet_grad() -> Built:
    draws = Draws(9)
    params = _wavenet_params(draws, 8, 32)
    return jax.value_and_grad(_wavenet_loss), (params, draws.integers(64, 2, 129))


@WAVENET.program(
    "wavenet_generate",
    "60 samples from 6 layers with queues f32[32,2,32] updated in place",
    loops=True,
)
def _wavenet_generate() -> Built:
    draws = Draws(10)

    def generate(params: Tree, first: Array) -> Tree:
        queues = [jnp.zeros((2**depth, 2, 32)) for depth in range(len(params["layers"]))]

        def step(carry: Tree, time: Array) -> tuple[Tree, Tree]:
            queues, sample = carry
            x, skips, fresh = params["embed"][sample], jnp.zeros((2, 32)), []
            for layer, queue in zip(params["layers"], queues, strict=True):
                slot = time % queue.shape[0]
                past = lax.dynamic_index_in_dim(queue, slot, keepdims=False)
                fresh.append(lax.dynamic_update_index_in_dim(queue, x, slot, 0))
                hidden = _gated(layer, past, x)
                skips = skips + hidden @ layer["skip"]
                x = x + hidden @ layer["residual"]
            logits = jax.nn.relu(skips) @ params["out"]
            sample = jnp.argmax(logits, axis=-1).astype(jnp.int32)
            return (fresh, sample), (sample, jnp.max(logits, axis=-1))

        return lax.scan(step, (queues, first), jnp.arange(60))[1]

    return generate, (_wavenet_params(draws, 6, 32), draws.integers(64, 2))


@WAVENET.program(
    "wavenet_conditioned",
    "six dilated convolutions conditioned on upsampled features, f32[2,256,24]",
)
def _wavenet_conditioned() -> Built:
    draws = Draws(11)
    kernels = [draws.normal(2, 24, 48, scale=0.15) for _ in range(6)]
    conditions = [draws.dense(16, 48) for _ in range(6)]

    def run(kernels: Tree, conditions: Tree, x: Array, features: Array) -> Array:
        features = jnp.repeat(features, x.shape[1] // features.shape[1], axis=1)
        for depth, (kernel, condition) in enumerate(zip(kernels, conditions, strict=True)):
            dilation = 2**depth
            mixed = lax.conv_general_dilated(
                x, kernel, (1,), [(dilation, 0)], rhs_dilation=(dilation,),
                dimension_numbers=("NWC", "WIO", "NWC"),
            )  # fmt: skip
            filtered, gate = jnp.split(mixed + features @ condition, 2, axis=-1)
            x = x + jnp.tanh(filtered) * jax.nn.sigmoid(gate)
        return x

    return run, (kernels, conditions, draws.normal(2, 256, 24), draws.normal(2, 16, 16))
