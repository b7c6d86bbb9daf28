"""Random programs: reproducible, sound, of every size."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from support.captures import capture, proto_of

from graphopt.corpus.fuzzing.generated import SETS, generate, generate_graph, generated_programs
from graphopt.corpus.workloads import load_programs
from graphopt.errors import ConfigError
from graphopt.evaluate.fuzzing.corpus import answer
from graphopt.hlo import rewrite, verify


def run(seed: int, *arguments: object):
    fn, args = generate(seed, *arguments).build()
    return capture(fn, *args)


def test_the_same_seed_gives_the_same_program_and_result():
    one, two = run(7, 12), run(7, 12)
    assert one.graph.fingerprint == two.graph.fingerprint
    for left, right in zip(jax.tree.leaves(one.result), jax.tree.leaves(two.result), strict=True):
        np.testing.assert_array_equal(left, right)


def test_other_seeds_give_other_programs():
    assert len({run(seed, 8, False).graph.fingerprint for seed in range(4)}) == 4


@pytest.mark.parametrize("seed", [0, 4, 6, 9])
def test_generated_programs_compute_the_same_when_rewritten(seed):
    name = list(generated_programs())[seed]
    rows = answer({"spec": "generated", "name": name, "policies": ["xla-default", "heuristic"]})[
        "rows"
    ]
    assert len(rows) == 2
    assert all(row["status"] in ("ok", "kept") for row in rows), rows


@pytest.mark.parametrize("seed", range(3))
def test_results_are_finite_and_of_order_one(seed):
    for leaf in jax.tree.leaves(run(seed, 30).result):
        if leaf.dtype == np.float32:
            assert np.isfinite(leaf).all()
            assert np.abs(leaf).max() < 1e4


def test_without_loops_there_are_none_and_with_them_there_are():
    def whiles(graph):
        return sum(op.name == "while" for op in graph.ops)

    assert whiles(run(3, 20, False).graph) == 0
    assert whiles(run(2, 60).graph) > 0


def test_the_set_has_a_name():
    programs = load_programs("generated")
    assert len(programs) == SETS
    assert all(name == program.name for name, program in programs.items())


@pytest.mark.parametrize("nodes", [20, 700, 5_000])
def test_graphs_of_any_size(nodes):
    graph = generate_graph(1, nodes, loops=False)
    assert nodes <= len(graph) <= 2 * nodes + 400
    result = rewrite(graph, graph.default)
    verify(proto_of(result.data))


@pytest.mark.parametrize("arguments", [(-1,), (0, 0)])
def test_mistakes(arguments):
    with pytest.raises(ConfigError):
        generate(*arguments)
