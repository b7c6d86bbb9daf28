"""What handlers of signals raise while C++ code computes."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest

from graphopt.signals import Interrupted, handed_on


class Timeout(BaseException):
    """Neither an `Exception` nor an interrupt."""


def fails(number, frame):
    raise Timeout(number)


@pytest.fixture(autouse=True)
def handlers():
    """Puts the handlers of this file's signals back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def swallowed():
    """What XLA does: a handler's exception becomes another one."""
    try:
        signal.raise_signal(signal.SIGUSR1)
    except BaseException as error:
        raise RuntimeError("INTERNAL") from error


def test_the_exception_itself_is_raised_at_the_end():
    signal.signal(signal.SIGUSR1, fails)
    with pytest.raises(Timeout) as found, handed_on() as raised:
        assert not raised
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGUSR1)
        assert raised
    assert found.value is raised[0]
    assert found.value.args == (signal.SIGUSR1,)


def test_it_takes_the_place_of_what_became_of_it():
    signal.signal(signal.SIGUSR1, fails)
    with pytest.raises(Timeout), handed_on():
        swallowed()


def test_the_first_of_several_is_raised():
    signal.signal(signal.SIGUSR1, fails)
    signal.signal(signal.SIGUSR2, lambda *_: 1 / 0)
    with pytest.raises(Timeout), handed_on():
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            with pytest.raises(Interrupted):
                signal.raise_signal(number)


def test_a_handler_that_raises_nothing_only_runs():
    seen = []
    signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    with handed_on() as raised:
        signal.raise_signal(signal.SIGUSR1)
        assert seen == [signal.SIGUSR1]
    assert not raised


def test_errors_of_the_work_are_left_alone():
    signal.signal(signal.SIGUSR1, fails)
    with pytest.raises(ZeroDivisionError), handed_on():
        1 / 0  # noqa: B018
    with pytest.raises(Timeout):
        signal.raise_signal(signal.SIGUSR1)


def test_handlers_are_put_back():
    signal.signal(signal.SIGUSR1, fails)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    with handed_on():
        assert signal.getsignal(signal.SIGUSR1) is not fails
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGUSR1) is fails
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN


def test_a_handler_that_puts_another_in_its_place_keeps_it():
    def once(number, frame):
        signal.signal(number, signal.SIG_IGN)
        raise Timeout

    signal.signal(signal.SIGUSR1, once)
    with pytest.raises(Timeout), handed_on():
        signal.raise_signal(signal.SIGUSR1)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN


def test_the_exception_has_the_context_that_it_had():
    def fails_while_handling(number, frame):
        try:
            1 / 0  # noqa: B018
        except ZeroDivisionError:
            raise Timeout from None

    signal.signal(signal.SIGUSR1, fails_while_handling)
    with pytest.raises(Timeout) as found, handed_on():
        swallowed()
    assert isinstance(found.value.__context__, ZeroDivisionError)
    assert found.value.__cause__ is None


def test_a_handler_kept_from_within_raises_by_itself_afterwards():
    signal.signal(signal.SIGUSR1, fails)
    with handed_on():
        kept = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(Timeout):
        kept(signal.SIGUSR1, None)


def test_one_within_another():
    signal.signal(signal.SIGUSR1, fails)
    with pytest.raises(Timeout), handed_on(), pytest.raises(Interrupted), handed_on():
        signal.raise_signal(signal.SIGUSR1)
    assert signal.getsignal(signal.SIGUSR1) is fails


def test_another_thread_leaves_handlers_alone():
    signal.signal(signal.SIGUSR1, fails)
    seen = []

    def work():
        with handed_on():
            seen.append(signal.getsignal(signal.SIGUSR1))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [fails]


def test_handlers_of_an_event_loop_are_left_alone():
    """Putting them back would lose that interrupted system calls go on."""

    async def inside():
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: None)
        before = signal.getsignal(signal.SIGUSR1)
        with handed_on():
            return signal.getsignal(signal.SIGUSR1) is before

    assert asyncio.run(inside())
