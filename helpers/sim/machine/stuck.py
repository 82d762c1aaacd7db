"""Do chunks that wait wait for ever, if no other block begins?

The machine computes the same from the same state. So if memory, registers and places of all chunks are what they were some looks
ago, nothing that is there will ever change them.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

import numpy as np

from .chunk import Chunk

ROUNDS = 24  # of looks in which a state must come again: loops that wait are shorter
MOST_BYTES = 1 << 28  # of device memory to compare


def wait_for_ever(launch, waiting: deque[Chunk], advance: Callable[[Chunk], bool]) -> bool | None:
    """Let the chunks run without new ones. True if they can never go on, False if one has ended, None if nobody knows.

    advance: runs a chunk; has it ended?
    """
    if launch.memory.bytes.nbytes > MOST_BYTES:
        return None
    known: set[bytes] = set()
    briefly, launch.briefly = launch.briefly, True
    try:
        for _ in range(ROUNDS):
            states = [_state(chunk) for chunk in waiting]
            if None in states:
                return None
            whole = hashlib.blake2b(launch.memory.bytes.data)
            for state in states:
                whole.update(state)
            if whole.digest() in known:
                return True
            known.add(whole.digest())
            for _ in range(len(waiting)):
                chunk = waiting.popleft()
                if advance(chunk):
                    return False
                waiting.append(chunk)
    finally:
        launch.briefly = briefly
    return None


def _state(chunk: Chunk) -> bytes | None:
    """All that decides what a chunk does next. None if asynchronous operations have a part in it."""
    if chunk.parts is not None:
        parts = [_state(part) for part in chunk.parts]
        return None if None in parts else b"".join(parts)
    if chunk.asynchronous or chunk.cluster_barrier is not None:
        return None
    groups = sorted(chunk.groups.items())
    turns = (chunk.turns, chunk.in_vain, chunk.idle) if groups else ()
    places = (chunk.pc, [pc for pc, _ in groups], sorted(chunk.sleeping.items()), sorted(chunk.held), chunk.forced, chunk.at, turns)
    parked = [(entry.resume, entry.barrier, entry.expected) for entry in chunk.parked]
    state = hashlib.blake2b(repr((places, parked)).encode())
    masks = [chunk.mask, chunk.exited, *(mask for _, mask in groups), *(entry.mask for entry in chunk.parked)]
    local = chunk.local.words if chunk.local.dense is None else [chunk.local.dense]
    for array in (*masks, *chunk.regs, *local, chunk.shared.bytes):
        if array is not None:
            state.update(repr(array.shape).encode())
            state.update(np.ascontiguousarray(array).data)
    return state.digest()
