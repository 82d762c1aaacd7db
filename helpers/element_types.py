"""The element types that matrices of the course have: how arrays hold them, how exact they are, what CUDA calls them.

A product has two: `dtype`, of A and B, and `out_dtype`, of C. Sums are float32 in every kernel of the course.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from helpers.errors import LaunchError


@dataclass(frozen=True)
class ElementType:
    """One element type.

    name: in calls, tables and recorded rows. label: for people. storage: what NumPy arrays hold. precision: bits of the
    significand, the hidden one included. absolute: the rounding error of results too small for a relative one. sums: the
    relative error of one addition when products of this type are summed. together: products that a tensor core adds at the least before
    it cuts off. result: the type of C if none is named. c_names: in
    CUDA C++, vectors included. cuda: its cudaDataType (library_types.h).

    sums: FMAs of float32 round to nearest, 2^-24. Tensor cores cut off what does not fit, 2^-23, and for 8-bit floats some
    GPUs keep only 14 bits (measured on an H200, see sim/isa/mma.py).
    """

    name: str
    label: str
    storage: np.dtype
    precision: int
    absolute: float
    sums: float
    together: int
    result: str
    c_names: tuple[str, ...]
    cuda: int

    @property
    def bytes(self) -> int:
        return self.storage.itemsize

    @property
    def copied_as(self) -> str:
        """How a tensor map names it, whose copies change no bit: 8-bit floats are bytes there."""
        return "uint8" if self.bytes == 1 else self.storage.name

    @property
    def roundoff(self) -> float:
        """The largest relative error of rounding to this type."""
        return 2.0**-self.precision

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float(ml_dtypes.finfo(self.storage).max)

    def array(self, values: np.ndarray) -> np.ndarray:
        """float32 values rounded to this type, as arrays hold it."""
        if self.name == "tf32":  # a float32 whose low 13 bits are zero
            return ((values.astype(np.float32, copy=False).view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
        return values.astype(self.storage, copy=False)


def _type(name, label, storage, precision, absolute, sums, together, result, c_names, cuda) -> ElementType:
    return ElementType(name, label, np.dtype(storage), precision, absolute, sums, together, result, tuple(c_names.split()), cuda)


# `together` is the k of the smallest mma.sync of the type; of 8-bit floats it makes no difference, since 2^-13 is their worst case.
# float32's smallest normal number is 1.2e-38, and hardware may flush what lies below; bfloat16 has the same exponents.
ELEMENT_TYPES: dict[str, ElementType] = {item.name: item for item in (
    _type("float32", "FP32", np.float32, 24, 1e-37, 2.0**-24, 1, "float32", "float float2 float4", 0),
    _type("tf32", "TF32", np.float32, 11, 1e-37, 2.0**-23, 4, "float32", "", 0),
    _type("float16", "FP16", np.float16, 11, 2.0**-24, 2.0**-23, 8, "float16", "__half half __half2 half2", 2),
    _type("bfloat16", "BF16", ml_dtypes.bfloat16, 8, 1e-37, 2.0**-23, 8, "bfloat16",
          "__nv_bfloat16 nv_bfloat16 __nv_bfloat162 nv_bfloat162", 14),
    _type("float8_e4m3", "FP8 E4M3", ml_dtypes.float8_e4m3fn, 4, 2.0**-9, 2.0**-13, 1, "float32",
          "__nv_fp8_e4m3 __nv_fp8x2_e4m3 __nv_fp8x4_e4m3", 28),
    _type("float8_e5m2", "FP8 E5M2", ml_dtypes.float8_e5m2, 3, 2.0**-16, 2.0**-13, 1, "float32",
          "__nv_fp8_e5m2 __nv_fp8x2_e5m2 __nv_fp8x4_e5m2", 29),
)}  # fmt: skip
RESULTS = ("float32", "float16", "bfloat16")  # what C may be


def element_type(name: str) -> ElementType:
    """The type of this name. Raises LaunchError with the known ones."""
    if not isinstance(name, str) or name not in ELEMENT_TYPES:
        raise LaunchError(f"{name!r} is no element type of the course; it has {', '.join(ELEMENT_TYPES)}.")
    return ELEMENT_TYPES[name]


def result_type(dtype: str, out_dtype: str = "") -> str:
    """The type of C: the one named, else the usual one for inputs of `dtype`. Raises LaunchError for one that C cannot be."""
    wanted = out_dtype or element_type(dtype).result
    if wanted not in RESULTS:
        raise LaunchError(f"out_dtype={wanted!r}: a result is one of {', '.join(RESULTS)}.")
    return wanted


def named(dtype: str, out_dtype: str = "") -> str:
    """Both types for people: "FP32", or "FP16 to FP32" where they differ."""
    one, other = element_type(dtype).label, element_type(result_type(dtype, out_dtype)).label
    return one if one == other else f"{one} to {other}"
