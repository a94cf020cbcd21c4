"""Ctrl-C becomes a flag between two calls, and the handler that was there before comes back."""

import signal
import threading

import pytest

from sbjax.interrupt import Interrupt


@pytest.fixture(autouse=True)
def handler():
    """A handler of the application's own, which has to be there afterwards."""
    before = signal.signal(signal.SIGINT, mine)
    yield
    assert signal.signal(signal.SIGINT, before) is mine


def mine(*_):
    raise AssertionError("the application's handler was called")


def test_the_first_ctrl_c_is_a_flag_and_the_second_interrupts():
    with pytest.raises(KeyboardInterrupt), Interrupt() as interrupt:
        assert not interrupt.pressed
        signal.raise_signal(signal.SIGINT)
        assert interrupt.pressed
        signal.raise_signal(signal.SIGINT)


def test_the_handler_comes_back_whatever_happens():
    with Interrupt():
        assert signal.getsignal(signal.SIGINT) is not mine
    assert signal.getsignal(signal.SIGINT) is mine
    with pytest.raises(ZeroDivisionError), Interrupt():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is mine


def test_outside_the_main_thread_nothing_is_changed():
    seen = []

    def work():
        with Interrupt() as interrupt:
            seen.append((signal.getsignal(signal.SIGINT), interrupt.pressed))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(mine, False)]


def test_an_ignored_ctrl_c_is_ignored_again_afterwards():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert interrupt.pressed
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, mine)
