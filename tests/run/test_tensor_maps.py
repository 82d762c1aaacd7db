"""What helpers.tensor_map accepts, and the sentence for each rule that is broken."""

from __future__ import annotations

import re
import textwrap

import ml_dtypes
import numpy as np
import pytest

import helpers
from helpers.errors import LaunchError
from helpers.sim.layouts.tensor_map import KINDS, Tensor


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


REFUSED = {
    "array, not list": lambda: helpers.tensor_map([1.0], 4),
    "1 to 5 axes, and the array has 6": lambda: helpers.tensor_map(zeros(1, 1, 1, 1, 1, 8), (1, 1, 1, 1, 1, 8)),
    "1 to 5 axes, and the array has 0": lambda: helpers.tensor_map(zeros(), ()),
    "no tensors of complex64": lambda: helpers.tensor_map(zeros(8, dtype=np.complex64), 8),
    "is no element type": lambda: helpers.tensor_map(zeros(8), 8, dtype="float8"),
    r"dtype='float64' has 8 bytes": lambda: helpers.tensor_map(zeros(8), 8, dtype="float64"),
    "box=8 has 1 number, and the array has 2 axes": lambda: helpers.tensor_map(zeros(8, 8), 8),
    r"whole numbers": lambda: helpers.tensor_map(zeros(8, 8), (8, 8.0)),
    r"box\[0\] = 257: .* 1 to 256": lambda: helpers.tensor_map(zeros(8, 8), (257, 8)),
    r"box\[1\] = 0": lambda: helpers.tensor_map(zeros(8, 8), (8, 0)),
    r"3 elements = 12 bytes, .* multiple of 4 elements": lambda: helpers.tensor_map(zeros(8, 8), (8, 3)),
    r"4 elements = 8 bytes, .* multiple of 8 elements": lambda: helpers.tensor_map(zeros(8, 8, dtype=np.float16), (8, 4)),
    r"64 elements = 256 bytes, .* 128B .* at most 32 elements": lambda: helpers.tensor_map(zeros(8, 64), (8, 64), "128B"),
    r"at most 16 elements": lambda: helpers.tensor_map(zeros(8, 64), (8, 32), "64B"),
    "swizzle='256B' does not exist": lambda: helpers.tensor_map(zeros(8, 8), (8, 8), "256B"),
    r"element_strides\[0\] = 9": lambda: helpers.tensor_map(zeros(8, 8), (8, 8), element_strides=(9, 1)),
    r"takes every element": lambda: helpers.tensor_map(zeros(8, 8), (8, 8), element_strides=(1, 2)),
    "out_of_bounds='one' does not exist": lambda: helpers.tensor_map(zeros(8, 8), (8, 8), out_of_bounds="one"),
    "can be NaN, and these are int32": lambda: helpers.tensor_map(zeros(8, 8, dtype=np.int32), (8, 8), out_of_bounds="nan"),
    "l2_promotion=32 does not exist": lambda: helpers.tensor_map(zeros(8, 8), (8, 8), l2_promotion=32),
    "at least one element": lambda: helpers.tensor_map(zeros(0, 8), (8, 8)),
    "stride of axis 0 is 28 bytes.*multiple of 4 elements": lambda: helpers.tensor_map(zeros(8, 7), (8, 4)),
    "stride of axis 0 is -32 bytes": lambda: helpers.tensor_map(zeros(8, 8)[::-1], (8, 8)),
    "stride of axis 0 is 0 bytes": lambda: helpers.tensor_map(np.broadcast_to(zeros(8), (8, 8)), (8, 8)),
    r"holds float32 in the other byte order \(>f4\). Pass array.astype\('float32'\)": lambda: helpers.tensor_map(
        zeros(8, 8, dtype=">f4"), (8, 8)
    ),
    "last axis must touch: its stride is 32": lambda: helpers.tensor_map(zeros(8, 8).T, (8, 8)),
    "begins 4 bytes into its array": lambda: helpers.tensor_map(zeros(8, 8)[:, 1:], (8, 4)),
    "262144 bytes, more than": lambda: helpers.tensor_map(zeros(256, 256), (256, 256)),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_refusals_name_the_rule(sentence):
    with pytest.raises(LaunchError, match=sentence):
        REFUSED[sentence]()


def test_axes_are_reversed_and_strides_are_bytes():
    big = zeros(6, 40, 24, dtype=ml_dtypes.bfloat16)
    tensor = helpers.tensor_map(big[1:, 8:20, 8:], (2, 4, 8), "32B", element_strides=(1, 2, 1)).tensor
    assert tensor == Tensor(0, "bfloat16", (16, 12, 5), (48, 1920), (8, 4, 2), (1, 2, 1), "32B", False)
    assert tensor.counts == (8, 2, 2) and tensor.nbytes == 64


def test_a_view_shares_its_arrays_memory():
    big = np.arange(80, dtype=np.int32).reshape(5, 16)
    map_ = helpers.tensor_map(big[1:4, 4:10], (2, 4))
    assert map_.memory.nbytes == 2 * 64 + 6 * 4
    map_.memory[0] = 99
    assert big[1, 4] == 99
    assert helpers.tensor_map(big, (2, 4)).memory is big


def test_axes_of_one_element_need_no_stride():
    assert helpers.tensor_map(zeros(1, 7), (1, 4)).tensor.strides == (32,)
    assert helpers.tensor_map(zeros(3, 1, 8), (1, 1, 4)).tensor.strides == (32, 32)


@pytest.mark.parametrize(
    "dtype, kind", [(np.int8, "uint8"), (np.int16, "uint16"), (ml_dtypes.float8_e4m3fn, "uint8"), (np.float16, "float16")]
)
def test_types_that_the_hardware_copies_as_others(dtype, kind):
    assert helpers.tensor_map(zeros(16, dtype=dtype), 16).tensor.kind == kind


def test_the_machines_form_is_128_bytes_and_reads_back():
    for rank in range(1, 6):
        for kind, size in KINDS.items():
            tensor = Tensor(
                0x7F0000001000, kind, (2**32, 9, 8, 7, 6)[:rank], (2**39, 32, 48, 64)[: rank - 1],
                (16 // size, 256, 1, 2, 3)[:rank], (1, 8, 2, 3, 4)[:rank], "64B", rank % 2 == 0,
            )  # fmt: skip
            assert len(tensor.pack()) == 128 and Tensor.unpack(tensor.pack()) == tensor
    assert Tensor.unpack(bytes(128)) is None


def example() -> str:
    """The kernel in the docstring."""
    text = helpers.tensor_map.__doc__
    return textwrap.dedent(text[text.index("        #include") : text.index("        matrix =")])


def test_the_docstrings_kernel_does_what_it_says():
    matrix = np.random.default_rng(1).standard_normal((64, 96)).astype(np.float32)
    expected = matrix + 1
    run = helpers.compile(example()).launch((3, 2), 32, [helpers.tensor_map(matrix, (32, 32))], on="cpu")
    assert np.array_equal(matrix, expected) and run.findings == []


def test_edges_and_padded_rows():
    """A matrix that no tile fits, within a larger one: what is outside stays as it was."""
    big = zeros(60, 100)
    part = big[5:50, 12:88]
    run = helpers.compile(example()).launch((3, 2), 32, [helpers.tensor_map(part, (32, 32))], on="cpu")
    assert (part == 1).all() and big.sum() == part.size and run.findings == []


def test_rows_that_end_within_16_bytes_are_stored_up_to_the_next():
    """As on the hardware: the three columns beyond the part get what shared memory holds. (Behind the last row the argument has ended.)"""
    big = zeros(60, 100)
    part = big[5:50, 12:89]
    run = helpers.compile(example()).launch((3, 2), 32, [helpers.tensor_map(part, (32, 32))], on="cpu")
    assert (part == 1).all() and (big[5:49, 89:92] == 1).all() and big.sum() == part.size + 44 * 3
    (finding,) = run.findings
    assert finding.kind == "out-of-bounds" and "12 bytes beyond the end of each row" in finding.message


def test_wrong_arguments_are_told_before_the_launch():
    kernel = helpers.compile(example())
    matrix = zeros(64, 96)
    with pytest.raises(LaunchError, match=re.escape("pass helpers.tensor_map(map, box)")):
        kernel.launch((3, 2), 32, [matrix], on="cpu")
    plain = helpers.compile("__global__ void f(float* x) { x[0] = 1; }")
    with pytest.raises(LaunchError, match="is a pointer"):
        plain.launch(1, 1, [helpers.tensor_map(matrix, (32, 32))], on="cpu")
    scalar = helpers.compile("__global__ void f(float* x, int n) { x[0] = n; }")
    with pytest.raises(LaunchError, match="declare the parameter `const __grid_constant__ CUtensorMap n`"):
        scalar.launch(1, 1, [matrix, helpers.tensor_map(matrix, (32, 32))], on="cpu")


def test_a_map_without_grid_constant_is_in_the_wrong_memory():
    """The compiler then copies the parameter to local memory, where the hardware cannot read it."""
    source = example().replace("const __grid_constant__ CUtensorMap map", "CUtensorMap map")
    with pytest.raises(helpers.RunError, match="__grid_constant__") as caught:
        helpers.compile(source).launch((3, 2), 32, [helpers.tensor_map(zeros(64, 96), (32, 32))], on="cpu")
    assert caught.value.line is not None


def test_bytes_that_are_no_tensor_map():
    with pytest.raises(helpers.RunError, match="no tensor map"):
        helpers.compile(example()).launch((3, 2), 32, [bytes(range(128))], on="cpu")


@pytest.mark.parametrize("value", [zeros(64, 96), None])
def test_what_is_passed_for_a_map_is_made_one(value):
    with pytest.raises(LaunchError, match=r"pass helpers.tensor_map\(map, box\)"):
        helpers.compile(example()).launch((3, 2), 32, [value], on="cpu")


def test_a_map_of_another_rank():
    with pytest.raises(helpers.RunError, match="gives 2 coordinates, and the tensor map has 1"):
        helpers.compile(example()).launch((3, 2), 32, [helpers.tensor_map(zeros(64), 32)], on="cpu")


def test_a_map_may_lie_in_device_memory():
    """Many kernels take `const CUtensorMap*` and leave it to the host to put the map there; the launch does that."""
    source = example().replace("const __grid_constant__ CUtensorMap map", "const CUtensorMap* map").replace("&map", "map")
    matrix = np.random.default_rng(1).standard_normal((64, 96)).astype(np.float32)
    expected = matrix + 1
    run = helpers.compile(source).launch((3, 2), 32, [helpers.tensor_map(matrix, (32, 32))], on="cpu")
    assert np.array_equal(matrix, expected) and run.findings == []
