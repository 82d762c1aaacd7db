"""Shared memory as the async proxy sees it: tensor cores (wgmma) and bulk copies read it on a way of their own.

Two things can go wrong on that way, and both leave the right result in a machine that does one thing after the other:
- ordinary stores (the *generic proxy*) are not seen by it until a `fence.proxy.async` stands between them and the read.
  What cp.async brings is let pass: PTX counts it as generic, but much code that is in use hands it to wgmma with no fence;
- a wgmma reads its matrices while the kernel runs on, so that nobody may write them before it has been waited for.

`Proxies` belongs to a `Shadow` and has the same rows: one for each block, or one for all blocks while they do the same.
"""

from __future__ import annotations

import numpy as np

FENCE_ADVICE = 'Put asm volatile("fence.proxy.async;") after the stores, before the barrier that hands the data over.'
STORE_ADVICE = "Wait for the copy (cp.async.bulk.commit_group, then wait_group.read) and put a barrier before the buffer is written again."
READ_ADVICE = "Wait for the wgmma (wgmma.wait_group) and then put a barrier before the buffer is written again."


class Proxies:
    """Per granule of shared memory.

    unfenced: thread + 1 (or the shadow's code for several) that wrote it by an ordinary store no proxy fence has
    followed yet. readers: how many warpgroups' products may still be reading it. reader_site: the last one's instruction + 1.
    """

    ARRAYS = ("unfenced", "readers", "reader_site")

    def __init__(self, count: int):
        for name in self.ARRAYS:
            setattr(self, name, np.zeros((1, count), np.int32))

    def part(self, pick) -> Proxies:
        """The state of some blocks; `pick` cuts an array."""
        other = object.__new__(Proxies)
        for name in self.ARRAYS:
            setattr(other, name, pick(getattr(self, name)))
        return other

    def expand(self, blocks: int) -> None:
        """A row for each block."""
        for name in self.ARRAYS:
            setattr(self, name, np.repeat(getattr(self, name), blocks, axis=0))

    def written(self, shadow, m, site, cells, who, generic: bool = True) -> None:
        """`who` writes the granules (flat indices), by an ordinary store or (generic=False) by a copy."""
        self.unfenced.reshape(-1)[cells] = who if generic else 0
        self.overwritten(shadow, m, site, cells, who)

    def overwritten(self, shadow, m, site, cells, who, verb: str = "writes") -> None:
        """Note it if a product or a bulk copy that has not been waited for may still read these granules."""
        busy = self.readers.reshape(-1).take(cells) > 0
        if not busy.any():
            return
        i = int(np.flatnonzero(busy)[0])
        block, thread, offset = shadow._place(m, cells[i], who[i])
        other = shadow.sites[int(self.reader_site.reshape(-1)[cells[i]]) - 1]
        stores = other.op == "bulk store"
        what = "bulk copy" if stores else "wgmma"
        m.findings.add(
            "missing-wait" if stores else "race", site.line,
            f"Thread {thread} {verb} shared memory at offset {offset}{shadow._name(m, offset)}, which the {what}"
            f"{' of the same line' if other.line == site.line else f' of line {other.line}'} may still be reading.",
            other_line=other.line, block=block, thread=thread, advice=STORE_ADVICE if stores else READ_ADVICE, count=int(np.count_nonzero(busy)),
        )  # fmt: skip

    def fence(self, shadow, m) -> None:
        """The active threads order their own stores, and those that a barrier has ordered before, with the async proxy."""
        if m.mask is None:
            self.unfenced[:] = 0
            return
        shadow._expand(m)
        members = np.concatenate([np.zeros((m.blocks, 1), bool), m.rows_of(m.mask)], axis=1)
        blocks = members.any(axis=1, keepdims=True)
        mine = np.take_along_axis(members, np.maximum(self.unfenced, 0), axis=1)
        self.unfenced[mine | blocks & ((shadow.writer == 0) | (self.unfenced < 0))] = 0

    def check(self, shadow, m, site, rows, granules, thread: int, what: str) -> None:
        """The async proxy is about to read: were all ordinary stores fenced? rows: of the shadow. granules: within a block."""
        late = self.unfenced[np.ix_(rows, granules)] != 0
        if not late.any():
            return
        cells = np.asarray(rows)[:, None] * shadow.count + np.asarray(granules)
        self.unfenced_read(shadow, m, site, cells[late], thread, what)

    def unfenced_read(self, shadow, m, site, cells, thread: int, what: str) -> None:
        """`what`, started by `thread`, reads granules (flat indices) that ordinary stores have written since the last fence."""
        other = shadow.sites[int(shadow.writer_site.reshape(-1)[cells[0]])]
        block, thread, offset = shadow._place(m, cells[0], thread + 1)
        m.findings.add(
            "missing-fence", site.line,
            f"{what} reads shared memory at offset {offset}{shadow._name(m, offset)}, written at line {other.line} by an ordinary store, "
            "with no fence.proxy.async between.",
            other_line=other.line, block=block, thread=thread, advice=FENCE_ADVICE, count=len(cells),
        )  # fmt: skip

    def reading(self, site, rows, granules, change: int) -> None:
        """A warpgroup's product begins (+1) or ends (-1) to read."""
        self.readers[np.ix_(rows, granules)] += change
        self.reader_site[np.ix_(rows, granules)] = site.index + 1
