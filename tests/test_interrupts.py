"""Ctrl-C is held back while something must not be left half done, and not lost."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from helpers import interrupts


def test_an_interrupt_waits_for_the_end_of_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt):
        with interrupts.delayed():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("first half")
            done.append("second half")
    assert done == ["first half", "second half"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_an_interrupt_nothing_happens_and_errors_pass_through():
    with interrupts.delayed():
        pass
    with pytest.raises(ValueError, match="mine"), interrupts.delayed():
        raise ValueError("mine")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_are_never_interrupted():
    seen = []

    def work():
        with interrupts.delayed():
            seen.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [1]
