"""Shared memory as rows of banks: boxes stand where the addresses are, and conflicts over one another."""

import numpy as np
import pytest

import helpers
from helpers.views import layout
from helpers.views.canvas import PICTURES, VERMILLION
from tests.views.view_builders import one_load

LANES = np.arange(32)
SWIZZLED = """
#include <cuda_fp16.h>
extern "C" __global__ void k(const __half* A, unsigned* out) {
    __shared__ __align__(128) __half tile[32][64];
    const int lane = threadIdx.x;
    for (int i = 0; i < 8; i++) {
        const int row = i * 4 + lane / 8, chunk = lane % 8;
        const unsigned to = (unsigned)__cvta_generic_to_shared(&tile[row][(SWIZZLE) * 8]);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(A + row * 64 + chunk * 8));
    }
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    const int row = lane % 16, chunk = lane / 16;
    const unsigned from = (unsigned)__cvta_generic_to_shared(&tile[row][(SWIZZLE) * 8]);
    unsigned r0, r1, r2, r3;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(from));
    out[lane] = r0 ^ r1 ^ r2 ^ r3;
}"""


def boxes(ax):
    """(first bank, row from the top, lane or lanes) of every box."""
    return {
        (round(text.get_position()[0] - 2), int(text.get_position()[1]), text.get_text().split("\n")[0])
        for text in ax.texts
        if text.axes is ax and text.get_transform() == ax.transData and text.get_text()[0].isdigit()
    }


def reds(ax):
    red = tuple(int(VERMILLION[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return sum((np.abs(face[:3] - red) < 0.01).all() for collection in ax.collections for face in collection.get_facecolor())


@pytest.mark.parametrize("apart, rows, red", [(128, 32, 31), (132, 33, 0), (4, 1, 0)], ids=["column", "padded", "row"])
def test_a_column_and_its_padded_cure(apart, rows, red):
    ax = layout(one_load(apart * LANES, space="shared", shape=(33, 33)))
    assert f"over {rows - (apart == 132)} row{'s' if rows > 1 else ''} of 128 bytes" in ax.alt and reds(ax) == red


def swizzled(rule):
    kernel = helpers.compile("\n" + SWIZZLED.replace("SWIZZLE", rule))
    run = kernel.launch(1, 32, [np.arange(2048).reshape(32, 64).astype(np.float16), np.zeros(32, np.uint32)], on="cpu", trace=True)
    assert not run.findings
    return run


def test_a_swizzle_is_seen_in_the_copy_and_pays_in_the_read(said):
    run = swizzled("chunk ^ row % 8")
    copy, read = (site for _, site in PICTURES["layout"].controls(run)[0].options)
    expected = {(4 * (lane % 8 ^ lane // 8), lane // 8, str(lane)) for lane in range(32)}
    ax = layout(run, site=copy)
    assert boxes(ax) == expected
    assert "8\nA[1, 0]" in said(ax) and "9\nA[1, 8]" in said(ax)  # lane 8 brings A[1, 0], and lays it behind A[1, 8]
    ax = layout(run, site=read)
    assert boxes(ax) == {(4 * (lane // 16 ^ lane % 8), lane % 16, str(lane)) for lane in range(32)}
    assert "4 wavefronts for one 128-bit matrix load of tile" in said(ax) and reds(ax) == 0
    plain = swizzled("chunk")
    assert "32 wavefronts" in said(layout(plain, site=read)) and reds(layout(plain, site=read)) == 28
    assert "tile[1, 0]" in said(layout(plain, site=read))


def test_what_there_is_not_is_said(said):
    assert "no access to shared memory" in said(layout(one_load(4 * LANES)))
    assert "No lane takes part" in said(layout(one_load(-1 + 0 * LANES, space="shared")))
    far = layout(one_load(4096 * LANES, space="shared", shape=(1024, 32)))
    assert "… " in said(far) and far.alt.count("row") >= 1
