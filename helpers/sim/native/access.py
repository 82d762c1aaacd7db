"""Loads and stores: one bounds check for all accesses of a block that share an address register, then the access.

A failed check returns to the launcher, and the NumPy machine says what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from helpers.sim.code.addresses import SHARED_WINDOW
from helpers.sim.code.program import Effect, Op
from helpers.sim.code.ptx import TYPE_BYTES, Address, Immediate, Negated, Register, Vector
from helpers.sim.counting.rules import TWO_SIDED

from .declined import Unsupported
from .dispatch import operation
from .lower import BITS, FULL, Value
from .offsets import GENERIC, RECORD

_IGNORED = {"nc", "ca", "cg", "cs", "cv", "lu", "wb", "wt", "L1::evict_last", "L1::evict_first", "L1::no_allocate",
            "L1::evict_normal", "L2::64B", "L2::128B", "L2::256B", "weak", "volatile", "global", "const", "shared", "local", "param",
            "shared::cta", "v2", "v4"}  # fmt: skip


@dataclass
class ReadyAddress:
    """An address made ready: `base` is the first active lane's address (i64), `pattern` the lanes' distances from it."""

    base: str
    pointer: str
    pattern: str | None
    least: str
    most: str
    low_bits: str
    offset: int


def _shape(low, instruction):
    """(space, element type, elements, bytes per element)."""
    parts = instruction.modifiers
    kind = parts[-1]
    if kind not in TYPE_BYTES or kind == "b128" or any(p not in _IGNORED for p in parts[:-1]):
        raise Unsupported(f"`{instruction.opcode}`")
    nbytes = TYPE_BYTES[kind]
    return _space(low.op), kind, low.op.sites[0].width // nbytes, nbytes


def _space(op: Op) -> str:
    """The state space of an access, 'generic' if the instruction names none; constants lie in global memory."""
    (site,) = op.sites
    return {"const": "global"}.get(site.space, site.space)


def _address(low) -> Address:
    """The address of the instruction's only access."""
    address = low.op.sites[0].address
    if address is None or address.coordinates:
        raise Unsupported(f"`{low.op.opcode}` with this address")
    return address


@operation("ld", "ldu", "st")
def _memory(low, instruction):
    (site,) = low.op.sites
    looks = site.volatile or (site.past_l1 and site.index in low.decisive)
    if looks and low.block.index in low.tight:
        raise Unsupported(f"`{instruction.opcode}` in a loop")  # it may wait for others
    space, kind, count, nbytes = _shape(low, instruction)
    address = _address(low)
    if space == "param":
        _parameter(low, instruction, address, kind, count)
        return
    if low.mode == "M" or space in ("generic", "local") or (space == "global" and low.block.index not in low.tight):
        _by_call(low, instruction, space, address, kind, count, nbytes)
        return
    access = _ready(low, space, address, nbytes * count)
    if low.counting:
        _charge(low, access)
    if low.watching and space == "shared":
        _watch(low, instruction, access, nbytes * count)
    if low.position in low.owning[1]:
        far = low.new(f"sext <32 x i32> {access.pattern or 'zeroinitializer'} to <32 x i64>")
        _own(low, low.new(f"add i64 {access.base}, {access.offset}"), far, nbytes * count, low.op.effect is Effect.STORE)
    if low.op.effect is Effect.STORE:
        _store(low, instruction, access, space, kind, count, nbytes)
    else:
        _load(low, instruction, access, space, kind, count, nbytes)


def _far(low, address: Address) -> tuple[tuple[str, str], tuple[str, str]]:
    """An address as two typed arguments of a call: a scalar (i64), and 32 more to add to it."""
    value = _value_of(low, address)
    if value.type == "i32":
        whole = value
        value = low.unary(whole, lambda t, x: f"zext {t('i32')} {x} to {t('i64')}", "i64")
    scalar = value.s or "0"
    if address.offset:
        scalar = low.new(f"add i64 {scalar}, {address.offset}")
    return ("i64", scalar), ("<32 x i64>", value.v or "zeroinitializer")


def _by_call(low, instruction, space, address: Address, kind, count, nbytes):
    """The whole access by a call: less code to compile, for what does not run often."""
    places = _far(low, address)
    uniform = places[1][1] == "zeroinitializer" and space != "local"  # where every lane has its own at the same address
    store = low.op.effect is Effect.STORE
    record, places = _recorded(low, space, places, nbytes * count)
    _own(low, places[0][1], places[1][1], nbytes * count, store)
    memory = _memory_type(kind)
    vector = f"<32 x {memory}>"
    operand = instruction.operands[1 if store else 0]
    items = operand.items if isinstance(operand, Vector) else (operand,)
    slots = [low.new(f"getelementptr i8, ptr %buffer, i64 {k * 32 * nbytes}") if k else "%buffer" for k in range(count)]
    if store:
        for item, slot in zip(items, slots, strict=False):
            low.emit(f"store {vector} {low.full(low.cast(_stored(low, item, kind), memory))}, ptr {slot}, align 64")
    name = f"{'store' if store else 'load'}_{'local_' if space == 'local' else ''}i{8 * nbytes}"
    result = low.call(
        "i32" if space == "local" else "void", name, ("ptr", "%ctx"), ("ptr", record), *places,
        ("i32", low.active), ("i32", low.first_thread), ("i32", str(count)),
        ("ptr", "%buffer"),
    )  # fmt: skip
    if store:
        return
    low.loaded = result or "0"
    lane = low.first_lane() if uniform else None
    for item, slot in zip(items, slots, strict=False):
        if uniform:
            place = low.new(f"getelementptr {memory}, ptr {slot}, i32 {lane}")
            loaded = Value(memory, s=low.new(f"load {memory}, ptr {place}, align {nbytes}"))
        else:
            loaded = Value(memory, v=low.new(f"load {vector}, ptr {slot}, align 64"))
        low.put(item, _widened(low, loaded, kind, item))


def _recorded(low, space: str, places, nbytes: int, number: int | None = 0):
    """(record, places) of an access by a call; where a generic address points shows when it happens. number: as in `low.record`."""
    if space == "local":
        return low.record(True, number, local=True), places
    if space != "generic":
        return low.record(space == "shared", number, **_watched(low, space, nbytes)), places
    records = [
        low.record(where == "shared", None if number is None else number + more, **_watched(low, where, nbytes))
        for where, more in (("global", 0), ("shared", GENERIC))
    ]
    scalar, lanes = places[0][1], places[1][1]
    first = low.new(f"extractelement <32 x i64> {lanes}, i32 {low.first_lane()}")
    high = low.new(f"lshr i64 {low.new(f'add i64 {first}, {scalar}')}, 40")
    shared = low.new(f"icmp eq i64 {high}, {SHARED_WINDOW >> 40}")
    record = low.new(f"select i1 {shared}, ptr {records[1]}, ptr {records[0]}")
    inside = low.new(f"sub i64 {scalar}, {SHARED_WINDOW}")
    return record, (("i64", low.new(f"select i1 {shared}, i64 {inside}, i64 {scalar}")), places[1])


def _watched(low, space, nbytes: int) -> dict:
    """What a record says of findings for an access of `nbytes` per lane."""
    if not low.watching or space != "shared":
        return {}
    granule, may_race = low.watching
    return {"granules": max(1, nbytes // granule), "log": granule.bit_length() - 1, "race": low.position in may_race}


def _value_of(low, address: Address) -> Value:
    if isinstance(address.base, Register):
        return low.get(address.base.name)
    if isinstance(address.base, Immediate):
        return Value("i64", s=str(address.base.value))
    raise Unsupported("this address")


def _parameter(low, instruction, address, kind, count):
    if not isinstance(address.base, Immediate):
        raise Unsupported("a parameter reached by an address")
    if low.op.effect is Effect.STORE:
        return  # for what the machine alone executes (see `stops`): code that reads it is not made
    offset = address.base.value + address.offset
    if not 0 <= offset <= low.param_bytes - count * TYPE_BYTES[kind]:
        raise Unsupported("an argument of a device function")
    targets = instruction.operands[0].items if isinstance(instruction.operands[0], Vector) else (instruction.operands[0],)
    for k, target in enumerate(targets):
        memory = _memory_type(kind)
        value = Value(memory, s=low._field(low.params, offset + k * TYPE_BYTES[kind], memory, 1))
        low.put(target, _widened(low, value, kind, target))


def _memory_type(kind: str) -> str:
    return {"f32": "float", "f64": "double"}.get(kind) or f"i{8 * TYPE_BYTES[kind]}"


def _widened(low, value: Value, kind: str, target) -> Value:
    """A loaded value as wide as its register."""
    if not isinstance(target, Register):
        return value
    want, have = BITS[low.types[target.name]], BITS[value.type]
    if want > have:
        op = "sext" if kind.startswith("s") else "zext"
        return low.unary(value, lambda t, x: f"{op} {t(value.type)} {x} to {t(f'i{want}')}", f"i{want}")
    return value


# --- addresses ---------------------------------------------------------------------------------------------------------


def _ready(low, space, address: Address, nbytes: int) -> ReadyAddress:
    if isinstance(address.base, Register):
        value = low.get(address.base.name)
        key = ("access", space, value, low.active)
        if key in low.cache and _covered(low.cache[key], address.offset, nbytes):
            ready = low.cache[key][0]
            return ReadyAddress(ready.base, ready.pointer, ready.pattern, ready.least, ready.most, ready.low_bits, address.offset)
        group = [(address.offset, nbytes)]
        for later in low.block.positions[low.step + 1 :]:
            op = low.ops[later]
            if op.effect in (Effect.LOAD, Effect.STORE) and len(op.sites) == 1 and op.guard is None and not op.rendezvous:
                (site,) = op.sites
                if site.address is not None and site.address.base == address.base and _space(op) == space:
                    where, size = site.address.offset, site.width
                    if size <= nbytes and (where - address.offset) % size == 0:
                        group.append((where, size))
            if low.op.sites[0].base in op.writes:
                break
        first = min(offset for offset, _ in group)
        end = max(offset + size for offset, size in group)
        ready = _checked(low, space, value, first, end, address.offset, nbytes)
        low.cache[key] = (ready, first, end, address.offset, nbytes)
        return ready
    return _checked(low, space, _value_of(low, address), address.offset, address.offset + nbytes, address.offset, nbytes)


def _covered(entry, offset, nbytes) -> bool:
    _, first, end, at, width = entry
    return first <= offset and offset + nbytes <= end and nbytes <= width and (offset - at) % nbytes == 0


def _checked(low, space, value: Value, first: int, end: int, offset: int, width: int) -> ReadyAddress:
    """Emit the checks of [first, end) around the address and return it ready for use."""
    base, pattern, least, most, low_bits, fits = _pattern(low, value)
    wide = low.new(f"add i64 {base}, {offset}")
    mixed = low.new(f"or i64 {wide}, {low_bits}")
    rest = low.new(f"and i64 {mixed}, {width - 1}")
    aligned = low.new(f"icmp eq i64 {rest}, 0")
    if fits != "true":
        aligned = low.new(f"and i1 {aligned}, {fits}")
    start = low.new(f"add i64 {low.new(f'add i64 {base}, {least}')}, {first}")
    span = str(end - first) if pattern is None else low.new(f"add i64 {low.new(f'sub i64 {most}, {least}')}, {end - first}")
    fail, good = low._fail(low.position), low.label()
    if space == "shared":
        begin, end_ = low.arrays.get(low.position, (low.shared_start, low.shared_end))
        distance, size = (low.new(f"sub i64 {value}, {begin}") for value in (start, end_))
        fine = low.new(f"and i1 {_inside(low, distance, span, size)}, {aligned}")
        low.emit(f"br i1 {fine}, label %{good}, label %{fail}, !prof !1")
        low.start(good)
        pointer = low.new(f"getelementptr i8, ptr {low.shared_base}, i64 {base}")
        return ReadyAddress(base, pointer, pattern, least, most, low_bits, offset)
    record = low.record(False)
    lower = low.new(f"load i64, ptr {record}")
    upper = low._field(record, RECORD["high"], "i64")
    inside = _inside(low, low.new(f"sub i64 {start}, {lower}"), span, low.new(f"sub i64 {upper}, {lower}"))
    check, search = low.label(), low.label()
    low.emit(f"br i1 {inside}, label %{check}, label %{search}, !prof !1")
    low.start(search)
    found = low.call("i32", "find_arena", ("ptr", "%ctx"), ("ptr", record), ("i64", start), ("i64", span))
    low.emit(f"br i1 {low.new(f'icmp ne i32 {found}, 0')}, label %{check}, label %{fail}, !prof !1")
    low.start(check)
    low.emit(f"br i1 {aligned}, label %{good}, label %{fail}, !prof !1")
    low.start(good)
    delta = low._field(record, RECORD["delta"], "i64")
    pointer = low.new(f"inttoptr i64 {low.new(f'add i64 {base}, {delta}')} to ptr")
    return ReadyAddress(base, pointer, pattern, least, most, low_bits, offset)


def _inside(low, distance: str, span: str, size: str) -> str:
    """i1: `span` bytes fit at this distance from the beginning of `size` bytes. Addresses wrap; these comparisons do not."""
    fits = low.new(f"icmp ule i64 {span}, {size}")
    before = low.new(f"icmp ule i64 {distance}, {low.new(f'sub i64 {size}, {span}')}")
    return low.new(f"and i1 {fits}, {before}")


def _pattern(low, value: Value):
    """(address of the first active lane, distances of the lanes or None, least, most, or of all, whether they fit)."""
    if value.uniform:
        scalar = value.s
        if value.type == "i32":
            scalar = low.new(f"zext i32 {scalar} to i64")
        return scalar, None, "0", "0", "0", "true"
    key = ("pattern", value.type, value.v, low.active)
    if key not in low.cache:
        type_ = value.type
        origin = low.new(f"extractelement <32 x {type_}> {value.v}, i32 {low.first_lane()}")
        far = low.new(f"sub <32 x {type_}> {value.v}, {low.splat(type_, origin)}")
        far = low.new(f"select <32 x i1> {low.lanes(low.active)}, <32 x {type_}> {far}, <32 x {type_}> zeroinitializer")
        near, fits = far, "true"
        if type_ == "i64":
            # Distances are kept in 32 bits; lanes that lie gigabytes apart are left to the NumPy machine.
            near = low.new(f"trunc <32 x i64> {far} to <32 x i32>")
            again = low.new(f"sext <32 x i32> {near} to <32 x i64>")
            same = low.new(f"bitcast <32 x i1> {low.new(f'icmp eq <32 x i64> {again}, {far}')} to i32")
            fits = low.new(f"icmp eq i32 {same}, -1")
        least, most, bits = (low.call("i32", f"llvm.vector.reduce.{op}.v32i32", ("<32 x i32>", near)) for op in ("smin", "smax", "or"))
        least, most, bits = (low.new(f"sext i32 {x} to i64") for x in (least, most, bits))
        low.cache[key] = (origin, near, least, most, bits, fits)
    origin, distance, least, most, bits, fits = low.cache[key]
    base = origin if value.s in (None, "0") else low.new(f"add {value.type} {origin}, {value.s}")
    if value.type == "i32":
        base = low.new(f"zext i32 {base} to i64")
    return base, distance, least, most, bits, fits


def _whole(low, access: ReadyAddress, stride: int) -> str:
    """i1: every lane takes part, and lane n is `stride` × n bytes from lane 0."""
    key = ("whole", access.pattern, low.active, stride)
    if key not in low.cache:
        steps = "<" + ", ".join(f"i32 {stride * n}" for n in range(32)) + ">"
        same = low.new(f"bitcast <32 x i1> {low.new(f'icmp eq <32 x i32> {access.pattern}, {steps}')} to i32")
        both = low.new(f"and i32 {same}, {low.active}")
        low.cache[key] = low.new(f"icmp eq i32 {both}, {FULL}")
    return low.cache[key]


def _at(low, access: ReadyAddress, extra: int) -> str:
    offset = access.offset + extra
    return low.new(f"getelementptr i8, ptr {access.pointer}, i64 {offset}") if offset else access.pointer


# --- the accesses ------------------------------------------------------------------------------------------------------


def _load(low, instruction, access: ReadyAddress, space, kind, count, nbytes):
    operand = instruction.operands[0]
    targets = operand.items if isinstance(operand, Vector) else (operand,)
    memory = _memory_type(kind)
    if access.pattern is None:
        for k, target in enumerate(targets):
            value = Value(memory, s=low.new(f"load {memory}, ptr {_at(low, access, k * nbytes)}, align {nbytes}"))
            low.put(target, _widened(low, value, kind, target))
        return
    pointers = [_at(low, access, k * nbytes) for k in range(count)]
    if space == "shared":
        # Shared memory is small and in the cache: a gather costs about as much as finding out that it is not needed.
        loaded = [_gather(low, memory, nbytes, pointer, access.pattern) for pointer in pointers]
    else:
        loaded = _load_by_pattern(low, access, memory, count, nbytes, pointers)
    for value, target in zip(loaded, targets, strict=False):
        low.put(target, _widened(low, Value(memory, v=value), kind, target))


def _gather(low, memory, nbytes, pointer, pattern) -> str:
    vector = f"<32 x {memory}>"
    if not low.wide:
        bits = f"i{8 * nbytes}"
        got = low.call(f"<32 x {bits}>", f"gather_{bits}", ("ptr", pointer), ("<32 x i32>", pattern), ("i32", low.active))
        return got if memory == bits else low.new(f"bitcast <32 x {bits}> {got} to {vector}")
    name = f"llvm.masked.gather.v32{_suffix(memory)}.v32p0"
    low.intrinsics.add(f"declare {vector} @{name}(<32 x ptr>, <32 x i1>, {vector})")
    lanes = low.new(f"getelementptr i8, ptr {pointer}, <32 x i32> {pattern}")
    active = low.new(f"bitcast i32 {low.active} to <32 x i1>")
    return low.new(f"call {vector} @{name}(<32 x ptr> align {nbytes} {lanes}, <32 x i1> {active}, {vector} zeroinitializer)")


def _load_by_pattern(low, access: ReadyAddress, memory, count, nbytes, pointers) -> list[str]:
    """One wide load, one scalar load, or a gather, whatever the lanes' addresses allow."""
    vector = f"<32 x {memory}>"
    uniform_key = ("uniform", access.pattern)
    if uniform_key not in low.cache:
        low.cache[uniform_key] = low.new(f"icmp eq i64 {access.low_bits}, 0")
    whole = _whole(low, access, nbytes * count)
    l_whole, l_other, l_uniform, l_gather, join = (low.label() for _ in range(5))
    low.emit(f"br i1 {whole}, label %{l_whole}, label %{l_other}")
    low.start(l_whole)
    if count == 1:
        wholes = [low.new(f"load {vector}, ptr {pointers[0]}, align {nbytes}")]
    else:
        total = low.new(f"load <{32 * count} x {memory}>, ptr {pointers[0]}, align {nbytes}")
        wholes = []
        for k in range(count):
            picks = ", ".join(f"i32 {lane * count + k}" for lane in range(32))
            wholes.append(
                low.new(f"shufflevector <{32 * count} x {memory}> {total}, <{32 * count} x {memory}> poison, <32 x i32> <{picks}>")
            )
    low.emit(f"br label %{join}")
    low.start(l_other)
    low.emit(f"br i1 {low.cache[uniform_key]}, label %{l_uniform}, label %{l_gather}")
    low.start(l_uniform)
    uniforms = []
    for k in range(count):
        scalar = low.new(f"load {memory}, ptr {pointers[k]}, align {nbytes}")
        one = low.new(f"insertelement {vector} poison, {memory} {scalar}, i32 0")
        uniforms.append(low.new(f"shufflevector {vector} {one}, {vector} poison, <32 x i32> zeroinitializer"))
    low.emit(f"br label %{join}")
    low.start(l_gather)
    gathers = [_gather(low, memory, nbytes, pointer, access.pattern) for pointer in pointers]
    low.emit(f"br label %{join}")
    low.start(join)
    return [
        low.new(f"phi {vector} [ {wholes[k]}, %{l_whole} ], [ {uniforms[k]}, %{l_uniform} ], [ {gathers[k]}, %{l_gather} ]")
        for k in range(count)
    ]


def _suffix(memory: str) -> str:
    return {"float": "f32", "double": "f64"}.get(memory, memory)


def _store(low, instruction, access: ReadyAddress, space, kind, count, nbytes):
    operand = instruction.operands[1]
    sources = operand.items if isinstance(operand, Vector) else (operand,)
    memory = _memory_type(kind)
    vector = f"<32 x {memory}>"
    values = [low.cast(_stored(low, source, kind), memory) for source in sources]
    pointers = [_at(low, access, k * nbytes) for k in range(count)]
    if access.pattern is None:
        # All lanes write one address; the last active one is what stays.
        for pointer, value in zip(pointers, values, strict=False):
            scalar = value.s
            if not value.uniform:
                low.intrinsics.add("declare i32 @llvm.ctlz.i32(i32, i1)")
                zeros = low.new(f"call i32 @llvm.ctlz.i32(i32 {low.active}, i1 false)")
                lane = low.new(f"and i32 {low.new(f'sub i32 31, {zeros}')}, 31")
                scalar = low.new(f"extractelement {vector} {low.full(value)}, i32 {lane}")
            low.emit(f"store {memory} {scalar}, ptr {pointer}, align {nbytes}")
        return
    full = [low.full(value) for value in values]
    if space == "shared":
        for pointer, value in zip(pointers, full, strict=False):
            _scatter(low, memory, nbytes, pointer, access.pattern, value)
        return
    whole = _whole(low, access, nbytes * count)
    l_whole, l_scatter, join = (low.label() for _ in range(3))
    low.emit(f"br i1 {whole}, label %{l_whole}, label %{l_scatter}")
    low.start(l_whole)
    if count == 1:
        low.emit(f"store {vector} {full[0]}, ptr {pointers[0]}, align {nbytes}")
    else:
        low.emit(f"store <{32 * count} x {memory}> {_interleaved(low, full, memory)}, ptr {pointers[0]}, align {nbytes}")
    low.emit(f"br label %{join}")
    low.start(l_scatter)
    for pointer, value in zip(pointers, full, strict=False):
        _scatter(low, memory, nbytes, pointer, access.pattern, value)
    low.emit(f"br label %{join}")
    low.start(join)


def _scatter(low, memory, nbytes, pointer, pattern, value) -> None:
    bits = f"i{8 * nbytes}"
    if memory != bits:
        value = low.new(f"bitcast <32 x {memory}> {value} to <32 x {bits}>")
    low.call(
        "void",
        f"scatter_{bits}",
        ("ptr", pointer),
        ("<32 x i32>", pattern),
        (f"<32 x {bits}>", value),
        ("i32", low.active),
    )


def _interleaved(low, parts, memory):
    n, vectors = 32, list(parts)
    while len(vectors) > 1:
        wide = ", ".join(f"i32 {k}" for k in range(2 * n))
        vectors = [
            low.new(f"shufflevector <{n} x {memory}> {a}, <{n} x {memory}> {b}, <{2 * n} x i32> <{wide}>")
            for a, b in zip(vectors[::2], vectors[1::2], strict=False)
        ]
        n *= 2
    count = n // 32
    order = ", ".join(f"i32 {part * 32 + lane}" for lane in range(32) for part in range(count))
    return low.new(f"shufflevector <{n} x {memory}> {vectors[0]}, <{n} x {memory}> poison, <{n} x i32> <{order}>")


def _stored(low, source, kind) -> Value:
    if isinstance(source, Register) and source.name in low.types:
        value = low.observed(source, {"b8": "b16", "u8": "b16", "s8": "b16"}.get(kind, kind))
        return value
    return low.operand(source, kind)


# --- watching shared memory -------------------------------------------------------------------------------------------


def _watch(low, instruction, access: ReadyAddress, nbytes: int):
    """Leave to the NumPy machine what looks like a race or a read of memory that nobody wrote."""
    facts = _watched(low, "shared", nbytes)
    address = low.new(f"trunc i64 {low.new(f'add i64 {access.base}, {access.offset}')} to i32")
    lanes = low.splat("i32", address)
    if access.pattern:
        lanes = low.new(f"add <32 x i32> {lanes}, {access.pattern}")
    arguments = [
        ("ptr", "%ctx"), ("<32 x i32>", lanes), ("i32", low.active), ("i32", str(facts["granules"])), ("i32", str(facts["log"])),
        ("i32", low.first_thread),
    ]  # fmt: skip
    name = "shadow_store"
    if low.op.effect is not Effect.STORE:
        name = "shadow_load"
        arguments.append(("i32", str(int(facts["race"]))))
    bad = low.call("i32", name, *arguments)
    low.demand(low.new(f"icmp eq i32 {bad}, 0"))


def _own(low, scalar: str, places: str, nbytes: int, store: bool):
    """Leave to the NumPy machine what looks like a race in device memory (see `owners.py`): lanes at places + scalar."""
    granule, positions = low.owning
    if low.position not in positions:
        return
    bad = low.call(
        "i32", "own", ("ptr", "%ctx"), ("i64", scalar), ("<32 x i64>", places), ("i32", low.active),
        ("i32", str(max(1, nbytes // granule))), ("i32", str(granule.bit_length() - 1)), ("i32", low.first_thread),
        ("i32", str(int(store))),
    )  # fmt: skip
    low.demand(low.new(f"icmp eq i32 {bad}, 0"))


# --- counting ------------------------------------------------------------------------------------------------------------


def _charge(low, access: ReadyAddress):
    if (low.position, 0) not in low.charges:
        return
    charge = low.charges[low.position, 0]
    memo = low.memo()
    address = low.new(f"add i64 {access.base}, {access.offset + charge.shift}")
    low.call(
        "void", "count", ("ptr", "%ctx"), ("ptr", memo), ("<32 x i32>", access.pattern or "zeroinitializer"), ("i32", low.active),
        ("i64", address), ("i32", str(charge.bits)), ("i32", str(charge.code)),
    )  # fmt: skip


# --- asynchronous copies -------------------------------------------------------------------------------------------------


@operation("cp")
def _asynchronous(low, instruction):
    """cp.async: the warp keeps a queue of what it copies, which lands when it waits."""
    opcode, words = instruction.opcode, set(instruction.modifiers)
    active = ("i32", low.active)
    if opcode == "cp.async.commit_group":
        low.call("void", "copies_commit", ("ptr", "%ws"), active)
    elif opcode in ("cp.async.wait_group", "cp.async.wait_all"):
        pending = instruction.operands[0].value if instruction.operands else -1
        low.call("i32", "copies_wait", ("ptr", "%ctx"), ("ptr", "%ws"), ("i32", str(pending)), active, ("i32", low.first_thread))
    elif words <= _COPY_WORDS and "global" in words:
        _copy(low, instruction)
    else:
        raise Unsupported(f"`{opcode}`")


_COPY_WORDS = {"async", "ca", "cg", "shared", "shared::cta", "global", "L2::64B", "L2::128B", "L2::256B", "L2::cache_hint"}


def _copy(low, instruction):
    target, source, width, *extra = instruction.operands
    width = width.value
    if "L2::cache_hint" in instruction.modifiers:
        extra.pop()
    sizes = "splat (i32 16)"
    if extra and (isinstance(extra[0], Negated) or low.types.get(getattr(extra[0], "name", "")) == "i1"):
        ignored = low.full(low.operand(extra[0], "pred"))
        sizes = low.new(f"select <32 x i1> {ignored}, <32 x i32> zeroinitializer, <32 x i32> {sizes}")
    elif extra:
        sizes = low.full(low.operand(extra[0], "u32"))
    places = _far(low, source)
    _own(low, places[0][1], places[1][1], width, False)
    watched = _watched(low, "shared", width)
    first, second = (low.charges.get((low.position, number)) for number in (0, 1))
    one_sided = first is not None and first.rule not in TWO_SIDED
    records = [
        low.record(False, 0 if one_sided else None),
        low.record(True, None, **watched),
        low.record(True, 1 if second else None if one_sided else 0),
    ]
    low.call(
        "void", f"copy_{width}", ("ptr", "%ctx"), ("ptr", "%ws"), *(("ptr", record) for record in records), *places,
        *_far(low, target), ("<32 x i32>", sizes), ("i32", low.active), ("i32", low.first_thread),
    )  # fmt: skip
