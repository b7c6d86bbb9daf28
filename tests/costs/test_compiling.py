"""How much longer kernels compile as native code."""

import jax.numpy as jnp
import pytest
from support.captures import capture, normal

from graphopt.costs.compiling import copies, kernel_kind, kernel_time, native_extra_ms
from graphopt.costs.model import CostModel
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.native_code import is_root


def kernels_of(fn, *args):
    """A graph, and the nodes of each of its kernels."""
    graph = capture(fn, *args).graph
    model = CostModel(graph)
    context = Context(graph, model, graph.default)
    roots = [node for node in range(len(graph)) if is_root(context, node)]
    return graph, [model.members(graph.default.fuse, root) for root in roots]


@pytest.mark.parametrize(
    ("sizes", "times"),
    [
        ((), 1),
        ((4, 4), 16),
        ((1, 40), 40),
        ((100, 20), 20),  # rows are written out, the loop over them is not
        ((64,), 8),
        ((480,), 60),
        ((488,), 5),
        ((1000, 1000), 5),
    ],
)
def test_copies_of_a_loop_body(sizes, times):
    assert copies(sizes) == times


def test_equal_kernels_take_longer_and_different_ones_do_not():
    def same(arrays):
        return [jnp.exp(x) * 2.0 + 1.0 for x in arrays]

    graph, kernels = kernels_of(same, [normal(1000) for _ in range(12)])
    assert len({kernel_kind(graph, members) for members in kernels}) < len(kernels) / 2
    equal = native_extra_ms(graph, kernels)

    graph, kernels = kernels_of(same, [normal(1000 + i) for i in range(12)])
    assert native_extra_ms(graph, kernels) < 0 < equal


def test_products_are_called_by_default_and_written_out_in_native_code():
    graph, kernels = kernels_of(lambda x, w: jnp.tanh(x @ w), normal(8, 32), normal(32, 32))
    (product,) = (members for members in kernels if graph.ops[members[0]].name == "dot")
    time = kernel_time(graph, product)
    assert time.own == 0 < time.native
    graph, kernels = kernels_of(lambda x, w: jnp.tanh(x @ w), normal(8, 64), normal(64, 64))
    (product,) = (members for members in kernels if graph.ops[members[0]].name == "dot")
    assert kernel_time(graph, product).native == 0  # a loop over a longer sum


def test_nothing_takes_no_time():
    graph, _ = kernels_of(jnp.tanh, normal(8))
    assert native_extra_ms(graph, []) == 0
