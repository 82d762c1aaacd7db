"""Run prepared code: lay out what it needs, hand blocks to worker threads, add up.

Anything out of the ordinary (an address outside of every array, a possible race, threads that end before a barrier) ends in
`Suspicious`, and the caller runs the launch in the NumPy machine, whose findings and messages are the only ones there are.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from helpers import processors
from helpers.sim.checks.beyond_array import arrays_at
from helpers.sim.code import time_limit
from helpers.sim.code.addresses import DEVICE_BASE
from helpers.sim.code.hardware_units import WARP
from helpers.sim.counting import rules

from . import engine
from .declined import Suspicious
from .lower import RULES, Lowered
from .machine_calls import MachineCalls
from .offsets import CONTEXT, CONTEXT_BYTES, MEMO_BYTES, QUEUE_BYTES, RECORD, RECORD_BYTES, WARP_STATE
from .prepared import Prepared

TURN_SECONDS = 0.05  # how long one call into native code should last
WORTH_SECONDS = 1.0  # a run that has this long to go gets better code, if making that does not take longer


class OutOfTime(Exception):
    """The time budget is used up. `position` is an instruction that was about to run."""

    def __init__(self, position: int):
        super().__init__(position)
        self.position = position


@dataclass(frozen=True)
class Totals:
    """What was counted. Per instruction: warps and threads that executed it. Per counted access: requests, sectors or
    wavefronts, ideal; keyed by the instruction's position and the access's number among its own."""

    warps: np.ndarray
    threads: np.ndarray
    accesses: dict[tuple[int, int], tuple[int, int, int]]


# --- memory of a worker ------------------------------------------------------------------------------------------------


def _aligned(nbytes: int) -> np.ndarray:
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


_ACCOUNT = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_uint32, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_FAR = (1 << 40, 1 << 20)  # in global and in shared memory: patterns have negative distances; addresses must not


@functools.lru_cache(maxsize=65536)
def _cost(code: int, active: int, shift: int, pattern: bytes) -> tuple[int, int, int]:
    """(requests, sectors or wavefronts, ideal) of one warp's access. code: of a `Charge`."""
    rule, width = RULES[code >> 8], code & 255
    sides = np.frombuffer(pattern, np.int32).astype(np.int64).reshape(-1, 1, WARP)
    starts = (_FAR[0] + (shift & 0xFFFF), _FAR[1] + (shift >> 16))
    lanes = (active >> np.arange(WARP) & 1).astype(bool)[None]
    addresses, *targets = (side + start for side, start in zip(sides, starts, strict=False))
    return tuple(int(part[0]) for part in rules.cost(rule, addresses, lanes, width, *targets).charged)


_failures: list[Exception] = []  # ctypes would only print what goes wrong in a callback


def _answer(code: int, active: int, shift: int, pattern: int, out: int) -> None:
    try:
        sides = 2 if RULES[code >> 8] in rules.TWO_SIDED else 1
        cost = _cost(code, active, shift, ctypes.string_at(pattern, 4 * WARP * sides))
    except Exception as error:  # passed on by `run`
        _failures.append(error)
        cost = 0, 0, 0
    (ctypes.c_int32 * 3).from_address(out)[:] = cost


_ask_account = _ACCOUNT(_answer)


class _Worker:
    """Everything one thread needs to run blocks, in memory of its own except for the arenas."""

    def __init__(self, prepared: Prepared, grid, block, params: np.ndarray, arenas: np.ndarray, shared_bytes: int, watched=None):
        lowered, self.program, self.watching = prepared.lowered, prepared.program, prepared.options.watching
        threads = block[0] * block[1] * block[2]
        warps = -(-threads // WARP)
        self.context = _aligned(CONTEXT_BYTES)
        self.words = self.context.view(np.int64)
        self.halves = self.context.view(np.int32)
        self.states = _aligned(lowered.state_bytes * warps)
        shared_end = prepared.program.shared_start + shared_bytes
        self.shared = _aligned(max(64, shared_end))  # from address 0 on, as in the NumPy machine
        self.counts = np.zeros((max(1, lowered.counts), 2), np.int64)
        self.memos = _aligned(MEMO_BYTES * max(1, len(lowered.memos)))
        shadow_bytes = -(-shared_end // 4) * 16 if prepared.options.watching else 0  # a word per granule, granules >= 1 byte
        has_turns = prepared.program.warp_barriers
        self.shadow = [_aligned(shadow_bytes * (1 + has_turns)) for _ in range(2)]
        self.params, self.arenas = params, arenas
        self.products = np.array([*lowered.products, 0], np.int32)
        self.records = self._records(lowered, shared_end)
        for name, array in (
            ("shared", self.shared), ("params", params), ("records", self.records), ("block_counts", self.counts),
            ("memos", self.memos), ("states", self.states), ("arenas", arenas),
            ("products", self.products), ("shadow_writer", self.shadow[0]), ("shadow_reader", self.shadow[1]),
        ):  # fmt: skip
            self.words[CONTEXT[name] // 8] = array.ctypes.data
        for name, value in (
            ("shared_end", shared_end), ("stride", lowered.state_bytes), ("arena_count", len(arenas)),
            ("shadow_bytes", shadow_bytes),
        ):  # fmt: skip
            self.words[CONTEXT[name] // 8] = value
        self.owners = np.zeros(0 if watched is None else watched.reach, np.uint32)  # pages never touched cost nothing
        if watched is not None:
            self.words[CONTEXT["owners"] // 8] = self.owners.ctypes.data
            self.words[CONTEXT["owned_low"] // 8] = DEVICE_BASE + int(watched.starts[0])
            self.words[CONTEXT["owned_count"] // 8] = watched.reach
            self.halves[CONTEXT["must_be_written"] // 4] = bool(watched.unwritten)
        self.halves[CONTEXT["turning"] // 4] = has_turns
        self.calls = MachineCalls(prepared.program, lowered.calls) if lowered.calls else None
        if self.calls is not None:
            self.words[CONTEXT["machine_call"] // 8] = ctypes.cast(self.calls.callback, ctypes.c_void_p).value
        self.words[CONTEXT["account"] // 8] = ctypes.cast(_ask_account, ctypes.c_void_p).value
        for name, values in (("nctaid", grid), ("ntid", block), ("warps", [warps])):
            at = CONTEXT[name] // 4
            self.halves[at : at + len(values)] = values
        copies = "cp.async" in prepared.program.uses
        self.queues = _aligned(QUEUE_BYTES * warps if copies else 0)  # pages never touched cost nothing
        local_bytes = -(-prepared.program.local_bytes // 4) * 4
        self.local = _aligned(2 * WARP * local_bytes * warps)
        self.words[CONTEXT["local_bytes"] // 8] = local_bytes
        linear = np.arange(warps * WARP, dtype=np.int32)
        tid = (linear % block[0], linear // block[0] % block[1], linear // (block[0] * block[1]))
        states = self.states.view(np.int32).reshape(warps, -1)
        for warp in range(warps):
            lanes = min(WARP, threads - WARP * warp)
            state = states[warp]
            state[WARP_STATE["initial"] // 4] = np.array((1 << lanes) - 1, np.uint32).view(np.int32)
            state[WARP_STATE["warp"] // 4] = warp
            state.view(np.int64)[WARP_STATE["local"] // 8] = self.local.ctypes.data + 2 * WARP * local_bytes * warp
            if copies:
                state.view(np.int64)[WARP_STATE["copies"] // 8] = self.queues.ctypes.data + QUEUE_BYTES * warp
            for axis in range(3):
                mine = tid[axis][WARP * warp : WARP * (warp + 1)]
                state[WARP_STATE["tid_first"] // 4 + axis] = mine[0]
                at = WARP_STATE["tid"] // 4 + WARP * axis
                state[at : at + WARP] = mine
        self.failed = False

    def _records(self, lowered: Lowered, shared_end: int) -> np.ndarray:
        records = np.zeros((max(1, len(lowered.records)), RECORD_BYTES // 4), np.int32)
        wide = records.view(np.int64)
        within = arrays_at(self.program) if self.watching else {}
        for i, record in enumerate(lowered.records):
            if record.local:
                wide[i, RECORD["high"] // 8] = -(-self.program.local_bytes // 4) * 4
            elif record.shared:
                low, high = within.get(record.position, (self.program.shared_start, shared_end))
                wide[i, RECORD["low"] // 8], wide[i, RECORD["high"] // 8] = low, high
                wide[i, RECORD["delta"] // 8] = self.shared.ctypes.data
            if record.memo >= 0:
                wide[i, RECORD["memo"] // 8] = self.memos.ctypes.data + MEMO_BYTES * record.memo
                wide[i, RECORD["shift"] // 8] = record.shift
            for name, value in (
                ("code", record.code), ("mask", record.bits), ("position", record.position),
                ("granules", record.granules), ("log", max(0, record.log)), ("race", record.race), ("shared", record.shared),
            ):  # fmt: skip
                records[i, RECORD[name] // 4] = value
        return records

    def stop(self) -> None:
        """Make native code return at the next backward branch or barrier."""
        self.halves[CONTEXT["stop"] // 4] = 1

    def run(self, code: engine.Code, blocks: np.ndarray) -> bool:
        """Run blocks (linear indices); False if one failed or was stopped."""
        return code.run_blocks(self.context.ctypes.data, blocks.ctypes.data, len(blocks)) == 0

    @property
    def position(self) -> int:
        return int(self.halves[CONTEXT["fail"] // 4])


def workers_wanted() -> int:
    """Threads to use: one per available core, not more than eight."""
    return min(8, processors.available())


# --- the launch --------------------------------------------------------------------------------------------------------


def run(
    prepared: Prepared,
    memory,
    params: np.ndarray,
    grid: Sequence[int],
    block: Sequence[int],
    blocks: np.ndarray,
    shared_bytes: int,
    deadline: float | None,
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
    cancelled: threading.Event | None = None,
    watched=None,
) -> Totals:
    """Run blocks (linear indices) against `memory` (a DeviceMemory). Raises Suspicious or OutOfTime.

    params: the parameter block, uint8. deadline: as time_limit.now() counts. The calling thread only waits, so that an
    interrupt from the keyboard ends the run within milliseconds. cancelled: ends it, too. After any exception `memory` is
    spoilt.
    """
    base = memory.bytes.ctypes.data - DEVICE_BASE
    arenas = np.array(
        [(DEVICE_BASE + start, DEVICE_BASE + end, base) for start, end in zip(memory.starts, memory.ends, strict=True)],
        np.int64,
    ).reshape(-1, 3)
    count = min(threads or workers_wanted(), max(1, len(blocks)))
    workers = [_Worker(prepared, grid, block, params, arenas, shared_bytes, watched) for _ in range(count)]
    queue = _Queue(blocks, count)
    changed = threading.Condition()
    running = count

    def work(worker: _Worker) -> None:
        nonlocal running
        try:
            while (batch := queue.take()) is not None:
                start = time.perf_counter()
                if not worker.run(prepared.code, batch):
                    worker.failed = True
                    for other in workers:
                        other.stop()
                    return
                queue.finished(len(batch), time.perf_counter() - start)
                with changed:
                    changed.notify()
        finally:
            with changed:
                running -= 1
                changed.notify()

    pool = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in workers]
    for thread in pool:
        thread.start()
    late, better = False, prepared.good
    try:
        while running:
            with changed:
                if running:
                    changed.wait(TURN_SECONDS)
            if deadline is not None and time_limit.now() > deadline and not late:
                late = True
                for worker in workers:
                    worker.stop()
            if cancelled is not None and cancelled.is_set():
                for worker in workers:
                    worker.stop()
            if not better and (left := queue.seconds_left()) > WORTH_SECONDS and left > prepared.seconds_to_improve:
                better = True
                threading.Thread(target=prepared.improve).start()
            if progress is not None:
                progress(queue.done, len(blocks))
    finally:
        # Also on an interrupt: nobody may write to the arrays once this function has ended.
        for worker in workers if running else ():
            worker.stop()
        for thread in pool:
            thread.join()
    if progress is not None:  # they may have been done before the first look, or between two
        progress(queue.done, len(blocks))
    if late and any(worker.failed for worker in workers):
        raise OutOfTime(next(worker.position for worker in workers if worker.failed))
    for worker in workers:
        if worker.failed:
            op = prepared.program.ops[worker.position]
            raise Suspicious(f"something happened that the NumPy machine must explain, at `{op.opcode}`", op)
    if _failures:
        raise _failures.pop()
    for worker in workers:
        if worker.calls is not None and worker.calls.failure is not None:
            raise worker.calls.failure
    if watched is not None and watched.meet([worker.owners for worker in workers]):
        raise Suspicious("blocks meet in device memory")
    return _totals(prepared.lowered, workers)


class _Queue:
    """Hands out blocks in batches that take about TURN_SECONDS, smaller towards the end so that no thread waits."""

    def __init__(self, blocks: np.ndarray, workers: int):
        self.blocks = np.ascontiguousarray(blocks, np.int64)
        self.workers = workers
        self.next = 0
        self.done = 0
        self.seconds = 0.0
        self.start = time.perf_counter()
        self.lock = threading.Lock()

    def take(self) -> np.ndarray | None:
        with self.lock:
            left = len(self.blocks) - self.next
            if left <= 0:
                return None
            size = 1
            if self.done:
                size = int(TURN_SECONDS * self.done / max(self.seconds, 1e-9))
            size = max(1, min(size, -(-left // (2 * self.workers))))
            batch = self.blocks[self.next : self.next + size]
            self.next += size
            return batch

    def seconds_left(self) -> float:
        """Of blocks that nobody has begun: better code comes too late for the others."""
        with self.lock:
            if self.next >= len(self.blocks):
                return 0.0
            if not self.done:
                return time.perf_counter() - self.start  # the first block takes long: the others will, too
            return (len(self.blocks) - self.next) * self.seconds / self.done / self.workers

    def finished(self, count: int, seconds: float) -> None:
        with self.lock:
            self.done += count
            self.seconds += seconds


def _totals(lowered: Lowered, workers) -> Totals:
    counts = sum(worker.counts for worker in workers)
    memos = sum(worker.memos.view(np.int64).reshape(-1, MEMO_BYTES // 8)[:, :3] for worker in workers)
    of = np.array(lowered.count_of, np.int64)
    return Totals(counts[of, 0], counts[of, 1], {access: tuple(map(int, memos[i])) for i, access in enumerate(lowered.memos)})
