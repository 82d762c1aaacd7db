"""Names of things: array elements, declarations of shared memory, source lines."""

from types import SimpleNamespace

import numpy as np
import pytest

from helpers.errors import plural
from helpers.views.places import code, element, nth, shared_shape, source_line
from tests.views.view_builders import Allocation, one_load, run_of

SOURCE = """
#define PAD 4
constexpr int BM = 32, BK = 8;  // rows, depth
constexpr int BN = 2 * BM;
__global__ void k(float* A) {
    __shared__ float As[BK][BM + PAD];  // As[1][1]
    __shared__ __align__(16) half Bs[BK * 2][BN / 4], Cs[3];
    __shared__ float4 v[7];
    extern __shared__ float dynamic[];
}
"""


@pytest.mark.parametrize(
    "name, nbytes, shape, itemsize",
    [
        ("As", 8 * 36 * 4, (8, 36), 4),
        ("Bs", 16 * 16 * 2, (16, 16), 2),
        ("Cs", 6, (3,), 2),
        ("v", 112, (7,), 16),
        ("dynamic", 64, (16,), 4),  # no extent: words
        ("As", 100, (25,), 4),  # not what the declaration says: words
        ("unknown", 7, (7,), 1),
    ],
)
def test_shared_variables_have_the_shape_of_their_declaration(name, nbytes, shape, itemsize):
    assert shared_shape(run_of(None, SOURCE), Allocation(name, "shared", 0, nbytes, (nbytes,), 1, "uint8")) == (shape, itemsize)


def test_elements_are_named():
    run = one_load(4 * np.arange(32), shape=(64, 128))
    assert element(run, "global", 4096 + 4 * (3 * 128 + 17)) == "A[3, 17]"
    assert element(run, "global", 17) == "byte 17"


@pytest.mark.parametrize(
    "declared, named",
    [
        ("extern __shared__ __align__(128) unsigned char tiles[];", "tiles[8192]"),
        ("extern __shared__ float tiles[];", "tiles[2048]"),
        ("using Half = __half; extern __shared__ Half tiles[];", "tiles[4096]"),
        ("__shared__ __half tiles[64][128];", "tiles[32, 0]"),
        ("__shared__ unsigned short tiles[64][128];", "tiles[32, 0]"),
    ],
)
def test_elements_of_shared_memory_are_named_as_the_source_would(declared, named):
    trace = SimpleNamespace(allocations=[Allocation("tiles", "shared", 0, 16384, (16384,), 1, "uint8")])
    run = run_of(None, declared)
    run.trace = trace
    assert element(run, "shared", 8192) == named


def test_lines_are_quoted_without_their_comments():
    run = run_of(None, SOURCE)
    assert source_line(run, 4) == "constexpr int BN = 2 * BM;" and source_line(run, 99) == "" and source_line(run, None) == ""
    assert code(run, 3) == "3  constexpr int BM = 32, BK = 8;" and code(run, 1) == "" and len(code(run, 6, columns=20)) == 20


def test_plurals():
    assert [plural(1, "lane"), plural(2000, "lane"), plural(0, "address")] == ["1 lane", "2,000 lanes", "0 addresses"]


def test_steps_are_counted_as_the_controls_count_them():
    assert nth(3, 8) == "3 (of 0 to 7)" and nth(0, 1) == "0, the only one"


def test_the_size_of_an_element_is_found_behind_other_names_of_its_type():
    source = "using Half = __half;\ntypedef Half Element;\n#define T Element\n__shared__ __align__(32) T As[128][32 + 8];"
    assert shared_shape(run_of(None, source), Allocation("As", "shared", 0, 10240, (10240,), 1, "uint8")) == ((128, 40), 2)
    turning = source.replace("using Half = __half", "using Half = Element")
    assert shared_shape(run_of(None, turning), Allocation("As", "shared", 0, 10240, (10240,), 1, "uint8")) == ((2560,), 4)
