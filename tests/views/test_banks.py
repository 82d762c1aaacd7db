"""Towers over the banks: their heights are the wavefronts that the accounting charges, for every kind of access."""

import numpy as np
import pytest

import helpers
from helpers.sim.code.sites import CostRule
from helpers.sim.counting import rules
from helpers.sim.counting.phases import split
from helpers.views import banks
from helpers.views.banks import shared_access
from tests.views.view_builders import one_load

LANES = np.arange(32)


def shared(addresses, width=4, **options):
    return one_load(addresses, width, space="shared", shape=(32, 32), **options)


@pytest.mark.parametrize(
    "addresses, width, wavefronts, conflicts",
    [
        (4 * LANES, 4, 1, 0),  # unit stride
        (0 * LANES, 4, 1, 0),  # broadcast
        (128 * LANES, 4, 32, 31),  # a column of a 32-wide tile
        (132 * LANES, 4, 1, 0),  # its padded cure
        (128 * LANES + 4 * (LANES ^ 5), 4, 1, 0),  # the XOR swizzle
        (8 * LANES, 4, 2, 1),
        (2 * LANES, 2, 1, 0),  # two halves share a word
        (8 * LANES, 8, 2, 0),
        (16 * LANES, 16, 4, 0),
        (64 * LANES, 16, 16, 12),
        (0 * LANES, 16, 2, 0),  # uniform 128-bit: phases merge
    ],
)
def test_wavefronts_and_conflicts(addresses, width, wavefronts, conflicts):
    seen = shared_access(shared(addresses, width))
    assert (seen.wavefronts, seen.conflicts) == (wavefronts, conflicts)
    assert sum(phase.wavefronts for phase in seen.phases) == wavefronts


def test_a_wide_load_counted_word_by_word():
    spread = 32 * LANES  # eight floats apart, as in step 05
    spread[3] = -1
    single = shared_access(shared(spread, 16)).in_words()
    assert [phase.wavefronts for phase in single] == 4 * [8]
    assert all(3 not in box.lanes for phase in single for box in phase.boxes)


@pytest.mark.parametrize("rule", [CostRule.SHARED_LOAD, CostRule.SHARED_STORE, CostRule.SHARED_ATOMIC])
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_towers_agree_with_the_accounting_on_random_accesses(width, rule):
    random = np.random.default_rng(width)
    for spread in (4, 40, 400):
        for _ in range(30):
            addresses = width * random.integers(0, spread, 32)
            if random.random() < 0.3:
                addresses = np.repeat(addresses[::2], 2)  # lanes pair up
            addresses[random.random(32) < 0.2] = -1
            expected = rules.cost(rule, addresses[None], addresses[None] >= 0, width).wavefronts
            phases = split(addresses, width, rule)
            assert sum(phase.wavefronts for phase in phases) == expected[0]
            assert sorted(lane for phase in phases for box in phase.boxes for lane in box.lanes) == list(np.flatnonzero(addresses >= 0))


def test_the_picture_says_it(said):
    worst = banks(shared(128 * LANES))
    assert "32 wavefronts for one load of As" in said(worst) and "31 conflicts; 1 wavefront would be enough" in said(worst)
    assert "As[0, 0] and As[1, 0] are both in bank 0" in said(worst)
    assert "no conflict" in said(banks(shared(132 * LANES)))
    merged = banks(shared(0 * LANES, 16))
    assert "lanes 0–15\nmerged" in said(merged) and "phases merge" in merged.alt


def test_the_colours_are_named_and_few_boxes_make_a_low_picture():
    def named(ax):
        return [text.get_text() for text in ax.get_legend().get_texts()]

    free, crowded = banks(shared(132 * LANES)), banks(shared(128 * LANES))
    assert named(free) == ["a word that is read"] and named(crowded) == [
        "a word that is read", "another word of the same bank: one more wavefront",
    ]  # fmt: skip
    assert free.figure.get_figheight() < 3.5 < 6 < crowded.figure.get_figheight()
    for ax in (free, crowded):
        ax.figure.canvas.draw()
        legend = ax.get_legend().get_window_extent()
        assert legend.y0 >= 0 and not [text.get_text() for text in ax.texts if text.get_window_extent().overlaps(legend)]


def test_ldmatrix_is_shown_by_its_row_addresses():
    plain = shared_access(shared(128 * LANES, 16, op="ldmatrix"))  # 8 rows of a 64-half-wide tile: same banks
    assert (plain.wavefronts, plain.conflicts, len(plain.phases)) == (32, 28, 4)
    padded = shared_access(shared(144 * LANES, 16, op="ldmatrix"))
    assert (padded.wavefronts, padded.conflicts) == (4, 0)


def test_no_shared_memory_is_explained(said):
    assert "no access to shared memory" in said(banks(one_load(4 * LANES)))


def test_a_kernel_of_one_thread(said):
    assert "1 wavefront " in said(banks(shared(np.where(LANES == 0, 8, -1))))


COPIES = """
extern "C" __global__ void k(const float* A, float* C) {{
    __shared__ float tile[32 * 36];
    const unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x * {apart}]);
    asm volatile("cp.async.{cache}.shared.global [%0], [%1], {bytes};" :: "r"(to), "l"(A + threadIdx.x * {from_apart}));
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    C[threadIdx.x] = tile[threadIdx.x];
}}"""


def copies(**options):
    kernel = helpers.compile("\n" + COPIES.format(**options))
    return kernel.launch(1, 32, [np.zeros(2048, np.float32), np.zeros(32, np.float32)], on="cpu", trace=True)


@pytest.mark.parametrize(
    "apart, from_apart, wavefronts, crowded_cache",
    [(1, 1, 1, False), (32, 1, 32, False), (33, 1, 1, False), (1, 32, 32, True), (32, 32, 32, False)],
)
def test_an_asynchronous_copy_is_shown_where_it_writes(apart, from_apart, wavefronts, crowded_cache):
    run = copies(apart=apart, from_apart=from_apart, cache="ca", bytes=4)
    seen = shared_access(run)
    assert seen.place.what == "copy to tile" and seen.wavefronts == wavefronts
    assert max(phase.wavefronts for phase in seen.phases) == (32 if apart == 32 else 1)
    assert ("cache" in seen.note) == crowded_cache


def test_copies_past_the_first_cache_say_what_is_not_known(said):
    picture = banks(copies(apart=36, from_apart=4, cache="cg", bytes=16))
    assert "4 wavefronts for one 128-bit copy to tile" in said(picture) and "not settled" in picture.alt
