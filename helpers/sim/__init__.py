"""The SIMT machine: executes the PTX that NVIDIA's compiler made, on the CPU, and says what the hardware would count.

`simulate(compiled, grid, block, args)` runs a kernel; `count` tells its counters without running it, where it can. README.md in this
folder explains the machine, its memory, the accounting and the findings, a page each.
"""

from .launch import Budget, Collect, Outcome, count, simulate
from .machine.trace import Allocation, Trace, TracedSite, TraceFilter

__all__ = ["Allocation", "Budget", "Collect", "Outcome", "Trace", "TraceFilter", "TracedSite", "count", "simulate"]
