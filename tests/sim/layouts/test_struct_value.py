"""Structs by value with pointers among their members, and tables of pointers."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import helpers
from helpers.errors import LaunchError, RunError
from helpers.sim.layouts.struct_value import laid_out

PRODUCT = """struct Matrix { int width, height; float* elements; };
__global__ void product(const Matrix a, const Matrix b, Matrix c) {
    int x = threadIdx.x, y = threadIdx.y;
    if (x >= c.width || y >= c.height) return;
    float sum = 0;
    for (int k = 0; k < a.width; k++) sum += a.elements[y * a.width + k] * b.elements[k * b.width + x];
    c.elements[y * c.width + x] = sum;
}"""
TABLE = """__global__ void add(const float* const* rows, int n, float* out) {
    float sum = 0;
    for (int r = 0; r < n; r++) sum += rows[r][threadIdx.x];
    out[threadIdx.x] = sum;
}"""
Matrix = namedtuple("Matrix", "width height elements")


def whole_numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(-4, 5, shape).astype(np.float32)


def test_a_struct_is_a_tuple_of_its_members():
    a, b, c = whole_numbers(5, 7), whole_numbers(7, 6), np.zeros((5, 6), np.float32)
    run = helpers.compile(PRODUCT).launch(1, (8, 8), [(7, 5, a), Matrix(6, 7, b), [6, 5, c]], on="cpu")
    assert np.array_equal(c, a @ b) and not run.findings
    assert run.counters["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == 5 * 6 * 7


@pytest.mark.parametrize("given", [(), b"\0", 0])
def test_a_struct_without_members_is_an_empty_tuple(given):
    source = (
        "struct Twice { __device__ float operator()(float x) const { return 2 * x; } };\n"
        "template <class F> __global__ void map(float* a, F f) { a[threadIdx.x] = f(a[threadIdx.x]); }"
    )
    a = np.arange(32, dtype=np.float32)
    kernel = helpers.compile(source, "map<Twice>")
    run = kernel.launch(1, 32, [a, given], on="cpu")
    assert np.array_equal(a, 2 * np.arange(32)) and run.findings == [] and run.counters
    with pytest.raises(LaunchError, match=r"f of map is of one byte: pass a number, or \(\) for a struct without members, not dict"):
        kernel.launch(1, 32, [a, {}], on="cpu")


def test_one_array_in_two_structs_is_one_array():
    a, c = whole_numbers(8, 8), np.zeros((8, 8), np.float32)
    helpers.compile(PRODUCT).launch(1, (8, 8), [(8, 8, a), (8, 8, a), (8, 8, c)], on="cpu")
    assert np.array_equal(c, a @ a)


@pytest.mark.parametrize(("third", "name"), [(Matrix, "c.elements"), (lambda *members: members, "c[2]")])
def test_findings_name_the_member(third, name):
    a, b, c = whole_numbers(5, 7), whole_numbers(7, 6), np.zeros((5, 5), np.float32)
    run = helpers.compile(PRODUCT).launch(1, (8, 8), [(7, 5, a), (6, 7, b), third(6, 5, c)], on="cpu")
    assert [(finding.kind, finding.array) for finding in run.findings] == [("out-of-bounds", name)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((7, 5), "a struct of 16 bytes, and these members make 8: int and float are 4 bytes each, an array is 8"),
        ((7, 5, "x"), "a member of it is a number, an array, None or bytes, not str"),
        ((1 << 40, 5, None), r"1099511627776 does not fit into an int of 32 bits\. Write np\.int64\(1099511627776\)"),
        (7, r"a struct of 16 bytes: pass its members in order as a tuple"),
        (np.zeros(4, np.float32), r"a struct of 16 bytes: pass its members in order as a tuple, arrays among them"),
        ((7, 5, np.zeros((5, 14), np.float32)[:, ::2]), r"the array a\[2\] is not contiguous"),
        ((7, 5, np.array([None])), r"the array a\[2\] holds Python objects"),
    ],
)
def test_what_is_no_such_struct_is_a_sentence(given, message):
    other = (8, 8, np.zeros((8, 8), np.float32))
    with pytest.raises(LaunchError, match=message):
        helpers.compile(PRODUCT).launch(1, (8, 8), [given, other, other], on="cpu")


@pytest.mark.parametrize(
    ("members", "fields"),
    [
        ((1, 2.5, True, np.float64(3)), "int a; float b; bool c; double d;"),
        ((np.int8(1), np.int64(-2), np.uint16(3)), "signed char a; long long b; unsigned short c;"),
        ((1, (np.float64(2), np.int8(3)), 4), "int a; struct { double x; signed char y; } b; int c;"),
        ((np.array([1, 2, 3], np.uint8).tobytes(), -1), "unsigned char a[3]; int b;"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_members_lie_where_the_compiler_expects_them(members, fields):
    source = f"struct S {{ {fields} }};\n__global__ void copy(S s, S* out) {{ *out = s; }}"
    data, _, pointers = laid_out(members, lambda value: False)
    out = np.full(len(data), 0xEE, np.uint8)
    helpers.compile(source).launch(1, 1, [members, out], on="cpu", findings=False)
    used = np.frombuffer(data, np.uint8) != 0
    assert not pointers and np.array_equal(out[used], np.frombuffer(data, np.uint8)[used])


def test_a_table_of_pointers_is_a_list_of_arrays():
    rows, out = list(whole_numbers(3, 32)), np.zeros(32, np.float32)
    kernel = helpers.compile(TABLE)
    run = kernel.launch(1, 32, [rows, 3, out], on="cpu")
    assert np.array_equal(out, sum(rows)) and not run.findings
    with pytest.raises(RunError, match="null pointer"):
        kernel.launch(1, 32, [[rows[0], None], 2, out], on="cpu")
    with pytest.raises(LaunchError, match=r"rows of add points to pointers: pass a list of arrays"):
        kernel.launch(1, 32, [np.zeros((3, 32), np.float32), 3, out], on="cpu")
    with pytest.raises(LaunchError, match="pass a list of arrays, one for each"):
        kernel.launch(1, 32, [[1, 2], 2, out], on="cpu")
