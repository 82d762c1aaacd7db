"""Stepper: one warp, instruction by instruction: its line, its PTX, its registers and addresses, and shared memory so far.

It needs a run that recorded registers: `trace=TraceFilter(blocks={0}, registers=True)`.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import AccessKind

from .banks import BANKS, WORD, WRITES
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
    NothingToSee,
    Span,
    heading,
    new_axes,
    picture,
    rgb,
    style,
    to_html,
)
from .places import allocation_at, block_label, copy_groups, cut, element, nearest, nth, once_per_trace, source_line

_NONE = (
    "This run recorded no registers, so there is nothing to step through. Record them, for one block, with "
    "trace=TraceFilter(blocks={0}, registers=True)."
)
_REGISTER = re.compile(r"%[A-Za-z_]\w*(?:\.[xyzw])?")
_AROUND = 4  # lines of source and PTX shown before and after


@dataclass(frozen=True)
class RegisterValue:
    """One register in 32 lanes. kind: its PTX type. fresh: this step wrote it."""

    name: str
    kind: str
    bits: np.ndarray
    fresh: bool


@dataclass(frozen=True)
class State:
    """A warp after one instruction. step: of `steps`. active: [32] bool. access: index into trace.accesses, or None."""

    block: int
    warp: int
    step: int
    steps: int
    code: int
    active: np.ndarray
    operands: tuple[RegisterValue, ...]
    registers: tuple[RegisterValue, ...]
    access: int | None
    order: int

    @property
    def written(self) -> tuple[RegisterValue, ...]:
        return tuple(value for value in self.registers if value.fresh)


def state(run, block: int = 0, warp: int = 0, step: int = 0) -> State:
    """The warp after its step-th recorded instruction; indices move to the nearest recorded.

    Raises NothingToSee if the run recorded no registers.
    """
    trace = run.trace
    if not len(trace.steps):
        raise NothingToSee(_NONE)
    block = nearest(np.unique(trace.steps["block"]), block or 0)
    warp = nearest(np.unique(trace.steps["warp"][trace.steps["block"] == block]), warp or 0)
    mine = np.flatnonzero((trace.steps["block"] == block) & (trace.steps["warp"] == warp))
    mine = mine[np.argsort(trace.steps["order"][mine], kind="stable")]
    step = min(max(step or 0, 0), len(mine) - 1)
    now = int(mine[step])
    row = trace.steps[now]
    values = {}
    place = np.full(len(trace.steps), -1)
    place[mine[: step + 1]] = np.arange(step + 1)
    for write in np.flatnonzero(place[trace.writes["step"]] >= 0):
        name, kind = trace.registers[trace.writes["register"][write]]
        if name:
            values.pop(name, None)  # the latest written last
            values[name] = RegisterValue(name, kind, trace.values[write], int(trace.writes["step"][write]) == now)
    before = trace.steps["order"][mine[step - 1]] if step else -1
    accesses = np.flatnonzero(
        (trace.accesses["block"] == block) & (trace.accesses["warp"] == warp)
        & (trace.accesses["order"] > before) & (trace.accesses["order"] <= row["order"])
    )  # fmt: skip
    named = dict.fromkeys(_REGISTER.findall(trace.code[row["code"]].text))
    return State(
        block, warp, step, len(mine), int(row["code"]), (int(row["active"]) >> np.arange(WARP) & 1).astype(bool),
        tuple(values[name] for name in named if name in values), tuple(values.values()),
        int(accesses[-1]) if len(accesses) else None, int(row["order"]),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------- shared memory


@once_per_trace
def shared_stores(trace) -> list[tuple[int, int, np.ndarray, np.ndarray]]:
    """All recorded stores to shared memory in order: (order, block, word indices, bits)."""
    wanted = np.array([site.space == "shared" and site.op is AccessKind.STORE for site in trace.sites] or [False])
    rows = np.flatnonzero(wanted[trace.accesses["site"]])
    names = {name: index for index, (name, _) in enumerate(trace.registers) if name}
    steps, writes = trace.steps, trace.writes
    history: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray]] = {}
    if len(writes):
        owner = steps[writes["step"]]
        key = (owner["block"].astype(np.int64) << 40) + (owner["warp"].astype(np.int64) << 24) + writes["register"]
        by = np.lexsort((owner["order"], key))
        edges = np.flatnonzero(np.diff(key[by])) + 1
        for group in np.split(by, edges):
            first = group[0]
            place = int(owner["block"][first]), int(owner["warp"][first]), int(writes["register"][first])
            history[place] = owner["order"][group], group
    found = []
    texts = {item.ptx_line: item.text for item in trace.code}
    start = _start(trace)
    for row in rows:
        access = trace.accesses[row]
        site = trace.sites[access["site"]]
        text = texts.get(site.ptx_line, "")
        sources = _REGISTER.findall(text.partition("]")[2])
        lanes = trace.addresses[row] >= 0
        for offset, name in enumerate(sources):
            orders, group = history.get((int(access["block"]), int(access["warp"]), names.get(name, -1)), (None, None))
            if orders is None:
                continue
            at = np.searchsorted(orders, access["order"]) - 1
            if at >= 0 and trace.registers[names[name]][1] in ("f32", "b32", "u32", "s32"):
                words = (trace.addresses[row][lanes] - site.shift - start) // WORD + offset
                found.append((int(access["order"]), int(access["block"]), words, trace.values[group[at]][lanes]))
    return sorted(found, key=lambda item: item[0])


def shared_memory(trace, block: int, order: int, words: int) -> tuple[np.ndarray, np.ndarray]:
    """(bits, written) of the first `words` words of the block's shared memory after everything up to `order`."""
    bits, written = np.zeros(words, np.uint64), np.zeros(words, bool)
    for when, where, indices, values in shared_stores(trace):
        if when > order:
            break
        if where == block:
            inside = indices < words
            bits[indices[inside]], written[indices[inside]] = values[inside], True
    return bits, written


@once_per_trace
def _copies(trace, block: int) -> list[tuple[int, int | None, np.ndarray]]:
    """Asynchronous copies of a block: (order it was started at, order of the wait it lands at or None, words it writes)."""
    found = []
    for warp in np.unique(trace.accesses["warp"][trace.accesses["block"] == block]):
        for group in copy_groups(trace, block, int(warp)):
            for row in group.rows:
                site = trace.sites[trace.accesses["site"][row]]
                first = (trace.addresses[row][trace.addresses[row] >= 0] - _start(trace)) // WORD
                words = np.unique(first[:, None] + np.arange(max(1, site.width // WORD)))
                found.append((int(trace.accesses["order"][row]), group.end, words))
    return found


def copied(trace, block: int, order: int, words: int) -> tuple[np.ndarray, np.ndarray]:
    """(landed, under way) of the first `words` words of shared memory: what asynchronous copies have written, and will write."""
    landed, coming = np.zeros(words, bool), np.zeros(words, bool)
    for begin, end, places in _copies(trace, block):
        if begin <= order:
            (landed if end is not None and end <= order else coming)[places[places < words]] = True
    return landed, coming


# ------------------------------------------------------------------------------------------------------------ pictures


def controls(run, block=0, warp=0, step=0):
    """Block, warp and step."""
    now = state(run, block, warp, step)
    steps = run.trace.steps
    blocks = np.unique(steps["block"])
    warps = np.unique(steps["warp"][steps["block"] == now.block])
    return (
        Span("block", "block", int(blocks[0]), int(blocks[-1])),
        Span("warp", "warp", int(warps[0]), int(warps[-1])),
        Span("step", "step", 0, now.steps - 1, buttons=True),
    )


def show(value: RegisterValue, lane: int, run) -> str:
    """A register's value in one lane, as its type reads: a number, an element's name for an address, yes or no."""
    bits = int(value.bits[lane])
    if value.kind in ("f32", "f64", "f16"):
        dtype, unsigned = {"f32": (np.float32, np.uint32), "f64": (np.float64, np.uint64), "f16": (np.float16, np.uint16)}[value.kind]
        return f"{unsigned(bits).view(dtype):.4g}"
    if value.kind == "pred":
        return "yes" if bits else "no"
    if value.kind.endswith("64"):
        if allocation_at(run.trace, "global", bits):
            return "&" + element(run, "global", bits)
        return str(bits - 2**64 if bits >= 2**63 else bits)
    return str(bits - 2**32 if bits >= 2**31 else bits)


def page(run, block: int = 0, warp: int = 0, step: int = 0) -> StepPage:
    """The stepper as HTML: source, PTX, values, and the picture of shared memory."""
    return StepPage(run, state(run, block, warp, step))


_STYLE = """<style>
.ladder-step{display:flex;flex-wrap:wrap;gap:1.2em;font-size:13px;color:var(--jp-content-font-color1,#222);line-height:1.45}
.ladder-step>div{max-width:100%}
.ladder-step pre{margin:0;font-size:12.5px;background:none;color:inherit;white-space:pre-wrap;overflow-wrap:anywhere}
.ladder-step .now{background:rgba(230,159,0,.35);display:inline-block;min-width:100%}
.ladder-step .no{opacity:.55}
.ladder-step table{border-collapse:collapse;font-family:var(--jp-code-font-family,monospace);font-size:12px;margin:.2em 0 .8em}
.ladder-step td{padding:0 .5em;text-align:right;background:none;border:0}
.ladder-step caption{text-align:left;font-weight:bold;caption-side:top}
.ladder-step .fresh{color:#a84900}
[data-jp-theme-light="false"] .ladder-step .fresh{color:#f0a060}
.ladder-step .off{opacity:.35}
.ladder-step h4{margin:.1em 0 .3em}
</style>"""


@dataclass(frozen=True)
class StepPage:
    """One step of a warp, as HTML."""

    run: object
    now: State

    def _repr_html_(self) -> str:
        now, trace = self.now, self.run.trace
        code = trace.code[now.code]
        title = f"Step {nth(now.step, now.steps)}: {block_label(trace, now.block)}, warp {now.warp}, {int(now.active.sum())} lanes active"
        addresses = () if now.access is None else _REGISTER.findall(code.text.partition("[")[2].partition("]")[0])
        reads = "".join(self._value(value) for value in now.operands if not value.fresh and value.name not in addresses)
        writes = "".join(self._value(value) for value in now.written)
        above = [f"<div><h4>source</h4>{self._source(code.line)}</div>", f"<div><h4>PTX</h4>{self._ptx(now.code)}</div>"]
        below = [
            f"<div><h4>reads</h4>{reads}</div>" if reads else "",
            self._access(),
            f"<div><h4 class='fresh'>writes</h4>{writes}</div>" if writes else "",
        ]
        older = [value for value in reversed(now.registers) if value not in now.operands][:40]
        rows = "".join(f"<tr><td>{html.escape(value.name)}</td><td>{html.escape(self._short(value))}</td></tr>" for value in older)
        rest = f"<details><summary>the other registers, latest first</summary><table>{rows}</table></details>" if rows else ""
        image = ""
        if _shared_arrays(trace):
            with matplotlib.rc_context(style()):
                ax = new_axes((10, 3.2), (1.2, 0.4, 0.3, 0.1))
                ax.alt = _memory(ax, self.run, now)
                image = to_html(ax)
        return (
            f"{_STYLE}<p><b>{title}</b>{cut(trace)}</p><div class='ladder-step'>{''.join(above)}</div>"
            f"<div class='ladder-step'>{''.join(below)}</div>{rest}{image}"
        )

    def _source(self, line: int | None) -> str:
        lines = self.run.kernel.compiled.source.split("\n")
        if not line:
            return "<pre>(no line of yours)</pre>"
        first, last = max(1, line - _AROUND), min(len(lines), line + _AROUND)
        return (
            "<pre>"
            + "\n".join(
                f"<span class='{'now' if number == line else ''}'><span class='no'>{number:3} </span>"
                f"{html.escape(lines[number - 1])}</span>"
                for number in range(first, last + 1)
            )
            + "</pre>"
        )

    def _ptx(self, at: int) -> str:
        code = self.run.trace.code
        near = range(max(0, at - _AROUND), min(len(code), at + _AROUND + 1))
        return (
            "<pre>"
            + "\n".join(
                f"<span class='{'now' if index == at else ''}'>{html.escape(code[index].text.expandtabs(8))}</span>" for index in near
            )
            + "</pre>"
        )

    def _short(self, value: RegisterValue) -> str:
        shown = [show(value, lane, self.run) for lane in range(WARP)]
        return f"{shown[0]} in every lane" if len(set(shown)) == 1 else f"{shown[0]}, {shown[1]}, … {shown[-1]}"

    def _value(self, value: RegisterValue) -> str:
        return self._lanes(value.name, [show(value, lane, self.run) if on else "–" for lane, on in enumerate(self.now.active)])

    def _lanes(self, title: str, shown: list[str]) -> str:
        """A value in 32 lanes: one number if all agree, else four rows of eight."""
        if len(set(shown)) == 1:
            return f"<table><caption>{html.escape(title)}</caption><tr><td>{html.escape(shown[0])} in every lane</td></tr></table>"
        rows = []
        for start in range(0, WARP, 8):
            cells = "".join(f"<td class='{'' if self.now.active[lane] else 'off'}'>{html.escape(shown[lane])}</td>"
                            for lane in range(start, start + 8))  # fmt: skip
            rows.append(f"<tr><td class='no'>lanes {start}–{start + 7}</td>{cells}</tr>")
        return f"<table><caption>{html.escape(title)}</caption>{''.join(rows)}</table>"

    def _access(self) -> str:
        if self.now.access is None:
            return ""
        trace = self.run.trace
        site = trace.sites[trace.accesses["site"][self.now.access]]
        addresses = trace.addresses[self.now.access]
        shown = [element(self.run, site.space, int(address)) if address >= 0 else "–" for address in addresses]
        return f"<div><h4>{site.space} memory</h4>{self._lanes('touches', shown)}</div>"


def _start(trace) -> int:
    """The address of the block's first word of shared memory."""
    return min((array.base for array in _shared_arrays(trace)), default=0)


def _shared_arrays(trace):
    return [array for array in trace.allocations if array.space == "shared"]


@picture(
    "Step by step",
    controls=controls,
    html=page,
    needs={"blocks": {0}, "registers": True},
    size=(10, 5.4),
    margins=(1.2, 0.5, 0.3, 1.35),
    order=70,
)
def stepper(run, block: int = 0, warp: int = 0, step: int = 0, *, ax):
    """Shared memory as rows of 32 words, one column per bank: written so far, and touched by this instruction.

    step: of the warp's recorded instructions. Notebooks show the source, the PTX and the registers beside it.
    """
    now = state(run, block, warp, step)
    trace = run.trace
    code = trace.code[now.code]
    ax.set_axis_off()
    where = f"{block_label(trace, now.block)}, warp {now.warp}"
    text = " ".join(code.text.split())
    heading(ax, f"Step {nth(now.step, now.steps)}: {text}", code=f"{code.line}  {source_line(run, code.line)}"[:92] if code.line else "",
            detail=where + cut(trace))  # fmt: skip
    said = f"Step {nth(now.step, now.steps)} of {where}: {text}. Line {code.line}: {source_line(run, code.line)}."
    if not _shared_arrays(trace):
        ax.text(0.5, 0.5, "this kernel uses no shared memory", ha="center", va="center", transform=ax.transAxes, color=QUIET, fontsize=14)
        return said
    return f"{said} {_memory(ax, run, now)}"


def _memory(ax, run, now: State) -> str:
    """Draw the block's shared memory at this moment, and say it."""
    trace = run.trace
    ax.set_axis_off()
    arrays = _shared_arrays(trace)
    start = _start(trace)
    words = -(-max(array.base - start + array.nbytes for array in arrays) // WORD)
    rows = -(-words // BANKS)
    shown = min(rows, 128)
    touched = np.zeros(shown * BANKS, bool)
    space = "" if now.access is None else trace.sites[trace.accesses["site"][now.access]].space
    if space == "shared":
        site = trace.sites[trace.accesses["site"][now.access]]
        addresses = trace.addresses[now.access]
        first = (addresses[addresses >= 0] - start) // WORD
        every = np.unique(first[:, None] + np.arange(max(1, site.width // WORD)))
        touched[every[every < len(touched)]] = True
    _, written = shared_memory(trace, now.block, now.order, len(touched))
    landed, coming = copied(trace, now.block, now.order, len(touched))
    written |= landed
    image = np.ones((shown * BANKS, 3))
    image[:words] = rgb(FAINT)
    image[written] = rgb(SKY)
    image[coming] = rgb(PURPLE)
    store = space == "shared" and trace.sites[trace.accesses["site"][now.access]].op in WRITES
    image[touched] = rgb(GREEN if store else ORANGE)
    words_now = [(number % BANKS, number // BANKS) for number in np.flatnonzero(touched)]
    rings = [[(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)] for x, y in words_now]
    ax.add_collection(PolyCollection(rings, facecolors="none", edgecolors=INK, linewidths=1, zorder=3))  # seen without colours, too
    ax.imshow((255 * image).astype(np.uint8).reshape(shown, BANKS, 3), extent=(0, BANKS, shown, 0), aspect="auto", interpolation="nearest")
    edges = [[(x, 0), (x + 1, 0), (x + 1, shown), (x, shown)] for x in range(0, BANKS, 2)]
    if shown <= 40:
        ax.add_collection(PolyCollection(edges, facecolors="none", edgecolors=PAPER, linewidths=0.6))
        ax.hlines(range(shown + 1), 0, BANKS, colors=PAPER, linewidths=0.6)
    for array in arrays:
        top = (array.base - start) / WORD / BANKS
        if top < shown:
            ax.annotate(array.name, (0, top), (-8, 0), textcoords="offset points", ha="right", va="top", fontsize=13, weight="bold",
                        color=BLUE, annotation_clip=False)  # fmt: skip
            ax.hlines(top, -0.4, BANKS, colors=BLUE, linewidths=1)
    ax.set_xlim(0, BANKS)
    ax.set_ylim(shown, 0)
    written_words = int(written[:words].sum())
    key = [
        Patch(facecolor=SKY, label=f"written ({written_words:,} of {words:,} words)"),
        Patch(facecolor=ORANGE, edgecolor=INK, label="read now"),
        Patch(facecolor=GREEN, edgecolor=INK, label="written now"),
    ]
    key += [Patch(facecolor=PURPLE, label="copies under way")] if coming.any() else []
    ax.annotate("32 banks →", (0, 0), (-8, -6), xycoords="axes fraction", textcoords="offset points", ha="right", va="top", fontsize=12,
                color=QUIET, annotation_clip=False)  # fmt: skip
    ax.legend(handles=key, loc="upper right", bbox_to_anchor=(1.01, 0.02), ncols=len(key), handletextpad=0.5, columnspacing=1.2)
    on_the_way = f" {int(coming.sum())} more are on their way." if coming.any() else ""
    return (
        f"{int(written[:words].sum())} of {words} words of shared memory are written; this step touches {int(touched.sum())}.{on_the_way}"
    )
