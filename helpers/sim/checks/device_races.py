"""Shadow state of device memory: races between threads of one launch, and reads of what nobody has written.

Only arrays that the launch writes can race, and as a rule that is C alone. `arrays_of` finds them before the launch
by following addresses back to the kernel's parameters, so that reads of A and B cost nothing. For each granule of the
arrays that are left, the shadow keeps who wrote it, who read it and when.

"When" is a count of the accesses so far. Two accesses of one block are ordered by a barrier between them; two of
different blocks by an acquire of the later one's block between them: an atomic operation, a volatile or acquiring read,
the barrier of a grid or cluster, in a kernel that has a fence (or .release and .acquire) for others to rely on. Which
thread released what is not tracked. That can only miss a race, never make one up: in the machine, whatever happens
before an access has also been executed before it.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Iterable

import numpy as np

from helpers.sim.code.addresses import DEVICE_BASE
from helpers.sim.code.program import Effect, Program
from helpers.sim.code.ptx import TYPE_BYTES, Address, Immediate, Vector
from helpers.sim.code.sites import Site

ANY = -1  # an address that comes from memory: it may point anywhere
MOST_THREADS = (1 << 30) - 2
ADVICE = (
    "Blocks run in any order, and so do warps: let one thread own the element, use atomicAdd, "
    "or put a barrier of all threads concerned between the two accesses."
)
UNWRITTEN = "Write the element first; a GEMM with beta = 0 must not read C."


# --- which arrays an access may touch ----------------------------------------------------------------------------------


def _addresses(operand) -> Iterable[int]:
    """Fixed device addresses in an operand: those of module variables."""
    match operand:
        case Immediate(int(value)) if value >= DEVICE_BASE:
            yield value
        case Address(base, _, _):
            yield from _addresses(base)
        case Vector(items):
            for item in items:
                yield from _addresses(item)


@functools.lru_cache(maxsize=32)
def arrays_of(program: Program) -> dict[int, frozenset[int]]:
    """{number of a site in device memory: what its address is made of}.

    That is a set of offsets of parameters, fixed device addresses, and ANY. 32-bit values that come from memory are
    taken for indices, not for parts of pointers.
    """
    entry = {at for _, at in program.parameters}
    origin: dict[int, frozenset[int]] = {}  # of a register's value
    nothing = frozenset()
    steps = []
    for op in program.ops:
        targets = [register for register in op.writes if program.types[register] != "pred"]
        if not targets:
            continue
        fixed, sources = set(), ()
        if op.effect in (Effect.LOAD, Effect.ATOMIC):
            if TYPE_BYTES.get(op.opcode.rsplit(".", 1)[-1], 8) >= 8:
                fixed = {_parameter(site, entry) for site in op.sites}
        else:
            sources = op.reads
            for operand in op.instruction.operands[1:]:
                fixed.update(_addresses(operand))
        steps.append((targets, frozenset(fixed), sources))
    changed = True
    while changed:
        changed = False
        for targets, fixed, sources in steps:
            new = fixed.union(*(origin.get(register, nothing) for register in sources))
            for register in targets:
                old = origin.get(register, nothing)
                if not new <= old:
                    origin[register], changed = old | new, True
    return {
        site.index: frozenset({ANY} if site.address is None else _addresses(site.address)) | origin.get(site.base, nothing)
        for site in program.sites
        if site.generic or site.space == "global"
    }


def _parameter(site: Site, entry: set[int]) -> int:
    """What a load gets: the parameter of the kernel that it reads, or ANY."""
    if site.space == "param" and site.address is not None and isinstance(site.address.base, Immediate):
        at = site.address.base.value + site.address.offset
        return at if at in entry else ANY
    return ANY


# --- the shadow --------------------------------------------------------------------------------------------------------


class DeviceShadow:
    """Who touched each granule of the arrays that a launch writes, and when.

    memory: the DeviceMemory. unwritten: names of arguments whose contents count as never written. A stamp is twice the
    number of an access, plus 1 if it was atomic (atomic accesses do not race with each other). Threads are their number in
    the grid + 1.
    """

    def __init__(self, program, memory, param_words: dict[int, int], grid, block, unwritten=frozenset()):
        self.program, self.memory = program, memory
        self.threads = block[0] * block[1] * block[2]
        self.blocks = grid[0] * grid[1] * grid[2]
        self.fenced = any(op.orders for op in program.ops)  # does the kernel order its accesses for other blocks at all?
        self.warp_syncs = bool({"bar.warp", "barrier.warp"} & program.uses)
        self.marked = [
            (argument.base, argument.base + argument.array.nbytes)
            for argument in memory.arguments
            if argument.name in unwritten and argument.array.nbytes
        ]
        spans = self._spans(param_words)
        self.starts = np.array([start for start, _ in spans], np.int64)
        self.ends = np.array([end for _, end in spans], np.int64)
        self.watches = [bool(spans) and self._may_touch(site) for site in program.sites]
        widths = [site.width for site, watched in zip(program.sites, self.watches, strict=True) if watched]
        self.granule = min([4, *(width & -width for width in widths)])
        first, self.first = 0, []
        for start, end in spans:
            self.first.append(first - start // self.granule)
            first += -(-(end - start) // self.granule) + 1
        self.first = np.array(self.first, np.int64)
        self.count = first
        self.sites = array("i", [0])  # of each access, by its number
        self.checks = np.array([site.checks for site in program.sites], bool)
        self.state: dict[str, np.ndarray] = {}
        self.known: np.ndarray | None = None
        self.barrier_at = np.zeros(0, np.int32)

    def _spans(self, param_words) -> list[tuple[int, int]]:
        """The arrays to watch, as ranges of offsets; arrays that overlap are one."""
        memory = self.memory
        self.origins = arrays_of(self.program)
        self.param_words = param_words
        chosen: set[int] = set()
        for site in self.program.sites:
            if site.op.changes and site.index in self.origins:
                chosen |= self._places(site)
        chosen |= {self._span_of(start) for start, _ in self.marked}
        return [(int(memory.starts[i]), int(memory.ends[i])) for i in sorted(chosen)]

    def _span_of(self, offset: int) -> int | None:
        i = int(np.searchsorted(self.memory.starts, offset, side="right")) - 1
        return i if i >= 0 and offset < self.memory.ends[i] else None

    def _places(self, site) -> set[int]:
        """Indices of the allocated ranges that an access may touch."""
        found = set()
        for origin in self.origins[site.index]:
            address = origin
            if 0 <= origin < DEVICE_BASE:
                words = [self.param_words.get(origin // 4 + i, 0) for i in (0, 1)]
                address = words[0] | words[1] << 32
            if origin != ANY:
                found.add(self._span_of(address - DEVICE_BASE))
        found.discard(None)
        return found or set(range(len(self.memory.starts)))

    def _may_touch(self, site) -> bool:
        if site.index not in self.origins:
            return False
        watched = set(self.starts.tolist())
        return any(int(self.memory.starts[i]) in watched for i in self._places(site))

    @property
    def needed(self) -> bool:
        """Is there anything to watch?"""
        return any(self.watches) and self.blocks * self.threads <= MOST_THREADS

    @property
    def reach(self) -> int:
        """Granules from the beginning of the first array that is watched to the end of the last."""
        return int(self.ends[-1] - self.starts[0]) // self.granule + 1

    def meet(self, owners: list[np.ndarray]) -> bool:
        """Do threads of several workers meet? owners: each worker's words (see `native/owners.py`), `reach` of them."""
        for start, end in zip(self.starts, self.ends, strict=True):
            first, last = (int(place - self.starts[0]) // self.granule for place in (start, end))
            union = owners[0][first:last]
            for words in (words[first:last] for words in owners[1:]):
                if ((union != 0) & (words != 0) & ((union | words) & 1 == 1)).any():
                    return True
                union = union | words
        return False

    # ------------------------------------------------------------------------------------------------------ state

    def _array(self, name: str) -> np.ndarray:
        found = self.state.get(name)
        if found is None:
            found = self.state[name] = np.zeros(self.count, np.int32)
        return found

    def _begin(self, site, strong: bool) -> int:
        """A new access; its stamp."""
        self.sites.append(site.index)
        return 2 * (len(self.sites) - 1) + strong

    @property
    def now(self) -> int:
        """Stamps up to here belong to accesses that have been executed."""
        return 2 * len(self.sites) - 1

    def _cells(self, m, offsets, mask, width: int):
        """(granules, threads, function that picks the same elements out of an array of lanes)."""
        offsets = np.broadcast_to(offsets, m.shape)
        chosen = None if mask is None else np.broadcast_to(mask, m.shape)
        where = np.searchsorted(self.starts, offsets, side="right") - 1
        inside = (where >= 0) & (offsets < self.ends[where])
        chosen = inside if chosen is None else inside & chosen
        span = max(1, width // self.granule)
        cells = (offsets // self.granule + self.first[where])[chosen]
        who = np.broadcast_to(m.thread_numbers, m.shape)[chosen]

        def pick(values):
            values = np.broadcast_to(values, m.shape)[chosen]
            return np.repeat(values, span) if span > 1 else values

        if span > 1:
            cells = (cells[:, None] + np.arange(span)).reshape(-1)
            who = np.repeat(who, span)
        return cells, who, pick

    # --------------------------------------------------------------------------------------------------- ordering

    def barrier(self, m, rows=None) -> None:
        """What the threads of these blocks (boolean per row, None: all) have done is ordered before what they do next."""
        if len(self.sites) > 1:
            self._since("barrier")[m.block_numbers if rows is None else m.block_numbers[rows]] = self.now

    def acquire(self, m) -> None:
        """The active threads' blocks see what others have released."""
        if self.fenced and len(self.sites) > 1:
            rows = slice(None) if m.mask is None else m.rows_of(m.mask).any(axis=1)
            for name in ("barrier", "acquire"):
                self._since(name)[m.block_numbers[rows]] = self.now

    def join(self, m, rows=None) -> None:
        """A barrier of several blocks, such as a cluster: what all of them have done is ordered."""
        if len(self.sites) > 1:
            for name in ("barrier", "acquire"):
                self._since(name)[m.block_numbers if rows is None else m.block_numbers[rows]] = self.now

    def warp_sync(self, m) -> None:
        """A __syncwarp() orders threads of one warp; which warp is not told apart."""
        if len(self.sites) > 1:
            rows = slice(None) if m.mask is None else m.rows_of(m.mask).any(axis=1)
            self._since("warp")[m.block_numbers[rows]] = self.now

    def _since(self, name: str) -> np.ndarray:
        found = self.state.get(f"since_{name}")
        if found is None:
            found = self.state[f"since_{name}"] = np.zeros(self.blocks, np.int32)
        return found

    def _unordered(self, who, last, stamp) -> np.ndarray:
        """Where the earlier access by `last` at `stamp` is not ordered before what `who` does now."""
        conflict = (last != 0) & (last != who)
        if not conflict.any():
            return conflict
        mine, theirs = (who - 1) // self.threads, (last - 1) // self.threads
        same = mine == theirs
        conflict &= stamp > np.where(same, self._since("barrier")[mine], self._since("acquire")[mine])
        if self.warp_syncs:
            warps = ((who - 1) % self.threads // 32) == ((last - 1) % self.threads // 32)
            conflict &= ~(same & warps & (stamp <= self._since("warp")[mine]))
        return conflict

    # --------------------------------------------------------------------------------------------------- accesses

    def load(self, m, site, offsets, mask, width: int) -> None:
        """Check a read."""
        cells, who, _ = self._cells(m, offsets, mask, width)
        if not cells.size:
            return
        if self.marked:
            self._written_before(m, site, cells, who)
        strong = site.strong or site.volatile
        stamp = self._begin(site, strong)
        writer, written_at = self._array("writer").take(cells), self._array("written_at").take(cells)
        conflict = self._unordered(who, writer, written_at)
        if strong:
            # A flag may be written plainly, with a fence, and read again and again: that is left to its author.
            conflict &= (written_at & 1 == 0) & (not self.fenced)
        elif conflict.any():
            # A plain look before an atomic operation that looks again, as in a compare-and-swap loop.
            conflict[conflict] = ~self.checks[np.frombuffer(self.sites, np.int32)[written_at[conflict] >> 1]]
        if conflict.any():
            self._race(m, site, cells, who, writer, written_at, conflict, "reads", "writes")
        reader, read_at = self._array("reader"), self._array("read_at")
        before = reader.take(cells)
        other = (before != 0) & (before != who)
        if other.any():
            self._array("reader2")[cells[other]] = before[other]
            self._array("read2_at")[cells[other]] = read_at.take(cells[other])
        reader[cells], read_at[cells] = who, stamp
        lost = reader.take(cells) != who
        if lost.any():
            self._array("reader2")[cells[lost]], self._array("read2_at")[cells[lost]] = who[lost], stamp

    def store(self, m, site, offsets, mask, width: int, changes, differ) -> None:
        """Check a write. changes: function giving, per lane, whether it changes what the memory held; differ: function
        giving, per lane, whether another lane of the same store has put something else there."""
        cells, who, pick = self._cells(m, offsets, mask, width)
        if not cells.size:
            return
        strong = site.strong or (site.volatile and not self._exchanges(m, cells, who))
        stamp = self._begin(site, strong)
        self._write(m, site, cells, who, stamp, strong, "writes", lambda: pick(changes()))
        writer = self._array("writer")
        lost = writer.take(cells) != who
        if lost.any() and not strong:
            lost &= pick(differ())
            if lost.any():
                self._race(m, site, cells, who, writer.take(cells), np.full(len(cells), stamp), lost, "writes", "writes")

    def atomic(self, m, site, offsets, mask, width: int) -> None:
        """Check an atomic operation."""
        cells, who, _ = self._cells(m, offsets, mask, width)
        if not cells.size:
            return
        if self.marked:
            self._written_before(m, site, cells, who)
        self._write(m, site, cells, who, self._begin(site, True), True, "updates", None)

    def _exchanges(self, m, cells, who) -> bool:
        """Does a volatile store move data, not a flag: to several places of one block, in a kernel without fences?"""
        return not self.fenced and len(np.unique(cells)) > len(np.unique((who - 1) // self.threads))

    def _write(self, m, site, cells, who, stamp, strong, verb, changes) -> None:
        writer, written_at = self._array("writer"), self._array("written_at")
        for name, at, other_verb in (("writer", "written_at", "writes"), ("reader", "read_at", "reads"), ("reader2", "read2_at", "reads")):
            if name not in self.state or (site.checks and name != "writer"):
                continue
            last, when = self.state[name].take(cells), self.state[at].take(cells)
            conflict = self._unordered(who, last, when)
            if strong:
                conflict &= when & 1 == 0
            if changes is not None and conflict.any():
                conflict &= changes()  # who writes what is there already changes nothing, in whatever order
            if conflict.any():
                self._race(m, site, cells, who, last, when, conflict, verb, other_verb)
                break
        writer[cells], written_at[cells] = who, stamp
        if self.known is not None:
            self.known[cells] = True

    def _written_before(self, m, site, cells, who) -> None:
        """Report reads of what neither the host nor the kernel has written."""
        if self.known is None:
            self.known = np.ones(self.count, bool)
            for start, end in self.marked:
                first = start // self.granule + self.first[np.searchsorted(self.starts, start, side="right") - 1]
                self.known[first : first + -(-(end - start) // self.granule)] = False
            self.known |= self._array("writer") != 0
        bad = ~self.known.take(cells)
        if not bad.any():
            return
        i = int(np.flatnonzero(bad)[0])
        block, thread = self._who(m, who[i])
        m.findings.add(
            "uninitialized",
            site.line,
            f"A thread reads {self._element(cells[i])}, which nobody has written.",
            block=block,
            thread=thread,
            advice=UNWRITTEN,
            count=int(np.count_nonzero(bad)),
        )

    # ---------------------------------------------------------------------------------------------------- reports

    def _who(self, m, number: int):
        number = int(number) - 1
        gx, gy, _ = m.grid
        block = number // self.threads
        return (block % gx, block // gx % gy, block // (gx * gy)), m.thread_position(number % self.threads)

    def _element(self, cell: int) -> str:
        """'C[3, 4]', or what else lies at a granule."""
        i = int(np.searchsorted(self.first + self.starts // self.granule, cell, side="right")) - 1
        address = DEVICE_BASE + (int(cell) - int(self.first[i])) * self.granule
        for allocation in self.memory.allocations:
            index = (address - allocation.base) // allocation.itemsize
            if allocation.base <= address < allocation.base + allocation.nbytes:
                place = np.unravel_index(index, allocation.shape) if allocation.shape else (index,)
                return f"{allocation.name}[{', '.join(str(int(p)) for p in place)}]"
        return f"device memory at {address:#x}"

    def _race(self, m, site, cells, who, last, stamps, conflict, verb, other_verb) -> None:
        i = int(np.flatnonzero(conflict)[0])
        block, thread = self._who(m, who[i])
        other_block, other_thread = self._who(m, last[i])
        other = self.program.sites[self.sites[int(stamps[i]) >> 1]]
        rival = f"thread {other_thread}" + (f" of block {other_block}" if other_block != block else "")
        where = "the same line" if other.line == site.line else f"line {other.line}"
        m.findings.add(
            "race",
            site.line,
            f"Thread {thread} of block {block} {verb} {self._element(cells[i])}, which {rival} {other_verb} at {where}, "
            "and nothing says who comes first.",
            other_line=other.line,
            block=block,
            thread=thread,
            advice=ADVICE,
            count=int(np.count_nonzero(conflict)),
        )
