"""Tensor maps for Hopper's tensor memory accelerator (TMA): one call for the GPU path and for the SIMT machine.

A tensor map (CUDA's `CUtensorMap`) tells the copy engine where a tensor lies, how large a box one instruction copies, and
how the box is permuted in shared memory. `tensor_map` makes one as a launch argument. What it holds is checked here
against the rules that NVIDIA documents for cuTensorMapEncodeTiled; the driver encodes it when the kernel goes to a GPU,
and `sim.tensor` when it goes to the machine.
"""

from __future__ import annotations

import ctypes
import functools
import numbers
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from helpers.arguments import explained
from helpers.errors import LaunchError
from helpers.sim.layouts.swizzle import SPAN
from helpers.sim.layouts.tensor_map import FLOATS, KINDS, MOST_DIMENSIONS, NBYTES, SWIZZLES, Tensor, TensorMap

MOST_SHARED = 227 * 1024  # bytes that a block can have on Hopper: no box can be larger
L2_OF_MATRICES = 128  # bytes that an L2 miss of a matrix fetches: a line
L2_PROMOTIONS = (None, 64, 128, 256)  # in the order of the driver's CUtensorMapL2promotion
# Array types that the hardware copies as something else of the same size.
_COPIED_AS = {
    "int8": "uint8", "bool": "uint8", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "int16": "uint16",
}  # fmt: skip


@explained
def tensor_map(
    array: Any,
    box: int | Sequence[int],
    swizzle: str | None = None,
    *,
    dtype: str | None = None,
    element_strides: Sequence[int] | None = None,
    out_of_bounds: str = "zero",
    l2_promotion: int | None = None,
) -> TensorMap:
    """A launch argument for a parameter `const __grid_constant__ CUtensorMap name`.

    array: NumPy or CuPy, 1 to 5 axes, the last one contiguous (a view with padded rows is fine). box: how many elements one
    copy takes along each axis, in the order of the array's axes. swizzle: "128B", "64B", "32B" or None, how 16-byte
    chunks are permuted in shared memory. dtype: how the hardware reads the elements, if not as the array's type:
    "bfloat16" for uint16 arrays, "float32_ftz", "tf32" or "tf32_ftz" for float32. element_strides: copy every n-th
    element along an axis (1 for the last one). out_of_bounds: what a load finds outside the array, "zero" or "nan" (a
    store leaves out what lies outside). l2_promotion: 64, 128 or 256, the bytes that an L2 miss fetches; a hint.

    The kernel's coordinates count from the *innermost* axis: for a matrix, {column, row}. The first one must be a multiple of
    16 bytes; those of a load may be negative. In shared memory the box begins at a multiple of 128 bytes (better of 1024
    where it is swizzled), its rows touch, and a swizzled row takes 32, 64 or 128 bytes however short it is. Interleaved and
    im2col layouts are not offered. Raises LaunchError that names the rule that is broken.

    A complete kernel, which adds 1 to each element of a matrix, tile by tile:

        #include <cuda.h>
        #include <cuda/ptx>
        namespace ptx = cuda::ptx;

        __global__ void add_one(const __grid_constant__ CUtensorMap map) {
            __shared__ alignas(128) float tile[32][32];
            __shared__ uint64_t arrived;
            const int corner[2] = {32 * (int)blockIdx.x, 32 * (int)blockIdx.y};  // column, row
            if (threadIdx.x == 0) {
                ptx::mbarrier_init(&arrived, 1);
                ptx::fence_proxy_async(ptx::space_shared);  // the copy engine sees the barrier
            }
            __syncthreads();
            if (threadIdx.x == 0) {
                ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &arrived, sizeof(tile));
                ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &map, corner, &arrived);
            }
            while (!ptx::mbarrier_try_wait_parity(&arrived, 0)) {}
            for (int row = 0; row < 32; row++) tile[row][threadIdx.x] += 1;
            ptx::fence_proxy_async(ptx::space_shared);  // the copy engine sees what the threads wrote
            __syncthreads();
            if (threadIdx.x == 0) {
                ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &map, corner, tile);
                ptx::cp_async_bulk_commit_group();
                ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());  // before the block ends, its shared memory has been read
            }
        }

        matrix = numpy.zeros((64, 96), numpy.float32)
        kernel.launch((3, 2), 32, [helpers.tensor_map(matrix, (32, 32))])
    """
    if not _is_array(array):
        raise LaunchError(f"A tensor map is made of a NumPy or CuPy array, not {type(array).__name__}.")
    if not 1 <= array.ndim <= MOST_DIMENSIONS:
        raise LaunchError(f"A tensor map has 1 to {MOST_DIMENSIONS} axes, and the array has {array.ndim}.")
    kind = _kind(array, dtype)
    box = _per_axis("box", box, array.ndim)
    steps = (1,) * array.ndim if element_strides is None else _per_axis("element_strides", element_strides, array.ndim)
    if swizzle not in SWIZZLES:
        raise LaunchError(f'swizzle={swizzle!r} does not exist: it is "128B", "64B", "32B" or None.')
    if out_of_bounds not in ("zero", "nan"):
        raise LaunchError(f'out_of_bounds={out_of_bounds!r} does not exist: it is "zero" or "nan".')
    if out_of_bounds == "nan" and kind not in FLOATS:
        raise LaunchError(f'out_of_bounds="nan" needs elements that can be NaN, and these are {kind}. Use "zero".')
    if l2_promotion not in L2_PROMOTIONS:
        raise LaunchError(f"l2_promotion={l2_promotion!r} does not exist: it is 64, 128 or 256 bytes, or None.")
    _check_layout(array)
    check_box(box, steps, KINDS[kind], swizzle)
    tensor = Tensor(0, kind, tuple(array.shape[::-1]), _strides(array), box[::-1], steps[::-1], swizzle, out_of_bounds == "nan")
    return TensorMap(array, _memory(array), _fitting(tensor), l2_promotion)


def matrix_map(memory: Any, kind: str, shape: tuple[int, int], pitch: int, box: tuple[int, int], swizzle: str | None) -> TensorMap:
    """The map of a matrix of `shape` (rows, columns) at the beginning of `memory`, a C-contiguous array, its rows `pitch` bytes apart.

    kind: how the hardware reads the elements, one of `KINDS`. box: rows and columns, as `check_box` allows them. Elements outside are
    read as zeros. For matrices that meet the hardware's rules: rows and address at multiples of 16 bytes, and not empty.
    """
    tensor = Tensor(0, kind, shape[::-1], (pitch,), box[::-1], (1, 1), swizzle, False)
    return TensorMap(memory, memory, _fitting(tensor), L2_OF_MATRICES)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (hasattr(value, "__cuda_array_interface__") and hasattr(value, "data"))


def _kind(array: Any, dtype: str | None) -> str:
    name = array.dtype.name
    if not array.dtype.isnative:
        raise LaunchError(f"The array holds {name} in the other byte order ({array.dtype.str}). Pass array.astype('{name}').")
    natural = _COPIED_AS.get(name, name)
    if dtype is None:
        if natural not in KINDS:
            raise LaunchError(f"The hardware copies no tensors of {name}: it has {', '.join(KINDS)}.")
        return natural
    kind = _COPIED_AS.get(str(dtype), str(dtype))
    if kind not in KINDS:
        raise LaunchError(f"dtype={dtype!r} is no element type of the hardware: it has {', '.join(KINDS)}.")
    if KINDS[kind] != array.dtype.itemsize:
        raise LaunchError(f"dtype={dtype!r} has {KINDS[kind]} bytes, and the array's elements ({name}) have {array.dtype.itemsize}.")
    return kind


def _per_axis(name: str, value: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    items = (value,) if isinstance(value, numbers.Integral) else tuple(value) if isinstance(value, Sequence) else None
    if items is None or not all(isinstance(item, numbers.Integral) for item in items):
        raise LaunchError(f"{name}={value!r} must be whole numbers, one for each axis of the array.")
    if len(items) != ndim:
        raise LaunchError(f"{name}={value!r} has {len(items)} number{'s' * (len(items) != 1)}, and the array has {ndim} axes.")
    return tuple(map(int, items))


def _check_layout(array: Any) -> None:
    """The rules for the tensor in device memory."""
    if 0 in array.shape:
        raise LaunchError(f"The array has shape {array.shape}: a tensor map needs at least one element along every axis.")
    if max(array.shape) > 2**32:
        raise LaunchError(f"The array has shape {array.shape}: the hardware counts up to 2**32 elements along an axis.")
    itemsize = array.dtype.itemsize
    if array.strides[-1] != itemsize and array.shape[-1] > 1:
        raise LaunchError(
            f"Elements of the last axis must touch: its stride is {array.strides[-1]} bytes, an element has {itemsize}. "
            "Copy the array, or transpose what the kernel does."
        )
    for axis, (extent, stride) in enumerate(zip(array.shape[:-1], array.strides[:-1], strict=True)):
        if extent > 1 and (stride <= 0 or stride % 16 or stride >= 2**40):
            raise LaunchError(
                f"The stride of axis {axis} is {stride} bytes, and the hardware needs a multiple of 16 (above 0, below 2**40). "
                f"Pad the rows: allocate them with a multiple of {max(1, 16 // itemsize)} elements and pass a view of the part you need."
            )
    start = _first_byte(array) - _first_byte(_owner(array))
    if start % 16:
        raise LaunchError(
            f"The tensor begins {start} bytes into its array, and the hardware needs a multiple of 16. "
            "Begin at a multiple, and shift the kernel's coordinates instead."
        )


def check_box(box: Sequence[int], steps: Sequence[int], itemsize: int, swizzle: str | None) -> None:
    """The rules for the box. box, steps: in the order of the array's axes. Raises LaunchError that names the rule that is broken."""
    for axis, (extent, step) in enumerate(zip(box, steps, strict=True)):
        if not 1 <= extent <= 256:
            raise LaunchError(f"box[{axis}] = {extent}: a copy takes 1 to 256 elements along an axis. Copy several boxes for more.")
        if not 1 <= step <= 8:
            raise LaunchError(f"element_strides[{axis}] = {step}: the hardware steps by 1 to 8 elements.")
    if steps[-1] != 1:
        raise LaunchError(f"element_strides[-1] = {steps[-1]}: along the last axis the hardware takes every element, so it must be 1.")
    inner = box[-1] * itemsize
    if inner % 16:
        raise LaunchError(
            f"The last axis of the box has {box[-1]} elements = {inner} bytes, and the hardware needs a multiple of 16 bytes. "
            f"Make it a multiple of {16 // itemsize} elements."
        )
    if swizzle is not None and inner > SPAN[swizzle]:
        raise LaunchError(
            f"The last axis of the box has {box[-1]} elements = {inner} bytes, and a swizzle of {swizzle} permutes rows of at most "
            f"{SPAN[swizzle]} bytes: use at most {SPAN[swizzle] // itemsize} elements, or another swizzle."
        )


def _fitting(tensor: Tensor) -> Tensor:
    """The tensor, if its box fits into shared memory. Raises LaunchError."""
    if tensor.nbytes > MOST_SHARED:
        raise LaunchError(
            f"The box {tensor.box[::-1]} has {tensor.nbytes} bytes, more than the {MOST_SHARED} bytes of shared memory that a block can "
            "have. Take a smaller box and copy several times."
        )
    return tensor


def _strides(array: Any) -> tuple[int, ...]:
    """Bytes between elements, for all axes but the last, innermost first. An axis of one element gets a stride that is allowed."""
    strides, least = [], array.shape[-1] * array.dtype.itemsize
    for extent, stride in zip(array.shape[-2::-1], array.strides[-2::-1], strict=True):
        strides.append(int(stride) if extent > 1 else -(-least // 16) * 16)
        least = strides[-1] * extent
    return tuple(strides)


def _first_byte(array: Any) -> int:
    return array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else array.data.ptr


def _owner(array: Any) -> Any:
    while isinstance(array.base, type(array)):
        array = array.base
    return array


def _memory(array: Any) -> Any:
    """The array itself if its elements are all it spans, else the bytes from its first element to its last."""
    if array.flags.c_contiguous:
        return array
    nbytes = sum((extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)) + array.dtype.itemsize
    if isinstance(array, np.ndarray):
        first = array[(slice(0, 1),) * array.ndim].view(np.uint8)
        return np.lib.stride_tricks.as_strided(first.reshape(-1), (nbytes,), (1,), writeable=array.flags.writeable)
    return type(array)((nbytes,), np.uint8, memptr=array.data)


# ------------------------------------------------------------------------------------------------------- for the GPU


@functools.cache
def _driver():
    """cuTensorMapEncodeTiled of the installed driver."""
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    encode = library.cuTensorMapEncodeTiled
    lists = [ctypes.POINTER(kind) for kind in (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)]
    encode.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, *lists, *[ctypes.c_int] * 4]
    encode.restype = ctypes.c_int
    return encode


def encode_for_gpu(map_: TensorMap, address: int) -> np.void:
    """The driver's 128 bytes for a tensor at a device address. Raises LaunchError if the driver refuses."""
    tensor = map_.tensor
    room = np.zeros(NBYTES + 64, np.uint8)
    start = -room.ctypes.data % 64  # the driver writes to a multiple of 64
    wide, narrow = ctypes.c_uint64, ctypes.c_uint32
    numbers_ = [
        (kind * max(1, len(values)))(*values)
        for kind, values in ((wide, tensor.shape), (wide, tensor.strides), (narrow, tensor.box), (narrow, tensor.steps))
    ]
    status = _driver()(
        room.ctypes.data + start, list(KINDS).index(tensor.kind), tensor.rank, address, *numbers_,
        0, SWIZZLES.index(tensor.swizzle), L2_PROMOTIONS.index(map_.l2_promotion), int(tensor.nan),
    )  # fmt: skip
    if status:
        raise LaunchError(
            f"The driver refused the tensor map (error {status}): address {address:#x}, {tensor.kind}, shape {tensor.shape}, strides "
            f"{tensor.strides} bytes, box {tensor.box}, all innermost first."
        )
    return room[start : start + NBYTES].copy().view(np.dtype((np.void, NBYTES)))[0]
