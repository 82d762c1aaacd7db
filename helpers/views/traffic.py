"""Traffic: how many bytes each level of the memory hierarchy is asked for, from the registers down to DRAM's least.

A full bar is a counter of the run times the bytes it stands for. The hollow ones are no counters. L2: what would be asked of it
if the L1 cache kept every sector until the block that loaded it ends, and blocks shared nothing; from the accesses of a trace
that has them all. DRAM: what any kernel must move, each matrix once. Between two neighbours stands how many times fewer bytes
the lower one is asked for: the reuse that the upper one achieves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.ticker import NullLocator

from helpers.errors import CourseError
from helpers.sim.code.hardware_units import SECTOR_BYTES as SECTOR
from helpers.sim.code.sites import AccessKind
from helpers.sim.counting import names

from .canvas import BLUE, GREEN, INK, ORANGE, PAPER, PURPLE, QUIET, SKY, NothingToSee, heading, picture
from .places import once_per_trace
from .roofline import compulsory_bytes

WAVEFRONT, OPERANDS = 128, 8  # bytes of a wavefront (32 banks), of the two factors of an FMA


@dataclass(frozen=True)
class Level:
    """Bytes asked of one level. what: where the number comes from. counted: from the run's counters, not from a model or bound."""

    name: str
    bytes: int
    what: str
    colour: str
    counted: bool = True


def levels(run) -> list[Level]:
    """The levels that this run used, nearest first. Raises NothingToSee for a run without counters."""
    counters = run.counters
    shared = [counters.get(names.shared_wavefronts(op), 0) for op in ("ld", "st")]
    sectors = [counters.get(names.sectors("global", op), 0) for op in ("ld", "st")]
    found = [
        Level("arithmetic", OPERANDS * counters.get(names.threads("ffma"), 0), "two factors of 4 bytes per FMA and thread", GREEN),
        Level("shared memory", WAVEFRONT * sum(shared), "128 bytes per wavefront", ORANGE),
        Level("L1 cache", SECTOR * sum(sectors), "32 bytes per requested sector", BLUE),
        Level(
            "L2 cache,\nby a model",
            SECTOR * (sectors_of_blocks(run) + sectors[1]),
            "every block loads a sector once; all stores",
            PURPLE,
            False,
        ),
        Level("DRAM,\nat least", compulsory_bytes(run), "every matrix once", SKY, False),
    ]
    if not sectors_of_blocks(run):
        del found[3]
    found = [level for level in found if level.bytes]
    if not any(level.counted for level in found):
        raise NothingToSee("This run counted neither arithmetic nor memory accesses, so there is no traffic to compare.")
    return found


def sectors_of_blocks(run) -> int:
    """Sectors that the blocks load, each counted once per block; 0 where the trace does not hold every load of the launch."""
    try:
        trace = run.trace
    except CourseError:
        return 0
    loads, total = _distinct_sectors(trace)
    return total if loads and loads == run.counters.get(names.requests("global", "ld")) and not run.sampled else 0


@once_per_trace
def _distinct_sectors(trace) -> tuple[int, int]:
    """(recorded load instructions of warps from global memory, their sectors, each once per block)."""
    kinds = np.array(
        [site.space == "global" and site.op in (AccessKind.LOAD, AccessKind.COPY) and site.width > 0 for site in trace.sites] or [False]
    )
    rows = kinds[trace.accesses["site"]] & (trace.addresses >= 0).any(axis=1)
    total = 0
    blocks = trace.accesses["block"][rows]
    sectors = trace.addresses[rows] // SECTOR
    for block in np.unique(blocks):
        total += int((np.unique(sectors[blocks == block]) >= 0).sum())
    return int(rows.sum()), total


@picture("Traffic", size=(10, 5.2), margins=(1.75, 0.75, 1.5, 1.05), order=60)
def traffic(run, *, ax):
    """One bar per level, in bytes, on a logarithmic scale; between two bars how many times fewer bytes the lower one is."""
    found = levels(run)
    sizes = [level.bytes for level in found]
    ax.set_xscale("log")
    start = 10 ** (len(str(min(sizes))) - 2)
    ax.set_xlim(start, max(sizes) * 1.15)
    ax.set_ylim(len(found) - 0.4, -0.6)
    for y, level in enumerate(found):
        ax.barh(y, level.bytes - start, left=start, height=0.55, facecolor=level.colour if level.counted else PAPER, edgecolor=level.colour,
                hatch="" if level.counted else "//", linewidth=2)  # fmt: skip
        ax.annotate(amount(level.bytes), (level.bytes, y), (8, 0), textcoords="offset points", va="center", fontsize=14, weight="bold",
                    annotation_clip=False)  # fmt: skip
        if y + 1 < len(found):
            ratio = level.bytes / found[y + 1].bytes
            ax.annotate(_ratio(ratio), (min(sizes[y], sizes[y + 1]), y + 0.5), (8, 0), textcoords="offset points", va="center", fontsize=12,
                        color=QUIET)  # fmt: skip
    ax.set_yticks(range(len(found)), [level.name for level in found])
    ax.tick_params(axis="y", length=0, labelsize=14)
    ax.xaxis.set_major_formatter(lambda value, _: amount(value))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("bytes in the whole launch (logarithmic scale)", color=INK)
    heading(ax, "Bytes asked of each level", detail="full: counted in this run; hatched: a model, and what any kernel must move")
    said = "; ".join(f"{' '.join(level.name.split())} {amount(level.bytes)} ({level.what})" for level in found)
    return f"Bytes asked of each level: {said}."


def _ratio(value: float) -> str:
    """What a step down is, for a level with `value` times the bytes of the next."""
    if f"{value:.3g}" == "1":
        return "↓ the same"
    return f"↓ {value:,.3g} times fewer" if value > 1 else f"↓ {1 / value:,.3g} times more"


def amount(size: float) -> str:
    """Bytes in powers of 1000: 1.05 MB."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= limit:
            return f"{size / limit:.3g} {unit}"
    return f"{size:.0f} B"
