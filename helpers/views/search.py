"""Search: the space of a kernel's constants as a heat map, with the reason wherever a configuration is out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from .canvas import FAINT, GREEN, INK, PAPER, QUIET, SKY, Choice, NothingToSee, heading, picture

_MEASURED, _SCORED = (LinearSegmentedColormap.from_list(name, [PAPER, colour]) for name, colour in (("measured", GREEN), ("scored", SKY)))
_TIMES = " × "
_CONTRAST = 0.05  # of the largest: figures that differ by less are not drawn as if they were far apart


@dataclass(frozen=True)
class MapCell:
    """All configurations of one place of the map: how many, the best of those that are left (or None), and the last rule
    that any of the others came to (or "waiting", or "")."""

    count: int
    best: object | None
    why: str


def groups(found) -> list[str]:
    """What an axis can be: pairs of constants such as "BM × BN", and the others alone; first those with most values."""
    values = {group: len(_values(found, group)) for group in found.pairs}
    return [_TIMES.join(group) for group in sorted(values, key=lambda group: -values[group])]


def _values(found, names: Sequence[str]) -> list[tuple[int, ...]]:
    return sorted({tuple(item.constants[name] for name in names) for item in found.candidates})


def cells(found, down: str, across: str) -> dict[tuple[tuple[int, ...], tuple[int, ...]], MapCell]:
    """(value down, value across) -> cell, for every pair that occurs in the space."""
    rows, columns = down.split(_TIMES), across.split(_TIMES)
    places: dict = {}
    for item in found.candidates:
        place = tuple(item.constants[name] for name in rows), tuple(item.constants[name] for name in columns)
        places.setdefault(place, []).append(item)
    order = {id(item): rank for rank, item in enumerate(found.ranked)}
    result = {}
    for place, items in places.items():
        alive = sorted((item for item in items if id(item) in order), key=lambda item: order[id(item)])
        waiting = any(not item.rule and item.score is None for item in items)
        met = {item.rule for item in items}
        why = "waiting" if waiting else next((rule for rule in reversed(found.rules) if rule in met), "")
        result[place] = MapCell(len(items), alive[0] if alive else None, why)
    return result


def _figure(found, item) -> tuple[bool, float]:
    """Was it timed? And what its cell shows and is coloured by: measured TFLOPS, otherwise its score."""
    return (True, found.problem.flops / item.measured.milliseconds / 1e9) if item.measured else (False, item.score)


def _shades(found, table) -> dict:
    """place -> colour of the best configuration there: the darker, the more of what it shows, among those that show the same."""
    figures = {place: _figure(found, cell.best) for place, cell in table.items() if cell.best}
    result = {}
    for timed, colours in ((True, _MEASURED), (False, _SCORED)):
        mine = {place: value for place, (kind, value) in figures.items() if kind is timed}
        low, high = (min(mine.values()), max(mine.values())) if mine else (0, 1)
        for place, value in mine.items():
            result[place] = colours(1 - 0.85 * (high - value) / max(high - low, _CONTRAST * high))
    return result


def _axes_controls(found, **values) -> tuple[Choice, ...]:
    names = groups(found) if found.candidates else []
    if len(names) < 2:
        return ()
    options = tuple((name, name) for name in names)
    return Choice("down", "down", options, names[0]), Choice("across", "across", options, names[1])


@picture("Search", controls=_axes_controls, size=(10, 5.6), margins=(1.5, 0.8, 0.4, 1.0), order=210, of="search")
def search(found, down: str | None = None, across: str | None = None, *, ax):
    """One cell per pair of values: the best configuration with them, or in words what refused them all.

    found: a `helpers.course.autotune.Search`. down, across: constants, such as "TM × TN" or "BK". A cell shows the measured
    TFLOPS if the best was timed, otherwise its score as a part of the FP32 limit; the more, the darker.
    """
    known = groups(found) if found.candidates else []
    if len(known) < 2:
        raise NothingToSee("A heat map needs two constants with several values each. Search a larger space.")
    down = down or next(name for name in known if name != across)
    across = across or next(name for name in known if name != down)
    for name in (down, across):
        if name not in known:
            raise NothingToSee(f"The search has no {name!r}; it has {', '.join(known)}.")
    if down == across:
        raise NothingToSee(f"Both axes are {down}: choose another one for one of them.")
    rows, columns = _values(found, down.split(_TIMES)), _values(found, across.split(_TIMES))
    table = cells(found, down, across)
    shades = _shades(found, table)
    for (row, column), cell in table.items():
        x, y = columns.index(column), rows.index(row)
        face = shades[row, column] if cell.best else FAINT if cell.why != "waiting" else PAPER
        ax.add_patch(Rectangle((x - 0.48, y - 0.47), 0.96, 0.94, facecolor=face, edgecolor=FAINT, linewidth=1))
        if cell.best is None:
            ax.text(x, y, cell.why.replace(" ", "\n"), ha="center", va="center", fontsize=11, color=QUIET, linespacing=1.2)
            continue
        timed, figure = _figure(found, cell.best)
        text = f"{figure:.1f}" if timed else f"{100 * figure:.1f} %"
        weight = "bold" if cell.best is found.best else "normal"
        ax.text(x, y, text, ha="center", va="center", fontsize=14, weight=weight, color=INK)
    ax.set_xlim(-0.5, len(columns) - 0.5)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xticks(range(len(columns)), [_TIMES.join(map(str, value)) for value in columns])
    ax.set_yticks(range(len(rows)), [_TIMES.join(map(str, value)) for value in rows])
    ax.set_xlabel(across)
    ax.set_ylabel(down)
    ax.grid(False)
    ax.tick_params(length=0, pad=8)
    for spine in ax.spines.values():
        spine.set_visible(False)
    shown = {_figure(found, cell.best)[0] for cell in table.values() if cell.best}
    words = {True: "TFLOPS, measured", False: "score of the code, of the FP32 limit"}
    what = "green: measured TFLOPS; blue: score, of the FP32 limit" if len(shown) == 2 else words[True in shown]
    what += "; darker: more"
    title, what = (
        (f"The best with each {down} and {across}", what)
        if found.ranked
        else (f"What the rules leave of each {down} and {across}", "nothing was compiled yet")
    )
    heading(ax, title, detail=f"{found.problem}, {found.gpu_name}: {what}")
    untried = any(not item.rule and item.score is None for item in found.candidates)
    best = f"Best: {found.best}." if found.ranked else "None was tried yet." if untried else "Nothing is left."
    return f"Heat map of {down} against {across}. {found.summary()} {best}"
