"""How Hopper's tensor copies and warpgroup MMAs permute 16-byte chunks within shared memory, so that reads down a column meet
all banks.

The rule works on byte offsets in shared memory, that is on address bits, and not on positions within the copied box. A
swizzle of 32, 64 or 128 bytes XORs the 1, 2 or 3 bits that number a 16-byte chunk within the span (bits 4 and up) with
as many of the bits that number a row of 128 bytes (bits 7 and up); the pattern therefore repeats every 256, 512 or 1024
bytes, and a buffer must begin at a multiple of that for its first row to be untouched. It is its own inverse.

Sources: PTX ISA, "Tensor: Swizzling modes" and "Shared memory matrix layout" (wgmma); CUDA C++ Programming Guide, "The swizzle
modes"; CUDA driver API, cuTensorMapEncodeTiled. In CUTLASS's notation these are Swizzle<1,4,3>, <2,4,3> and <3,4,3>.
"""

from __future__ import annotations

# Mode -> how many bits of the chunk number change. None is no swizzle.
BITS = {None: 0, "32B": 1, "64B": 2, "128B": 3}
# Mode -> bytes of a row that are permuted among themselves: the most that the inner dimension of a box may have.
SPAN = {mode: 16 << bits for mode, bits in BITS.items() if mode}
# Mode -> bytes after which the pattern repeats.
PERIOD = {mode: 128 << bits for mode, bits in BITS.items() if mode}


def swizzle(offset, mode: str | None):
    """Where the byte at `offset` of the unswizzled layout lies in shared memory, and the reverse.

    offset: byte offsets from an address that is a multiple of the pattern's period (an int or an integer array of any
    shape); the machine's shared memory begins at one. mode: "128B", "64B", "32B" or None.
    """
    chunks = (1 << BITS[mode]) - 1
    return offset ^ ((offset >> 7 & chunks) << 4)
