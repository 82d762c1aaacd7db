"""The numbers in the coalescing picture, on patterns whose answers everybody can work out."""

import numpy as np
import pytest

import helpers
from helpers.views import coalescing
from helpers.views.canvas import PICTURES, NothingToSee
from helpers.views.coalescing import warp_access
from tests.views.view_builders import Site, Trace, access_rows, one_load, run_of

LANES = np.arange(32)


@pytest.mark.parametrize(
    "addresses, width, sectors, used, ideal",
    [
        (4 * LANES, 4, 4, 128, 4),  # unit stride
        (0 * LANES, 4, 1, 4, 1),  # broadcast
        (512 * LANES, 4, 32, 128, 4),  # one row each
        (8 * LANES, 4, 8, 128, 4),  # every other
        (4 * LANES + 4, 4, 5, 128, 4),  # off by one: crosses into a fifth sector
        (16 * LANES, 16, 16, 512, 16),  # float4
        (2 * LANES, 2, 2, 64, 2),  # half
        (4 * LANES[::-1], 4, 4, 128, 4),  # backwards costs the same
        (np.where(LANES < 5, 4 * LANES, -1), 4, 1, 20, 1),  # five lanes
    ],
)
def test_sectors_bytes_and_ideal(addresses, width, sectors, used, ideal):
    seen = warp_access(one_load(addresses, width))
    assert (len(seen.sectors), seen.used, seen.ideal) == (sectors, used, ideal)
    assert seen.moved == 32 * sectors
    assert seen.efficiency == used / (32 * sectors)
    assert seen.words.sum() == used // 4 and seen.words.shape == (sectors, 8)
    assert set(seen.lane_sector[addresses >= 0]) == set(range(sectors))


def test_the_picture_says_what_it_counts(said):
    scattered = coalescing(one_load(512 * LANES))
    assert "32 sectors for one load of A" in said(scattered)
    assert "1,024 bytes in these sectors, 128 used (12.5 %); 4 sectors would be enough" in said(scattered)
    assert "A[0, 0]" in said(scattered) and "A[31, 0]" in said(scattered)
    assert "each 512 bytes after the one before" in said(scattered)
    assert "3  float a = A[threadIdx.x];" in said(scattered)
    unit = coalescing(one_load(4 * LANES))
    assert "4 sectors" in said(unit) and "neighbours in memory" in said(unit) and "A[0, 24]" in said(unit)
    broadcast = coalescing(one_load(0 * LANES))
    assert "1 sector for one load" in said(broadcast) and "one address serves 32 lanes" in said(broadcast)
    assert "128-bit load" in said(coalescing(one_load(16 * LANES, 16)))
    assert "store to A" in said(coalescing(one_load(4 * LANES, op="st")))


def test_every_lane_is_linked_to_its_sector():
    ax = coalescing(one_load(np.where(LANES < 20, 8 * LANES, -1)))
    links = next(c for c in ax.collections if type(c).__name__ == "LineCollection")
    assert len(links.get_segments()) == 20


def test_alternative_text_tells_the_same():
    alt = coalescing(one_load(512 * LANES)).alt
    assert "32 lanes touch 32 sectors" in alt and "12.5 %" in alt


def test_lanes_that_are_all_off_are_said_to_be(said):
    assert "No lane takes part" in said(coalescing(one_load(-1 + 0 * LANES)))


def test_no_global_access_is_explained(said):
    run = one_load(4 * LANES, space="shared")
    assert "no access to global memory" in said(coalescing(run))
    with pytest.raises(NothingToSee):
        warp_access(run)


def test_an_unknown_line_names_those_there_are(said):
    assert "These lines have: 3" in said(coalescing(one_load(4 * LANES), line=99))


def test_accesses_that_ptxas_merged_away_are_left_out():
    rows = np.stack([4096 + 16 * LANES, 4096 + 16 * LANES + 4]).astype(np.int64)
    sites = [Site(0, 3, width=16), Site(1, 3, width=0)]
    run = run_of(Trace(access_rows([(0, 0, 0, 0), (1, 0, 0, 0)]), rows, sites, []), "\n\nfloat4 v = p[t];")
    (choice, *_) = PICTURES["coalescing"].controls(run)
    assert [value for _, value in choice.options] == [0]


def test_indices_move_to_the_nearest_recorded(naive_run):
    seen = warp_access(naive_run, line=4, block=99, warp=99, iteration=1000)
    assert (seen.when.block, seen.when.warp, seen.when.iteration, seen.when.iterations) == (3, 31, 63, 64)


def test_atomics_on_one_address_take_turns(said):
    seen = warp_access(one_load(0 * LANES, op="red"))
    assert (len(seen.sectors), seen.charged) == (1, 32)
    assert "32 sectors for one reduction to A" in said(coalescing(one_load(0 * LANES, op="red")))
    assert "32 lanes change 1 address, in turns" in said(coalescing(one_load(0 * LANES, op="red")))
    assert warp_access(one_load(4 * LANES, op="atom")).charged == 4


def test_naive_and_coalesced_differ_as_the_lesson_says(naive_run, coalesced_run):
    assert [len(warp_access(naive_run, line=line).sectors) for line in (3, 4, 8)] == [32, 1, 32]
    assert [len(warp_access(coalesced_run, line=line).sectors) for line in (3, 4, 8)] == [1, 4, 4]


def test_controls_follow_the_chosen_access(naive_run):
    site, block, warp, iteration = PICTURES["coalescing"].controls(naive_run, site=2)
    assert [text for text, _ in site.options] == ["line 3: load of A", "line 4: load of B", "line 8: store to C"]
    assert (block.low, block.high, warp.high, iteration.high) == (0, 3, 31, 0)
    assert PICTURES["coalescing"].controls(naive_run, site=0)[3].high == 63
    assert PICTURES["coalescing"].controls(naive_run, line=4)[0].default == 1


def test_copies_past_the_first_cache_count_as_the_counters_do():
    source = """
extern "C" __global__ void k(const float* A, float* C) {
    __shared__ __align__(16) float tile[1024];
    const unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x % 8 * 64 + threadIdx.x / 8 * 4]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(A + threadIdx.x * 4));
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    C[threadIdx.x] = tile[threadIdx.x % 8 * 64];
}"""
    run = helpers.compile("\n" + source).launch(1, 32, [np.zeros(128, np.float32), np.zeros(32, np.float32)], on="cpu", trace=True)
    seen = warp_access(run, line=6)
    assert seen.place.op == "cp.async" and len(seen.sectors) == 16
    assert seen.charged == run.by_line[6]["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] > 16
    assert "in turns" not in coalescing(run, line=6).alt
