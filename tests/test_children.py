"""Processes that answer: what they say, and when they end."""

import os
import pickle
import signal
import subprocess
import sys
import time

import psutil
import pytest

from helpers.children import TOO_LARGE, ChildProcess
from tests import ROOT

MAKER = "tests.test_children:answers"


def answers():
    """What the process answers with, here."""
    said = []

    def answer(asked):
        match asked:
            case "grow":
                said.append(bytearray(300 << 20))
            case "print":
                print("not an answer", flush=True)
            case float():
                time.sleep(asked)
        said.append(asked)
        return asked, len(said), os.getpid()

    return answer


@pytest.fixture
def child():
    made = ChildProcess(MAKER, 1 << 30)
    yield made
    made.stop()


def test_it_answers_one_thing_after_the_other_and_what_is_printed_is_no_answer(child):
    assert [child.ask(asked) for asked in ("one", "print", {"two": 2})] == [
        (asked, number, child.process.pid) for number, asked in enumerate(["one", "print", {"two": 2}], 1)
    ]


def test_it_ends_with_its_parent_at_work_or_not():
    program = (
        "import sys\nfrom helpers.children import ChildProcess\n"
        f"child = ChildProcess({MAKER!r}, 1 << 30)\nprint(child.ask('one')[2], flush=True)\nchild.ask(60.0)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    found = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert psutil.wait_procs([found], timeout=10)[1] == []


def test_it_ends_when_nobody_listens_any_more(child):
    child.ask("one")
    child.process.stdin.close()
    assert child.process.wait(timeout=20) == 0


def test_it_ends_where_it_takes_too_much_memory():
    child = ChildProcess(MAKER, 200 << 20)
    with pytest.raises((EOFError, OSError, pickle.UnpicklingError)):
        child.ask("grow")
        child.ask(2.0)
    assert child.stop() == TOO_LARGE


def test_it_ends_when_it_has_been_asked_nothing_for_long():
    child = ChildProcess(MAKER, 1 << 30, rest=0.5)
    assert child.ask(0.8)[1] == 1 and child.lives  # work is no rest
    assert child.process.wait(timeout=20) == 0
