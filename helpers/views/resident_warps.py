"""Occupancy: how many blocks of a kernel fit on an SM at once, what runs out first, and what one change would do.

Everything is computed by `model.occupancy` from what the compiler said of the kernel; the sliders ask what other numbers of
registers, threads or bytes would give.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from matplotlib.collections import PolyCollection

from helpers.errors import CourseError, plural
from helpers.model import hardware
from helpers.model.occupancy import Occupancy
from helpers.model.occupancy import occupancy as fit
from helpers.sim.code.hardware_units import WARP

from .canvas import BLUE, FAINT, INK, PAPER, QUIET, VERMILLION, Choice, NothingToSee, Span, heading, picture

DEFAULT_GPU = "H200 SXM"
# Resource -> what a reader calls it, and what one block takes of it.
NAMES = {"threads": "threads", "registers": "registers", "shared memory": "shared memory", "blocks": "block slots", "barriers": "barriers"}

# What a reader may ask for: the least, the most (None: as the GPU has it, which the picture says), and the sentence.
_ASKED = {
    "threads": (1, hardware.THREADS_PER_BLOCK, f"a block has 1 to {hardware.THREADS_PER_BLOCK} threads"),
    "registers": (1, hardware.REGISTERS_PER_THREAD, f"a thread has 1 to {hardware.REGISTERS_PER_THREAD} registers"),
    "shared": (0, None, "a block has 0 bytes of shared memory or more"),
}


@dataclass(frozen=True)
class Change:
    """One change that lets more warps in: the sentence, and the occupancy after it (0 to 1)."""

    text: str
    fraction: float


def shape(run, gpu: str = DEFAULT_GPU, threads=None, registers=None, shared=None) -> tuple[Occupancy, int, int, int]:
    """Occupancy, with threads per block, registers per thread and bytes of shared memory per block it was computed for."""
    for name, value in (("threads", threads), ("registers", registers), ("shared", shared)):
        least, most, sentence = _ASKED[name]
        if value is not None and (value < least or (most is not None and value > most)):
            raise CourseError(f"{name}={value!r}: {sentence}.")
    compiled = run.kernel.compiled
    x, y, z = run.block
    threads = x * y * z if threads is None else threads
    registers = compiled.registers if registers is None else registers
    shared = compiled.shared_bytes + getattr(run, "shared", 0) if shared is None else shared
    return fit(hardware.gpu(gpu), threads, registers, shared), threads, registers, shared


def changes(gpu: str, threads: int, registers: int, shared: int) -> list[Change]:
    """For each resource, the smallest saving that raises occupancy; empty where nothing alone helps."""
    card = hardware.gpu(gpu)
    now = fit(card, threads, registers, shared)
    tries = (
        ("registers", range(registers - 1, 15, -1), lambda value: (threads, value, shared),
         "{} registers per thread instead of {}", registers),
        ("shared", range(shared - 1, -1, -max(1, shared // 256)), lambda value: (threads, registers, value),
         "{} bytes of shared memory per block instead of {}", shared),
        ("threads", (count for count in (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024) if count != threads),
         lambda value: (value, registers, shared), "{} threads per block instead of {}", threads),
    )  # fmt: skip
    found = []
    for name, values, arguments, text, old in tries:
        for value in values:
            there = fit(card, *arguments(value))
            if there.fraction > now.fraction:
                if name == "shared":  # the search took steps: go back to the largest value that does it
                    while value < shared and fit(card, *arguments(value + 1)).fraction == there.fraction:
                        value += 1
                found.append(Change(text.format(f"{value:,}", f"{old:,}"), there.fraction))
                break
    return found


def controls(run, gpu=None, threads=None, registers=None, shared=None):
    """The GPU, and what the kernel might use instead."""
    card = gpu or DEFAULT_GPU
    _, own_threads, own_registers, own_shared = shape(run, card)
    limit = hardware.gpu(card).capability.shared_per_block
    return (
        Choice("gpu", "GPU", tuple((item.name, item.name) for item in hardware.gpus()), DEFAULT_GPU),
        Span("threads", "threads per block", 1, hardware.THREADS_PER_BLOCK, own_threads),
        Span("registers", "registers per thread", 1, hardware.REGISTERS_PER_THREAD, own_registers),
        Span("shared", "shared bytes per block", 0, max(limit, own_shared), own_shared),
    )


@picture("Occupancy", controls=controls, size=(10, 5.2), margins=(1.95, 0.1, 0.3, 1.05), order=50)
def occupancy(run, gpu: str = DEFAULT_GPU, threads: int | None = None, registers: int | None = None, shared: int | None = None, *, ax):
    """The blocks that each resource of an SM would allow, the scarcest marked; below, the SM's warp slots, filled and empty.

    threads (per block), registers (per thread), shared (bytes per block): other values than the kernel's own.
    """
    if not run.kernel.compiled.registers:
        raise NothingToSee(
            "Registers are given out by NVIDIA's assembler, and this kernel was compiled to PTX only: its occupancy is not known."
        )
    seen, threads, registers, shared = shape(run, gpu, threads, registers, shared)
    warps = -(-threads // WARP)
    slots = seen.capability.warps_per_sm
    ax.set_axis_off()
    limits = {name: limit for name, limit in seen.limits.items() if limit is not None and name != "barriers"}
    if "barriers" in seen.limiters and len(seen.limiters) == 1:
        limits["barriers"] = seen.limits["barriers"]
    takes = {"threads": f"{threads:,} per block", "registers": f"{registers} per thread", "shared memory": f"{shared:,} bytes per block",
             "blocks": "", "barriers": ""}  # fmt: skip
    most = max(seen.capability.blocks_per_sm, 1)
    ax.set_xlim(0, most)
    ax.set_ylim(len(limits) + 4.6, -0.2)
    for y, (name, limit) in enumerate(limits.items()):
        scarce = name in seen.limiters
        colour = VERMILLION if scarce else BLUE
        ax.barh(y + 0.4, min(limit, most), height=0.62, color=colour, alpha=1 if scarce else 0.35, linewidth=0)
        ax.annotate(NAMES[name], (0, y + 0.4), (-10, 0), textcoords="offset points", ha="right", va="center", fontsize=14,
                    weight="bold" if scarce else "normal", annotation_clip=False)  # fmt: skip
        text = f"{limit:,} blocks" if limit != 1 else "1 block"
        text += f"  ({takes[name]})" if takes[name] else ""
        inside = min(limit, most) > 0.6 * most
        ax.annotate(text, (min(limit, most), y + 0.4), (-8 if inside else 8, 0), textcoords="offset points", va="center", fontsize=12.5,
                    ha="right" if inside else "left", color=PAPER if inside and scarce else INK)  # fmt: skip
    top = len(limits) + 0.75
    _slots(ax, seen, warps, slots, most, top)
    better = changes(gpu, threads, registers, shared) if seen.blocks_per_sm else []
    lines = [f"{change.text}: {100 * change.fraction:.3g} %" for change in better] if seen.fraction < 1 else ["every warp slot is taken"]
    if seen.blocks_per_sm and not lines:
        lines = ["no single change of registers, shared memory or threads lets more warps in"]
    if not seen.blocks_per_sm:
        lines = [textwrap.fill(seen.reason, 80)]
    ax.text(0, top + 1.75, "\n".join(lines), va="top", fontsize=13, linespacing=1.55, color=INK)
    ax.annotate("one change" if better and seen.fraction < 1 else "", (0, top + 1.75), (-10, 0), textcoords="offset points", ha="right",
                va="top", fontsize=13, color=QUIET, annotation_clip=False)  # fmt: skip
    limiter = " and ".join(NAMES[name] for name in seen.limiters)
    title = f"{100 * seen.fraction:.3g} % occupancy" if seen.blocks_per_sm else "Does not fit on an SM"
    own = shape(run, gpu)[1:] == (threads, registers, shared)
    detail = f"{hardware.gpu(gpu).name}: {plural(seen.blocks_per_sm, 'block')} per SM, limited by {limiter}" + ("" if own else " (what if)")
    heading(ax, title, detail=detail)
    each = ", ".join(f"{NAMES[name]} allow {limit}" for name, limit in limits.items())
    return f"{title}. {detail}. Blocks per SM: {each}. {seen.warps_per_sm} of {slots} warp slots taken. " + ". ".join(lines) + "."


def _slots(ax, seen: Occupancy, warps: int, slots: int, most: int, top: float) -> None:
    """The SM's warp slots in two rows, block by block."""
    rows = 2
    columns = -(-slots // rows)
    width = most / columns
    cells, colours = [], []
    for slot in range(slots):
        x, y = slot % columns * width, top + slot // columns * 0.62
        cells.append([(x + 0.06 * width, y), (x + 0.94 * width, y), (x + 0.94 * width, y + 0.54), (x + 0.06 * width, y + 0.54)])
        taken = slot < seen.warps_per_sm
        colours.append((0, 0.447, 0.698, 1.0 if slot // warps % 2 == 0 else 0.55) if taken else FAINT)
    ax.add_collection(PolyCollection(cells, facecolors=colours, linewidths=0))
    ax.annotate(f"warps\n{seen.warps_per_sm} of {slots}", (0, top + 0.58), (-10, 0), textcoords="offset points", ha="right", va="center",
                fontsize=14, linespacing=1.35, annotation_clip=False)  # fmt: skip
