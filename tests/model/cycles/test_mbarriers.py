"""Kernels that wait for mbarriers, clusters and copies in bulk, against clocks read inside of them on an H200: log, runs 42 and 43."""

from dataclasses import replace

import numpy as np
import pytest

from helpers import tensor_map
from helpers.model import hardware
from helpers.model.cycles.estimate import estimate
from helpers.model.cycles.multiprocessor import WarpState
from helpers.run import kernel
from tests.sim.counting.machine_code.test_signals import BEGIN, TILES

H200 = hardware.gpu("H200 SXM")
# A launch of which nothing comes from DRAM: all that is looked at is a trip of the loop.
NEAR = {"latency.device": 0.0, "latency.streamed": 0.0}
LOOP = (
    BEGIN
    + """
__device__ void stay(u64* b, unsigned parity) {
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra again; }"
                 :: "r"(at(b)), "r"(parity) : "memory");
}
__device__ unsigned there(u64* b, unsigned rank) {
    unsigned found;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(found) : "r"(at(b)), "r"(rank));
    return found;
}
__device__ unsigned rank() { unsigned r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ void arrive_at(unsigned b) { asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" :: "r"(b) : "memory"); }
__device__ void meet() { asm volatile("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ void box_for_both(void* to, const CUtensorMap& map, int x, int y, u64* b) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
                 :: "r"(at(to)), "l"(&map), "r"(x), "r"(y), "r"(at(b)), "h"((short)3) : "memory");
}
__device__ void send(const CUtensorMap& map, int x, int y, const void* from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3]; cp.async.bulk.commit_group;"
                 :: "l"(&map), "r"(x), "r"(y), "r"(at(from)) : "memory");
}
template <int N> __device__ void sent() { asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(N) : "memory"); }
extern "C" __global__ void CLUSTER loop(const __grid_constant__ CUtensorMap map, const char* x, unsigned* y, int n) {
    __shared__ alignas(1024) char tile[4 * BYTES];
    __shared__ u64 bar[8];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 8; i++) init(&bar[i], COUNT);
        asm volatile("fence.proxy.async;" ::: "memory");
    }
    __syncthreads();
    if (WHO)
        #pragma unroll UNROLL
        for (int i = 0; i < n; i++) { BODY }
    y[threadIdx.x] = tile[threadIdx.x] + warp + lane;
}"""
)


def per_trip(body, threads=32, count=1, nbytes=1024, box=(8, 64), who="lane == 0", unroll=4, cluster=1):
    source = (
        LOOP.replace("WHO", who)
        .replace("UNROLL", str(unroll))
        .replace("BODY", body)
        .replace("COUNT", str(count))
        .replace("BYTES", str(nbytes))
        .replace("CLUSTER", f"__cluster_dims__({cluster})" if cluster > 1 else "")
    )
    made = kernel.compile(source, arch="sm_90a")
    cycles = []
    for n in (32, 64):
        args = [tensor_map(np.zeros((4096, 64), np.uint16), box, "128B"), np.zeros(1 << 16, np.uint8), np.zeros(512, np.uint32), n]
        found, why = estimate(made.launch(cluster, threads, args, on="cpu", findings=False), H200, NEAR)
        assert found is not None, why
        cycles.append(found.cycles)
    return (cycles[1] - cycles[0]) / 32


PING = "if (warp == 0) { arrive(&bar[0]); stay(&bar[1], i & 1); } else { stay(&bar[0], i & 1); arrive(&bar[1]); }"
LATENCY = "expect(&bar[0], BYTES); COPY; stay(&bar[0], i & 1);"


def test_a_look_at_a_phase_that_is_over_takes_what_was_measured():
    """43 cycles each by 1 to 8 warps, 64 where 16 look: the unit takes four for each."""
    body = "for (int k = 0; k < 4; k++) stay(&bar[k], 1);"
    assert per_trip(body, who="true") / 4 == pytest.approx(42.9, rel=0.1)
    assert per_trip(body, 512, who="true") / 4 == pytest.approx(64.2, rel=0.1)


def test_a_warp_hears_from_another_after_what_was_measured():
    assert per_trip(PING, 64) / 2 == pytest.approx(63.3, rel=0.1)


@pytest.mark.parametrize(("threads", "measured"), [(32, 51.3), (128, 59.9), (256, 87.3), (512, 134.1)])
def test_all_threads_arrive_and_stay(threads, measured):
    assert per_trip("arrive(&bar[0]); stay(&bar[0], i & 1);", threads, threads, who="true") == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(("rows", "measured"), [(8, 329.2), (32, 358.8), (64, 394.2), (256, 618.0)])
def test_a_box_comes_after_what_was_measured(rows, measured):
    """Of rows of 128 bytes, asked for and waited for by one thread of one block."""
    body = LATENCY.replace("COPY", f"box(tile, map, 0, i % 8 * {rows}, &bar[0])")
    assert per_trip(body, nbytes=128 * rows, box=(rows, 64)) == pytest.approx(measured, rel=0.07)


@pytest.mark.parametrize(("nbytes", "measured"), [(1024, 332.0), (4096, 363.7), (8192, 401.2)])
def test_a_copy_in_bulk_comes_after_what_was_measured(nbytes, measured):
    body = LATENCY.replace("COPY", "bulk(tile, x + i % 8 * BYTES, BYTES, &bar[0])")
    assert per_trip(body, nbytes=nbytes) == pytest.approx(measured, rel=0.07)


def test_copies_under_way_are_not_waited_for_one_after_the_other():
    """With four stages a trip of one thread takes 162 cycles, whatever a box of 8 KB takes by itself (394)."""
    body = (
        "const int s = i % 4; if (i >= 4) stay(&bar[s], (i / 4 - 1) & 1); expect(&bar[s], BYTES);"
        " box(tile + s * BYTES, map, 0, i % 8 * 64, &bar[s]);"
    )
    assert per_trip(body, nbytes=8192, box=(64, 64), unroll=1) == pytest.approx(161.8, rel=0.15)


def test_a_fence_of_the_whole_gpu_waits_for_copies_in_bulk():
    """Four boxes of 8 KB: 178 cycles until they are asked for, 188 with a fence of the block behind them, 1384 with one of all proxies."""
    took = {}
    for fence in ("", "fence.proxy.async.shared::cta;", "fence.proxy.async;"):
        copy = f'box(tile, map, 0, i % 8 * 64, &bar[0]); asm volatile("{fence}" ::: "memory")'
        body = LATENCY.replace("COPY", copy).replace("stay", "if (i % 4 == 3) for (int k = 0; k < 4; k++) stay", 1).replace("i & 1", "1")
        took[fence] = per_trip(body, nbytes=8192, box=(64, 64))
    alone, of_block, of_all = took.values()
    assert of_block - alone < 40 and of_all - alone > 235, "each copy is waited for"


def test_who_waits_for_a_copy_waits_for_device_memory():
    """Nsight Compute has long scoreboard there, at the branch behind the look."""
    made = kernel.compile(TILES.replace("k < 32", "k < 2"), arch="sm_90a")
    args = [tensor_map(np.zeros((2048, 32), np.float32), (32, 32)), np.zeros(128, np.float32), 40]
    found, why = estimate(made.launch(1, 128, args, on="cpu", findings=False), H200)
    assert found is not None, why
    assert found.states[WarpState.LONG_SCOREBOARD] > 0.6


def test_a_trip_is_that_of_who_consumes():
    """Who produces is stages ahead, and its loop ends earlier: as many instructions of both are not as many trips."""
    trips = []
    for work in (32, 256):
        source = TILES.replace("k < 32", f"k < {work}").replace("32 * k + ", "32 * (k % 32) + ")
        made = kernel.compile(source, arch="sm_90a")
        args = [tensor_map(np.zeros((2048, 32), np.float32), (32, 32)), np.zeros(128, np.float32), 40]
        found, why = estimate(made.launch(1, 128, args, on="cpu", findings=False), H200, NEAR)
        assert found is not None, why
        trips.append(found)
    assert trips[1].cycles == pytest.approx(trips[1].trips * trips[1].per_trip, rel=0.1), "nearly all of it is the loop"


def test_who_drops_out_is_not_waited_for_again():
    """One of three warps arrives once and for all, where the others arrive each time."""
    source = (
        BEGIN
        + """
    extern "C" __global__ void drops(float* y, int n) {
        __shared__ u64 met;
        if (threadIdx.x == 0) init(&met, 65);
        __syncthreads();
        if (threadIdx.x >= 64) {
            if (threadIdx.x == 64) asm volatile("mbarrier.arrive_drop.shared.b64 _, [%0];" :: "r"(at(&met)) : "memory");
            return;
        }
        #pragma unroll 1
        for (int i = 0; i < n; i++) { arrive(&met); wait(&met, i & 1); }
        y[threadIdx.x] = n;
    }"""
    )
    run = kernel.compile(source, arch="sm_90a").launch(1, 96, [np.zeros(64, np.float32), 16], on="cpu", findings=False)
    found, why = estimate(run, H200, NEAR)
    assert found is not None, why
    assert found.trips == pytest.approx(16, abs=1)


@pytest.mark.parametrize(("warps", "measured"), [(1, 56.4), (4, 62.4), (12, 78.5), (32, 131.7)])
def test_the_barrier_of_a_cluster_takes_what_was_measured(warps, measured):
    assert per_trip("meet();", 32 * warps, who="true", cluster=2) == pytest.approx(measured, rel=0.2)


def test_an_arrival_in_another_block_is_heard_of_later():
    """Two lanes arrive, one at each block's mbarrier, and wait for their own: 128 cycles, where all lanes of a block take 51."""
    body = "if (lane < 2) arrive_at(there(&bar[0], lane)); stay(&bar[0], i & 1);"
    assert per_trip(body, count=2, who="true", cluster=2) == pytest.approx(128.4, rel=0.15)


@pytest.mark.parametrize(("rows", "measured"), [(16, 428.9), (64, 578.5), (128, 728.5)])
def test_a_box_for_both_blocks_of_a_cluster_comes_after_what_was_measured(rows, measured):
    """Each copies so many rows of 128 bytes for both, and waits for twice as many."""
    body = f"expect(&bar[0], BYTES); box_for_both(tile + rank() * BYTES / 2, map, 0, i % 8 * {rows}, &bar[0]); stay(&bar[0], i & 1);"
    assert per_trip(body, nbytes=256 * rows, box=(rows, 64), cluster=2) == pytest.approx(measured, rel=0.2)


@pytest.mark.parametrize(("boxes", "measured"), [(1, 317.4), (2, 582.4), (4, 1111.4)])
def test_a_box_that_leaves_is_read_after_what_was_measured(boxes, measured):
    body = "".join(f"send(map, 0, i % 8 * 64, tile + {k} * BYTES);" for k in range(boxes)) + "sent<0>();"
    assert per_trip(body, nbytes=8192, box=(64, 64)) == pytest.approx(measured, rel=0.07)


def test_boxes_that_leave_are_read_one_after_the_other():
    assert per_trip("send(map, 0, i % 8 * 64, tile + i % 4 * BYTES); sent<3>();", nbytes=8192, box=(64, 64)) == pytest.approx(
        258.9, rel=0.05
    )


def test_a_phase_that_nobody_ends_has_no_time_by_cycles():
    """Two warps arrive where the mbarrier waits for three."""
    made = kernel.compile(TILES.replace("init(&empty[s], 3)", "init(&empty[s], 4)"), arch="sm_90a")
    args = [tensor_map(np.zeros((2048, 32), np.float32), (32, 32)), np.zeros(128, np.float32), 2]
    run = made.launch(1, 128, args, on="cpu", findings=False)
    found, why = estimate(replace(run, arguments=(*run.arguments[:2], 9)), H200)  # two trips end, nine do not
    assert found is None and "wait for each other" in why
