"""The network of advantages: columns are finite and follow the decisions, numpy says what flax says."""

from __future__ import annotations

import numpy as np
import pytest
from support.advantages import SMALL, parameters, random_network
from support.captures import MACHINE, captured

from graphopt.errors import ConfigError
from graphopt.learn.advantages.batches import make_batch, packed, sizes_of
from graphopt.learn.advantages.config import FitConfig
from graphopt.learn.advantages.data import Labelled
from graphopt.policy.advantages.alternative_columns import ALTERNATIVE_COLUMNS
from graphopt.policy.advantages.config import AdvantageConfig, parameter_shapes
from graphopt.policy.advantages.encoding import Encoder
from graphopt.policy.advantages.node_columns import LIMIT, NODE_COLUMNS, STATE_COLUMNS
from graphopt.policy.advantages.parameters import create, network
from graphopt.policy.alternatives.table import AlternativeTable, alternatives
from graphopt.policy.heuristic.steps import STEPS, heuristic_steps
from graphopt.policy.network.parameters import flatten, unflatten

NAMES = ["layernorm", "cartpole_rollout", "sorting", "lstm"]

CONFIGS = [
    SMALL,
    AdvantageConfig(hidden=16, heads=4, graph=False, attention=False),
    AdvantageConfig(hidden=16, attention=False, layers=1),
]


def encoded(name, start=None):
    graph = captured(name).graph
    table = alternatives(graph, program=False)
    encoder = Encoder(table, machine=MACHINE)
    return encoder, encoder.state(table.flat(graph.default if start is None else start))


@pytest.mark.parametrize("name", NAMES)
def test_columns_are_finite_and_in_range(name):
    graph = captured(name).graph
    for start in (graph.default, heuristic_steps(graph, STEPS)):
        encoder, state = encoded(name, start)
        inputs = encoder.graph
        assert inputs.numeric.shape == (len(graph), len(NODE_COLUMNS))
        assert state.state.shape == (len(graph), len(STATE_COLUMNS))
        assert state.numeric.shape == (len(state), len(ALTERNATIVE_COLUMNS))
        for columns in (inputs.numeric, inputs.program, state.state, state.numeric):
            assert np.isfinite(columns).all() and np.abs(columns).max() <= LIMIT
        assert inputs.share.sum() == pytest.approx(1.0, abs=1e-3)
        assert sorted(set(state.edit_row.tolist())) == list(range(len(state)))
        # Those that are available, without STOP.
        offered = np.flatnonzero(encoder.table.available(encoder.table.flat(start)))
        assert offered[1:].tolist() == state.rows.tolist()


def test_an_alternative_looks_the_same_written_in_full_or_as_what_it_changes():
    graph = captured("transformer_block").graph
    start = heuristic_steps(graph, STEPS)
    table = alternatives(graph, program=False)
    encoder = Encoder(table)
    state = encoder.state(table.flat(start))
    rows = [table.rows[i] for i in state.rows]
    short = [type(r)(r.kind, r.node, r.changes(start), r.weight) for r in rows]
    assert any(len(s.edits) < len(r.edits) for s, r in zip(short, rows, strict=True))
    again = Encoder(AlternativeTable(graph, short)).state(table.flat(start))
    assert np.array_equal(again.numeric, state.numeric)
    assert np.array_equal(again.edit_node, state.edit_node)


def test_a_choice_shows_in_the_state_and_is_offered_no_more():
    graph = captured("lstm").graph
    table = alternatives(graph, program=False)
    encoder = Encoder(table)
    flat = table.flat(graph.default)
    before = encoder.state(flat)
    chosen = int(before.rows[0])
    table.choose(flat, chosen)
    after = encoder.state(flat)
    assert chosen not in after.rows
    assert not np.array_equal(before.state, after.state)
    changed = {node for _, node, _ in table.rows[chosen].edits}
    assert after.state[:, STATE_COLUMNS.index("changed")].sum() == len(
        [n for n in changed if any(v != int(getattr(graph.default, f)[n])
                                   for f, m, v in table.rows[chosen].edits if m == n)]
    )  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS)
def test_numpy_says_what_flax_says_of_a_batch_of_several_states(config):
    states = []
    for name in NAMES:
        encoder, state = encoded(name)
        zeros = np.zeros(len(state))
        both = np.zeros((len(state), 3))
        states.append(Labelled("", name, encoder.graph, state, (), zeros, zeros, both))
    flat = parameters(config)
    assert {name: value.shape for name, value in flat.items()} == parameter_shapes(config)
    definition, like = create(config, 0)
    model = network(definition, unflatten(like, flat))
    sizes = sizes_of(states, FitConfig(nodes=4096, alternatives=1024))
    assert list(packed(states, sizes, range(4))) == [[0, 1, 2, 3]]
    batch = make_batch(states, sizes, 1.0)
    mean, deviation = (np.asarray(out) for out in model(batch.graph, batch.choices))
    ours = random_network(config)
    said = [ours.of(one.graph).score(one.state) for one in states]
    got = np.concatenate([m for m, _ in said]), np.concatenate([d for _, d in said])
    count = len(got[0])
    assert np.ptp(got[0]) > 0.1
    np.testing.assert_allclose(got[0], mean[:count], atol=2e-4)
    np.testing.assert_allclose(np.log(got[1]), deviation[:count], atol=2e-4)


def test_a_fresh_network_expects_nothing_and_doubts_a_little():
    flat = flatten(create(SMALL, 0)[1])
    encoder, state = encoded("lstm")
    fresh = type(random_network())(SMALL, flat)
    mean, deviation = fresh.of(encoder.graph).score(state)
    assert not mean.any() and np.allclose(deviation, np.exp(-2.0))


@pytest.mark.parametrize("bad", [{"hidden": 0}, {"hidden": 10, "heads": 4}, {"layers": 0}])
def test_sizes_are_checked(bad):
    with pytest.raises(ConfigError, match="network size"):
        AdvantageConfig(**bad)
