"""L2's bandwidth, which no maker states: the hardware table holds what this test measured."""

import statistics

import numpy as np
import pytest

from helpers.model import hardware
from helpers.run import gpu, kernel

MEGABYTES = 24  # well within L2, and more than a part of it
SOURCE = """
extern "C" __global__ void read_again(const float4* a, int n, int passes, float* out) {
    const int stride = gridDim.x * blockDim.x;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int pass = 0; pass < passes; pass++) {
        // Another block's part each time, so that what is read does not stay with one SM.
        int i = (blockIdx.x + pass * 37) % gridDim.x * blockDim.x + threadIdx.x;
        for (; i + 3 * stride < n; i += 4 * stride) {
            float4 v[4];
            for (int j = 0; j < 4; j++) v[j] = __ldcg(a + i + j * stride);  // past L1
            for (int j = 0; j < 4; j++) { sum.x += v[j].x; sum.y += v[j].y; sum.z += v[j].z; sum.w += v[j].w; }
        }
    }
    if (sum.x + sum.y + sum.z + sum.w == 12345.678f) out[0] = 1;  // so that the loads are needed
}
"""


def test_the_tables_bandwidth_of_l2_is_this_gpus():
    import cupy

    rows = [card for card in hardware.gpus() if card.l2_gbs and card.name.split()[0] in gpu.device().name]
    if not rows:
        pytest.skip(f"the table has no bandwidth of L2 for {gpu.device().name}")
    blocks, threads, passes = 8 * gpu.device().sms, 256, 800
    count = MEGABYTES * 2**20 // 16 // (4 * blocks * threads) * (4 * blocks * threads)
    data, out = cupy.ones(count * 4, np.float32), cupy.zeros(1, np.float32)
    run = kernel.compile(SOURCE, arch=gpu.arch())
    arguments = (data, count, passes, out)
    times = [run.launch(blocks, threads, arguments, on="gpu").milliseconds for _ in range(7)]
    measured = count * 16 * passes / statistics.median(times) / 1e6
    print(f"L2 of {gpu.device().name}: {measured:.0f} GB/s")
    assert measured == pytest.approx(rows[0].l2_gbs, rel=0.05)
