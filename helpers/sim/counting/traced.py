"""What recorded accesses cost: the rules' answer for rows of a trace, so that pictures and measures say what the counters say."""

from __future__ import annotations

import numpy as np

from helpers.sim.code.sites import AccessKind, CostRule

from .rules import TWO_SIDED, Cost, cost


def cost_of(trace, rows) -> Cost | None:
    """What these accesses (indices into trace.accesses, all of one site) cost, one number per access.

    None where that cannot be told: another access is charged for it, its rule is not settled (what a copy past the cache
    writes), or the trace has only one side of a copy.
    """
    rows = np.atleast_1d(rows)
    site = trace.sites[trace.accesses["site"][rows[0]]]
    if site.rule is CostRule.NONE or not site.width:
        return None
    addresses = trace.addresses[rows]
    if site.rule in TWO_SIDED:
        others = other_sides(trace, rows)
        if not _recorded_on_both_sides(trace, site.pc):
            return None
        there = np.where(others[:, None] >= 0, trace.addresses[others], -1)
        addresses, targets = (addresses, there) if site.space == "global" else (there, addresses)
        active = (addresses >= 0) & (targets >= 0)
        return cost(site.rule, addresses, active, site.width, targets)
    return cost(site.rule, addresses, addresses >= 0, site.matrices if site.rule is CostRule.MATRIX else site.width)


def _recorded_on_both_sides(trace, pc: int) -> bool:
    executed = {trace.sites[index].space for index in np.unique(trace.accesses["site"]) if trace.sites[index].pc == pc}
    return executed == {"global", "shared"}


def other_sides(trace, rows) -> np.ndarray:
    """For accesses of one side of a cp.async, the row of the other side, -1 where there is none: one that only fills zeros
    reads nothing, and what a filter left out was not recorded."""
    accesses = trace.accesses
    near = np.isin(accesses["block"], accesses["block"][rows]) & np.isin(accesses["warp"], accesses["warp"][rows])
    pc = trace.sites[accesses["site"][rows[0]]].pc
    sides = []
    for space in ("global", "shared"):
        mine = [i for i, site in enumerate(trace.sites) if (site.pc, site.space, site.op) == (pc, space, AccessKind.COPY)]
        sides.append(np.flatnonzero(near & np.isin(accesses["site"], mine)))
    reads, writes = sides
    # Among all accesses of a warp in order, a write that follows a read directly is the same instruction's.
    both = np.concatenate(sides)
    both = both[np.lexsort((accesses["order"][both], accesses["warp"][both], accesses["block"][both]))]
    first, second = both[:-1], both[1:]
    pairs = np.isin(first, reads) & np.isin(second, writes)
    for name in ("block", "warp"):
        pairs &= accesses[name][first] == accesses[name][second]
    partner = np.full(len(accesses), -1)
    partner[first[pairs]], partner[second[pairs]] = second[pairs], first[pairs]
    return partner[rows]
