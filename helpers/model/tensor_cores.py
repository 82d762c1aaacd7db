"""Tensor cores: their rate by type, the clock that they leave, and the cycles of kernels that feed them asynchronously.

Kernels with `mma.sync`, and with `wgmma` and TMA, are simulated like any other (`cycles`), unless their blocks form clusters or store C
by TMA. One of these hides its copies behind its products, so that its time is made of few things, all counted: until the first tiles are
there, the products of the tiles of C that a multiprocessor computes one after the other, and what stands between one tile's products and
the next one's: storing C, and FP32 work on sums that must have arrived. Where a stage cannot be filled again in time, the products wait
for it; what else they wait for at each step is read off the machine code of the innermost loop. What each takes is in cycles/chip.toml,
read off clocks inside of steps 16, 17 and 19, and chosen on steps 16 and 17 with other constants, on an H200.

Tensor cores also change the clock. As soon as they work it falls by a twelfth, though the driver goes on to report the full one; the
more of their peak a launch reaches with numbers that are not mostly zero, the more; and after a tenth of a second the limit of power.
"""

from __future__ import annotations

import functools
import math
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from helpers.element_types import element_type
from helpers.errors import CourseError
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.ptx import directives
from helpers.sim.code.sass import SassInstruction, parse
from helpers.sim.counting import names, stages

from .cycles.chip import Chip
from .cycles.scheduled import MATRIX_SHAPES
from .hardware import GPU
from .occupancy import occupancy

TYPES: Mapping[str, str] = {"f16": "float16", "bf16": "bfloat16", "tf32": "tf32", "e4m3": "float8", "e5m2": "float8"}
_LINE = 128  # bytes of a line of L2
_MULTICAST = ".multicast::cluster"  # of TMA's copies
_RELEASE = re.compile(r"barrier\.cluster\.arrive(?!\.relaxed)")  # release is what stands there where nothing else does
_ALL_DONE = re.compile(r"\b0x0\b")  # how many groups of wgmma a wait leaves
_PRODUCERS = "setmaxnreg.dec"  # a warpgroup that only copies gives registers away
_WARPS = 4  # of a warpgroup
_MOST_STAGES = 32  # of which a trace is made
_REMEMBERED = 64
_MEASURED = "9.0"  # the compute capability of which clocks under load, and kernels with wgmma, were measured


def labels(kinds: frozenset[str]) -> list[str]:
    """PTX's names of element types for people, of those that `TYPES` has: "BF16"."""
    known = {TYPES[kind] for kind in kinds if kind in TYPES}
    return sorted("FP8" if name == "float8" else element_type(name).label for name in known)


def peak_tflops(gpu: GPU, kinds: frozenset[str]) -> float:
    """The peak rate for the fastest of these types. Raises CourseError where the table has none."""
    rates = [gpu.tensor_tflops[name] for kind in kinds if (name := TYPES.get(kind, "")) in gpu.tensor_tflops]
    if rates:
        return max(rates)
    if kinds <= TYPES.keys():
        raise CourseError(f"The tensor cores of {gpu.name} do not multiply {' and '.join(labels(kinds))}.")
    raise CourseError(f"The course has no rate for what this kernel multiplies on tensor cores: {', '.join(sorted(kinds))}.")


def fmas(gpu: GPU, kinds: frozenset[str]) -> int:
    """Fused multiply-adds of one multiprocessor in a cycle for the fastest of these types. Raises as `peak_tflops`."""
    peak_tflops(gpu, kinds)
    return max(gpu.tensor_fmas(TYPES.get(kind, "")) for kind in kinds)


def multiplied(compiled, counters: Mapping[str, int]) -> float:
    """Operations (two for each multiply-add) of all HMMA that were counted; 0 where they differ in shape, or there are other matrix
    instructions, whose operations are not known."""
    names_used, shapes = _instructions(compiled)
    if len(shapes) != 1 or names_used != {"HMMA"}:
        return 0.0
    return 2.0 * (MATRIX_SHAPES.get(min(shapes)) or 0) * counters.get(names.opcode("HMMA"), 0)


def _instructions(compiled) -> tuple[set[str], set[str]]:
    """(names of a kernel's matrix instructions, shapes of its HMMA), as the machine code has them."""
    found = [i for i in parse(compiled.sass)[compiled.symbol].instructions if i.name.endswith("MMA")]
    return {i.name for i in found}, {(*i.modifiers, "")[0] for i in found if i.name == "HMMA"}


def why_unknown(compiled, uncounted: str) -> str:
    """Why `multiplied` is not known, and what to do. uncounted: why machine instructions were not counted, "" where they were."""
    used, shapes = _instructions(compiled)
    if others := sorted(used - {"HMMA"}):
        why = f"it has the matrix instructions {' and '.join(others)}, and the model counts operations of HMMA alone."
    elif len(shapes) > 1:
        why = f"its HMMA are of several shapes ({', '.join(sorted(shapes))}), which are counted together."
    elif not shapes <= MATRIX_SHAPES.keys():
        why = f"it does not know HMMA.{min(shapes)}."
    elif uncounted:
        why = f"how many HMMA it executes is not known ({uncounted})."
        if "call through a pointer" in uncounted and "vprintf" in compiled.ptx:
            why += " The call is its printf: leave it out, and they are counted."
    else:
        why = "none of its HMMA was executed."
    if foreign := sorted(kind for kind in compiled.matrix_types if kind not in TYPES):
        return f"{why} The course has no products of {' and '.join(foreign)} either, so it predicts no time of this kernel."
    return f"{why} The course's signature (lesson 20) says what product it is."


def of_float16_sums(compiled, gpu: GPU) -> str:
    """What to say of a time on a GPU whose tensor cores keep sums in FP16 faster, of a kernel that does; "" elsewhere."""
    if gpu.float16_sums == 1 or (found := compiled.float16_sums) is None:
        return ""
    where = "" if found[1] is None else f" at line {found[1]}"
    return (
        f"It keeps sums in FP16{where}, with which the tensor cores of an {gpu.name} multiply {gpu.float16_sums:g} times as fast as with "
        f"sums in FP32: that rate is taken here, and its time may be down to 1/{gpu.float16_sums:g} of this."
    )


def on_tiles(run) -> float:
    """Operations (two for each multiply-add) that warpgroups do for the tiles of a product of the course: each multiplies all rows and
    columns of its tile, also those that lie outside of C, and whole steps along K. 0 without warpgroups, or where it is no such product."""
    problem, counters = run.problem.get("problem"), run.counters
    if problem is None or not counters.get(names.tensor("gmma"), 0):
        return 0.0
    rows, columns = run.problem["tile"]
    tiles = math.ceil(problem.m / rows) * math.ceil(problem.n / columns) * problem.batch
    return 2.0 * tiles * rows * columns * _depth(run.kernel.compiled, problem.k)


def _depth(compiled, k: int) -> int:
    """k in whole steps, where the kernel says what it copies at a step."""
    step = _box_of_a(compiled)[1]
    return math.ceil(k / step) * step


def _box_of_a(compiled) -> tuple[int, int]:
    """Rows of A and elements of K that one copy takes, as the kernel says; (0, 1) where it says nothing. A by columns lies as [K, M]."""
    first, second = compiled.constants.get("box_A", (0, 1))[:2]
    return (second, first) if compiled.constants.get("transa") == (1,) and "box_A" in compiled.constants else (first, second)


def clock_mhz(chip: Chip, load: float, microseconds: float, kinds: frozenset[str]) -> float:
    """The clock at which a launch really runs, in MHz. load: the part of the tensor cores' peak that it reaches, per cycle.
    microseconds: what it takes, at any clock near.

    Measured on an H200 as cycles over nanoseconds inside of kernels that multiply random numbers (zeros: what is left at no load).
    The limit of power is that of a timing: 20 launches in turn with cuBLAS, without a pause.
    """
    if chip.gpu.capability.name != _MEASURED:
        return chip.gpu.clock_mhz
    beyond = max(0.0, load - chip["clock.free_load"]) * (1 - math.exp(-microseconds / chip["clock.settles"]))
    heavy = chip["clock.float8"] if any(TYPES.get(kind) == "float8" for kind in kinds) else 1.0
    at_first = 1 - chip["clock.working"] - chip["clock.load"] * heavy * beyond
    sustained = 1 - chip["clock.working"] - chip["clock.power"] - chip["clock.power_load"] * load
    reached = 1 - math.exp(-microseconds / chip["clock.heats"])
    return chip.gpu.clock_mhz * (at_first + (min(at_first, sustained) - at_first) * reached)


TENSOR_UNIT, STORING = "the tensor cores", "storing C"  # as `terms` call them


@dataclass(frozen=True)
class Tiled:
    """Cycles of one multiprocessor for one tile of C, or for beginning and ending, by what takes them.

    products: on the tensor cores. port: the tile's operands through L2's port. sums: FP32 work on what tensor cores have summed.
    pauses: in which they rest for a wait or a fence at each step. refill: until the stages have been filled again, one after the other.
    store: until C's tile has left the registers. begin: until the first operands are there. end: of a block. turns: tiles, one after the
    other. together: blocks that share the tensor cores of a multiprocessor. walks: blocks go on to their next tile themselves. rounds: of
    blocks that walk, if not all fit at a time.
    """

    products: float
    port: float
    sums: float
    store: float
    begin: float
    end: float
    turns: int
    together: int
    walks: bool
    pauses: float
    refill: float
    rounds: int

    @property
    def cycles(self) -> float:
        """Of the launch, from its first block to its last."""
        busy = max(self.products + self.sums, self.port)
        tile = max(self.products + self.sums + self.pauses, self.port, self.refill) + self.store
        if self.walks:
            return self.rounds * (self.begin + self.end) + self.turns * max(self.together * busy, tile)
        return self.turns * max(self.together * busy, self.begin + tile + self.end)

    @property
    def terms(self) -> dict[str, float]:
        """Cycles that each unit alone takes on the busiest multiprocessor, tensor cores with the sums that they wait for; and what makes
        the launch longer than any unit does."""
        each = self.turns * self.together
        found = {TENSOR_UNIT: each * (self.products + self.sums), "L2": each * self.port, STORING: self.turns * self.store}
        if self.refill:
            found["the way of its tiles from L2, which too few stages cover"] = self.turns * self.refill
        if self.pauses:
            found["the tensor cores, which rest at each step for a wait or a fence"] = each * (self.products + self.sums + self.pauses)
        if self.rounds > 1:
            found["clusters for which there is no room until others are through"] = self.cycles
        return found


def tiled(run, chip: Chip, fp32_warps: float) -> tuple[Tiled | None, str]:
    """(what the launch of a product is made of, '') or (None, why that is not known; '' where it has nothing to do with warpgroups).
    fp32_warps: FP32 instructions of all its warps.

    run: a Run with counters. Raises CourseError where a block does not fit on the GPU or its tensor cores lack the type.
    """
    gpu, compiled, counters = chip.gpu, run.kernel.compiled, run.counters
    problem = run.problem.get("problem")
    if problem is None or not counters.get(names.tensor("gmma"), 0):
        return None, ""
    if gpu.capability.name != _MEASURED:
        return None, f"warpgroups were measured on compute capability {_MEASURED} alone"
    persistent = compiled.constants.get("persistent")
    if persistent and len(persistent) > 1 and persistent[1] > 1:
        return None, "the model does not know blocks that share the tiles of C"
    rows, columns = run.problem["tile"]
    sharing = _sharing(compiled, rows)
    if _hangs_over(problem.m, problem.n, (rows, columns), sharing):
        return None, "the model does not know clusters of which a block lies outside of C, whose copies are slow"
    cluster = math.prod(sharing)
    tiles, turns, together, rounds = _walk(run, gpu, cluster, persistent[0]) if persistent else _blocks(run, gpu, cluster)
    active = min(1.0, tiles / gpu.sms)
    counted = run.problem.get("tiles") or tiles
    received = counters.get(names.bulk_sectors("ld"), 0) / tiles
    below, beside = sharing
    shared = (rows / beside + columns / below) / (rows + columns) if _MULTICAST in compiled.ptx else 1.0  # part that L2 is asked for
    # Hopper's L2 has two halves, and what does not fit in one lies in the other.
    far = min(1.0, (problem.m + problem.n) * problem.k * problem.inputs.bytes / (gpu.l2_bytes / 2))
    # A box's row of 128 bytes lies in two lines where the matrix's rows do not begin with one.
    split = chip["warpgroup.split"] if any(pitch * problem.inputs.bytes % _LINE for pitch in (problem.lda, problem.ldb)) else 1.0
    l2 = shared * active * split * (chip["warpgroup.port_sector"] + far * chip["warpgroup.far_sector"])
    depth = _depth(compiled, problem.k)
    by_tma = counters.get(names.bulk_executed("st"), 0) > 0
    releases = len(_RELEASE.findall(compiled.ptx)) if cluster > 1 else 0
    store = counters.get(names.sectors("global", "st"), 0) / counted * chip["warpgroup.sector"]
    conflicts = counters.get(names.shared_conflicts("st"), 0) / counted  # wavefronts more than its results need
    products, port = rows * columns * depth / fmas(gpu, compiled.matrix_types), max(chip["warpgroup.port_sector"], l2) * received
    issued = counters[names.tensor("gmma")] / _WARPS / counted  # wgmma
    pauses, refill = _waits(run, chip, products, received, far, again=bool(persistent) and turns > 1, issued=issued)
    return Tiled(
        products=products,
        port=port,
        sums=fp32_warps / counted * WARP / gpu.capability.fp32_lanes * chip["warpgroup.sums"],
        store=store + (rows * columns * chip["warpgroup.element"] if by_tma else 0.0) + conflicts,
        begin=chip["warpgroup.begin"] + chip["warpgroup.crowd"] * active,
        end=(chip["warpgroup.drain"] if by_tma else 0.0) + chip["warpgroup.released"] * releases,
        turns=turns,
        together=together,
        walks=bool(persistent),
        pauses=pauses,
        refill=refill,
        rounds=rounds,
    ), ""


def _waits(run, chip: Chip, products: float, received: float, far: float, again: bool, issued: float = 0.0) -> tuple[float, float]:
    """(cycles in which the tensor cores rest at all steps of a tile, cycles until its stages have been filled, one after the other).

    products, received, issued: of the tile: cycles, sectors, wgmma. far: part of the data beyond half of L2. again: all stages are filled
    again for it; otherwise the first ones are there when the products begin.
    """
    compiled, problem = run.kernel.compiled, run.problem["problem"]
    if "box_A" not in compiled.constants:
        return 0.0, 0.0  # what it copies at a step is not known
    step, (rows, columns) = _box_of_a(compiled)[1], run.problem["tile"]
    count = max(1, math.ceil(problem.k / step))
    box = compiled.constants.get("box_C", (0, 1))  # what sends C away needs room, too: a box for each group of columns at least
    room = compiled.shared_bytes + run.shared - box[0] * columns * problem.result.bytes
    held = room // ((rows + columns) * step * problem.inputs.bytes)
    loop = _step(compiled.sass, compiled.symbol)
    reach = chip["warpgroup.answer"] + far * chip["warpgroup.far_answer"]
    pauses = count * (chip["warpgroup.rest"] * loop.rests + chip["warpgroup.fence"] * reach * loop.fences)
    if loop.drains and issued:  # while a warpgroup waits for its own products, those of the others go on
        groups = max(1, math.prod(run.block) // (_WARPS * WARP) - (_PRODUCERS in compiled.ptx))
        covered = (groups - 1) * products / issued / loop.drains
        waits = issued / groups * loop.drains - count * loop.rests
        pauses += max(0.0, waits) * max(0.0, chip["warpgroup.rest"] - covered)
    answer = reach + received / count * chip["warpgroup.port_sector"]
    # Stages that are on their way, or there, while another one is read: as its copies are started, if it has room for more.
    ahead, tried = held - 1, min(count, held + 2)
    if 1 < held <= _MOST_STAGES and count > 1 and (seen := _at_a_time(run, tried * step)) and seen < min(count, held - loop.rests):
        ahead = seen - (not loop.rests)
    if ahead < 1:
        return pauses, count * answer + products
    if loop.rests:
        answer += products / count  # the next stage is asked for when they have ended, not when they begin
    return pauses, (count if again else count - min(count, ahead)) * answer / ahead


_seen: OrderedDict[tuple[bytes, str, int], int] = OrderedDict()


def _at_a_time(run, k: int) -> int:
    """How many stages its first block has under way at a time, in the order of execution; 0 where that cannot be told."""
    compiled = run.kernel.compiled
    key = (compiled.cubin, compiled.symbol, k)
    if key not in _seen:
        try:
            trace = run.first_stages(k)
        except CourseError:  # what it cannot run, the SIMT machine says where the kernel is run
            trace = None
        found = stages.fills(trace) if trace is not None and not trace.truncated else None
        _seen[key] = stages.at_a_time(found[1]) if found else 0
        while len(_seen) > _REMEMBERED:
            _seen.popitem(last=False)
    return _seen[key]


class _Step(NamedTuple):
    """What warps do at each step along K. rests: they wait until their own products have ended, and then for each other. fences: so many
    wait until all that they have written can be seen on the whole GPU. drains: for each wgmma, waits until their own products have ended.
    """

    rests: bool
    fences: float
    drains: float


@functools.lru_cache(maxsize=16)
def _step(sass: str, symbol: str) -> _Step:
    """By the innermost loop that multiplies."""
    loops = [loop for loop in parse(sass)[symbol].loops() if any(i.name.endswith("GMMA") for i in loop)]
    inner = min(loops, key=len, default=())
    waits = [i for i in inner if i.name == "WARPGROUP" and i.has("DEPBAR")]
    if not waits:
        return _Step(False, 0.0, 0.0)
    fences = sum(i.name == "MEMBAR" and i.has("GPU") for i in inner)
    drained = [i for i in waits if _ALL_DONE.search(str(i))]
    pending, busy, meets = False, False, False
    for i in (*inner, *inner):  # once more: what is under way when it begins
        pending = (pending or _multiplies(i)) and i not in drained
        if i.name == "BAR" and i.has("SYNC"):
            meets, busy = True, busy or pending  # somebody's products go on behind it
    rests = meets and (len(drained) == len(waits) or not busy)
    return _Step(rests, fences / len(waits), len(drained) / max(1, sum(map(_multiplies, inner))))


def _multiplies(instruction: SassInstruction) -> bool:
    """Whether it is a product of a warpgroup. (One without a result closes a group in which there is none.)"""
    return instruction.name.endswith("GMMA") and instruction.operands[0] != "RZ"


def hangs_over(compiled, m: int, n: int) -> bool:
    """Whether the last clusters of a C of m × n have a block without any of it, in the tiles that the kernel states. On an H200 such a
    cluster takes up to twice as long as others (kernels/LOG.md, runs 17 and 19), and `tiled` does not know them."""
    tile = compiled.constants["tile_shape"]
    return _hangs_over(m, n, tile, _sharing(compiled, tile[0]))


def _hangs_over(m: int, n: int, tile: Sequence[int], sharing: tuple[int, int]) -> bool:
    (rows, columns), (below, beside) = tile, sharing
    return bool(math.ceil(m / rows) % below or math.ceil(n / columns) % beside)


def _sharing(compiled, rows: int) -> tuple[int, int]:
    """(blocks of a cluster below each other, which share B; blocks beside each other, which share A): beside each other where each copies
    its part of the tile's rows of A, and below each other otherwise."""
    cluster = math.prod(directives(compiled.ptx, compiled.symbol).get("reqnctapercluster", (1,)))
    return (1, cluster) if _box_of_a(compiled)[0] * cluster == rows else (cluster, 1)


def _walk(run, gpu: GPU, cluster: int, each: int) -> tuple[int, int, int, int]:
    """(tiles of C, those that a multiprocessor has one after the other, blocks of a multiprocessor, rounds of blocks) where `each` blocks
    per multiprocessor walk the tiles, in whole clusters. (Those for which there is no room come when others have walked all their tiles.)
    """
    problem, (rows, columns) = run.problem["problem"], run.problem["tile"]
    tiles = math.ceil(problem.m / rows) * math.ceil(problem.n / columns)
    clusters, at_once = gpu.sms * each // cluster, gpu.clusters_of(cluster) * each
    most, more = divmod(tiles // cluster, clusters)  # the first so many clusters have one more
    turns = [found for first in range(0, clusters, at_once) if (found := most + (first < more))]
    return tiles, sum(turns), min(each, math.ceil(tiles / gpu.sms)), len(turns)


def _blocks(run, gpu: GPU, cluster: int) -> tuple[int, int, int, int]:
    """The same where each block has a tile: how many a multiprocessor has one after the other. Raises CourseError where none fits."""
    compiled = run.kernel.compiled
    fit = occupancy(gpu, math.prod(run.block), compiled.registers, compiled.shared_bytes + run.shared)
    if not fit.blocks_per_sm:
        raise CourseError(f"This launch does not run on {gpu.name}: {fit.reason}.")
    tiles, at_once = math.prod(run.grid), gpu.clusters_of(cluster) * cluster
    together = min(fit.blocks_per_sm, math.ceil(tiles / gpu.sms))
    return tiles, math.ceil(tiles / (at_once * together)), together, 1
