"""Shuffles from lanes that take no part: outside the mask, elsewhere, or ended. What comes is what their register happens to hold.

In a reduction of some lanes (`down` in halves), the upper ones get such values, and nobody uses them. What the lowest lane gets
matters there (`up`: the highest), so that is told at once. In an exchange (`bfly`, `idx`) the last lane of a tail may have no
partner and keep its own value, so it is told at once only if no lane of the warp reads from one that takes part. Otherwise the launch
is run again with the value followed (`machine.undefined`), and told where something comes of it. Not of a branch: lanes whose result
nobody uses compare, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.program import Op

from .findings import Unclear, at
from .protocols import Machine

KIND = "divergent-barrier"
ADVICE = (
    "A lane may read from lanes only that execute the same shuffle and are in its mask: use a smaller distance, or a mask with them in."
)
EARLIER_ADVICE = (
    "Let all lanes of the warp execute the shuffle, those that have nothing to add with 0 (or what changes nothing), and return behind it."
)


@dataclass
class Strayed:
    """What lanes have got from others that took no part, with an example. told: it has been."""

    lane: int
    source: int
    block: tuple[int, int, int] | None
    thread: tuple[int, int, int] | None
    count: int
    told: bool = False

    def tell(self, m: Machine, line: int | None, more: str = "", **details) -> None:
        m.findings.add(
            KIND, line, f"Lane {self.lane} shuffles from lane {self.source}, which takes no part: the value is undefined{more}.",
            block=self.block, thread=self.thread, count=self.count, **details,
        )  # fmt: skip


def look(m: Machine, position: int, line: int | None, mode: str, source: np.ndarray, taking_part: np.ndarray, result: int) -> bool:
    """Look at a shuffle of which not all lanes take part: has something been told?

    position: of the instruction in its program. source: the lane that each reads from; taking_part: who does, both [blocks, warps, 32].
    result: the register that the value goes to. Raises Unclear if undefined values are not followed, and some are to be.
    """
    source = np.broadcast_to(source, taking_part.shape)
    bad = m.warps_active() & taking_part & ~np.take_along_axis(taking_part, source, axis=2)
    if mode in ("down", "up"):
        decisive = taking_part.argmax(axis=2) if mode == "down" else WARP - 1 - taking_part[..., ::-1].argmax(axis=2)
        told = bad & (np.arange(WARP) == decisive[..., None])
    else:
        told = bad & (bad == taking_part).all(axis=2, keepdims=True)
    if told.any():
        _example(m, source, told).tell(m, line, advice=ADVICE)
        return True
    if m.findings.wanted and bad.any():
        if not m.program.doubts.followed:
            raise Unclear("lanes of it shuffle from lanes that take no part")
        undefined = m.from_warps(bad)
        known = m.undefined.bits.get(result)
        ones = np.where(undefined, np.uint32(0xFFFFFFFF), np.uint32(0))
        m.undefined.note(m, result, ones if known is None else ones | known, None)
        m.launch.strayed.setdefault(position, _example(m, source, bad))
    return False


def _example(m: Machine, source: np.ndarray, bad: np.ndarray) -> Strayed:
    block, warp, lane = (int(i) for i in np.argwhere(bad)[0])
    who = m.block_position(block), m.thread_position(WARP * warp + lane)
    return Strayed(lane, int(source[block, warp, lane]), *who, int(np.count_nonzero(bad)))


def tell(m: Machine, shuffles: Sequence[Op], what: str, line: int | None, lets_go: bool) -> bool:
    """Of these shuffles, tell those that have brought undefined values, of which something comes (`what`, at `line`). Have any?

    lets_go: it is nothing to tell.
    """
    strayed = [(op, m.launch.strayed[op.position]) for op in shuffles if op.position in m.launch.strayed]
    for op, held in sorted(strayed, key=lambda item: item[0].position):
        if not (held.told or lets_go):
            held.told = True
            elsewhere = line if line != op.line else None
            held.tell(m, op.line, f", and {what}{at(elsewhere)}", other_line=elsewhere, advice=EARLIER_ADVICE)
    return bool(strayed)
