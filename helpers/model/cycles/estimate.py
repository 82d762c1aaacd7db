"""The time of a launch: the way of one block's warps, cut to a few trips of its main loop, run on one multiprocessor, and stretched.

The middle block stands for all, of clusters the first of the middle one. How many trips it really takes follows from the counted
instructions of the launch. What one trip takes is the slope of the simulation once it is under way. Blocks come in turns of as many as
fit on a multiprocessor; the one with the most blocks ends last, and of these the slowest. Blocks that walk tiles begin one before the
last one's results have left: two of them are run, and each further one takes what the second adds. What is not in L2 is waited for once
for each line: by a block that has a multiprocessor to itself; of several each hides the others' waits. Code beyond what is there before a
kernel begins comes from DRAM in a first launch.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from helpers.errors import CourseError
from helpers.model.cluster_places import hangs_over, most_blocks
from helpers.model.device_memory import device_memory
from helpers.model.hardware import GPU, SUB_PARTITIONS
from helpers.model.occupancy import occupancy
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.lines import cell_lines
from helpers.sim.code.sass import SassFunction, SassInstruction
from helpers.sim.counting import names
from helpers.sim.counting.machine_code import NEIGHBOURS, SECTOR, BlockPath, BulkCopy, Surroundings, Visit, block_path, bulk_copies
from helpers.sim.layouts.tensor_map import TensorMap

from .bulk_rates import Rate, rates
from .chip import Chip, chip
from .multiprocessor import Away, Multiprocessor, Simulated, Spell, WarpState
from .scheduled import PRODUCT, Scheduled, matrix_cycles, scheduled

FEWEST_TRIPS, MOST_TRIPS = 5, 9  # of the main loop that are simulated; the first third of them settles
_STEADY_TRIPS = 24  # … of loops that wait for mbarriers
LEAST_TRIPS = 3  # … where more of them would be too many instructions
_MOST_STAGES = 4  # that take turns, so that a trip of a loop is like the one so many before it
_TRIPS = 6  # that a path has to have, so that blocks which share a multiprocessor have come to be as far apart as they stay
_ENOUGH = 80_000  # warp instructions of a multiprocessor: with more, the fewest trips do
_DEPTHS = 256, 512, 1024  # elements of K that are enough for so many trips, the first of these where it does, and …
_STEP = 128  # … what K may be shortened by, so that tiles and unrolled loops end as they did
_K = 2  # where a product's arguments have K
_WHOLE = 0.01  # what a number of trips, or of elements of K for each, may be off where it is whole
_LONGEST = 400_000  # warp instructions of a multiprocessor that are simulated
_IDLE = 0.1  # of the instructions of one that works, what a block executes at most that ends at once
_MEASURED_MHZ = 1980  # of the GPU whose latencies chip.toml has
_THRASHED = 4  # with a quarter more than L2 has room for, nothing is there when it is wanted again
_L1 = 28 << 10  # bytes of L1 that shared memory never takes
_REMEMBERED = 64
_TOO_LONG = "one block takes too many instructions"
_STUCK = "its warps seem to wait for each other at barriers for ever (check() says whether they do)"
_UNEQUAL = 0.1  # the part of its instructions by which a block that does as others may differ
_MOST_BARRIERS = 16
_ALL_WARPS = (1 << 32) - 1


@dataclass(frozen=True)
class Estimate:
    """cycles: of the launch, from its first block to its last, at the GPU's clock, on the slowest multiprocessor, on average over the
    launches that are timed together (`batch` of them), of which the first finds L2 overwritten. states: share of all cycles of its warps,
    by WarpState, in that first one: Nsight Compute empties the caches, too. by_instruction: cycles of the warps of one multiprocessor, by
    SASS index and WarpState. by_line: the same by line. trips: of the main loop, 0 where there is none. per_trip: cycles of one, on a full
    multiprocessor. off_peak: how many times as long its matrix instructions keep the tensor cores as at the peak rate. executed: warp
    instructions of the launch, by opcode. by_data: some of its loads are of places that data say. unequal: some of its blocks do more
    than others.
    """

    cycles: float
    states: Mapping[WarpState, float]
    by_instruction: Mapping[int, Mapping[WarpState, float]]
    by_line: Mapping[int, Mapping[WarpState, float]]
    trips: float
    per_trip: float
    off_peak: float = 1.0
    executed: Mapping[str, float] = field(default_factory=dict)
    usual: bool = False
    by_data: bool = False
    batch: int = 1
    unequal: bool = False


@dataclass(frozen=True)
class Watched:
    """What the warps of one multiprocessor do while `resident` blocks of `warps` warps run their main loop.

    per_trip: cycles of one trip. lines: SASS index -> line of the cell, None where it has none.
    """

    spells: Sequence[Spell]
    per_trip: float
    resident: int
    warps: int
    lines: Mapping[int, int | None]


@dataclass(frozen=True)
class _Loop:
    """The main loop in a path: `length` visits from `first` on, `trips` times, `size` warp instructions each time. period: how many times
    the source goes round in one of these: stages that take turns may have branches of their own. beside: loops of other warps, which go
    round with it, and whose instructions are in `size`. often: how often such a loop goes round for each of its trips."""

    first: int
    length: int
    trips: int
    size: float
    period: int = 1
    beside: tuple[_Loop, ...] = ()
    often: Fraction = Fraction(1)

    @property
    def end(self) -> int:
        """The visit behind it."""
        return self.first + self.trips * self.length

    def of(self, visits: Sequence[Visit]) -> Sequence[Visit]:
        """Those of its first trip."""
        return visits[self.first : self.first + self.length]

    def warps(self, visits: Sequence[Visit]) -> int:
        """Who goes round, a bit each."""
        return functools.reduce(operator.or_, (visit.warps for visit in self.of(visits)), 0)


def main_loop(visits: Sequence[Visit], fits: Callable[[_Loop], bool] = lambda loop: True) -> _Loop | None:
    """The repetition that takes the most instructions: the same blocks of code by the same warps, time and again. Of those of which
    `fits` says that, where there are any.

    The last time, which nothing shows to be as long as the others, is not one of its trips.
    """
    loops = sorted(_loops(visits), key=lambda loop: -loop.trips * loop.size)
    found = [_with_others(loop, loops, visits) for loop in loops]
    return next(filter(fits, found), found[0] if found else None)


def _with_others(loop: _Loop, loops: Sequence[_Loop], visits: Sequence[Visit]) -> _Loop:
    """A loop with those of other warps that meet it at barriers which have a number: who produces goes round as often as who consumes."""

    taken, beside = loop.warps(visits), []
    if any(map(_meets, loop.of(visits))):
        for other in loops:
            often = Fraction(max(1, round(other.trips / loop.trips)), max(1, round(loop.trips / other.trips)))
            like = abs(other.trips - float(loop.trips * often)) <= _MOST_BARRIERS * max(1.0, float(often))
            if like and any(map(_meets, other.of(visits))) and not other.warps(visits) & taken:
                taken |= other.warps(visits)
                beside.append(replace(other, often=often))
    return replace(loop, beside=tuple(beside), size=loop.size + sum(float(other.size * other.often) for other in beside))


def _meets(visit: Visit) -> bool:
    """Has it barriers at which warps meet that go different ways?"""
    return bool(visit.barriers or visit.signals)


def _loops(visits: Sequence[Visit]) -> Iterator[_Loop]:
    """All repetitions, of three times and more."""
    places = defaultdict(list)
    for place, visit in enumerate(visits):
        places[visit.start, visit.warps].append(place)
    keys = [(visit.start, visit.warps) for visit in visits]
    for found in places.values():
        parts = [tuple(keys[a:b]) for a, b in itertools.pairwise(found)]
        for period in range(1, _MOST_STAGES + 1):
            k = 0
            while k + period < len(found):
                end = k + period
                while end < len(parts) and parts[end] == parts[end - period]:
                    end += 1
                if (trips := (end - k) // period) >= 3:
                    size = sum(visit.instructions for visit in visits[found[k] : found[k + period]])
                    yield _Loop(found[k], found[k + period] - found[k], trips, size, period)
                    k = end
                else:
                    k += 1


_estimates: OrderedDict[tuple, Estimate | str] = OrderedDict()


def estimate(run, gpu: GPU, changed: Mapping[str, float] | None = None) -> tuple[Estimate | None, str]:
    """(the estimate, '') or (None, why there is none). run: a Run; its counters must be known. changed: see `chip`.

    Raises CourseError where the kernel does not compile for `gpu` or a block does not fit on it.
    """
    compiled = run.kernel.native(gpu.arch).compiled
    scalars = tuple(value if getattr(value, "ndim", 0) == 0 else value.shape for value in run.arguments)
    parts = chip(gpu, changed)
    sectors = run.counters.get(names.sectors("global", "ld"), 0)  # which data may decide
    launched = run.grid, run.block, run.cluster, run.shared, repr(scalars)
    key = compiled.cubin, compiled.symbol, *launched, gpu.name, repr(parts.changed), sectors
    if key not in _estimates:
        found, why = _estimate(run, compiled, parts)
        _estimates[key] = why if found is None else found
        while len(_estimates) > _REMEMBERED:
            _estimates.popitem(last=False)
    known = _estimates[key]
    return (None, known) if isinstance(known, str) else (known, "")


def _estimate(run, compiled, parts: Chip) -> tuple[Estimate | None, str]:
    launch, why = _launch(run, compiled, parts)
    if launch is None:
        return None, why
    try:
        whole, cycles = launch.usual_times()
        first, cold = launch.first_times(whole, cycles)
    except _UnknownError as unknown:
        return None, str(unknown)
    maps = any(isinstance(value, TensorMap) for value in run.arguments)
    once = launch.slowest(whole) * cycles + parts["launch.drain"] + (parts["bulk.map"] if maps else 0.0)
    each, misses = parts["code.cold_miss"], launch.cold_misses()
    cycles, cold = cycles + once, max(cold, cycles) + once + each * len(misses)
    together = _batch(cold, parts)
    cycles += (cold - cycles) / together
    turns = launch.most // launch.resident
    fetching = {index: each * warps * launch.resident for index, warps in misses.items()}
    found = first.estimate(cycles, compiled, launch.path.function, turns, fetching)
    matrix = [times for i in launch.path.function.instructions if (times := matrix_cycles(i, parts))]
    return replace(
        found, off_peak=sum(busy for busy, _ in matrix) / sum(ideal for _, ideal in matrix) if matrix else 1.0,
        executed=launch.executed(), usual=launch.path.usual, by_data=launch.path.by_data, batch=together,
        unequal=launch.path.unequal,
    ), ""  # fmt: skip


def from_dram(one: float, every: float) -> float:
    """Cycles that waiting for DRAM takes of a launch that is no product, in which waiting once a trip takes `one`, and each time that a
    load waits `every`: of loads that wait for each other within a trip one waits for DRAM, or half of the others. Of the rest somebody
    has fetched the data (log, run 38)."""
    return max(one, (every - one) / 2)


def _batch(cycles: float, parts: Chip) -> int:
    """How many launches are timed together, the first of which finds nothing in L2, where one that finds nothing takes so many cycles."""
    each = cycles / parts.gpu.clock_mhz + parts["launch.microseconds"]
    return max(1, math.ceil(parts["launch.batch"] / each))


def watched(run, gpu: GPU, changed: Mapping[str, float] | None = None) -> Watched:
    """What every warp of a multiprocessor does in some trips of the main loop.

    Raises CourseError where that is not known, the kernel does not compile for `gpu`, or a block does not fit on it.
    """
    compiled = run.kernel.native(gpu.arch).compiled
    launch, why = _launch(run, compiled, chip(gpu, changed))
    try:
        turn = launch.simulated(launch.resident, launch.shown, True) if launch else None
    except _UnknownError as unknown:
        turn, why = None, str(unknown)
    if launch is None or turn is None:
        raise CourseError(f"What its warps do is not known, since {why}.")
    if not turn.trips:
        raise CourseError(
            "No loop of this launch's machine code goes round three times or more, so there is no trip to show: what the compiler unrolls "
            "is none."
        )
    of_line = cell_lines(compiled)
    lines = {number: of_line.get(i.ptx_line or 0) for number, i in enumerate(launch.path.function.instructions)}
    return Watched(tuple(turn.simulated.spells), turn.per_trip, launch.resident, launch.path.warps, lines)


def _launch(run, compiled, parts: Chip) -> tuple[_Launch | None, str]:
    """What all turns of its blocks have in common, or why that is not known."""
    gpu, total = parts.gpu, run.counters.get(names.INSTRUCTIONS, 0)
    if not (total or compiled.cubin):
        return None, "how many instructions run is not known"
    shared = compiled.shared_bytes + run.shared
    fit = occupancy(gpu, math.prod(run.block), compiled.registers, shared)
    if not fit.blocks_per_sm:
        raise CourseError(f"This launch does not run on {gpu.name}: {fit.reason}.")
    if math.prod(run.cluster) > 1 and not gpu.capability.has_clusters:
        raise CourseError(f"This launch does not run on {gpu.name}: its blocks form clusters, which need compute capability 9.0 or later.")
    cluster, problem = math.prod(run.cluster), run.problem.get("problem")
    blocks = math.prod(_grid(run))
    each, *slices = compiled.constants.get("persistent") or (fit.blocks_per_sm,)
    if math.prod(slices) > 1:
        return None, "the model does not know blocks that share the tiles of C"
    copies = {} if problem is None else _copies(run, compiled, problem.k)
    if problem is not None and cluster > 1 and not any(copy.apart for copy in copies.values()):
        # some of these blocks have no tile, perhaps
        copies = _copies(run, compiled, problem.k, 2) or copies
    if problem is not None and hangs_over(compiled, problem.m, problem.n, copies):
        return None, "the model does not know clusters of which a block lies outside of C, whose copies are slow"
    resident = min(fit.blocks_per_sm, each, math.ceil(blocks / gpu.sms))
    l1 = _l1(gpu, fit.blocks_per_sm * (shared + gpu.capability.shared_reserved))
    cached, tiles = l1 // resident // SECTOR, 1
    path, why, share, depth = _path(run, compiled, cached, copies)
    if path is not None and "tiles" in run.problem and _leaves_work(path):  # perhaps its consumers have a tile each
        tiles, copies = 2, _copies(run, compiled, problem.k, 2)
        path, why, share, depth = _path(run, compiled, cached, copies, tiles)
    if path is None:
        return None, why
    if "tiles" in run.problem and _leaves_work(path):
        return None, "the model does not know which tiles its blocks walk"
    blocks = math.ceil(math.prod(_grid(run, tiles)) * share)
    most = most_blocks(blocks, gpu, cluster, resident, each if "tiles" in run.problem else 0)
    resident = min(resident, most)
    if not (total or path.usual or any(visit.signals for visit in path.visits)):
        return None, "how many instructions run is not known"
    code = scheduled(path.function, compiled.cubin, parts)
    matrix = [i for i in path.function.instructions if code[i.index].pipe == "tensor"]
    unknown = sorted({i.name for i in matrix if matrix_cycles(i, parts) is None})
    if unknown:
        return None, f"the model of cycles does not know {' and '.join(unknown)}"
    if run.kernel.compiled.arch.rstrip("af") != compiled.arch.rstrip("af"):
        total = None  # counted for other machine code
    known = total / blocks if total and not path.unequal else None
    launch = _Launch(path, code, parts, min(1.0, blocks / gpu.sms), known, run, resident, most, blocks, depth)
    if run.problem.get("problem") is None:
        memory = device_memory(run)
        launch = replace(launch, new=memory.new, kept=memory.read + memory.written <= gpu.l2_bytes)
    else:
        beyond, instructions = _beyond(run, parts), path.function.instructions
        launch = replace(launch, beyond=beyond, rates=rates(instructions, copies, run, cluster, beyond, parts))
    if "tiles" in run.problem and depth and most >= 2 * resident:
        two, _, _ = _path_of(run, compiled, cached, copies, depth, 2 * tiles)
        if two is not None:
            launch = replace(launch, walked=replace(launch, path=two, each=2 * known if known else None, tiles=2, known={}))
    return launch, ""


def _beyond(run, parts: Chip) -> float:
    """The part of a product's lines that are not in L2 when they are wanted again. Measured on compute capability 9.0, whose L2 has two
    halves; published times of others are nearer without."""
    if parts.gpu.capability.name != "9.0":
        return 0.0
    room = parts["l2.kept"] * parts.gpu.l2_bytes
    read = run.problem["A"].nbytes + run.problem["B"].nbytes
    return min(1.0, max(0.0, (read / room - 1) * _THRASHED))


def _grid(run, tiles: int = 1) -> tuple[int, int, int]:
    """Blocks. Of a persistent kernel as many as there are tiles, and parts of them: a multiprocessor walks one tile after the other,
    whether its blocks do or others take their place. tiles: those that each block is to walk."""
    if "tiles" not in run.problem:
        return run.grid
    _, *parts = run.kernel.compiled.constants["persistent"]
    cluster = math.prod(run.cluster)
    return math.ceil(math.prod((run.problem["tiles"], *parts)) / tiles / cluster) * cluster, 1, 1


def _path(run, compiled, cached: int, copies: Mapping[int, BulkCopy], tiles: int = 1) -> tuple[BlockPath | None, str, float, int]:
    """(the path of the middle block, why there is none, the share of the blocks that are like it, its K), of a product as if it were less
    deep: so deep that its loop makes `_TRIPS`, if one of `_DEPTHS` does, and as deep as it is where none of these has such a loop. Of other
    launches K is 0. cached: as for `block_path`.

    Of a product whose slices could share a tile and do not, most blocks end at once: then it is the path of one that works.
    """
    product = run.problem.get("problem")
    if product is None:
        return *_path_of(run, compiled, cached, copies, 0), 0
    total = run.counters.get(names.INSTRUCTIONS, 0)

    def trips(path: BlockPath, share: float, k: int) -> int:
        """Of its main loop, if that is one along K."""
        fits = functools.partial(_grows_with_k, path, total / (math.prod(_grid(run, tiles)) * share), product.k, k)
        loop = main_loop(path.visits, fits)
        return loop.trips * loop.period if loop is not None and fits(loop) else 0

    k = _short(product.k, _DEPTHS[0])
    path, why, share = _path_of(run, compiled, cached, copies, k, tiles)
    found, most = (path, why, share, k), 0 if path is None else trips(path, share, k)
    for depth in _DEPTHS[1:]:
        if path is None or k == product.k or most >= _TRIPS:
            break
        k = _short(product.k, depth)
        path, why, share = _path_of(run, compiled, cached, copies, k, tiles)
        if path is not None and ((more := trips(path, share, k)) > most or not most):
            found, most = (path, why, share, k), more
    if found[0] is not None and not most and total and k != product.k:  # as where it takes K for M, and has nothing to do then
        whole = _path_of(run, compiled, cached, copies, product.k, tiles)
        if whole[0] is not None:
            return *whole, product.k
    return found


def _grows_with_k(path: BlockPath, each: float | None, whole: int, short: int, loop: _Loop) -> bool:
    """Is a loop the one by whose trips a block of all of K (`whole`, `each` warp instructions, None where these were not counted) has more
    instructions than a path of `short` of them? Another one, such as one that stores C, may take more of those of a short one. Where they
    were not counted: the one that multiplies on tensor cores, if one does."""
    if whole == short:
        return True
    if not each:
        return not _multiplies(path, path.visits) or _multiplies(path, loop.of(path.visits))
    trips = (each - _instructions(path)) / loop.size * loop.period
    if trips < 1:
        return False
    of_k = (whole - short) / trips  # elements
    return abs(trips - round(trips)) < _WHOLE and abs(of_k - round(of_k)) < _WHOLE


def _leaves_work(path: BlockPath) -> bool:
    """Is there a matrix instruction in the kernel, and none in the block's way?"""
    return any(i.row.pipe == "tensor" for i in path.function.instructions) and not _multiplies(path, path.visits)


def _multiplies(path: BlockPath, visits: Sequence[Visit]) -> bool:
    """Is there a matrix instruction in these visits?"""
    return any(i.row.pipe == "tensor" for visit in visits for i in path.function.instructions[visit.start : visit.end])


def _path_of(run, compiled, cached: int, copies: Mapping[int, BulkCopy], k: int, tiles: int = 1) -> tuple[BlockPath | None, str, float]:
    """The first three of `_path`, with a K of k, unless that is 0. tiles: as for `_grid`."""
    grid, cluster, arguments = _grid(run, tiles), run.cluster, list(run.arguments)
    product = run.problem.get("problem")
    if k:
        arguments[_K] = type(arguments[_K])(k)
    of_line, sectors, requests = cell_lines(compiled), names.sectors("global", "ld"), names.requests("global", "ld")

    def scattered(i: SassInstruction) -> float:
        counted = run.by_line.get(of_line.get(i.ptx_line or 0), {})
        return counted[sectors] / counted[requests] if counted.get(requests) else float(WARP)

    stores = run.counters.get(names.bulk_executed("st"), 0)
    sent = run.counters.get(names.bulk_sectors("st"), 0) * SECTOR / stores if stores else 0.0  # (of copies of 0 bytes there are none)
    around = Surroundings(cluster, scattered, sent, {index: copy.nbytes for index, copy in copies.items()})

    def of(x: int, y: int, z: int) -> tuple[BlockPath | None, str]:
        return block_path(compiled, grid, run.block, arguments, x + grid[0] * (y + grid[1] * z), cached, around)

    def first(x: int, y: int, z: int) -> tuple[int, ...]:
        return tuple(k - k % extent for k, extent in zip((x, y, z), cluster, strict=True))

    middle = first(grid[0] // 2, grid[1] // 2, grid[2] // 2)
    path, why = of(*middle)
    if product is None:
        return (path, why, 1.0) if path is None else _longest(run, compiled, path, of, middle, first)
    deep = grid[2] // product.batch
    if path is None or deep < 2 or main_loop(path.visits) is not None:
        return path, why, 1.0
    begin = grid[2] // 2 // deep * deep
    slices = (of(*first(grid[0] // 2, grid[1] // 2, z))[0] for z in range(begin, begin + deep))
    found = [way for way in slices if way is not None]
    longest = max(found, key=_instructions)
    return longest, "", sum(_instructions(way) > _IDLE * _instructions(longest) for way in found) / len(found)


def _longest(run, compiled, path: BlockPath, of, middle: tuple[int, ...], first) -> tuple[BlockPath, str, float]:
    """The first three of `_path`, of a launch that is no product: where a block of the middle cluster has another number of instructions
    than blocks have on average, the longest way of its blocks and of some elsewhere, as that of so many blocks as make up all of them; of
    all where blocks form clusters: who has nothing to do waits for the others, and keeps its place (measured: log, run 44). of: the path of
    a block. first: of the cluster of a block."""
    blocks, total = math.prod(run.grid), run.counters.get(names.INSTRUCTIONS, 0)
    if not total or run.kernel.compiled.arch.rstrip("af") != compiled.arch.rstrip("af") or _equal(_instructions(path), total / blocks):
        return path, "", 1.0
    places = [tuple(map(operator.add, middle, rank)) for rank in itertools.product(*map(range, run.cluster))]
    places += [first(*(min(extent * eighth // 8, extent - 1) for extent in run.grid)) for eighth in range(9)]
    ways = [way for place in dict.fromkeys(places) if (way := of(*place)[0]) is not None]
    longest = max(ways, key=_instructions)
    if _equal(_instructions(longest), min(map(_instructions, ways))):
        return path, "", 1.0  # data make them go on for longer, or ways that numbers rarely take
    part = min(1.0, total / blocks / _instructions(longest)) if math.prod(run.cluster) == 1 else 1.0
    return replace(longest, unequal=True), "", part


def _equal(one: float, other: float) -> bool:
    """Are these numbers of instructions those of blocks that do the same, but for a few at an edge?"""
    return abs(one - other) <= _UNEQUAL * max(one, other)


def _copies(run, compiled, k: int, tiles: int = 1) -> Mapping[int, BulkCopy]:
    """What blocks in the middle of a product with a K of k copy in bulk first. tiles: as for `_grid`."""
    grid, arguments = _grid(run, tiles), list(run.arguments)
    arguments[_K] = type(arguments[_K])(min(k, _DEPTHS[-1]))
    blocks = math.prod(grid)
    first = blocks // 2 // NEIGHBOURS * NEIGHBOURS
    return bulk_copies(compiled, grid, run.block, arguments, range(first, min(blocks, first + NEIGHBOURS)), run.cluster)


def _l1(gpu: GPU, shared: int) -> int:
    """Bytes of L1 where the blocks that fit want so many bytes of shared memory: the driver gives these the smallest size that does, and
    not less than half (`launch__shared_mem_config_size`: log, run 39), however few blocks there are."""
    sizes = gpu.capability.shared_configurations
    return _L1 + sizes[-1] - min((size for size in sizes if size >= max(shared, sizes[-1] / 2)), default=sizes[-1])


def _by_opcode(path: BlockPath, visits: Sequence[Visit]) -> dict[str, float]:
    """Warp instructions of these visits by opcode."""
    found: dict[str, float] = defaultdict(float)
    for visit in visits:
        for instruction in path.function.instructions[visit.start : visit.end]:
            found[instruction.name] += visit.warps.bit_count()
    return found


def _short(k: int, depth: int) -> int:
    """What a K is shortened to of which so many elements are enough."""
    return k % _STEP + depth if k > depth + _STEP else k


def _instructions(path: BlockPath) -> int:
    """Warp instructions."""
    return sum(visit.instructions for visit in path.visits)


def _numbers(visits: Sequence[Visit]) -> list[tuple[Mapping[int, tuple[int, ...]], dict[int, tuple[int, ...]]]]:
    """Which barriers and mbarriers each visit has."""
    return [(visit.barriers, {index: signal.places for index, signal in visit.signals.items()}) for visit in visits]


def _comes_again(visits: Sequence[Visit], loop: _Loop, step: int) -> bool:
    """Do the trips of a loop beside the last so many of the main loop have the same barriers as those before them?"""
    length = int(step * loop.often) * loop.length
    numbers = _numbers(visits[max(loop.first, loop.end - 2 * length) : loop.end])
    return len(numbers) == 2 * length and numbers[:length] == numbers[length:]


def _repeated(visits: Sequence[Visit], ends: Mapping[int, int], times: int) -> list[Visit]:
    """Visits of which so many before each end come so many times more."""
    found: list[Visit] = []
    begin = 0
    for end in sorted(ends):
        found += [*visits[begin:end], *itertools.chain(*itertools.repeat(visits[end - ends[end] : end], times))]
        begin = end
    return [*found, *visits[begin:]]


def _ring(visits: Sequence[Visit], loop: _Loop) -> int:
    """After how many trips the numbers of the barriers in it come again; 1 where that is not to be seen."""
    part = visits[loop.first : loop.end]
    if not any(map(_meets, part)):
        return 1
    numbers = _numbers(part)
    periods = range(1, min(_MOST_BARRIERS, loop.trips // 2) + 1)
    return next((n for n in periods if numbers[n * loop.length :] == numbers[: -n * loop.length]), 1)


class _UnknownError(Exception):
    """Says why the model does not know."""


@dataclass(frozen=True)
class _Turn:
    """What one turn of blocks takes: see Estimate."""

    cycles: float
    simulated: Simulated
    stretch: float  # how much longer the steady part really is
    trips: float
    per_trip: float
    blocks: int = 1  # like the one that was simulated

    @property
    def waits_for_code(self) -> float:
        """The part of its warps' cycles in the steady loop in which they wait for lines of code; 0 where there is no loop."""
        return self.simulated.missed / (sum(map(sum, self.simulated.steady.values())) or 1.0)

    def estimate(self, cycles: float, compiled, function: SassFunction, turns: int, fetching: Mapping[int, float]) -> Estimate:
        """fetching: cycles of warps that wait for code which nobody has fetched before, by SASS index."""
        spent: dict[int, dict[WarpState, float]] = defaultdict(lambda: defaultdict(float))
        for index, value in fetching.items():
            spent[index][WarpState.NO_INSTRUCTION] += value
        for table, factor in ((self.simulated.steady, self.stretch), (self.simulated.rest, 1.0)):
            for index, row in table.items():
                for state, value in zip(WarpState, row, strict=True):
                    if value:
                        spent[index][state] += value * factor * turns * self.blocks
        states: dict[WarpState, float] = dict.fromkeys(WarpState, 0.0)
        by_line: dict[int, dict[WarpState, float]] = defaultdict(lambda: defaultdict(float))
        of_line = cell_lines(compiled)
        for index, cycles_in in spent.items():
            line = of_line.get(function.instructions[index].ptx_line or 0)
            for state, value in cycles_in.items():
                states[state] += value
                if line is not None:
                    by_line[line][state] += value
        every = sum(states.values()) or 1.0
        shares = {state: value / every for state, value in states.items()}
        return Estimate(cycles, shares, _plain(spent), _plain(by_line), self.trips, self.per_trip)


def _plain(table) -> dict[int, dict[WarpState, float]]:
    return {key: dict(row) for key, row in sorted(table.items())}


@dataclass(frozen=True)
class _Launch:
    """What all turns of a launch have in common. each: warp instructions of a block, None where they were not counted. resident: blocks
    that share a multiprocessor. most: blocks that the busiest one has, one after the other; blocks: in all, of those that do not end at
    once. depth: K of the path; 0 where it is no product of the course. new: of such a launch, the part of what it fetches that nobody
    fetched before. kept: all of its data stays in L2 from one launch to the next. beyond: the part of a product's lines that are not in L2
    when they are wanted again. rates: of copies in bulk. tiles: that a block walks. walked: the same of two tiles, where blocks walk
    several. known: turns that were simulated."""

    path: BlockPath
    code: Sequence[Scheduled]
    chip: Chip
    active: float
    each: float | None
    run: Any
    resident: int
    most: int
    blocks: int
    depth: int
    new: float = 0.0
    kept: bool = False
    beyond: float = 0.0
    rates: Mapping[int, Rate] = field(default_factory=dict)
    tiles: int = 1
    walked: _Launch | None = None
    known: dict[tuple[int, Away, bool], _Turn] = field(default_factory=dict)

    @property
    def _device(self) -> float:
        """What DRAM takes longer than L2 in cycles of this GPU's clock: it does not get faster with it."""
        return self.chip["latency.device"] * self.chip.gpu.clock_mhz / _MEASURED_MHZ

    @property
    def far(self) -> Away:
        """Where its data are if launches of it follow each other: those of a product in L2, as far as it has room for its matrices."""
        return Away(self._device * self.beyond, 0.0 if self.kept else self.new, self.own)

    @property
    def first_far(self) -> Away:
        """Where they are in a launch that finds L2 overwritten. (Of what is no product one block comes first, where a multiprocessor has
        several, and brings it for all.)"""
        every = self._device * (1 - self.new) if self.most == 1 or self.depth else 0.0
        return Away(max(every, self.far.every), self.new, max(every, self.own))

    @property
    def shown(self) -> Away:
        """Where they are in the timeline of a multiprocessor that shows a launch which finds L2 overwritten."""
        return Away(own=self.own) if self.hides(self.resident) else self.first_far

    @functools.cached_property
    def own(self) -> float:
        """What it takes longer to load what the launch before has stored, and this one will store: C of a product that adds to it."""
        problem = self.run.problem
        if not self.depth or not self.path.own:
            return 0.0
        every = sum(problem[name].nbytes for name in "ABC") / (self.chip["l2.kept_of_all"] * self.chip.gpu.l2_bytes)
        return self.chip["latency.own"] + self._device * min(1.0, max(0.0, (every - 1) * _THRASHED))

    @functools.cached_property
    def loop(self) -> _Loop | None:
        """The main loop of a block."""
        product = self.run.problem.get("problem")
        if product is None:
            return main_loop(self.path.visits)
        return main_loop(self.path.visits, functools.partial(_grows_with_k, self.path, self.each, product.k, self.depth))

    def usual_times(self) -> tuple[_Turn, float]:
        """(a turn, the cycles of all turns) where launches of it follow each other."""
        whole = self.turn(self.resident, self.far)
        return whole, self._begun(whole) + self._behind(whole, self.far)

    def first_times(self, whole: _Turn, cycles: float) -> tuple[_Turn, float]:
        """The same, for the first turn, of a launch that finds L2 overwritten. `whole`, `cycles`: the usual ones."""
        if self.first_far == self.far:
            return whole, cycles
        first = self.turn(self.resident, self.first_far)
        if self.depth:  # whoever comes behind the first turn finds the matrices in L2
            return first, max(cycles, self._begun(first) + self._behind(whole, self.far))
        cold = self._begun(first) + self._behind(first, self.first_far)
        turns = self.most // self.resident
        one = turns * whole.trips * max(self.first_far.every, self.chip["latency.streamed"] * self.first_far.new)
        most = cycles + from_dram(one, cold - cycles)
        if not whole.trips or cold <= most:
            return first, cold
        share = (most - cycles) / (cold - cycles)
        between = Away(*(near + share * (far - near) for near, far in zip(self.far, self.first_far, strict=True)))
        return self.simulated(self.resident, between), most

    def _begun(self, turn: _Turn) -> float:
        return turn.cycles + self.chip["launch.block"]

    def _behind(self, turn: _Turn, away: Away) -> float:
        """Cycles of all turns behind the first: each like `turn`, the last one of what is left."""
        turns, left = divmod(self.most, self.resident)
        next_one = self.walked.turn(self.resident, away).cycles - turn.cycles if self.walked else self._begun(turn)
        return (turns - 1) * next_one + (self._begun(self.turn(left, away)) if left else 0.0)

    def slowest(self, whole: _Turn) -> float:
        """By which part the multiprocessor that ends last is slower than most of them. Where blocks take turns, faster ones get more of
        them; where they do not, one that waits for code may be farther from it."""
        if self.blocks == 1:
            return 0.0
        if self.most > self.resident:
            return self.chip["launch.slowest_of_turns"]
        return max(self.chip["code.slowest"] * whole.waits_for_code, self.chip["launch.slowest"])

    def hides(self, resident: int) -> bool:
        """Do so many blocks hide their waits for DRAM for each other? Those of a product come to be apart."""
        return bool(self.depth) and resident > 1

    def turn(self, resident: int, away: Away) -> _Turn:
        """One turn of `resident` blocks. Those that hide their waits for DRAM for each other do so as far as one of them by itself takes no
        longer than all of them without these (log, run 40)."""
        if not self.hides(resident) or not away.every:
            return self.simulated(resident, away)
        together, alone = self.simulated(resident, Away(own=self.own)), self.simulated(1, away)
        return together if together.cycles >= alone.cycles else replace(alone, blocks=resident)

    def simulated(self, resident: int, away: Away, watched: bool = False) -> _Turn:
        """One turn of `resident` blocks, whose data are so far away. watched: keep what every warp does."""
        key = resident, away, watched
        if key not in self.known:
            self.known[key] = self._simulated(*key)
        return self.known[key]

    def _simulated(self, resident: int, away: Away, watched: bool) -> _Turn:
        visits, loop = self.path.visits, self.loop
        if loop is None:
            executed = sum(visit.instructions for visit in visits)
            result = self._simulate(visits, resident, None, away, watched)
            stretch = self.each / executed if self.each else 1.0
            return _Turn(result.cycles * stretch, result, 1.0, 0, 0.0)
        kept = min(loop.trips, max(FEWEST_TRIPS, min(MOST_TRIPS, _ENOUGH // (resident * loop.size))))
        loops = loop, *loop.beside
        inside = {place for each in loops for place in range(each.first, each.end)}
        outside = [place for place in range(len(visits)) if place not in inside]
        followed = loop.warps(visits) if loop.beside else _ALL_WARPS  # who produces is some trips ahead
        before, each_trip = (
            sum((visit.end - visit.start) * (visit.warps & followed).bit_count() for visit in part)
            for part in ([visits[place] for place in outside if place < loop.first], loop.of(visits))
        )
        room = _LONGEST / resident - sum(visits[place].instructions for place in outside)
        kept = min(kept, max(LEAST_TRIPS, int(room // loop.size)))
        most = min(loop.trips - LEAST_TRIPS, *(math.floor((each.trips - 1) / each.often) for each in loops))
        step = math.lcm(_ring(visits, loop), *(each.often.denominator for each in loops))  # so that all of them go on as they did
        cut = min(loop.trips - kept, most) // step * step
        if (loop.trips - cut) * loop.size > room and cut + step <= most:
            cut += step
        kept = loop.trips - cut
        left_out = {place for each in loops for place in range(each.end - int(cut * each.often) * each.length, each.end)}
        short = [visit for place, visit in enumerate(visits) if place not in left_out]
        if not cut and (again := self._again(loops, step, resident)):
            kept += again * step
            short = _repeated(visits, {each.end: int(step * each.often) * each.length for each in loops}, again)
        settled = max(1, kept // 3)
        marks = tuple(round(resident * (before + trips * each_trip)) for trips in (settled, kept - 1))
        result = self._simulate(short, resident, marks, away, watched, followed)
        measured = kept - 1 - settled
        products = sum(self._products(visit) * float(each.often) for each in loops for visit in each.of(visits)) * resident
        per_trip = max(products, (result.reached[1] - result.reached[0]) / measured)
        executed = sum(visit.instructions for visit in short)
        more = max(0.0, (self._block(loop) - executed) / loop.size)
        cycles = result.cycles + more * per_trip
        return _Turn(cycles, result, 1 + more / measured, (kept + more) * loop.period, per_trip / loop.period)

    def _again(self, loops: Sequence[_Loop], step: int, resident: int) -> int:
        """How often the last `step` trips of loops that wait for mbarriers are to be simulated again: what all multiprocessors ask L2 for
        when they begin is behind them only after so many."""
        loop, visits = loops[0], self.path.visits
        if not any(visit.signals for visit in loop.of(visits)) or not all(_comes_again(visits, each, step) for each in loops):
            return 0
        together = functools.reduce(operator.or_, (each.warps(visits) for each in loops))
        if sum(bool(visit.signals and visit.warps & ~together) for visit in visits) > loop.trips / 2:
            return 0  # warps that go round in a way that was not found to be a loop
        whole = loop.trips + (self._block(loop) - _instructions(self.path)) / loop.size / self.tiles
        return max(0, int(min(_STEADY_TRIPS, whole, _ENOUGH / (resident * loop.size)) - loop.trips)) // step

    def _products(self, visit: Visit) -> float:
        """Cycles of each tensor core for a visit's products of warpgroups, each warp's on that of its sub-partition."""
        taken = sum(self.code[index].latency for index in range(visit.start, visit.end) if self.code[index].kind == PRODUCT)
        return taken * visit.warps.bit_count() / SUB_PARTITIONS

    def cold_misses(self) -> dict[int, int]:
        """SASS index of each instruction at which warps wait for code from DRAM -> how many warps of a block do. In a launch behind another
        kernel that finds L2 overwritten: at each jump to lines that nobody has fetched, and after so many lines without one. Code that is
        short enough is there before the kernel begins. For warps that go the same way: who takes turns with others counts as jumping."""
        if self.code[-1].line < self.chip["code.cold_beyond"]:
            return {}
        first: dict[int, int] = {}
        come: dict[int, int] = defaultdict(int)  # bits of warps, by the same index
        for start, end, warps in dict.fromkeys((visit.start, visit.end, visit.warps) for visit in self.path.visits):
            for index in range(start, end):
                come[first.setdefault(self.code[index].line, index)] |= warps
        found, before, fetched = {}, None, 0.0
        for line, index in first.items():
            if before is None or line != before + 1 or line > fetched:
                found[index], fetched = come[index].bit_count(), line + self.chip["code.cold_lines"] - 1
            before = line
        return found

    def executed(self) -> dict[str, float]:
        """Warp instructions of all blocks, by opcode."""
        visits, loop = self.path.visits, self.loop
        found = _by_opcode(self.path, visits)
        if loop is not None:
            more = max(0.0, (self._block(loop) - sum(found.values())) / loop.size)
            for each in (loop, *loop.beside):
                for name, times in _by_opcode(self.path, each.of(visits)).items():
                    found[name] += more * times * float(each.often)
        return {name: times * self.blocks for name, times in found.items()}

    def _block(self, loop: _Loop) -> float:
        """Warp instructions of a block: as counted, or as K has it."""
        if self.each:
            return self.each
        executed = sum(visit.instructions for visit in self.path.visits)
        product = self.run.problem.get("problem")
        if product is None or product.k == self.depth:
            return executed
        per_trip = 2 ** round(math.log2(self.depth / (loop.trips * loop.period)))  # elements of K
        return executed + self.tiles * (product.k - self.depth) / per_trip * loop.size / loop.period

    def _simulate(self, visits, resident: int, marks, away: Away, watched: bool, followed: int = _ALL_WARPS) -> Simulated:
        executed = sum(visit.instructions for visit in visits) * resident
        if executed > _LONGEST:
            raise _UnknownError(_TOO_LONG)
        crowded = min(1.0, self.resident * self.path.warps / self.chip["latency.crowd_warps"])
        own = self.path.own if self.depth else ()
        found = Multiprocessor(
            self.code, visits, self.path.warps, resident, self.chip, self.active, marks, away, watched, crowded, self.path.new, own,
            followed, self.rates,
        ).run()  # fmt: skip
        if found.issued < executed:
            raise _UnknownError(_STUCK)
        return found
