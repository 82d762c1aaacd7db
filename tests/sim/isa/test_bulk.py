"""Bulk copies in the machine: what an H200 gave, byte by byte, and a matrix product that uses them.

Tests of: helpers.sim.checks.landings, helpers.sim.machine.copies
"""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import helpers
from helpers.sim.layouts.swizzle import swizzle
from helpers.sim.layouts.tensor_map import KINDS, SWIZZLES
from tests import DATA
from tests.sim import tensor_cases as cases
from tests.sim import tma_gemm

RECORD = json.loads((DATA / "tensor_map_h200.json").read_text())


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.name)
def test_the_machine_gives_what_the_hardware_gave(case):
    assert cases.digest(cases.run(case, "cpu")) == RECORD["results"][case.name]


def test_the_record_is_of_these_cases_and_of_all_kinds():
    """Made by tests/gpu/test_tensor_map.py on a GPU."""
    assert list(RECORD["results"]) == [case.name for case in cases.CASES] and RECORD["differences"] == {}
    loads = {(case.kind, case.swizzle) for case in cases.CASES if case.what == "load"}
    assert loads == {(kind, swizzle) for kind in KINDS for swizzle in SWIZZLES}
    assert {len(case.shape) for case in cases.CASES} == {1, 2, 3, 4, 5}
    assert {case.what for case in cases.CASES} == cases.SOURCES.keys()


COPIED = [case for case in cases.CASES if case.what in ("reduce", "multicast", "bytes in", "bytes within")]


@pytest.mark.parametrize("case", COPIED, ids=lambda case: case.name)
def test_a_copy_is_what_numpy_says(case):
    """Reductions of tensors, multicasts and plain copies, from the data as it was before."""
    copies = {"reduce": _reduced, "multicast": _multicast, "bytes in": _bytes, "bytes within": _bytes}
    assert np.array_equal(cases.run(case, "cpu"), copies[case.what](case))


def _box(case, array):
    """Slices of the array's part that the box covers, and of the box that lies in the array. Corners are not negative here."""
    corner = case.corner[::-1]
    stops = [min(first + extent, length) for first, extent, length in zip(corner, case.box, array.shape, strict=True)]
    return tuple(slice(a, b) for a, b in zip(corner, stops, strict=True)), tuple(
        slice(0, b - a) for a, b in zip(corner, stops, strict=True)
    )


def _reduced(case):
    array, data = cases.inputs(case)
    tile = data[swizzle(np.arange(9 * 64), "64B")].view(array.dtype).reshape(case.box)
    there, here = _box(case, array)
    old, new = array[there], tile[here]
    names = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    if case.kind.endswith("_ftz"):
        old, new = _flushed(old), _flushed(new)
    with np.errstate(over="ignore", invalid="ignore"):
        if case.operation == "inc":
            result = np.where(old >= new, 0, old + 1)
        elif case.operation == "dec":
            result = np.where((old == 0) | (old > new), new, old - 1)
        else:
            result = names[case.operation](old, new)
    array[there] = _flushed(result) if case.kind.endswith("_ftz") else result.astype(array.dtype)
    if array.dtype == np.float32:
        part = array[there]
        array[there] = np.where(np.isnan(part), np.uint32(0x7FFFFFFF).view(np.float32), part)
    return array.reshape(-1).view(np.uint8)


def _flushed(x):
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


@pytest.mark.parametrize("operation, kind", [
    ("add", "uint16"), ("add", "int64"), ("min", "float32"), ("max", "float32"), ("min", "float32_ftz"), ("and", "int64"),
])  # fmt: skip
def test_the_hardware_does_not_reduce_every_type(operation, kind):
    """Each of these was an illegal instruction on the H200."""
    with pytest.raises(helpers.RunError, match=f"no reduction .{operation} for tensors of {kind}"):
        cases.run(cases.Case("reduce", kind, (21, 64), (9, 16), operation=operation), "cpu")


def _multicast(case):
    array, data = cases.inputs(case)
    there, here = _box(case, array)
    tile = np.zeros(case.box, array.dtype)
    tile[here] = array[there]
    for rank in range(2):
        window = np.full(cases.WINDOW, 0xA5, np.uint8)
        if case.mask >> rank & 1:
            places = swizzle(case.offset + np.arange(tile.nbytes), "128B")
            window[places] = tile.reshape(-1).view(np.uint8)
        data[rank * cases.WINDOW :][: cases.WINDOW] = window
    return data


def _bytes(case):
    _, data = cases.inputs(case)
    blocks = 2 if case.what == "bytes within" else 1
    window = data[: cases.WINDOW].copy() if blocks == 2 else np.full(cases.WINDOW, 0xA5, np.uint8)
    window[case.offset :][: case.nbytes] = data[: case.nbytes]
    for block in range(blocks):
        data[(1 + block) * cases.WINDOW :][: cases.WINDOW] = window
    return data


OF_16_BYTES = """#include <cuda/barrier>
__global__ void k(const float* a, float* out, long long at) {
    __shared__ alignas(16) float tile[32];
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    if (threadIdx.x == 0) cuda::memcpy_async((float4*)tile, (const float4*)(a + at), cuda::aligned_size_t<16>(32), bar);
    bar.arrive_and_wait();
    out[threadIdx.x] = tile[threadIdx.x & 3];
}"""


@pytest.mark.parametrize(
    ("given", "at", "where"),
    [
        (12, 4, None),
        (11, 4, "that reach 4 bytes across the end of a"),
        (8, 4, "that reach 16 bytes across the end of a"),
        (4, 4, "just past the end of a"),
        (3, 4, "that lie 4 bytes past the end of a"),
        (12, -4, "that begin 16 bytes before a"),
        (12, 1 << 30, "at address 0x7f01[0-9a-f]{8}, far from every array"),
    ],
)
def test_a_copy_outside_is_worded_as_any_access(given, at, where):
    kernel = helpers.compile(OF_16_BYTES)
    arguments = [np.zeros(given, np.float32), np.zeros(32, np.float32), at]
    if where is None:
        assert not kernel.launch(1, 32, arguments, on="cpu").findings
        return
    with pytest.raises(helpers.RunError) as stopped:
        kernel.launch(1, 32, arguments, on="cpu")
    assert re.match(rf"line 7: A bulk copy of 32 bytes {where}\. The hardware stops here\.", stopped.value.message)


def test_a_copy_from_between_16_bytes_says_of_what():
    with pytest.raises(helpers.RunError, match=r"address 0x[0-9a-f]+ \(byte 4 of a\), which is not a multiple of 16") as caught:
        helpers.compile(OF_16_BYTES).launch(1, 32, [np.zeros(64, np.float32), np.zeros(32, np.float32), 1], on="cpu")
    assert [finding.kind for finding in caught.value.findings] == ["misaligned"]


def test_a_copy_through_a_null_pointer_is_told_as_that():
    with pytest.raises(helpers.RunError, match="A bulk copy of 32 bytes through a null pointer"):
        helpers.compile(OF_16_BYTES).launch(1, 32, [None, np.zeros(32, np.float32), 0], on="cpu")


@pytest.mark.parametrize("what, kind, corner", [
    ("load", "uint8", (-3, 0)), ("load", "float32", (1, 0)), ("load", "bfloat16", (4, 2)), ("load", "float64", (-1, 0)),
    ("store", "uint8", (3, 0)), ("store", "bfloat16", (4, 2)),
])  # fmt: skip
def test_a_box_begins_at_a_multiple_of_16_bytes(what, kind, corner):
    """The H200 stops with an illegal instruction at every other coordinate of the innermost dimension."""
    with pytest.raises(helpers.RunError, match="not a multiple of 16") as caught:
        cases.run(cases.Case(what, kind, (21, 64), (9, 16), corner), "cpu")
    assert [finding.kind for finding in caught.value.findings] == ["misaligned"]


@pytest.mark.parametrize("corner", [(-4, 0), (0, -1)])
def test_a_store_begins_at_no_negative_coordinate(corner):
    """The H200 stops there, too."""
    with pytest.raises(helpers.RunError, match="negative coordinates") as caught:
        cases.run(cases.Case("store", "float32", (21, 64), (9, 16), corner), "cpu")
    assert [finding.kind for finding in caught.value.findings] == ["out-of-bounds"]


def test_copies_within_shared_memory_need_a_cluster():
    """The H200 stops: an illegal instruction in a launch without clusters."""
    source = cases.SOURCES["bytes within"].replace("__cluster_dims__(2, 1, 1) ", "").replace("rank() ^ 1", "0")
    with pytest.raises(helpers.RunError, match="in a launch with clusters only"):
        helpers.compile(source).launch(1, 64, [bytes(128), *[0] * 6, 1024, 256, 2048, np.zeros(2048, np.int32)], 2048, on="cpu")


PARTLY_FILLED = (
    cases.HEAD
    + r"""
extern "C" __global__ void store(const __grid_constant__ CUtensorMap map, int c0, int c1, int rows, int columns, int pitch, int early) {
    float* tile = (float*)smem;
    for (int i = threadIdx.x; i < rows * pitch; i += blockDim.x)
        if (i % pitch < columns) tile[i] = i + 1;
    FENCE;
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];"
            :: "l"(&map), "r"(at(tile)), "r"(c0 + (int)blockIdx.x * 40), "r"(c1) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
    __syncthreads();
    if (early >= 0 && threadIdx.x == 0) tile[early] = 0;
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}"""
)


@pytest.mark.parametrize("box, corner, filled, early, blocks, kinds", [
    ((4, 72), (0, 0), (4, 64), -1, 1, set()),  # padded rows: eight columns are beyond the tensor
    ((4, 72), (0, 0), (4, 60), -1, 1, {"uninitialized"}),
    ((4, 72), (0, 0), (4, 64), 70, 1, set()),  # the padding is nobody's, also while the copy is under way
    ((4, 72), (0, 0), (4, 64), 60, 1, {"missing-wait"}),
    ((16, 72), (0, 0), (8, 64), -1, 1, set()),  # rows below the tensor
    ((4, 32), (4, 6), (2, 32), -1, 1, set()),
    ((4, 32), (4, 6), (1, 32), -1, 1, {"uninitialized"}),
    ((4, 32), (64, 0), (0, 0), -1, 1, set()),  # nothing is inside
    ((4, 40), (0, 0), (4, 40), -1, 2, set()),  # the second block's box is cut off, the first one's is not
    ((4, 40), (0, 0), (4, 32), -1, 2, {"uninitialized"}),
])  # fmt: skip
def test_what_is_stored_beyond_a_tensor_needs_not_be_there(box, corner, filled, early, blocks, kinds):
    """Nobody sees the places of a box that belong to no element of the tensor [8, 64]."""
    array = np.zeros((8, 64), np.float32)
    args = [helpers.tensor_map(array, box), *corner, *filled, box[1], early]
    run = helpers.compile(PARTLY_FILLED).launch(blocks, 32, args, box[0] * box[1] * 4, on="cpu")
    assert {finding.kind for finding in run.findings} == kinds
    first, row = corner
    tile = np.zeros(box, np.float32)
    tile[: filled[0], : filled[1]] = np.arange(1, box[0] * box[1] + 1).reshape(box)[: filled[0], : filled[1]]
    expected = np.zeros((8 + box[0], 64 + 40 + box[1]), np.float32)
    for block in range(blocks):
        expected[row : row + box[0], first + 40 * block :][:, : box[1]] = tile
    if not kinds:
        assert np.array_equal(array, expected[:8, :64])


@pytest.mark.parametrize("kind", tma_gemm.TYPES)
@pytest.mark.parametrize("size", [(64, 64, 64), (100, 72, 200), (7, 16, 8), (1, 8, 264)])
def test_a_matrix_product_is_right_and_without_findings(kind, size):
    run, c, exact = tma_gemm.launch(kind, *size, "cpu")
    assert run.findings == []
    assert np.abs(c - exact).max() < 1e-4
    steps, blocks = -(-size[2] * np.dtype(tma_gemm.TYPES[kind]).itemsize // 128), -(-size[0] // 64) * -(-size[1] // 64)
    assert run.counters["sm__sass_inst_executed_op_tma_ld.sum"] == 2 * steps * blocks
    assert run.counters["sm__sass_inst_executed_op_tma_st.sum"] == blocks


@pytest.mark.parametrize("size", [(128, 64, 64), (200, 100, 328), (1, 1, 8)])
def test_warpgroups_multiply_what_bulk_copies_bring(size):
    run, c, exact = tma_gemm.launch_warpgroups(*size, "cpu")
    assert run.findings == [] and np.abs(c - exact).max() < 1e-4


@pytest.mark.parametrize("barrier, kinds", [("full", {"missing-wait"}), ("empty", {"missing-wait", "endless"})])
def test_a_wait_that_warpgroups_forget_is_found(barrier, kinds):
    source = tma_gemm.WARPGROUPS.replace(
        f"(!ptx::mbarrier_try_wait_parity(&{barrier}", f"(false && !ptx::mbarrier_try_wait_parity(&{barrier}"
    )
    assert source != tma_gemm.WARPGROUPS
    try:
        found = tma_gemm.launch_warpgroups(128, 64, 328, "cpu", source)[0].findings
    except helpers.RunError as error:
        found = error.findings
    assert {finding.kind for finding in found} == kinds


WAIT = "while (!ptx::mbarrier_try_wait_parity(&"
NO_WAIT = WAIT.replace("!", "false && !")
BROKEN = {
    "a stage is filled again before it is released": (f"{WAIT}empty", f"{NO_WAIT}empty", {"missing-wait", "endless"}),
    "a stage is read before it has come": (f"{WAIT}full", f"{NO_WAIT}full", {"missing-wait"}),
    "half of the bytes are announced": ("&full[s], 2 * TILE)", "&full[s], TILE)", {"endless"}),
    "the result is copied unfenced": ("ptx::fence_proxy_async(ptx::space_shared);  // @fence", "", {"missing-fence"}),
    "the result is copied too early": ('asm volatile("bar.sync 1, 128;" ::: "memory");', "", {"race"}),
}  # fmt: skip


@pytest.mark.parametrize("mistake", BROKEN)
def test_mistakes_in_a_pipeline_are_found(mistake):
    before, after, kinds = BROKEN[mistake]
    assert before in tma_gemm.SOURCE
    source = tma_gemm.SOURCE.replace(before, after)
    try:
        found = tma_gemm.launch("float", 64, 64, 160, "cpu", source)[0].findings
    except helpers.RunError as error:
        found = error.findings
    assert found and {finding.kind for finding in found} <= kinds


@pytest.mark.parametrize("text, sentence", [
    ("cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {0, 0, 0}], [%0], {%2};",
     "im2col; the machine copies tensors in tile mode only"),
])  # fmt: skip
def test_other_modes_are_refused_by_name(text, sentence):
    source = cases.HEAD + (
        'extern "C" __global__ void f(const __grid_constant__ CUtensorMap map) { unsigned short o = 0; '
        f'asm volatile("{text}" :: "r"(at(smem)), "l"(&map), "h"(o) : "memory"); }}'
    )
    with pytest.raises(helpers.RunError, match=sentence):
        helpers.compile(source).launch(1, 32, [bytes(128)], 1024, on="cpu")


PARTS = r"""
extern "C" __global__ void parts(const float* in, float* out, int first) {
    __shared__ __align__(128) float s[32 * 4];
    int t = threadIdx.x;
    for (int k = 0; k < 4; k++) s[4 * t + k] = in[4 * t + k];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    unsigned from = (unsigned)__cvta_generic_to_shared(s + 4 * t);
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 16;" :: "l"(out + 4 * t), "r"(from) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    if (t < first) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    __syncwarp();
    if (t < first) s[4 * t] = -1;
    if (t >= first) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    if (t >= first) s[4 * t] = -2;
}
"""


@pytest.mark.parametrize("first", [0, 20, 32])
def test_some_threads_wait_for_their_stores_before_others(first):
    kernel = helpers.compile(PARTS, arch="sm_90a")
    given, out = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    done = kernel.launch(1, 32, (given, out, first), on="cpu")
    assert np.array_equal(out, given) and not done.findings
    early = helpers.compile(PARTS.replace("if (t >= first) asm", "if (t > first) asm"), arch="sm_90a")
    found = early.launch(1, 32, (given, np.zeros_like(out), first), on="cpu").findings
    assert [finding.kind for finding in found] == ["missing-wait"] * (2 if first < 32 else 0)
