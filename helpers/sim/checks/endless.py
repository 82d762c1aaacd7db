"""Runs that do not end."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, NoReturn

from helpers.errors import SlowedError
from helpers.sim.code import cfg

from .findings import Findings
from .protocols import LoadedKernel, Machine

KIND = "endless"
MEANING = {KIND: "a run that does not end within its budget"}
ADVISED = {KIND: "Check that the loop's condition becomes false for every thread."}


NEVER_ENDS = "may never end"  # in the message of a run that was stopped
MAY_BE_LARGE = "If it is right and only large, run a smaller problem or give it a larger budget; if not, some loop never ends."
SLOWED = (
    "It has findings, which take the machine much time, so nobody knows whether it would have ended: mend them first. If it does not end "
    "then, some loop may never end."
)
WAITS_FOR_NOTHING = (
    "Nothing in this loop changes what ends it. Is its counter counted? If it shall wait for a value that others write, the compiler has "
    "read that once, before the loop: make it volatile, or read it by an atomic operation or ld.acquire."
)


def out_of_budget(program: LoadedKernel, findings: Findings, budget: str, line: int | None, position: int | None = None) -> NoReturn:
    """Stop a run that has used up its budget while it was at `line`, before the instruction at `position`. Raises SlowedError where it has
    findings: each takes the machine time, so that says little of the kernel."""
    where = f"line {line}" if line is not None else f"kernel {program.name}"
    why = WAITS_FOR_NOTHING if position is not None and _only_goes_round(program, position) else None
    if why is None and (found := findings.list()):
        raise SlowedError(f"{where}: the run was stopped here after {budget}. {SLOWED}", line, found)
    findings.add(KIND, line, f"The kernel had not ended after {budget}.", advice=why)
    findings.stop(f"{where} {NEVER_ENDS}: the kernel had not ended after {budget} and was stopped here. {why or MAY_BE_LARGE}", line)


def _only_goes_round(program: LoadedKernel, position: int) -> bool:
    """Is the instruction in a loop whose instructions have no results and reach no memory?"""
    here = next(block.index for block in program.blocks if position in block.ops)
    loop = cfg.loop_around([block.successors for block in program.blocks], here)
    ops = [program.ops[at] for i in loop for at in program.blocks[i].ops]
    return bool(ops) and not any(op.writes or op.sites or op.rendezvous for op in ops)


BYTES = (
    "All its arrivals have come, so look at the bytes: expect_tx must announce what the copies of a phase bring to this block's mbarrier, "
    "all their boxes or lengths together, also what lies outside of a matrix."
)
MULTICAST = (
    " A multicast copy brings its bytes to each block of its mask, at that block's own mbarrier: is this block in the mask of its "
    "neighbours' copies, and has it announced these?"
)
SURPLUS = (
    "More arrivals come than a phase expects, so phases end too early, and a thread that waits for one finds that another has begun. If "
    "all of these arrivals belong to one phase, give mbarrier.init their number, or let fewer come: one thread announces the bytes of all "
    "its copies by one arrive.expect_tx. If not, somebody arrives for the next phase too early: does the thread that fills a stage first "
    "wait until it has been read, and for the right parity (a wait for the parity of the phase that ended last returns at once)?"
)


ALL_FIRST = (
    "Each of these waits is for parity 0, the first phase of its mbarrier, and nobody has begun any of these phases. Does one of the waits "
    "stand in front of what begins the phase of another? Then it must not wait the first time: a wait for parity 1, as of the phase before "
    "the first, goes on at once (`phase ^ 1`)."
)


class Lacking(NamedTuple):
    """What a phase lacks, as the end of a sentence; the line that announced bytes, or None. bytes_alone: are its arrivals complete?
    surplus: have more threads arrived than phases expected?"""

    said: str = ""
    expect_line: int | None = None
    bytes_alone: bool = False
    surplus: bool = False


def incomplete_phase(m: Machine, line: int | None, lacking: Lacking, places: Collection[int], untouched: bool = False) -> NoReturn:
    """Every thread waits for an mbarrier. places: the lines where threads wait, or where they called what waits. untouched: is each of
    these waits for the first phase of an mbarrier, where nothing has come?"""
    why = lacking.said
    if len(places) > 1:
        *others, last = map(str, sorted(places))
        why += f". Threads wait at lines {', '.join(others)} and {last}: one of these waits may be the cause of the others"
    elif places and line not in places:
        why += f". The call is at line {min(places)}"
    if lacking.surplus:
        advice = SURPLUS
    elif lacking.bytes_alone:
        advice = BYTES + MULTICAST * ("multicast" in m.program.uses)
    elif untouched and len(places) > 1:
        advice = ALL_FIRST
    elif len(places) > 1:
        advice = "Check the number of arrivals that each of these mbarriers expects, who arrives there, and the phase waited for."
    else:
        advice = "Check the number of arrivals it expects, who arrives, and the phase waited for."
    finding = m.findings.add(
        KIND, line, f"Threads wait for an mbarrier whose phase is never completed{why}.", other_line=lacking.expect_line, advice=advice
    )
    m.findings.stop(f"{m.where(line)}: {finding.message} {finding.advice}", line)


def no_room(program: LoadedKernel, findings: Findings, places: Collection[int], blocks: int, resident: int) -> None:
    """More blocks than fit on a GPU at once wait for ever, until others begin. places: where they wait, as blocks of code."""
    line = program.blocks[min(places)].line
    findings.add(
        KIND, line,
        f"Blocks wait here for others that have not begun, and of the {blocks:,} blocks of this launch at most {resident:,} are on a GPU "
        "at once, also on the largest one of this architecture: the others begin when some have ended, so the launch never ends there.",
        advice="Let a block wait for blocks of lower numbers only, or launch no more blocks than fit and give each several tiles.",
    )  # fmt: skip


def waits_for_later(program: LoadedKernel, findings: Findings, places: Collection[int]) -> None:
    """A block waits for ever, until blocks of higher numbers begin. places: where it waits, as blocks of code."""
    line = program.blocks[min(places)].line
    findings.add(
        KIND, line,
        "A block waits here for blocks of higher numbers. Blocks begin by their numbers, and these only when there is room on the GPU: a "
        "launch of more blocks than fit never ends.",
        advice="Let a block wait for blocks of lower numbers only, and of its own tile: does each tile have a counter of its own?",
    )  # fmt: skip


def no_registers(m: Machine, line: int | None, block: int, wanted: int, pool: int) -> NoReturn:
    """Warpgroups of a block wait for more registers per thread (`wanted`, all together) than it has."""
    finding = m.findings.add(
        KIND, line,
        f"`setmaxnreg.inc` waits for registers that the block does not have: its warpgroups would hold "
        f"{wanted} per thread together, and there are {pool}.",
        block=m.block_position(block),
        advice="Let other warpgroups give away more with setmaxnreg.dec, or ask for fewer.",
    )  # fmt: skip
    m.findings.stop(f"{m.where(line)}: {finding.message} {finding.advice}", line)
