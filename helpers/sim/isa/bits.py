"""Logic, shifts, bit fields, byte permutation, and arithmetic with carry."""

from __future__ import annotations

import numpy as np

from .base import DTYPES, SIGNED, example, instruction


def _two(op, meaning):
    t = op.type
    return op.lanewise(meaning, t, (t, t))


@instruction("and")
@example("and.b32", reference=lambda a, b: a & b)
@example("and.b64", reference=lambda a, b: a & b)
def and_(op):
    """d = a & b, predicates included."""
    op.bitwise = True
    return _two(op, np.bitwise_and)


@instruction("or")
@example("or.b32", reference=lambda a, b: a | b)
@example("or.b16", reference=lambda a, b: a | b)
def or_(op):
    """d = a | b."""
    op.bitwise = True
    return _two(op, np.bitwise_or)


@instruction("xor")
@example("xor.b32", reference=lambda a, b: a ^ b)
def xor(op):
    """d = a ^ b."""
    return _two(op, np.bitwise_xor)


@instruction("not")
@example("not.b32", reference=lambda a: ~a)
def not_(op):
    """d = ~a."""
    op.bitwise = True
    t = op.type
    return op.lanewise(np.invert, t, (t,))


@instruction("cnot")
@example("cnot.b32", reference=lambda a: int(a == 0))
def cnot(op):
    """d = 1 if a is 0, else 0 (C's !a)."""
    t = op.type
    return op.lanewise(lambda a: (a == 0).astype(DTYPES[t]), t, (t,))


@instruction("shl")
@example("shl.b32", reference=lambda a, b: a << b if b < 32 else 0, sources=("b32", "u32"))
@example("shl.b64", reference=lambda a, b: a << b if b < 64 else 0, sources=("b64", "u32"))
@example("shl.b16", reference=lambda a, b: a << b if b < 16 else 0, sources=("b16", "u32"))
def shl(op):
    """d = a << b; shifts of the whole width or more give 0."""
    op.bitwise = True
    t = op.type
    dtype = DTYPES[t]
    width = dtype.itemsize * 8

    def meaning(a, b):
        if b.size == 1:
            n = b.item()
            return np.left_shift(a, dtype.type(n)) if n < width else np.zeros_like(a)
        inside = np.left_shift(a, np.minimum(b, np.uint32(width - 1)).astype(dtype))
        return np.where(b < width, inside, dtype.type(0))

    return op.lanewise(meaning, t, (t, "u32"))


@instruction("shr")
@example("shr.u32", reference=lambda a, b: a >> min(b, 32), sources=("u32", "u32"))
@example("shr.s32", reference=lambda a, b: a >> min(b, 32), sources=("s32", "u32"))
@example("shr.s64", reference=lambda a, b: a >> min(b, 64), sources=("s64", "u32"))
@example("shr.b16", reference=lambda a, b: a >> min(b, 16), sources=("b16", "u32"))
def shr(op):
    """d = a >> b; signed types copy the sign in, however far."""
    op.bitwise = True
    t = op.type
    dtype = DTYPES[t]
    width = dtype.itemsize * 8

    def meaning(a, b):
        if b.size == 1:
            n = min(b.item(), width)
            if n < width:
                return np.right_shift(a, dtype.type(n))
            return np.right_shift(a, dtype.type(width - 1)) if t in SIGNED else np.zeros_like(a)
        inside = np.right_shift(a, np.minimum(b, np.uint32(width - 1)).astype(dtype))
        return inside if t in SIGNED else np.where(b < width, inside, dtype.type(0))

    return op.lanewise(meaning, t, (t, "u32"))


def _funnel(left, wrap):
    def reference(a, b, c):
        n = c & 31 if wrap else min(c, 32)
        both = (b << 32) | a
        return both << n >> 32 if left else both >> n

    return reference


@instruction("shf")
@example("shf.l.wrap.b32", reference=_funnel(True, True), sources=("b32", "b32", "u32"))
@example("shf.r.wrap.b32", reference=_funnel(False, True), sources=("b32", "b32", "u32"))
@example("shf.l.clamp.b32", reference=_funnel(True, False), sources=("b32", "b32", "u32"))
@example("shf.r.clamp.b32", reference=_funnel(False, False), sources=("b32", "b32", "u32"))
def shf(op):
    """d = 32 bits of the 64-bit value b:a shifted left (the upper half) or right (the lower half) by c."""
    op.bitwise = True
    left, wrap = op.one_of("l", "r") == "l", op.one_of("wrap", "clamp") == "wrap"

    def meaning(a, b, c):
        n = (c & np.uint32(31) if wrap else np.minimum(c, np.uint32(32))).astype(np.uint64)
        both = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64)
        # A shift of 32 is inside 64 bits, so nothing special is needed.
        shifted = (both << n) >> np.uint64(32) if left else both >> n
        return shifted.astype(np.uint32)

    return op.lanewise(meaning, "b32", ("b32", "b32", "u32"))


def _extract(bits, signed):
    def reference(a, b, c):
        position, length = b & 255, c & 255
        if length == 0:
            return 0
        sign = a < 0 if position + length - 1 >= bits else a >> (position + length - 1) & 1
        value = (a & ((1 << bits) - 1)) >> position & ((1 << length) - 1)
        available = max(0, min(length, bits - position))
        if signed and sign:
            value |= -1 << available
        return value

    return reference


_fields = [(a, b, c) for a in (0, -1, 0x12345678, -0x12345678) for b in (0, 1, 8, 31, 32, 40) for c in (0, 1, 8, 31, 32, 200)]
_fields_unsigned = [(a & 0xFFFFFFFF, b, c) for a, b, c in _fields]


def _field_operand(width, x):
    """Position or length of a field. PTX allows 0 to 255; beyond, a GPU looks at 8 bits, or at all for 64-bit values."""
    return (x & np.uint32(255) if width == 32 else np.minimum(x, np.uint32(255))).astype(np.int64)


@instruction("bfe")
@example("bfe.u32", reference=_extract(32, False), sources=("u32", "u32", "u32"), values=_fields_unsigned, arity=3)
@example("bfe.s32", reference=_extract(32, True), sources=("s32", "u32", "u32"), values=_fields, arity=3)
@example("bfe.s64", reference=_extract(64, True), sources=("s64", "u32", "u32"), values=_fields, arity=3)
def bfe(op):
    """d = the field of c bits at position b of a, extended with its sign for signed types."""
    op.bitwise = True
    t = op.type
    dtype = DTYPES[t]
    width = dtype.itemsize * 8
    unsigned = np.dtype(f"u{dtype.itemsize}")

    def meaning(a, b, c):
        position, length = _field_operand(width, b), _field_operand(width, c)
        bits = a.view(unsigned)
        shifted = np.where(position < width, bits >> np.minimum(position, width - 1).astype(unsigned), unsigned.type(0))
        ones = ~unsigned.type(0)
        kept = np.where(
            length >= width,
            ones,
            (unsigned.type(1) << np.minimum(length, width - 1).astype(unsigned)) - unsigned.type(1),
        )
        value = shifted & kept
        if t in SIGNED:
            top = np.minimum(position + length - 1, width - 1)
            sign = (length > 0) & ((bits >> np.maximum(top, 0).astype(unsigned)) & unsigned.type(1)).astype(bool)
            available = np.clip(np.minimum(length, width - position), 0, width)
            fill = np.where(available >= width, unsigned.type(0), ones << np.minimum(available, width - 1).astype(unsigned))
            value = np.where(sign, value | fill, value)
        return value.astype(unsigned).view(dtype)

    return op.lanewise(meaning, t, (t, "u32", "u32"))


def _insert(bits):
    def reference(a, b, c, d):
        position, length = c & 255, d & 255
        mask = ((1 << length) - 1) << position & ((1 << bits) - 1)
        return (b & ~mask) | (a << position & mask)

    return reference


@instruction("bfi")
@example(
    "bfi.b32",
    reference=_insert(32),
    sources=("b32", "b32", "u32", "u32"),
    arity=4,
    values=[(0xABCDEF01, 0x12345678, c, d) for c in (0, 4, 31, 32, 300) for d in (0, 1, 8, 32, 255)],
)
@example(
    "bfi.b64",
    reference=_insert(64),
    sources=("b64", "b64", "u32", "u32"),
    arity=4,
    values=[(0xABCDEF01, 0x12345678 << 30, c, d) for c in (0, 4, 63, 64) for d in (0, 1, 8, 64)],
)
def bfi(op):
    """d = b with its field of d bits at position c replaced by the low bits of a."""
    op.bitwise = True
    t = op.type
    dtype = DTYPES[t]
    width = dtype.itemsize * 8

    def meaning(a, b, c, d):
        position, length = _field_operand(width, c), _field_operand(width, d)
        ones = np.where(
            length >= width,
            ~dtype.type(0),
            (dtype.type(1) << np.minimum(length, width - 1).astype(dtype)) - dtype.type(1),
        )
        shift = np.minimum(position, width - 1).astype(dtype)
        mask = np.where(position < width, ones << shift, dtype.type(0))
        return ((b & ~mask) | ((a << shift) & mask)).astype(dtype)

    return op.lanewise(meaning, t, (t, t, "u32", "u32"))


def _leading(t, a):
    """Position of the highest set bit as int64, -1 for 0."""
    bits = a.astype(np.uint64)
    result = np.full(bits.shape, -1, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        big = bits >= np.uint64(1 << step)
        result += np.where(big, step, 0)
        bits = np.where(big, bits >> np.uint64(step), bits)
    return result + (bits > 0)


@instruction("bfind")
@example("bfind.u32", reference=lambda a: a.bit_length() - 1, result="u32")
@example("bfind.s32", reference=lambda a: (a if a >= 0 else ~a).bit_length() - 1, result="u32")
@example("bfind.shiftamt.u32", reference=lambda a: 32 - a.bit_length() if a else -1, result="u32")
def bfind(op):
    """d = position of the highest bit that differs from the sign; all ones if there is none."""
    t = op.type
    unsigned = np.dtype(f"u{DTYPES[t].itemsize}")
    width, shift = DTYPES[t].itemsize * 8, op.has("shiftamt")

    def meaning(a):
        bits = np.where(a < 0, ~a, a).view(unsigned) if t in SIGNED else a
        at = _leading(t, bits)
        if shift:
            at = np.where(at < 0, -1, width - 1 - at)
        return at.astype(np.uint32)

    return op.lanewise(meaning, "u32", (t,))


@instruction("clz")
@example("clz.b32", reference=lambda a: 32 - a.bit_length(), result="u32")
@example("clz.b64", reference=lambda a: 64 - a.bit_length(), result="u32")
def clz(op):
    """d = number of leading zero bits."""
    t = op.type
    width = DTYPES[t].itemsize * 8
    return op.lanewise(lambda a: (width - 1 - _leading(t, a)).astype(np.uint32), "u32", (t,))


@instruction("popc")
@example("popc.b32", reference=lambda a: a.bit_count(), result="u32")
@example("popc.b64", reference=lambda a: a.bit_count(), result="u32")
def popc(op):
    """d = number of set bits."""
    t = op.type
    return op.lanewise(lambda a: np.bitwise_count(a).astype(np.uint32), "u32", (t,))


@instruction("brev")
@example("brev.b32", reference=lambda a: int(f"{a:032b}"[::-1], 2))
@example("brev.b64", reference=lambda a: int(f"{a:064b}"[::-1], 2))
def brev(op):
    """d = the bits in reverse order."""
    t = op.type
    dtype = DTYPES[t]
    width = dtype.itemsize * 8
    steps = [
        (1, 0x5555555555555555),
        (2, 0x3333333333333333),
        (4, 0x0F0F0F0F0F0F0F0F),
        (8, 0x00FF00FF00FF00FF),
        (16, 0x0000FFFF0000FFFF),
        (32, 0xFFFFFFFF),
    ]

    def meaning(a):
        for step, pattern in steps:
            if step < width:
                mask = dtype.type(pattern & ((1 << width) - 1))
                shift = dtype.type(step)
                a = ((a & mask) << shift) | ((a >> shift) & mask)
        return a

    return op.lanewise(meaning, t, (t,))


@instruction("bmsk")
@example("bmsk.clamp.b32", reference=lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32), sources=("u32", "u32"), arch="sm_90")
def bmsk(op):
    """d = a mask of b ones that begins at bit a."""
    wrap = op.one_of("wrap", "clamp") == "wrap"

    def meaning(a, b):
        at = (a & np.uint32(31) if wrap else np.minimum(a, np.uint32(32))).astype(np.uint64)
        length = (b & np.uint32(31) if wrap else np.minimum(b, np.uint32(32))).astype(np.uint64)
        return (((np.uint64(1) << length) - np.uint64(1)) << at).astype(np.uint32)

    return op.lanewise(meaning, "b32", ("u32", "u32"))


def _fns(mask, base, offset):
    if offset == 0:
        return base if mask >> base & 1 else -1
    positions = range(base, 32) if offset > 0 else range(base, -1, -1)
    left = abs(offset)
    for position in positions:
        if mask >> position & 1:
            left -= 1
            if left == 0:
                return position
    return -1


@instruction("fns")
@example(
    "fns.b32",
    reference=_fns,
    arity=3,
    sources=("b32", "u32", "s32"),
    values=[(m, b, o) for m in (0, 0xFFFFFFFF, 0xA5A5A5A5) for b in (0, 5, 31) for o in (-3, -1, 0, 1, 4)],
)
def fns(op):
    """d = position of the c-th set bit of a, counted from bit b upwards (or downwards); all ones if there is none."""

    def meaning(mask, base, offset):
        mask, base, offset = np.broadcast_arrays(mask, base, offset)
        values = [_fns(int(a), int(b) & 31, int(c)) for a, b, c in zip(mask.flat, base.flat, offset.flat, strict=True)]
        return np.array(values, np.int64).reshape(mask.shape).astype(np.uint32)

    return op.lanewise(meaning, "b32", ("b32", "u32", "s32"))


_PERMUTATIONS = {
    "f4e": [(0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)],
    "b4e": [(0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)],
    "rc8": [(0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)],
    "ecl": [(0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)],
    "ecr": [(0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)],
    "rc16": [(0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)],
}


def _prmt(a, b, c):
    data = (b << 32 | a).to_bytes(8, "little")
    out = []
    for i in range(4):
        selector = c >> (4 * i) & 15
        byte = data[selector & 7]
        out.append((255 if byte & 128 else 0) if selector & 8 else byte)
    return int.from_bytes(bytes(out), "little")


@instruction("prmt")
@example(
    "prmt.b32",
    reference=_prmt,
    arity=3,
    values=[(0x12B456F8, 0x9ABCDE70, c) for c in (0x3210, 0x7654, 0x0123, 0x8888, 0xF4D2, 0x5410, 0xFFFF1234)],
)
def prmt(op):
    """d = four bytes picked from b:a by the four selectors in c (bit 3 of a selector: copy the sign instead)."""
    op.bitwise = True
    mode = op.one_of(*_PERMUTATIONS, default="")

    def meaning(a, b, c):
        both = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64)
        result = np.uint32(0)
        for i in range(4):
            if mode:
                table = np.array([choice[i] for choice in _PERMUTATIONS[mode]], np.uint32)
                selector = table[c & np.uint32(3)]
            else:
                selector = (c >> np.uint32(4 * i)) & np.uint32(15)
            byte = ((both >> ((selector & np.uint32(7)).astype(np.uint64) * np.uint64(8))) & np.uint64(255)).astype(np.uint32)
            sign = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
            byte = np.where(selector & np.uint32(8), sign, byte)
            result = result | (byte << np.uint32(8 * i))
        return result

    return op.lanewise(meaning, "b32", ("b32", "b32", "b32"))


def _lop3(table):
    def reference(a, b, c):
        return sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i for i in range(32))

    return reference


def _lop3_meaning(table: int):
    """Bitwise function of three inputs as an or of its minterms."""

    def meaning(a, b, c):
        if table == 0xFF:
            return np.broadcast_to(np.uint32(0xFFFFFFFF), np.broadcast_shapes(a.shape, b.shape, c.shape)).copy()
        result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint32)
        for row in range(8):
            if table >> row & 1:
                result = result | ((a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c))
        return result

    return meaning


@instruction("lop3")
@example("lop3.b32", reference=_lop3(0x96), arity=3, template="lop3.b32 {d}, {a}, {b}, {c}, 0x96;")
@example("lop3.b32", reference=_lop3(0xE8), arity=3, template="lop3.b32 {d}, {a}, {b}, {c}, 232;")
@example("lop3.b32", reference=_lop3(0x01), arity=3, template="lop3.b32 {d}, {a}, {b}, {c}, 1;")
def lop3(op):
    """d = any bitwise function of a, b, c, given by its truth table (the last operand)."""
    if op.has("or", "and"):
        # lop3.BoolOp.b32 d|p, a, b, c, table, q: p = (d != 0) BoolOp q.
        a, b, c = (op.source(i, "b32") for i in (1, 2, 3))
        table, q = op.immediate(4), op.predicate(5)
        d, p = op.pair(0, "b32", "pred")
        meaning, join = _lop3_meaning(table), np.logical_or if op.has("or") else np.logical_and

        def run(m):
            value = m.regs[d] = meaning(*(m.regs[i].view(np.uint32) for i in (a, b, c)))
            if p is not None:
                m.regs[p] = join(value != 0, m.regs[q])

        return run
    return op.lanewise(_lop3_meaning(op.immediate(4)), "b32", ("b32", "b32", "b32"))


# --- carry chains ----------------------------------------------------------------------------------------------------
# `.cc` writes the carry flag, the `c` forms (addc, subc, madc) read it. The flag is a register like any other.

_FLAG = "%carry"


def _flag(op) -> int:
    op.loader.register_types.setdefault(_FLAG, "pred")
    return op.loader.register(_FLAG)


def _chain(op, arithmetic, sources, t, reads_flag):
    """d = arithmetic(sources, carry in) with carry out: `arithmetic` returns (d, carry)."""
    op.pure()
    indices = [op.source(1 + i, kind) for i, kind in enumerate(sources)]
    d = op.result(0, t)
    flag = _flag(op)
    if reads_flag:
        op.reads.append(flag)
    writes_flag = op.has("cc")
    if writes_flag:
        op.writes.append(flag)
    dtypes = [DTYPES[kind] for kind in sources]

    def run(m):
        values = [m.regs[i].view(k) for i, k in zip(indices, dtypes, strict=True)]
        carry = m.regs[flag].astype(DTYPES[t]) if reads_flag else DTYPES[t].type(0)
        m.regs[d], out = arithmetic(*values, carry)
        if writes_flag:
            m.regs[flag] = out

    return run


def _unsigned(t: str) -> str:
    return t.replace("s", "u")


def _add_with_carry(a, b, carry):
    first = a + b
    total = first + carry
    return total, (first < a) | (total < first)


def _subtract_with_borrow(a, b, borrow):
    first = a - b
    total = first - borrow
    return total, (a < b) | (first < borrow)


@instruction("add.cc")
@example("add.cc.u32", reference=lambda a, b: a + b, arity=2)
def add_cc(op):
    """d = a + b, and the carry flag."""
    t = _unsigned(op.type)
    return _chain(op, _add_with_carry, (t, t), t, False)


@instruction("addc")
@example(
    "addc.u32",
    reference=lambda a, b: a + b + (a + b >> 32),
    arity=2,
    template="add.cc.u32 {d}, {a}, {b}; addc.u32 {d}, {a}, {b};",
)
@example(
    "addc.cc.s64",
    reference=lambda a, b: a + b + ((a % 2**64 + b % 2**64) >> 64),
    arity=2,
    template="add.cc.s64 {d}, {a}, {b}; addc.cc.s64 {d}, {a}, {b};",
)
def addc(op):
    """d = a + b + carry."""
    t = _unsigned(op.type)
    return _chain(op, _add_with_carry, (t, t), t, True)


@instruction("sub.cc")
@example("sub.cc.u32", reference=lambda a, b: a - b, arity=2)
def sub_cc(op):
    """d = a - b, and the borrow flag."""
    t = _unsigned(op.type)
    return _chain(op, _subtract_with_borrow, (t, t), t, False)


@instruction("subc")
@example(
    "subc.u32",
    reference=lambda a, b: a - b - (a < b),
    arity=2,
    template="sub.cc.u32 {d}, {a}, {b}; subc.u32 {d}, {a}, {b};",
)
def subc(op):
    """d = a - b - borrow."""
    t = _unsigned(op.type)
    return _chain(op, _subtract_with_borrow, (t, t), t, True)


def _multiply_add(op, reads_flag):
    from .integer import _high

    t = op.type
    part = _high(t) if op.one_of("lo", "hi") == "hi" else np.multiply
    u = DTYPES[_unsigned(t)]

    def arithmetic(a, b, c, carry):
        product = part(a, b).view(u)
        return _add_with_carry(product, c, carry)

    return _chain(op, arithmetic, (t, t, _unsigned(t)), _unsigned(t), reads_flag)


@instruction("mad.lo.cc")
@example("mad.lo.cc.u32", reference=lambda a, b, c: a * b + c)
def mad_lo_cc(op):
    """d = the low half of a * b, plus c, and the carry flag."""
    return _multiply_add(op, False)


@instruction("mad.hi.cc")
@example("mad.hi.cc.u32", reference=lambda a, b, c: (a * b >> 32) + c)
def mad_hi_cc(op):
    """d = the high half of a * b, plus c, and the carry flag."""
    return _multiply_add(op, False)


@instruction("madc")
@example(
    "madc.hi.u32",
    reference=lambda a, b, c: (a * b >> 32) + c + ((a * b % 2**32) + c >> 32),
    arity=3,
    template="mad.lo.cc.u32 {d}, {a}, {b}, {c}; madc.hi.u32 {d}, {a}, {b}, {c};",
)
def madc(op):
    """d = half of a * b, plus c, plus carry."""
    return _multiply_add(op, True)


@instruction("szext")
@example(
    "szext.clamp.s32",
    reference=lambda a, b: ((a & (1 << b) - 1) ^ (1 << b - 1)) - (1 << b - 1) if 0 < b < 32 else (0 if b == 0 else a),
    sources=("s32", "u32"),
    values=[(a, b) for a in (0, -1, 0x12345678) for b in (0, 1, 8, 31, 32, 99)],
)
def szext(op):
    """d = a with the sign (or zero) of its low b bits copied upwards."""
    t, wrap = op.type, op.one_of("wrap", "clamp") == "wrap"
    dtype = DTYPES[t]

    def meaning(a, b):
        n = (b & np.uint32(31) if wrap else np.minimum(b, np.uint32(32))).astype(np.int64)
        up = np.minimum(32 - n, 31).astype(dtype)
        return np.where(n == 0, dtype.type(0), (a << up) >> up)

    return op.lanewise(meaning, t, (t, "u32"))
