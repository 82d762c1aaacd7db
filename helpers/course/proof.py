"""Was what was counted also computed? Counters are judged on runs whose results are compared, and a product is verified at its full
size before a prediction becomes a rung."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from helpers.errors import CourseError, called_from, quote, statement_line
from helpers.run import gemm
from helpers.run.gemm import Problem, SampledProblem
from helpers.run.kernel import Kernel, Run
from helpers.run.own_products import counted_shape
from helpers.run.problem import PositiveSample
from helpers.sim import TraceFilter
from helpers.sim.code import time_limit
from helpers.sim.code.hardware_units import WARP
from helpers.sim.counting import names

from . import demanding, measures
from .measures import Expectation, Verdict

MOST_VERIFIED = 1 << 30  # bytes of A, B and C of a product that is verified
_MORE, _NATIVE, _FEWEST = 2.0, 1e8, 16  # seconds for more tiles, multiply-adds per second of native code, tiles at the least
SECONDS = 120.0  # that its blocks may take
_APART = 64  # elements of K where blocks far apart show that their tiles are
_NOT_ASKED = "not asked of blocks that share tiles of C, which leave their sums to each other in device memory."
_SPACES = frozenset({"global", "shared", "cluster"})
_IN_ORDER = 128  # elements of K in which the order of copies, loads and multiply-adds shows
_IN_STAGES = 256  # in which a kernel that copies 128 of them at a time has a second stage to fill, and an mbarrier a second phase
_OF_MATRICES = 512  # the same of kernels for tensor cores, whose rings of tiles are deeper
_ALIKE = 0.05  # blocks are alike that differ by less
_COUNTED = (names.INSTRUCTIONS, names.requests("global", "ld"), names.sectors("global", "ld"), names.requests("global", "st"))


def judged(
    kernel: Kernel, expectations: Sequence[Expectation], seed: int, wording: Callable[[Verdict], str]
) -> tuple[tuple[str, bool], ...]:
    """(sentence, good) of each expectation. wording: the sentence of a verdict.

    They are judged on a product of `counted_shape`, whose result is compared, and once more on the large product that the check of this
    seed computed some blocks of: what holds at one size alone has not been met.
    """
    ordered = any(expectation.of_order for expectation in expectations)
    in_stages = any(expectation.measure in (measures.stages_at_a_time, measures.inits_of_an_mbarrier) for expectation in expectations)
    rows, columns, steps = counted_shape(kernel, _IN_STAGES if in_stages else _IN_ORDER if ordered else 0)
    apart = ordered and rows * columns * steps // WARP > TraceFilter().limit // 2  # multiply-adds, which would leave no room for accesses
    # Nothing is asked about registers that lie in memory, and of these there may be more accesses than a trace holds.
    trace = TraceFilter(spaces=_SPACES, math=ordered and not apart)
    runs = {}
    for longer, beta in sorted({(0, 0.0), *map(_of_run, expectations)}, key=lambda of: (abs(of[0]), of[1])):
        less, pad = min(longer, 0), abs(longer)
        problem = replace(gemm.problem_for(kernel, rows, columns + less, steps + less), pad_a=pad, pad_b=pad, pad_c=pad, beta=beta)
        arrays = gemm.fitted(kernel, problem).arrays()
        before = tuple(array.copy() for array in arrays)
        runs[longer, beta] = run = gemm.run(kernel, problem, on="cpu", arrays=arrays, trace=trace)
        if wrong := gemm.compare(run.problem["problem"], before, arrays):
            return ((f"The run that is counted, {problem}, is wrong: {wrong}", False),)
    run = runs[0, 0.0]
    shape = gemm.geometry(kernel)
    sharing = shape.parts > 1 or (shape.depth or 1) > 1
    asked = [expectation for expectation in expectations if not (sharing and expectation.of_whole_tiles)]
    in_order = _first_block(kernel) if apart and any(expectation.of_order for expectation in asked) else run
    verdicts, unjudged = [], []
    for expectation in asked:
        try:
            verdict = expectation.judge(in_order if expectation.of_order else runs[_of_run(expectation)])
            verdicts.append((runs[_of_run(expectation)], verdict))
        except measures.CutShortError:  # of a product whose size is not the reader's to choose
            unjudged.append((f"{expectation.text} could not be judged: {_too_many(runs[_of_run(expectation)])}", False))
        except CourseError as error:  # a verdict, too, beside those that can be had
            unjudged.append((f"{expectation.text} could not be judged: {error.message}", False))
    given = [verdict for _, verdict in verdicts]
    sentences = [(wording(verdict) + _line(counted, in_order, verdict, given), verdict.ok) for counted, verdict in verdicts] + unjudged
    sentences += [(f"{expectation.text}: {_NOT_ASKED}", True) for expectation in expectations if expectation not in asked]
    if all(ok for _, ok in sentences):
        stored = gemm.as_stored(kernel, seed)  # a block of a smaller tile_shape may lie outside of C
        *_, sample, _ = [problem for problem in gemm.drawn(stored, seed) if isinstance(problem, SampledProblem)]
        other = gemm.count_sample(stored, replace(sample, places=sample.places[:1]))
        for expectation in asked:
            if expectation.longer or expectation.beta:
                continue  # the drawn product's rows are not, and its beta is 0
            if sharing and expectation.of_array:
                continue  # only all arrays together are counted there, and what blocks leave to each other is one of them
            if text := _elsewhere(expectation, run, other):
                sentences.append((f"At {sample}, that is not so: {text} The counters must be met at every size that tiles divide.", False))
    return tuple(sentences)


def _of_run(expectation: Expectation) -> tuple[int, float]:
    """Which run it is judged on."""
    return expectation.longer, expectation.beta


def _too_many(run: Run) -> str:
    """Why a trace was cut short, as sentences."""
    threads = math.prod(run.block)
    few = "" if threads % WARP == 0 else f" A block of {threads} does not fill its warps, and a warp's access counts in full."
    return (
        f"the run that is counted, {run.problem['problem']}, accesses memory more than {TraceFilter().limit:,} times, and of no more than "
        f"these it is recorded which array they are of. Let each warp access memory less often.{few}"
    )


def _first_block(kernel: Kernel) -> Run:
    """The first block's part of a product of one tile, traced with its multiply-adds: the order of what it does is the same in all."""
    problem = gemm.problem_for(kernel, *gemm.geometry(kernel).tile, _OF_MATRICES if kernel.compiled.matrix_types else _IN_ORDER)
    trace = TraceFilter(spaces=_SPACES, math=True)
    return gemm.run(kernel, problem, on="cpu", counters=False, findings=False, blocks=(0,), trace=trace)


def _line(run: Run, in_order: Run, verdict: Verdict, verdicts: Sequence[Verdict]) -> str:
    """'' or, of an expectation that is not met, the line that has most of what there is too much of, and how sure the count is. Where
    another of the verdicts says of which array there is too much, no line is named here: most of a total may be what has to be."""
    if verdict.ok:
        return ""
    sure = f" {run.kernel.compiled.estimate}".rstrip()
    if verdict.text == "multiply-adds behind a tile's loads" and not verdict.too_much:
        places = [(number, quote(run.kernel.source, number)) for number in measures.ends_of_a_tile(in_order)]
        (load, asked), (store, stored) = places
        return f" The last load is in line {load}, “{asked}”, and the first store behind it in line {store}, “{stored}”." + sure
    if verdict.too_much and (took_part := measures.threads_that_take_part(run, verdict.text)) < WARP - 1:
        sure = f" An access that part of a warp executes counts in full: here {took_part:.3g} of {WARP} threads on average.{sure}"
    if not verdict.too_much or any(other.too_much and not other.ok and measures.is_part_of(other.text, verdict.text) for other in verdicts):
        return sure
    busiest, source = measures.busiest_line(run, verdict.text), run.kernel.source
    number, call = statement_line(source, busiest), measures.caller_of(run, busiest)
    called = "" if call is None else f", most often {called_from([call], [quote(source, call)])}"
    code = quote(source, number)
    return (f" Most of it is in line {number}, “{code}”{called}." if code else "") + sure


def _elsewhere(expectation: Expectation, run: Run, other: Run) -> str:
    """'' or what is different in the other run, which has no trace."""
    if expectation.of_array:  # only all arrays together are counted there
        for op, what in (("ld", "load"), ("st", "store")):
            if not all(measures.count(each, names.requests("global", op)) for each in (run, other)):
                continue
            here, there = (measures.sectors_per_request(each, op=op) for each in (run, other))
            if there > (1 + 2 * _ALIKE) * here:
                return f"sectors per {what} of all arrays together: {there:.3g}, and {here:.3g} in the small product."
        return ""
    try:
        verdict = expectation.judge(other)
    except CourseError:
        if run.kernel.compiled.estimate or names.INSTRUCTIONS not in run.counters:  # counted in the trace, which there is none of here
            return ""
        raise
    return "" if verdict.ok else f"{verdict.text}: yours {verdict.yours:g}, expected {verdict.expected}."


_COMMENT = re.compile(r"//[^\n]*")
_STRONG = re.compile(r"\b(?:ld|atom)(?:\.\w+(?:::\w+)?)*\.(?:acquire|acq_rel)\b|\bld(?:\.\w+(?:::\w+)?)*\.relaxed\b")
_LOOK = re.compile(r"\batom\.|\bld(?:\.\w+(?:::\w+)?)*\.volatile\b")
_FENCE = re.compile(r"\bmembar\.|(?<!wgmma\.)\bfence\.(?!proxy|mbarrier_init)")


def unfollowed(kernel: Kernel) -> bool:
    """May threads of the kernel learn of one another by acquire, or by a fence and what they look at? Who has released what is not
    tracked, so that races behind it are not seen."""
    code = _COMMENT.sub("", kernel.ptx)
    return bool(_STRONG.search(code) or (_FENCE.search(code) and _LOOK.search(code)))


def verify(kernel: Kernel, problem: Problem, run: Run, progress: Callable[[int, int], None] | None = None) -> None:
    """Execute some blocks of the full-size problem and compare their part of C with float64; see that the counted block is like others.

    run: the counted run of the problem. Raises CourseError if the prediction made from it would not be one of this product.
    """
    needed = problem.m * problem.k * problem.inputs.bytes + problem.k * problem.n * problem.inputs.bytes
    needed += problem.m * problem.n * problem.result.bytes
    if needed > MOST_VERIFIED:
        raise CourseError(
            f"{kernel.name} was not put on the ladder at {problem}: its matrices take {needed >> 20} MB, too many to verify its result "
            f"here ({MOST_VERIFIED >> 20} MB at most). Climb with a smaller size, or where there is a GPU."
        )
    shape = gemm.geometry(kernel)
    across, down = shape.tiles(problem.m, problem.n)
    columns = shape.grid(problem.m, problem.n)[0]
    classes = shape.classes(problem.m, problem.n) if shape.persistent is None else []
    counted = [(block % columns, block // columns) for block, _ in classes]
    random = np.random.default_rng()
    others = [(int(random.integers(across)), int(random.integers(down))) for _ in range(2)]
    places = tuple(dict.fromkeys([*counted, *others]))
    sample = SampledProblem.of(problem, places, seed=int(random.integers(1 << 30)))
    samples: list[SampledProblem] = [sample]
    if demanding.loses_in_long_sums(kernel):
        samples.append(PositiveSample.of(sample, places[-1:]))
    native, begun = False, time_limit.now()
    for each in samples:
        done, wrong, missing = gemm.run_sample(kernel, each, SECONDS, progress)
        if wrong or missing:
            raise CourseError(f"{kernel.name} is not ready to climb: its result is wrong at {each}.\n{wrong or missing}")
        native = done.outcome.engine == "native"
    if wrong := _in_other_tiles(kernel, sample, native, (time_limit.now() - begun) / len(places), progress):
        raise CourseError(f"{kernel.name} is not ready to climb: its result is wrong at {problem}.\n{wrong}")
    if shape.persistent is None and (left := _left_out(kernel, sample, progress)):
        raise CourseError(f"{kernel.name} is not ready to climb: it does not compute every tile of C.\n{left}")
    if not run.sampled:
        return
    inner = max(1, across - 1), max(1, down - 1)  # places whose blocks hang over no edge
    alike = tuple((int(random.integers(inner[0])), int(random.integers(inner[1]))) for _ in range(3))
    first = run.counters if len(classes) < 2 else gemm.count_sample(kernel, replace(sample, places=tuple(counted[:1]))).counters
    other = gemm.count_sample(kernel, replace(sample, places=alike)).counters
    for name in _COUNTED:
        if name == names.INSTRUCTIONS and not (name in first and name in other):
            continue  # no block executes none: of some it is not known, because they run by data
        one, many = first.get(name, 0), other.get(name, 0)
        if abs(many - one) > _ALIKE * max(one, many):
            blocks = math.prod(run.grid)
            which = f"block {counted[0]}" if counted else "the middle cluster"
            raise CourseError(
                f"{kernel.name} is not ready to climb: its blocks do not all do the same, so no block can be counted for all of them. At "
                f"{problem}, {which} has {one / blocks:,.0f} of {name}, and blocks {', '.join(map(str, alike))} have "
                f"{many / blocks:,.0f} on average."
            )


def _in_other_tiles(kernel: Kernel, sample: SampledProblem, native: bool, each: float, progress: Callable[[int, int], None] | None) -> str:
    """'' or what is wrong in other tiles of the product: as many as take about `_MORE` seconds, `_FEWEST` at the least where native code
    computes them; all of a small product. each: seconds that a tile has taken so far."""
    shape = gemm.geometry(kernel)
    across, down = shape.tiles(sample.m, sample.n)
    of_tile = math.prod(shape.tile) * max(1, sample.k)
    count = min(across * down, max(_FEWEST, int(_MORE * _NATIVE / of_tile)) if native else int(_MORE / max(each, 1e-3)))
    if not count:
        return ""
    random = np.random.default_rng()
    places = tuple((int(at) % across, int(at) // across) for at in random.choice(across * down, count, replace=False))
    other = replace(sample, places=places, seed=sample.seed + 1)
    _, wrong, missing = gemm.run_sample(kernel, other, SECONDS, progress, findings=False)
    return wrong or missing


def _left_out(kernel: Kernel, sample: SampledProblem, progress: Callable[[int, int], None] | None) -> str:
    """'' or, of a kernel with one block per tile, which tiles of the whole product no block computes. Where the machine code does not tell,
    what is wrong with tiles that are powers of two apart, with a shorter K."""
    if sample.batch > 1:
        return ""
    text = gemm.unreached(kernel, sample)
    if text is not None:
        return f"At {sample.m} × {sample.n} × {sample.k}, {text}" if text else ""
    apart = gemm.tiles_apart(kernel, sample, _APART)
    _, wrong, missing = gemm.run_sample(kernel, apart, SECONDS, progress, findings=False)
    return f"At {apart}: {wrong or missing}" if wrong or missing else ""
