"""Timeline: what each warp of a block does, in the order in which it does it: loads, copies, barriers, arithmetic.

The order is the executed one; nothing here is time. Asynchronous copies have a second row: each group of them from its first
copy to the wait that it lands at, so that the stages under way at one moment lie under one another. A barrier of the block is a solid
line, one of a warp (`__syncwarp`) a dashed one, which is not counted with them. Between two barriers a bar reaches
from the first to the last instruction of its kind, and bears their number; what lies under one another is interleaved. The
way from barrier to barrier grows with the square root of the number of instructions, and the axis says so: two loads are to be
seen beside 512 FMAs. Warps that do the same are drawn once. Arithmetic is seen if the run recorded it (`TraceFilter(math=True)`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.collections import PolyCollection

from helpers.errors import plural
from helpers.sim.code.sites import AccessKind

from .canvas import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PAPER,
    PURPLE,
    QUIET,
    SKY,
    VERMILLION,
    YELLOW,
    NothingToSee,
    Span,
    heading,
    picture,
    text_on,
)
from .places import block_label, blocks_of, copy_groups, cut, nearest, once_per_trace

# Kind -> colour, in the order of the swim lanes.
KINDS = {
    "global loads": BLUE, "async copies": SKY, "bulk copies": SKY, "shared stores": PURPLE, "shared loads": ORANGE, "arithmetic": GREEN,
    "matrix units": "#00734f", "cluster loads": YELLOW, "cluster stores": YELLOW, "global stores": VERMILLION, "local memory": QUIET,
}  # fmt: skip
WAIT, SYNC, WARP = "wait", "sync", "warp"  # for copies; of the block (or its cluster); of the warp alone
_LINES = {SYNC: "-", WARP: "--", WAIT: ":"}
FLIGHT = "under way"  # the row of the groups of copies
_STOPS = {SYNC: "barrier", WARP: "barrier of the warp", WAIT: "wait"}
_MATRIX = ("MMA", "HMMA", "WGMMA", "WMMA", "IMMA")
_GROUPS = 4  # groups of warps drawn under one another
_WINDOW = 64.0  # width shown at once, at least: two steps along K of 2048 FMAs each
_GAP = 0.7  # left and right of a barrier


@dataclass(frozen=True)
class Bar:
    """`count` instructions of one kind, close together. left, right: where the first begins and the last ends."""

    kind: str
    count: int
    left: float
    right: float


@dataclass(frozen=True)
class Stage:
    """A group of asynchronous copies. left, right: its first copy and the wait it lands at. row: one that no other needs meanwhile."""

    count: int
    left: float
    right: float
    row: int


@dataclass(frozen=True)
class Lane:
    """What one group of warps does. barriers: (where it stands in the picture, kind). events: all but the barriers."""

    warps: tuple[int, ...]
    bars: tuple[Bar, ...]
    barriers: tuple[tuple[float, str], ...]
    stages: tuple[Stage, ...]
    events: int
    width: float


def lanes(run, block: int = 0) -> tuple[int, list[Lane]]:
    """The block (the nearest recorded one) and its groups of warps that do the same, in order of their first warp."""
    blocks = blocks_of(run.trace)
    if not len(blocks):
        raise NothingToSee("No access was recorded in this run, so there is nothing to put on a timeline.")
    block = nearest(blocks, block)
    return block, _lanes(run.trace, block)


@once_per_trace
def _lanes(trace, block: int) -> list[Lane]:
    kinds = [_kind_of(site) for site in trace.sites]
    names = [*KINDS, SYNC, WARP, WAIT]
    code = {name: number for number, name in enumerate(names)}
    of_site = np.array([code[kind] if kind else -1 for kind in kinds] or [-1])
    parts = []
    rows = trace.accesses[trace.accesses["block"] == block]
    parts.append((rows["warp"], rows["order"], of_site[rows["site"]]))
    bars = trace.barriers[trace.barriers["block"] == block]
    bars = bars[bars["kind"] != "commit"]
    events = {"copy": code["bulk copies"], "warp": code[WARP]}
    what = np.array([code[WAIT] if kind.startswith(WAIT) else events.get(kind, code[SYNC]) for kind in bars["kind"].tolist()], int)
    parts.append((bars["warp"], bars["order"], what))
    math = trace.math[trace.math["block"] == block]
    math = math[~np.isin(math["opclass"], ("BAR", "TMA"))]  # those are among the barriers
    matrix = np.isin(math["opclass"], _MATRIX)
    parts.append((math["warp"], math["order"], np.where(matrix, code["matrix units"], code["arithmetic"])))
    warp, order, kind = (np.concatenate([part[i] for part in parts]) for i in range(3))
    keep = kind >= 0
    warp, order, kind = warp[keep], order[keep], kind[keep]
    sequences: dict[bytes, list[int]] = {}
    ordered: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}
    for number in np.unique(warp):
        mine = np.flatnonzero(warp == number)
        mine = mine[np.argsort(order[mine], kind="stable")]
        sequence = kind[mine].astype(np.int8)
        sequences.setdefault(sequence.tobytes(), []).append(int(number))
        ordered.setdefault(sequence.tobytes(), (sequence, order[mine]))
    return [_lane(tuple(warps), *ordered[key], names, copy_groups(trace, block, warps[0])) for key, warps in sequences.items()]


def _kind_of(site) -> str:
    copy = site.op is AccessKind.COPY
    if (copy and site.space == "global") or not (copy or site.width):
        return ""  # merged into another, or a copy, which stands where it writes
    if copy:
        return "async copies"
    if site.space == "local":
        return "local memory"
    space = site.space if site.space in ("shared", "cluster") else "global"
    return f"{space} {'stores' if site.op.changes else 'loads'}"


def _lane(warps, sequence, orders, names, groups) -> Lane:
    """Lay one sequence of kinds out, from barrier to barrier. orders: of its events in the trace, which `groups` refer to."""
    special = np.isin(sequence, [names.index(kind) for kind in (SYNC, WARP, WAIT)])
    stops = np.flatnonzero(special)
    places = np.zeros(len(sequence))  # where each event begins
    bars, barriers, x, start = [], [], 0.0, 0
    for stop in [*stops, len(sequence)]:
        piece = sequence[start:stop]
        if len(piece):
            width = float(np.sqrt(len(piece))) + 1 if len(stops) else len(piece) * 1.0
            # Interleaved kinds are drawn as bars over one another; without barriers every run of instructions shows.
            near = max(2, len(piece) // 12) if len(stops) else 0
            for kind in np.unique(piece):
                at = np.flatnonzero(piece == kind)
                for cluster in np.split(at, np.flatnonzero(np.diff(at) > near + 1) + 1):
                    left, right = (x + width * edge / len(piece) for edge in (cluster[0], cluster[-1] + 1))
                    bars.append(Bar(names[kind], len(cluster), left, right))
            places[start:stop] = x + width * np.arange(len(piece)) / len(piece)
            x += width
        if stop < len(sequence):
            x += _GAP
            barriers.append((x, names[sequence[stop]]))
            places[stop] = x
            x += _GAP
        start = stop + 1
    stages = _stages(groups, orders, places, x)
    return Lane(warps, tuple(sorted(bars, key=lambda bar: bar.left)), tuple(barriers), stages, int((~special).sum()), x)


def _stages(groups, orders, places, width: float) -> tuple[Stage, ...]:
    """The groups of copies as bars, each in the first row that is free."""
    stages, free = [], []
    for group in groups:
        left = float(places[np.searchsorted(orders, group.begin)])
        right = width if group.end is None else float(places[np.searchsorted(orders, group.end)])
        row = next((row for row, until in enumerate(free) if until <= left), len(free))
        free[row : row + 1] = [right]
        stages.append(Stage(len(group.rows), left, right, row))
    return tuple(stages)


def _windows(lane: Lane) -> list[tuple[float, float]]:
    """Pieces of the timeline to step through, from barrier to barrier, or of a fixed width; about `_WINDOW` wide each."""
    # A wait right before a barrier goes with it: a window that ended between the two would show half of what happens there.
    follows = [x for x, _ in lane.barriers[1:]] + [np.inf]
    stops = [x for (x, kind), after in zip(lane.barriers, follows, strict=False) if kind != WAIT or after - x > 2.5 * _GAP]
    stops = stops or list(np.arange(_WINDOW / 2, lane.width, _WINDOW / 2))
    edges = [0.0, *(x for x in stops if 0 < x < lane.width), max(lane.width, 1.0)]
    found = []
    for i, low in enumerate(edges[:-1]):
        high = next((x for x in edges[i + 1 :] if x >= low + _WINDOW), edges[-1])
        found.append((low, high))
        if high == edges[-1]:
            break
    return found


def controls(run, block=0, start=0):
    """Block, and which part of the timeline."""
    block, found = lanes(run, block or 0)
    blocks = blocks_of(run.trace)
    return (
        Span("block", "block", int(blocks[0]), int(blocks[-1])),
        Span("start", "from interval", 0, max(len(_windows(lane)) for lane in found) - 1),
    )


@picture("Timeline", controls=controls, size=(10, 5.8), margins=(1.75, 1.05, 0.25, 1.05), order=40)
def timeline(run, block: int = 0, start: int = 0, *, ax):
    """Swim lanes of one block, one set for each group of warps that do the same. start: the first interval to show."""
    block, found = lanes(run, block)
    shown = found[:_GROUPS]
    windows = _windows(shown[0])
    low, high = windows[min(max(start, 0), len(windows) - 1)]
    kinds = [kind for kind in KINDS if any(bar.kind == kind for lane in shown for bar in lane.bars)]
    if any(lane.stages for lane in shown):
        kinds.insert(kinds.index("async copies") + 1, FLIGHT)
    height = len(kinds) + 0.9
    ax.set_xlim(low, high)
    ax.set_ylim(height * len(shown) - 0.95, -0.5)
    points = ax.get_window_extent().width * 72 / ax.figure.dpi / (high - low)
    least = 4 / points  # nothing is so short that it cannot be seen
    cells, colours, labels = [], [], []
    for group, lane in enumerate(shown):
        top = group * height
        for row, kind in enumerate(kinds):
            labels.append((top + row + 0.4, kind))
            ax.axhspan(top + row + 0.02, top + row + 0.78, color=FAINT, alpha=0.35, linewidth=0, zorder=0)
        for bar in lane.bars:
            if bar.left < high and bar.right > low:
                y = top + kinds.index(bar.kind)
                right = max(bar.right, bar.left + least)
                cells.append([(bar.left, y), (right, y), (right, y + 0.8), (bar.left, y + 0.8)])
                colours.append(KINDS[bar.kind])
                inside = (right - bar.left) * points > 9 * len(str(bar.count))
                if inside and low <= (bar.left + right) / 2 <= high:
                    ax.text((bar.left + right) / 2, y + 0.4, str(bar.count), ha="center", va="center_baseline", fontsize=11,
                            color=text_on(KINDS[bar.kind]))  # fmt: skip
                elif not inside:
                    _beside(ax, bar, right, y + 0.4, points, [low, high, *(x for x, _ in lane.barriers)])
        rows = 1 + max((stage.row for stage in lane.stages), default=0)
        for stage in lane.stages:
            if stage.left < high and stage.right > low:
                y, thick = top + kinds.index(FLIGHT) + 0.8 * stage.row / rows, 0.8 / rows
                cells.append([(stage.left, y), (stage.right, y), (stage.right, y + thick), (stage.left, y + thick)])
                colours.append(KINDS["async copies"])
        for x, kind in lane.barriers:
            if low <= x <= high:
                ax.plot([x, x], [top - 0.12, top + len(kinds) - 0.1], color=INK, linewidth=1 if kind == WARP else 2,
                        linestyle=_LINES[kind], zorder=3, clip_on=False)  # fmt: skip
        if len(found) > 1:
            ax.annotate(_warps(lane.warps), (0, top - 0.15), (-8, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                        ha="right", va="bottom", weight="bold", fontsize=12, annotation_clip=False)  # fmt: skip
    ax.add_collection(PolyCollection(cells, facecolors=colours, edgecolors=PAPER, linewidths=1, zorder=2))
    ax.set_yticks([y for y, _ in labels], [kind for _, kind in labels])
    ax.tick_params(axis="y", length=0)
    ax.set_xticks([])
    for side in ("left", "top", "right", "bottom"):
        ax.spines[side].set_visible(False)
    scale = "\nbetween two barriers as wide as the square root of their number" if any(lane.barriers for lane in shown) else ""
    ax.set_xlabel(f"instructions of the warp in the order of execution →{scale}", linespacing=1.4)
    sync = sum(kind == SYNC for _, kind in shown[0].barriers)
    where = block_label(run.trace, block)
    where = f"{_warps(shown[0].warps)} of {where}" if len(found) == 1 else where
    title = f"{run.kernel.compiled.entry}: {_summary(shown[0], sync)}"
    more = f"; {len(found) - _GROUPS} more groups of warps" if len(found) > _GROUPS else ""
    part = "" if low <= 0 and high >= windows[-1][1] else f"; from interval {start} of {len(windows) - 1}"
    no_math = "; arithmetic was not recorded" if not len(run.trace.math) else ""
    lines = f"; solid lines are barriers, {sync} in all" if sync else "; no barriers"
    drawn = {kind for lane in shown for _, kind in lane.barriers}
    lines += "; dashed: of the warp" if WARP in drawn else ""
    lines += "; dotted: waits for copies" if WAIT in drawn else ""
    heading(ax, title, detail=f"{where}{lines}{more}{part}{no_math}{cut(run.trace)}")
    return " ".join([f"{title}. {where[0].upper()}{where[1:]}.", *(_say(lane) for lane in shown)])


def _summary(lane: Lane, sync: int) -> str:
    """What tells this timeline from that of another kernel."""
    if lane.stages:
        return f"{plural(_deep(lane), 'group')} of copies under way at most"
    return f"{plural(lane.events, 'instruction')}, {plural(sync, 'barrier')}" if sync else plural(lane.events, "instruction")


def _deep(lane: Lane) -> int:
    """How many groups of copies are under way at once, at most."""
    return 1 + max(stage.row for stage in lane.stages)


def _beside(ax, bar: Bar, right: float, y: float, points: float, edges: list[float]) -> None:
    """The number of a bar that is too short for it: on the right, or on the left where a barrier or the end comes too soon."""
    room = (4 + 7.5 * len(str(bar.count))) / points
    for x, offset, align, start in ((right, 3, "left", right), (bar.left, -3, "right", bar.left - room)):
        if edges[0] <= start and start + room <= edges[1] and not any(start <= edge <= start + room for edge in edges):
            ax.annotate(str(bar.count), (x, y), (offset, 0), textcoords="offset points", va="center_baseline", ha=align, fontsize=11,
                        color=INK)  # fmt: skip
            return


def _warps(warps: tuple[int, ...]) -> str:
    if len(warps) == 1:
        return f"warp {warps[0]}"
    if warps[-1] - warps[0] + 1 == len(warps):
        return f"warps {warps[0]} to {warps[-1]}"
    return f"{len(warps)} warps"


def _one(kind: str) -> str:
    """ "global loads" -> "global load", "bulk copies" -> "bulk copy"."""
    return kind.removesuffix("ies") + "y" if kind.endswith("ies") else kind.removesuffix("s")


def _say(lane: Lane, most: int = 12) -> str:
    """The beginning of a lane in words: "8 global loads, barrier, 32 arithmetic, …"."""
    words = [(bar.left, f"{bar.count} {bar.kind}" if bar.count > 1 else f"1 {_one(bar.kind)}") for bar in lane.bars]
    words += [(x, _STOPS[kind]) for x, kind in lane.barriers]
    text = ", ".join(word for _, word in sorted(words)[:most])
    if lane.stages:
        text += f"; {plural(len(lane.stages), 'group')} of copies, at most {_deep(lane)} under way at once"
    return f"{_warps(lane.warps).capitalize()}: {text}{', …' if len(words) > most else ''} ({plural(lane.events, 'instruction')})."
