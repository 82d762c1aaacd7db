"""What a whole warp does together, done in two places or by a part of it."""

from __future__ import annotations

import numpy as np
import pytest

import helpers

KERNEL = """extern "C" __global__ void f(const int* x, int* y) {
    int t = threadIdx.x, lane = t % 32, v = x[t];
    __shared__ int s[64];
    s[t] = 0;
    __syncthreads();
    BODY
    y[t] = v;
}"""
TWICE = "if (lane < 16) {\n v = FIRST; y[64 + t] = 1; } else {\n v = SECOND; y[128 + t] = 2; }"


def findings(body: str) -> list:
    x, y = np.arange(64, dtype=np.int32), np.zeros(192, np.int32)
    return helpers.compile(KERNEL.replace("BODY", body)).launch(1, 64, (x, y), on="cpu", counters=False).findings


CALLS = {
    "vote": "__ballot_sync(MASK, v & 1)", "reduction": "__reduce_add_sync(MASK, v)", "match": "__match_any_sync(MASK, v)",
    "shuffle": "__shfl_up_sync(MASK, v, 1, 16)",
}  # fmt: skip


@pytest.mark.parametrize("what", CALLS)
def test_a_mask_that_names_lanes_at_another_instruction(what):
    other = next(call for name, call in CALLS.items() if name != what)
    (first, *_) = findings(TWICE.replace("FIRST", CALLS[what]).replace("SECOND", other).replace("MASK", "~0u"))
    assert (first.kind, first.line) == ("divergent-barrier", 7)
    assert f"{what} names lanes that are at another place at line 8" in first.message
    halves = TWICE.replace("FIRST", CALLS[what]).replace("SECOND", other)
    assert not findings(halves.replace("MASK", "lane < 16 ? 0xffffu : 0xffff0000u"))


@pytest.mark.parametrize(
    "body",
    [
        "if (lane < 16) { s[t] = v; __syncwarp(); } else { s[t] = v + 1; __syncwarp(); } v = s[t ^ 16];",  # may be called at several places
        "if (lane < 16) v = -v; v = __ballot_sync(~0u, v > 0); if (lane < 16) v = -v;",
        "for (int i = 0; i < lane % 4; i++) v += i; v = __reduce_add_sync(~0u, v);",
        "if (lane < 16) { for (int i = 0; i < 3; i++) v += __shfl_xor_sync(0xffffu, v, 1); } else v = __ballot_sync(0xffff0000u, v & 1);",
        "if (t < 32) v = __ballot_sync(~0u, v & 1); else v = __ballot_sync(~0u, v & 2);",  # whole warps
        "if (lane == 31) { y[t] = 0; return; } v = __ballot_sync(0x7fffffffu, v & 1);",
        *(TWICE.replace("FIRST", call).replace("SECOND", call.replace("v", "-v")).replace("MASK", "~0u") for call in CALLS.values()),
    ],
)
def test_what_warps_may_do_at_several_places(body):
    assert not findings(body)


@pytest.mark.parametrize(
    "body", ["if (lane % 2 == 0) v = __shfl_xor_sync(~0u, v, 2);", "if (lane % 2 == 0) v = __ballot_sync(~0u, v & 1);"]
)
def test_a_branch_that_lanes_skip_is_named_where_a_mask_names_them(body):
    (finding,) = findings(body)
    assert "names lanes that never come" in finding.message and "in an `if` or a loop that some lanes skip, take it out" in finding.advice


HALF = 'if (lane % 2) asm volatile("SYNC 1, 32;" ::: "memory"); else\nasm volatile("SYNC 2, 32;" ::: "memory");'


@pytest.mark.parametrize("sync, told", [("bar.sync", True), ("barrier.sync.aligned", True), ("barrier.sync", False)])
def test_a_part_of_a_warp_at_a_barrier_of_whole_warps(sync, told):
    found = findings(HALF.replace("SYNC", sync))
    assert sorted((one.kind, one.line) for one in found) == [("divergent-barrier", 6), ("divergent-barrier", 7)] * told
    assert all("16 threads of a warp" in one.message and "barrier.sync" in one.advice for one in found)


@pytest.mark.parametrize(
    "body",
    [
        'if (t < 32) asm volatile("bar.sync 1, 32;" ::: "memory"); else asm volatile("bar.sync 2, 32;" ::: "memory");',
        'if (t < 32) { s[t] = v; asm volatile("bar.arrive 1, 64;" ::: "memory"); } else { asm volatile("bar.sync 1, 64;" ::: "memory"); v = s[t - 32]; }',
        'for (int i = 0; i < lane; i++) v += s[i]; asm volatile("bar.sync 1, 64;" ::: "memory");',
    ],
)
def test_whole_warps_at_a_barrier(body):
    assert not findings(body)


def test_lanes_of_two_warps_that_come_to_one_barrier():
    """It counts whole warps, so it has let go of one warp before the other has come."""
    (first,) = findings('if (lane < 16) asm volatile("bar.sync 1, 32;" ::: "memory");')
    assert (first.kind, first.line) == ("divergent-barrier", 6)


CLUSTER = """extern "C" __global__ void __cluster_dims__(2) f(int* y) {
    int t = threadIdx.x, lane = t % 32;
#define SYNC(how) asm volatile("barrier.cluster.arrive" how "; barrier.cluster.wait" how ";" ::: "memory");
    BODY
    y[t] = 1;
}"""


@pytest.mark.parametrize(
    "body, told",
    [
        ('if (lane % 2)\nSYNC(".aligned") else\nSYNC(".aligned")', True),
        ('if (lane % 2)\nSYNC("") else\nSYNC("")', False),
        ('if (t < 32)\nSYNC(".aligned") else\nSYNC(".aligned")', False),
        ('for (int i = 0; i < 3; i++) { if (lane > 4) y[t] = i; SYNC(".aligned") }', False),
    ],
)
def test_a_cluster_s_barrier_of_whole_warps(body, told):
    run = helpers.compile(CLUSTER.replace("BODY", body)).launch(4, 64, [np.zeros(64, np.int32)], on="cpu", counters=False)
    found = [one for one in run.findings if one.kind != "race"]
    assert {(one.kind, one.line, one.other_line) for one in found} == ({("divergent-barrier", 5, 6)} if told else set())
    assert all("16 threads of a warp arrive" in one.message for one in found)


@pytest.mark.parametrize(
    "number, count, sentence",
    [
        (17, 64, "from 0 to 15"),
        (-3, 64, "barrier -3, and a block has those from 0 to 15"),
        (16, None, "from 0 to 15"),
        (3, 62, "no multiple of 32"),
    ],
)
def test_a_barrier_that_no_block_has(number, count, sentence):
    call = "bar.sync %0, %1;" if count else "bar.sync %0;"
    source = f"""extern "C" __global__ void f(int number, int count, int* y) {{
        asm volatile("{call}" :: "r"(number), "r"(count) : "memory"); y[threadIdx.x] = 1; }}"""
    with pytest.raises(helpers.RunError, match=sentence) as caught:
        helpers.compile(source).launch(1, 64, [number, count or 0, np.zeros(64, np.int32)], on="cpu")
    assert caught.value.line == 2
