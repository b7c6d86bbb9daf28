"""Answers given before: the same module costs a look-up, in this process and in later ones."""

from __future__ import annotations

import json
import textwrap
from dataclasses import replace

import jax
import pytest
from support.captures import captured
from support.forks import run_forked
from support.reports import REWRITTEN, agrees, only_record
from support.small_programs import STATE, named

import graphopt
from graphopt.hlo.module.proto import HloModuleProto, OpMetadata
from graphopt.outcomes import ModuleRecord, Outcome
from graphopt.plugin import memory as memory_module
from graphopt.plugin import modules
from graphopt.plugin.memory import Key, Memory
from graphopt.store.answers import Answers

pytestmark = pytest.mark.usefixtures("clean_plugin")


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Path of a store of its own, with the memory on."""
    monkeypatch.setenv("GRAPHOPT_REMEMBER", "1")
    return tmp_path / "store.sqlite"


def compiled_again(**options):
    """Runs a program that is compiled anew; the report's one record."""
    graphopt.reset_report()
    jax.clear_caches()
    graphopt.install(**options)
    assert agrees(named("cart")(STATE))
    return only_record()


@pytest.mark.parametrize("policy", ["heuristic", "shipped"])
def test_a_second_compile_remembers(store, policy):
    first = compiled_again(policy=policy, store=store)
    second = compiled_again(policy=policy, store=store)
    assert first.outcome is second.outcome is REWRITTEN
    assert not first.recalled and second.recalled
    assert second.steps == first.steps and second.clusters_after == first.clusters_after
    assert "remembered" in str(second)


def test_nothing_is_decided_for_what_is_remembered(store, monkeypatch):
    compiled_again(store=store)

    def never(*args):
        raise AssertionError("decided anew")

    monkeypatch.setattr(modules, "_optimize", never)
    assert compiled_again(store=store).recalled


@pytest.mark.parametrize(
    "other", [{"policy": "xla-default"}, {"keep_async": True}, {"max_instructions": 90_000}]
)
def test_an_answer_depends_on_what_is_installed(store, other):
    compiled_again(policy="heuristic", store=store)
    assert not compiled_again(**{"policy": "heuristic", "store": store, **other}).recalled
    assert compiled_again(policy="heuristic", store=store).recalled


def test_functions_and_no_store_remember_nothing(store):
    for options in ({"policy": lambda graph: graph.default, "store": store}, {"store": False}):
        compiled_again(**options)
        assert not compiled_again(**options).recalled


def test_xlas_default_is_remembered_too(tmp_path):
    data = captured("layernorm").data
    first = Memory(Answers(tmp_path / "a.sqlite"), lambda: "x")
    kept = ModuleRecord("jit_f", Outcome.KEPT, "no gain expected", nodes=7)
    first.keep(first.find(data), kept, None)
    later = Memory(Answers(tmp_path / "a.sqlite"), lambda: "x")
    assert (found := later.find(data)).record == replace(kept, recalled=True) and found.data is None
    other = Memory(Answers(tmp_path / "a.sqlite"), lambda: "y")
    assert isinstance(other.find(data), Key)


def test_another_process_remembers(store):
    script = textwrap.dedent("""
        import sys, json, graphopt, jax
        from support.small_programs import STATE, named
        for number in range(int(sys.argv[2])):
            jax.jit(lambda x: x + number)(1.0)  # moves the module's number
        graphopt.install("heuristic", store=sys.argv[1])
        result = named("cart")(STATE)
        (record,) = graphopt.report().records
        print(json.dumps([record.recalled, jax.tree.map(lambda x: x.tolist(), result)]))
    """)
    found = []
    for number in (0, 3):
        done = run_forked(script, str(store), str(number), env={"GRAPHOPT_REMEMBER": "1"})
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert [recalled for recalled, _ in found] == [False, True]
    assert found[0][1] == found[1][1]


def test_a_stored_winner_comes_before_an_older_answer(store):
    compiled_again(policy="heuristic", store=store)
    assert compiled_again(policy="heuristic", store=store).recalled
    graphopt.uninstall()
    result = graphopt.tune(named("cart"), STATE, budget_s=4.0, evaluations=6, store=store)
    record = compiled_again(policy="heuristic", store=store)
    assert not record.recalled
    assert ("stored winner" in record.reason) == result.adopted


def test_what_was_refused_stays_refused_in_later_processes(tmp_path):
    data = module_bytes()
    refused = ModuleRecord("jit_f", Outcome.FELL_BACK, "XLA refused the rewritten module: no")
    first = Memory(Answers(tmp_path / "a.sqlite"), lambda: "x")
    key, done = first.find(data), ModuleRecord("jit_f", Outcome.REWRITTEN, steps=("native loops",))
    first.note_rewritten(key, done)
    first.keep(key, done, data)
    later = Memory(Answers(tmp_path / "a.sqlite"), lambda: "x")
    assert later.find(data).record.steps == ("native loops",)
    (found,) = first.rewritten_since(0, "jit_f")
    assert found.digests == key.digests and first.rewritten_since(1, "jit_f") == []
    first.refuse(found.digests, refused)
    for same in (data, other_labels(data)):
        recalled = later.find(same)
        assert recalled.data is None
        assert recalled.record.outcome is Outcome.FELL_BACK
        assert recalled.record.reason == refused.reason


def module_bytes():
    """A module in the order of fields in which Python writes one."""
    return HloModuleProto.FromString(captured("cartpole_rollout").data).SerializeToString()


def other_labels(data):
    """The same program from other lines, as another module of a process."""
    module = HloModuleProto.FromString(data)
    module.id += 7
    for computation in module.computations:
        for instruction in computation.instructions:
            instruction.metadata = OpMetadata(op_name="elsewhere").SerializeToString()
    return module.SerializeToString()


def test_the_number_of_a_module_is_given_back(tmp_path):
    data = module_bytes()
    memory = Memory(Answers(tmp_path / "a.sqlite"), lambda: "x")
    memory.keep(memory.find(data), ModuleRecord("jit_f", Outcome.REWRITTEN), data)
    module = HloModuleProto.FromString(data)
    for number in (0, 1, 127, 128, 1 << 20):
        module.id = number
        found = memory.find(module.SerializeToString())
        assert HloModuleProto.FromString(found.data) == module


def test_other_labels_come_back_in_the_answer_and_are_found_at_once_then(tmp_path, monkeypatch):
    data = module_bytes()
    memory = Memory(Answers(tmp_path / "a.sqlite"), lambda: "x")
    memory.keep(memory.find(data), ModuleRecord("jit_f", Outcome.REWRITTEN), data)
    moved = other_labels(data)
    assert HloModuleProto.FromString(memory.find(moved).data) == HloModuleProto.FromString(moved)

    def never(data):
        raise AssertionError("parsed")

    monkeypatch.setattr(memory_module, "take_labels", never)
    for same in (data, moved):
        assert HloModuleProto.FromString(memory.find(same).data) == HloModuleProto.FromString(same)
