"""Instructions as the hardware's scheduler sees them: their control bits, their unit, the registers they fetch.

Since sm_70 an instruction is 128 bits, of which the upper 64 carry what the compiler planned: cycles until the warp's next instruction
(bits 41 to 44), whether the warp goes on if it can (45), the scoreboard that its result (46 to 48) and the reading of its sources (49 to
51) hold, those that it waits for (52 to 57). An operand marked `.reuse` stays in a small cache by place and bank for the next
instruction of the warp.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from helpers.model.hardware import SUB_PARTITIONS
from helpers.sim.code import elf
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sass import SassFunction, SassInstruction
from helpers.sim.code.sass_operands import SassRegister
from helpers.sim.counting.machine_code import ANY_BARRIER, SignalKind, kind_of

from .chip import Chip

_WORDS = struct.Struct("<QQ")
_NONE = 7  # no scoreboard
SCOREBOARDS = 6
REGISTER_BANKS = 2  # of the register file, since sm_70: even and odd registers; each delivers one register a cycle


# What happens to an instruction once it is issued. (Plain numbers: they are compared a million times a second.)
(
    FIXED,  # its result is there when the compiler says
    VARIABLE,  # … when its scoreboard is free
    SHARED,  # through the queue of shared memory
    LOAD,  # through the queue of device memory
    STORE,
    COPY,  # cp.async
    COMMIT,  # closes a group of copies
    AWAIT,  # waits for groups of copies
    BARRIER,
    FENCE,  # its warp waits until others can see what it wrote
    PRODUCT,  # wgmma: on the tensor core, while its warp goes on
    SUMS,  # waits for groups of products
    ARRIVE,  # at an mbarrier, through the queue of shared memory
    LOOK,  # at an mbarrier: its result is there when a phase is over
    LANDED,  # an mbarrier is to know when the copies of its warp are through
    BULK,  # a copy that says so to an mbarrier, by itself
    SENT,  # one to device memory, in a group of copies
    JOIN,  # arrives at the barrier of a cluster
    MEET,  # waits for all who arrive there
) = range(19)
FENCED = SCOREBOARDS  # as a scoreboard, what the instruction behind a FENCE waits for


@dataclass(frozen=True, slots=True)
class Scheduled:
    """One instruction. waits: scoreboards that must be free. result, sources: scoreboards that it holds, -1 for none.

    even, odd: registers it fetches from each bank, with what the warp's last instruction left to be reused; all_even, all_odd:
    without. latency: cycles until the result, without waiting for a turn. words: of a memory access, per lane. groups: of copies
    that an AWAIT leaves under way. line: of the instruction cache. slow: its result comes from device memory. past_l1: it copies past L1.
    gives_way: other warps that can issue go first. dispatch: cycles until its sub-partition may issue the next one, of whatever warp.
    rejoins: threads that have parted meet at it. barrier: its number. meets: warps that it waits for, 0: all of the block. arrives: its
    warp goes on at once. closes: it is the last of a group of products. initial: it says how many arrivals an mbarrier waits for.
    drops: later phases of the mbarrier do not wait for who arrives so.
    """

    index: int
    kind: int
    pipe: str
    busy: float
    stall: float
    waits: tuple[int, ...]
    result: int
    sources: int
    even: int
    odd: int
    all_even: int
    all_odd: int
    latency: float
    words: int
    groups: int
    line: int
    slow: bool
    past_l1: bool
    gives_way: bool
    dispatch: float
    rejoins: bool = False
    barrier: int = 0
    meets: int = 0
    arrives: bool = False
    closes: bool = False
    initial: bool = False
    drops: bool = False

    @property
    def named(self) -> bool:
        """Is it a barrier of which a path says the number, each time that it is executed?"""
        return self.meets > 0 or self.barrier == ANY_BARRIER


def scheduled(function: SassFunction, cubin: bytes, chip: Chip) -> tuple[Scheduled, ...]:
    """All instructions of a function, in order."""
    kept: dict[tuple[int, int], int] = {}
    words = zip(function.instructions, control_words(function.name, function.instructions, cubin), strict=True)
    found = [_scheduled(i, control, kept, chip) for i, control in words]
    for before, (number, step) in zip(found, enumerate(found[1:], 1), strict=False):
        if before.kind == FENCE:
            found[number] = replace(step, waits=(*step.waits, FENCED))
    return tuple(found)


def control_words(symbol: str, instructions: Sequence[SassInstruction], cubin: bytes) -> list[int]:
    """The upper 64 bits of instructions of the function `symbol`."""
    code = elf.sections(cubin)[f".text.{symbol}"].data
    return [_WORDS.unpack_from(code, i.address)[1] for i in instructions]


def stall(control: int) -> int:
    """Cycles until the warp's next instruction; 1 or more."""
    return max(1, control >> 41 & 15)


def _scheduled(i: SassInstruction, control: int, kept: dict, chip: Chip) -> Scheduled:
    switched_off = i.guard == "!PT"
    pipe = "" if switched_off else i.row.pipe
    kind, latency = (FIXED, 0.0) if switched_off else _way(i, control, chip)
    even, odd, all_even, all_odd = fetched(i, kept) if pipe in chip.busy else (0, 0, 0, 0)
    busy = chip.busy.get(pipe, 0.0)
    if pipe == "tensor" and kind != PRODUCT:
        busy = (matrix_cycles(i, chip) or (0.0,))[0]
    if pipe == "fmaheavy" and i.has("WIDE", "HI"):
        busy *= 2
    result, sources = control >> 46 & 7, control >> 49 & 7
    numbers = [int(text, 16) if text.startswith("0x") else ANY_BARRIER for text in i.operands] if kind == BARRIER else [0]
    return Scheduled(
        index=i.index,
        kind=kind,
        pipe=pipe,
        busy=busy,
        stall=stall(control) + (chip["tensor.meet"] if i.name == "WARPGROUP" and i.has("ARRIVE") else 0.0),
        waits=tuple(k for k in range(SCOREBOARDS) if control >> 52 + k & 1),
        result=-1 if result == _NONE or kind in (COPY, COMMIT) else result,
        sources=-1 if sources == _NONE else sources,
        even=even,
        odd=odd,
        all_even=all_even,
        all_odd=all_odd,
        latency=latency,
        words=max(1, i.width // 4) if i.row.space else 1,
        groups=int(i.operands[1], 16) if kind in (AWAIT, SUMS) and len(i.operands) > 1 and i.operands[1].startswith("0x") else 0,
        line=i.address >> 7,
        slow=kind in (LOAD, COPY, COMMIT, STORE, LOOK) or (kind == FENCE and not _of_block(i)),
        past_l1=kind == COPY and i.has("BYPASS"),
        gives_way=not control >> 45 & 1,
        dispatch=chip["dispatch.wide"] if i.name == "IMAD" and i.has("WIDE") else 1.0,
        rejoins=i.name == "BSYNC" and not switched_off,
        barrier=numbers[0] if numbers else ANY_BARRIER,
        meets=max(0, numbers[1] // WARP) if len(numbers) > 1 else 0,
        arrives=kind == BARRIER and i.has("ARV"),
        closes=kind == PRODUCT and _GROUP in i.operands,
        initial=kind == ARRIVE and kind_of(i) is SignalKind.INIT,
        drops=kind == ARRIVE and i.has("OPTOUT"),
    )


MATRIX_SHAPES = {"1684": 16 * 8 * 4, "1688": 16 * 8 * 8, "16816": 16 * 8 * 16}  # modifier -> multiply-adds of a warp


def matrix_cycles(i: SassInstruction, chip: Chip) -> tuple[float, float] | None:
    """How long a matrix instruction of a warp keeps its sub-partition's tensor core, and how long it would at the peak rate; None where
    that is not known: of warpgroups, of types that gpus.toml has no rate for."""
    shape = next((size for name, size in MATRIX_SHAPES.items() if i.has(name)), None)
    if found := next(filter(None, map(_OF_WARPGROUP.fullmatch, i.modifiers)), None):
        m, n, k = map(int, found.groups())
        kind = "float8" if i.name == "QGMMA" else "tf32" if i.has("TF32") else "bfloat16" if i.has("BF16") else "float16"
        rate = chip.gpu.tensor_fmas(kind) if i.name in _GMMA and not i.has("SP") else 0
        return (m * n * k / rate,) * 2 if rate else None
    rate = chip.gpu.tensor_fmas("tf32" if i.has("TF32") else "bfloat16" if i.has("BF16") else "float16")
    if i.name != "HMMA" or shape is None or not rate:
        return None
    ideal = shape / (rate / SUB_PARTITIONS)
    return ideal + (chip["tensor.synchronous"] if chip.gpu.capability.name == "9.0" else 0.0), ideal


_OF_WARPGROUP = re.compile(r"(\d+)x(\d+)x(\d+)")  # multiply-adds of a warpgroup: four warps, one for each sub-partition
_GMMA = "HGMMA", "QGMMA"
_GROUP = "gsb0"
_FENCES = "MEMBAR", "FENCE"  # FENCE: for whoever reads shared memory asynchronously


def _way(i: SassInstruction, control: int, chip: Chip) -> tuple[int, float]:
    """(kind, latency)."""
    row = i.row
    if (signal := kind_of(i)) is not None:
        kind = _BY_SIGNAL[signal]
        return kind, chip["latency.mbarrier"] if kind == LOOK else 0.0
    if i.name in _GMMA:
        return PRODUCT, (matrix_cycles(i, chip) or (0.0,))[0]
    if i.name == "WARPGROUP" and i.has("DEPBAR"):
        return SUMS, 0.0
    if i.name in _FENCES:
        return FENCE, chip["latency.fence_of_block" if _of_block(i) else "latency.fence"]
    if row.op == "ldmatrix":
        return SHARED, chip["latency.matrix"]
    if row.space == "shared":
        return SHARED, chip["latency.shared"] + max(1, i.width // 4) - 1
    if row.pipe == "mio":
        return SHARED, chip["latency.shuffle"]
    if row.op == "cp.async":
        return COPY, chip["latency.l1"]
    if row.space:
        return (STORE, 0.0) if row.op in ("st", "red") else (LOAD, chip["latency.l1"])
    if i.name in _BY_NAME:
        return _BY_NAME[i.name], 0.0
    if control >> 46 & 7 == _NONE:
        return FIXED, 0.0
    return VARIABLE, chip[f"latency.{_LATENCY_BY_NAME.get(i.name) or _LATENCY_BY_PIPE.get(row.pipe, 'other')}"]


def _of_block(fence: SassInstruction) -> bool:
    """Is it a fence for the threads of a block, or for one's own asynchronous reads?"""
    return fence.name == "FENCE" or fence.has("CTA")


_BY_SIGNAL = {
    SignalKind.INIT: ARRIVE, SignalKind.ARRIVE: ARRIVE, SignalKind.LOOK: LOOK, SignalKind.LANDED: LANDED, SignalKind.BULK: BULK,
    SignalKind.SENT: SENT,
}  # fmt: skip
_LATENCY_BY_NAME = dict.fromkeys(("LDC", "ULDC", "LDCU"), "constant") | {"S2UR": "uniform"}
_LATENCY_BY_PIPE = {"xu": "special", "fp64": "double"}
_BY_NAME = {
    "BAR": BARRIER, "LDGDEPBAR": COMMIT, "UTMACMDFLUSH": COMMIT, "DEPBAR": AWAIT, "UCGABAR_ARV": JOIN, "UCGABAR_WAIT": MEET,
}  # fmt: skip


def fetched(i: SassInstruction, kept: dict[tuple[int, int], int]) -> tuple[int, int, int, int]:
    """Registers from the even and the odd bank, with and without those that `kept` still has; `kept` is brought up to date."""
    counts = [0, 0, 0, 0]
    wide = 2 if i.row.pipe == "fp64" else 1
    for place, (text, source) in enumerate(zip(i.operands[len(i.results) :], i.sources, strict=True)):
        if not isinstance(source, SassRegister) or source.file != "R" or source.zero:
            continue
        for number in range(source.number, source.number + wide):
            bank = number % REGISTER_BANKS
            counts[2 + bank] += 1
            if kept.pop((place, bank), None) != number:
                counts[bank] += 1
            if ".reuse" in text:
                kept[place, bank] = number
    return counts[0], counts[1], counts[2], counts[3]
