"""Does a run multiply as often as its product needs? Who computes half of C is done in half the time, and no faster for it."""

from __future__ import annotations

from helpers.sim.code.hardware_units import WARP
from helpers.sim.counting import names

_ENOUGH = 3 / 4  # of the multiply-adds: Strassen's way needs 7/8 of them, and twice in each other 49/64
_SINGLE = ("FFMA", "FMUL", "DFMA", "DMUL")  # counted per thread where that is known
_PAIRS = ("HFMA2", "HMUL2", "FFMA2", "FMUL2")  # two at a time, counted per warp
_DOT_PRODUCTS = ("IDP", "IDP4A")  # which multiply otherwise, so that nothing can be said


def lacking(run) -> str:
    """A sentence where a product of the course was done with plainly fewer multiply-adds than it needs; "" where not, or not known.

    Known are those of FP32 and FP64 lanes and of pairs, where machine instructions were counted; what tensor cores do is not looked at.
    """
    problem, counters = run.problem.get("problem"), run.counters
    if problem is None or names.INSTRUCTIONS not in counters or run.kernel.compiled.matrix_types:
        return ""
    if any(counters.get(names.opcode(name)) for name in _DOT_PRODUCTS):
        return ""
    pairs = sum(counters.get(names.opcode(name), 0) for name in _PAIRS)
    single = [counters.get(names.threads(name.lower()), WARP * counters.get(names.opcode(name), 0)) for name in _SINGLE]
    executed = sum(single) + 2 * WARP * pairs
    needed = problem.flops // 2
    if executed >= _ENOUGH * needed:
        return ""
    return (
        f"It executes {executed:,} of the {needed:,} multiply-adds that a product of this size needs: it is no product, or part of C is "
        "left out, and the time is that of less work. check() says where C is wrong."
    )
