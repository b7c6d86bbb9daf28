"""Benchmarks of scores and searches, on small programs: what they say is what was measured."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, replace
from importlib import import_module

import numpy as np
import pytest
from rich.console import Console
from support.small_programs import STATE, chain

from benchmarks.__main__ import BENCHES, Benchmarks, run
from benchmarks.bank_corpus import FEWEST, compare_program, summary
from benchmarks.methods import (
    METHODS,
    TUNERS,
    MethodsRow,
    TracingScorer,
    compare_methods,
    counts,
    finished,
    learning_curves,
)
from benchmarks.methods import (
    summary as methods_summary,
)
from benchmarks.search import (
    EVALUATIONS,
    Finished,
    SearchRow,
    search_program,
    summarise,
)
from graphopt.corpus import Program
from graphopt.errors import WorkloadError
from graphopt.evaluate.bench import run_bench
from graphopt.hlo import DecisionBatch, build_graph
from graphopt.measure import compile_with
from graphopt.measure.bank.predictor import KernelModel
from graphopt.measure.children.runner import Runner
from graphopt.measure.measured import MeasuredScorer
from graphopt.policy import resolve
from graphopt.store import Store
from graphopt.store.journal import add_to_journal
from graphopt.store.kernels import all_kernels


@pytest.fixture(scope="module")
def loop() -> Program:
    return Program("loop", "test", lambda: (chain, (STATE,)), "a loop over small arrays")


def test_the_score_is_compared_with_everything_measured(loop, tmp_path):
    fn, args = loop.build()
    data = max(compile_with(fn, args).modules, key=len)
    store = Store(tmp_path / "store.sqlite")
    graph = build_graph(data)
    with Runner(data, None, store) as runner:
        assert compare_program("loop", graph, store, KernelModel([])) is None
        runner.profile(graph.default)
        rng = np.random.default_rng(0)
        tried = [graph.masks.sample(rng, graph.default, 0.3) for _ in range(FEWEST + 2)]
        measured = [runner.measure(v, budget_s=0.02) for v in tried]
    row = compare_program("loop", graph, store, KernelModel(all_kernels(store)))
    assert row is not None
    assert sorted(row.measured) == pytest.approx(
        sorted(np.log([m.ratio for m in measured if m.ok]))
    )
    assert np.isfinite(row.predicted).all()
    assert f"{len(row.measured)} vectors of 1 programs" in summary([row])


def test_searches_are_compared_by_what_they_ended_with(loop):
    row = search_program(loop, resolve("heuristic"), evaluations=3)
    assert set(row.rivals) == {"annealing", "genetic"}
    counts = [count for count, _ in row.steps]
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] <= 3
    assert row.program in str(row)


@pytest.mark.parametrize(
    ("steps", "at", "fewer"),
    [
        (((0, 1.0), (2, 1.6)), 2, 20.0),
        (((0, 1.0), (5, 1.48), (9, 1.9)), 5, 8.0),
        (((0, 1.0), (2, 1.4)), None, 1.0),
    ],
)
def test_a_search_arrives_when_it_is_as_fast_as_the_better_rival(steps, at, fewer):
    row = SearchRow("p", 10, {"annealing": 1.5, "genetic": 1.2}, steps, 40)
    assert row.reached_at == at and row.fewer == fewer


def test_an_interrupted_comparison_goes_on(tmp_path):
    path = tmp_path / "report" / "search.jsonl"
    row = SearchRow("p", 10, {"annealing": 1.5, "genetic": 1.2}, ((0, 1.0), (2, 1.6)), EVALUATIONS)
    first = Finished(path, "one policy")
    assert not first.rows
    first.add(row)
    first.add(row)
    assert Finished(path, "one policy").rows == {"p": row}
    assert not Finished(path, "another policy").rows
    assert len(path.read_text().splitlines()) == 1
    with path.open("a") as file:
        file.write('{"program": "half')  # a process that was killed
    other = replace(row, program="q")
    Finished(path, "one policy").add(other)
    assert Finished(path, "one policy").rows == {"p": row, "q": other}


def test_programs_in_which_no_rival_gained_are_not_compared():
    lost = SearchRow("lost", 10, {"annealing": 1.0, "genetic": 0.9}, ((0, 1.0),), 40)
    won = SearchRow("won", 10, {"annealing": 2.0, "genetic": 1.2}, ((0, 1.0), (4, 2.2)), 40)
    assert "not compared" in str(lost) and "not compared" not in str(won)
    console = Console(record=True, width=200)
    summarise([lost, won], console)
    text = console.export_text()
    assert "2 programs" in text and "in 1 a rival gained" in text and "10.0 times fewer" in text
    summarise([lost], console)


def test_where_rivals_lose_the_default_is_the_goal():
    row = SearchRow("p", 10, {"annealing": 0.9, "genetic": 0.0}, ((0, 1.0),), 40)
    assert row.goal == 1.0 and row.reached_at == 0 and row.fewer == 40.0


def test_every_method_is_compared(loop):
    row = compare_methods(loop, resolve("heuristic"), evaluations=2, seconds=1e-9)
    assert list(row.by_evaluations) == [*METHODS, *TUNERS] == list(row.by_seconds)
    assert row.by_evaluations["zero-shot"] > 1.2  # the native loop
    assert row.by_evaluations["fine-tuned"] == 1.0  # the heuristic has no network
    assert set(row.by_seconds.values()) == {1.0}  # no time for anything but XLA's default
    assert methods_summary([row]).count("x / ") == len(METHODS) + len(TUNERS)
    assert counts(2) == [1, 2] and {len(curve) for curve in row.curves.values()} == {2}
    assert row.curves["zero-shot"][0] == row.curves["zero-shot"][1] > 1.2  # one evaluation


def test_learning_curves_are_means_over_programs():
    one, two = (
        MethodsRow("p", 1, {"greedy": [1.0, 1.0, gain]}, {}, 3, 30.0) for gain in (1.0, 4.0)
    )
    table = learning_curves([one, two], 3).splitlines()
    assert table[0] == "| best of so many evaluations | 1 | 2 | 3 |"
    assert table[2:] == ["| greedy | 1.00x | 1.00x | 2.00x |"]
    assert one.by_evaluations == {"greedy": 1.0} and two.by_evaluations == {"greedy": 4.0}


def test_a_traced_scorer_keeps_every_new_best():
    graph = build_graph(max(compile_with(chain, (STATE,)).modules, key=len))
    with closing(MeasuredScorer(graph, budget_s=0.02)) as scorer:
        tracing = TracingScorer(scorer)
        native = resolve("heuristic").decide(graph)
        tracing.score(DecisionBatch.stack([graph.default, native, graph.default]))
    assert [best.evaluations for best in tracing.bests] == [0, 2]
    assert tracing.bests[1].decisions.same_as(native) and tracing.bests[1].seconds > 0.0


def test_an_interrupted_comparison_of_methods_goes_on(tmp_path):
    path, mark = tmp_path / "methods.jsonl", {"policy": "one", "evaluations": 2, "curve": [1]}
    row = MethodsRow("p", 10, {"greedy": [1.0, 2.0]}, {"greedy": 1.5}, 2, 1.0)
    add_to_journal(path, asdict(row) | mark)
    assert finished(path, mark) == {"p": row}
    assert not finished(path, mark | {"policy": "another"})
    assert str(row) == "| p | 2.00x / 1.50x |"
    assert methods_summary([]) == "nothing was measured"


@pytest.mark.parametrize(
    ("what", "names", "message"),
    [
        ("nothing", (), "no benchmark"),
        ("policy", ("gan_grads",), "takes no names"),
        ("methods", ("nobody",), "no program nobody"),
        ("search", ("nobody",), "no program nobody"),
    ],
)
def test_benchmarks_refuse_names_that_they_would_ignore_or_do_not_know(
    what, names, message, tmp_path
):
    with pytest.raises(WorkloadError, match=message):
        run(Benchmarks(what, 1.0, names, tmp_path))


@pytest.mark.parametrize("place", BENCHES.values())
def test_every_benchmark_is_there(place):
    module, _, name = place.partition(":")
    assert callable(getattr(import_module(module), name))


def test_the_command_names_its_own_benchmarks_only():
    with pytest.raises(WorkloadError, match=r"no benchmark 'search'[^~]*python -m benchmarks"):
        run_bench("search", 1.0)
