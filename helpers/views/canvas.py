"""What every picture shares: the style sheet, an Axes that shows itself with alternative text, and the registry.

A picture is one function of a Run in one file of this folder, marked with `@picture`. The mark does five things: it draws
in the course's style whatever the reader's own settings are, makes the Axes if none is given, writes the sentence of a
CourseError into the Axes instead of failing (there is always something to see, or a reason why not), does so for arguments that
the function's declaration does not allow (`given.py`), and lists the picture with its controls, so that widgets find it.
"""

from __future__ import annotations

import base64
import functools
import html
import io
import re
import struct
import textwrap
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import ScaledTranslation

from helpers.errors import CourseError

from .given import DeclaredArguments, must_be_axes

# Okabe-Ito. Meanings are kept across pictures: blue is A and loads, orange B, green C and stores, vermillion trouble.
BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, YELLOW = "#56B4E9", "#CC79A7", "#F0E442"
INK, QUIET, FAINT, PAPER = "#222222", "#6b6b6b", "#e6e6e6", "#ffffff"
# The same colours where they are text on paper: dark enough to be read (a contrast of 4.5 or more).
AS_TEXT = {BLUE: BLUE, ORANGE: "#8f6200", GREEN: "#00734f", VERMILLION: "#a84900", PURPLE: "#8a3f6b"}

STYLE = Path(__file__).with_name("course.mplstyle")


class NothingToSee(CourseError):
    """There is nothing to draw; the message says why, and where to look instead."""


class CourseAxes(Axes):
    """An Axes that a notebook shows as an image with alternative text.

    alt: what the picture says, in words. Readers of screens get it instead of the image.
    """

    name = "course"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.alt = ""

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/plain": self.alt or repr(self), "text/html": to_html(self)}


# ------------------------------------------------------------------------------------------------------ controls


@dataclass(frozen=True)
class Choice:
    """One value out of a list. options: (what to show, value)."""

    name: str
    label: str
    options: tuple[tuple[str, Any], ...]
    default: Any = None


@dataclass(frozen=True)
class Span:
    """A whole number from low to high, both included. buttons: offer one step forward and back, and playing."""

    name: str
    label: str
    low: int
    high: int
    default: int | None = None
    buttons: bool = False


Control = Choice | Span


def settle(controls: Sequence[Control], wanted: dict[str, Any]) -> dict[str, Any]:
    """The values the controls would show: what is wanted where it is possible, the default otherwise."""
    values = {}
    for control in controls:
        value = wanted.get(control.name)
        if isinstance(control, Span):
            if value is None:
                value = control.low if control.default is None else control.default
            values[control.name] = min(max(int(value), control.low), control.high)
        else:
            known = [option for _, option in control.options]
            fallback = known[0] if control.default is None else control.default
            values[control.name] = value if value in known else fallback
    return values


# ------------------------------------------------------------------------------------------------------ registry


@dataclass(frozen=True)
class Picture:
    """A picture as widgets see it.

    of: what its first argument is, "run" or "rungs" (rows of the ladder). controls(run, **values): the controls that make
    sense for these values. html(run, **values), where there is one: the same as an object with `_repr_html_`, for notebooks.
    needs: options of the TraceFilter of a run of its own, for a picture that an ordinary recording is not enough for.
    must_draw: raises CourseError for what is no first argument of it, and for options that it has not.
    """

    name: str
    title: str
    draw: Callable[..., Axes]
    controls: Callable[..., Sequence[Control]]
    order: int
    of: str = "run"
    html: Callable[..., Any] | None = None
    needs: Mapping[str, Any] | None = None
    must_draw: Callable[..., None] = lambda what, **options: None


PICTURES: dict[str, Picture] = {}


def _no_controls(run, **values) -> tuple[Control, ...]:
    return ()


def picture(
    title: str,
    *,
    controls: Callable[..., Sequence[Control]] = _no_controls,
    size: tuple[float, float] | Callable[..., tuple[float, float]] = (10.0, 5.0),
    margins: tuple[float, float, float, float] = (0.9, 0.7, 0.3, 1.1),
    order: int = 100,
    of: str = "run",
    html: Callable[..., Any] | None = None,
    needs: Mapping[str, Any] | None = None,
):
    """Mark `f(run, ..., *, ax)` as a picture: see the top of this file.

    size: inches of a figure made for it, or a function of the same arguments that gives them. margins: inches left, below, right
    and above its Axes. order: among pictures.
    of, html, needs: see `Picture`. Raises TypeError without a title, as by `@picture` alone: nothing would be registered.
    """
    if not isinstance(title, str):
        name = getattr(title, "__name__", "f")
        raise TypeError(f'A picture has a title: write @picture("What it shows") before `def {name}(run, *, ax)`.')

    def mark(function: Callable[..., str | None]) -> Callable[..., Axes]:
        declared = DeclaredArguments(function, of)

        @functools.wraps(function)
        def draw(*args, ax: Axes | None = None, **options) -> Axes:
            if ax is not None:
                must_be_axes("ax", ax)
            with matplotlib.rc_context(style()):
                try:
                    declared.check(args, options)
                    if ax is None:
                        ax = new_axes(size(*args, **options) if callable(size) else size, margins)
                    alt = function(*args, ax=ax, **options)
                except CourseError as error:
                    ax = new_axes((10.0, 5.0), margins) if ax is None else ax
                    alt = say(ax, error.message)
                if isinstance(ax, CourseAxes):
                    ax.alt = alt or ""
            return ax

        def must_draw(what: Any, **options: Any) -> None:
            declared.check((what,), options)

        PICTURES[function.__name__] = Picture(function.__name__, title, draw, controls, order, of, html, needs, must_draw)
        return draw

    return mark


@functools.cache
def style() -> dict[str, Any]:
    """The style sheet as rcParams, read once: defaults under it, so that a reader's own settings do not show."""
    sheet = matplotlib.rc_params_from_file(STYLE, fail_on_error=True, use_default_template=True)
    return {key: value for key, value in sheet.items() if key not in ("backend", "backend_fallback", "interactive", "toolbar")}


def new_axes(size: tuple[float, float], margins: tuple[float, float, float, float]) -> CourseAxes:
    """One Axes on a figure of its own. No pyplot: nothing is kept, nothing is shown twice."""
    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)
    (width, height), (left, below, right, above) = size, margins
    box = (left / width, below / height, 1 - (left + right) / width, 1 - (below + above) / height)
    return figure.add_axes(box, axes_class=CourseAxes)


def say(ax: Axes, sentence: str) -> str:
    """Write a sentence where the picture would be, and return it as alternative text."""
    ax.clear()
    ax.set_axis_off()
    ax.text(0.5, 0.5, _wrap(sentence, 72), ha="center", va="center", fontsize=14, color=QUIET, transform=ax.transAxes, linespacing=1.6)
    return sentence


_INITIALS = re.compile(r"\b(\d+d|fp\d+|tma)\b")


def in_words(name: str) -> str:
    """A step's name in code as a label, as the lessons write it: thread_tile_1d is “thread tile 1D”, tma_wgmma “TMA wgmma”, vectorized
    “vectorised”."""
    return re.sub(r"ized\b", "ised", _INITIALS.sub(lambda word: word[0].upper(), name.replace("_", " ")))


def _wrap(sentence: str, columns: int) -> str:
    return "\n".join("\n".join(textwrap.wrap(line, columns)) for line in sentence.splitlines())


def heading(ax: Axes, title: str, *, code: str = "", detail: str = "", above: float = 10, before: float = 0) -> None:
    """Above the picture, top to bottom: what it shows, the line of source it belongs to, where and how much.

    above: points left free below it. before: points that it begins left of `ax`. What is too long for the figure is set smaller; what
    still is goes on in a second line, as long as there is only one such.
    """
    height, spare = above, 1
    for text, font in (
        (detail, {"fontsize": 13, "color": QUIET}),
        (code, {"fontsize": 13, "family": "monospace", "color": BLUE}),
        (title, {"fontsize": 17, "weight": "bold", "color": INK}),
    ):
        if text:
            note = ax.annotate(text, (0, 1), (-before, height), xycoords="axes fraction", textcoords="offset points", annotation_clip=False,
                               parse_math=False, **font)  # fmt: skip
            more = _fit(ax, note, 1 + spare, before) - 1
            height += 23 + 16 * more
            spare -= more


_SMALLEST = 11  # points; smaller is not read from the back row


def _fit(ax: Axes, note, lines: int, before: float = 0) -> int:
    """Keep a text that begins so many points before the left edge of `ax` inside the figure, in at most `lines` lines. Returns how many
    it takes."""
    figure = ax.figure
    room = figure.bbox.width - ax.get_window_extent().x0 + before * figure.dpi / 72 - 0.25 * figure.dpi
    if len(note.get_text()) * 0.75 * note.get_fontsize() * figure.dpi / 72 <= room:  # no letter is that wide on average: not measured
        return 1
    width = note.get_window_extent().width
    if width <= room:
        return 1
    size = max(_SMALLEST, note.get_fontsize() * room / width * 0.97)
    width *= size / note.get_fontsize()
    note.set_fontsize(size)
    if width <= room:
        return 1
    columns = int(len(note.get_text()) * room / width)
    wrapped = textwrap.wrap(note.get_text(), columns)
    if lines == 1 or len(wrapped) > lines:
        wrapped = [*wrapped[: lines - 1], " ".join(wrapped[lines - 1 :])[: columns - 1].rstrip() + "…"]
    note.set_text("\n".join(wrapped))
    note.set_linespacing(1.3)
    return len(wrapped)


def rgb(colour: str) -> tuple[float, float, float]:
    """The parts of "#rrggbb", 0 to 1."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def text_on(colour: str) -> str:
    """PAPER or INK, whichever is easier to read on a fill: by the luminance that WCAG defines."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in rgb(colour)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return INK if luminance > 0.25 else PAPER


# ------------------------------------------------------------------------------------------------------ many small texts


class Stamp(Text):
    """A text that is drawn once as pixels and then copied, because pictures repeat the same few numbers and sliders are in a hurry.

    Only on a raster canvas, and for texts without rotation and box; elsewhere it is an ordinary text.
    """

    def draw(self, renderer) -> None:
        if not isinstance(renderer, RendererAgg) or self.get_rotation() or self.get_bbox_patch() or not self.get_visible():
            super().draw(renderer)
            return
        font = self.get_fontproperties()
        look = (self.get_text(), font, to_hex(self.get_color(), keep_alpha=True), self.get_alpha(), self.get_ha(), self.get_va(),
                self._linespacing, renderer.dpi)  # fmt: skip
        image, left, below = _pixels(*look)
        x, y = self.get_transform().transform(self.get_unitless_position())
        clip = renderer.new_gc()
        self._set_gc_clip(clip)
        renderer.draw_image(clip, round(x) - left, round(y) - below, image)
        clip.restore()


@functools.cache
def _empty_figure(dpi: float) -> Figure:
    return Figure(dpi=dpi)


@functools.lru_cache(maxsize=4096)
def _pixels(text, font, color, alpha, ha, va, linespacing, dpi) -> tuple[np.ndarray, int, int]:
    """[rows from below, columns, RGBA] of a text, and how far its lower left corner is left of and below the point it is placed at."""
    lines, em = text.split("\n"), font.get_size_in_points() * dpi / 72
    wide, tall = int(1.1 * em * max(map(len, lines))) + 8, int(2 * em * len(lines)) + 8
    side = {"left": 4, "center": wide // 2, "right": wide - 4}[ha]
    foot = {"bottom": 4, "top": tall - 4}.get(va, tall // 2)
    canvas = RendererAgg(wide, tall, dpi)
    original = Text(
        side, foot, text, fontproperties=font, color=color, alpha=alpha, ha=ha, va=va, linespacing=linespacing, parse_math=False
    )
    original.set_figure(_empty_figure(dpi))
    original.draw(canvas)
    drawn = np.array(canvas.buffer_rgba())
    rows, columns = np.flatnonzero(drawn[..., 3].any(axis=1)), np.flatnonzero(drawn[..., 3].any(axis=0))
    if not len(rows):
        return drawn[:1, :1], 0, 0
    image = drawn[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return np.ascontiguousarray(image[::-1]), int(side - columns[0]), int(foot - (tall - 1 - rows[-1]))


def stamp(ax: Axes, x: float, y: float, text: str, *, down: float = 0, **font) -> Stamp:
    """`ax.text` for the many small texts of a picture. down: points below (x, y)."""
    place = ax.transData if not down else ax.transData + ScaledTranslation(0, -down / 72, ax.figure.dpi_scale_trans)
    made = Stamp(x, y, text, transform=place, clip_on=False, **font)
    ax.add_artist(made)
    return made


# ------------------------------------------------------------------------------------------------------ output


def to_png(ax: Axes, dpi: float | None = None) -> bytes:
    """The figure of `ax` as PNG."""
    must_be_axes("to_png", ax)
    figure = ax.figure
    if dpi and dpi != figure.dpi:
        figure.set_dpi(dpi)
    canvas = figure.canvas if isinstance(figure.canvas, FigureCanvasAgg) else FigureCanvasAgg(figure)
    canvas.draw()
    return _png(np.asarray(canvas.buffer_rgba())[..., :3])


def _png(image: np.ndarray) -> bytes:
    """[rows, columns, RGB] bytes as PNG: each row as its difference from the one above, which is mostly zeros and soon packed."""
    rows, columns, _ = image.shape
    flat = np.ascontiguousarray(image).reshape(rows, 3 * columns)
    lines = np.empty((rows, 1 + 3 * columns), np.uint8)
    lines[:, 0] = 2  # PNG's filter "up"
    lines[0, 1:] = flat[0]
    np.subtract(flat[1:], flat[:-1], out=lines[1:, 1:])

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 1)) + chunk(b"IEND", b"")


def to_svg(ax: Axes) -> str:
    """The figure of `ax` as SVG text, with its alternative text as the title."""
    must_be_axes("to_svg", ax)
    buffer = io.StringIO()
    with matplotlib.rc_context(style()):
        ax.figure.savefig(buffer, format="svg", metadata={"Title": getattr(ax, "alt", ""), "Date": None, "Creator": None})
    return buffer.getvalue()


# No higher than the window, so that a projector shows all of a picture, and of two that are compared both. In a dark theme the one
# rendering is turned over, lightness reversed and hues kept.
THEME = """<style>
.ladder-picture{margin:0;line-height:0}
.ladder-picture img{width:auto;height:auto;max-height:88vh;border-radius:4px}
.ladder-compare .ladder-picture img{max-height:42vh}
[data-jp-theme-light="false"] .ladder-picture img{filter:invert(.93) hue-rotate(180deg) brightness(1.15)}
</style>"""


def to_html(ax: Axes) -> str:
    """The figure of `ax` as an HTML image with alternative text, for light and dark themes."""
    must_be_axes("to_html", ax)
    data = base64.b64encode(to_png(ax)).decode()
    width, height = (round(inches * 96) for inches in ax.figure.get_size_inches())
    alt = html.escape(getattr(ax, "alt", ""), quote=True)
    return (
        f'{THEME}<figure class="ladder-picture"><img alt="{alt}" width="{width}" height="{height}" style="max-width:min(100%,{width}px)" '
        f'src="data:image/png;base64,{data}"></figure>'
    )
