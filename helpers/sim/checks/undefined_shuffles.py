"""Shuffles from lanes that take no part: outside the mask, elsewhere, or ended. What comes is what their register happens to hold.

In a reduction of some lanes (`down` in halves), the upper ones get such values, and nobody uses them. Only what the
lowest lane gets matters there (`up`: the highest), so that alone is told. In an exchange (`bfly`, `idx`) the last lane of
a tail may have no partner and keep its own value, so it is told only if no lane of the warp reads from one that takes part.
"""

from __future__ import annotations

import numpy as np

from helpers.sim.code.hardware_units import WARP

from .protocols import Machine

KIND = "divergent-barrier"
ADVICE = (
    "A lane may read from lanes only that execute the same shuffle and are in its mask: use a smaller distance, or a mask with them in."
)


def note(m: Machine, line: int | None, mode: str, source: np.ndarray, taking_part: np.ndarray) -> bool:
    """source: the lane that each reads from; taking_part: who does, both [blocks, warps, 32]. Is there anything to tell?"""
    source = np.broadcast_to(source, taking_part.shape)
    bad = taking_part & ~np.take_along_axis(taking_part, source, axis=2)
    if mode in ("down", "up"):
        lanes = np.arange(WARP)
        decisive = taking_part.argmax(axis=2) if mode == "down" else WARP - 1 - taking_part[..., ::-1].argmax(axis=2)
        bad &= lanes == decisive[..., None]
    else:
        bad &= (bad == taking_part).all(axis=2, keepdims=True)
    if not bad.any():
        return False
    block, warp, lane = (int(i) for i in np.argwhere(bad)[0])
    m.findings.add(
        KIND, line, f"Lane {lane} shuffles from lane {int(source[block, warp, lane])}, which takes no part: the value is undefined.",
        block=m.block_position(block), thread=m.thread_position(WARP * warp + lane), advice=ADVICE, count=int(np.count_nonzero(bad)),
    )  # fmt: skip
    return True
