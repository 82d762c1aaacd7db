"""Ctrl-C is held back while something must not be left half done, and not lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from helpers import interrupts
from tests import ROOT


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


def test_what_may_never_end_is_stopped_and_the_rest_is_left_alone():
    with pytest.raises(interrupts.TooLongError), interrupts.bounded(0.2):
        while True:
            pass
    with interrupts.bounded(0.2):
        done = 1
    time.sleep(0.4)
    assert done
    with pytest.raises(ZeroDivisionError), interrupts.bounded(5):
        done / 0
    with pytest.raises(KeyboardInterrupt), interrupts.bounded(5):
        raise KeyboardInterrupt


def test_other_threads_are_never_interrupted():
    seen = []

    def work():
        with interrupts.delayed():
            seen.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [1]


FIRST_IMPORT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupting:
    done = False
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[2] and not self.done:
            Interrupting.done = True
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
import helpers
for attempt in range(2):
    try:
        exec(sys.argv[1])
    except KeyboardInterrupt:
        print("interrupted", Interrupting.done, attempt)
    else:
        print("works", attempt)
"""


HALF_OF_NUMPY = (
    FIRST_IMPORT.split("import helpers")[0].replace("argv[2]", "argv[1]")
    + """
import contextlib
from unittest.mock import MagicMock
import helpers
with contextlib.suppress(KeyboardInterrupt):
    import numpy
for attempt in range(2):
    for use in (lambda: helpers.gemm, lambda: helpers.load_ipython_extension(MagicMock())):
        try:
            use()
        except helpers.errors.CourseError as error:
            print(error.message)
    with contextlib.suppress(ImportError):
        import numpy
"""
)


@pytest.mark.parametrize("statement, module", [
    ("from helpers import widgets; widgets.roofline([])", "matplotlib.transforms"),
    ("from helpers.views.roofline import Point", "matplotlib.figure"),
    ("from helpers import widgets", "ipywidgets.widgets.widget_box"),
    ("from helpers import ask; ask('naive.x', '?')", "ipywidgets.widgets.widget_int"),
    ("from helpers.toolchain.installation import compiler_version; compiler_version()", "cupy._core"),
    ("from helpers import gpu; gpu.available()", "cupy._core.core"),
    ("from helpers import reference; reference('naive').show(size=16)", "matplotlib.artist"),
    ("from unittest.mock import MagicMock as M; helpers.load_ipython_extension(M())", "numpy.linalg"),
])  # fmt: skip
def test_an_interrupted_first_import_works_the_second_time(statement, module, tmp_path):
    answer = subprocess.run(
        [sys.executable, "-c", FIRST_IMPORT, statement, module], capture_output=True, text=True, timeout=240, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "GEMM_LADDER_HOME": str(tmp_path)},
    )  # fmt: skip
    said = [line for line in answer.stdout.splitlines() if line.startswith(("interrupted", "works"))]
    assert said == ["interrupted True 0", "works 1"], answer.stdout + answer.stderr


@pytest.mark.parametrize("module", ["numpy._core._exceptions", "numpy._core.numeric", "numpy.linalg"])
def test_half_of_the_readers_own_numpy_is_named(module, tmp_path):
    """Interrupted in `import numpy`, with or without a second `import numpy`, which may seem to work."""
    answer = subprocess.run(
        [sys.executable, "-c", HALF_OF_NUMPY, module], capture_output=True, text=True, timeout=240, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "GEMM_LADDER_HOME": str(tmp_path)},
    )  # fmt: skip
    assert (
        answer.stdout.splitlines() == ["The first import of numpy was interrupted, and half of it cannot be used. Restart the kernel."] * 4
    ), answer.stdout + answer.stderr


def test_an_import_cut_short_is_not_mended_by_installing_again():
    assert "Restart the kernel" in interrupts.advice_for(ImportError("cannot load module more than once per process"))
    assert interrupts.advice_for(ModuleNotFoundError("No module named 'cupy'")).startswith("Run the set-up command")
