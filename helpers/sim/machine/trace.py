"""What happened, access by access: recorded only for the lines, blocks and warps somebody asked for."""

from __future__ import annotations

import numbers
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from helpers.arguments import is_whole
from helpers.errors import CourseError, LaunchError
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import AccessKind, ChargedSite, CostRule

ACCESS = np.dtype([("site", "i4"), ("block", "i4"), ("warp", "i4"), ("iteration", "i4"), ("order", "i8")])
BARRIER = np.dtype([("block", "i4"), ("warp", "i4"), ("line", "i4"), ("order", "i8"), ("kind", "U12")])
MATH = np.dtype([("block", "i4"), ("warp", "i4"), ("line", "i4"), ("order", "i8"), ("opclass", "U8")])
STEP = np.dtype([("block", "i4"), ("warp", "i4"), ("order", "i8"), ("code", "i4"), ("active", "u4")])
WRITE = np.dtype([("step", "i4"), ("register", "i4")])

MOST_ROWS = 4_000_000


@dataclass(frozen=True)
class TraceFilter:
    """What to record; None means all.

    lines: source lines. blocks: linear block indices. warps: warp indices within their block. iterations: how many times
    that warp had executed that instruction before. spaces: 'global', 'shared', 'local'. limit: most rows recorded.
    math: also record arithmetic (timelines). registers: also record every instruction and what it writes to registers; choose
    a block or less, for it makes a run slow and large. as_written: places and widths of accesses as the PTX has them, not as the
    machine code does, for which it would have to be disassembled.
    """

    lines: Container[int] | None = None
    blocks: Container[int] | None = None
    warps: Container[int] | None = None
    iterations: Container[int] | None = None
    spaces: Container[str] | None = None
    limit: int = 200_000
    registers: bool = False
    math: bool = False
    as_written: bool = False

    def __post_init__(self):
        for name in ("lines", "blocks", "warps", "iterations", "spaces"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, (str, bytes)) or not isinstance(value, Container)):
                example = "{'shared'}" if name == "spaces" else "{0, 1}"
                raise LaunchError(f"TraceFilter({name}={value!r}): name what to record as a set, such as {name}={example}.")
            if name != "spaces" and isinstance(value, Iterable) and not isinstance(value, range):
                least = 1 if name == "lines" else 0
                for item in value:
                    if not is_whole(item) or item < least:
                        raise LaunchError(
                            f"TraceFilter({name}={value!r}): {name} are numbered from {least} on, and {item!r} is none of them."
                        )
        if not isinstance(self.limit, numbers.Integral) or self.limit < 0:
            raise LaunchError(f"TraceFilter(limit={self.limit!r}): it is a whole number of rows.")
        if self.limit > MOST_ROWS:
            raise LaunchError(
                f"TraceFilter(limit={self.limit}): a row takes some 300 bytes, and more than {MOST_ROWS} are not kept. "
                "Record some of the blocks, warps or lines."
            )


@dataclass(frozen=True)
class TracedSite:
    """A memory instruction as ptxas made it. width: bytes per lane; 0 if ptxas merged it into another or removed it.

    rule: what decides its cost. matrices: how many 8 x 8 matrices it moves, for ldmatrix and its like. shift: where its recorded
    addresses begin, relative to those that the PTX instruction names. estimate: why it is shown as the PTX has it, '' where
    it is what ptxas made. call: of inline assembly in a function of the cell, the line that calls it. calls: of what stands
    in a function of the cell, the lines that call it, outwards.
    """

    pc: int
    line: int | None
    space: str
    op: AccessKind
    width: int
    opcode: str
    sass: str
    ptx_line: int
    rule: CostRule
    matrices: int = 0
    shift: int = 0
    estimate: str = ""
    call: int | None = None
    calls: tuple[int, ...] = ()

    @staticmethod
    def of(charged: ChargedSite, space: str) -> TracedSite:
        """The trace's words for a site of the program. space: where its addresses lay."""
        site, made = charged.site, charged.made
        width = 16 if site.op is AccessKind.LOAD and made is AccessKind.MATRIX_LOAD else charged.width  # a row of a matrix
        facts = charged.rule_in(space), site.matrices, charged.shift, charged.estimate, site.call, site.calls
        return TracedSite(site.pc, site.line, space, made, width, site.opcode, charged.sass, site.ptx_line, *facts)


@dataclass(frozen=True)
class Allocation:
    """Something that has addresses: a parameter's array, a module variable, or a shared variable."""

    name: str
    space: str
    base: int
    nbytes: int
    shape: tuple[int, ...]
    itemsize: int
    dtype: str


@dataclass(frozen=True, eq=False)
class Move:
    """What an engine beside the threads does with a block's shared memory, and who waits for it. block, warp: of a copy, the warp that
    started it; of a warpgroup's product, its first warp.

    kind: "copy", a bulk copy to shared memory begins (number: its mbarrier's place; places: [rows, pieces of 16 bytes]); "store", one of a
    box from there begins (places as before); "init", an mbarrier is made (number: its place); "wait", its phase that was waited for is over
    (number as before); "A" or "B", a product begins to read a matrix (places: [lines, k], each element); "commit", its group of products is
    closed; "awaited", all but the last `number` groups are done. Places are bytes from the beginning of the block's shared memory.
    """

    block: int
    warp: int
    line: int
    order: int
    kind: str
    number: int
    places: np.ndarray | None


@dataclass(frozen=True, eq=False)
class CopiedOut:
    """What bulk copies of one instruction write to device memory, or combine with what is there. site: the instruction, as in
    `Trace.accesses`; places: [copies, units], addresses of `width` bytes each, -1 for a unit that is left out."""

    site: int
    order: int
    width: int
    places: np.ndarray


@dataclass(frozen=True)
class CodeLine:
    """One PTX instruction of the program, with its source line and its 1-based line in the PTX."""

    text: str
    line: int | None
    ptx_line: int


@dataclass(frozen=True, eq=False)
class Trace:
    """Recorded events. `addresses` is [n, 32] int64 beside `accesses`; -1 marks a lane that took no part.

    `barriers` are what a warp passed: kind "sync" a barrier of the block, "warp" one of the warp; "commit" closes a group of
    copies, "wait 1" waits until one group at most is under way, "wait all" for every copy, "wait" for an mbarrier's phase, and
    "copy" starts a bulk copy. `moves`: what bulk copies write to shared memory and warpgroups' products read there, in order.
    `copied_out`: what bulk copies write to device memory, which is no access of the threads, and in no row of `accesses`.
    With `TraceFilter(registers=True)`: `steps` are the executed instructions (code: index into `code`; active: bit per lane)
    and `writes` the registers they set, in order (step: index into `steps`; register: index into `registers`), with the
    32 lanes' bits in the same row of `values`.
    """

    accesses: np.ndarray
    addresses: np.ndarray
    sites: list[TracedSite]
    barriers: np.ndarray
    math: np.ndarray
    allocations: list[Allocation]
    truncated: bool
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    steps: np.ndarray = field(default_factory=lambda: np.empty(0, STEP))
    writes: np.ndarray = field(default_factory=lambda: np.empty(0, WRITE))
    values: np.ndarray = field(default_factory=lambda: np.empty((0, WARP), np.uint64))
    code: tuple[CodeLine, ...] = ()
    registers: tuple[tuple[str, str], ...] = ()
    filter: TraceFilter = TraceFilter()
    moves: tuple[Move, ...] = ()
    copied_out: tuple[CopiedOut, ...] = ()

    def select(self, line=None, op=None, space=None, block=None, warp=None, iteration=None) -> Trace:
        """The events that match every given condition (a value, or a set or range of values). Raises CourseError for what is neither."""
        line, block, warp, iteration = (list(asked) if isinstance(asked, Iterator) else asked for asked in (line, block, warp, iteration))
        keep = np.ones(len(self.accesses), bool)
        for wanted, name in ((line, "line"), (op, "op"), (space, "space")):
            if wanted is not None:
                fits = np.array([_fits(name, getattr(site, name), wanted) for site in self.sites], bool)
                keep &= fits[self.accesses["site"]] if len(fits) else False
        for wanted, name in ((block, "block"), (warp, "warp"), (iteration, "iteration")):
            if wanted is not None:
                keep &= _matches(name, self.accesses[name], wanted)
        others = []
        for events in (self.barriers, self.math):
            kept = np.ones(len(events), bool)
            for wanted, name in ((line, "line"), (block, "block"), (warp, "warp")):
                if wanted is not None:
                    kept &= _matches(name, events[name], wanted)
            others.append(events[kept])
        return replace(self, accesses=self.accesses[keep], addresses=self.addresses[keep], barriers=others[0], math=others[1])


def _fits(name: str, value, wanted) -> bool:
    text = isinstance(wanted, str)
    if (text and name != "line") or isinstance(wanted, (int, np.integer)):
        return value == wanted
    if text or not isinstance(wanted, Container):
        raise CourseError(f"select({name}={wanted!r}): give a value, such as {_EXAMPLES[name]}, or a set of them.")
    return value in wanted


def _matches(name: str, values: np.ndarray, wanted) -> np.ndarray:
    if isinstance(wanted, (int, np.integer)):
        return values == wanted
    if isinstance(wanted, (str, bytes)) or not isinstance(wanted, Iterable):
        raise CourseError(f"select({name}={wanted!r}): give a whole number, or a set or range of them.")
    every = list(wanted)
    if not all(isinstance(item, numbers.Integral) for item in every):
        raise CourseError(f"select({name}={wanted!r}): these are no whole numbers.")
    return np.isin(values, np.array(every, np.int64))


_EXAMPLES = {"line": "line=12", "op": "op='ld'", "space": "space='shared'"}


@dataclass
class Recorder:
    """Collects events of all chunks of a launch. charged: how each of the program's sites is charged. spaces: where those whose
    addresses are generic went last, by index."""

    filter: TraceFilter
    charged: tuple[ChargedSite, ...]
    spaces: dict[int, str] = field(default_factory=dict)
    accesses: list[np.ndarray] = field(default_factory=list)
    addresses: list[np.ndarray] = field(default_factory=list)
    barriers: list[np.ndarray] = field(default_factory=list)
    math: list[np.ndarray] = field(default_factory=list)
    rows: int = 0
    steps: list[np.ndarray] = field(default_factory=list)
    writes: list[np.ndarray] = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)
    events: int = 0
    stepped: int = 0
    moves: list[Move] = field(default_factory=list)
    copied_out: list[CopiedOut] = field(default_factory=list)
    units: int = 0  # of these
    truncated: bool = False

    @property
    def stepping(self) -> bool:
        """Whether instructions have to be run one by one."""
        return self.filter.math or self.filter.registers

    def wants(self, line, space) -> bool:
        f = self.filter
        return not self.truncated and (f.lines is None or line in f.lines) and (f.spaces is None or space in f.spaces)

    def access(self, m, site, space: str, addresses) -> None:
        """Record one executed access of a chunk. addresses: int64 in `space`, broadcast to the lanes."""
        order = m.next_order()
        iterations = m.iterations(site)
        if site.generic:
            self.spaces[site.index] = space
        if not self.wants(site.line, space):
            return
        shift = self.charged[site.index].shift
        rows = m.warps(addresses + shift if shift else addresses, -1)
        active = m.warps_active()
        chosen = active.any(axis=2) & m.traced_blocks(self.filter)[:, None] & m.traced_warps(self.filter)[None, :]
        if self.filter.iterations is not None:
            f = self.filter.iterations
            known = np.unique(iterations[chosen])
            fits = np.array([value for value in known.tolist() if value in f], iterations.dtype)
            chosen &= np.isin(iterations, fits)
        count = int(np.count_nonzero(chosen))
        if not count:
            return
        if self.rows + count > self.filter.limit:
            self.truncated = True
            return
        blocks, warps = np.nonzero(chosen)
        events = np.empty(count, ACCESS)
        events["site"] = site.index
        events["block"], events["warp"] = m.block_numbers[blocks], warps
        events["iteration"] = iterations[blocks, warps]
        events["order"] = order
        self.accesses.append(events)
        self.addresses.append(np.where(active, rows, -1)[chosen])
        self.rows += count

    def barrier(self, m, line, kind: str) -> None:
        """Record that the active warps passed a barrier."""
        self._event(m, line, kind, BARRIER, "kind", self.barriers)

    def move(self, m, line, kind: str, row: int, warp: int, number: int = 0, places: np.ndarray | None = None) -> None:
        """Record a `Move` in a block, given by its row in the chunk."""
        order = m.next_order()
        f = self.filter
        if self.truncated or (f.spaces is not None and "shared" not in f.spaces):
            return
        if not (m.traced_blocks(f)[row] and m.traced_warps(f)[warp]):
            return
        if len(self.moves) >= f.limit:
            self.truncated = True
            return
        self.moves.append(Move(int(m.block_numbers[row]), int(warp), line or 0, order, kind, int(number), places))

    def copy_out(self, m, site, lanes, places, inside, width: int) -> None:
        """Record what bulk copies of the lanes write to device memory: addresses [n, units], and which of them count (None: all)."""
        order = m.next_order()
        if not self.wants(site.line, "global"):
            return
        f, (rows, threads) = self.filter, np.divmod(lanes, m.threads)
        chosen = m.traced_blocks(f)[rows] & m.traced_warps(f)[threads // WARP]
        self.units += places[chosen].size
        if self.units > f.limit * WARP:
            self.truncated = True
        elif chosen.any():
            kept = places if inside is None else np.where(inside, places, -1)
            self.copied_out.append(CopiedOut(site.index, order, width, kept[chosen]))

    def instruction(self, m, op) -> None:
        """Record that the active warps executed an instruction, as far as it was asked for."""
        if self.filter.math and op.opclass:
            self._event(m, op.line, op.opclass, MATH, "opclass", self.math)
        if self.filter.registers:
            self._step(m, op)

    def _step(self, m, op) -> None:
        order = m.next_order()
        f = self.filter
        if self.truncated or (f.lines is not None and op.line not in f.lines):
            return
        active = m.warps_active()
        chosen = active.any(axis=2) & m.traced_blocks(f)[:, None] & m.traced_warps(f)[None, :]
        blocks, warps = np.nonzero(chosen)
        count = len(blocks)
        if self.stepped + count > f.limit:
            self.truncated = True
            return
        if not count:
            return
        steps = np.empty(count, STEP)
        steps["block"], steps["warp"], steps["order"], steps["code"] = m.block_numbers[blocks], warps, order, op.position
        steps["active"] = active[chosen] @ (1 << np.arange(WARP, dtype=np.uint64))
        self.steps.append(steps)
        for register in () if op.ends_block else op.writes:  # what a barrier gives is not there yet
            writes = np.empty(count, WRITE)
            writes["step"], writes["register"] = np.arange(self.stepped, self.stepped + count), register
            self.writes.append(writes)
            self.values.append(_bits(m.warps(m.regs[register], 0)[chosen]))
        self.stepped += count

    def _event(self, m, line, text, dtype, name, into) -> None:
        order = m.next_order()
        f = self.filter
        if self.truncated or (f.lines is not None and dtype is MATH and line not in f.lines):
            return
        chosen = m.warps_active().any(axis=2) & m.traced_blocks(f)[:, None] & m.traced_warps(f)[None, :]
        blocks, warps = np.nonzero(chosen)
        if self.events + len(blocks) > f.limit:
            self.truncated = True
            return
        events = np.empty(len(blocks), dtype)
        events["block"], events["warp"], events["line"] = m.block_numbers[blocks], warps, line or 0
        events["order"], events[name] = order, text
        into.append(events)
        self.events += len(blocks)

    def trace(self, allocations, grid, block, program) -> Trace:
        """The finished trace, each block's events in order."""

        def join(parts, empty):
            return np.concatenate(parts) if parts else empty

        accesses = join(self.accesses, np.empty(0, ACCESS))
        addresses = join(self.addresses, np.empty((0, WARP), np.int64))
        order = np.lexsort((accesses["warp"], accesses["order"], accesses["block"]))
        shown = [TracedSite.of(charged, self.spaces.get(charged.site.index, charged.site.space)) for charged in self.charged]
        return Trace(
            accesses[order], addresses[order], shown, join(self.barriers, np.empty(0, BARRIER)), join(self.math, np.empty(0, MATH)),
            allocations, self.truncated, grid, block, **self._stepped(program), filter=self.filter,
            moves=tuple(sorted(self.moves, key=lambda move: (move.block, move.order))), copied_out=tuple(self.copied_out),
        )  # fmt: skip

    def _stepped(self, program) -> dict:
        if not self.steps:
            return {}
        return {
            "steps": np.concatenate(self.steps),
            "writes": np.concatenate(self.writes) if self.writes else np.empty(0, WRITE),
            "values": np.concatenate(self.values) if self.values else np.empty((0, WARP), np.uint64),
            "code": tuple(CodeLine(item.text, item.line, item.ptx_line) for item in program.ops),
            "registers": tuple((program.names.get(i, ""), kind) for i, kind in enumerate(program.types)),
        }


def _bits(values: np.ndarray) -> np.ndarray:
    """Values of any type as the bits of a 64-bit register."""
    size = values.dtype.itemsize
    return np.ascontiguousarray(values).view(f"u{size}").astype(np.uint64) if size <= 8 else np.zeros(values.shape, np.uint64)
