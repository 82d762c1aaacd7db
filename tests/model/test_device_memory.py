"""Bytes, atomic operations and parts of sectors of launches whose figures are worked out by hand."""

import numpy as np
import pytest

from helpers.model.cycles.chip import figures
from helpers.model.device_memory import device_memory
from helpers.run.kernel import compile as compile_kernel
from helpers.run.tensor_maps import tensor_map

L2 = figures()["l2"]
N = 1 << 14


def launched(source: str, *arrays: np.ndarray, threads: int = N):
    return compile_kernel(source).launch(threads // 256, 256, arrays, on="cpu", findings=False)


def numbers(count: int) -> np.ndarray:
    return np.zeros(count, np.float32)


def test_a_copy_reads_and_writes_each_number_once_and_all_of_it_is_new():
    found = device_memory(launched("__global__ void k(const float* x, float* y) { int i = blockIdx.x * 256 + threadIdx.x; y[i] = x[i]; }",
                                   numbers(N), numbers(N)))  # fmt: skip
    assert (found.read, found.written, found.new) == (4 * N, 4 * N, 1)
    assert found.atomics == found.parts == 0


def test_what_is_only_written_is_not_read():
    """Each thread reads 32 of the numbers that 8 lines hold, so that more sectors are fetched than all arrays have."""
    source = """__global__ void k(const float* x, float* y) {
        float sum = 0;
        for (int i = 0; i < 32; i++) sum += x[(threadIdx.x * 8 + i * 256) % 8192];
        y[blockIdx.x * 256 + threadIdx.x] = sum;
    }"""
    found = device_memory(launched(source, numbers(8192), numbers(N)))
    assert (found.read, found.written) == (4 * 8192, 4 * N) and found.new < 0.1


@pytest.mark.parametrize(("type_", "each"), [("float", L2["float"]), ("int", L2["atomic"])])
def test_atomic_operations_on_one_word_wait_for_each_other(type_, each):
    source = f"__global__ void k({type_}* sum) {{ atomicAdd(sum, ({type_})threadIdx.x); }}"
    compiled = compile_kernel(source)
    run = compiled.launch(N // 256, 256, [np.zeros(1, np.float32 if type_ == "float" else np.int32)], on="cpu", findings=False)
    turns = N if type_ == "float" else N / 32  # the compiler adds integers of a warp before
    assert device_memory(run).atomics == pytest.approx(turns * each)


def test_atomic_operations_on_many_words_go_side_by_side():
    source = "__global__ void k(float* sums) { atomicAdd(&sums[blockIdx.x * 256 + threadIdx.x], 1.0f); }"
    found = device_memory(launched(source, numbers(N)))
    assert found.atomics == pytest.approx(N / 8 * L2["atomic"] / L2["places"])
    assert found.read == found.written == 4 * N


def test_places_are_as_many_as_the_array_has():
    source = "__global__ void k(float* sums) { atomicAdd(&sums[threadIdx.x], 1.0f); }"
    assert device_memory(launched(source, numbers(256))).atomics == pytest.approx(N / 8 * L2["atomic"] / 2)


def test_a_swap_takes_longer():
    source = "__global__ void k(int* to) { atomicCAS(&to[blockIdx.x * 256 + threadIdx.x], 0, 1); }"
    run = compile_kernel(source).launch(N // 256, 256, [np.zeros(N, np.int32)], on="cpu", findings=False)
    assert device_memory(run).atomics == pytest.approx(N / 8 * L2["swap"] / L2["places"])


def test_stores_apart_write_parts_of_sectors():
    apart = "__global__ void k(float* y) { y[(blockIdx.x * 256 + threadIdx.x) * 8] = 1; }"
    assert device_memory(launched(apart, numbers(8 * N))).parts == N
    beside = "__global__ void k(float* y) { y[blockIdx.x * 256 + threadIdx.x] = 1; }"
    assert device_memory(launched(beside, numbers(N))).parts == 0


def test_an_address_from_memory_may_be_in_any_array():
    source = "__global__ void k(float* const* rows, float* y) { y[blockIdx.x * 256 + threadIdx.x] = rows[0][threadIdx.x]; }"
    given = numbers(256)
    run = compile_kernel(source).launch(1, 256, [[given], numbers(256)], on="cpu", findings=False)
    assert run.counters and device_memory(run).read > 0


BULK = """#include <cuda.h>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
__global__ void k(PARAMETERS) {
    __shared__ alignas(128) float tile[1024];
    __shared__ uint64_t arrived;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&arrived, 1);
        ptx::fence_proxy_async(ptx::space_shared);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &arrived, sizeof(tile));
        LOAD
        while (!ptx::mbarrier_try_wait_parity(&arrived, 0)) {}
        STORE
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
}"""
MAPS = "const __grid_constant__ CUtensorMap unused, const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap y"
CORNER = "const int corner[2] = {0, 32 * (int)blockIdx.x};"
FROM_MAP = CORNER + " ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &x, corner, &arrived);"
TO_MAP = "ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &y, corner, tile);"
PLACE = "1024 * (blockIdx.x % 8)"
FROM_ARRAY = f"ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, x + {PLACE}, sizeof(tile), &arrived);"
TO_ARRAY = f"ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, y + {PLACE}, tile, sizeof(tile));"
ADDED = TO_ARRAY.replace("cp_async_bulk(", "cp_reduce_async_bulk(").replace("space_shared, y", "space_shared, ptx::op_add, y")


@pytest.mark.parametrize(
    ("parameters", "load", "store", "read", "written"),
    [(MAPS, FROM_MAP, TO_MAP, 64, 64), ("const float* x, float* y", FROM_ARRAY, TO_ARRAY, 8, 8),
     ("const float* x, float* y", FROM_ARRAY, ADDED, 16, 8)],
)  # fmt: skip
def test_copies_in_bulk_read_and_write_device_memory(parameters, load, store, read, written):
    """64 blocks with a tile each: of arrays that have all of them, or eight."""
    source = BULK.replace("PARAMETERS", parameters).replace("LOAD", load).replace("STORE", store)
    count = 64 if parameters is MAPS else 8
    arrays = [np.zeros((32 * count, 32), np.float32) for _ in range(2)]
    arguments = (
        [tensor_map(np.zeros((99, 32), np.float32), (32, 32)), *(tensor_map(a, (32, 32)) for a in arrays)] if parameters is MAPS else arrays
    )
    run = compile_kernel(source, arch="sm_90").launch(64, 32, arguments, on="cpu", findings=False)
    found = device_memory(run)
    assert (found.read, found.written) == (4096 * read, 4096 * written)
    assert found.new == min(1, count / 64)
