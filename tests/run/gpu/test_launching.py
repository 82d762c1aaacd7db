"""What a launch on a GPU consists of, without one."""

from __future__ import annotations

import ctypes
import struct
import sys
from types import SimpleNamespace

import numpy as np

from helpers.run.gpu import launching, presence
from helpers.run.row_copies import RowCopy
from helpers.sim.layouts.struct_value import StructValue


def test_the_copies_come_before_the_kernel_each_time(monkeypatch):
    seen = []
    monkeypatch.setattr(presence, "arch", lambda: "sm_90")
    monkeypatch.setattr(
        launching, "_launcher", lambda compiled, grid, *rest: lambda: seen.append((getattr(compiled, "entry", compiled), grid))
    )
    copies = [RowCopy(np.zeros(rows * 6, np.uint8), 6, np.zeros(rows * 16, np.uint8), 16, rows, 6) for rows in (3, 4)]
    once = launching.launcher("kernel", (7, 1, 1), (32, 1, 1), [], before=copies)
    assert seen == []
    once()
    once()
    assert seen == 2 * [("copy_rows", (1, 3, 1)), ("copy_rows", (1, 4, 1)), ("kernel", (7, 1, 1))]


class DeviceArray:
    """Bytes at an address of their own."""

    def __init__(self, held, ptr):
        self.held, self.data = held, SimpleNamespace(ptr=ptr)

    def __getitem__(self, part):
        return DeviceArray(self.held[part], self.data.ptr + (part.start or 0))

    def set(self, values):
        self.held[:] = values

    def get(self):
        return self.held.copy()


def test_variables_are_filled_with_bytes_and_with_structs_that_have_the_addresses_on_the_device(fake_gpu, monkeypatch):
    work, _ = fake_gpu
    copied, places = {}, iter(range(1 << 20, 1 << 30, 1 << 20))
    cupy = sys.modules["cupy"]
    cupy.ndarray, cupy.empty = DeviceArray, lambda nbytes, dtype: DeviceArray(np.zeros(nbytes, dtype), next(places))
    cupy.cuda.runtime = SimpleNamespace(
        memcpy=lambda address, source, nbytes, _: copied.update({address: ctypes.string_at(source, nbytes)}), memcpyHostToDevice=1
    )
    module = SimpleNamespace(get_global_var={"n": 64, "args": 128}.get)
    monkeypatch.setattr(launching, "loaded", lambda compiled, shared: SimpleNamespace(module=module))
    taken, x, y = [], np.arange(6, dtype=np.float32), np.arange(3, dtype=np.float32)
    monkeypatch.setattr(launching, "launcher", lambda compiled, grid, block, args, *rest: taken.extend(args) or work("kernel", 1.0))
    args = StructValue(struct.pack("<iiQQ", 7, 0, 0, 0), (("args[1]", 8, x), ("args[2]", 16, y)))
    launching.launch(SimpleNamespace(entry="k"), (1, 1, 1), (32, 1, 1), [x], symbols=[("n", b"\5\0\0\0"), ("args", args)])
    n, _, at_x, at_y = struct.unpack("<iiQQ", copied[128])
    assert copied[64] == b"\5\0\0\0" and n == 7
    assert at_x == taken[0].data.ptr and at_y > 0 and at_y != at_x, "an array that is also an argument is one array"
