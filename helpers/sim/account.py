"""What the memory system charges for the accesses of a warp: sectors, wavefronts, bank conflicts.

Everything here is a pure function of addresses, the active mask and the access width; nothing knows the machine.
Widths are those of the SASS instruction that ptxas made (see `sass.access_sites`), in bytes per lane.

Global and local memory. One warp instruction is one *request*, whatever its width. Its *sectors* are the distinct
32-byte chunks that the active lanes touch. *Ideal* sectors are those of the same number of active lanes reading
packed, distinct data: ceil(active lanes x width / 32).

Shared memory. 32 banks, each 4 bytes wide: bank = (address / 4) % 32. An access of 4 bytes or less is served in one
phase of 32 lanes, 8 bytes in two phases of 16, 16 bytes in four phases of 8. A load takes half as many phases, each of
twice as many lanes, when the lanes of the warp pair up: every active lane n reads the same address as lane n^1 (or
every one as n^2), idle partners counting as equal. That is why a uniform LDS.128 takes 2 wavefronts and not 4. Stores
never merge. In each phase the bank with the most distinct words decides how many *wavefronts* it takes; words read by
several lanes are broadcast. *Ideal* wavefronts are the phases that have an active lane, and *conflicts* = wavefronts -
ideal. Every wavefront and conflict counter of loads measured on an H200 follows these rules (see
tests/sim/test_calibration.py); so do stores of a warp that runs alone, while with many warps the hardware's store
counters also count lost arbitration and vary from run to run.

Two interfaces:
- `count_global`, `count_shared`, `count_ldmatrix`, `count_local`: totals over a chunk of blocks, straight from registers
  that may be broadcast over blocks or threads. This is what the machine calls, once per executed access.
- `global_access`, `shared_access`, `ldmatrix_access`, `local_access`: one result per warp, for pictures and tests.

Both recognise rows that repeat one pattern at different bases, and remember the answer for each pattern.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

WARP = 32
SECTOR_BYTES = 32
BANKS = 32
WORD_BYTES = 4
WIDTHS = (1, 2, 4, 8, 16)


class GlobalCount(NamedTuple):
    """Totals of a set of warp accesses to global (or local) memory."""

    requests: int
    sectors: int
    ideal: int


class SharedCount(NamedTuple):
    """Totals of a set of warp accesses to shared memory. `requests` counts warp instructions with an active lane."""

    requests: int
    wavefronts: int
    ideal: int

    @property
    def conflicts(self) -> int:
        return self.wavefronts - self.ideal


_NO_GLOBAL = GlobalCount(0, 0, 0)
_NO_SHARED = SharedCount(0, 0, 0)


# --- one result per warp -------------------------------------------------------------------------------------------


def global_access(addresses, active, width: int):
    """Requests, sectors and ideal sectors of each warp.

    addresses: [W, 32] integers, the lowest byte each lane touches. active: [W, 32] bool, or None for all.
    width: bytes per lane. Returns three int64 arrays of shape [W].
    """
    _check_width(width)
    addresses, active = _as_rows(addresses, active)
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
    return some.astype(np.int64), np.where(some, distinct, 0), -(-lanes * width // SECTOR_BYTES)


def local_access(offsets, active, width: int):
    """The same for local memory: `offsets` are byte offsets within each thread's own local memory.

    Local memory is laid out so that one word of 32 threads is 128 contiguous bytes; lanes that use the same offset
    therefore fill whole sectors. Each lane's word w lies at (w x 32 + lane) x 4 of its warp.
    """
    _check_width(width)
    offsets, active = _as_rows(offsets, active)
    lane = np.arange(WARP)
    words = offsets // WORD_BYTES
    requests = active.any(axis=1).astype(np.int64)
    sectors = np.zeros(len(offsets), np.int64)
    for k in range(max(1, width // WORD_BYTES)):
        byte = ((words + k) * WARP + lane) * WORD_BYTES
        sectors += global_access(byte, active, WORD_BYTES)[1]
    return requests, sectors, -(-active.sum(axis=1) * width // SECTOR_BYTES)


def shared_access(addresses, active, width: int, op: str = "ld"):
    """Wavefronts and ideal wavefronts of each warp.

    addresses: [W, 32] byte offsets in the block's shared memory. active: [W, 32] bool, or None. width: bytes per lane.
    op: 'ld' or 'st'. Returns two int64 arrays of shape [W]; their difference is the number of bank conflicts.
    """
    _check_width(width)
    addresses, active = _as_rows(addresses, active)
    return _wavefronts(addresses, active, width, op)


def ldmatrix_access(addresses, active, matrices: int):
    """Wavefronts and ideal of each warp of `ldmatrix` (LDSM) for 1, 2 or 4 matrices of 8 rows of 16 bytes.

    Lanes 0-7 hold the row addresses of the first matrix, 8-15 of the second, and so on; the other lanes' addresses are
    ignored. One phase per matrix; rows in the same banks conflict.
    """
    if matrices not in (1, 2, 4):
        raise ValueError(f"ldmatrix loads 1, 2 or 4 matrices, not {matrices}")
    addresses, active = _as_rows(addresses, active)
    some = active.any(axis=1)
    rows = addresses[:, : 8 * matrices].reshape(-1, 8)
    used = np.broadcast_to(some[:, None, None], (len(addresses), matrices, 8)).reshape(-1, 8)
    wavefronts = _worst_bank(rows, used, 16).reshape(-1, matrices).sum(axis=1)
    return wavefronts, matrices * some.astype(np.int64)


def _wavefronts(addresses, active, width, op):
    if width <= 4:
        wavefronts = _worst_bank(addresses, active, width)
        return wavefronts, (wavefronts > 0).astype(np.int64)
    lanes = WARP * WORD_BYTES // width
    merged = pairs_up(addresses, active) if op == "ld" else np.zeros(len(addresses), bool)
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
    """[R] bool: every active lane of the row has the address of its partner n^1, or every one that of n^2."""
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


def _check_width(width):
    if width not in WIDTHS:
        raise ValueError(f"an access is 1, 2, 4, 8 or 16 bytes wide per lane, not {width}")


# --- totals over a chunk of blocks ---------------------------------------------------------------------------------


def count_global(addresses, active, width: int, blocks: int, threads: int) -> GlobalCount:
    """Total requests, sectors and ideal sectors of one executed access of a chunk of blocks.

    addresses: integer array that broadcasts to [blocks, threads]; the lowest byte of each thread.
    active: bool array that broadcasts to the same, or None when every thread takes part.
    Threads are in linear order; every 32 of a block are a warp, and a last, partial warp is filled up with idle lanes.
    """
    _check_width(width)
    total = [0, 0, 0]
    for rows, mask, times in _row_sets(addresses, active, blocks, threads):
        for value, pattern_times in _by_pattern("global", rows, mask, width, SECTOR_BYTES):
            for i in range(3):
                total[i] += value[i] * pattern_times * times
    return GlobalCount(*total)


def count_local(offsets, active, width: int, blocks: int, threads: int) -> GlobalCount:
    """`count_global` for local memory; `offsets` lie within each thread's own local memory."""
    _check_width(width)
    total = [0, 0, 0]
    for rows, mask, times in _row_sets(offsets, active, blocks, threads):
        for value, pattern_times in _by_pattern("local", rows, mask, width, WORD_BYTES):
            for i in range(3):
                total[i] += value[i] * pattern_times * times
    return GlobalCount(*total)


def count_shared(addresses, active, width: int, blocks: int, threads: int, op: str = "ld") -> SharedCount:
    """Total requests, wavefronts and ideal wavefronts; arguments as for `count_global`."""
    _check_width(width)
    return _sum_shared("shared ld" if op == "ld" else "shared st", addresses, active, width, blocks, threads)


def count_ldmatrix(addresses, active, matrices: int, blocks: int, threads: int) -> SharedCount:
    """The same for `ldmatrix`; `matrices` is 1, 2 or 4."""
    return _sum_shared("ldmatrix", addresses, active, matrices, blocks, threads)


def _sum_shared(kind, addresses, active, width, blocks, threads):
    requests = wavefronts = ideal = 0
    for rows, mask, times in _row_sets(addresses, active, blocks, threads):
        for value, pattern_times in _by_pattern(kind, rows, mask, width, WORD_BYTES):
            requests += value[0] * pattern_times * times
            wavefronts += value[1] * pattern_times * times
            ideal += value[2] * pattern_times * times
    return SharedCount(requests, wavefronts, ideal)


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
    addresses = np.broadcast_to(addresses, (height, threads)).reshape(-1, WARP)
    active = np.broadcast_to(active, (height, threads)).reshape(-1, WARP)
    yield from _split_active(addresses, active, times)


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


def _by_pattern(kind, rows, mask, width, modulo):
    """Yield ((requests, a, b), times) over the distinct patterns of the rows.

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
        yield _generic(kind, rows, mask, width), 1
        return
    key_tail = (kind, width, pattern.astype(np.int64).tobytes(), None if mask is None else mask[0].tobytes())
    remainders, counts = _remainders(base[:, 0], modulo)
    for remainder, count in zip(remainders, counts, strict=True):
        key = (remainder, *key_tail)
        value = _memo.get(key)
        if value is None:
            value = _generic(kind, (pattern + remainder)[None], _FULL if mask is None else mask[:1], width)
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
    counts = np.bincount(bases & (modulo - 1), minlength=modulo)
    present = np.flatnonzero(counts)
    return present.tolist(), counts[present].tolist()


def _generic(kind, rows, mask, width, step=8192):
    requests = a = b = 0
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        part_mask = None if mask is None else mask[start : start + step]
        if kind in ("global", "local"):
            access = global_access if kind == "global" else local_access
            some, first, second = access(part, part_mask, width)
            requests += int(some.sum())
        else:
            if kind == "ldmatrix":
                first, second = ldmatrix_access(part, part_mask, width)
            else:
                first, second = shared_access(part, part_mask, width, kind.split()[1])
            requests += int((second > 0).sum())
        a += int(first.sum())
        b += int(second.sum())
    return requests, a, b
