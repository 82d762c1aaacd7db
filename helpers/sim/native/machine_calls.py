"""Instructions that compiled code leaves to the NumPy machine: rare ones, outside of loops, whose meaning is nobody else's.

The source registers go to a buffer, the instruction's own closures run on 32 lanes, and its results come back. That takes
some ten microseconds, and is exact by definition.
"""

from __future__ import annotations

import ctypes

import numpy as np

from helpers.sim.code.program import Effect
from helpers.sim.isa import DTYPES
from helpers.sim.machine.lanes import Lanes
from helpers.sim.machine.memory import RAW

from .declined import Unsupported, named
from .lower import Value
from .offsets import CONTEXT

SLOT = 256  # bytes of the buffer for a register
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_void_p)


def lower(low) -> None:
    """Write the call. Raises Unsupported."""
    op = low.op
    names, results = ([low.register_names.get(register, "") for register in registers] for registers in (op.reads, op.writes))
    others = not {*names, *results} <= set(low.types)
    if others or op.effect is not Effect.PURE or op.guard is not None or low.block.index in low.looping or not op.writes:
        raise Unsupported(named(op), op)
    for slot, name in enumerate(names):
        value = low.full(low.whole(name))
        width = _bits(low.kinds[name])
        value = low.new(f"zext <32 x i1> {value} to <32 x i8>") if low.kinds[name] == "pred" else value
        low.emit(f"store <32 x i{width}> {value}, ptr {_slot(low, slot)}, align 64")
    number = len(low.calls)
    low.calls.append(op.position)
    call = low._field("%ctx", CONTEXT["machine_call"], "ptr")
    low.emit(f"call void {call}(i32 {number}, ptr %buffer)")
    for slot, name in enumerate(results, len(names)):
        kind = low.kinds[name]
        value = low.new(f"load <32 x i{_bits(kind)}>, ptr {_slot(low, slot)}, align 64")
        if kind == "pred":
            value = low.new(f"trunc <32 x i8> {value} to <32 x i1>")
        type_ = "i1" if kind == "pred" else f"i{_bits(kind)}"
        if name in low.a.varying:
            low.set(name, low.cast(Value(type_, v=value), low.types[name]))
        else:
            one = low.new(f"extractelement <32 x {type_}> {value}, i32 {low.first_lane()}")
            low.set(name, low.cast(Value(type_, s=one), low.types[name]))


def _bits(kind: str) -> int:
    return max(16, 8 * DTYPES[kind].itemsize) if kind != "pred" else 8


def _slot(low, number: int) -> str:
    return low.new(f"getelementptr i8, ptr %buffer, i64 {SLOT * number}") if number else "%buffer"


class MachineCalls:
    """Executes instructions for one worker. positions: theirs in the program, as `lower` numbered them."""

    def __init__(self, program, positions):
        self.ops = [program.ops[position] for position in positions]
        self.failure: Exception | None = None
        self.dtypes = [DTYPES[kind] for kind in program.types]
        self.machine = m = Lanes([np.zeros((1, 1, 1), np.int64)] * 3, (1, 1, 1), (32, 1, 1), (1, 1, 1))
        m.regs = [m.uniform(0, dtype) for dtype in self.dtypes]
        for index, value in program.constants:
            m.regs[index] = value.reshape((1,) * m.nd)
        m.mask, m.protected, m.wide = None, 0, [None] * len(m.regs)
        self.callback = CALLBACK(self._answer)

    def _answer(self, number: int, buffer: int) -> None:
        try:
            self._run(self.ops[number], buffer)
        except Exception as error:  # ctypes would only print it; the launcher passes it on
            self.failure = error

    def _run(self, op, buffer: int) -> None:
        m = self.machine
        slots = (ctypes.c_uint8 * (SLOT * (len(op.reads) + len(op.writes)))).from_address(buffer)
        words = np.frombuffer(slots, np.uint8).reshape(-1, SLOT)
        for slot, register in enumerate(op.reads):
            dtype = self.dtypes[register]
            m.regs[register] = words[slot, : 32 * dtype.itemsize].view(dtype).copy()
        with np.errstate(all="ignore"):
            for step in op.steps:
                step(m)
        for slot, register in enumerate(op.writes, len(op.reads)):
            value = m.regs[register]
            raw = RAW[self.dtypes[register].itemsize]
            words[slot, : 32 * raw.itemsize].view(raw)[:] = value.view(RAW[value.dtype.itemsize]).astype(raw)
