"""Search the constants of a kernel: tile sizes, stages, whatever its source sets to a number.

    found = search(kernel.source, {"BM": (64, 128), "TM": (4, 8), "TN": (4, 8)}, size=4096)

Most of a space needs no GPU to be refused, and every refusal has its reason. Cheapest first:

1. the source's own static_asserts, judged by the compiler for all configurations at once;
2. what an SM cannot hold: threads, shared memory, and more sums per thread than registers;
3. a bound: what the grid and the loads of the inner product leave at best, against the best configuration found so far;
4. after compiling: spills, and registers that leave no room for a block.

What is left is tried: compiled, and with a GPU timed in turn with cuBLAS. Without one, a static score stands for the
time, read from the machine code: the cycles that the compiler itself plans for the main loop, per multiply-add. `by_model` puts the
best of them in the order of their predicted times, which takes some seconds for each.

Which to try next, where there are more than time for, is Optuna's business (its tree-structured Parzen estimator, after
a start with the highest bounds), and so is keeping what was tried: its journal is written trial by trial, so that an
interrupted search goes on where it stopped. Ours are the space, the refusals and the measurement.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from helpers.arguments import explained, is_whole, listed
from helpers.errors import CompileError, CourseError, RunError, plural
from helpers.interrupts import delayed
from helpers.model import hardware
from helpers.model.hardware import REGISTERS_PER_BLOCK, REGISTERS_PER_THREAD, SUB_PARTITIONS, Capability
from helpers.model.occupancy import occupancy
from helpers.model.planned_cycles import loop_cycles
from helpers.paths import data_folder
from helpers.progress import Progress
from helpers.run import gemm, gpu
from helpers.run.gemm import Problem
from helpers.run.kernel import Kernel
from helpers.run.kernel import compile as compile_kernel
from helpers.run.launch_arguments import launch_arguments
from helpers.run.timing import time_gemms
from helpers.sim.code.hardware_units import WARP
from helpers.sim.counting import names
from helpers.toolchain.compile import compile_source, readable
from helpers.toolchain.compiled import Compiled
from helpers.toolchain.installation import compiler_version

from .lesson import DEFAULT_GPU
from .sweep import variant
from .table import Cell, Table, Tabular
from .vetting import Vetted, vet

FILE = "searches.journal"
_SCHEMA = 3  # raise it when what is stored changes: older results are then made again
_SLACK = 0.9  # the score is no time: a bound must be this far below the best score before it refuses
_TIMED_TOGETHER = 6  # kernels that are timed in turn, with cuBLAS
_BY_BOUND = 1 / 3  # of the trials: those with the highest bounds, before Optuna knows enough to choose
_SHALLOW = 1024  # elements of K, below which whole steps count
_SOME = 64  # elements of K that are enough for a block to multiply
_PATIENCE = 100  # proposals that are already decided, until the highest bound is taken instead

ASSERTED, LAUNCH, REGISTERS, BOUND, SPILLS, REFUSED, WRONG = (
    "static assert", "does not fit", "registers", "bound", "spills", "compiler", "wrong result",
)  # fmt: skip


@dataclass(frozen=True)
class CodeFacts:
    """What compiling one configuration showed. Sizes in bytes; spilled: per thread, what was spilled and what never had
    a register, such as an array with an index that is not known before the kernel runs; cycles: of a warp's main loop,
    per multiply-add of the warp (None if it has no loop of multiply-adds). step: elements of K that a block computes at a time.
    issue: cycles that a scheduler of the GPU takes for a multiply-add of a warp at least. warps: that a multiprocessor holds.
    slices: blocks that really share a tile of the product that is searched for: a kernel may state more than it has room for."""

    threads: int
    tile: tuple[int, int]
    registers: int
    shared: int
    spilled: int
    cycles: float | None
    step: int = 1
    issue: float = 1.0
    warps: int = SUB_PARTITIONS
    slices: int | None = None


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

    depth: blocks that may share a tile. fill: of the work that the GPU could do while the busiest SM is busy, the part that is
    this product: multiprocessors and schedulers without work count, and edges along M, N and K. bound: fill, less what the loads of
    the inner product take at least. model: what the model of cycles predicts, None where it was not asked. All three are parts of the
    FP32 limit, 0 to 1.
    """

    constants: Mapping[str, int]
    rule: str = ""
    refused: str = ""
    depth: int = 1
    fill: float = 0.0
    bound: float = 0.0
    code: CodeFacts | None = None
    measured: Measured | None = None
    model: float | None = None

    @property
    def score(self) -> float | None:
        """The part of the FP32 limit that the grid and one warp's plan of the main loop promise; None if refused or not compiled.

        It ranks, and is no time: warps of one scheduler that wait in turn cover each other's waits, and all of them wait for data.
        """
        return None if self.rule or self.code is None or not self.code.cycles else self.fill * self.code.issue / self.code.cycles

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.constants.items())


_UNCHECKED = "Ranked is what compiles; whether its results are right, check() of the kernel with these constants says."
_ORDERS = ("model", "score", "bound")  # of a search: what its configurations are ranked by, all known without timing them


@dataclass(frozen=True, repr=False)
class Search(Tabular):
    """What a search has found so far. stopped: why it is not complete, or "". origin: where it was recorded, or "". source: of the
    kernel, "" where it was not kept."""

    problem: Problem
    gpu_name: str
    candidates: tuple[Candidate, ...]
    stopped: str = ""
    origin: str = ""
    source: str = field(default="", repr=False)

    @property
    def ranked(self) -> tuple[Candidate, ...]:
        """What was not refused, best first: measured times before predicted ones, and these before scores."""
        alive = [item for item in self.candidates if item.score is not None]
        return tuple(sorted(alive, key=lambda c: (c.measured.milliseconds if c.measured else math.inf, -(c.model or 0), -c.score)))

    def by_model(self, first: int = 3) -> Search:
        """The same, the `first` of the ranking in the order of their predicted times: a few seconds of the model of cycles for each.

        Raises CourseError where the kernel's source was not kept, or the model does not know the GPU.
        """
        if not self.source:
            raise CourseError("This search does not hold the kernel's source, so the model cannot run it: search again.")
        if not is_whole(first):
            raise CourseError(f"by_model(first={first!r}): how many of the ranking the model shall run is a whole number.")
        device = hardware.gpu(self.gpu_name)
        found = {id(item): item for item in self.ranked[: max(0, first)]}
        with Progress("running the machine code cycle by cycle") as progress:
            for done, (key, item) in enumerate(list(found.items())):
                progress(done, len(found))
                made = compile_kernel(variant(self.source, **item.constants), arch=device.arch)
                predicted = gemm.count(made, self.problem).predict(device.name).milliseconds
                found[key] = replace(item, model=self.problem.flops / predicted / 1e9 / device.peak_fp32_tflops)
        return replace(self, candidates=tuple(found.get(id(item), item) for item in self.candidates))

    @property
    def best(self) -> Candidate:
        """The first of the ranking. Raises CourseError if nothing is left."""
        if not self.ranked:
            raise CourseError(f"No configuration is left. {self.summary()}")
        return self.ranked[0]

    def refusals(self) -> dict[str, tuple[int, Candidate]]:
        """rule -> how many it refused, and one of them, the most frequent rule first."""
        counts = Counter(item.rule for item in self.candidates if item.rule)
        return {rule: (count, next(c for c in self.candidates if c.rule == rule)) for rule, count in counts.most_common()}

    @property
    def rules(self) -> tuple[str, ...]:
        """The words for all rules, in the order in which a configuration comes to them."""
        return ASSERTED, LAUNCH, REGISTERS, BOUND, SPILLS, REFUSED, WRONG

    def at(self, *shape: int) -> Search:
        """The same code on another product, m × n × k or m³, without compiling: what was ranked is ranked again.

        By its score; what was refused for its bound, or not reached, is left out: it has no code.
        """
        problem = _problem(shape)
        target = _target(self.gpu_name)
        kept = [c for c in self.candidates if c.score is not None]
        again = []
        for item in kept:
            slices: int | None = item.depth
            if item.depth > 1 and self.source:
                text = variant(self.source, **item.constants)
                slices = _asked(compile_source(text, arch=target.capability.arch), problem)[1]
            again.append(_filled(replace(item, code=replace(item.code, slices=slices), measured=None, model=None), problem, target))
        return replace(self, problem=problem, candidates=tuple(again), stopped="")

    def correlation(self, order: str) -> float:
        """Of the measured speeds of all that was timed with their "model", "score" or "bound": 1 is in step. Raises as `loss`."""
        timed = self._ordered(order)
        return statistics.correlation([getattr(item, order) for item in timed], [1 / item.measured.milliseconds for item in timed])

    def kept(self, results: int) -> list[float]:
        """What configurations with so many results per thread (TM x TN) reach of the speed that their score promises. Raises as `loss`."""
        least = self.problem.flops / hardware.gpu(self.gpu_name).peak_fp32_tflops / 1e9  # milliseconds at the FP32 limit
        like = [item for item in self._ordered("score") if item.constants["TM"] * item.constants["TN"] == results]
        return [least / item.measured.milliseconds / item.score for item in like]

    def _ordered(self, order: str) -> list[Candidate]:
        """What was timed, all of it with an `order`."""
        if order not in _ORDERS:
            raise CourseError(f"{order!r} is no order of a search. There are: {', '.join(_ORDERS)}.")
        timed = [item for item in self.candidates if item.measured]
        if any(getattr(item, order) is None for item in timed):
            raise CourseError(f"Not everything that was timed has a {order}: the order of these is not known.")
        if not timed:
            raise CourseError("Nothing of this search was timed: on a GPU, search again.")
        return timed

    def loss(self, tries: int, order: str = "score") -> float:
        """How much slower the fastest of the first `tries` is than the fastest of all that was timed: 0.02 is 2 %.

        order: which come first: "model" (predicted), "score" (of the compiled code) or "bound" (known before). Equals come in any
        order, and the loss is the mean over all of these. Raises CourseError if nothing was timed, or its order is not known.
        """
        timed = self._ordered(order)
        if not is_whole(tries) or tries < 1:
            raise CourseError(f"tries={tries!r}: it is a whole number, at least 1.")
        fastest, best, left = min(item.measured.milliseconds for item in timed), math.inf, tries
        equals = itertools.groupby(sorted(timed, key=lambda item: -getattr(item, order)), key=lambda item: getattr(item, order))
        for _, group in equals:
            times = sorted(item.measured.milliseconds for item in group)
            if left < len(times):
                # Of all choices of `left` among them, so many have times[i] as their fastest.
                ways = [math.comb(len(times) - i - 1, left - 1) if left else 0 for i in range(len(times))]
                mean = sum(way * min(best, time) for way, time in zip(ways, times, strict=True)) / sum(ways) if left else best
                return mean / fastest - 1
            best, left = min(best, times[0]), left - len(times)
        return best / fastest - 1

    @property
    def pairs(self) -> list[tuple[str, ...]]:
        """The constants' names, those that differ in their last letter, M and N, together: [("BM", "BN"), ("BK",)]."""
        names = list(self.candidates[0].constants)
        paired: list[tuple[str, ...]] = [(m, f"{m[:-1]}N") for m in names if m.endswith("M") and f"{m[:-1]}N" in names]
        return paired + [(name,) for name in names if not any(name in pair for pair in paired)]

    def summary(self) -> str:
        """How many there were, and what became of them."""
        done = Counter(c.rule or ("measured" if c.measured else "ranked" if c.score else "waiting") for c in self.candidates)
        alive = [f"{done[kind]} {kind}" for kind in ("measured", "ranked", "waiting") if done[kind]]
        out = [f"{count} refused ({rule})" for rule, (count, _) in self.refusals().items()]
        return f"{plural(len(self.candidates), 'configuration')} for {self.problem} on {self.gpu_name}: {', '.join(alive + out)}."

    def table(self, rows: int = 8) -> Table:
        """The best `rows`, at least 1. Raises CourseError for what is no number of rows."""
        if not is_whole(rows) or rows < 1:
            raise CourseError(f"table(rows={rows!r}): how many rows is a whole number, at least 1.")
        header: list[str | Cell] = [
            _unbroken(map(" × ".join, self.pairs)),
            "threads",
            Cell("registers", "regis&shy;ters"),
            "shared bytes",
            "fill",
        ]
        modelled = any(item.model for item in self.ranked[:rows])
        header += ["cycles per FMA", "score", *(["model"] if modelled else []), "TFLOPS", "of cuBLAS"]
        cells: list[list[str | Cell]] = []
        for item in self.ranked[:rows]:
            code, timed = item.code, item.measured
            speed = f"{self.problem.flops / timed.milliseconds / 1e9:.1f}" if timed else "–"
            ratio = f"{timed.cublas_ratio:.3f}" if timed and timed.cublas_ratio else "–"
            values = _unbroken(" × ".join(str(item.constants[name]) for name in pair) for pair in self.pairs)
            cells.append([
                values, f"{code.threads}", f"{code.registers}", f"{code.shared:,}", f"{item.fill:.0%}",
                f"{code.cycles:.3f}", f"{item.score:.1%}", *_share(item, modelled), speed, ratio,
            ])  # fmt: skip
        notes = (
            f"Score{' and model' if modelled else ''}: of the FP32 limit. TFLOPS: measured.",
            "" if not self.ranked or self.ranked[0].measured else _UNCHECKED,
            self.summary(),
            self.stopped,
            self.origin,
        )
        return Table(header, cells, left=(0,), below=notes)


def _share(item: Candidate, modelled: bool) -> list[str]:
    return [f"{item.model:.1%}" if item.model else "–"] if modelled else []


def _unbroken(parts: Iterable[str]) -> Cell:
    """Pairs of numbers side by side; a narrow window has them one below the other, but breaks none."""
    text = ", ".join(parts)
    return Cell(text, text.replace(" × ", "&nbsp;×&nbsp;"))


# ------------------------------------------------------------------------------------------------------ the search


@explained
def search(
    source: str,
    space: Mapping[str, Iterable[int]],
    size: int | Sequence[int] | Problem = 4096,
    gpu_name: str | None = None,
    trials: int | None = 24,
    file: str | Path | None = None,
    bounded: bool = True,
    prepare: Callable[[list[Candidate]], None] | None = None,
) -> Search:
    """Search `space` (constant -> the numbers to try) for the configuration of `source` that is fastest at `size`.

    size: M = N = K, or (m, n, k), or a Problem. gpu_name: search for this GPU of the table, without measuring, even if
    there is one here. trials: try no more than so many new configurations (None: all); the others wait for the next
    call. file: where the trials are kept (by default the reader's file). bounded: refuse what its bound says cannot win;
    without it, everything that compiles is tried, for a whole map. prepare: called first, with what is neither refused nor
    tried. An interrupt ends the search with what it has.
    Raises CourseError for an argument that is none of this, a constant that the source does not set to a number, an empty
    space or an unknown GPU, and what the compiler's absence raises.
    """
    source, choices, problem = readable(source), _choices(space), _problem(size)
    if trials is not None and not (is_whole(trials) and trials >= 0):
        raise CourseError(f"trials={trials!r}: give a whole number, 0 or more, or None for all.")
    if not isinstance(file, str | Path | None):
        raise CourseError(f"file={file!r}: give the path of a file to keep the trials in, or None for your own.")
    if prepare is not None and not callable(prepare):
        raise CourseError(f"prepare={prepare!r}: give a function that takes a list of candidates, or None.")
    target = _target(gpu_name)
    points = [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]
    if not points or not choices:
        raise CourseError("There is nothing to search: give at least one constant with its numbers, such as {'BM': (64, 128)}.")
    candidates = [_judged(item, problem, target) for item in vet(source, points, target.capability.arch)]
    timing = gpu_name is None and gpu.available()
    study, why_not = _study(data_folder() / FILE if file is None else Path(file), source, choices, problem, target, timing)
    trying = _Trying(source, choices, candidates, problem, target, study, timing, bounded)
    if prepare:
        prepare([item for item in candidates if not item.rule and not item.code])
    stopped = ""
    try:
        with Progress("trying configurations") as progress:
            stopped = trying.go_on(trials, progress)
    except KeyboardInterrupt:
        stopped = "Interrupted. What was found is kept: search again, and it goes on from here."
    return Search(problem, target.name, tuple(candidates), " ".join(filter(None, (stopped, why_not))), source=source)


def _choices(space: Any) -> dict[str, tuple[int, ...]]:
    """Constant -> the different numbers to try. Raises CourseError for what is no such space."""
    named = space.items() if isinstance(space, Mapping) else [(None, None)]
    found = {}
    for name, values in named:
        numbers = listed(values)
        if not isinstance(name, str) or numbers is None or not all(map(is_whole, numbers)):
            raise CourseError(f"space={space!r}: give each constant with the whole numbers to try, such as {{'BM': (64, 128)}}.")
        found[name] = tuple(dict.fromkeys(map(int, numbers)))
    return found


def _problem(size: Any) -> Problem:
    """The product of this size. Raises CourseError for what is none."""
    if isinstance(size, Problem):
        if not size.flops:
            raise CourseError(f"A product of {size} has nothing to compute: there is nothing to search for.")
        return size
    extents = listed(size) or (size,)
    if len(extents) not in (1, 3) or not all(is_whole(one) and one > 0 for one in extents):
        raise CourseError(f"size={size!r}: give one whole number for M = N = K, or three for (M, N, K), each at least 1.")
    m, n, k = map(int, extents * 3 if len(extents) == 1 else extents)
    return Problem(m, n, k)


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
        row = hardware.gpu(DEFAULT_GPU if gpu_name is None else gpu_name)
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
    warps = fit.blocks_per_sm * math.ceil(item.threads / WARP)
    # A kernel may not share what it says: then its blocks are those of one slice.
    fill = max(_fill(item.tile, item.threads, warps, problem, target, slices) for slices in {1, item.depth})
    return Candidate(item.constants, depth=item.depth, fill=fill, bound=fill * _beside_loads(results, _issue(target.capability)))


def _beside_loads(results: float, issue: float) -> float:
    """The part of the FP32 limit that the loads of a thread's tile of so many results leave at best."""
    # Per k, it multiplies at least 2 √r different values, and a load brings at most 4.
    return min(1.0, issue * results / (results + math.sqrt(results) / 2))


def _issue(capability: Capability) -> float:
    """Cycles that a scheduler takes for a multiply-add of a warp."""
    return WARP * SUB_PARTITIONS / capability.fp32_lanes


def busy_part(tile: tuple[int, int], problem: Problem, sms: int, depth: int = 1, step: int = 1) -> float:
    """Useful work over what all SMs could do while the busiest one works through its blocks, edges included.

    depth: blocks that share a tile; without a step along K each, some have nothing to do. step: elements of K that are computed at a time.
    """
    steps = math.ceil(problem.k / step)
    blocks = math.ceil(problem.m / tile[0]) * math.ceil(problem.n / tile[1]) * min(depth, steps) * problem.batch
    each = math.prod(tile) * math.ceil(steps / depth) * step  # multiply-adds of the fullest
    return problem.m * problem.n * problem.k * problem.batch / (math.ceil(blocks / sms) * sms * each)


def _fill(tile: tuple[int, int], threads: int, warps: int, problem: Problem, target: _Target, slices: int, step: int = 1) -> float:
    """`busy_part`, less the schedulers of the busiest multiprocessor that have no warp. warps: that it holds."""
    tiles = math.ceil(problem.m / tile[0]) * math.ceil(problem.n / tile[1]) * problem.batch
    blocks = math.ceil(tiles * min(slices, math.ceil(problem.k / step)) / target.sms)
    at_once = min(warps, blocks * math.ceil(threads / WARP))
    return busy_part(tile, problem, target.sms, slices, step) * min(1.0, at_once / SUB_PARTITIONS)


def _filled(item: Candidate, problem: Problem, target: _Target) -> Candidate:
    """The candidate with what its code says of this product."""
    code = item.code
    if code is None:
        return item
    fill = _fill(code.tile, code.threads, code.warps, problem, target, code.slices or item.depth, code.step)
    return replace(item, fill=fill, bound=fill * _beside_loads(math.prod(code.tile) / code.threads, code.issue))


def _study(file: Path, source: str, space, problem: Problem, target: _Target, timing: bool):
    """The Optuna study of this search, with what was tried before, and why it cannot be kept in `file` ("" if it can)."""
    with delayed():
        import optuna  # here: it takes a second, and only a search needs it
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    about = [_SCHEMA, compiler_version(), source, list(space.items()), str(problem), target.name, timing]
    name = hashlib.sha256(json.dumps(about).encode()).hexdigest()  # everything that the results depend on
    options: dict[str, Any] = {"study_name": name, "load_if_exists": True, "direction": "maximize"}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        study, why_not = optuna.create_study(storage=JournalStorage(JournalFileBackend(str(file))), **options), ""
    except Exception as error:
        study = optuna.create_study(**options)
        why_not = f"Trials are kept for this search only: {file} cannot be used ({type(error).__name__}: {error})."
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials), constant_liar=timing)
    return study, why_not


@dataclass
class _Trying:
    """The trials of one search. `candidates` change in place."""

    source: str
    space: Mapping[str, tuple[int, ...]]
    candidates: list[Candidate]
    problem: Problem
    target: _Target
    study: Any  # optuna.Study
    timing: bool
    bounded: bool

    def __post_init__(self) -> None:
        from optuna.distributions import CategoricalDistribution

        self._distributions = {name: CategoricalDistribution(values) for name, values in self.space.items()}
        self._places = {tuple(item.constants.values()): index for index, item in enumerate(self.candidates)}
        for trial in self.study.trials:
            if "found" in trial.user_attrs:
                index = self._place(trial)
                self.candidates[index] = self._with(index, trial.user_attrs["found"])

    def _with(self, index: int, found: Mapping) -> Candidate:
        return _filled(with_facts(self.candidates[index], found), self.problem, self.target)

    def _place(self, trial) -> int:
        return self._places[tuple(trial.params[name] for name in self.space)]

    def _waiting(self) -> list[int]:
        """Places of what is neither refused nor tried, highest bound first. The bound refuses what can win no more."""
        best = max((item for item in self.candidates if item.score), key=lambda item: item.score, default=None)
        waiting = []
        for index, item in enumerate(self.candidates):
            if item.rule or item.code:
                continue
            if self.bounded and best is not None and item.bound < _SLACK * best.score:
                reason = f"At best {item.bound:.1%} of the FP32 limit; {best} has a score of {best.score:.1%}."
                self.candidates[index] = replace(item, rule=BOUND, refused=reason)
            else:
                waiting.append(index)
        return sorted(waiting, key=lambda index: -self.candidates[index].bound)

    def go_on(self, at_most: int | None, progress) -> str:
        """Try up to `at_most` configurations. Returns why some wait, or ""."""
        waiting, done = self._waiting(), 0
        budget = len(waiting) if at_most is None else min(at_most, len(waiting))
        by_bound = budget if budget == len(waiting) else math.ceil(_BY_BOUND * budget)
        while waiting and done < budget:
            progress(done, budget)
            asked: dict[int, Any] = {}  # place -> trial
            try:
                while len(asked) < min(_TIMED_TOGETHER if self.timing else 1, budget - done, len(waiting)):
                    open_ = [index for index in waiting if index not in asked]
                    self._ask(open_, asked, done + len(asked) < by_bound)
                found = self._found(asked)
            except KeyboardInterrupt:
                for trial in asked.values():
                    self.study.tell(trial, state=_state("FAIL"))
                raise
            for index, trial in asked.items():
                with delayed():
                    trial.set_user_attr("found", found[index])
                    item = self.candidates[index] = self._with(index, found[index])
                    self._tell(trial, item)
            done += len(asked)
            waiting = self._waiting()
        return f"{len(waiting)} configurations wait to be tried: search again, and it goes on from here." if waiting else ""

    def _ask(self, open_: Sequence[int], asked: dict[int, Any], by_bound: bool) -> None:
        """One trial more, of a configuration in `open_`: the one with the highest bound, or the one that Optuna proposes."""
        for attempt in range(_PATIENCE + 1):
            if by_bound or attempt == _PATIENCE:
                self.study.enqueue_trial(dict(self.candidates[open_[0]].constants))
            trial = self.study.ask(self._distributions)
            index = self._place(trial)
            if index in open_:
                asked[index] = trial
                return
            self._tell(trial, self.candidates[index])  # refused, or known already

    def _tell(self, trial, item: Candidate) -> None:
        """Optuna learns the speed, as a part of the FP32 limit; or that the configuration is out."""
        if item.score is None:
            self.study.tell(trial, state=_state("PRUNED"))
        else:
            self.study.tell(trial, 1 / item.measured.milliseconds if item.measured else item.score)

    def _found(self, places: Iterable[int]) -> dict[int, dict]:
        """place -> the facts of a configuration: its code, and its time or a refusal."""
        texts = {index: variant(self.source, **self.candidates[index].constants) for index in places}
        found = {index: _compiled(text, self.problem, self.target) for index, text in texts.items()}
        good = [index for index in found if "rule" not in found[index]]
        if self.timing and good:
            arch = self.target.capability.arch
            kernels = {index: Kernel(compile_source(texts[index], arch=arch)) for index in good}
            for index, facts in _timed(kernels, self.problem).items():
                found[index] |= facts
        return found


def _state(name: str):
    from optuna.trial import TrialState

    return TrialState[name]


def _compiled(text: str, problem: Problem, target: _Target) -> dict:
    """The facts of one configuration's machine code, or the refusal: what is kept."""
    try:
        compiled = compile_source(text, arch=target.capability.arch)
    except CompileError as error:
        return {"rule": REFUSED, "refused": error.message}
    shape, tile = compiled.constants["block_shape"], compiled.constants["tile_shape"]
    shared = compiled.shared_bytes + sum(compiled.constants.get("dynamic_shared", (0,)))
    threads = math.prod(shape)
    fit = occupancy(target.capability, threads, compiled.registers, shared)
    code = CodeFacts(
        threads, (tile[0], tile[1]), compiled.registers, shared, compiled.local_bytes, loop_cycles(compiled),
        issue=_issue(target.capability), warps=fit.blocks_per_sm * math.ceil(threads / WARP),
    )  # fmt: skip
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
    step, slices = _asked(compiled, problem)
    return {"code": asdict(replace(code, step=step, slices=slices))}


def _asked(compiled: Compiled, problem: Problem) -> tuple[int, int]:
    """(elements of K that a block computes at a time, how many blocks really share a tile of this product).

    Asked of the kernel itself, of one block each: how much it multiplies where K is 1, and whether the last block that shares a tile
    multiplies at all. Where K is deep the first matters little, and is 1. What the kernel says stands where it cannot be run.
    """
    kernel = Kernel(compiled)
    shape = gemm.geometry(kernel)
    depth, (across, down, _) = shape.depth or 1, shape.grid(problem.m, problem.n, problem.batch)

    def multiplied(k: int, block: int) -> int:
        some = replace(problem, k=k, pad_a=0)
        given, grid = launch_arguments(kernel, some, *some.zeros()), shape.grid(some.m, some.n, some.batch)
        run = kernel.count(grid, shape.block, given.arguments, shape.shared, blocks=[block])
        return run.counters.get(names.threads("ffma"), 0) // math.prod(grid)  # counts are scaled up to the grid

    try:
        step = max(1, round(multiplied(1, 0) / math.prod(shape.tile))) if problem.k < _SHALLOW else 1
        return step, depth if depth == 1 or multiplied(depth * _SOME, (depth - 1) * down * across) else 1
    except CourseError:
        return 1, depth


def with_facts(item: Candidate, found: Mapping) -> Candidate:
    """The candidate with the facts that a trial found, as they are kept."""
    code, timed = found.get("code"), found.get("measured")
    return replace(
        item,
        rule=found.get("rule", ""),
        refused=found.get("refused", ""),
        code=CodeFacts(**{**code, "tile": tuple(code["tile"])}) if code else None,
        measured=Measured(**timed) if timed else None,
    )


def _timed(kernels: Mapping[int, Kernel], problem: Problem) -> dict[int, dict]:
    """index -> a time, or why there is none. If one of several fails, each is timed alone: only it is refused."""
    try:
        found = time_gemms({str(index): kernel for index, kernel in kernels.items()}, problem, seconds=0.5 * len(kernels))
    except RunError as error:
        if len(kernels) == 1:
            return {index: {"rule": WRONG, "refused": error.message} for index in kernels}
        return {index: _timed({index: kernel}, problem)[index] for index, kernel in kernels.items()}
    times = {name: (item.kernel, item.cublas_ratio) for name, item in found.items()}
    return {
        int(name): {"measured": asdict(Measured(time.milliseconds, ratio, time.device, time.noisy))}
        for name, (time, ratio) in times.items()
    }
