"""Launching a compiled kernel through CuPy, once."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from helpers.errors import LaunchError
from helpers.sim.layouts.struct_value import StructValue
from helpers.sim.layouts.tensor_map import TensorMap

from ..tensor_maps import encode_for_gpu
from . import event_timing, failures, presence, properties
from .event_timing import Timing
from .transfers import OnDevice, handed_over, is_device_array, memories

_MODULES_KEPT = 64


class Before(Protocol):
    """A launch that comes before a kernel's each time, as a part of its time: a `RowCopy` or a `Pass`."""

    @property
    def grid(self) -> tuple[int, int, int]: ...

    @property
    def block(self) -> tuple[int, int, int]: ...

    @property
    def arguments(self) -> list[Any]: ...

    @property
    def arrays(self) -> list[Any]:
        """The arrays among its arguments."""
        ...

    @property
    def zeroed(self) -> tuple[Any, ...]:
        """Those that are zero before it."""
        ...

    def on(self, arrays: Sequence[Any]) -> Before:
        """The same on other arrays, in the order of `arrays`."""
        ...

    def compiled(self, arch: str) -> Any: ...


_functions: OrderedDict[tuple, Any] = OrderedDict()


def loaded(compiled, shared: int):
    """The loaded kernel, ready for `shared` bytes of dynamic shared memory."""
    from cupy.cuda.function import Module
    from cupy_backends.cuda.api import driver

    image = compiled.cubin or compiled.ptx.encode() + b"\0"
    key = (hashlib.sha256(image).hexdigest(), compiled.symbol)
    function = _functions.get(key)
    if function is None:
        module = Module()
        module.load(image)
        function = module.get_function(compiled.symbol)
        _functions[key] = function
        while len(_functions) > _MODULES_KEPT:
            _functions.popitem(last=False)
    _functions.move_to_end(key)
    if shared + compiled.shared_bytes > 48 * 1024:
        driver.funcSetAttribute(function.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
    return function


def launcher(
    compiled,
    grid,
    block,
    args: Sequence[Any],
    shared: int = 0,
    cluster: tuple[int, int, int] | None = None,
    before: Sequence[Before] = (),
) -> Callable[[], None]:
    """A function that launches the kernel once on CuPy's current stream. `args` are CuPy arrays, tensor maps of them, NumPy scalars.

    cluster: blocks per cluster (x, y, z). before: on CuPy arrays, launched before the kernel each time. Raises LaunchError if the kernel
    cannot be loaded.
    """
    once = _launcher(compiled, grid, block, args, shared, cluster)
    if not before:
        return once
    first = [_launcher(item.compiled(presence.arch()), item.grid, item.block, item.arguments, 0, None) for item in before]
    zeroed = [item.zeroed for item in before]

    def all_of_it() -> None:
        for arrays, launch in zip(zeroed, first, strict=True):
            for array in arrays:
                array.data.memset_async(0, array.nbytes)
            launch()
        once()

    return all_of_it


def _launcher(compiled, grid, block, args: Sequence[Any], shared: int, cluster: tuple[int, int, int] | None) -> Callable[[], None]:
    presence.need()
    try:
        function = loaded(compiled, shared)
        if cluster is not None or ".reqnctapercluster" in compiled.ptx:
            _check(_driver().cuFuncSetAttribute(ctypes.c_void_p(function.ptr), _NON_PORTABLE_ALLOWED, 1))
    except failures.cuda_errors() as error:
        raise failures.explain(error, compiled.entry) from None
    arguments = tuple(_device_argument(value) for value in args)
    cooperative = "%envreg2" in compiled.ptx  # this_grid() asks there for the barrier that such a launch brings
    if cluster is not None or cooperative:
        return _extended(function, grid, block, arguments, shared, cluster, cooperative)

    def once(kept=args) -> None:  # a tensor map's array must live as long as this function
        function(tuple(grid), tuple(block), arguments, shared)

    return once


def _device_argument(value: Any) -> Any:
    """An argument as CuPy passes it to a kernel."""
    if value is None:
        return np.uint64(0)
    if isinstance(value, StructValue):
        if not all(map(is_device_array, memories(value))):
            raise LaunchError("This launch works on arrays that are on the GPU: put CuPy arrays into the struct.")
        return handed_over(value, lambda array: array.data.ptr)
    if not isinstance(value, TensorMap):
        return value
    if not is_device_array(value.memory):
        raise LaunchError("This launch works on arrays that are on the GPU: make the tensor map of a CuPy array.")
    return encode_for_gpu(value, value.memory.data.ptr)


# What CuPy does not offer: launches with attributes, as cuda.h declares them. (cuda-bindings would: 12 MB to download and 110 MB
# on disk, one release line per CUDA version, for these few lines.)

_NON_PORTABLE_ALLOWED = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: more than 8 blocks, if the GPU can
_COOPERATIVE, _CLUSTER_DIMENSION = 2, 4  # CU_LAUNCH_ATTRIBUTE_…


class _Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("padding", ctypes.c_char * 4), ("value", ctypes.c_uint * 16)]


class _Config(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint),
    ]  # fmt: skip


@functools.cache
def _driver():
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def _check(status: int) -> None:
    if status:
        from cupy_backends.cuda.api.driver import CUDADriverError

        raise CUDADriverError(status)


def _extended(function, grid, block, arguments, shared, cluster, cooperative) -> Callable[[], None]:
    """A function that launches with a cluster, or cooperatively, on CuPy's current stream."""
    cupy = presence.need()
    values = []
    for value in arguments:
        data = np.uint64(value.data.ptr) if is_device_array(value) else value
        values.append(ctypes.create_string_buffer(data.tobytes()))
    pointers = (ctypes.c_void_p * max(1, len(values)))(*map(ctypes.addressof, values))
    wanted = [(_COOPERATIVE, (1,))] if cooperative else []
    wanted += [(_CLUSTER_DIMENSION, cluster)] if cluster is not None else []
    attributes = (_Attribute * len(wanted))(*(_Attribute(kind, b"", (ctypes.c_uint * 16)(*value)) for kind, value in wanted))
    sizes = [(ctypes.c_uint * 3)(*extent) for extent in (grid, block)]

    def once(kept=(arguments, values)) -> None:  # the arrays must outlive the launch
        config = _Config(*sizes, shared, cupy.cuda.get_current_stream().ptr, attributes, len(wanted))
        _check(_driver().cuLaunchKernelEx(ctypes.byref(config), ctypes.c_void_p(function.ptr), pointers, None))

    return once


def run_once(work: Callable[[], None], name: str) -> None:
    """Run a function that launches something on the current stream, and wait for it. Raises RunError, LaunchError."""
    cupy = presence.need()
    try:
        cupy.cuda.Device().synchronize()
        stream = event_timing.own_stream()
        with stream:
            work()
            done = event_timing.new_event()
            done.record(stream)
            failures.wait(done, name)
    except failures.cuda_errors() as error:
        raise failures.explain(error, name) from None


def launch(
    compiled,
    grid,
    block,
    args: Sequence[Any],
    shared: int = 0,
    repeat: int | None = None,
    cluster: tuple[int, int, int] | None = None,
    before: Sequence[Before] = (),
    symbols: Sequence[tuple[str, bytes | StructValue]] = (),
) -> Timing:
    """Run a kernel on the GPU. NumPy arrays in `args` are copied there and back; CuPy arrays are used in place.

    grid, block: (x, y, z). shared: dynamic shared memory, bytes per block. repeat: None times the one launch that made
    the results; n takes n samples more (see the module's head), on data that the reader never sees changed. cluster:
    blocks per cluster (x, y, z). before: launched before each launch, and part of its time. symbols: bytes for the beginnings of the
    kernel's variables, or structs with arrays, by the names in its PTX, copied before the first launch.
    Raises LaunchError if the launch is refused, RunError if the kernel goes wrong or does not end.
    """
    cupy = presence.need()
    name = compiled.entry
    try:
        on_device = OnDevice(cupy, [*args, *(array for item in before for array in item.arrays), *(value for _, value in symbols)])
        there, rest = on_device.args[: len(args)], iter(on_device.args[len(args) :])
        before = [item.on([next(rest) for _ in item.arrays]) for item in before]
        once = launcher(compiled, grid, block, there, shared, cluster, before)
        for (symbol, _), value in zip(symbols, rest, strict=True):
            data = bytes(value)
            address = loaded(compiled, shared).module.get_global_var(symbol)
            cupy.cuda.runtime.memcpy(address, np.frombuffer(data, np.uint8).ctypes.data, len(data), cupy.cuda.runtime.memcpyHostToDevice)
        cupy.cuda.Device().synchronize()
        stream = event_timing.own_stream()
        with stream:
            start, stop = event_timing.new_event(), event_timing.new_event()
            event_timing.Flush.shared().overwrite(stream)
            start.record(stream)
            once()
            stop.record(stream)
            failures.wait(stop, name)
        elapsed = cupy.cuda.get_elapsed_time(start, stop)
        on_device.fetch()
        if not repeat:
            return Timing(elapsed, 0.0, 1, properties.clock_mhz(), properties.device().name)
        held = [memory for value in (*args, *(value for _, value in symbols)) for memory in memories(value)]
        kept = [(value, value.copy()) for value in held if is_device_array(value)]
        try:
            return event_timing.interleave({name: once}, samples=repeat)[name]
        finally:
            for value, copy in kept:
                value[...] = copy
    except failures.cuda_errors() as error:
        raise failures.explain(error, name) from None
