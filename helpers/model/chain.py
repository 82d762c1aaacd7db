"""How long one warp alone would take for one round of a kernel's main loop: its chain of dependent instructions.

A warp issues in order and stops at the first instruction whose operand has not arrived. Walking the machine code of the
loop with a latency for each kind of instruction therefore gives the cycles per round that no other warp can shorten,
only fill. Loads that are issued together wait together: that is what unrolling buys, and it is read off the code here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.errors import CourseError
from helpers.sim.code import sass

GLOBAL_LOADS, SHARED_LOADS = ("LDG", "LD"), ("LDS", "LDSM")
ARITHMETIC_CYCLES = 4  # issue to use of an FFMA or integer instruction, Volta and later
_REGISTER = re.compile(r"(?<![\w])R(\d+)")
_NO_RESULT = {
    "STG",
    "STS",
    "ST",
    "STL",
    "BAR",
    "BRA",
    "EXIT",
    "NOP",
    "RED",
    "ISETP",
    "FSETP",
    "WARPSYNC",
    "BSYNC",
    "BSSY",
}


@dataclass(frozen=True, eq=False)  # each loop is its own: comparing bodies would cost more than walking them
class Loop:
    """The main loop of a kernel: the loop with the most loads in its body.

    global_loads, shared_loads, barriers, instructions: per round of one warp.
    """

    body: tuple[sass.Instruction, ...]

    def _count(self, names: Sequence[str]) -> int:
        return sum(instruction.name in names for instruction in self.body)

    @property
    def global_loads(self) -> int:
        return self._count(GLOBAL_LOADS)

    @property
    def shared_loads(self) -> int:
        return self._count(SHARED_LOADS)

    @property
    def barriers(self) -> int:
        return self._count(("BAR",))

    @property
    def instructions(self) -> int:
        return len(self.body)

    @functools.lru_cache(maxsize=4096)  # noqa: B019 - loops are few and live as long as their kernels
    def cycles(self, global_latency: float, shared_latency: float) -> float:
        """Cycles per round of a warp that has the SM to itself, once it is under way. Latencies from issue to use."""
        ready: dict[int, float] = {}
        clock = begin = 0.0
        for _ in range(3):  # the third round is the steady state
            begin = clock
            for instruction in self.body:
                sources, results = _registers(instruction)
                clock = max([clock, *(ready.get(register, 0.0) for register in sources)])
                if instruction.name in GLOBAL_LOADS:
                    done = clock + global_latency
                elif instruction.name in SHARED_LOADS:
                    done = clock + shared_latency
                else:
                    done = clock + ARITHMETIC_CYCLES
                if instruction.name == "BAR":  # everyone's stores must have landed
                    clock += shared_latency
                for register in results:
                    ready[register] = done
                clock += 1
        return clock - begin


def _registers(instruction: sass.Instruction) -> tuple[set[int], set[int]]:
    """Registers read, and registers written, by number."""
    results: set[int] = set()
    operands = list(instruction.operands)
    if instruction.name not in _NO_RESULT and operands and (match := re.match(r"R(\d+)", operands[0])):
        width = 4 if ".128" in instruction.opcode else 2 if ".64" in instruction.opcode or ".WIDE" in instruction.opcode else 1
        results = set(range(int(match[1]), int(match[1]) + width))
        operands = operands[1:]
    sources: set[int] = set()
    for operand in operands:
        for match in _REGISTER.finditer(operand):
            number = int(match[1])
            sources.add(number)
            if operand[match.end() :].startswith(".64"):
                sources.add(number + 1)
    if instruction.name in ("STG", "STS"):
        width = 4 if ".128" in instruction.opcode else 2 if ".64" in instruction.opcode else 1
        last = _REGISTER.search(operands[-1])
        if last:
            sources |= set(range(int(last[1]), int(last[1]) + width))
    return sources, results


def main_loop(compiled) -> Loop | None:
    """The main loop of a compiled kernel; None if it has no loop with loads, or cannot be disassembled."""
    try:
        return _main_loop(compiled.sass, compiled.symbol)
    except CourseError:  # no disassembler here: terms that need the machine code are left out
        return None


@functools.lru_cache(maxsize=64)
def _main_loop(text: str, symbol: str) -> Loop | None:
    function = sass.parse(text).get(symbol)
    loops = [Loop(body) for body in _loop_bodies(function)] if function else []
    loops = [loop for loop in loops if loop.global_loads + loop.shared_loads]
    return max(loops, key=lambda loop: (loop.global_loads + loop.shared_loads, -loop.instructions), default=None)


def _loop_bodies(function: sass.Function) -> list[tuple[sass.Instruction, ...]]:
    """What lies between a label and a branch back to it. A loop inside another is walked once."""
    instructions = function.instructions
    return [
        instructions[instruction.target : instruction.index + 1]
        for instruction in instructions
        if instruction.name == "BRA" and instruction.target is not None and instruction.target < instruction.index
    ]
