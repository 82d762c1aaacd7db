"""LLVM IR that notices when threads meet in device memory.

A word per granule of the arrays that the launch writes says who touched it: (number of the thread in the grid + 1) << 1 | was
it written; several readers are ~1; 0 is nobody. Each worker has words of its own, and `DevicePlaces.meet` compares them
when all have ended. Barriers and atomics are not looked at: whatever two threads share, one of them writing, is left
to the NumPy machine, which knows what orders them.
"""

from __future__ import annotations

import functools
import operator

from .builder import LlvmFunction, Var, vector
from .offsets import CONTEXT

INTS, LONGS, BITS = vector("i32"), vector("i64"), vector("i1")
SEVERAL = -2


def own() -> LlvmFunction:
    """Note an access of `cells` granules per lane, 1 << log bytes each, at places + scalar. 1 if it deserves a look."""
    f = LlvmFunction(
        "i32", "own", ctx="ptr", scalar="i64", places=LONGS, active="i32", cells="i32", log="i32", first="i32", written="i32"
    )  # fmt: skip
    owners, low, count = (
        f.ctx.field(CONTEXT[name], kind) for name, kind in (("owners", "ptr"), ("owned_low", "i64"), ("owned_count", "i64"))
    )
    several = f.constant(INTS, SEVERAL)
    mine = (_first_thread(f).to(INTS) + f.lanes(range(1, 33))) << 1
    stores, strict = (f.spread(value.is_("ne", 0), BITS) for value in (f.written, f.ctx.field(CONTEXT["must_be_written"], "i32")))
    begin = (f.places + (f.scalar - low)) >> f.log.to("i64")
    with f.loop(f.cells) as c:
        cell = begin + c.to("i64")
        mask = cell.is_("ult", count) & f.active.to(BITS)
        place = owners.item("i32", cell)
        word = f.gather("i32", place, mask, mine)
        touched = word.is_("ne", 0)
        others = touched & (word & -2).is_("ne", mine)
        clash = others & ((word & 1).is_("ne", 0) | stores)
        unknown = ~touched & ~stores & strict
        with f.when(f.bits(clash | unknown).is_("ne", 0)):
            f.leave(1)
        new = f.select(others, several, f.select(touched, word, mine) | f.written)
        f.scatter(new, place, mask)
        lost = f.gather("i32", place, mask, new).is_("ne", new)  # another lane touches the same granule
        with f.when(f.bits(lost).is_("ne", 0)):
            with f.when(f.written.is_("ne", 0)):
                f.leave(1)
            f.scatter(several, place, lost)
    f.leave(0)
    return f


def _first_thread(f: LlvmFunction) -> Var:
    """The number in the grid of the warp's first thread."""
    (x, y, z), (width, height, _), block = (
        [f.ctx.field(CONTEXT[name] + 4 * axis, "i32") for axis in range(3)] for name in ("ctaid", "nctaid", "ntid")
    )
    return ((height * z + y) * width + x) * functools.reduce(operator.mul, block) + f.first
