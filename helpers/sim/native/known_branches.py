"""Which branches of a kernel go one way whatever happens, because they depend on the launch's parameters alone.

A kernel has ways that a launch cannot take: for rows that are not aligned, for beta = 0. Code for them need not be made.
What the instructions mean is asked of the NumPy machine: their closures run once, on one value instead of all lanes'.
"""

from __future__ import annotations

import numpy as np

from helpers.sim.machine.chunk import Chunk

from .uniformity import code_blocks, read, written

_PURE = frozenset((
    "mov", "cvt", "cvta", "add", "sub", "mul", "mad", "fma", "and", "or", "xor", "not", "shl", "shr", "setp", "selp", "min",
    "max", "div", "rem", "neg", "abs", "bfe", "lop3",
))  # fmt: skip
_GIVEN = ("%ntid.", "%nctaid.")


def decided(launch) -> tuple[tuple[int, bool], ...]:
    """(position of a guarded branch, whether it is taken), for all branches that are decided."""
    program = launch.program
    body = program.code
    if not any(i.name == "bra" and i.guard for i in body):
        return ()
    steps = {}
    for block in program.blocks:
        start = 0
        for mark in block.marks:
            steps[mark.position] = block.plain[start : mark.plain]
            start = mark.plain
    definitions: dict[str, list[int]] = {}
    for position, instruction in enumerate(body):
        for name in written(instruction):
            definitions.setdefault(name, []).append(position)
    numbers = {name: index for index, name in program.register_names.items() if isinstance(name, str)}
    blocks = code_blocks(body, program.labels)
    block_of = {position: block.index for block in blocks for position in (*block.positions, block.position)}
    above = _dominators(blocks)
    machine = Chunk(launch, [np.zeros((1, 1, 1), np.int64)] * 3, (1, 1, 1))
    known: dict[str, int] = {}  # register -> where it is written

    def has(name: str, position: int) -> bool:
        if name.startswith(_GIVEN):
            return True
        if name not in known:
            return False
        there, here = block_of[known[name]], block_of[position]
        return known[name] < position if there == here else bool(above[here] >> there & 1)

    found = []
    with np.errstate(all="ignore"):
        for position, instruction in enumerate(body):
            if instruction.guard is not None:
                name, negated = instruction.guard
                if instruction.name == "bra" and has(name, position):
                    found.append((position, bool(machine.regs[numbers[name]].item()) != negated))
                continue
            targets = written(instruction)
            pure = instruction.name in _PURE or instruction.opcode.startswith("ld.param")
            once = bool(targets) and all(len(definitions[name]) == 1 for name in targets)
            if pure and once and all(has(name, position) for name in read(instruction)):
                for step in steps[position]:
                    step(machine)
                known.update(dict.fromkeys(targets, position))
    return tuple(found)


def _dominators(blocks) -> list[int]:
    """Per block, a bit set of the blocks that every way to it passes."""
    everything = (1 << len(blocks)) - 1
    before: list[list[int]] = [[] for _ in blocks]
    for block in blocks:
        for successor in block.successors:
            before[successor].append(block.index)
    above = [everything] * len(blocks)
    above[0] = 1
    changed = True
    while changed:
        changed = False
        for i in range(1, len(blocks)):
            new = everything
            for b in before[i]:
                new &= above[b]
            new |= 1 << i
            if new != above[i]:
                above[i], changed = new, True
    return above
