"""One multiprocessor: warps issue, queue, wait, meet, until the last one has ended.

Four sub-partitions issue one instruction a cycle each, of the warp that issued last if it can (so that what it reuses stays) and its
instruction does not say that others go first, else of the youngest that can; of those that want shared memory, of the one that has not
issued for longest, whoever issued last; of those that want the tensor core, of the one that it last worked for. (So of two blocks that
begin together one is ahead, and they come to be apart: log, run 37.) What an instruction needs: its stall count and scoreboards, its pipe,
its registers' banks, a place in its queue, its line of code. A jump to a line that its sub-partition has read lately is short. The queues
of shared memory have places of their own and some in common. One load/store unit serves the queues of all, a wavefront or a line a cycle,
and a warp's next shared load after twice as long; what L1 lacks comes from L2 at the rate of its port, in sectors or in requests, but for
a burst no faster than all multiprocessors can have it, and whoever else wants it meanwhile waits for it, too. What asynchronous copies
bring takes the unit's wavefronts when it comes, in turn with what the queues have; loads and stores of device memory wait for what their
sub-partition sent to shared memory before. Copies past L1 ask for each line of theirs, in order: what their sub-partition has for the unit
waits behind them, and what has been taken before goes on being served meanwhile. Products of warpgroups run on while their warps do
something else, on the tensor core of each warp's sub-partition, one warpgroup's and then the next one's. A fence of the whole GPU waits
for what its warp has loaded and stored, and for all copies in bulk; a barrier for all warps of its block, or for as many as it says, that
of a cluster as if all of its blocks did the same; whoever looks at an mbarrier for its arrivals and bytes.

Every cycle of every warp is put down to one of Nsight Compute's warp states, at the instruction that it was to issue next.
"""

from __future__ import annotations

import enum
import heapq
from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from helpers.model.hardware import SUB_PARTITIONS
from helpers.sim.code import time_limit
from helpers.sim.counting.machine_code import LINE, SECTOR, Visit

from .bulk_rates import Rate
from .chip import Chip
from .code_cache import CodeCache
from .mbarriers import Mbarrier, mbarriers
from .scheduled import (
    ARRIVE,
    AWAIT,
    BARRIER,
    BULK,
    COMMIT,
    COPY,
    FENCE,
    FENCED,
    JOIN,
    LANDED,
    LOAD,
    LOOK,
    MEET,
    PRODUCT,
    SCOREBOARDS,
    SENT,
    SHARED,
    STORE,
    SUMS,
    VARIABLE,
    Scheduled,
)
from .warpgroup_products import TensorCore

_NEVER = float("inf")
_UNIT = SUB_PARTITIONS  # the load/store unit, as a place where something happens next
_MEETING = -1  # the barrier of a cluster, as a place where warps wait for phases
_WRITES_AHEAD = 200  # cycles of stores that L2's port may be behind before the unit waits for it


class WarpState(enum.IntEnum):
    """Nsight Compute's warp states."""

    SELECTED = 0
    NOT_SELECTED = 1
    WAIT = 2
    LONG_SCOREBOARD = 3
    SHORT_SCOREBOARD = 4
    BARRIER = 5
    MATH_PIPE_THROTTLE = 6
    MIO_THROTTLE = 7
    LG_THROTTLE = 8
    DISPATCH_STALL = 9
    NO_INSTRUCTION = 10
    MEMBAR = 11


WORDS = {state: state.name.lower().replace("_", " ") for state in WarpState}  # as its details page has them

# The same as plain numbers, for the inner loops.
(
    _SELECTED, _NOT_SELECTED, _WAIT, _LONG_SCOREBOARD, _SHORT_SCOREBOARD, _BARRIER, _MATH_PIPE_THROTTLE, _MIO_THROTTLE, _LG_THROTTLE,
    _DISPATCH_STALL, _NO_INSTRUCTION, _MEMBAR,
) = map(int, WarpState)  # fmt: skip


@dataclass(frozen=True)
class Spell:
    """What a warp did from `begin` until it issued its next instruction, at SASS index `index`: (state, cycles), one after the other."""

    block: int
    warp: int
    sub_partition: int
    index: int
    begin: float
    spans: tuple[tuple[WarpState, float], ...]


@dataclass
class Simulated:
    """cycles: until the last warp has ended. reached: the cycles at which so many instructions had been issued as were asked for.

    steady, rest: instruction -> cycles of warps in each WarpState, between the first two of `reached`, and otherwise. spells: of
    the steady part, if they were asked for. missed: cycles of warps in that part that wait for lines of code.
    """

    cycles: float = 0.0
    issued: int = 0
    reached: list[float] = field(default_factory=list)
    steady: dict[int, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0] * len(WarpState)))
    rest: dict[int, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0] * len(WarpState)))
    spells: list[Spell] = field(default_factory=list)
    missed: float = 0.0


class _Warp:
    """base: when its next instruction may issue, by the last one's stall count. ready: by everything that is known; _NEVER while something
    is not. gate, queues: of its next instruction, see `_Gate`. free: when each scoreboard is; holding: how many hold it that have not
    been served. groups: of copies [not yet served, when there, closed]. products: groups of them [when there, closed]. seen: when all that
    it has loaded and stored is there; copied: likewise of copies. phases: of each mbarrier, the one that it looked for last. why: the state
    it is in until `ready`. misses: what it waits for first is its next line of code. held: dispatch stalls of its sub-partition before.
    throttled: what it was throttled by first, until when that lasts if it is known, and how many instructions of its sub-partition had
    `passed` there before. served: when the load/store unit may take its next shared load. brought: when all lines are there that it has
    asked device memory for."""

    __slots__ = (
        "at_barrier", "base", "block", "brought", "copied", "fetched", "free", "gate", "groups", "held", "holding", "home", "last",
        "line", "misses", "number", "passed", "phases", "position", "products", "queues", "ready", "seen", "served", "slow",
        "steps", "throttled", "throttled_until", "why",
    )  # fmt: skip

    def __init__(self, steps, block: int, number: int, home: int):
        self.steps, self.block, self.number, self.home = steps, block, number, home
        self.position, self.line = 0, -1
        self.base = self.ready = self.last = self.held = self.fetched = 0.0
        self.free = [0.0] * (SCOREBOARDS + 1)  # and FENCED
        self.holding = [0] * (SCOREBOARDS + 1)
        self.slow = [False] * (SCOREBOARDS + 1)
        self.groups: list[list] = []
        self.products: list[list] = []
        self.seen = self.copied = 0.0
        self.phases: dict[int, int] = {}
        self.at_barrier = self.queues = self.misses = False
        self.gate: str | None = None
        self.why = _WAIT
        self.throttled: int | None = None
        self.throttled_until = self.served = 0.0
        self.passed = 0
        self.brought = -_NEVER

    def crowd(self, now: float, gap: float) -> float:
        """The part of `latency.crowd` that a load waits now: less right behind what the last one has brought, all beside others."""
        return min(1.0, (now - self.brought) / gap) if now > self.brought else 1.0

    @property
    def ended(self) -> bool:
        """Has it issued all that it has?"""
        return self.position == len(self.steps)


def _waits_for(warp: _Warp, board: int) -> int:
    """The state of a warp that waits for a scoreboard."""
    if board == FENCED:
        return _MEMBAR if warp.slow[board] else _LONG_SCOREBOARD
    return _LONG_SCOREBOARD if warp.slow[board] else _SHORT_SCOREBOARD


_EITHER = "fma"  # of two pipes
_TENSOR = "tensor"
_OF_SHARED = "queue.shared"
_QUEUES = {
    **dict.fromkeys((SHARED, ARRIVE, LOOK), _OF_SHARED),
    **dict.fromkeys((LOAD, STORE, COPY, FENCE, LANDED), "queue.global"),
}  # by kind  # fmt: skip
# What warps that wait for room there are in; elsewhere they wait for a pipe.
_THROTTLES: dict[str | None, int] = {"queue.shared": _MIO_THROTTLE, "queue.global": _LG_THROTTLE}


class _Gate(NamedTuple):
    """Where an instruction needs room to issue: `gate` is a pipe, either of two, a queue, or None. queues: it is for the load/store unit.
    throttle: what warps that want the same as it are throttled by."""

    gate: str | None
    queues: bool
    throttle: int


def _gate(step: Scheduled, two_fma_pipes: bool) -> _Gate:
    queue = _QUEUES.get(step.kind)
    if step.pipe == "fma" and two_fma_pipes:
        gate: str | None = _EITHER
    elif step.busy:
        gate = "fmaheavy" if step.pipe == "fma" else step.pipe
    else:
        gate = queue
    return _Gate(gate, queue is not None, _THROTTLES.get(queue, _MATH_PIPE_THROTTLE))


class Away(NamedTuple):
    """How far beyond L2 the lines are that somebody loads: cycles that every new one takes longer, and the part of them, evenly, that
    nobody has fetched before and that takes `latency.streamed` longer. own: cycles that those take longer in which it will store."""

    every: float = 0.0
    new: float = 0.0
    own: float = 0.0


NEAR = Away()


class Multiprocessor:
    """`resident` blocks, whose warps all take the way of `visits`. active: multiprocessors that work beside it, as a share of all.
    crowded: the part of `latency.crowd` that its loads wait where all of them work. fresh: index of a load or copy -> how often it wants a
    line that its block has not asked for (see `BlockPath`): that is what is away. own: indices of loads of what it will store.
    rates: of copies in bulk, by index.

    marks: two numbers of instructions that the `followed` warps of all blocks issue, a bit each, between which the states are those of the
    steady loop. watched: keep what every warp does between the marks.
    """

    def __init__(
        self, code: Sequence[Scheduled], visits: Sequence[Visit], warps: int, resident: int, chip: Chip, active: float = 1.0,
        marks: tuple[int, int] | None = None, away: Away = NEAR, watched: bool = False, crowded: float = 1.0,
        fresh: Mapping[int, float] | None = None, own: Collection[int] = (), followed: int = -1, rates: Mapping[int, Rate] | None = None,
    ):  # fmt: skip
        # Figures that are asked for all the time. (Where that is, comparisons stand in place of min and max, which take a quarter longer.)
        self.two_fma_pipes, self.request = chip.two_fma_pipes, chip.request
        self.queue_shared, self.queue_common = chip["queue.shared"], chip["queue.common"]
        self.queue_global = chip["queue.global"]
        self.enter = chip["load_store.enter"]
        self.lag, self.register, self.register_beside = chip["registers.lag"], chip["registers.each"], chip["registers.beside"]
        self.wavefront = chip["load_store.wavefront"]
        self.result, self.branch = chip["load_store.result"], chip["code.branch"]
        self.near_branch, self.rejoin = chip["code.near_branch"], chip["code.rejoin"]
        self.lately: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(SUB_PARTITIONS)]  # lines of code that each has read last
        self.lines_kept = int(chip["code.near"])
        self.arrival = chip["barrier.arrival"]
        self.release = chip["barrier.release"]
        self.between_loads = chip["load_store.between_loads"]
        self.of_warp = chip["load_store.of_warp"]
        self.between_stores = chip["load_store.between_stores"]
        self.store_word = chip["load_store.store_word"]
        self.store_own, self.store_sector, self.store_line = chip.stores(active)
        self.store_part, self.few_parts = chip["load_store.store_part"], chip["load_store.few_parts"]
        self.spilled_sector = chip.spilled_sector(active)
        self.l2_latency = chip["latency.l2"]
        self.crowd, self.gap = chip["latency.crowd"] * min(1.0, active) * crowded, max(chip["latency.crowd_gap"], 1.0)
        self.memory, self.every = chip["latency.l2"] + self.crowd, max(0.0, away.every - self.crowd)
        self.late = {index: self.every * part for index, part in (fresh or {}).items()} | dict.fromkeys(own, away.own)
        self.new, self.streamed, self.owed = away.new, max(0.0, chip["latency.streamed"] - away.every), 0.0
        self.address = chip["load_store.address"]
        self.under_way = chip["load_store.under_way"]
        self.fence = chip["load_store.fence"]
        gates = [_gate(step, self.two_fma_pipes) for step in code]
        steps: list[list] = [[] for _ in range(warps)]
        for number, visit in enumerate(visits):
            what = {**visit.costs, **visit.barriers, **visit.signals}
            run = [(code[k], what.get(k), number, gates[k]) for k in range(visit.start, visit.end)]
            for warp in range(warps):
                if visit.warps >> warp & 1:
                    steps[warp].extend(run)
        self.warps: list[list[_Warp]] = [[] for _ in range(SUB_PARTITIONS)]
        for place in range(warps * resident):
            block, number = divmod(place, warps)
            if steps[number]:
                self.warps[place % SUB_PARTITIONS].append(_Warp(steps[number], block, number, place % SUB_PARTITIONS))
        self.living = [sum(map(bool, steps))] * resident
        # by block, barrier and how many warps it waits for, 0: all of the block; None: went on at once
        self.arrived: dict[tuple[int, int, int], list[tuple[_Warp | None, float]]] = defaultdict(list)
        self.mbarriers = mbarriers(code, visits, resident)
        self.bulk_sectors = {i: (own, every * min(1.0, active)) for i, (own, every) in (rates or {}).items()}
        self.some_sectors = chip["load_store.l2_sector_alone"], chip["bulk.sector"] * min(1.0, active)
        self.bulk, self.bulk_line = chip["latency.bulk"] + away.every + self.new * self.streamed, (chip["bulk.line"], 0.0)
        self.abroad, self.sent, self.meeting = chip["latency.abroad"], chip["latency.sent"], chip["barrier.cluster"]
        self.meetings = [Mbarrier(sum(map(bool, steps))) for _ in range(resident)]  # the cluster's barrier, by block
        self.arrive, self.look, self.between_signals, self.wake = (
            chip[f"mbarrier.{name}"] for name in ("arrive", "look", "between", "wake")
        )
        self.tensor_cores = [TensorCore() for _ in range(SUB_PARTITIONS)]
        self.sums = chip["tensor.warpgroup"]
        self.marks, self.watched, self.followed, self.progress = marks or (-1, -1), watched, followed, 0
        self.done = Simulated()
        self.code = CodeCache(chip)
        # when each unit is free again
        self.pipes = [dict.fromkeys(chip.busy, 0.0) | {"fmalite": 0.0} for _ in range(SUB_PARTITIONS)]
        self.banks = [[0.0, 0.0] for _ in range(SUB_PARTITIONS)]
        self.ports = [0.0] * SUB_PARTITIONS
        self.unit = self.writes = self.reads = self.barriers = self.landing = 0.0
        self.l2 = self.share = 0.0  # until when this one's port is busy, and, if all of them go on so, L2
        self.held = [0.0] * SUB_PARTITIONS
        self.busy_until = [0.0] * SUB_PARTITIONS
        self.passed = [[0] * len(WarpState) for _ in range(SUB_PARTITIONS)]
        # cycles of its own port, and of its share of L2
        self.sector = chip["load_store.l2_sector_alone"], chip.l2_sector * min(1.0, active)
        self.line = chip["load_store.l2_request_alone"], chip["load_store.l2_request"] * min(1.0, active)
        self.copied = chip["copies.l2_alone"], chip["copies.l2"] * min(1.0, active)
        self.burst = chip["load_store.burst"]
        self.queues: list[deque] = [deque() for _ in range(2 * SUB_PARTITIONS)]  # of shared memory, then of device memory
        self.turn = 0
        self.before_registers, self.before_loads = int(chip["copies.registers"]), int(chip["copies.loads"])
        self.backlog = chip["copies.backlog"]
        self.asking = self.stream = 0.0  # until when a copy past L1 asks for its lines; since when the unit is busy without one
        self.copy_unit, self.copy_request = chip["copies.unit"], chip["copies.request"]
        self.arriving: list[tuple[float, float]] = []  # what copies bring into shared memory: (when it comes, cycles of the unit)
        self.wrote = False  # … was what the unit did last
        self.landed: dict[tuple, float] = {}  # what a block has asked L2 for -> when it is there
        self.latest: list[_Warp | None] = [None] * SUB_PARTITIONS  # who issued last, and who to the tensor core
        self.multiplying: list[_Warp | None] = [None] * SUB_PARTITIONS
        self.next: list[float] = [_NEVER] * (SUB_PARTITIONS + 1)
        self.events: list[tuple[float, int]] = []

    def run(self) -> Simulated:
        """Until the last warp has ended. Raises TimeIsUp where a `time_limit` is over."""
        for place in range(SUB_PARTITIONS):
            for warp in self.warps[place]:
                self._settle(warp)
        while self.events:
            now, place = heapq.heappop(self.events)
            if now != self.next[place]:
                continue  # something earlier came between
            self.next[place] = _NEVER
            if place == _UNIT:
                self._serve(now)
            else:
                self._issue(now, place)
        return self.done

    def _wake(self, when: float, place: int) -> None:
        if when < self.next[place]:
            self.next[place] = when
            heapq.heappush(self.events, (when, place))

    # -- what a warp waits for

    def _settle(self, warp: _Warp) -> None:
        """Find out when a warp may issue its next instruction, as far as that is known."""
        step, _, _, (warp.gate, warp.queues, _) = warp.steps[warp.position]
        ready = warp.base
        jumped = warp.position and step.index != warp.steps[warp.position - 1][0].index + 1
        if step.line != warp.line:
            warp.line = step.line
            warp.fetched = self.code.when(step.line, warp.last)
            lately = self.lately[warp.home]
            if jumped and step.line not in lately:
                warp.fetched, jumped = max(warp.fetched, ready + self.branch), False
            lately[step.line] = None
            lately.move_to_end(step.line)
            if len(lately) > self.lines_kept:
                lately.popitem(last=False)
        if jumped:
            ready = warp.last + self.near_branch  # whatever its stall count says
        warp.misses = warp.fetched > ready
        if warp.fetched > ready:
            ready, warp.why = warp.fetched, _NO_INSTRUCTION
        for board in step.waits:
            if warp.holding[board]:
                ready, warp.why = _NEVER, _waits_for(warp, board)
                break
            if (free := warp.free[board]) > ready:
                ready, warp.why = free, _waits_for(warp, board)
        if step.kind == SUMS and len(warp.products) > step.groups and (there := warp.products[-1 - step.groups][0]) > ready:
            ready, warp.why = there, _BARRIER  # so Nsight Compute has it (log, run 42)
        if step.kind == AWAIT and len(warp.groups) > step.groups and ready != _NEVER:
            waiting, there, _ = warp.groups[len(warp.groups) - step.groups - 1]
            if waiting:
                ready, warp.why = _NEVER, _LONG_SCOREBOARD
            elif there > ready:
                ready, warp.why = there, _LONG_SCOREBOARD
        warp.ready = ready
        if ready < self.next[warp.home]:  # as _wake, which is called too often
            self.next[warp.home] = ready
            heapq.heappush(self.events, (ready, warp.home))

    def _room(self, gate: str, place: int) -> float:
        """When there is room in a pipe or queue: _NEVER if that is not known."""
        if gate == "queue.shared":
            return _NEVER if len(self.queues[place]) >= self.queue_shared and self._common_is_full() else 0.0
        if gate == "queue.global":
            return _NEVER if len(self.queues[SUB_PARTITIONS + place]) >= self.queue_global else 0.0
        pipes = self.pipes[place]
        return min(pipes["fmaheavy"], pipes["fmalite"]) if gate == _EITHER else pipes[gate]

    def _common_is_full(self) -> bool:
        """Is there no room left that the queues of shared memory have in common, beyond each sub-partition's own?"""
        own = self.queue_shared
        return sum(len(queue) - own for queue in self.queues[:SUB_PARTITIONS] if len(queue) > own) >= self.queue_common

    # -- issue

    def _issue(self, now: float, place: int) -> None:
        """Let a sub-partition issue one instruction, if one of its warps can."""
        if now < self.busy_until[place]:  # woken while its last instruction waits for registers
            self._wake(self.busy_until[place], place)
            return
        soon, chosen, latest, multiplying = _NEVER, None, self.latest[place], self.multiplying[place]
        giving_way = latest if latest is not None and latest.steps[latest.position - 1][0].gives_way else None
        rooms: dict[str, float] = {}
        for warp in self.warps[place]:
            if warp.ready > now:
                if warp.ready < soon:
                    soon = warp.ready
                continue
            gate = warp.gate
            if gate is not None:
                free = rooms.get(gate)
                if free is None:
                    free = rooms[gate] = self._room(gate, place)
                if free > now:
                    if free < soon:
                        soon = free
                    why = _THROTTLES.get(gate, _MATH_PIPE_THROTTLE)
                    if warp.throttled is None:
                        warp.throttled, warp.throttled_until, warp.passed = why, now, self.passed[place][why]
                    if why == _MATH_PIPE_THROTTLE and free > warp.throttled_until:
                        warp.throttled_until = free
                    continue
            if warp is (multiplying if gate == _TENSOR else latest) and warp is not giving_way and gate != "queue.shared":
                chosen = warp
                break
            if chosen is None or chosen is giving_way:
                chosen = warp
            elif warp is not giving_way and (warp.last < chosen.last or not (warp.queues and chosen.queues)):
                chosen = warp
        if chosen is None:
            if soon != _NEVER:
                self._wake(soon, place)
            return
        step, cost, visit, needs = chosen.steps[chosen.position]
        even, odd = (step.even, step.odd) if chosen is latest else (step.all_even, step.all_odd)
        at = self._fetch_registers(even, odd, now, place) if even or odd else now
        self.latest[place] = chosen
        if step.pipe == _TENSOR:
            self.multiplying[place] = chosen
        self._account(chosen, step, now, at, place)
        self.passed[place][needs.throttle] += 1
        if step.busy:
            self._take_pipe(step, at, place)
        self._send(chosen, step, cost, visit, at)
        chosen.position += 1
        chosen.last, chosen.base, chosen.why, chosen.held = at, at + step.stall + step.rejoins * self.rejoin, _WAIT, self.held[place]
        if chosen.ended:
            self._end(chosen, at)
        elif step.kind == MEET:
            self._meet(chosen)
        elif step.kind == BARRIER and (cost is not None or not step.named):
            self._arrive(chosen, step, step.barrier if cost is None else cost[chosen.number], at)
        else:
            self._settle(chosen)
        self.held[place] += step.dispatch - 1
        self.busy_until[place] = at + step.dispatch
        if self.warps[place]:
            self._wake(at + step.dispatch, place)

    def _fetch_registers(self, even: int, odd: int, now: float, place: int) -> float:
        """When an instruction that fetches so many registers from each bank issues: a bank delivers one a cycle, and an instruction may
        wait for its own only so long."""
        each = self.register_beside if self.tensor_cores[place].until > now else self.register
        evens, odds = even * each, odd * each
        banks = self.banks[place]
        first, second = banks
        if first < now:
            first = now
        if second < now:
            second = now
        there = first + evens if even else 0.0
        if odd and second + odds > there:
            there = second + odds
        longest = evens if evens > odds else odds
        at = there - (longest if longest > self.lag else self.lag)
        if at < now:
            at = now
        self.held[place] += at - now
        if even:
            banks[0] = (at if at > first else first) + evens
        if odd:
            banks[1] = (at if at > second else second) + odds
        return at

    def _take_pipe(self, step: Scheduled, at: float, place: int) -> None:
        pipes = self.pipes[place]
        pipe = step.pipe
        if pipe == "fma":
            heavy, lite = pipes["fmaheavy"], pipes["fmalite"]
            use_heavy = not self.two_fma_pipes or (heavy <= at and (lite > at or heavy < lite))
            pipe = "fmaheavy" if use_heavy else "fmalite"
        pipes[pipe] = at + step.busy

    def _send(self, warp: _Warp, step: Scheduled, cost, visit: int, at: float) -> None:
        """Pass the instruction on to where it is executed."""
        kind = step.kind
        if kind == COMMIT:
            self._group(warp)[2] = True
        elif kind == PRODUCT:
            self._multiply(warp, step, at)
        elif kind in (BULK, SENT):
            if (board := step.sources) >= 0:
                warp.free[board] = max(warp.free[board], at + 2)
            if cost is not None and kind == BULK:
                self._copy_in_bulk(warp, step, cost, at)
            elif cost is not None:  # not switched off by its guard
                self._store_in_bulk(warp, cost, at)
        elif kind == JOIN:
            self.barriers = max(self.barriers, at) + self.arrival
            self._go_on(self.meetings[warp.block].take(1, 0.0, self.barriers))
        elif kind in _QUEUES:
            if cost is None and step.pipe != "mio" and kind != FENCE:
                return  # switched off by its guard
            group = None
            if kind == COPY:
                group = self._group(warp)
                group[0] += 1
            queue = self.queues[warp.home if _QUEUES[kind] == _OF_SHARED else SUB_PARTITIONS + warp.home]
            self._put(queue, warp, step, cost, visit, group, at)
            if kind == LOAD or (step.past_l1 and len(queue) <= self.before_registers):
                self._read_registers(warp, step, at + self.address)
        elif kind == VARIABLE and step.pipe != "fp64" and self._behind_copies(warp.home):
            self._put(self.queues[warp.home], warp, step, None, visit, None, at)
        else:
            if (board := step.result) >= 0 and at + step.latency > warp.free[board]:
                warp.free[board], warp.slow[board] = at + step.latency, False
            if (board := step.sources) >= 0 and at + 2 > warp.free[board]:
                warp.free[board], warp.slow[board] = at + 2, False

    def _multiply(self, warp: _Warp, step: Scheduled, at: float) -> None:
        """Let the tensor core of a warp's sub-partition take its part of a warpgroup's product."""
        if not warp.products or warp.products[-1][1]:
            warp.products.append([0.0, False])
        group = warp.products[-1]
        for other in self.tensor_cores[warp.home].add(warp, step.latency, group, at, self.sums):
            if not other.ended and other.steps[other.position][0].kind == SUMS:
                self._settle(other)
        group[1] = step.closes

    def _copy_in_bulk(self, warp: _Warp, step: Scheduled, signal, at: float) -> None:
        """Ask L2 for what a copy brings, which its mbarrier will know of."""
        amount = signal.amounts[warp.number]
        sent = self._ask_l2(amount / SECTOR, amount / LINE, self.bulk_line, at, self.bulk_sectors.get(step.index, self.some_sectors))
        there = sent + self.bulk + self.abroad * signal.abroad
        self.landing = max(self.landing, there)
        self._tell(warp, signal.places[warp.number], 0, -amount, there)

    def _store_in_bulk(self, warp: _Warp, signal, at: float) -> None:
        """Read what a copy takes to L2, as fast as L2's port takes it; its group of copies is done then."""
        amount = signal.amounts[warp.number]
        own, sent = amount / SECTOR * self.store_own, amount / SECTOR * self.store_sector + amount / LINE * self.store_line
        self.reads = max(self.reads, at) + own
        self.writes = max(self.writes, at) + max(own, sent)
        group = self._group(warp)
        group[1] = max(group[1], self.reads + self.sent, self.writes - _WRITES_AHEAD + self.sent)

    def _tell(self, warp: _Warp, place: int, arrivals: int, amount: float, when: float) -> None:
        """Let an mbarrier know what has come, or will; who waited for the end of this phase goes on."""
        barrier = self.mbarriers.get((warp.block, place))
        for over, other, board in barrier.take(arrivals, amount, when) if barrier else ():
            other.holding[board] -= 1
            other.free[board] = max(other.free[board], over + self.wake)
            self._look_again(other)

    def _put(self, queue: deque, warp: _Warp, step: Scheduled, cost, visit: int, group, at: float) -> None:
        """Let an instruction wait for the load/store unit, and hold its scoreboards."""
        for board in (step.result, step.sources, FENCED if step.kind == FENCE else -1):
            if board >= 0:
                warp.holding[board] += 1
                warp.slow[board] = step.slow or (step.kind == FENCE and board != FENCED)
        queue.append((at + self.enter, warp, step, cost, visit, group))
        self._look(at)

    @staticmethod
    def _read_registers(warp: _Warp, step: Scheduled, when: float) -> None:
        """Of a load or a copy, before the unit takes it."""
        if (board := step.sources) >= 0:
            warp.holding[board] -= 1
            warp.free[board] = max(warp.free[board], when)

    @staticmethod
    def _group(warp: _Warp) -> list:
        """The group of copies that is still open."""
        if not warp.groups or warp.groups[-1][2]:
            warp.groups.append([0, 0.0, False])
        return warp.groups[-1]

    def _account(self, warp: _Warp, step: Scheduled, now: float, at: float, place: int) -> None:
        """Put the cycles since the warp's last instruction down to states."""
        done = self.done
        done.issued += 1
        if self.followed >> warp.number & 1:
            self.progress += 1
            if self.progress in self.marks:
                done.reached.append(at)
        steady = len(done.reached) == 1
        row = (done.steady if steady else done.rest)[step.index]
        base, ready = warp.base, warp.ready
        stalled = (base if base < ready else ready) - warp.last - 1
        if stalled < 0:
            stalled = 0.0
        held_up = ready - base if ready > base else 0.0
        row[_SELECTED] += 1
        row[_WAIT] += stalled
        row[warp.why] += held_up
        if steady and warp.misses and warp.why == _NO_INSTRUCTION:
            done.missed += held_up
        waited, throttle, throttled = now - ready, _WAIT, 0.0
        if warp.throttled is not None:
            until = min(warp.throttled_until, now) if warp.throttled == _MATH_PIPE_THROTTLE else now
            throttle, throttled = warp.throttled, min(waited, max(0.0, until - ready))
            throttled -= min(throttled, self.passed[place][throttle] - warp.passed)  # there was room, and another warp took it
            row[throttle] += throttled
            waited -= throttled
            warp.throttled, warp.throttled_until = None, 0.0
        dispatch = self.held[place] - (at - now) - warp.held
        if dispatch > waited:
            dispatch = waited
        row[_DISPATCH_STALL] += dispatch + at - now
        row[_NOT_SELECTED] += waited - dispatch
        if steady and self.watched:
            spans = (
                (_WAIT, stalled), (warp.why, held_up), (throttle, throttled), (_NOT_SELECTED, waited - dispatch),
                (_DISPATCH_STALL, dispatch + at - now), (_SELECTED, 1.0),
            )  # fmt: skip
            kept = tuple((WarpState(state), cycles) for state, cycles in spans if cycles > 0)
            begin = at + 1 - sum(cycles for _, cycles in kept)
            done.spells.append(Spell(warp.block, warp.number, warp.home, step.index, begin, kept))

    # -- barriers and ends

    def _arrive(self, warp: _Warp, step: Scheduled, number: int, at: float) -> None:
        self.barriers = max(self.barriers, at) + self.arrival
        if not step.arrives:
            warp.ready, warp.at_barrier = _NEVER, True
        self.arrived[warp.block, number, step.meets].append((None if step.arrives else warp, warp.base))
        if step.arrives:
            self._settle(warp)
        self._release(warp.block, number, step.meets)

    def _meet(self, warp: _Warp) -> None:
        """Let a warp wait for the end of a phase of its cluster's barrier, for each time that it does the next one's."""
        phase = warp.phases[_MEETING] = warp.phases.get(_MEETING, -1) + 1
        meeting = self.meetings[warp.block]
        self._settle(warp)
        if phase < len(meeting.over):
            self._let_go(warp, meeting.over[phase])
        else:
            warp.ready, warp.at_barrier = _NEVER, True
            meeting.waiting.append((phase, warp, -1))

    def _go_on(self, released: Sequence[tuple[float, _Warp, int]]) -> None:
        """Those that waited for a barrier of their cluster."""
        for over, warp, _ in released:
            warp.at_barrier = False
            self._settle(warp)
            self._let_go(warp, over)

    def _let_go(self, warp: _Warp, over: float) -> None:
        """A phase of the barrier of a warp's cluster is over then."""
        if (when := over + self.meeting) > warp.ready:
            warp.ready, warp.why = when, _BARRIER
            self._wake(when, warp.home)

    def _end(self, warp: _Warp, at: float) -> None:
        self._go_on(self.meetings[warp.block].leave(at))
        self.warps[warp.home].remove(warp)
        self.living[warp.block] -= 1
        self.done.cycles = max(self.done.cycles, at)
        warp.ready = _NEVER
        self.barriers = max(self.barriers, at)
        for block, number, meets in list(self.arrived):
            if block == warp.block and not meets:
                self._release(block, number, meets)
        time_limit.look()

    def _release(self, block: int, number: int, meets: int) -> None:
        """Let the warps of a block go on if all of them have come to a barrier that can, or so many as it `meets`."""
        arrived = self.arrived[block, number, meets]
        if not arrived or len(arrived) < (meets or self.living[block]):
            return
        self.arrived[block, number, meets] = []
        when = self.barriers + self.release
        for warp, base in arrived:
            if warp is None:
                continue
            warp.at_barrier = False
            self._settle(warp)
            if when > warp.ready:
                warp.base, warp.ready, warp.why = base, when, _BARRIER
                self._wake(when, warp.home)

    # -- the load/store unit

    def _look(self, now: float) -> None:
        """Wake the unit for what it can serve next."""
        first = self.arriving[0][0] if self.arriving else _NEVER
        for number, queue in enumerate(self.queues):
            if queue and (opens := self._open(queue, number)) < first:
                first = opens
        if first != _NEVER:
            self._wake(max(first, self.unit, now), _UNIT)

    def _open(self, queue: deque, number: int) -> float:
        """When the unit may take the first instruction of a queue that is not empty."""
        first = queue[0]
        opens, port, served = first[0], self.ports[number % SUB_PARTITIONS], first[1].served
        if port > opens:
            opens = port
        if number < SUB_PARTITIONS:
            copies = self.queues[SUB_PARTITIONS + number]
            ahead = self.before_loads if first[2].kind == SHARED else self.before_registers
            if len(copies) > ahead and copies[ahead][2].past_l1 and copies[ahead][0] < first[0]:
                return _NEVER  # so many copies past L1 came before it
        elif first[2].past_l1 and self.asking > opens:
            opens = self.asking
        if number >= SUB_PARTITIONS and first[2].kind != COPY:
            before = self.queues[number - SUB_PARTITIONS]
            if before and before[0][0] < first[0]:
                return _NEVER  # loads and stores wait for all that their sub-partition sent to shared memory before
        return served if served > opens else opens

    def _serve(self, now: float) -> None:
        """Write what has come for shared memory, or take one instruction from the queues, in turn; where there is both, one of each."""
        queues = len(self.queues)
        for k in range(queues):
            number = (self.turn + k) % queues
            if (queue := self.queues[number]) and self._open(queue, number) <= now:
                break
        else:
            number = -1
        come = bool(self.arriving) and self.arriving[0][0] <= now
        if come and (number < 0 or not self.wrote):
            self.unit, self.wrote = now + heapq.heappop(self.arriving)[1], True
            self._look(now)
            return
        self.wrote = False
        if number < 0:
            self._look(now)
            return
        self.turn = number + 1
        if number < SUB_PARTITIONS and len(queue) > self.queue_shared and self._common_is_full():
            for place in range(SUB_PARTITIONS):  # the room is anybody's
                self._wake(now + 1, place)
        _, warp, step, cost, visit, group = queue.popleft()
        begun = now - self.enter
        port = self.between_loads
        if now > self.unit:
            self.stream = now
        if step.kind == VARIABLE:
            taken, there = 0.0, begun + step.latency
        elif step.kind == FENCE:
            taken = self.request if step.slow else self.fence
            there = (max(now, warp.seen, self.landing) if step.slow else now) + step.latency
            warp.holding[FENCED] -= 1
            warp.free[FENCED] = there
        elif step.kind in (ARRIVE, LANDED):
            place, arrivals, amount = (each[warp.number] for each in (cost.places, cost.arrivals, cost.amounts))
            taken, there, port = self.look if amount > arrivals else self.arrive, now, self.between_signals
            if step.drops and (barrier := self.mbarriers.get((warp.block, place))):
                barrier.arrivals -= arrivals
            if not step.initial:
                self._tell(warp, place, arrivals, amount, max(now, warp.copied) if step.kind == LANDED else now + self.abroad * cost.abroad)
        elif step.kind == LOOK:
            taken, port, there = self.look, self.between_signals, self._look_at(warp, step, cost, begun + step.latency)
        elif step.kind == SHARED:
            taken = max(self.request, cost.wavefronts * self.wavefront if cost is not None else 1.0)
            there = begun + step.latency + self.result * (taken - 1)
            if cost is not None and step.result < 0:
                port = self.between_stores + self.store_word * step.words
            else:
                warp.served = now + self.of_warp * taken
        elif step.kind == STORE:
            taken = max(self.request, cost.sectors / 4)
            sent = self._stored(cost)
            self.writes = there = max(self.writes, now) + sent
            if there - now > _WRITES_AHEAD:
                taken = max(taken, sent)
        elif step.past_l1:
            taken, there = self._ask(step, cost, now)
        else:
            taken, there = self._load(warp, step, cost, visit, now, begun)
        if step.kind in (LOAD, STORE) and there > warp.seen:
            warp.seen = there
        if step.kind == COPY and there > warp.copied:
            warp.copied = there
        self.unit = now + taken
        self.ports[number % SUB_PARTITIONS] = now + port
        if group is not None:
            group[0] -= 1
            group[1] = max(group[1], there)
        if number >= SUB_PARTITIONS and len(queue) >= self.before_registers:
            _, other, copy, *_ = queue[self.before_registers - 1]
            if copy.past_l1:
                self._read_registers(other, copy, now + 2)
                self._look_again(other)
        result = -1 if there == _NEVER else step.result  # never: an mbarrier will say
        for board, when in ((result, there), (-1 if step.kind == LOAD or step.past_l1 else step.sources, now + 2)):
            if board >= 0:
                warp.holding[board] -= 1
                warp.free[board] = max(warp.free[board], when)
        self._look_again(warp)
        self._wake(now + 1, warp.home)
        self._look(now)

    def _look_at(self, warp: _Warp, step: Scheduled, signal, soonest: float) -> float:
        """When a warp knows that the phase of an mbarrier is over that it looks for; _NEVER where that is to come."""
        place = signal.places[warp.number]
        phase = warp.phases[place] = warp.phases.get(place, -1) + int(signal.amounts[warp.number])
        barrier = self.mbarriers.get((warp.block, place))
        if phase < 0 or barrier is None or step.result < 0:
            return soonest
        if phase < len(barrier.over):
            return max(soonest, barrier.over[phase] + self.wake)
        barrier.waiting.append((phase, warp, step.result))
        return _NEVER

    def _stored(self, cost) -> float:
        """Cycles that a store takes of the port to L2."""
        if cost.local:
            return cost.sectors * self.spilled_sector
        sent = max(cost.sectors * self.store_own, cost.sectors * self.store_sector + cost.asked * self.store_line)
        part = cost.partial * self.store_part
        return sent + (part if cost.partial > self.few_parts else part / 2)

    def _look_again(self, warp: _Warp) -> None:
        """At a warp that waited for what nobody knew."""
        if warp.ready == _NEVER and not warp.at_barrier and not warp.ended:
            self._settle(warp)

    def _load(self, warp: _Warp, step: Scheduled, cost, visit: int, now: float, begun: float) -> tuple[float, float]:
        """(cycles of the unit, when the data are there: of a copy, at the unit, which then writes them)."""
        taken = max(self.request, cost.lookups)
        if step.kind != COPY:
            taken = max(taken, cost.sectors / 4, cost.wavefronts * self.wavefront)  # (wavefronts: of shared memory by a generic address)
        there = begun + step.latency + taken - 1
        bringer = cost.bringers[warp.number] if cost.bringers else -1
        if bringer >= 0:
            wanted = (warp.block, visit, step.index, bringer)
            when = self.landed.get(wanted)
            if when is None:
                bringing = len(set(cost.bringers) - {-1})
                part = cost.warps / bringing
                sent = self._ask_l2(cost.fetched * part, cost.asked * part, self.line, now)
                crowd = warp.crowd(now, self.gap)
                when = self.landed[wanted] = sent + self.l2_latency if cost.local else self._from_afar(step, sent, crowd)
            elif when > now + step.latency:
                taken += self.under_way
            there = max(there, when)
            warp.brought = max(warp.brought, there)
        if step.kind == COPY and cost.wavefronts:
            heapq.heappush(self.arriving, (there, cost.wavefronts * self.wavefront))
        return taken, there

    def _ask(self, step: Scheduled, cost, now: float) -> tuple[float, float]:
        """The same of a copy past L1, which asks L2 for one line after the other while what the unit took before is still served."""
        self.asking = now + cost.lookups * self.copy_request
        taken = max(self.copy_unit, self.asking - now - min(self.backlog, now - self.stream))
        self.stream = now + taken
        sent = self._ask_l2(cost.fetched, cost.asked, self.copied, now)
        return taken, max(self.asking + step.latency, self._from_afar(step, max(sent, self.asking)))

    def _ask_l2(self, sectors: float, lines: float, line: tuple[float, float], now: float, sector=None) -> float:
        """When L2 has sent so many sectors of so many lines, each of which takes `line`: by its own port, and by its share of L2, of which
        it may be ahead for a while."""
        own, all_of_it = (max(sectors * a, lines * b) for a, b in zip(sector or self.sector, line, strict=True))
        self.l2 = max(self.l2, now) + own
        self.share = max(self.share, now - self.burst) + all_of_it
        return max(self.l2, self.share)

    def _from_afar(self, step: Scheduled, sent: float, part: float = 1.0) -> float:
        """When a line is here that L2 has sent then. Part of them, evenly, come from farther. part: of the crowd that waits with it, unless
        nobody has fetched it before."""
        self.owed += self.new
        late = self.owed >= 1
        self.owed -= late
        return sent + self.memory - (1 - part) * (1 - self.new) * self.crowd + late * self.streamed + self.late.get(step.index, self.every)

    def _behind_copies(self, place: int) -> bool:
        """Do more copies past L1 wait than have read their registers? Whatever comes now waits for them, too."""
        queue = self.queues[SUB_PARTITIONS + place]
        return len(queue) > self.before_registers and queue[-1][2].past_l1
