"""What every kernel needs, as LLVM IR: the block scheduler, accesses, counting, shadow memory, asynchronous copies.

What an access costs is decided in `counting/rules.py` alone: compiled code remembers the answers for the patterns it meets.
"""

from __future__ import annotations

from . import product_runtime
from .builder import LlvmFunction, Var, vector
from .device_owners import own
from .offsets import (  # fmt: skip
    CONTEXT,
    ENTRIES,
    ENTRY,
    ENTRY_BYTES,
    MEMO,
    QUEUE,
    QUEUE_HEAD,
    RECORD,
    SLOT,
    SLOT_BYTES,
    SLOTS,
    WARP_STATE,
)

INTS, LONGS, BITS = vector("i32"), vector("i64"), vector("i1")
SEVERAL, OF_WARP = 2047, 1025  # in a shadow word instead of a thread
UNDER_WAY = -1  # the shadow word of a granule that an asynchronous copy may write at any time
_ATTRIBUTES = 'nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512"'


def runtime_ir() -> str:
    """The module's text."""
    functions = [
        _find_arena(),
        _count(1),
        _count(2),
        _shadow_load(),
        _shadow_write("shadow_store"),
        _shadow_write("shadow_copy"),
        _shadow_turn(),
    ]
    functions += [f(bits) for bits in (8, 16, 32, 64) for f in (_gather, _scatter, _load, _store, _load_local, _store_local)]
    functions += [*(_shuffle(mode) for mode in ("up", "down", "bfly", "idx")), _permute(), _match(32), _match(64)]
    functions += [_transposed(), _ldmatrix(), _stmatrix(), *product_runtime.functions()]
    functions += [*(_copy(width) for width in (4, 8, 16)), _land(), _commit(), _copies_wait(), own(), _run_blocks()]
    defined = {f"@{f.function}(" for f in functions}
    declared = {line for f in functions for line in f.intrinsics if not any(name in line for name in defined)}
    attributes = [f"attributes #0 = {{ {_ATTRIBUTES} }}", f"attributes #2 = {{ alwaysinline {_ATTRIBUTES} }}", ""]
    return "\n".join([*sorted(declared), *(f.text() for f in functions), *attributes])


# --- moving data -------------------------------------------------------------------------------------------------------


def _gather(bits: int) -> LlvmFunction:
    """Loads of one width for kernels to call; a lane that is not active is not touched and reads 0."""
    kind = f"i{bits}"
    f = LlvmFunction(vector(kind), f"gather_{kind}", base="ptr", pattern=INTS, active="i32")
    f.leave(f.gather(kind, f.base.at(f.pattern), f.active.to(BITS), align=bits // 8))
    return f


def _scatter(bits: int) -> LlvmFunction:
    kind = f"i{bits}"
    f = LlvmFunction("void", f"scatter_{kind}", base="ptr", pattern=INTS, data=vector(kind), active="i32")
    f.scatter(f.data, f.base.at(f.pattern), f.active.to(BITS), align=bits // 8)
    f.leave()
    return f


class _Place:
    """Where the lanes of an access are: `base` is the first active lane's address, `pattern` how far the others are.

    fits: the distances fit into 32 bits; the others are left to the NumPy machine.
    """

    def __init__(self, f: LlvmFunction, scalar: Var, places: Var, active: Var):
        lane = f.first_lane(active)
        origin = f.lane(places, lane)
        distance = f.select(active.to(BITS), places - origin, 0)
        self.f, self.active = f, active
        self.pattern = distance.to(INTS)
        self.fits = f.bits(self.pattern.to(LONGS, signed=True).is_("ne", distance)).is_("eq", 0)
        self.base = origin + scalar

    def host(self, record: Var, nbytes: Var, unit: Var | None = None) -> Var:
        """Check an access of `nbytes` (i64) per lane, at a multiple of `unit` (a power of two; None: of nbytes).

        Gives the host's pointer for `base`. What cannot be done asks the launcher to stop: the function returns.
        """
        f, pattern, base = self.f, self.pattern, self.base
        least, most, mixed = (f.reduce(how, pattern).to("i64", signed=True) for how in ("smin", "smax", "or"))
        aligned = ((base | mixed) & ((nbytes if unit is None else unit) - 1)).is_("eq", 0)
        with f.when(~(aligned & self.fits)):
            _refuse(f, record)
        start, span = base + least, most - least + nbytes
        with f.when(~_inside(record, start, span)):
            with f.when(record.field(RECORD["shared"], "i32").is_("ne", 0)):
                _refuse(f, record)
            with f.when(f.function_call("i32", "find_arena", f.ctx, record, start, span).is_("eq", 0)):
                _refuse(f, record)
        return (base + record.field(RECORD["delta"], "i64")).to("ptr")

    def tally(self, record: Var) -> None:
        """Count the access, if its record says so."""
        f = self.f
        memo = record.field(RECORD["memo"], "ptr")
        with f.when(memo.is_("ne", Var(f, "ptr", "null"))):
            address = self.base + record.field(RECORD["shift"], "i64")
            keep, code = record.field(RECORD["mask"], "i32"), record.field(RECORD["code"], "i32")
            f.function_call("void", "count", f.ctx, memo, self.pattern, self.active, address, keep, code)

    def watch(self, record: Var, what: str, *more: Var) -> None:
        """Look at shared memory's shadow, if the record says so."""
        f = self.f
        granules = record.field(RECORD["granules"], "i32")
        with f.when(granules.is_("ne", 0)):
            log = record.field(RECORD["log"], "i32")
            address = self.pattern + self.base.to("i32")
            bad = f.function_call("i32", what, f.ctx, address, self.active, granules, log, f.first, *more)
            with f.when(bad.is_("ne", 0)):
                _refuse(f, record)


def _inside(record: Var, start: Var, span: Var) -> Var:
    """Are `span` bytes (0 to 2^62) from `start` on between the record's or arena's bounds? No address can wrap here:
    what is compared, without signs, are the distance from the lower bound and the room for it."""
    low = record.field(RECORD["low"], "i64")
    size = record.field(RECORD["high"], "i64") - low
    return span.is_("ule", size) & (start - low).is_("ule", size - span)


def _refuse(f: LlvmFunction, record: Var) -> None:
    """Ask the launcher to stop, and return: the NumPy machine will say what is wrong."""
    f.store(record.field(RECORD["position"], "i32"), f.ctx.at(CONTEXT["fail"]))
    f.store(f.constant("i32", 1), f.ctx.at(CONTEXT["stop"]), volatile=True)
    f.leave(None if f.result == "void" else 0)


def _access(what: str, bits: int) -> tuple[LlvmFunction, Var, _Place]:
    f = LlvmFunction(
        "void", f"{what}_i{bits}", ctx="ptr", record="ptr", scalar="i64", places=LONGS, active="i32", first="i32", count="i32",
        buffer="ptr",
    )  # fmt: skip
    place = _Place(f, f.scalar, f.places, f.active)
    host = place.host(f.record, (f.count * (bits // 8)).to("i64"))
    place.tally(f.record)
    return f, host, place


def _load(bits: int) -> LlvmFunction:
    """A whole load by call: check, count, watch, and move `count` elements per lane to the buffer.

    If it cannot be done, the warp goes on with what the buffer held until it looks whether it shall stop.
    """
    f, host, place = _access("load", bits)
    place.watch(f.record, "shadow_load", f.record.field(RECORD["race"], "i32"))
    kind, nbytes = vector(f"i{bits}"), bits // 8
    with f.loop(f.count) as k:
        lanes = host.at(k * nbytes).at(place.pattern)
        f.store(f.gather(f"i{bits}", lanes, f.active.to(BITS), f.constant(kind, 0), nbytes), f.buffer.at(k * (32 * nbytes)), 64)
    f.leave()
    return f


def _store(bits: int) -> LlvmFunction:
    """The same for a store of what the buffer holds."""
    f, host, place = _access("store", bits)
    place.watch(f.record, "shadow_store")
    kind, nbytes = vector(f"i{bits}"), bits // 8
    with f.loop(f.count) as k:
        lanes = host.at(k * nbytes).at(place.pattern)
        f.scatter(f.load(kind, f.buffer.at(k * (32 * nbytes)), 64), lanes, f.active.to(BITS), nbytes)
    f.leave()
    return f


def _local(what: str, bits: int):
    """An access to local memory: (function, function that gives the lanes' pointers to the k-th element's word and what is
    left of its address in it, distance to the bytes that say which are unwritten). It gives the lanes that found such bytes."""
    f = LlvmFunction(
        "i32", f"{what}_local_i{bits}", ctx="ptr", record="ptr", scalar="i64", places=LONGS, active="i32", first="i32", count="i32",
        buffer="ptr",
    )  # fmt: skip
    place = _Place(f, f.scalar, f.places, f.active)
    place.host(f.record, (f.count * (bits // 8)).to("i64"), f.constant("i64", bits // 8))
    place.tally(f.record)
    area = _state_of(f, f.first >> 5).field(WARP_STATE["local"], "ptr")
    beyond = area.at(f.ctx.field(CONTEXT["local_bytes"], "i64") << 5)

    def at(k: Var, word: int = 0) -> tuple[Var, Var]:
        byte = place.pattern + (place.base.to("i32") + k * (bits // 8) + 4 * word)
        where = ((byte >> 2) << 7) + f.lanes([4 * lane for lane in range(32)]) + (byte & 3)
        return area.at(where), beyond.at(where)

    return f, at


def _load_local(bits: int) -> LlvmFunction:
    f, at = _local("load", bits)
    mask = f.active.to(BITS)
    unwritten = f.variable(f.constant("i32", 0))

    def gather(places: tuple[Var, Var], kind: str, align: int) -> Var:
        missing = f.gather(kind, places[1], mask, align=align).is_("ne", 0)
        unwritten.set(unwritten.get() | f.bits(missing))
        return f.gather(kind, places[0], mask, align=align)

    with f.loop(f.count) as k:
        if bits == 64:
            low, high = (gather(at(k, word), "i32", 4).to(LONGS) for word in (0, 1))
            value = low | high << 32
        else:
            value = gather(at(k), f"i{bits}", bits // 8)
        f.store(value, f.buffer.at(k * (4 * bits)), 64)
    f.leave(unwritten.get())
    return f


def _store_local(bits: int) -> LlvmFunction:
    f, at = _local("store", bits)
    mask = f.active.to(BITS)
    with f.loop(f.count) as k:
        value = f.load(vector(f"i{bits}"), f.buffer.at(k * (4 * bits)), 64)
        parts = [(value >> 32 * word).to(INTS) for word in (0, 1)] if bits == 64 else [value]
        for word, part in enumerate(parts):
            here, beyond = at(k, word)
            f.scatter(part, here, mask, min(bits, 32) // 8)
            f.scatter(f.constant(part.type, 0), beyond, mask, min(bits, 32) // 8)
    f.leave(0)
    return f


def _find_arena() -> LlvmFunction:
    """Let a record know the array that holds `span` bytes from `begin` on: 1, or 0 if there is none."""
    f = LlvmFunction("i32", "find_arena", ctx="ptr", record="ptr", begin="i64", span="i64")
    arenas = f.ctx.field(CONTEXT["arenas"], "ptr")
    with f.loop(f.ctx.field(CONTEXT["arena_count"], "i64")) as i:
        arena = arenas.at(i * 24)
        with f.when(_inside(arena, f.begin, f.span)):
            for name in ("low", "high", "delta"):
                f.store(arena.field(RECORD[name], "i64"), f.record.at(RECORD[name]))
            f.leave(1)
    f.leave(0)
    return f


# --- counting ----------------------------------------------------------------------------------------------------------

_MIX = [(2 * i + 1) * 0x9E3779B1 % 2**32 for i in range(32)]


def _count(sides: int) -> LlvmFunction:
    """Add what an access costs to its site's totals.

    A pattern seen before, at the same place within `keep` bytes, costs what it did then; another one is looked up by
    the launcher, in rules.py. A copy has two sides, global and shared.
    """
    other = {"other": INTS, "there": "i64"} if sides == 2 else {}
    f = LlvmFunction(
        "void", "count" if sides == 1 else "count_copy", ctx="ptr", memo="ptr", pattern=INTS, active="i32", address="i64",
        keep="i32", code="i32", **other,
    )  # fmt: skip
    shift = f.address.to("i32") & f.keep
    mixed = f.pattern * f.lanes(_MIX)
    if sides == 2:
        shift |= (f.there.to("i32") & f.keep) << 16
        mixed += f.other * f.lanes(_MIX[::-1])
    hashed = f.reduce("add", mixed) ^ (shift * 73244475) ^ (f.active * 295559667)
    slot = (hashed ^ (hashed >> 15)) & (SLOTS - 1)
    entry = f.memo.at(slot.to("i64") * SLOT_BYTES + MEMO["slots"])
    pattern_at = entry.at(SLOT["pattern"])
    same = f.bits(f.load(INTS, pattern_at, 64).is_("eq", f.pattern)).is_("eq", -1)
    same &= entry.field(SLOT["active"], "i32").is_("eq", f.active) & entry.field(SLOT["shift"], "i32").is_("eq", shift)
    if sides == 2:
        same &= f.bits(entry.field(SLOT["other"], INTS, 64).is_("eq", f.other)).is_("eq", -1)
    with f.when(~same):
        f.store(f.pattern, pattern_at, 64)
        if sides == 2:
            f.store(f.other, entry.at(SLOT["other"]), 64)
        f.store(f.active, entry.at(SLOT["active"]))
        f.store(shift, entry.at(SLOT["shift"]))
        account = f.ctx.field(CONTEXT["account"], "ptr")
        listed = ", ".join(f"{v.type} {v.name}" for v in (f.code, f.active, shift, pattern_at, entry.at(SLOT["requests"])))
        f.emit(f"call void {account.name}({listed})")
    for name in ("requests", "units", "ideal"):
        f.increase(f.memo.at(MEMO[name]), entry.field(SLOT[name], "i32").to("i64"))
    f.leave()
    return f


# --- the shadow of shared memory -----------------------------------------------------------------------------------------
# Two words per granule, of who wrote and who read it last: epoch << 11 | thread + 1 (SEVERAL: several threads; OF_WARP + w:
# several of warp w), 0: nobody yet. The epoch grows with every barrier. Where warps have barriers of their own, two more
# words say how many its warp had passed by then. A function returns 1 if the NumPy machine should have a look: unwritten,
# met by another thread with no barrier between, or an asynchronous copy is under way there.


class _Shadow:
    """What the shadow functions share. addresses: of the lanes, in shared memory."""

    def __init__(self, name: str, **more: str):
        self.f = f = LlvmFunction(
            "i32", name, ctx="ptr", addresses=INTS, active="i32", cells="i32", log="i32", first="i32", **more
        )  # fmt: skip
        self.epoch = f.ctx.field(CONTEXT["epoch"], "i32") << 11
        self.mine = (self.epoch | (f.first + 1)).to(INTS) + f.lanes(range(32))
        self.mask = f.active.to(BITS)
        self.cell = f.addresses >> f.log.to(INTS)
        self.turning = f.ctx.field(CONTEXT["turning"], "i32").is_("ne", 0)
        self.warp = f.first >> 5
        self.shadow = {kind: f.ctx.field(CONTEXT[f"shadow_{kind}"], "ptr") for kind in ("writer", "reader")}

    def places(self, kind: str, cell: Var, turn: bool = False) -> Var:
        f = self.f
        shadow = self.shadow[kind]
        return (shadow.at(f.ctx.field(CONTEXT["shadow_bytes"], "i64")) if turn else shadow).item("i32", cell)

    def words(self, kind: str, cell: Var) -> tuple[Var, Var]:
        """(places, words) of the granules; lanes that take no part see themselves."""
        places = self.places(kind, cell)
        return places, self.f.gather("i32", places, self.mask, self.mine)

    def other(self, word: Var) -> Var:
        """Lanes whose word names this epoch and somebody else."""
        apart = word ^ self.mine
        return apart.is_("ult", 2048) & apart.is_("ne", 0)

    def of_own_warp(self, word: Var) -> Var:
        """Lanes whose word names threads of this warp."""
        f = self.f
        code = word & SEVERAL
        warp = f.select(code.is_("uge", OF_WARP), code - OF_WARP, (code - 1) >> 5)
        return warp.is_("eq", self.warp) & code.is_("ne", SEVERAL)

    def suspect(self, lanes: Var) -> None:
        with self.f.when(self.f.bits(lanes).is_("ne", 0)):
            self.f.leave(1)

    def meet(self, kind: str, cell: Var, word: Var) -> None:
        """Another thread has been here since the barrier: all is well only if a barrier of the warp orders the two."""
        f = self.f
        others = self.other(word)
        with f.when(f.bits(others).is_("ne", 0)):
            with f.when(~self.turning):
                f.leave(1)
            then = f.gather("i32", self.places(kind, cell, True), self.mask)
            ordered = self.of_own_warp(word) & then.is_("slt", _turn_of(f, self.warp).to(INTS))
            self.suspect(others & ~ordered)

    def stamp(self, kind: str, cell: Var) -> None:
        f = self.f
        with f.when(self.turning):
            f.scatter(_turn_of(f, self.warp).to(INTS), self.places(kind, cell, True), self.mask)


def _turn_of(f: LlvmFunction, warp: Var) -> Var:
    return _state_of(f, warp).field(WARP_STATE["turn"], "i32")


def _state_of(f: LlvmFunction, warp: Var) -> Var:
    return f.ctx.field(CONTEXT["states"], "ptr").at(warp.to("i64") * f.ctx.field(CONTEXT["stride"], "i64"))


def _shadow_turn() -> LlvmFunction:
    """A warp passes a barrier of its own."""
    f = LlvmFunction("void", "shadow_turn", ctx="ptr", first="i32")
    f.increase(_state_of(f, f.first >> 5).at(WARP_STATE["turn"]), f.constant("i32", 1))
    f.leave()
    return f


def _shadow_load() -> LlvmFunction:
    s = _Shadow("shadow_load", race="i32")
    f = s.f
    with f.loop(f.cells) as c:
        cell = s.cell + c
        _, writers = s.words("writer", cell)
        s.suspect((writers + 1).is_("ule", 1))  # 0 or UNDER_WAY
        with f.when(f.race.is_("ne", 0)):
            s.meet("writer", cell, writers)
            places, readers = s.words("reader", cell)
            last = f.variable(readers)
            with f.when(s.turning):  # reads before a barrier of the warp need not be known any more
                then = f.gather("i32", s.places("reader", cell, True), s.mask)
                past = s.of_own_warp(readers) & then.is_("slt", _turn_of(f, s.warp).to(INTS))
                last.set(f.select(past, f.constant(INTS, 0), readers))
            readers = last.get()
            known = (readers ^ s.mine).is_("ult", 2048)
            own = (s.of_own_warp(readers) | ~known) & f.spread(s.turning, BITS)
            several = s.epoch.to(INTS) | f.select(own, (s.warp + OF_WARP).to(INTS), f.constant(INTS, SEVERAL))
            new = f.select(s.other(readers), several, s.mine)
            with f.when(f.bits(new.is_("ne", readers)).is_("ne", 0)):
                f.scatter(new, places, s.mask)
                lost = f.gather("i32", places, s.mask, new).is_("ne", new)  # another lane reads the same granule
                f.scatter(several, places, lost)
            s.stamp("reader", cell)
    f.leave(0)
    return f


def _shadow_write(name: str) -> LlvmFunction:
    """A store, or a copy that begins."""
    s = _Shadow(name)
    f = s.f
    with f.loop(f.cells) as c:
        cell = s.cell + c
        places, writers = s.words("writer", cell)
        _, readers = s.words("reader", cell)
        s.suspect(writers.is_("eq", UNDER_WAY))
        s.meet("writer", cell, writers)
        s.meet("reader", cell, readers)
        if name == "shadow_copy":  # it begins: from now on it may write these places
            f.scatter(f.constant(INTS, UNDER_WAY), places, s.mask)
        else:
            f.scatter(s.mine, places, s.mask)
            s.suspect(f.gather("i32", places, s.mask, s.mine).is_("ne", s.mine))  # two lanes write the same granule
            s.stamp("writer", cell)
    f.leave(0)
    return f


# --- asynchronous copies -------------------------------------------------------------------------------------------------


def _copy(width: int) -> LlvmFunction:
    """cp.async: read now, land when waited for. sizes: bytes to read per lane, the rest are zeros."""
    f = LlvmFunction(
        "void", f"copy_{width}", ctx="ptr", state="ptr", source="ptr", target="ptr", both="ptr", from_="i64", froms=LONGS, to_="i64",
        tos=LONGS, sizes=INTS, active="i32", first="i32",
    )  # fmt: skip
    nbytes, bits = f.constant("i64", width), f"i{8 * width}"
    queue = f.state.field(WARP_STATE["copies"], "ptr")
    end = queue.field(QUEUE["end"], "i32")
    with f.when(end.is_("uge", ENTRIES)):
        room = f.function_call("i32", "copies_wait", f.ctx, f.state, f.constant("i32", -2), f.active, f.first)
        with f.when(room.is_("eq", 0)):
            _refuse(f, f.target)
    end = queue.field(QUEUE["end"], "i32")
    entry = queue.at(end.to("i64") * ENTRY_BYTES + QUEUE["entries"])
    target = _Place(f, f.to_, f.tos, f.active)
    target.host(f.target, nbytes)
    target.watch(f.target, "shadow_copy")
    offsets = target.pattern + target.base.to("i32")
    for name, value in (
        ("mask", f.active), ("width", f.constant("i32", width)), ("granules", f.target.field(RECORD["granules"], "i32")),
        ("log", f.target.field(RECORD["log"], "i32")),
    ):  # fmt: skip
        f.store(value, entry.at(ENTRY[name]))
    f.store(offsets, entry.at(ENTRY["offsets"]), 64)
    f.store(queue.field(QUEUE["commits"], INTS, 64), entry.at(ENTRY["group"]), 64)
    f.clear(entry.at(ENTRY["values"]), f.constant("i64", 32 * width))
    f.store(end + 1, queue.at(QUEUE["end"]))
    wanted = f.bits(f.sizes.is_("ne", 0)) & f.active
    with f.when(wanted.is_("eq", 0)):
        f.leave()
    source = _Place(f, f.from_, f.froms, wanted)
    host = source.host(f.source, nbytes)
    source.tally(f.source)
    memo = f.both.field(RECORD["memo"], "ptr")
    with f.when(memo.is_("ne", Var(f, "ptr", "null"))):
        there = _Place(f, f.to_, f.tos, wanted)
        keep, code = f.both.field(RECORD["mask"], "i32"), f.both.field(RECORD["code"], "i32")
        f.function_call("void", "count_copy", f.ctx, memo, source.pattern, wanted, source.base, keep, code, there.pattern, there.base)
    with f.each_lane(wanted) as lane:
        value = f.load(bits, host.at(f.lane(source.pattern, lane).to("i64", signed=True)), width)
        size = f.lane(f.sizes, lane)
        with f.when(size.is_("uge", width)):
            f.store(value, entry.at(lane * width + ENTRY["values"]), width)
        with f.when(size.is_("ult", width)):
            ones = f.constant(bits, -1) >> ((f.constant("i32", width) - size) * 8).to(bits)
            f.store(value & ones, entry.at(lane * width + ENTRY["values"]), width)
    f.leave()
    return f


def _land() -> LlvmFunction:
    """Write the data of some lanes of a copy to shared memory."""
    f = LlvmFunction("void", "land", ctx="ptr", copy="ptr", lanes_="i32", first="i32")
    shared = f.ctx.field(CONTEXT["shared"], "ptr")
    width = f.copy.field(ENTRY["width"], "i32")
    offsets = f.copy.at(ENTRY["offsets"])
    for size in (4, 8, 16):
        with f.when(width.is_("eq", size)), f.each_lane(f.lanes_) as lane:
            value = f.load(f"i{8 * size}", f.copy.at(lane * size + ENTRY["values"]), size)
            f.store(value, shared.at(f.load("i32", offsets.at(lane * 4)).to("i64")), size)
    granules, log = f.copy.field(ENTRY["granules"], "i32"), f.copy.field(ENTRY["log"], "i32")
    with f.when(granules.is_("ne", 0)):
        mine = ((f.ctx.field(CONTEXT["epoch"], "i32") << 11) | (f.first + 1)).to(INTS) + f.lanes(range(32))
        cell = f.load(INTS, offsets, 64) >> log.to(INTS)
        with f.loop(granules) as c:
            places = f.ctx.field(CONTEXT["shadow_writer"], "ptr").item("i32", cell + c)
            f.scatter(mine, places, f.lanes_.to(BITS))
            with f.when(f.ctx.field(CONTEXT["turning"], "i32").is_("ne", 0)):
                turns = f.ctx.field(CONTEXT["shadow_writer"], "ptr").at(f.ctx.field(CONTEXT["shadow_bytes"], "i64"))
                f.scatter(_turn_of(f, f.first >> 5).to(INTS), turns.item("i32", cell + c), f.lanes_.to(BITS))
    f.leave()
    return f


def _commit() -> LlvmFunction:
    """Close the active lanes' group of copies."""
    f = LlvmFunction("void", "copies_commit", state="ptr", active="i32")
    commits = f.state.field(WARP_STATE["copies"], "ptr").at(QUEUE["commits"])
    f.store(f.load(INTS, commits, 64) + f.active.to(BITS).to(INTS), commits, 64)
    f.leave()
    return f


def _copies_wait() -> LlvmFunction:
    """Land all but the active lanes' last `pending` groups; -1: every copy; -2: none, only make room. Gives whether there is room."""
    f = LlvmFunction("i32", "copies_wait", ctx="ptr", state="ptr", pending="i32", active="i32", first="i32")
    queue = f.state.field(WARP_STATE["copies"], "ptr")
    entries = queue.at(QUEUE["entries"])
    commits = queue.field(QUEUE["commits"], INTS, 64)
    begin, end = queue.field(QUEUE["first"], "i32"), queue.field(QUEUE["end"], "i32")
    with f.when(f.pending.is_("ne", -2)):
        every = f.pending.is_("eq", -1)
        latest = commits - f.pending.to(INTS)
        with f.loop(end, begin) as i:
            entry = entries.at(i.to("i64") * ENTRY_BYTES)
            mask = entry.field(ENTRY["mask"], "i32")
            early = f.bits(entry.field(ENTRY["group"], INTS, 64).is_("slt", latest))
            now = f.select(every, f.constant("i32", -1), early) & mask & f.active
            with f.when(now.is_("ne", 0)):
                f.function_call("void", "land", f.ctx, entry, now, f.first)
                f.store(mask ^ now, entry.at(ENTRY["mask"]))
    # Landed copies at the front are forgotten; if the end of the room is near, the others move to the front.
    place = f.variable(begin)
    with f.repeat() as stop:
        now = place.get()
        stop(now.is_("uge", end))
        stop(entries.at(now.to("i64") * ENTRY_BYTES).field(ENTRY["mask"], "i32").is_("ne", 0))
        place.set(now + 1)
    first = place.get()
    left = f.variable(end)
    with f.when(first.is_("eq", end) | f.pending.is_("eq", -2)):
        count = end - first
        f.intrinsics.add("declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)")
        whence, nbytes = entries.at(first.to("i64") * ENTRY_BYTES), count.to("i64") * ENTRY_BYTES
        f.emit(f"call void @llvm.memmove.p0.p0.i64(ptr {entries.name}, ptr {whence.name}, i64 {nbytes.name}, i1 false)")
        place.set(0)
        left.set(count)
    f.store(place.get(), queue.at(QUEUE["first"]))
    f.store(left.get(), queue.at(QUEUE["end"]))
    f.leave(left.get().is_("ult", ENTRIES).to("i32"))
    return f


# --- warps ---------------------------------------------------------------------------------------------------------------


def _shuffle(mode: str) -> LlvmFunction:
    """The lane that each lane reads; its own + 32 where that is outside of its segment."""
    f = LlvmFunction(INTS, f"shuffle_{mode}", distance=INTS, control=INTS)
    own = f.lanes(range(32))
    distance, clamp, segment = f.distance & 31, f.control & 31, (f.control >> 8) & 31
    lowest = own & segment
    highest = lowest | (clamp & ~segment)
    source = {
        "up": lambda: own - distance, "down": lambda: own + distance, "bfly": lambda: own ^ distance,
        "idx": lambda: lowest | (distance & ~segment),
    }[mode]()  # fmt: skip
    inside = source.is_("sge" if mode == "up" else "sle", highest)
    f.leave(f.select(inside, source & 31, own + 32))
    return f


def _permute() -> LlvmFunction:
    """values[where] of every lane."""
    f = LlvmFunction(INTS, "permute", values=INTS, where=INTS)
    kept = f.room("i32", 32)
    f.store(f.values, kept, 64)
    f.leave(f.gather("i32", kept.item("i32", f.where), f.constant(BITS, -1)))
    return f


def _match(bits: int) -> LlvmFunction:
    """Per lane, which of some lanes have its value."""
    f = LlvmFunction(INTS, f"match_i{bits}", values=vector(f"i{bits}"), some="i32")
    found = f.variable(f.constant(INTS, 0))
    with f.loop(f.constant("i32", 32)) as lane:
        alike = f.bits(f.values.is_("eq", f.lane(f.values, lane)))
        here = f.lanes(range(32)).is_("eq", lane)
        found.set(f.select(here, (alike & f.some).to(INTS), found.get()))
    f.leave(found.get())
    return f


# --- matrices ------------------------------------------------------------------------------------------------------------

_ROW, _WORD = [lane // 4 for lane in range(32)], [lane % 4 for lane in range(32)]  # a lane's place in an 8 x 8 matrix


def _transposed() -> LlvmFunction:
    """An 8 x 8 matrix of 16-bit elements, row (lane / 4) in the words of four lanes, transposed."""
    f = LlvmFunction(INTS, "transposed", values=INTS)
    kept = f.room("i32", 40)
    f.store(f.values, kept, 64)
    everyone = f.constant(BITS, -1)
    low, high = (
        f.gather(
            "i32", kept.at(f.lanes([16 * (2 * word + k) + 2 * row for row, word in zip(_ROW, _WORD, strict=False)])), everyone, align=2
        )
        for k in (0, 1)
    )
    f.leave((low & 0xFFFF) | (high << 16))
    return f


def _matrix_rows(name: str, watch: str):
    """What ldmatrix and stmatrix share. Lane 8 i + r has the address of row r of matrix i; gives each matrix's words."""
    f = LlvmFunction(
        "void", name, ctx="ptr", record="ptr", scalar="i64", places=LONGS, first="i32", count="i32", turned="i32", buffer="ptr"
    )
    lanes = f.count << 3
    some = f.select(lanes.is_("uge", 32), f.constant("i32", -1), (f.constant("i32", 1) << (lanes & 31)) - 1)
    place = _Place(f, f.scalar, f.places, some)
    host = place.host(f.record, f.constant("i64", 16))
    place.active = f.constant("i32", -1)
    place.tally(f.record)
    more = (f.record.field(RECORD["race"], "i32"),) if watch == "shadow_load" else ()
    rows = place.pattern

    def each(i: Var):
        place.pattern = f.function_call(INTS, "permute", rows, f.lanes(_ROW) + (i << 3)) + f.lanes([4 * word for word in _WORD])
        place.watch(f.record, watch, *more)
        return host.at(place.pattern), f.buffer.at(i * 128)

    return f, each


def _ldmatrix() -> LlvmFunction:
    f, each = _matrix_rows("ldmatrix", "shadow_load")
    with f.loop(f.count) as i:
        places, slot = each(i)
        words = f.gather("i32", places, f.constant(BITS, -1))
        f.store(words, slot, 64)
        with f.when(f.turned.is_("ne", 0)):
            f.store(f.function_call(INTS, "transposed", words), slot, 64)
    f.leave()
    return f


def _stmatrix() -> LlvmFunction:
    f, each = _matrix_rows("stmatrix", "shadow_store")
    with f.loop(f.count) as i:
        places, slot = each(i)
        words = f.variable(f.load(INTS, slot, 64))
        with f.when(f.turned.is_("ne", 0)):
            words.set(f.function_call(INTS, "transposed", words.get()))
        f.scatter(words.get(), places, f.constant(BITS, -1))
    f.leave()
    return f


# --- blocks --------------------------------------------------------------------------------------------------------------


def _run_blocks() -> LlvmFunction:
    """Run blocks[0..n): 0 when all ended, -1 when one failed (its linear index is left in the context)."""
    f = LlvmFunction("i32", "run_blocks", ctx="ptr", blocks="ptr", n="i64")
    ctx = f.ctx
    warps, states, stride = ctx.field(CONTEXT["warps"], "i32"), ctx.field(CONTEXT["states"], "ptr"), ctx.field(CONTEXT["stride"], "i64")
    shadow_bytes = ctx.field(CONTEXT["shadow_bytes"], "i64")
    memories = [(ctx.field(CONTEXT["shared"], "ptr"), ctx.field(CONTEXT["shared_end"], "i64"))]
    memories += [(ctx.field(CONTEXT[f"shadow_{kind}"], "ptr"), shadow_bytes) for kind in ("writer", "reader")]
    local_bytes = ctx.field(CONTEXT["local_bytes"], "i64")
    epoch_at, stop_at = ctx.at(CONTEXT["epoch"]), ctx.at(CONTEXT["stop"])
    with f.loop(f.n) as k:
        linear = f.load("i64", f.blocks.at(k * 8))

        def fail(test: Var, linear=linear) -> None:
            with f.when(test):
                f.store(linear, ctx.at(CONTEXT["failed_block"]))
                f.leave(-1)

        def state_of(warp: Var) -> Var:
            return states.at(warp.to("i64") * stride)

        fail(f.load("i32", stop_at, volatile=True).is_("ne", 0))
        number, width, height = linear.to("i32"), ctx.field(CONTEXT["nctaid"], "i32"), ctx.field(CONTEXT["nctaid"] + 4, "i32")
        row = number.divided(width)
        for axis, value in enumerate((number.rest(width), row.rest(height), row.divided(height))):
            f.store(value, ctx.at(CONTEXT["ctaid"] + 4 * axis))
        for memory, nbytes in memories:
            f.clear(memory, nbytes)
        f.store(f.constant("i32", 1), epoch_at)
        with f.loop(warps) as w:
            state = state_of(w)
            f.store(state.field(WARP_STATE["initial"], "i32"), state.at(WARP_STATE["live"]))
            f.store(f.constant("i32", 0), state.at(WARP_STATE["resume"]))
            queue = state.field(WARP_STATE["copies"], "ptr")
            with f.when(queue.is_("ne", Var(f, "ptr", "null"))):
                f.clear(queue, f.constant("i64", QUEUE_HEAD))
            f.clear(state.field(WARP_STATE["local"], "ptr"), local_bytes << 6, 255)
        # All warps run to their next barrier, in turn, until all have ended.
        with f.repeat() as ended:
            meeting = f.variable(f.constant("i32", -2))
            with f.loop(warps) as w:
                state = state_of(w)
                resume_at = state.at(WARP_STATE["resume"])
                code = f.function_call("i32", "warp", ctx, state, f.load("i32", resume_at))
                fail(f.load("i32", stop_at, volatile=True).is_("ne", 0) | code.is_("slt", 0))
                f.store(code, resume_at)
                fail(meeting.get().is_("ne", -2) & meeting.get().is_("ne", code))
                # A barrier must find all threads that the warp began with.
                live, initial = state.field(WARP_STATE["live"], "i32"), state.field(WARP_STATE["initial"], "i32")
                fail(live.is_("ne", initial) & code.is_("ne", 0))
                meeting.set(code)
            ended(meeting.get().is_("eq", 0))
            later = f.load("i32", epoch_at) + 1
            f.store(later, epoch_at)
            fail(later.is_("ugt", 1_000_000))
    f.leave(0)
    return f
