"""The pictures of kernels that were really compiled and executed: known conflicts and their cures, and awkward launches.

Tests of: helpers.views.owners, helpers.views.resident_warps, helpers.views.timeline, helpers.views.traffic
"""

import numpy as np
import pytest

import helpers
from helpers.course.steps import STEPS, get
from helpers.run import gemm
from helpers.sim import TraceFilter
from helpers.views import PICTURES, banks, coalescing, listing, occupancy, owners, tiles, timeline, traffic
from helpers.views.banks import shared_access
from helpers.views.coalescing import warp_access
from helpers.views.listing import lines
from helpers.views.owners import ownership
from helpers.views.places import copy_groups
from helpers.views.resident_warps import changes, shape
from helpers.views.tiles import march
from helpers.views.timeline import lanes
from helpers.views.traffic import levels, sectors_of_blocks

OF_A_RUN = sorted(name for name, picture in PICTURES.items() if picture.of == "run")

TRANSPOSE = """
extern "C" __global__ void transpose(float* A) {{
    __shared__ float tile[32][{width}];
    const int x = threadIdx.x, y = threadIdx.y;
    tile[y][{write}] = A[y * 32 + x];
    __syncthreads();
    A[y * 32 + x] = tile[x][{read}];
}}
"""


def launch(source, grid, block, args, **options):
    return helpers.compile("\n" + source).launch(grid, block, args, on="cpu", trace=TraceFilter(math=True), **options)


def transpose(width, write, read):
    array = np.arange(1024, dtype=np.float32).reshape(32, 32)
    before = array.copy()
    run = launch(TRANSPOSE.format(width=width, write=write, read=read), 1, (32, 32), [array])
    np.testing.assert_array_equal(array, before.T)
    return run


@pytest.fixture(scope="module")
def runs():
    made = {}
    for step in STEPS:
        if step.kernel_path is not None and step.number <= 3:
            kernel = helpers.compile("\n" + step.kernel_path.read_text(encoding="utf-8"), step.entry)
            made[step.slug] = gemm.run(kernel, gemm.Problem(64, 96, 64), on="cpu", trace=TraceFilter(math=True))
    return made


@pytest.mark.parametrize(
    "width, write, read, wavefronts",
    [(32, "x", "y", 32), (33, "x", "y", 1), (32, "x ^ y", "y ^ x", 1)],
    ids=["plain", "padded", "swizzled"],
)
def test_a_column_of_a_shared_tile_and_its_cures(width, write, read, wavefronts, said):
    run = transpose(width, write, read)
    seen = shared_access(run, line=8, warp=5)
    assert seen.wavefronts == wavefronts and seen.conflicts == wavefronts - 1
    assert run.counters["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"] == 32 * (wavefronts - 1)
    assert f"{wavefronts} wavefront" in said(banks(run, line=8))
    assert shared_access(run, line=6).conflicts == 0


def test_sectors_of_the_first_steps(runs):
    def sectors(slug):
        menu = PICTURES["coalescing"].controls(runs[slug])[0].options
        return {text.split(": ")[1]: len(warp_access(runs[slug], site=site).sectors) for text, site in menu}

    assert sectors("naive") == {"load of A": 32, "load of B": 1, "store to C": 32}
    assert sectors("coalesced") == {"load of A": 1, "load of B": 4, "store to C": 4}
    assert sectors("shared_tile") == {"load of A": 4, "load of B": 4, "store to C": 4}


def test_iterations_are_those_of_the_source_however_much_was_unrolled(runs):
    for slug in ("naive", "coalesced"):
        load_of_a = PICTURES["coalescing"].controls(runs[slug])[0].options[0][1]
        first, later = (warp_access(runs[slug], site=load_of_a, iteration=i) for i in (0, 41))
        assert first.when.iterations == 64
        assert ((later.addresses - first.addresses) == 4 * 41).all()  # 41 columns of A further


def test_tiles_march_and_every_element_is_owned_once(runs, said):
    for step in range(2):
        seen = march(runs["shared_tile"], block=4, step=step)
        assert seen.steps == 2 and seen.a.extent() == (slice(32, 64), slice(32 * step, 32 * step + 32))
        assert seen.b.extent() == (slice(32 * step, 32 * step + 32), slice(32, 64)) and seen.a.now.max() == 1
    assert march(runs["naive"], block=0, step=0).a.now.max() == 32
    assert "4 global = K/16" in said(tiles(runs["shared_tile"])) and "128 global = 2 K" in said(tiles(runs["naive"]))
    seen = ownership(runs["naive"], 4)
    assert (seen.row, seen.column, seen.warp.shape) == (32, 32, (32, 32))
    assert (seen.warp == np.arange(32)).all() and (seen.lane == np.arange(32)[:, None]).all()  # lanes run down the rows
    assert (ownership(runs["coalesced"], 4).lane == np.arange(32)).all()
    assert "warp 3, lane 7: 1 element" in said(owners(runs["naive"], warp=3, lane=7))
    assert "32 warps, in\n8 colours by turns" in said(owners(runs["naive"]))


def test_a_barrier_of_a_warp_is_none_of_the_block(said):
    source = """
extern "C" __global__ void both(float* A, float* B) {
    __shared__ float tile[64];
    tile[threadIdx.x] = A[threadIdx.x];
    __syncwarp();
    A[threadIdx.x] = tile[threadIdx.x ^ 1];
    __syncthreads();
    B[threadIdx.x] = tile[threadIdx.x ^ 32];
    __syncwarp();
}"""
    run = launch(source, 1, 64, [np.ones(64, np.float32) for _ in range(2)])
    _, (lane,) = lanes(run)
    kinds = [kind for _, kind in lane.barriers]
    assert kinds.count("sync") == 1 and kinds.count("warp") >= 1
    ax = timeline(run)
    assert "solid lines are barriers, 1 in all; dashed: of the warp" in said(ax)
    assert "barrier of the warp" in ax.alt
    assert [line.get_linestyle() for line in ax.lines].count("-") == 1


def test_registers_of_a_thread_tile_are_counted():
    source = """
extern "C" __global__ void four(float* A, float* B, float* C) {
    for (int i = 0; i < 4; i++) C[(threadIdx.x * 4 + i) * 8 + blockIdx.x] = A[i] + B[i];
}"""
    arrays = [np.ones((128, 8), np.float32) for _ in range(3)]
    seen = ownership(launch(source, 8, 32, arrays), 5)
    assert seen.column == 5 and seen.turn[:, 0].reshape(32, 4).tolist() == [[0, 1, 2, 3]] * 32
    assert (seen.lane[:, 0] == np.arange(128) // 4).all()


def test_the_timeline_alternates_as_the_kernel_says(runs, said):
    block, groups = lanes(runs["shared_tile"], 2)
    assert block == 2 and len(groups) == 1 and groups[0].warps == tuple(range(32))
    assert [kind for _, kind in groups[0].barriers] == ["sync"] * 4  # two per tile
    counts = {}
    for bar in groups[0].bars:
        counts[bar.kind] = counts.get(bar.kind, 0) + bar.count
    assert counts == {"global loads": 4, "shared stores": 4, "shared loads": 80, "arithmetic": 64, "global stores": 1}
    assert "solid lines are barriers, 4 in all" in said(timeline(runs["shared_tile"]))
    assert "no barriers" in said(timeline(runs["naive"]))
    assert "from interval" not in said(timeline(runs["shared_tile"]))
    assert "square root" in timeline(runs["shared_tile"]).get_xlabel() and "square root" not in timeline(runs["naive"]).get_xlabel()


def test_warps_that_differ_are_drawn_apart(said):
    source = """
extern "C" __global__ void roles(float* A) {
    if (threadIdx.x < 64) A[threadIdx.x] = 1; else if (threadIdx.x < 96) A[threadIdx.x] = A[threadIdx.x - 64] + 1;
}"""
    run = launch(source, 1, 128, [np.zeros(128, np.float32)])
    assert [lane.warps for lane in lanes(run)[1]] == [(0, 1), (2,)]
    assert "warps 0 to 1" in said(timeline(run)) and "warp 2" in said(timeline(run))


def test_occupancy_is_the_model_s_and_one_change_helps_as_said(runs, said):
    seen, threads, registers, shared = shape(runs["shared_tile"])
    assert (threads, registers, shared) == (1024, runs["shared_tile"].kernel.registers, 8192) and seen.fraction == 1
    assert "100 % occupancy" in said(occupancy(runs["shared_tile"]))
    limited = said(occupancy(runs["shared_tile"], threads=256, registers=72))
    assert "37.5 % occupancy" in limited and "64 registers per thread instead of 72: 50 %" in limited and "(what if)" in limited
    assert "Does not fit" in said(occupancy(runs["shared_tile"], registers=128))
    by_shared = changes("H200 SXM", 128, 16, 100_000)
    assert [change.text for change in by_shared] == [
        "76,800 bytes of shared memory per block instead of 100,000",
        "192 threads per block instead of 128",
    ]


def test_traffic_is_counters_times_bytes(runs, said):
    run = runs["shared_tile"]
    amounts = {level.name: level.bytes for level in levels(run)}
    assert amounts["arithmetic"] == 8 * 64 * 96 * 64 and amounts["DRAM,\nat least"] == 4 * (64 * 64 + 64 * 96 + 64 * 96)
    assert amounts["L1 cache"] == 32 * (4 * 2 * 64 * 96 * 64 // 32 // 32 + 4 * 64 * 96 // 32)
    assert "shared memory" not in {level.name for level in levels(runs["naive"])}
    assert "bytes in the whole launch (logarithmic scale)" == traffic(run).get_xlabel()
    assert "fewer" in said(traffic(run)) and "×" not in said(traffic(run))
    # By the model a block of 32 x 32 loads 32 rows of A and 32 columns of B once, whatever it asks for. There are 2 x 3 blocks.
    assert amounts["L2 cache,\nby a model"] == 6 * 4 * 2 * 32 * 64 + 4 * 64 * 96 == 32 * sectors_of_blocks(runs["naive"]) + 4 * 64 * 96
    assert "L2 cache, by a model" in traffic(runs["naive"]).alt


def test_a_recording_that_lacks_loads_says_nothing_of_l2():
    kernel = helpers.compile("\n" + get("naive").kernel_path.read_text(encoding="utf-8"))
    run = gemm.run(kernel, gemm.Problem(64, 64, 64), on="cpu", trace=TraceFilter(blocks={0}))
    assert sectors_of_blocks(run) == 0 and "L2" not in traffic(run).alt


def test_the_listing_adds_up_to_the_counters(runs):
    run = runs["naive"]
    name = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
    assert sum(counts.get(name, 0) for counts in run.by_line.values()) == run.counters[name]
    assert "Most sectors: line " in listing(run).alt


AWKWARD = {
    "one thread": ("extern \"C\" __global__ void k(float* A) { A[0] = 1; }", 1, 1, 1),
    "3-D blocks": ("extern \"C\" __global__ void k(float* A) { A[threadIdx.z * 16 + threadIdx.y * 4 + threadIdx.x] = 1; }", (1, 1, 2), (4, 4, 4), 64),
    "thousands of blocks": ("extern \"C\" __global__ void k(float* A) { if (threadIdx.x == 0) A[blockIdx.x] = 1; }", 4000, 32, 4000),
    "all predicated off": ("extern \"C\" __global__ void k(float* A, int n) { if (threadIdx.x < n) A[threadIdx.x] = A[threadIdx.x] + 1; }", 1, 32, 32),
    "does nothing": ("extern \"C\" __global__ void k(float* A) { }", 1, 32, 32),
    "shared only": ("extern \"C\" __global__ void k(float* A) { __shared__ volatile float s[32]; s[threadIdx.x] = 1; s[threadIdx.x ^ 1] = 2; }", 1, 32, 32),
    "half a warp": ("extern \"C\" __global__ void k(float* A) { __shared__ float s[48]; s[threadIdx.x] = A[threadIdx.x]; __syncthreads(); A[threadIdx.x] = s[47 - threadIdx.x]; }", 1, 48, 48),
    "copies of nothing": ("extern \"C\" __global__ void k(float* A) { __shared__ float s[32]; asm volatile(\"cp.async.ca.shared.global [%0], [%1], 4, 0; cp.async.wait_all;\" :: \"r\"((unsigned)__cvta_generic_to_shared(&s[threadIdx.x])), \"l\"(A + threadIdx.x)); A[threadIdx.x] = s[threadIdx.x]; }", 1, 32, 32),
    "with findings": ("extern \"C\" __global__ void k(float* A) { __shared__ float s[64]; s[threadIdx.x] = 1; A[threadIdx.x] = s[63 - threadIdx.x]; }", 1, 64, 64),
}  # fmt: skip


@pytest.fixture(scope="module")
def awkward():
    made = {}
    for name, (source, grid, block, size) in AWKWARD.items():
        extra = [0] if "int n" in source else []
        made[name] = launch(source, grid, block, [np.zeros(size, np.float32), *extra])
    return made


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("picture", OF_A_RUN)
def test_awkward_runs_are_drawn_or_explained(awkward, name, picture):
    ax = PICTURES[picture].draw(awkward[name])
    assert len(ax.alt) > 20, f"every picture says something to who cannot see it: {picture} says {ax.alt!r}, and not a whole sentence"
    PICTURES[picture].draw(awkward[name], **{control.name: 10**6 for control in _spans(picture, awkward[name])})


def _spans(picture, run):
    try:
        return [control for control in PICTURES[picture].controls(run) if hasattr(control, "high")]
    except helpers.CourseError:
        return []


def test_awkward_runs_say_the_right_thing(awkward, said):
    assert "no access to global memory" in said(coalescing(awkward["all predicated off"]))
    assert "1 sector for one store" in said(coalescing(awkward["one thread"])) and "4 used" in said(coalescing(awkward["one thread"]))
    assert "block (0, 0, 1)" in said(coalescing(awkward["3-D blocks"], block=1))
    assert warp_access(awkward["thousands of blocks"], block=3999).when.block == 3999
    assert any(line.findings for line in lines(awkward["with findings"])[1]) and "race" in listing(awkward["with findings"]).alt
    assert "no access to shared memory" in said(banks(awkward["one thread"]))


def test_a_recording_that_was_cut_short_says_so(said):
    kernel = helpers.compile("\n" + get("naive").kernel_path.read_text(encoding="utf-8"))
    run = gemm.run(kernel, gemm.Problem(64, 64, 64), on="cpu", trace=TraceFilter(limit=4000))
    assert run.trace.truncated and "cut short" in said(coalescing(run)) and "cut short" in said(tiles(run))


STAGES = """
template <int N> __device__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N)); }
extern "C" __global__ void stages(const float* A, float* C, int tiles) {
    __shared__ float tile[STAGES][32];
    auto fetch = [&](int t) {
        if (t < tiles)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                :: "r"((unsigned)__cvta_generic_to_shared(&tile[t % STAGES][threadIdx.x])), "l"(A + 32 * t + threadIdx.x));
        asm volatile("cp.async.commit_group;");
    };
    for (int t = 0; t < STAGES - 1; t++) fetch(t);
    float sum = 0;
    for (int t = 0; t < tiles; t++) {
        wait<STAGES - 2>();
        __syncthreads();
        fetch(t + STAGES - 1);
        sum += tile[t % STAGES][31 - threadIdx.x];
    }
    C[threadIdx.x] = sum;
}"""


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_stages_of_asynchronous_copies_are_seen_under_way(stages, said):
    array, result = np.random.default_rng(1).random(32 * 8, np.float32), np.zeros(32, np.float32)
    run = launch(f"constexpr int STAGES = {stages};" + STAGES, 1, 32, [array, result, 8])
    np.testing.assert_allclose(result, array.reshape(8, 32).sum(axis=0)[::-1], rtol=1e-6)
    groups = copy_groups(run.trace, 0, 0)
    assert [len(group.rows) for group in groups] == [1] * 8 and all(group.end for group in groups)
    lane = lanes(run, 0)[1][0]
    waits = [x for x, kind in lane.barriers if kind == "wait"]
    assert [stage.right for stage in lane.stages] == waits, "group t lands at the wait of step t"
    assert max(stage.row for stage in lane.stages) + 1 == (stages - 1 if stages > 2 else 1)
    assert next(bar.count for bar in lane.bars if bar.kind == "async copies") == stages - 1
    assert "waits for copies" in said(timeline(run))
    assert shared_access(run).place.what == "copy to tile"
    at_once = {2: "1 group", 3: "2 groups", 4: "3 groups"}[stages]
    assert f"{at_once} of copies under way at most" in said(timeline(run))


@pytest.mark.slow
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_the_timelines_of_a_ring_show_as_many_steps_whatever_its_depth(stages, said):
    kernel = helpers.variants(helpers.reference("async_copy"), {"": {"STAGES": stages}})[""]
    run = kernel.gemm(128, 128, 80, on="cpu", trace=TraceFilter(math=True, blocks={0}), counters=False, findings=False)
    lane = lanes(run, 0)[1][0]
    low, high = timeline(run).get_xlim()
    seen = [kind for x, kind in lane.barriers if low <= x <= high]
    assert seen == ["wait", "sync"] * 3, "two steps; a wait and its barrier are not parted"
    assert "from interval 0 of" in said(timeline(run)) and "from interval 1 of" in said(timeline(run, start=1))


BULK = """
extern "C" __global__ void bulk(const float* A, float* C) {
    __shared__ alignas(128) float tile[128];
    __shared__ alignas(8) unsigned long long barrier;
    const unsigned at = (unsigned)__cvta_generic_to_shared(&barrier), to = (unsigned)__cvta_generic_to_shared(tile);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at));
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 512;" :: "r"(at));
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];" :: "r"(to), "l"(A), "r"(at));
    }
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra again; }" :: "r"(at) : "memory");
    C[threadIdx.x] = tile[127 - threadIdx.x];
}"""


def test_bulk_copies_and_the_waits_for_them_are_on_the_timeline(said):
    arrays = [np.arange(128, dtype=np.float32), np.zeros(128, np.float32)]
    run = helpers.compile("\n" + BULK, arch="sm_90a").launch(1, 128, arrays, on="cpu", trace=TraceFilter(math=True))
    np.testing.assert_array_equal(arrays[1], arrays[0][::-1])
    first, others = lanes(run, 0)[1]
    assert (first.warps, others.warps) == ((0,), (1, 2, 3))
    assert [bar.count for bar in first.bars if bar.kind == "bulk copies"] == [1] and "bulk copies" not in {bar.kind for bar in others.bars}
    assert all([kind for _, kind in lane.barriers] == ["sync", "wait"] for lane in (first, others)) and not first.stages
    assert "1 bulk copie" not in timeline(run).alt and "1 bulk copy" in timeline(run).alt
