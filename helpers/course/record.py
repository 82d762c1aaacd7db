"""`course record`: time the reference kernels on this machine's GPU and keep the results in helpers/data.

One JSON file per device, and one for its strategy table: lists of flat rows, one line each, so that a change reads well
in a diff. A row is what one
step did at one size, together with cuBLAS, which ran in turn with it (see `gpu.interleave`). Recording a step again
replaces its row at that size and leaves all others alone. The README's table and figure are made from the same rows,
between markers.

Runs where there is no Jupyter: `python -m helpers.course.record --out results --sizes 256,4096 --steps 1-3`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.element_types import named
from helpers.errors import CourseError
from helpers.model.hardware import digits
from helpers.run import gpu

from . import rungs, steps

DATA = rungs.DATA
ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
START, END = "<!-- ladder:start -->", "<!-- ladder:end -->"
SIZES = (256, 512, 1024, 2048, 4096, 8192)
LADDER_SIZE = 4096
FIGURE = DATA / "ladder.svg"
KEY = ("step", "dtype", "m", "n", "k")  # what a row is the record of, with the type of C
OTHERWISE = {"batch": 1, "configuration": ""}  # and these, which only rows have that differ from this
REQUIRED = (
    "step", "slug", "dtype", "m", "n", "k", "milliseconds", "tflops",
    "cublas_milliseconds", "cublas_tflops", "cublas_ratio", "spread", "cublas_spread",
    "samples", "method", "noisy", "clock_mhz", "cublas_clock_mhz", "difference", "date",
    "device", "driver", "cuda", "compiler", "registers", "shared_bytes", "kernel_hash",
)  # fmt: skip


# --------------------------------------------------------------------------------------------------------- measuring


def measure(step, problem, samples: int = 20, seconds: float = 3.0) -> dict[str, Any]:
    """The row of one step at one size. Raises CourseError if the kernel does not compile, is wrong, or cannot run."""
    from helpers.run import kernel as kernels
    from helpers.run import timing as timer

    source = step.kernel_source()
    kernel = kernels.compile(source, entry=step.entry, arch=step.target(gpu.arch()))
    return _row(step, problem, source, kernel, timer.time_gemm(kernel, problem, samples=samples, seconds=seconds))


def measure_strategy(problem, samples: int = 20, seconds: float = 3.0) -> list[dict[str, Any]]:
    """The rows of all configurations for the problem's element type (`strategy.FAMILIES`), timed in turn. Raises as `measure`."""
    from helpers.run import kernel as kernels
    from helpers.run import timing as timer

    from . import strategy

    step = steps.get(strategy.FAMILIES[problem.dtype].step)
    sources = strategy.sources(step.kernel_source(), dtype=problem.dtype)
    made = {name: kernels.compile(source, entry=step.entry, arch=step.target(gpu.arch())) for name, source in sources.items()}
    timed = timer.time_gemms(made, problem, samples=samples, seconds=seconds)
    return [{**_row(step, problem, sources[name], made[name], timing), "configuration": name} for name, timing in timed.items()]


def _row(step, problem, source: str, kernel, timing) -> dict[str, Any]:
    baseline = timing.cublas
    unusual = {"out_dtype": problem.out_dtype} if problem.out_dtype != problem.inputs.result else {}
    unusual |= {"batch": problem.batch} if problem.batch > 1 else {}
    return {
        "step": step.number,
        "slug": step.slug,
        "dtype": problem.dtype,
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        **unusual,
        "milliseconds": _figures(timing.kernel.milliseconds),
        "tflops": _figures(timing.tflops),
        "cublas_milliseconds": baseline and _figures(baseline.milliseconds),
        "cublas_tflops": baseline and _figures(timing.cublas_tflops),
        "cublas_ratio": baseline and _figures(timing.cublas_ratio),
        "spread": _figures(timing.kernel.spread, 2),
        "cublas_spread": baseline and _figures(baseline.spread, 2),
        "samples": timing.kernel.samples,
        "method": timing.kernel.method,
        "noisy": timing.kernel.noisy,
        "clock_mhz": timing.kernel.clock_mhz,
        "cublas_clock_mhz": baseline and baseline.clock_mhz,
        "difference": timing.difference if timing.difference is None else _figures(timing.difference, 2),
        **gpu.provenance(gpu.device()),
        "registers": kernel.registers,
        "shared_bytes": kernel.shared_bytes,
        "kernel_hash": rungs.code_hash(source),
    }


def _figures(value: float, digits: int = 6) -> float:
    """Rounded to significant digits: more would be noise, and noise in every diff."""
    return float(f"{value:.{digits}g}")


# ----------------------------------------------------------------------------------------------------------- the files


def merge(old: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Old rows, with those that `new` measured again replaced, and new ones added; sorted by step and size."""
    rows = {_key(row): dict(row) for row in [*old, *new]}
    return [rows[key] for key in sorted(rows)]


def _key(row: Mapping[str, Any]) -> tuple:
    return (
        *(row[name] for name in KEY),
        rungs.out_dtype(row),
        *(row.get(name, usual) for name, usual in OTHERWISE.items()),
    )


def write(path: Path, new: Sequence[Mapping[str, Any]]) -> None:
    """Merge `new` rows into the file, which is replaced at once or not at all. Raises CourseError if it is damaged."""
    old = []
    if path.exists():
        try:
            old = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise CourseError(f"{path} is damaged ({error}): nothing was written. Restore or remove it.") from None
    text = "[\n" + ",\n".join(" " + json.dumps(row) for row in merge(old, new)) + "\n]\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def record(
    chosen: Sequence[Any],
    sizes: Sequence[tuple[int, ...]],
    out: Path = DATA,
    samples: int = 20,
    seconds: float = 3.0,
    longest: float = 1000.0,
    say=print,
) -> list[dict[str, Any]]:
    """Measure the steps at the sizes, (m, n, k) or (m, n, k, batch), and save every row at once. longest: skip sizes
    whose one launch would take more milliseconds, judged from the last size. A step that fails is reported and the
    others go on. Returns the new rows.
    """
    from helpers.run.gemm import Problem

    rows: list[dict[str, Any]] = []
    path = out / f"{rungs.slug(gpu.device().name)}.json"
    say(f"{gpu.device().name}: driver {gpu.device().driver}, CUDA {gpu.device().cuda}; writing {path}")
    for step in chosen:
        rate = None
        for m, n, k, *batch in sizes:
            problem = Problem(m, n, k, dtype=step.dtype, out_dtype=step.out_dtype, batch=batch[0] if batch else 1)
            if rate and problem.flops / rate / 1e9 > longest:
                say(f"{step.name} at {problem}: skipped, one launch would take over {longest:.0f} ms")
                continue
            begin = time.monotonic()
            try:
                row = measure(step, problem, samples, seconds)
            except CourseError as error:
                say(f"{step.name} at {problem}: {error.message}")
                if not gpu.available():
                    return rows
                continue
            rows.append(row)
            write(path, [row])
            rate = row["tflops"]
            say(f"{step.name} at {problem}: {_said(row)} ({time.monotonic() - begin:.1f} s)")
    return rows


def record_strategy(chosen: Sequence[Any], out: Path = DATA, samples: int = 20, seconds: float = 3.0, say=print) -> list[dict[str, Any]]:
    """Measure all configurations that `strategy.py` has of these steps on all its shapes, those held out among them, and save them
    shape by shape. Returns the new rows: none if none of the steps has configurations."""
    from . import strategy
    from .recorded_search import compile_together

    rows: list[dict[str, Any]] = []
    problems = []
    for dtype, family in strategy.FAMILIES.items():
        step = steps.get(family.step)
        if step not in chosen:
            continue
        texts = strategy.sources(step.kernel_source(), dtype=dtype)
        compile_together(list(texts.values()), step.target(gpu.arch()))
        problems += [*strategy.shapes(dtype).values(), *strategy.held_out(dtype)]
    for problem in problems:
        try:
            found = measure_strategy(problem, samples, seconds)
        except CourseError as error:
            say(f"{problem}: {error.message}")
            continue
        kind = "" if problem.dtype == "float32" else f"{problem.dtype}-"
        write(out / f"strategy-{kind}{rungs.slug(gpu.device().name)}.json", found)
        rows += found
        for row in found:
            say(f"{problem}, {row['configuration']}: {_said(row)}")
    return rows


def _said(row: Mapping[str, Any]) -> str:
    """A row as a sentence for the terminal."""
    ratio = f"{row['cublas_ratio']:.3f} of cuBLAS" if row["cublas_ratio"] else gpu.cublas_why_not()
    note = f"; noisy: {row['noisy']}" if row["noisy"] else ""
    return f"{row['milliseconds']:.4g} ms, {row['tflops']:.4g} TFLOPS, {ratio}, {row['clock_mhz'] or 0:.0f} MHz, {row['method']}{note}"


# ---------------------------------------------------------------------------------------------------------- the README


def readme_section(rows: Sequence[Mapping[str, Any]], size: int = LADDER_SIZE) -> str:
    """The markdown between the markers: the figure per device and one table per pair of element types, from recorded rows alone."""
    parts = []
    for device in sorted({row["device"] for row in rows}):
        own = [row for row in rows if row["device"] == device]
        types: dict[tuple[str, str], list] = {_types(row): [] for row in own}
        for row in own:
            types[_types(row)].append(row)
        tables = [_table(chosen, named(*pair)) for pair, chosen in types.items()]
        if any(tables):
            parts += [_picture(device, size), *filter(None, tables)]
    if not parts:
        return "No runs have been recorded yet: `course record` on a machine with a GPU fills this in.\n"
    return "\n".join(parts)


def _types(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["dtype"], rungs.out_dtype(row)


def _picture(device: str, size: int) -> str:
    return f"![Ladder of the recorded kernels on {device} at {size}³, in TFLOPS]({FIGURE.relative_to(ROOT).as_posix()})\n"


def _table(rows: Sequence[Mapping[str, Any]], types: str) -> str:
    """The rows of one device and one pair of element types: a line for each step, and one more where its constants were chosen by size."""
    square = [row for row in rows if row["m"] == row["n"] == row["k"] and "batch" not in row]
    shipped = [row for row in square if "configuration" not in row]
    columns = sorted({row["m"] for row in shipped} & set(SIZES))
    cells = {(row["step"], row["m"]): row for row in shipped}
    chosen: dict[tuple[int, int], Mapping[str, Any]] = {}
    for row in sorted(square, key=lambda row: -row["milliseconds"]):
        if "configuration" in row:
            chosen[row["step"], row["m"]] = row
    known = [step for step in steps.STEPS if any((step.number, column) in cells for column in columns)]
    if not known:
        return ""
    device, dates = rows[0]["device"], sorted({row["date"] for row in rows})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    head = "".join(f" {column}³ |" for column in columns)
    lines = [
        f"TFLOPS on {device} in {types} (recorded {when}, driver {rows[0]['driver']}, CUDA {rows[0]['cuda']}); in brackets the "
        "speed relative to cuBLAS, timed in turn with it:",
        "",
        f"| step |{head}",
        "|---|" + "---:|" * len(columns),
    ]
    for step in known:
        lines.append(_line(step.name, [cells.get((step.number, column)) for column in columns]))
        if any((step.number, column) in chosen for column in columns):
            lines.append(_line(f"{step.name}, constants by size", [chosen.get((step.number, column)) for column in columns]))
    best = [max((row["cublas_tflops"] or 0 for row in shipped if row["m"] == column), default=0) for column in columns]
    lines.append("| cuBLAS |" + "".join(f" {digits(value)} |" if value else " |" for value in best))
    if named_constants := [f"{column}³ {chosen[key]['configuration']}" for key in sorted(chosen) if (column := key[1]) in columns]:
        said = "; ".join(named_constants)
        alone = " *Alone*: without clusters." if "alone" in said else ""
        lines += ["", f"A step has the constants of its source at every size. *By size*, the fastest of those tried: {said}.{alone}"]
    if any(row["noisy"] and row["m"] in columns for row in (*cells.values(), *chosen.values())):
        lines += ["", "*Noisy*: the times of its launches differ so much that the last digits mean little."]
    return "\n".join(lines) + "\n"


def _line(name: str, found: Sequence[Mapping[str, Any] | None]) -> str:
    return f"| {name} |" + "".join(f" {_cell(row)} |" for row in found)


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    ratio = f" ({row['cublas_ratio']:.2f})" if row["cublas_ratio"] else ""
    return f"{digits(row['tflops'])}{ratio}{' noisy' if row['noisy'] else ''}"


def with_section(text: str, section: str) -> str:
    """`text` with what stands between the markers replaced. Raises CourseError if the markers are missing."""
    if text.count(START) != 1 or text.count(END) != 1 or text.index(START) > text.index(END):
        raise CourseError(f"The README needs the lines {START} and {END}, once each and in this order.")
    before, rest = text.split(START)
    return f"{before}{START}\n{section}{END}{rest.split(END)[1]}"


def figure(rows: Sequence[Mapping[str, Any]], size: int = LADDER_SIZE) -> str:
    """The ladder at size³ as an SVG picture: a bar per step, cuBLAS, the limit as a line. "" if there is no row."""
    import matplotlib

    from helpers.views.canvas import BLUE, INK, VERMILLION, in_words, new_axes, style, to_svg

    chosen = [row for row in rows if row["m"] == row["n"] == row["k"] == size and row["dtype"] == "float32"]
    if not chosen:
        return ""
    device = chosen[0]["device"]
    chosen = sorted((row for row in chosen if row["device"] == device), key=lambda row: row["step"])
    bars = [(f"{row['step']:02} {in_words(row['slug'])}", row["tflops"], BLUE) for row in chosen]
    baseline = max((row["cublas_tflops"] or 0 for row in chosen), default=0)
    if baseline:
        bars.append(("cuBLAS", baseline, VERMILLION))
    ceiling = rungs.limit(device, size, size, size)
    names, values, colours = zip(*bars, strict=True)
    with matplotlib.rc_context(style()):  # type: ignore[arg-type]  # its stubs list every key by name
        ax = new_axes((7.6, 0.34 * len(bars) + 1.0), (2.35, 0.45, 0.4, 0.55))
        ax.alt = f"FP32 matrix product of {size}³ on {device}, TFLOPS"
        ax.set_title(ax.alt, x=-0.43)
        ax.bar_label(ax.barh(names, values, color=colours, height=0.72), [digits(value) for value in values], padding=5)
        ax.margins(x=0.12, y=0.02)
        ax.invert_yaxis()
        ax.tick_params(axis="y", length=0)
        ax.set_xticks([])
        ax.spines["bottom"].set_visible(False)
        if ceiling:
            ax.axvline(ceiling.tflops, color=INK, linestyle="--", linewidth=1, zorder=0)
            ax.annotate(f"{ceiling.name}: {ceiling.tflops:.1f}", (ceiling.tflops, 0), (0, -6), xycoords=("data", "axes fraction"),
                        textcoords="offset points", ha="right", va="top")  # fmt: skip
        return to_svg(ax)


def update_readme(readme: Path = README, picture: Path = FIGURE) -> None:
    """Write the README's section and the figure from the recorded rows."""
    readme.write_text(with_section(readme.read_text(encoding="utf-8"), readme_section(rungs.recorded(variants=True))), encoding="utf-8")
    drawing = figure(rungs.recorded())
    if drawing:
        picture.write_text(drawing, encoding="utf-8")


# ---------------------------------------------------------------------------------------------------- the command line


def parse_sizes(text: str) -> list[tuple[int, ...]]:
    """ "256,1000x3000x500,64x64x64x1024" -> [(256, 256, 256), (1000, 3000, 500), (64, 64, 64, 1024)], the last a batch.

    Raises ValueError with what is wrong.
    """
    sizes = []
    for part in text.split(","):
        numbers = [int(number) if number.isdecimal() else 0 for number in part.strip().lower().split("x")]
        if len(numbers) not in (1, 3, 4) or min(numbers) < 1:
            raise ValueError(
                f"{part!r} is neither a size such as 4096, nor a shape such as 1000x3000x500, nor one with a batch such as 64x64x64x1024"
            )
        sizes.append(tuple(numbers * 3 if len(numbers) == 1 else numbers))
    return sizes


def parse_steps(text: str) -> list[Any]:
    """ "1-3,11" or "naive" -> rows of the step table that have a kernel. Raises KeyError, ValueError."""
    chosen = []
    for part in text.split(","):
        bounds = re.fullmatch(r"(\d+)-(\d+)", part)
        if bounds:
            chosen += [step for step in steps.STEPS if int(bounds[1]) <= step.number <= int(bounds[2])]
        else:
            chosen.append(steps.get(int(part) if part.isdigit() else part))
    return [step for step in chosen if step.entry]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns its exit status."""
    parser = argparse.ArgumentParser(prog="course record", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=DATA, help="folder of the recorded runs (default: helpers/data)")
    parser.add_argument("--steps", default="", help="such as 1-3,11 or naive (default: every step with a kernel)")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="such as 256,4096,1000x3000x500, or 64x64x64x1024 for a batch")
    parser.add_argument("--samples", type=int, default=20, help="samples per figure, at most")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for the samples of one figure")
    parser.add_argument("--longest", type=float, default=1000.0, help="skip a launch that would take more milliseconds")
    parser.add_argument(
        "--strategy", action="store_true", help="time the configurations of steps 12 and 17 on the shapes of lesson 12 instead"
    )
    parser.add_argument("--search", action="store_true", help="time the whole space of step 12's lesson at 4096³ instead")
    parser.add_argument("--microbench", action="store_true", help="measure what instructions cost on this GPU instead")
    parser.add_argument("--variants", action="store_true", help="time the steps with other constants, to try the model on, instead")
    parser.add_argument("--launches", action="store_true", help="time kernels in signatures of their own, to try the model on, instead")
    parser.add_argument("--states", action="store_true", help="sample the steps' warp states with Nsight Compute instead")
    parser.add_argument("--readme", action="store_true", help="only write the README's table and figure from helpers/data")
    options = parser.parse_args(arguments)
    try:
        if options.readme:
            update_readme()
            return 0
        chosen = parse_steps(options.steps) if options.steps else [step for step in steps.STEPS if step.entry]
        sizes = parse_sizes(options.sizes)
        reason = gpu.why_not()
        if reason:
            raise CourseError(f"There is nothing to record on: {reason}")
        rows: Sequence[Any]
        if options.microbench:
            from . import microbench

            rows = microbench.record(options.out)
        elif options.search:
            from . import recorded_search

            rows = recorded_search.record(options.out).ranked
        elif options.variants:
            from . import recorded_variants

            rows = recorded_variants.record(options.out)
        elif options.launches:
            from . import recorded_launches

            rows = recorded_launches.record(options.out)
        elif options.states:
            from . import recorded_states

            rows = recorded_states.record(options.out)
        elif options.strategy:
            rows = record_strategy(chosen, options.out, options.samples, options.seconds)
        else:
            rows = record(chosen, sizes, options.out, options.samples, options.seconds, options.longest)
        if options.out.resolve() == DATA.resolve():
            update_readme()
    except (CourseError, KeyError, ValueError) as error:
        print(f"course record: {error.args[0] if error.args else error}", file=sys.stderr)
        return 1
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
