"""Do chunks that wait wait for ever, if no other block begins?

The machine computes the same from the same state. So if memory, registers and places of all chunks are what they were some looks
ago, nothing that is there will ever change them.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

import numpy as np

from helpers.errors import LaunchError

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


class OthersMissing:
    """Looks at a chunk that looks at a flag in vain, where only some of a launch's blocks run and no other could: is what it waits for
    one of those that do not run? seen: how often it was looked at. left: looks until the states are forgotten."""

    def __init__(self, launch):
        self.launch, self.seen, self.left = launch, 0, 0
        self.known: set[bytes] = set()

    def look(self, chunk: Chunk) -> None:
        """Raise LaunchError if the chunk is where it was before. A few looks in a row, and again when there were twice as many: a state
        takes a while to write down."""
        self.seen += 1
        if self.seen & (self.seen - 1) == 0:
            self.known.clear()
            self.left = ROUNDS
        if not self.left or self.launch.memory.bytes.nbytes > MOST_BYTES:
            return
        self.left -= 1
        state = _state(chunk, waiting=True)
        if state is None:
            return
        state += hashlib.blake2b(self.launch.memory.bytes.data).digest()
        if state in self.known:
            raise LaunchError("Some blocks of this kernel wait for others (they look at a flag in a loop), and cannot run without them.")
        self.known.add(state)


def _phases(chunk: Chunk) -> bytes:
    """What mbarriers have counted, and how many copies are under way."""
    state = hashlib.blake2b()
    for offset, barrier in sorted(chunk.asynchronous.get("barriers", {}).items()):
        counts = (barrier.phase, barrier.pending, barrier.bytes, barrier.expected)
        state.update(repr((offset, len(barrier.attached), [count.tolist() for count in counts])).encode())
    for queue, things in (("copies", ("copies",)), ("bulk groups", ("stores", "writes"))):
        if found := chunk.asynchronous.get(queue):
            state.update(repr([*(len(getattr(found, name)) for name in things), found.commits.tolist()]).encode())
    return state.digest()


def _state(chunk: Chunk, waiting: bool = False) -> bytes | None:
    """All that decides what a chunk does next. None if asynchronous operations have a part in it, unless it is known that they wait as
    well: then only what they have counted is told."""
    if chunk.parts is not None:
        parts = [_state(part, waiting) for part in chunk.parts]
        return None if None in parts else b"".join(part for part in parts if part is not None)
    if not waiting and (chunk.asynchronous or chunk.cluster_barrier is not None):
        return None
    groups = sorted(chunk.groups.items())
    turns = (chunk.turns, chunk.in_vain, chunk.idle) if groups else ()
    places = (chunk.pc, [pc for pc, _ in groups], sorted(chunk.sleeping.items()), sorted(chunk.held), chunk.forced, chunk.at, turns)
    parked = [(entry.resume, entry.barrier, entry.expected) for entry in chunk.parked]
    state = hashlib.blake2b(repr((places, parked)).encode() + (_phases(chunk) if waiting else b""))
    masks = [chunk.mask, chunk.exited, *(mask for _, mask in groups), *(entry.mask for entry in chunk.parked)]
    local = chunk.local.words if chunk.local.dense is None else [chunk.local.dense]
    for array in (*masks, *chunk.regs, *local, chunk.shared.bytes):
        if array is not None:
            state.update(repr(array.shape).encode())
            state.update(np.ascontiguousarray(array).data)
    return state.digest()
