"""Subscribers to XLA's transformation hook: order, errors, and how they leave."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import xla
from support.captures import proto_of

from graphopt import xla_hook
from graphopt.errors import UnsupportedJaxError
from graphopt.xla_hook import module_name

X = jnp.linspace(0.0, 1.0, 7)


@pytest.fixture
def subscribe() -> Iterator[Callable[..., xla_hook.Subscription]]:
    """`xla_hook.subscribe`; what is still subscribed at the end is closed."""
    made: list[xla_hook.Subscription] = []

    def call(*args: Any, **options: Any) -> xla_hook.Subscription:
        made.append(xla_hook.subscribe(*args, **options))
        return made[-1]

    yield call
    for subscription in made:
        subscription.close()


def replace(old: str, new: str) -> xla_hook.Handler:
    def handler(data: bytes) -> bytes:
        proto = proto_of(data)
        for computation in proto.computations:
            for instruction in computation.instructions:
                if instruction.opcode == old:
                    instruction.opcode = new
        return bytes(proto.SerializeToString())

    return handler


def result() -> Any:
    """The sine of X as a fresh jitted function computes it."""
    return np.asarray(jax.jit(lambda x: jnp.sin(x))(X))


class Recorder:
    """A handler that keeps what it is asked and passes."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def __call__(self, data: bytes) -> None:
        self.seen.append(data)


def test_a_subscriber_sees_every_module(subscribe):
    recorder = Recorder()
    subscribe(recorder)
    jax.jit(lambda x: x + 1.0)(X)
    jax.jit(lambda x: x + 2.0)(X)
    assert len(recorder.seen) == 2
    assert {type(data) for data in recorder.seen} == {bytes}
    assert all(proto_of(data).computations for data in recorder.seen)


def test_an_answer_is_what_is_compiled(subscribe):
    subscribe(replace("sine", "cosine"))
    assert result() == pytest.approx(np.cos(X), abs=1e-6)


def test_the_first_answer_wins(subscribe):
    passes, late = Recorder(), Recorder()
    subscribe(passes)
    subscribe(replace("sine", "cosine"))
    subscribe(replace("sine", "tanh"))
    subscribe(late)
    assert result() == pytest.approx(np.cos(X), abs=1e-6)
    assert len(passes.seen) == 1
    assert late.seen == []


def test_who_asks_for_one_module_gets_it_alone(subscribe):
    usual, named = Recorder(), Recorder()
    subscribe(usual)
    subscribe(named, module_name="jit_mine")

    def mine(x):
        return jnp.sin(x) * 2.0

    def other(x):
        return jnp.sin(x) * 3.0

    jax.jit(mine)(X)
    jax.jit(other)(X)
    assert [module_name(data) for data in named.seen] == ["jit_mine"]
    assert "jit_mine" not in [module_name(data) for data in usual.seen]
    assert "jit_other" in [module_name(data) for data in usual.seen]


def test_an_error_does_not_reach_the_program(subscribe, caplog):
    def fails(data: bytes) -> bytes:
        raise RuntimeError("a defect")

    later = Recorder()
    subscribe(fails)
    subscribe(later)
    with caplog.at_level(logging.ERROR, logger="graphopt"):
        assert result() == pytest.approx(np.sin(X), abs=1e-6)
    assert len(later.seen) == 1, "the next subscriber is asked"
    assert "a defect" in caplog.text


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_not_even_an_interrupt_reaches_xla(subscribe, caplog, error):
    """In a thread: an interrupt of the main thread is raised there once more."""

    def fails(data: bytes) -> bytes:
        raise error

    subscribe(fails)
    with caplog.at_level(logging.CRITICAL + 1, logger="graphopt"), ThreadPoolExecutor(1) as threads:
        assert threads.submit(result).result() == pytest.approx(np.sin(X), abs=1e-6)


@pytest.mark.parametrize("answer", ["text", 3, object(), bytearray(b"x"), True])
def test_an_answer_that_is_not_bytes_is_no_answer(subscribe, answer):
    subscribe(lambda data: answer)
    subscribe(replace("sine", "cosine"))
    assert result() == pytest.approx(np.cos(X), abs=1e-6)


def test_a_closed_subscription_is_not_asked(subscribe):
    stays, leaves = Recorder(), Recorder()
    subscribe(stays)
    leaving = subscribe(leaves)
    result()
    leaving.close()
    leaving.close()
    result()
    assert (len(stays.seen), len(leaves.seen)) == (2, 1)


def test_the_last_one_removes_the_registration():
    def is_registered() -> bool:
        """Asks XLA, which removes the registration if there is one."""
        return xla.clear_hlo_module_transformation(
            name="graphopt", platforms=("cpu",), stage=xla.PipelineStage.POST_SCHEDULER
        )

    def is_seen_while_subscribed() -> bool:
        alone = xla_hook.subscribe(Recorder())
        seen = is_registered()
        alone.close()
        return seen

    assert not is_registered()
    assert is_seen_while_subscribed()
    one, other = xla_hook.subscribe(Recorder()), xla_hook.subscribe(Recorder())
    one.close()
    other.close()
    assert not is_registered()
    recorder = Recorder()
    again = xla_hook.subscribe(recorder)
    result()
    again.close()
    assert len(recorder.seen) == 1, "subscribing twice registers once"


def test_a_handler_may_compile(subscribe):
    """The module of what the handler compiles is offered as well, so handlers guard themselves."""
    inner: list[float] = []

    def handler(data: bytes) -> None:
        if not inner:
            inner.append(0.0)
            inner[0] = float(jax.jit(lambda x: jnp.sum(x) * 3.0)(jnp.ones(4)))

    subscribe(handler)
    assert result() == pytest.approx(np.sin(X), abs=1e-6)
    assert inner == [12.0]


def test_threads_compile_at_once(subscribe):
    recorder = Recorder()
    subscribe(recorder)
    barrier = threading.Barrier(3)
    results: dict[int, float] = {}

    def work(k: int) -> None:
        barrier.wait(timeout=60)
        results[k] = float(jax.jit(lambda x: jnp.sum(x) + k)(jnp.ones(4)))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert results == {k: 4.0 + k for k in range(3)}
    assert len(recorder.seen) >= 3


@pytest.mark.parametrize("version", ["0.10.1", "0.9.3", "0.4.38", "0.10.2", "0.11.0.dev1", "1.0"])
def test_only_jax_with_the_hook_is_accepted(monkeypatch, version):
    monkeypatch.setattr(jax, "__version__", version)
    if version in ("0.10.2", "0.11.0.dev1", "1.0"):
        xla_hook.check_jax()
        return
    with pytest.raises(UnsupportedJaxError, match=version):
        xla_hook.check_jax()


def test_an_interrupt_inside_the_hook_reaches_the_program(subscribe, caplog):
    asked = Recorder()

    def interrupted(data: bytes) -> None:
        asked(data)
        if len(asked.seen) == 1:
            signal.raise_signal(signal.SIGINT)

    subscribe(interrupted)
    with caplog.at_level(logging.WARNING, "graphopt"), pytest.raises(KeyboardInterrupt):
        result()
        time.sleep(30.0)
    assert not caplog.records
