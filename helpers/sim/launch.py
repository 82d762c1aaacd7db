"""One launch on the CPU: arguments in, chunks of blocks one after the other, results out."""

from __future__ import annotations

import itertools
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from helpers import interrupts
from helpers.errors import CourseError, Finding, LaunchError, NotBegunError, RunError, UnexplainedError

from . import garbage, isa, native
from .checks import endless
from .checks.device_places import DevicePlaces
from .checks.findings import Findings, Unclear
from .checks.launch_checks import LaunchChecks, Unchecked
from .checks.shared_cells import plain_name
from .checks.undefined_shuffles import Strayed
from .checks.unwritten import Carried
from .code import time_limit
from .code.addresses import DEVICE_BASE, PARAM_WINDOW
from .code.merged_accesses import AccessWidth, access_sites
from .code.program import Image
from .code.ptx import immediate_bits, literal
from .code.sites import ChargedSite, CostRule, Site
from .counting import machine_code, names
from .counting.counters import ALWAYS, Counting
from .layouts.struct_value import StructValue
from .layouts.tensor_map import NBYTES, TensorMap
from .load import Program, followed, load
from .machine import cluster as clusters
from .machine import stuck
from .machine.chunk import Chunk, Clock
from .machine.memory import DeviceMemory
from .machine.printout import Printout
from .machine.trace import Allocation, Recorder, Trace, TraceFilter

# Lanes per chunk. More lanes spread the cost of a NumPy call, fewer keep registers in the cache: see benchmarks.
MOST_LANES = 1 << 16
LEAST_LANES = 1 << 13
REGISTER_BYTES = 24 << 20
CLUSTER_SHADOW = 4 << 20  # bytes of shared memory per chunk whose accesses are told apart by block


@dataclass(frozen=True)
class Collect:
    """What to collect. trace: a TraceFilter or None. blocks: run only these linear block indices and scale the counters.

    uninitialized: parameters whose arrays count as never written by the host; a read of them is a finding.
    """

    counters: bool = True
    findings: bool = True
    trace: TraceFilter | None = None
    blocks: Iterable[int] | None = None
    uninitialized: frozenset[str] = frozenset()


UPWARDS, DOWNWARDS = "upwards", "downwards"  # orders of the blocks of a launch `in_turn`
ALONE = "alone"  # upwards, and none begins before those before it have ended
SHUFFLED = "shuffled"  # in an order of no kind, the same each time


@dataclass(frozen=True)
class Budget:
    """Limits of a run: PTX instructions stepped through (per chunk of blocks, not per thread), and seconds."""

    steps: int | None = None
    seconds: float | None = 60.0


LONG = 3.0  # seconds of a run after which it says why it was slow


@dataclass(frozen=True)
class Outcome:
    """What a launch did. estimate: access widths are those of the PTX, because there was no SASS to read.

    uncounted: why the counters of executed machine instructions are missing, "" when they are there. unknown: counters that the PTX would
    have been wrong on besides, and which are missing, too. globals_after: what the
    launch left in the kernel's global variables, None if it changed none of them. engine: "numpy",
    "native", or "slice" where nothing was run and `counting.machine_code` counted. engine_reason: why "numpy" where "native"
    was free to be chosen, with the instruction and its line if it is one's. hints: sentences about what may explain a wrong result.
    """

    counters: dict[str, int]
    by_line: dict[int, dict[str, int]]
    findings: list[Finding]
    trace: Trace | None
    sampled: bool
    seconds: float
    estimate: bool
    printed: str = ""
    steps: int = 0
    engine: str = "numpy"
    engine_reason: str = ""
    uncounted: str = ""
    unknown: frozenset[str] = frozenset()
    globals_after: bytes | None = None
    hints: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """One sentence where the run took long and native code could not help; else ''."""
        if not self.engine_reason or self.seconds < LONG:
            return ""
        return f"Ran on the NumPy machine, which is slower, for {self.seconds:.0f} s: {self.engine_reason}."


@dataclass
class Launch:
    """What the chunks of one launch share."""

    program: Program
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared: int
    shared_bytes: int
    memory: DeviceMemory
    findings: Findings
    charged: tuple[ChargedSite, ...]  # by site; empty where nothing is counted or recorded
    counting: Counting | None
    recorder: Recorder | None
    checks: Unchecked
    clock: Clock
    param_words: dict[int, int]
    dtypes: dict[str, np.dtype]
    arch: str
    cluster: tuple[int, int, int] | None = None
    printed: Printout = field(default_factory=Printout)
    registers: int = 0  # per thread, 0 if unknown
    source: str = ""  # the reader's, for names in messages
    in_turn: str = ""  # UPWARDS or DOWNWARDS: one block, or cluster, in each chunk
    briefly: bool = False  # chunks that look at flags in vain let others run soon
    resident: int | None = None  # blocks that fit on the largest GPU at once, None if unknown
    others_wait: Callable = lambda chunk: False
    looks_in_vain: Callable = lambda chunk: None  # called where a chunk has looked at flags for long, and no other could run
    explain: bool = True  # in the NumPy machine, what native code only notices
    tick: Callable = lambda: None  # called now and then while a chunk runs
    carried: dict[Site, Carried] = field(default_factory=dict)  # loads that have read shared memory that nobody has written
    strayed: dict[int, Strayed] = field(default_factory=dict)  # by position: shuffles that have read from lanes that take no part
    plain: frozenset[str] = frozenset()  # parameters that point to numbers, or vectors of them


def simulate(
    compiled,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[Any],
    shared: int = 0,
    collect: Collect = Collect(),
    budget: Budget = Budget(),
    progress: Callable[[int, int], None] | None = None,
    engine: str | None = None,
    cluster: Sequence[int] | None = None,
    globals_before: bytes | None = None,
    long: bool = False,
    in_turn: str = "",
    explain: bool = True,
    symbols: Sequence[tuple[str, bytes | StructValue]] = (),
    resident: int | None = None,
) -> Outcome:
    """Run a compiled kernel on the CPU. Arrays in `args` are changed in place when it has ended, never before.

    compiled: needs `.ptx` and `.symbol`; with `.cubin` and `.sass`, accesses are counted as ptxas merged them.
    grid, block: blocks and threads per block as (x, y, z). args: in parameter order, NumPy arrays (C-contiguous;
    arrays that overlap on the host overlap in the machine), numbers, tensor maps, or None for a null pointer. shared: bytes of
    dynamic shared memory. progress: called with (blocks done, blocks in all). engine: 'numpy' for the NumPy machine,
    'native' for compiled code or RunError, None for compiled code where it can do what is asked, else the NumPy machine.
    cluster: blocks per cluster as (x, y, z), for a kernel that does not declare it itself. With clusters, `Collect.blocks`
    takes in the whole clusters of the blocks it names. globals_before: the kernel's global variables as an earlier launch left
    them (`Outcome.globals_after`), instead of as the source initialises them. long: the launch is known to take long in the NumPy
    machine, which then does not begin it while native code is made. in_turn: UPWARDS (by their numbers) or DOWNWARDS, each block,
    or cluster, goes as far as it gets before the next one begins, in the NumPy machine: orders like any other, in which who does not wait
    for the others finds nothing of theirs. SHUFFLED is one more. ALONE (by their numbers), none begins before those before it have
    ended, as where one block fits on a GPU; one that waits for a later one is a finding. explain: False raises UnexplainedError where
    native code meets what only the NumPy machine can explain, and the NumPy machine does not run the launch. symbols: bytes for the
    beginnings of global variables, or structs with arrays, by the names that the PTX gives them; they come after globals_before.
    resident: blocks of the launch that fit on the largest GPU at once, if known.

    Raises RunError, with the findings so far, if the kernel cannot go on or exceeds its budget, which begins with this call.
    Counting what the machine code executes is given up when the time is over (`Outcome.uncounted`).
    """
    start = time_limit.now()
    try:
        with time_limit.until(None if budget.seconds is None else start + budget.seconds):
            given = (
                start, compiled, grid, block, args, shared, collect, budget, progress, engine, cluster, globals_before, long, in_turn,
                explain, symbols, resident,
            )  # fmt: skip
            try:
                return _simulate(*given)
            except _RunAgain as needed:
                again = needed
            return _simulate(*given, again)
    except time_limit.TimeIsUp:
        raise NotBegunError(
            f"{compiled.symbol}: preparing its code took all of the {budget.seconds:g} seconds that this launch may take, before a thread "
            "could run. Give it more (seconds=…); if the code is very large, unroll less."
        ) from None
    except MemoryError:
        raise RunError(
            f"{compiled.symbol}: there is not enough memory on this machine for the launch, its arrays and what is recorded of it. "
            "Use smaller arrays, or record less (counters, findings, trace)."
        ) from None


class _RunAgain(Exception):
    """The launch has to be run again, with undefined bits followed. why: as in `Unclear`. shown: characters that it has printed."""

    def __init__(self, why: str, shown: int):
        super().__init__(why, shown)
        self.why, self.shown = why, shown


_NUMBERS = re.compile(
    r"signed char|(unsigned )?(short|int|long|long long)|u?int(16|32|64)_t|float|double|bool|(__)?half2?|__nv_(bfloat16|bfloat162|fp8_\w+)"
    r"|(u?(char|short|int|long|longlong)|float|double)[1-4]"
)


def _simulate(
    start, compiled, grid, block, args, shared, collect, budget, progress, engine, cluster, globals_before, long, in_turn, explain,
    symbols, resident, again: _RunAgain | None = None,
) -> Outcome:  # fmt: skip
    grid, block = tuple(map(int, grid)), tuple(map(int, block))
    arch = getattr(compiled, "arch", "sm_90")
    dims = clusters.extent(compiled.ptx, compiled.symbol, arch, grid, None if cluster is None else tuple(map(int, cluster)))
    program = load(compiled.ptx, compiled.symbol, getattr(compiled, "filename", "/cell.cu"))
    image = program.image
    if globals_before is not None:
        if len(globals_before) != len(image.data):
            raise LaunchError("globals_before is of another kernel: take outcome.globals_after of a run of this one.")
        image = Image(globals_before)
    structs = {name: value for name, value in symbols if isinstance(value, StructValue)}
    if symbols:
        values = ((name, value.data if isinstance(value, StructValue) else value) for name, value in symbols)
        image = program.image_with(values, image)
    if again is not None:
        program = followed(program)
    findings = Findings(collect.findings, program)
    arrays, words = _arguments(program, compiled, args)
    for struct in structs.values():
        arrays += _more(arrays, struct)
    memory = DeviceMemory(program, arrays, image)
    for place, struct in ((address - DEVICE_BASE, structs[name]) for name, address, _, _ in program.device if name in structs):
        memory.bytes[place : place + len(struct.data)] = np.frombuffer(struct.pack(memory.base_of), np.uint8)
    memory.image = image = Image(bytes(memory.bytes[: len(image.data)]))  # with the addresses that it holds
    param_words = _param_words(program, words, memory)
    charged, estimate = _charged(program, compiled, collect)
    checks = Unchecked()
    if collect.findings:
        maps = _tensor_maps(program, words, memory)
        places = DevicePlaces(program, memory, param_words, grid, block, frozenset(collect.uninitialized), maps)
        checks = LaunchChecks(program, places, math.prod(dims or (1,)))
    launch = Launch(
        program=program, grid=grid, block=block, dynamic_shared=shared,
        shared_bytes=program.dynamic_shared_at - program.shared_start + shared,
        memory=memory, findings=findings, charged=charged, counting=Counting(program, charged) if collect.counters else None,
        recorder=Recorder(collect.trace, charged) if collect.trace is not None else None,
        checks=checks, clock=Clock(budget.steps, budget.seconds, start),
        registers=_registers(compiled), param_words=param_words, dtypes=isa.DTYPES,
        arch=arch, cluster=dims, source=getattr(compiled, "source", ""), in_turn=in_turn,
        explain=explain, briefly=bool(in_turn), resident=None if program.grid_workspace else resident,
        printed=Printout(again.shown if again else 0),
        plain=frozenset(p.name for p in getattr(compiled, "parameters", ()) if _NUMBERS.fullmatch(getattr(p, "pointer_to", None) or "")),
    )  # fmt: skip
    total = grid[0] * grid[1] * grid[2]
    chosen = None if collect.blocks is None else sorted(set(collect.blocks))
    if chosen is not None and any(not 0 <= b < total for b in chosen):
        raise LaunchError(f"collect.blocks names blocks that the grid of {total} blocks does not have.")
    if chosen is not None and dims is not None:
        chosen = clusters.whole(chosen, grid, dims) if chosen else []
    wanted = total if chosen is None else len(chosen)
    if program.grid_workspace and resident is not None and total > resident:
        raise LaunchError(
            f"The blocks of this kernel wait for each other (grid.sync()), so all of them have to be on the GPU at once, and of {total} "
            f"blocks no more than {resident} fit. Launch fewer, and let each do more."
        )
    if wanted != total and program.grid_workspace:
        raise LaunchError("The blocks of this kernel wait for each other (grid.sync()), so some of them cannot run without the others.")

    def alone():
        begun = time_limit.now()
        try:
            with np.errstate(all="ignore"):
                _run_chunks(launch, chosen, wanted, progress)
        finally:
            garbage.launches.after(time_limit.now() - begun)

    engine_reason = ""
    try:
        if engine == "numpy" or in_turn or again is not None:
            if engine is None and again is not None and not in_turn:
                engine_reason = again.why
            engine = "numpy"
            alone()
        else:
            indices = range(total) if chosen is None else chosen
            engine, engine_reason = native.execute(launch, indices, progress, alone, engine == "native", long)
    except Unclear as unclear:
        raise _RunAgain(str(unclear), launch.printed.given_up()) from None
    except native.Declined as reason:
        if engine is None:
            raise UnexplainedError(f"{program.name} was not run to its end: {reason}.", reason.op and reason.op.line) from None
        raise RunError(f"The native engine cannot run this launch: {reason}.", reason.op and reason.op.line) from None
    finally:
        launch.printed.end()
    with interrupts.delayed():
        launch.memory.copy_back()
    left = bytes(launch.memory.bytes[: len(image.data)])
    scale = total / wanted if wanted else 1.0
    counters, by_line, uncounted, unknown = ({}, {}, "", frozenset())
    if launch.counting:
        counters, by_line = launch.counting.results(scale)
        of_ptx = frozenset(counters)
        if getattr(compiled, "cubin", b""):
            placed = [_placed(value, memory) for value in args]
            counters, by_line, uncounted = machine_code.refine(
                counters,
                by_line,
                compiled,
                grid,
                block,
                placed,
                blocks=chosen,
                scale=scale,
                cluster=dims,
                accesses=estimate or _only_sass_tells(compiled, program),
                ops=program.ops,
            )
            unknown = of_ptx - counters.keys()
    trace = None
    if launch.recorder is not None:
        allocations = [*memory.allocations, *_shared_allocations(program, launch)]
        trace = launch.recorder.trace(allocations, grid, block, program)
    return Outcome(
        counters=counters, by_line=by_line, findings=findings.list(), trace=trace, sampled=wanted != total,
        seconds=time_limit.now() - start, estimate=estimate, printed=str(launch.printed), steps=launch.clock.used,
        engine=engine, engine_reason=engine_reason, uncounted=uncounted, unknown=unknown,
        globals_after=None if left == image.data else left, hints=tuple(findings.hints),
    )  # fmt: skip


def _only_sass_tells(compiled, program: Program) -> bool:
    """Whether some accesses cannot be counted from the PTX: what ptxas spilled, and copies past the cache (cp.async.cg)."""
    return getattr(compiled, "spill_loads", 0) > 0 or any(site.rule is CostRule.COPY_BYPASS for site in program.sites)


SECONDS_TO_COUNT = 20.0  # how long counting without running may take before running is tried


def count(
    compiled, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], blocks: Iterable[int], seconds: float = math.inf
) -> Outcome | None:
    """Counters of these linear block indices, scaled to the launch, from the machine code that steers it (see `counting.machine_code`).

    Nothing is computed, written or checked, so arrays in `args` only stand for addresses, and the count of PTX instructions is missing.
    None where the counters depend on data, there is no machine code or it takes more than these seconds: then `simulate` has
    to run the blocks.
    """
    start = time_limit.now()
    grid, block, chosen = tuple(map(int, grid)), tuple(map(int, block)), sorted(set(blocks))
    if not getattr(compiled, "cubin", b"") or clusters.extent(compiled.ptx, compiled.symbol, compiled.arch, grid, None) is not None:
        return None
    try:
        with time_limit.until(start + min(seconds, SECONDS_TO_COUNT)):
            counts, _ = machine_code.instruction_counts(compiled, grid, block, args, blocks=chosen, accesses=True)
    except CourseError:
        return None  # no disassembler on this machine
    except time_limit.TimeIsUp:
        return None
    if counts is None or not counts.complete:
        return None
    exact, lines = machine_code.counters(counts, compiled)
    scale = math.prod(grid) / len(chosen) if chosen else 1.0

    def scaled(values):
        return {name: round(value * scale) for name, value in names.without_l2(values).items()}

    return Outcome(
        counters=dict.fromkeys(ALWAYS, 0) | {name: value for name, value in scaled(exact).items() if exact[name]},
        by_line={line: scaled(values) for line, values in sorted(lines.items())},
        findings=[], trace=None, sampled=len(chosen) != math.prod(grid), seconds=time_limit.now() - start, estimate=False, engine="slice",
    )  # fmt: skip


def _run_chunks(launch: Launch, chosen, wanted: int, progress) -> None:
    pieces = _pieces(launch, chosen)  # one at a time: there may be billions
    piece = next(pieces, None)
    waiting: deque[Chunk] = deque()
    done = 0
    alone = launch.in_turn == ALONE and launch.findings.wanted
    watched = _keeps_order(launch, chosen) and launch.in_turn not in (DOWNWARDS, SHUFFLED) and launch.findings.wanted
    room = 1 if alone else (launch.resident if watched else None) or math.inf

    def advance(chunk: Chunk) -> bool:
        nonlocal done
        if not chunk.run():
            return False
        chunk.finish()
        if launch.counting is not None:
            launch.counting.finish_chunk(chunk)
        done += chunk.blocks
        return True

    launch.others_wait = lambda chunk: piece is not None or bool(waiting)
    if wanted < math.prod(launch.grid):
        launch.looks_in_vain = stuck.OthersMissing(launch).look
    launch.tick = lambda: progress and progress(done, wanted)
    while piece is not None or waiting:
        left = room - sum(chunk.unfinished for chunk in waiting)
        if piece is not None and 0 < left < math.prod(piece[1]) and launch.cluster is None:
            piece, *others = _split(piece, int(left))
            pieces = itertools.chain(others, pieces)
        if piece is not None and left <= 0:
            hangs = stuck.wait_for_ever(launch, waiting, advance)
            if hangs:
                places = [chunk.place for chunk in waiting]
                if alone:
                    endless.waits_for_later(launch.program, launch.findings, places)
                else:
                    endless.no_room(launch.program, launch.findings, places, math.prod(launch.grid), launch.resident)
            if hangs is not False:
                room = math.inf
            continue
        # Chunks that only wait for others step back; new ones come first, because they may be what is waited for.
        if piece is not None:
            chunk, piece = Chunk(launch, *piece), next(pieces, None)
        else:
            chunk = waiting.popleft()
        if not advance(chunk):
            waiting.append(chunk)
            continue
        clock = launch.clock
        if piece is not None and clock.seconds is not None and clock.elapsed() > clock.seconds:  # chunks too short to look themselves
            endless.out_of_budget(launch.program, launch.findings, f"{clock.seconds:.3g} seconds", launch.program.line)
        if progress is not None:
            progress(done, wanted)


def _keeps_order(launch: Launch, chosen) -> bool:
    """Do blocks begin by their numbers? They do where blocks may wait for others and not all of them fit."""
    if launch.resident is None or launch.resident >= math.prod(launch.grid) or chosen is not None:
        return False
    return any(site.index in launch.program.decisive for site in launch.program.sites if site.volatile or site.atomic)


def _pieces(launch: Launch, chosen):
    """Rectangles of the grid (or runs of chosen blocks) as (coordinates, extent)."""
    gx, gy, gz = launch.grid
    threads = math.prod(launch.block)
    registers = max(1, sum(kind != "pred" for kind in launch.program.types)) * 4
    lanes = min(MOST_LANES, max(LEAST_LANES, REGISTER_BYTES // registers))
    count = 1 if launch.in_turn else max(1, lanes // max(1, threads))
    in_order = _keeps_order(launch, chosen)
    if in_order:
        count = max(1, min(count, launch.resident))
    order = reversed if launch.in_turn == DOWNWARDS else iter
    cx, cy, cz = launch.cluster or clusters.ONE_EACH
    if launch.checks.wanted and "cluster" in launch.program.uses:
        count = min(count, max(1, CLUSTER_SHADOW // max(1, launch.shared_bytes)))
    if launch.in_turn == SHUFFLED and chosen is None and launch.cluster is None:
        chosen = np.random.default_rng(0).permutation(math.prod(launch.grid))
    if chosen is not None:
        count = max(1, count // (cx * cy * cz)) * cx * cy * cz
        for start in order(range(0, len(chosen), count)):
            numbers = np.array(chosen[start : start + count], np.int64)
            z, y, x = numbers // (gx * gy), numbers // gx % gy, numbers % gx
            yield [c.reshape(1, 1, -1) for c in (z, y, x)], (1, 1, len(numbers))
        return
    if min(launch.grid) < 1 or threads < 1:
        return
    nx = min(gx, count if in_order else max(1, math.isqrt(count)))
    ny = min(gy, max(1, count // nx)) if nx == gx or not in_order else 1
    nx = min(gx, max(1, count // ny))
    nz = min(gz, max(1, count // (nx * ny))) if ny == gy or not in_order else 1
    nx, ny, nz = (max(1, n // c) * c for n, c in ((nx, cx), (ny, cy), (nz, cz)))  # whole clusters
    for z in order(range(0, gz, nz)):
        for y in order(range(0, gy, ny)):
            for x in order(range(0, gx, nx)):
                zs, ys, xs = np.arange(z, min(z + nz, gz)), np.arange(y, min(y + ny, gy)), np.arange(x, min(x + nx, gx))
                yield [zs.reshape(-1, 1, 1), ys.reshape(1, -1, 1), xs.reshape(1, 1, -1)], (len(zs), len(ys), len(xs))


def _split(piece, count: int) -> list:
    """A rectangle in parts, the first of which has at most `count` of its blocks, those with the lowest numbers."""
    extent = piece[1]
    if math.prod(extent) <= count:
        return [piece]
    axis = next(i for i in range(3) if extent[i] > 1)
    size = math.prod(extent[axis + 1 :])
    first, rest = _cut(piece, axis, max(1, count // size))
    return [*_split(first, count), rest]


def _cut(piece, axis: int, at: int) -> tuple:
    parts = []
    for numbers in np.split(piece[0][axis], [at], axis):
        lines = [numbers if i == axis else line for i, line in enumerate(piece[0])]
        parts.append((lines, tuple(line.shape[i] for i, line in enumerate(lines))))
    return tuple(parts)


def _registers(compiled) -> int:
    """Registers per thread at launch. 0 where nobody knows, and where ptxas says that it ignores changes of them."""
    return 0 if "'setmaxnreg' ignored" in getattr(compiled, "log", "") else getattr(compiled, "registers", 0)


def _arguments(program: Program, compiled, args):
    """(arrays with their parameter names, per parameter: array | (TensorMap or StructValue, where a pointer goes) | bytes)."""
    if len(args) != len(program.parameters):
        raise LaunchError(f"{program.name} takes {len(program.parameters)} arguments, and {len(args)} were given.")
    names = [p.name for p in getattr(compiled, "parameters", ())] or [v.name for v, _ in program.parameters]
    arrays, values = [], []
    for name, (variable, _), value in zip(names, program.parameters, args, strict=True):
        if isinstance(value, np.ndarray) and value.ndim > 0:
            if not value.flags.c_contiguous:
                raise LaunchError(f"Argument {name} is not contiguous: pass numpy.ascontiguousarray(…).")
            arrays.append((name, value))
            values.append(value)
        elif isinstance(value, TensorMap):
            if variable.nbytes not in (8, NBYTES):
                raise LaunchError(f"Argument {name} is a tensor map of {NBYTES} bytes, and the kernel expects {variable.nbytes}.")
            arrays.append((name, value.memory))
            copy = np.zeros(NBYTES, np.uint8) if variable.nbytes == 8 else None  # the kernel takes a pointer to it
            if copy is not None:
                arrays.append((f"{name} (descriptor)", copy))
            values.append((value, copy))
        elif isinstance(value, StructValue):
            arrays += _more(arrays, value)
            table = np.zeros(len(value.data), np.uint8) if value.by_pointer else None
            if table is not None:
                arrays.append((name, table))
            values.append((value, table))
        elif value is None:
            values.append(bytes(variable.nbytes))
        else:
            values.append(_scalar_bytes(name, variable, value))
    return arrays, values


def _more(arrays: Sequence[tuple[str, np.ndarray]], struct: StructValue) -> list[tuple[str, np.ndarray]]:
    """The arrays that a struct points to and that are not among `arrays`, with the names of its members."""
    known = {id(array) for _, array in arrays}
    return [(member, array) for member, _, array in struct.pointers if id(array) not in known]


def _scalar_bytes(name, variable, value) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        data = bytes(value)
    elif isinstance(value, (bool, int)):
        kind = variable.type
        data = (
            np.array(value, isa.DTYPES[kind]).tobytes() if kind.startswith("f")
            else (int(value) & ((1 << 8 * variable.nbytes) - 1)).to_bytes(variable.nbytes, "little")
        )  # fmt: skip
    elif isinstance(value, float):
        bits = immediate_bits(literal(repr(float(value))), variable.type) if math.isfinite(value) else None
        data = np.array(value, isa.DTYPES[variable.type]).tobytes() if bits is None else bits.to_bytes(variable.nbytes, "little")
    else:
        data = np.asarray(value).tobytes()
    if len(data) != variable.nbytes:
        raise LaunchError(f"Argument {name} has {len(data)} bytes, and the kernel expects {variable.nbytes}.")
    return data


def _param_words(program: Program, values, memory: DeviceMemory) -> dict[int, int]:
    frame = bytearray(-(-max(program.param_bytes, 4) // 4) * 4)
    for (_variable, at), value in zip(program.parameters, values, strict=True):
        if isinstance(value, np.ndarray):
            value = memory.base_of(value).to_bytes(8, "little")
        elif isinstance(value, tuple):
            given, copy = value
            value = given.pack(memory.base_of) if isinstance(given, StructValue) else given.at(memory.base_of(given.memory)).pack()
            if copy is not None:
                place = memory.base_of(copy)
                copy[:] = memory.bytes[place - DEVICE_BASE :][: len(copy)] = np.frombuffer(value, np.uint8)
                value = place.to_bytes(8, "little")
        frame[at : at + len(value)] = value
    words = np.frombuffer(bytes(frame), np.uint32)
    used = -(-sum(v.nbytes for v, _ in program.parameters) // 4) if program.parameters else 0
    end = max([at + v.nbytes for v, at in program.parameters], default=used)
    return {i: int(words[i]) for i in range(-(-end // 4))}


def _placed(value: Any, memory: DeviceMemory) -> Any:
    """An argument with the machine's addresses in place of arrays."""
    if isinstance(value, np.ndarray) and value.ndim:
        return memory.base_of(value)
    return value.pack(memory.base_of) if isinstance(value, StructValue) and not value.by_pointer else value


def _tensor_maps(program: Program, values, memory: DeviceMemory) -> dict[int, int]:
    """{generic address of a tensor map: address of its tensor}"""
    held = ((at, value) for (_, at), value in zip(program.parameters, values, strict=True) if isinstance(value, tuple))
    given = [(at, *value) for at, value in held if isinstance(value[0], TensorMap)]
    return {PARAM_WINDOW + at if copy is None else memory.base_of(copy): memory.base_of(tensor.memory) for at, tensor, copy in given}


_NO_MACHINE_CODE = "an estimate, there is no machine code"


def _charged(program: Program, compiled, collect: Collect) -> tuple[tuple[ChargedSite, ...], bool]:
    """(each site as ptxas made it, whether that is unknown and the PTX's own widths have to do); no site where nothing is observed."""
    missing = _NO_MACHINE_CODE if getattr(compiled, "estimate", "") else ""
    known: dict[int, AccessWidth] = {}
    estimate = not getattr(compiled, "cubin", b"")
    if not collect.counters and collect.trace is None:
        return (), estimate
    if not estimate and (collect.counters or not collect.trace.as_written):
        try:
            known = access_sites(program, compiled.sass, compiled.symbol)
        except CourseError:
            estimate = True  # no disassembler on this machine; the outcome says that its counters are an estimate
    charged = []
    for site in program.sites:
        access = known.get(site.ptx_line)
        if access is None:
            charged.append(ChargedSite(site, site.width, estimate=missing))
            continue
        # The widths of a fragment's parts are known, and not in the machine code, unless ptxas removed the whole.
        width = site.width if site.part and access.width else access.width
        charged.append(ChargedSite(site, width, access.opcode, access.offset, access.why, access.combined))
        estimate |= not access.exact
    return tuple(charged), estimate


def _shared_allocations(program: Program, launch: Launch) -> list[Allocation]:
    return [
        Allocation(plain_name(name), "shared", base, nbytes or launch.dynamic_shared, (nbytes or launch.dynamic_shared,), 1, "uint8")
        for name, base, nbytes in program.shared
    ]
