"""The loop that runs a chunk of blocks. It knows no opcode.

All threads of a chunk advance together, block of code by block of code. Threads that part at a branch form groups, each
with its own place in the program; the group that is furthest behind runs first, and groups that meet become one again
(minimum program counter). A barrier parks its threads until all that it waits for have come.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from helpers.errors import RunError
from helpers.sim.checks import divergent_barriers, endless
from helpers.sim.checks.warp_meetings import Arrivals, WarpMoment
from helpers.sim.code import time_limit
from helpers.sim.code.hardware_units import WARP

from . import exchanges
from .cluster import ClusterBarrier
from .lanes import Lanes
from .memory import SharedMemory, ThreadMemory
from .undefined import Undefined, unwritten_value

PATIENCE = 1024  # backward turns of one group before another gets its chance (spinning on a flag, a lock)
BRIEFLY = 16  # looks at flags of a chunk before the next one gets its chance, where the order of blocks is what is tried
CHECK_EVERY = 64  # blocks of code between looks at the clock
BARRIERS = 16  # of a block
CLUSTER = -1  # the number of the cluster's barrier, among those of the block


@dataclass(eq=False)
class Parked:
    """Threads at a barrier. resume: where they go on, None for those that only announced their arrival."""

    resume: int | None
    mask: np.ndarray
    barrier: int
    expected: int | None
    line: int | None
    aligned: bool
    vote: tuple | None = None  # of a barrier that reduces a predicate: (how, register of the result, the threads' values)
    came: WarpMoment | None = None


class Clock:
    """Step and time budget of a launch, which began at `start` (as time_limit.now() counts)."""

    def __init__(self, steps: int | None, seconds: float | None, start: float):
        self.steps, self.seconds, self.start = steps, seconds, start
        self.used = 0

    def elapsed(self) -> float:
        return time_limit.now() - self.start


class Chunk(Lanes):
    """Some blocks of a launch, running. Instructions see it as `m`."""

    def __init__(self, launch, coordinates, extent):
        super().__init__(coordinates, extent, launch.block, launch.grid, cluster=launch.cluster)
        self._adopt(launch)
        program = self.program
        self.zero = self.uniform(0, np.uint32)
        zeros = {kind: self.uniform(0, launch.dtypes[kind]) for kind in set(program.types)}
        self.regs = [zeros[kind] for kind in program.types]
        for index, value in program.constants:
            self.regs[index] = value.reshape((1,) * self.nd)
        for index, name in program.specials:
            self.regs[index] = self.special(name, (launch.dynamic_shared, launch.shared_bytes), program.grid_workspace)
        for index in program.doubts.registers:
            self.regs[index] = unwritten_value(self, index)
        self.params = ThreadMemory(self, program.param_bytes, "param")
        for word, value in launch.param_words.items():
            self.params.words[word] = self.uniform(value, np.uint32)
        self.local = ThreadMemory(self, program.local_bytes, "local", unwritten=True)
        self.shared = SharedMemory(self, program.shared_start, launch.shared_bytes)
        self.checks = launch.checks.of(self)
        self.undefined = Undefined(self, program.doubts) if launch.findings.wanted and program.doubts.watched else None
        self.cluster_barrier = ClusterBarrier(self) if "cluster" in program.uses else None
        self.asynchronous = {}
        self.pc = 0
        self._reset()

    def _adopt(self, launch) -> None:
        self.launch = launch
        self.program, self.memory, self.findings = launch.program, launch.memory, launch.findings
        self.counting, self.recorder = launch.counting, launch.recorder
        self.watching = self.counting is not None or self.recorder is not None
        self.stepping = self.recorder is not None and self.recorder.stepping
        self.wide = [None] * len(self.program.types)
        self.memo = [None] * len(self.program.sites)
        self._thread_numbers = None
        self.tiles: dict[tuple, tuple] = {}  # matrices that products have made of registers, see `isa.mma`
        self.mask: np.ndarray | None = None
        self.protected = 0
        self.groups: dict[int, np.ndarray] = {}
        self.parked: list[Parked] = []
        self.exited: np.ndarray | None = None
        self.turns = 0
        self.polls = 0
        self.yielding = False  # set by an instruction that waits in vain
        self.asked: dict[int, tuple] = {}  # by instruction: (mbarrier, block, by its parity?) waited for since something happened
        self.sleeping: dict[int, bool] = {}  # groups that wait: for an mbarrier (True), or perhaps for a flag or lock (False)
        self.polled = 0
        self.joined: dict[int, tuple] = {}  # groups that execute one exchange at several places, see `exchanges`
        self.guests: np.ndarray | None = None  # [blocks, warps, 32]: lanes elsewhere that take part in the running exchange
        self.held: set[int] = set()  # groups at a warp-level instruction, waiting for lanes that are behind
        self.forced: int | None = None
        self.awaited: dict[int, list] = {}  # warp-level instructions that wait: lanes elsewhere, calls so far (see _note_absent)
        self.calls: np.ndarray | None = None  # [blocks, warps, 32]: warp-level instructions executed since one had to wait
        self.absent: np.ndarray | None = None  # [blocks, warps, 32]: lanes that this warp-level instruction waited for in vain
        self.at = 0  # where the running group was last chosen
        self.idle = 0
        self.in_vain = 0  # rounds in which threads looked at a flag in vain while others were held
        self.full_runs = [0] * len(self.program.blocks)
        self.part_runs: dict[int, list[int]] = {}
        self._mask_counts = (None, 0, 0)
        self._masks: tuple = (None, None)
        self._iterations: dict[int, np.ndarray] = {}
        self._traced: tuple = (None, None)
        self.parts: list[Chunk] | None = None
        self.parent: Chunk | None = None

    def _reset(self) -> None:
        self.order = 0

    # ---------------------------------------------------------------------------------------------------- the loop

    def run(self) -> bool:
        """Run until every thread has ended (True), or until this chunk only waits for others (False)."""
        if self.parts is not None:
            return self._run_parts()
        blocks, launch = self.program.blocks, self.launch
        exit_, clock = self.program.exit, launch.clock
        pc = self.pc
        steps = 0
        self.polls = self.polled = 0
        while True:
            if pc == exit_:
                pc = self._move(pc)
                if pc is None:
                    return True
            block = blocks[pc]
            if block.rendezvous and self.mask is not None and pc != self.forced and not self._come_together(pc):
                pc = self._next_group()
            else:
                self.forced = None
                if block.rendezvous:
                    self.checks.gathered(self)
                steps += 1
                if not steps % CHECK_EVERY:
                    self.pc = pc
                    if self._look_at_clock(clock, block):
                        return False
                if self.mask is None:
                    self.full_runs[pc] += 1
                    closures = block.plain
                else:
                    self._count_part(pc)
                    closures = block.masked
                    if self.calls is not None and block.rendezvous:
                        self._find_absent(pc)
                if block.rendezvous and pc in self.joined:
                    with exchanges.guests(self, *self.joined.pop(pc)):
                        self._execute(block, closures)
                else:
                    self._execute(block, closures)
                clock.used += block.size
                where = block.end(self)
                if where.__class__ is int and not (self.groups or self.joined or self.yielding):
                    pc = where
                    continue
                pc = self._move(where)
                if self.parts is not None:
                    return self._run_parts()
            if pc is None:
                return True

    def _execute(self, block, closures) -> None:
        if self.stepping:
            self._step_by_step(block)
        else:
            for step in closures:
                step(self)

    def _look_at_clock(self, clock, block) -> bool:
        """Enforce the budgets and show that something happens; True if this chunk should let others run."""
        self.launch.tick()
        if clock.steps is not None and clock.used > clock.steps:
            self._endless(f"{clock.steps} steps", block)
        if clock.seconds is not None and clock.elapsed() > clock.seconds:
            self._endless(f"{clock.seconds:.3g} seconds", block)
        if self.polls <= (BRIEFLY if self.launch.briefly else PATIENCE):
            return False
        if self._others_could_run():
            return True
        if self.parent is None:
            self.launch.looks_in_vain(self)
        return False

    def _others_could_run(self) -> bool:
        """Are there other chunks, or other parts of the divided chunk that this is a part of?"""
        if self.parent is not None and (len(self.parent.parts) > 1 or self.parent._others_could_run()):
            return True
        return self.launch.others_wait(self)

    @property
    def unfinished(self) -> int:
        """Blocks that have not ended."""
        if self.parts is not None:
            return sum(part.unfinished for part in self.parts)
        ended = 0 if self.exited is None else int(np.broadcast_to(self.rows_of(self.exited), (self.blocks, self.threads)).all(axis=1).sum())
        return self.blocks - ended

    @property
    def place(self) -> int:
        """The block of code where it goes on."""
        return self.pc if self.parts is None else self.parts[0].place

    def _endless(self, budget: str, block) -> None:
        endless.out_of_budget(self.program, self.findings, budget, block.line, block.ops.start)

    # -------------------------------------------------------------------------------------------- groups of threads

    def _move(self, where) -> int | None:
        """Place the running group's threads where they go, and choose the next group. None when all have ended."""
        hard = self.yielding
        if hard or self.polls > self.polled:
            # A group that looked at a flag or a lock and goes back lets the others go first, also where its lanes met in between.
            targets = [where] if where.__class__ is int else [target for target, _ in where or ()]
            back = {target: hard for target in targets if hard or target <= self.at}
            if back or hard:
                self.yielding, self.polled = False, self.polls
                self.sleeping.update(back)
        if where.__class__ is int:
            self._join(where, self.mask)
        elif where is not None:
            if self.mask is None and len(where) == 2 and self._divide(where):
                return self.program.exit
            for target, mask in where:
                self._join(target, mask)
        return self._next_group()

    def _join(self, target: int, mask) -> None:
        if target == self.program.exit:
            if mask is None:
                mask = np.ones((1,) * self.nd, bool)
            self.exited = mask if self.exited is None else self.exited | mask
            self.held.clear()  # those who waited for them look again
            self.turns = 0
            return
        self.held.discard(target)
        waiting = self.groups.get(target)
        if mask is None:
            mask = np.ones((1,) * self.nd, bool)
        if waiting is None:
            self.groups[target] = mask
        else:
            self.groups[target] = waiting | mask
            self.turns = 0

    def _next_group(self) -> int | None:
        """Choose the group that is furthest behind, of those that can go on. None when all threads have ended."""
        if self.joined:
            self.forced = min(self.joined)
            return self._take(self.forced, self.joined[self.forced][0].mask)
        groups = self.groups
        if self.exited is not None and any(entry.barrier == CLUSTER for entry in self.parked):
            self._release_clusters()  # threads that ended are not waited for
        if not groups:
            if any(entry.resume is not None for entry in self.parked):
                self._release(stuck=True)
            if not groups:
                return None
        ready = groups
        if self.sleeping or self.held:
            ready = [pc for pc in groups if pc not in self.sleeping and pc not in self.held]
            if not ready:
                held = [pc for pc in groups if pc in self.held]
                ready = [pc for pc in groups if pc not in self.held]
                self.in_vain += 1
                if held and (not ready or (self.in_vain > PATIENCE and not self._others_could_run())):  # nobody is left who could join them
                    self.in_vain = 0
                    self.joined = exchanges.together(self, held)
                    if self.joined:
                        for place in self.joined:
                            self.held.discard(place)
                            del groups[place]
                        return self._next_group()
                    self.forced = min(held)
                    self.held.discard(self.forced)
                    return self._take(self.forced)
                if not held and all(self.sleeping.get(pc) for pc in groups):
                    self._all_wait(min(groups))
                self.sleeping.clear()
        pc = min(ready)
        if len(ready) > 1:
            self.turns += 1
            if self.turns > PATIENCE:
                # The group behind may be spinning on something that a group ahead has to do.
                order = sorted(ready)
                pc = order[self.turns // PATIENCE % len(order)]
        return self._take(pc)

    def wake(self) -> None:
        """Something happened that threads may be waiting for."""
        self.sleeping.clear()
        self.asked.clear()
        self.idle = self.in_vain = 0

    def _all_wait(self, pc: int) -> None:
        """Every group waits for something: look again, but not for ever."""
        self.idle += 1
        if self.idle > PATIENCE:
            lacking = self._lacking()
            program, called = self.program, self.program.calls()
            waiting = [program.ops[program.blocks[place].ops.start] for place in self.groups]
            places = {called.get(op.instruction.ptx_line, op.line) for op in waiting}
            untouched = len(self.asked) > 1 and all(parity and barrier.untouched(row) for barrier, row, parity in self.asked.values())
            endless.incomplete_phase(self, program.blocks[pc].line, lacking, places - {None}, untouched)

    def _lacking(self) -> endless.Lacking:
        """What the mbarriers lack that threads wait for. Of one that is miscounted that alone, whoever waits there; else of all, those
        first at which somebody has arrived."""
        barriers = {id(barrier): (offset - self.shared.start, barrier) for offset, barrier in self.asynchronous.get("barriers", {}).items()}
        waits = {(id(barrier), row): (barrier, row) for barrier, row, _ in self.asked.values()}
        ordered = sorted(waits.values(), key=lambda wait: not 0 < wait[0].pending[wait[1]] < wait[0].expected[wait[1]])
        found = [barrier.missing(barriers[id(barrier)][0], row) for barrier, row in ordered]
        others = (barrier.miscounted(offset) for offset, barrier in barriers.values())
        wrong = (one for one in (*found, *others) if one is not None and (one.bytes_alone or one.surplus))
        joined = found[0]._replace(said=". Another one that is waited for".join(one.said for one in found)) if found else endless.Lacking()
        return next(wrong, joined)

    def _take(self, pc: int, mask: np.ndarray | None = None) -> int:
        self.at = pc
        if mask is None:
            mask = self.groups.pop(pc)
        alone = not self.groups and not self.parked and self.exited is None and not self.joined
        self.mask = None if alone else mask
        live = self.program.blocks
        protected = self.program.exchanged
        for other in (*self.groups, *self.joined):
            protected |= live[other].live_in
        for entry in self.parked:
            if entry.resume is not None and entry.resume < len(live):
                protected |= live[entry.resume].live_in
        self.protected = protected
        return pc

    def _come_together(self, pc: int) -> bool:
        """At a warp-level instruction: warps (or warpgroups) of which lanes that it names are elsewhere, and could still
        come, are held here. Are there any that can go on? They are the running group then."""
        if not self.groups:
            return True
        block = self.program.blocks[pc]
        elsewhere = np.zeros((self.blocks, self.warp_count, 32), bool)
        for other, mask in self.groups.items():
            if other != pc:
                elsewhere |= self.warps(np.broadcast_to(mask, self.shape), False)
        active = self.warps_active()
        if block.members is not None:
            named = self.regs[block.members].view(np.uint32)
            if named.size > 1 or named.item() != 0xFFFFFFFF:
                named = np.bitwise_or.reduce(np.where(active, self.warps(named, 0), np.uint32(0)), axis=2, keepdims=True)
                elsewhere &= (named >> np.arange(32, dtype=np.uint32) & 1).astype(bool)
        first = np.arange(0, self.warp_count, block.rendezvous)
        missing = np.logical_or.reduceat(elsewhere.any(axis=2), first, axis=1)
        here = np.logical_or.reduceat(active.any(axis=2), first, axis=1)
        if not (missing & here).any():
            return True
        go = np.repeat(here & ~missing, block.rendezvous, axis=1)[:, : self.warp_count]
        whole = self.mask
        going = whole & self.from_warps(np.broadcast_to(go[:, :, None], active.shape)) if go.any() else None
        self.mask = whole if going is None else whole & ~going
        self._note_absent(pc)
        self._join(pc, self.mask)
        self.held.add(pc)
        if going is None:
            return False
        self.mask = going
        self.protected |= block.live_in
        return True

    def _note_absent(self, pc: int) -> None:
        """The running group waits at a warp-level instruction: remember which lanes of its warps are elsewhere."""
        if self.calls is None:
            self.calls = np.zeros((self.blocks, self.warp_count, 32), np.int32)
        elsewhere = np.zeros(self.calls.shape, bool)
        for other, mask in self.groups.items():
            if other != pc and not self.program.blocks[other].leaves:
                elsewhere |= self.warps(np.broadcast_to(mask, self.shape), False)
        elsewhere &= self.warps_active().any(axis=2)[:, :, None]
        known = self.awaited.get(pc)
        if known is not None:
            elsewhere |= known[0]
        self.awaited[pc] = [elsewhere, self.calls.copy()]

    def _find_absent(self, pc: int) -> None:
        """A warp-level instruction runs: which lanes has it waited for that have ended, or wait at a barrier, without
        having called one themselves?"""
        elsewhere, calls = self.awaited.pop(pc, (None, None))
        self.absent = None
        if elsewhere is not None:
            gone = [self.exited, *(entry.mask for entry in self.parked if entry.resume is not None)]
            gone = [self.warps(np.broadcast_to(mask, self.shape), False) for mask in gone if mask is not None]
            self.absent = elsewhere & np.logical_or.reduce(gone) & (self.calls == calls) if gone else None
        self.calls += self.warps_active()

    def _divide(self, where) -> bool:
        """Where a branch only separates whole blocks from others, let the parts run by themselves, undisturbed."""
        if self.groups or self.parked or self.exited is not None or self.blocks == 1 or self.asynchronous:
            return False
        if not self.checks.divisible:
            return False
        if self.cluster_barrier is not None or not self.alone:
            return False  # blocks of a cluster reach each other's memory, so they stay together
        (taken_at, taken), (other_at, _) = where
        division = self.division(taken)
        if division is None:
            return False
        axis, ranges = division
        self.parts = []
        for start, stop in ranges:
            layout, cut, rows = self.part(axis, start, stop)
            part = Chunk.__new__(Chunk)
            Lanes.__init__(part, *layout)
            part._adopt(self.launch)
            part.parent = self
            part.zero = self.zero
            part.regs = [cut(value) for value in self.regs]
            part.params, part.local = self.params.part(cut), self.local.part(cut)
            part.shared = self.shared.part(part, rows)
            part.checks = self.checks.part(rows)
            part.undefined = self.undefined and self.undefined.part(part, cut, rows)
            part.cluster_barrier = None
            part.asynchronous = {}
            part.order = self.order
            part._iterations = {k: v[rows] for k, v in self._iterations.items()}
            go = np.broadcast_to(cut(taken), np.broadcast_shapes(cut(taken).shape, (1,) * self.nd))
            if go.all():
                part.pc = taken_at
            elif not go.any():
                part.pc = other_at
            else:
                part._join(taken_at, go)
                part._join(other_at, ~go)
                part.pc = part._next_group()
            self.parts.append(part)
        self.regs = []
        return True

    def _run_parts(self) -> bool:
        while self.parts:
            if not self.parts[0].run():
                # Let the other parts make the progress that this one waits for.
                self.parts.append(self.parts.pop(0))
                if self._others_could_run():
                    return False
                continue
            part = self.parts.pop(0)
            part.finish()
            self._absorb(part)
        return True

    def _absorb(self, part: Chunk) -> None:
        for i, count in enumerate(part.full_runs):
            if count:
                entry = self.part_runs.setdefault(i, [0, 0])
                entry[0] += count * part.blocks * part.warp_count
                entry[1] += count * part.lanes
        for i, (warps, lanes) in part.part_runs.items():
            entry = self.part_runs.setdefault(i, [0, 0])
            entry[0] += warps
            entry[1] += lanes

    # ---------------------------------------------------------------------------------------------------- barriers

    def barrier(self, resume: int, barrier: int, expected: int | None, line, arrive=False, aligned=True, vote=None):
        """The active threads reach a barrier. Returns where they go, or None if they are parked.

        vote: (how, register of the result, register of the predicate) of a barrier that reduces one.
        """
        if barrier >= BARRIERS:
            named = barrier - (1 << 32) if barrier >> 31 else barrier  # as its source has it
            self.fail(f"a thread comes to barrier {named}, and a block has those from 0 to {BARRIERS - 1}.", line)
        if expected is not None and expected % WARP:
            self.fail(f"a barrier is for {expected} threads, which is no multiple of {WARP}: it counts whole warps.", line)
        if self.recorder is not None and not arrive:
            self.recorder.barrier(self, line, "sync")
        if self.mask is None and not self.parked and not arrive and (expected is None or expected == self.threads):
            self.checks.barrier(self)
            if vote is not None:
                self._count_votes([(*vote[:2], self.regs[vote[2]])], [np.ones((self.blocks, self.threads), bool)], [None])
            return resume
        mask = self.mask if self.mask is not None else np.ones((1,) * self.nd, bool)
        if vote is not None:
            vote = (*vote[:2], self.regs[vote[2]])
        came = self.checks.reached(self)
        self.parked.append(Parked(None if arrive else resume, mask, barrier, expected, line, aligned, vote, came))
        self.turns = 0
        if arrive:
            # Those who only arrive go on; the others may have been waiting for them.
            self._join(resume, mask)
        self._release()
        return None

    def _release(self, stuck: bool = False) -> None:
        """Let go of complete barriers. stuck: nobody can run, so threads that ended no longer count."""
        exited = None
        if self.exited is not None:
            exited = self.rows_of(self.exited).sum(axis=1)
        released = False
        for barrier in sorted({entry.barrier for entry in self.parked} - {CLUSTER}):
            entries = [entry for entry in self.parked if entry.barrier == barrier]
            rows = [self.rows_of(entry.mask) for entry in entries]
            arrived = sum(row.sum(axis=1) for row in rows)
            if len({entry.expected for entry in entries}) > 1:
                divergent_barriers.different_counts(self, entries, rows)
            expected = next((entry.expected for entry in entries if entry.expected is not None), None)
            needed = self.threads if expected is None else expected
            complete = (arrived >= needed) & (arrived > 0)
            if stuck and expected is None and exited is not None:
                gone = ~complete & (arrived > 0) & (arrived + exited >= needed)
                if gone.any():
                    divergent_barriers.some_never_come(self, entries, rows, gone)
                    complete = complete | gone
            if not complete.any():
                continue
            released = True
            self.wake()
            if (complete & (arrived > needed)).any():
                divergent_barriers.too_many_come(self, entries, rows, complete & (arrived > needed), needed)
            self._pass(entries, rows, complete, expected)
        if stuck and not released:
            divergent_barriers.deadlock(self, self.parked, CLUSTER)

    def cluster_arrive(self, position: int, release: bool, aligned: bool) -> None:
        """The active threads arrive at their cluster's barrier. position: of the instruction. aligned: it is for whole warps."""
        state, here = self.cluster_barrier, self._active()
        line, place = self.program.ops[position].line, position + 1 if aligned else 0
        twice = here & (state.arrived | state.passed)
        if twice.any():
            divergent_barriers.cluster_out_of_turn(self, line, twice, "arrives at the cluster's barrier again without having waited for it")
        state.arrived |= here
        state.place[here] = place
        if place:
            divergent_barriers.arrived_apart(self, line, state.arrived & (state.place > 0), state.place, here)
        self.checks.cluster_arrived(self, release, position)
        self._release_clusters()

    def cluster_wait(self, resume: int, line):
        """The active threads wait for their cluster's barrier. Returns where they go, or None if they are parked."""
        if self.recorder is not None:
            self.recorder.barrier(self, line, "sync")
        state, here = self.cluster_barrier, self._active()
        stray = here & ~(state.arrived | state.passed)
        if stray.any():
            divergent_barriers.cluster_out_of_turn(self, line, stray, "waits for the cluster's barrier without having arrived at it")
        waiting = here & state.arrived
        through = here & ~waiting
        if not waiting.any():
            self._pass_cluster(through)
            return resume
        self.parked.append(Parked(resume, self.from_rows(waiting), CLUSTER, None, line, False))
        self.turns = 0
        if through.any():
            self._pass_cluster(through)
            self._join(resume, self.from_rows(through))
        return None

    def _active(self) -> np.ndarray:
        """[blocks, threads]: who takes part."""
        return np.ones((self.blocks, self.threads), bool) if self.mask is None else self.rows_of(self.mask)

    def _release_clusters(self) -> None:
        """Complete cluster barriers that have everybody, and let those go on that wait there."""
        state = self.cluster_barrier
        if not state.complete(self):
            return
        if self.exited is not None:
            self.checks.cluster_left(self, np.flatnonzero(self.rows_of(self.exited).any(axis=1)))
        self.wake()
        for entry in [entry for entry in self.parked if entry.barrier == CLUSTER]:
            waiting = self.rows_of(entry.mask)
            go = waiting & state.passed
            if not go.any():
                continue
            self.parked.remove(entry)
            self._pass_cluster(go)
            self._join(entry.resume, self.from_rows(go))
            rest = waiting & ~go
            if rest.any():
                self.parked.append(Parked(entry.resume, self.from_rows(rest), CLUSTER, None, entry.line, False))

    def _pass_cluster(self, rows: np.ndarray) -> None:
        """These threads ([blocks, threads]) are through the cluster's barrier: what was done before it is ordered."""
        self.cluster_barrier.passed &= ~rows
        self.checks.cluster_passed(self, rows.any(axis=1))

    def _pass(self, entries, rows, complete, expected) -> None:
        resumes = {entry.resume for entry in entries if entry.resume is not None}
        if len(resumes) > 1 and expected is None and all(entry.aligned for entry in entries):
            divergent_barriers.different_places(self, entries, rows, complete)
        if expected is not None:
            divergent_barriers.without_their_warps(self, entries, rows, complete)
        if expected in (None, self.threads) and None not in {entry.resume for entry in entries}:
            self.checks.barrier(self, complete)
        else:
            came = zip(entries, rows, strict=True)
            arrivals = [Arrivals(row & complete[:, None], entry.resume is not None, entry.came, entry.line) for entry, row in came]
            self.checks.barrier_of_some(self, arrivals, complete, entries[0].barrier)
        every = bool(complete.all())
        where = None if every else self._blocks(complete)
        if any(entry.vote is not None for entry in entries):
            masks = [entry.mask if every else entry.mask & where for entry in entries]
            self._count_votes([entry.vote for entry in entries], rows, masks)
        for entry in entries:
            self.parked.remove(entry)
            go = entry.mask if every else entry.mask & where
            if entry.resume is not None and (every or go.any()):
                self._join(entry.resume, go)
            if not every:
                rest = entry.mask & ~where
                if rest.any():
                    self.parked.append(replace(entry, mask=rest))

    def _count_votes(self, votes, rows, masks) -> None:
        """Give the threads of a barrier that reduces its result. votes: (how, register, values) or None; rows: who came."""
        arrived = sum(row.sum(axis=1) for row in rows)
        for_it = sum((self.rows_of(vote[2]) & row).sum(axis=1) for vote, row in zip(votes, rows, strict=True) if vote is not None)
        for vote, mask in zip(votes, masks, strict=True):
            if vote is not None:
                how, register, _ = vote
                result = for_it.astype(np.uint32) if how == "popc" else for_it == arrived if how == "and" else for_it > 0
                old, result = self.regs[register], self._blocks(result)
                self.regs[register] = result if mask is None else np.where(mask, result.astype(old.dtype, copy=False), old)

    def finish(self) -> None:
        """All threads have ended: look at what can only be told then."""
        if "bulk groups" in self.asynchronous:
            self.asynchronous["bulk groups"].finish(self)
        if self.parts is None:
            self.checks.ended(self)

    # -------------------------------------------------------------------------------------------- what handlers use

    def where(self, line: int | None) -> str:
        """'line 12', for messages."""
        return f"line {line}" if line is not None else f"kernel {self.program.name}"

    def fail(self, message: str, line: int | None):
        """Stop the run with a sentence."""
        raise RunError(f"{self.where(line)}: {message}", line, list(self.findings.found.values()))

    def clock(self) -> int:
        """A clock that only grows: instructions executed so far."""
        return self.launch.clock.used

    @property
    def thread_numbers(self) -> np.ndarray:
        """Each thread's number in the grid + 1, as int32 array of the lanes."""
        if self._thread_numbers is None:
            self._thread_numbers = (self._blocks(self.block_numbers) * self.threads + self.thread_index + 1).astype(np.int32)
        return self._thread_numbers

    def warps_active(self) -> np.ndarray:
        """[blocks, warps, 32]: which lanes take part."""
        if self._masks[0] is not self.mask or self._masks[1] is None:
            mask = np.ones((1,) * self.nd, bool) if self.mask is None else self.mask
            self._masks = (self.mask, self.warps(mask, False))
        return self._masks[1]

    def count_threads(self, line, counter: str, active) -> None:
        """Count the threads of a guarded instruction."""
        if self.counting is not None:
            lanes = self.lanes if active is None else self._lanes_of(active)
            self.counting.threads(line, counter, lanes)

    def _lanes_of(self, mask) -> int:
        return int(np.count_nonzero(mask)) * (self.lanes // mask.size)

    def _count_part(self, pc: int) -> None:
        if self.counting is None:
            return
        if self._mask_counts[0] is not self.mask:
            rows, _, blocks, threads, times = self.compact(self.mask, None)
            rows = np.broadcast_to(rows, (blocks, threads))
            pad = -threads % WARP
            if pad:
                rows = np.concatenate([rows, np.zeros((blocks, pad), bool)], axis=1)
            warps = int(np.count_nonzero(rows.reshape(blocks, -1, WARP).any(axis=2))) * times
            self._mask_counts = (self.mask, warps, self._lanes_of(self.mask))
        entry = self.part_runs.setdefault(pc, [0, 0])
        entry[0] += self._mask_counts[1]
        entry[1] += self._mask_counts[2]

    # --------------------------------------------------------------------------------------------------- recording

    def next_order(self) -> int:
        self.order += 1
        return self.order

    def iterations(self, site) -> np.ndarray:
        """[blocks, warps]: how often each warp had executed this access before; counts this time."""
        counts = self._iterations.get(site.index)
        if counts is None:
            counts = self._iterations[site.index] = np.zeros((self.blocks, self.warp_count), np.int32)
        before = counts.copy()
        counts += self.warps_active().any(axis=2)
        return before

    def traced_blocks(self, wanted) -> np.ndarray:
        if self._traced[0] is None:
            if wanted.blocks is None:
                self._traced = (np.ones(self.blocks, bool), self._traced[1])
            else:
                self._traced = (np.array([int(b) in wanted.blocks for b in self.block_numbers], bool), self._traced[1])
        return self._traced[0]

    def traced_warps(self, wanted) -> np.ndarray:
        if self._traced[1] is None:
            every = np.ones(self.warp_count, bool)
            chosen = every if wanted.warps is None else np.array([w in wanted.warps for w in range(self.warp_count)], bool)
            self._traced = (self._traced[0], chosen)
        return self._traced[1]

    def _step_by_step(self, block) -> None:
        """Run a block one instruction at a time, and record what each did."""
        for op in self.program.ops[block.ops.start : block.ops.stop]:
            for step in (*block.watchers.get(op.position, ()), *(op.steps if self.mask is None else op.masked)):
                step(self)
            self.recorder.instruction(self, op)

    def observe(self, site, space: str, addresses) -> None:
        """Called for every executed access when counters or a trace are wanted. space: where it goes."""
        if self.counting is not None:
            self.counting.access(self, site, space, addresses)
        if self.recorder is not None:
            self.recorder.access(self, site, space, addresses)
