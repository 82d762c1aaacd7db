"""Runs a slice for all threads of a launch at once: loop, divergence, convergence barriers."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from helpers.sim.code import time_limit
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sass import SassInstruction
from helpers.sim.code.sass_operands import SassAddress, SassConstant, SassImmediate, SassJump, SassPredicate, SassRegister

from .constants import SHARED_WINDOW
from .costs import SiteAccess, costs
from .semantics import HANDLERS
from .steady import SteadyLoops
from .values import ALL_ONES, EMPTY, LOW, TRUE, ZERO, CannotTell, SomeBits, lowest, modified, same_mask, signed


@dataclass(eq=False)
class _Part:
    """Lanes that run together from `pc`. mask None: every lane."""

    pc: int
    mask: np.ndarray | None


class SliceRun:
    """One launch (or some of its blocks) of the slice. jumps: over the trips of steady loops. waits_end: whoever looks whether something
    has come finds that it has. most_lanes: of each block, the first ones, if not all are wanted: whole warps, or warps of one lane
    (`warp`), where no lane hears of others."""

    jumps = True
    waits_end = False
    most_lanes: int | None = None
    warp = WARP

    def __init__(self, program, grid, block, constants, blocks, accesses, budget, cluster):
        self.program = program
        self.constants = constants
        self.accesses = accesses
        self.budget, self.clustered = budget, math.prod(cluster) > 1
        grid, block = [(*map(int, extent), 1, 1)[:3] for extent in (grid, block)]
        self.threads = min(block[0] * block[1] * block[2], self.most_lanes or 1024)
        self.lanes = -(-self.threads // self.warp) * self.warp
        linear = np.arange(self.lanes, dtype=np.int64)
        tid = (linear % block[0], linear // block[0] % block[1], linear // (block[0] * block[1]))
        if blocks is None:
            self.shape = (grid[2], grid[1], grid[0])
            ctaid = [np.arange(grid[k], dtype=np.int64).reshape([-1 if a == 2 - k else 1 for a in range(3)] + [1]) for k in range(3)]
        else:
            chosen = np.fromiter(blocks, np.int64)
            self.shape = (1, 1, len(chosen))
            ctaid = [chosen % grid[0], chosen // grid[0] % grid[1], chosen // (grid[0] * grid[1])]
            ctaid = [c.reshape(1, 1, -1, 1) for c in ctaid]
        self.count_blocks = self.shape[0] * self.shape[1] * self.shape[2]
        strides = (1, cluster[0], cluster[0] * cluster[1])
        lane = linear.reshape(1, 1, 1, -1)
        one = np.ones((1, 1, 1, 1), np.int64)
        self.special = {
            **{f"SR_TID.{c}": tid[k].reshape(1, 1, 1, -1) if block[k] > 1 else one * 0 for k, c in enumerate("XYZ")},
            **{f"SR_CTAID.{c}": ctaid[k] for k, c in enumerate("XYZ")},
            **{f"SR_NTID.{c}": one * block[k] for k, c in enumerate("XYZ")},
            **{f"SR_NCTAID.{c}": one * grid[k] for k, c in enumerate("XYZ")},
            "SR_LANEID": lane % WARP,
            "SR_CgaCtaId": sum(c % n * stride for c, n, stride in zip(ctaid, cluster, strides, strict=True)),
            "SRZ": one * 0,
            "SR_SWINHI": one * SHARED_WINDOW,
            "SR_EQMASK": 1 << lane % WARP,
            "SR_LTMASK": (1 << lane % WARP) - 1,
            "SR_LEMASK": (2 << lane % WARP) - 1,
            "SR_GTMASK": LOW & ~((2 << lane % WARP) - 1),
            "SR_GEMASK": LOW & ~((1 << lane % WARP) - 1),
        }
        self.values: dict[str, np.ndarray] = {}
        self.known: dict[str, np.ndarray | None] = {}  # register -> lanes whose value is known (None: all); absent: none
        self.bits: dict[str, SomeBits] = {}
        self.mask: np.ndarray | None = None  # of the instruction that is being executed
        self.groups: dict[str, np.ndarray] = {}  # convergence barrier -> per lane, which BSSY it joined; 0: none
        self.joined: dict[str, np.ndarray | None] = {}  # convergence barrier -> mask of the latest BSSY
        self.next_group = 1
        self.origin: np.ndarray | None = None  # per lane, with which part it came to its latest collective
        self.numbers = itertools.count(1)
        exists = None if self.lanes == self.threads else (linear < self.threads).reshape(1, 1, 1, -1)
        self.alive = exists  # None: every lane
        self.parts = [_Part(0, exists)]
        self.waiting: list[tuple[int, str, np.ndarray, np.ndarray]] = []  # (next pc, barrier, arrived, expected)
        self.executed = np.zeros(len(program.instructions) + 1, np.int64)
        self.thread_counts: dict[int, int | None] = {}  # guarded arithmetic, by index; None: a guard was not known
        self.lane_counts: dict[int, int] = defaultdict(int)
        self.sites: dict[tuple[int, str], SiteAccess] = {}  # by instruction and space
        self.unknown_sites: dict[int, str] = {}
        self.repeats: dict[int, tuple[list, dict[str, int]]] = {}  # per site: mask and registers of its last execution, cost
        self.patterns: dict[int, tuple] = {}  # per site: addresses and mask of its last new pattern, bases, cost by phase
        self.loops = SteadyLoops(self)

    # -- lanes and warps

    def warps_in(self, mask) -> int:
        if mask is None:
            return self.count_blocks * (self.lanes // self.warp)
        if mask.shape[-1] == 1:
            return int(mask.sum()) * (self.count_blocks // mask.size) * (self.lanes // self.warp)
        some = mask.reshape(*mask.shape[:3], -1, self.warp).any(axis=-1)
        return int(some.sum()) * (self.count_blocks * self.lanes // mask.size)

    def lanes_in(self, mask) -> int:
        if mask is None:
            return self.count_blocks * self.threads
        return int(np.count_nonzero(mask)) * (self.count_blocks * self.lanes // mask.size)

    def by_warp(self, array):
        """[..., warps, lanes of a warp] view of an array that has lanes, or [..., 1, 1]."""
        array = np.broadcast_to(array, np.broadcast_shapes(array.shape, (1, 1, 1, self.lanes)))
        return array.reshape(*array.shape[:3], -1, self.warp)

    def per_warp(self, array, reduce):
        """Apply `reduce` (np.any, np.all) to each warp and give every lane of it the result."""
        if array.shape[-1] == 1:
            return array
        rows = self.by_warp(array)
        return np.broadcast_to(reduce(rows, axis=-1, keepdims=True), rows.shape).reshape(array.shape)

    def narrow(self, mask, condition):
        """mask & condition, as None or an array; and whether it is empty."""
        if condition is None:
            return mask
        return condition if mask is None else mask & condition

    # -- values

    def read(self, operand):
        """The 32-bit pattern of a source operand with its sign, or None if unknown."""
        if isinstance(operand, SassRegister):
            value = ZERO if operand.zero else self.lookup(operand.name())
            return modified(value, operand.sign)
        if isinstance(operand, SassImmediate):
            if isinstance(operand.value, float):
                return np.full((1, 1, 1, 1), int(np.float32(operand.value).view(np.uint32)), np.int64)
            return np.full((1, 1, 1, 1), operand.value & LOW, np.int64)
        if isinstance(operand, SassConstant):
            word = self.constants.get((operand.bank, operand.offset))
            return modified(None if word is None else np.full((1, 1, 1, 1), word, np.int64), operand.sign)
        return None

    def read_bits(self, operand) -> tuple[int, np.ndarray]:
        """Which bits of a source operand are known, and they: all, or those that are kept of a register that is unknown as a whole."""
        value = self.read(operand)
        if value is not None:
            return LOW, value & LOW
        found = self.bits.get(operand.name()) if isinstance(operand, SassRegister) and "|" not in operand.sign else None
        if found is None or not self.at_work_in(found.lanes):
            return 0, ZERO
        certain, bits, _ = found
        if "-" in operand.sign:
            certain = lowest(certain)
        return certain, modified(bits, operand.sign) & certain

    def read_pair(self, operand):
        """A 64-bit source as (low, high)."""
        if isinstance(operand, SassRegister):
            if operand.zero:
                return ZERO, ZERO
            return self.lookup(operand.name()), self.lookup(operand.name(1))
        if isinstance(operand, SassConstant):
            return self.read(operand), self.read(SassConstant(operand.bank, operand.offset + 4))
        if isinstance(operand, SassImmediate):
            value = int(operand.value)
            return (np.full((1, 1, 1, 1), value & LOW, np.int64), np.full((1, 1, 1, 1), value >> 32 & LOW, np.int64))
        return None, None

    def condition(self, pred: SassPredicate | None):
        """A predicate as a bool array, or None if unknown."""
        value = TRUE if pred is None or pred.name == "T" else self.lookup(pred.name)
        if value is None:
            return None
        return ~value if pred is not None and pred.negated else value

    def lookup(self, name):
        """The value of a register if the lanes at work all know it."""
        value = self.values.get(name)
        return value if value is not None and self.at_work_in(self.known[name]) else None

    def at_work_in(self, lanes) -> bool:
        """Whether the lanes at work are all among these; None: every lane is."""
        return lanes is None or lanes is self.mask or not (~lanes if self.mask is None else self.mask & ~lanes).any()

    def write(self, name, value, mask):
        """Set a register for the lanes of the mask; None makes it unknown there."""
        some = self.bits.pop(name, None)
        if some is not None and value is not None and mask is not None:
            self.keep_bits(name, some, LOW, value, mask)
        if mask is None:
            if value is None:
                self.values.pop(name, None)
            else:
                self.values[name], self.known[name] = value, None
            return
        old = self.values.get(name)
        if value is None:
            if old is not None:
                known = self.known[name]
                self.known[name] = ~mask if known is None else known & ~mask
        elif old is None:
            self.values[name], self.known[name] = value, mask
        else:
            self.values[name] = np.where(mask, value, old)
            known = self.known[name]
            self.known[name] = known if known is None or known is mask else known | mask

    def write_bits(self, name, certain: int, bits, mask):
        """Set a register of which these bits are known: for whoever asks for all of it, it is unknown."""
        if certain == LOW:
            self.write(name, bits, mask)
            return
        before = self.bits.get(name)
        if before is None and name in self.values:
            before = SomeBits(LOW, self.values[name], self.known[name])
        self.write(name, None, mask)
        self.keep_bits(name, before, certain, bits, mask)

    def keep_bits(self, name, before: SomeBits | None, certain: int, bits, mask):
        """New bits for the lanes of the mask. Where others have some, only those are followed that are known in all of them."""
        if before is not None and mask is not None:
            others = ~mask if self.alive is None else self.alive & ~mask
            if (others if before.lanes is None else others & before.lanes).any():
                certain, bits = certain & before.certain, np.where(mask, bits, before.bits)
                mask = None if before.lanes is None else before.lanes | mask
        if certain not in (0, LOW):
            self.bits[name] = SomeBits(certain, bits & certain, mask)

    def stack_word(self, i) -> int | None:
        """The address that an LDL or STL names, if it is known and the same for all threads."""
        place = self.address(next(s for s in i.sources if isinstance(s, SassAddress)))
        return place.item() if place is not None and place.size == 1 and not place.item() & 3 else None

    def stack_value(self, i, k: int):
        """The k-th word that an LDL loads, or None."""
        place = self.stack_word(i)
        return None if place is None else self.lookup(f"stack+{place + 4 * k}")

    @property
    def private_stack(self) -> bool:
        """Does no store through a generic address reach what is spilled?"""
        return self.program.private_stack

    def forget_stack(self, mask):
        """Something unknown was stored somewhere on the stack."""
        for name in [name for name in self.values if name.startswith("stack")]:
            self.write(name, None, mask)

    # -- the run

    def run(self) -> tuple[int, ...]:
        """How often each instruction is executed, per warp, in the order of the code."""
        steps = 0
        while self.parts or self.waiting:
            if not self.parts:
                self.wake()
                if not self.parts:
                    raise CannotTell("threads wait for each other at a point of convergence that is never reached")
            part = self.next_part()
            steps += 1
            if steps > self.budget:
                raise CannotTell(f"the launch takes more than {self.budget} basic blocks")
            time_limit.look()
            self.execute(part)
        return tuple(int(n) for n in np.cumsum(self.executed)[:-1])

    def next_part(self) -> _Part:
        """The part with the smallest pc; parts of different warps that meet there go on together."""
        pc = min(p.pc for p in self.parts)
        here = [p for p in self.parts if p.pc == pc]
        chosen = here[0]
        self.parts.remove(chosen)
        for other in here[1:]:
            if chosen.mask is None or other.mask is None:
                continue
            a = self.by_warp(chosen.mask).any(axis=-1)
            if not (a & self.by_warp(other.mask).any(axis=-1)).any():
                chosen = _Part(pc, chosen.mask | other.mask)
                self.parts.remove(other)
        return chosen

    def execute(self, part: _Part):
        if self.jumps and part.pc in self.program.heads:
            self.loops.visit(part)
        block = self.program.block_of[part.pc]
        warps = self.warps_in(part.mask)
        self.executed[block.start] += warps
        self.executed[block.end] -= warps
        self.lane_counts[block.start] += self.lanes_in(part.mask)
        for index in block.needed:
            i = self.program.instructions[index]
            if i.row.ends_block and index == block.end - 1:
                self.leave(i, part)
                return
            self.step(i, part.mask)
        last = self.program.instructions[block.end - 1]
        if last.row.ends_block:
            self.leave(last, part)
        elif block.end >= len(self.program.instructions):
            raise CannotTell("the code runs past its end")
        else:
            self.parts.append(_Part(block.end, part.mask))

    def step(self, i: SassInstruction, mask):
        name = i.name
        self.mask = mask
        guard = self.condition(i.predicate)
        if i.predicate is not None and guard is not None:
            if not guard.any():
                guard = False
            elif guard.all():
                guard = TRUE
        if i.row.per_thread and i.predicate is not None:
            index = i.index
            known = self.thread_counts.get(index, 0)
            if guard is None or known is None:
                self.thread_counts[index] = None
            elif guard is not False:
                self.thread_counts[index] = known + self.lanes_in(mask if guard is TRUE else self.narrow(mask, guard))
        if guard is False:
            return
        if guard is None:
            for written in i.writes:
                self.write(written, None, mask)
            if name == "STL":
                self.forget_stack(mask)
            self.loops.unknown(i, mask)
            if self.accesses and i.row.space:
                self.unknown_sites[i.index] = "whether it runs depends on data"
            return
        if guard is not TRUE:
            mask = self.mask = self.narrow(mask, guard)
        if self.accesses and i.row.space:
            self.observe(i, mask)
        if self.loops.trip is None:
            self.perform(i, mask)
        else:
            self.loops.perform(i, mask)

    def evaluates(self, i: SassInstruction) -> bool:
        """Whether the results of an instruction are computed; otherwise they are unknown."""
        return i.name in HANDLERS and i.index not in self.program.data

    def perform(self, i: SassInstruction, mask):
        """What an instruction does to registers and to convergence barriers, for the lanes of the mask."""
        name = i.name
        if name == "BSSY":
            self.join(i.operands[0], mask)
            return
        if name == "BREAK":
            groups = self.groups.get(i.operands[-1], ZERO)
            self.groups[i.operands[-1]] = np.where(TRUE if mask is None else mask, 0, groups)
            return
        if self.evaluates(i):
            HANDLERS[name](self, i, mask)
        elif name == "BMOV":
            self.move_barrier(i, mask)
        else:
            for written in i.writes:
                self.write(written, None, mask)

    # -- control flow

    def leave(self, i: SassInstruction, part: _Part):
        mask, after = part.mask, i.index + 1
        self.mask = mask
        self.loops.leave(i)
        guard = self.condition(i.predicate)
        for source in i.sources:  # BRA P1, target: both must hold
            if isinstance(source, SassPredicate) and guard is not None:
                extra = self.condition(source)
                guard = None if extra is None else guard & extra
        if "DIV" in i.modifiers and i.name == "BRA":
            guard = self.diverged(i, mask)
        elif "ANY" in i.modifiers and i.name == "BRA" and guard is not None:  # the warp stays together
            guard = self.per_warp(np.asarray(self.narrow(mask, guard)), np.any)
        if guard is None:
            raise CannotTell("a branch depends on data", i)
        taken, rest = self.split(mask, guard)
        if rest is not EMPTY:
            self.parts.append(_Part(after, rest))
        if taken is EMPTY:
            return
        if i.name == "BRA" or (i.name == "CALL" and i.target is not None):
            if i.target is None:
                raise CannotTell("a branch whose target the disassembly does not name", i)
            self.parts.append(_Part(i.target, taken))
        elif i.name == "EXIT":
            gone = TRUE if taken is None else taken
            self.alive = ~gone if self.alive is None else self.alive & ~gone
            self.wake()
        elif i.name in ("BSYNC", "WARPSYNC"):
            self.arrive(i, taken, after)
        elif i.name == "RET":
            self.give_back(i, taken)
        elif isinstance(i.sources[-1] if i.sources else None, SassJump):
            self.jump(i, taken)
        elif i.name == "ENDCOLLECTIVE":
            self.part_again(taken, after)
        else:
            raise CannotTell(
                f"{'there is a call through a pointer' if i.name == 'CALL' else 'there is an indirect or unusual branch'}: {i}"
            )

    def diverged(self, i: SassInstruction, mask):
        """BRA.DIV: some lane that the operand names (all, if it names none) is not here with the others of its warp."""
        if mask is None:
            return ~TRUE
        named = next((s for s in i.sources if isinstance(s, (SassRegister, SassImmediate, SassConstant))), None)
        bits = ALL_ONES if named is None else self.read(named)
        if bits is None:
            return None
        expected = (bits >> (np.arange(self.lanes) % WARP).reshape(1, 1, 1, -1) & 1).astype(bool)
        missing = expected & ~mask if self.alive is None else expected & ~mask & self.alive
        return self.per_warp(missing, np.any)

    def split(self, mask, guard):
        """(lanes where guard holds, lanes where not); either may be EMPTY; `mask` itself where nothing changes."""
        if mask is None:
            if guard.all():
                return None, EMPTY
            return (EMPTY, None) if not guard.any() else (guard, ~guard)
        taken = mask & guard
        if not taken.any():
            return EMPTY, mask
        rest = mask & ~guard
        return (mask, EMPTY) if not rest.any() else (taken, rest)

    def join(self, barrier, mask):
        """BSSY: the lanes of the mask will meet at the BSYNC of this barrier register."""
        group = np.full((1, 1, 1, 1), self.next_group, np.int64)
        self.next_group += 1
        self.joined[barrier] = mask
        self.groups[barrier] = group if mask is None else np.where(mask, group, self.groups.get(barrier, ZERO))

    def move_barrier(self, i: SassInstruction, mask):
        """BMOV: save a convergence barrier in a register (.CLEAR: and forget it), or restore it."""
        target, source = i.values[:2]
        if isinstance(source, str):
            if isinstance(target, SassRegister) and not target.zero:
                self.write(target.name(), self.groups.get(source, ZERO), mask)
            if "CLEAR" in i.modifiers:
                self.groups[source] = np.where(TRUE if mask is None else mask, 0, self.groups.get(source, ZERO))
                self.joined.pop(source, None)
            return
        value = self.read(source)
        if value is None or not isinstance(target, str):
            raise CannotTell("a convergence barrier is set to something unknown", i)
        self.groups[target] = np.where(TRUE if mask is None else mask, value, self.groups.get(target, ZERO))
        self.joined.pop(target, None)

    def arrive(self, i: SassInstruction, mask, after):
        if i.name == "BSYNC":
            barrier = i.operands[-1]
            if mask is None or (barrier in self.joined and mask is self.joined[barrier]):
                self.parts.append(_Part(after, mask))
                return
            groups = self.groups.get(barrier, ZERO)
            mine = self.per_warp(np.where(mask, groups, 0), np.max)
            expected = np.broadcast_to(groups == mine, np.broadcast_shapes(groups.shape, mine.shape))
        else:
            barrier = ""
            if "COLLECTIVE" in i.modifiers and mask is not None:
                number = next(self.numbers)
                self.origin = np.where(mask, number, ZERO if self.origin is None else self.origin)
            named = ALL_ONES if not i.sources else self.read(i.sources[0])
            if named is None:
                raise CannotTell("a convergence of threads that are not known", i)
            if mask is None:
                self.parts.append(_Part(after, mask))
                return
            expected = (named >> (np.arange(self.lanes) % WARP).reshape(1, 1, 1, -1) & 1).astype(bool)
        self.waiting.append((after, barrier, mask, expected))
        self.wake()

    def wake(self):
        """Let go of the warps whose expected lanes have all arrived or ended."""
        kept = []
        meetings: dict[tuple[int, str], tuple[np.ndarray, np.ndarray]] = {}
        for after, barrier, mask, expected in self.waiting:
            arrived, together = meetings.get((after, barrier), (np.zeros((1, 1, 1, 1), bool), np.zeros((1, 1, 1, 1), bool)))
            of_warp = self.per_warp(np.broadcast_to(mask, np.broadcast_shapes(mask.shape, (1, 1, 1, self.lanes))), np.any)
            meetings[after, barrier] = (arrived | mask, together | (expected & of_warp))
        for (after, barrier), (arrived, expected) in meetings.items():
            still = expected if self.alive is None else expected & self.alive
            missing = still & ~arrived
            missing = self.per_warp(np.broadcast_to(missing, np.broadcast_shapes(missing.shape, (1, 1, 1, self.lanes))), np.any)
            free, stuck = self.split(arrived, ~missing)
            if free is not EMPTY:
                self.parts.append(_Part(after, free))
            if stuck is not EMPTY:
                kept.append((after, barrier, stuck, expected))
        self.waiting = kept

    def jump(self, i, mask):
        """BRX: through a table of addresses."""
        target = i.sources[-1]
        low = self.read(target.register)
        if low is None:
            raise CannotTell("a jump to an address that depends on data", i)
        following = i.address + (self.program.instructions[1].address - self.program.instructions[0].address)
        self.go_to(i, signed(low) + target.offset + following, mask, again=True)

    def part_again(self, mask, after):
        """ENDCOLLECTIVE: threads that came to the collective apart go on apart."""
        if mask is None or self.origin is None:
            self.parts.append(_Part(after, mask))
            return
        origin = np.broadcast_to(self.origin, np.broadcast_shapes(self.origin.shape, mask.shape))
        for number in np.unique(origin[np.broadcast_to(mask, origin.shape)]):
            some, _ = self.split(mask, origin == number)
            self.parts.append(_Part(after, some))

    def give_back(self, i, mask):
        register = next((s for s in i.sources if isinstance(s, SassRegister)), None)
        value = self.read(register) if register is not None else None
        if value is None:
            raise CannotTell("a return to an address that is not known", i)
        self.go_to(i, value, mask)

    def go_to(self, i, value, mask, again: bool = False):
        """Threads go to the addresses in `value`, apart where these differ. again: each part executes the instruction once."""
        lanes = value if mask is None or value.size == 1 else np.broadcast_to(value, np.broadcast_shapes(mask.shape, value.shape))
        if mask is not None and value.size > 1:
            lanes = lanes[np.broadcast_to(mask, lanes.shape)]
        executed = 0
        for address in np.unique(lanes):  # warps that came from different calls go different ways
            target = self.program.addresses.get(int(address))
            if target is None or target not in self.program.block_of:
                raise CannotTell("a jump to an address outside the code", i)
            some, _ = self.split(mask, value == address)
            self.parts.append(_Part(target, some))
            executed += self.warps_in(some)
        if again:
            self.executed[i.index] += executed - self.warps_in(mask)
            self.executed[i.index + 1] -= executed - self.warps_in(mask)

    # -- memory accesses

    def observe(self, i: SassInstruction, mask):
        """Account one execution of a memory instruction."""
        index = i.index
        if index in self.unknown_sites:
            return
        # Nothing has been written to its registers since the last time: nothing has to be computed.
        inputs = [mask, *(self.values.get(name) for name in i.addressing), *(self.known.get(name) for name in i.addressing)]
        last = self.repeats.get(index)
        if last is not None and all(a is b for a, b in zip(last[0], inputs, strict=True)):
            self.add(i, last[1])
            self.loops.access(i, *last[2])
            return
        operands = [s for s in i.sources if isinstance(s, SassAddress)]
        places = [self.address(s) for s in operands]
        if i.name == "LDGSTS" and isinstance(i.sources[-1], SassPredicate):
            # Where the last operand is false, zeros are written and nothing is read.
            reads = self.condition(i.sources[-1])
            if reads is None:
                self.unknown_sites[index] = "whether it reads depends on data"
                return
            if not reads.all():
                mask = self.narrow(mask, reads)
                if not mask.any():
                    return
        if not places or any(p is None for p in places):
            self.unknown_sites[index] = "its address depends on data"
            return
        cost = self.cost(i, places, mask)
        if isinstance(cost, str):
            self.unknown_sites[index] = cost
            return
        self.repeats[index] = inputs, cost, (operands, places, mask)
        self.add(i, cost)
        self.loops.access(i, operands, places, mask)

    def cost(self, i: SassInstruction, places, mask) -> dict[str, dict[str, int]] | str:
        """As `costs.costs`. An access that repeats its last pattern at another place costs what it cost there."""
        bases = [place.item(0) for place in places]
        known = self.patterns.get(i.index)
        if (
            known is None
            or not same_mask(known[1], mask)
            or any(old.shape != new.shape or np.not_equal(new, old + (base - was)).any()
                   for old, new, was, base in zip(known[0], places, known[2], bases, strict=True))
        ):  # fmt: skip
            known = self.patterns[i.index] = (places, mask, bases, {})
        phase = tuple(base & 127 for base in bases)
        cost = known[3].get(phase)
        if cost is None:
            cost = known[3][phase] = costs(self, i, places, mask)
        return cost

    def add(self, i: SassInstruction, cost: dict[str, dict[str, int]], times: int = 1):
        """Charge an access with what it cost so many times."""
        for space, values in cost.items():
            site = self.sites.get((i.index, space))
            if site is None:
                site = self.sites[i.index, space] = SiteAccess(space, i.row.op)
            for name, value in values.items():
                setattr(site, name, getattr(site, name) + times * value)

    def address(self, place: SassAddress):
        total = place.offset
        for part in place.parts:
            low = self.lookup(part.name())
            if low is None:
                return None
            if ".64" in part.suffix:
                high = self.lookup(part.name(1))
                if high is None:
                    return None
                low = low | high << 32
            else:
                low = signed(low)
            total = total + low * part.scale * (-1 if part.sign == "-" else 1)
        return total if place.parts else np.full((1, 1, 1, 1), total, np.int64)

    def flat(self, array):
        """[blocks or 1, lanes or 1]: broadcast over blocks only as far as needed."""
        if array is None:
            return None
        if array.shape[:3] == (1, 1, 1):
            return array.reshape(1, -1)
        return np.broadcast_to(array, (*self.shape, array.shape[3])).reshape(self.count_blocks, -1)
