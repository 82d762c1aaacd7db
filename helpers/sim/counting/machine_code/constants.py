"""Constant banks of a launch: its extents and parameters, and what the cubin holds."""

from __future__ import annotations

import math
import re

import numpy as np

from helpers.sim.code import addresses, elf
from helpers.sim.code.ptx import declarations
from helpers.sim.layouts.struct_value import StructValue
from helpers.sim.layouts.tensor_map import TensorMap

from .values import CannotTell

# High words of generic addresses of shared and local memory; the hardware's are others, and nothing depends on them.
SHARED_WINDOW, LOCAL_WINDOW = addresses.SHARED_WINDOW >> 32, addresses.LOCAL_WINDOW >> 32


def launch_constants(ptx, symbol, arch, grid, block, args, cluster=(1, 1, 1)) -> dict[tuple[int, int], int]:
    """Constant bank 0 of a launch, as 32-bit words by (bank, byte offset): extents of block, grid and cluster, parameters."""
    number = int(re.sub(r"\D", "", arch))
    grid, block = [(*map(int, extent), 1, 1)[:3] for extent in (grid, block)]
    if number >= 100:
        at_block, at_grid, at_stack = 0x360, 0x370, 0x37C
    else:
        at_block, at_grid, at_stack = 0x0, 0xC, 0x28
    at_parameters = first_parameter(arch)
    words = {at_block + 4 * k: block[k] for k in range(3)} | {at_grid + 4 * k: grid[k] for k in range(3)}
    words[at_stack] = 0x00FFFDC0
    if number < 100:
        words |= {0x20: 0, 0x24: LOCAL_WINDOW}
    if 90 <= number < 100:
        words |= {0x144 + 4 * k: cluster[k] for k in range(3)} | {0x15C + 4 * k: grid[k] // cluster[k] for k in range(3)}
        words |= {0x150 + 4 * k: int(np.float32(1 / cluster[k]).view(np.uint32)) for k in range(3)}  # %clusterid is %ctaid times this
        words[0x188] = math.prod(cluster)
        words[0x140] = int(math.prod(cluster) > 1)  # %is_explicit_cluster
    data = bytearray()
    entry = declarations(ptx).functions.get(symbol)
    declared = entry.parameters if entry else []
    if len(declared) != len(args):
        raise CannotTell(f"the kernel has {len(declared)} parameters, not {len(args)}")
    for k, (parameter, value, offset) in enumerate(zip(declared, args, parameter_offsets(declared, arch), strict=True)):
        data.extend(b"\0" * (offset - len(data)))
        data.extend(_encode(parameter.type, parameter.nbytes, value, k))
    data.extend(b"\0" * (-len(data) % 4))
    words |= {at_parameters + i: int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)}
    return {(0, offset): word for offset, word in words.items()}


def first_parameter(arch: str) -> int:
    """Where in bank 0 the parameters of a kernel begin."""
    number = int(re.sub(r"\D", "", arch))
    return 0x380 if number >= 100 else 0x210 if number >= 90 else 0x160


def parameter_offsets(parameters, arch: str) -> list[int]:
    """Bytes from there to each parameter: they are aligned to the bank, not to the first one."""
    found, at = [], first_parameter(arch)
    for parameter in parameters:
        at += -at % parameter.align
        found.append(at - first_parameter(arch))
        at += parameter.nbytes
    return found


def cubin_constants(cubin: bytes, symbol: str) -> dict[tuple[int, int], int]:
    """Constants that ptxas placed in bank 2 and the program in bank 3, less the words that the loader fills in."""
    words = {}
    for name, bank in ((f".nv.constant2.{symbol}", 2), (".nv.constant3", 3)):
        section = elf.sections(cubin).get(name)
        if section is not None:
            filled_in = {offset & ~3 for place in section.relocated for offset in (place, place + 4)}
            data = section.data
            words |= {(bank, i): int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data) - 3, 4) if i not in filled_in}
    return words


def _encode(kind, size, value, position) -> bytes:
    if value is None:
        return bytes(size)  # a null pointer
    if isinstance(value, StructValue) and not value.by_pointer:
        arrays = [array for _, _, array in value.pointers]
        return value.pack(lambda array: _place(array, position, 1 + next(i for i, other in enumerate(arrays) if other is array)))
    if isinstance(value, (TensorMap, StructValue)):
        return bytes(size)  # nothing branches on it
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.void):
        value = value.tobytes()  # a struct; 16-bit floats are passed as one
    if isinstance(value, (bytes, bytearray)):
        return bytes(value[:size]).ljust(size, b"\0")
    if isinstance(value, (int, np.integer)) and not kind.startswith("f"):
        return (int(value) & (1 << 8 * size) - 1).to_bytes(size, "little")
    if isinstance(value, (int, float, np.number)):
        dtype = {"f64": np.float64, "f32": np.float32}.get(kind)
        if dtype is None:
            return np.asarray(value).tobytes()[:size].ljust(size, b"\0")
        return dtype(value).tobytes()
    if size == 8:
        return _place(value, position).to_bytes(8, "little")
    raise CannotTell(f"parameter {position} of type {kind} takes a number, not {type(value).__name__}")


def _place(array, position: int, member: int = 0) -> int:
    """An address of its own for the array that a parameter, or a member of one, points to."""
    return addresses.DEVICE_BASE + (position << 36) + (member << 32) + addresses.phase(array)
