"""The fast engine: PTX compiled to native code with LLVM, for what the NumPy machine would take long for.

The NumPy machine is the definition. This engine takes a launch only if it can do all that is asked with the same
results, counters and findings, and gives it back as soon as something happens that deserves an explanation.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from concurrent import futures

import numpy as np

from helpers.sim.checks import endless, observer
from helpers.sim.code import time_limit
from helpers.sim.code.sites import CostRule
from helpers.sim.counting.rules import TWO_SIDED

from . import engine, sums
from .declined import Declined, Suspicious
from .offsets import GENERIC

sums.offer()
PATIENCE = 0.8  # how long the NumPy machine runs alone, as a part of the time that compiling takes: it may soon be done
LARGE = 2500  # instructions of a kernel that is made for the ways a launch can take
MOST_VARIANTS = 4  # how many different ones, before it is made for all
MOST_LAUNCHES = 256  # of a kernel whose fixed branches are remembered
MOST_BLOCKS = 1 << 24
NOT_READY = "it was done before native code was ready"  # why a launch that native code is made for did not run natively
SHORT = 0.3  # seconds of compilation that are not worth running two engines for


@functools.cache
def begin() -> None:
    """Begin to make what all native code shares, in a thread: it takes seconds once for an installation, for which otherwise the first
    launch waits. While CUDA is compiled, by another process, there is time for it."""
    if engine.available():
        from .prepared import runtime

        engine.wide_vectors()  # what a launch asks before it has code made: LLVM answers nobody else while it compiles
        engine.host_identity()

        def work() -> None:
            with contextlib.suppress(Exception):  # the first launch tries again, and says what is wrong
                runtime()

        threading.Thread(target=work).start()


def execute(launch, blocks, progress, alone, required: bool = False, long: bool = False) -> tuple[str, str]:
    """Run a launch (see `launch.Launch`) with the better of the two engines. (Its name, why it was not the native one.)

    blocks: linear indices. alone: function that runs the launch in the NumPy machine. required: raise Declined rather than use
    that. long: make the code first, whatever that takes. Results and counters are then in `launch`; the arguments' arrays are not
    touched.
    """
    try:
        compiling = _attempt(launch, blocks, progress, required or long)
    except Declined as reason:
        if required or (isinstance(reason, Suspicious) and not launch.explain):
            raise
        alone()
        return "numpy", str(reason)
    if compiling is None:
        return "native", ""
    from .background import Overtaken

    try:
        alone()
    except Overtaken:
        compiling.adopt()
        return "native", ""
    finally:
        compiling.cancel()
    return "numpy", str(compiling.failure or NOT_READY)


def _attempt(launch, blocks, progress, at_once):
    """Run the launch natively. Raises Declined.

    A BackgroundRun if code has to be made first, which will take a while, unless `at_once`.
    """
    if not engine.available():
        raise Declined("llvmlite is not installed")
    from . import prepared as making  # here, so that a missing llvmlite costs nothing but speed
    from .workers import OutOfTime

    _check_wishes(launch, len(blocks))
    program, clock = launch.program, launch.clock
    if not len(blocks):
        return None
    options = making.options_for(
        program,
        launch.block,
        None if launch.counting is None else _charges(launch),
        launch.checks.wanted and launch.shared_bytes > 0,
        launch.checks.device,
        _fixed_branches(launch),
        launch.findings.wanted,
    )
    prepared = making.remembered(program, options)
    seconds = making.seconds_to_make(program, options)
    if prepared is None and not at_once and seconds > SHORT:
        from .background import BackgroundRun

        return BackgroundRun(launch, functools.partial(_run, options, blocks, None), PATIENCE * seconds)
    try:
        _run(options, blocks, progress, launch, None)
    except Declined:
        # What the attempt has written must not be seen.
        launch.memory = launch.memory.anew(program)
        raise
    except OutOfTime as late:
        endless.out_of_budget(program, launch.findings, f"{clock.seconds:.3g} seconds", program.ops[late.position].line, late.position)
        raise
    return None


class _Variants:
    """The ways through a program that its launches have taken. fixed: by launch. chosen: those that code is made for."""

    def __init__(self):
        self.fixed: dict[tuple, tuple[tuple[int, bool], ...]] = {}
        self.chosen: list[tuple[tuple[int, bool], ...]] = []


@functools.lru_cache(maxsize=8)
def _variants(program) -> _Variants:
    return _Variants()


def _fixed_branches(launch) -> tuple[tuple[int, bool], ...]:
    """The branches that the launch decides and that its code is made for: those of an earlier launch where they fit this one.

    Only for kernels so large that it pays to make code for one way through them.
    """
    program = launch.program
    if len(program.ops) < LARGE:
        return ()
    from .fixed_branches import fixed_branches, worth_fixing

    variants = _variants(program)
    key = (launch.grid, launch.block, tuple(launch.param_words.items()))
    found = variants.fixed[key] if key in variants.fixed else fixed_branches(launch)
    if len(variants.fixed) < MOST_LAUNCHES:
        variants.fixed[key] = found
    for chosen in sorted(variants.chosen, key=len, reverse=True):
        if set(chosen) <= set(found):
            return chosen
    if len(variants.chosen) >= MOST_VARIANTS:
        return ()
    variants.chosen.append(worth_fixing(program, found))
    return variants.chosen[-1]


def _run(options, blocks, progress, launch, cancelled) -> None:
    """Compile if need be, run, count. Raises Declined or OutOfTime."""
    from .prepared import prepare
    from .workers import run

    if cancelled is None:
        prepared = _prepared_in_time(launch.program, options)
    else:
        prepared = prepare(launch.program, options, cancelled)
    clock = launch.clock
    totals = run(
        prepared,
        launch.memory,
        _parameters(launch),
        launch.grid,
        launch.block,
        np.asarray(blocks, np.int64),
        launch.shared_bytes,
        None if clock.seconds is None else clock.start + clock.seconds,
        progress,
        cancelled=cancelled,
        watched=launch.checks.device,
    )
    if launch.counting is not None and not _count(launch, totals):
        raise Declined("a generic address points to several state spaces")


def _prepared_in_time(program, options):
    """The code, unless the time of the launch is over before it is made; then it is finished for the next launch. Compilation
    cannot be interrupted, so another thread does it and this one can."""
    from .prepared import prepare, remembered

    known = remembered(program, options)
    if known is not None:
        return known
    made: futures.Future = futures.Future()

    def work() -> None:
        try:
            made.set_result(prepare(program, options))
        except Exception as error:  # whatever it is, it is raised below
            made.set_exception(error)

    threading.Thread(target=work).start()
    while not futures.wait([made], timeout=0.05).done:
        time_limit.look()
    return made.result()


_IN_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")  # where words meet in the name of a class


def _check_wishes(launch, blocks: int) -> None:
    """Raise Declined if more is wanted than results, counters and findings of blocks without clusters."""
    if launch.recorder is not None:
        raise Declined("a trace is wanted")
    if launch.clock.steps is not None:
        raise Declined("steps are counted")
    if launch.cluster is not None or "cluster" in launch.program.uses:
        raise Declined("its blocks form clusters")
    if blocks > MOST_BLOCKS:
        raise Declined("the grid is very large")
    for kind in observer.kinds() if launch.checks.wanted else ():
        if not kind.watched_natively and kind.wanted(launch.checks):
            raise Declined(f"native code does not look for {_IN_WORDS.sub(' ', kind.__name__).lower()}")
    if launch.counting is not None:
        for op in launch.program.ops:
            if op.guard is not None and op.counters:
                raise Declined(f"the threads that execute a guarded `{op.opcode}` are counted", op)


def _charges(launch):
    """(position, number among its accesses) -> Charge, of what is counted."""
    from .lower import Charge

    found = {}
    for (position, number), site in _numbered(launch.program):
        made = launch.charged[site.index]
        spaces = {site.space: 0}
        if site.generic:
            spaces = {"global": 0, "shared": GENERIC}
        for space, more in spaces.items():
            rule = made.rule_in(space)
            if not made.width or rule in (CostRule.NONE, CostRule.WARPGROUP):
                continue
            width, shift = made.width, made.shift
            if rule is CostRule.MATRIX:
                width = site.matrices
            elif rule in TWO_SIDED or site.part:
                width, shift = site.width, 0
            found[position, number + more] = Charge(rule, width, shift)
    return found


def _numbered(program):
    """((position, number among the accesses of that instruction), site), for every site."""
    met: dict[int, int] = {}
    for site in program.sites:
        number = met[site.pc] = met.get(site.pc, -1) + 1
        yield (site.pc, number), site


def _parameters(launch) -> np.ndarray:
    words = np.zeros(max([64, *launch.param_words]) + 64, np.uint32)
    for index, value in launch.param_words.items():
        words[index] = value
    return words.view(np.uint8)


def _count(launch, totals) -> bool:
    """Take in what was counted. False, and nothing done, if one access was in several state spaces."""
    counting, found = launch.counting, []
    for (position, number), site in _numbered(launch.program):
        parts = [("global" if site.generic else site.space, totals.accesses.get((position, number)))]
        parts.append(("shared", totals.accesses.get((position, number + GENERIC))))
        parts = [(space, values) for space, values in parts if values is not None and values[0]]
        if len(parts) > 1:
            return False
        found += [(site, *part) for part in parts]
    for site, space, values in found:
        counting.add(site, space, values)
    start = 0
    for i, block in enumerate(launch.program.blocks):
        counting.blocks[i][0] += int(totals.warps[start])
        counting.blocks[i][1] += int(totals.threads[start])
        start += block.size
    return True


__all__ = ["NOT_READY", "Declined", "Suspicious", "begin", "execute"]
