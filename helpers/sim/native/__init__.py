"""The fast engine: PTX compiled to native code with LLVM, for what the NumPy machine would take long for.

The NumPy machine is the definition. This engine takes a launch only if it can do all that is asked with the same
results, counters and findings, and gives it back as soon as something happens that deserves an explanation.
"""

from __future__ import annotations

import functools

import numpy as np

from helpers.sim.checks import endless
from helpers.sim.code.sites import CostRule
from helpers.sim.counting.rules import TWO_SIDED
from helpers.sim.machine.memory import DeviceMemory

from . import engine
from .offsets import GENERIC
from .uniformity import is_generic

# float32 instructions whose threads the counters tell apart; one under a guard would need a counter of its own.
_COUNTED = ("fma", "mad", "add", "sub", "mul")
PATIENCE = 0.3  # how long the NumPy machine runs alone, as a part of the time that compiling takes
LARGE = 1000  # instructions of a kernel that is made for the ways a launch can take
WAYS = 4  # how many different ones, before it is made for all
MOST_KNOWN = 256  # launches whose ways through a kernel are remembered
MOST_BLOCKS = 1 << 24
SHORT = 0.3  # seconds of compilation that are not worth running two engines for


def execute(launch, blocks, progress, alone, required: bool = False) -> str:
    """Run a launch (see `launch.Launch`) with the better of the two engines, and return its name.

    blocks: linear indices. alone: function that runs the launch in the NumPy machine. required: raise ValueError rather
    than use that. Results and counters are then in `launch`; the arguments' arrays are not touched.
    """
    reason, rival = _attempt(launch, blocks, progress, required)
    if not reason:
        return "native"
    if required:
        raise ValueError(reason)
    if rival is None:
        alone()
        return "numpy"
    from .background import Overtaken

    try:
        alone()
    except Overtaken:
        rival.adopt()
        return "native"
    finally:
        rival.cancel()
    return "numpy"


def _attempt(launch, blocks, progress, required):
    """('', None) if native code ran the launch; else why not, and a Rival if it may still do so."""
    if not engine.available():
        return "llvmlite is not installed", None
    from . import prepared as native  # here, so that a missing llvmlite costs nothing but speed

    reason = _asks_too_much(launch) or ("the grid is very large" if len(blocks) > MOST_BLOCKS else "")
    if reason:
        return reason, None
    program, clock = launch.program, launch.clock
    if not len(blocks):
        return "", None
    try:
        options = native.options_for(
            program,
            launch.block,
            None if launch.counting is None else _charges(program),
            launch.checks.wanted and launch.shared_bytes > 0,
            launch.checks.device,
            _ways(launch),
        )
        prepared = native.remembered(program, options)
        seconds = native.seconds_to_make(program, options)
        if prepared is None and not required and seconds > SHORT:
            from .background import Rival

            run = functools.partial(_run, native, options, blocks, None)
            return "it has to be compiled first", Rival(launch, run, PATIENCE * seconds, (native.Declined, native.OutOfTime))
        _run(native, options, blocks, progress, launch, None)
    except native.Declined as reason:
        # What the attempt has written must not be seen.
        arrays = [(argument.name, argument.array) for argument in launch.memory.arguments]
        launch.memory = DeviceMemory(program, arrays)
        return str(reason), None
    except native.OutOfTime as late:
        endless.out_of_budget(program, launch.findings, f"{clock.seconds:g} seconds", program.code[late.position].line)
        raise
    return "", None


def _ways(launch) -> tuple[tuple[int, bool], ...]:
    """The branches that are decided, for kernels so large that it pays to make code for one way through them."""
    program = launch.program
    if len(program.code) < LARGE:
        return ()
    from .known_branches import decided
    from .uniformity import Unsupported

    met, known = program.__dict__.setdefault("_ways", ([], {}))
    key = (launch.grid, launch.block, tuple(launch.param_words.items()))
    try:
        found = known[key] if key in known else decided(launch)
    except Unsupported:
        return ()  # the kernel will be declined
    if len(known) < MOST_KNOWN:
        known[key] = found
    if found not in met and len(met) < WAYS:
        met.append(found)
    return found if found in met else ()


def _run(native, options, blocks, progress, launch, cancelled) -> None:
    """Compile if need be, run, count. Raises Declined or OutOfTime."""
    prepared = native.prepare(launch.program, options)
    clock = launch.clock
    totals = native.run(
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
        raise native.Declined("a generic address points to several state spaces")


def _asks_too_much(launch) -> str:
    if launch.recorder is not None:
        return "a trace is wanted"
    if launch.clock.steps is not None:
        return "steps are counted"
    if launch.cluster is not None or "cluster" in launch.program.uses:
        return "its blocks form clusters"
    if launch.counting is not None and any(i.guard and i.name in _COUNTED and "f32" in i.modifiers for i in launch.program.code):
        return "guarded arithmetic is counted"
    return ""


def _charges(program):
    """(position, number among its accesses) -> Charge, of what is counted."""
    from .lower import Charge

    found = {}
    for (position, number), site in _numbered(program):
        spaces = {site.space: 0}
        if is_generic(program.code[position]):
            spaces = {"global": 0, "shared": GENERIC}
        for space, more in spaces.items():
            rule = site.rule_in(space)
            if not site.charged or rule in (CostRule.NONE, CostRule.WARPGROUP):
                continue
            width, shift = site.charged, site.shift
            if rule is CostRule.MATRIX:
                width = site.matrices
            elif rule in TWO_SIDED or program.code[position].name == "wmma":
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
        generic = is_generic(launch.program.code[position])
        parts = [("global" if generic else site.space, totals.accesses.get((position, number)))]
        parts.append(("shared", totals.accesses.get((position, number + GENERIC))))
        parts = [(space, values) for space, values in parts if values is not None and values[0]]
        if len(parts) > 1:
            return False
        found += [(site, *part) for part in parts]
    for site, space, values in found:
        site.space = space
        counting.add(site, space, values)
    start = 0
    for i, block in enumerate(launch.program.blocks):
        counting.blocks[i][0] += int(totals.warps[start])
        counting.blocks[i][1] += int(totals.threads[start])
        start += block.size
    return True


__all__ = ["execute"]
