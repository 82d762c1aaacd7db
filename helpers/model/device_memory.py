"""What a launch asks of L2 and of DRAM, as far as its counters, its arrays and its PTX tell: bytes that have to come from DRAM or go
there, atomic operations that wait for each other, and sectors that are written in part."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass

from helpers.errors import RunError
from helpers.sim.code.parameters import parameters_reached
from helpers.sim.code.sites import AccessKind, Site
from helpers.sim.counting import names
from helpers.sim.counting.machine_code import SECTOR
from helpers.sim.layouts.tensor_map import TensorMap
from helpers.sim.load import load

from .cycles.chip import figures

_WORD = 4  # bytes that one atomic operation changes
_READS = (AccessKind.LOAD, AccessKind.COPY, AccessKind.BULK_LOAD, AccessKind.PREFETCH)
_WRITES = (AccessKind.STORE, AccessKind.BULK_STORE)


@dataclass(frozen=True)
class MemoryDemand:
    """read, written: bytes that DRAM gives or gets, at most once each. new: the part of the fetched sectors that nobody fetched before.
    atomics: cycles in which L2 performs the atomic operations. parts: sectors that a store writes in part."""

    read: float
    written: float
    new: float
    atomics: float
    parts: float


def device_memory(run) -> MemoryDemand:
    """Of a Run whose counters are known.

    What is read is what the threads fetch, but no more than the arrays have that loads may reach; of an array that is read again, and
    only in part, it takes too much. Atomic operations are taken to be spread evenly over the arrays that they may reach.
    """
    counters, arrays = run.counters, _Arrays(run)
    fetched = _moved(counters, "ld")
    read = min(fetched, arrays.bytes(lambda site: site.op in _READS))
    changed = min(_atomic(counters, names.sectors) * SECTOR, arrays.bytes(_is_atomic))
    changed += min(counters.get(names.bulk_sectors("red"), 0) * SECTOR, arrays.bytes(lambda site: site.op is AccessKind.BULK_STORE))
    return MemoryDemand(
        read=read + changed,
        written=min(_moved(counters, "st"), arrays.bytes(lambda site: site.op in _WRITES)) + changed,
        new=read / fetched if fetched else 0.0,
        atomics=_atomic_cycles(counters, arrays),
        parts=_parts(run),
    )


def _moved(counters, op: str) -> int:
    """Bytes of device memory that threads and copies in bulk load ('ld') or store ('st')."""
    return (counters.get(names.sectors("global", op), 0) + counters.get(names.bulk_sectors(op), 0)) * SECTOR


class _Arrays:
    """The arrays of a launch, and which of them its accesses may reach."""

    def __init__(self, run):
        compiled = run.kernel.compiled
        self.sizes = [_bytes_of(value) for value in run.arguments]
        self.constant = [parameter.const for parameter in compiled.parameters]
        self.program = None
        with contextlib.suppress(RunError):  # what the machine cannot read may be anywhere
            self.program = load(compiled.ptx, compiled.symbol, compiled.filename)
        self.reached = parameters_reached(self.program) if self.program else {}

    def sites(self, wanted: Callable[[Site], bool]) -> list[Site]:
        found = self.program.sites if self.program else ()
        return [site for site in found if (site.space in ("global", "generic") or site.device is not None) and wanted(site)]

    def bytes(self, wanted: Callable[[Site], bool]) -> int:
        """Of the arrays that these accesses may reach; of all that the launch may reach so, where that is not known."""
        sites = self.sites(wanted)
        if self.program is None or any(self.reached[site.index] is None for site in sites):
            writes = self.program is None or any(site.op.changes or site.op in _WRITES for site in sites)
            return sum(size for size, const in zip(self.sizes, self.constant, strict=True) if not (writes and const))
        reached = frozenset().union(*(self.reached[site.index] or () for site in sites))
        return sum(size for (variable, _), size in zip(self.program.parameters, self.sizes, strict=False) if variable.name in reached)


def _bytes_of(argument) -> int:
    """Of the array that it is, or that it is a tensor map of."""
    array = argument.memory if isinstance(argument, TensorMap) else argument
    return array.nbytes if getattr(array, "ndim", 0) else 0


def _is_atomic(site: Site) -> bool:
    return site.op.atomic


def _atomic(counters, name: Callable[[str, str], str]) -> int:
    return sum(counters.get(name("global", op), 0) for op in ("atom", "red"))


def _atomic_cycles(counters, arrays: _Arrays) -> float:
    """`sectors` of atomic operations are counted once for each lane that names an address again: turns that L2 takes one by one."""
    turns, chip = _atomic(counters, names.sectors), figures()["l2"]
    if not turns:
        return 0.0
    opcodes = [site.opcode for site in arrays.sites(_is_atomic)]
    size = max(_WORD, arrays.bytes(_is_atomic))
    each = chip["swap"] if any(".cas" in opcode for opcode in opcodes) else chip["atomic"]
    places = min(chip["places"], math.ceil(size / chip["place"]))
    again = chip["float"] if any(".f" in opcode or ".bf" in opcode for opcode in opcodes) else chip["atomic"]
    return turns * max(each / places, again / math.ceil(size / SECTOR))


def _parts(run) -> float:
    """Sectors of stores that touch more of them than they have bytes for, by line."""
    sectors, ideal = names.sectors("global", "st"), names.ideal_sectors("global", "st")
    return sum(row[sectors] for row in run.by_line.values() if row.get(sectors, 0) > row.get(ideal, math.inf))
