"""The persistent compilation cache, shared between processes with and without graphopt.

Its keys know nothing of transformations. Whatever runs first must not decide what a later process runs.
"""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import Any

import pytest
from support.forks import run_forked

SETTINGS = textwrap.dedent("""
    import json, os, sys
    import jax
    import graphopt
    from support.small_programs import STATE, is_native, named, rollout

    jax.config.update("jax_compilation_cache_dir", sys.argv[1])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
""")

COMPILE = SETTINGS + textwrap.dedent("""
    exec(sys.argv[2])
    compiled = named("cart").lower(STATE).compile()
    compiled(STATE)
    records = [r for r in graphopt.report().records if r.name == "jit_cart"]
    print(json.dumps({
        "native": is_native(compiled),
        "outcomes": [str(record.outcome) for record in records],
        "reasons": [record.reason for record in records],
    }))
""")

PLAIN = "pass"
HEURISTIC = "graphopt.install()"
XLA_DEFAULT = "graphopt.install('xla-default')"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def entries(cache: Path) -> set[str]:
    return {name for name in os.listdir(cache) if name.endswith("-cache")}


def run(cache: Path, code: str, setup: str = "", **env: str) -> str:
    done = run_forked(code, str(cache), setup, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def process(cache: Path, setup: str, **env: str) -> dict[str, Any]:
    """What a process compiled after `setup`: is the code rewritten, and what did the hook see?"""
    found: dict[str, Any] = json.loads(run(cache, COMPILE, setup, **env))
    return found


def test_every_policy_has_entries_of_its_own(cache):
    plain = process(cache, PLAIN)
    assert not plain["native"]
    assert len(entries(cache)) == 1

    with_plugin = process(cache, HEURISTIC)
    assert with_plugin["outcomes"] == ["rewritten"], "the plain entry was taken"
    assert with_plugin["native"]
    assert len(entries(cache)) == 2

    again = process(cache, HEURISTIC)
    assert again["outcomes"] == [], "its own entry was not found"
    assert again["native"]
    assert len(entries(cache)) == 2

    other_policy = process(cache, XLA_DEFAULT)
    assert other_policy["outcomes"] == ["rewritten"], "another policy's entry was taken"
    assert not other_policy["native"]
    assert len(entries(cache)) == 3

    assert not process(cache, PLAIN)["native"]
    assert len(entries(cache)) == 3, "the plain entry was not found"


def test_a_plain_process_does_not_run_rewritten_code(cache):
    assert process(cache, HEURISTIC)["native"]
    assert not process(cache, PLAIN)["native"]
    assert not process(cache, HEURISTIC, GRAPHOPT_DISABLE="1")["native"]
    assert process(cache, HEURISTIC)["outcomes"] == []


def test_uninstalling_goes_back_to_plain_entries(cache):
    first = process(cache, HEURISTIC + "; graphopt.uninstall()")
    assert not first["native"]
    assert process(cache, HEURISTIC)["native"]
    assert not process(cache, PLAIN)["native"]
    assert len(entries(cache)) == 2


def test_functions_are_asked_anew_in_every_process(cache):
    setup = "graphopt.install(lambda graph: graph.default)"
    assert process(cache, setup)["outcomes"] == ["rewritten"]
    assert process(cache, setup)["outcomes"] == ["rewritten"]
    assert not process(cache, PLAIN)["native"]


def test_a_smaller_size_limit_does_not_outlive_its_process(cache):
    limited = process(cache, "graphopt.install(max_instructions=10)")
    assert limited["reasons"] == ["too-large"]
    unlimited = process(cache, HEURISTIC)
    assert unlimited["native"], "the entry of the process with a lower limit was taken"


def test_without_separate_keys_nothing_is_rewritten(cache):
    setup = "graphopt.jax_private.set_cache_key_hook = lambda text: False; graphopt.install()"
    found = process(cache, setup)
    assert found["outcomes"] == ["fell back"]
    assert found["reasons"] == ["persistent cache cannot be kept apart"]
    assert not found["native"]
    assert not process(cache, PLAIN)["native"]


# Measuring goes around the cache: it must see the module, and leave no candidate behind.

MEASURING = SETTINGS + textwrap.dedent("""
    from graphopt.measure import compile_with
    from graphopt.policy.heuristic.steps import heuristic

    def native(data):
        graph = graphopt.build_graph(data)
        return graphopt.rewrite(graph, heuristic(graph)).data

    def seen(transform):
        compiled = compile_with(rollout, (STATE,), transform)
        return [len(compiled.modules), is_native(compiled.executable)]

    exec(sys.argv[2])
""")

# compile_with calls its function from a lambda of this signature.
SAME_MODULE = SETTINGS + textwrap.dedent("""
    exec(sys.argv[2])
    compiled = jax.jit(lambda *arguments: rollout(*arguments)).lower(STATE).compile()
    print(is_native(compiled))
""")


def test_measuring_sees_every_module_and_gets_what_it_asked_for(cache):
    found = run(cache, MEASURING, "print(json.dumps([seen(t) for t in (None, native) * 2]))")
    assert json.loads(found) == [[1, False], [1, True]] * 2


def test_a_measured_candidate_is_not_left_in_the_cache(cache):
    run(cache, MEASURING, "seen(native)")
    assert run(cache, SAME_MODULE, PLAIN) == "False\n"


def test_a_measured_default_is_not_left_for_the_plugin(cache):
    run(cache, MEASURING, "graphopt.install(); seen(None)")
    assert run(cache, SAME_MODULE, HEURISTIC) == "True\n"


def test_the_doctor_is_not_misled_by_the_cache(cache):
    code = SETTINGS + textwrap.dedent("""
        from graphopt.evaluate.commands.doctor import diagnose
        print(diagnose()[1])
    """)
    assert run(cache, code) == "True\n"
    assert run(cache, code) == "True\n"
