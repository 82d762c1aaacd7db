"""Blocks that work together: clusters and their shared memory, grids that synchronise, libcu++'s barriers and pipelines.

Tests of: helpers.sim.isa.clusters
"""

from __future__ import annotations

import numpy as np
import pytest

from helpers.errors import LaunchError, RunError
from helpers.run import kernel
from helpers.sim import Collect, simulate
from helpers.sim.machine import cluster
from tests.sim.cluster_cases import (  # fmt: skip
    BY_NAME,
    CASES,
    MULTICAST,
    REDUCTION,
    RING,
    SPECIALS,
    Case,
)
from tests.sim.cluster_products import GIVE_BACK, LAST_SYNC, warp_specialized, warp_specialized_arguments

EACH = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
NAMED = {case.name: case for case in CASES}


def launch(case: Case, arch="sm_90", **more):
    """(Run, arguments before, arguments after) in the machine."""
    before, after = case.arguments(), case.arguments()
    compiled = kernel.compile(case.source, arch=arch)
    run = compiled.launch(case.grid, case.block, after, case.shared, on="cpu", cluster=case.cluster, **more)
    return run, before, after


@EACH
def test_results_are_right_and_nothing_is_found(case):
    run, before, after = launch(case)
    case.check(before, after)
    assert run.findings == []


@pytest.mark.parametrize("name", ["reduction", "widths", "ring", "histogram"])
def test_the_dialect_of_sm_100_does_the_same(name):
    run, before, after = launch(NAMED[name], arch="sm_100")
    NAMED[name].check(before, after)
    assert run.findings == []


@pytest.mark.parametrize("name", ["specials_2x1x2", "reduction", "ring", "shared_b"])
def test_clusters_stay_whole_in_small_chunks(name, monkeypatch):
    monkeypatch.setattr("helpers.sim.launch.CLUSTER_SHADOW", 1)
    monkeypatch.setattr("helpers.sim.launch.MOST_LANES", 64)
    monkeypatch.setattr("helpers.sim.launch.LEAST_LANES", 1)
    _, before, after = launch(NAMED[name])
    NAMED[name].check(before, after)


def test_sampled_blocks_bring_their_whole_cluster():
    case = NAMED["reduction"]
    args = case.arguments()
    compiled = kernel.compile(case.source)
    run = compiled.launch(case.grid, case.block, args, on="cpu", blocks=[5])
    sums = case.expected(case.arguments())[1]
    assert args[1].tolist() == [0, sums[1], 0], "blocks 4 to 7 ran, and no others"
    assert run.sampled and run.findings == []
    whole, *_ = launch(case)
    assert (
        run.counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == whole.counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"]
    )


def test_blocks_of_a_grid_that_waits_for_itself_cannot_be_sampled():
    case = NAMED["grid"]
    with pytest.raises(LaunchError, match="cannot run without the others"):
        kernel.compile(case.source).launch(case.grid, case.block, case.arguments(), on="cpu", blocks=[0, 1])


def test_whole_clusters_of_some_blocks():
    assert cluster.whole([5], (4, 4, 1), (2, 2, 1)) == [0, 1, 4, 5]
    assert cluster.whole([15, 3], (4, 4, 1), (2, 2, 1)) == [2, 3, 6, 7, 10, 11, 14, 15]
    assert cluster.whole([0], (2, 1, 4), (1, 1, 2)) == [0, 2]


def test_machine_code_is_counted_by_each_blocks_rank():
    source = """
    #include <cooperative_groups.h>
    extern "C" __global__ void __cluster_dims__(4) first_only(float* y) {
        __shared__ float s[32];
        s[threadIdx.x] = threadIdx.x;
        auto cluster = cooperative_groups::this_cluster();
        if (cluster.block_rank() == 0) y[blockIdx.x / 4 * 32 + threadIdx.x] = s[31 - threadIdx.x];
        if (cluster.block_rank() == cluster.num_blocks() - 1) y[64 + blockIdx.x / 4 * 32 + threadIdx.x] = 1;
    }"""
    run = kernel.compile(source).launch(8, 32, [np.zeros(128, np.float32)], on="cpu")
    assert run.outcome.uncounted == ""
    assert run.counters["sass__inst_executed_per_opcode.LDS"] == 2
    assert run.counters["sass__inst_executed_per_opcode.STG"] == 4
    assert run.counters["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"] == 4


def test_the_native_engine_leaves_clusters_to_the_machine():
    case = NAMED["reduction"]
    compiled = kernel.compile(case.source).compiled
    with pytest.raises(RunError, match="clusters"):
        simulate(compiled, (4, 1, 1), (256, 1, 1), case.arguments(), engine="native")
    plain = kernel.compile('extern "C" __global__ void f(float* y) { y[blockIdx.x] = 1; }')
    assert plain.launch(4, 1, [np.zeros(4, np.float32)], on="cpu", cluster=2).outcome.engine == "numpy"


# --- what a launch may be --------------------------------------------------------------------------------------------

DECLARED = SPECIALS.replace("void who", "void __cluster_dims__(2, 2, 1) who")


@pytest.mark.parametrize(
    ("source", "arch", "grid", "cluster", "sentence"),
    [
        (DECLARED, "sm_90", (4, 3), None, r"grid.y = 3 is not a multiple of the cluster's 2"),
        (DECLARED, "sm_90", (4, 4), (4, 1), r"declares __cluster_dims__\(2, 2, 1\), and cluster=\(4, 1, 1\)"),
        (SPECIALS, "sm_90", (6, 1), 4, r"grid.x = 6 is not a multiple of the cluster's 4"),
        (SPECIALS, "sm_90", (32, 2), (17, 1), r"17 × 1 × 1 = 17 blocks is too large: the limit is 16"),
        (SPECIALS, "sm_90", (4, 1), 0, r"every extent must be at least 1"),
        ("__global__ void f(unsigned* y) {}", "sm_80", (4, 1), 2, r"Clusters need sm_90 or later, and the kernel is compiled for sm_80"),
        (SPECIALS, "sm_90", (4, 1), "2", r"cluster must be one to three whole numbers"),
        (SPECIALS.replace("who(", "__launch_bounds__(32, 1, 2) who("), "sm_90", (4, 1), 4, r"the kernel declares at most 2"),
    ],
)
def test_impossible_clusters_are_refused(source, arch, grid, cluster, sentence):
    compiled = kernel.compile(source, arch=arch)
    with pytest.raises(LaunchError, match=sentence):
        compiled.launch(grid, 1, [np.zeros(4096, np.uint32)], on="cpu", cluster=cluster)


def test_a_cluster_is_asked_for_or_declared_or_both_alike():
    for source, asked in ((DECLARED, None), (DECLARED, (2, 2)), (SPECIALS, (2, 2))):
        out = np.zeros(16 * 15, np.uint32)
        kernel.compile(source).launch((4, 4), 1, [out], on="cpu", cluster=asked)
        assert out.reshape(16, 15)[5].tolist() == [0, 0, 0, 2, 2, 1, 1, 1, 0, 2, 2, 1, 3, 4, 1]


# --- what goes wrong (planted bugs with twins: bugs/clusters.cu) -----------------------------------------------------


def test_a_block_that_does_not_exist_stops_the_run():
    with pytest.raises(RunError, match="asks for block 4 of its cluster, which has 4") as error:
        case = NAMED["reduction"]
        source = REDUCTION.replace("r < cluster.num_blocks()", "r <= cluster.num_blocks()")
        kernel.compile(source).launch(case.grid, case.block, case.arguments(), on="cpu")
    assert [finding.kind for finding in error.value.findings] == ["out-of-bounds"]


def test_without_a_cluster_a_block_is_alone():
    case = NAMED["addresses"]
    compiled = kernel.compile(case.source)
    out = np.zeros(8 * 12, np.int32)
    compiled.launch(8, 32, [out], on="cpu")
    assert out.reshape(8, 12)[:, 8:].tolist() == [[0, 0, 0, b] for b in range(8)]


def test_a_race_between_blocks_names_both_and_says_what_to_do():
    case = NAMED["ring"]
    source = RING.replace("if (r >= 2) wait(at(&empty[b]), phase ^ 1);", "")
    args = case.arguments()
    run = kernel.compile(source).launch(case.grid, case.block, args, on="cpu")
    case.check(case.arguments(), args)  # in lock step it goes well
    (finding,) = run.findings
    lines = source.split("\n")
    assert finding.kind == "race" and finding.block == (0, 0, 0)
    assert "v = s[b][t] + 1" in lines[finding.other_line - 1]
    assert "writes shared memory of block (1, 0, 0) at offset 0 (in `s`), which that block reads" in finding.message
    assert "cluster.sync()" in finding.advice


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (
            "if (tile >= 2) wait(at(&empty[s]), (tile / 2 & 1) ^ 1);",
            "",
            "of block (0, 0, 0) at offset 2048 (in `As`), which that block reads",
        ),
        (
            "if (t < 2) arrive(in_block(at(&empty[s]), t));",
            "if (t < 2) arrive(in_block(at(&empty[s]), rank));",
            "of block (0, 0, 0) at offset 2048 (in `As`), which that block reads",
        ),
        ("cluster.sync();  // first", "__syncthreads();", "which may not have begun to run"),
    ],
    ids=["nobody_waits", "only_for_itself", "no_first_sync"],
)
def test_a_multicast_meets_what_the_other_block_does(right, wrong, message):
    assert right in MULTICAST
    source = MULTICAST.replace(right, wrong)
    copy = next(n for n, text in enumerate(source.split("\n"), 1) if "multicast::cluster" in text)
    case = NAMED["multicast"]
    run = kernel.compile(source).launch(case.grid, case.block, case.arguments(), on="cpu")
    races = [finding.message for finding in run.findings if finding.kind == "race" and finding.line in (copy, copy + 1)]
    assert any(message in text for text in races), races


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("", "", ""),
        (GIVE_BACK, '"r"(rank) : "memory"', "writes shared memory of block (0, 0, 0) at offset 9216 (in `memory`), which that block reads"),
        (LAST_SYNC, "", "nothing keeps that block from ending before"),
        ("barrier.cluster.arrive.relaxed.aligned;", "barrier.sync 0;", "without having arrived"),
    ],
    ids=["right", "stage_given_back_to_itself", "no_last_sync", "no_arrival"],
)
def test_a_product_with_producers_consumers_and_multicast(right, wrong, message):
    source = warp_specialized()
    assert right in source
    args, product = warp_specialized_arguments(128, 256, 512)
    run = kernel.compile(source.replace(right, wrong) if right else source, arch="sm_90a").launch(
        (2, 1), 384, args, shared=3 * 32768, on="cpu", counters=False
    )
    assert np.allclose(args[-1], product, atol=1e-4)
    assert any(message in finding.message for finding in run.findings) if message else not run.findings


def test_an_mbarrier_of_another_block_that_never_completes():
    case = NAMED["ring"]
    source = RING.replace("arrive(in_block(at(&empty[b]), before));", "if (t) arrive(in_block(at(&empty[b]), before));")
    with pytest.raises(RunError, match="never completed"):
        kernel.compile(source).launch(case.grid, case.block, case.arguments(), on="cpu")


def test_an_instruction_for_ones_own_block_does_not_reach_another():
    case = NAMED["by_name"]
    source = BY_NAME.replace("st.shared::cluster.u16", "st.shared.u16")
    run = kernel.compile(source).launch(case.grid, case.block, case.arguments(), on="cpu")
    assert any("with an instruction for its own block only: use .shared::cluster" in finding.message for finding in run.findings)


def test_another_blocks_copy_that_nobody_has_waited_for():
    source = """
    #include <cooperative_groups.h>
    extern "C" __global__ void __cluster_dims__(2) early(const float* x, float* y) {
        __shared__ float s[32];
        auto cluster = cooperative_groups::this_cluster();
        int t = threadIdx.x;
        s[t] = 0;
        unsigned to = __cvta_generic_to_shared(s + t);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + t) : "memory");
        cluster.sync();
        y[blockIdx.x * 32 + t] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[t];
        asm volatile("cp.async.wait_all;" ::: "memory");
        cluster.sync();
    }"""
    run = kernel.compile(source).launch(2, 32, [np.ones(32, np.float32), np.zeros(64, np.float32)], on="cpu")
    assert [(finding.kind, finding.line, finding.other_line) for finding in run.findings] == [("missing-wait", 11, 9)]


def test_waiting_for_a_cluster_that_waits_elsewhere():
    source = """
    #include <cooperative_groups.h>
    extern "C" __global__ void __cluster_dims__(2) stuck(int* y) {
        auto cluster = cooperative_groups::this_cluster();
        if (threadIdx.x < 32) cluster.sync();
        else asm volatile("bar.sync 1, 64;");
        y[threadIdx.x] = 1;
    }"""
    with pytest.raises(RunError, match="wait at the cluster's barrier, which other threads of the cluster never reach") as error:
        kernel.compile(source).launch(2, 64, [np.zeros(64, np.int32)], on="cpu")
    assert {finding.kind for finding in error.value.findings} == {"divergent-barrier"}


def test_only_the_blocks_of_one_cluster_are_compared():
    """Collect(findings=False) leaves the shadow out; results are the same."""
    case = NAMED["ring"]
    args = case.arguments()
    simulate(kernel.compile(case.source).compiled, (8, 1, 1), (64, 1, 1), args, collect=Collect(counters=False, findings=False))
    case.check(case.arguments(), args)


def test_some_blocks_of_a_cluster_may_end_before_the_others_have_an_mbarrier():
    """The kernel itself knows of no cluster: the launch asks for one."""
    source = """#include <cuda/ptx>
    __global__ void k(float* a) {
        __shared__ uint64_t bar;
        if (blockIdx.x % 2) return;
        if (threadIdx.x == 0) cuda::ptx::mbarrier_init(&bar, 1);
        a[blockIdx.x * 32 + threadIdx.x] = 1;
    }"""
    for blocks in (None, 2, 4):
        array = np.zeros(4 * 32, np.float32)
        run = kernel.compile(source, arch="sm_90").launch(4, 32, [array], on="cpu", cluster=blocks)
        assert not run.findings and np.array_equal(array.reshape(4, 32).any(axis=1), [True, False, True, False])
