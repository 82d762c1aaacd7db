"""Which branches of a kernel go one way whatever happens, because they depend on the launch's parameters alone.

A kernel has ways that a launch cannot take: for rows that are not aligned, for beta = 0. Code for them need not be made.
What the instructions mean is asked of the NumPy machine: their closures run once, on one value instead of all lanes'.
"""

from __future__ import annotations

import functools

import numpy as np

from helpers.sim.code import cfg
from helpers.sim.code.program import Effect, Op, Program
from helpers.sim.isa import SPECIAL_REGISTERS
from helpers.sim.machine.chunk import Chunk

from .uniformity import code_blocks

SPARED = 4  # a branch is held fixed if code can then leave out one instruction in so many


def fixed_branches(launch) -> tuple[tuple[int, bool], ...]:
    """(position of a guarded branch, whether it is taken), for all branches that the launch decides."""
    steps = _steps(launch.program)
    if not steps:
        return ()
    machine = Chunk(launch, [np.zeros((1, 1, 1), np.int64)] * 3, (1, 1, 1))
    found = []
    with np.errstate(all="ignore"):
        for op in steps:
            if op.effect is Effect.JUMP:
                found.append((op.position, bool(machine.regs[op.guard.register].item()) != op.guard.negated))
            else:
                for step in op.steps:
                    step(machine)
    return tuple(found)


@functools.lru_cache(maxsize=2)
def _steps(program: Program) -> tuple[Op, ...]:
    """The guarded branches that any launch decides, and before each what its guard depends on."""
    if not any(op.effect is Effect.JUMP and op.guard for op in program.ops):
        return ()
    written = [0] * len(program.types)  # times that an instruction writes the register
    for op in program.ops:
        for register in op.writes:
            written[register] += 1
    blocks = code_blocks(program)
    block_of = {position: block.index for block in blocks for position in (*block.positions, block.position)}
    above = cfg.dominators([block.successors for block in blocks])
    known = {index: -1 for index, name in program.specials if SPECIAL_REGISTERS[name].varies == "launch"}  # where written

    def has(register: int, position: int) -> bool:
        if register not in known:
            return False
        if known[register] < 0:
            return True
        there, here = block_of[known[register]], block_of[position]
        return known[register] < position if there == here else bool(above[here] >> there & 1)

    found = []
    for op in program.ops:
        if op.guard is not None:
            if op.effect is Effect.JUMP and has(op.guard.register, op.position):
                found.append(op)
        elif (
            (op.effect is Effect.PURE or _loads_parameter(op, program.entry_bytes))
            and op.writes
            and all(written[register] == 1 for register in op.writes)
            and all(has(register, op.position) for register in op.reads)
        ):
            found.append(op)
            known.update(dict.fromkeys(op.writes, op.position))
    return _asked(found)


def _asked(ops: list[Op]) -> tuple[Op, ...]:
    """Of such instructions, those that a branch depends on."""
    needed: set[int] = set()
    kept = []
    for op in reversed(ops):
        if op.effect is Effect.JUMP:
            needed.add(op.guard.register)
        elif needed.isdisjoint(op.writes):
            continue
        needed.update(op.reads)
        kept.append(op)
    return tuple(reversed(kept))


def worth_fixing(program: Program, fixed: tuple[tuple[int, bool], ...]) -> tuple[tuple[int, bool], ...]:
    """Those of the branches `fixed` that spare a large part of the program, so that most launches need the same code.

    The others (does the last pass of an unrolled loop run?) differ from launch to launch and are left to be decided when the code runs.
    """
    blocks, held = code_blocks(program), dict(fixed)

    def ways(index: int) -> list[int]:
        block = blocks[index]
        if block.end == "branch" and block.position in held:
            return [block.target if held[block.position] else block.next]
        return block.successors

    def reached(start: int, known: set[int], most: float = float("inf")) -> set[int] | None:
        """Blocks beyond `known` that can be reached from `start`; None if they have more than `most` instructions."""
        found: set[int] = set()
        todo, size = [start], 0
        while todo:
            index = todo.pop()
            if index in known or index in found:
                continue
            found.add(index)
            size += len(blocks[index].positions) + 1
            if size > most:
                return None
            todo += ways(index)
        return found

    little = len(program.ops) / SPARED
    known = reached(0, set()) or set()
    for block in blocks:
        if block.end != "branch" or block.position not in held:
            continue
        if block.index in known:
            more = reached(block.next if held[block.position] else block.target, known, little)
            if more is None:
                continue
            known |= more
        del held[block.position]
    return tuple(held.items())


def _loads_parameter(op: Op, entry_bytes: int) -> bool:
    """Does it read a parameter of the kernel, and not one that the kernel writes to call a function?"""
    if op.effect is not Effect.LOAD or len(op.sites) != 1:
        return False
    (site,) = op.sites
    return site.space == "param" and site.base is None and site.address.base.value + site.address.offset + site.width <= entry_bytes
