"""Search the constants of a kernel: tile sizes, stages, whatever its source sets to a number.

    found = search(kernel.source, {"BM": (64, 128), "TM": (4, 8), "TN": (4, 8)}, size=4096)

Most of a space needs no GPU to be refused, and every refusal has its reason. Cheapest first:

1. the source's own static_asserts, judged by the compiler for all configurations at once;
2. what an SM cannot hold: threads, shared memory, and more sums per thread than registers;
3. a bound: what the grid and the loads of the inner product leave at best, against the best configuration found so far;
4. after compiling: spills, and registers that leave no room for a block.

What is left is ranked by a static score, read from the machine code: the cycles that the compiler itself plans for the
main loop, per multiply-add. With a GPU the best of the ranking are timed, in turn with cuBLAS. Results are kept as they
come, so that an interrupted search goes on where it stopped.

Why no optimiser library: after the refusals some dozens of configurations are left. Their cost is compiling, a second
each, which a sampler would have to pay as well for every point it tries, and the score already says where to begin.
The bound makes the search exact as far as the score goes; a sampler could not promise that.
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import html
import itertools
import json
import math
import re
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from . import compiler, gpu
from .compiler import Compiled, compile_source, strip_comments
from .errors import CompileError, CourseError, RunError
from .gemm import Problem
from .interrupts import delayed
from .kernel import Kernel
from .lesson import DEFAULT_GPU
from .model import hardware
from .model.hardware import REGISTERS_PER_BLOCK, REGISTERS_PER_THREAD, Capability
from .model.occupancy import occupancy
from .paths import data_folder
from .progress import Progress
from .sim import sass
from .sweep import variant
from .timing import time_gemms

FILE = "searches.sqlite3"
_SCHEMA = 1  # raise it when what is stored changes: older results are then made again
_SLACK = 0.9  # the score is no time: a bound must be this far below the best score before it refuses
_AT_ONCE = 24  # configurations that the compiler judges in one go; it gives up after 100 errors
_TIMED_TOGETHER = 6  # kernels that are timed in turn, with cuBLAS
_CONTROL_WORD = struct.Struct("<QQ")  # an instruction since sm_70: 128 bits, the scheduling in the upper ones

ASSERTED, LAUNCH, REGISTERS, BOUND, SPILLS, REFUSED, WRONG = (
    "static assert", "does not fit", "registers", "bound", "spills", "compiler", "wrong result",
)  # fmt: skip


@dataclass(frozen=True)
class Code:
    """What compiling one configuration showed. Sizes in bytes; spilled: per thread, what was spilled and what never had
    a register, such as an array with an index that is not known before the kernel runs; cycles: of a warp's main loop,
    per multiply-add of the warp (None if it has no loop of multiply-adds)."""

    threads: int
    tile: tuple[int, int]
    registers: int
    shared: int
    spilled: int
    cycles: float | None


@dataclass(frozen=True)
class Measured:
    """A time on a GPU, with cuBLAS's in turn (ratio above 1: faster than cuBLAS; None without cuBLAS)."""

    milliseconds: float
    cublas_ratio: float | None
    device: str
    noisy: str


@dataclass(frozen=True)
class Candidate:
    """One configuration. rule, refused: why it is out, as a word and as a sentence, or "".

    fill: of the work that the GPU could do while the busiest SM is busy, the part that is this product. bound: fill,
    less what the loads of the inner product take at least. Both are parts of the FP32 limit, 0 to 1.
    """

    constants: Mapping[str, int]
    rule: str = ""
    refused: str = ""
    fill: float = 0.0
    bound: float = 0.0
    code: Code | None = None
    measured: Measured | None = None

    @property
    def score(self) -> float | None:
        """The part of the FP32 limit that the machine code and the grid promise; None if refused or not compiled."""
        return None if self.rule or self.code is None or not self.code.cycles else self.fill / self.code.cycles

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.constants.items())


@dataclass(frozen=True)
class Search:
    """What a search has found so far. stopped: why it is not complete, or ""."""

    problem: Problem
    gpu_name: str
    candidates: tuple[Candidate, ...]
    stopped: str = ""

    @property
    def ranked(self) -> tuple[Candidate, ...]:
        """What was not refused, best first: measured times before scores."""
        alive = [item for item in self.candidates if item.score is not None]
        return tuple(sorted(alive, key=lambda c: (c.measured.milliseconds if c.measured else math.inf, -c.score)))

    @property
    def best(self) -> Candidate:
        """The first of the ranking. Raises CourseError if nothing is left."""
        if not self.ranked:
            raise CourseError(f"No configuration is left. {self.summary()}")
        return self.ranked[0]

    def refusals(self) -> dict[str, tuple[int, Candidate]]:
        """rule -> how many it refused, and one of them, the most frequent rule first."""
        counts = Counter(item.rule for item in self.candidates if item.rule)
        return {
            rule: (count, next(c for c in self.candidates if c.rule == rule)) for rule, count in counts.most_common()
        }

    def at(self, *shape: int) -> Search:
        """The same code on another product, m × n × k or m³, without compiling: what was ranked is ranked again.

        By its score; what was refused for its bound, or not reached, is left out: it has no code.
        """
        problem = _problem(shape)
        target = _target(self.gpu_name)
        kept = [c for c in self.candidates if c.score is not None]
        fills = [busy_part(c.code.tile, problem, target.sms) for c in kept]
        again = [
            replace(c, fill=fill, bound=fill * c.bound / c.fill, measured=None)
            for c, fill in zip(kept, fills, strict=True)
        ]
        return replace(self, problem=problem, candidates=tuple(again), stopped="")

    def summary(self) -> str:
        """How many there were, and what became of them."""
        done = Counter(
            c.rule or ("measured" if c.measured else "ranked" if c.score else "waiting") for c in self.candidates
        )
        alive = [f"{done[kind]} {kind}" for kind in ("measured", "ranked", "waiting") if done[kind]]
        out = [f"{count} refused ({rule})" for rule, (count, _) in self.refusals().items()]
        return f"{len(self.candidates)} configurations for {self.problem} on {self.gpu_name}: {', '.join(alive + out)}."

    def table(self, rows: int = 8) -> tuple[list[str], list[list[str]]]:
        """Header and cells of the best `rows`."""
        header = [
            "",
            "threads",
            "registers",
            "shared bytes",
            "fill",
            "cycles per FMA",
            "score, of the FP32 limit",
            "TFLOPS, measured",
            "of cuBLAS",
        ]
        cells = []
        for item in self.ranked[:rows]:
            code, timed = item.code, item.measured
            speed = f"{self.problem.flops / timed.milliseconds / 1e9:.1f}" if timed else "–"
            ratio = f"{timed.cublas_ratio:.3f}" if timed and timed.cublas_ratio else "–"
            cells.append([
                str(item), f"{code.threads}", f"{code.registers}", f"{code.shared:,}", f"{item.fill:.1%}",
                f"{code.cycles:.3f}", f"{item.score:.1%}", speed, ratio,
            ])  # fmt: skip
        return header, cells

    def __str__(self) -> str:
        header, cells = self.table()
        widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
        lines = [
            "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in (header, *cells)
        ]
        return "\n".join([*lines, self.summary(), *([self.stopped] if self.stopped else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        header, cells = self.table()
        head = "".join(f"<th style='text-align:right'>{html.escape(text)}</th>" for text in header)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in cells)
        below = "".join(f"<div>{html.escape(text)}</div>" for text in (self.summary(), self.stopped) if text)
        return f"<table style='font-size:1em'><tr>{head}</tr>{body}</table>{below}"


# ------------------------------------------------------------------------------------------------------ the search


def search(
    source: str,
    space: Mapping[str, Iterable[int]],
    size: int | Sequence[int] = 4096,
    gpu_name: str | None = None,
    compile_at_most: int | None = None,
    measure_at_most: int = 24,
    results: Results | None = None,
) -> Search:
    """Search `space` (constant -> the numbers to try) for the configuration of `source` that is fastest at `size`.

    size: M = N = K, or (m, n, k). gpu_name: search for this GPU of the table, without measuring, even if there is one
    here. compile_at_most: compile no more than so many new configurations; the others wait for the next call.
    measure_at_most: with a GPU, time so many of the best. results: where they are kept (by default the reader's file).
    An interrupt ends the search with what it has. Raises CourseError for a constant that the source does not set to a
    number, an empty space or an unknown GPU, and what the compiler's absence raises.
    """
    problem = _problem(size)
    target = _target(gpu_name)
    kept = results or Results(data_folder() / FILE)
    points = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    if not points or not space:
        raise CourseError(
            "There is nothing to search: give at least one constant with its numbers, such as {'BM': (64, 128)}."
        )
    candidates = [_judged(item, problem, target) for item in vet(source, points, target.capability.arch)]
    stopped = ""
    try:
        with Progress("compiling configurations") as progress:
            stopped = _compile_all(source, candidates, target, kept, compile_at_most, progress)
        if gpu_name is None and gpu.available():
            with Progress("timing configurations") as progress:
                _measure_all(source, candidates, problem, target, kept, measure_at_most, progress)
    except KeyboardInterrupt:
        stopped = "Interrupted. What was found is kept: search again, and it goes on from here."
    return Search(problem, target.name, tuple(candidates), " ".join(filter(None, (stopped, kept.why_not))))


def _problem(size: int | Sequence[int]) -> Problem:
    extents = (size,) if isinstance(size, int) else tuple(size)
    if len(extents) not in (1, 3) or not all(isinstance(one, int) and one > 0 for one in extents):
        raise CourseError(
            f"size={size!r}: give one whole number for M = N = K, or three for (M, N, K), each at least 1."
        )
    return Problem(*(extents * 3 if len(extents) == 1 else extents))


@dataclass(frozen=True)
class _Target:
    """The GPU that is searched for."""

    name: str
    capability: Capability
    sms: int


def _target(gpu_name: str | None) -> _Target:
    if gpu_name is None and gpu.available():
        here = gpu.device()
        return _Target(here.name, hardware.capability(here.arch), here.sms)
    try:
        row = hardware.gpu(gpu_name or DEFAULT_GPU)
    except CourseError:
        if gpu.available() and gpu.device().name == gpu_name:  # a GPU that is here need not be in the table
            return _target(None)
        raise
    return _Target(row.name, row.capability, row.sms)


def _judged(item: Vetted, problem: Problem, target: _Target) -> Candidate:
    """A candidate with what can be said of it before it is compiled."""
    if item.refused:
        return Candidate(item.constants, ASSERTED, item.refused)
    results = math.prod(item.tile) / item.threads
    fit = occupancy(target.capability, item.threads, 0, item.shared)
    if not fit.blocks_per_sm:
        return Candidate(item.constants, LAUNCH, f"{fit.reason[0].upper()}{fit.reason[1:]}.")
    room = min(REGISTERS_PER_THREAD, REGISTERS_PER_BLOCK // item.threads)
    if results > room:
        sentence = f"Each thread must keep {results:g} sums, and {item.threads} threads leave it {room} registers."
        return Candidate(item.constants, REGISTERS, sentence)
    fill = busy_part(item.tile, problem, target.sms)
    # Per k, a thread's tile of r results multiplies at least 2 √r different values, and a load brings at most 4.
    return Candidate(item.constants, fill=fill, bound=fill * results / (results + math.sqrt(results) / 2))


def busy_part(tile: tuple[int, int], problem: Problem, sms: int) -> float:
    """Useful work over what all SMs could do while the busiest one works through its tiles, edges included."""
    blocks = math.ceil(problem.m / tile[0]) * math.ceil(problem.n / tile[1])
    return problem.m * problem.n / (math.ceil(blocks / sms) * sms * math.prod(tile))


def _compile_all(
    source, candidates: list[Candidate], target: _Target, kept: Results, at_most: int | None, progress
) -> str:
    """Compile what could still win, highest bound first; candidates change in place. Returns why some wait, or ""."""
    order = sorted((i for i, item in enumerate(candidates) if not item.rule), key=lambda i: -candidates[i].bound)
    best, fresh, waiting = None, 0, 0
    for done, index in enumerate(order):
        progress(done, len(order))
        item = candidates[index]
        if best is not None and item.bound < _SLACK * best.score:
            reason = f"At best {item.bound:.1%} of the FP32 limit; {best} has a score of {best.score:.1%}."
            candidates[index] = replace(item, rule=BOUND, refused=reason)
            continue
        text = variant(source, **item.constants)
        key = _key("code", text, target.capability.arch)
        known = kept.get(key)
        if known is None and at_most is not None and fresh >= at_most:
            waiting += 1
            continue
        if known is None:
            known, fresh = _compiled(text, target), fresh + 1
            kept.put(key, known)
        item = candidates[index] = _with_code(item, known)
        if item.score is not None and (best is None or item.score > best.score):
            best = item
    return f"{waiting} configurations wait to be compiled: search again, and it goes on from here." if waiting else ""


def _compiled(text: str, target: _Target) -> dict:
    """The facts of one configuration's machine code, or the refusal: what is kept."""
    try:
        compiled = compile_source(text, arch=target.capability.arch)
    except CompileError as error:
        return {"rule": REFUSED, "refused": error.message}
    shape, tile = compiled.constants["block_shape"], compiled.constants["tile_shape"]
    shared = compiled.shared_bytes + sum(compiled.constants.get("dynamic_shared", (0,)))
    code = Code(math.prod(shape), tuple(tile), compiled.registers, shared, compiled.local_bytes, loop_cycles(compiled))
    fit = occupancy(target.capability, code.threads, code.registers, code.shared)
    if code.spilled:
        reason = f"{code.spilled} bytes of each thread find no register and go to memory and back."
        return {"rule": SPILLS, "refused": reason, "code": asdict(code)}
    if not fit.blocks_per_sm:
        return {"rule": LAUNCH, "refused": f"{fit.reason[0].upper()}{fit.reason[1:]}.", "code": asdict(code)}
    if code.cycles is None:
        return {
            "rule": REFUSED,
            "refused": "There is no loop of multiply-adds in the machine code.",
            "code": asdict(code),
        }
    return {"code": asdict(code)}


def _with_code(item: Candidate, known: Mapping) -> Candidate:
    code = known.get("code")
    code = Code(**{**code, "tile": tuple(code["tile"])}) if code else None
    return replace(item, rule=known.get("rule", ""), refused=known.get("refused", ""), code=code)


def _measure_all(source, candidates, problem: Problem, target: _Target, kept: Results, at_most: int, progress) -> None:
    """Time the best of the ranking in turn with cuBLAS, a few at a time; candidates change in place."""
    order = sorted(
        (i for i, item in enumerate(candidates) if item.score is not None), key=lambda i: -candidates[i].score
    )
    missing = []
    texts = {index: variant(source, **candidates[index].constants) for index in order[:at_most]}
    keys = {index: _key("time", text, target.name, str(problem)) for index, text in texts.items()}
    for index in texts:
        known = kept.get(keys[index])
        if known is None:
            missing.append(index)
        else:
            candidates[index] = _with_time(candidates[index], known)
    for start in range(0, len(missing), _TIMED_TOGETHER):
        progress(start, len(missing))
        batch = missing[start : start + _TIMED_TOGETHER]
        kernels = {index: Kernel(compile_source(texts[index], arch=target.capability.arch)) for index in batch}
        for index, known in _timed(kernels, problem).items():
            kept.put(keys[index], known)
            candidates[index] = _with_time(candidates[index], known)


def _timed(kernels: Mapping[int, Kernel], problem: Problem) -> dict[int, dict]:
    """index -> a time, or why there is none. If one of several fails, each is timed alone: only it is refused."""
    try:
        found = time_gemms(
            {str(index): kernel for index, kernel in kernels.items()}, problem, seconds=0.5 * len(kernels)
        )
    except RunError as error:
        if len(kernels) == 1:
            return {index: {"rule": WRONG, "refused": error.message} for index in kernels}
        return {index: _timed({index: kernel}, problem)[index] for index, kernel in kernels.items()}
    return {
        int(name): asdict(Measured(item.kernel.milliseconds, item.cublas_ratio, item.kernel.device, item.kernel.noisy))
        for name, item in found.items()
    }


def _with_time(item: Candidate, known: Mapping) -> Candidate:
    if "rule" in known:
        return replace(item, rule=known["rule"], refused=known["refused"])
    return replace(item, measured=Measured(**known))


def _key(kind: str, *parts: str) -> str:
    """Names a result by everything that it depends on."""
    return hashlib.sha256(json.dumps([_SCHEMA, kind, compiler.compiler_version(), *parts]).encode()).hexdigest()


# ------------------------------------------------------------------------------ what the source says, without compiling


@dataclass(frozen=True)
class Vetted:
    """A configuration before it is compiled: why the source refuses it (or ""), threads per block, the tile of C per
    block and the dynamic shared memory in bytes."""

    constants: Mapping[str, int]
    refused: str = ""
    threads: int = 0
    tile: tuple[int, int] = (0, 0)
    shared: int = 0


_FUNCTION = re.compile(
    r"^(?:extern\s+|static\s+|inline\s+)*(?:template\b|__global__|__device__|__forceinline__)[^=;{]*\(", re.M
)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[^\n]*", re.M)
_NAME = re.compile(r"variant_(\d+)_\d+(block_shape|tile_shape|dynamic_shared)E$")


def vet(source: str, points: Sequence[Mapping[str, int]], arch: str = "sm_90") -> list[Vetted]:
    """Judge configurations by the source's own static_asserts, and read their geometry.

    The declarations above the first function are compiled once for many configurations, each in a namespace of its own:
    the compiler is the judge, and takes a second for a hundred. Raises CourseError if the source does not state
    block_shape and tile_shape there, or does not set one of the constants to a number.
    """
    first = _FUNCTION.search(strip_comments(source))
    head = source[: first.start()] if first else source
    for name in ("block_shape", "tile_shape"):
        if not re.search(rf"\b{name}\b", strip_comments(head)):
            raise CourseError(
                f"The kernel must state {name} above its first function, to be searched before it is compiled."
            )
    includes = "".join(f"{match[0]}\n" for match in _INCLUDE.finditer(head))
    body = re.sub(r'\bextern\s+"C"\s+', "", _INCLUDE.sub("", head))
    virtual = arch.replace("sm_", "compute_")
    found: list[Vetted] = []
    for start in range(0, len(points), _AT_ONCE):
        found += _vet_some(includes, body, points[start : start + _AT_ONCE], virtual)
    return found


def _vet_some(includes: str, body: str, points: Sequence[Mapping[str, int]], arch: str) -> list[Vetted]:
    text, starts = _together(includes, body, points)
    messages = [item for item in compiler.front_end(text, arch)[0] if item.severity == "error" and item.line]
    if len(messages) > 90 and len(points) > 1:  # the compiler may have given up before the last of them
        middle = len(points) // 2
        return _vet_some(includes, body, points[:middle], arch) + _vet_some(includes, body, points[middle:], arch)
    said: dict[int, str] = {}
    for item in sorted(
        messages, key=lambda item: not item.message.startswith("static assertion")
    ):  # the author's words first
        place = bisect.bisect_right(starts, item.line) - 1
        sentence = re.sub(r'^static assertion failed with "(.*)"$', r"\1", item.message)
        said.setdefault(place, f"line {item.line - starts[place]}: {sentence}")
    good = [place for place in range(len(points)) if place not in said]
    text, _ = _together(includes, body, [points[place] for place in good])
    messages, constants = compiler.front_end(text, arch) if good else ([], {})
    if messages:
        raise CourseError(f"The declarations above the first function do not compile alone: {messages[0].message}")
    values = {}
    for mangled, numbers in constants.items():
        if match := _NAME.search(mangled):
            values[good[int(match[1])], match[2]] = numbers
    found = []
    for place, point in enumerate(points):
        if place in said:
            found.append(Vetted(point, said[place]))
        else:
            shared = sum(values.get((place, "dynamic_shared"), (0,)))
            found.append(
                Vetted(point, "", math.prod(values[place, "block_shape"]), tuple(values[place, "tile_shape"]), shared)
            )
    return found


def _together(includes: str, body: str, points: Sequence[Mapping[str, int]]) -> tuple[str, list[int]]:
    """All configurations in one source, and the line before each one's first."""
    text, starts = includes, []
    for place, point in enumerate(points):
        text += f"namespace variant_{place}_ {{\n"
        starts.append(text.count("\n"))
        text += variant(body, **point) + "\n}\n"
    return text, starts


# ----------------------------------------------------------------------------------------- the machine code's own score


def loop_cycles(compiled: Compiled) -> float | None:
    """Cycles that one warp takes for its main loop if it never waits for data, per multiply-add of the warp.

    Each instruction carries, in bits 105 to 108, how many cycles the compiler has the warp wait before the next one
    (since sm_70). The main loop is the one with the most FFMA. None if there is none. On an H200, over 14 variants of
    step 11 from the fastest to the slowest (54.3 to 47.3 TFLOPS at 4096³), the score made of it and the measured speed
    correlate by 0.86.
    """
    function = sass.parse(compiled.sass).get(compiled.symbol)
    if function is None:
        return None
    loops = [
        function.instructions[branch.target : branch.index + 1]
        for branch in function.instructions
        if branch.name == "BRA" and branch.target is not None and branch.target <= branch.index
    ]
    weights = [(sum(one.name == "FFMA" for one in loop), -len(loop), loop) for loop in loops]
    ffma, _, body = max(weights, key=lambda item: item[:2], default=(0, 0, ()))
    if not ffma:
        return None
    code = _section(compiled.cubin, f".text.{compiled.symbol}")
    cycles = 0
    for one in body:
        _, upper = _CONTROL_WORD.unpack_from(code, one.address)
        cycles += max(1, upper >> 41 & 15)
    return cycles / ffma


def _section(cubin: bytes, name: str) -> bytes:
    """A section of a 64-bit little-endian ELF file. Raises CourseError if it has none of this name."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + i * size) for i in range(count)]
    text = headers[names][4]
    for label, _, _, _, offset, length in headers:
        start = text + label
        if cubin[start : cubin.index(b"\0", start)].decode() == name:
            return cubin[offset : offset + length]
    raise CourseError(f"The machine code has no section {name}.")


# ------------------------------------------------------------------------------------------------------ what is kept


class Results:
    """Results of searches in a file, each written as it comes: key -> value. Without a place to write, they are kept
    for this session only, and `why_not` says so."""

    def __init__(self, path: Path | None):
        self.path = path
        self.why_not = ""
        self._memory: dict[str, dict] = {}

    def get(self, key: str) -> dict | None:
        """The value of this key, or None."""
        if key not in self._memory:
            rows = self._run("SELECT value FROM results WHERE key = ?", (key,))
            if not rows:
                return None
            self._memory[key] = json.loads(rows[0][0])
        return self._memory[key]

    def put(self, key: str, value: dict) -> None:
        """Keep a value. An interrupt waits until it is written."""
        with delayed():
            self._memory[key] = value
            self._run("INSERT OR REPLACE INTO results VALUES (?, ?)", (key, json.dumps(value)))

    def _run(self, statement: str, values: tuple) -> list[tuple]:
        if self.path is None or self.why_not:
            return []
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(self.path, timeout=5)) as db, db:
                db.execute("CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
                return db.execute(statement, values).fetchall()
        except (sqlite3.Error, OSError) as error:
            self.why_not = f"Results are kept for this session only: {self.path} cannot be used ({error})."
            return []
