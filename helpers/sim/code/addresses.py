"""Where things lie in the machine's address space.

A generic address says by its top bits which state space it is in. Global and constant memory are used at their generic
addresses; local and parameter addresses count from 0 within their own space, shared ones from `shared_start`.
"""

from __future__ import annotations

import re

import numpy as np

DEVICE_BASE = 0x7F00_0000_0000
SHARED_WINDOW = 0x7E00_0000_0000
LOCAL_WINDOW = 0x7D00_0000_0000
PARAM_WINDOW = 0x7C00_0000_0000
WINDOW_BYTES = 1 << 40
WINDOW_REACH = WINDOW_BYTES // 2  # an address that misses a window by less is meant for it, and out of bounds
ALIGN = 256  # arrays that own their memory begin at a multiple of it, as cudaMalloc's do
RANK_SHIFT = 24  # of a shared::cluster address: from this bit on, the rank of the block in its cluster plus one
RESERVED_SHARED = 0x400  # bytes of shared memory that the system keeps for itself in each block
FUNCTION_BASE = 0x10  # functions have addresses too, though nothing can be read there


def shared_start(target: str) -> int:
    """The shared address at which a block's variables begin, for a PTX target such as 'sm_90a'.

    From sm_90 on, what the system reserves lies below them, at addresses that the kernel sees: ptxas puts the first variable at
    0x400, and an H200 gives that address. sm_80 to sm_89 reserve as much, but their machine code counts from 0, as that
    of their predecessors does, which reserve nothing.
    """
    number = re.search(r"\d+", target)
    return RESERVED_SHARED if number and int(number[0]) >= 90 else 0


def phase(array: np.ndarray) -> int:
    """Where an array begins, modulo ALIGN: a view such as a[1:] lies off the beginning of the array it looks into."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return (array.ctypes.data - owner.ctypes.data) % ALIGN
