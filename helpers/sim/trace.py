"""What happened, access by access: recorded only for the lines, blocks and warps somebody asked for."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace

import numpy as np

ACCESS = np.dtype([("site", "i4"), ("block", "i4"), ("warp", "i4"), ("iteration", "i4"), ("order", "i8")])
BARRIER = np.dtype([("block", "i4"), ("warp", "i4"), ("line", "i4"), ("order", "i8"), ("kind", "U12")])
MATH = np.dtype([("block", "i4"), ("warp", "i4"), ("line", "i4"), ("order", "i8"), ("opclass", "U8")])
WARP = 32


@dataclass(frozen=True)
class TraceFilter:
    """What to record; None means all.

    lines: source lines. blocks: linear block indices. warps: warp indices within their block. iterations: how many times
    that warp had executed that instruction before. spaces: 'global', 'shared', 'local'. limit: most rows recorded.
    math: also record arithmetic (timelines).
    """

    lines: Container[int] | None = None
    blocks: Container[int] | None = None
    warps: Container[int] | None = None
    iterations: Container[int] | None = None
    spaces: Container[str] | None = None
    limit: int = 200_000
    registers: bool = False
    math: bool = False


@dataclass(frozen=True)
class Site:
    """A memory instruction. width: bytes per lane as ptxas made it; 0 if ptxas merged it into another or removed it."""

    pc: int
    line: int | None
    space: str
    op: str
    width: int
    opcode: str
    sass: str
    ptx_line: int


@dataclass(frozen=True)
class Allocation:
    """Something that has addresses: a parameter's array, a module variable, or a shared variable."""

    name: str
    space: str
    base: int
    nbytes: int
    shape: tuple[int, ...]
    itemsize: int
    dtype: str


@dataclass(frozen=True)
class Trace:
    """Recorded events. `addresses` is [n, 32] int64 beside `accesses`; -1 marks a lane that took no part."""

    accesses: np.ndarray
    addresses: np.ndarray
    sites: list[Site]
    barriers: np.ndarray
    math: np.ndarray
    allocations: list[Allocation]
    truncated: bool
    grid: tuple[int, int, int]
    block: tuple[int, int, int]

    def select(self, line=None, op=None, space=None, block=None, warp=None, iteration=None) -> Trace:
        """The events that match every given condition (a value, or a set or range of values)."""
        keep = np.ones(len(self.accesses), bool)
        for wanted, name in ((line, "line"), (op, "op"), (space, "space")):
            if wanted is not None:
                fits = np.array([_fits(getattr(site, name), wanted) for site in self.sites], bool)
                keep &= fits[self.accesses["site"]] if len(fits) else False
        for wanted, name in ((block, "block"), (warp, "warp"), (iteration, "iteration")):
            if wanted is not None:
                keep &= _matches(self.accesses[name], wanted)
        others = []
        for events in (self.barriers, self.math):
            kept = np.ones(len(events), bool)
            for wanted, name in ((line, "line"), (block, "block"), (warp, "warp")):
                if wanted is not None:
                    kept &= _matches(events[name], wanted)
            others.append(events[kept])
        return replace(self, accesses=self.accesses[keep], addresses=self.addresses[keep], barriers=others[0], math=others[1])


def _fits(value, wanted) -> bool:
    return value == wanted if isinstance(wanted, (str, int, np.integer)) else value in wanted


def _matches(values: np.ndarray, wanted) -> np.ndarray:
    if isinstance(wanted, (int, np.integer)):
        return values == wanted
    if isinstance(wanted, range):
        wanted = list(wanted)
    return np.isin(values, np.fromiter(wanted, np.int64))


@dataclass
class Recorder:
    """Collects events of all chunks of a launch."""

    filter: TraceFilter
    accesses: list[np.ndarray] = field(default_factory=list)
    addresses: list[np.ndarray] = field(default_factory=list)
    barriers: list[np.ndarray] = field(default_factory=list)
    math: list[np.ndarray] = field(default_factory=list)
    rows: int = 0
    events: int = 0
    truncated: bool = False

    def wants(self, line, space) -> bool:
        f = self.filter
        return not self.truncated and (f.lines is None or line in f.lines) and (f.spaces is None or space in f.spaces)

    def access(self, m, site, addresses) -> None:
        """Record one executed access of a chunk. addresses: int64, broadcast to the lanes."""
        order = m.next_order()
        iterations = m.iterations(site)
        if not self.wants(site.line, site.space):
            return
        rows = m.warps(addresses, -1)
        active = m.warps_active()
        chosen = active.any(axis=2) & m.traced_blocks(self.filter)[:, None] & m.traced_warps(self.filter)[None, :]
        if self.filter.iterations is not None:
            f = self.filter.iterations
            known = np.unique(iterations[chosen])
            fits = np.array([value for value in known.tolist() if value in f], iterations.dtype)
            chosen &= np.isin(iterations, fits)
        count = int(np.count_nonzero(chosen))
        if not count:
            return
        if self.rows + count > self.filter.limit:
            self.truncated = True
            return
        blocks, warps = np.nonzero(chosen)
        events = np.empty(count, ACCESS)
        events["site"] = site.index
        events["block"], events["warp"] = m.block_numbers[blocks], warps
        events["iteration"] = iterations[blocks, warps]
        events["order"] = order
        self.accesses.append(events)
        self.addresses.append(np.where(active, rows, -1)[chosen])
        self.rows += count

    def barrier(self, m, line, kind: str) -> None:
        """Record that the active warps passed a barrier."""
        self._event(m, line, kind, BARRIER, "kind", self.barriers)

    def arithmetic(self, m, line, opclass: str) -> None:
        """Record that the active warps executed an arithmetic instruction of a class."""
        self._event(m, line, opclass, MATH, "opclass", self.math)

    def _event(self, m, line, text, dtype, name, into) -> None:
        order = m.next_order()
        f = self.filter
        if self.truncated or (f.lines is not None and dtype is MATH and line not in f.lines):
            return
        chosen = m.warps_active().any(axis=2) & m.traced_blocks(f)[:, None] & m.traced_warps(f)[None, :]
        blocks, warps = np.nonzero(chosen)
        if self.events + len(blocks) > f.limit:
            self.truncated = True
            return
        events = np.empty(len(blocks), dtype)
        events["block"], events["warp"], events["line"] = m.block_numbers[blocks], warps, line or 0
        events["order"], events[name] = order, text
        into.append(events)
        self.events += len(blocks)

    def trace(self, sites, allocations, grid, block) -> Trace:
        """The finished trace, each block's events in order."""

        def join(parts, empty):
            return np.concatenate(parts) if parts else empty

        accesses = join(self.accesses, np.empty(0, ACCESS))
        addresses = join(self.addresses, np.empty((0, WARP), np.int64))
        order = np.lexsort((accesses["warp"], accesses["order"], accesses["block"]))
        shown = [Site(s.pc, s.line, s.space, s.op, s.charged, s.opcode, s.sass, s.ptx_line) for s in sites]
        return Trace(
            accesses[order], addresses[order], shown, join(self.barriers, np.empty(0, BARRIER)), join(self.math, np.empty(0, MATH)),
            allocations, self.truncated, grid, block,
        )  # fmt: skip
