"""The one problem every kernel of the course solves: C = alpha · A · B + beta · C, row-major, any leading dimension.

`Problem` has the data and the specification in float64, `product_runs` the launch with the kernel's own geometry; here is the check.
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
from helpers.errors import CourseError, Finding, LaunchError, NotBegunError, RunError, SlowedError, UnexplainedError
from helpers.freed import given_back
from helpers.sim import TraceFilter
from helpers.sim.checks import misaligned
from helpers.sim.checks.endless import MAY_BE_LARGE, NEVER_ENDS
from helpers.sim.code import cfg, time_limit
from helpers.sim.launch import ALONE, DOWNWARDS, SHUFFLED, UPWARDS
from helpers.sim.load import load
from helpers.sim.machine import cluster as clusters
from helpers.sim.machine import printout
from helpers.sim.machine.trace import TracedSite
from helpers.sim.native import NOT_READY
from helpers.toolchain import signatures
from helpers.toolchain.compiled import Compiled
from helpers.toolchain.diagnostics import used_unset

from . import likely_causes, narrow_integers, parts_of_k
from .ahead import Ahead, AskedShape, RightShape
from .check_report import Case, CheckReport
from .check_shapes import (
    DEEP,
    adversarial,
    at_last,
    drawn,
    laid_out,
    not_finite,
    of_any_alignment,
    of_any_end,
    of_any_result,
    step_along_k,
    takes_several,
)  # fmt: skip
from .differences import (
    changed,
    compare,
    counts_to_k,
    few_bits,
    first_difference,
    nearly,
    of_narrow_counter,
    stored,
    wrong_ones,
)
from .far_rows import far_apart, products_apart, spread
from .geometry import MOST_IN_TILE, geometry, taken_for_bias, tensor_maps
from .geometry import Geometry as Geometry
from .kernel import Kernel, Run, place
from .own_products import MATRICES, fitted, problem_for, program_of, types
from .problem import Problem, SampledProblem, ShiftedProblem
from .product_runs import CHECKED_WALK, few_multiprocessors, need, run, run_sample
from .product_runs import count as count
from .product_runs import count_sample as count_sample
from .shared_beginning import depends_on_it
from .tile_order import many_tiles, taken_twice, thin, tiles_apart, unreached, unwalked
from .where_right import plain_problems, where_right

_FEWEST_SHARED, _SHARES = 3, 288  # tiles along a side where blocks wait for each other, and of these tiles times blocks that share one
PATIENCE = 8.0  # seconds that a small shape may always take
_SMALL_K, _SMALL = 1024, 1 << 17  # and up to this K, and so many operations where it was drawn, it is small
_K_IN_TURN = 509  # K at most, where blocks run one after the other, which native code does not do
_WORTH_SHARING = 1500  # instructions of a kernel that native code executes
_LADDER = 4096  # M = N = K of a product as ladders have it
_SLOWER = 20  # and no shape may take so many times longer than the slowest one before it
_ENOUGH = 8.0  # seconds for which findings are collected once there are any


@explained
@printout.together()
@given_back()
def check(
    kernel: Kernel,
    problems: Iterable[Problem] | Problem | None = None,
    on: str | None = None,
    seconds: float = 60.0,
    progress: Callable[[int, int], None] | None = None,
    seed: int | None = None,
    patience: float = PATIENCE,
    whole: bool = False,
    causes: bool = True,
) -> CheckReport:
    """Run `kernel` on adversarial problems and compare with the specification; collect findings from the SIMT machine.

    problems: by default those of `adversarial`, of `drawn`, of `of_any_alignment` and `of_any_end` for a kernel that `takes_several`,
    those that are `not_finite`, and those `at_last`.
    seed: draws the same as the check that reported it. With a GPU
    (on='gpu' or None there) results are checked on the GPU as well. progress: called with (problems done, in all).
    seconds: the most that one problem may take in the SIMT machine. A shape that does not end in the time that small ones
    need ends the check: the others would not end either. patience: seconds that a small shape may always take.
    Where there are findings, they are collected from the shapes of the first seconds; of all others the results alone are compared then.
    The longest of the shapes drawn, or one of those `at_last`, which are tried where nothing else was wrong and native code has executed
    the longest, is put off where native code notices something in it, because the NumPy machine takes long to
    say what; if the other shapes have findings, it is not tried before these are gone. whole: it is tried all the same.
    causes: say what may be why a product is wrong; False: who asks shall find that out, of what is wrong and the line that stored it.
    Where all of its own shapes are right, it is asked besides whether each of many tiles is one of a block's (`_unreached_tiles`), and a
    remark says whether an index of 32 bits is too short for matrices of 2^32 elements (`_of_far_rows`). Other processes take a part of the
    shapes (see `ahead`).
    """
    need("check", kernel)
    if not (seed is None or (isinstance(seed, int) and seed >= 0)):
        raise LaunchError(f"check(seed={seed!r}): a seed is a whole number, 0 or more, such as a check has named.")
    if not isinstance(seconds, numbers.Real):
        raise LaunchError(f"check(seconds={seconds!r}): seconds are a number.")
    if not isinstance(patience, numbers.Real) or not (progress is None or callable(progress)):
        raise LaunchError(f"check(patience={patience!r}, progress={progress!r}): seconds, and a function of (problems done, in all).")
    for name, flag in (("whole", whole), ("causes", causes)):
        if not isinstance(flag, bool):
            raise LaunchError(f"check({name}={flag!r}): write True or False.")
    if problems is None:
        seed = secrets.randbits(16) if seed is None else seed
        wide = (*of_any_alignment(kernel, seed), *of_any_end(kernel, seed)) if takes_several(kernel) else ()
        if not wide and "map_C" in tensor_maps(kernel):
            wide = of_any_result(kernel, seed)
        fixed, random = (
            [laid_out(kernel, problem) for problem in some]
            for some in (adversarial(geometry(kernel).tile, *types(kernel)), [*drawn(kernel, seed), *wide, *not_finite(kernel, seed)])
        )
        last = [laid_out(kernel, problem) for problem in at_last(kernel, seed)]
    else:
        fixed, random, last, seed = list(problems) if isinstance(problems, Iterable) else [problems], [], [], None
        need("check", kernel, *fixed)
        if not fixed:
            raise LaunchError("check was given no problem, and nothing is right because nothing was tried. Leave problems out for its own.")
    problems = [*fixed, *random, *last]
    if (case := _unreadable(kernel, problems[0])) is not None:
        return CheckReport(kernel.name, (case,), (), source=kernel.source, untried=len(problems) - 1, seed=seed, ran=False)
    if seed is not None and (case := _waits_for_the_grid(kernel)) is not None:
        return CheckReport(kernel.name, (case,), (), source=kernel.source, untried=len(problems), seed=seed, ran=False)
    watched = _watched(kernel)
    # The first shape shows that the kernel ends. The one with the longest loop comes next: native code that is made for it serves others.
    order = sorted(range(len(problems)), key=lambda i: (i > 0, i != len(fixed), i))
    cases: dict[int, Case] = {}
    findings: dict[tuple, Finding] = {}
    used = "cpu"
    left, results_alone, begun, far = _Left(), 0, time_limit.now(), ""
    longest, put_off = len(fixed), False
    late, engine = len(problems) - len(last), ""  # where those at last begin
    beyond: _Beyond | None = None  # what blocks store beyond their tile: asked of those that run alone
    asked = kernel  # of which samples are
    wrong_here: dict[int, Callable[[Kernel], bool]] = {}  # of what is wrong in the machine, whether it is right with another kernel

    def shape(at: int) -> AskedShape:
        """One of them, for another process."""
        may_take = _may_take(kernel, problems[at], at >= len(fixed), seconds, patience)
        return AskedShape(at, problems[at], may_take, seconds, explain=whole or at < late)

    with Ahead() as ahead:
        while order and not (put_off and findings and order == [longest] and not results_alone):
            index = order.pop(0)
            problem = problems[index]
            if index >= late and (engine != "native" or findings or any(case.message for case in cases.values())):
                del problems[index:]  # they would take long, or say nothing new
                order = [other for other in order if other < index]
                continue
            if seed is not None and beyond is None and isinstance(problem, SampledProblem):
                beyond = _beyond_tile(kernel, seed)  # else blocks of a sample would not do what tile_shape says, and all of it would run
                blocks_alone = [at for at, other in enumerate(problems) if isinstance(other, SampledProblem)]
                asked_of_it = *drawn(beyond.kernel, seed), *at_last(beyond.kernel, seed)
                others = [other for other in asked_of_it if isinstance(other, SampledProblem)]
                if beyond.kernel is not kernel and len(others) == len(blocks_alone):
                    asked = beyond.kernel
                    for at, other in zip(blocks_alone, others, strict=True):
                        problems[at] = other
                    problem = problems[index]
            tell = functools.partial(_tell, progress, len(cases) + ahead.ready, len(problems))
            tell()
            start = time_limit.now()
            by_chance = index >= len(fixed)
            may_take = _may_take(kernel, problem, by_chance, seconds, patience)
            explain = whole or not (index == longest or index >= late) or put_off
            mine = asked if isinstance(problem, SampledProblem) else kernel
            one = functools.partial(_check_one, mine, problem, "cpu", may_take, tell, seconds, left)
            alone = bool(results_alone or (findings and start - begun > _ENOUGH))
            tried = None if alone or mine is not kernel else ahead.take(index, tell)
            try:
                case, found = (tried.case, []) if tried else one(explain=explain, collect=not alone)
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
                patience = max(patience, _SLOWER * (tried.seconds if tried else time_limit.now() - start))
            for finding in found:
                findings.setdefault((finding.kind, finding.line, finding.other_line, finding.array), finding)
            if case.message:
                wrong_here[index] = functools.partial(_is_right, min(seconds, patience), problem=problem)
            told = case.message or _ENDLESS_BEHIND in case.remark
            if not told and on != "cpu" and not isinstance(problem, ShiftedProblem):  # what goes to a GPU is not shifted there
                if place(on, kernel) == "gpu":
                    case, _ = _check_one(kernel, problem, "gpu", seconds)
                    used = "gpu"
            cases[index] = replace(case, drawn=by_chance)
            if index in (0, longest) and not (case.message or case.remark or found) and _can_be_shared(kernel, left, index == longest):
                others = [at for at in order if at != longest and (at < late or left.engine == "native")]
                ahead.begin(kernel.compiled, [*map(shape, sorted({0, index}))], [*map(shape, others)])
            if any(finding.kind == "endless" for finding in found):
                break
    if seed is not None and len(cases) == len(problems) and not any(case.message for case in cases.values()):
        far = _of_far_rows(kernel, seed)
        beyond = _beyond_tile(kernel, seed) if beyond is None else beyond
        found_last = [beyond.case]
        if beyond.case is None or beyond.kernel is not kernel:  # else nobody can say which tiles its blocks reach
            found_last.append(_unreached_tiles(beyond.kernel, seed, seconds) or _waiting_of_many_tiles(kernel, seed, seconds))
        for one in filter(None, found_last):
            wrong_here[len(problems)] = lambda other: not _unreached_tiles(other, seed, seconds)
            cases[len(problems)] = replace(one, drawn=True)
            problems.append(one.problem)
    if not watched:  # else the machine has seen what comes of it
        for line, name in used_unset(kernel.compiled.log):
            said = f"The compiler says that `{name}` is used before it has a value."
            advice = f"Give `{name}` a value where it is declared, for example `= 0`."
            findings.setdefault(("uninitialized", line, None, ""), Finding("uninitialized", line, said, advice=advice))
    program = program_of(kernel)
    chance = misaligned.by_chance(program) if program and not findings else ""
    waiting = problems[longest] if put_off and order == [longest] else None
    untried = len(problems) - len(cases) - (waiting is not None)
    right, moved, wrong = "", (), bool(findings or any(case.message for case in cases.values()))
    if causes:
        in_order = tuple(_told(kernel, *_of_few_bits(kernel, cases, wrong_here), not findings))
        ends = not any(finding.kind == "endless" for finding in findings.values())
        if seed is not None and ends and wrong:
            short = min(seconds, patience)
            is_right, is_near = functools.partial(_is_right, short), functools.partial(_is_near, short)
            right = where_right(kernel, in_order, functools.partial(is_right, kernel), functools.partial(is_near, kernel))
            moved = () if right else depends_on_it(kernel, plain_problems(kernel), is_right, is_near)
    else:
        in_order = tuple(_stored_by(kernel, [cases[index] for index in sorted(cases)]))
    return CheckReport(
        kernel.name, in_order, tuple(findings.values()), on=used, source=kernel.source, untried=untried, seed=seed, waiting=waiting,
        results_alone=results_alone, where_right=right,
        remarks=tuple(filter(None, (*(_of_shared_memory(kernel) if wrong else ()), *moved, taken_for_bias(kernel), chance, far))),
    )  # fmt: skip


def _of_shared_memory(kernel: Kernel) -> tuple[str, ...]:
    """Where the compiler has put what is declared in shared memory, if that may be why a kernel is wrong, as sentences."""
    code = kernel.compiled.ptx, kernel.compiled.symbol, kernel.source
    return *signatures.alignments_not_given(*code), *signatures.arrays_in_one_place(*code)


def _may_take(kernel: Kernel, problem: Problem, by_chance: bool, seconds: float, patience: float) -> float:
    """Seconds for one shape. A batch is of small products, and a narrow counter counts for ever what others count in a moment."""
    large = problem.k > _SMALL_K or (by_chance and problem.flops > _SMALL)
    long = large and problem.batch == 1 and not counts_to_k(kernel.source)
    return seconds if long else min(seconds, patience)


def _can_be_shared(kernel: Kernel, left: _Left, longest: bool) -> bool:
    """May other processes run shapes of this kernel, which has run one, the one with the longest loop or another? Native code is made for
    the longest, and they find it where it is kept; in a small kernel there is little to share then. What a launch prints, or leaves in
    variables for the next one, is not theirs."""
    if longest:
        executed = left.engine == "native" and (program := program_of(kernel)) is not None and len(program.ops) >= _WORTH_SHARING
    else:
        executed = left.engine == "numpy" and left.why != NOT_READY
    return executed and left.variables is None and "vprintf" not in kernel.ptx


def other_shapes() -> Callable[[tuple[Compiled, AskedShape]], RightShape | None]:
    """What a process of `ahead` answers with: a shape that is right without a word, or None."""
    return lambda asked: _right_shape(Kernel(asked[0]), asked[1])


def _right_shape(kernel: Kernel, shape: AskedShape) -> RightShape | None:
    start, left = time_limit.now(), _Left()
    with given_back():
        try:
            case, found = _check_one(kernel, shape.problem, "cpu", shape.seconds, None, shape.at_most, left, shape.explain)
        except CourseError:
            return None
    silent = not (case.message or case.remark or found or left.variables)
    return RightShape(case, time_limit.now() - start) if silent else None


def _unreadable(kernel: Kernel, problem: Problem) -> Case | None:
    """What the machine does not know of a kernel's code, which no shape changes, as of this one; or None."""
    try:
        load(kernel.compiled.ptx, kernel.compiled.symbol, kernel.compiled.filename)
    except RunError as error:
        return Case(problem, error.message, error.line)
    return None


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
    of two apart compute theirs; of a kernel that walks the tiles two do."""
    problem = many_tiles(kernel, seed)
    if problem is None:
        walked = unwalked(kernel, seed, min(seconds, PATIENCE))
        return Case(*walked) if walked else None
    text = unreached(kernel, problem)
    if text:
        return Case(problem, text)
    if text is not None:
        for other in thin(kernel, seed):
            if text := unreached(kernel, other):
                return Case(other, text)
        twice = taken_twice(kernel, seed)
        return Case(*twice) if twice else None
    for sample in (tiles_apart(kernel, other, other.k) for other in thin(kernel, seed)):
        case, _ = _check_sample(kernel, sample, seconds, None, False)
        if case.message:
            return case
    return None


def _of_far_rows(kernel: Kernel, seed: int) -> str:
    """What is wrong with a product of which a matrix has its rows so `far_apart`, or with a batch of such matrices (`products_apart`), as a
    sentence; '' where it is right with all three, and where this computer cannot tell."""
    step = step_along_k(kernel)
    return _of_far(kernel, far_apart(kernel, step, seed)) or _of_far(kernel, products_apart(kernel, step, seed))


def _of_far(kernel: Kernel, tried: Sequence[tuple[str, Problem, Problem]]) -> str:
    """The sentence of these (see `far_apart`). None of a batch that is wrong, or that the kernel leaves out, wherever its matrices lie."""
    if tried and (one := tried[0][1]).batch > 1:
        case, _ = _check_one(kernel, one, "cpu", PATIENCE)
        if case.message or case.remark:
            return ""
    for name, near, far in tried:
        before = near.arrays()
        try:
            arrays = spread(far, before)
            run(kernel, far, "cpu", arrays, counters=False, findings=False, seconds=PATIENCE)
        except RunError as error:
            if not any(finding.kind == "out-of-bounds" for finding in error.findings):
                return ""
            wrong = error.message
        except MemoryError:
            continue
        except CourseError:
            return ""
        else:
            got, (value, bound) = np.array(arrays[2][:, : near.n], np.float64), near.expected(*before)
            wrong = first_difference(~(np.abs(got - value) <= bound), got, value)
            number = "blockIdx.z by the rows of a matrix and by" if far.batch > 1 else "the number of a row by"
            wrong += f" Multiply {number} ld{name.lower()} in size_t." if wrong else ""
        if not wrong and len(name) > 1:
            return ""
        if wrong and len(name) == 1:
            row = far.stored["ABC".index(name)].pitch
            far_off = f"The {name} of a second product (batch) is too far away" if far.batch > 1 else f"{name} is too large"
            return f"{far_off} for an index of 32 bits where ld{name.lower()} is {row:,}. Smaller matrices are right. {wrong}"
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


def _is_right(seconds: float, kernel: Kernel, problem: Problem) -> bool:
    """Does the kernel compute the product, without a finding?"""
    try:
        case, findings = _check_one(kernel, problem, "cpu", seconds)
    except CourseError:
        return False
    return not case.message and not findings


def _is_near(seconds: float, kernel: Kernel, bits: int, problem: Problem) -> bool:
    """The same, or off by no more than sums in so many bits are."""
    problem = fitted(kernel, problem)
    arrays = problem.arrays()
    before = problem.copies(arrays)
    few = few_multiprocessors(geometry(kernel), problem, CHECKED_WALK)
    try:
        done = run(kernel, problem, "cpu", arrays, multiprocessors=few, counters=False, seconds=seconds)
    except CourseError:
        return False
    outside = done.findings or changed(problem, before, arrays) is not None
    return not outside and (not compare(problem, before, arrays) or likely_causes.wrong_by_little(problem, before, arrays, bits))


def _of_few_bits(kernel: Kernel, cases: dict[int, Case], wrong: dict[int, Callable[[Kernel], bool]]) -> tuple[list[Case], bool]:
    """The cases in order, and whether one of them says which number of few bits is why. wrong: of those that are wrong in the machine,
    whether they are right with another kernel. What is slow, or says it by itself, is not asked."""
    asked = [index for index in sorted(cases) if index in wrong and cases[index].message and not _narrow(kernel, cases[index].message)]
    asked.sort(key=lambda index: isinstance(cases[index].problem, SampledProblem))
    said = narrow_integers.why_wrong(kernel, wrong[asked[0]]) if asked else ""
    if said:
        first = cases[asked[0]]
        cases = {**cases, asked[0]: replace(first, message=first.message.replace(f" {MAY_BE_LARGE}", "") + said, explained=True)}
    return [cases[index] for index in sorted(cases)], bool(said)


def _told(kernel: Kernel, cases: list[Case], explained: bool = False, clean: bool = False) -> Iterable[Case]:
    """The cases; the first whose result is wrong names the line that stored its first wrong element, or says that none did. explained: one
    of them says why already. clean: there is no finding, which may be why."""
    place = next((index for index, case in enumerate(cases) if stored(case.message) and case.line is None), None)
    if place is not None and not explained and (said := likely_causes.multiplied_as(kernel)):
        cases[place] = replace(cases[place], message=cases[place].message + said, explained=True)
        explained = True
    if place is not None and cases[place].problem.k > DEEP[1] and clean and not explained:  # too long for who stores what
        cases[place] = replace(cases[place], message=cases[place].message + _left_out_of_k(kernel, cases[place : place + 1], math.inf))
    elif place is not None and not isinstance(cases[place].problem, SampledProblem) and cases[place].problem.k <= DEEP[1]:
        with contextlib.suppress(CourseError):  # what cannot be run again is told as it is
            seen = _again(kernel, fitted(kernel, cases[place].problem))
            more = "" if seen.site is not None or not seen.known else f" No line has stored to it.{_left_of_tile(kernel)}"
            left_out = _left_out_of_k(kernel, cases) if clean and not explained else ""
            why = seen.bits or left_out or _by_columns(kernel) or seen.padding
            message = cases[place].message + ("" if explained else more + why)
            line, calls = (None, ()) if seen.site is None else (seen.site.line, seen.site.calls)
            cases[place] = replace(
                cases[place], line=line, calls=calls, message=message, explained=cases[place].explained or (bool(why) and not explained)
            )
    elif place is not None and clean and not explained:  # a sample
        cases[place] = replace(cases[place], message=cases[place].message + _left_out_of_k(kernel, cases[place : place + 1]))
    failed = [index for index, case in enumerate(cases) if case.message]
    if failed and all(cases[index].problem.near_special_factors() for index in failed):  # then they may be the cause
        first = cases[failed[0]]
        said = likely_causes.near_factors(first.problem, lambda other: _is_right(PATIENCE, kernel, other))
        cases[failed[0]] = replace(first, message=first.message + said)
    return [_with_narrow(kernel, case) for case in cases]


def _stored_by(kernel: Kernel, cases: list[Case]) -> list[Case]:
    """The cases; the first whose result is wrong names the line that stored its first wrong element, and nothing of what may be why."""
    place = next((index for index, case in enumerate(cases) if stored(case.message) and case.line is None), None)
    if place is not None and not isinstance(cases[place].problem, SampledProblem) and cases[place].problem.k <= DEEP[1]:
        with contextlib.suppress(CourseError):  # what cannot be run again is told as it is
            if (site := _again(kernel, fitted(kernel, cases[place].problem)).site) is not None:
                cases[place] = replace(cases[place], line=site.line, calls=site.calls)
    return cases


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
        found = likely_causes.rounding(kernel)
        said = found.said if found else few_bits(kernel.source, kernel.ptx)
    else:
        said = of_narrow_counter(kernel.source) if NEVER_ENDS in message else ""
    return f" {said}" if said else ""


def _left_out_of_k(kernel: Kernel, cases: Sequence[Case], most: float = DEEP[1]) -> str:
    """What part of K the wrong products of a kernel lack, as a sentence with a space before it; "" unless each that is looked at lacks
    one: the first of each K up to `most`."""
    found: dict[int, parts_of_k.PartOfK] = {}
    for problem in (fitted(kernel, case.problem) for case in cases if stored(case.message)):
        if isinstance(problem, SampledProblem):
            if not _is_one_tile(kernel, problem):
                continue
        elif problem.k > most or problem.flops > _LOOKED_AT:
            continue
        if problem.k in found:
            continue
        try:
            before, c = _product(kernel, problem)
        except CourseError:  # what takes long is not looked at
            return ""
        if (part := parts_of_k.summed(problem, before, c)) is None:
            return ""
        found[problem.k] = part
        if len(found) == _KS:
            break
    return parts_of_k.said(list(found.values()), kernel.source)


def _product(kernel: Kernel, problem: Problem) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """A, B and C as they were, and the C that the kernel makes of them."""
    arrays = problem.arrays()
    before = problem.copies(arrays)
    few = few_multiprocessors(geometry(kernel), problem, CHECKED_WALK)
    run(kernel, problem, on="cpu", arrays=arrays, multiprocessors=few, counters=False, findings=False, seconds=PATIENCE)
    return before, arrays[2]


def _is_one_tile(kernel: Kernel, problem: Problem) -> bool:
    """Has C no more than one tile, or those of one cluster?"""
    across, down = geometry(kernel).tiles(problem.m, problem.n)
    return down == 1 and across <= geometry(kernel).cluster[0]


_KS, _LOOKED_AT = 4, 1 << 24  # products of different K that are looked at, and the operations of one, at most
_SQUARE = 512  # rows of a matrix on which it is tried whether a kernel takes them for columns: at most, where tiles shall divide them


def _by_columns(kernel: Kernel) -> str:
    """What is to be said of a kernel that takes rows of a matrix for columns, as a sentence with a space before it; else ""."""
    extent = math.lcm(*geometry(kernel).tile)
    if extent > _SQUARE:  # of a kernel that knows where C ends
        extent = max(geometry(kernel).tile)
    elif extent <= _SQUARE // 8:  # several tiles: one alone may be turned within itself
        extent *= 4
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
    return likely_causes.by_columns(a, b, arrays[2][:, :extent].astype(np.float64), problem.alpha, bias, problem.turned)


def _of_maximum(kernel: Kernel, problem: Problem, before: Sequence[np.ndarray], c: np.ndarray) -> str:
    """What `likely_causes.of_maximum` says of a wrong C, or, where that has few elements, of one with more."""
    if problem.fused and problem.m * problem.n < _TELLING:
        problem = fitted(kernel, problem_for(kernel, 17, 23, 19, seed=problem.seed))
        before, c = _product(kernel, problem)
    return likely_causes.of_maximum(problem, before, c)


_TELLING = 64  # elements of C, of which half are below 0


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
    sums in few bits, a ReLU or a factor left out, and what reads of padding have to do with it, as sentences with a space before each."""

    site: TracedSite | None = None
    known: bool = False
    bits: str = ""
    padding: str = ""


def _again(kernel: Kernel, problem: Problem) -> _Again:
    """Run a problem again whose result is wrong, and look who stores what."""
    arrays = problem.arrays()
    before = tuple(array.copy() for array in arrays)
    few = few_multiprocessors(geometry(kernel), problem, CHECKED_WALK)
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
        if (narrow := likely_causes.rounding(kernel)) and likely_causes.wrong_by_little(problem, before, arrays, narrow.bits):
            bits = f" {narrow.said}"
        bits = bits or _of_maximum(kernel, problem, before, arrays[2]) or likely_causes.of_factors(problem, before, arrays[2])
        padding = likely_causes.of_padding(kernel, problem, trace, arrays[2], functools.partial(_without_padding, kernel, problem, before))
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


def _without_padding(kernel: Kernel, problem: Problem, before: Sequence[np.ndarray], which: int) -> np.ndarray:
    """C of a product whose padding of A or B (which: 0, 1), is zero."""
    arrays = [array.copy() for array in before]
    arrays[which][:, problem.stored[which].columns :] = 0
    few = few_multiprocessors(geometry(kernel), problem, CHECKED_WALK)
    run(kernel, problem, on="cpu", arrays=arrays, multiprocessors=few, counters=False, findings=False, seconds=PATIENCE)
    return arrays[2]


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
    why: str = ""  # it was not the native one
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
        return _check_sample(kernel, problem, seconds, progress, collect, explain)
    arrays = problem.arrays()
    before, first = problem.copies(arrays), problem.copies(arrays)
    few = few_multiprocessors(geometry(kernel), problem, CHECKED_WALK)
    options: dict[str, Any] = {"multiprocessors": few, "seconds": seconds, "progress": progress, "explain": explain, "findings": collect}
    try:
        done = run(kernel, problem, on=on, arrays=first, counters=False, **options)
        left.engine, left.why = (done.outcome.engine, done.outcome.engine_reason) if on == "cpu" else ("", "")
        if text := _with_hints(compare(problem, before, first), done, on):
            found = done.findings if on == "cpu" else []
            if _is_of_one_product(kernel, problem, before, first):
                return Case(problem, remark=f"{kernel.name} computes one product: {_ONLY_FIRST}"), found
            return Case(problem, f"{text} {_of_batches(kernel, problem)}" if problem.batch > 1 else text), found
        state = None if on == "gpu" else left.variables or done.outcome.globals_after
        if on == "gpu" or state is not None:
            in_turn = left.turns.pop() if on == "cpu" and left.turns else ""
            if in_turn:  # with other data: what the first launch left must not pass for what this one does
                problem = fitted(kernel, replace(problem, seed=problem.seed + 1, k=min(problem.k, _K_IN_TURN)))
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


def _of_batches(kernel: Kernel, problem: Problem) -> str:
    """Where the matrices of a batch lie, in sentences."""
    slices, of_slices = geometry(kernel).depth or 1, ""
    if "gridDim.z" in kernel.source:
        of_slices = f" Here gridDim.z is {problem.batch * slices}: the slices of a product are {slices}, and no more."
    of_a, of_b = "K" if problem.transa else "M", "N" if problem.transb else "K"
    return (
        "(A kernel that states grid_depth computes batches: blockIdx.z / grid_depth is the number of a block's product, and the matrices "
        f"of each product lie {of_a} * lda, {of_b} * ldb and M * ldc elements behind those of the one before.{of_slices})"
    )


_ONLY_FIRST = "of a batch, it writes the first and leaves the others as they were."
_ENDLESS_BEHIND = "of a batch, its blocks end for the first alone; those of the others, whose blockIdx.z is grid_depth and more, never do."


def _check_sample(
    kernel: Kernel, sample: SampledProblem, seconds: float, progress: Callable | None, collect: bool, explain: bool = True
) -> tuple[Case, list[Finding]]:
    """Run the blocks of a sample. Blocks that share the work in another way than by tiles are run all, and then C must be right; of those
    that wait for one another all have to run, and take turns, on fewer tiles where it is many blocks that share each."""
    whole = sample.whole()
    try:
        done, wrong, missing = run_sample(kernel, sample, seconds, progress, CHECKED_WALK, collect, explain)
    except LaunchError:  # they wait for one another
        (rows, columns), parts = geometry(kernel).tile, geometry(kernel).parts
        most = max(_FEWEST_SHARED, math.isqrt(_SHARES // parts))
        whole = replace(whole, m=min(whole.m, most * rows), n=min(whole.n, most * columns))
        return _check_one(kernel, whole, "cpu", seconds, progress, collect=collect)
    except (SlowedError, UnexplainedError):
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
