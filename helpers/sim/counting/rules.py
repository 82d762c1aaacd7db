"""What the memory system charges for the accesses of a warp: sectors, wavefronts, bank conflicts.

Everything here is a pure function of addresses, the active mask and the access width; nothing knows the machine.
Widths are those of the SASS instruction that ptxas made (see `code.merged_accesses`), in bytes per lane.

Which rule an access follows is a fact of its site (`code.sites`); what the rule says is here, and nowhere else: the NumPy
machine, native code, the counters of machine code, the pictures and the course's measures all call `cost` or `total`.

Global memory. One warp instruction with an active lane is one *request*, whatever its width. Its *sectors* are the
distinct 32-byte chunks that the active lanes touch. *Ideal* sectors are those of packed lanes, ceil(active lanes x width
/ 32), or the sectors themselves where lanes share data and need fewer. Atomics and reductions take a pass for each
repetition of an address among the lanes, and each pass counts its own sectors.

Local memory interleaves threads: one word of 32 threads is 128 contiguous bytes, and every word is a request.

Shared memory. 32 banks, each 4 bytes wide: bank = (address / 4) % 32. An access of 4 bytes or less is served in one
phase of 32 lanes, 8 bytes in two phases of 16, 16 bytes in four phases of 8. A load takes half as many phases, each of
twice as many lanes, when the lanes of the warp pair up: every active lane n reads the same address as lane n^1 (or
every one as n^2), idle partners counting as equal. That is why a uniform LDS.128 takes 2 wavefronts and not 4. Stores
never merge. In each phase the bank with the most distinct words decides how many *wavefronts* it takes; words read by
several lanes are broadcast. *Ideal* wavefronts are the phases that have an active lane, and *conflicts* = wavefronts -
ideal. Every wavefront and conflict counter of loads measured on an H200 follows these rules (see
tests/sim/counting/test_calibration.py); so do stores of a warp that runs alone, while with many warps the hardware's store
counters also count lost arbitration and vary from run to run (4 to 5 % more wavefronts for a 2-D tiled kernel).
Shared atomics: every lane counts, also those with the same address. Copies from global to shared memory (cp.async.ca)
move each lane's words from a bank of the cache to a bank of shared memory: the larger of the two crowds decides, and
equal addresses do not merge. cp.async.cg bypasses the cache: see `_bypass` for its sectors; its wavefronts in shared
memory follow a rule that is not settled and are not charged.

- `cost`: one result per warp.
- `total`: sums over a chunk of blocks, straight from registers that may be broadcast over blocks or threads. It
  recognises rows that repeat one pattern at different bases, and remembers the answer for each pattern.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from helpers.sim.code.hardware_units import SECTOR_BYTES, WARP
from helpers.sim.code.sites import CostRule

LINE_BYTES = 128
BANKS = 32
WORD_BYTES = 4
WIDTHS = (1, 2, 4, 8, 16, 32)  # 32: global memory, from sm_100 on
TWO_SIDED = (CostRule.COPY, CostRule.COPY_BYPASS)  # what these cost depends on where they write, too


class Cost(NamedTuple):
    """What accesses cost: an int64 array with one number per warp, or their sums as ints.

    requests: warp instructions with an active lane (local memory: one per word). sectors: as the hardware counts them.
    distinct_sectors: 32-byte chunks touched, fewer for atomics and past the cache. Sectors are 0 where an access is charged
    by its wavefronts, and the other way round.
    """

    requests: int
    sectors: int
    distinct_sectors: int
    ideal_sectors: int
    wavefronts: int
    ideal_wavefronts: int

    @property
    def conflicts(self) -> int:
        return self.wavefronts - self.ideal_wavefronts

    @property
    def charged(self) -> tuple[int, int, int]:
        """(requests, sectors or wavefronts, the ideal number of them)."""
        return self.requests, self.sectors + self.wavefronts, self.ideal_sectors + self.ideal_wavefronts


NOTHING = Cost(0, 0, 0, 0, 0, 0)


# --- one result per warp -------------------------------------------------------------------------------------------


def cost(rule: CostRule, addresses, active, width: int, targets=None) -> Cost:
    """What each of W warps' accesses costs.

    addresses: [W, 32] integers, the lowest byte each lane touches: in global or shared memory, or within the thread's own
    local memory. active: [W, 32] bool, or None for all. width: bytes per lane; for MATRIX the number of matrices. targets:
    for copies from global memory, the lanes' bytes in shared memory, [W, 32].
    """
    addresses, active = _as_rows(addresses, active)
    _check(rule, width)
    if rule in TWO_SIDED:
        return _RULES[rule](addresses, active, width, _as_rows(targets, None)[0])
    return _RULES[rule](addresses, active, width)


def warpgroups(times: int, columns: int, sparse: bool, a_in_shared: bool) -> Cost:
    """What `times` wgmma instructions of 64 x `columns` cost: they read B, twice as deep if A is sparse, and A if it is in
    shared memory, in rows of 32 bytes; 128 bytes at a time, and not through the load-store unit."""
    wavefronts = times * ((columns * (2 if sparse else 1) + (64 if a_in_shared else 0)) // 4)
    return Cost(times, 0, 0, 0, wavefronts, wavefronts)


def _through_cache(requests, sectors, distinct, ideal) -> Cost:
    nothing = np.zeros_like(sectors)
    return Cost(requests, sectors, distinct, ideal, nothing, nothing)


def _through_banks(active, wavefronts, ideal) -> Cost:
    nothing = np.zeros_like(wavefronts)
    return Cost(active.any(axis=1).astype(np.int64), nothing, nothing, nothing, wavefronts, ideal)


def _global(addresses, active, width) -> Cost:
    lanes = np.count_nonzero(active, axis=1)
    # An inactive lane repeats the address of an active one, and so adds no sector.
    if not active.all():
        filler = np.take_along_axis(addresses, active.argmax(axis=1)[:, None], axis=1)
        addresses = np.where(active, addresses, filler)
    sectors = addresses // SECTOR_BYTES
    low = sectors.min(initial=0)
    if sectors.max(initial=0) - low < 2**31:
        sectors = (sectors - low).astype(np.int32)  # sorts several times faster
    sectors.sort(axis=1)
    distinct = 1 + np.count_nonzero(sectors[:, 1:] != sectors[:, :-1], axis=1)
    some = lanes > 0
    distinct = np.where(some, distinct, 0)
    return _through_cache(some.astype(np.int64), distinct, distinct, np.minimum(distinct, -(-lanes * width // SECTOR_BYTES)))


def _atomic(addresses, active, width) -> Cost:
    """The k-th lane with the same address belongs to the k-th pass."""
    plain = _global(addresses, active, width)
    order = np.argsort(addresses, axis=1, kind="stable")
    ordered, on = np.take_along_axis(addresses, order, 1), np.take_along_axis(active, order, 1)
    turn = np.cumsum(on, axis=1)
    begins = np.ones(ordered.shape, bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    before = np.maximum.accumulate(np.where(begins, turn - on, 0), axis=1)
    places = np.where(on, (turn - before) << 48 | ordered // SECTOR_BYTES, -1)
    places.sort(axis=1)
    new = places >= 0
    new[:, 1:] &= places[:, 1:] != places[:, :-1]
    return plain._replace(sectors=np.count_nonzero(new, axis=1))


def _local(offsets, active, width) -> Cost:
    """Each lane's word w lies at (w x 32 + lane) x 4 of its warp; an access of several words is a request for each."""
    words = max(1, width // WORD_BYTES)
    sectors = np.zeros(len(offsets), np.int64)
    for k in range(words):
        byte = ((offsets // WORD_BYTES + k) * WARP + np.arange(WARP)) * WORD_BYTES
        sectors += _global(byte, active, WORD_BYTES).sectors
    return _through_cache(active.any(axis=1) * words, sectors, sectors, -(-np.count_nonzero(active, axis=1) * width // SECTOR_BYTES))


def _shared_load(addresses, active, width) -> Cost:
    merged = pairs_up(addresses, active) if width > WORD_BYTES else None
    return _through_banks(active, *_wavefronts(addresses, active, width, merged))


def _shared_store(addresses, active, width) -> Cost:
    return _through_banks(active, *_wavefronts(addresses, active, width, None))


def _shared_atomic(addresses, active, width) -> Cost:
    return _through_banks(active, *_crowds((addresses,), active, width))


def _copy(sources, active, width, targets) -> Cost:
    """The shared-memory side of cp.async.ca; GLOBAL of its sources is the other side."""
    return _through_banks(active, *_crowds((sources, targets), active, width))


def _bypass(sources, active, width, targets) -> Cost:
    """cp.async.cg (16 bytes per lane, past the cache).

    Of lanes that name the same target only one counts: the last for the hardware's sectors, the first for the profiler's
    figures. *Sectors* (hardware): pairs of a 32-byte chunk of shared memory and the 128-byte line that fills it. *Distinct*
    (the profiler's theoretical sectors): what two lanes move as one aligned 32-byte sector on both sides, or one lane alone;
    *ideal*: half as many as there are targets.
    """
    first, last = (_one_per_target(targets, active, latest) for latest in (False, True))
    chunks, halves = targets // SECTOR_BYTES, (targets ^ sources) // 16 & 1
    sectors = _distinct(chunks << 40 | sources // LINE_BYTES, last)
    pieces = _distinct((chunks << 40 | sources // SECTOR_BYTES) << 1 | halves, first)
    return _through_cache(active.any(axis=1).astype(np.int64), sectors, pieces, -(-np.count_nonzero(first, axis=1) // 2))


def _one_per_target(targets, active, latest: bool):
    """[W, 32] bool: of the active lanes with the same target, the latest or the first."""
    order = np.arange(WARP)[::-1] if latest else np.arange(WARP)
    rows = np.where(active, targets, -1 - np.arange(WARP))[:, order]
    same = rows[:, :, None] == rows[:, None, :]
    alone = ~np.tril(same, -1).any(axis=2)
    return alone[:, order] & active


def _distinct(keys, active):
    """[W]: how many different keys the active lanes have."""
    rows = np.sort(np.where(active, keys, -1 - np.arange(WARP)), axis=1)
    return np.count_nonzero((np.diff(rows, axis=1, prepend=-1 - WARP) != 0) & (rows >= 0), axis=1)


def _crowds(sides, active, width):
    """Per phase of 128 bytes, the largest number of lanes at one bank on any side; summed, and the phases with a lane."""
    unit = max(WORD_BYTES, width)
    slots = BANKS * WORD_BYTES // unit
    size = WARP * WORD_BYTES // unit
    on = active.reshape(-1, size)
    row, lane = np.nonzero(on)
    worst = np.zeros(len(on), np.int64)
    for side in sides:
        slot = side.reshape(-1, size)[row, lane] // unit % slots
        cells = (row * slots + slot).astype(np.intp, copy=False)
        worst = np.maximum(worst, np.bincount(cells, minlength=len(on) * slots).reshape(-1, slots).max(axis=1))
    worst = worst.reshape(len(active), -1)
    return worst.sum(axis=1), np.count_nonzero(worst, axis=1)


def _matrix(addresses, active, matrices) -> Cost:
    """ldmatrix and stmatrix (LDSM, STSM) of 1, 2 or 4 matrices of 8 rows of 16 bytes.

    Lanes 0-7 hold the row addresses of the first matrix, 8-15 of the second, and so on; the other lanes' addresses are
    ignored. One phase per matrix; rows in the same banks conflict.
    """
    some = active.any(axis=1)
    rows = addresses[:, : 8 * matrices].reshape(-1, 8)
    used = np.broadcast_to(some[:, None, None], (len(addresses), matrices, 8)).reshape(-1, 8)
    wavefronts = _worst_bank(rows, used, 16).reshape(-1, matrices).sum(axis=1)
    return _through_banks(active, wavefronts, matrices * some.astype(np.int64))


def _wavefronts(addresses, active, width, merged):
    """(wavefronts, ideal) of each row; merged: [R] bool, rows whose lanes pair up, or None."""
    if width <= WORD_BYTES:
        wavefronts = _worst_bank(addresses, active, width)
        return wavefronts, (wavefronts > 0).astype(np.int64)
    lanes = WARP * WORD_BYTES // width
    merged = np.zeros(len(addresses), bool) if merged is None else merged
    wavefronts = np.zeros(len(addresses), np.int64)
    phases = np.zeros(len(addresses), np.int64)
    for these, size in ((merged, 2 * lanes), (~merged, lanes)):
        if these.any():
            rows = addresses[these].reshape(-1, size), active[these].reshape(-1, size)
            worst = _worst_bank(*rows, width).reshape(-1, WARP // size)
            wavefronts[these] = worst.sum(axis=1)
            phases[these] = np.count_nonzero(worst, axis=1)
    return wavefronts, phases


def pairs_up(addresses, active):
    """[R] bool: every active lane of the row has the address of its partner n^1, or every one that of n^2.

    Then two phases of a load of 8 or 16 bytes are served as one.
    """
    merged = np.zeros(len(addresses), bool)
    for step in (1, 2):
        pairs = addresses.reshape(len(addresses), -1, 2, step)
        same = pairs[:, :, 0] == pairs[:, :, 1]
        if not active.all():
            both = active.reshape(pairs.shape)
            same |= ~(both[:, :, 0] & both[:, :, 1])
        merged |= same.reshape(len(addresses), -1).all(axis=1)
    return merged


_UNIT_BITS = 25


def _worst_bank(addresses, active, width):
    """[R]: the largest number of distinct words that the active lanes of a row want from one bank.

    Aligned lanes of 8 or 16 bytes always take the same 2 or 4 neighbouring banks, so one unit of `width` bytes stands
    for its words, and 128 / width groups of banks for the banks.
    """
    unit = max(WORD_BYTES, width)
    slots = BANKS * WORD_BYTES // unit
    units = (addresses // unit).astype(np.int32) & ((1 << _UNIT_BITS) - 1)
    key = (units % slots) << _UNIT_BITS | units
    if not active.all():
        key = np.where(active, key, np.int32(-1))
    key.sort(axis=1)
    # Along a sorted row: how many new words so far, minus how many there were when the present bank began.
    new = np.empty(key.shape, np.int8)
    new[:, 0] = key[:, 0] >= 0
    np.not_equal(key[:, 1:], key[:, :-1], out=new[:, 1:].view(bool))
    seen = np.cumsum(new, axis=1, dtype=np.int8)
    slot = key >> _UNIT_BITS
    before = np.zeros(key.shape, np.int8)
    np.multiply(slot[:, 1:] != slot[:, :-1], seen[:, :-1], out=before[:, 1:])
    np.maximum.accumulate(before, axis=1, out=before)
    return (seen - before).max(axis=1).astype(np.int64)


def _as_rows(addresses, active):
    addresses = np.asarray(addresses)
    if addresses.ndim != 2 or addresses.shape[1] != WARP:
        raise ValueError(f"addresses must have shape [warps, 32], not {list(addresses.shape)}")
    addresses = addresses.astype(np.int64, copy=False)
    if active is None:
        active = np.ones(addresses.shape, bool)
    return addresses, np.broadcast_to(np.asarray(active, bool), addresses.shape)


def _check(rule, width):
    if rule is CostRule.MATRIX:
        if width not in (1, 2, 4):
            raise ValueError(f"ldmatrix loads 1, 2 or 4 matrices, not {width}")
    elif width not in WIDTHS:
        raise ValueError(f"an access is 1, 2, 4, 8, 16 or 32 bytes wide per lane, not {width}")


_RULES = {
    CostRule.GLOBAL: _global,
    CostRule.ATOMIC: _atomic,
    CostRule.LOCAL: _local,
    CostRule.SHARED_LOAD: _shared_load,
    CostRule.SHARED_STORE: _shared_store,
    CostRule.SHARED_ATOMIC: _shared_atomic,
    CostRule.COPY: _copy,
    CostRule.COPY_BYPASS: _bypass,
    CostRule.MATRIX: _matrix,
}


# --- totals over a chunk of blocks ---------------------------------------------------------------------------------


def total(rule: CostRule, addresses, active, width: int, blocks: int, threads: int, targets=None) -> Cost:
    """What one executed access of a chunk of blocks costs in all.

    addresses, targets: integer arrays that broadcast to [blocks, threads], otherwise as in `cost`.
    active: bool array that broadcasts to the same, or None when every thread takes part.
    Threads are in linear order; every 32 of a block are a warp, and a last, partial warp is filled up with idle lanes.
    """
    _check(rule, width)
    if rule in TWO_SIDED:
        return _two_sided(rule, addresses, active, width, blocks, threads, targets)
    sums = [0] * len(NOTHING)
    for rows, mask, times in _row_sets(addresses, active, blocks, threads):
        for value, pattern_times in _by_pattern(rule, rows, mask, width):
            for i, part in enumerate(value):
                sums[i] += part * pattern_times * times
    return Cost(*sums)


def _two_sided(rule, sources, active, width, blocks, threads, targets) -> Cost:
    both = np.broadcast_arrays(*(np.atleast_2d(np.asarray(a)) for a in (sources, targets)))
    height, width_of = both[0].shape
    if width_of == 1:
        both = [np.broadcast_to(a, (height, threads)) for a in both]
    mask = np.ones((1, 1), bool) if active is None else np.atleast_2d(np.asarray(active, bool))
    height = max(height, mask.shape[0])
    padded = -(-threads // WARP) * WARP
    on = np.zeros((height, padded), bool)
    on[:, :threads] = mask
    rows = []
    for side in both:
        wide = np.zeros((height, padded), np.int64)
        wide[:, :threads] = side
        rows.append(wide.reshape(-1, WARP))
    on = on.reshape(-1, WARP)
    # Moving a side by whole words only rotates its banks, and by whole lines changes no sectors: such rows cost the same.
    same = WORD_BYTES if rule is CostRule.COPY else LINE_BYTES
    alike = (on == on[0]).all() and all(((r - r[0]) == (r - r[0])[:, :1]).all() and not ((r - r[0]) % same).any() for r in rows)
    times = blocks // height
    if alike:
        times *= len(on)
        rows, on = [r[:1] for r in rows], on[:1]
    return Cost(*(int(part.sum()) * times for part in cost(rule, rows[0], on, width, rows[1])))


def _row_sets(addresses, active, blocks, threads):
    """Yield (rows [R, 32], mask [R, 32] or None, times): the distinct warps, and how often the set occurs."""
    if blocks == 0 or threads == 0:
        return
    addresses = np.asarray(addresses)
    addresses = addresses.reshape((1,) * (2 - addresses.ndim) + addresses.shape) if addresses.ndim < 2 else addresses
    if active is not None:
        active = np.asarray(active, bool)
        active = active.reshape((1,) * (2 - active.ndim) + active.shape) if active.ndim < 2 else active
        if active.size == 1:
            if not active.item():
                return
            active = None
    height = max(addresses.shape[0], 1 if active is None else active.shape[0])
    times = blocks // height
    if threads % WARP:
        padded = -(-threads // WARP) * WARP
        mask = np.zeros((height, padded), bool)
        mask[:, :threads] = True if active is None else active
        wide = np.zeros((height, padded), np.int64)
        wide[:, :threads] = addresses
        yield from _split_active(wide.reshape(-1, WARP), mask.reshape(-1, WARP), times)
        return
    if active is None:
        if addresses.shape[1] == 1:
            # Uniform over the threads of a block: every warp of the block is the same row.
            yield np.broadcast_to(addresses, (height, WARP)), None, times * (threads // WARP)
        else:
            yield np.ascontiguousarray(addresses).reshape(-1, WARP), None, times
        return
    every = (height, threads)
    addresses, active = (array if array.shape == every else np.broadcast_to(array, every) for array in (addresses, active))
    yield from _split_active(addresses.reshape(-1, WARP), active.reshape(-1, WARP), times)


def _split_active(rows, mask, times):
    """Set the fully active warps apart from the partly active ones; drop the idle ones."""
    lanes = np.count_nonzero(mask, axis=1)
    full, part = lanes == WARP, (lanes > 0) & (lanes < WARP)
    if full.all():
        yield rows, None, times
        return
    if full.any():
        yield rows[full], None, times
    if part.any():
        yield rows[part], mask[part], times


_memo: dict = {}
_MEMO_LIMIT = 65536
_FULL = np.ones((1, WARP), bool)


def _by_pattern(rule, rows, mask, width):
    """Yield (cost, times) over the distinct patterns of the rows.

    A pattern is the lanes' distances from lane 0 with the base's remainder (sectors: 32 bytes; banks: one word, because
    moving all lanes by whole aligned words only rotates the banks).
    """
    base = rows[:, :1]
    if rows.strides[1] == 0:
        pattern = np.zeros(WARP, np.int64)
    else:
        pattern = rows[0] - rows[0, 0]
        probe = rows[:: max(1, len(rows) // 4)][:4]
        if not ((probe - probe[:, :1]) == pattern).all() or not _repeats(rows, pattern):
            pattern = None
    if mask is not None and pattern is not None and not (mask == mask[0]).all():
        pattern = None
    if pattern is None:
        yield _summed(rule, rows, mask, width), 1
        return
    key_tail = (rule, width, pattern.astype(np.int64).tobytes(), None if mask is None else mask[0].tobytes())
    remainders, counts = _remainders(base[:, 0], SECTOR_BYTES if rule in (CostRule.GLOBAL, CostRule.ATOMIC) else WORD_BYTES)
    for remainder, count in zip(remainders, counts, strict=True):
        key = (remainder, *key_tail)
        value = _memo.get(key)
        if value is None:
            value = _summed(rule, (pattern + remainder)[None], _FULL if mask is None else mask[:1], width)
            if len(_memo) >= _MEMO_LIMIT:
                _memo.clear()
            _memo[key] = value
        yield value, count


def _repeats(rows, pattern, step=2048):
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        if not ((part - part[:, :1]) == pattern).all():
            return False
    return True


def _remainders(bases, modulo):
    if len(bases) == 1:
        return (int(bases[0]) % modulo,), (1,)
    counts = np.bincount((bases & (modulo - 1)).astype(np.intp, copy=False), minlength=modulo)
    present = np.flatnonzero(counts)
    return present.tolist(), counts[present].tolist()


def _summed(rule, rows, mask, width, step=8192) -> Cost:
    sums = [0] * len(NOTHING)
    for start in range(0, len(rows), step):
        part = cost(rule, rows[start : start + step], None if mask is None else mask[start : start + step], width)
        for i, values in enumerate(part):
            sums[i] += int(values.sum())
    return Cost(*sums)
