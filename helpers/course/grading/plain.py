"""What anybody can write without having read the task: one result after the other, by nothing but loads from A and B, in the geometry that
the cell asks for. Counters that such a kernel has are no part of the work (see `marks`)."""

from __future__ import annotations

import re

from helpers.course.exercises import Exercise
from helpers.toolchain.host_code import device_functions

from .answers import cell_text

_NAMES = ("M", "N", "K", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc", "tile_shape")
_BODY = """
    const int width = tile_shape[1], threads = blockDim.x * blockDim.y;
    for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < tile_shape[0] * width; i += threads) {
        const int row = blockIdx.y * tile_shape[0] + i / width, col = blockIdx.x * width + i % width;
        if (row < M && col < N) {
            float sum = 0;
            for (int k = 0; k < K; k++) sum += float(A[size_t(row) * lda + k]) * float(B[size_t(k) * ldb + col]);
            auto& c = C[size_t(row) * ldc + col];
            c = beta == 0 ? alpha * sum : alpha * sum + beta * float(c);
        }
    }
"""


def plain_cell(item: Exercise) -> str | None:
    """The starter of an exercise with a plain product in place of its kernel's body; None where its kernel is none for that."""
    kernels = [part for part in device_functions(item.starter) if "__global__" in part.head] if item.language == "cu" else []
    if not kernels or not all(re.search(rf"\b{name}\b", item.starter) for name in _NAMES):
        return None
    kernel = kernels[0]
    begin = kernel.start + len(kernel.head) + 1
    return cell_text(item, item.starter[:begin] + _BODY + item.starter[kernel.end - 1 :])
