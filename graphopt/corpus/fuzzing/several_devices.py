"""Small programs over all CPU devices of the process: collectives of every kind, in loops and branches.

With one device they are ordinary programs. Sizes are per device, so that any number of devices divides them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from graphopt.corpus.inputs import normal
from graphopt.corpus.program import Built, ProgramSet

lax: Any = jax.lax
P: Any = PartitionSpec

DEVICES = ProgramSet()

RANDOM: Final = 8
"""Random programs in the set."""

AXIS: Final = "d"


def _mesh() -> Mesh:
    return Mesh(np.array(jax.devices("cpu")), (AXIS,))


def _count() -> int:
    return len(jax.devices("cpu"))


def _on_each(
    fn: Callable[..., Any], *args: Any, whole: tuple[int, ...] = (), results: Any = None
) -> Built:
    """`fn` on every device, over a piece of each argument's first axis, or all of it for those in `whole`."""
    given = tuple(P() if i in whole else P(AXIS) for i in range(len(args)))
    mapped = jax.shard_map(
        fn, mesh=_mesh(), in_specs=given, out_specs=P(AXIS) if results is None else results,
        check_vma=False,
    )  # fmt: skip
    return mapped, args


def _ring(step: int = 1) -> list[tuple[int, int]]:
    count = _count()
    return [(i, (i + step) % count) for i in range(count)]


@DEVICES.register("all_kinds", family="collective", description="every collective on f32[8] pieces")
def _all_kinds() -> Built:
    count = _count()

    def fn(x: Array, rows: Array) -> Any:
        total = lax.psum(jnp.tanh(x) * 2.0, AXIS)
        everything = lax.all_gather(jnp.sin(x), AXIS)
        neighbour = lax.ppermute(x * 0.5, AXIS, _ring())
        part = lax.psum_scatter(rows, AXIS, tiled=True)
        swapped = lax.all_to_all(jnp.cos(rows), AXIS, 0, 0, tiled=True)
        largest = lax.pmax(x, AXIS) - lax.pmin(neighbour, AXIS)
        here = lax.axis_index(AXIS).astype(jnp.float32)
        rest = everything.sum(0) * 0.1 + part.sum() + swapped.sum() * 0.01
        return total + neighbour + largest + rest + here

    return _on_each(fn, normal(8 * count), normal(count * 4 * count, 3))


@DEVICES.register("sum_in_scan", family="collective", description="two sums per step, f32[16]")
def _sum_in_scan() -> Built:
    def fn(x: Array) -> Any:
        def body(state: Array, step: Array) -> Any:
            mean = lax.pmean(jnp.sin(state) + step, AXIS)
            spread = lax.pmean((state - mean) ** 2, AXIS)
            state = jnp.tanh(state - 0.3 * mean) * lax.rsqrt(1.0 + spread)
            return state, state.sum()[None]

        return lax.scan(body, x, jnp.arange(12.0) * 0.1)

    return _on_each(fn, normal(16 * _count()), results=(P(AXIS), P(None, AXIS)))


@DEVICES.register(
    "halo_steps", family="collective", description="ring exchange of a f32[12,6] stencil"
)
def _halo_steps() -> Built:
    def fn(field: Array) -> Any:
        def body(_: Array, field: Array) -> Any:
            above = lax.ppermute(field[-1:], AXIS, _ring(1))
            below = lax.ppermute(field[:1], AXIS, _ring(-1))
            wide = jnp.concatenate([above, field, below])
            return 0.5 * field + 0.25 * (wide[:-2] + wide[2:])

        return lax.fori_loop(0, 9, body, field)

    return _on_each(fn, normal(12 * _count(), 6))


@DEVICES.register("branching", family="collective", description="collectives inside equal branches")
def _branching() -> Built:
    def fn(x: Array) -> Any:
        def odd(x: Array) -> Any:
            return jnp.sin(lax.ppermute(x, AXIS, _ring())) + lax.psum(x, AXIS) * 0.1

        def even(x: Array) -> Any:
            return lax.pmax(jnp.cos(x), AXIS) - x

        def body(step: Array, x: Array) -> Any:
            return lax.cond(step % 3 == 1, odd, even, jnp.tanh(x))

        return lax.fori_loop(0, 7, body, x)

    return _on_each(fn, normal(10 * _count()))


@DEVICES.register(
    "until_all_small", family="collective", description="a loop that all devices leave at once"
)
def _until_all_small() -> Built:
    def fn(x: Array) -> Any:
        def go_on(carry: tuple[Array, Array]) -> Any:
            return (lax.pmax(jnp.abs(carry[0]).max(), AXIS) > 0.25) & (carry[1] < 40)

        def body(carry: tuple[Array, Array]) -> Any:
            x, steps = carry
            return x * 0.8 - 0.01 * lax.pmean(x, AXIS), steps + 1

        x, steps = lax.while_loop(go_on, body, (x, jnp.int32(0)))
        return x, steps[None]

    return _on_each(fn, normal(6 * _count()))


@DEVICES.register(
    "data_parallel", family="collective", description="4 SGD steps of an MLP, mean gradients"
)
def _data_parallel() -> Built:
    def fn(x: Array, first: Array, second: Array) -> Any:
        def loss(weights: tuple[Array, Array]) -> Array:
            hidden = jnp.tanh(x @ weights[0])
            return ((hidden @ weights[1] - jnp.sin(x[:, :1])) ** 2).mean()

        def body(weights: Any, _: None) -> Any:
            found = jax.tree.map(lambda g: lax.pmean(g, AXIS), jax.grad(loss)(weights))
            return jax.tree.map(lambda w, g: w - 0.1 * g, weights, found), None

        return lax.scan(body, (first, second), None, length=4)[0]

    args = (normal(16 * _count(), 6), normal(6, 8), normal(8, 1))
    return _on_each(fn, *args, whole=(1, 2), results=P())


@DEVICES.register(
    "tables_in_place", family="collective", description="updated tables, scatter, gather"
)
def _tables_in_place() -> Built:
    def fn(x: Array, table: Array) -> Any:
        def body(step: Array, carry: tuple[Array, Array]) -> Any:
            x, table = carry
            table = table.at[step].set(lax.psum(x, AXIS) * 0.05)
            table = table.at[(step + 2) % 6].add(jnp.sin(x))
            return jnp.tanh(x + table[(step * 5) % 6]), table

        x, table = lax.fori_loop(0, 6, body, (x, table))
        return lax.all_gather(table, AXIS).sum(0) + x

    return _on_each(fn, normal(6 * _count()), normal(6, 6), whole=(1,))


@DEVICES.register(
    "random_walk", family="collective", description="keys per device, f32[64] draws in a scan"
)
def _random_walk() -> Built:
    def fn(x: Array) -> Any:
        key = jax.random.fold_in(jax.random.key(3), lax.axis_index(AXIS))

        def body(x: Array, step: Array) -> Any:
            x = 0.9 * x + 0.1 * jax.random.normal(jax.random.fold_in(key, step), x.shape)
            return x, lax.pmean(x.mean(), AXIS)[None]

        return lax.scan(body, x, jnp.arange(5))

    return _on_each(fn, normal(64 * _count()), results=(P(AXIS), P(None)))


def _sharded(fn: Callable[..., Any], *args: Any) -> Built:
    """Partitioned by XLA: first axes over the devices, as far as they divide."""
    mesh, count = _mesh(), _count()

    def place(x: Any) -> Any:
        return jax.device_put(x, NamedSharding(mesh, P(AXIS) if x.shape[0] % count == 0 else P()))

    return fn, tuple(place(jnp.asarray(x)) for x in args)


@DEVICES.register(
    "normalized", family="partitioned", description="softmax and layer norm over cut axes"
)
def _normalized() -> Built:
    def fn(x: Array, w: Array) -> Any:
        scores = jax.nn.softmax(x @ w, axis=0)
        centred = scores - scores.mean(0)
        normed = centred * lax.rsqrt((centred**2).mean(0) + 1e-3)
        return normed, jnp.sort(normed.sum(1))

    return _sharded(fn, normal(4 * _count(), 8), normal(8, 16))


@DEVICES.register(
    "odd_pieces", family="partitioned", description="axes that no number of devices divides"
)
def _odd_pieces() -> Built:
    mesh = _mesh()

    def fn(x: Array) -> Any:
        padded = lax.with_sharding_constraint(
            jnp.pad(jnp.sin(x), ((1, 2), (0, 0))), NamedSharding(mesh, P(AXIS, None))
        )
        turned = lax.with_sharding_constraint(padded.T @ padded, NamedSharding(mesh, P(None, AXIS)))
        return padded.cumsum(0)[::2], jnp.roll(turned, 1, 0).max(1)

    return _sharded(fn, normal(4 * _count(), 5))


@DEVICES.register(
    "empty_and_narrow", family="collective", description="no elements, s8 and bf16 collectives"
)
def _empty_and_narrow() -> Built:
    def fn(x: Array) -> Any:
        nothing = lax.psum(x[:0], AXIS)
        small = lax.all_gather((x * 3).astype(jnp.int8), AXIS).astype(jnp.float32).sum(0)
        half = lax.psum(x.astype(jnp.bfloat16), AXIS).astype(jnp.float32)
        narrow = lax.ppermute(x.astype(jnp.float8_e4m3fn), AXIS, _ring()).astype(jnp.float32)
        return jnp.concatenate([nothing, small]), half * 0.5, narrow + x

    return _on_each(fn, normal(8 * _count()))


@DEVICES.register("looks_outside", family="collective", description="callbacks between collectives")
def _looks_outside() -> Built:
    def fn(x: Array) -> Any:
        def body(step: Array, x: Array) -> Any:
            jax.debug.callback(lambda *_: None, x[0], step)
            total = lax.psum(x, AXIS)
            jax.debug.callback(lambda *_: None, total[0])
            return jnp.tanh(x + 0.1 * total) - lax.pmean(x, AXIS)

        return lax.fori_loop(0, 4, body, x)

    return _on_each(fn, normal(8 * _count()))


_STEPS: Final[tuple[Callable[[Array, Array], Array], ...]] = (
    lambda a, b: jnp.tanh(a) + 0.5 * jnp.cos(b),
    lambda a, b: jnp.where(b > 0.3183, a, 0.5 * b),
    lambda a, b: a - a.mean(0) + jnp.sin(b).sum(1, keepdims=True) * 0.1,
    lambda a, b: jnp.tanh(a @ b.T) @ b * 0.2,
    lambda a, b: lax.pmean(a, AXIS) - b,
    lambda a, b: a * 0.5 + lax.pmax(b, AXIS),
    lambda a, b: lax.ppermute(a, AXIS, _ring()) * jnp.cos(b),
    lambda a, b: jnp.tanh(lax.all_gather(a, AXIS).sum(0) * 0.3) + b * 0.1,
    lambda a, b: a.at[1].set(lax.ppermute(b[0], AXIS, _ring(-1))),
    lambda a, b: lax.fori_loop(0, 8, lambda i, v: jnp.sin(v) + 0.1 * lax.pmean(b, AXIS), a),
    lambda a, b: lax.fori_loop(0, 5, lambda i, v: jnp.cos(v) * 0.9 + 0.1 * b, a),
)
"""Operations on f32[6,5] values, of one device or of all."""


def _random(seed: int) -> Callable[[], Built]:
    def build() -> Built:
        def fn(x: Array, y: Array) -> Any:
            rng = np.random.default_rng(seed)
            values = [x, y]
            for _ in range(14):
                a, b = (values[-1 - int(rng.integers(min(5, len(values))))] for _ in range(2))
                values.append(_STEPS[int(rng.integers(len(_STEPS)))](a, b))
            return tuple(values[-3:])

        return _on_each(fn, normal(6 * _count(), 5), normal(6 * _count(), 5, seed=1))

    return build


for _seed in range(RANDOM):
    DEVICES.register(
        f"meetings_{_seed}",
        family="collective",
        description="random operations and collectives on f32[6,5] pieces",
    )(_random(_seed))
