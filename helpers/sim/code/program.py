"""A kernel ready to run, and what is known of each of its instructions.

The loader (`load.py`) makes it from PTX and the instruction set. An `Op` says once what one instruction is: what it reads
and writes, which memory it accesses and how that is charged, what else it does. Engines, counters, checks and pictures
read it, and none of them looks at names of opcodes to find out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import ptx
from .addresses import DEVICE_BASE
from .lines import calls_outwards
from .sites import AccessKind, Site

if TYPE_CHECKING:
    from .doubts import Doubts


class Effect(StrEnum):
    """What an instruction does apart from writing registers."""

    PURE = "pure"  # nothing: each thread's results depend on its own sources alone
    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    COPY = "copy"  # begins, groups or waits for asynchronous copies
    EXCHANGE = "exchange"  # threads see each other's registers
    BARRIER = "barrier"  # threads wait for each other
    FENCE = "fence"
    JUMP = "jump"
    END = "end"  # of the thread
    MACHINE = "machine"  # anything else: it needs the machine itself

    @property
    def memory(self) -> bool:
        """Does it access memory, now or later?"""
        return self in (Effect.LOAD, Effect.STORE, Effect.ATOMIC, Effect.COPY)


class Results(StrEnum):
    """How the results of the lanes of a warp differ."""

    LIKE_SOURCES = "like sources"  # equal where the sources are
    PER_LANE = "per lane"
    PER_WARP = "per warp"  # all lanes that name the same members get the same, whatever they read


class ResultKind(StrEnum):
    """What the result is, for whoever follows addresses."""

    OTHER = "other"
    SUM = "sum"  # of the sources; of one source, a copy
    SAME_PLACE = "same place"  # the source, as an address of another space


class Guard(NamedTuple):
    """An instruction is for the threads whose predicate is set, or not set."""

    register: int
    negated: bool


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One instruction, bound. Registers are indices of `Program.types`.

    position: in `Program.ops`. reads, writes: registers; the guard's is among those read. sources: what its operands read, in their
    order. results: how lanes differ. value: what they are.
    steps, masked: closures that execute it, for all threads of a chunk together and for some of them. ends_block: it decides
    where the threads go next. targets: positions it may jump to, `len(ops)` for the end. falls_through: may the next instruction follow?
    rendezvous: warps that have to come together for it (0: none), of which `members` names the lanes (None: all). whole_block:
    it is a barrier of all threads of the block. lands: data of asynchronous copies may reach shared memory here. orders:
    other blocks may rely on the order of accesses before and after. counters: what its executed threads count as. opclass: its
    name in pictures of time. bitwise: what a bit of its sources is matters to a few bits of its results alone, as in a copy.
    shuffles: each lane gets a register of another.
    apart: bits of each part of a packed value, made of the same parts of the sources alone (0: it is one value).
    addend: (predicate, registers): these are read only where the predicate is set.
    """

    position: int
    instruction: ptx.Instruction
    guard: Guard | None
    reads: tuple[int, ...]
    sources: tuple[int, ...]
    writes: tuple[int, ...]
    sites: tuple[Site, ...]
    effect: Effect
    results: Results
    value: ResultKind
    steps: tuple[Callable, ...]
    masked: tuple[Callable, ...]
    ends_block: bool
    targets: tuple[int, ...]
    falls_through: bool
    rendezvous: int
    members: int | None
    whole_block: bool
    lands: bool
    orders: bool
    counters: tuple[str, ...]
    opclass: str
    bitwise: bool
    shuffles: bool
    apart: int
    addend: tuple[int, tuple[int, ...]] | None

    @property
    def opcode(self) -> str:
        return self.instruction.opcode

    @property
    def line(self) -> int | None:
        """The line of the reader's cell."""
        return self.instruction.line

    @property
    def ptx_line(self) -> int:
        return self.instruction.ptx_line

    @property
    def text(self) -> str:
        return self.instruction.text

    @property
    def generic(self) -> bool:
        """Does only the address tell which state space it accesses?"""
        return any(site.generic for site in self.sites)


@dataclass
class Block:
    """A basic block: straight code, then one terminator that says where the threads go.

    ops: positions. plain and masked are the closures for the two situations: all threads of the chunk together, or some of
    them. lines: how many instructions each line of the cell has here. counted: how many of them count under what.
    """

    index: int
    ops: range
    plain: list[Callable] = field(default_factory=list)
    masked: list[Callable] = field(default_factory=list)
    end: Callable | None = None
    lines: dict[int | None, int] = field(default_factory=dict)
    counted: dict[tuple[int | None, str], int] = field(default_factory=dict)
    line: int | None = None
    rendezvous: int = 0  # warps that must come together here
    members: int | None = None  # register that names their lanes; None: all
    watchers: dict[int, tuple[Callable, ...]] = field(default_factory=dict)  # by position: what comes before its closures
    leaves: bool = False  # threads that are here only end
    successors: tuple[int, ...] = ()
    live_in: int = 0

    @property
    def size(self) -> int:
        return len(self.ops)


class Image(NamedTuple):
    """What the variables of a program hold in device memory when a launch begins. It belongs to the launch: what is known of a program does
    not depend on it. addresses: (place, bytes, address) of pointers to other variables."""

    data: bytes
    addresses: tuple[tuple[int, int, int], ...] = ()


@dataclass(eq=False)
class Program:
    """An entry ready to run. Register indices are positions in the machine's register list."""

    name: str
    ops: tuple[Op, ...]  # in order, calls copied in
    blocks: list[Block]
    types: list[str]
    names: dict[int, str]  # of registers; the machine's own and constants have none
    constants: list[tuple[int, np.ndarray]]
    specials: list[tuple[int, str]]
    sites: tuple[Site, ...]
    parameters: list[tuple[ptx.Variable, int]]
    shared: list[tuple[str, int, int]]  # (name, address, bytes) of its variables; 0 bytes: what the launch gives
    shared_start: int  # address of the first
    dynamic_shared_at: int
    ungiven: list[tuple[str, int]]  # (name, alignment) of those that do not get the alignment they ask for
    aligned: dict[int, int]  # address of each: the alignment that it asks for
    local_bytes: int
    param_bytes: int
    device: list[tuple[str, int, int, str]]
    image: Image
    shared_granule: int
    uses: frozenset[str]
    line: int | None
    doubts: Doubts  # about values that nobody has written
    race_free: frozenset[int] = frozenset()  # sites that read what nobody can write between the same two barriers
    exchanged: int = 0  # registers (bits) that other lanes may read, wherever their own thread is
    grid_workspace: int = 0  # address of what this_grid().sync() counts in; 0: the kernel does not ask for it
    calls: Callable[[], Mapping[int, int]] = dict  # PTX line -> line of the cell that called the function it comes from
    chains: Callable[[], Mapping[int, Sequence[int]]] = dict  # PTX line -> its line of the cell, that of the call, and so on outwards
    header_at: Callable[[int], str] = lambda ptx_line: ""  # the function of a header that a PTX line comes from

    @functools.cached_property
    def calls_at(self) -> Mapping[int, tuple[int, ...]]:
        """By a line of the cell, the lines that call its function (see `calls_outwards`), where there is one way to it."""
        chains = self.chains()
        found: dict[int, set[tuple[int, ...]]] = {}
        for op in self.ops:
            if op.line is not None:
                found.setdefault(op.line, set()).add(calls_outwards(chains, op.ptx_line, op.instruction.called_from))
        return {line: next(iter(calls)) for line, calls in found.items() if len(calls) == 1}

    @functools.cached_property
    def decisive(self) -> frozenset[int]:
        """Sites whose values decide where threads go: see `decisions`."""
        from .decisions import decisive  # which is about ops

        return decisive(self.ops)

    @functools.cached_property
    def kept(self) -> frozenset[int]:
        """Sites of whose values something is made: see `decisions`."""
        from .decisions import kept

        return kept(self.ops)

    @functools.cached_property
    def undecisive(self) -> frozenset[int]:
        """Positions of instructions whose results decide nothing: see `decisions`."""
        from .decisions import undecisive

        return undecisive(self.ops)

    @functools.cached_property
    def unheeded_wait(self) -> int | None:
        """The first line that looks at an mbarrier and goes on whatever the answer is."""
        at_barriers = (op for op in self.ops if op.position in self.undecisive and any(site.op is AccessKind.BARRIER for site in op.sites))
        return next((op.line for op in at_barriers if self.types[op.writes[0]] == "pred"), None)

    @functools.cached_property
    def late_waits(self) -> frozenset[int]:
        """Positions of waits for copies that stand behind a barrier and should stand in front of it: see `late_waits`."""
        from .late_waits import late_waits

        return late_waits(self)

    @functools.cached_property
    def flag_stores(self) -> frozenset[int]:
        """Sites of volatile stores to flags in shared memory: see `flags`."""
        from .flags import stores_of_flags

        return stores_of_flags(self)

    @functools.cached_property
    def warp_barriers(self) -> bool:
        """Are there barriers of warps, which order accesses of shared memory?"""
        return any(op.effect is Effect.BARRIER and op.rendezvous for op in self.ops)

    @functools.cached_property
    def partial_barriers(self) -> bool:
        """Are there barriers of some threads of a block, or mbarriers?"""
        named = any(op.effect is Effect.BARRIER and not op.rendezvous and not op.whole_block for op in self.ops)
        return named or any(site.op is AccessKind.BARRIER_INIT for site in self.sites)

    def image_with(self, values: Iterable[tuple[str, bytes]], image: Image) -> Image:
        """This image with other values at the beginnings of these variables in device memory, by their names in the PTX."""
        data, addresses = bytearray(image.data), image.addresses
        places = {name: address - DEVICE_BASE for name, address, _, _ in self.device}
        for name, value in values:
            start = places[name]
            end = start + len(value)
            data[start:end] = value
            addresses = tuple(one for one in addresses if not start <= one[0] < end)
        return Image(bytes(data), addresses)

    @property
    def entry_bytes(self) -> int:
        """Bytes of the kernel's own parameters; behind them come those of the functions that it calls."""
        return max((at + variable.nbytes for variable, at in self.parameters), default=0)

    @property
    def exit(self) -> int:
        """The program counter of a thread that has ended."""
        return len(self.blocks)
