"""Integer instructions on a 32-bit word, or on its four bytes or two halves ("video instructions"), such as vabsdiff4.

    v<op>.dtype.atype.btype{.sat}         d, a, b         exact, then clamped with .sat, then the lower 32 bits
    v<op>.dtype.atype.btype{.sat}.add     d, a, b, c      c + the same
    v<op><lanes>.dtype.atype.btype{.sat}  d, a, b, c      each lane from the same lane of a and b
    v<op><lanes>.dtype.atype.btype.add    d, a, b, c      c + the sum over the lanes

What CUDA's own headers make of `__vabsdiffu4`, `__vsadu4` and their like takes whole words. Operands with a choice of parts
(`%r1.b7654`, `%r1.h0`), and results with one, are refused by the reader; so are .min and .max as a second operation, which would see
bits beyond the 32.
Source: PTX ISA, "Video Instructions".
"""

from __future__ import annotations

import numpy as np

from .base import DTYPES, example, instruction

_MEANINGS = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,  # halves away from zero
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}
_COMPARISONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def _lanewise(op, lanes: int, meaning, ta: str, tb: str, td: str):
    """d = the lanes of meaning(a, b), int64, put together; with .add, c + their sum. td: whether d is signed."""
    size, bits, signed = 4 // lanes, 32 // lanes, td == "s32"
    limits = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    saturates, adds = op.has("sat"), op.has("add")

    def parts(x, kind):
        narrow = np.dtype(f"{'i' if kind == 's32' else 'u'}{size}")
        return np.ascontiguousarray(x)[..., None].view(narrow).astype(np.int64)

    def run(a, b, c):
        found = meaning(parts(a, ta), parts(b, tb))
        if saturates:
            found = np.clip(found, *limits)
        if adds:
            return (found.sum(axis=-1) + c.astype(np.int64)).astype(DTYPES[td])
        packed = np.ascontiguousarray(found.astype(f"u{size}")).view(np.uint32)[..., 0].view(DTYPES[td])
        return np.broadcast_to(packed, np.broadcast_shapes(packed.shape, c.shape))

    return op.lanewise(run, td, ("b32", "b32", td))


def _bytes(x: int, signed: bool = False) -> list[int]:
    return [int.from_bytes([byte], "little", signed=signed) for byte in (x & 0xFFFFFFFF).to_bytes(4, "little")]


def _words(x: int, signed: bool = False) -> list[int]:
    whole = (x & 0xFFFFFFFF).to_bytes(4, "little")
    return [int.from_bytes(whole[k : k + 2], "little", signed=signed) for k in (0, 2)]


def _joined(lanes) -> int:
    lanes = list(lanes)
    bits = 32 // len(lanes)
    return sum((lane & ((1 << bits) - 1)) << bits * k for k, lane in enumerate(lanes))


def _clamped(x: int, least: int, bits: int = 32) -> int:
    return min(max(x, least), least + (1 << bits) - 1)


@instruction("vadd")
@instruction("vsub")
@instruction("vabsdiff")
@instruction("vmin")
@instruction("vmax")
@example("vadd.u32.u32.u32", reference=lambda a, b: a + b)
@example("vadd.s32.u32.s32.sat", reference=lambda a, b: _clamped(a + b, -(1 << 31)), sources=("u32", "s32"))
@example("vsub.u32.u32.u32.sat", reference=lambda a, b: _clamped(a - b, 0))
@example("vsub.s32.s32.s32.sat.add", reference=lambda a, b, c: _clamped(a - b, -(1 << 31)) + c)
@example("vabsdiff.u32.s32.s32", reference=lambda a, b: abs(a - b))
@example("vmin.s32.s32.u32", reference=lambda a, b: min(a, b), sources=("s32", "u32"))
@example("vmax.u32.s32.s32.sat", reference=lambda a, b: _clamped(max(a, b), 0))
def vword(op):
    """Add, subtract, difference, least or most of two whole words."""
    td, ta, tb = op.types
    meaning, limits = _MEANINGS[op.parts[0]], np.iinfo(DTYPES[td])
    saturates, adds = op.has("sat"), op.has("add")

    def run(a, b, c=None):
        found = meaning(a.astype(np.int64), b.astype(np.int64))
        if saturates:
            found = np.clip(found, limits.min, limits.max)
        return (found if c is None else found + c).astype(DTYPES[td])

    return op.lanewise(run, td, (ta, tb, td) if adds else (ta, tb))


@instruction("vadd4")
@instruction("vsub4")
@instruction("vavrg4")
@instruction("vabsdiff4")
@instruction("vmin4")
@instruction("vmax4")
@instruction("vadd2")
@instruction("vsub2")
@instruction("vavrg2")
@instruction("vabsdiff2")
@instruction("vmin2")
@instruction("vmax2")
@example("vabsdiff4.u32.u32.u32", reference=lambda a, b, c: _joined(abs(x - y) for x, y in zip(_bytes(a), _bytes(b), strict=True)))
@example("vabsdiff4.u32.u32.u32.add", reference=lambda a, b, c: c + sum(abs(x - y) for x, y in zip(_bytes(a), _bytes(b), strict=True)))
@example(
    "vadd4.s32.s32.s32.sat",
    reference=lambda a, b, c: _joined(min(max(x + y, -128), 127) for x, y in zip(_bytes(a, True), _bytes(b, True), strict=True)),
)
@example("vmin2.s32.s32.s32", reference=lambda a, b, c: _joined(map(min, _words(a, True), _words(b, True))))
@example("vavrg2.u32.u32.u32", reference=lambda a, b, c: _joined((x + y + 1) // 2 for x, y in zip(_words(a), _words(b), strict=True)))
def vop(op):
    """Add, subtract, average, difference, least or most of the lanes of a and b."""
    td, ta, tb = op.types
    return _lanewise(op, int(op.parts[0][-1]), _MEANINGS[op.parts[0][:-1]], ta, tb, td)


@instruction("vset4")
@instruction("vset2")
@example("vset4.s32.s32.lt", reference=lambda a, b, c: _joined(x < y for x, y in zip(_bytes(a, True), _bytes(b, True), strict=True)))
@example("vset2.u32.u32.ge.add", reference=lambda a, b, c: c + sum(x >= y for x, y in zip(_words(a), _words(b), strict=True)))
def vset(op):
    """1 in each lane where the comparison of a with b holds, else 0."""
    ta, tb = op.types
    compare = _COMPARISONS[op.one_of(*_COMPARISONS)]
    return _lanewise(op, int(op.parts[0][-1]), lambda a, b: compare(a, b).astype(np.int64), ta, tb, "u32")
