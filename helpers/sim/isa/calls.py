"""Functions that the compiled code calls but does not contain: printf and assert."""

from __future__ import annotations

import re
import struct

import numpy as np

from helpers.sim.checks import unwritten
from helpers.sim.code.addresses import DEVICE_BASE, LOCAL_WINDOW, WINDOW_BYTES
from helpers.sim.machine import printout

from .base import instruction

_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|z|t|j)?([diouxXcsfFeEgGaAp%])")


def text_at(m, address: int) -> str:
    """The zero-terminated string at a device address."""
    start = address - DEVICE_BASE
    data = m.memory.bytes
    if not 0 <= start < len(data):
        return "(invalid string)"
    stop = start
    while stop < len(data) and data[stop]:
        stop += 1
    return bytes(data[start:stop]).decode("utf-8", "replace")


def _frame(op, first: int, count: int) -> list[int]:
    """Offsets of the call's argument places in the parameter frame."""
    return [op.immediate(i) for i in range(first, first + count)]


def formatted(m, form: str, read, line: int | None) -> str:
    """C's printf. `read(width)` gives the next argument's bytes. Stops the kernel at `line` if a field is wider than any output."""

    def convert(match):
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        stars = [str(struct.unpack("<i", read(4))[0]) if part == "*" else part for part in (width, precision)]
        if any(abs(int(part or 0)) > printout.BYTES for part in stars if part is not None):
            m.fail(f"`{match[0]}` asks printf for more than the {printout.BYTES:,} characters that a launch can print.", line)
        spec = "%" + flags + (stars[0] or "") + ("." + stars[1] if stars[1] is not None else "")
        if kind in "fFeEgGaA":
            value = struct.unpack("<d", read(8))[0]
            return value.hex() if kind in "aA" else (spec + kind) % value
        if kind == "s":
            return (spec + "s") % text_at(m, struct.unpack("<Q", read(8))[0])
        if kind == "p":
            return hex(struct.unpack("<Q", read(8))[0])
        wide = length in ("ll", "l", "z", "t", "j")
        raw = read(8 if wide else 4)
        value = int.from_bytes(raw, "little", signed=kind in "di")
        if kind == "c":
            return (spec + "c") % chr(value & 255)
        if length in ("h", "hh"):
            bits = 16 if length == "h" else 8
            value &= (1 << bits) - 1
            if kind in "di" and value >> (bits - 1):
                value -= 1 << bits
        return (spec + ("d" if kind == "i" else kind)) % value

    return _CONVERSION.sub(convert, form)


@instruction("call.vprintf")
def vprintf(op):
    """printf(format, arguments in local memory): prints for each thread in order, and gives the argument count."""
    results = op.immediate(0)
    places = _frame(op, 1, len(op.operands) - 1)
    result, (form_at, arguments_at) = places[:results], places[results:]
    line = op.line

    def run(m):
        forms = m.rows_of(m.params.load(m, np.full((1,) * m.nd, form_at, np.int64), 8)).astype(np.int64)
        bases = m.rows_of(m.params.load(m, np.full((1,) * m.nd, arguments_at, np.int64), 8)).astype(np.int64)
        active = np.ones((m.blocks, m.threads), bool) if m.mask is None else m.rows_of(m.mask)
        local = {}
        if m.launch.printed.full:
            m.launch.printed.skip(int(active.sum()))
            active = np.zeros_like(active)

        def word(offset, block, thread):
            if offset not in local:
                local[offset] = m.rows_of(m.local.load(m, m.uniform(offset, np.int64), 4))
                if m.undefined is not None and m.program.doubts.followed:
                    bits = m.undefined.shadow(m, "local").load(m, m.uniform(offset, np.int64), 4)
                    if ((m.rows_of(bits) != 0) & active).any():
                        unwritten.printed(m)
            return int(local[offset][block, thread])

        for block, thread in np.argwhere(active):
            form = text_at(m, int(forms[block, thread]))
            if m.launch.printed.full:
                m.launch.printed.skip(1)
                continue
            position = int(bases[block, thread])
            if LOCAL_WINDOW <= position < LOCAL_WINDOW + WINDOW_BYTES:
                position -= LOCAL_WINDOW

            def read(width, block=block, thread=thread):
                nonlocal position
                position = -(-position // width) * width
                data = b"".join(word(position + i, block, thread).to_bytes(4, "little") for i in range(0, width, 4))
                position += width
                return data

            m.launch.printed.write(formatted(m, form, read, line))
        for place in result:
            m.params.store(m, m.uniform(place, np.int64), m.uniform(1, np.uint32), 4, m.mask)

    return run


@instruction("call.__assertfail")
def assertfail(op):
    """assert(condition) that does not hold: stops the kernel, naming the condition and the thread."""
    message_at, _, _, _, _ = _frame(op, 1 + op.immediate(0), 5)
    line = op.line

    def run(m):
        messages = m.params.load(m, m.uniform(message_at, np.int64), 8).astype(np.int64)
        active = np.ones((1,) * m.nd, bool) if m.mask is None else m.mask
        block, thread, address, count = m.example(active, messages)
        others = f" and {count - 1} others" if count > 1 else ""
        m.fail(f"the assertion `{text_at(m, address)}` does not hold for thread {thread} of block {block}{others}.", line)

    return run


def _heap(op):
    op.fail("works with memory that the kernel itself allocates or frees. The machine has no heap: pass an array instead")


@instruction("call.nothing")
def nothing(op):
    """A call through a pointer that holds the address of no function that could be meant."""
    target, line = op.source(0, "u64"), op.line

    def run(m):
        if m.mask is not None and not m.mask.any():
            return
        held = m.rows_of(m.regs[target].view(np.uint64))
        active = np.ones(held.shape, bool) if m.mask is None else m.rows_of(m.mask)
        address = int(held[np.broadcast_to(active, held.shape)][0])
        what = "null" if address == 0 else f"{address:#x}, which no function with such parameters has, or one that this call is part of"
        m.fail(f"calls through a pointer that is {what}.", line)

    return run


@instruction("call.malloc")
def malloc(op):
    """malloc() and new: refused, because there is no heap."""
    _heap(op)


@instruction("call.free")
def free(op):
    """free() and delete: refused, because arrays belong to the host."""
    _heap(op)
