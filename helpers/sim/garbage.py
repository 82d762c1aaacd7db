"""Memory of launches that have ended.

What the NumPy machine keeps of a block refers to itself in circles, so that only Python's collector frees it. That goes by the number of
objects, and these are few and large: a check of sixty shapes took 23 GB. The C library in turn keeps what lies between what is still used.
"""

from __future__ import annotations

import ctypes
import gc
import sys

from helpers import interrupts

_ENOUGH = 2.0  # seconds of simulation whose blocks are worth a collection, which takes some tenths


class Collector:
    """since: seconds of simulation since it last collected."""

    def __init__(self):
        self.since = 0.0

    def after(self, seconds: float) -> None:
        """A launch has ended that the NumPy machine ran for so long."""
        self.since += seconds
        if self.since >= _ENOUGH:
            self.since = 0.0
            with interrupts.delayed():  # what is freed may call somebody, and Python ignores what is raised there
                gc.collect()
            if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):  # the GNU C library's
                library.malloc_trim(0)


launches = Collector()
