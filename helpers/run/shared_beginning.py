"""Kernels that are wrong because of the address at which a block's shared memory begins: from sm_90 on that is no longer 0.

A tile may be written with a swizzle of the index and read with the same swizzle of the address, which is the same only where the array
begins at a multiple of what the pattern repeats within. It is tried, by a run with all of shared memory at other addresses, and not
guessed from the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from helpers.sim.code import time_limit
from helpers.sim.code.addresses import shared_start

from . import likely_causes
from .kernel import Kernel
from .own_products import program_of
from .problem import Problem

_TARGET = re.compile(r"(^\s*\.target\s+)(\w+)", re.M)
_FROM_ZERO = "sm_80"  # a target whose shared memory begins at address 0
_MOST = 4.0  # seconds after which nothing more is asked


def _target(kernel: Kernel) -> str:
    """What its PTX is for, sm_90 say; "" where it does not say."""
    found = _TARGET.search(kernel.compiled.ptx)
    return found[2] if found else ""


def from_zero(kernel: Kernel) -> Kernel | None:
    """The same kernel with its shared memory from address 0 on; None where it begins there anyway, and where it has none."""
    if not shared_start(_target(kernel)) or (program := program_of(kernel)) is None or not program.shared:
        return None
    return Kernel(replace(kernel.compiled, ptx=_TARGET.sub(rf"\g<1>{_FROM_ZERO}", kernel.compiled.ptx, count=1)))


def depends_on_it(
    kernel: Kernel,
    problems: Sequence[Problem],
    is_right: Callable[[Kernel, Problem], bool],
    is_near: Callable[[Kernel, int, Problem], bool],
) -> tuple[str, ...]:
    """A sentence where a kernel that computes none of some problems would compute one, if its shared memory began at address 0. is_right,
    is_near: as `where_right` has them."""
    moved, few, begun = from_zero(kernel), likely_causes.rounding(kernel), time_limit.now()
    if moved is None:
        return ()

    def computes(one: Kernel, problem: Problem) -> bool:
        return is_right(one, problem) or (few is not None and is_near(one, few.bits, problem))

    for problem in problems:
        if time_limit.now() - begun > _MOST:
            return ()
        if not computes(moved, problem):
            continue
        begun = time_limit.now()
        if computes(kernel, problem) or time_limit.now() - begun > _MOST:  # the second: perhaps it has not ended
            return ()
        sums = "" if few is None else " (as far as sums of few bits can be)"
        return (
            f"If a block's shared memory began at address 0, {problem} would be right{sums}: it was tried. On {_target(kernel)}, as on the "
            f"hardware, it begins at address {shared_start(_target(kernel)):#x}, and what this kernel computes depends on that. Does it "
            "swizzle an index by ^ in one place, and an address of shared memory in another? The two differ, unless the array begins at a "
            "multiple of what the pattern repeats within. Swizzle the index in both, or the address less that of the array.",
        )
    return ()
