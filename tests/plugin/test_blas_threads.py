"""Threads of SciPy's OpenBLAS: taken away where they stall, given back by uninstall."""

import os
import textwrap
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.processes import run_python
from threadpoolctl import threadpool_limits

import graphopt
from graphopt.outcomes import Outcome
from graphopt.plugin import blas_threads
from graphopt.plugin.blas_threads import (
    CALLS,
    SETTLING,
    STALL_S,
    VARIABLES,
    BlasThreads,
    are_stalled,
    openblas_of_scipy,
    set_threads,
)

STALLED = [8 * STALL_S] * (SETTLING + CALLS)
WELL = [STALL_S / 10] * (SETTLING + CALLS)


pytestmark = pytest.mark.usefixtures("clean_plugin")


@pytest.fixture(autouse=True)
def no_word_of_the_user(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def library():
    """SciPy's OpenBLAS with two threads, as it was afterwards."""
    jnp.linalg.cholesky(jnp.eye(2)).block_until_ready()  # loads it
    (found, *_) = openblas_of_scipy()
    before = found.num_threads
    set_threads(found, 2)
    yield found
    set_threads(found, before)


def factorized(order: int) -> np.ndarray:
    matrix = np.eye(order, dtype=np.float32) * 4
    return np.asarray(jax.jit(lambda x: jnp.linalg.cholesky(x) * 2 + order)(matrix))


def notes() -> str:
    return str(graphopt.report())


def test_threads_that_stall_are_taken_away_until_uninstall(library, monkeypatch):
    monkeypatch.setattr(blas_threads, "timed_solves", lambda: STALLED)
    graphopt.install(store=False)
    jax.jit(lambda x: x + 1)(np.arange(7))
    assert library.num_threads == 2  # nothing calls LAPACK yet
    np.testing.assert_allclose(factorized(5), np.eye(5) * 4 + 5)
    assert library.num_threads == 1
    assert "factorizations run on one thread" in notes()
    graphopt.uninstall()
    assert library.num_threads == 2


def test_threads_that_stand_well_stay_and_are_tried_again_later(library, monkeypatch):
    answers = [WELL, STALLED]
    monkeypatch.setattr(blas_threads, "timed_solves", lambda: answers.pop(0))
    graphopt.install(store=False)
    factorized(6)
    assert library.num_threads == 2
    assert "factorizations" not in notes()
    factorized(7)
    assert library.num_threads == 1


@pytest.mark.parametrize("word", ["argument", *VARIABLES])
def test_threads_that_the_user_wants_are_left_alone(library, monkeypatch, word):
    if word != "argument":
        monkeypatch.setenv(word, "2")
    monkeypatch.setattr(blas_threads, "timed_solves", lambda: STALLED)
    graphopt.install(store=False, keep_blas_threads=word == "argument")
    factorized(8)
    assert library.num_threads == 2


def test_a_trial_that_fails_costs_no_program_anything(library, monkeypatch):
    def fails():
        raise OSError("no such library")

    monkeypatch.setattr(blas_threads, "timed_solves", fails)
    graphopt.install(store=False)
    np.testing.assert_allclose(factorized(9), np.eye(9) * 4 + 9)
    assert library.num_threads == 2
    assert {record.outcome for record in graphopt.report().records} <= {
        Outcome.KEPT,
        Outcome.REWRITTEN,
    }


def test_another_thread_that_has_set_threads_keeps_its_word(library, monkeypatch):
    monkeypatch.setattr(blas_threads, "timed_solves", lambda: STALLED)
    if not hasattr(library, "clear_controlling_thread"):
        pytest.skip("this threadpoolctl listens to every thread")
    found = []

    def look():
        threads = BlasThreads(found.append)
        threads.look(b"lapack_spotrf_ffi")
        threads.restore()

    with threadpool_limits(2):
        asking = threading.Thread(target=look)
        asking.start()
        asking.join()
        assert library.num_threads == 2
    assert found == []


def test_all_solves_but_the_first_must_have_waited():
    assert are_stalled(STALLED)
    assert are_stalled(WELL[:SETTLING] + STALLED[:CALLS])
    assert not are_stalled(STALLED[:-1] + WELL[:1])


def test_a_trial_ends_when_it_is_certain():
    seconds = iter(STALLED[:SETTLING] + WELL)
    assert not are_stalled(seconds)
    assert len(list(seconds)) == len(WELL) - 1


TRIED_ON_ONE_CORE = """
    import os

    import jax
    import jax.numpy as jnp

    import graphopt
    from graphopt.plugin.blas_threads import openblas_of_scipy, set_threads

    jnp.linalg.cholesky(jnp.eye(2)).block_until_ready()
    (library, *_) = openblas_of_scipy()
    set_threads(library, 2)
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), [min(os.sched_getaffinity(0))])
    graphopt.install(store=False)
    jax.jit(jnp.linalg.inv)(jnp.eye(3) * 2).block_until_ready()
    print(library.num_threads)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="cannot be pinned here")
def test_more_threads_than_cores_are_found_out():
    assert run_python("-c", textwrap.dedent(TRIED_ON_ONE_CORE)).stdout.split()[-1] == "1"
