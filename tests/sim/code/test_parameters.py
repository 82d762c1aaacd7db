"""Which parameters an address is made of.

Tests of: helpers.sim.code.origins
"""

from helpers.run.kernel import compile as compile_kernel
from helpers.sim.code.parameters import parameters_reached
from helpers.sim.load import load


def reached(source: str) -> list[tuple[str, set[str] | None]]:
    """(kind of access, names of the parameters in its address) of every access of device memory, in order."""
    compiled = compile_kernel(source).compiled
    program = load(compiled.ptx, compiled.symbol, compiled.filename)
    names = {variable.name: parameter.name for (variable, _), parameter in zip(program.parameters, compiled.parameters, strict=True)}
    found = parameters_reached(program)
    sites = [site for site in program.sites if site.space in ("global", "generic")]
    return [(str(site.op), None if (own := found[site.index]) is None else {names[name] for name in own}) for site in sites]


def test_an_address_is_made_of_an_array_and_of_what_counts_its_elements():
    source = "__global__ void k(const float* x, float* y, int n) { y[blockIdx.x * n] = x[threadIdx.x]; }"
    assert reached(source) == [("ld", {"x"}), ("st", {"y", "n"})]


def test_a_pointer_that_moves_in_a_loop_stays_that_of_its_array():
    source = """__global__ void k(const float* a, const float* b, float* y, int n) {
        float sum = 0;
        #pragma unroll 1
        for (int i = 0; i < n; i++, a += n) sum += *a;
        atomicAdd(&y[b[0] > 0], sum);
    }"""
    assert reached(source) == [("ld", {"a", "n"}), ("ld", {"b"}), ("atom", {"y"})]


def test_an_address_from_memory_may_be_anywhere():
    source = "__global__ void k(float* const* rows, float* y) { y[threadIdx.x] = rows[blockIdx.x][threadIdx.x]; }"
    assert reached(source) == [("ld", {"rows"}), ("ld", None), ("st", {"y"})]


def test_an_index_from_memory_does_not_hide_the_array():
    source = "__global__ void k(const int* where, float* y) { y[where[threadIdx.x]] = 1; }"
    assert reached(source) == [("ld", {"where"}), ("st", {"y"})]
