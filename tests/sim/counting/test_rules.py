"""The accounting against a slow, literal reading of the same rules, and against figures known from hardware."""

import numpy as np
import pytest

from helpers.sim.counting import rules

LANES = np.arange(32)


def literal_sectors(addresses, active, width):
    return len({a // 32 for a, on in zip(addresses, active, strict=True) if on})


def literal_wavefronts(addresses, active, width, op):
    """(wavefronts, ideal) of one warp, lane by lane."""

    def worst(lanes):
        words = {(a + 4 * k) // 4 for a in (addresses[n] for n in lanes if active[n]) for k in range(max(1, width // 4))}
        per_bank = [0] * 32
        for word in words:
            per_bank[word % 32] += 1
        return max(per_bank)

    def paired(lanes, step):
        return all(not active[n] or not active[n ^ step] or addresses[n] == addresses[n ^ step] for n in lanes)

    lanes = list(range(32))
    size = 32 if width <= 4 else 128 // width
    if op == "ld" and width > 4 and (paired(lanes, 1) or paired(lanes, 2)):
        size *= 2
    phases = [lanes[k : k + size] for k in range(0, 32, size)]
    costs = [worst(p) for p in phases]
    return sum(costs), sum(c > 0 for c in costs)


def patterns(rng, width):
    """Warp accesses of many kinds, aligned to their width."""
    yield LANES * width
    yield LANES * 0 + 64
    yield LANES * width + 16
    for stride in (2, 3, 4, 8, 16, 31, 32, 33):
        yield LANES * width * stride
    for step in (1, 2, 4, 8, 16):
        yield (LANES & ~step) * width
    yield (LANES ^ 5) * width
    yield rng.permutation(32) * width
    for _ in range(20):
        yield rng.integers(0, 64, 32) * width
        yield np.repeat(rng.integers(0, 64, 16), 2) * width
        yield np.tile(rng.integers(0, 64, 4), 8) * width


def masks(rng):
    yield np.ones(32, bool)
    yield LANES < 16
    yield LANES >= 24
    yield LANES % 2 == 0
    yield LANES == 7
    yield np.zeros(32, bool)
    yield rng.random(32) < 0.5


@pytest.mark.parametrize("width", rules.WIDTHS)
def test_per_warp_results_equal_the_literal_rules(width):
    rng = np.random.default_rng(width)
    cases = [(a, m) for a in patterns(rng, width) for m in masks(rng)]
    addresses, active = np.array([a for a, _ in cases]), np.array([m for _, m in cases])
    requests, sectors, ideal = rules.global_access(addresses, active, width)
    shared = {op: rules.shared_access(addresses, active, width, op) for op in ("ld", "st")}
    for i, (a, m) in enumerate(cases):
        assert requests[i] == m.any()
        assert sectors[i] == literal_sectors(a, m, width)
        assert ideal[i] == min(sectors[i], -(-m.sum() * width // 32))
        for op, (wavefronts, shared_ideal) in shared.items():
            assert (wavefronts[i], shared_ideal[i]) == literal_wavefronts(a, m, width, op), (op, a, m)


@pytest.mark.parametrize(
    ("width", "addresses", "wavefronts", "ideal"),
    [
        (4, LANES * 4, 1, 1),
        (4, LANES * 128, 32, 1),
        (4, LANES * 132, 1, 1),
        (4, LANES * 8, 2, 1),
        (4, LANES * 0, 1, 1),
        (8, LANES * 8, 2, 2),
        (8, LANES * 0, 1, 1),
        (16, LANES * 16, 4, 4),
        (16, LANES * 0, 2, 2),  # an A6000 report and the H200 table agree: 2, not 4
        (16, LANES % 16 * 32, 8, 4),  # the B operand of an 8 x 8 register tile
        (16, LANES // 16 * 32, 2, 2),  # its A operand
    ],
)
def test_shared_wavefronts_of_known_patterns(width, addresses, wavefronts, ideal):
    got = rules.shared_access(addresses[None], None, width)
    assert (got[0][0], got[1][0]) == (wavefronts, ideal)


def test_a_wide_store_never_merges():
    assert [int(x[0]) for x in rules.shared_access(LANES[None] * 0, None, 16, "st")] == [4, 4]
    assert [int(x[0]) for x in rules.shared_access(LANES[None] * 0, None, 8, "st")] == [2, 2]


def test_wide_global_loads_take_more_sectors_not_more_requests():
    for width, sectors in ((4, 4), (8, 8), (16, 16)):
        assert [int(x[0]) for x in rules.global_access(LANES[None] * width, None, width)] == [1, sectors, sectors]


def test_ldmatrix_counts_a_phase_per_matrix_and_conflicts_between_its_rows():
    packed = LANES[None] * 16
    assert [int(x[0]) for x in rules.ldmatrix_access(packed, None, 4)] == [4, 4]
    assert [int(x[0]) for x in rules.ldmatrix_access(packed, None, 1)] == [1, 1]
    rows_in_one_bank = LANES[None] * 128
    assert [int(x[0]) for x in rules.ldmatrix_access(rows_in_one_bank, None, 4)] == [32, 4]


def test_local_memory_interleaves_threads():
    same = np.full((1, 32), 8)
    assert [int(x[0]) for x in rules.local_access(same, None, 4)] == [1, 4, 4]
    assert [int(x[0]) for x in rules.local_access(same, None, 16)] == [4, 16, 16]
    apart = LANES[None] * 4
    assert [int(x[0]) for x in rules.local_access(apart, None, 4)] == [1, 32, 4]


def full(array, blocks, threads):
    """[warps, 32] with idle lanes at the end of each block, and the mask."""
    padded = -(-threads // 32) * 32
    out = np.zeros((blocks, padded), np.asarray(array).dtype)
    out[:, :threads] = array
    return out.reshape(-1, 32)


@pytest.mark.parametrize("width", rules.WIDTHS)
@pytest.mark.parametrize("threads", [32, 100, 128, 256])
def test_totals_equal_the_sum_over_warps_for_every_kind_of_broadcast(width, threads):
    rng = np.random.default_rng(threads)
    blocks = 6
    block, thread = np.arange(blocks)[:, None], np.arange(threads)[None]
    addresses = {
        "affine": (block * threads + thread) * width,
        "affine, other sector": (block * 3 + thread) * width,
        "swizzled": (thread ^ (block & 7)) * width,
        "random": rng.integers(0, 300, (blocks, threads)) * width,
        "per block": block * width,
        "per thread": thread * width * 5,
        "one": np.array(width * 4),
        "32-bit": ((block * threads + thread) * width).astype(np.int32),
    }
    active = {
        "all": None,
        "one True": np.array(True),
        "none": np.array(False),
        "some threads": thread < threads - 3,
        "some blocks": block % 2 == 0,
        "mixed": rng.random((blocks, threads)) < 0.7,
        "whole warps": np.broadcast_to(thread // 32 % 2 == 0, (blocks, threads)),
    }
    for what, a in addresses.items():
        for which, m in active.items():
            rows = full(a, blocks, threads)
            mask = full(True if m is None else m, blocks, threads).astype(bool)
            where = (what, which)
            expected = tuple(int(x.sum()) for x in rules.global_access(rows, mask, width))
            assert rules.count_global(a, m, width, blocks, threads) == expected, where
            expected = tuple(int(x.sum()) for x in rules.atomic_access(rows, mask, width))
            assert rules.count_atomic(a, m, width, blocks, threads) == expected, where
            expected = tuple(int(x.sum()) for x in rules.local_access(rows, mask, width))
            assert rules.count_local(a, m, width, blocks, threads) == expected, where
            for op in ("ld", "st", "atom"):
                wavefronts, ideal = rules.shared_access(rows, mask, width, op)
                expected = (int(mask.any(axis=1).sum()), int(wavefronts.sum()), int(ideal.sum()))
                assert rules.count_shared(a, m, width, blocks, threads, op) == expected, where
            for matrices in (1, 2, 4):
                wavefronts, ideal = rules.ldmatrix_access(rows, mask, matrices)
                expected = (int(mask.any(axis=1).sum()), int(wavefronts.sum()), int(ideal.sum()))
                assert rules.count_ldmatrix(a, m, matrices, blocks, threads) == expected, where


@pytest.mark.parametrize("width", (4, 8, 16))
def test_copies_cost_the_larger_crowd_at_a_bank(width):
    rng = np.random.default_rng(width)
    for _ in range(30):
        sources, targets = (rng.integers(0, 64, (3, 64)) * width for _ in range(2))
        active = rng.random((3, 64)) < 0.8
        wavefronts = ideal = 0
        for a, b, on in zip(sources.reshape(-1, 32), targets.reshape(-1, 32), active.reshape(-1, 32), strict=True):
            for begin in range(0, 32, 128 // width):
                lanes = [n for n in range(begin, begin + 128 // width) if on[n]]
                crowds = [sum(side[n] // 4 % 32 == bank for n in lanes) for side in (a, b) for bank in range(0, 32, width // 4)]
                wavefronts += max(crowds)
                ideal += bool(lanes)
        got = rules.count_copy(sources, targets, active, width, 3, 64)
        assert got[1:] == (wavefronts, ideal)
        assert rules.count_copy(sources[:1], targets[:1], active[:1], width, 6, 64)[1] % 6 == 0


def test_atomics_take_a_pass_for_every_repetition_of_an_address():
    assert [int(x[0]) for x in rules.atomic_access(LANES[None] * 4, None, 4)] == [1, 4, 4]
    assert [int(x[0]) for x in rules.atomic_access(LANES[None] * 0, None, 4)] == [1, 32, 1]
    assert [int(x[0]) for x in rules.atomic_access(LANES[None] % 8 * 4, None, 4)] == [1, 4, 1]
    assert [int(x[0]) for x in rules.shared_access(LANES[None] % 8 * 4, None, 4, "atom")] == [4, 1]


def test_an_empty_chunk_costs_nothing():
    assert rules.count_global(np.zeros((1, 1), np.int64), None, 4, 0, 32) == (0, 0, 0)
    assert rules.count_shared(np.zeros((1, 1), np.int64), None, 4, 0, 32) == (0, 0, 0)


def test_a_width_that_no_instruction_has_is_refused():
    with pytest.raises(ValueError, match="1, 2, 4, 8, 16 or 32"):
        rules.count_global(np.zeros((1, 32), np.int64), None, 12, 1, 32)
    with pytest.raises(ValueError, match="1, 2 or 4"):
        rules.ldmatrix_access(np.zeros((1, 32), np.int64), None, 3)
