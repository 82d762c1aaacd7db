"""What copies in bulk take of L2, by who else wants the same at the time."""

from __future__ import annotations

from collections.abc import Mapping

from helpers.sim.code.sass import SassInstruction
from helpers.sim.counting.machine_code import LINE, BulkCopy, SignalKind, kind_of

from .chip import Chip

Rate = tuple[float, float]  # cycles of a sector that a copy brings: of the multiprocessor's own port, and of its share of L2


def rates(
    instructions: tuple[SassInstruction, ...], copies: Mapping[int, BulkCopy], run, cluster: int, beyond: float, chip: Chip
) -> Mapping[int, Rate]:
    """The rates of all copies to shared memory, by index. copies: as `bulk_copies` has them. cluster: blocks in one. beyond: the part of
    a product's lines that are not in L2 when they are wanted again.

    Blocks that follow each other share what L2 sends while they are at the same step. Those that walk tiles come to be apart; those of a
    cluster have copies for all of it; rows that begin within lines are not shared (log, run 43).
    """
    problem = run.problem.get("problem")
    split = problem is not None and any(pitch * problem.inputs.bytes % LINE for pitch in (problem.lda, problem.ldb))
    own = chip["load_store.l2_sector_alone"] * (chip["bulk.split_alone"] if split else 1.0)
    found = {}
    for i in instructions:
        if kind_of(i) is not SignalKind.BULK:
            continue
        copy = copies.get(i.index)
        if cluster > 1 and split:
            sector = chip["bulk.cluster_split"]
        elif cluster > 1:
            sector = chip["bulk.multicast" if i.has("MULTICAST") else "bulk.sector"]
        elif split:
            sector = chip["bulk.split"]
        elif copy is None or "tiles" in run.problem:
            sector = chip["bulk.sector"] + chip["bulk.far"] * beyond
        else:
            sector = chip["bulk.each"] + chip["bulk.fresh"] * copy.fresh + chip["bulk.far"] * beyond
        found[i.index] = own, sector
    return found
