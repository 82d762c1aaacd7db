"""Hopper's warpgroup products (wgmma): four warps multiply matrices that lie in shared memory, while they run on.

**Matrices in shared memory** are named by a 64-bit descriptor: `Descriptor` and `places` say which byte holds which
element. They are made of *core matrices*, 8 lines of 16 bytes, a line being a row of A or a column of B where K is the
direction of neighbours in memory ("K-major"), and a piece of a column of A or of a row of B otherwise ("MN-major").

**Asynchrony.** A product reads shared memory and gives its result at once here, and is *in flight* until its warps wait
for the group that it was committed to (`Warpgroups`). What PTX forbids in between is noted, whatever the numbers say:
- an instruction uses accumulators of a product in flight: missing-wait. Copies (mov) of such registers are followed, not
  noted, because the compiler makes them; other products of the same shape may go on with the accumulators;
- an instruction changes accumulators or A registers of a product in flight, or a store or copy its matrices: race;
- accumulators or A registers were changed after the warp's last wgmma.fence, or there was none: missing-fence. Copies and
  constants do not count, because the compiler puts them where it likes;
- shared memory was written by ordinary stores with no fence.proxy.async between: missing-fence (`proxies`).

How exact: as the other products of `matrix`, with the same bounds.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np

from helpers.sim.checks.cluster_races import READ
from helpers.sim.code.program import Effect
from helpers.sim.code.ptx import Vector
from helpers.sim.code.sites import AccessKind
from helpers.sim.layouts.register_fragments import BITS, WARP, Shape, fragment
from helpers.sim.layouts.swizzle import SPAN, swizzle

from .base import finisher, instruction
from .mma import Operand, numbers_of, sparse_rows

U32, U64, I64 = np.dtype(np.uint32), np.dtype(np.uint64), np.dtype(np.int64)
WARPS = 4  # of a warpgroup
GROUP = WARPS * WARP  # its threads
ROWS = 64  # of A and D
CORE = 16  # bytes of a core matrix's line
NOBODY = np.zeros((), bool)
FENCE_ADVICE = 'Put asm volatile("wgmma.fence.sync.aligned;") before the first wgmma of every batch, after its registers are set.'
MODES = (None, "128B", "64B", "32B")  # the swizzle by the descriptor's last two bits


# --- matrices in shared memory ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Descriptor:
    """A matrix descriptor. start, leading, stride: bytes. base: rows of 128 bytes by which the swizzle's pattern is off."""

    start: int
    leading: int
    stride: int
    base: int
    mode: str | None

    @classmethod
    def decode(cls, bits: int) -> Descriptor:
        """The fields of 64 bits, as the PTX ISA lays them out: addresses and offsets lack their last four bits."""
        start, leading, stride = ((bits >> position & 0x3FFF) << 4 for position in (0, 16, 32))
        return cls(start, leading, stride, bits >> 49 & 7, MODES[bits >> 62 & 3])

    def encode(self) -> int:
        """The 64 bits."""
        fields = self.start >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32
        return fields | self.base << 49 | MODES.index(self.mode) << 62


@functools.lru_cache(maxsize=512)
def places(descriptor: Descriptor, lines: int, width: int, size: int = 1, turned: bool = False) -> np.ndarray:
    """[lines, width]: the byte offset in shared memory of every element, `size` bytes each, of a matrix.

    lines: along M or N. width: elements along K. turned: MN-major instead of K-major.

    K-major: lines are as far apart as the swizzle's span (16 bytes without), blocks of 8 lines `stride`; the second 16
    bytes along K follow the first, or without swizzle lie `leading` behind. MN-major: the span runs along M or N, the next
    one lies `leading` behind, K counts like lines, and blocks of 8 of it are `stride` apart; without swizzle, leading and
    stride change places.
    """
    line, k = np.arange(lines)[:, None], np.arange(width)[None]
    across, along = (k, line * size) if turned else (line, k * size)  # `along` runs through memory
    span = SPAN[descriptor.mode] if descriptor.mode else CORE
    next_span, next_block = descriptor.leading, descriptor.stride
    if turned and descriptor.mode is None:
        next_span, next_block = next_block, next_span
    if not turned and descriptor.mode is not None:
        span_of_k, next_span = CORE, CORE  # within the span, from wherever the start address points
    else:
        span_of_k = span
    at = descriptor.start + along % span_of_k + along // span_of_k * next_span + across % 8 * span + across // 8 * next_block
    shift = descriptor.base << 7
    return swizzle(at - shift, descriptor.mode) + shift


@functools.lru_cache(maxsize=512)
def _granules(descriptor: Descriptor, lines: int, width: int, size: int, turned: bool, granule: int, limit: int) -> np.ndarray:
    """The granules of shared memory (below byte `limit`) that a matrix occupies."""
    at = places(descriptor, lines, width, size, turned)
    return np.unique(at[at < limit] // granule)


@dataclass(frozen=True)
class Stored:
    """An operand in shared memory: the register of its descriptor, what its elements are, and how many."""

    register: int
    name: str
    kind: str
    lines: int
    width: int
    turned: bool

    @property
    def size(self) -> int:
        """Bytes of what is gathered at a time: an element, or a byte of bits."""
        return max(1, BITS[self.kind] // 8)

    def descriptors(self, m, op, active: np.ndarray) -> np.ndarray:
        """[warpgroups]: the descriptor of each active warpgroup; all its threads must hold the same."""
        bits = m.regs[self.register].view(U64)
        if bits.size == 1:
            return np.full(np.count_nonzero(active), bits.item(), U64)
        every = by_group(m, m.warps(bits, 0))[active]
        if (every != every[:, :1]).any():
            m.fail(f"the descriptor of {self.name} differs between threads of a warpgroup, which all have to give the same one.", op.line)
        return every[:, 0]

    def collect(self, m, op, site, active: np.ndarray, reads: list) -> np.ndarray:
        """[warpgroups, lines, width], float64: the matrix of every active warpgroup; notes what was read in `reads`."""
        given = self.descriptors(m, op, active)
        count = active.shape[1]
        flat = np.flatnonzero(active)
        blocks, groups = flat // count, flat % count
        width = self.width if BITS[self.kind] >= 8 else self.width * BITS[self.kind] // 8
        out = None
        for bits in np.unique(given):
            descriptor = Descriptor.decode(int(bits))
            at = places(descriptor, self.lines, width, self.size, self.turned)
            limit = m.shared.size
            if int(at.max()) + self.size > limit:
                self._outside(m, op, descriptor, int(at.max()), int(blocks[0]), int(groups[0]))
                at = np.where(at + self.size <= limit, at, 0)
            mine = given == bits
            memory, index = m.shared.bytes.reshape(m.blocks, -1).view(np.dtype(f"u{self.size}")), at // self.size
            rows, inverse = np.unique(blocks[mine], return_inverse=True)
            raw = memory[:, index] if len(rows) == m.blocks else memory[rows[:, None, None], index]
            matrices = numbers_of(self.kind, raw)[inverse]
            if out is None:
                out = np.empty((len(flat), *matrices.shape[1:]))
            out[mine] = matrices
            if m.shared.shadow is not None:
                granules = _granules(descriptor, self.lines, width, self.size, self.turned, m.shared.shadow.granule, limit)
                for group in np.unique(groups[mine]):
                    chosen = np.zeros(m.blocks, bool)
                    chosen[blocks[mine & (groups == group)]] = True
                    reads.append(Read(int(group), chosen, granules, self.name))
        return out

    def _outside(self, m, op, descriptor, offset, block, group):
        m.findings.add(
            "out-of-bounds", op.line,
            f"The matrix {self.name} of a wgmma (start {descriptor.start}, leading {descriptor.leading}, stride {descriptor.stride} bytes, "
            f"swizzle {descriptor.mode or 'none'}) reaches offset {offset} of shared memory, which has {m.shared.size} bytes per block.",
            block=m.block_position(block), thread=m.thread_position(group * GROUP),
            advice="Check the offsets in the descriptor: they are bytes, and the fields hold them without their last four bits.",
        )  # fmt: skip


# --- what is in flight -----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Read:
    """A matrix that a warpgroup's product reads: in which blocks (boolean), and its granules within a block."""

    group: int
    blocks: np.ndarray
    granules: np.ndarray
    name: str


@dataclass(eq=False)
class Product:
    """One executed wgmma that somebody still has to wait for.

    mask: the threads that have to (None: all). commits: how many groups they had committed before. held: registers with
    its result, and for which of its threads (None: all). inputs: registers of A.
    """

    site: object
    shape: str
    mask: np.ndarray | None
    commits: np.ndarray
    held: dict[int, np.ndarray | None]
    inputs: frozenset[int]
    reads: list[Read] = field(default_factory=list)

    def concerns(self, m, register: int) -> bool:
        """Does the register hold this product's result in some active thread?"""
        return register in self.held and _some(self.mask, self.held[register], m.mask)


def _some(*masks) -> bool:
    """Is there a thread in all masks? None is every thread."""
    masks = [mask for mask in masks if mask is not None]
    return not masks or bool(np.logical_and.reduce(np.broadcast_arrays(*masks)).any())


def _without(mask, gone):
    """The threads of `mask` that are not in `gone`, or None if there are none left. Both may be None, every thread."""
    if gone is None:
        return None
    left = ~gone if mask is None else mask & ~gone
    return left if left.any() else None


class Warpgroups:
    """What the warpgroups of a chunk have in flight, and which registers await a fence.

    commits: groups each thread has committed. fenced: threads that have executed a wgmma.fence. written: registers of
    products that other instructions have changed since the last fence: {register: (line, threads or None)}.
    """

    def __init__(self, m):
        self.products: list[Product] = []
        self.commits = m.uniform(0, I64)
        self.fenced = m.uniform(False, np.bool_)
        self.written: dict[int, tuple[int | None, np.ndarray | None]] = {}

    # ------------------------------------------------------------------------------------- the four instructions

    def fence(self, m) -> None:
        """The active threads order their registers with the products that follow."""
        if m.mask is None:
            self.fenced = m.uniform(True, np.bool_)
            self.written.clear()
            return
        self.fenced = self.fenced | m.mask
        for register, (line, mask) in list(self.written.items()):
            left = _without(mask, m.mask)
            if left is None:
                del self.written[register]
            else:
                self.written[register] = line, left

    def start(self, m, site, shape: str, accumulators, inputs, reads: list[Read]) -> None:
        """A product of the active threads begins."""
        late = ~self.fenced if m.mask is None else ~self.fenced & m.mask
        if late.any():
            self._note(m, "missing-fence", site.line, "A warp executes its first wgmma with no wgmma.fence before.", advice=FENCE_ADVICE)
            self.fenced = m.uniform(True, np.bool_)  # said once
        for register in (*accumulators, *inputs):
            line, mask = self.written.get(register, (None, NOBODY))
            if _some(mask, m.mask):
                what = "an accumulator" if register in accumulators else "a register of A"
                self._note(
                    m,
                    "missing-fence",
                    site.line,
                    f"A wgmma uses {what} that was changed{_at(line)} with no wgmma.fence between.",
                    other_line=line,
                    advice=FENCE_ADVICE,
                )
                del self.written[register]
        for product in self.products:
            if any(product.concerns(m, register) for register in inputs):
                self._unfinished(m, site.line, product, "takes as A")
            elif product.shape != shape and any(product.concerns(m, register) for register in accumulators):
                self._unfinished(m, site.line, product, "of another shape continues")
        self._read(m, site, reads)
        self.products.append(Product(site, shape, m.mask, self.commits, dict.fromkeys(accumulators), frozenset(inputs), reads))

    def commit(self, m) -> None:
        """Close the active threads' current group."""
        self.commits = self.commits + 1 if m.mask is None else self.commits + m.mask

    def wait(self, m, pending: int) -> None:
        """The active threads wait for all but their last `pending` groups."""
        for product in list(self.products):
            done = product.commits < self.commits - pending
            if m.mask is not None:
                done = done & m.mask
            if not _some(product.mask, done):
                continue
            left = _without(product.mask, done)
            if left is None:
                self.products.remove(product)
            product.mask = left
            self._end(m, product, left)

    # --------------------------------------------------------------------------------------------- what others do

    def used(self, m, line, registers) -> None:
        """An ordinary instruction reads registers."""
        for product in self.products:
            if any(product.concerns(m, register) for register in registers):
                self._unfinished(m, line, product, None)

    def changed(self, m, line, registers) -> None:
        """An ordinary instruction has written registers."""
        for product in self.products:
            for register in registers:
                if (register in product.inputs and _some(product.mask, m.mask)) or product.concerns(m, register):
                    self._note(
                        m,
                        "race",
                        line,
                        f"A thread changes a register that the wgmma{_of(line, product.site.line)} may still be using.",
                        other_line=product.site.line,
                        advice="Wait for the wgmma (wgmma.wait_group) before its registers are changed.",
                    )
                    break
            self._let_go(m, product, registers)
        for register in registers:
            before = self.written.get(register)
            mask = m.mask if before is None or m.mask is None or before[1] is None else before[1] | m.mask
            self.written[register] = line, mask

    def copied(self, m, target: int, source: int | None) -> None:
        """A copy or a constant: the target is now what the source is."""
        for product in self.products:
            if source is not None and product.concerns(m, source):
                product.held[target] = product.held[source]
            elif target in product.held and target != source:
                self._let_go(m, product, (target,))
        state = self.written.get(source)
        if state is not None:
            self.written[target] = state
        elif m.mask is None:
            self.written.pop(target, None)

    def _let_go(self, m, product, registers) -> None:
        for register in registers:
            if register in product.held:
                left = _without(product.held[register], m.mask)
                if left is None:
                    del product.held[register]
                else:
                    product.held[register] = left

    # ------------------------------------------------------------------------------------------------ the shadow

    def _read(self, m, site, reads: list[Read]) -> None:
        """Products begin to read shared memory: may they?"""
        shadow = m.shared.shadow
        for read in reads:
            _seen_by_the_cluster(m, site, read, read.blocks)
            rows = _rows(shadow, m, read.blocks)
            cells = (rows[:, None] * shadow.count + read.granules).reshape(-1)
            who = np.full(cells.shape, read.group * GROUP + 1, np.int32)
            if shadow.copies and shadow._still_under_way(m, site, cells, who, "reads"):
                continue
            known = shadow.complete or shadow.initialised.reshape(-1).take(cells)
            if not np.all(known):
                shadow._uninitialised(m, site, cells, who, ~known)
            writer = shadow.writer.reshape(-1).take(cells)
            if writer.any():
                shadow._race(m, site, shadow.writer_site, cells, who, writer, writer != 0, "reads", "writes")
            else:
                shadow.proxies.check(shadow, m, site, rows, read.granules, read.group * GROUP, f"The wgmma's {read.name}")
            shadow.proxies.reading(site, rows, read.granules, 1)

    def _end(self, m, product, left) -> None:
        """The product no longer reads for threads that are not `left`: to the shadow, its warpgroup has read."""
        shadow = m.shared.shadow
        for read in list(product.reads):
            blocks = read.blocks
            if left is not None:
                blocks = blocks & ~m.rows_of(left)[:, read.group * GROUP : (read.group + 1) * GROUP].any(axis=1)
                if not blocks.any():
                    continue
            _seen_by_the_cluster(m, product.site, read, blocks)
            rows = _rows(shadow, m, blocks)
            shadow.proxies.reading(product.site, rows, read.granules, -1)
            place = np.ix_(rows, read.granules)
            shadow.reader[place] = shadow.WARPGROUP - read.group
            shadow.reader_site[place] = product.site.index
            shadow.touched = True
            read.blocks = read.blocks & ~blocks
            if not read.blocks.any():
                product.reads.remove(read)

    # ---------------------------------------------------------------------------------------------- the findings

    def _unfinished(self, m, line, product, how: str | None) -> None:
        what = "A thread uses" if how is None else f"A wgmma {how}"
        self._note(
            m,
            "missing-wait",
            line,
            f"{what} accumulators of the wgmma{_of(line, product.site.line)}, which has not been waited for.",
            other_line=product.site.line,
            advice="Commit the wgmma (wgmma.commit_group) and wait for it (wgmma.wait_group) first.",
        )

    def _note(self, m, kind, line, message, **more) -> None:
        block, warp, lane = (int(i) for i in np.argwhere(m.warps_active())[0])
        m.findings.add(kind, line, message, block=m.block_position(block), thread=m.thread_position(warp * WARP + lane), **more)


def _seen_by_the_cluster(m, site, read, blocks: np.ndarray) -> None:
    """A product reads, or has read until now: other blocks of the cluster may have written there, or may do it next."""
    shadow = m.shared.shadow
    if shadow.cluster is not None:
        rows = np.repeat(np.flatnonzero(blocks), len(read.granules))
        offsets = np.tile(read.granules, int(blocks.sum())) * shadow.granule
        shadow.cluster.touch(m, site, rows, rows, offsets, np.full(len(rows), read.group * GROUP), shadow.granule, READ)


def _rows(shadow, m, blocks: np.ndarray) -> np.ndarray:
    """The shadow's rows for these blocks (boolean)."""
    if blocks.all():
        return np.arange(shadow.rows)
    shadow._expand(m)
    return np.flatnonzero(blocks)


def _at(line) -> str:
    return "" if line is None else f" at line {line}"


def _of(line, other) -> str:
    return " of the same line" if other == line else "" if other is None else f" of line {other}"


def state_of(m) -> Warpgroups:
    """The chunk's warpgroup state."""
    found = m.asynchronous.get("warpgroups")
    if found is None:
        found = m.asynchronous["warpgroups"] = Warpgroups(m)
    return found


@finisher
def watch_registers(ops) -> None:
    """Look at every instruction that touches registers of a wgmma: see the module's page."""
    known = {register for op in ops for register in op.held}
    if not known:
        return
    moves = [op for op in ops if _is_copy(op)]
    growing = True
    while growing:
        found = {r for op in moves for r in (*op.reads, *op.writes) if not known.isdisjoint((*op.reads, *op.writes))} - known
        known |= found
        growing = bool(found)
    for op in ops:
        if op.held:
            continue
        used, changed = tuple(known.intersection(op.reads)), tuple(known.intersection(op.writes))
        if _is_copy(op):
            if used or changed:
                op.after.append(_copied(op.writes[0], op.reads[0] if op.reads else None))
            continue
        if used:
            op.before.insert(0, _used(op.line, used))
        if changed:
            op.after.append(_changed(op.line, changed))


def _is_copy(op) -> bool:
    return op.name == "mov" and len(op.writes) == 1 and len(op.reads) <= 1 and not any(isinstance(o, Vector) for o in op.operands)


def _used(line, registers):
    def check(m):
        state = m.asynchronous.get("warpgroups")
        if state is not None and state.products:
            state.used(m, line, registers)

    return check


def _changed(line, registers):
    return lambda m: state_of(m).changed(m, line, registers)


def _copied(target, source):
    return lambda m: state_of(m).copied(m, target, source)


# --- the instructions ------------------------------------------------------------------------------------------------


def by_group(m, warps: np.ndarray) -> np.ndarray:
    """[blocks, warps, 32] -> [blocks, warpgroups, 128]; warps beyond the last whole warpgroup are left out."""
    count = m.warp_count // WARPS
    return warps[:, : count * WARPS].reshape(m.blocks, count, GROUP)


def whole_warpgroups(m, op) -> np.ndarray:
    """[blocks, warpgroups]: which take part. A warpgroup does with all four warps and all their threads, or not at all."""
    count = m.warp_count // WARPS
    if m.mask is None and not m.threads % GROUP:
        return np.ones((m.blocks, count), bool)
    lanes = m.warps_active()
    padded = np.zeros((m.blocks, -(-m.warp_count // WARPS) * WARPS, WARP), bool)
    padded[:, : m.warp_count] = lanes
    threads = padded.reshape(m.blocks, -1, GROUP).sum(axis=2)
    part = (threads > 0) & (threads < GROUP)
    if part.any():
        block, group = (int(i) for i in np.argwhere(part)[0])
        name = ".".join(op.parts[:2])
        message = f"Only {threads[block, group]} of the 128 threads of a warpgroup execute `{name}`, which its four warps have to execute together."
        m.findings.add(
            "divergent-barrier",
            op.line,
            message,
            block=m.block_position(block),
            thread=m.thread_position(group * GROUP),
            advice="A warpgroup is four warps, the first of them a multiple of four: make the condition the same for all of them.",
        )
        m.fail(f"{message[0].lower()}{message[1:]} The result is undefined.", op.line)
    return (threads == GROUP)[:, :count]


def _of_warpgroup(op) -> None:
    op.rendezvous = WARPS
    op.loader.uses.add("async proxy")
    op.opclass = "WGMMA"


@instruction("wgmma.fence")
def wgmma_fence(op):
    """Order the registers of this warpgroup with the wgmma that follow."""
    _of_warpgroup(op)

    def run(m):
        whole_warpgroups(m, op)
        state_of(m).fence(m)

    return run


@instruction("wgmma.commit_group")
def wgmma_commit_group(op):
    """Close the group of wgmma started since the last commit."""
    _of_warpgroup(op)

    def run(m):
        whole_warpgroups(m, op)
        state_of(m).commit(m)

    return run


@instruction("wgmma.wait_group")
def wgmma_wait_group(op):
    """Wait until at most n of this warpgroup's latest groups are in flight."""
    _of_warpgroup(op)
    pending = op.immediate(0)

    def run(m):
        whole_warpgroups(m, op)
        state_of(m).wait(m, pending)

    return run


def _shape_of(op, types) -> Shape:
    name = next((part for part in op.parts if part.startswith("m64n")), None) or op.unknown()
    n, _, k = name[4:].partition("k")
    d_type, a_type, b_type = types
    sparse = op.has("sp")
    if int(k) * BITS[a_type] != (512 if sparse else 256) or BITS[b_type] != BITS[a_type] or not 8 <= int(n) <= 256 or int(n) % 8:
        op.unknown()
    return Shape(name, ROWS, int(n), int(k), a_type, b_type, d_type, WARPS, sparse)


@instruction("wgmma.mma_async")
def wgmma_mma_async(op):
    """d = a x b, or + d: a warpgroup's product of 64 rows. a: registers or a descriptor; b: a descriptor.

    With .sp, metadata and a selector follow: see mma. Then come scale-d (is d added?), and for floats the signs of a and b,
    and for 16-bit ones whether a (in memory) and b are MN-major.
    """
    _of_warpgroup(op)
    # operands
    types = [part for part in op.parts if part in BITS]
    if len(types) != 3:
        op.unknown()
    shape = _shape_of(op, types)
    d_type, a_type, b_type = types
    from_registers = isinstance(op.operand(1), Vector)
    named, spread_out = sparse_rows(op, 3, shape) if shape.sparse else (None, None)
    first = 5 if shape.sparse else 3
    signs = [op.immediate(i, 1) for i in (first + 1, first + 2)]
    turns = [bool(op.immediate(i, 0)) for i in (first + 3, first + 4)]
    turn_a, turn_b = (False, turns[0]) if from_registers else turns
    if any(sign not in (1, -1) for sign in signs):
        op.fail("scales by a number that is not 1 or -1")
    b = Stored(op.source(2, "b64"), "B", b_type, shape.n, shape.k, turn_b)
    adds = op.predicate(first)
    c = _registers(op, 0, shape, "c", d_type)
    if from_registers:
        a = _registers(op, 1, shape, "a", a_type)
    else:
        a = Stored(op.source(1, "b64"), "A", a_type, ROWS, shape.k // (2 if shape.sparse else 1), turn_a)
    d = _registers(op, 0, shape, "c", d_type, result=True)
    inputs = a.registers if from_registers else ()
    op.held = (*d.registers, *inputs)
    site = op.site("shared", AccessKind.WARPGROUP, CORE)
    site.charged = 0  # the tensor cores' own way to shared memory: no wavefronts of the load-store unit
    saturate, bitwise = op.has("satfinite"), op.has("and")
    if (a_type == "b1") != bitwise:
        op.unknown()

    # meaning
    def run(m):
        active = whole_warpgroups(m, op)
        count = active.shape[1] * WARPS
        reads: list[Read] = []
        right = b.collect(m, op, site, active, reads)
        if from_registers:
            left = a.collect(m)
            left = left.reshape(m.blocks, m.warp_count, -1)[:, :count].reshape(m.blocks, -1, ROWS, left.shape[-1])[active]
        else:
            left = a.collect(m, op, site, active, reads)
        if spread_out is not None:
            words = by_group(m, m.warps(m.regs[named].view(U32), 0))[active]
            left = spread_out(words.reshape(-1, WARP), left.reshape(len(words) * WARPS, ROWS // WARPS, -1)).reshape(len(words), ROWS, -1)
        total = np.matmul(left, right.swapaxes(1, 2))
        if signs[0] != signs[1]:
            total = -total
        every = c.collect(m).reshape(m.blocks, m.warp_count, ROWS // WARPS, shape.n)
        old = every[:, :count].reshape(m.blocks, -1, ROWS, shape.n)[active]
        on = m.regs[adds]
        if on.size == 1:
            total = total + old if on.item() else total
        else:
            on = by_group(m, m.warps(on, False))[active]
            total = np.where(on[:, 0, None, None], total + old, total)
        if saturate:
            total = np.clip(total, -(2.0**31), 2.0**31 - 1)
        state_of(m).start(m, site, shape.name, d.registers, inputs, reads)
        if m.counting is not None:
            lines = shape.n * (2 if shape.sparse else 1) + (0 if from_registers else ROWS)  # of 32 bytes
            m.counting.warpgroups(site, np.count_nonzero(active), 32 * lines)
        # result
        whole = every.copy()
        groups = whole[:, :count].reshape(m.blocks, -1, ROWS, shape.n)
        groups[active] = total
        whole[:, :count] = groups.reshape(m.blocks, count, ROWS // WARPS, shape.n)
        d.spread(m, whole.reshape(-1, ROWS // WARPS, shape.n))

    return run


def _registers(op, i: int, shape: Shape, operand: str, kind: str, result: bool = False) -> Operand:
    part = fragment(shape, operand)
    bind = op.target if result else op.bind
    registers = tuple(bind(item, "b32") for item in op.vector(i))
    if len(registers) != part.registers:
        op.fail(f"has {len(registers)} registers where {part.registers} hold the matrix")
    return Operand(part, kind, registers)


@instruction("fence.proxy.async")
def fence_proxy_async(op):
    """Order ordinary accesses of shared memory with those of wgmma and bulk copies."""
    op.effect, op.orders = Effect.FENCE, True
    if op.has("global"):
        return None  # says nothing about shared memory
    op.loader.uses.add("async proxy")

    def run(m):
        shadow = m.shared.shadow
        if shadow is not None:
            shadow.proxies.fence(shadow, m)

    return run


@instruction("fence.proxy.async::generic")
def fence_proxy_async_generic(op):
    """One way of it: .release for what was written by ordinary accesses, .acquire for what will be read by them."""
    op.effect, op.orders = Effect.FENCE, True
    return fence_proxy_async(op) if op.has("release") else None


# --- registers for those who need them ---------------------------------------------------------------------------------


class Registers:
    """Registers per thread of each warpgroup, [blocks, warpgroups], 0 where unknown; pool: of all of a block together.

    tries: how often the waiting ones have looked since somebody gave registers away.
    """

    PATIENCE = 256

    def __init__(self, m, groups: int):
        at_launch = -(-m.launch.registers // 8) * 8
        self.held = np.full((m.blocks, groups), at_launch, I64)
        self.pool = at_launch * groups
        self.tries = 0

    @classmethod
    def of(cls, m, groups: int) -> Registers:
        found = m.asynchronous.get("registers")
        if found is None:
            found = m.asynchronous["registers"] = cls(m, groups)
        return found


def _register_count(op) -> int:
    op.rendezvous = WARPS
    count = op.immediate(0)
    if not 24 <= count <= 256 or count % 8:
        op.fail("asks for a number of registers that is not a multiple of 8 from 24 to 256")
    return count


def _wrong_way(m, op, state, wrong, count: int, how: str, opposite: str) -> None:
    if wrong.any():
        m.fail(
            f"`{'.'.join(op.parts[:2])}` asks for {count} registers per thread, which is {how} than the {int(state.held[wrong][0])} "
            f"that the warpgroup has: use setmaxnreg.{opposite}, or another number.",
            op.line,
        )


@instruction("setmaxnreg.dec")
def setmaxnreg_dec(op):
    """Give all registers but n per thread to the block's pool."""
    count = _register_count(op)

    def run(m):
        active = whole_warpgroups(m, op)
        state = Registers.of(m, active.shape[1])
        _wrong_way(m, op, state, active & (state.held > 0) & (state.held < count), count, "more", "inc")
        state.held[active] = count
        state.tries = 0
        m.wake()

    return run


@instruction("setmaxnreg.inc")
def setmaxnreg_inc(op):
    """Take registers, up to n per thread, from the block's pool, and wait until it has them. Their use, speed, is not modelled."""
    count = _register_count(op)

    def terminator(place, following):
        def end(m):
            active = whole_warpgroups(m, op)
            state = Registers.of(m, active.shape[1])
            _wrong_way(m, op, state, active & (state.held > count), count, "fewer", "dec")
            wanted = np.where(active, count, state.held).sum(axis=1)
            there = wanted <= state.pool if state.pool else np.ones(m.blocks, bool)
            state.held[active & there[:, None]] = count
            waiting = active.any(axis=1) & ~there
            if not waiting.any():
                return following
            block = int(np.flatnonzero(waiting)[0])
            state.tries += 1
            if state.tries > Registers.PATIENCE:
                message = (
                    f"`setmaxnreg.inc` waits for registers that the block does not have: its warpgroups would hold "
                    f"{int(wanted[block])} per thread together, and there are {state.pool}."
                )
                finding = m.findings.add(
                    "endless",
                    op.line,
                    message,
                    block=m.block_position(block),
                    advice="Let other warpgroups give away more with setmaxnreg.dec, or ask for fewer.",
                )
                m.findings.stop(f"{m.where(op.line)}: {message} {finding.advice}", op.line)
            m.yielding = True
            here = np.ones((m.blocks, m.threads), bool) if m.mask is None else m.rows_of(m.mask)
            again = following - 1  # a block of its own, because warps come together here
            parts = (again, here & waiting[:, None]), (following, here & ~waiting[:, None])
            return [(target, m.from_rows(rows)) for target, rows in parts if rows.any()]

        return end

    op.terminator = terminator
