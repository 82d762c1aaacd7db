"""What is waited for as long as it takes: phases of mbarriers, registers that others give away."""

from __future__ import annotations

from helpers.sim.counting.machine_code.values import TRUE

from .handlers import meaning_of, set_predicates, set_register


@meaning_of("SYNCS")
def _mbarrier(launch, i, mask):
    """How often a thread looks at an mbarrier before its phase is over, no slice knows. The token of an arrival is not known."""
    set_predicates(launch, i, (TRUE if launch.waits_end else None,), mask)
    for k in range(i.row.registers(i.modifiers)):
        set_register(launch, i, None, mask, k)


@meaning_of("USETMAXREG")
def _registers(launch, i, mask):
    set_predicates(launch, i, (TRUE if launch.waits_end else None,), mask)
