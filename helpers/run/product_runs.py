"""A kernel's product as it runs, on the GPU or in the machine: launched with its own geometry, counted at any size, or in samples of its
blocks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from helpers.arguments import explained
from helpers.errors import CourseError, LaunchError, RunError
from helpers.sim import Trace, TraceFilter
from helpers.sim.machine import cluster as clusters

from .differences import compare_others, first_difference, inexact
from .geometry import Geometry, geometry, taken_for_bias
from .kernel import Kernel, Run, gpu_multiprocessors, place
from .launch_arguments import LaunchArguments, launch_arguments
from .own_products import MATRICES, fitted
from .passes import Pass
from .problem import Problem, SampledProblem, named_blocks

_LONG_LOOP, _MANY_FMAS = 500, 1 << 23  # elements of K, and all FMAs, from which the NumPy machine takes seconds
_COUNTED_WHOLE = 1 << 30  # operations of a product up to which all blocks of a persistent kernel are counted
CHECKED_WALK, _COUNTED_WALK, _VERIFIED_WALK = 3, 2, 1  # tiles that each block of a persistent kernel computes, about
_SECONDS_TO_COUNT = 300.0  # that one cluster of a larger one may take
_SHORT = 128  # elements of K whose tiles say all about how a kernel loads
_LOW = 1024  # rows of C that do; a multiple of every tile's


@explained
def run(kernel: Kernel, problem: Problem, on: str | None = None, arrays=None, multiprocessors: int | None = None, **options) -> Run:
    """Launch `kernel` on `problem` with its own geometry. Options are those of `Kernel.launch`.

    The Run carries the problem as `run.problem`. arrays: (A, B, C) to use instead of `problem.arrays()`. multiprocessors: that a
    persistent kernel's grid is to fill; by default those of the GPU, or of the one that the SIMT machine is.
    Raises LaunchError for an empty C (there is nothing to launch) or other than three arrays, and what `Kernel.launch` raises.
    """
    need("run", kernel, problem)
    shape, on = geometry(kernel), place(on, kernel)
    problem = fitted(kernel, problem)
    if not problem.m or not problem.n:
        raise LaunchError(f"C is empty ({problem.m} × {problem.n}): there is nothing to launch.")
    if problem.batch > 1 and shape.depth is None:
        raise LaunchError(f"{kernel.name} computes one product; launch it once for each of the {problem.batch}. (Step 12 takes a batch.)")
    a, b, c = problem.arrays() if arrays is None else _three(kernel, arrays, problem)
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


def need(verb: str, kernel: Kernel, *problems: Problem) -> None:
    """Raise LaunchError where that is no kernel, or these are no problems."""
    if not isinstance(kernel, Kernel):
        getattr(kernel, "compiled", None)  # a cell that did not compile answers with what its compiler said
        raise LaunchError(f"{verb} wants a kernel, as helpers.compile or a %%cuda cell makes it, not {type(kernel).__name__}.")
    if strange := [problem for problem in problems if not isinstance(problem, Problem)]:
        raise LaunchError(f"{verb} wants Problems, such as gemm.Problem(64, 64, 64), and was given {strange[0]!r}.")


def _three(kernel: Kernel, arrays: Any, problem: Problem) -> tuple[Any, Any, Any]:
    """A, B and C, as they were given. Raises LaunchError where these are not three, of other extents, and for what the kernel cannot be
    given."""
    given = tuple(arrays) if isinstance(arrays, Iterable) and not isinstance(arrays, (np.ndarray, str)) else ()
    if len(given) != 3:
        raise LaunchError("arrays: give the three arrays A, B and C, such as arrays=(a, b, c).")
    a, b, c = (kernel.checked_at(place, array) for place, array in zip(MATRICES, given, strict=True))
    for name, array, of in zip("ABC", (a, b, c), problem.stored, strict=True):
        rows = problem.batch * of.rows
        if rows > 1 and array.ndim == 2 and array.shape[1] != of.pitch and array.size >= (rows - 1) * of.pitch + of.columns:
            raise LaunchError(
                f"{name} is {array.shape[0]} × {array.shape[1]}, and of {problem} it has {rows} rows of {of.pitch} elements, "
                f"ld{name.lower()}. Where rows are further apart than they are long, say by how much: pad_{name.lower()}."
            )
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
    first_tiles = functools.partial(_first_tiles, done.kernel, problem)
    return replace(done, problem=product, first_tiles=first_tiles, remarks=told, passes=tuple(passes))


def _first_tiles(kernel: Kernel, problem: Problem) -> Trace:
    """The global accesses of four warps of the middle block, in the first rounds of their loops, on made-up data: of a product of fewer
    rows, since whole matrices would have to be made first, which end as theirs do. A kernel that is for squares alone has those."""
    short, whole = min(problem.k, _SHORT), problem.m
    rows = whole % _LOW + _LOW if whole > 2 * _LOW and problem.batch == 1 else whole
    try:
        some = problem.shallow(short, rows)  # the rows stay as far apart as they are
        return _tiles_of_middle(kernel, some, some.zeros())
    except RunError:
        return _tiles_of_middle(kernel, problem.shallow(short), problem.zeros())


def _tiles_of_middle(kernel: Kernel, problem: Problem, arrays) -> Trace:
    middle = math.prod(geometry(kernel).grid(problem.m, problem.n, problem.batch)) // 2
    seen = TraceFilter(blocks={middle}, warps={0, 1, 2, 3}, iterations=range(4), spaces={"global"})
    return run(kernel, problem, on="cpu", arrays=arrays, blocks=[middle], trace=seen, counters=False, findings=False).trace


def count(kernel: Kernel, problem: Problem, progress: Callable[[int, int], None] | None = None) -> Run:
    """Counters of a whole launch, large ones from some of its blocks (then `run.sampled` is true).

    Of a kernel with one block per tile, one block of each class (`Geometry.classes`), and where slices share a tile those of one tile,
    stands for all of it, so for kernels whose blocks differ only by the edges they touch the result equals a full simulation. Of a
    persistent kernel the middle cluster is counted, by the tiles that it computed (see `_count_persistent`), which
    `run.problem["counted"]` says. Small launches are simulated whole.
    (Step 11 numbers its blocks anew, so that a block at the edge of the grid need not be one at the edge of C: where tiles divide C, that
    makes no difference.)
    """
    need("count", kernel, problem)
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
    """Arguments of a launch on numbers, as its passes leave them."""
    given = launch_arguments(kernel, problem, *problem.repeated())
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
    shape, arrays = geometry(kernel), problem.repeated()
    before = arrays[2].copy()
    many, size = few_multiprocessors(shape, problem, _COUNTED_WALK), shape.cluster[0]
    first = int(place * (shape.grid(problem.m, problem.n, 1, many)[0] // size - 1)) * size
    options: dict[str, Any] = {"multiprocessors": many, "progress": progress, "seconds": _SECONDS_TO_COUNT}
    blocks = range(first, first + size)
    done = run(kernel, problem, on="cpu", arrays=arrays, findings=False, blocks=blocks, **options)
    found, whole = len(_tiles(_written(before, arrays[2], problem.n), shape.tile)), math.prod(shape.tiles(problem.m, problem.n))
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
    explain: bool = True,
) -> tuple[Run, str, str]:
    """Execute the blocks of a sample in the SIMT machine, on random data. walked: tiles that each computes of a persistent kernel.
    explain: as `Kernel.launch` has it.

    (The run; '' or what is wrong in its C; '' or how what the blocks have written is not their share of C.) Raises what `run` raises.
    """
    sample, shape = fitted(kernel, sample), geometry(kernel)
    shape = replace(shape, multiprocessors=few_multiprocessors(shape, sample, walked))
    blocks = _blocks(shape, sample)
    arrays = sample.arrays()
    before = tuple(array.copy() for array in arrays)
    options: dict[str, Any] = {"seconds": seconds, "progress": progress, "findings": findings, "explain": explain, "blocks": blocks}
    done = run(kernel, sample, on="cpu", arrays=arrays, multiprocessors=shape.multiprocessors, counters=False, **options)
    return done, *_compare_sample(sample, shape, blocks, before, arrays)


def few_multiprocessors(shape: Geometry, problem: Problem, walked: int) -> int:
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
    written = _written(before[2], after[2], sample.n)
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
    if shape.persistent is not None:  # a cluster has its share of places, each with as many tiles side by side as are inside
        size, clusters_run, clusters_all = shape.cluster[0], len(blocks) // shape.cluster[0], grid[0] // shape.cluster[0]
        each = -(-across // size) * down / clusters_all
        return range(clusters_run * math.floor(each) * (across % size or size), clusters_run * math.ceil(each) * size + 1)
    places = {(number % grid[0], number // grid[0] % grid[1]) for number in blocks}
    inside = sum(x < across and y < down for x, y in places)  # some of a cluster lie outside
    return range(inside, inside + 1)


def _written(before: np.ndarray, after: np.ndarray, columns: int) -> np.ndarray:
    """Which elements of so many columns are not what they were, bit by bit: NaN is unlike itself."""
    bits = f"u{after.itemsize}"
    return (before.view(bits) != after.view(bits))[:, :columns]


def _tiles(written: np.ndarray, tile: tuple[int, int]) -> list[tuple[int, int]]:
    """(row, column) of the tiles in which something was written."""
    rows = np.array([written[y : y + tile[0]].any(axis=0) for y in range(0, written.shape[0], tile[0])])
    return [(int(y), int(x)) for y, x in np.argwhere(np.logical_or.reduceat(rows, np.arange(0, written.shape[1], tile[1]), axis=1))]
