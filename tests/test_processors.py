import os

import pytest

from helpers import processors


def test_a_process_that_is_kept_to_one_processor_uses_one():
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system keeps no process to a processor")
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert processors.available() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert processors.available() == len(before)


def test_a_system_that_does_not_tell_has_those_of_the_machine(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processors.available() == 1
