"""Which boxes blocks that follow each other copy first, and how many of them are different."""

import numpy as np
import pytest

from helpers import tensor_map
from helpers.run import kernel
from helpers.sim.counting.machine_code import BulkCopy, bulk_copies
from tests.sim.counting.machine_code.test_signals import BEGIN

PRODUCT = (
    BEGIN
    + """
extern "C" __global__ void product(int n, const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const char* c) {
    __shared__ alignas(1024) char tile[3][64 * 64];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        for (int k = 0; k < n; k++) {
            expect(&full, 64 * 32 + 32 * 32 + 128);
            box(tile[0], a, 32 * k, 64 * blockIdx.y, &full);
            box(tile[1], b, 32 * blockIdx.x, 32 * k, &full);
            bulk(tile[2], c + 128 * ROW, 128, &full);
            while (!look(&full, k & 1)) {}
        }
    }
}"""
)


def copies(source, grid=(4, 4), blocks=range(16), n=2, cluster=(1, 1, 1)):
    made = kernel.compile(source, arch="sm_90a").native("sm_90a").compiled
    a, b = (tensor_map(np.zeros((256, 256), np.uint8), box) for box in ((64, 32), (32, 32)))
    return bulk_copies(made, (*grid, 1), (32, 1, 1), [np.int32(n), a, b, np.zeros(4096, np.uint8)], list(blocks), cluster)


@pytest.mark.parametrize(("grid", "fresh"), [((4, 4), (1 / 4, 1 / 4)), ((16, 1), (1 / 16, 1)), ((1, 16), (1, 1 / 16))])
def test_blocks_of_a_row_share_rows_and_those_of_a_column_columns(grid, fresh):
    first, second, third = copies(PRODUCT.replace("ROW", "3"), grid).values()
    assert first == BulkCopy(64 * 32, fresh[0], 0) and second == BulkCopy(32 * 32, fresh[1], 1)
    assert third == BulkCopy(0, 1 / 16), "all of them want the same bytes, of which no map says how many they are"


def test_where_a_cluster_stands_is_told_by_what_its_blocks_copy_for_themselves():
    for source, cluster, apart in ((PRODUCT, (2, 1, 1), (False, True)), (PRODUCT, (1, 1, 1), (False, False))):
        first, second, third = copies(source.replace("ROW", "3"), cluster=cluster).values()
        assert ((first.apart, second.apart), third.apart) == (apart, False), "blocks beside each other have columns of their own"


def test_a_copy_of_bytes_is_known_by_where_they_lie():
    *_, third = copies(PRODUCT.replace("ROW", "((blockIdx.x + 4 * blockIdx.y) / 2)")).values()
    assert third.fresh == 1 / 2


def test_only_what_blocks_do_first_counts_and_only_of_these_blocks():
    assert copies(PRODUCT.replace("ROW", "3"), n=1) == copies(PRODUCT.replace("ROW", "3"), n=4)
    assert [copy.fresh for copy in copies(PRODUCT.replace("ROW", "3"), blocks=range(2)).values()] == [1 / 2, 1, 1 / 2]


def test_a_copy_that_data_decide_is_not_told():
    found = copies(PRODUCT.replace("128 * ROW", "c[0] * 128"))
    assert len(found) == 2 and {copy.nbytes for copy in found.values()} == {64 * 32, 32 * 32}
    assert copies(PRODUCT.replace("k < n", "k < c[0]").replace("ROW", "3")) == {}, "nor is anything where a branch depends on them"


def test_a_kernel_without_such_copies_has_none():
    made = kernel.compile('extern "C" __global__ void set(float* x) { x[threadIdx.x] = 1; }').compiled
    assert bulk_copies(made, (1, 1, 1), (32, 1, 1), [np.zeros(32, np.float32)], [0], (1, 1, 1)) == {}
