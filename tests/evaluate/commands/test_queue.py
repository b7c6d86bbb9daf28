"""graphopt queue, and a script that gets faster by itself: recorded, tuned, adopted."""

from __future__ import annotations

import json
import textwrap

import pytest
from support.processes import run_python
from support.queued import chain_sighting, only_item, queued, spoil

from graphopt.cli import main
from graphopt.store import Store
from graphopt.store.queue import items, put_sighting
from graphopt.store.queue_items import State

SCRIPT = """
    import graphopt
    graphopt.install(record=True)

    import jax, numpy as np
    from support.small_programs import STATE, named, chain
    step = named("step", chain)
    for _ in range(20):
        result = jax.block_until_ready(step(STATE))
    print(sum(float(np.abs(leaf).sum()) for leaf in jax.tree.leaves(result)))
    (record,) = [r for r in graphopt.report().records if r.name == "jit_step"]
    print(record.reason)
    """


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    yield store
    store.close()


def queue(store, *arguments, capsys):
    status = main(["queue", *arguments, "--store", str(store.path)])
    return status, capsys.readouterr()


def test_an_empty_queue_says_how_to_fill_it(store, capsys):
    status, printed = queue(store, capsys=capsys)
    assert status == 0 and "install(record=True)" in printed.out


def test_a_list_shows_states_refused_rows_and_what_is_saved(store, capsys):
    queued(store, "jit_step")
    status, printed = queue(store, "list", capsys=capsys)
    assert status == 0 and "jit_step" in printed.out and "1 waiting, 0 running" in printed.out
    spoil(store, calls=-1.0)
    assert "refused" in queue(store, capsys=capsys)[1].out


def test_json_has_all_that_is_known(store, capsys):
    queued(store, "jit_step")
    told = json.loads(queue(store, "--json", capsys=capsys)[1].out)
    assert [item["program"] for item in told["items"]] == ["jit_step"]
    assert told["saved_s_per_day"] == 0.0 and told["refused"] == {}


def test_one_item_is_shown_in_full(store, capsys):
    assert put_sighting(store, chain_sighting())
    (item,) = items(store).items
    status, printed = queue(store, "show", item.id, capsys=capsys)
    assert status == 0 and "float32[512], -1 to 1" in printed.out and "not recorded" in printed.out
    assert json.loads(queue(store, "show", item.id, "--json", capsys=capsys)[1].out)
    assert queue(store, "show", "0" * 16, capsys=capsys)[0] == 1
    assert queue(store, "show", capsys=capsys)[0] == 2


def test_items_are_forgotten_and_all_cleared(store, capsys):
    one, _, _ = queued(store, "jit_a", "jit_b", "jit_c")
    status, printed = queue(store, "forget", one, capsys=capsys)
    assert status == 0 and "1 items forgotten" in printed.out
    assert queue(store, "forget", one, capsys=capsys)[0] == 1
    assert "2 items forgotten" in queue(store, "clear", capsys=capsys)[1].out


def test_tuning_without_a_store_says_what_to_do(tmp_path, capsys):
    status = main(["tune", "--queue", "--store", str(tmp_path / "absent.sqlite")])
    assert status == 2 and "install(record=True)" in capsys.readouterr().err


@pytest.mark.slow
def test_a_script_run_three_times_gets_its_winner_by_itself(store):
    there = {"GRAPHOPT_STORE": str(store.path), "GRAPHOPT_REMEMBER": "1"}

    def run():
        done = run_python("-c", textwrap.dedent(SCRIPT), env=there)
        assert done.returncode == 0, done.stderr
        return done.stdout.split("\n")[:2]

    first, second = run(), run()
    assert first == second and "stored winner" not in first[1]
    assert only_item(store).processes == 2
    tuned = run_python(
        "-m", "graphopt", "tune", "--queue", "--budget-s", "6", "--max-load", "1e9", env=there
    )
    assert tuned.returncode == 0, tuned.stderr
    item = only_item(store)
    assert item.state is State.DONE and item.low > 1.0, item.reason
    third = run()
    assert "stored winner" in third[1]
    assert float(third[0]) == pytest.approx(float(first[0]), rel=1e-3)
    assert only_item(store).processes == 3
