"""The score of the machine code is the sum of the cycles that the compiler planned."""

import pytest

from helpers.model.planned_cycles import COPY, KINDS, MULTIPLY_ADD, OTHER, PLACEHOLDER, Planned, PlannedLoop, loop_cycles, main_loop
from helpers.sim.code import elf, sass
from helpers.toolchain.compile import compile_source
from tests.course.tiny_kernel import SOURCE


def test_the_score_of_the_code_is_the_sum_of_its_stall_counts():
    compiled = compile_source(SOURCE)
    cycles = loop_cycles(compiled)
    assert 1 < cycles < 100
    # Setting every stall field to 15 in the machine code must make it 15 cycles for each instruction.
    patched = bytearray(compiled.cubin)
    function = sass.parse(compiled.sass)[compiled.symbol]
    start = compiled.cubin.index(elf.sections(compiled.cubin)[f".text.{compiled.symbol}"].data)
    for one in function.instructions:
        at = start + one.address + 8
        upper = int.from_bytes(patched[at : at + 8], "little") | 15 << 41
        patched[at : at + 8] = upper.to_bytes(8, "little")
    branches = [one for one in function.instructions if one.name == "BRA" and one.target is not None and one.target <= one.index]
    loops = [function.instructions[one.target : one.index + 1] for one in branches]
    counts = [(sum(i.name == "FFMA" for i in loop), -len(loop)) for loop in loops]
    ffma, instructions = max(counts)

    class Patched:
        sass, symbol, cubin = compiled.sass, compiled.symbol, bytes(patched)

    assert loop_cycles(Patched) == pytest.approx(-15 * instructions / ffma)


def test_a_kernel_without_multiply_adds_has_no_score():
    assert loop_cycles(compile_source("__global__ void f(float* x) { x[threadIdx.x] = 1; }")) is None


def planned(*lines: str) -> PlannedLoop:
    """A loop of these instructions, "cycles [@guard] opcode operands"."""
    body = []
    for index, line in enumerate(lines):
        cycles, *words = line.split(maxsplit=3 if "@" in line else 2)
        guard = words.pop(0).removeprefix("@") if words[0].startswith("@") else ""
        operands = tuple(words[1].split(", ")) if len(words) > 1 else ()
        body.append(Planned(sass.SassInstruction(index, 16 * index, guard, words[0], operands, None, None), int(cycles)))
    return PlannedLoop(tuple(body))


def test_what_a_loop_is_made_of():
    loop = planned(
        "1 FFMA R1, R2, R3, R1",
        "4 LDS.128 R4, [R9]",
        "1 @!PT LDS RZ, [RZ]",
        "2 LDGSTS.E [R27], desc[UR12][R12.64]",
        "1 IADD3 R1, R2, R3, RZ",
    )
    assert [one.kind for one in loop.body] == [MULTIPLY_ADD, "shared loads", PLACEHOLDER, COPY, OTHER]
    assert (loop.cycles, loop.waits, loop.cycles_per_ffma) == (9, 4, 9)
    assert sum(loop.counts[kind] for kind in KINDS) == 5


@pytest.mark.parametrize(
    ("lines", "conflicts"),
    [
        (["1 FFMA R1, R2, R3, R1"], 1),  # R3 and R1 are odd both
        (["1 FFMA R0, R2, R3, R5"], 1),
        (["1 FFMA R5, R2, R4, R5"], 1),  # R2 and R4 are even both
        (["1 FFMA R5, R2.reuse, R3, RZ", "1 FFMA R7, R2, R9, R4"], 0),  # R2 is kept, R9 and R4 differ
        (["1 FFMA R5, R2.reuse, R3, RZ", "1 FFMA R7, R2, R9, R5"], 1),  # R2 is kept, R9 and R5 are odd both
        (["1 FFMA R5, R3, R2.reuse, RZ", "1 FFMA R7, R2, R9, R4"], 1),  # kept for the other place
        (["1 FFMA R5, R2.reuse, R3, RZ", "1 FFMA R7, R4, R9, RZ", "1 FFMA R7, R2, R9, R4"], 1),  # R4 came between
        (["1 FFMA R5, R2.reuse, R3, RZ", "1 FFMA R7, R5, R4, RZ", "1 FFMA R7, R2, R9, R4"], 0),  # R5 is in the other bank
    ],
)
def test_bank_conflicts_follow_banks_places_and_marks(lines, conflicts):
    assert planned(*lines).bank_conflicts == conflicts


def test_a_kernel_without_multiply_adds_has_no_main_loop():
    assert main_loop(compile_source("__global__ void f(float* x) { x[threadIdx.x] = 1; }")) is None
