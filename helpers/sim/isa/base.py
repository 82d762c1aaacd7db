"""What every instruction family shares: the registry, operand binding, masks and guards.

Registers of the running machine are `m.regs`, a list of arrays that broadcast to the lanes' shape. `m.mask` is None when
all threads of the chunk take part, else a boolean array that broadcasts in the same way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from helpers.errors import RunError
from helpers.sim.code.lines import calls_outwards
from helpers.sim.code.program import Effect, Guard, Op, ResultKind, Results
from helpers.sim.code.ptx import SINK, Address, Immediate, Instruction, Negated, Pair, Register, Symbol, Vector
from helpers.sim.code.sites import AccessKind, CostRule, Site, rule_of

# How values of each PTX type are kept. bfloat16 and packed types are kept as bit patterns.
DTYPES = {
    "pred": np.dtype(np.bool_),
    "b8": np.dtype(np.uint8), "u8": np.dtype(np.uint8), "s8": np.dtype(np.int8),
    "b16": np.dtype(np.uint16), "u16": np.dtype(np.uint16), "s16": np.dtype(np.int16),
    "b32": np.dtype(np.uint32), "u32": np.dtype(np.uint32), "s32": np.dtype(np.int32),
    "b64": np.dtype(np.uint64), "u64": np.dtype(np.uint64), "s64": np.dtype(np.int64),
    "f16": np.dtype(np.float16), "bf16": np.dtype(np.uint16), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
    "f16x2": np.dtype(np.uint32), "bf16x2": np.dtype(np.uint32), "tf32": np.dtype(np.uint32), "f32x2": np.dtype(np.uint64),
    "u16x2": np.dtype(np.uint32), "s16x2": np.dtype(np.uint32),
    "e4m3": np.dtype(np.uint8), "e5m2": np.dtype(np.uint8), "e4m3x2": np.dtype(np.uint16), "e5m2x2": np.dtype(np.uint16),
    "b128": np.dtype([("low", np.uint64), ("high", np.uint64)]),
}  # fmt: skip
BYTES_OF_DTYPE = {kind: dtype.itemsize for kind, dtype in DTYPES.items()}
SIGNED = frozenset({"s8", "s16", "s32", "s64"})
INTEGERS = frozenset({"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"})

# Modifiers for `Binding.without_effect`, by why they change nothing in the handlers that name them.
ALIGNED = ("sync", "aligned")  # that threads of a warp come together is said by `rendezvous`, and checked there
SCOPES = ("cta", "cluster", "gpu", "sys")  # memory is in order; what a scope means to findings is read by name
CACHING = (
    "ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc", "L2::64B", "L2::128B", "L2::256B",
    *(f"{level}::{what}" for level in ("L1", "L2") for what in ("evict_first", "evict_last", "evict_normal", "evict_unchanged")),
    "L1::no_allocate",
)  # fmt: skip


@dataclass(frozen=True)
class SpecialRegister:
    """type: PTX type. varies: from 'launch' to launch only, or by 'block', 'warp' or 'lane', too."""

    type: str
    varies: str


def _special(varies: str, types: dict[str, str]) -> dict[str, SpecialRegister]:
    return {name: SpecialRegister(kind, varies) for name, kind in types.items()}


# Special registers that the machine fills in before a chunk starts; clocks are instructions (see move.py).
SPECIAL_REGISTERS = {
    **_special("lane", {
        **{f"%tid.{axis}": "u32" for axis in "xyz"}, "%laneid": "u32",
        "%lanemask_eq": "u32", "%lanemask_le": "u32", "%lanemask_lt": "u32", "%lanemask_ge": "u32", "%lanemask_gt": "u32",
    }),
    **_special("warp", {
        "%warpid": "u32", "%clock": "u32", "%clock_hi": "u32", "%clock64": "u64",
        "%globaltimer": "u64", "%globaltimer_lo": "u32", "%globaltimer_hi": "u32",
    }),
    **_special("block", {
        **{f"%{name}.{axis}": "u32" for name in ("ctaid", "clusterid", "cluster_ctaid") for axis in "xyz"},
        "%cluster_ctarank": "u32", "%smid": "u32",
    }),
    **_special("launch", {
        **{f"%{name}.{axis}": "u32" for name in ("ntid", "nctaid", "nclusterid", "cluster_nctaid") for axis in "xyz"},
        "%cluster_nctarank": "u32", "%is_explicit_cluster": "pred", "%nwarpid": "u32", "%nsmid": "u32", "%gridid": "u64",
        "%dynamic_smem_size": "u32", "%total_smem_size": "u32", "%aggr_smem_size": "u32",
        **{f"%envreg{i}": "b32" for i in range(32)},
    }),
}  # fmt: skip


@dataclass(frozen=True)
class Example:
    """One form of an instruction with an independent reference.

    opcode: full PTX opcode. sources, result: PTX types (by default the opcode's last type everywhere). reference:
    function of exact Python numbers, one per source, giving the exact result, which the test wraps (integers) or rounds
    (floats, `rounding`). values: source tuples to use instead of the edge cases. template: PTX text with {d}, {a}, {b}…
    where the operands are not simply "d, a, b, …". tolerance: largest relative error, for approximations.
    """

    opcode: str
    reference: Callable
    sources: tuple[str, ...]
    result: str
    values: Sequence[tuple] | None = None
    template: str | None = None
    rounding: str = "rn"
    tolerance: float = 0.0
    arch: str = "sm_90"


REGISTRY: dict[str, list[tuple[frozenset[str] | None, Callable[[Binding], Callable | None]]]] = {}
EXAMPLES: list[Example] = []
FINISHERS: list[Callable] = []


def instruction(opcode: str, types=None):
    """Register the handler of every instruction whose opcode begins with `opcode` (the longest match wins).

    types: the PTX types (of the opcode's last one) it is for, where integers and floats have handlers of their own.
    """

    def register(handler):
        kinds = None if types is None else frozenset(types)
        handlers = REGISTRY.setdefault(opcode, [])
        again = [pair for pair in handlers if pair[0] == kinds and _name(pair[1]) == _name(handler)]
        for pair in again:  # its file is imported anew, because an error ended its import: that one shall be seen
            handlers.remove(pair)
        if any(other is None or kinds is None or other & kinds for other, _ in handlers):
            raise ValueError(f"{opcode} has two handlers")
        handlers.append((kinds, handler))
        return handler

    return register


def _name(function: Callable) -> tuple[str, str]:
    return function.__module__, function.__qualname__


def finisher(function):
    """Register a function of all bindings of a kernel, which may add closures to them."""
    FINISHERS.append(function)
    return function


@functools.lru_cache(maxsize=4096)
def _parts(opcode: str) -> tuple[tuple[str, ...], frozenset[str], tuple[str, ...]]:
    """What an opcode consists of, its modifiers, and the types among them."""
    parts = tuple(opcode.split("."))
    return parts, frozenset(parts[1:]), tuple(part for part in parts[1:] if part in DTYPES)


def example(opcode, *, reference, sources=None, result=None, arity=None, **more):
    """Attach an example to the handler below. `arity`: number of sources, by default that of `reference`.

    Raises TypeError for a reference that does not tell it, as built-in functions do not.
    """
    if not (arity or hasattr(reference, "__code__")):
        raise TypeError(f"The example of {opcode} has a built-in function as its reference: write lambda a, b: …, or say arity=….")
    *_, types = _parts(opcode)
    result = result or types[0 if len(types) > 1 else -1]
    count = arity or reference.__code__.co_argcount
    sources = tuple(sources) if sources else (types[-1],) * count

    def attach(handler):
        EXAMPLES.append(Example(opcode, reference, sources, result, **more))
        return handler

    return attach


@functools.lru_cache(maxsize=4096)
def handler_of(opcode: str):
    """The handler for an opcode and how many of its parts the handler is registered by, or None and 0."""
    parts, _, types = _parts(opcode)
    last = types[-1] if types else None
    for count in range(len(parts), 0, -1):
        for kinds, handler in REGISTRY.get(".".join(parts[:count]), ()):
            if kinds is None or last in kinds:
                return handler, count
    return None, 0


def bind(loader, instruction: Instruction, position: int) -> Binding:
    """Bind one instruction to its operands. Raises RunError for one that has no handler, or whose handler does not read all of it."""
    op = Binding(loader, instruction, position)
    handler, count = handler_of(instruction.opcode)
    if handler is None:
        op.unknown()
    op.run = handler(op)
    op.must_be_read(count)
    return op


@dataclass(frozen=True)
class Jump:
    """The terminator of an unconditional branch."""

    label: str


class Binding:
    """One instruction while it is being bound: what its handler is given, and what becomes an `Op` (see `finished`).

    The handler reads operands through `source`, `result` and their like, which return register indices and note what is
    read and written. `before` and `after` hold small closures that unpack or repack operands around the main one.
    It reads modifiers through `has`, `one_of`, `those`, `type` and `types`. An instruction with a modifier or an operand that it has
    not read is refused, so that none is silently run as another; what changes nothing is named in `without_effect`.
    """

    def __init__(self, loader, instruction: Instruction, position: int):
        self.loader, self.instruction, self.position = loader, instruction, position
        self.parts, self.modifiers, self._types = _parts(instruction.opcode)
        self.name = self.parts[0]
        self.operands = instruction.operands
        self._read: set[str] = set()  # modifiers
        self._used: set[int] = set()  # operands
        self.guard: Guard | None = loader.guard(instruction)
        self.reads: list[int] = []
        self.writes: list[int] = []
        self.before: list[Callable] = []
        self.after: list[Callable] = []
        self.counters: list[str] = []
        self.sites: list[Site] = []
        self.opclass = ""
        self.effect: Effect | None = None  # None: what the rest says, see `_effect`
        self.results: Results | None = None
        self.value = ResultKind.OTHER
        self.terminator = None
        self.targets: tuple[str, ...] = ()
        self.falls_through = True
        self.whole_block = False  # a barrier of all threads of the block
        self.rendezvous = 0  # warps that must come together: 1, or 4 for a warpgroup
        self.members: int | None = None  # register with the mask of the lanes that must come; None: all
        self.held: tuple[int, ...] = ()  # registers that it goes on using when it has been executed
        self.lands = False  # data of asynchronous copies may reach shared memory here
        self.orders = "cta" not in self.modifiers and not self.modifiers.isdisjoint(("acquire", "release", "acq_rel"))
        self.merges = False  # leaves the results of threads that take no part as they are
        self.bitwise = False  # a bit of the sources matters to a few bits of the results alone
        self.shuffles = False  # each lane gets a register of another
        self.apart = 0  # bits of each part of a packed value, which is computed from the same parts of the sources alone
        self.addend: tuple[int, tuple[int, ...]] | None = None  # (predicate, registers that are read only where it is set)
        self.run: Callable | None = None

    def finished(self, place: Callable[[str], int]) -> Op:
        """What is now known of the instruction. place: the position of a label."""
        guard = self.guard
        reads = self.reads if guard is None else [*self.reads, guard.register]
        steps, masked = closures(self, guard) if self.terminator is None else (self.before, self.before)
        return Op(
            position=self.position, instruction=self.instruction, guard=guard, reads=tuple(dict.fromkeys(reads)),
            sources=tuple(self.reads),
            writes=tuple(dict.fromkeys(self.writes)), sites=tuple(self.sites), effect=self._effect(), results=self._results(),
            value=self.value, steps=tuple(steps), masked=tuple(masked), ends_block=self.terminator is not None,
            targets=tuple(map(place, self.targets)), falls_through=self.falls_through,
            rendezvous=int(self.rendezvous), members=self.members, whole_block=self.whole_block, lands=self.lands,
            orders=self.orders, counters=tuple(self.counters), opclass=self.opclass,
            bitwise=self.bitwise, shuffles=self.shuffles, apart=self.apart, addend=self.addend,
        )  # fmt: skip

    def _effect(self) -> Effect:
        if self.effect is not None:
            return self.effect
        kinds = {site.op for site in self.sites}
        if any(kind.atomic for kind in kinds):
            return Effect.ATOMIC
        if kinds & {AccessKind.COPY, AccessKind.BULK_LOAD, AccessKind.BULK_STORE}:
            return Effect.COPY
        if any(kind.changes for kind in kinds):
            return Effect.STORE
        if kinds and all(kind.only_reads for kind in kinds):
            return Effect.LOAD
        return Effect.MACHINE

    def _results(self) -> Results:
        if self.results is not None:
            return self.results
        if self.rendezvous or any(site.op.atomic or site.space == "local" for site in self.sites):
            return Results.PER_LANE
        return Results.LIKE_SOURCES

    def pure(self) -> None:
        """Each thread's results depend on its own sources and nothing else. `lanewise` says so itself."""
        self.effect = Effect.PURE

    # ------------------------------------------------------------------------------------------- about the opcode

    @property
    def type(self) -> str:
        """The last type in the opcode."""
        if not self._types:
            self.unknown()  # another instruction, whose name begins like one that is known: st.bulk
        self._read.add(self._types[-1])
        return self._types[-1]

    @property
    def types(self) -> tuple[str, ...]:
        """All types in the opcode."""
        self._read.update(self._types)
        return self._types

    @property
    def line(self) -> int | None:
        return self.instruction.line

    def has(self, *names: str) -> bool:
        self._read.update(names)
        return not self.modifiers.isdisjoint(names)

    def those(self, wanted: Callable[[str], bool]) -> list[str]:
        """The modifiers that `wanted` is true of, in the opcode's order."""
        found = [part for part in self.parts[1:] if wanted(part)]
        self._read.update(found)
        return found

    def without_effect(self, *names: str) -> None:
        """These modifiers are allowed, and change nothing that the machine computes, counts or checks."""
        self._read.update(names)

    def cached(self) -> int:
        """Allow what is said to caches, a policy as the last operand too. The number of the other operands."""
        self.without_effect(*CACHING)
        count = len(self.operands)
        if self.has("L2::cache_hint"):
            count -= 1
            self._used.add(count)
        return count

    def hint(self) -> None:
        """The whole instruction changes nothing, whatever its modifiers and operands are."""
        self._read.update(self.modifiers)
        self._used.update(range(len(self.operands)))

    def must_be_read(self, count: int) -> None:
        """Raises RunError for a modifier behind the first `count` parts of the opcode, or an operand, that nobody has read."""
        if not self.modifiers <= self._read:
            chosen_by = self._types[-1:]
            for part in self.parts[count:]:
                if part not in self._read and part not in chosen_by:
                    self.unknown(f".{part}")
        if len(self._used) < len(self.operands):
            extra = next(i for i in range(len(self.operands)) if i not in self._used)
            self.unknown(f"operand {extra + 1}")

    def one_of(self, *names: str, default: str | None = None) -> str:
        """The modifier that is present, of several that exclude each other."""
        self._read.update(names)
        for name in names:
            if name in self.modifiers:
                return name
        if default is None:
            self.fail(f"needs one of .{', .'.join(names)}")
        return default

    def fail(self, why: str):
        i = self.instruction
        raise RunError(f"{i.place}: `{i.text}` {why}.", i.line)

    def unknown(self, part: str = ""):
        """Refuse the instruction; `part` names what of it is not known."""
        i = self.instruction
        raise RunError(f"{i.place}: the machine does not know {part and f'{part} of '}the instruction `{i.text}`.", i.line)

    def site(
        self,
        space: str,
        kind: AccessKind,
        width: int,
        rule: CostRule | None = None,
        at: int | None = None,
        device: int | None = None,
        **more,
    ) -> Site:
        """Note a memory access of `width` bytes per lane. rule: how it is charged, where kind and space do not say it.
        at: the operand that is its address, by default the first in brackets. device: the one that is a bulk copy's in device memory.
        more: further fields of the `Site`."""
        i, sites = self.instruction, self.loader.sites
        where = self.operands if at is None else self.operands[at : at + 1]
        address = next((operand for operand in where if isinstance(operand, Address)), None)
        rule, base = rule or rule_of(kind, space), self._base(address)
        if device is not None:
            more["device"] = self.operands[device]
            more["device_base"] = self._base(more["device"])
        more |= {"call": self.loader.calls.get(i.ptx_line), "calls": calls_outwards(self.loader.chains, i.ptx_line, i.called_from)}
        site = Site(len(sites), self.position, i.line, space, kind, width, i.text, i.ptx_line, rule, address, base, **more)
        sites.append(site)
        self.sites.append(site)
        return site

    def _base(self, address) -> int | None:
        """The register of an address, if it has one."""
        return self._register(address.base.name) if isinstance(address, Address) and isinstance(address.base, Register) else None

    def count(self, op: str) -> None:
        """Count the threads that execute this instruction as arithmetic of kind `op`: 'ffma', 'fadd', 'fmul'."""
        self.counters.append(op)

    # --------------------------------------------------------------------------------------------------- operands

    def operand(self, i: int):
        if i >= len(self.operands):
            self.fail(f"has {len(self.operands)} operands; operand {i + 1} is missing")
        self._used.add(i)
        return self.operands[i]

    def temporary(self, kind: str) -> int:
        return self.loader.new(kind)

    def source(self, i: int, kind: str) -> int:
        """Index of the register that holds operand i as PTX type `kind`; wider registers are cut down to it."""
        return self.bind(self.operand(i), kind)

    def bind(self, operand, kind: str) -> int:
        """`source` for an operand given directly."""
        loader = self.loader
        match operand:
            case Immediate():
                return loader.constant(operand, kind)
            case Register(name):
                index = self._register(name)
                self.reads.append(index)
                return self._narrowed(index, kind)
            case Negated(inner):
                index = self.bind(inner, "pred")
                inverted = self.temporary("pred")

                def invert(m):
                    m.regs[inverted] = ~m.regs[index]

                self.before.append(invert)
                return inverted
            case Vector(items):
                return self._packed(items, kind)
            case Symbol(name, _):
                self.fail(f"refers to {name}, which is not declared")
        self.fail("has an operand the machine cannot read")

    def _register(self, name: str) -> int:
        try:
            return self.loader.register(name)
        except KeyError:
            if name.startswith("%reserved_smem_offset"):
                self.fail(
                    "belongs to a tile of more than one warp (tiled_partition<64> and larger), and such tiles are not simulated: "
                    "take one of at most 32 threads"
                )
            whole, dot, part = name.partition(".")
            if dot and whole in self.loader.register_types:
                self.fail(f"has the operand {name}: the machine does not know operands that choose parts (.{part}) of a register")
            self.fail(f"has the operand {name}, which is no register of the kernel and no special register that the machine has")

    def _narrowed(self, index: int, kind: str) -> int:
        have, want = self.loader.types[index], kind
        if BYTES_OF_DTYPE[have] <= BYTES_OF_DTYPE[want]:
            if BYTES_OF_DTYPE[have] < BYTES_OF_DTYPE[want]:
                self.fail(f"reads a .{have} register as .{want}")
            return index
        narrow, dtype = self.temporary(kind), DTYPES[kind]
        unsigned, wide = np.dtype(f"u{dtype.itemsize}"), np.dtype(f"u{BYTES_OF_DTYPE[have]}")

        def cut(m):
            m.regs[narrow] = m.regs[index].view(wide).astype(unsigned).view(dtype)

        self.before.append(cut)
        return narrow

    def _packed(self, items, kind: str) -> int:
        """`{a, b}` as one value, the first item in the low bits."""
        dtype = DTYPES[kind]
        width = BYTES_OF_DTYPE[kind] // len(items)
        part = np.dtype(f"u{width}")
        sources = [self.bind(item, f"b{width * 8}") for item in items]
        whole = self.temporary(kind)
        unsigned = np.dtype(f"u{dtype.itemsize}") if dtype.itemsize <= 8 else None
        if unsigned is None:

            def pack128(m):
                low, high = (m.regs[s].view(np.uint64) for s in sources)
                shape = np.broadcast_shapes(low.shape, high.shape)
                value = np.empty(shape, dtype)
                value["low"], value["high"] = low, high
                m.regs[whole] = value

            self.before.append(pack128)
            return whole

        def pack(m):
            value = m.regs[sources[0]].view(part).astype(unsigned)
            for i, source in enumerate(sources[1:], 1):
                value = value | (m.regs[source].view(part).astype(unsigned) << unsigned.type(8 * width * i))
            m.regs[whole] = value.view(dtype)

        self.before.append(pack)
        return whole

    def predicate(self, i: int) -> int:
        """Operand i as a predicate; `!p` works."""
        return self.source(i, "pred")

    def result(self, i: int, kind: str) -> int:
        """Index of the register that receives a result of PTX type `kind`; wider registers are extended."""
        return self.target(self.operand(i), kind)

    def target(self, operand, kind: str) -> int:
        """`result` for an operand given directly."""
        if operand is SINK or operand == SINK:
            return self.temporary(kind)
        if isinstance(operand, Vector):
            return self._unpacked(operand.items, kind)
        if not isinstance(operand, Register):
            self.fail("has a result that is not a register")
        index = self._register(operand.name)
        self.writes.append(index)
        have = self.loader.types[index]
        if BYTES_OF_DTYPE[have] == BYTES_OF_DTYPE[kind]:
            return index
        if BYTES_OF_DTYPE[have] < BYTES_OF_DTYPE[kind]:
            self.fail(f"writes .{kind} to a .{have} register")
        narrow = self.temporary(kind)
        size, dtype = BYTES_OF_DTYPE[have], DTYPES[kind]
        wide = np.dtype(f"{'i' if kind in SIGNED else 'u'}{size}")
        raw = np.dtype(f"{'i' if kind in SIGNED else 'u'}{dtype.itemsize}")

        def extend(m):
            m.regs[index] = m.regs[narrow].view(raw).astype(wide)

        self.after.append(extend)
        return narrow

    def _unpacked(self, items, kind: str) -> int:
        width = BYTES_OF_DTYPE[kind] // len(items)
        whole = self.temporary(kind)
        position = len(self.after)  # `target` may add closures that widen the parts: they come after the parts exist
        targets = [self.target(item, f"b{width * 8}") for item in items]
        part = np.dtype(f"u{width}")
        unsigned = np.dtype(f"u{BYTES_OF_DTYPE[kind]}") if BYTES_OF_DTYPE[kind] <= 8 else None

        def unpack(m):
            if unsigned is None:
                value = m.regs[whole]
                m.regs[targets[0]], m.regs[targets[1]] = value["low"].copy(), value["high"].copy()
                return
            value = m.regs[whole].view(unsigned)
            for i, target in enumerate(targets):
                m.regs[target] = (value >> unsigned.type(8 * width * i)).astype(part)

        self.after.insert(position, unpack)
        return whole

    def pair(self, i: int, first: str, second: str) -> tuple[int, int | None]:
        """Results `d|p`, or `d` alone."""
        operand = self.operand(i)
        if isinstance(operand, Pair):
            return self.target(operand.first, first), self.target(operand.second, second)
        return self.target(operand, first), None

    def vector(self, i: int) -> tuple:
        """The items of `{a, b, …}`, or the operand alone."""
        operand = self.operand(i)
        return operand.items if isinstance(operand, Vector) else (operand,)

    def address(self, i: int) -> tuple[int | None, int]:
        """`[base + offset]` as (register index, offset); the index is None for a constant address."""
        operand = self.operand(i)
        if not isinstance(operand, Address):
            self.fail("needs an address in brackets")
        match operand.base:
            case Immediate(value):
                return None, int(value) + operand.offset
            case Register(name):
                index = self._register(name)
                self.reads.append(index)
                return index, operand.offset
        self.fail(f"refers to {getattr(operand.base, 'name', operand.base)}, which is not declared")

    def immediate(self, i: int, default: int | None = None) -> int:
        """Operand i, which must be a literal."""
        if i >= len(self.operands) and default is not None:
            return default
        operand = self.operand(i)
        if not isinstance(operand, Immediate):
            self.fail(f"needs a literal as operand {i + 1}")
        return int(operand.value)

    # ------------------------------------------------------------------------------------------------ the closures

    def lanewise(self, meaning: Callable, result: str, sources: Sequence[str], first: int = 1) -> Callable:
        """A closure that applies `meaning` to each thread's values.

        result: PTX type of operand 0; sources: PTX types of operands `first`, `first` + 1, …
        """
        self.pure()
        if result.endswith("x2") and set(sources) == {result}:
            self.apart = 4 * DTYPES[result].itemsize
        indices = [self.source(first + i, kind) for i, kind in enumerate(sources)]
        target = self.result(0, result)
        return apply(meaning, target, DTYPES[result], indices, [DTYPES[kind] for kind in sources])


def apply(meaning, d: int, result, indices: Sequence[int], dtypes: Sequence) -> Callable:
    """regs[d] = meaning(regs[a] as dtype, …). Written out by arity, because this is the machine's innermost call."""
    if len(indices) == 1:
        (a,), (ta,) = indices, dtypes

        def run1(m):
            regs = m.regs
            x = regs[a]
            if x.dtype is not ta:
                x = x.view(ta)
            regs[d] = meaning(x)

        return run1
    if len(indices) == 2:
        (a, b), (ta, tb) = indices, dtypes

        def run2(m):
            regs = m.regs
            x = regs[a]
            if x.dtype is not ta:
                x = x.view(ta)
            y = regs[b]
            if y.dtype is not tb:
                y = y.view(tb)
            regs[d] = meaning(x, y)

        return run2
    if len(indices) == 3:
        (a, b, c), (ta, tb, tc) = indices, dtypes

        def run3(m):
            regs = m.regs
            x = regs[a]
            if x.dtype is not ta:
                x = x.view(ta)
            y = regs[b]
            if y.dtype is not tb:
                y = y.view(tb)
            z = regs[c]
            if z.dtype is not tc:
                z = z.view(tc)
            regs[d] = meaning(x, y, z)

        return run3
    pairs = tuple(zip(indices, dtypes, strict=True))

    def run(m):
        regs = m.regs
        regs[d] = meaning(*[regs[i] if regs[i].dtype is t else regs[i].view(t) for i, t in pairs])

    return run


# --- masks and guards ------------------------------------------------------------------------------------------------


def merge(mask, new, old):
    """`new` where the mask is set, else `old`."""
    if new is old:
        return new
    if old.dtype is not new.dtype:
        old = old.view(new.dtype)
    return np.where(mask, new, old)


def closures(op: Binding, guard: Guard | None) -> tuple[list[Callable], list[Callable]]:
    """The closures of an ordinary instruction: (all threads together, some threads)."""
    steps = [step for step in (*op.before, op.run, *op.after) if step is not None]
    if not steps:
        return [], []
    if guard is not None:
        both = _guarded(steps, op.writes, guard, op.counters, op.line)
        return [both], [both]
    return steps, [_masked(steps, op.writes)] if op.writes and not op.merges else steps


def _masked(steps, writes):
    """Keep the old values of threads that wait elsewhere, if they may still read them."""
    if len(steps) == 1 and len(writes) == 1:
        (run,), (d,) = steps, writes
        bit = 1 << d

        def masked1(m):
            if m.protected & bit:
                regs = m.regs
                old = regs[d]
                run(m)
                regs[d] = merge(m.mask, regs[d], old)
            else:
                run(m)

        return masked1

    def masked(m):
        regs, protected = m.regs, m.protected
        kept = [(d, regs[d]) for d in writes if protected >> d & 1]
        for run in steps:
            run(m)
        for d, old in kept:
            regs[d] = merge(m.mask, regs[d], old)

    return masked


def _guarded(steps, writes, guard, counters, line):
    p, negated = guard
    bystanders = tuple(writes)

    def guarded(m):
        regs = m.regs
        on = regs[p]
        if on.size == 1:
            if bool(on.item()) == negated:
                return
            active = m.mask
        else:
            on = ~on if negated else on
            active = on if m.mask is None else on & m.mask
            if not active.any():
                return
        whole = m.mask
        kept = [(d, regs[d]) for d in bystanders]
        m.mask = active
        try:
            for run in steps:
                run(m)
        finally:
            m.mask = whole
        if active is not None:
            for d, old in kept:
                regs[d] = merge(active, regs[d], old)
        for counter in counters:
            m.count_threads(line, counter, active)

    return guarded


# --- terminators -----------------------------------------------------------------------------------------------------
# A block's end is called with the machine and returns where its threads go: a block index, a list of (block index, mask)
# when they part, or None when it has parked them itself.


def end_of(op: Binding, place: Callable[[str], int], following: int) -> Callable:
    """The end of a block whose last instruction this is. place: the block of a label. following: the next block."""
    if isinstance(op.terminator, Jump):
        target = place(op.terminator.label)
        return jump_to(target) if op.guard is None else branch(*op.guard, target, following)
    end = op.terminator(place, following)
    return end if op.guard is None else guarded_end(*op.guard, end, following)  # those whose guard is off step over it


def jump_to(target: int) -> Callable:
    def end(m):
        return target

    return end


def branch(p: int, negated: bool, taken: int, following: int) -> Callable:
    """Threads whose predicate is set go to `taken`, the others to `following`."""
    if negated:
        taken, following = following, taken

    def end(m):
        on = m.regs[p]
        if on.size == 1:
            return taken if on.item() else following
        mask = m.mask
        go = on if mask is None else on & mask
        if not go.any():
            return following
        stay = ~on if mask is None else ~on & mask
        if not stay.any():
            return taken
        return [(taken, go), (following, stay)]

    return end


def guarded_end(p: int, negated: bool, end: Callable, following: int) -> Callable:
    """Apply a terminator to the threads whose guard is on; the others go to `following`."""

    def guarded(m):
        on = m.regs[p]
        if negated:
            on = ~on
        if on.size == 1:
            return end(m) if on.item() else following
        mask = m.mask
        go = on if mask is None else on & mask
        stay = ~on if mask is None else ~on & mask
        if not go.any():
            return following
        if not stay.any():
            return end(m)
        m.mask = go
        where = end(m)
        m.mask = mask
        if where is None:
            return [(following, stay)]
        parts = [(where, go)] if isinstance(where, int) else list(where)
        return [*parts, (following, stay)]

    return guarded
