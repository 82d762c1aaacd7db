"""Coalescing: which 32-byte sectors of memory the 32 lanes of a warp touch with one load or store."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection

from helpers.errors import plural
from helpers.sim.code.hardware_units import SECTOR_BYTES as SECTOR
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import AccessKind
from helpers.sim.counting.rules import WORD_BYTES as WORD
from helpers.sim.counting.traced import cost_of

from .canvas import BLUE, FAINT, GREEN, INK, PAPER, QUIET, heading, picture, stamp
from .places import Moment, Place, at, choose_place, code, cut, element, moment, moment_controls, places

_NONE = "This kernel makes no access to global memory in the part that was recorded, so there are no sectors to show."


@dataclass(frozen=True)
class WarpAccess:
    """One warp-wide access to global memory.

    lane_sector: [32] index into `sectors`, -1 for a lane that takes no part. sectors: their addresses / 32, ascending.
    words: [sectors, 8] bool, the 4-byte words that lanes use. used: distinct bytes. charged: sectors the hardware counts, more
    than there are where atomics take several passes over an address or copies past L1 part what lies together. ideal: sectors
    for the same lanes on packed data.
    """

    place: Place
    when: Moment
    addresses: np.ndarray
    lane_sector: np.ndarray
    sectors: np.ndarray
    words: np.ndarray
    used: int
    charged: int
    ideal: int

    @property
    def active(self) -> int:
        return int((self.addresses >= 0).sum())

    @property
    def moved(self) -> int:
        """Bytes in the sectors that the hardware counts."""
        return SECTOR * self.charged

    @property
    def efficiency(self) -> float:
        """Distinct bytes used over the bytes of the sectors, 0 to 1."""
        return self.used / self.moved if self.moved else 0.0

    @property
    def broadcast(self) -> bool:
        return self.active > 1 and len(np.unique(self.addresses[self.addresses >= 0])) == 1


def warp_access(run, site=None, line=None, block: int = 0, warp: int = 0, iteration: int = 0) -> WarpAccess:
    """The access that a picture shows; block, warp and iteration move to the nearest that was recorded.

    Raises NothingToSee if the run has no such access.
    """
    trace = run.trace
    place = choose_place(places(trace, space="global"), site, line, _NONE)
    return access_at(trace, place, moment(trace, place, block, warp, iteration))


def access_at(trace, place: Place, when: Moment) -> WarpAccess:
    """What a picture shows of a recorded access to global memory."""
    addresses = trace.addresses[when.row]
    active = addresses >= 0
    sectors, inverse = np.unique(addresses[active] // SECTOR, return_inverse=True)
    lane_sector = np.full(WARP, -1)
    lane_sector[active] = inverse
    used = np.unique(addresses[active][:, None] + np.arange(place.width))
    words = np.zeros((len(sectors), SECTOR // WORD), bool)
    words[np.searchsorted(sectors, used // SECTOR), used % SECTOR // WORD] = True
    cost = cost_of(trace, when.row)
    charged, ideal = (len(sectors), len(sectors)) if cost is None else (int(cost.sectors[0]), int(cost.ideal_sectors[0]))
    return WarpAccess(place, when, addresses, lane_sector, sectors, words, len(used), charged, ideal)


def controls(run, site=None, line=None, block=None, warp=None, iteration=None):
    """Access, block, warp and iteration, as far as this run goes."""
    found = places(run.trace, space="global")
    return moment_controls(run.trace, found, choose_place(found, site, line, _NONE), block, warp, iteration)


@picture("Coalescing", controls=controls, size=(10, 5.1), margins=(1.3, 0.1, 0.2, 1.35), order=10)
def coalescing(run, site: int | None = None, line: int | None = None, block: int = 0, warp: int = 0, iteration: int = 0, *, ax):
    """Lanes of one warp above, the sectors they touch below, every sector as its eight 4-byte words.

    site: index into run.trace.sites, or line: source line (its first access to global memory). block: linear index,
    warp: in its block, iteration: how many times the warp had made this access before (in all copies the compiler made).
    """
    seen = warp_access(run, site, line, block, warp, iteration)
    ax.set_axis_off()
    ax.set_xlim(0, WARP)
    ax.set_ylim(13.6, -0.2)
    where = at(run.trace, seen.when)
    source = code(run, seen.place.line)
    if not seen.active:
        heading(ax, f"No lane takes part in this {seen.place.what}", code=source, detail=where)
        _lanes(ax, seen, INK)
        return f"{source}: all 32 lanes are switched off here, so nothing is moved."
    colour = GREEN if seen.place.op in (AccessKind.STORE, AccessKind.REDUCTION) else BLUE
    title = f"{plural(seen.charged, 'sector')} for one {seen.place.what}"
    amounts = _amounts(seen)
    heading(ax, title, code=source, detail=f"{where}: {amounts}{cut(run.trace, seen.place)}")
    centres = (np.arange(len(seen.sectors)) + 0.5) * WARP / len(seen.sectors)
    width = min(0.84 * WARP / len(seen.sectors), 2.4)
    _links(ax, seen, centres, colour)
    _lanes(ax, seen, colour)
    _sectors(ax, seen, centres, width, colour)
    _addresses(ax, run, seen, centres)
    lanes = "1 lane touches" if seen.active == 1 else f"{seen.active} lanes touch"
    return f"{title}. Line {source}. {where}: {lanes} {plural(len(seen.sectors), 'sector')} of 32 bytes; {amounts}."


def _amounts(seen: WarpAccess) -> str:
    if seen.charged > len(seen.sectors) and seen.place.op.atomic:
        return f"{plural(seen.active, 'lane')} change {plural(len(np.unique(seen.addresses[seen.addresses >= 0])), 'address')}, in turns"
    if seen.broadcast:
        return f"{seen.moved} bytes in its sector, one address serves {plural(seen.active, 'lane')}"
    amounts = f"{seen.moved:,} bytes in these sectors, {seen.used:,} used ({100 * seen.efficiency:.3g} %)"
    return amounts if seen.charged <= seen.ideal else f"{amounts}; {plural(seen.ideal, 'sector')} would be enough"


_TOP, _WORDS_TOP, _CELL = 1.0, 4.6, 0.85


def _lanes(ax, seen, colour):
    active = seen.addresses >= 0
    boxes = [[(i + 0.06, 0), (i + 0.94, 0), (i + 0.94, _TOP), (i + 0.06, _TOP)] for i in range(WARP)]
    ax.add_collection(PolyCollection(
        boxes, facecolors=[colour if on else PAPER for on in active], edgecolors=[colour if on else QUIET for on in active],
        linewidths=1, linestyles=["-" if on else ":" for on in active],
    ))  # fmt: skip
    for i in range(WARP):
        stamp(ax, i + 0.5, _TOP / 2, str(i), ha="center", va="center_baseline", fontsize=10.5, color=PAPER if active[i] else QUIET)
    ax.text(-0.3, _TOP / 2, "lanes", ha="right", va="center", fontsize=13)


def _links(ax, seen, centres, colour):
    lanes = np.flatnonzero(seen.lane_sector >= 0)
    ends = [[(lane + 0.5, _TOP), (centres[seen.lane_sector[lane]], _WORDS_TOP)] for lane in lanes]
    ax.add_collection(LineCollection(ends, colors=colour, linewidths=1.3, alpha=0.65))


def _sectors(ax, seen, centres, width, colour):
    cells, colours = [], []
    for centre, used in zip(centres, seen.words, strict=False):
        left, right = centre - width / 2, centre + width / 2
        for word in range(SECTOR // WORD):
            top = _WORDS_TOP + word * _CELL
            cells.append([(left, top), (right, top), (right, top + _CELL), (left, top + _CELL)])
            colours.append(colour if used[word] else FAINT)
    ax.add_collection(PolyCollection(cells, facecolors=colours, edgecolors=PAPER, linewidths=1.2))
    ax.text(-0.3, _WORDS_TOP + 4 * _CELL, "sectors\nof 8 words\n= 32 bytes", ha="right", va="center", fontsize=13, linespacing=1.4)


def _addresses(ax, run, seen, centres):
    """Which element each sector begins with: all of them where there is room, the ends otherwise."""
    y = _WORDS_TOP + 8 * _CELL + 0.25
    count = len(seen.sectors)
    labels = [element(run, "global", int(sector) * SECTOR) for sector in seen.sectors]
    if count <= 8:
        for centre, label in zip(centres, labels, strict=False):
            ax.text(centre, y, label, ha="center", va="top", fontsize=12, family="monospace")
    else:
        ax.text(0, y, labels[0], ha="left", va="top", fontsize=12, family="monospace")
        ax.text(WARP, y, labels[-1], ha="right", va="top", fontsize=12, family="monospace")
    gaps = np.diff(seen.sectors) * SECTOR
    if count > 1 and (gaps == gaps[0]).all():
        apart = "neighbours in memory" if gaps[0] == SECTOR else f"each {int(gaps[0]):,} bytes after the one before"
        ax.text(WARP / 2, y + (1.15 if count <= 8 else 0), apart, ha="center", va="top", fontsize=12, color=QUIET)
