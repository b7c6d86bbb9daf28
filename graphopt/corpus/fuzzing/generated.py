"""Random programs and graphs from a seed, for fuzzing and for measuring how costs grow with size.

Every operation keeps values of order one and amplifies rounding errors little, so that results of two
compiles can be compared within a dtype's tolerance.  Integers depend on integers only, so that no rounding
decides one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built, Program
from graphopt.errors import ConfigError
from graphopt.hlo import Graph, build_graph
from graphopt.hlo.module.repeat import repeat_module

SETS: Final = 64
"""Programs in the set ``generated``."""

_UNARY: Final[tuple[Callable[[Array], Array], ...]] = (
    jnp.tanh, jnp.sin, jnp.cos, jnp.abs, jnp.negative, jax.nn.sigmoid, jnp.arctan,
    lambda x: jnp.exp(-x * x),
    lambda x: jnp.log1p(jnp.abs(x)),
    lambda x: lax.rsqrt(1.0 + x * x),
    lambda x: jnp.clip(x, -1.0, 0.75),
)  # fmt: skip

_BINARY: Final[tuple[Callable[[Array, Array], Array], ...]] = (
    lambda a, b: 0.5 * (a + b),
    lambda a, b: 0.5 * (a - b),
    lambda a, b: jnp.tanh(a) * jnp.cos(b),
    jnp.maximum,
    jnp.minimum,
    lambda a, b: a / (1.0 + jnp.abs(b)),
    lambda a, b: jnp.where(b > 0.3183, a, b),
)

_INTEGER: Final[tuple[Callable[[Array, Array], Array], ...]] = (
    lambda a, b: a + b,
    lambda a, b: a ^ (b << 3),
    lambda a, b: jnp.where(a > b, a - b, b),
    lambda a, b: (a * 31 + b) & 0xFFFF,
    lambda a, b: lax.population_count(a | b),
)


class _Grower:
    """Grows a program by adding random operations on the values that it has.

    Attributes:
        values: f32[R, C] values, inputs and everything computed from them.
        counts: i32[R, C] values.
        index: i32[R] row numbers below R.
    """

    def __init__(
        self, rng: np.random.Generator, values: list[Array], counts: list[Array], index: Array
    ) -> None:
        self.rng, self.values, self.counts, self.index = rng, values, counts, index

    def pick(self) -> Array:
        """A random value, a recent one in most cases: graphs are deep as well as wide."""
        recent = self.values[-6:] if self.rng.random() < 0.7 else self.values
        return recent[self.rng.integers(len(recent))]

    def choose(self, options: Any) -> Any:
        """A random element."""
        return options[self.rng.integers(len(options))]

    def grow(self, operations: int, loops: bool) -> None:
        """Adds operations; with `loops` some are loops and branches."""
        names = list(
            _WEIGHTS if loops else {k: v for k, v in _WEIGHTS.items() if k not in _CONTROL}
        )
        weights = np.array([_WEIGHTS[name] for name in names], float)
        for _ in range(operations):
            name = str(self.rng.choice(names, p=weights / weights.sum()))
            getattr(self, f"_{name}")()

    def _unary(self) -> None:
        self.values.append(self.choose(_UNARY)(self.pick()))

    def _binary(self) -> None:
        self.values.append(self.choose(_BINARY)(self.pick(), self.pick()))

    def _integer(self) -> None:
        a, b = self.choose(self.counts), self.choose(self.counts)
        self.counts.append(self.choose(_INTEGER)(a, b))

    def _reduce(self) -> None:
        x, axis = self.pick(), int(self.rng.integers(2))
        how = self.choose((jnp.mean, jnp.max, jnp.min, lambda x, **k: jnp.tanh(jnp.sum(x, **k))))
        self.values.append(jnp.broadcast_to(how(x, axis=axis, keepdims=True), x.shape))

    def _normalize(self) -> None:
        x = self.pick()
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        spread = jnp.mean(centred**2, axis=-1, keepdims=True)
        self.values.append(centred * lax.rsqrt(spread + 0.1))

    def _softmax(self) -> None:
        self.values.append(jax.nn.softmax(self.pick(), axis=int(self.rng.integers(2))))

    def _product(self) -> None:
        a, b = self.pick(), self.pick()
        scores = jnp.tanh(a @ b.T / a.shape[1])
        self.values.append(scores @ self.pick() / a.shape[0])

    def _move(self) -> None:
        x, by = self.pick(), int(self.rng.integers(1, 5))
        moves = (
            lambda: jnp.roll(x, by, axis=by % 2),
            lambda: x[::-1],
            lambda: jnp.pad(x, ((by, 0), (0, by)))[: x.shape[0], by:],
            lambda: jnp.concatenate([x[by:], self.pick()[:by]]),
            lambda: x.T.reshape(x.shape),
            lambda: jnp.cumsum(x, axis=by % 2) / x.shape[by % 2],
        )
        self.values.append(self.choose(moves)())

    def _index(self) -> None:
        x = self.pick()
        ways = (
            lambda: x[self.index],
            lambda: 0.5 * x.at[self.index].add(0.5 * self.pick()),
            lambda: lax.dynamic_update_slice(x, self.pick()[:2], (self.index[0], 0)),
            lambda: jnp.sort(x, axis=0),
        )
        self.values.append(self.choose(ways)())

    def _fork(self, values: list[Array], counts: list[Array], seed: int) -> list[Array]:
        """Grows a few operations on other values, for the body of a loop or a branch."""
        inner = _Grower(np.random.default_rng(seed), list(values), list(counts), self.index)
        inner.grow(3 + seed % 5, loops=seed % 7 == 0)
        return inner.values[-len(values) :]

    def _loop(self) -> None:
        start, seed = [self.pick(), self.pick()], int(self.rng.integers(1 << 30))
        extra, counts = self.pick(), [self.choose(self.counts)]

        def body(_: Array, carry: list[Array]) -> list[Array]:
            fresh = self._fork([*carry, extra], counts, seed)[-2:]
            return [jnp.tanh(0.5 * (a + b)) for a, b in zip(carry, fresh, strict=True)]

        # An upper bound from the data makes the trip count unknown to the compiler.
        trips: Any = int(self.rng.integers(2, 9))
        trips = trips if self.rng.random() < 0.7 else trips + (self.index[0] & 3)
        self.values.extend(lax.fori_loop(0, trips, body, start))

    def _scan(self) -> None:
        start, seed = self.pick(), int(self.rng.integers(1 << 30))
        counts = [self.choose(self.counts)]

        def step(carry: Array, row: Array) -> tuple[Array, Array]:
            fresh = self._fork([carry, jnp.broadcast_to(row, carry.shape)], counts, seed)
            carry = jnp.tanh(0.5 * (carry + fresh[0]))
            return carry, jnp.mean(carry, axis=0)

        last, rows = lax.scan(step, start, self.pick())
        self.values.extend([last, rows])

    def _branch(self) -> None:
        values, seed = [self.pick(), self.pick()], int(self.rng.integers(1 << 30))
        counts = [self.choose(self.counts)]
        ways = [
            lambda values, k=k: [jnp.tanh(v) for v in self._fork(values, counts, seed + k)]
            for k in (0, 1)
        ]
        self.values.extend(lax.cond(self.index[1] % 2 == 0, *ways, values))


_WEIGHTS: Final = {
    "unary": 6, "binary": 8, "integer": 2, "reduce": 3, "normalize": 1, "softmax": 1, "product": 1,
    "move": 3, "index": 1, "loop": 1, "scan": 0.5, "branch": 0.5,
}  # fmt: skip
_CONTROL: Final = ("loop", "scan", "branch")


def generate(seed: int, operations: int = 40, loops: bool = True) -> Program:
    """A random program; the same arguments give the same program.

    Args:
        seed: chooses operations, shapes and inputs.
        operations: how many to add; each becomes one to about twenty nodes, loops more.
        loops: whether loops, scans and branches may occur.

    Raises:
        ConfigError: an argument is negative.
    """
    if seed < 0 or operations < 1:
        raise ConfigError(
            what=f"seed {seed}, {operations} operations",
            where="generate",
            fix="Use a seed of at least 0 and at least one operation.",
        )

    def build() -> Built:
        rng = np.random.default_rng([seed, operations])
        rows, columns = int(rng.choice([4, 8, 24, 64])), int(rng.choice([4, 16, 48, 128]))
        program_seed = int(rng.integers(1 << 30))

        def run(values: list[Array], counts: list[Array], index: Array) -> Any:
            grower = _Grower(np.random.default_rng(program_seed), list(values), list(counts), index)
            grower.grow(operations, loops)
            # Late values, and a summary of all others so that none is dead.
            rest = sum((jnp.mean(value) for value in grower.values), jnp.float32(0.0))
            return grower.values[-4:], grower.counts[-2:], rest

        draws = Draws(seed)
        values = [draws.normal(rows, columns) for _ in range(4)]
        counts = [draws.integers(1000, rows, columns) for _ in range(3)]
        args = (values, counts, draws.integers(rows, rows))
        return run, jax.tree.map(jnp.asarray, args)

    kind = "loops and branches" if loops else "straight-line"
    return Program(
        f"generated-{seed}-{operations}",
        "generated",
        build,
        f"{operations} random operations, {kind}, seed {seed}",
    )


def generated_programs(count: int = SETS) -> dict[str, Program]:
    """Programs of several sizes by name, every third without loops."""
    made = [generate(seed, (10, 25, 60)[seed % 3], loops=seed % 3 != 1) for seed in range(count)]
    return {program.name: program for program in made}


def generate_graph(seed: int, nodes: int, loops: bool = True) -> Graph:
    """A graph of about `nodes` nodes, at least that many: copies of a generated module in one.

    The graph can be decided on, rewritten and verified; compiling it takes as long as its size says.

    Raises:
        ConfigError: an argument is negative.
    """
    from graphopt.corpus.capture import capture_modules

    fn, args = generate(seed, max(1, min(nodes // 4, 80)), loops).build()
    (data,) = capture_modules(fn, *args)
    graph = build_graph(data)
    if len(graph) >= nodes:
        return graph
    copies = -(-nodes // len(graph))
    while len(graph := build_graph(repeat_module(data, copies))) < nodes:
        copies += 1 + copies // 50  # parameters are shared, so that copies are a little smaller
    return graph
