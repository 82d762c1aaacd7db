"""Shadow state of bulk copies: who knows that a copy has come, and what a copy may still be reading.

A bulk copy to shared memory is nobody's before an mbarrier says that it has come, and then only for those who know: the
threads that waited for that mbarrier, and whoever synchronised with one of them since. To everybody else the data is
still under way. In the shadow's `under_way` a copy that has landed is a negative number, the number of its `Landing`.

`BulkShadow` belongs to a `Shadow` and has the same rows: one for each block, or one for all blocks while they do the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from helpers.sim.code.hardware_units import WARP

from .cluster_races import READ, WRITE

CHUNK = 16


@dataclass(eq=False)
class Landing:
    """Data that came with one executed copy. phase: [rows], the mbarrier's phase. seen: [rows, threads], who knows of it."""

    site: int
    barrier: object
    phase: np.ndarray
    seen: np.ndarray


class BulkShadow:
    """What a `Shadow` remembers of bulk copies."""

    def __init__(self, shadow):
        self.shadow = shadow
        self.landings: list[Landing | None] = []

    def expand(self, blocks: int) -> None:
        """A row for each block."""
        for landing in self.landings:
            if landing is not None:
                landing.phase, landing.seen = (np.repeat(a, blocks, axis=0) for a in (landing.phase, landing.seen))

    # ------------------------------------------------------------------------------------------------------- places

    def _cells(self, m, piece, lanes):
        """(granules as flat indices, thread + 1 of each, rows of the shadow [n]) of what matters of a piece that `lanes` copy."""
        shadow, g = self.shadow, self.shadow.granule
        rows, offsets, threads, inside = piece.rows, piece.units(CHUNK), lanes % m.threads, piece.inside
        if shadow.rows == 1 and m.blocks > 1:
            if _alike(m, lanes, piece):
                count = len(lanes) // m.blocks
                rows, offsets, threads = np.zeros(count, np.int64), offsets[:count], threads[:count]
                inside = None if inside is None else inside[:count]
            else:
                shadow._expand(m)
        rows = rows if shadow.rows > 1 else np.zeros(len(threads), np.int64)
        cells = (offsets // g + (rows * shadow.count)[:, None])[:, :, None] + np.arange(CHUNK // g)
        who = np.broadcast_to((threads + 1).astype(np.int32)[:, None, None], cells.shape)
        if inside is not None:
            cells, who = cells[inside], who[inside]
        return cells.reshape(-1), who.reshape(-1), rows

    # -------------------------------------------------------------------------------------------- to shared memory

    def start(self, m, site, piece, lanes) -> None:
        """A copy to these places begins."""
        shadow = self.shadow
        self._across(m, site, piece, lanes, WRITE)
        cells, who, _ = self._cells(m, piece, lanes)
        foreign = piece.rows != lanes // m.threads
        if foreign.any():  # another block's threads are none of this block's: the cluster's shadow looks after them
            keep = np.repeat(~foreign, len(cells) // len(lanes))
            shadow.under_way.reshape(-1)[cells[~keep]] = site.index + 1
            cells, who = cells[keep], who[keep]
        shadow._start(m, site, cells, who)

    def _across(self, m, site, piece, lanes, verb) -> None:
        """What other blocks of the cluster do there must be ordered."""
        if self.shadow.cluster is not None:
            offsets = piece.units(CHUNK)
            actors, rows, threads = (np.repeat(a, offsets.shape[1]) for a in (lanes // m.threads, piece.rows, lanes % m.threads))
            parts = actors, rows, offsets.reshape(-1), threads
            if piece.inside is not None:
                parts = (part[piece.inside.reshape(-1)] for part in parts)
            self.shadow.cluster.touch(m, site, *parts, CHUNK, verb)

    def land(self, m, site, piece, lanes, barrier) -> None:
        """A copy has come, and nobody knows yet."""
        shadow = self.shadow
        if shadow.cluster is not None:
            offsets = piece.units(CHUNK)
            shadow.cluster.landed(np.repeat(piece.rows, offsets.shape[1]), offsets.reshape(-1), CHUNK)
        cells, _, rows = self._cells(m, piece, lanes)
        landing = Landing(site.index, barrier, np.full(shadow.rows, -1, np.int64), np.zeros((shadow.rows, m.threads), bool))
        landing.phase[rows] = barrier.phase[piece.rows[: len(rows)]]
        shadow.under_way.reshape(-1)[cells] = -1 - self._slot(landing)
        if shadow.proxies is not None:
            shadow.proxies.unfenced.reshape(-1)[cells] = 0
        shadow._written(cells)
        shadow.touched = True
        # Who may use the data is a matter of knowing that it has come, and of nothing else.
        shadow.writer.reshape(-1)[cells] = shadow.reader.reshape(-1)[cells] = 0

    def _slot(self, landing: Landing) -> int:
        """The number that a landing gets: one that no granule refers to any more."""
        if len(self.landings) >= 32:
            used = set((-1 - self.shadow.under_way[self.shadow.under_way < 0]).tolist())
            self.landings = [old if i in used else None for i, old in enumerate(self.landings)]
        if None in self.landings:
            number = self.landings.index(None)
            self.landings[number] = landing
            return number
        self.landings.append(landing)
        return len(self.landings) - 1

    def unseen(self, copy: np.ndarray, cells: np.ndarray, who: np.ndarray) -> np.ndarray:
        """Which accesses meet a copy that is under way, or that their thread does not know to have landed.

        copy: what `under_way` holds at `cells`. who: thread + 1, or less for several threads.
        """
        first = int(copy[0]) if len(copy) else 0
        if first < 0 and who[0] > 0 and (copy == first).all() and (who > 0).all():  # as a rule all that is read came at once
            seen = self.landings[-1 - first].seen
            return ~(seen[cells // self.shadow.count, who - 1] if self.shadow.rows > 1 else seen[0].take(who - 1))
        bad = copy != 0
        landed = np.flatnonzero(copy < 0)
        if not len(landed):
            return bad
        rows = cells[landed] // self.shadow.count if self.shadow.rows > 1 else np.zeros(len(landed), np.int64)
        threads, numbers = who[landed] - 1, -1 - copy[landed]
        for number in np.unique(numbers).tolist():
            seen, mine = self.landings[number].seen, numbers == number
            known = np.where(threads[mine] >= 0, seen[rows[mine], np.maximum(threads[mine], 0)], seen.all(axis=1)[rows[mine]])
            bad[landed[mine]] = ~known
        return bad

    def site_of(self, copy: int) -> int:
        """The instruction whose copy a value of `under_way` stands for."""
        return copy - 1 if copy > 0 else self.landings[-1 - copy].site

    # ------------------------------------------------------------------------------------------------- who knows what

    def waited(self, m, barrier, rows, lanes, arrivers: np.ndarray) -> None:
        """Lanes have waited for the mbarrier of the blocks `rows`: they know what it counted, and what its arrivers knew."""
        if not any(self.landings):
            return
        waiters = np.zeros((m.blocks, m.threads), bool)
        waiters.reshape(-1)[lanes] = True
        over = np.full(m.blocks, -1, np.int64)  # the block's phase, where somebody has waited
        over[rows] = barrier.phase[rows]
        if self.shadow.rows == 1:
            if (waiters != waiters[:1]).any() or (arrivers != arrivers[:1]).any() or (over != over[0]).any():
                self.shadow._expand(m)
            else:
                waiters, arrivers, over = waiters[:1], arrivers[:1], over[:1]
        for landing in self.landings:
            if landing is not None:
                known = (landing.seen & arrivers).any(axis=1)
                if landing.barrier is barrier:
                    known |= (landing.phase >= 0) & (landing.phase < over)
                landing.seen |= waiters & known[:, None]

    def met(self, m, members: np.ndarray) -> None:
        """Threads ([rows or 1, threads]) have synchronised: what one of them knows, all know."""
        for landing in self.landings:
            if landing is not None:
                landing.seen |= members & (landing.seen & members).any(axis=1, keepdims=True)

    def warps_met(self, m) -> None:
        """The active warps have passed a __syncwarp()."""
        pad = -m.threads % WARP
        for landing in self.landings:
            if landing is not None:
                warps = np.pad(landing.seen, ((0, 0), (0, pad))).reshape(len(landing.seen), -1, WARP)
                known = np.broadcast_to(warps.any(axis=2, keepdims=True), warps.shape)
                if m.mask is not None:
                    active = m.warps_active() if len(warps) > 1 else m.warps_active().all(axis=0, keepdims=True)
                    known = known & active
                landing.seen |= known.reshape(len(landing.seen), -1)[:, : m.threads]

    def forget(self, rows=None) -> None:
        """A barrier of whole blocks: what has landed there, everybody knows. rows: of the shadow, boolean; None: all."""
        if any(self.landings):
            under_way = self.shadow.under_way
            landed = under_way < 0
            under_way[landed if rows is None else landed & rows[:, None]] = 0

    # ------------------------------------------------------------------------------------------ from shared memory

    def read(self, m, site, piece, lanes) -> None:
        """A copy from these places begins: may it read them?"""
        shadow = self.shadow
        self._across(m, site, piece, lanes, READ)
        cells, who, _ = self._cells(m, piece, lanes)
        if not len(cells):  # a box that lies outside the tensor
            return
        shadow._check_load(m, site, cells, who, False)
        late = shadow.proxies.unfenced.reshape(-1).take(cells) != 0
        if late.any():
            shadow.proxies.unfenced_read(shadow, m, site, cells[late], int(who[late][0]) - 1, "The bulk copy")

    def hold(self, m, site, piece, lanes):
        """These places are being read. Returns a function (m, chosen) that ends it for the copies `chosen`."""
        cells, _who, _ = self._cells(m, piece, lanes)
        self._count(cells, site, 1)

        def release(m, chosen):
            self._count(self._cells(m, piece.of(chosen), lanes[chosen])[0], site, -1)

        return release

    def _count(self, cells, site, change: int) -> None:
        proxies = self.shadow.proxies
        np.add.at(proxies.readers.reshape(-1), cells, change)
        proxies.reader_site.reshape(-1)[cells] = site.index + 1


def _alike(m, lanes, piece) -> bool:
    """Do all blocks copy the same, each for itself?"""
    if len(lanes) % m.blocks:
        return False
    blocks = np.arange(m.blocks)[:, None]
    own = [lanes.reshape(m.blocks, -1) - blocks * m.threads, piece.rows.reshape(m.blocks, -1) - blocks, piece.offsets.reshape(m.blocks, -1)]
    if piece.inside is not None:
        own.append(piece.inside.reshape(m.blocks, -1))
    return all((part == part[:1]).all() for part in own) and not own[1].any()
