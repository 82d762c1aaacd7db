"""Writing LLVM IR: `Writer` is text and names, `LlvmFunction` writes one function as one would write it in Python.

    f = LlvmFunction("i32", "largest", values="ptr", count="i32")
    best = f.variable(f.constant("i32", 0))
    with f.loop(f.count) as i:
        value = f.load("i32", f.values.at(i * 4))
        with f.when(value.is_("sgt", best.get())):
            best.set(value)
    f.leave(best.get())

A `Var` is a value with its type. Operators take other values, Python integers, and scalars beside vectors (which they
spread). `>>` shifts zeros in.
"""

from __future__ import annotations

from contextlib import contextmanager

from helpers.sim.code.hardware_units import WARP


class Writer:
    """Lines of IR, numbered registers and labels, and the declarations they need."""

    def __init__(self):
        self.out: list[str] = []
        self.names = 0
        self.labels = 0
        self.intrinsics: set[str] = set()

    def emit(self, text: str) -> None:
        self.out.append("  " + text)

    def new(self, text: str) -> str:
        """The register that gets what `text` computes."""
        self.names += 1
        name = f"%t{self.names}"
        self.out.append(f"  {name} = {text}")
        return name

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def start(self, label: str) -> None:
        self.out.append(f"{label}:")

    def call(self, result: str, name: str, *arguments: tuple[str, str]) -> str:
        """Call a function that is declared by doing so; arguments are (type, value)."""
        kinds = ", ".join(kind for kind, _ in arguments)
        self.intrinsics.add(f"declare {result} @{name}({kinds})")
        listed = ", ".join(f"{kind} {value}" for kind, value in arguments)
        if result == "void":
            self.emit(f"call void @{name}({listed})")
            return ""
        return self.new(f"call {result} @{name}({listed})")


def vector(type_: str, count: int = WARP) -> str:
    """The type of `count` lanes."""
    return f"<{count} x {type_}>"


def element(type_: str) -> str:
    """The type of one lane."""
    return type_.split(" x ")[1][:-1] if type_.startswith("<") else type_


def suffix(type_: str) -> str:
    """A type as the names of LLVM's intrinsics spell it."""
    if type_.startswith("<"):
        return f"v{type_[1:].split(' ')[0]}{suffix(element(type_))}"
    return {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(type_, type_)


class Var:
    """A value of LLVM type `type`, called `name` in the text."""

    __slots__ = ("f", "name", "type")

    def __init__(self, f: LlvmFunction, type_: str, name: str):
        self.f, self.type, self.name = f, type_, name

    def _with(self, operation: str, other) -> Var:
        a, b = self.f.alike(self, other)
        return self.f.value(a.type, f"{operation} {a.type} {a.name}, {b.name}")

    def __add__(self, other):
        return self._with("add", other)

    def __sub__(self, other):
        return self._with("sub", other)

    def __mul__(self, other):
        return self._with("mul", other)

    def __and__(self, other):
        return self._with("and", other)

    def __or__(self, other):
        return self._with("or", other)

    def __xor__(self, other):
        return self._with("xor", other)

    def __lshift__(self, other):
        return self._with("shl", other)

    def __rshift__(self, other):
        return self._with("lshr", other)

    def __invert__(self):
        return self._with("xor", -1)

    def divided(self, other):
        """Unsigned quotient."""
        return self._with("udiv", other)

    def rest(self, other):
        """Unsigned remainder."""
        return self._with("urem", other)

    def is_(self, how: str, other) -> Var:
        """An integer comparison: eq, ne, slt, ult, …"""
        a, b = self.f.alike(self, other)
        bit = "i1" if element(a.type) == a.type else vector("i1", int(a.type[1:].split(" ")[0]))
        return self.f.value(bit, f"icmp {how} {a.type} {a.name}, {b.name}")

    def to(self, type_: str, signed: bool = False) -> Var:
        """As an integer of another width; a scalar as a vector; a mask of 32 bits as 32 × i1 and back; the same bits."""
        f = self.f
        if self.type == type_:
            return self
        if type_.startswith("<") and not self.type.startswith("<") and type_ != vector("i1"):
            return f.spread(self.to(element(type_), signed), type_)
        have, want = element(self.type), element(type_)
        whole_numbers = have[0] == want[0] == "i" and self.type.startswith("<") == type_.startswith("<")
        if whole_numbers and have != want:
            operation = "trunc" if int(want[1:]) < int(have[1:]) else "sext" if signed else "zext"
        else:
            operation = "inttoptr" if type_ == "ptr" else "ptrtoint" if self.type == "ptr" else "bitcast"
        return f.value(type_, f"{operation} {self.type} {self.name} to {type_}")

    def at(self, offset) -> Var:
        """A pointer's or, with a vector of offsets, 32 pointers' bytes further on."""
        if isinstance(offset, int):
            offset = self.f.constant("i64", offset)
        kind = vector("ptr") if offset.type.startswith("<") else "ptr"
        return self.f.value(kind, f"getelementptr i8, ptr {self.name}, {offset.type} {offset.name}")

    def item(self, type_: str, index: Var) -> Var:
        """The place of the index-th value of a type; 32 of them for a vector of indices, which are cheapest with 32 bits."""
        kind = vector("ptr") if index.type.startswith("<") else "ptr"
        return self.f.value(kind, f"getelementptr {type_}, ptr {self.name}, {index.type} {index.name}")

    def field(self, offset: int, type_: str, align: int = 0) -> Var:
        """What lies `offset` bytes behind this pointer."""
        return self.f.load(type_, self.at(offset), align)


class Local:
    """A variable that code may set; `get()` is its present value."""

    def __init__(self, f: LlvmFunction, start: Var):
        self.f, self.type = f, start.type
        f.names += 1
        self.place = f"%v{f.names}"
        f.locals.append(f"  {self.place} = alloca {start.type}")
        self.set(start)

    def get(self) -> Var:
        return self.f.value(self.type, f"load {self.type}, ptr {self.place}")

    def set(self, value: Var | int) -> None:
        value = self.f.as_value(value, self.type)
        self.f.emit(f"store {self.type} {value.name}, ptr {self.place}")


class LlvmFunction(Writer):
    """One function. Its arguments are attributes; `inline` ones exist only in their callers."""

    def __init__(self, result: str, function: str, *, inline: bool = False, **arguments: str):
        super().__init__()
        self.result, self.function, self.inline, self.arguments = result, function, inline, arguments
        self.locals: list[str] = []
        self.closed = False  # the present block of code has its end
        for name, type_ in arguments.items():
            setattr(self, name, Var(self, type_, f"%{name}"))

    def text(self) -> str:
        """The definition."""
        listed = ", ".join(f"{type_} %{name}" for name, type_ in self.arguments.items())
        head = f"define {'internal ' if self.inline else ''}{self.result} @{self.function}({listed}) #{2 if self.inline else 0} {{"
        end = [] if self.closed else ["  ret void" if self.result == "void" else "  unreachable"]
        return "\n".join([head, "entry:", *self.locals, *self.out, *end, "}", ""])

    # values

    def value(self, type_: str, text: str) -> Var:
        return Var(self, type_, self.new(text))

    def constant(self, type_: str, number: int) -> Var:
        if type_.startswith("<"):
            return Var(self, type_, f"splat ({element(type_)} {number})" if number else "zeroinitializer")
        return Var(self, type_, str(number))

    def lanes(self, numbers, type_: str = "i32") -> Var:
        """A constant vector."""
        return Var(self, vector(type_, len(numbers)), "<" + ", ".join(f"{type_} {n}" for n in numbers) + ">")

    def as_value(self, value, type_: str) -> Var:
        return self.constant(type_, value) if isinstance(value, int) else value.to(type_)

    def alike(self, a: Var, b) -> tuple[Var, Var]:
        """Both as the wider of the two: a vector beside a scalar makes it one."""
        if isinstance(b, Var) and b.type.startswith("<") and not a.type.startswith("<"):
            return a.to(b.type), b
        return a, self.as_value(b, a.type)

    def spread(self, scalar: Var, type_: str) -> Var:
        one = self.value(type_, f"insertelement {type_} poison, {scalar.type} {scalar.name}, i32 0")
        count = type_[1:].split(" ")[0]
        return self.value(type_, f"shufflevector {type_} {one.name}, {type_} poison, <{count} x i32> zeroinitializer")

    def lane(self, values: Var, index: Var) -> Var:
        return self.value(element(values.type), f"extractelement {values.type} {values.name}, i32 {index.name}")

    def select(self, test: Var, yes: Var, no) -> Var:
        yes, no = self.alike(yes, no)
        return self.value(yes.type, f"select {test.type} {test.name}, {yes.type} {yes.name}, {no.type} {no.name}")

    def function_call(self, result: str, name: str, *arguments: Var) -> Var:
        text = self.call(result, name, *((a.type, a.name) for a in arguments))
        return Var(self, result, text)

    def reduce(self, how: str, values: Var) -> Var:
        """add, smin, smax, umin, umax, and, or, xor of all lanes."""
        return self.function_call(element(values.type), f"llvm.vector.reduce.{how}.{suffix(values.type)}", values)

    def bits(self, lanes: Var) -> Var:
        """32 × i1 as a mask."""
        return lanes.to("i32")

    def first_lane(self, mask: Var) -> Var:
        """The lowest lane of a mask; 0 if it is empty."""
        self.intrinsics.add("declare i32 @llvm.cttz.i32(i32, i1)")
        return self.value("i32", f"call i32 @llvm.cttz.i32(i32 {mask.name}, i1 false)") & 31

    # memory

    def load(self, type_: str, pointer: Var, align: int = 0, volatile: bool = False) -> Var:
        how = "volatile " if volatile else ""
        return self.value(type_, f"load {how}{type_}, ptr {pointer.name}" + (f", align {align}" if align else ""))

    def store(self, value: Var, pointer: Var, align: int = 0, volatile: bool = False) -> None:
        how = "volatile " if volatile else ""
        self.emit(f"store {how}{value.type} {value.name}, ptr {pointer.name}" + (f", align {align}" if align else ""))

    def increase(self, pointer: Var, amount: Var) -> None:
        """*pointer += amount"""
        self.store(self.load(amount.type, pointer) + amount, pointer)

    def gather(self, type_: str, pointers: Var, mask: Var, otherwise: Var | None = None, align: int = 4) -> Var:
        """Lanes outside of `mask` (32 × i1) get `otherwise`, or 0."""
        kind = vector(type_)
        otherwise = otherwise or self.constant(kind, 0)
        name = f"llvm.masked.gather.{suffix(kind)}.v32p0"
        self.intrinsics.add(f"declare {kind} @{name}(<32 x ptr>, <32 x i1>, {kind})")
        return self.value(
            kind, f"call {kind} @{name}(<32 x ptr> align {align} {pointers.name}, <32 x i1> {mask.name}, {kind} {otherwise.name})"
        )

    def scatter(self, values: Var, pointers: Var, mask: Var, align: int = 4) -> None:
        """Of lanes that share a place, the last one's value stays."""
        name = f"llvm.masked.scatter.{suffix(values.type)}.v32p0"
        self.intrinsics.add(f"declare void @{name}({values.type}, <32 x ptr>, <32 x i1>)")
        self.emit(f"call void @{name}({values.type} {values.name}, <32 x ptr> align {align} {pointers.name}, <32 x i1> {mask.name})")

    def clear(self, pointer: Var, nbytes: Var, byte: int = 0) -> None:
        """Set bytes to 0, or another value."""
        self.intrinsics.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        self.emit(f"call void @llvm.memset.p0.i64(ptr {pointer.name}, i8 {byte}, i64 {nbytes.name}, i1 false)")

    # control

    def variable(self, start: Var) -> Local:
        return Local(self, start)

    def room(self, type_: str, count: int) -> Var:
        """Memory for so many values, as a pointer; what it holds is undefined."""
        self.names += 1
        name = f"%v{self.names}"
        self.locals.append(f"  {name} = alloca [{count} x {type_}], align 64")
        return Var(self, "ptr", name)

    def leave(self, value: Var | int | None = None) -> None:
        """Return."""
        if value is None:
            self.emit("ret void")
        else:
            self.emit(f"ret {self.result} {self.as_value(value, self.result).name}")
        self.closed = True

    def start(self, label: str) -> None:
        super().start(label)
        self.closed = False

    def _go(self, label: str) -> None:
        if not self.closed:
            self.emit(f"br label %{label}")
        self.closed = True

    @contextmanager
    def when(self, test: Var):
        """What is written inside happens only if `test`."""
        inside, after = self.label(), self.label()
        self.emit(f"br i1 {test.name}, label %{inside}, label %{after}")
        self.start(inside)
        yield
        self._go(after)
        self.start(after)

    @contextmanager
    def repeat(self):
        """What is written inside happens again and again: `stop(test)` ends it."""
        body, after = self.label(), self.label()
        self._go(body)
        self.start(body)

        def stop(test: Var) -> None:
            further = self.label()
            self.emit(f"br i1 {test.name}, label %{after}, label %{further}")
            self.start(further)

        yield stop
        self._go(body)
        self.start(after)

    @contextmanager
    def loop(self, count: Var, start: Var | int = 0):
        """An index from `start` up to `count`."""
        place = self.variable(self.as_value(start, count.type))
        with self.repeat() as stop:
            index = place.get()
            stop(index.is_("uge", count))
            yield index
            place.set(index + 1)

    @contextmanager
    def each_lane(self, mask: Var):
        """The lanes of a mask, from the lowest."""
        left = self.variable(mask)
        with self.repeat() as stop:
            now = left.get()
            stop(now.is_("eq", 0))
            yield self.first_lane(now)
            left.set(now & (now - 1))
