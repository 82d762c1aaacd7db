"""PTX of one kernel -> LLVM IR of one function that runs one warp.

Values. A uniform register is a scalar. A varying one is a vector of 32 lanes, and an integer one is kept as the sum of
a vector and a scalar (`Value.v` + `Value.s`): adding a loop counter then changes only the scalar, and everything that
depends on the vector alone (which pattern an access makes, its lowest and highest address) moves out of the loop.

Two modes. In U code all live lanes are together; a branch on a varying predicate that all lanes agree on stays there.
Otherwise the lanes enter a region's M code, where blocks run in layout order under a mask (lowest program counter
first, as in the NumPy machine), until all meet again. The caller of a warp gets 0 (ended), a barrier's number, or -1:
something happened (a bad address, a barrier in divergent code) that the NumPy machine must explain.

NaN. A GPU's float32 arithmetic gives 0x7fffffff; the CPU's gives other payloads. A value is made canonical where its
bits can be seen (a store, an integer use), not after every FMA; `nan_states` finds out which registers need it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from helpers.sim.checks.beyond_array import arrays_at
from helpers.sim.code import cfg
from helpers.sim.code.program import Effect, Program
from helpers.sim.code.ptx import TYPE_BYTES, Immediate, Negated, Register, Symbol, immediate_bits
from helpers.sim.code.sites import CostRule
from helpers.sim.counting.rules import TWO_SIDED

from .builder import Writer
from .declined import Unsupported
from .dispatch import HANDLERS
from .homes import BITS, Homes, fragments, slot
from .nans import nan_states, writes_others
from .offsets import CONTEXT, MEMO_BYTES, RECORD_BYTES, WARP_STATE
from .uniformity import Analysis, analyse, stepped_over

LLVM_TYPE = {"pred": "i1", "f32": "float", "f64": "double"}
IOTA = "<32 x i32> <" + ", ".join(f"i32 {i}" for i in range(32)) + ">"
_EACH_LANE = "<" + ", ".join(f"i32 {1 << i}" for i in range(32)) + ">"  # its bit in a mask
FULL = "-1"


def register_type(ptx: str) -> str:
    """LLVM type of a register declared with a PTX type."""
    if ptx in LLVM_TYPE:
        return LLVM_TYPE[ptx]
    if ptx == "b128":
        raise Unsupported("128-bit registers")
    return f"i{max(16, TYPE_BYTES[ptx] * 8)}"


@dataclass(frozen=True)
class Value:
    """uniform: `s` holds it. Varying: `v` + broadcast(`s`), where `s` may be None for nothing."""

    type: str
    s: str | None = None
    v: str | None = None

    @property
    def uniform(self) -> bool:
        return self.v is None


@dataclass(frozen=True)
class Record:
    """What the launcher must tell compiled code of an access. memo: slot in the counters, -1 for none. shift, code, bits: see
    `Charge`. granules, log, race: see `access._watch`."""

    position: int
    shared: bool
    memo: int = -1
    shift: int = 0
    code: int = 0
    bits: int = 0
    granules: int = 0
    log: int = 0
    race: bool = False
    local: bool = False


RULES = tuple(CostRule)


class Charge(NamedTuple):
    """How an access is counted. width: as `rules.cost` has it. shift: where the charged access begins, relative to the PTX's."""

    rule: CostRule
    width: int
    shift: int = 0

    @property
    def code(self) -> int:
        """Rule and width as compiled code passes them on."""
        return RULES.index(self.rule) << 8 | self.width

    @property
    def bits(self) -> int:
        """The bits of an address that matter to what the access costs, beside the lanes' distances."""
        return 127 if self.rule in TWO_SIDED else 31 if self.rule in (CostRule.GLOBAL, CostRule.ATOMIC) else 15


@dataclass(frozen=True)
class Lowered:
    """The IR ('' if the code was made before) and what the launcher must know to use it.

    records: one per access or group. memos: (position, number) of each counted access. count_of: for each instruction, the block
    of code that counts its executions, of `counts`. products: numbers of the matrix products (see `products.product`).
    calls: positions of the instructions that the NumPy machine executes (see `machine_calls`).
    """

    ir: str
    state_bytes: int
    records: tuple[Record, ...]
    memos: tuple[tuple[int, int], ...]
    count_of: tuple[int, ...]
    counts: int
    products: tuple[int, ...] = ()
    calls: tuple[int, ...] = ()


@dataclass(frozen=True)
class Options:
    """What the code is for.

    flags: (tid.x runs along the warp, tid.y and tid.z are the same within a warp). charges: (position, number among its
    accesses) of what is to be counted, and how; None for no counting. watching: (granule of shared memory in
    bytes, positions of loads that may race), None for no findings. owning: (granule of device memory, positions of
    accesses to arrays that the launch writes), None for no findings. fixed: (position, taken) of
    branches that always go one way. wide: the host has AVX-512, whose gathers are worth having in place. unwritten: values that
    nobody has written are to be noticed.
    """

    flags: tuple[bool, bool, bool] = (True, True, True)
    charges: tuple[tuple[tuple[int, int], Charge], ...] | None = None
    watching: tuple[int, frozenset[int]] | None = None
    owning: tuple[int, frozenset[int]] | None = None
    fixed: tuple[tuple[int, bool], ...] = ()
    wide: bool = True
    unwritten: bool = False


def lower(program: Program, options: Options) -> Lowered:
    """Raises Unsupported for what the engine leaves to the NumPy machine."""
    return _Lowering(program, options).run()


class _Lowering(Writer):
    def __init__(self, program: Program, options: Options):
        super().__init__()
        self.ops, self.options = program.ops, options
        self.param_bytes, self.shared_start = program.entry_bytes, program.shared_start
        self.arrays = arrays_at(program) if options.watching else {}  # position -> (start, end) of the one that is accessed there
        self.used = {name for _, name in program.specials}
        self.register_names = program.names
        self.kinds = {name: program.types[index] for index, name in program.names.items() if name not in self.used}
        self.counting, self.wide, self.watching = options.charges is not None, options.wide, options.watching
        self.charges = dict(options.charges or ())
        self.turns = bool(self.watching) and program.warp_barriers
        self.calls: list[int] = []
        self.products: dict[tuple[int, ...], int] = {}
        self.owning = options.owning or (1, frozenset())
        self.a: Analysis = analyse(program, *options.flags, options.fixed)
        self.types = {name: register_type(kind) for name, kind in self.kinds.items()}
        self.records: list[Record] = []
        self.memos: dict[tuple[int, int], int] = {}
        graph = [block.successors for block in self.a.blocks]
        self.looping = cfg.cycles(graph)
        self.tight = cfg.cycles([[] if block.end == "barrier" else block.successors for block in self.a.blocks])  # loops without barriers
        self.fails: list[tuple[str, int]] = []
        self.crossing = set().union(*(self.a.live_in[i] for i in self.a.reachable)) & set(self.types)
        self.dirty, self.eager = nan_states(program)
        self.doubts, self.decisive = program.doubts, program.decisive
        self.unwritten = {program.names[register] for register in self.doubts.registers}
        names = (program.names[register] for register in cfg.members(self.doubts.doubtful) if options.unwritten)
        self.doubtful = sorted(set(names) & set(self.types))
        self.barriers = [b for b in self.a.blocks if b.end == "barrier" and b.index in self.a.reachable]
        outliving = set().union(*(self.a.live_in[block.next] for block in self.barriers)) & set(self.types)
        self.homes = Homes(
            self.types, self.a.varying, self.crossing, outliving, self.unwritten, self.doubtful,
            fragments(program, [name for name in self.a.varying if self.types.get(name) in ("i32", "float")]),
        )  # fmt: skip
        writes = Counter(register for op in self.ops for register in op.writes)
        self.written_once = {program.names.get(register, "") for register, times in writes.items() if times == 1}
        self.fresh: frozenset[str] = frozenset()  # of these, in M code
        self.loaded = ""  # lanes for which the last load from local memory found something unwritten

    # ----------------------------------------------------------------------------------------------------- values

    def splat(self, type_: str, scalar: str) -> str:
        if not scalar.startswith("%"):
            if scalar in ("zeroinitializer", "0", "false"):
                return "zeroinitializer"
            return f"splat ({type_} {scalar})"
        key = ("splat", type_, scalar)
        if key not in self.cache:
            one = self.new(f"insertelement <32 x {type_}> poison, {type_} {scalar}, i32 0")
            self.cache[key] = self.new(f"shufflevector <32 x {type_}> {one}, <32 x {type_}> poison, <32 x i32> zeroinitializer")
        return self.cache[key]

    def full(self, value: Value) -> str:
        """The value as one vector."""
        if value.uniform:
            return self.splat(value.type, value.s)
        if value.s in (None, "0"):
            return value.v
        key = ("full", value)
        if key not in self.cache:
            self.cache[key] = self.new(f"add <32 x {value.type}> {value.v}, {self.splat(value.type, value.s)}")
        return self.cache[key]

    def load_register(self, name: str) -> Value:
        type_ = self.types[name]
        if name not in self.a.varying:
            return Value(type_, s=self.new(self.homes.load(name, "s")))
        v = self.new(self.homes.load(name, "v"))
        if type_ == "i1":
            return Value(type_, v=self.new(f"icmp slt {self.homes.kept_as(name, 'v')} {v}, zeroinitializer"))
        s = self.new(self.homes.load(name, "s")) if self.homes.has_scalar(name) else None
        return Value(type_, s=s, v=v)

    def get(self, name: str) -> Value:
        if name not in self.values:
            if name not in self.crossing and not self.homes.in_fragment(name):  # never written
                return self.constant(self.types[name], -1)
            self.values[name] = self.load_register(name)
        return self.values[name]

    def set(self, name: str, value: Value) -> None:
        """Write a register under the present mask and guard."""
        if name not in self.types:
            raise Unsupported(f"writing {name}")
        value = self.cast(value, self.types[name])
        if self.condition is not None and not (self.condition[0] == "mask" and name in self.fresh):
            old = self.get(name)
            kind, condition = self.condition
            if kind == "mask":
                condition = self.lanes(condition)
            if kind == "scalar" and value.uniform and old.uniform:
                value = Value(value.type, s=self.new(f"select i1 {condition}, {value.type} {value.s}, {value.type} {old.s}"))
            else:
                type_ = f"<32 x {value.type}>"
                test = f"i1 {condition}" if kind == "scalar" else f"<32 x i1> {condition}"
                new, was = self.full(value), self.full(old)
                value = Value(value.type, v=self.new(f"select {test}, {type_} {new}, {type_} {was}"))
        self.values[name] = value
        self.changed.add(name)

    def cast(self, value: Value, type_: str) -> Value:
        """Same bits in another type of the same size; integers are cut or zero-extended to fit."""
        if value.type == type_:
            return value
        have, want = BITS[value.type], BITS[type_]
        if have == want:
            return self.unary(value, lambda t, x: f"bitcast {t(value.type)} {x} to {t(type_)}", type_)
        if value.type in ("float", "double", "half"):
            value = self.cast(value, f"i{have}")
        if want != have and type_.startswith("i"):
            op = "trunc" if want < have else "zext"
            return self.unary(value, lambda t, x: f"{op} {t(value.type)} {x} to {t(type_)}", type_)
        raise Unsupported(f"a {value.type} as {type_}")

    def unary(self, value: Value, text, type_: str) -> Value:
        """text(t, operand): t gives the scalar or the vector form of a type."""
        if value.uniform:
            return Value(type_, s=self.new(text(lambda k: k, value.s)))
        return Value(type_, v=self.new(text(lambda k: f"<32 x {k}>", self.full(value))))

    def apply(self, type_: str, values: list[Value], text) -> Value:
        """text(t, operands...)"""
        if all(value.uniform for value in values):
            return Value(type_, s=self.new(text(lambda k: k, *(value.s for value in values))))
        return Value(type_, v=self.new(text(lambda k: f"<32 x {k}>", *(self.full(value) for value in values))))

    def intrinsic(self, name: str, type_: str, values: list[Value], extra: str = "") -> Value:
        vector = not all(value.uniform for value in values)
        kind = f"<32 x {type_}>" if vector else type_
        full = f"llvm.{name}.{'v32' if vector else ''}{ {'float': 'f32', 'double': 'f64', 'half': 'f16'}.get(type_, type_) }"
        operands = [(kind, self.full(value) if vector else value.s) for value in values]
        if extra:
            self.intrinsics.add(f"declare {kind} @{full}({', '.join([kind] * len(values))}, i1)")
            result = self.new(f"call {kind} @{full}({', '.join(f'{k} {v}' for k, v in operands)}, {extra})")
        else:
            result = self.call(kind, full, *operands)
        return Value(type_, v=result) if vector else Value(type_, s=result)

    def constant(self, type_: str, bits: int) -> Value:
        if type_ == "float":
            return Value(type_, s=f"bitcast (i32 {bits} to float)")
        if type_ == "double":
            return Value(type_, s=f"bitcast (i64 {bits} to double)")
        if type_ == "i1":
            return Value(type_, s="true" if bits else "false")
        return Value(type_, s=str(bits))

    def operand(self, operand, kind: str) -> Value:
        """An operand read as PTX type `kind`."""
        type_ = {"f32": "float", "f64": "double", "f16": "half", "pred": "i1"}.get(kind) or f"i{TYPE_BYTES[kind] * 8}"
        if isinstance(operand, Immediate):
            bits = immediate_bits(operand, kind)
            if kind == "f64":  # hidden: what LLVM folds has a NaN of its own
                return self.cast(Value("i64", s=self.new(f'call i64 asm "", "=r,0"(i64 {bits})')), type_)
            return self.constant(type_, bits)
        if isinstance(operand, Negated):
            value = self.operand(operand.operand, kind)
            return self.apply("i1", [value], lambda t, x: f"xor {t('i1')} {x}, {'splat (i1 true)' if t('i1') != 'i1' else 'true'}")
        if not isinstance(operand, Register):
            raise Unsupported("an operand of this form")
        if operand.name.startswith("%") and operand.name not in self.types:
            return self.cast(self.special(operand.name), type_)
        value = self.get(operand.name)
        if operand.name in self.dirty and type_ not in ("float",):
            value = self.canonical(self.cast(value, "float"))
        return self.cast(value, type_)

    def special(self, name: str) -> Value:
        if name in self.specials:
            return self.specials[name]
        raise Unsupported(f"the register {name}")

    def canonical(self, value: Value) -> Value:
        """A NaN becomes the GPU's own. In integers, because to LLVM one NaN is as good as another."""

        def text(t, x):
            number = t("i32")
            constant = (lambda n: str(n)) if number == "i32" else (lambda n: f"splat (i32 {n})")
            size = self.new(f"and {number} {x}, {constant(0x7FFFFFFF)}")
            bad = self.new(f"icmp ugt {number} {size}, {constant(0x7F800000)}")
            return f"select {t('i1')} {bad}, {number} {constant(0x7FFFFFFF)}, {number} {x}"

        return self.cast(self.unary(self.cast(value, "i32"), text, "i32"), "float")

    def lanes(self, mask: str) -> str:
        """A mask as a vector of bits."""
        key = ("lanes", mask)
        if key not in self.cache:
            # Without AVX-512 the plain way takes eighty instructions.
            way = f"bitcast i32 {mask} to <32 x i1>"
            if not self.wide:
                mine = self.new(f"and <32 x i32> {self.splat('i32', mask)}, {_EACH_LANE}")
                way = f"icmp ne <32 x i32> {mine}, zeroinitializer"
            self.cache[key] = self.new(way)
        return self.cache[key]

    def first_lane(self) -> str:
        """The lowest active lane."""
        key = ("first", self.active)
        if key not in self.cache:
            self.intrinsics.add("declare i32 @llvm.cttz.i32(i32, i1)")
            lane = self.new(f"call i32 @llvm.cttz.i32(i32 {self.active}, i1 false)")
            self.cache[key] = self.new(f"and i32 {lane}, 31")
        return self.cache[key]

    def record(self, shared, number: int | None = 0, granules=0, log=0, race=False, local=False) -> str:
        """A new record for the instruction's access of this number (None: it is not counted), as a pointer."""
        position = self.position
        memo, counted = -1, (0, 0, 0)
        if (charge := self.charges.get((position, number))) is not None:
            memo, counted = self.memos.setdefault((position, number), len(self.memos)), (charge.shift, charge.code, charge.bits)
        self.records.append(Record(position, shared, memo, *counted, granules, log, race, local))
        return self.new(f"getelementptr i8, ptr {self.record_base}, i64 {RECORD_BYTES * (len(self.records) - 1)}")

    def call_machine(self) -> None:
        """Have the NumPy machine execute a rare instruction."""
        from . import machine_calls  # it needs this module

        machine_calls.lower(self)

    def whole(self, name: str) -> Value:
        """A register's bits, as an integer."""
        if self.types[name] == "i1":
            return self.get(name)
        kind = f"b{BITS[self.types[name]]}"
        return self.operand(Register(name), kind)

    def product(self, numbers: tuple[int, ...]) -> str:
        """What compiled code must know of a matrix product, as a pointer."""
        offset = self.products.setdefault(numbers, sum(map(len, self.products)))
        base = self._field("%ctx", CONTEXT["products"], "ptr")
        return self.new(f"getelementptr i8, ptr {base}, i64 {4 * offset}")

    def memo(self, number: int = 0) -> str:
        """The totals of one of the instruction's counted accesses, as a pointer."""
        index = self.memos.setdefault((self.position, number), len(self.memos))
        return self.new(f"getelementptr i8, ptr {self.memo_base}, i64 {MEMO_BYTES * index}")

    def observed(self, operand, kind: str) -> Value:
        """An operand whose bits will be seen."""
        value = self.operand(operand, kind)
        if kind == "f32" and isinstance(operand, Register) and operand.name in self.dirty:
            return self.canonical(value)
        if isinstance(operand, Register) and operand.name in self.dirty and value.type == "float":
            return self.canonical(value)
        return value

    # ------------------------------------------------------------------------------------------------ the function

    def run(self) -> Lowered:
        self.cache: dict = {}
        self.values: dict[str, Value] = {}
        self.changed: set[str] = set()
        self.condition = None
        self.specials: dict[str, Value] = {}
        self._entry()
        self.wanted: list[int] = [0, *(self.a.blocks[index].next for index in self.resume)]
        emitted: set[int] = set()
        done: set[int] = set()
        self.entered: list = []
        while self.wanted or self.entered:
            while self.wanted:
                index = self.wanted.pop()
                if index not in emitted:
                    emitted.add(index)
                    self._uniform_block(self.a.blocks[index])
            while self.entered:
                region = self.entered.pop()
                if id(region) not in done:
                    done.add(id(region))
                    self._region(region)
        for label, position in self.fails:
            self.start(label)
            self.emit(f"store i32 {position}, ptr %fail_slot")
            self.emit("br label %failed")
        self.start("failed")
        self.emit("ret i32 -1")
        self.out.append("}")
        self.out[self.begin : self.begin] = self.homes.beginnings
        head = [
            "define i32 @warp(ptr noalias %ctx, ptr noalias %ws, i32 %resume) #0 {",
            "entry:",
            *self.homes.slots,
        ]
        text = "\n".join([*sorted(self.intrinsics), ATTRIBUTES, *head, *self.out, ""])
        return Lowered(
            text,
            self.homes.state_bytes,
            tuple(self.records),
            tuple(self.memos),
            tuple(self._count_of()),
            len(self.a.blocks),
            tuple(number for product in self.products for number in product),
            tuple(self.calls),
        )

    def _count_of(self) -> list[int]:
        counts = [0] * len(self.ops)
        for block in self.a.blocks:
            for position in (*block.positions, *([block.position] if block.position is not None else [])):
                # A guarded access has a block of its own, but is executed, guard on or off, with the block before.
                counts[position] = block.index - 1 if block.inner else block.index
        return counts

    def _field(self, base: str, offset: int, type_: str, align: int | None = None) -> str:
        pointer = self.new(f"getelementptr i8, ptr {base}, i64 {offset}")
        return self.new(f"load {type_}, ptr {pointer}" + (f", align {align}" if align else ""))

    def _entry(self) -> None:
        linear_x, uniform_y, uniform_z = self.options.flags
        self.out.append("  %live_slot = alloca i32")
        self.out.append("  %buffer = alloca [8192 x i8], align 64")
        self.out.append(f"  %live_field = getelementptr i8, ptr %ws, i64 {WARP_STATE['live']}")
        self.emit("%live_start = load i32, ptr %live_field")
        self.emit("store i32 %live_start, ptr %live_slot")
        self.emit(f"%fail_slot = getelementptr i8, ptr %ctx, i64 {CONTEXT['fail']}")
        self.emit(f"%stop_slot = getelementptr i8, ptr %ctx, i64 {CONTEXT['stop']}")
        for region in {id(r): r for r in self.a.regions.values()}.values():
            for block in region.blocks:
                self.emit(f"%pend_{self._region_name(region)}_{block} = alloca i32")
                self.emit(f"store i32 0, ptr %pend_{self._region_name(region)}_{block}")
        self.shared_base = self._field("%ctx", CONTEXT["shared"], "ptr")
        self.shared_end = self._field("%ctx", CONTEXT["shared_end"], "i64")
        self.params = self._field("%ctx", CONTEXT["params"], "ptr")
        self.record_base = self._field("%ctx", CONTEXT["records"], "ptr")
        self.block_counts = self._field("%ctx", CONTEXT["block_counts"], "ptr")
        self.memo_base = self._field("%ctx", CONTEXT["memos"], "ptr")
        for kind in ("ctaid", "nctaid", "ntid"):
            for axis, letter in enumerate("xyz"):
                if f"%{kind}.{letter}" in self.used:
                    self.specials[f"%{kind}.{letter}"] = Value("i32", s=self._field("%ctx", CONTEXT[kind] + 4 * axis, "i32"))
        for axis, (letter, uniform) in enumerate(zip("xyz", (linear_x, uniform_y, uniform_z), strict=False)):
            name = f"%tid.{letter}"
            if name not in self.used:
                continue
            first = self._field("%ws", WARP_STATE["tid_first"] + 4 * axis, "i32")
            if uniform and letter == "x":
                self.specials[name] = Value("i32", s=first, v=IOTA.split("> ", 1)[1])
            elif uniform:
                self.specials[name] = Value("i32", s=first)
            else:
                self.specials[name] = Value("i32", v=self._field("%ws", WARP_STATE["tid"] + 128 * axis, "<32 x i32>", 64))
        self.specials["%laneid"] = Value("i32", v=IOTA.split("> ", 1)[1])
        if "%warpid" in self.used:
            self.specials["%warpid"] = Value("i32", s=self._field("%ws", WARP_STATE["warp"], "i32"))
        self.first_thread = self.new(f"shl i32 {self._field('%ws', WARP_STATE['warp'], 'i32')}, 5")
        self.resume = {block.index: k for k, block in enumerate(self.barriers, 1)}
        targets = " ".join(f"i32 {self.resume[block.index]}, label %U{block.next}" for block in self.barriers)
        self.emit(f"switch i32 %resume, label %first [ {targets} ]")
        self.start("first")
        self.begin = len(self.out)
        self.emit("br label %U0")

    # ------------------------------------------------------------------------------------------------------ U code

    def _begin(self, active: str) -> None:
        self.cache, self.values, self.changed = {}, {}, set()
        self.active = active

    def _flush(self) -> None:
        """Write registers that live on to their slots."""
        for name in sorted(self.changed & self.crossing):
            self._store(name)
        self.changed = set()

    def _store(self, name: str) -> None:
        """Write a register to its slot."""
        value, type_ = self.values[name], self.types[name]
        if name not in self.a.varying:
            if not value.uniform:
                raise AssertionError(f"{name} was taken for uniform")
            self.emit(self.homes.store(name, "s", value.s))
            return
        if self.homes.has_scalar(name):
            lanes = "zeroinitializer" if value.uniform else value.v
            self.emit(self.homes.store(name, "s", value.s or "0"))
        else:
            lanes = self.full(value)
        if type_ == "i1":
            lanes = self.new(f"sext <32 x i1> {lanes} to {self.homes.kept_as(name, 'v')}")
        self.emit(self.homes.store(name, "v", lanes))

    def in_memory(self, operands) -> str | None:
        """A pointer to registers of a matrix, one behind the other, with what is in them now; None where they are not kept so."""
        names = [operand.name for operand in operands if isinstance(operand, Register)]
        if len(names) < len(operands) or not self.homes.follow_each_other(names) or self.dirty & set(names):
            return None
        for name in names:
            if name in self.changed:
                self._store(name)
                self.changed.discard(name)
        return slot(names[0], "v")

    def to_memory(self, operands) -> str | None:
        """The same for registers that an instruction is going to write there, with nothing read in between. In U code, without a guard."""
        pointer = self.in_memory(operands)
        if pointer is not None:
            for operand in operands:
                self.values.pop(operand.name, None)
        return pointer

    def _count_block(self, index: int, active: str) -> None:
        if not self.counting:
            return
        pointer = self.new(f"getelementptr i8, ptr {self.block_counts}, i64 {16 * index}")
        lanes = self.new(f"zext i32 {self.call('i32', 'llvm.ctpop.i32', ('i32', active))} to i64")
        warps = self.new(f"load i64, ptr {pointer}")
        one_more = self.new(f"add i64 {warps}, 1")
        self.emit(f"store i64 {one_more}, ptr {pointer}")
        pointer = self.new(f"getelementptr i8, ptr {pointer}, i64 8")
        threads = self.new(f"load i64, ptr {pointer}")
        more = self.new(f"add i64 {threads}, {lanes}")
        self.emit(f"store i64 {more}, ptr {pointer}")

    def together(self, index: int) -> str:
        """The label of a block's U code, which will be written."""
        self.wanted.append(index)
        return f"U{index}"

    def _poll(self, position: int) -> None:
        """Return if the launcher wants to stop."""
        stop = self.new("load volatile i32, ptr %stop_slot")
        test = self.new(f"icmp ne i32 {stop}, 0")
        go = self.label()
        self.emit(f"br i1 {test}, label %{self._fail(position)}, label %{go}, !prof !0")
        self.start(go)

    def demand(self, test: str) -> None:
        """Leave the launch to the NumPy machine where this does not hold at the present instruction."""
        good = self.label()
        self.emit(f"br i1 {test}, label %{good}, label %{self._fail(self.position)}, !prof !1")
        self.start(good)

    def _fail(self, position: int) -> str:
        label = self.label()
        self.fails.append((label, position))
        return label

    def _uniform_block(self, block) -> None:
        self.start(f"U{block.index}")
        live = self.new("load i32, ptr %live_slot")
        self._begin(live)
        self.mode = "U"
        self._count_block(block.index, live)
        for i, position in enumerate(block.positions):
            self._instruction(block, i, position)
        if block.end == "ret":
            self._flush()
            self.emit("ret i32 0")
        elif block.end == "barrier":
            self._flush()
            self.emit(f"store i32 {live}, ptr %live_field")
            self.emit(f"ret i32 {self.resume[block.index]}")
        elif block.end in ("fall", "jump"):
            self._flush()
            target = block.successors[0]
            if target <= block.index:
                self._poll(block.position if block.position is not None else 0)
            self.emit(f"br label %{self.together(target)}")
        else:
            self._branch(block, live)

    def _predicate(self, block) -> Value:
        name, negated = block.predicate
        operand = Register(name)
        return self.operand(Negated(operand) if negated else operand, "pred")

    def _branch(self, block, live: str) -> None:
        self._look([block.predicate[0]], block.position or 0)
        predicate = self._predicate(block)
        self._flush()
        position = block.position if block.position is not None else 0
        if min(block.target, block.next) <= block.index:
            self._poll(position)
        if predicate.uniform:
            self.emit(f"br i1 {predicate.s}, label %{self.together(block.target)}, label %{self.together(block.next)}")
            return
        if block.target == block.next:
            self.emit(f"br label %{self.together(block.next)}")
            return
        taken = self._those(predicate, live)
        left = self.new(f"xor i32 {taken}, {live}")
        for mask, exit_, other in ((left, block.target, block.next), (taken, block.next, block.target)):
            if exit_ in self.a.exits:
                self.emit(f"store i32 {mask}, ptr %live_slot")
                gone = self.new(f"icmp eq i32 {mask}, 0")
                self.emit(f"br i1 {gone}, label %{self.together(exit_)}, label %{self.together(other)}")
                return
        region = self.a.regions[block.index]
        if region.runnable and region.forward:
            # Without loops the code under masks is as good as any: no second copy for lanes that agree.
            self._enter(region, block, taken, left)
            return
        some, rest, mixed = self.new(f"icmp ne i32 {taken}, 0"), self.label(), self.label()
        self.emit(f"br i1 {some}, label %{rest}, label %{self.together(block.next)}")
        self.start(rest)
        everyone = self.new(f"icmp eq i32 {left}, 0")
        if not region.runnable:
            self.emit(f"br i1 {everyone}, label %{self.together(block.target)}, label %{self._fail(position)}")
            return
        self.emit(f"br i1 {everyone}, label %{self.together(block.target)}, label %{mixed}")
        self.start(mixed)
        self._enter(region, block, taken, left)

    def _enter(self, region, block, taken: str, left: str) -> None:
        self.entered.append(region)
        self._pend(region, block.target, taken)
        self._pend(region, block.next, left)
        self.emit(f"br label %C{self._region_name(region)}_{region.blocks[0]}")

    # ------------------------------------------------------------------------------------------------------ M code

    def _region_name(self, region) -> str:
        return "end" if region.meet is None else str(region.meet)

    def _pend(self, region, target: int, mask: str) -> None:
        """Lanes go to `target`: they wait there, have met, or are gone."""
        if target == region.meet:
            return
        if target in self.a.exits:
            self._retire(mask)
            return
        waiting = f"%pend_{self._region_name(region)}_{target}"
        old = self.new(f"load i32, ptr {waiting}")
        both = self.new(f"or i32 {old}, {mask}")
        self.emit(f"store i32 {both}, ptr {waiting}")

    def _retire(self, mask: str) -> None:
        """These lanes have ended."""
        live = self.new("load i32, ptr %live_slot")
        others = self.new(f"xor i32 {mask}, -1")
        left = self.new(f"and i32 {live}, {others}")
        self.emit(f"store i32 {left}, ptr %live_slot")

    def _those(self, predicate: Value, mask: str) -> str:
        """The lanes of a mask in which a predicate holds."""
        if predicate.uniform:
            return self.new(f"select i1 {predicate.s}, i32 {mask}, i32 0")
        return self.new(f"and i32 {self.new(f'bitcast <32 x i1> {predicate.v} to i32')}, {mask}")

    def _fresh(self, region) -> frozenset[str]:
        """Registers whose old values no lane of a region wants: one instruction alone writes them, once, and neither who comes to it reads
        them before nor who steps over it."""
        if not region.forward:
            return frozenset()
        inside = set(region.blocks)
        entering = (block for block in self.a.blocks if block.index not in inside and not inside.isdisjoint(block.successors))
        first = {target for block in entering for target in block.successors}  # lanes that step over it go to where all meet
        return frozenset(self.written_once).difference(*(self.a.live_in[index] for index in first))

    def _region(self, region) -> None:
        name = self._region_name(region)
        self.fresh = self._fresh(region)
        for k, index in enumerate(region.blocks):
            block = self.a.blocks[index]
            after = f"C{name}_{region.blocks[k + 1]}" if k + 1 < len(region.blocks) else f"D{name}"
            here = f"%pend_{name}_{index}"
            self.start(f"C{name}_{index}")
            mask = self.new(f"load i32, ptr {here}")
            some = self.new(f"icmp ne i32 {mask}, 0")
            self.emit(f"br i1 {some}, label %M{name}_{index}, label %{after}")
            self.start(f"M{name}_{index}")
            self.emit(f"store i32 0, ptr {here}")
            self._begin(mask)
            self.mode = "M"
            self.condition = ("mask", mask)
            self._count_block(index, mask)
            for i, position in enumerate(block.positions):
                self._instruction(block, i, position)
            position = block.position if block.position is not None else 0
            if block.end == "ret":
                self._flush()
                self._retire(mask)
            elif block.end == "branch":
                self._look([block.predicate[0]], position)
                predicate = self._predicate(block)
                self._flush()
                taken = self._those(predicate, mask)
                self._pend(region, block.target, taken)
                self._pend(region, block.next, self.new(f"xor i32 {taken}, {mask}"))
            else:
                self._flush()
                self._pend(region, block.successors[0], mask)
            self.condition = None
            inside = set(region.blocks)
            for target in sorted({t for t in block.successors if t in inside and t <= index}):
                self._poll(position)
                waiting = self.new(f"load i32, ptr %pend_{name}_{target}")
                some, further = self.new(f"icmp ne i32 {waiting}, 0"), self.label()
                self.emit(f"br i1 {some}, label %C{name}_{target}, label %{further}")
                self.start(further)
            self.emit(f"br label %{after}")
        self.start(f"D{name}")
        if region.meet is not None and not any(
            self.a.blocks[i].end == "ret" or set(self.a.blocks[i].successors) & self.a.exits for i in region.blocks
        ):
            self.emit(f"br label %{self.together(region.meet)}")
            return
        live = self.new("load i32, ptr %live_slot")
        none = self.new(f"icmp eq i32 {live}, 0")
        ended, on = self.label(), self.label()
        self.emit(f"br i1 {none}, label %{ended}, label %{on}")
        self.start(ended)
        self.emit("ret i32 0")
        self.start(on)
        self.emit(f"br label %{self.together(region.meet)}" if region.meet is not None else f"br label %{self._fail(0)}")

    # ------------------------------------------------------------------------------------------------ instructions

    def _instruction(self, block, i: int, position: int) -> None:
        op = self.op = self.ops[position]
        instruction = op.instruction
        self.block, self.step, self.position = block, i, position
        outer = self.condition
        if op.guard is not None and not stepped_over(op):
            name, negated = instruction.guard
            operand = Register(name)
            predicate = self.operand(Negated(operand) if negated else operand, "pred")
            if predicate.uniform and outer is None:
                self.condition = ("scalar", predicate.s)
            elif outer is None:
                self.condition = ("vector", predicate.v)
            else:  # in M code
                self.condition = ("vector", self.new(f"and <32 x i1> {self.lanes(outer[1])}, {self.full(predicate)}"))
        undefined = self._before(op) if self.doubtful and position in self.doubts.watched else None
        handler, before = HANDLERS.get(instruction.name), (len(self.out), len(self.cache))
        try:
            if handler is None:
                self.call_machine()
            else:
                handler.write(self, instruction)
        except Unsupported as reason:
            reason.op = op
            if handler is None or (len(self.out), len(self.cache)) != before:
                raise
            self.call_machine()
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            # A form that the handler was not written for. The NumPy machine has a meaning for it, or the loader had refused it.
            raise Unsupported(f"no native code could be made of `{op.opcode}` ({type(error).__name__}: {error})", op) from error
        if undefined is not None:
            self._after(op, undefined)
        self.condition = outer

    # --------------------------------------------------------------------------------------- what nobody has written

    # A register that may be undefined has a mask of the lanes in which it is. What copies and computes hands it on, all bits of a
    # value alike; where it decides something, the NumPy machine looks closer.

    def _executing(self) -> str:
        """The lanes that execute the present instruction, as a mask."""
        if self.condition is None:
            return self.active
        kind, condition = self.condition
        if kind == "mask":
            return self.active
        return self._those(Value("i1", **{"s" if kind == "scalar" else "v": condition}), self.active)

    def _undefined(self, names) -> str:
        """The lanes in which one of these registers is undefined."""
        masks = [self.new(self.homes.load(name, "u")) for name in names if name in self.doubtful]
        while len(masks) > 1:
            masks = [*masks[2:], self.new(f"or i32 {masks[0]}, {masks[1]}")]
        return masks[0] if masks else "0"

    def _look(self, names, position: int) -> None:
        """Leave the launch to the NumPy machine if one of these registers is undefined in a lane that uses it here."""
        mask = self._undefined(names)
        if mask == "0":
            return
        bad = self.new(f"icmp ne i32 {self.new(f'and i32 {mask}, {self._executing()}')}, 0")
        go = self.label()
        self.emit(f"br i1 {bad}, label %{self._fail(position)}, label %{go}, !prof !0")
        self.start(go)

    def _before(self, op) -> str:
        """The lanes in which the results of an instruction will be undefined."""
        names = [self.register_names.get(register, "") for register in op.reads]
        if op.effect is Effect.PURE:
            return self._undefined(names)
        if op.effect is Effect.EXCHANGE and op.bitwise:  # other lanes' values
            some = self.new(f"icmp ne i32 {self._undefined(names)}, 0")
            return self.new(f"select i1 {some}, i32 -1, i32 0")
        self._look(names, op.position)
        self.loaded = "0"
        return ""

    def _after(self, op, undefined: str) -> None:
        undefined = undefined or self.loaded
        written = [name for name in map(self.register_names.get, op.writes) if name in self.doubtful]
        if not written or self.condition is None:
            for name in written:
                self.emit(self.homes.store(name, "u", undefined))
            return
        here = self._executing()
        new, others = self.new(f"and i32 {undefined}, {here}"), self.new(f"xor i32 {here}, -1")
        for name in written:
            old = self.new(self.homes.load(name, "u"))
            kept = self.new(f"and i32 {old}, {others}")
            self.emit(self.homes.store(name, "u", self.new(f"or i32 {kept}, {new}")))

    def put(self, operand, value: Value) -> None:
        if isinstance(operand, Symbol) and operand.name == "_":
            return
        if not isinstance(operand, Register):
            raise Unsupported("a result of this form")
        if value.type == "float" and operand.name in self.eager and writes_others(self.op):
            value = self.canonical(value)
        self.set(operand.name, value)


ATTRIBUTES = (
    'attributes #0 = { nounwind uwtable "frame-pointer"="none" "min-legal-vector-width"="512" "prefer-vector-width"="512" }\n'
    '!0 = !{!"branch_weights", i32 1, i32 1000000}\n'
    '!1 = !{!"branch_weights", i32 1000000, i32 1}'
)
