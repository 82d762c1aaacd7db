"""Values that nobody has written, followed bit by bit until somebody could see them.

Reading a register that holds nothing is no mistake in itself: compilers copy, convert and add such values in advance and
drop them again. It is one when it decides something: what goes to device memory, an address, a branch, a matrix product. So
each register, and local, parameter and shared memory where need be, has a second value beside it: the bits that are
undefined. Only the instructions that `code.doubts` names are watched; the others cost nothing.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import numpy as np

from helpers.errors import RunError
from helpers.sim.checks import unwritten
from helpers.sim.checks.findings import Findings
from helpers.sim.checks.observer import Observer
from helpers.sim.checks.shared_cells import SharedCells
from helpers.sim.code.addresses import DEVICE_BASE, PARAM_WINDOW, SHARED_WINDOW, WINDOW_REACH
from helpers.sim.code.doubts import Doubts, moves_memory, spaces_of
from helpers.sim.code.program import Effect, Op
from helpers.sim.code.sites import AccessKind, Site

from .memory import RAW, SharedMemory, ThreadMemory

PATTERNS = 64  # different undefined bits of registers that are remembered


class _Elsewhere:
    """Device memory, for an access whose undefined bits are followed: it holds nothing."""

    def __init__(self):
        kinds = (np.int8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64)
        self.views = {dtype: np.zeros(64, dtype) for dtype in (*RAW.values(), *map(np.dtype, kinds))}

    def locate(self, m, site, addresses, width):
        return np.zeros_like(addresses), m.mask


class _Registers(dict):
    """What an instruction finds in its registers while its undefined bits are followed: the real ones where nothing is put."""

    def __init__(self, real: list):
        self.real = real

    def __missing__(self, register: int):
        return self.real[register]


class Undefined:
    """The undefined bits of a chunk's registers (unsigned integers; none where a register is all defined) and memory."""

    def __init__(self, m, doubts: Doubts):
        self.doubts = doubts
        kinds = {register: raw for register in doubts.registers if (raw := _raw(m, register)) is not None}
        whole = {raw: m.uniform(_ones(raw), raw) for raw in set(kinds.values())}
        self.bits: dict[int, np.ndarray] = {register: whole[raw] for register, raw in kinds.items()}
        self.latest: tuple = (None, None, None, None)  # what `note` was last given, and what it made of that
        self.patterns: dict[tuple, np.ndarray] = {}  # bits by their contents: registers that have the same share an array
        self.concerned: dict[int, tuple[np.ndarray, np.ndarray, bool]] = {}  # what `concerns` said: (bits, mask, answer), by the bits' id
        self.memory: dict[str, ThreadMemory | SharedMemory] = {}  # of the spaces that a followed access has gone to

    def part(self, m, cut: Callable, rows: np.ndarray) -> Undefined:
        """The same for some of the blocks: `cut` takes the lanes of the part `m` out of an array."""
        other = Undefined.__new__(Undefined)
        other.doubts, other.latest, other.patterns, other.concerned = self.doubts, (None, None, None, None), {}, {}
        other.bits = {register: cut(bits) for register, bits in self.bits.items()}
        other.memory = {
            space: memory.part(m, rows) if isinstance(memory, SharedMemory) else memory.part(cut) for space, memory in self.memory.items()
        }
        return other

    def shadow(self, m, space: str) -> ThreadMemory | SharedMemory:
        """The undefined bits in a space; where no undefined value gets, for accesses that may go elsewhere, there are none."""
        if space not in self.memory:
            if space == "shared":
                self.memory[space] = SharedMemory(m, m.program.shared_start, m.launch.shared_bytes)
                self.memory[space].bytes[:] = 255 if self.doubts.followed else 0
            else:
                size = m.program.local_bytes if space == "local" else m.program.param_bytes
                self.memory[space] = ThreadMemory(m, size, space, unwritten=space == "local" and space in self.doubts.spaces)
        return self.memory[space]

    def written(self, m, cells: np.ndarray, of: SharedCells) -> None:
        """Other instructions than stores have written granules of shared memory: flat indices in the rows that `of` has."""
        places = self.shadow(m, "shared").bytes.reshape(m.blocks, -1, of.granule)
        places[of.row_of(cells) if of.rows > 1 else slice(None), cells % of.count] = 0

    def note(self, m, register: int, bits: np.ndarray | None, active: np.ndarray | None) -> None:
        """The active threads' register has these undefined bits (None: none)."""
        old = self.bits.get(register)
        if bits is None and old is None:
            return
        given = active, bits, old
        if all(a is b for a, b in zip(given, self.latest, strict=False)):  # the registers of a matrix have the same bits
            bits = self.latest[3]
        else:
            if active is not None:
                nothing = np.zeros((), _raw(m, register))
                bits = np.where(active, nothing if bits is None else bits, nothing if old is None else old)
            if bits is not None:
                bits = self._shared(bits) if bits.any() else None
            self.latest = *given, bits
        if bits is None:
            self.bits.pop(register, None)
        else:
            self.bits[register] = bits

    def concerns(self, bits: np.ndarray, mask: np.ndarray) -> bool:
        """Are some of these bits those of threads of the mask? (Warps that go other ways leave registers unwritten that others use.)"""
        known = self.concerned.get(id(bits))
        if known is None or known[0] is not bits or known[1] is not mask:
            if len(self.concerned) >= PATTERNS:
                self.concerned.clear()
            known = self.concerned[id(bits)] = bits, mask, bool(((bits != 0) & mask).any())
        return known[2]

    def _shared(self, bits: np.ndarray) -> np.ndarray:
        if len(self.patterns) >= PATTERNS:
            self.patterns.clear()
        return self.patterns.setdefault((bits.dtype, bits.shape, bits.tobytes()), bits)


def unwritten_value(m, register: int) -> np.ndarray:
    """What a register holds that nobody has written: all bits set, a NaN in every floating-point type and -1 in every integer.

    Hardware gives whatever it held before. 0 would make `float sum;` without a value come out right.
    """
    raw, dtype = _raw(m, register), m.launch.dtypes[m.program.types[register]]
    return m.uniform(0, dtype) if raw is None else m.uniform(_ones(raw), raw).view(dtype)


def _raw(m, register: int) -> np.dtype | None:
    """How a register's bits are kept; None for 128 bits, which are not followed."""
    dtype = m.launch.dtypes[m.program.types[register]]
    return dtype if dtype.kind == "b" else RAW.get(dtype.itemsize)


def _ones(raw: np.dtype):
    return np.ones((), bool) if raw.kind == "b" else ~np.zeros((), raw)


def watcher(op: Op, doubts: Doubts) -> Callable:
    """What comes before an instruction that has to do with undefined values, as a closure of the machine."""
    store, load = moves_memory(op, AccessKind.STORE), moves_memory(op, AccessKind.LOAD)
    if store or load:
        site = op.sites[0]
        follow = bool(spaces_of(site) & doubts.spaces)
        steering = {site.base, None if op.guard is None else op.guard.register}
        data = tuple(register for register in op.reads if register not in steering) if store else ()

        def access(m):
            undefined = m.undefined
            if undefined is None:
                return
            active = _active(m, op)
            if site.base in undefined.bits:
                _seen(m, op, (site.base,), active, "an address is made of it")
            if any(register in undefined.bits for register in data) and (site.generic or site.space == "global"):
                stored, outside = "what it holds is stored", _outside(m, op, active)
                if doubts.followed:
                    plain = _to_plain_arrays(m, site)
                    _seen(m, op, data, plain if outside is None else plain & outside, stored)
                    _seen(m, op, data, ~plain if outside is None else ~plain & outside, stored, filler=True)
                else:
                    _seen(m, op, data, outside, stored)
            if follow:
                _follow(m, op, data, active)
            else:
                for register in op.writes:
                    undefined.note(m, register, None, active)

        return access

    def run(m):
        undefined = m.undefined
        if undefined is None:
            return
        bits = undefined.bits
        touched = [register for register in op.reads if register in bits]
        if touched and m.mask is not None and op.effect is Effect.PURE and (op.guard is None or op.guard.register not in bits):
            touched = [register for register in touched if undefined.concerns(bits[register], m.mask)]
        if not touched:
            if bits:
                active = _active(m, op)
                for register in op.writes:
                    undefined.note(m, register, None, active)
            return
        if op.effect is Effect.PURE or (op.effect is Effect.EXCHANGE and op.bitwise):
            _propagate(m, op, touched)
            return
        active = _active(m, op)
        if op.addend is not None and set(touched) <= set(op.addend[1]):
            added = m.regs[op.addend[0]]
            _seen(m, op, touched, added if active is None else active & added, "a matrix product adds it")
        else:
            _seen(m, op, touched, active, unwritten.BRANCH if op.effect in (Effect.JUMP, Effect.END) else "an instruction takes it")
        for register in op.writes:
            undefined.note(m, register, None, active)

    return run


def _active(m, op: Op) -> np.ndarray | None:
    """The threads that execute the instruction; one whose guard is undefined does something, so that is seen here."""
    if op.guard is None:
        return m.mask
    guard = op.guard.register
    if guard in m.undefined.bits and op.effect is not Effect.PURE:
        _seen(m, op, (guard,), m.mask, unwritten.BRANCH)
    on = ~m.regs[guard] if op.guard.negated else m.regs[guard]
    return on if m.mask is None else on & m.mask


def _propagate(m, op: Op, touched: list[int]) -> None:
    """Undefined bits of the sources make undefined bits of the results."""
    undefined, active = m.undefined, _active(m, op)
    guard = None if op.guard is None else undefined.bits.get(op.guard.register)
    if op.bitwise and guard is None:
        low, high = (_with(m, op, touched, ones) for ones in (False, True))
        for register in op.writes:
            raw = _raw(m, register)
            if raw is not None:
                undefined.note(m, register, low[register].view(raw) ^ high[register].view(raw), active)
        return
    if op.apart and guard is None:
        (register,) = op.writes
        undefined.note(m, register, _whole_parts([undefined.bits[source] for source in touched], op.apart), active)
        return
    bad = np.zeros((), bool)
    for register in touched:
        bad = bad | (undefined.bits[register] != 0)
    if guard is not None:
        active = m.mask
    for register in op.writes:
        raw = _raw(m, register)
        if raw is not None:
            undefined.note(m, register, np.where(bad, _ones(raw), np.zeros((), raw)), active)


def _whole_parts(sources: list[np.ndarray], size: int) -> np.ndarray:
    """All bits of each part of `size` bits in which one of the sources has undefined bits."""
    raw = sources[0].dtype
    part = raw.type((1 << size) - 1)
    some = functools.reduce(np.bitwise_or, sources)
    shifts = [raw.type(at) for at in range(0, 8 * raw.itemsize, size)]
    return functools.reduce(np.bitwise_or, [np.where(some >> shift & part, part << shift, raw.type(0)) for shift in shifts])


def _with(m, op: Op, touched: list[int], ones: bool) -> _Registers:
    """The results, with the undefined bits of the sources all zero or all one."""
    view = _Registers(m.regs)
    for register in touched:
        bits = m.undefined.bits[register]
        real = m.regs[register].view(bits.dtype)
        view[register] = (real | bits if ones else real & ~bits).view(m.regs[register].dtype)
    _run(m, op, view)
    return view


def _run(m, op: Op, view: _Registers, memory: _Elsewhere | None = None, **shadows: ThreadMemory | SharedMemory) -> None:
    """Run an instruction's closures on other registers, and tell nobody. memory, shadows: in place of the machine's own."""
    with _aside(m):
        m.regs, m.checks, m.findings, m.watching = view, Observer(), Findings(False), False
        if memory is not None:
            m.memory = memory
            m.params, m.local = shadows.get("params", m.params), shadows.get("local", m.local)
            m.shared = shadows.get("shared", m.shared)
        with contextlib.suppress(RunError):  # the instruction itself will say so
            for step in op.steps:
                step(m)


@contextlib.contextmanager
def _aside(m) -> Iterator[None]:
    """The machine may be changed inside; afterwards it is as it was, as far as an instruction can change it."""
    regs, mask, polls = m.regs, m.mask, m.polls
    memories = m.params, m.local, m.shared, m.memory
    told = m.checks, m.findings, m.watching
    try:
        yield
    finally:
        m.regs, m.mask, m.polls = regs, mask, polls
        m.params, m.local, m.shared, m.memory = memories
        m.checks, m.findings, m.watching = told


def _follow(m, op: Op, data: tuple[int, ...], active) -> None:
    """Load or store the undefined bits of memory as the instruction loads or stores the values."""
    undefined = m.undefined
    view = _Registers(m.regs)
    for register in data:
        raw = _raw(m, register)
        bits = undefined.bits.get(register)
        view[register] = (m.uniform(0, raw) if bits is None else bits).view(m.regs[register].dtype)
    spaces = {"params": "param", "local": "local", "shared": "shared"}
    reached = spaces_of(op.sites[0])
    memory = {name: undefined.shadow(m, space) for name, space in spaces.items() if space in reached}
    _run(m, op, view, memory=_Elsewhere(), **memory)
    for register in op.writes:
        if register in view:
            undefined.note(m, register, view[register].view(_raw(m, register)), active)


def _outside(m, op: Op, active) -> np.ndarray | None:
    """Of the active threads, those whose access goes to device memory."""
    site = op.sites[0]
    if not site.generic or site.base is None:
        return active
    address = m.regs[site.base].view(np.int64) + site.address.offset
    far = (address < PARAM_WINDOW - WINDOW_REACH) | (address >= SHARED_WINDOW + WINDOW_REACH)
    return far if active is None else far & active


def _to_plain_arrays(m, site: Site) -> np.ndarray:
    """Whose access goes to an array of numbers: there is nothing in it that only fills up a struct."""
    if site.base is None:
        return np.zeros((1,) * m.nd, bool)
    offsets = m.regs[site.base].view(np.int64) + (site.address.offset - DEVICE_BASE)
    plain = np.zeros(offsets.shape, bool)
    for argument in m.memory.arguments:
        if argument.name in m.launch.plain:
            plain |= (offsets >= argument.base) & (offsets < argument.base + argument.array.nbytes)
    return plain


def _seen(m, op: Op, registers, active, what: str, filler: bool = False) -> None:
    """Report the active threads for which undefined bits of these registers decide something, and take the bits for defined.

    filler: as for `unwritten.note`.
    """
    fine: set[int] = set()  # arrays, by their id, that have no such bits
    for register in registers:
        bits = m.undefined.bits.get(register)
        if bits is None or id(bits) in fine:
            continue
        bad = bits != 0 if active is None else (bits != 0) & active
        if not bad.any():
            fine.add(id(bits))
        else:
            unwritten.note(m, op, register, bad, what, filler)
            m.undefined.note(m, register, None, bad)
