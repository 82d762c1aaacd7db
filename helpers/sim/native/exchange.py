"""Instructions of a whole warp: shuffles, votes, matches, reductions, warp barriers.

They are in U code only, where all live lanes of the warp are together (see `Op.rendezvous`).
"""

from __future__ import annotations

from helpers.sim.code.ptx import Immediate, Pair

from .declined import Unsupported
from .dispatch import operation
from .lower import IOTA, Value
from .offsets import WARP_STATE

_INTS, _BITS = "<32 x i32>", "<32 x i1>"


def _together(low, instruction) -> None:
    if low.mode != "U" or instruction.guard:
        raise Unsupported(f"`{instruction.opcode}` in divergent code")


def _iota() -> str:
    return IOTA.split("> ", 1)[1]


def _mask(low, lanes: str) -> str:
    return low.new(f"bitcast {_BITS} {lanes} to i32")


def _members(low, operand) -> str:
    """The live lanes that a member mask names, as a mask.

    A mask that leaves a caller out, or names a lane that has ended, is left to the NumPy machine: it may be a finding.
    """
    named = low.operand(operand, "b32")
    if named.uniform:
        every = named.s
    else:
        own = low.new(f"trunc {_INTS} {low.new(f'lshr {_INTS} {low.full(named)}, {_iota()}')} to {_BITS}")
        left_out = low.new(f"xor i32 {low.new(f'and i32 {_mask(low, own)}, {low.active}')}, {low.active}")
        low.demand(low.new(f"icmp eq i32 {left_out}, 0"))
        awake = low.lanes(low.active)
        masks = low.new(f"select {_BITS} {awake}, {_INTS} {low.full(named)}, {_INTS} zeroinitializer")
        every = low.call("i32", "llvm.vector.reduce.or.v32i32", (_INTS, masks))
    present = low.new(f"and i32 {every}, {low._field('%ws', WARP_STATE['initial'], 'i32')}")
    low.demand(low.new(f"icmp eq i32 {present}, {low.active}"))
    return low.active


def _one_group(low, operand) -> str:
    """As `_members`, where all that are named answer together: lanes with different masks are left to the NumPy machine."""
    named = low.operand(operand, "b32")
    if not named.uniform:
        awake = low.lanes(low.active)
        masks = low.new(f"select {_BITS} {awake}, {_INTS} {low.full(named)}, {_INTS} splat (i32 -1)")
        by_all = low.call("i32", "llvm.vector.reduce.and.v32i32", (_INTS, masks))
        low.demand(low.new(f"icmp eq i32 {low.new(f'and i32 {by_all}, {low.active}')}, {low.active}"))
    return _members(low, operand)


def _put_pair(low, operand, first: Value, second: Value) -> None:
    if isinstance(operand, Pair):
        low.put(operand.first, first)
        low.put(operand.second, second)
    else:
        low.put(operand, first)


# --- shuffles ----------------------------------------------------------------------------------------------------------


def _sources(mode: str, distance: int, control: int) -> tuple[list[int], list[bool]]:
    """(lane each lane reads, whether that is inside of its segment)."""
    clamp, segment = control & 31, control >> 8 & 31
    lanes, inside = [], []
    for lane in range(32):
        highest, lowest = (lane & segment) | (clamp & ~segment & 31), lane & segment
        if mode == "up":
            source = lane - distance
            good = source >= highest
        else:
            source = {"down": lane + distance, "bfly": lane ^ distance}.get(mode, lowest | (distance & ~segment & 31))
            good = source <= highest
        lanes.append(source & 31 if good else lane)
        inside.append(good)
    return lanes, inside


@operation("shfl")
def _shuffle(low, i):
    _together(low, i)
    mode = next(m for m in i.modifiers if m in ("up", "down", "bfly", "idx"))
    if len(i.operands) > 4:
        _members(low, i.operands[4])
    values = low.full(low.operand(i.operands[1], "b32"))
    distance, control = (low.operand(o, "b32") for o in i.operands[2:4])
    if isinstance(i.operands[2], Immediate) and isinstance(i.operands[3], Immediate):
        lanes, inside = _sources(mode, i.operands[2].value & 31, i.operands[3].value)
        listed = "<" + ", ".join(f"i32 {lane}" for lane in lanes) + ">"
        within = "<" + ", ".join(f"i1 {str(good).lower()}" for good in inside) + ">"
        result = low.new(f"shufflevector {_INTS} {values}, {_INTS} poison, <32 x i32> {listed}")
        weights = "<" + ", ".join(f"i32 {1 << lane}" for lane in lanes) + ">"
        live = low.new(f"and {_INTS} {low.splat('i32', low.active)}, {weights}")
        asleep = low.new(f"icmp eq {_INTS} {live}, zeroinitializer")
    else:
        where = low.call(_INTS, f"shuffle_{mode}", (_INTS, low.full(distance)), (_INTS, low.full(control)))  # 32 more: outside
        within = low.new(f"icmp ult {_INTS} {where}, splat (i32 32)")
        where = low.new(f"and {_INTS} {where}, splat (i32 31)")
        result = low.call(_INTS, "permute", (_INTS, values), (_INTS, where))
        bits = low.new(f"lshr {_INTS} {low.splat('i32', low.active)}, {where}")
        asleep = low.new(f"xor {_BITS} {low.new(f'trunc {_INTS} {bits} to {_BITS}')}, splat (i1 true)")
    # The value of a lane that does not take part is undefined.
    bad = low.new(f"and i32 {_mask(low, asleep)}, {low.active}")
    low.demand(low.new(f"icmp eq i32 {bad}, 0"))
    _put_pair(low, i.operands[0], Value("i32", v=result), Value("i1", v=within))


# --- votes and reductions ----------------------------------------------------------------------------------------------


@operation("vote")
def _vote(low, i):
    _together(low, i)
    truth = low.operand(i.operands[1], "pred")
    lanes = _one_group(low, i.operands[2]) if len(i.operands) > 2 else low.active
    yes = low.new(f"and i32 {_mask(low, low.full(truth))}, {lanes}")
    if "ballot" in i.modifiers:
        low.put(i.operands[0], Value("i32", s=yes))
        return
    some, every = low.new(f"icmp ne i32 {yes}, 0"), low.new(f"icmp eq i32 {yes}, {lanes}")
    if "any" in i.modifiers:
        answer = some
    elif "all" in i.modifiers:
        answer = every
    elif "uni" in i.modifiers:
        answer = low.new(f"or i1 {every}, {low.new(f'xor i1 {some}, true')}")
    else:
        raise Unsupported(f"`{i.opcode}`")
    low.put(i.operands[0], Value("i1", s=answer))


@operation("activemask")
def _active_mask(low, i):
    low.put(i.operands[0], Value("i32", s=low.active))


@operation("redux")
def _reduce(low, i):
    _together(low, i)
    kind = i.modifiers[-1]
    name = next((m for m in i.modifiers if m in ("add", "min", "max", "and", "or", "xor")), None)
    if kind not in ("s32", "u32", "b32") or name is None:
        raise Unsupported(f"`{i.opcode}`")
    values = low.full(low.operand(i.operands[1], kind))
    lanes = low.lanes(_one_group(low, i.operands[2]))
    signed = kind == "s32"
    neutral = {"and": -1, "min": 0x7FFFFFFF if signed else -1, "max": -(1 << 31) if signed else 0}.get(name, 0)
    kept = low.new(f"select {_BITS} {lanes}, {_INTS} {values}, {_INTS} {low.splat('i32', str(neutral))}")
    how = ("s" if signed else "u") + name if name in ("min", "max") else name
    low.put(i.operands[0], Value("i32", s=low.call("i32", f"llvm.vector.reduce.{how}.v32i32", (_INTS, kept))))


@operation("match")
def _match(low, i):
    _together(low, i)
    bits = int(i.modifiers[-1][1:])
    kind = f"<32 x i{bits}>"
    values, lanes = low.full(low.operand(i.operands[1], f"b{bits}")), _one_group(low, i.operands[2])
    found = low.call(_INTS, f"match_i{bits}", (kind, values), ("i32", lanes))
    if "any" in i.modifiers:
        low.put(i.operands[0], Value("i32", v=found))
        return
    alike = low.new(f"icmp eq {_INTS} {found}, {low.splat('i32', lanes)}")
    missing = low.new(f"and i32 {low.new(f'xor i32 {_mask(low, alike)}, -1')}, {lanes}")
    every = low.new(f"icmp eq i32 {missing}, 0")
    whole = low.new(f"select i1 {every}, i32 {lanes}, i32 0")
    _put_pair(low, i.operands[0], Value("i32", s=whole), Value("i1", s=every))


@operation("elect")
def _elect(low, i):
    _together(low, i)
    lanes = _one_group(low, i.operands[1])
    lane = low.new(f"and i32 {low.call('i32', 'llvm.cttz.i32', ('i32', lanes), ('i1', 'false'))}, 31")
    named = low.new(f"and {_INTS} {low.splat('i32', lanes)}, {low.new(f'shl {_INTS} splat (i32 1), {_iota()}')}")
    here = low.new(f"icmp ne {_INTS} {named}, zeroinitializer")
    first = low.new(f"icmp eq {_INTS} {low.splat('i32', lane)}, {_iota()}")
    _put_pair(low, i.operands[0], Value("i32", s=lane), Value("i1", v=low.new(f"and {_BITS} {here}, {first}")))


@operation("bar", "barrier")
def _warp_barrier(low, i):
    """__syncwarp(): the lanes of a warp are together wherever this is reached."""
    if "warp" not in i.modifiers:
        raise Unsupported(f"`{i.opcode}`")
    _together(low, i)
    (_one_group if low.turns else _members)(low, i.operands[0])  # of lanes that do not all meet, the NumPy machine keeps which do
    if low.turns:
        low.call("void", "shadow_turn", ("ptr", "%ctx"), ("i32", low.first_thread))
