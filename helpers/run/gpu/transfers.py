"""Arrays on their way to the GPU and back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from helpers.sim.code.addresses import phase
from helpers.sim.layouts.struct_value import StructValue
from helpers.sim.layouts.tensor_map import TensorMap

from ..tensor_maps import encode_for_gpu
from . import presence


def is_device_array(value: Any) -> bool:
    """Whether `value` is a CuPy array (without importing CuPy to find out)."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, cupy.ndarray)


def to_host(value: Any, copy: bool = False) -> Any:
    """A CuPy array as a NumPy array, anything else as it is; copy=True copies NumPy arrays too."""
    if is_device_array(value):
        return value.get()
    return value.copy() if copy and isinstance(value, np.ndarray) else value


def memories(value: Any) -> list[Any]:
    """The arrays behind an argument: of a tensor map and of a struct those that it holds the addresses of; else the argument itself."""
    if isinstance(value, TensorMap):
        return [value.memory]
    if isinstance(value, StructValue):
        return [array for _, _, array in value.pointers]
    return [value]


def all_to_host(values: Sequence[Any], copy: bool = False) -> list[Any]:
    """`to_host` of arguments: an array that several share, such as a matrix and its tensor map, is one array there too."""
    held = {id(memory): memory for value in values for memory in memories(value) if memory is not None}
    there = {name: to_host(memory, copy) for name, memory in held.items()}

    def passed(value: Any) -> Any:
        if isinstance(value, TensorMap):
            return replace(value, memory=there[id(value.memory)])
        if isinstance(value, StructValue):
            return replace(value, pointers=tuple((name, at, there[id(array)]) for name, at, array in value.pointers))
        return None if value is None else there[id(value)]

    return [passed(value) for value in values]


def copy_back(value: Any, changed: Any) -> None:
    """Write what `to_host` gave, and a kernel changed, back into a CuPy array; nothing to do for anything else."""
    if isinstance(value, TensorMap):
        copy_back(value.memory, changed.memory)
    elif isinstance(value, StructValue):
        for array, copy in zip(memories(value), memories(changed), strict=True):
            copy_back(array, copy)
    elif is_device_array(value):
        value.set(changed)


class OnDevice:
    """Arguments on the device: NumPy arrays copied there (overlapping ones as one allocation), the rest as it is."""

    def __init__(self, cupy, args: Sequence[Any]):
        self._host: list[tuple[np.ndarray, Any]] = []
        held = [memory for value in args for memory in memories(value)]
        arrays = {id(value): value for value in held if isinstance(value, np.ndarray)}
        views = {}
        for group in overlapping(arrays.values()):
            start = min(_span(array)[0] for array in group)
            size = max(_span(array)[1] for array in group) - start
            lead = phase(min(group, key=_span))  # a view begins where it does in its array: alignment is the same as on the host
            buffer = cupy.empty(lead + max(size, 1), np.uint8)[lead:]
            for array in group:
                low, high = _span(array)
                view = buffer[low - start : high - start] if high > low else buffer
                if high > low:
                    view.set(_bytes(array))
                views[id(array)] = view
                self._host.append((array, view))
        self.args = tuple(self._pass(value, views) for value in args)

    @staticmethod
    def _pass(value, views):
        if isinstance(value, np.ndarray):
            return views[id(value)]
        if isinstance(value, TensorMap):
            encoded = encode_for_gpu(value, views.get(id(value.memory), value.memory).data.ptr)
            return upload(np.frombuffer(encoded.tobytes(), np.uint8)) if value.by_pointer else encoded
        if isinstance(value, StructValue):
            return handed_over(value, lambda array: views.get(id(array), array).data.ptr)
        if value is None:
            return np.uint64(0)
        return value

    def fetch(self) -> None:
        """Copy the arrays back to where they came from."""
        for array, view in self._host:
            if array.nbytes and array.flags.writeable:
                _bytes(array)[:] = view.get()


def handed_over(value: StructValue, address: Callable[[Any], int]) -> Any:
    """A struct as CuPy passes it to a kernel: its bytes, or where these have been put on the device."""
    packed = np.frombuffer(value.pack(address), np.uint8)
    return upload(packed) if value.by_pointer else packed.view(np.dtype((np.void, packed.size)))[0]


def upload(array: np.ndarray):
    """A copy of a contiguous array's bytes on the device, as CuPy bytes (CuPy has no bfloat16). Needs no compiler."""
    there = presence.need().empty(max(array.nbytes, 1), np.uint8)
    if array.nbytes:
        there.set(_bytes(array))
    return there


def download(there, like: np.ndarray) -> np.ndarray:
    """What `upload` made, read back with the type and shape of `like`."""
    return there.get().view(like.dtype).reshape(like.shape) if like.nbytes else like.copy()


def _span(array: np.ndarray) -> tuple[int, int]:
    low = array.__array_interface__["data"][0]
    return low, low + array.nbytes


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def overlapping(arrays) -> list[list[np.ndarray]]:
    """The arrays grouped so that those which share memory are together."""
    groups: list[list[np.ndarray]] = []
    end = None
    for array in sorted(arrays, key=_span):
        low, high = _span(array)
        if end is not None and low < end and high > low:
            groups[-1].append(array)
            end = max(end, high)
        else:
            groups.append([array])
            end = high
    return groups
