"""Structs that a kernel takes by value, and tables of pointers: arguments that hold the addresses of several arrays.

`Kernel.launch` makes them of tuples and lists. Where the arrays are, in the machine or on a GPU, is known only when the kernel is launched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

POINTER = 8  # bytes


@dataclass(frozen=True)
class StructValue:
    """data: its bytes, zero where a pointer goes. pointers: (the member's name, where it lies in data, a NumPy or CuPy array).

    by_pointer: the kernel takes the address of these bytes, so the launch puts them in device memory: a table of pointers.
    """

    data: bytes
    pointers: tuple[tuple[str, int, Any], ...] = field(repr=False)
    by_pointer: bool = False

    def pack(self, address: Callable[[Any], int]) -> bytes:
        """The bytes that the kernel sees. address: where an array is."""
        packed = bytearray(self.data)
        for _, at, array in self.pointers:
            packed[at : at + POINTER] = address(array).to_bytes(POINTER, "little")
        return bytes(packed)


def laid_out(members: Sequence[Any], is_array: Callable[[Any], bool], name: str = "") -> tuple[bytes, int, list[tuple[str, int, Any]]]:
    """(bytes, alignment, pointers) of a struct of these members, each at the next multiple of its own size, as C lays it out.

    int is 4 bytes, float 4, bool 1, a NumPy number its own, an array or None a pointer, bytes stand as they are, a tuple or list is a
    struct in the struct. Raises TypeError for anything else, OverflowError for an int of more than 32 bits.
    """
    data, largest, pointers = bytearray(), 1, []
    names = getattr(members, "_fields", range(len(members)))  # of a NamedTuple
    for field_name, member in zip(names, members, strict=True):
        called = f"{name}.{field_name}" if isinstance(field_name, str) else f"{name}[{field_name}]"
        inner: list[tuple[str, int, Any]] = []
        if member is None or is_array(member):
            raw, align = bytes(POINTER), POINTER
            inner = [] if member is None else [(called, 0, member)]
        elif isinstance(member, (tuple, list)):
            raw, align, inner = laid_out(member, is_array, called)
        elif isinstance(member, (bytes, bytearray)):
            raw, align = bytes(member), 1
        else:
            number = _number(member)
            raw, align = number.tobytes(), number.dtype.alignment
        data.extend(bytes(-len(data) % align))
        pointers += [(inner_name, len(data) + at, array) for inner_name, at, array in inner]
        data.extend(raw)
        largest = max(largest, align)
    data.extend(bytes(-len(data) % largest))
    return bytes(data), largest, pointers


def _number(value: Any) -> np.generic | np.ndarray:
    if isinstance(value, (np.generic, np.ndarray)) and value.dtype.kind in "biuf":
        return value
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        if not -(1 << 31) <= value < 1 << 32:
            raise OverflowError(value)
        return np.array(value & 0xFFFFFFFF, np.uint32)
    if isinstance(value, float):
        return np.float32(value)
    raise TypeError(type(value).__name__)
