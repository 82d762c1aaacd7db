"""Warp states: what the warps of a kernel do with their cycles, in Nsight Compute's words, for the kernel and for its busiest lines.

Not measured: the model runs the machine code of the resident blocks on one multiprocessor, cycle by cycle (`model.cycles`), and puts each
cycle of each warp down to the instruction that it was to issue next. How near that comes to what Nsight Compute sampled on an H200 is
in data/validation.toml, under `states`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.patches import Patch

from helpers.errors import CourseError, plural, quote, statement_line
from helpers.model import hardware
from helpers.model.cycles.multiprocessor import WORDS, WarpState

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
    Choice,
    NothingToSee,
    heading,
    picture,
    text_on,
)  # fmt: skip

DEFAULT_GPU = "H200 SXM"
_LINES = 7  # that are shown
_SMALL = 0.02  # share of a bar from which a part is a part of its own
_LABELLED = 0.06
_BEFORE = 150  # points that the heading begins left of the bars, above their labels: it is long
OTHERS = "others"
COLOURS = {
    WarpState.SELECTED: GREEN, WarpState.NOT_SELECTED: "#a6dcc8", WarpState.LONG_SCOREBOARD: VERMILLION, WarpState.SHORT_SCOREBOARD: ORANGE,
    WarpState.BARRIER: BLUE, WarpState.MIO_THROTTLE: PURPLE, WarpState.LG_THROTTLE: "#7f3b08", WarpState.MATH_PIPE_THROTTLE: YELLOW,
    WarpState.DISPATCH_STALL: SKY, WarpState.WAIT: QUIET, WarpState.NO_INSTRUCTION: INK, WarpState.MEMBAR: "#c0a080",
}  # fmt: skip
_BY_WORD = {WORDS[state]: colour for state, colour in COLOURS.items()}


def parts(states: Mapping[str, float]) -> dict[str, float]:
    """Shares by state in the order of COLOURS, the small ones together as OTHERS."""
    every = sum(states.values())
    shares = {word: states.get(word, 0.0) / every for word in _BY_WORD}
    found = {word: share for word, share in shares.items() if share >= _SMALL}
    rest = 1 - sum(found.values())
    return found | ({OTHERS: rest} if rest > 1e-9 else {})


def predicted(run, gpu: str):
    """The Prediction of a run. Raises NothingToSee where there is none."""
    try:
        return run.predict(gpu)
    except CourseError as error:
        raise NothingToSee(error.message) from error


def launched(run) -> str:
    """What a run computes or, where it is no product of the course, how it was launched, in words. Raises NothingToSee where it is no
    launch."""
    if not hasattr(run, "predict"):
        raise NothingToSee("The model knows launches, and this is none.")
    found = run.problem.get("problem")
    return str(found) if found is not None else f"{plural(math.prod(run.grid), 'block')} of {plural(math.prod(run.block), 'thread')}"


def colour_of(word: str) -> str:
    """The colour of a state, or of OTHERS."""
    return _BY_WORD.get(word, FAINT)


def bars(ax, rows: Sequence[tuple[str, Mapping[str, float]]]) -> set[str]:
    """A full bar for each (label, states), from the top. Returns the states that are drawn."""
    seen = set()
    for place, (_, states) in enumerate(rows):
        left = 0.0
        for word, share in parts(states).items():
            seen.add(word)
            colour = colour_of(word)
            ax.barh(place, share, left=left, height=0.74, color=colour, edgecolor=PAPER, linewidth=0.8)
            if share >= _LABELLED:
                ax.text(left + share / 2, place, f"{share:.0%}", ha="center", va="center", fontsize=12, color=text_on(colour))
            left += share
    ax.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=11)
    ax.set_ylim(len(rows) - 0.5, -0.6)
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"], fontsize=12)
    ax.set_xlabel("share of the warps' cycles", fontsize=13)
    ax.grid(False)
    return seen


def explain(ax, words: Sequence[str], anchor: tuple[float, float]) -> None:
    """The legend of these states, below the picture. anchor: its upper left corner, in parts of the Axes."""
    handles = [Patch(color=colour_of(word), label=word) for word in words]
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=anchor, ncols=min(6, len(words)), fontsize=12, frameon=False,
              handlelength=1.1, columnspacing=1.2)  # fmt: skip


def busiest(by_line: Mapping[int, Mapping[str, float]]) -> list[tuple[int, float]]:
    """(line, share of all cycles) of the lines that take most of them, largest first."""
    totals = {line: sum(row.values()) for line, row in by_line.items()}
    every = sum(totals.values())
    return [(line, value / every) for line, value in sorted(totals.items(), key=lambda item: -item[1])[:_LINES]]


def controls(run, gpu=None):
    """The GPU."""
    return (Choice("gpu", "GPU", tuple((item.name, item.name) for item in hardware.gpus()), DEFAULT_GPU),)


@picture("Warp states", controls=controls, size=(12, 5.6), margins=(3.8, 1.2, 0.6, 0.9), order=97)
def warp_states(run, *, ax, gpu=DEFAULT_GPU):
    """Where the warps' cycles go: of the whole kernel, and of the lines that take most of them. Predicted from the machine code."""
    what, got = launched(run), predicted(run, gpu)
    if not got.states:
        raise NothingToSee(f"Why its warps wait is not known, since {got.from_counters}.")
    lines = busiest(got.by_line)
    text = run.kernel.source.splitlines()
    rows = [("whole kernel", got.states), *((label(line, share, text), got.by_line[line]) for line, share in lines)]
    seen = bars(ax, rows)
    ax.axhline(0.5, color=INK, linewidth=1)
    words = [word for word in (*_BY_WORD, OTHERS) if word in seen]
    explain(ax, words, (-0.35, -0.13))
    issued = got.states.get(WORDS[WarpState.SELECTED], 0.0)
    waits = [word for word in got.states if word not in (WORDS[WarpState.SELECTED], WORDS[WarpState.NOT_SELECTED])]
    title = f"A warp issues in {issued:.0%} of its cycles" + (f"; its largest stall is {waits[0]}" if waits else "")
    heading(ax, title, before=_BEFORE, detail=f"predicted for {got.gpu}, {what}")
    lined = "; ".join(f"line {_statement(line, text)} takes {share:.0%}" for line, share in lines[:3])
    return f"{title}. Predicted for {got.gpu}. {', '.join(f'{word} {share:.0%}' for word, share in parts(got.states).items())}. {lined}."


def _statement(line: int, text: list[str]) -> int:
    """The line at which its statement begins."""
    return statement_line("\n".join(text), line) or line


def label(line: int, share: float, text: list[str]) -> str:
    """Which line it is, what it takes of all cycles, and, below, its code."""
    line = _statement(line, text)
    code = " ".join(quote("\n".join(text), line).split()).split("//")[0].strip()
    return f"line {line}, {share:.0%} of all cycles\n{_without_middle(code)}"


def _without_middle(code: str, columns: int = 38) -> str:
    """Loops differ at their ends as often as at their beginnings, so both stay."""
    if len(code) <= columns:
        return code
    end = columns // 2
    return f"{code[: columns - end - 3].rstrip()} … {code[-end:].lstrip()}"
