"""Trips of a loop that only repeat are counted without being executed, and the count stays exact.

A matrix kernel's main loop does the same thing K / BK times: counters and addresses grow by a constant, everything else
comes back. `SteadyLoops` suspects such a loop from the states of the run at its head, and `Trip` proves it: it follows one
more trip (or as many as a ring of buffers has stages) and works out, instruction by instruction, how each value would change
from this trip to the next if those at the head changed as they did before. Where all do so by constants, where every comparison
and carry keeps its outcome and the values at the end have moved on as was supposed, the next trip is this one again.
For how many trips that is so follows from how far it is to where a comparison turns or 32 bits wrap. So many are added
at once, what accesses cost by their addresses modulo 128 bytes. A value that changes otherwise, or an instruction
without a rule in `changes`, leaves the loop to be executed trip by trip; so does the end of every loop.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import dataclass

import numpy as np

from .changes import NONE, RULES, Unsteady, of_address
from .values import LOW, same_mask, signed

PERIODS = 8  # trips after which a state may come back
ATTEMPTS = 40  # visits of a head at which a period is looked for, before it is left alone for as many visits as there were
WORTHWHILE = 4  # trips; fewer are executed


@dataclass
class _State:
    """What decides how a run goes on. Arrays are never changed in place."""

    values: dict
    known: dict
    groups: dict
    joined: dict
    masks: tuple  # of everything that runs or waits, and of the lanes that have not ended
    places: tuple  # where these are
    origin: object
    bits: dict  # of registers that are unknown as a whole, which no constant changes

    def same_control(self, other: _State) -> bool:
        return (
            self.places == other.places
            and self.origin is other.origin
            and all(map(same_mask, self.masks, other.masks))
            and self.joined.keys() == other.joined.keys()
            and all(same_mask(mask, other.joined[name]) for name, mask in self.joined.items())
            and self.groups.keys() == other.groups.keys()
            and all(_same_groups(group, other.groups[name]) for name, group in self.groups.items())
            and self.values.keys() == other.values.keys()
            and all(same_mask(self.known[name], other.known[name]) for name in self.values)
            and self.bits.keys() == other.bits.keys()
            and all(_same_bits(bits, other.bits[name]) for name, bits in self.bits.items())
        )

    def change(self, before: _State, name: str) -> np.ndarray | None:
        """By how much the lanes that are known changed; None if nothing did."""
        new, old = self.values[name], before.values[name]
        if new is old:
            return None
        change = (new ^ old).astype(np.int64) if new.dtype == bool else signed(new - old)
        known = self.known[name]
        if known is not None:
            change = np.where(known, change, 0)
        return change if change.any() else None


def _same_groups(one, other) -> bool:
    """Whether two arrays part the lanes alike: new groups get new, higher numbers."""
    if one is other:
        return True
    return one.shape == other.shape and np.array_equal(*(np.unique(a, return_inverse=True)[1] for a in (one, other)))


def _same_bits(one, other) -> bool:
    if one is other:
        return True
    return one.certain == other.certain and same_mask(one.lanes, other.lanes) and np.array_equal(one.bits, other.bits)


class Trip:
    """One period of a loop while it is executed, and how its values would change from it to the next."""

    def __init__(self, run, head: int, period: int, start: _State, changes: dict[str, np.ndarray]):
        self.run, self.head, self.left, self.start = run, head, period, start
        self.first = dict(changes)
        self.changes = changes  # by register; absent: none
        self.repeats: int | None = None  # for how many trips after this one all holds; None: no bound was met
        self.accesses: list[tuple] = []
        self.blocks = 1000  # of inner loops' heads, before it is too long
        self.executed = run.executed.copy()
        self.lane_counts = dict(run.lane_counts)
        self.thread_counts = dict(run.thread_counts)

    # -- for the rules

    def moves(self, names) -> bool:
        """Whether one of these registers changes."""
        return not self.changes.keys().isdisjoint(names)

    def change(self, name: str) -> np.ndarray:
        """How a register changes in the lanes that execute the instruction."""
        change = self.changes.get(name, NONE)
        return change if change is NONE or self.run.mask is None else np.where(self.run.mask, change, 0)

    def hold(self, value, change, low, high, mask):
        """Bound the trips: low <= value + t * change <= high, in the lanes of the mask, for all trips t that follow."""
        bounds = (low, high) if mask is None else (low, high, mask)
        value, change, low, high, *mask = np.broadcast_arrays(value, change, *bounds)
        moving = change != 0
        if mask:
            moving = moving & mask[0]
        if not moving.any():
            return
        value, change = value[moving], change[moving]
        room = np.where(change > 0, high[moving] - value, value - low[moving]) // np.abs(change)
        least = int(room.min())
        if least < WORTHWHILE:
            raise Unsteady("it ends soon")
        self.repeats = least if self.repeats is None else min(self.repeats, least)

    def window(self, value, change, bits: int, mask):
        """Bound the trips: what stands above the lowest `bits` of the value stays."""
        low = np.asarray(value) >> bits << bits
        self.hold(value, change, low, low + (1 << bits) - 1, mask)

    # -- the execution of an instruction

    def before(self, i, mask) -> dict[str, np.ndarray]:
        """How the results of an instruction that is about to be executed will change. Raises Unsteady if nobody knows."""
        if i.name == "BMOV":
            raise Unsteady("the numbers of groups are values")
        spilled = i.name in ("LDL", "STL") and any(name.startswith("stack") for name in self.changes)
        if not spilled and not self.moves(i.reads):
            return {}
        if not self.run.evaluates(i):
            return {}  # its results are unknown
        rule = RULES.get(i.name)
        if rule is None:
            raise Unsteady(f"{i} is none of the rules'")
        return rule(self, i, mask)

    def after(self, i, results: dict[str, np.ndarray], mask):
        """Note how its results change, and that they stay 32-bit numbers."""
        moved = self.moves(i.reads)
        for name in (*i.writes, *(results.keys() - i.writes)):
            change = results.get(name)
            value = self.run.values.get(name)
            if change is not None and value is not None and np.any(change):
                self.hold(value, change, 0, LOW, mask)
            else:
                change = NONE
            if mask is not None:
                change = np.where(mask, change, self.changes.get(name, 0))
            if change.any():
                self.changes[name] = change
            else:
                self.changes.pop(name, None)
        if not self.run.bits.keys().isdisjoint(i.writes) and (moved or self.moves(i.writes)):
            raise Unsteady("bits change of a register that is unknown as a whole")

    def access(self, i, operands, places, mask):
        """Note an access at `places`: those of the lanes of the mask move as one."""
        moves = []
        for operand in operands:
            change = of_address(self, operand, mask)
            if mask is not None:
                change = np.broadcast_to(change, np.broadcast_shapes(change.shape, mask.shape))
                change = change[np.broadcast_to(mask, change.shape)]
            first = int(change.flat[0]) if change.size else 0  # where nobody takes part
            if (change != first).any():
                raise Unsteady("the lanes of an access move apart")
            moves.append(first)
        self.accesses.append((i, places, tuple(moves), mask))

    # -- the end

    def proven(self, end: _State) -> bool:
        """Whether the trip led to where it began, every value moved on as it had been said, and is bounded."""
        if self.repeats is None or not end.same_control(self.start):
            return False
        for name in end.values:
            change, first, last = end.change(self.start, name), self.first.get(name), self.changes.get(name)
            known = end.known[name]
            for said in (first, last):
                if (change is None and said is None) or change is said:
                    continue
                differ = (0 if change is None else change) != (0 if said is None else said)
                if np.any(differ if known is None else differ & known):
                    return False
        return True

    def jump(self):
        """Add the trips that follow, and move on all values."""
        run, times = self.run, self.repeats
        run.executed += times * (run.executed - self.executed)
        for counts, before in ((run.lane_counts, self.lane_counts), (run.thread_counts, self.thread_counts)):
            for index, count in counts.items():
                if count is not None:
                    counts[index] = count + times * (count - before.get(index, 0))
        for i, places, moves, mask in self.accesses:
            if i.index in run.unknown_sites:
                continue
            period = math.lcm(*(128 // math.gcd(128, move) for move in moves))
            for phase in range(min(period, times)):
                here = [place + (phase + 1) * move for place, move in zip(places, moves, strict=True)]
                cost = run.cost(i, here, mask)
                if isinstance(cost, str):
                    run.unknown_sites[i.index] = cost
                    break
                run.add(i, cost, (times - phase - 1) // period + 1)
        for name, change in self.changes.items():
            if name in run.values:
                run.values[name] = run.values[name] + times * change & LOW


class SteadyLoops:
    """Watches the heads of a run's loops."""

    def __init__(self, run):
        self.run = run
        self.trip: Trip | None = None
        self.states: dict[int, deque[_State]] = defaultdict(lambda: deque(maxlen=2 * PERIODS + 1))
        self.attempts: dict[int, int] = defaultdict(lambda: ATTEMPTS)
        self.visits: dict[int, int] = defaultdict(int)
        self.later: dict[int, int] = {}  # heads without attempts left -> at which visit they get new ones

    def visit(self, part):
        """The run is about to execute the block at a loop's head."""
        trip, head = self.trip, part.pc
        if trip is not None and trip.head != head:
            trip.blocks -= 1
            if not trip.blocks:
                self._give_up()
        self.visits[head] += 1
        if self.attempts[head] <= 0 and (trip is None or trip.head != head):
            if self.visits[head] < self.later.setdefault(head, 2 * self.visits[head]):
                return
            del self.later[head]
            self.attempts[head] = ATTEMPTS // 2
            self.states[head].clear()
        state = self._state(part)
        if trip is not None and trip.head == head:
            trip.left -= 1
            if trip.left:
                return
            self.trip = None
            if trip.proven(state):
                trip.jump()
                self.states.clear()  # a loop around this one has not only repeated
                self.attempts[head] = ATTEMPTS
                return
            self.attempts[head] -= ATTEMPTS // 4
        states = self.states[head]
        states.append(state)
        if self.trip is None and len(states) > 2:
            self.attempts[head] -= 1
            self._look(head, states)

    # -- what the run tells

    def perform(self, i, mask):
        """An instruction of the trip is to be executed."""
        results = self._ask(self.trip.before, i, mask)
        self.run.perform(i, mask)
        if results is not None:
            self._ask(self.trip.after, i, results, mask)

    def unknown(self, i, mask):
        """Nobody knows whether an instruction is executed: its results are not known any more."""
        if self.trip is not None:
            self._ask(self.trip.after, i, {}, mask)

    def access(self, i, operands, places, mask):
        """A memory instruction reaches these places."""
        if self.trip is not None:
            self._ask(self.trip.access, i, operands, places, mask)

    def leave(self, i):
        """A block ends in a branch: which way depends on nothing that changes."""
        if self.trip is not None and self.trip.moves(i.reads):
            self._give_up()

    def _ask(self, question, *args):
        """What the trip answers; None where that is the end of it."""
        try:
            return question(*args)
        except Unsteady:
            self._give_up()
            return None

    def _give_up(self):
        """The trip that is being executed cannot be repeated."""
        self.attempts[self.trip.head] -= ATTEMPTS // 4
        self.trip = None

    # -- states

    def _look(self, head: int, states):
        now = states[-1]
        for period in range(1, (len(states) - 1) // 2 + 1):
            before, earlier = states[-1 - period], states[-1 - 2 * period]
            if not (now.same_control(before) and before.same_control(earlier)):
                continue
            changes = {}
            for name, value in now.values.items():
                change, previous = now.change(before, name), before.change(earlier, name)
                if change is previous is None:
                    continue
                if change is None or previous is None or value.dtype == bool or (change != previous).any():
                    break
                changes[name] = change
            else:
                self.trip = Trip(self.run, head, period, now, changes)
                return

    def _state(self, part) -> _State:
        run = self.run
        running = [(part.pc, part.mask) for part in (part, *run.parts)]
        waiting = [(after, barrier, mask, expected) for after, barrier, mask, expected in run.waiting]
        return _State(
            dict(run.values), dict(run.known), dict(run.groups), dict(run.joined),
            (*(mask for _, mask in running), *(mask for *_, arrived, expected in waiting for mask in (arrived, expected)), run.alive),
            (*(pc for pc, _ in running), None, *((after, barrier) for after, barrier, *_ in waiting)),
            run.origin, dict(run.bits),
        )  # fmt: skip
