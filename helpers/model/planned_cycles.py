"""The machine code's own score: what the compiler plans for a kernel's main loop, instruction by instruction."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from helpers.sim.code import sass
from helpers.toolchain.compiled import Compiled

from .cycles.scheduled import control_words, fetched, stall

# What an instruction of the main loop is for.
MULTIPLY_ADD, SHARED_LOAD, COPY, PLACEHOLDER, OTHER = "FFMA", "shared loads", "copies", "placeholders", "other"
KINDS = (MULTIPLY_ADD, SHARED_LOAD, COPY, PLACEHOLDER, OTHER)


@dataclass(frozen=True)
class Planned:
    """One instruction, and how many cycles the compiler has the warp wait before the next one (1 or more)."""

    instruction: sass.SassInstruction
    cycles: int

    @property
    def kind(self) -> str:
        """One of KINDS. A placeholder is switched off for good (`@!PT`): it takes its place and does nothing."""
        if self.instruction.guard == "!PT":
            return PLACEHOLDER
        return {"FFMA": MULTIPLY_ADD, "LDS": SHARED_LOAD, "LDGSTS": COPY}.get(self.instruction.name, OTHER)


@dataclass(frozen=True)
class PlannedLoop:
    """The main loop of a kernel's machine code: the loop with the most FFMA, in order."""

    body: tuple[Planned, ...]

    @functools.cached_property
    def counts(self) -> Mapping[str, int]:
        """Instructions of each kind."""
        return {kind: sum(one.kind == kind for one in self.body) for kind in KINDS}

    @property
    def cycles(self) -> int:
        """Cycles that one warp takes for the loop if it never waits for data."""
        return sum(one.cycles for one in self.body)

    @property
    def cycles_per_ffma(self) -> float:
        return self.cycles / self.counts[MULTIPLY_ADD]

    @property
    def waits(self) -> int:
        """Cycles in which the plan has the warp issue nothing."""
        return self.cycles - len(self.body)

    @property
    def cycles_with_conflicts(self) -> float:
        """Cycles per FFMA if each bank conflict costs one more. An estimate: the hardware can make up for some of them."""
        return (self.cycles + self.bank_conflicts) / self.counts[MULTIPLY_ADD]

    @functools.cached_property
    def bank_conflicts(self) -> int:
        """FFMAs that must fetch two or three registers from one bank, because the operand reuse cache holds none of them.

        The cache has an entry for each place of an operand and each bank. An operand with the mark `.reuse` is kept there until the
        next operand of its place and bank.
        """
        kept: dict[tuple[int, int], int] = {}
        return sum(max(fetched(one.instruction, kept)[:2]) > 1 for one in self.body if one.kind == MULTIPLY_ADD)


def main_loop(compiled: Compiled) -> PlannedLoop | None:
    """The loop with the most FFMA, the shorter of two with as many; None if there is none.

    The cycles are in bits 105 to 108 of each instruction, since sm_70.
    """
    return _main_loop(compiled.sass, compiled.symbol, compiled.cubin)


@functools.lru_cache(maxsize=32)
def _main_loop(text: str, symbol: str, cubin: bytes) -> PlannedLoop | None:
    function = sass.parse(text).get(symbol)
    if function is None:
        return None
    weights = [(sum(one.name == "FFMA" for one in loop), -len(loop), loop) for loop in function.loops()]
    ffma, _, body = max(weights, key=lambda item: item[:2], default=(0, 0, ()))
    if not ffma:
        return None
    return PlannedLoop(tuple(Planned(one, stall(control)) for one, control in zip(body, control_words(symbol, body, cubin), strict=True)))


def loop_cycles(compiled: Compiled) -> float | None:
    """Cycles that one warp takes for its main loop if it never waits for data, per multiply-add of the warp; None without a loop.

    On an H200, over 14 variants of step 12 from the fastest to the slowest (54.3 to 47.3 TFLOPS at 4096³), the score made
    of it and the measured speed correlate by 0.86.
    """
    loop = main_loop(compiled)
    return None if loop is None else loop.cycles_per_ffma
