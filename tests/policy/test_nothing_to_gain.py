"""What is passed over before a graph is built: nothing that the heuristic would decide about."""

import jax.numpy as jnp
import numpy as np
import pytest
from golden.decisions import expected, modules
from support.captures import capture

from graphopt.hlo import build_graph
from graphopt.hlo.module.index import parse
from graphopt.policy.heuristic.steps import choose
from graphopt.policy.nothing_to_gain import cannot_gain, is_split

VECTOR = np.linspace(0.1, 1.0, 16, dtype=np.float32)

SMALL = {
    "softplus": lambda x: jnp.log1p(jnp.exp(-jnp.abs(x))) + jnp.maximum(x, 0),
    "polynomial": lambda x: ((x * 2 + 1) * x - 3) * x + jnp.where(x > 0.5, x, -x),
    "hash": lambda x: (x.view(jnp.uint32) * 73 ^ 12345) >> 7,
    "two results": lambda x: (x * x + 1, jnp.stack([x, x + 1, x - 1]).reshape(6, 8)),
}
LARGE = {
    "long": lambda x: jnp.tanh(jnp.tile(x, 10_000) * 2 + 1),
    "sum": lambda x: jnp.sum(jnp.tile(x, 64).reshape(32, 32) ** 2, axis=1) + 1,
    "product": lambda x: jnp.tile(x, 16).reshape(16, 16) @ x.reshape(16, 1) * 2 + 1,
    "sorted": lambda x: jnp.sort(x * 2 + 1) * 3,
    "loop": lambda x: __import__("jax").lax.fori_loop(0, 9, lambda i, y: y * x + i, x),
}


@pytest.mark.parametrize("name", SMALL)
def test_short_programs_are_passed_over_and_would_be_left_alone(name):
    program = capture(SMALL[name], VECTOR)
    assert cannot_gain(parse(program.data))
    assert choose(program.graph) is None


@pytest.mark.parametrize("name", LARGE)
def test_what_might_gain_is_not_passed_over(name):
    assert not cannot_gain(parse(capture(LARGE[name], VECTOR).data))


def test_no_module_with_decisions_is_passed_over():
    recorded = expected()
    for name, data in modules():
        if cannot_gain(parse(data)):
            decided = {d for what, d in recorded[name].items() if what != "fingerprint"}
            assert decided == {"default"}, name
            assert choose(build_graph(data)) is None


def test_kernels_that_use_several_cores_are_seen():
    def add(x):
        return x + 1.5

    assert is_split(parse(capture(add, np.ones((300, 400), np.float32)).data))
    assert not is_split(parse(capture(add, np.ones((30, 40), np.float32)).data))
