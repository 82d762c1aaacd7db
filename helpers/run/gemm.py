"""The one problem every kernel of the course solves: C = alpha · A · B + beta · C, row-major, any leading dimension.

`Problem` has the data and the specification in float64; here are the launch with the kernel's own geometry, and the check.
"""

from __future__ import annotations

import contextlib
import functools
import math
import numbers
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from helpers.arguments import explained
from helpers.errors import CourseError, Finding, LaunchError, NotBegunError, RunError, SlowedError, UnexplainedError, quote
from helpers.sim import Trace, TraceFilter
from helpers.sim.checks.endless import MAY_BE_LARGE, NEVER_ENDS
from helpers.sim.code import cfg, time_limit
from helpers.sim.launch import ALONE, DOWNWARDS, SHUFFLED, UPWARDS
from helpers.sim.machine import cluster as clusters
from helpers.sim.machine import printout
from helpers.sim.machine.trace import TracedSite
from helpers.toolchain.diagnostics import used_unset

from . import likely_causes
from .check_report import Case, CheckReport
from .check_shapes import (
    DEEP,
    adversarial,
    beyond_16_bits,
    drawn,
    laid_out,
    not_finite,
    of_any_alignment,
    of_any_end,
    step_along_k,
    takes_several,
)  # fmt: skip
from .differences import (
    changed,
    compare,
    compare_others,
    counts_to_k,
    few_bits,
    first_difference,
    inexact,
    line_of_16_bits,
    nearly,
    of_narrow_counter,
    stored,
    wrong_ones,
)
from .far_rows import far_apart, spread
from .geometry import MOST_IN_TILE, Geometry, geometry, taken_for_bias
from .kernel import Kernel, Run, gpu_multiprocessors, place
from .launch_arguments import LaunchArguments, launch_arguments
from .own_products import MATRICES, fitted, problem_for, program_of, types
from .passes import Pass
from .problem import Problem, SampledProblem, ShiftedProblem, named_blocks
from .tile_order import many_tiles, taken_twice, thin, tiles_apart, unreached

_LONG_LOOP, _MANY_FMAS = 500, 1 << 23  # elements of K, and all FMAs, from which the NumPy machine takes seconds
_COUNTED_WHOLE = 1 << 30  # operations of a product up to which all blocks of a persistent kernel are counted
_CHECKED_WALK, _COUNTED_WALK, _VERIFIED_WALK = 3, 2, 1  # tiles that each block of a persistent kernel computes, about
_SECONDS_TO_COUNT = 300.0  # that one cluster of a larger one may take
_FEWEST_SHARED, _SHARES = 3, 288  # tiles along a side where blocks wait for each other, and of these tiles times blocks that share one
_SHORT = 128  # elements of K whose tiles say all about how a kernel loads
PATIENCE = 8.0  # seconds that a small shape may always take
_LADDER = 4096  # M = N = K of a product as ladders have it
_SLOWER = 20  # and no shape may take so many times longer than the slowest one before it
_ENOUGH = 8.0  # seconds for which findings are collected once there are any


# ------------------------------------------------------------------------------------------------- launches


@explained
def run(kernel: Kernel, problem: Problem, on: str | None = None, arrays=None, multiprocessors: int | None = None, **options) -> Run:
    """Launch `kernel` on `problem` with its own geometry. Options are those of `Kernel.launch`.

    The Run carries the problem as `run.problem`. arrays: (A, B, C) to use instead of `problem.arrays()`. multiprocessors: that a
    persistent kernel's grid is to fill; by default those of the GPU, or of the one that the SIMT machine is.
    Raises LaunchError for an empty C (there is nothing to launch) or other than three arrays, and what `Kernel.launch` raises.
    """
    _need("run", kernel, problem)
    shape, on = geometry(kernel), place(on, kernel)
    problem = fitted(kernel, problem)
    if not problem.m or not problem.n:
        raise LaunchError(f"C is empty ({problem.m} × {problem.n}): there is nothing to launch.")
    if problem.batch > 1 and shape.depth is None:
        raise LaunchError(f"{kernel.name} computes one product; launch it once for each of the {problem.batch}. (Step 12 takes a batch.)")
    a, b, c = problem.arrays() if arrays is None else _three(kernel, arrays)
    if shape.persistent is not None and multiprocessors is None and on == "gpu":
        multiprocessors = gpu_multiprocessors()
    given = launch_arguments(kernel, problem, a, b, c, multiprocessors=multiprocessors or shape.multiprocessors)
    first = [_pass(one, options) for one in given.passes] if on == "cpu" else []
    grid = shape.grid(problem.m, problem.n, problem.batch, multiprocessors)
    if not problem.beta and not _in_place(a, b, c):  # then C is only a place for the result
        options.setdefault("uninitialized", (kernel.compiled.parameters[9].name,))
    options.setdefault("long", _is_long(problem, math.prod(grid), options.get("blocks")))
    done = kernel.launch(grid, shape.block, given.arguments, shape.shared, on, before=given.before, **options)
    if given.passes and on == "gpu":  # what the passes left on the GPU is there
        again = functools.partial(run, kernel, problem, "cpu", tuple(array.copy() for array in (a, b, c)), multiprocessors)
        done = replace(done, outcome_or_simulate=lambda: again().outcome)
    return _of_product(done, problem, shape, (a, b, c), given, first)


def _in_place(a: Any, b: Any, c: Any) -> bool:
    """Does C lie where A or B does? (Of arrays on a GPU nobody asks: what is not written is followed in the SIMT machine alone.)"""
    return isinstance(c, np.ndarray) and any(isinstance(other, np.ndarray) and np.may_share_memory(other, c) for other in (a, b))


def _need(verb: str, kernel: Kernel, *problems: Problem) -> None:
    """Raise LaunchError where that is no kernel, or these are no problems."""
    if not isinstance(kernel, Kernel):
        getattr(kernel, "compiled", None)  # a cell that did not compile answers with what its compiler said
        raise LaunchError(f"{verb} wants a kernel, as helpers.compile or a %%cuda cell makes it, not {type(kernel).__name__}.")
    if strange := [problem for problem in problems if not isinstance(problem, Problem)]:
        raise LaunchError(f"{verb} wants Problems, such as gemm.Problem(64, 64, 64), and was given {strange[0]!r}.")


def _three(kernel: Kernel, arrays: Any) -> tuple[Any, Any, Any]:
    """A, B and C, as they were given. Raises LaunchError where these are not three, and for what the kernel cannot be given."""
    given = tuple(arrays) if isinstance(arrays, Iterable) and not isinstance(arrays, (np.ndarray, str)) else ()
    if len(given) != 3:
        raise LaunchError("arrays: give the three arrays A, B and C, such as arrays=(a, b, c).")
    a, b, c = (kernel.checked_at(place, array) for place, array in zip(MATRICES, given, strict=True))
    return a, b, c


def _is_long(problem: Problem, grid_blocks: int, blocks: Sequence[int] | None) -> bool:
    """Is it worth making native code of any kernel for (these blocks of) this problem?"""
    share = 1.0 if blocks is None else len(blocks) / grid_blocks
    return problem.k >= _LONG_LOOP or problem.m * problem.n * problem.k * problem.batch * share >= _MANY_FMAS


def _pass(one: Pass, options: dict[str, Any]) -> Run:
    """A pass in the SIMT machine, run as its product is."""
    wanted = {name: options[name] for name in ("counters", "findings", "seconds") if name in options}
    return one.kernel.launch(one.grid, one.block, one.arguments, on="cpu", long=True, **wanted)


def _of_product(done: Run, problem: Problem, shape: Geometry, arrays, given: LaunchArguments, passes: Sequence[Run] = ()) -> Run:
    """The run, with what it computed, what was copied for it and what its passes did."""
    product = {"problem": problem, "tile": shape.tile, **dict(zip("ABC", arrays, strict=True))}
    if shape.persistent is not None:
        product["tiles"] = math.prod(shape.tiles(problem.m, problem.n))
    how = "by NumPy, outside of what is counted" if done.on == "cpu" else "by a kernel whose time is part of the launch's"
    if given.copies:
        product["copies"] = len(given.copies)
        product["copied"] = sum(copy.rows * (copy.row_bytes + copy.target_pitch) for copy in given.copies)  # bytes read and written
    told = (*(f"{remark} ({how})." for remark in given.remarks), *filter(None, (taken_for_bias(done.kernel),)), *done.remarks)
    first_tiles, first_stages = (functools.partial(how, done.kernel, problem) for how in (_first_tiles, _stages))
    return replace(done, problem=product, first_tiles=first_tiles, first_stages=first_stages, remarks=told, passes=tuple(passes))


def _first_tiles(kernel: Kernel, problem: Problem) -> Trace:
    """The global accesses of four warps of the middle block, in the first rounds of their loops, on made-up data."""
    middle = math.prod(geometry(kernel).grid(problem.m, problem.n, problem.batch)) // 2
    seen = TraceFilter(blocks={middle}, warps={0, 1, 2, 3}, iterations=range(4), spaces={"global"})
    short = min(problem.k, _SHORT)
    some = problem.shallow(short)  # the rows stay as far apart as they are
    return run(kernel, some, on="cpu", arrays=problem.zeros(), blocks=[middle], trace=seen, counters=False, findings=False).trace


def _stages(kernel: Kernel, problem: Problem, k: int) -> Trace:
    """What the first block does for its tile, on made-up data, for at most so many elements of K, where a cluster is the whole grid."""
    shape = geometry(kernel)
    m, n = (min(whole, tile * size) for whole, tile, size in zip((problem.m, problem.n), shape.tile, shape.cluster[1::-1], strict=True))
    some = replace(problem, m=m, n=n, k=min(problem.k, k), batch=1)
    return run(
        kernel, some, on="cpu", trace=TraceFilter(blocks={0}), multiprocessors=math.prod(shape.cluster), counters=False, findings=False
    ).trace


def count(kernel: Kernel, problem: Problem, progress: Callable[[int, int], None] | None = None) -> Run:
    """Counters of a whole launch, large ones from some of its blocks (then `run.sampled` is true).

    Of a kernel with one block per tile, one block of each class (`Geometry.classes`), and where slices share a tile those of one tile,
    stands for all of it, so for kernels whose blocks differ only by the edges they touch the result equals a full simulation. Of a
    persistent kernel the middle cluster is counted, by the tiles that it computed (see `_count_persistent`), which
    `run.problem["counted"]` says. Small launches are simulated whole.
    (Step 11 numbers its blocks anew, so that a block at the edge of the grid need not be one at the edge of C: where tiles divide C, that
    makes no difference.)
    """
    _need("count", kernel, problem)
    shape, problem = geometry(kernel), fitted(kernel, problem)
    grid = shape.grid(problem.m, problem.n, problem.batch)
    size = math.prod(shape.cluster)
    if shape.persistent is not None and problem.flops > _COUNTED_WHOLE and grid[0] > size:
        return _count_persistent(kernel, problem, progress)
    classes = shape.classes(problem.m, problem.n)
    if shape.persistent is not None or grid[0] * grid[1] <= 2 * len(classes) * size:
        return run(kernel, problem, on="cpu", findings=False, progress=progress)
    parts = []
    for index, (block, weight) in enumerate(classes):
        slices = [block + z * grid[0] * grid[1] for z in range(shape.depth or 1)]  # they need not do the same
        parts.append((_counted(kernel, problem, slices), weight))
        if progress:
            progress(index + 1, len(classes))
    blocks = grid[0] * grid[1]
    first = parts[0][0]
    counters = _weighted([(part.outcome.counters, weight) for part, weight in parts], blocks)
    lines = sorted({line for part, _ in parts for line in part.outcome.by_line})
    by_line = {line: _weighted([(part.outcome.by_line.get(line, {}), weight) for part, weight in parts], blocks) for line in lines}
    outcome = replace(first.outcome, counters=counters, by_line=by_line, sampled=True)
    return replace(first, outcome_or_simulate=outcome)


def _counted(kernel: Kernel, problem: Problem, blocks: Sequence[int]) -> Run:
    """Counters of a launch from these blocks, scaled to all as if these were like them."""
    shape, arrays = geometry(kernel), problem.zeros()
    given = launch_arguments(kernel, problem, *arrays)
    grid = shape.grid(problem.m, problem.n, problem.batch)
    data = functools.cache(functools.partial(_executable, kernel, problem))
    part = kernel.count(grid, shape.block, given.arguments, shape.shared, blocks=blocks, data=data)
    return _of_product(part, problem, shape, arrays, given)


def _executable(kernel: Kernel, problem: Problem) -> list[Any]:
    """Arguments of a launch on the problem's own numbers, as its passes leave them."""
    given = launch_arguments(kernel, problem, *problem.arrays())
    for one in given.passes:
        _pass(one, {})
    return given.arguments


def _weighted(parts: Sequence[tuple[dict[str, int], int]], blocks: int) -> dict[str, int]:
    """Each part was scaled to the whole grid as if all blocks were like its own: weigh it down to its class."""
    names = dict.fromkeys(name for counters, _ in parts for name in counters)
    return {name: round(sum(counters.get(name, 0) * weight for counters, weight in parts) / blocks) for name in names}


def _count_persistent(kernel: Kernel, problem: Problem, progress: Callable[[int, int], None] | None = None, place: float = 0.5) -> Run:
    """Counters of a large launch of a persistent kernel from one cluster, by the tiles of C that it computed. place: which one, 0 to 1.

    The grid is one in which each block has about `_COUNTED_WALK` tiles. Which tiles these are is the kernel's own decision, so they are
    found by what has changed in C. What a block does once, whatever its number of tiles, is thereby counted as if it were a part of each.
    """
    shape, arrays = geometry(kernel), problem.arrays()
    before = arrays[2].copy()
    many, size = _multiprocessors(shape, problem, _COUNTED_WALK), shape.cluster[0]
    first = int(place * (shape.grid(problem.m, problem.n, 1, many)[0] // size - 1)) * size
    options: dict[str, Any] = {"multiprocessors": many, "progress": progress, "seconds": _SECONDS_TO_COUNT}
    blocks = range(first, first + size)
    done = run(kernel, problem, on="cpu", arrays=arrays, findings=False, blocks=blocks, **options)
    changed = (arrays[2].view(np.uint8) != before.view(np.uint8)).reshape(problem.m, problem.ldc, problem.result.bytes).any(axis=2)
    found, whole = len(_tiles(changed[:, : problem.n], shape.tile)), math.prod(shape.tiles(problem.m, problem.n))
    which = f"blocks {first} to {blocks[-1]}" if size > 1 else f"block {first}"
    if shape.parts > 1:  # who shares tiles leaves some of them to others
        factor, part = 1.0, "without what the last block of a tile adds up"
    elif found:
        factor = whole / found * len(blocks) / done.grid[0]
        part = f"which computed {found} of {whole} tiles"
    else:
        raise CourseError(f"Blocks {blocks[0]} to {blocks[-1]} of {kernel.name} compute no tile of {problem}: there is nothing to count.")

    def scaled(counters: dict[str, int]) -> dict[str, int]:
        return {name: round(value * factor) for name, value in counters.items()}

    by_line = {line: scaled(counters) for line, counters in done.outcome.by_line.items()}
    said = f"in {which}, {part}, and scaled up. The grid for counting has {done.grid[0]} blocks."
    outcome = replace(done.outcome, counters=scaled(done.outcome.counters), by_line=by_line)
    return replace(done, grid=shape.grid(problem.m, problem.n), outcome_or_simulate=outcome, problem={**done.problem, "counted": said})


# ---------------------------------------------------------------------------------------------------- check


def run_sample(
    kernel: Kernel,
    sample: SampledProblem,
    seconds: float = 60.0,
    progress: Callable | None = None,
    walked: int = _VERIFIED_WALK,
    findings: bool = True,
) -> tuple[Run, str, str]:
    """Execute the blocks of a sample in the SIMT machine, on random data. walked: tiles that each computes of a persistent kernel.

    (The run; '' or what is wrong in its C; '' or how what the blocks have written is not their share of C.) Raises what `run` raises.
    """
    sample, shape = fitted(kernel, sample), geometry(kernel)
    shape = replace(shape, multiprocessors=_multiprocessors(shape, sample, walked))
    blocks = _blocks(shape, sample)
    arrays = sample.arrays()
    before = tuple(array.copy() for array in arrays)
    options: dict[str, Any] = {"multiprocessors": shape.multiprocessors, "seconds": seconds, "progress": progress, "findings": findings}
    done = run(kernel, sample, on="cpu", arrays=arrays, counters=False, blocks=blocks, **options)
    return done, *_compare_sample(sample, shape, blocks, before, arrays)


def _multiprocessors(shape: Geometry, problem: Problem, walked: int) -> int:
    """Of a GPU on which each persistent block computes about so many tiles: small products do not fill a real one, and large ones take
    long. Enough for all parts of a tile at one time: they may wait for each other, as on a real one."""
    blocks = shape.persistent or 1
    together = math.ceil(shape.parts * shape.cluster[0] / blocks)
    return max(together if shape.parts > 1 else 1, math.prod(shape.tiles(problem.m, problem.n)) // (walked * blocks))


def _blocks(shape: Geometry, sample: SampledProblem) -> list[int]:
    """The linear indices of the blocks at the sample's places, all z of them, and of the clusters that these belong to.

    Of a persistent kernel whose blocks have no place: as many clusters as there are places, spread over the grid.
    """
    across, down, deep = grid = shape.grid(sample.m, sample.n, sample.batch)
    if shape.persistent is not None:
        size = shape.cluster[0]
        columns = shape.tiles(sample.m, sample.n)[0]
        chosen = {(y * columns + x) % (across // size) for x, y in sample.places}
        return [size * cluster + rank for cluster in sorted(chosen) for rank in range(size)]
    blocks = [(z * down + y) * across + x for z in range(deep) for x, y in dict.fromkeys(sample.places)]
    return clusters.whole(blocks, grid, shape.cluster) if math.prod(shape.cluster) > 1 else blocks


def count_sample(kernel: Kernel, sample: SampledProblem) -> Run:
    """Counters of the sample's blocks, scaled to all. The blocks of one place are those of all z; of a persistent kernel see `count`."""
    sample, shape = fitted(kernel, sample), geometry(kernel)
    if shape.persistent is not None:
        return _count_persistent(kernel, sample, place=sample.places[0][0] / shape.tiles(sample.m, sample.n)[0])
    return _counted(kernel, sample, _blocks(shape, sample))


def _compare_sample(sample: SampledProblem, shape: Geometry, blocks: Sequence[int], before, after) -> tuple[str, str]:
    """As `compare`, for the blocks that were executed: (what is wrong, what is missing). Written is what is not what it was, and in the
    tiles in which something was, what was right already."""
    tile = shape.tile
    if text := compare_others(sample, before, after):
        return text, ""
    bits = f"u{after[2].itemsize}"
    written = (before[2].view(bits) != after[2].view(bits))[:, : sample.n]
    whole = touched = elements = 0
    left, right = sample.factors(before[0], before[1])
    for y, x in _tiles(written, tile):
        rows, columns = slice(y * tile[0], min((y + 1) * tile[0], sample.m)), slice(x * tile[1], min((x + 1) * tile[1], sample.n))
        mine = written[rows, columns]
        part = replace(sample, m=mine.shape[0], n=mine.shape[1], places=())
        mine_of = left[rows], right[:, columns], before[2][rows, columns]
        value, bound = part.expected_of(*mine_of, bias=sample.bias()[columns])
        got = after[2][rows, columns].astype(np.float64)
        mine = mine | (np.abs(before[2][rows, columns].astype(np.float64) - value) <= bound)
        if text := first_difference(mine & ~(np.abs(got - value) <= bound), got, value, rows.start, columns.start):
            return text, ""
        if mine.all() and (text := inexact(part, got, value, mine_of)):
            return text, ""
        touched, whole, elements = touched + 1, whole + bool(mine.all()), elements + int(mine.sum())
    fair = _fair(shape, sample, blocks)
    if (whole == touched and touched in fair) or (
        elements == fair[0] * tile[0] * tile[1] and not (sample.m % tile[0] or sample.n % tile[1])
    ):
        return "", ""
    where = named_blocks(sample.places) if len(blocks) == len(sample.places) else f"{len(blocks)} blocks"
    return "", (
        f"{where} should compute {fair[0]} tiles of {tile[0]} × {tile[1]} elements of C and wrote "
        f"{elements} elements (in {touched} tiles, {whole} of them whole)."
    )


def _fair(shape: Geometry, sample: SampledProblem, blocks: Sequence[int]) -> range:
    """How many tiles these blocks of the sample may have computed, when each does its share."""
    (across, down), grid = shape.tiles(sample.m, sample.n), shape.grid(sample.m, sample.n, sample.batch)
    if shape.persistent is not None:  # a cluster has its share of places, with one tile at least: the others may lie outside
        size, tiles = shape.cluster[0], across * down
        clusters_run, clusters_all = len(blocks) // size, grid[0] // size
        return range(clusters_run * (-(-tiles // size) // clusters_all), clusters_run * size * -(-tiles // clusters_all) + 1)
    places = {(number % grid[0], number // grid[0] % grid[1]) for number in blocks}
    inside = sum(x < across and y < down for x, y in places)  # some of a cluster lie outside
    return range(inside, inside + 1)


def _tiles(written: np.ndarray, tile: tuple[int, int]) -> list[tuple[int, int]]:
    """(row, column) of the tiles in which something was written."""
    rows = np.logical_or.reduceat(written, np.arange(0, written.shape[0], tile[0]), axis=0)
    return [(int(y), int(x)) for y, x in np.argwhere(np.logical_or.reduceat(rows, np.arange(0, written.shape[1], tile[1]), axis=1))]


@explained
@printout.together()
def check(
    kernel: Kernel,
    problems: Iterable[Problem] | Problem | None = None,
    on: str | None = None,
    seconds: float = 60.0,
    progress: Callable[[int, int], None] | None = None,
    seed: int | None = None,
    patience: float = PATIENCE,
    whole: bool = False,
) -> CheckReport:
    """Run `kernel` on adversarial problems and compare with the specification; collect findings from the SIMT machine.

    problems: by default those of `adversarial`, of `drawn`, of `of_any_alignment` and `of_any_end` for a kernel that `takes_several`,
    those that are `not_finite`, and the one `beyond_16_bits`.
    seed: draws the same as the check that reported it. With a GPU
    (on='gpu' or None there) results are checked on the GPU as well. progress: called with (problems done, in all).
    seconds: the most that one problem may take in the SIMT machine. A shape that does not end in the time that small ones
    need ends the check: the others would not end either. patience: seconds that a small shape may always take.
    Where there are findings, they are collected from the shapes of the first seconds; of all others the results alone are compared then.
    The longest of the shapes drawn, or one with K `beyond_16_bits`, which comes last where nothing else was wrong and native code has
    executed the longest, is put off where native code notices something in it, because the NumPy machine takes long to
    say what; if the other shapes have findings, it is not tried before these are gone. whole: it is tried all the same.
    Where all of its own shapes are right, it is asked besides whether each of many tiles is one of a block's (`_unreached_tiles`), and a
    remark says whether an index of 32 bits is too short for matrices of 2^32 elements (`_of_far_rows`).
    """
    _need("check", kernel)
    if not (seed is None or (isinstance(seed, int) and seed >= 0)) or not isinstance(seconds, numbers.Real):
        raise LaunchError(f"check(seed={seed!r}, seconds={seconds!r}): both are numbers, and the seed is one that a check has named.")
    if not isinstance(patience, numbers.Real) or not (progress is None or callable(progress)):
        raise LaunchError(f"check(patience={patience!r}, progress={progress!r}): seconds, and a function of (problems done, in all).")
    if not isinstance(whole, bool):
        raise LaunchError(f"check(whole={whole!r}): write True or False.")
    if problems is None:
        seed = secrets.randbits(16) if seed is None else seed
        wide = (*of_any_alignment(kernel, seed), *of_any_end(kernel, seed)) if takes_several(kernel) else ()
        fixed, random = (
            [laid_out(kernel, problem) for problem in some]
            for some in (adversarial(geometry(kernel).tile, *types(kernel)), [*drawn(kernel, seed), *wide, *not_finite(kernel, seed)])
        )
        last = [] if line_of_16_bits(kernel.source) else [beyond_16_bits(kernel, seed + 1)]
    else:
        fixed, random, last, seed = list(problems) if isinstance(problems, Iterable) else [problems], [], [], None
        _need("check", kernel, *fixed)
        if not fixed:
            raise LaunchError("check was given no problem, and nothing is right because nothing was tried. Leave problems out for its own.")
    problems = [*fixed, *random, *last]
    if seed is not None and (case := _waits_for_the_grid(kernel)) is not None:
        return CheckReport(kernel.name, (case,), (), source=kernel.source, untried=len(problems), seed=seed)
    watched = _watched(kernel)
    # The first shape shows that the kernel ends. The one with the longest loop comes next: native code that is made for it serves others.
    order = sorted(range(len(problems)), key=lambda i: (i > 0, i != len(fixed), i))
    cases: dict[int, Case] = {}
    findings: dict[tuple, Finding] = {}
    used = "cpu"
    left, results_alone, begun, far = _Left(), 0, time_limit.now(), ""
    longest, put_off = len(fixed), False
    furthest, engine = len(problems) - 1 if last else None, ""
    beyond: _Beyond | None = None  # what blocks store beyond their tile: asked of those that run alone
    asked = kernel  # of which samples are
    while order and not (put_off and findings and order == [longest] and not results_alone):
        index = order.pop(0)
        problem = problems[index]
        if index == furthest and (engine != "native" or findings or any(case.message for case in cases.values())):
            furthest = None  # it would take long, or say nothing new
            problems.pop()
            continue
        if seed is not None and beyond is None and isinstance(problem, SampledProblem):
            beyond = _beyond_tile(kernel, seed)  # else blocks of a sample would not do what tile_shape says, and all of it would run
            blocks_alone = [at for at, other in enumerate(problems) if isinstance(other, SampledProblem)]
            others = [other for other in drawn(beyond.kernel, seed) if isinstance(other, SampledProblem)]
            if beyond.kernel is not kernel and len(others) == len(blocks_alone):
                asked = beyond.kernel
                for at, other in zip(blocks_alone, others, strict=True):
                    problems[at] = other
                problem = problems[index]
        tell = functools.partial(_tell, progress, len(cases), len(problems))
        tell()
        start = time_limit.now()
        by_chance = index >= len(fixed)
        # A batch is of small products, and a narrow counter counts for ever what others count in a moment.
        long = by_chance and problem.batch == 1 and not (index == longest and counts_to_k(kernel.source))
        explain = whole or index not in (longest, furthest) or put_off
        mine = asked if isinstance(problem, SampledProblem) else kernel
        one = functools.partial(_check_one, mine, problem, "cpu", seconds if long else min(seconds, patience), tell, seconds, left)
        alone = bool(results_alone or (findings and start - begun > _ENOUGH))
        try:
            case, found = one(explain=explain, collect=not alone)
            results_alone += alone
        except UnexplainedError:
            put_off, longest = True, index
            order.append(index)
            continue
        except SlowedError as error:
            results_alone = 1  # of this one and of all that follow
            case, found = one(collect=False)
            found += error.findings
        if index == longest:
            engine = left.engine
        if not by_chance:
            patience = max(patience, _SLOWER * (time_limit.now() - start))
        for finding in found:
            findings.setdefault((finding.kind, finding.line, finding.other_line, finding.array), finding)
        told = case.message or _ENDLESS_BEHIND in case.remark
        if not told and on != "cpu" and not isinstance(problem, ShiftedProblem):  # what goes to a GPU is not shifted there
            if place(on, kernel) == "gpu":
                case, _ = _check_one(kernel, problem, "gpu", seconds)
                used = "gpu"
        cases[index] = replace(case, drawn=by_chance)
        if any(finding.kind == "endless" for finding in found):
            break
    if seed is not None and len(cases) == len(problems) and not any(case.message for case in cases.values()):
        far = _of_far_rows(kernel, seed)
        beyond = _beyond_tile(kernel, seed) if beyond is None else beyond
        found_last = [beyond.case]
        if beyond.case is None or beyond.kernel is not kernel:  # else nobody can say which tiles its blocks reach
            found_last.append(_unreached_tiles(beyond.kernel, seed, seconds) or _waiting_of_many_tiles(kernel, seed, seconds))
        for one in filter(None, found_last):
            cases[len(problems)] = replace(one, drawn=True)
            problems.append(one.problem)
    if not watched:  # else the machine has seen what comes of it
        for line, name in used_unset(kernel.compiled.log):
            said = f"The compiler says that `{name}` is used before it has a value."
            advice = f"Give `{name}` a value where it is declared, for example `= 0`."
            findings.setdefault(("uninitialized", line, None, ""), Finding("uninitialized", line, said, advice=advice))
    waiting = problems[longest] if put_off and order == [longest] else None
    untried = len(problems) - len(cases) - (waiting is not None)
    in_order = tuple(_told(kernel, [cases[index] for index in sorted(cases)]))
    return CheckReport(
        kernel.name, in_order, tuple(findings.values()), on=used, source=kernel.source, untried=untried, seed=seed, waiting=waiting,
        results_alone=results_alone, remarks=tuple(filter(None, (taken_for_bias(kernel), far))),
    )  # fmt: skip


def _waits_for_the_grid(kernel: Kernel) -> Case | None:
    """What is wrong with grid.sync() in a kernel whose grid grows with C, or None: all of its blocks have to be on the GPU at once."""
    shape, program = geometry(kernel), program_of(kernel)
    if shape.persistent is not None or program is None or not program.grid_workspace:
        return None
    problem, most = problem_for(kernel, _LADDER, _LADDER, _LADDER), kernel.resident(shape.block, shape.shared)
    blocks = math.prod(shape.grid(problem.m, problem.n))
    if most is None or blocks <= most:
        return None
    line = next((number for number, text in enumerate(kernel.source.splitlines(), 1) if re.search(r"\bthis_grid\b", text)), None)
    return Case(
        problem,
        "The blocks of this kernel wait for each other (grid.sync()), so all of them have to be on the GPU at once. There is one for each "
        f"tile of C, and of {blocks:,} blocks no more than {most:,} fit, also on the largest GPU of this architecture: it cannot be "
        "launched. Leave grid.sync() out, or let as many blocks as fit walk the tiles (`persistent`).",
        line,
    )


def _unreached_tiles(kernel: Kernel, seed: int, seconds: float) -> Case | None:
    """What is wrong with the order in which blocks take many tiles, or None. Where the machine code does not tell, blocks that are powers
    of two apart compute theirs. Of a kernel that walks the tiles nobody asks."""
    problem = many_tiles(kernel, seed)
    if problem is None:
        return None
    text = unreached(kernel, problem)
    if text:
        return Case(problem, text)
    if text is not None:
        twice = taken_twice(kernel, seed)
        return Case(*twice) if twice else None
    for sample in (tiles_apart(kernel, other, other.k) for other in thin(kernel, seed)):
        case, _ = _check_sample(kernel, sample, seconds, None, False)
        if case.message:
            return case
    return None


def _of_far_rows(kernel: Kernel, seed: int) -> str:
    """What is wrong with a product of which one matrix has its rows so `far_apart`, as a sentence; '' where it is right, and where this
    computer cannot tell."""
    for name, near, far in far_apart(kernel, step_along_k(kernel), seed):
        before = near.arrays()
        try:
            arrays = spread(far, before)
            run(kernel, far, "cpu", arrays, counters=False, findings=False, seconds=PATIENCE)
        except RunError as error:
            if not any(finding.kind == "out-of-bounds" for finding in error.findings):
                return ""
            wrong = error.message
        except (MemoryError, CourseError):
            return ""
        else:
            got, (value, bound) = np.array(arrays[2][:, : near.n], np.float64), near.expected(*before)
            wrong = first_difference(~(np.abs(got - value) <= bound), got, value)
            wrong += f" Multiply the number of a row by ld{name.lower()} in size_t." if wrong else ""
        if wrong:
            row = far.stored["ABC".index(name)].pitch
            return f"{name} is too large for an index of 32 bits where ld{name.lower()} is {row:,}. Smaller matrices are right. {wrong}"
    return ""


@dataclass(frozen=True)
class _Beyond:
    """What blocks store beyond the tile that tile_shape says: a remark on it, or None, and the kernel with the tile that a block stores
    to, where that is a rectangle; else the kernel itself."""

    case: Case | None
    kernel: Kernel


def as_stored(kernel: Kernel, seed: int) -> Kernel:
    """The kernel as if tile_shape said what a block stores to, where it says less; else the kernel itself."""
    return _beyond_tile(kernel, seed).kernel


def _beyond_tile(kernel: Kernel, seed: int) -> _Beyond:
    """Whether the first block, or those of the first cluster, store to more of C than the tiles that tile_shape says. Nothing is said of
    blocks that walk the tiles or share one, and where they cannot be run alone."""
    shape = geometry(kernel)
    (rows, columns), (x, y, _), size = shape.tile, shape.cluster, math.prod(shape.cluster)
    if shape.persistent is not None or shape.parts > 1 or (shape.depth or 1) > 1:
        return _Beyond(None, kernel)
    down, across = m, n = y * rows, x * columns
    while (down, across) != (0, 0) and (m == down or n == across) and max(m, n) <= MOST_IN_TILE * max(x, y):  # perhaps more yet
        m, n = m * (1 + (m == down)), n * (1 + (n == across))
        problem = fitted(kernel, problem_for(kernel, m, n, 1, seed=seed))
        arrays = problem.arrays()
        blocks = clusters.whole([0], shape.grid(m, n), shape.cluster) if size > 1 else [0]
        try:
            run(kernel, problem, "cpu", arrays, blocks=blocks, counters=False, findings=False, seconds=PATIENCE)
        except CourseError:
            return _Beyond(None, kernel)
        reached = ~np.isnan(arrays[2][:, : problem.n].astype(np.float64))  # it was NaN
        down, across = (int(reached.any(axis=axis).sum()) for axis in (1, 0))
    times = int(reached.sum()) / (size * rows * columns)
    if times <= 1:
        return _Beyond(None, kernel)
    who, each = ("a block stores", "") if size == 1 else (f"the {size} blocks of a cluster store", " for each")
    found = Case(
        problem,
        remark=f"tile_shape says {rows} × {columns} elements of C{each}, and {who} to {down} × {across}: there are {times:.3g} times as "
        "many blocks as C needs, and counters and times are those of all. Let tile_shape say what a block computes.",
    )
    whole = size == 1 and reached[:down, :across].all() and max(down, across) <= MOST_IN_TILE
    constants = {**kernel.compiled.constants, "tile_shape": (down, across)}
    return _Beyond(found, Kernel(replace(kernel.compiled, constants=constants)) if whole else kernel)


def _told(kernel: Kernel, cases: list[Case]) -> Iterable[Case]:
    """The cases; the first whose result is wrong names the line that stored its first wrong element, or says that none did."""
    place = next((index for index, case in enumerate(cases) if stored(case.message) and case.line is None), None)
    if place is not None and not isinstance(cases[place].problem, SampledProblem) and cases[place].problem.k <= DEEP[1]:
        with contextlib.suppress(CourseError):  # what cannot be run again is told as it is
            seen = _again(kernel, fitted(kernel, cases[place].problem))
            more = "" if seen.site is not None or not seen.known else f" No line has stored to it.{_left_of_tile(kernel)}"
            more += seen.bits or _by_columns(kernel) or seen.padding
            line, call = (None, None) if seen.site is None else (seen.site.line, seen.site.call)
            cases[place] = replace(cases[place], line=line, call=call, message=cases[place].message + more)
    failed = [index for index, case in enumerate(cases) if case.message]
    if failed and all(cases[index].problem.near_special_factors() for index in failed):  # then they are the cause
        first = cases[failed[0]]
        said = f" {first.problem.near_special_factors()} Is a factor compared with a tolerance? Compare with ==."
        cases[failed[0]] = replace(first, message=first.message + said)
    return [_with_narrow(kernel, case) for case in cases]


def _with_narrow(kernel: Kernel, case: Case) -> Case:
    """The case, with what has too few bits for what its message says. A counter that never gets to K needs no larger budget, and its line
    stands there."""
    said = _narrow(kernel, case.message)
    if said and MAY_BE_LARGE in case.message:
        return replace(case, message=case.message.replace(f" {MAY_BE_LARGE}", said), line=None)
    return replace(case, message=case.message + said)


def _narrow(kernel: Kernel, message: str) -> str:
    """What of a kernel has too few bits for what a message says of it, as sentences with a space before them; else ""."""
    if nearly(message):
        found = likely_causes.few_bits(kernel)
        said = found.said if found else few_bits(kernel.source, kernel.ptx)
    else:
        said = of_narrow_counter(kernel.source) if NEVER_ENDS in message else ""
    return f" {said}" if said else ""


_SQUARE = 512  # rows of a matrix on which it is tried whether a kernel takes them for columns: at most, where tiles shall divide them


def _by_columns(kernel: Kernel) -> str:
    """What is to be said of a kernel that takes rows of a matrix for columns, as a sentence with a space before it; else ""."""
    extent = math.lcm(*geometry(kernel).tile)
    if extent > _SQUARE:  # of a kernel that knows where C ends
        extent = max(geometry(kernel).tile)
    problem = fitted(kernel, problem_for(kernel, extent, extent, extent))
    arrays = problem.arrays()
    a, b = (np.array(matrix[0], np.float64) for matrix in problem.meant(*arrays[:2]))
    try:
        run(kernel, problem, on="cpu", arrays=arrays, multiprocessors=1, counters=False, findings=False)
    except CourseError:
        return ""
    if problem.scale_block or problem.beta:
        return ""
    bias = problem.bias().astype(np.float64) if problem.fused else None
    said = (problem.transa, problem.transb)
    return likely_causes.by_columns(a, b, arrays[2][:, :extent].astype(np.float64), problem.alpha, bias, said)


def _left_of_tile(kernel: Kernel) -> str:
    """What of a whole tile of C no thread stores to, if that is whole rows or columns, as a sentence with a space before it; else ""."""
    rows, columns = geometry(kernel).tile
    problem = problem_for(kernel, rows, columns, 1)
    arrays = problem.arrays()
    run(kernel, problem, on="cpu", arrays=arrays, multiprocessors=1, counters=False, findings=False)
    return likely_causes.left_of_tile(~np.isnan(arrays[2][:, :columns].astype(np.float64)))  # it was NaN


@dataclass(frozen=True)
class _Again:
    """What another run of a wrong problem shows: the last store or bulk copy to the first wrong element, and whether that is known; what
    sums in few bits and what reads of padding have to do with it, as sentences with a space before each."""

    site: TracedSite | None = None
    known: bool = False
    bits: str = ""
    padding: str = ""


def _again(kernel: Kernel, problem: Problem) -> _Again:
    """Run a problem again whose result is wrong, and look who stores what."""
    arrays = problem.arrays()
    before = tuple(array.copy() for array in arrays)
    few = _multiprocessors(geometry(kernel), problem, _CHECKED_WALK)
    seen = TraceFilter(spaces={"global"}, as_written=True)
    done = run(kernel, problem, on="cpu", arrays=arrays, multiprocessors=few, counters=False, findings=False, trace=seen)
    if (found := changed(problem, before, arrays)) is None:
        value, bound = problem.expected(*before)
        got = arrays[2][:, : problem.n].astype(np.float64)
        wrong = np.argwhere(wrong_ones(got, value, bound) & ~problem.as_good(got, value))
        found = (2, int(wrong[0][0]), int(wrong[0][1])) if len(wrong) else None
    trace = done.trace
    bits = padding = ""
    if found is not None and found[0] == 2:
        if (narrow := likely_causes.few_bits(kernel)) and likely_causes.wrong_by_little(problem, before, arrays, narrow.bits):
            bits = f" {narrow.said}"
        if np.isnan(arrays[2][:, : problem.n].astype(np.float64)).any():
            padding = _reads_padding(kernel, problem, before, trace)
    if found is None or trace.truncated:
        return _Again(bits=bits, padding=padding)
    which, row, column = found
    name = kernel.compiled.parameters[MATRICES[which]].name
    home = next((item for item in trace.allocations if item.name == name), None)
    if home is None:
        return _Again(bits=bits, padding=padding)
    length, size = problem.stored[which].pitch, arrays[which].itemsize
    element = home.base + (row * length + column) * size
    widths = np.array([site.width if site.op.changes else 0 for site in trace.sites] or [0])
    width = widths[trace.accesses["site"]][:, None]
    hits = ((trace.addresses >= 0) & (trace.addresses <= element) & (element < trace.addresses + width)).any(axis=1)
    stores = [(int(row["order"]), int(row["site"])) for row in trace.accesses[hits]]
    for copy in trace.copied_out:
        if ((copy.places >= 0) & (copy.places <= element) & (element < copy.places + copy.width)).any():
            stores.append((copy.order, copy.site))
    return _Again(trace.sites[max(stores)[1]] if stores else None, True, bits, padding)


def _reads_padding(kernel: Kernel, problem: Problem, before: Sequence[np.ndarray], trace: Trace) -> str:
    """Where a wrong product reads the padding of A or B, as a sentence with a space before it; "" where it does not."""
    for which, turned in enumerate((problem.transa, problem.transb)):
        if which and problem.scale_block:
            continue  # there it is 0
        name, (_, extent, pitch) = kernel.compiled.parameters[MATRICES[which]].name, problem.stored[which]
        if found := likely_causes.reads_padding(trace, name, extent, pitch, before[which].itemsize):
            line, row, column = found
            where, lines = (f"[{column}, {row}]", "columns") if turned else (f"[{row}, {column}]", "rows")
            return (
                f" Line {line}, “{quote(kernel.source, line)}”, reads the padding of {'AB'[which]}, NaN: element {where}, "
                f"where {lines} of {extent} begin {pitch} apart. Are they ld{'ab'[which]} apart there, and is what lies behind left out?"
            )
    return ""


def _watched(kernel: Kernel) -> bool:
    """Does the machine follow values that nobody has written? Reading the code here keeps that out of the time of the first shape."""
    program = program_of(kernel)
    return program is not None and bool(program.doubts.watched)


def _tell(progress: Callable[[int, int], None] | None, done: int, total: int, *_blocks: int) -> None:
    """A launch reports its blocks; the check goes by problems."""
    if progress:
        progress(done, total)


@dataclass
class _Left:
    """What the launches of a check so far have left in the kernel's global variables, the last of them for `problem`. None: nothing.
    turns: the orders in which blocks have not been run one after the other yet."""

    problem: Problem | None = None
    variables: bytes | None = None
    engine: str = ""  # that executed the last one
    turns: list[str] = field(default_factory=lambda: [DOWNWARDS, UPWARDS])


def _check_one(
    kernel: Kernel, problem: Problem, on: str, seconds: float, progress: Callable | None = None, at_most: float = 0.0,
    left: _Left | None = None, explain: bool = True, collect: bool = True,
) -> tuple[Case, list[Finding]]:  # fmt: skip
    """Run one problem and compare; where the kernel leaves something behind in its global variables, a second time. The first two
    such problems run block after block then, upwards and downwards, on other data: blocks that share work must not depend on all running
    at the same pace, nor on those with lower numbers coming first.

    at_most: seconds in which to try again where the first time was over before a thread ran: that a busy machine is slow to
    prepare a kernel says nothing of the kernel. left: by other launches, which the second one then comes after. explain: as
    `Kernel.launch` has it, which False lets raise UnexplainedError. collect: findings, where SlowedError says that they took all the time.
    """
    problem, left = fitted(kernel, problem), left or _Left()
    if isinstance(problem, SampledProblem) and on == "cpu":
        return _check_sample(kernel, problem, seconds, progress, collect)
    arrays = problem.arrays()
    before, first = problem.copies(arrays), problem.copies(arrays)
    few = _multiprocessors(geometry(kernel), problem, _CHECKED_WALK)
    options: dict[str, Any] = {"multiprocessors": few, "seconds": seconds, "progress": progress, "explain": explain, "findings": collect}
    try:
        done = run(kernel, problem, on=on, arrays=first, counters=False, **options)
        left.engine = done.outcome.engine if on == "cpu" else ""
        if text := _with_hints(compare(problem, before, first), done, on):
            if _is_of_one_product(kernel, problem, before, first):
                return Case(problem, remark=f"{kernel.name} computes one product: {_ONLY_FIRST}"), done.findings if on == "cpu" else []
            return Case(problem, text + (f" {_of_batches(problem)}" if problem.batch > 1 else "")), done.findings if on == "cpu" else []
        state = None if on == "gpu" else left.variables or done.outcome.globals_after
        if on == "gpu" or state is not None:
            in_turn = left.turns.pop() if on == "cpu" and left.turns else ""
            if in_turn:  # with other data: what the first launch left must not pass for what this one does
                problem = replace(problem, seed=problem.seed + 1)
                arrays = problem.arrays()
                before = problem.copies(arrays)
            again = run(kernel, problem, on=on, arrays=arrays, counters=False, globals_before=state, in_turn=in_turn, **options)
            if text := compare(problem, before, arrays):
                after = f"launched after {left.problem}, it" if left.variables else "the second launch"
                return Case(problem, f"{after} is wrong: {text} {_IN_TURN if in_turn else _STATE}"), again.findings if on == "cpu" else []
            if on == "cpu":
                left.problem, left.variables = problem, again.outcome.globals_after or state
                done = done if done.findings else again
    except (LaunchError, UnexplainedError, SlowedError):
        raise
    except NotBegunError as error:
        if at_most <= seconds:
            return Case(problem, error.message, error.line), []
    except CourseError as error:
        found = list(getattr(error, "findings", []))
        if any(finding.kind == "endless" for finding in found) and _ends_for_one_product(kernel, problem, before):
            others = [finding for finding in found if finding.kind != "endless"]
            return Case(problem, remark=f"{kernel.name} computes one product: {_ENDLESS_BEHIND}"), others
        return Case(problem, error.message, error.line), found
    else:
        return Case(problem), done.findings if on == "cpu" else []
    return _check_one(kernel, problem, on, at_most, progress, left=left, explain=explain, collect=collect)


def _with_hints(wrong: str, done: Run, on: str) -> str:
    """What is wrong, and what may be why, as far as the machine has seen it. "" where nothing is wrong."""
    return " ".join([wrong, *done.outcome.hints]) if wrong and on == "cpu" else wrong


def _waits(kernel: Kernel) -> bool:
    """May a loop of the kernel end by what another block writes?"""
    if (program := program_of(kernel)) is None:
        return False
    graph = [block.successors for block in program.blocks]
    looks = {
        site.pc for site in program.sites
        if (site.volatile or site.atomic) and site.space in ("global", "generic") and site.index in program.decisive
    }  # fmt: skip
    return any(looks.intersection(block.ops) and cfg.loop_around(graph, block.index) for block in program.blocks)


def _waiting_of_many_tiles(kernel: Kernel, seed: int, seconds: float) -> Case | None:
    """A kernel whose slices wait for each other, on more tiles than small tables of flags have, its blocks one after the other in an order
    of no kind: the slices of a tile must not go on because of what those of another one have done. A remark where a block waits for one of
    a higher number. None where there is nothing to say, of other kernels, and where it takes too long."""
    shape = geometry(kernel)
    if shape.persistent is not None or (shape.depth or 1) < 2 or math.prod(shape.cluster) > 1 or not _waits(kernel):
        return None
    (rows, columns), random = shape.tile, np.random.default_rng(seed)
    across, down = (int(random.integers(9, 13)) for _ in range(2))
    make = functools.partial(problem_for, kernel, k=2 * (shape.depth or 1), seed=seed)
    problem, small = (fitted(kernel, make(rows * y, columns * x)) for x, y in ((across, down), (2, 1)))
    options: dict[str, Any] = {"counters": False, "seconds": seconds}
    arrays = problem.arrays()
    before = problem.copies(arrays)
    try:
        run(kernel, problem, "cpu", arrays, findings=False, in_turn=SHUFFLED, **options)
        alone = run(kernel, small, "cpu", in_turn=ALONE, **options)
    except CourseError:
        return None
    if text := compare(problem, before, arrays):
        return Case(problem, f"{text} {_OTHER_TILES}")
    later = next((one for one in alone.findings if one.kind == "endless"), None)
    return Case(problem, remark=str(later)) if later else None


_OTHER_TILES = (
    "Its blocks ran one after the other, in any order, as far as each got: the slices of a tile may wait for each other alone. Has each "
    "tile a flag or a counter of its own?"
)


def _is_of_one_product(kernel: Kernel, problem: Problem, before, after) -> bool:
    """Is a batch wrong because the kernel looks at z for its slices alone? Then the first product is right, and the others untouched."""
    if problem.batch == 1 or geometry(kernel).depth == 1:
        return False
    one = replace(problem, batch=1)
    firsts = [[array[: of.rows] for array, of in zip(arrays, one.stored, strict=True)] for arrays in (before, after)]
    return not compare(one, *firsts) and before[2][one.m :].tobytes() == after[2][one.m :].tobytes()


def _ends_for_one_product(kernel: Kernel, problem: Problem, before) -> bool:
    """Does a batch never end because the kernel's slices wait for a blockIdx.z that a product's own blocks alone have? Then the blocks of
    the first product end, with that right and the others untouched."""
    if problem.batch == 1 or geometry(kernel).depth == 1:
        return False
    after = problem.copies(before)
    with contextlib.suppress(CourseError):  # these do not end either
        across, down, deep = geometry(kernel).grid(problem.m, problem.n)
        run(kernel, problem, "cpu", after, counters=False, findings=False, blocks=range(across * down * deep), seconds=PATIENCE)
        return _is_of_one_product(kernel, problem, before, after)
    return False


def _of_batches(problem: Problem) -> str:
    """Where the matrices of a batch lie, as a sentence."""
    of_a, of_b = "K" if problem.transa else "M", "N" if problem.transb else "K"
    return (
        "(A kernel that states grid_depth computes batches: blockIdx.z / grid_depth is the number of a block's product, and the matrices "
        f"of each product lie {of_a} * lda, {of_b} * ldb and M * ldc elements behind those of the one before.)"
    )


_ONLY_FIRST = "of a batch, it writes the first and leaves the others as they were."
_ENDLESS_BEHIND = "of a batch, its blocks end for the first alone; those of the others, whose blockIdx.z is grid_depth and more, never do."


def _check_sample(
    kernel: Kernel, sample: SampledProblem, seconds: float, progress: Callable | None, collect: bool
) -> tuple[Case, list[Finding]]:
    """Run the blocks of a sample. Blocks that share the work in another way than by tiles are run all, and then C must be right; of those
    that wait for one another all have to run, and take turns, on fewer tiles where it is many blocks that share each."""
    whole = sample.whole()
    try:
        done, wrong, missing = run_sample(kernel, sample, seconds, progress, _CHECKED_WALK, collect)
    except LaunchError:  # they wait for one another
        (rows, columns), parts = geometry(kernel).tile, geometry(kernel).parts
        most = max(_FEWEST_SHARED, math.isqrt(_SHARES // parts))
        whole = replace(whole, m=min(whole.m, most * rows), n=min(whole.n, most * columns))
        return _check_one(kernel, whole, "cpu", seconds, progress, collect=collect)
    except SlowedError:
        raise
    except CourseError as error:
        return Case(sample, error.message, error.line), list(getattr(error, "findings", []))
    if missing and not wrong:
        case, found = _check_one(kernel, whole, "cpu", seconds, progress, collect=collect)
        endless = any(finding.kind == "endless" for finding in found)
        return (Case(sample, missing), done.findings) if endless else (case, found)
    return Case(sample, wrong), done.findings


_STATE = "What a launch leaves in __device__ variables is still there in the next one, and they must not depend on it."
_IN_TURN = (
    f"{_STATE} And its blocks ran one after the other, each as far as it got: they may run in any order, so who needs what "
    "another block leaves has to wait for it."
)
