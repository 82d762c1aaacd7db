"""The cheat sheet: one A4 page of the course's figures, as HTML that needs no other file and is made to be printed.

Nothing on it is typed: steps and what they brought come from the table of steps and the recorded runs, sectors and wavefronts from the
rules that the machine counts by, limits from the table of GPUs.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

from helpers.course import evidence, figures
from helpers.course.measures import DEFAULT_GPU
from helpers.course.quizzes import parts
from helpers.course.rungs import Rung
from helpers.course.steps import STEPS
from helpers.element_types import element_type
from helpers.errors import CourseError
from helpers.files import write_export
from helpers.model import hardware
from helpers.model.occupancy import occupancy
from helpers.sim.code.hardware_units import SECTOR_BYTES, WARP
from helpers.sim.counting import names, rules

SIZE = 4096  # of the recorded times
BLOCK_TILES = ((32, 32), (64, 64), (128, 128), (256, 128))
THREAD_TILES = ((1, 1), (16, 1), (4, 4), (8, 8), (16, 8))
STRIDES = (0, 1, 2, 3, 4, 8, 16, 32, 33)
WIDTHS = (4, 8, 16)  # bytes per lane
REGISTERS, BLOCKS = (32, 64, 96, 128, 168, 255), (128, 256, 512)  # of a thread; threads of a block

_STYLE = """
@page { size: A4; margin: 7mm }
body { font: 6.6pt/1.17 system-ui, "DejaVu Sans", sans-serif; color: #111; background: #fff; max-width: 196mm; margin: 0 auto }
h1 { font-size: 11.5pt; margin: 0 } h2 { font-size: 8pt; margin: 3pt 0 1pt; color: #004a75 }
p { margin: 2pt 0 } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th { text-align: right; font-weight: 600; border-bottom: .7pt solid #444; vertical-align: bottom }
td, th { padding: .3pt 3pt }
td:not(:nth-child(2).left) { white-space: nowrap } td { text-align: right; border-bottom: .3pt solid #ccc }
.left { text-align: left }
.two { display: grid; grid-template-columns: 1fr 1fr; column-gap: 6mm } code { font-size: 6.2pt; overflow-wrap: anywhere }
small { color: #444 }
"""


def page() -> str:
    """The sheet as an HTML page."""
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>The GEMM Ladder: cheat sheet</title>"
        f"<link rel='icon' href='data:,'><style>{_STYLE}</style></head><body>{content()}</body></html>"
    )


def content() -> str:
    """What is on the sheet, as HTML without a style of its own."""
    gpu = hardware.gpu(DEFAULT_GPU)
    day = max(rung.date for step in STEPS if step.entry for rung in evidence.on_record(step.slug, SIZE).rows)
    body = [
        "<h1>The GEMM Ladder: cheat sheet</h1>",
        _section(
            f"What each step changed, and what it brought ({gpu.name}, {SIZE}³, recorded by {day}; beside cuBLAS of its own type)",
            _steps(),
        ),
        "<div class='two'><div>",
        _section("Loads from global memory, by the block's tile", _block_tiles(gpu)),
        _section("Shared memory, by the thread's tile", _thread_tiles()),
        _section("Units", _units(gpu)),
        "</div><div>",
        _section("One access of a warp: lane n at float n · stride", _strides()),
        _section(f"Warps that fit on a multiprocessor ({gpu.capability.family})", _warps(gpu)),
        "</div></div>",
        _section("Limits by compute capability", _capabilities()),
        _section("Counters, as Nsight Compute calls them", _counters()),
    ]
    return "".join(body)


def write(path: Path) -> int:
    """Write the page to `path`. Returns the exit code; raises CourseError if that cannot be done."""
    try:
        made = page().encode()
        write_export(path, made, made.partition(b"</title>")[0])
    except OSError as error:
        raise CourseError(f"The cheat sheet cannot be written to {path}: {error.strerror or error}.") from error
    print(f"wrote {path}: open it in a browser, and print it on one page")
    return 0


def _steps() -> str:
    rows = []
    before: Rung | None = None
    for step in STEPS:
        if not step.entry:
            continue
        name = f"{step.number:02} {step.title}" + ("" if step.dtype == "float32" else f" ({element_type(step.dtype).label})")
        rung = next(iter(evidence.on_record(step.slug, SIZE).rows), None)
        if rung is None:
            rows.append((name, step.idea, "not recorded", "", ""))
            continue
        assert rung.tflops and rung.cublas_ratio
        if before is None or (step.dtype == "float32") != (before.dtype == "float32"):  # other hardware is no gain of an idea
            gain = ""
        else:
            gain = f"× {rung.tflops / before.tflops:.2f}"
        rows.append((name, step.idea, f"{rung.tflops:.{1 if rung.tflops < 100 else 0}f}", gain, f"{100 * rung.cublas_ratio:.0f} %"))
        before = rung
    quizzed = "; ".join(
        f"{one.title}: {' to '.join(f'{number:02}' for number in sorted({one.lessons[0], one.lessons[-1]}))}" for one in parts()
    )
    return _table(("step", "the idea", "TFLOPS", "gain", "of cuBLAS"), rows, left=(0, 1)) + f"<p><small>Parts: {quizzed}.</small></p>"


def _block_tiles(gpu: hardware.GPU) -> str:
    rows = []
    for bm, bn in BLOCK_TILES:
        loads = figures.global_loads(bm, bn)
        rows.append((f"{bm} × {bn}", _times_k(loads), f"{float(2 / (loads * figures.FLOAT)):.3g}"))
    bend = gpu.peak_fp32_tflops * 1e12 / (gpu.dram_gbs * 1e9)
    note = f"<p><small>(BM + BN) / (BM · BN) · K per result. The roofline of an {gpu.name} bends at {bend:.0f} FLOP/byte.</small></p>"
    return _table(("BM × BN", "floats per result", "FLOP per byte"), rows, left=(0,)) + note


def _thread_tiles() -> str:
    rows = [(f"{tm} × {tn}", str(tm * tn), str(tm + tn), _ratio(figures.shared_reads(tm, tn))) for tm, tn in THREAD_TILES]
    return _table(("TM × TN", "multiply-adds", "numbers read", "per multiply-add"), rows, left=(0,)) + (
        "<p><small>For each k: (TM + TN) / (TM · TN). A wide load brings 2 or 4 of them in one instruction, if they are "
        "neighbours.</small></p>"
    )


def _strides() -> str:
    rows = []
    for stride in STRIDES:
        shared = [str(figures.wavefronts(stride, width)) if not stride * figures.FLOAT % width else "–" for width in WIDTHS]
        rows.append((str(stride), str(figures.sectors(stride)), *shared))
    best = ", ".join(f"{figures.wavefronts(width // figures.FLOAT, width)}" for width in WIDTHS)
    return _table(("stride", "global, 32 bits: sectors", *(f"shared, {8 * width} bits: wavefronts" for width in WIDTHS)), rows) + (
        f"<p><small>–: misaligned. Lanes side by side need {best} wavefronts, of {rules.BANKS * rules.WORD_BYTES} bytes each. "
        "Different words of "
        "one bank cost one wavefront each; the same word serves all lanes.</small></p>"
    )


def _units(gpu: hardware.GPU) -> str:
    rows = [
        ("warp", f"{WARP} lanes"),
        ("sector", f"{SECTOR_BYTES} bytes"),
        ("shared memory", f"{rules.BANKS} banks of {rules.WORD_BYTES} bytes"),
        ("threads of a block", f"≤ {hardware.THREADS_PER_BLOCK}"),
        ("registers of a thread", f"≤ {hardware.REGISTERS_PER_THREAD}"),
        ("schedulers of a multiprocessor", str(hardware.SUB_PARTITIONS)),
        (
            f"peak of an {gpu.name}",
            f"{gpu.sms} × {gpu.capability.fp32_lanes} × 2 × {gpu.clock_mhz / 1000:g} GHz = {gpu.peak_fp32_tflops:.1f} TFLOPS",
        ),
        ("and its DRAM", f"{gpu.dram_gbs:,.0f} GB/s"),
    ]
    return _table((), rows, left=(0,))


def _warps(gpu: hardware.GPU) -> str:
    rows = [(str(count), *(str(occupancy(gpu, threads, count).warps_per_sm) for threads in BLOCKS)) for count in REGISTERS]
    return _table(("registers a thread", *(f"blocks of {threads}" for threads in BLOCKS)), rows)


def _capabilities() -> str:
    found = dict.fromkeys(gpu.capability for gpu in hardware.gpus())
    granule = hardware.REGISTER_GRANULE // WARP
    rows = []
    for one in found:
        most = one.registers // one.threads_per_sm // granule * granule
        rows.append((
            f"{one.name} {one.family}", str(one.warps_per_sm), str(one.blocks_per_sm), f"{one.registers:,}", str(most),
            _kib(one.shared_configurations[-1]), _kib(one.shared_per_block), str(one.fp32_lanes),
        ))  # fmt: skip
    header = ("", "warps", "blocks", "registers", "a thread, with all warps", "shared KiB", "of it for a block", "FP32 lanes")
    return _table(header, rows, left=(0,)) + "<p><small>Of one multiprocessor.</small></p>"


def _counters() -> str:
    rows = [(f"<code>{html.escape(name)}</code>", html.escape(meaning)) for name, meaning in names.MEANINGS.items()]
    return _table((), rows, left=(0, 1), plain=False)


def _kib(count: int) -> str:
    return f"{count // 1024}"


def _ratio(value: Fraction) -> str:
    return f"{float(value):.3g}"


def _times_k(value: Fraction) -> str:
    """A multiple of K as one would write it: K/16, 3K/256."""
    return f"{'' if value.numerator == 1 else value.numerator}K/{value.denominator}"


def _section(title: str, content: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{content}</section>"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (), plain: bool = True) -> str:
    """plain: the cells are text, and no HTML."""

    def row(tag: str, cells: Sequence[str], escaped: bool) -> str:
        made = [
            f"<{tag}{' class=left' if i in left else ''}>{html.escape(text) if escaped else text}</{tag}>" for i, text in enumerate(cells)
        ]
        return f"<tr>{''.join(made)}</tr>"

    head = f"<thead>{row('th', header, True)}</thead>" if header else ""
    return f"<table>{head}<tbody>{''.join(row('td', cells, plain) for cells in rows)}</tbody></table>"
