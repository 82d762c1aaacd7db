"""C's types of array elements, and the NumPy types that hold the same bits."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from helpers.element_types import ELEMENT_TYPES

_INTEGERS: dict[str, tuple[Any, ...]] = {
    "char": (np.int8, np.uint8), "signed char": (np.int8,), "unsigned char": (np.uint8,), "uchar": (np.uint8,),
    "short": (np.int16,), "unsigned short": (np.uint16,), "ushort": (np.uint16,),
    "int": (np.int32,), "signed": (np.int32,), "unsigned int": (np.uint32,), "unsigned": (np.uint32,), "uint": (np.uint32,),
    "long": (np.dtype("l"),), "unsigned long": (np.dtype("L"),), "ulong": (np.dtype("L"),),
    "long long": (np.int64,), "longlong": (np.int64,), "unsigned long long": (np.uint64,), "ulonglong": (np.uint64,),
    "size_t": (np.uintp,), "ptrdiff_t": (np.intp,), "uintptr_t": (np.uintp,), "intptr_t": (np.intp,),
    "int8_t": (np.int8,), "uint8_t": (np.uint8,), "int16_t": (np.int16,), "uint16_t": (np.uint16,),
    "int32_t": (np.int32,), "uint32_t": (np.uint32,), "int64_t": (np.int64,), "uint64_t": (np.uint64,),
}  # fmt: skip
DTYPES: dict[str, tuple[Any, ...]] = {
    **{f"{name}{width}": kinds for name, kinds in _INTEGERS.items() if re.fullmatch(r"[a-z]+", name) for width in "1234"},
    **{f"{name}{width}": (kind,) for name, kind in (("float", np.float32), ("double", np.float64)) for width in "1234"},
    **_INTEGERS,
    **{name: (item.storage,) for item in ELEMENT_TYPES.values() for name in item.c_names},
    "double": (np.float64,),
    "bool": (np.bool_, np.uint8),
}  # fmt: skip
CARRIER = re.compile(r"u(char|short|int|long|longlong)[234]")  # vectors by which kernels copy elements of any type that they hold whole
