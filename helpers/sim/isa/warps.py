"""Instructions of a whole warp: shuffles, votes, matches, reductions.

They see values as [blocks, warps, 32] (`m.warps`). `m.warps_active()` tells which lanes take part; a lane's own member
mask narrows that further.
"""

from __future__ import annotations

import numpy as np

from helpers.sim.checks import divergent_barriers, undefined_shuffles
from helpers.sim.code.program import Effect, Results

from .base import ALIGNED, DTYPES, instruction

U32, I32 = np.dtype(np.uint32), np.dtype(np.int32)
LANE = np.arange(32, dtype=np.int64)


def members(m, mask_register: int) -> np.ndarray:
    """[blocks, warps, 32]: the lanes that take part, here or at another place, and are named by their member mask."""
    active = m.warps_active() if m.guests is None else m.warps_active() | m.guests
    named = m.warps(m.regs[mask_register].view(U32), 0)
    return active & ((named >> LANE.astype(U32)) & np.uint32(1)).astype(bool)


def groups(lanes: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
    """[blocks, warps, 32 or 1, 32]: who answers together with each lane; one row where all lanes of a warp name the same ones.

    lanes: `members`. masks: of `check_members`. Lanes with different masks, as those of two halves of a warp, wait for their own and
    answer among themselves.
    """
    if masks is None or (np.bitwise_or.reduce(np.where(lanes, masks, U32.type(0)), axis=2, keepdims=True) == masks)[lanes].all():
        return lanes[..., None, :]
    return lanes[..., None, :] & ((masks[..., None] >> LANE.astype(U32)) & np.uint32(1)).astype(bool)


def check_members(m, mask_register: int, line: int | None, what: str) -> np.ndarray | None:
    """Note threads whose member mask leaves themselves out, and lanes it names that never come.

    Returns the masks, [blocks, warps, 32], or None if all name the whole warp.
    """
    named = m.regs[mask_register].view(U32)
    masks = None
    if named.size > 1 or named.item() != 0xFFFFFFFF:
        masks = m.warps(named, 0xFFFFFFFF)
        outside = m.warps_active() & ((masks >> LANE.astype(U32)) & 1 == 0)
        if outside.any():
            divergent_barriers.outside_its_mask(m, line, what, masks, outside)
    if m.mask is not None and m.absent is not None and m.absent.any():
        wanted = np.where(m.warps_active(), np.uint32(0xFFFFFFFF) if masks is None else masks, np.uint32(0))
        wanted = np.bitwise_or.reduce(wanted, axis=2, keepdims=True)
        absent = m.absent & ((wanted >> LANE.astype(U32)) & 1 == 1)
        if absent.any():
            divergent_barriers.named_but_absent(m, line, what, absent)
    if what not in ("shuffle", "__syncwarp()"):  # a shuffle looks first where each lane reads
        divergent_barriers.named_but_elsewhere(m, line, what, masks)
    return masks


def ballot(truth: np.ndarray) -> np.ndarray:
    """[…, 32] booleans -> […, 1] masks."""
    weights = np.left_shift(np.uint32(1), LANE.astype(U32))
    return np.bitwise_or.reduce(np.where(truth, weights, np.uint32(0)), axis=-1, keepdims=True)


@instruction("shfl")
def shfl(op):
    """d|p = a of another lane: b lanes up, down, across (bfly), or lane b (idx), within the segment c describes."""
    op.effect, op.rendezvous, op.bitwise, op.shuffles = Effect.EXCHANGE, 1, True, True
    op.without_effect(*ALIGNED)
    # operands
    a, b, c = (op.source(i, "b32") for i in (1, 2, 3))
    op.loader.exchanged.add(a)  # lanes that are elsewhere keep theirs: others may read it
    named = op.members = op.source(4, "b32") if len(op.operands) > 4 else None
    d, p = op.pair(0, "b32", "pred")
    mode = op.one_of("up", "down", "bfly", "idx")
    line = op.line

    # meaning
    def run(m):
        masks = check_members(m, named, line, "shuffle") if named is not None else None
        values = m.warps(m.regs[a].view(U32), 0)
        distance = (m.warps(m.regs[b].view(U32), 0) & np.uint32(31)).astype(np.int64)
        control = m.warps(m.regs[c].view(U32), 0)
        clamp, segment = (
            (control & np.uint32(31)).astype(np.int64),
            ((control >> np.uint32(8)) & np.uint32(31)).astype(np.int64),
        )
        highest, lowest = (LANE & segment) | (clamp & ~segment), LANE & segment
        if mode == "up":
            source = LANE - distance
            inside = source >= highest
        elif mode == "down":
            source = LANE + distance
            inside = source <= highest
        elif mode == "bfly":
            source = LANE ^ distance
            inside = source <= highest
        else:
            source = lowest | (distance & ~segment)
            inside = source <= highest
        source = np.where(inside, source, LANE) & 31
        taking_part = m.warps_active() if named is None else members(m, named)
        # result
        m.regs[d] = m.from_warps(np.take_along_axis(values, source, axis=2))
        if not taking_part.all() and not undefined_shuffles.look(m, op.position, line, mode, source, taking_part, d) and named is not None:
            divergent_barriers.named_but_elsewhere(m, line, "shuffle", masks)
        if p is not None:
            m.regs[p] = m.from_warps(np.broadcast_to(inside, values.shape))

    return run


@instruction("vote")
def vote(op):
    """d = whether all, any, or all alike of the lanes have the predicate set; or their ballot."""
    op.effect, op.results, op.rendezvous, op.bitwise = Effect.EXCHANGE, Results.PER_WARP, 1, True
    op.without_effect(*ALIGNED)
    ballots = op.has("ballot")
    d = op.result(0, "b32" if ballots else "pred")
    p = op.predicate(1)
    mask = op.members = op.source(2, "b32") if len(op.operands) > 2 else None
    mode = op.one_of("all", "any", "uni", "ballot")
    line = op.line

    def run(m):
        if mask is None:
            lanes = groups(m.warps_active(), None)
        else:
            masks = check_members(m, mask, line, "vote")
            lanes = groups(members(m, mask), masks)
        truth = m.warps(m.regs[p], False)
        yes = truth[..., None, :] & lanes
        if ballots:
            answer = ballot(yes)[..., 0]
        else:
            some, every = yes.any(axis=3), ~(~truth[..., None, :] & lanes).any(axis=3)
            answer = {"all": every, "any": some, "uni": every | ~some}[mode]
        m.regs[d] = m.from_warps(np.broadcast_to(answer, truth.shape))

    return run


@instruction("match")
def match(op):
    """d = mask of the lanes with the same value (any), or of all lanes if all have it, with p (all)."""
    op.effect, op.rendezvous = Effect.EXCHANGE, 1
    op.without_effect(*ALIGNED)
    t = op.type
    a, mask = op.source(1, t), op.source(2, "b32")
    op.members = mask
    d, p = op.pair(0, "b32", "pred")
    every, line = op.one_of("any", "all") == "all", op.line

    def run(m):
        masks = check_members(m, mask, line, "match")
        values = m.warps(m.regs[a].view(DTYPES[t]), 0)
        lanes = groups(members(m, mask), masks)
        same = (values[..., :, None] == values[..., None, :]) & lanes
        found = ballot(same)[..., 0]
        if every:
            whole = ballot(lanes)[..., 0]
            everyone = ~((found != whole)[..., None, :] & lanes).any(axis=3)
            found = np.where(everyone, np.broadcast_to(whole, found.shape), np.uint32(0))
            if p is not None:
                m.regs[p] = m.from_warps(np.broadcast_to(everyone, found.shape))
        m.regs[d] = m.from_warps(found)

    return run


_REDUCTIONS = {
    "add": (np.add, 0), "min": (np.minimum, None), "max": (np.maximum, None),
    "and": (np.bitwise_and, -1), "or": (np.bitwise_or, 0), "xor": (np.bitwise_xor, 0),
}  # fmt: skip


@instruction("redux")
def redux(op):
    """d = the sum, minimum, maximum, and, or, xor of a over the lanes."""
    op.effect, op.results, op.rendezvous = Effect.EXCHANGE, Results.PER_WARP, 1
    op.without_effect(*ALIGNED)
    t = op.type
    a, mask = op.source(1, t), op.source(2, "b32")
    op.members = mask
    d = op.result(0, t)
    name = op.one_of(*_REDUCTIONS)
    reduce, neutral = _REDUCTIONS[name]
    dtype = DTYPES[t]
    if neutral is None:
        info = np.finfo(dtype) if t == "f32" else np.iinfo(dtype)
        neutral = (np.inf if t == "f32" else info.max) if name == "min" else (-np.inf if t == "f32" else info.min)
    filler = np.array(neutral).astype(dtype) if t == "f32" or neutral != -1 else np.array(-1).astype(dtype)
    magnitude, nan, line = op.has("abs"), op.has("NaN"), op.line

    def run(m):
        masks = check_members(m, mask, line, "reduction")
        values = m.warps(m.regs[a].view(dtype), 0)
        lanes = groups(members(m, mask), masks)
        if t == "f32":
            values = np.abs(values) if magnitude else values
            bad = (np.isnan(values)[..., None, :] & lanes).any(axis=3)
            values = np.where(np.isnan(values), filler, values)
        total = reduce.reduce(np.where(lanes, values[..., None, :], filler), axis=3, dtype=dtype)
        if t == "f32" and nan:
            total = np.where(bad, np.uint32(0x7FFFFFFF).view(np.float32), total)
        m.regs[d] = m.from_warps(np.broadcast_to(total, values.shape))

    return run


@instruction("activemask")
def activemask(op):
    """d = mask of the lanes that run this instruction together."""
    op.effect, op.results = Effect.EXCHANGE, Results.PER_WARP
    d = op.result(0, "b32")

    def run(m):
        lanes = m.warps_active()
        m.regs[d] = m.from_warps(np.broadcast_to(ballot(lanes), lanes.shape))

    return run


@instruction("elect")
def elect(op):
    """d|p: p is set in one of the lanes (here the lowest), and d is its number."""
    op.effect, op.rendezvous = Effect.EXCHANGE, 1
    op.without_effect(*ALIGNED)
    mask = op.members = op.source(1, "b32")
    d, p = op.pair(0, "b32", "pred")
    line = op.line

    def run(m):
        masks = check_members(m, mask, line, "election")
        lanes = members(m, mask)
        leader = groups(lanes, masks).argmax(axis=3)
        m.regs[d] = m.from_warps(np.broadcast_to(leader.astype(U32), lanes.shape))
        if p is not None:
            m.regs[p] = m.from_warps((leader == LANE) & lanes)

    return run
