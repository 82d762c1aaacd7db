"""The score of the machine code is the sum of the cycles that the compiler planned."""

import pytest

from helpers.course.planned_cycles import loop_cycles
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
