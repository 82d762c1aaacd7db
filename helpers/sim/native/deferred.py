"""Instructions that compiled code asks the NumPy machine about: rare ones, outside of loops, whose meaning is nobody else's.

The source registers go to a buffer, the instruction's own closure runs on 32 lanes, and its results come back. That takes
some ten microseconds, and is exact by definition.
"""

from __future__ import annotations

import ctypes

import numpy as np

from helpers.sim.isa import DTYPES
from helpers.sim.machine.lanes import Lanes
from helpers.sim.machine.memory import RAW

from .lower import Value
from .offsets import CONTEXT
from .uniformity import Unsupported, read, written

# What works thread by thread and depends on nothing but its operands.
LANEWISE = frozenset((
    "abs", "add", "bfe", "bfi", "bfind", "bmsk", "cnot", "copysign", "cos", "cvt", "div", "dp2a", "dp4a", "ex2", "fma", "fns", "lg2",
    "mad", "mad24", "max", "min", "mul", "mul24", "neg", "prmt", "rcp", "rem", "rsqrt", "sad", "set", "setp", "shf", "sin", "slct",
    "sqrt", "sub", "szext", "tanh", "testp",
))  # fmt: skip
SLOT = 256  # bytes of the buffer for a register
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_void_p)


def lower(low, instruction) -> None:
    """Write the call. Raises Unsupported."""
    names = list(dict.fromkeys(read(instruction)))
    results = written(instruction)
    if (
        instruction.name not in LANEWISE or "cc" in instruction.modifiers or instruction.guard or low.block.index in low.looping
        or not results or not {*names, *results} <= set(low.types)
    ):  # fmt: skip
        raise Unsupported(f"`{instruction.opcode}`")
    kinds = low.function.registers
    for slot, name in enumerate(names):
        value = low.full(low.whole(name))
        width = _bits(kinds[name])
        value = low.new(f"zext <32 x i1> {value} to <32 x i8>") if kinds[name] == "pred" else value
        low.emit(f"store <32 x i{width}> {value}, ptr {_slot(low, slot)}, align 64")
    number = len(low.asked)
    low.asked.append((low.position, tuple(names), tuple(results)))
    ask = low._field("%ctx", CONTEXT["ask"], "ptr")
    low.emit(f"call void {ask}(i32 {number}, ptr %buffer)")
    for slot, name in enumerate(results, len(names)):
        value = low.new(f"load <32 x i{_bits(kinds[name])}>, ptr {_slot(low, slot)}, align 64")
        if kinds[name] == "pred":
            value = low.new(f"trunc <32 x i8> {value} to <32 x i1>")
        type_ = "i1" if kinds[name] == "pred" else f"i{_bits(kinds[name])}"
        if name in low.a.varying:
            low.set(name, low.cast(Value(type_, v=value), low.types[name]))
        else:
            one = low.new(f"extractelement <32 x {type_}> {value}, i32 {low.first_lane()}")
            low.set(name, low.cast(Value(type_, s=one), low.types[name]))


def _bits(kind: str) -> int:
    return max(16, 8 * DTYPES[kind].itemsize) if kind != "pred" else 8


def _slot(low, number: int) -> str:
    return low.new(f"getelementptr i8, ptr %buffer, i64 {SLOT * number}") if number else "%buffer"


class Asked:
    """Answers one worker's questions. questions: (position, registers read, registers written) each, as `lower` numbered them."""

    def __init__(self, program, questions):
        self.questions = questions
        self.failure: Exception | None = None
        self.numbers = {name: index for index, name in program.register_names.items() if isinstance(name, str)}
        self.dtypes = [DTYPES[kind] for kind in program.types]
        self.machine = m = Lanes([np.zeros((1, 1, 1), np.int64)] * 3, (1, 1, 1), (32, 1, 1), (1, 1, 1))
        m.regs = [m.uniform(0, dtype) for dtype in self.dtypes]
        for index, value in program.constants:
            m.regs[index] = value.reshape((1,) * m.nd)
        m.mask, m.protected, m.wide = None, 0, [None] * len(m.regs)
        wanted = {position for position, _, _ in questions}
        self.steps = {}
        for block in program.blocks:
            start = 0
            for mark in block.marks:
                if mark.position in wanted:
                    self.steps[mark.position] = block.plain[start : mark.plain]
                start = mark.plain
        self.callback = CALLBACK(self._answer)

    def _answer(self, number: int, buffer: int) -> None:
        try:
            self._run(number, buffer)
        except Exception as error:  # ctypes would only print it; the launcher passes it on
            self.failure = error

    def _run(self, number: int, buffer: int) -> None:
        position, names, results = self.questions[number]
        m = self.machine
        slots = (ctypes.c_uint8 * (SLOT * (len(names) + len(results)))).from_address(buffer)
        words = np.frombuffer(slots, np.uint8).reshape(-1, SLOT)
        for slot, name in enumerate(names):
            index = self.numbers[name]
            dtype = self.dtypes[index]
            m.regs[index] = words[slot, : 32 * dtype.itemsize].view(dtype).copy()
        with np.errstate(all="ignore"):
            for step in self.steps[position]:
                step(m)
        for slot, name in enumerate(results, len(names)):
            value = m.regs[self.numbers[name]]
            raw = RAW[self.dtypes[self.numbers[name]].itemsize]
            value = value.view(RAW[value.dtype.itemsize]).astype(raw)
            words[slot, : 32 * raw.itemsize].view(raw)[:] = value
