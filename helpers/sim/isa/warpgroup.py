"""Hopper's warpgroup products (wgmma): four warps multiply matrices that lie in shared memory, while they run on.

**Matrices in shared memory** are named by a 64-bit descriptor: `Descriptor` and `places` say which byte holds which
element. They are made of *core matrices*, 8 lines of 16 bytes, a line being a row of A or a column of B where K is the
direction of neighbours in memory ("K-major"), and a piece of a column of A or of a row of B otherwise ("MN-major").

**Asynchrony.** A product reads shared memory and gives its result at once here. What PTX forbids until its warps have waited
for it is told by the checks: of its registers `warpgroup_registers`, of its matrices `overwritten_sources` and `missing_fence`.

How exact: as the other products of `matrix`, with the same bounds.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from helpers.sim.checks import divergent_barriers, endless, out_of_bounds
from helpers.sim.checks.accesses import MatrixAccess
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.program import Effect
from helpers.sim.code.ptx import Vector
from helpers.sim.code.sites import AccessKind
from helpers.sim.layouts.register_fragments import BITS, Shape, fragment
from helpers.sim.layouts.swizzle import SPAN, swizzle

from .base import ALIGNED, SCOPES, finisher, instruction
from .mma import Operand, cut_sums, numbers_of, sparse_rows, sums_of

U32, U64, I64 = np.dtype(np.uint32), np.dtype(np.uint64), np.dtype(np.int64)
WARPS = 4  # of a warpgroup
GROUP = WARPS * WARP  # its threads
ROWS = 64  # of A and D
CORE = 16  # bytes of a core matrix's line
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


class _Matrix:
    """One that a descriptor names, as a product reads it. index: [lines, width], where each element is in shared memory, in elements of
    its size; the first, where it lies outside. farthest: the address of one outside, or None. overlaps: do two lie at the same place?"""

    def __init__(self, descriptor: Descriptor, lines: int, width: int, size: int, turned: bool, bounds: tuple[int, int]):
        at, (start, end) = places(descriptor, lines, width, size, turned), bounds
        good = (at >= start) & (at <= end - size)
        self.descriptor, self.farthest = descriptor, None
        if not good.all():
            self.farthest = int(at.max() if at.max() > end - size else at.min())
        self.index = np.where(good, at, 0) // size
        self.overlaps = len(np.unique(at)) < at.size
        self._inside = at[(at >= start) & (at < end)]
        self._granules: dict[int, np.ndarray] = {}

    def granules(self, granule: int) -> np.ndarray:
        """Those of shared memory, of so many bytes, that it occupies."""
        if granule not in self._granules:
            self._granules[granule] = np.unique(self._inside // granule)
        return self._granules[granule]


@functools.lru_cache(maxsize=512)
def _matrix(bits: int, lines: int, width: int, size: int, turned: bool, bounds: tuple[int, int]) -> _Matrix:
    return _Matrix(Descriptor.decode(bits), lines, width, size, turned, bounds)


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
        bounds = m.shared.start, m.shared.end
        memory = m.shared.bytes.reshape(m.blocks, -1).view(np.dtype(f"u{self.size}"))
        out = None
        for bits in sorted(set(given.tolist())):
            matrix = _matrix(bits, self.lines, width, self.size, self.turned, bounds)
            if matrix.farthest is not None:
                out_of_bounds.by_matrix(m, op.line, self.name, matrix.descriptor, matrix.farthest, int(blocks[0]), int(groups[0]) * GROUP)
            mine = given == bits
            of_blocks, of_groups = blocks[mine], groups[mine]
            there = np.zeros(m.blocks, bool)
            there[of_blocks] = True
            rows = np.flatnonzero(there)
            stored = memory.take(matrix.index, axis=1) if len(rows) == m.blocks else memory[rows[:, None, None], matrix.index]
            matrices = numbers_of(self.kind, stored)
            if len(rows) < len(of_blocks):  # several warpgroups of a block read one
                matrices = matrices[(np.cumsum(there) - 1)[of_blocks]]
            if m.recorder is not None:
                for block, group in zip(of_blocks, of_groups, strict=True):
                    m.recorder.move(m, op.line, self.name, block, group * WARPS, places=matrix.index * self.size - m.shared.start)
            if out is None:
                out = matrices if len(matrices) == len(flat) else np.empty((len(flat), *matrices.shape[1:]))
            if out is not matrices:
                out[mine] = matrices
            for group in range(count):
                if (which := of_blocks[of_groups == group]).size:
                    chosen = np.zeros(m.blocks, bool)
                    chosen[which] = True
                    about = matrix.granules, matrix.descriptor.mode, matrix.overlaps
                    reads.append(MatrixAccess(site, self.name, group * GROUP, chosen, *about))
        return out


# --- registers of products in flight ----------------------------------------------------------------------------------


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
                op.after.append(_told("register_copied", op.writes[0], op.reads[0] if op.reads else None))
            continue
        if used:
            op.before.insert(0, _told("registers_used", op.line, used))
        if changed:
            op.after.append(_told("registers_changed", op.line, changed))


def _told(event: str, *what):
    return lambda m: getattr(m.checks, event)(m, *what)


def _is_copy(op) -> bool:
    return op.name == "mov" and len(op.writes) == 1 and len(op.reads) <= 1 and not any(isinstance(o, Vector) for o in op.operands)


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
    if ((threads > 0) & (threads < GROUP)).any():
        divergent_barriers.part_of_a_warpgroup(m, op.line, ".".join(op.parts[:2]), threads)
    return (threads == GROUP)[:, :count]


def _note(m, op, active: np.ndarray, kind: str, number: int = 0) -> None:
    """Record a move of each active warpgroup."""
    if m.recorder is not None:
        for block, group in zip(*np.nonzero(active), strict=True):
            m.recorder.move(m, op.line, kind, block, group * WARPS, number)


def _of_warpgroup(op) -> None:
    op.rendezvous = WARPS
    op.without_effect(*ALIGNED)
    op.loader.uses.add("async proxy")
    op.opclass = "WGMMA"


@instruction("wgmma.fence")
def wgmma_fence(op):
    """Order the registers of this warpgroup with the wgmma that follow."""
    _of_warpgroup(op)

    def run(m):
        whole_warpgroups(m, op)
        m.checks.registers_fenced(m)

    return run


@instruction("wgmma.commit_group")
def wgmma_commit_group(op):
    """Close the group of wgmma started since the last commit."""
    _of_warpgroup(op)

    def run(m):
        active = whole_warpgroups(m, op)
        _note(m, op, active, "commit")
        m.checks.products_committed(m)

    return run


@instruction("wgmma.wait_group")
def wgmma_wait_group(op):
    """Wait until at most n of this warpgroup's latest groups are in flight."""
    _of_warpgroup(op)
    pending = op.immediate(0)

    def run(m):
        active = whole_warpgroups(m, op)
        _note(m, op, active, "awaited", pending)
        m.checks.products_awaited(m, pending)

    return run


def _shape_of(op, types) -> Shape:
    (name,) = op.those(lambda part: part.startswith("m64n")) or op.unknown()
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
    op.loader.uses.add("wgmma")
    # operands
    op.without_effect("popc")
    types = op.those(BITS.__contains__)
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
    op.addend = adds, c.registers
    op.merges = True
    site = op.site("shared", AccessKind.WARPGROUP, CORE)  # the tensor cores' own way there, past the load-store unit
    saturate, bitwise = op.has("satfinite"), op.has("and")
    sums = sums_of(a_type, d_type, warpgroup=True)
    if (a_type == "b1") != bitwise:
        op.unknown()

    # meaning
    def run(m):
        active = whole_warpgroups(m, op)
        count = active.shape[1] * WARPS
        reads: list[MatrixAccess] = []
        right = b.collect(m, op, site, active, reads)
        if from_registers:
            left = a.collect(m)
            left = left.reshape(m.blocks, m.warp_count, -1)[:, :count].reshape(m.blocks, -1, ROWS, left.shape[-1])[active]
        else:
            left = a.collect(m, op, site, active, reads)
        if spread_out is not None:
            words = by_group(m, m.warps(m.regs[named].view(U32), 0))[active]
            left = spread_out(words.reshape(-1, WARP), left.reshape(len(words) * WARPS, ROWS // WARPS, -1)).reshape(len(words), ROWS, -1)
        right = right.swapaxes(1, 2)
        if signs[0] != signs[1]:
            left = -left
        every = c.collect(m).reshape(m.blocks, m.warp_count, ROWS // WARPS, shape.n)
        old = every[:, :count].reshape(m.blocks, -1, ROWS, shape.n)[active]
        on = m.regs[adds]
        if on.size == 1:
            old = old if on.item() else np.zeros_like(old)
        else:
            old = np.where(by_group(m, m.warps(on, False))[active][:, 0, None, None], old, 0)
        total = cut_sums(sums, left, right, old, (a_type, b_type)) if sums else np.matmul(left, right) + old
        if saturate:
            total = np.clip(total, -(2.0**31), 2.0**31 - 1)
        m.checks.product_started(m, site, shape.name, d.registers, inputs, reads)
        for read in reads:
            m.checks.matrix_read(m, read)
            m.checks.reading_begun(m, read)
        if m.counting is not None:
            m.counting.warpgroups(site, np.count_nonzero(active), shape.n, shape.sparse, not from_registers)
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
    """Order ordinary accesses with those of wgmma and bulk copies, in shared memory or device memory, if it does not say in which."""
    op.effect, op.orders = Effect.FENCE, True
    shared, device = not op.has("global"), not op.those(lambda part: "shared" in part)
    if shared:
        op.loader.uses.add("async proxy")

    def run(m):
        m.checks.proxy_fence(m, shared, device)

    return run


@instruction("fence.proxy.async::generic")
def fence_proxy_async_generic(op):
    """One way of it: .release for what was written by ordinary accesses, .acquire for what will be read by them."""
    op.effect, op.orders = Effect.FENCE, True
    op.without_effect(*SCOPES, "acquire", "sync_restrict::shared::cta", "sync_restrict::shared::cluster")
    return fence_proxy_async(op) if op.has("release") else None


# --- registers for those who need them ---------------------------------------------------------------------------------


class Registers:
    """Registers per thread of each warpgroup, [blocks, warpgroups], 0 where unknown; pool: of all of a block together.

    tries: how often the waiting ones have looked, with nobody left who could go on, since somebody gave registers away.
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
    op.without_effect(*ALIGNED)
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
            # Who can go on may still give some; that counts only where all that is left waits as well.
            state.tries += m.idle > 0 or all(m.sleeping.get(other) for other in m.groups)
            if state.tries > Registers.PATIENCE:
                endless.no_registers(m, op.line, block, int(wanted[block]), state.pool)
            m.yielding = True
            here = np.ones((m.blocks, m.threads), bool) if m.mask is None else m.rows_of(m.mask)
            again = following - 1  # a block of its own, because warps come together here
            parts = (again, here & waiting[:, None]), (following, here & ~waiting[:, None])
            return [(target, m.from_rows(rows)) for target, rows in parts if rows.any()]

        return end

    op.terminator = terminator
