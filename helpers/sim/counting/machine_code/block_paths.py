"""The way of one block's warps through the machine code, and what each of their memory instructions costs: what a model of time walks.

The same slice that is counted, run for one block, writing down each visit of a basic block: which warps come, and for each memory
instruction the wavefronts, look-ups and sectors of a warp. Sectors that no warp of the block has touched lately must be fetched from L2;
the first warp to touch them brings them for all.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.lines import cell_lines
from helpers.sim.code.sass import SassFunction, SassInstruction
from helpers.sim.code.sass_operands import SassAddress, SassRegister
from helpers.sim.code.sites import CostRule
from helpers.sim.counting import rules

from .constants import LOCAL_WINDOW, cubin_constants, launch_constants
from .counts import sliced
from .execute import SliceRun
from .signals import Phases, Signal, SignalKind, counted, kind_of, place_of, shared_out
from .values import LOW, ZERO, CannotTell

LINE, SECTOR = 128, 32  # bytes
ANY_BARRIER = -1  # one whose number is not known
_TAGS_PER_CYCLE = 4  # of the L1 cache
_WORD = 4  # bytes
_PARITY = 31  # bit of a look's operand
_RANK = 24  # bits of a shared address before the number of its block in a cluster
_LOCAL_WORDS = 1 << 20  # of a lane, more than there are
_COPIED = 16  # bytes of a lane's widest copy, and of each past L1
_LOOKED_AT = 40  # executions of an instruction whose sectors are followed; later ones are taken to go on as the last of them
_MOST_VISITS = 60_000  # of basic blocks, before a path is given up

Scattered = Callable[[SassInstruction], float]


@dataclass(frozen=True)
class AccessCost:
    """One execution of a memory instruction by the warps of a block. Figures are per warp that takes part.

    wavefronts: of shared memory. lookups: cycles of the L1 cache for the lines of a load. sectors: 32 bytes each; fetched: those of
    them that come from L2, for which so many lines are `asked`. bringers: for each warp of the block the one that brings what it
    lacks (itself, or an earlier one), -1 where nothing is lacking; () for what is no load from device or local memory. local: it is of
    local memory. Of a store, asked are its lines; partial: those of them of which it writes a part of some sector.
    """

    warps: int
    wavefronts: float
    lookups: float
    sectors: float
    fetched: float = 0.0
    bringers: tuple[int, ...] = ()
    asked: float = 0.0
    local: bool = False
    partial: float = 0.0


@dataclass(frozen=True)
class Visit:
    """Warps (a bit each) that execute the instructions [start, end), and what those that reach memory cost, by index.

    A memory instruction without a cost was switched off by its guard, or stores to where data say. barriers: numbers of those that
    wait for so many threads, or have it in a register, by index, for each warp of the block, ANY_BARRIER where it is not known or takes no
    part; one without was switched off, too.
    signals: what is done to mbarriers, likewise.
    """

    start: int
    end: int
    warps: int
    costs: Mapping[int, AccessCost]
    barriers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    signals: Mapping[int, Signal] = field(default_factory=dict)

    @property
    def instructions(self) -> int:
        """Warp instructions."""
        return (self.end - self.start) * self.warps.bit_count()


@dataclass(frozen=True)
class BlockPath:
    """What one block executes: `visits` in order. function: the code they are indices of. warps: of the block. usual: it is told for
    numbers that no division, root or reciprocal has a way of its own for. by_data: it loads from where data say, which are not known:
    nobody has fetched that before then. new: index of a load or copy from device memory -> how often, of all times that a warp executes
    it, it wants a line of which the block wanted nothing before. own: indices of loads that want only lines in which the block stores: C,
    where a product adds to it. unequal: other blocks of the launch are known to execute less."""

    function: SassFunction
    visits: tuple[Visit, ...]
    warps: int
    usual: bool = False
    by_data: bool = False
    new: Mapping[int, float] = field(default_factory=dict)
    own: frozenset[int] = frozenset()
    unequal: bool = False


@dataclass(frozen=True)
class Surroundings:
    """What the way of a block does not tell by itself. cluster: blocks per cluster (x, y, z). scattered: sectors of a warp's load whose
    address depends on data. sent: bytes of one copy in bulk to device memory. boxes: of copies to shared memory, by index of their
    instruction, as far as they are known."""

    cluster: tuple[int, int, int] = (1, 1, 1)
    scattered: Scattered = lambda _: float(WARP)
    sent: float = 0.0
    boxes: Mapping[int, int] = field(default_factory=dict)


class PathRun(SliceRun):
    """A run of one block that writes down where its warps go. cached: sectors of L1 that the block may count on. around: what it cannot
    tell by itself."""

    jumps = False
    waits_end = True
    private_stack = True  # what may have been stored there is forgotten

    def __init__(self, program, grid, block, constants, index: int, cached: int, around: Surroundings):
        super().__init__(program, grid, block, constants, [index], True, _MOST_VISITS, around.cluster)
        self.rank = int(self.special["SR_CgaCtaId"].item())
        self.around, self.by_data = around, False
        self.visits: list[Visit] = []
        self.cached = cached
        self.present: OrderedDict[int, None] = OrderedDict()  # sectors in L1, the latest last
        self.lines: set[int] = set()  # of device memory
        self.new: dict[int, list[int]] = {}  # index -> warps that wanted a new line, and all
        self.wanted: dict[int, set[int]] = {}  # index of a load -> lines
        self.stored: set[int] = set()  # lines
        self.times: dict[int, int] = {}
        self.latest: dict[int, AccessCost] = {}
        self.costs_now: dict[int, AccessCost] = {}
        self.barriers_now: dict[int, tuple[int, ...]] = {}
        self.signals_now: dict[int, Signal] = {}
        self.phases = Phases()
        self.expected: dict[int, list[float]] = defaultdict(list)  # mbarrier -> bytes that each arrival expects, and …
        self.brought: dict[int, list[tuple[dict[int, Signal], int, int]]] = defaultdict(list)  # … copies: signals of a visit, index, warp
        self.kept: list[tuple[SassInstruction, AccessCost, np.ndarray]] = []  # accesses to local memory in this visit

    def execute(self, part):
        block = self.program.block_of[part.pc]
        arrived = np.ones((1, 1, 1, self.lanes), bool) if part.mask is None else part.mask
        rows = self.by_warp(arrived).any(axis=-1).reshape(-1)
        self.costs_now, self.barriers_now, self.signals_now = {}, {}, {}
        warps = sum(1 << k for k, on in enumerate(rows) if on)
        self.visits.append(Visit(block.start, block.end, warps, self.costs_now, self.barriers_now, self.signals_now))
        super().execute(part)
        self._reload()

    def observe(self, i, mask):
        super().observe(i, mask)
        if i.row.points and i.row.op != "ld" and not self.program.private_stack:
            place = self.address(next(s for s in i.sources if isinstance(s, SassAddress)))
            if place is None or (place >> 32 == LOCAL_WINDOW).any():
                self.forget_stack(mask)
        if i.index not in self.unknown_sites or i.row.op != "ld" or i.row.space not in ("global", "generic"):
            return
        taking_part = self._active(mask).reshape(-1, WARP).any(axis=1)
        self.by_data, each = True, self.around.scattered(i)
        bringers = _each_for_itself(taking_part)
        lookups = max(1.0, each / _TAGS_PER_CYCLE)
        self.costs_now[i.index] = AccessCost(max(1, int(taking_part.sum())), 0.0, lookups, each, each, bringers, each)

    def perform(self, i, mask):
        if kind := kind_of(i):
            self._signal(i, kind)  # before its result, which may be where its address is
        super().perform(i, mask)
        if i.row.meets and _is_named(i):
            number = self.read(i.sources[0])
            rows = [set(row) - {-1} for row in self._rows(ZERO if number is None else number).tolist()]
            if any(rows):
                one = tuple(row.pop() if len(row) == 1 and number is not None else ANY_BARRIER for row in rows)
                self.barriers_now[i.index] = one

    def _signal(self, i, kind: SignalKind) -> None:
        """Write down what the lanes at work do to mbarriers: those of a warp to one of them."""
        place = ZERO if kind is SignalKind.SENT else self.address(place_of(i))
        if place is None:
            raise CannotTell("which mbarrier it is depends on data", i)
        rows, word = self._rows(place), self.read(i.sources[-1])
        words = None if word is None else np.broadcast_to(word & LOW, (1, 1, 1, self.lanes)).reshape(rows.shape)
        abroad = i.has("MULTICAST") or bool((rows[rows >= 0] >> _RANK != self.rank).any() and kind is SignalKind.ARRIVE)
        rows = np.where(rows >= 0, rows & (1 << _RANK) - 1, -1)
        places, arrivals, amounts = [-1] * len(rows), [0] * len(rows), [0.0] * len(rows)
        for warp, row in enumerate(rows):
            lanes = np.flatnonzero(row >= 0)
            if not len(lanes):
                continue
            where, mine = int(row[lanes[0]]), None if words is None else words[warp, lanes]
            places[warp] = where
            if kind is SignalKind.LOOK:
                amounts[warp] = self.phases.advance(warp, where, None if mine is None else int(mine[0]) >> _PARITY & 1)
            elif kind is SignalKind.BULK:
                self.brought[where].append((self.signals_now, i.index, warp))
            elif kind is SignalKind.SENT:
                amounts[warp] = len(lanes) * self.around.sent
            else:
                each = [counted(i, None if mine is None else int(word)) for word in (lanes if mine is None else mine)]
                if any(arrived is None or amount is None for arrived, amount in each):
                    raise CannotTell("what an mbarrier waits for depends on data", i)
                arrivals[warp], amounts[warp] = (sum(column) for column in zip(*each, strict=True))
                if kind is SignalKind.INIT:
                    arrivals[warp] = each[0][0]
                    self.phases.begin(where)
                elif amounts[warp] > len(lanes):
                    self.expected[where].append(amounts[warp])
        self.signals_now[i.index] = Signal(tuple(places), tuple(arrivals), tuple(amounts), abroad)

    def share_out(self) -> None:
        """Give copies the bytes that their mbarriers expect."""
        for place, copies in self.brought.items():
            blocks = (math.prod(self.around.cluster) if signals[index].abroad else 1 for signals, index, _ in copies)
            brought = [float(self.around.boxes.get(index, 0) * many) for many, (_, index, _) in zip(blocks, copies, strict=True)]
            if not all(brought) or sum(brought) != sum(self.expected[place]):
                brought = shared_out(self.expected[place], len(copies))
            for (signals, index, warp), amount in zip(copies, brought, strict=True):
                amounts = list(signals[index].amounts)
                amounts[warp] = amount
                signals[index] = replace(signals[index], amounts=tuple(amounts))

    def stack_value(self, i, k):
        """Also of an array whose index is known late."""
        found = super().stack_value(i, k)
        place = self.address(next(s for s in i.sources if isinstance(s, SassAddress)))
        if found is not None or place is None or place.size == 1:
            return found
        places, active = np.broadcast_to(place, (1, 1, 1, self.lanes)), self._active(self.mask)
        found = np.zeros_like(places)
        for where in np.unique(places.reshape(-1)[active]):
            word = self.lookup(f"stack+{where + _WORD * k}")
            if word is None:
                return None
            found = np.where(places == where, word, found)
        return found

    def add(self, i, cost, times: int = 1):
        super().add(i, cost, times)
        index = i.index
        self.times[index] = self.times.get(index, 0) + 1
        if self.times[index] > _LOOKED_AT:
            self.costs_now[index] = self.latest[index]
            return
        space, counted = next(iter(cost.items()))
        warps = max(1, counted["requests"])
        sectors = counted["sectors"] / warps
        found = AccessCost(warps, counted["wavefronts"] / warps, 0.0, sectors)
        places = [self.address(s) for s in i.sources if isinstance(s, SassAddress)]
        if places and places[-1] is not None:
            if space == "local":
                self._local(i, places[-1], found)
            elif space == "global" and i.row.op in ("ld", "cp.async"):
                found = self._load(i, places, warps, found)
            elif space == "global":
                rows = self._rows(places[-1])
                self.stored.update((rows // LINE).ravel().tolist())
                lines, partial = (float(counted.sum()) / warps for counted in stored_lines(rows, i.width))
                found = replace(found, asked=lines, partial=partial)
        self.costs_now[index] = self.latest[index] = found

    def _rows(self, place) -> np.ndarray:
        """[warps, 32]: an address for each lane, -1 where it is idle."""
        everywhere = np.broadcast_to(place, (1, 1, 1, self.lanes)).reshape(-1)
        return np.where(self._active(self.mask), everywhere, -1).reshape(-1, WARP)

    def _active(self, mask) -> np.ndarray:
        """Which lanes are threads of the block that a mask leaves on, [lanes]. mask: as `SliceRun` has it, None: of all."""
        threads = np.arange(self.lanes) < self.threads
        return threads if mask is None else threads & np.broadcast_to(mask, (1, 1, 1, self.lanes)).reshape(-1)

    def _load(self, i, places, warps: int, found: AccessCost) -> AccessCost:
        """`found`, with what the caches have to do for a load from device memory. places: addresses, of a copy where it writes and where
        it reads."""
        rows = self._rows(places[-1])
        self._note_lines(i.index, rows)
        if "BYPASS" in i.modifiers and places[0] is not None:
            requests, taking_part = copy_requests(rows, self._rows(places[0])), rows.max(axis=1) >= 0
            each = float(requests[taking_part].mean()) if taking_part.any() else 0.0
            return AccessCost(warps, found.wavefronts, each, found.sectors, found.sectors, _each_for_itself(taking_part), each)
        bringers, fetched, asked = self._touch(rows // SECTOR)
        taking_part = rows[rows.max(axis=1) >= 0]
        lookups = float(lookup_cycles(taking_part, i.width).mean()) if len(taking_part) else 0.0
        if i.row.op != "ld" and i.width == _COPIED and places[0] is not None:  # (the profiler counts the larger of both sides: run 38)
            targets = self._rows(places[0])
            written = rules.cost(CostRule.SHARED_STORE, np.maximum(targets, 0), targets >= 0, i.width).wavefronts
            found = replace(found, wavefronts=float(written.sum()) / warps)
        return AccessCost(warps, found.wavefronts, lookups, found.sectors, fetched / warps, tuple(bringers), asked / warps)

    def _note_lines(self, index: int, rows: np.ndarray) -> None:
        """Of one execution: which warps want a line that is new to the block."""
        wanted = [set(row) - {-1} for row in (rows // LINE).tolist()]
        known, all_of_it = self.new.setdefault(index, [0, 0]), self.lines
        known[0] += sum(not lines <= all_of_it for lines in wanted)
        known[1] += sum(map(bool, wanted))
        all_of_it.update(*wanted)
        self.wanted.setdefault(index, set()).update(*wanted)

    def _local(self, i, place, found: AccessCost) -> None:
        """Note an access to spilled registers, or to an array that has no register: a word of all lanes lies in a line of its warp."""
        rows = self._rows(place & LOW)
        first = np.arange(len(rows))[:, None] * _LOCAL_WORDS + np.where(rows >= 0, rows // _WORD, 0)
        words = [first + k for k in range(max(1, i.width // _WORD))]
        sectors = [np.where(rows >= 0, -2 - (word * WARP + np.arange(WARP)) * _WORD // SECTOR, -1) for word in words]
        self.kept.append((i, found, np.concatenate(sectors, axis=1)))

    def _reload(self) -> None:
        """What the local accesses of a visit cost: one warp after the other, as each goes on while it can (with all of them at once, L1
        would have half as many as Nsight Compute counts: log, run 39). What is stored stays in L1."""
        if not self.kept:
            return
        lacking = np.zeros((len(self.kept), self.lanes // WARP, 2), int)
        for warp in range(self.lanes // WARP):
            for number, (_, _, sectors) in enumerate(self.kept):
                _, *lacking[number, warp] = self._touch(sectors[warp : warp + 1])
        for (i, found, _), each in zip(self.kept, lacking, strict=True):
            fetched, asked = each.sum(axis=0) / found.warps
            cost = replace(found, local=True)
            if i.row.op == "ld":
                cost = replace(cost, fetched=fetched, bringers=_each_for_itself(each[:, 0] > 0), asked=asked)
            self.costs_now[i.index] = self.latest[i.index] = cost
        self.kept.clear()

    def _touch(self, sectors: np.ndarray) -> tuple[list[int], int, int]:
        """Warps that want these sectors of L1 ([warps, n], -1: none), one after the other: (`bringers`, sectors that it lacks, lines of
        these)."""
        bringers, brought, fetched, asked = [-1] * len(sectors), {}, 0, 0
        for warp, row in enumerate(sectors.tolist()):
            lines = set()
            for sector in sorted(set(row) - {-1}):  # of an idle lane
                if sector in self.present:
                    self.present.move_to_end(sector)
                    if bringers[warp] < 0:
                        bringers[warp] = brought.get(sector, -1)
                else:
                    self.present[sector] = None
                    brought[sector] = bringers[warp] = warp
                    fetched += 1
                    lines.add(sector * SECTOR // LINE)
            asked += len(lines)
        while len(self.present) > self.cached:
            self.present.popitem(last=False)
        return bringers, fetched, asked


def _is_named(i: SassInstruction) -> bool:
    """Is it a barrier of so many threads, or one whose number is in a register?"""
    return len(i.sources) > 1 or (bool(i.sources) and isinstance(i.sources[0], SassRegister))


def _each_for_itself(taking_part: np.ndarray) -> tuple[int, ...]:
    """The `bringers` where each warp that takes part fetches its own."""
    return tuple(warp if there else -1 for warp, there in enumerate(taking_part.tolist()))


def lookup_cycles(addresses: np.ndarray, width: int) -> np.ndarray:
    """Cycles of the load/store unit for warp accesses that hit L1: [n, 32] byte addresses (-1: idle lane) -> [n].

    Two things take turns: the tags of distinct lines, four per cycle; and the data, which lie in the same 32 banks of
    four bytes as shared memory, so that words of one bank take a cycle each. Rows whose length is a multiple of 128
    bytes put a whole column into one bank. (Found on an H200: step 01 takes 33 cycles per round at 4096 columns and 10
    at 4095.)
    """
    active = addresses >= 0
    lines = np.sort(np.where(active, addresses // LINE, -1), axis=1)
    fresh = (lines >= 0) & np.concatenate([np.ones((len(lines), 1), bool), lines[:, 1:] != lines[:, :-1]], axis=1)
    wavefronts = rules.cost(CostRule.SHARED_LOAD, np.where(active, addresses, 0), active, width).wavefronts
    return np.maximum(wavefronts, fresh.sum(axis=1) / _TAGS_PER_CYCLE)


def copy_requests(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Requests of warps' copies of 16 bytes a lane past L1: [n, 32] byte addresses twice (sources -1: idle lane) -> [n].

    One request takes sectors of one line to one line of shared memory, all of them as far, or all to where the same bits of their place
    in the line are flipped; what begins in the middle of a sector takes two. (Found on an H200, log, run 38: equal to Nsight Compute's
    wavefronts of such copies for tiles in rows, padded, shifted and swizzled; for lanes in no order a tenth off.)
    """
    apart, flipped = targets // SECTOR - sources // SECTOR & 3, (targets // SECTOR ^ sources // SECTOR) & 3
    first = np.where(sources >= 0, sources, np.iinfo(np.int64).max).min(axis=1, keepdims=True)
    lines = (sources // LINE - first // LINE << 24 | targets // LINE) << 3 | ((targets ^ sources) // _COPIED & 1) << 2
    keys = (np.where(sources >= 0, lines | way, -1) for way in (apart, flipped))
    return np.minimum(*(np.count_nonzero(np.diff(np.sort(key, axis=1), axis=1, prepend=-1), axis=1) for key in keys))


def stored_lines(addresses: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Lines that warps' stores of so many bytes a lane reach, and those of them in which they write a part of some sector: [n, 32] byte
    addresses (-1: idle lane) -> twice [n]. (On an H200 a line of the latter takes a cycle longer: log, run 42.)"""
    lines, partial = np.zeros((2, len(addresses)), int)
    for warp, row in enumerate(addresses):
        written, counts = np.unique(np.unique(row[row >= 0][:, None] + np.arange(width)) // SECTOR, return_counts=True)
        of_line = written * SECTOR // LINE
        lines[warp], partial[warp] = len(np.unique(of_line)), len(np.unique(of_line[counts < SECTOR]))
    return lines, partial


def block_path(
    compiled, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], index: int, cached: int,
    around: Surroundings | None = None,
) -> tuple[BlockPath | None, str]:  # fmt: skip
    """(path of the block with this linear index, '') or (None, why it cannot be told).

    compiled, grid, block, args: as for `instruction_counts`. cached: sectors of the L1 cache that a block may count on.
    """
    around = around or Surroundings()
    found, why = _path(compiled, grid, block, args, index, cached, False, around)
    if found is None and "CALL" in compiled.sass:
        usual, _ = _path(compiled, grid, block, args, index, cached, True, around)
        found, why = (usual, "") if usual else (None, why)
    return found, why


def _path(compiled, grid, block, args, index: int, cached: int, usual: bool, around: Surroundings) -> tuple[BlockPath | None, str]:
    program = sliced(compiled.sass, compiled.symbol, True, usual)
    if program is None:
        return None, "there is no machine code for this kernel"
    try:
        constants = launch_constants(compiled.ptx, compiled.symbol, compiled.arch, grid, block, args, around.cluster)
        constants |= cubin_constants(compiled.cubin, compiled.symbol)
        run = PathRun(program, grid, block, constants, index, cached, around)
        run.run()
        run.share_out()
    except CannotTell as reason:
        return None, reason.in_lines(cell_lines(compiled))
    new = {index: part / (every or 1) for index, (part, every) in run.new.items()}
    own = frozenset(index for index, lines in run.wanted.items() if lines <= run.stored)
    return BlockPath(program.function, tuple(run.visits), run.lanes // WARP, usual, run.by_data, new, own), ""
