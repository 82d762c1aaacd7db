"""Exact instruction counts of a launch, and its counters under Nsight Compute's names."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.errors import CourseError
from helpers.sim.code import time_limit
from helpers.sim.code.lines import cell_lines
from helpers.sim.code.program import Op
from helpers.sim.code.sass import SassInstruction, parse
from helpers.sim.code.sass_opcodes import opcode_row
from helpers.sim.code.sass_operands import registers_of
from helpers.sim.counting import names, rules

from .constants import cubin_constants, launch_constants
from .costs import GLOBAL_OP, SiteAccess, charged_counters
from .execute import SliceRun
from .slicing import Slice, usual_way
from .values import CannotTell


@dataclass(frozen=True)
class InstructionCounts:
    """Executed warp-level instructions of a launch.

    total: all of them. by_opcode: the same per opcode name ('FFMA', 'LDS', 'BAR', …). per_instruction: the
    same per SASS instruction, in the order of the entry's code section. by_ptx_line: per 1-based PTX line.
    threads: thread-level executions of arithmetic opcodes with the guard true; an opcode is absent where a guard could not be
    known.
    threads_of: the same per SASS instruction index.
    accesses: per SASS instruction index, one for each memory it reached; None if not asked for. `unknown_accesses`: index ->
    why its addresses are not known.
    """

    total: int
    by_opcode: dict[str, int]
    per_instruction: tuple[int, ...]
    by_ptx_line: dict[int, int]
    threads: dict[str, int]
    accesses: dict[int, tuple[SiteAccess, ...]] | None = None
    unknown_accesses: dict[int, str] = field(default_factory=dict)
    threads_of: dict[int, int] = field(default_factory=dict)
    instructions: tuple[SassInstruction, ...] = field(default=(), repr=False)

    @property
    def complete(self) -> bool:
        """Whether every counter of `counters` is known: all addresses, their spaces, and all guards of arithmetic."""
        counted = {i.name for i, n in zip(self.instructions, self.per_instruction, strict=True) if n and i.row.per_thread}
        return self.accesses is not None and not self.unknown_accesses and counted <= set(self.threads)


def instruction_counts(
    compiled,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[Any],
    blocks: Iterable[int] | None = None,
    accesses: bool = False,
    budget: int = 2_000_000,
    cluster: Sequence[int] | None = None,
) -> tuple[InstructionCounts | None, str]:
    """(counts, '') or (None, why not) for one launch.

    compiled: needs `.sass`, `.symbol`, `.arch`, `.ptx`. grid, block: up to three extents, x first. args: one value per
    parameter; arrays stand for a pointer of their own, aligned to 256 bytes unless they are views; an int for a pointer
    parameter is its address.
    blocks: count only these linear block indices (x fastest). budget: basic blocks executed before giving up. cluster: blocks
    per cluster (x, y, z). Raises TimeIsUp where a `time_limit` is over.
    """
    function = parse(compiled.sass).get(compiled.symbol)
    looks = None if function is None else next((i for i in function.instructions if i.opcode.startswith("SYNCS.PHASECHK")), None)
    if looks is not None:
        return None, f"how often a thread looks at an mbarrier is a matter of time: {looks}"
    program = sliced(compiled.sass, compiled.symbol, accesses)
    if program is None:
        return None, "there is no machine code for this kernel"
    try:
        dims = tuple(cluster or (1, 1, 1))
        constants = launch_constants(compiled.ptx, compiled.symbol, compiled.arch, grid, block, args, dims)
        constants |= cubin_constants(getattr(compiled, "cubin", b""), compiled.symbol)
        run = SliceRun(program, grid, block, constants, blocks, accesses, budget, dims)
        return _collected(run, run.run()), ""
    except CannotTell as reason:
        return None, str(reason)


@functools.lru_cache(maxsize=4)  # up to 20 MB each
def sliced(text: str, symbol: str, accesses: bool, usual: bool = False, stored: bool = False) -> Slice | None:
    """The slice of one kernel; None if the disassembly does not have it. usual: of its `usual_way`. stored: see `Slice`."""
    function = parse(text).get(symbol)
    return None if function is None else Slice(usual_way(function) if usual else function, accesses, stored)


_WARPGROUP = re.compile(r"^[A-Z]GMMA(\.SP)?\.64x(\d+)x")


def _collected(run: SliceRun, per_instruction: tuple[int, ...]) -> InstructionCounts:
    by_opcode: dict[str, int] = defaultdict(int)
    by_line: dict[int, int] = defaultdict(int)
    threads: dict[str, int | None] = {}
    threads_of: dict[int, int] = {}
    for block in run.program.blocks:
        lanes = run.lane_counts.get(block.start, 0)
        for i in run.program.instructions[block.start : block.end]:
            name, index = i.name, i.index
            n = per_instruction[index]
            if not n:
                continue
            by_opcode[name] += n
            if i.ptx_line is not None:
                by_line[i.ptx_line] += n
            if i.row.per_thread:
                mine = lanes if i.predicate is None else run.thread_counts.get(index, 0)
                before = threads.get(name, 0)
                threads[name] = None if mine is None or before is None else before + mine
                threads_of[index] = mine
    known = {name: count for name, count in threads.items() if count is not None}
    threads_of = {k: v for k, v in threads_of.items() if run.program.instructions[k].name in known}
    sites = None
    if run.accesses:
        sites = defaultdict(tuple)
        for (index, _), site in run.sites.items():
            if index not in run.unknown_sites:
                sites[index] += (site,)
    return InstructionCounts(
        sum(per_instruction), dict(by_opcode), per_instruction, dict(by_line), known, sites and dict(sites), dict(run.unknown_sites),
        threads_of, run.program.instructions,
    )  # fmt: skip


def counters(counts: InstructionCounts, compiled=None) -> tuple[dict[str, int], dict[int, dict[str, int]]]:
    """(totals, by line of the reader's cell) of a launch; memory counters only if it was counted with accesses=True.

    compiled: needs `.ptx`, for the lines; None leaves them out. A counter to which an access contributes whose addresses
    are not known is left out, of the totals and of every line. Those of single opcodes are
    the instances of one metric of Nsight Compute.
    """
    by_index: dict[int, dict[str, int]] = {}
    unknown: set[str] = set()
    guarded = any(i.row.meets and i.predicate is not None for i in counts.instructions)
    for index, (instruction, executed) in enumerate(zip(counts.instructions, counts.per_instruction, strict=True)):
        if not executed:
            continue
        row = instruction.row
        mine = by_index[index] = {names.INSTRUCTIONS: executed, names.opcode(instruction.name): executed}
        if row.executed_as:  # an instruction whose guard is false counts here, too
            mine[names.executed(row.executed_as)] = executed
        if row.tensor:
            mine |= {names.tensor(part): executed for part in ("", *row.tensor)}
        if counts.accesses is not None and (shape := _WARPGROUP.match(instruction.opcode)):
            read = rules.warpgroups(executed // 4, int(shape[2]), bool(shape[1]), "gdesc" in instruction.operands[1])
            mine[names.SHARED_WAVEFRONTS_OF_ALL], mine[names.SHARED_WAVEFRONTS_OF_ALL_IDEAL] = read.wavefronts, read.ideal_wavefronts
        if row.thread_op and index in counts.threads_of:
            mine[names.threads(row.thread_op)] = counts.threads_of[index]
        if guarded and row.meets and index in counts.threads_of:
            mine[names.opcode_threads(instruction.name)] = counts.threads_of[index]
        if counts.accesses is None or not row.space:
            continue
        if index in counts.unknown_accesses:
            for possible in ("global", "shared", "local") if row.space == "generic" else (row.space,):
                unknown.update(charged_counters(SiteAccess(possible, row.op), instruction))
        for site in counts.accesses.get(index, ()):
            mine.update(charged_counters(site, instruction))
    lines = None
    if compiled is not None:
        lines = cell_lines(compiled)
    totals: dict[str, int] = defaultdict(int)
    by_line: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for index, mine in by_index.items():
        line = None if lines is None else lines.get(counts.instructions[index].ptx_line)
        for name, value in mine.items():
            if name in unknown:
                continue
            totals[name] += value
            if line is not None and value:
                by_line[line][name] += value
        for site in (counts.accesses or {}).get(index, ()):
            if line is not None and site.space != "shared" and site.ideal_sectors:
                by_line[line][names.ideal_sectors(site.space, GLOBAL_OP[site.op])] += site.ideal_sectors
    return dict(totals), {line: dict(values) for line, values in by_line.items()}


# Instructions by what they are, not by where they reach: a generic load of shared memory is none of these (measured on an H100).
_BY_INSTRUCTION = frozenset(names.executed(op) for op in ("shared_ld", "shared_st", "ldsm"))


def _others_access(counts: InstructionCounts, totals: Mapping[str, int], scale: float) -> bool:
    """Do other numbers of warps load and store than by the PTX? Where its loop is unrolled further, lanes leave it at other places."""
    executed: dict[str, int] = defaultdict(int)
    for instruction, times in zip(counts.instructions, counts.per_instruction, strict=True):
        space, op = instruction.row.space, instruction.row.op
        if space == "global" and GLOBAL_OP.get(op) in _PLAIN:
            executed[names.requests("global", GLOBAL_OP[op])] += times
        elif space == "shared" and op in _PLAIN:
            executed[names.executed(f"shared_{op}")] += times
    return any(round(times * scale) != totals.get(name, 0) for name, times in executed.items())


_PLAIN = ("ld", "st")


def _doubtful(compiled, ops: Iterable[Op]) -> set[str]:
    """Counters that the PTX cannot tell: of arithmetic, where ptxas made other instructions of some of it, or the same of something else (a
    division is multiply-adds, and how many of them, its numbers decide; a product and a sum may have become one), and `_repeated`."""
    function = parse(compiled.sass).get(compiled.symbol)
    written, made = defaultdict(set), defaultdict(set)
    for op in ops:
        for kind in op.counters:
            written[kind].add(op.ptx_line)
    for i in function.instructions if function else ():
        if i.row.thread_op:
            made[i.row.thread_op].add(i.ptx_line)
    arithmetic = {names.threads(kind) for kind in (*written, *made) if written[kind] != made[kind]}
    return arithmetic | (_repeated(function.instructions) if function else set())


def _repeated(instructions: Sequence[SassInstruction]) -> set[str]:
    """Counters of memory that one instruction of the PTX reaches again and again: ptxas makes a loop of an atomic operation that the
    hardware has not, which loads, compares and exchanges until nobody came between. So do readers, for a sum of their own or a lock."""
    loops = [instructions[i.target : i.index + 1] for i in instructions if i.target is not None and i.target <= i.index]
    lines = {body[-1].ptx_line for body in loops if len({i.ptx_line for i in body}) == 1}
    tried = {i.index for body in loops for i in body if i.row.op == "atom" and _decides(i, body)}
    found: set[str] = set()
    for i in instructions:
        if i.row.space and i.ptx_line is not None and (i.ptx_line in lines or i.index in tried):
            found.add(names.executed(i.row.executed_as or f"shared_{i.row.op}"))
            for space in ("global", "shared", "local") if i.row.space == "generic" else (i.row.space,):
                found.update(charged_counters(SiteAccess(space, i.row.op), i))
    return found


def _decides(atomic: SassInstruction, loop: Sequence[SassInstruction]) -> bool:
    """Does the loop end by nothing but what this atomic operation of it has found? (One that walks tiles has an end of its own.)"""
    inside = range(loop[0].index, loop[-1].index + 1)
    told: set[str] = set()
    ends: dict[int, bool] = {}
    for i in (*loop, *loop):  # what one turn has found, the next may ask
        if i.row.leaves and i.predicate is not None and (i is loop[-1] or i.target not in inside):
            ends[i.index] = not told.isdisjoint(registers_of(i.predicate))
        if i is atomic or not told.isdisjoint(i.reads):
            told |= i.writes
        elif i.predicate is None:
            told -= i.writes
    return bool(ends) and all(ends.values())


def _without(unknown: Container[str], totals: Mapping[str, int], by_line: Mapping[int, Mapping[str, int]]):
    """(totals, by line) without these counters."""
    if not unknown:
        return totals, by_line
    lines = {line: {name: value for name, value in mine.items() if name not in unknown} for line, mine in by_line.items()}
    return {name: value for name, value in totals.items() if name not in unknown}, lines


def refine(totals, by_line, compiled, grid, block, args, blocks=None, scale: float = 1.0, accesses: bool = False, cluster=None, ops=()):
    """(totals, by line, why not): counters of a PTX-level run with those of the machine code put in their place.

    totals, by_line: as `Outcome` has them; they are not changed. Counters that the SASS decides (instructions executed, in
    all and per opcode; threads of FFMA and its like; with accesses=True the memory counters too) replace those of the same
    name and are added where there were none. If the SASS cannot tell, or not in time, both come back as they were, with the
    reason, but for arithmetic of which the PTX cannot tell either.
    blocks, scale: the blocks that were run, and what their counters were multiplied by. cluster: blocks per cluster. ops: the PTX.
    """
    readable = True
    try:
        counts, why = instruction_counts(compiled, grid, block, args, blocks=blocks, accesses=accesses, cluster=cluster)
        if counts is not None and not accesses and _others_access(counts, totals, scale):
            there, _ = instruction_counts(compiled, grid, block, args, blocks=blocks, accesses=True, cluster=cluster)
            counts = there or counts
    except time_limit.TimeIsUp:
        counts, why = None, "the time of the launch was over before they were counted"
    except CourseError as error:  # the machine code cannot be read here
        counts, why, readable = None, error.message, False
    if counts is None:
        return *_without(_doubtful(compiled, ops) if readable else (), totals, by_line), why
    exact, lines = counters(counts, compiled)
    open_ones = {
        names.threads(row.thread_op) for row in map(opcode_row, counts.by_opcode) if row.thread_op and row.name not in counts.threads
    }
    if open_ones:
        totals, by_line = _without(open_ones & _doubtful(compiled, ops), totals, by_line)
    if not accesses:
        exact, lines = names.without_l2(exact), {line: names.without_l2(mine) for line, mine in lines.items()}
    totals = {name: 0 if name in _BY_INSTRUCTION else value for name, value in totals.items()}
    by_line = {line: {name: value for name, value in values.items() if name not in _BY_INSTRUCTION} for line, values in by_line.items()}
    new = {**totals, **{name: round(value * scale) for name, value in exact.items()}}
    merged = {line: {name: value for name, value in values.items() if name not in exact} for line, values in by_line.items()}
    for line, values in lines.items():
        merged.setdefault(line, {}).update({name: round(value * scale) for name, value in values.items()})
    return new, dict(sorted(merged.items())), ""
