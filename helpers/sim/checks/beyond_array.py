"""Accesses beyond the `__shared__` array that they name, inside of shared memory: they reach the array beside it.

The hardware does what the address says, and so does the machine. Which array an instruction means is known where its address
is computed from that of one array alone; parts of dynamic shared memory are the kernel's own to divide.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np

from helpers.sim.code.program import Effect, Program
from helpers.sim.code.ptx import TYPE_BYTES, Immediate
from helpers.sim.code.sites import Site

from . import out_of_bounds
from .accesses import Access
from .device_arrays import ANY, Assignment, immediates, origins
from .observer import SharedCheck
from .protocols import Machine
from .shared_cells import SharedCells


class BeyondArray(SharedCheck):
    """strays, per granule: has somebody written there since the last barrier who meant another array? Who meets them there follows from
    that, and says nothing of barriers."""

    order = 5
    watched_natively = True
    arrays = ("strays",)

    def __init__(self, m: Machine, launch, cells):
        super().__init__(m, launch, cells)
        self.bounds = bounds_of(launch.program)
        self.some = False

    @classmethod
    def wanted(cls, launch) -> bool:
        return bool(bounds_of(launch.program))

    def read(self, m: Machine, access: Access) -> bool:
        return self._look(m, access)  # what it finds there is somebody else's, and nothing more to say

    def write(self, m: Machine, access: Access) -> None:
        if self._look(m, access):
            cells = access.touched(m, self.cells).cells  # first, because it may make a row for each block
            low, high = self.bounds[access.site.index]
            offsets = cells % self.cells.count * self.cells.granule
            self.strays.reshape(-1)[cells[(offsets < low) | (offsets >= high)]] = self.some = True

    update = write

    def barrier(self, m: Machine, rows=None) -> None:
        if self.some and (rows is None or rows.all()):
            self.strays[:] = self.some = False

    def _look(self, m: Machine, access: Access) -> bool:
        bounds = self.bounds.get(access.site.index)
        if bounds is None or type(access) is not Access:
            return False
        low, high = bounds
        bad = (access.offsets < low) | (access.offsets > high - access.width)
        if access.mask is not None:
            bad = bad & access.mask
        if not bad.any():
            return False
        out_of_bounds.in_another_array(m, access.site, low, access.offsets, access.width, bad)
        return True


def without_strays(cells: SharedCells, touched: np.ndarray, conflict: np.ndarray) -> np.ndarray:
    """Those of the conflicts at granules (touched) that do not follow from a write beyond another array."""
    beyond = next((check for check in cells.checks if isinstance(check, BeyondArray)), None)
    return conflict if beyond is None or not beyond.some else conflict & (beyond.strays.reshape(-1).take(touched) == 0)


@functools.lru_cache(maxsize=8)
def bounds_of(program: Program) -> dict[int, tuple[int, int]]:
    """{number of a site: where the one static array begins and ends that its address is computed from}, in kernels with several."""
    arrays = {start: start + nbytes for _, start, nbytes in program.shared if nbytes}
    if len(program.shared) < 2 or not arrays:
        return {}
    entry = {at for _, at in program.parameters}
    steps = []
    for op in program.ops:
        targets = [register for register in op.writes if program.types[register] != "pred"]
        if not targets:
            continue
        if op.effect in (Effect.LOAD, Effect.ATOMIC):
            pointer = any(TYPE_BYTES[program.types[register]] >= 8 for register in targets) or any(_kept(site, entry) for site in op.sites)
            steps.append(Assignment(targets, frozenset({ANY} if pointer else ()), ()))
        else:
            fixed = frozenset(at for operand in op.instruction.operands[1:] for at in _variables(operand))
            steps.append(Assignment(targets, fixed, op.reads))
    origin = origins(steps)
    found = {}
    for site in program.sites:
        if site.address is None or not (site.generic or site.space == "shared"):
            continue
        of = frozenset(_variables(site.address)) | origin.get(site.base, frozenset())
        if len(of) == 1 and (start := next(iter(of))) in arrays:
            found[site.index] = (start, arrays[start])
    return found


def arrays_at(program: Program) -> dict[int, tuple[int, int]]:
    """The same by the positions of instructions."""
    return {program.sites[index].pc: bounds for index, bounds in bounds_of(program).items()}


def _kept(site: Site, entry: set[int]) -> bool:
    """May a load of 32 bits get an address that the kernel has put there? Words of arrays are taken for indices."""
    if site.space != "param":
        return site.space == "local"
    given = site.address is not None and isinstance(site.address.base, Immediate) and site.address.base.value + site.address.offset in entry
    return not given


def _variables(operand) -> Iterable[int]:
    """The addresses of variables that an operand is made of."""
    return (one.variable for one in immediates(operand) if one.variable is not None)
