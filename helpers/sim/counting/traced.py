"""What recorded accesses cost: the rules' answer for rows of a trace, so that pictures and measures say what the counters say."""

from __future__ import annotations

import numpy as np

from helpers.sim.code.sites import CostRule

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
        if trace.filter.spaces is not None and not {"global", "shared"} <= set(trace.filter.spaces):
            return None
        there = np.where(others[:, None] >= 0, trace.addresses[others], -1)
        addresses, targets = (addresses, there) if site.space == "global" else (there, addresses)
        active = (addresses >= 0) & (targets >= 0)
        return cost(site.rule, addresses, active, site.width, targets)
    return cost(site.rule, addresses, addresses >= 0, site.matrices if site.rule is CostRule.MATRIX else site.width)


def other_sides(trace, rows) -> np.ndarray:
    """For accesses of one side of a cp.async, the row of the other side, -1 where there is none: one that only fills zeros
    reads nothing, and what a filter left out was not recorded."""
    accesses = trace.accesses
    pc = trace.sites[accesses["site"][rows[0]]].pc
    mine = [i for i, site in enumerate(trace.sites) if site.pc == pc]
    copies = np.flatnonzero(
        np.isin(accesses["site"], mine)
        & np.isin(accesses["block"], accesses["block"][rows])
        & np.isin(accesses["warp"], accesses["warp"][rows])
    )
    copies = copies[np.lexsort((accesses["order"][copies], accesses["warp"][copies], accesses["block"][copies]))]
    # Of one warp's copies in order, a write that follows a read directly is the same copy's.
    reads = np.array([trace.sites[i].space == "global" for i in mine])[np.searchsorted(mine, accesses["site"][copies])]
    pairs = reads[:-1] & ~reads[1:]
    for name in ("block", "warp"):
        pairs &= accesses[name][copies[:-1]] == accesses[name][copies[1:]]
    partner = np.full(len(accesses), -1)
    partner[copies[:-1][pairs]], partner[copies[1:][pairs]] = copies[1:][pairs], copies[:-1][pairs]
    return partner[rows]
