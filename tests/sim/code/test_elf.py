"""Sections of cubins."""

from helpers.sim.code import elf, sass
from helpers.toolchain.compile import compile_source


def test_sections_of_a_cubin():
    compiled = compile_source(
        "__constant__ int table[4] = {1, 2, 3, 4}; __global__ void k(int* c) { c[threadIdx.x] = table[threadIdx.x & 3]; }"
    )
    sections = elf.sections(compiled.cubin)
    code = sections[f".text.{compiled.symbol}"].data
    assert len(code) == 16 * len(sass.parse(compiled.sass)[compiled.symbol].instructions)
    assert sections[".nv.constant3"].data[:16] == b"".join(n.to_bytes(4, "little") for n in (1, 2, 3, 4))
    assert elf.sections(b"") == {}


def test_words_that_the_loader_fills_in_are_named():
    compiled = compile_source("__device__ int x; __constant__ int* where = &x; __global__ void k(int* c) { *c = *where; }")
    assert 0 in elf.sections(compiled.cubin)[".nv.constant3"].relocated
