"""Tensor maps: what a bulk tensor copy knows of the array it copies from or to.

The driver packs a tensor map into 128 bytes whose meaning it keeps to itself. The machine has a form of its own, which
it puts where the kernel's parameter is; a kernel may copy it about like any other bytes. `helpers.tensor_map` makes
tensor maps and checks them.

Everything here counts dimensions as CUDA does: dimension 0 is the innermost, an array's last axis.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .swizzle import SPAN

NBYTES = 128
MOST_DIMENSIONS = 5
MAGIC = int.from_bytes(b"\xffTENSOR\xff", "little")
SWIZZLES = (None, "32B", "64B", "128B")  # in the order of the driver's CUtensorMapSwizzle
# How the hardware reads elements, in the order of the driver's CUtensorMapDataType, with their bytes.
KINDS = {
    "uint8": 1, "uint16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8, "float16": 2, "float32": 4, "float64": 8,
    "bfloat16": 2, "float32_ftz": 4, "tf32": 4, "tf32_ftz": 4,
}  # fmt: skip
FLOATS = frozenset(kind for kind in KINDS if "int" not in kind)
_PACKED = np.dtype([
    ("magic", "u8"), ("address", "u8"), ("strides", "i8", 4), ("shape", "u8", 5), ("box", "u2", 5), ("steps", "u1", 5),
    ("rank", "u1"), ("kind", "u1"), ("swizzle", "u1"), ("nan", "u1"),
])  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """A tensor in device memory and the box that is copied at a time.

    address: of its first element. kind: one of KINDS. shape: elements per dimension. strides: bytes from one element to
    the next along dimensions 1, 2, … (along dimension 0 they touch). box: elements that a copy spans per dimension, of
    which it takes every `steps`-th. swizzle: how the box lies in shared memory (see `swizzle`). nan: elements outside
    the tensor are read as NaN, not 0.
    """

    address: int
    kind: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: str | None
    nan: bool

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        return KINDS[self.kind]

    @functools.cached_property
    def counts(self) -> tuple[int, ...]:
        """Elements that one copy takes per dimension."""
        return tuple(-(-extent // step) for extent, step in zip(self.box, self.steps, strict=True))

    @property
    def row(self) -> int:
        """Bytes that one copy takes along dimension 0."""
        return self.counts[0] * self.itemsize

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next in shared memory: a swizzled row takes its whole span, however short it is."""
        return self.row if self.swizzle is None else SPAN[self.swizzle]

    @functools.cached_property
    def nbytes(self) -> int:
        """Bytes that one copy moves: what it reports to its mbarrier."""
        return math.prod(self.counts) * self.itemsize

    def pack(self) -> bytes:
        """The machine's form of it, `NBYTES` long."""
        packed = np.zeros((), _PACKED)
        rank = self.rank
        packed["magic"], packed["address"], packed["rank"], packed["nan"] = MAGIC, self.address, rank, self.nan
        packed["kind"], packed["swizzle"] = list(KINDS).index(self.kind), SWIZZLES.index(self.swizzle)
        packed["strides"][: rank - 1], packed["shape"][:rank] = self.strides, self.shape
        packed["box"][:rank], packed["steps"][:rank] = self.box, self.steps
        return packed.tobytes().ljust(NBYTES, b"\0")

    @classmethod
    def unpack(cls, data: bytes) -> Tensor | None:
        """What `pack` made, or None if these bytes are something else."""
        packed = np.frombuffer(data[: _PACKED.itemsize], _PACKED)[0]
        if packed["magic"] != MAGIC:
            return None
        rank = int(packed["rank"])
        shape, box, steps = (tuple(packed[name][:rank].tolist()) for name in ("shape", "box", "steps"))
        return cls(
            int(packed["address"]), list(KINDS)[packed["kind"]], shape, tuple(packed["strides"][: rank - 1].tolist()), box, steps,
            SWIZZLES[packed["swizzle"]], bool(packed["nan"]),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class TensorMap:
    """A kernel argument: a tensor whose memory is `array` (NumPy or CuPy), wherever the kernel runs.

    tensor: with address 0, which is known only when the kernel is launched. memory: the bytes from the array's first
    element to its last, flat, sharing the array's memory. l2_promotion: bytes, or None; a hint to the hardware's L2.
    by_pointer: the kernel takes `const CUtensorMap*`, so the launch puts the map in device memory and passes its address.
    """

    array: Any = field(repr=False)
    memory: Any = field(repr=False)
    tensor: Tensor
    l2_promotion: int | None = None
    by_pointer: bool = False

    def at(self, address: int) -> Tensor:
        """The tensor, its memory being at `address`."""
        return replace(self.tensor, address=address)
