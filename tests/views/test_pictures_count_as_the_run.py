"""The numbers of the pictures are those of the run: over all accesses of a launch they add up to its counters, line by line.

Tests of: helpers.sim.counting.phases, helpers.sim.counting.traced
"""

from collections import defaultdict

import numpy as np
import pytest

import helpers
from helpers.course.exercises import exercises
from helpers.course.steps import STEPS
from helpers.errors import plural
from helpers.run import gemm
from helpers.run.kernel import Kernel
from helpers.sim import TraceFilter
from helpers.sim.code.sites import AccessKind, CostRule
from helpers.sim.counting import names, rules
from helpers.sim.counting.traced import other_sides
from helpers.views import banks, coalescing
from helpers.views.banks import access_at as shared_access_at
from helpers.views.coalescing import access_at as global_access_at
from helpers.views.places import Moment, places
from tests import ROOT
from tests.sim.bug_corpus import corpus

COUNTED_AS = {AccessKind.COPY: "ld", AccessKind.MATRIX_LOAD: "ld", AccessKind.MATRIX_STORE: "st"}
EVERYTHING = TraceFilter(limit=2_000_000)


def moments(trace, place):
    """(one recorded execution, how many there are like it), for each different one."""
    for site in place.sites:
        rows = np.flatnonzero(trace.accesses["site"] == site)
        if not len(rows):
            continue
        seen = trace.addresses[rows]
        if place.op is AccessKind.COPY:  # what it costs depends on its other side, too
            other = other_sides(trace, rows)
            seen = np.concatenate([seen, np.where(other[:, None] >= 0, trace.addresses[other], -1)], axis=1)
        _, first, counts = np.unique(seen, axis=0, return_index=True, return_counts=True)
        for row, count in zip(rows[first].tolist(), counts.tolist(), strict=True):
            event = trace.accesses[row]
            yield Moment(int(event["block"]), int(event["warp"]), int(event["iteration"]), 1, row, (0, 0), (0, 0)), count


def drawn(run) -> dict[int, dict[str, int]]:
    """What the pictures of every recorded access say, added up per line under the counters' names."""
    trace, found = run.trace, defaultdict(lambda: defaultdict(int))
    assert not trace.truncated
    for place in places(trace, space="global"):
        line, op = found[place.line], COUNTED_AS.get(place.op, place.op)
        if op == "atom" and place.sass.startswith("RED"):
            op = "red"
        for when, count in moments(trace, place):
            seen = global_access_at(trace, place, when)
            line[names.requests("global", op)] += count * bool(seen.active)
            line[names.sectors("global", op)] += count * seen.charged
            line[names.ideal_sectors("global", op)] += count * seen.ideal
    for place in places(trace, space="shared"):
        line, op = found[place.line], COUNTED_AS.get(place.op, place.op)
        if trace.sites[place.index].rule is CostRule.NONE:  # copies past the cache are drawn, and not charged
            continue
        for when, count in moments(trace, place):
            seen = shared_access_at(trace, place, when)
            line[names.SHARED_WAVEFRONTS_OF_ALL] += count * seen.wavefronts
            line[names.SHARED_WAVEFRONTS_OF_ALL_IDEAL] += count * seen.ideal
            if place.op is AccessKind.COPY:
                continue
            line[names.shared_wavefronts(op)] += count * seen.wavefronts
            line[names.shared_conflicts(op)] += count * seen.conflicts
    return {line: {name: value for name, value in values.items() if value} for line, values in found.items()}


def counted(run) -> dict[int, dict[str, int]]:
    """The counters that these pictures are about, per line: not instructions, which count with all lanes off, too."""
    wanted = {names.SHARED_WAVEFRONTS_OF_ALL, names.SHARED_WAVEFRONTS_OF_ALL_IDEAL}
    for op in ("ld", "st", "atom", "red"):
        wanted |= {kind("global", op) for kind in (names.requests, names.sectors, names.ideal_sectors)}
        wanted |= {names.shared_wavefronts(op), names.shared_conflicts(op)}
    return {line: {name: value for name, value in values.items() if value and name in wanted} for line, values in run.by_line.items()}


def differences(run) -> list[str]:
    """Where pictures and counters disagree, but for lines of which the pictures say that they are drawn as the PTX has them, and counters
    that are unknown, such as how often an atomic operation is tried: drawn is what this run did."""
    pictures, counters = drawn(run), counted(run)
    for line in {site.line for site in run.trace.sites if site.estimate}:
        pictures.pop(line, None), counters.pop(line, None)
    for line in {move.line for move in run.trace.moves if move.kind in ("A", "B")}:  # drawn by `swizzled_tile`: no thread reads there
        for name in (names.SHARED_WAVEFRONTS_OF_ALL, names.SHARED_WAVEFRONTS_OF_ALL_IDEAL):
            counters.get(line, {}).pop(name, None)
    return [
        f"line {line}, {name}: drawn {pictures.get(line, {}).get(name, 0)}, counted {counters.get(line, {}).get(name, 0)}"
        for line in sorted({*pictures, *counters})
        for name in sorted({*pictures.get(line, {}), *counters.get(line, {})} - run.outcome.unknown)
        if pictures.get(line, {}).get(name, 0) != counters.get(line, {}).get(name, 0)
    ]


def of_one_tile(kernel, less: int = 0):
    """A launch of one block; `less`: rows and columns that the matrix lacks for a whole tile."""
    rows, columns = kernel.compiled.constants["tile_shape"]
    return gemm.run(kernel, gemm.problem_for(kernel, rows - less, columns - less, 24, beta=1.0), on="cpu", trace=EVERYTHING)


@pytest.mark.slow
@pytest.mark.parametrize("step", [step for step in STEPS if step.kernel_path is not None], ids=lambda step: step.slug)
def test_of_the_kernels_of_the_course(step):
    source = "\n" + step.kernel_path.read_text(encoding="utf-8")
    run = of_one_tile(helpers.compile(source, step.entry))
    assert len(run.trace.accesses) > 100 and differences(run) == []


@pytest.mark.parametrize("item", [item for item in exercises().values() if item.language == "cu"], ids=lambda item: item.slug)
def test_of_the_exercises(item):
    assert differences(of_one_tile(helpers.compile(item.solution), less=3)) == []


@pytest.mark.parametrize("case", corpus(ROOT / "tests/sim/correct"), ids=lambda case: case.name)
def test_of_kernels_of_other_shapes(case):
    kernel, launch = Kernel(case.compiled()), case.launch
    run = kernel.launch(launch.grid, launch.block, launch.arguments(), launch.shared, on="cpu", trace=EVERYTHING)
    assert differences(run) == []


ACCESSES = """
#include <mma.h>
template <int BYTES> __device__ void copy(void* to, const void* from, bool some) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(at), "l"(from), "r"(some ? 16 : 0));
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" :: "r"(at), "l"(from), "n"(BYTES), "r"(some ? BYTES : 0));
}
extern "C" __global__ void accesses(float* A, half* H, int* counts, int n) {
    __shared__ alignas(128) float tile[4096];
    __shared__ int bins[32];
    const int t = threadIdx.x, lane = t % 32;
    bins[lane] = 0;
    for (int i = t; i < 4096; i += blockDim.x) tile[i] = A[i];
    __syncthreads();
    tile[t * 32] += tile[t * 33];
    __syncthreads();
    float4 wide = reinterpret_cast<float4*>(tile)[lane * n];
    reinterpret_cast<float4*>(A)[t] = wide;
    float2 pair = reinterpret_cast<float2*>(tile)[lane / 2 * n];
    reinterpret_cast<float2*>(A)[t * n] = pair;
    A[t] = tile[4 * t + 1] + tile[4 * t + 2] + tile[4 * t] + tile[4 * t + 3];
    if (t % 3) atomicAdd(&counts[t % 5], 1);
    atomicAdd(&bins[t % 7], t);
    atomicAdd(&bins[t % 5], 1);
    counts[8 + t] = atomicAdd(&counts[t / 8], 2);
    float* either = n > 99 ? A : tile;
    either[t * n] += 1;
    reinterpret_cast<half*>(tile)[t] = H[t * n];
    __syncthreads();
    copy<4>(&tile[t * 3], &A[t * n], t % 4 != 0);
    copy<8>(&tile[1024 + t * 2], &A[t * 2 * n], true);
    copy<16>(&tile[2048 + t * 4], &A[(t ^ 3) * 4], t % 5 != 0);
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, half, nvcuda::wmma::row_major> a;
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, half, nvcuda::wmma::col_major> b;
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> c;
    nvcuda::wmma::fill_fragment(c, 0.0f);
    nvcuda::wmma::load_matrix_sync(a, reinterpret_cast<half*>(tile), 64);
    nvcuda::wmma::load_matrix_sync(b, reinterpret_cast<half*>(tile) + 2048, 24);
    nvcuda::wmma::mma_sync(c, a, b, c);
    nvcuda::wmma::store_matrix_sync(A + 2048, c, 16, nvcuda::wmma::mem_row_major);
    unsigned r0, r1, r2, r3;
    const unsigned at = (unsigned)__cvta_generic_to_shared(&tile[lane % 8 * 32 + lane / 8 * 4]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(at));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r2), "=r"(r3) : "r"(at));
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" :: "r"(at), "r"(r0 + r2), "r"(r1 + r3));
    __syncthreads();
    A[4096 + t] = tile[t];
}"""


def launch_accesses():
    arrays = [np.zeros(8192, np.float32), np.zeros(1024, np.float16), np.zeros(256, np.int32)]
    run = helpers.compile("\n" + ACCESSES).launch(1, 64, [*arrays, 3], on="cpu", trace=EVERYTHING)
    assert {site.rule for site in run.trace.sites} >= set(CostRule) - {CostRule.WARPGROUP, CostRule.LOCAL}
    return run


def test_of_every_kind_of_access():
    assert differences(launch_accesses()) == []


@pytest.mark.parametrize("rule", sorted(set(CostRule) - {CostRule.WARPGROUP, CostRule.LOCAL, CostRule.NONE}))
def test_a_picture_with_a_rule_of_its_own_is_found_out(rule, monkeypatch):
    run = launch_accesses()
    price = rules._RULES[rule]
    monkeypatch.setitem(
        rules._RULES,
        rule,
        lambda *access: price(*access)._replace(sectors=price(*access).sectors + 1, wavefronts=price(*access).wavefronts + 1),
    )
    assert differences(run)


def test_the_pictures_say_these_numbers(said):
    run = launch_accesses()
    for picture, space, access_at in ((coalescing, "global", global_access_at), (banks, "shared", shared_access_at)):
        for place in places(run.trace, space=space)[::4]:
            when, _ = next(moments(run.trace, place))
            seen = access_at(run.trace, place, when)
            number = plural(seen.charged, "sector") if space == "global" else plural(seen.wavefronts, "wavefront")
            shown = said(picture(run, site=place.index, block=when.block, warp=when.warp))
            assert f"{number} for one {place.what}" in shown


def test_what_is_drawn_as_the_ptx_has_it_says_so(said):
    kernel = helpers.compile(exercises()["row_for_column"].solution)
    run = of_one_tile(kernel, less=3)
    guessed = [place for place in places(run.trace, space="shared") if run.trace.sites[place.index].estimate]
    shown = [" ".join(said(banks(run, site=place.index)).split()) for place in guessed]
    assert shown and all("as the PTX has it: ptxas" in text for text in shown)
