"""How long one warp alone would take for one round of a kernel's main loop: its chain of dependent instructions.

A warp issues in order and stops at the first instruction whose operand has not arrived. Walking the machine code of the
loop with a latency for each kind of instruction therefore gives the cycles per round that no other warp can shorten,
only fill. Loads that are issued together wait together: that is what unrolling buys, and it is read off the code here.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from helpers.errors import CourseError
from helpers.sim.code import sass

ARITHMETIC_CYCLES = 4  # issue to use of an FFMA or integer instruction, Volta and later


@dataclass(frozen=True, eq=False)  # each loop is its own: comparing bodies would cost more than walking them
class Loop:
    """The main loop of a kernel: the loop with the most loads in its body.

    global_loads, shared_loads, barriers, instructions: per round of one warp.
    """

    body: tuple[sass.SassInstruction, ...]

    @property
    def global_loads(self) -> int:
        return sum(map(_loads_global, self.body))

    @property
    def shared_loads(self) -> int:
        return sum(map(_loads_shared, self.body))

    @property
    def barriers(self) -> int:
        return sum(instruction.name == "BAR" for instruction in self.body)

    @property
    def instructions(self) -> int:
        return len(self.body)

    @functools.lru_cache(maxsize=4096)  # noqa: B019 - loops are few and live as long as their kernels
    def cycles(self, global_latency: float, shared_latency: float) -> float:
        """Cycles per round of a warp that has the SM to itself, once it is under way. Latencies from issue to use.

        Only R registers are followed: uniform registers and predicates are made early.
        """
        ready: dict[str, float] = {}
        clock = begin = 0.0
        for _ in range(3):  # the third round is the steady state
            begin = clock
            for instruction in self.body:
                clock = max([clock, *(ready.get(register, 0.0) for register in instruction.reads if register[0] == "R")])
                if _loads_global(instruction):
                    done = clock + global_latency
                elif _loads_shared(instruction):
                    done = clock + shared_latency
                else:
                    done = clock + ARITHMETIC_CYCLES
                if instruction.name == "BAR":  # everyone's stores must have landed
                    clock += shared_latency
                for register in instruction.writes:
                    ready[register] = done
                clock += 1
        return clock - begin


def main_loop(compiled) -> Loop | None:
    """The main loop of a compiled kernel; None if it has no loop with loads, or cannot be disassembled."""
    try:
        return _main_loop(compiled.sass, compiled.symbol)
    except CourseError:  # no disassembler here: terms that need the machine code are left out
        return None


def _loads_global(instruction: sass.SassInstruction) -> bool:
    """Into registers; a generic load is one, too."""
    return instruction.row.op == "ld" and instruction.row.space in ("global", "generic")


def _loads_shared(instruction: sass.SassInstruction) -> bool:
    return instruction.row.space == "shared" and instruction.row.op in ("ld", "ldmatrix")


@functools.lru_cache(maxsize=64)
def _main_loop(text: str, symbol: str) -> Loop | None:
    function = sass.parse(text).get(symbol)
    loops = [Loop(body) for body in function.loops()] if function else []
    loops = [loop for loop in loops if loop.global_loads + loop.shared_loads]
    return max(loops, key=lambda loop: (loop.global_loads + loop.shared_loads, -loop.instructions), default=None)
