"""Copies of matrices whose rows begin where the tensor memory accelerator cannot read: to rows a multiple of 16 bytes apart.

Such a copy is made once when the arguments of a launch are put together. On a GPU the copy is made anew before each
launch, by the kernel here, so that a time holds what the copy costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from helpers.toolchain.compile import compile_source
from helpers.toolchain.compiled import Compiled

GRANULE = 16  # bytes: what addresses and pitches have to be multiples of
THREADS = 256  # per block of KERNEL
MOST_ROWS = 65535  # blocks along y
# Each thread makes 16 bytes of the new row. Where the old row is far enough from its ends these come from five words that lie at
# multiples of 4 bytes, shifted; elsewhere byte by byte, with zeros behind the row's end.
KERNEL = r"""
extern "C" __global__ void copy_rows(const unsigned char* from, long long from_pitch, unsigned char* to, long long to_pitch, int rows,
                                     long long row_bytes) {
    const long long at = 16 * (blockIdx.x * (long long)blockDim.x + threadIdx.x);
    if (at >= to_pitch) return;
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        const unsigned char* source = from + row * from_pitch + at;
        unsigned value[4] = {};
        if (at + 20 <= row_bytes && row + at > 0) {
            const unsigned shift = 8 * ((unsigned long long)source & 3);
            const unsigned* words = (const unsigned*)(source - ((unsigned long long)source & 3));
            unsigned word[5];
            for (int i = 0; i < 5; i++) word[i] = words[i];
            for (int i = 0; i < 4; i++) value[i] = __funnelshift_r(word[i], word[i + 1], shift);
        } else {
            for (int i = 0; i < 16; i++)
                if (at + i < row_bytes) value[i / 4] |= (unsigned)source[i] << 8 * (i % 4);
        }
        *(uint4*)(to + row * to_pitch + at) = make_uint4(value[0], value[1], value[2], value[3]);
    }
}
"""


@dataclass(frozen=True, eq=False)
class RowCopy:
    """A matrix in `source`, its rows so many bytes apart, and its copy in `target`. Both are C-contiguous arrays, NumPy's or CuPy's."""

    source: Any
    source_pitch: int
    target: Any
    target_pitch: int
    rows: int
    row_bytes: int

    def make(self) -> None:
        """Copy now, by NumPy, or by the driver where the arrays are on a GPU."""
        if not isinstance(self.target, np.ndarray):
            from cupy_backends.cuda.api import runtime

            to, at = self.target.data.ptr, self.source.data.ptr
            runtime.memcpy2D(to, self.target_pitch, at, self.source_pitch, self.row_bytes, self.rows, runtime.memcpyDeviceToDevice)
            return
        target, source = (
            array.reshape(-1).view(np.uint8)[: self.rows * pitch].reshape(self.rows, pitch)
            for array, pitch in ((self.target, self.target_pitch), (self.source, self.source_pitch))
        )
        target[:, : self.row_bytes] = source[:, : self.row_bytes]

    zeroed = ()  # arrays that are zero before
    block = (THREADS, 1, 1)

    @property
    def arrays(self) -> list[Any]:
        return [self.source, self.target]

    def on(self, arrays: Sequence[Any]) -> RowCopy:
        """The same on other arrays, in the order of `arrays`."""
        return replace(self, source=arrays[0], target=arrays[1])

    def compiled(self, arch: str) -> Compiled:
        return compile_source(KERNEL, arch=arch)

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks of `KERNEL`."""
        return -(-self.target_pitch // (GRANULE * THREADS)), min(self.rows, MOST_ROWS), 1

    @property
    def arguments(self) -> list[Any]:
        """Of `KERNEL`."""
        return [
            self.source, np.int64(self.source_pitch), self.target, np.int64(self.target_pitch), np.int32(self.rows),
            np.int64(self.row_bytes),
        ]  # fmt: skip


def aligned_pitch(row_bytes: int) -> int:
    """The least pitch that the tensor memory accelerator can take, in bytes."""
    return -(-row_bytes // GRANULE) * GRANULE
