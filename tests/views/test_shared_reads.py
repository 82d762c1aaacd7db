"""Shared reads: elements that threads read of shared tiles, for kernels whose answer is known, and as many as the run counts."""

import matplotlib.colors
import numpy as np
import pytest

import helpers
from helpers.sim import TraceFilter
from helpers.sim.counting import names
from helpers.views import shared_reads
from helpers.views.canvas import BLUE
from helpers.views.shared_reads import shared_reads_of
from tests.views.view_builders import one_load

STEPS = """
extern "C" __global__ void steps(float* C, const float* A) {
    __shared__ float As[4][32];
    float sum = 0;
    for (int t = 0; t < 3; t++) {
        for (int i = threadIdx.x / 32; i < 4; i += 2) As[i][threadIdx.x % 32] = A[(t * 4 + i) * 32 + threadIdx.x % 32];
        __syncthreads();
        sum += As[t][threadIdx.x / 8];
        const float4 wide = reinterpret_cast<float4*>(As[3])[threadIdx.x % 8];
        sum += wide.x + wide.y + wide.z + wide.w;
        __syncthreads();
    }
    C[threadIdx.x] = sum;
}"""


def launch(source, threads, *arrays):
    return helpers.compile("\n" + source).launch(1, threads, list(arrays), on="cpu", trace=TraceFilter())


@pytest.fixture(scope="module")
def run():
    return launch(STEPS, 64, np.zeros(64, np.float32), np.ones((12, 32), np.float32))


def test_a_thread_a_warp_and_the_block_read_their_part(run, said):
    thread = shared_reads_of(run, "thread", thread=41, step=1)
    (tile,) = thread.tiles
    assert (thread.steps, thread.reads, thread.warp, tile.shape) == (3, 2, 1, (4, 32))
    assert sorted(map(tuple, np.argwhere(tile.so_far))) == [(1, 5), (3, 4), (3, 5), (3, 6), (3, 7)] and tile.so_far.max() == 1
    assert shared_reads_of(run, "thread", thread=41, step=1, read=0).tiles[0].so_far.sum() in (1, 4)
    (warp,) = shared_reads_of(run, "warp", warp=1, step=0).tiles
    assert (warp.so_far[0, 4:8] == 8).all() and (warp.so_far[3] == 4).all() and warp.so_far.sum() == 32 + 128
    (block,) = shared_reads_of(run, "block", step=2).tiles
    np.testing.assert_array_equal(block.now, block.by_block)
    assert (block.now[2, :8] == 8).all() and (block.now[3] == 8).all() and not block.now[:2].any()
    shown = said(shared_reads(run, level="warp", step=2))
    assert (
        "One warp reads 36 of As in step 2 (of 0 to 2)" in shown
        and "36 elements, each read 4.44 times; the block: 40, each read 8 times" in shown
    )


def test_the_legend_has_the_colours_of_the_tiles(run):
    patches = shared_reads(run).get_legend().get_patches()
    assert matplotlib.colors.to_hex(patches[0].get_facecolor()) == BLUE.lower()


def test_the_loads_of_all_steps_are_those_that_were_counted(run):
    steps = shared_reads_of(run).steps
    assert sum(shared_reads_of(run, "block", step=step).instructions for step in range(steps)) == run.counters[names.executed("shared_ld")]


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_of_ldmatrix_a_thread_reads_what_arrives_in_its_registers(trans):
    source = f"""
extern "C" __global__ void matrices(unsigned* C) {{
    __shared__ __align__(16) short As[16][8];
    for (int i = threadIdx.x; i < 128; i += 32) As[i / 8][i % 8] = i;
    __syncthreads();
    unsigned r0, r1;
    const unsigned at = (unsigned)__cvta_generic_to_shared(&As[threadIdx.x % 16][0]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 {{%0, %1}}, [%2];" : "=r"(r0), "=r"(r1) : "r"(at));
    C[2 * threadIdx.x] = r0;
    C[2 * threadIdx.x + 1] = r1;
}}"""
    registers = np.zeros((32, 2), np.uint32)
    run = launch(source, 32, registers)
    for lane in (0, 9, 31):
        tile = shared_reads_of(run, "thread", thread=lane).tiles[0].so_far
        assert tile.shape == (16, 8) and tile.sum() == 4
        assert set(np.flatnonzero(tile)) == set(registers[lane].view(np.int16).tolist())


def test_without_a_read_it_says_why(naive_run, said):
    assert "reads shared memory" in said(shared_reads(naive_run))
    assert "reads shared memory" in said(shared_reads(one_load(4 * np.arange(32), space="shared", op="st")))
    assert "nothing read" in said(shared_reads(one_load(np.where(np.arange(32) < 9, 0, -1), space="shared", shape=(2, 32)), thread=30))
