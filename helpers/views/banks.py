"""Banks: in which of shared memory's 32 banks the lanes of a warp meet, phase by phase.

A tower is a bank; its height is the number of different words that the lanes want from it at once, and the highest tower of
a phase is the number of wavefronts that the phase takes. Everything above the first floor is a conflict.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch
from matplotlib.transforms import blended_transform_factory, offset_copy

from helpers.errors import plural
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import AccessKind, CostRule
from helpers.sim.counting.phases import Box, Phase, rows_of_matrices, split
from helpers.sim.counting.rules import BANKS
from helpers.sim.counting.rules import WORD_BYTES as WORD
from helpers.sim.counting.traced import cost_of, other_sides

from .canvas import AS_TEXT, BLUE, FAINT, GREEN, INK, PAPER, QUIET, VERMILLION, heading, picture, stamp
from .places import Moment, Place, at, choose_place, code, cut, element, moment, moment_controls, places

WRITES = (AccessKind.STORE, AccessKind.MATRIX_STORE, AccessKind.COPY)
_UNSETTLED = "by the rule for stores, not settled for .cg copies"
_NONE = "This kernel makes no access to shared memory in the part that was recorded, so no banks are busy."


@dataclass(frozen=True)
class SharedAccess:
    """One warp-wide access to shared memory. wavefronts and ideal are the accounting's, conflicts their difference.

    note: what has to be said beside these numbers.
    """

    place: Place
    when: Moment
    addresses: np.ndarray
    phases: tuple[Phase, ...]
    wavefronts: int
    ideal: int
    note: str = ""

    @property
    def conflicts(self) -> int:
        return self.wavefronts - self.ideal

    def in_words(self) -> tuple[Phase, ...]:
        """The phases if a lane asked for its bytes a word at a time, as source that names single floats reads."""
        active = self.addresses >= 0
        words = range(max(1, self.place.width // WORD))
        return tuple(phase for i in words for phase in split(np.where(active, self.addresses + WORD * i, -1), WORD))


def shared_access(run, site=None, line=None, block: int = 0, warp: int = 0, iteration: int = 0) -> SharedAccess:
    """The access that a picture shows; block, warp and iteration move to the nearest that was recorded.

    Raises NothingToSee if the run has no access to shared memory.
    """
    trace = run.trace
    place = choose_place(places(trace, space="shared"), site, line, _NONE)
    return access_at(trace, place, moment(trace, place, block, warp, iteration))


def access_at(trace, place: Place, when: Moment) -> SharedAccess:
    """What a picture shows of a recorded access to shared memory."""
    addresses = trace.addresses[when.row]
    site, cost, note = trace.sites[place.index], cost_of(trace, when.row), ""
    phases = rows_of_matrices(addresses, site.matrices) if site.rule is CostRule.MATRIX else split(addresses, place.width, site.rule)
    towers = sum(phase.wavefronts for phase in phases)
    if cost is None:  # past the cache, or its reads were not recorded
        note = "" if site.rule is CostRule.COPY else _UNSETTLED
        return SharedAccess(place, when, addresses, phases, towers, sum(bool(phase.boxes) for phase in phases), note)
    if cost.wavefronts[0] > towers:
        note = "the banks of the cache, where the lanes read, are more crowded than these"
    elif cost.wavefronts[0] < towers and site.rule is CostRule.COPY:
        note = "lanes that read nothing and fill zeros are not counted"
    return SharedAccess(place, when, addresses, phases, int(cost.wavefronts[0]), int(cost.ideal_wavefronts[0]), note)


def copied_from(trace, when: Moment) -> np.ndarray | None:
    """[32] global addresses, -1 for idle lanes, that an asynchronous copy reads, given where it writes; None if it only fills zeros."""
    row = other_sides(trace, np.array([when.row]))[0]
    return trace.addresses[row] if row >= 0 else None


def controls(run, site=None, line=None, block=None, warp=None, iteration=None):
    """Access, block, warp and iteration, as far as this run goes."""
    found = places(run.trace, space="shared")
    return moment_controls(run.trace, found, choose_place(found, site, line, _NONE), block, warp, iteration)


_MARGINS = (1.75, 1.0, 0.2, 1.35)
_HIGH, _FLOOR = 4.3, 0.75  # inches: the boxes together and each, at most


def _floors(phases: tuple[Phase, ...]) -> float:
    """Each phase has the height of its highest tower, and there is room between two of them."""
    return sum(max(phase.wavefronts, 1) for phase in phases) + 0.8 * (len(phases) - 1)


def _size(run, site=None, line=None, block=0, warp=0, iteration=0) -> tuple[float, float]:
    """Inches: as high as the towers need."""
    seen = shared_access(run, site, line, block, warp, iteration)
    return 10, _MARGINS[1] + _MARGINS[3] + min(_HIGH, _FLOOR * _floors(seen.phases))


@picture("Banks", controls=controls, size=_size, margins=_MARGINS, order=15)
def banks(run, site: int | None = None, line: int | None = None, block: int = 0, warp: int = 0, iteration: int = 0, *, ax):
    """Towers of words over the 32 banks, one row of towers per phase; lane numbers in the boxes.

    site: index into run.trace.sites, or line: source line (its first access to shared memory). The rest as in coalescing.
    """
    seen = shared_access(run, site, line, block, warp, iteration)
    ax.set_axis_off()
    ax.set_xlim(0, BANKS)
    where = at(run.trace, seen.when)
    source = code(run, seen.place.line)
    title = f"{plural(seen.wavefronts, 'wavefront')} for one {seen.place.what}"
    if seen.conflicts:
        verdict = f"{plural(seen.conflicts, 'conflict')}; {plural(seen.ideal, 'wavefront')} would be enough"
    else:
        verdict = "no conflict"
    if seen.note:
        verdict += f"; {seen.note}"
    heading(ax, title, code=source, detail=f"{where}: {verdict}{cut(run.trace, seen.place)}")
    heights = [max(phase.wavefronts, 1) for phase in seen.phases]
    total = _floors(seen.phases)
    floors = max(total, ax.get_window_extent().height / ax.figure.dpi / (_HIGH / 4))
    ax.set_ylim(total - floors, total)  # few boxes stand under the heading, and what is left stays free below
    points = ax.get_window_extent().height * 72 / ax.figure.dpi / floors
    base = total
    colour = GREEN if seen.place.op in WRITES else BLUE
    for number, (phase, height) in enumerate(zip(seen.phases, heights, strict=False)):
        base -= height
        _towers(ax, phase, base, colour, points)
        _name(ax, phase, number, len(heights), base, points)
        base -= 0.8
    for bank in range(BANKS):
        stamp(ax, bank + 0.5, 0, str(bank), down=6, ha="center", va="top", fontsize=10.5, color=QUIET)
    ax.annotate("bank", (0, 0), (-10, -6), textcoords="offset points", ha="right", va="top", fontsize=13)
    if seen.conflicts:
        _worst(ax, run, seen)
    _explain(ax, colour, seen)
    merged = "; lanes pair up, so phases merge" if any(phase.merged for phase in seen.phases) else ""
    each = ", ".join(f"lanes {phase.lanes[0]} to {phase.lanes[-1]}: {plural(phase.wavefronts, 'wavefront')}" for phase in seen.phases)
    return f"{title}. Line {source}. {where}: {verdict}. Phases: {each}{merged}."


def _towers(ax, phase: Phase, base: float, colour: str, points: float) -> None:
    empty = [_cell(bank, 1, base) for bank in range(BANKS)]
    ax.add_collection(PolyCollection(empty, facecolors=FAINT, edgecolors=PAPER, linewidths=1, alpha=0.6))
    cells = [_cell(box.bank, box.banks, base + box.floor) for box in phase.boxes]
    colours = [VERMILLION if box.floor else colour for box in phase.boxes]
    ax.add_collection(PolyCollection(cells, facecolors=colours, edgecolors=PAPER, linewidths=min(1.2, points / 8)))
    size = min(10.5, 0.8 * points)
    if size < 5:
        return
    for box in phase.boxes:
        stamp(
            ax, box.bank + box.banks / 2, base + box.floor + 0.5, _lanes(box), ha="center", va="center_baseline", fontsize=size, color=PAPER
        )


def _cell(bank: int, width: int, y: float):
    return [(bank + 0.03, y), (bank + width - 0.03, y), (bank + width - 0.03, y + 1), (bank + 0.03, y + 1)]


def _lanes(box: Box) -> str:
    """The lanes of a box, as far as they fit."""
    lanes = box.lanes
    if len(lanes) == 1:
        return str(lanes[0])
    if box.banks == 1:  # narrow: how many
        return "all" if len(lanes) == WARP else f"×{len(lanes)}" if len(lanes) < 10 else str(len(lanes))
    if len(lanes) == 2:
        return f"{lanes[0]}, {lanes[1]}"
    return f"{lanes[0]}–{lanes[-1]}" if len(lanes) == lanes[-1] - lanes[0] + 1 else f"{len(lanes)} lanes"


def _name(ax, phase: Phase, number: int, count: int, base: float, points: float) -> None:
    """What stands left of a phase."""
    first, last = phase.lanes[0], phase.lanes[-1]
    text = f"lanes {first}–{last}" + ("\nmerged" if phase.merged else "")
    detail = plural(phase.wavefronts, "wavefront")
    middle = base + max(phase.wavefronts, 1) / 2
    roomy = points * max(phase.wavefronts, 1) > 34
    ax.annotate(f"{text}\n{detail}" if roomy else text, (0, middle), (-10, 0), textcoords="offset points", ha="right", va="center",
                fontsize=12, linespacing=1.35, color=INK)  # fmt: skip


def _explain(ax, colour: str, seen: SharedAccess) -> None:
    """What the colours mean, below the numbers of the banks and what meets there."""
    handles = [Patch(facecolor=colour, label=f"a word that is {'written' if colour == GREEN else 'read'}")]
    if any(box.floor for phase in seen.phases for box in phase.boxes):
        handles.append(Patch(facecolor=VERMILLION, label="another word of the same bank: one more wavefront"))
    below = offset_copy(
        blended_transform_factory(ax.transAxes, ax.transData), fig=ax.figure, y=-44 if seen.conflicts else -28, units="points"
    )
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=below, ncols=2, fontsize=12, borderaxespad=0,
              borderpad=0, handlelength=1.1, columnspacing=1.4)  # fmt: skip


def _worst(ax, run, seen: SharedAccess) -> None:
    """Name two elements that meet in the highest tower."""
    phase = max(seen.phases, key=lambda item: item.wavefronts)
    top = max(phase.boxes, key=lambda box: box.floor)
    tower = [box for box in phase.boxes if box.bank == top.bank][:2]
    names = [element(run, "shared", box.address) for box in tower]
    both = (
        f"{names[0]} and {names[1]} are both in bank {top.bank}"
        if names[0] != names[1]
        else f"several lanes change {names[0]}, one at a time"
    )
    ax.annotate(both, (1, 0), (0, -26), xycoords=("axes fraction", "data"), textcoords="offset points",
                ha="right", va="top", fontsize=13, color=AS_TEXT[VERMILLION])  # fmt: skip
