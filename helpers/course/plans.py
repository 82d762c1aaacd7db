"""What the compiler plans for several kernels' main loops, side by side.

plans({"as it is": schedule, "all copies at once": …}) is a table: nothing is run, the machine code alone is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from helpers.arguments import explained
from helpers.errors import CourseError
from helpers.model.planned_cycles import MULTIPLY_ADD, PLACEHOLDER, PlannedLoop, main_loop
from helpers.progress import Progress
from helpers.run.kernel import Kernel

from .table import Table, Tabular

_HEADER = (
    "", "registers", "instructions", "of them FFMA", "placeholders", "planned waits", "cycles per FFMA", "bank conflicts", "with these",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Plans(Tabular):
    """Main loops by name: (registers of the kernel, its loop)."""

    loops: Mapping[str, tuple[int, PlannedLoop]]

    def cycles(self, name: str) -> float:
        """Planned cycles for each FFMA of one of them."""
        return self.loops[name][1].cycles_per_ffma

    def with_conflicts(self, name: str) -> float:
        """The same with a cycle for each bank conflict."""
        return self.loops[name][1].cycles_with_conflicts

    def table(self) -> Table:
        rows = []
        for name, (registers, loop) in self.loops.items():
            counts = (registers, len(loop.body), loop.counts[MULTIPLY_ADD], loop.counts[PLACEHOLDER], loop.waits)
            banks = [str(loop.bank_conflicts), f"{loop.cycles_with_conflicts:.3f}"]
            rows.append([name, *map(str, counts), f"{loop.cycles_per_ffma:.3f}", *banks])
        return Table(_HEADER, rows, "main loops in machine code, as the compiler plans them; nothing is measured", left=(0,))


@explained
def plans(kernels: Mapping[str, Kernel]) -> Plans:
    """The plans of these kernels' main loops, by the names they are given. Raises CourseError for a kernel without a main loop."""
    found = {}
    with Progress("reading the plans of main loops") as progress:
        for done, (name, kernel) in enumerate(kernels.items()):
            progress(done, len(kernels))
            loop = main_loop(kernel.compiled)
            if loop is None:
                raise CourseError(f"{name}: the machine code has no loop with an FFMA in it, so there is no main loop to read.")
            found[name] = kernel.compiled.registers, loop
    return Plans(found)
