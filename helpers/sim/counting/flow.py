"""Exact counts of executed machine instructions, from the part of the SASS that steers it.

ptxas unrolls, rotates and predicates loops that the PTX still shows as written, so executing the PTX cannot tell how
many machine instructions run. Executing all of the SASS is not needed either: how often each instruction runs depends
on its branches, and these in a matrix kernel depend on thread and block numbers, launch sizes and scalar arguments.
`instruction_counts` takes the backward slice of the branches (by liveness), executes only that for all threads of a
launch at once, and counts everything. Where a branch needs data that only a full execution knows (a loaded value, a
spin on a barrier), it says so instead of guessing. Values that ptxas spilled are followed through the stack.

The same slice extended by address registers gives every memory access of the launch at machine level
(`accesses=True`): an independent check of the PTX-level accounting, the exact one for warp-level matrix loads, spills and
copies past the cache, and all that `launch.count` needs.

Registers are int64 arrays of 32-bit patterns that broadcast over [grid z, grid y, grid x, threads]: a loop counter that
is the same everywhere costs one element. Threads are padded to whole warps with lanes that never run.

Divergence follows the hardware: a warp that splits runs its parts separately until they meet at BSYNC or WARPSYNC.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from helpers.sim.code import addresses
from helpers.sim.code.lines import line_of_ptx
from helpers.sim.code.sass import MEMORY_OPCODES, Function, Instruction, parse, sass_width
from helpers.sim.layouts.tensor_map import TensorMap

from . import rules

WARP = 32
# High words of generic addresses of shared and local memory; the hardware's are others, and nothing depends on them.
SHARED_WINDOW, LOCAL_WINDOW = addresses.SHARED_WINDOW >> 32, addresses.LOCAL_WINDOW >> 32
LOW = 0xFFFFFFFF
SIGN = 0x80000000


class CannotTell(Exception):
    """The slice needs something that only a full execution knows. The message says what, for the reader."""


@dataclass
class SiteAccess:
    """What one SASS memory instruction costs in a launch.

    requests: warp instructions with an active lane (local memory: one per word). sectors: as the hardware counts them;
    distinct_sectors: 32-byte chunks touched (fewer, for atomics); ideal_sectors, wavefronts, ideal_wavefronts: see `account`.
    """

    space: str
    op: str
    requests: int = 0
    sectors: int = 0
    distinct_sectors: int = 0
    ideal_sectors: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0


@dataclass(frozen=True)
class InstructionCounts:
    """Executed warp-level instructions of a launch.

    total: smsp__inst_executed.sum. by_opcode: the same per opcode name ('FFMA', 'LDS', 'BAR', …). per_instruction: the
    same per SASS instruction, in the order of the entry's code section. by_ptx_line: per 1-based PTX line.
    threads: thread-level executions of arithmetic opcodes with the guard true ('FFMA' is
    smsp__sass_thread_inst_executed_op_ffma_pred_on.sum); an opcode is absent where a guard could not be known.
    threads_of: the same per SASS instruction index.
    accesses: per SASS instruction index, one for each memory it reached; None if not asked for. `unknown_accesses`: index ->
    why its addresses are not known.
    """

    total: int
    by_opcode: dict[str, int]
    per_instruction: tuple[int, ...]
    by_ptx_line: dict[int, int]
    threads: dict[str, int]
    accesses: dict[int, tuple[SiteAccess, ...]] | None = None
    unknown_accesses: dict[int, str] = field(default_factory=dict)
    threads_of: dict[int, int] = field(default_factory=dict)
    instructions: tuple[Instruction, ...] = field(default=(), repr=False)

    @property
    def complete(self) -> bool:
        """Whether every counter of `counters` is known: all addresses, their spaces, and all guards of arithmetic."""
        counted = {i.name for i, n in zip(self.instructions, self.per_instruction, strict=True) if n and i.name in THREAD_COUNTED}
        return self.accesses is not None and not self.unknown_accesses and counted <= set(self.threads)


THREAD_COUNTED = (
    "FFMA", "FADD", "FMUL", "DFMA", "DADD", "DMUL", "HFMA2", "HADD2", "HMUL2", "IMAD", "FFMA2",
)  # fmt: skip


def instruction_counts(
    compiled,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[Any],
    blocks: Iterable[int] | None = None,
    accesses: bool = False,
    budget: int = 2_000_000,
    cluster: Sequence[int] | None = None,
    seconds: float = math.inf,
) -> tuple[InstructionCounts | None, str]:
    """(counts, '') or (None, why not) for one launch.

    compiled: needs `.sass`, `.symbol`, `.arch`, `.ptx`. grid, block: up to three extents, x first. args: one value per
    parameter; arrays stand for a pointer of their own, aligned to 256 bytes unless they are views; an int for a pointer
    parameter is its address.
    blocks: count only these linear block indices (x fastest). budget, seconds: basic blocks executed and time spent before
    giving up. cluster: blocks per cluster (x, y, z).
    """
    program = _program(compiled.sass, compiled.symbol, accesses)
    if program is None:
        return None, "there is no machine code for this kernel"
    try:
        dims = tuple(cluster or (1, 1, 1))
        constants = _constants(compiled.ptx, compiled.symbol, compiled.arch, grid, block, args, dims)
        constants |= _cubin_constants(getattr(compiled, "cubin", b""), compiled.symbol)
        return _Launch(program, grid, block, constants, blocks, accesses, budget, dims, seconds).run(), ""
    except CannotTell as reason:
        return None, str(reason)


@functools.lru_cache(maxsize=4)  # up to 20 MB each
def _program(text: str, symbol: str, accesses: bool) -> _Program | None:
    """The slice of one kernel; None if the disassembly does not have it."""
    function = parse(text).get(symbol)
    return None if function is None else _Program(function, accesses)


# --- counters under Nsight Compute's names ---------------------------------------------------------------------------

_GLOBAL_OP = {"ld": "ld", "cp.async": "ld", "st": "st", "atom": "atom", "red": "red"}
_SHARED_OP = {"ld": "ld", "ldmatrix": "ld", "st": "st", "stmatrix": "st", "atom": "atom"}
_EXECUTED = {
    "LDS": "smsp__inst_executed_op_shared_ld.sum",
    "STS": "smsp__inst_executed_op_shared_st.sum",
    "ATOMS": "smsp__inst_executed_op_shared_atom.sum",
    "LDSM": "smsp__inst_executed_op_ldsm.sum",
    "LDGSTS": "smsp__inst_executed_op_ldgsts.sum",
}  # an instruction whose guard is false counts here, too
# Tensor cores: beside smsp__inst_executed_pipe_tensor.sum, which of its parts an opcode counts in (measured on an H200).
_TENSOR = {
    "HMMA": ("hmma",), "IMMA": ("imma",), "BMMA": ("imma",), "DMMA": ("dmma",), "HGMMA": ("gmma", "hmma"), "QGMMA": ("gmma", "hmma"),
    "IGMMA": ("gmma", "imma"), "BGMMA": ("gmma", "imma"),
}  # fmt: skip
_WARPGROUP = re.compile(r"^[A-Z]GMMA(\.SP)?\.64x(\d+)x")
_THREADS = {
    name.upper(): f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in ("ffma", "fadd", "fmul", "dfma", "dadd", "dmul")
}


def counters(counts: InstructionCounts, compiled=None) -> tuple[dict[str, int], dict[int, dict[str, int]]]:
    """(totals, by line of the reader's cell) of a launch; memory counters only if it was counted with accesses=True.

    compiled: needs `.ptx`, for the lines; None leaves them out. A counter to which an access contributes whose addresses
    are not known is left out, of the totals and of every line. `sass__inst_executed_per_opcode.FFMA` and the like are
    the instances of Nsight Compute's metric of that name.
    """
    by_index: dict[int, dict[str, int]] = {}
    unknown: set[str] = set()
    for index, (instruction, executed) in enumerate(zip(counts.instructions, counts.per_instruction, strict=True)):
        if not executed:
            continue
        mine = by_index[index] = {"smsp__inst_executed.sum": executed, f"sass__inst_executed_per_opcode.{instruction.name}": executed}
        if instruction.name in _EXECUTED:
            mine[_EXECUTED[instruction.name]] = executed
        if instruction.name in _TENSOR:
            for part in ("", *(f"_op_{kind}" for kind in _TENSOR[instruction.name])):
                mine[f"smsp__inst_executed_pipe_tensor{part}.sum"] = executed
        if counts.accesses is not None and (shape := _WARPGROUP.match(instruction.opcode)):
            # The four warps together read A (if it is there; half of it, if sparse) and B from shared memory, 128 bytes at a time.
            rows_of_a = 64 if "gdesc" in instruction.operands[1] else 0
            mine["memory_l1_wavefronts_shared"] = executed // 4 * (rows_of_a + int(shape[2]) * (2 if shape[1] else 1)) // 4
            mine["memory_l1_wavefronts_shared_ideal"] = mine["memory_l1_wavefronts_shared"]
        if instruction.name in _THREADS and index in counts.threads_of:
            mine[_THREADS[instruction.name]] = counts.threads_of[index]
        if counts.accesses is None or instruction.name not in MEMORY_OPCODES:
            continue
        space, op = MEMORY_OPCODES[instruction.name]
        if index in counts.unknown_accesses:
            for possible in ("global", "shared", "local") if space == "generic" else (space,):
                unknown.update(_charged(SiteAccess(possible, op), instruction))
        for site in counts.accesses.get(index, ()):
            mine.update(_charged(site, instruction))
    lines = None
    if compiled is not None:
        lines = _cell_lines(compiled)
    totals: dict[str, int] = defaultdict(int)
    by_line: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for index, mine in by_index.items():
        line = None if lines is None else lines.get(counts.instructions[index].ptx_line)
        for name, value in mine.items():
            if name in unknown:
                continue
            totals[name] += value
            if line is not None and value:
                by_line[line][name] += value
        for site in (counts.accesses or {}).get(index, ()):
            if line is not None and site.space != "shared" and site.ideal_sectors:
                by_line[line][f"{site.space}_{_GLOBAL_OP[site.op]}_sectors_ideal"] += site.ideal_sectors
    return dict(totals), {line: dict(values) for line, values in by_line.items()}


def _cell_lines(compiled) -> dict[int, int | None]:
    """PTX line -> cell line; what stands before the first `.loc` of the entry belongs to that line, not to other code."""
    lines = line_of_ptx(compiled.ptx)
    text = compiled.ptx.split("\n")
    entry = next((k for k, line in enumerate(text, 1) if re.search(rf"\.entry\s+{re.escape(compiled.symbol)}\b", line)), 1)
    first = next((k for k in range(entry, len(text) + 1) if text[k - 1].lstrip().startswith(".loc")), None)
    if first is not None:
        lines.update(dict.fromkeys(range(entry, first), lines[first]))
    return lines


def refine(totals, by_line, compiled, grid, block, args, blocks=None, scale: float = 1.0, accesses: bool = False, cluster=None):
    """(totals, by line, why not): counters of a PTX-level run with those of the machine code put in their place.

    totals, by_line: as `Outcome` has them; they are not changed. Counters that the SASS decides (instructions executed, in
    all and per opcode; threads of FFMA and its like; with accesses=True the memory counters too) replace those of the same
    name and are added where there were none. If the SASS cannot tell, both come back as they were, with the reason.
    blocks, scale: the blocks that were run, and what their counters were multiplied by. cluster: blocks per cluster.
    """
    counts, why = instruction_counts(compiled, grid, block, args, blocks=blocks, accesses=accesses, cluster=cluster)
    if counts is None:
        return totals, by_line, why
    exact, lines = counters(counts, compiled)
    new = {**totals, **{name: round(value * scale) for name, value in exact.items()}}
    merged = {line: {name: value for name, value in values.items() if name not in exact} for line, values in by_line.items()}
    for line, values in lines.items():
        merged.setdefault(line, {}).update({name: round(value * scale) for name, value in values.items()})
    return new, dict(sorted(merged.items())), ""


def _charged(site: SiteAccess, instruction: Instruction) -> dict[str, int]:
    """The memory counters that one site adds to."""
    charged = {}
    if site.space == "local":
        charged[f"l1tex__t_requests_pipe_lsu_mem_local_op_{site.op}.sum"] = site.requests
        charged[f"l1tex__t_sectors_pipe_lsu_mem_local_op_{site.op}.sum"] = site.sectors
    elif site.space != "shared":
        op = _GLOBAL_OP[site.op]
        charged[f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum"] = site.requests
        charged[f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum"] = site.sectors
        charged["memory_l2_theoretical_sectors_global"] = site.distinct_sectors
        charged["memory_l2_theoretical_sectors_global_ideal"] = site.ideal_sectors
        if site.op == "cp.async" and "BYPASS" not in instruction.opcode:
            charged["l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access.sum"] = site.sectors
    else:
        op = _SHARED_OP[site.op]
        charged[f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"] = site.wavefronts
        charged[f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum"] = site.wavefronts - site.ideal_wavefronts
    if site.space == "shared" or site.op == "cp.async":
        charged["memory_l1_wavefronts_shared"] = site.wavefronts
        charged["memory_l1_wavefronts_shared_ideal"] = site.ideal_wavefronts
    return charged


# --- operands ------------------------------------------------------------------------------------------------------

_REGISTER = re.compile(r"^([-~!]?)(\|?)(U?R)(\d+|Z)\|?((?:\.\w+)*)$")
_PREDICATE = re.compile(r"^(!?)(U?P)(\d+|T)$")
_CONSTANT = re.compile(r"^([-~]?)\|?c\[(0x[0-9a-f]+)\]\[(0x[0-9a-f]+)\]\|?((?:\.\w+)*)$")
_INDEXED = re.compile(r"^c\[(0x[0-9a-f]+)\]\[(U?R(?:\d+|Z))(?:\+(-?0x[0-9a-f]+))?\]$")
_JUMP = re.compile(r"^(R\d+)\s+(-?0x[0-9a-f]+)?\s*\(\*\"BRANCH_TARGETS ([^\"]*)\"\*\)$")
_IN_BRACKETS = re.compile(r"(-?)(U?R\d+|U?RZ|0x[0-9a-f]+)((?:\.\w+)*)")


@dataclass(frozen=True)
class _Reg:
    file: str
    number: int  # -1: the zero register
    sign: str = ""
    suffix: str = ""

    @property
    def zero(self) -> bool:
        return self.number < 0

    def name(self, k: int = 0) -> str:
        return f"{self.file}{self.number + k}"


@dataclass(frozen=True)
class _Pred:
    name: str  # 'P0', 'UP3', or 'T' for the constant
    negated: bool


@dataclass(frozen=True)
class _Const:
    bank: int
    offset: int
    sign: str = ""


@dataclass(frozen=True)
class _Indexed:
    bank: int
    register: _Reg
    offset: int


@dataclass(frozen=True)
class _Imm:
    value: int | float


@dataclass(frozen=True)
class _Jump:
    """Where BRX goes: a 64-bit register plus an offset from the next instruction; one of the labels."""

    register: _Reg
    offset: int
    labels: tuple[str, ...]


@dataclass(frozen=True)
class _Address:
    parts: tuple[_Reg, ...]
    offset: int
    text: str


@functools.lru_cache(maxsize=1 << 14)
def _operand(text: str):
    if match := _JUMP.match(text):
        return _Jump(_operand(match[1]), int(match[2] or "0", 16), tuple(match[3].split(",")))
    if match := _PREDICATE.match(text):
        name = "T" if match[3] == "T" else match[2] + match[3]
        return _Pred(name, bool(match[1]))
    if match := _REGISTER.match(text.replace(".reuse", "")):
        number = -1 if match[4] == "Z" else int(match[4])
        return _Reg(match[3], number, match[1] + ("|" if match[2] else ""), match[5])
    if match := _CONSTANT.match(text):
        return _Const(int(match[2], 16), int(match[3], 16), match[1])
    if match := _INDEXED.match(text):
        return _Indexed(int(match[1], 16), _operand(match[2]), int(match[3] or "0", 16))
    if re.fullmatch(r"-?0x[0-9a-f]+", text):
        return _Imm(int(text, 16))
    if re.fullmatch(r"[-+]?(\d+\.?\d*(e[-+]?\d+)?|INF|Inf|NAN|QNAN|SNAN)", text):
        return _Imm(float(text.replace("QNAN", "nan").replace("SNAN", "nan")))
    if text.endswith("]"):
        inner = text[text.rindex("[") + 1 : -1]
        parts, offset = [], 0
        for sign, piece, suffix in _IN_BRACKETS.findall(inner):
            if piece.startswith("0x"):
                offset += -int(piece, 16) if sign else int(piece, 16)
            elif not piece.endswith("RZ"):
                file = piece.rstrip("0123456789")
                parts.append(_Reg(file, int(piece[len(file) :]), sign, suffix))
        return _Address(tuple(parts), offset, text)
    return text


# --- what an instruction reads and writes ----------------------------------------------------------------------------

_ONLY_PREDICATES = {"ISETP", "UISETP", "FSETP", "DSETP", "HSETP2", "PLOP3", "UPLOP3", "R2P", "FCHK", "UR2UP"}
_NO_RESULT = {
    "STG", "STS", "STL", "ST", "STSM", "RED", "REDG", "REDS", "LDGSTS", "BAR", "MEMBAR", "BRA", "EXIT", "BSSY", "BSYNC", "WARPSYNC",
    "NOP", "DEPBAR", "LDGDEPBAR", "LDGMC", "ERRBAR", "CCTL", "CCTLL", "CCTLT", "CALL", "RET", "JMP", "BRX", "YIELD", "KILL", "NANOSLEEP",
    "BREAK", "ARRIVES", "FENCE", "UBLKCP", "UTMALDG", "UTMASTG", "UTMAPF", "UTMACMDFLUSH", "UTMAREDG", "WARPGROUP", "USETMAXREG",
    "ACQBULK", "PREEXIT", "BPT", "UCGABAR_ARV", "UCGABAR_WAIT", "UTMACCTL", "ENDCOLLECTIVE", "RPCMOV", "UBLKRED", "UBLKPF",
}  # fmt: skip
_ENDS = {"BRA", "EXIT", "BSYNC", "WARPSYNC", "CALL", "RET", "BRX", "BRXU", "JMP", "JMX", "JMXU", "KILL", "BPT", "ENDCOLLECTIVE"}


def _result_count(name: str, opcode: str) -> int:
    """How many consecutive registers an instruction may write."""
    parts = opcode.split(".")
    if name in ("HGMMA", "QGMMA", "IGMMA", "BGMMA"):
        shape = re.search(r"\d+x(\d+)x\d+", opcode)
        return int(shape[1]) // 2 if shape else 128
    if name in ("HMMA", "IMMA", "DMMA", "QMMA", "OMMA", "BMMA"):
        return 4
    if name in ("LDSM", "ATOM", "ATOMG", "ATOMS", "LDG", "LDS", "LDL", "LD"):
        return 4 if name == "LDSM" else max(1, sass_width(opcode) // 4)
    if "128" in parts and name in ("ULDC", "LDC", "LDCU"):
        return 4
    if name in ("SHF", "USHF"):
        return 1  # .U64 is what it shifts, not what it gives
    if name in ("F2I", "I2F", "I2FP"):
        return 2 if {"F2I": {"S64", "U64"}}.get(name, {"F64"}) & set(parts) else 1
    if name == "F2F":
        return 2 if next((part for part in parts if part in ("F16", "BF16", "F32", "F64")), "") == "F64" else 1
    if "WIDE" in parts or "64" in parts or "U64" in parts or "S64" in parts or "F64" in parts:
        return 2
    if name in ("DADD", "DMUL", "DFMA", "DMNMX", "IADD64"):
        return 2
    if name == "CS2R":
        return 1 if "32" in parts else 2
    return 1


@dataclass(frozen=True)
class _Decoded:
    """An instruction with parsed operands, and the names of what it reads and writes."""

    instruction: Instruction
    guard: _Pred | None
    results: tuple[object, ...]  # leading operands that it writes, as printed
    sources: tuple[object, ...]
    writes: frozenset[str]
    reads: frozenset[str]
    modifiers: frozenset[str]

    @functools.cached_property
    def addressing(self) -> tuple[str, ...]:
        """What decides which bytes a memory instruction reaches."""
        deciding = [s for s in self.sources if isinstance(s, _Address) or (isinstance(s, _Pred) and self.instruction.name == "LDGSTS")]
        return tuple(name for source in deciding for name in _read_names(source))


def _decode(instruction: Instruction) -> _Decoded:
    operands = [_operand(text) for text in instruction.operands]
    name = instruction.name
    results = 0
    if name not in _NO_RESULT:
        while results < len(operands) and isinstance(operands[results], _Pred) and not operands[results].negated:
            if name in _ONLY_PREDICATES and results == (1 if name in ("FCHK", "R2P") else 2):
                break
            results += 1
        if name not in _ONLY_PREDICATES and results < len(operands) and isinstance(operands[results], _Reg):
            results += 1
            # IADD3, LEA, IMAD.WIDE and LOP3 name their carries or predicates after the register.
            if results == 1 and name in ("IADD3", "UIADD3", "LEA", "ULEA", "IMAD", "UIMAD", "VIADDMNMX", "VIMNMX"):
                while results < len(operands) and isinstance(operands[results], _Pred) and not operands[results].negated:
                    results += 1
    count = _result_count(name, instruction.opcode)
    writes = set()
    for operand in operands[:results]:
        if isinstance(operand, _Reg) and not operand.zero:
            writes.update(operand.name(k) for k in range(count))
        elif isinstance(operand, _Pred) and operand.name != "T":
            writes.add(operand.name)
    if name == "R2P":
        writes = {f"P{k}" for k in range(7)}
    if name in ("VOTE", "VOTEU"):
        writes -= {o.name for o in operands[-1:] if isinstance(o, _Pred)} if results == len(operands) else set()
        results = min(results, len(operands) - 1)
        for operand in operands[:results]:
            if isinstance(operand, _Pred) and operand.name != "T":
                writes.add(operand.name)
    if name in ("BSSY", "BMOV"):
        writes.update(o for o in operands if isinstance(o, str) and re.fullmatch(r"B\d+", o))
    guard = _operand(instruction.guard) if instruction.guard else None
    reads = set()
    sources = operands[results:]
    for operand, width in zip(sources, _widths(name, instruction.opcode, sources), strict=True):
        reads.update(_read_names(operand, width))
    reads.update(_read_names(guard))
    if name == "P2R":
        reads.update(f"P{k}" for k in range(7))
    return _Decoded(
        instruction, guard, tuple(operands[:results]), tuple(operands[results:]), frozenset(writes), frozenset(reads),
        frozenset(instruction.opcode.split(".")[1:]),
    )  # fmt: skip


def _widths(name, opcode, sources):
    """How many registers each source is, if it is one. (One too many only makes the slice larger.)"""
    if name in ("IMAD", "UIMAD"):
        if ".WIDE" not in opcode and ".HI" not in opcode:
            return [1] * len(sources)
        values = [k for k, source in enumerate(sources) if not isinstance(source, _Pred)]
        return [2 if k == values[2] else 1 for k in range(len(sources))]  # the addend
    wide = (name not in ("SHF", "USHF") and "64" in opcode) or name.startswith("D")
    return [4 if name == "STL" and "128" in opcode else 2 if wide else 1] * len(sources)


def _read_names(operand, width=1):
    """Registers that an operand names; width: how many, if it is a register itself."""
    if isinstance(operand, _Reg) and not operand.zero:
        return [operand.name(k) for k in range(width)]
    if isinstance(operand, _Pred) and operand.name != "T":
        return [operand.name]
    if isinstance(operand, _Indexed) and not operand.register.zero:
        return [operand.register.name()]
    if isinstance(operand, _Jump):
        return [operand.register.name(), operand.register.name(1)]
    if isinstance(operand, _Address):
        return [p.name(k) for p in operand.parts for k in range(2 if ".64" in p.suffix or p.file == "UR" else 1)]
    return []


# --- the slice -------------------------------------------------------------------------------------------------------


@dataclass
class _Block:
    """A straight run of instructions [start, end); only `needed` ones are executed."""

    start: int
    end: int
    needed: list[int] = field(default_factory=list)


class _Program:
    """A code section cut into basic blocks, with the slice marked."""

    def __init__(self, function: Function, accesses: bool):
        self.function = function
        self.decoded = [_decode(i) for i in function.instructions]
        self.accesses = accesses
        starts = {0, *function.labels.values()}
        for i in function.instructions:
            if i.name in _ENDS or i.name == "BSSY":
                starts.add(i.index + 1)
            if i.target is not None:
                starts.add(i.target)
        self.addresses = {i.address: i.index for i in function.instructions}
        # Return addresses are plain numbers in a register: a call's successor starts a block.
        bounds = [*sorted(s for s in starts if s < len(self.decoded)), len(self.decoded)]
        self.blocks = [_Block(a, b) for a, b in itertools.pairwise(bounds) if a < b]
        self.block_of = {b.start: b for b in self.blocks}
        # An entry sets R1 once or twice at its beginning; a function with a frame of its own moves it again.
        self.fixed_stack = sum("R1" in d.writes for d in self.decoded) <= 2
        # A store through a generic address may change what a spilled value was.
        generic_writes = {name for name, kind in MEMORY_OPCODES.items() if kind in (("generic", "st"), ("generic", "atom"))}
        self.private_stack = not any(d.instruction.name in generic_writes for d in self.decoded)
        self._mark()

    def _successors(self, block: _Block) -> list[int]:
        last = self.decoded[block.end - 1].instruction
        out = []
        if last.target is not None:
            out.append(last.target)
        unconditional = not last.guard and last.name in ("BRA", "EXIT", "JMP", "RET", "BRX", "KILL") and len(last.operands) < 2
        if last.name == "RET":
            out += [d.instruction.index + 1 for d in self.decoded if d.instruction.name == "CALL"]
        jump = next((s for s in self.decoded[last.index].sources if isinstance(s, _Jump)), None)
        if jump is not None:
            out += [self.function.labels[label] for label in jump.labels]
        elif last.name in ("BRX", "BRXU", "JMX", "JMXU"):
            out += [b.start for b in self.blocks]
        if not unconditional and block.end in self.block_of:
            out.append(block.end)
        return [s for s in out if s in self.block_of]

    def _slots(self, d: _Decoded) -> tuple[str, ...]:
        """Words of the stack that LDL and STL name, as liveness tells them apart: by offset while R1 stays where it is."""
        if d.instruction.name not in ("LDL", "STL"):
            return ()
        place = next(s for s in d.sources if isinstance(s, _Address))
        if [part.name() for part in place.parts] != ["R1"] or not self.fixed_stack:
            return ("stack",)
        words = max(1, sass_width(d.instruction.opcode) // 4)
        return tuple(f"stack+{place.offset + 4 * k}" for k in range(words))

    def _roots(self, d: _Decoded) -> frozenset[str] | None:
        """Names an instruction needs for our purpose; None if it is of no interest by itself."""
        name = d.instruction.name
        if name in _ENDS or name in ("BSSY", "BREAK", "BMOV"):
            return d.reads
        if name in THREAD_COUNTED and d.guard is not None:
            return frozenset(_read_names(d.guard))
        if self.accesses and name in MEMORY_OPCODES:
            return frozenset([*d.addressing, *_read_names(d.guard)])
        return None

    def _mark(self):
        """Find the needed instructions: registers are bits of an integer, liveness runs backwards through the blocks."""
        bits: dict[str, int] = {}

        def bits_of(names) -> int:
            out = 0
            for name in names:
                out |= bits.setdefault(name, 1 << len(bits))
            return out

        slots = [self._slots(d) for d in self.decoded]
        somewhere = {"stack"} if ("stack",) in slots else set()
        every = {slot for named in slots for slot in named}
        facts = []
        for d, mine in zip(self.decoded, slots, strict=True):
            name, roots = d.instruction.name, self._roots(d)
            kills = d.guard is None and len(d.writes) <= _result_count(name, d.instruction.opcode) + 2
            names = d.writes
            # What nothing here evaluates is unknown whatever it reads.
            needs = d.reads if name in _HANDLERS or name == "BMOV" else _read_names(d.guard)
            if mine:
                reached = every if mine == ("stack",) else {*mine, *somewhere}
                if name == "LDL":
                    needs = {*needs, *reached}
                else:
                    names, kills = reached, kills and not somewhere
            writes = bits_of(names)
            facts.append((writes, ~writes if kills else -1, bits_of(needs), None if roots is None else bits_of(roots)))
        live_in = dict.fromkeys(self.block_of, 0)
        successors = {block.start: self._successors(block) for block in self.blocks}
        predecessors = defaultdict(list)
        for block in self.blocks:
            for successor in successors[block.start]:
                predecessors[successor].append(block)
        pending = list(self.blocks)
        while pending:
            block = pending.pop()
            live = 0
            for successor in successors[block.start]:
                live |= live_in[successor]
            needed = []
            for index in range(block.end - 1, block.start - 1, -1):
                writes, kept, reads, roots = facts[index]
                if writes & live:
                    needed.append(index)
                    live = live & kept | reads
                elif roots is not None:
                    needed.append(index)
                if roots is not None:
                    live |= roots
            block.needed = needed[::-1]
            if live != live_in[block.start]:
                live_in[block.start] = live
                pending.extend(predecessors[block.start])


# --- constants -------------------------------------------------------------------------------------------------------


def _constants(ptx, symbol, arch, grid, block, args, cluster=(1, 1, 1)) -> dict[tuple[int, int], int]:
    """Constant bank 0 of a launch, as 32-bit words by (bank, byte offset): extents of block, grid and cluster, parameters."""
    number = int(re.sub(r"\D", "", arch))
    grid, block = [(*map(int, extent), 1, 1)[:3] for extent in (grid, block)]
    if number >= 100:
        at_block, at_grid, at_parameters, at_stack = 0x360, 0x370, 0x380, 0x37C
    else:
        at_block, at_grid, at_stack = 0x0, 0xC, 0x28
        at_parameters = 0x210 if number >= 90 else 0x160
    words = {at_block + 4 * k: block[k] for k in range(3)} | {at_grid + 4 * k: grid[k] for k in range(3)}
    words[at_stack] = 0x00FFFDC0
    if number < 100:
        words |= {0x20: 0, 0x24: LOCAL_WINDOW}
    if 90 <= number < 100:
        words |= {0x144 + 4 * k: cluster[k] for k in range(3)} | {0x15C + 4 * k: grid[k] // cluster[k] for k in range(3)}
        words[0x188] = math.prod(cluster)
    data = bytearray()
    declared = ptx_parameters(ptx, symbol)
    if len(declared) != len(args):
        raise CannotTell(f"the kernel has {len(declared)} parameters, not {len(args)}")
    for k, ((kind, size, alignment), value) in enumerate(zip(declared, args, strict=True)):
        data.extend(b"\0" * (-len(data) % alignment))
        data.extend(_encode(kind, size, value, k))
    data.extend(b"\0" * (-len(data) % 4))
    words |= {at_parameters + i: int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)}
    return {(0, offset): word for offset, word in words.items()}


def _cubin_constants(cubin: bytes, symbol: str) -> dict[tuple[int, int], int]:
    """Constants that ptxas placed in bank 2 and the program in bank 3, less the words that the loader fills in."""
    if cubin[:4] != b"\x7fELF":
        return {}
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + k * size) for k in range(count)]

    def name(header):
        start = headers[names_index][4] + header[0]
        return cubin[start : cubin.index(b"\0", start)].decode()

    banks = {f".nv.constant2.{symbol}": 2, ".nv.constant3": 3}
    words, filled_in = {}, set()
    for header in headers:
        if name(header) in banks:
            data, bank = cubin[header[4] : header[4] + header[5]], banks[name(header)]
            words |= {(bank, i): int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data) - 3, 4)}
        elif header[1] in (4, 9) and header[7] < count and name(headers[header[7]]) in banks:  # RELA, REL
            bank = banks[name(headers[header[7]])]
            step = 24 if header[1] == 4 else 16
            for at in range(header[4], header[4] + header[5], step):
                (offset,) = struct.unpack_from("<Q", cubin, at)
                filled_in |= {(bank, offset & ~3), (bank, (offset & ~3) + 4)}
    return {place: word for place, word in words.items() if place not in filled_in}


_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr\s*(?:\.\w+\s*)?(?:\.align\s+\d+\s+)?)?[\w$]+(?:\[(\d+)\])?")


def ptx_parameters(ptx: str, symbol: str) -> list[tuple[str, int, int]]:
    """(type, bytes, alignment) of each parameter of an entry."""
    match = re.search(rf"\.entry\s+{re.escape(symbol)}\s*\(([^)]*)\)", ptx)
    out = []
    for alignment, kind, count in _PARAMETER.findall(match[1]) if match else ():
        size = int(re.sub(r"\D", "", kind)) // 8
        out.append((kind, size * int(count or 1), int(alignment or size)))
    return out


def _encode(kind, size, value, position) -> bytes:
    if value is None:
        return bytes(size)  # a null pointer
    if isinstance(value, (bytes, bytearray)):
        return bytes(value[:size]).ljust(size, b"\0")
    if isinstance(value, TensorMap):
        return bytes(size)  # nothing branches on it
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, (int, np.integer)) and not kind.startswith("f"):
        return (int(value) & (1 << 8 * size) - 1).to_bytes(size, "little")
    if isinstance(value, (int, float, np.number)):
        dtype = {"f64": np.float64, "f32": np.float32}.get(kind)
        if dtype is None:
            return np.asarray(value).tobytes()[:size].ljust(size, b"\0")
        return dtype(value).tobytes()
    if size == 8:
        return (addresses.DEVICE_BASE + (position << 36) + addresses.phase(value)).to_bytes(8, "little")  # an array: a place of its own
    raise CannotTell(f"parameter {position} of type {kind} takes a number, not {type(value).__name__}")


# --- what the needed instructions do -------------------------------------------------------------------------------

_ZERO = np.zeros((1, 1, 1, 1), np.int64)
_TRUE = np.ones((1, 1, 1, 1), bool)
_IMM_ALL = np.full((1, 1, 1, 1), LOW, np.int64)
_EMPTY = object()  # a mask without lanes; None is the mask with all of them


def _modified(value, sign):
    """Apply '-', '~' and '|' of an integer operand. -x counts as 2^32 - x, so that the sum's carry is the hardware's."""
    if value is None or not sign:
        return value
    if "|" in sign:
        value = np.abs(_signed(value))
    if "-" in sign:
        return (1 << 32) - value
    return ~value & LOW if "~" in sign else value


def _signed(x):
    return ((x & LOW) ^ SIGN) - SIGN


def _pattern(value, dtype):
    """Reinterpret float values as 32-bit patterns."""
    return np.asarray(value, dtype).view(np.uint32).astype(np.int64)


def _float(pattern):
    return pattern.astype(np.uint32).view(np.float32)


_COMPARE: dict[str, Callable] = {
    "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal, "EQ": np.equal, "NE": np.not_equal,
}  # fmt: skip


def _combine(test, d, launch, extra):
    """Both results of a SETP: (test op extra), (not test op extra)."""
    if test is None or extra is None:
        return None, None
    if "OR" in d.modifiers:
        return test | extra, ~test | extra
    if "XOR" in d.modifiers:
        return test ^ extra, ~test ^ extra
    return test & extra, ~test & extra


def _set_predicates(launch, d, values, mask):
    for operand, value in zip(d.results, values, strict=False):
        if isinstance(operand, _Pred) and operand.name != "T":
            launch.write(operand.name, value, mask)


def _set_register(launch, d, value, mask, k=0):
    for operand in d.results:
        if isinstance(operand, _Reg):
            if not operand.zero:
                launch.write(operand.name(k), None if value is None else value & LOW, mask)
            return


def _set_pair(launch, d, value, mask):
    """A 64-bit result in two registers; the value may be any int64."""
    _set_register(launch, d, value, mask)
    _set_register(launch, d, None if value is None else value >> 32, mask, 1)


def _split_sources(d):
    values = [s for s in d.sources if not isinstance(s, _Pred)]
    return values, [s for s in d.sources if isinstance(s, _Pred)]


@functools.cache
def _scale(suffix: str) -> int:
    """What a register in an address is multiplied by: 8 of 'R4.X8'."""
    found = re.search(r"\.X(\d+)", suffix)
    return int(found[1]) if found else 1


def _same(one, other):
    """Whether two masks are equal; None is the mask of all."""
    return one is other or (one is not None and other is not None and one.shape == other.shape and bool((one == other).all()))


def _known(*values):
    return all(v is not None for v in values)


def _isetp(launch, d, mask):
    values, predicates = _split_sources(d)
    a, b = launch.read(values[0]), launch.read(values[1])
    test = None
    name = next(m for m in _COMPARE if m in d.modifiers) if d.modifiers & set(_COMPARE) else None
    if name is None:
        test = None if not _known(a, b) else np.full((1, 1, 1, 1), "T" in d.modifiers)
    elif _known(a, b):
        a, b = a & LOW, b & LOW
        if "U32" not in d.modifiers:
            a, b = _signed(a), _signed(b)
        test = _COMPARE[name](a, b)
        if "EX" in d.modifiers:
            low = launch.condition(predicates[1])
            if low is None:
                test = None
            elif name == "NE":
                test = test | low
            elif name == "EQ":
                test = test & low
            else:
                test = _COMPARE[name[0] + "T"](a, b) | ((a == b) & low)
    _set_predicates(launch, d, _combine(test, d, launch, launch.condition(predicates[0] if predicates else None)), mask)


def _fsetp(launch, d, mask):
    values, predicates = _split_sources(d)
    raw = [launch.read(_unsigned(v)) for v in values[:2]]
    test = None
    if _known(*raw):
        a, b = (_float_operand(v, r) for v, r in zip(values, raw, strict=False))
        name = next((m for m in d.modifiers if m.rstrip("U") in _COMPARE or m in ("NUM", "NAN")), None)
        unordered = np.isnan(a) | np.isnan(b)
        if name == "NUM":
            test = ~unordered
        elif name == "NAN":
            test = unordered
        elif name is not None:
            ordered = _COMPARE[name.removesuffix("U")](a, b) & ~unordered
            test = ordered | unordered if name.endswith("U") else ordered
    _set_predicates(launch, d, _combine(test, d, launch, launch.condition(predicates[0] if predicates else None)), mask)


def _unsigned(operand):
    if isinstance(operand, _Reg):
        return _Reg(operand.file, operand.number)
    return _Const(operand.bank, operand.offset) if isinstance(operand, _Const) else operand


def _float_operand(operand, raw):
    value = _float(raw)
    sign = getattr(operand, "sign", "")
    value = np.abs(value) if "|" in sign else value
    return -value if "-" in sign else value


def _plop3(launch, d, mask):
    predicates = [s for s in d.sources if isinstance(s, _Pred)]
    tables = [int(s.value) for s in d.sources if isinstance(s, _Imm)]
    inputs = [launch.condition(p) for p in predicates[:3]]
    if not _known(*inputs):
        _set_predicates(launch, d, (None, None), mask)
        return
    index = inputs[0] * 4 + inputs[1] * 2 + inputs[2] * 1
    _set_predicates(launch, d, [(table >> index & 1).astype(bool) for table in tables], mask)


def _iadd3(launch, d, mask):
    if "64" in d.modifiers:
        _iadd64(launch, d, mask)
        return
    values, predicates = _split_sources(d)
    terms = [launch.read(v) for v in values]
    carries = [launch.condition(p) for p in predicates] if "X" in d.modifiers else []
    if not _known(*terms, *carries):
        _set_register(launch, d, None, mask)
        _set_predicates_after(launch, d, (None, None), mask)
        return
    total = sum(terms) + sum(c.astype(np.int64) for c in carries)
    _set_predicates_after(launch, d, (total >> 32 >= 1, total >> 32 >= 2), mask)
    _set_register(launch, d, total, mask)


def _set_predicates_after(launch, d, values, mask):
    outputs = [r for r in d.results if isinstance(r, _Pred)]
    for operand, value in zip(outputs, values, strict=False):
        if operand.name != "T":
            launch.write(operand.name, value, mask)


def _iadd64(launch, d, mask):
    total = np.int64(0)
    for operand in (s for s in d.sources if not isinstance(s, _Pred)):
        low, high = launch.read_pair(_unsigned(operand))
        if not _known(low, high):
            _set_pair(launch, d, None, mask)
            return
        value = low | high << 32
        total = total - value if "-" in getattr(operand, "sign", "") else total + value
    _set_pair(launch, d, total, mask)


def _imad(launch, d, mask):
    values, predicates = _split_sources(d)
    wide, high = "WIDE" in d.modifiers, "HI" in d.modifiers
    if "MOV" in d.modifiers:
        _set_register(launch, d, launch.read(values[-1]), mask)
        return
    a, b = launch.read(values[0]), launch.read(values[1])
    if wide or high:
        low, top = launch.read_pair(_unsigned(values[2]))
        c = low | top << 32 if _known(low, top) else None
        if c is not None and "-" in getattr(values[2], "sign", ""):
            c = -c
    else:
        c = launch.read(values[2])
    carry = launch.condition(predicates[-1]) if "X" in d.modifiers else np.zeros((1, 1, 1, 1), bool)
    if not _known(a, b, c, carry):
        _set_register(launch, d, None, mask)
        if wide:
            _set_register(launch, d, None, mask, 1)
        _set_predicates_after(launch, d, (None,), mask)
        return
    unsigned = "U32" in d.modifiers
    if wide or high:
        a, b = (a & LOW, b & LOW) if unsigned else (_signed(a), _signed(b))
        product = a * b  # int64 keeps the low 64 bits of either product
        total = product + c + carry
        outputs = [r for r in d.results if isinstance(r, _Pred)]
        if outputs:
            overflow = total.astype(np.uint64) < product.astype(np.uint64)
            _set_predicates_after(launch, d, (overflow,), mask)
        if wide:
            _set_pair(launch, d, total, mask)
        else:
            _set_register(launch, d, total >> 32, mask)
        return
    total = (a & LOW) * (b & LOW) + c + carry
    if any(isinstance(r, _Pred) for r in d.results):
        _set_predicates_after(launch, d, (None,), mask)
    _set_register(launch, d, total, mask)


def _lea(launch, d, mask):
    values, predicates = _split_sources(d)
    a, b = launch.read(values[0]), launch.read(values[1])
    high = "HI" in d.modifiers
    if high and "SX32" in d.modifiers:
        top, shift = (None if a is None else _signed(a) >> 31 & LOW), launch.read(values[2])
    elif high:
        top, shift = launch.read(values[2]), launch.read(values[3])
    else:
        top, shift = _ZERO, launch.read(values[2])
    carry = launch.condition(predicates[-1]) if "X" in d.modifiers else np.zeros((1, 1, 1, 1), bool)
    if not _known(a, b, top, shift, carry):
        _set_register(launch, d, None, mask)
        _set_predicates_after(launch, d, (None,), mask)
        return
    shift = shift & 31
    moved = ((a & LOW) | top << 32) << shift
    moved = moved >> 32 & LOW if high else moved & LOW
    total = moved + b + carry
    _set_predicates_after(launch, d, (total >> 32 >= 1,), mask)
    _set_register(launch, d, total, mask)


def _lop3(launch, d, mask):
    values, predicates = _split_sources(d)
    sources, table = [launch.read(v) for v in values[:3]], int(values[3].value)
    if not _known(*sources):
        # A mask with zero, or the like, may still decide the value.
        _set_register(launch, d, None, mask)
        _set_predicates(launch, d, (None,), mask)
        return
    a, b, c = (s & LOW for s in sources)
    out = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.int64)
    for k in range(8):
        if table >> k & 1:
            out = out | (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
    out = out & LOW
    extra = launch.condition(predicates[0]) if predicates else ~_TRUE
    test = None if extra is None else ((out != 0) & extra if "PAND" in d.modifiers else (out != 0) | extra)
    _set_predicates(launch, d, (test,), mask)
    _set_register(launch, d, out, mask)


def _shf(launch, d, mask):
    values, _ = _split_sources(d)
    low, shift, high = (launch.read(v) for v in values[:3])
    if not _known(low, shift, high):
        _set_register(launch, d, None, mask)
        return
    wide = bool(d.modifiers & {"U64", "S64"})
    limit = 63 if wide else 32
    shift = shift & 31 if "W" in d.modifiers and not wide else (shift & 63 if "W" in d.modifiers else np.minimum(shift & LOW, limit))
    low, high = low & LOW, high & LOW
    if "L" in d.modifiers:
        # High word of {high, low} << shift, or its low word.
        if "HI" in d.modifiers:
            out = (high << np.minimum(shift, 32)) | (low >> np.maximum(32 - shift, 0))
            out = np.where(shift > 32, low << np.maximum(shift - 32, 0), out)
        else:
            out = low << np.minimum(shift, 32)
    else:
        top = _signed(high) if d.modifiers & {"S32", "S64"} else high
        if "HI" in d.modifiers:
            out = top >> np.minimum(shift, 63)
        else:
            out = np.where(
                shift >= 32, top >> np.maximum(shift - 32, 0), (low >> np.minimum(shift, 32)) | (high << np.maximum(32 - shift, 0))
            )
    _set_register(launch, d, out, mask)


def _move(launch, d, mask):
    if "64" in d.modifiers:
        low, high = launch.read_pair(d.sources[0])
        _set_register(launch, d, low, mask)
        _set_register(launch, d, high, mask, 1)
        return
    _set_register(launch, d, launch.read(d.sources[0]), mask)


def _load_constant(launch, d, mask):
    source = d.sources[-1]
    count = 4 if "128" in d.modifiers else 2 if "64" in d.modifiers else 1
    for k in range(count):
        value = None
        if isinstance(source, _Const):
            value = launch.read(_Const(source.bank, source.offset + 4 * k))
        elif isinstance(source, _Indexed):
            value = _indexed_constant(launch, source, 4 * k)
        if value is not None and d.modifiers & {"U8", "U16", "S8", "S16"}:
            value = None if isinstance(source, _Indexed) or source.offset % 4 else _narrowed(value, d.modifiers)
        _set_register(launch, d, value, mask, k)


def _indexed_constant(launch, source, more):
    """A word of a constant bank at a computed offset, or None if a lane asks for an unknown one."""
    index = launch.read(source.register)
    if index is None:
        return None
    offsets, inverse = np.unique(_signed(index) + source.offset + more, return_inverse=True)
    words = [launch.constants.get((source.bank, int(offset))) for offset in offsets]
    if any(word is None for word in words):
        return None
    return np.array(words, np.int64)[inverse].reshape(index.shape)


def _narrowed(value, modifiers):
    if "U8" in modifiers:
        return value & 0xFF
    if "U16" in modifiers:
        return value & 0xFFFF
    bits = 8 if "S8" in modifiers else 16
    return ((value & (1 << bits) - 1) ^ 1 << bits - 1) - (1 << bits - 1)


def _special(launch, d, mask):
    name = d.instruction.operands[-1]
    value = launch.special.get(name)
    _set_register(launch, d, value, mask)
    if d.instruction.name == "CS2R" and "32" not in d.modifiers:
        _set_register(launch, d, value, mask, 1)


def _minmax(launch, d, mask):
    values, predicates = _split_sources(d)
    a, b, least = launch.read(values[0]), launch.read(values[1]), launch.condition(predicates[0])
    if not _known(a, b, least):
        _set_register(launch, d, None, mask)
        return
    a, b = (a & LOW, b & LOW) if "U32" in d.modifiers else (_signed(a), _signed(b))
    _set_register(launch, d, np.where(least, np.minimum(a, b), np.maximum(a, b)), mask)


def _select(launch, d, mask):
    values, predicates = _split_sources(d)
    which = launch.condition(predicates[0])
    a, b = launch.read(values[0]), launch.read(values[1])
    if which is not None and which.size == 1:
        value = a if which.item() else b
    else:
        value = np.where(which, a & LOW, b & LOW) if _known(which, a, b) else None
    _set_register(launch, d, value, mask)


def _to_uniform(launch, d, mask):
    """R2UR: the value of the warp's first active lane."""
    value = launch.read(d.sources[0])
    if value is not None and value.shape[-1] > 1:
        rows = launch.by_warp(value)
        if mask is None:
            chosen = rows[..., :1]
        else:
            active = np.broadcast_to(launch.by_warp(mask), np.broadcast_shapes(launch.by_warp(mask).shape, rows.shape))
            rows = np.broadcast_to(rows, active.shape)
            chosen = np.take_along_axis(rows, active.argmax(axis=-1)[..., None], axis=-1)
        shape = (*chosen.shape[:3], launch.lanes)
        value = np.broadcast_to(chosen, (*chosen.shape[:4], WARP)).reshape(shape)
    _set_register(launch, d, value, mask)


def _absolute(launch, d, mask):
    value = launch.read(d.sources[-1])
    _set_register(launch, d, None if value is None else np.abs(_signed(value)), mask)


def _population(launch, d, mask):
    value = launch.read(d.sources[-1])
    _set_register(launch, d, None if value is None else np.bitwise_count(value & LOW).astype(np.int64), mask)


def _leading(launch, d, mask):
    """FLO: index of the highest set bit (.SH: distance from bit 31); all ones if there is none."""
    value = launch.read(d.sources[0])
    out = None
    if value is not None:
        value = value & LOW
        if "U32" not in d.modifiers:
            value = np.where(value & SIGN, ~value & LOW, value)
        top = np.floor(np.log2(np.maximum(value, 1).astype(np.float64))).astype(np.int64)
        out = np.where(value == 0, LOW, 31 - top if "SH" in d.modifiers else top)
    _set_register(launch, d, out, mask)


def _add_minmax(launch, d, mask):
    """VIADDMNMX: the smaller (PT) or larger (!PT) of a + b and c."""
    values, predicates = _split_sources(d)
    terms = [launch.read(v) for v in values]
    least = launch.condition(predicates[0]) if predicates else None
    if len(terms) != 3 or not _known(*terms, least) or "RELU" in d.modifiers:
        _set_register(launch, d, None, mask)
        return
    total, other = (terms[0] + terms[1]) & LOW, terms[2] & LOW
    if "U32" not in d.modifiers:
        total, other = _signed(total), _signed(other)
    _set_register(launch, d, np.where(least, np.minimum(total, other), np.maximum(total, other)), mask)


def _store_local(launch, d, mask):
    """STL: spilled values stay known. A word is kept under its address; where that differs by thread, nothing stays known."""
    place, data = launch.stack_word(d), d.sources[-1]
    words = sass_width(d.instruction.opcode) // 4
    if place is None or not words or d.modifiers & {"U8", "S8", "U16", "S16"}:
        launch.forget_stack(mask)
        return
    for k in range(words):
        register = data if data.zero else _Reg(data.file, data.number + k)
        value = launch.read(register)
        launch.write(f"stack+{place + 4 * k}", value, mask)


def _load_local(launch, d, mask):
    place = launch.stack_word(d)
    partial = d.modifiers & {"U8", "S8", "U16", "S16"}
    for k in range(max(1, sass_width(d.instruction.opcode) // 4)):
        known = place is not None and not partial and launch.program.private_stack
        value = launch.lookup(f"stack+{place + 4 * k}") if known else None
        _set_register(launch, d, value, mask, k)


def _permute(launch, d, mask):
    a, selector, b = (launch.read(s) for s in d.sources[:3])
    if not _known(a, selector, b) or d.modifiers:
        _set_register(launch, d, None, mask)
        return
    both = (a & LOW) | (b & LOW) << 32
    out = np.int64(0)
    for k in range(4):
        pick = selector >> 4 * k & 15
        byte = both >> (pick & 7) * 8 & 0xFF
        out = out | np.where(pick & 8, np.where(byte & 0x80, 0xFF, 0), byte) << 8 * k
    _set_register(launch, d, out, mask)


def _sign_extend(launch, d, mask):
    value, bits = launch.read(d.sources[0]), launch.read(d.sources[1])
    out = None
    if _known(value, bits):
        bits = bits & 31
        low = value & ((1 << bits) - 1)
        out = np.where(
            bits == 0, 0, low if "U32" in d.modifiers else (low ^ (1 << np.maximum(bits - 1, 0))) - (1 << np.maximum(bits - 1, 0))
        )
    _set_register(launch, d, out, mask)


def _bitmask(launch, d, mask):
    begin, count = launch.read(d.sources[0]), launch.read(d.sources[1])
    out = None
    if _known(begin, count):
        begin, count = np.minimum(begin & LOW, 32), np.minimum(count & LOW, 32)
        out = ((np.int64(1) << count) - 1) << begin
    _set_register(launch, d, out, mask)


def _vote(launch, d, mask):
    """VOTE.ANY / .ALL of a predicate over the active lanes; VOTE.ANY with a register gives the ballot."""
    condition = launch.condition(d.sources[0]) if d.sources else None
    if condition is None:
        _set_register(launch, d, None, mask)
        _set_predicates_after(launch, d, (None,), mask)
        return
    if mask is None:
        active = _TRUE if launch.lanes == launch.threads else (np.arange(launch.lanes) < launch.threads).reshape(1, 1, 1, -1)
    else:
        active = mask
    full = np.broadcast_shapes(condition.shape, active.shape, (1, 1, 1, launch.lanes))
    yes = np.broadcast_to(condition & active, full)
    ballot = (launch.by_warp(yes) << np.arange(WARP, dtype=np.int64)).sum(axis=-1, keepdims=True)
    ballot = np.broadcast_to(ballot, (*ballot.shape[:4], WARP)).reshape(full)
    if "ALL" in d.modifiers:
        test = launch.per_warp(np.broadcast_to(condition | ~active, full), np.all)
    elif "EQ" in d.modifiers:
        test = launch.per_warp(np.broadcast_to(condition | ~active, full), np.all) | ~launch.per_warp(yes, np.any)
    else:
        test = launch.per_warp(yes, np.any)
    _set_register(launch, d, _shrunk(ballot), mask)
    _set_predicates_after(launch, d, (_shrunk(test),), mask)


def _shrunk(array):
    """One element if all are equal: most votes are unanimous."""
    first = array[:1, :1, :1, :1]
    return first if (array == first).all() else array


def _elect(launch, d, mask):
    active = np.broadcast_to(
        _TRUE if mask is None else mask, np.broadcast_shapes((1, 1, 1, launch.lanes), _TRUE.shape if mask is None else mask.shape)
    )
    rows = launch.by_warp(active)
    first = np.broadcast_to(rows.argmax(axis=-1)[..., None], rows.shape)
    chosen = (np.arange(WARP) == first) & rows
    _set_predicates_after(launch, d, (chosen.reshape(active.shape),), mask)
    _set_register(launch, d, None, mask)


def _shuffle(launch, d, mask):
    """SHFL of a known value. Lanes that are not active keep the sender's value out of use, as on hardware."""
    value, amount, clamp = (launch.read(s) for s in d.sources[:3])
    _set_predicates_after(launch, d, (None,), mask)
    if not _known(value, amount, clamp) or amount.size > 1 or clamp.size > 1:
        _set_register(launch, d, None, mask)
        return
    if value.shape[-1] == 1:
        _set_register(launch, d, value, mask)
        return
    lane, amount, clamp = np.arange(WARP), int(amount.item()), int(clamp.item())
    segment, limit = clamp >> 8 & 31, clamp & 31
    lowest = lane & segment
    highest = lowest | (limit & ~segment)
    if "IDX" in d.modifiers:
        source = lowest | (amount & 31 & ~segment)
        valid = source <= highest
    elif "UP" in d.modifiers:
        source = lane - (amount & 31)
        valid = source >= highest
    elif "DOWN" in d.modifiers:
        source = lane + (amount & 31)
        valid = source <= highest
    else:
        source = lane ^ (amount & 31)
        valid = source <= highest
    source = np.where(valid, source, lane)
    rows = launch.by_warp(value)
    _set_register(launch, d, _shrunk(np.take(rows, source, axis=-1).reshape(value.shape)), mask)


def _half_constant(launch, d, mask):
    """HFMA2 of zeros and an immediate pair, which ptxas uses to make a constant."""
    values = list(d.sources)
    if len(values) == 4 and all(isinstance(v, _Reg) and v.zero for v in values[:2]) and all(isinstance(v, _Imm) for v in values[2:]):
        high, low = (int(np.float16(v.value).view(np.uint16)) for v in values[2:])
        _set_register(launch, d, np.full((1, 1, 1, 1), high << 16 | low, np.int64), mask)
        return
    _set_register(launch, d, None, mask)


def _integer_to_float(launch, d, mask):
    value = launch.read(d.sources[-1])
    if value is None or d.modifiers & {"F16", "F64", "S64", "U64", "S8", "U8", "S16", "U16"}:
        for name in d.writes:
            launch.write(name, None, mask)
        return
    exact = (value & LOW) if "U32" in d.modifiers else _signed(value)
    single = exact.astype(np.float64).astype(np.float32)
    for mode, wrong, towards in (("RP", np.less, np.inf), ("RM", np.greater, -np.inf)):
        if mode in d.modifiers:
            single = np.where(wrong(single.astype(np.float64), exact), np.nextafter(single, np.float32(towards)), single)
    _set_register(launch, d, _pattern(single, np.float32), mask)


def _float_to_integer(launch, d, mask):
    value = launch.read(d.sources[-1])
    if value is None or d.modifiers & {"F16", "F64", "S64", "U64"} or "TRUNC" not in d.modifiers:
        for name in d.writes:
            launch.write(name, None, mask)
        return
    exact = np.trunc(np.nan_to_num(_float(value).astype(np.float64)))
    low, high = (0, LOW) if "U32" in d.modifiers else (-SIGN, SIGN - 1)
    _set_register(launch, d, np.clip(exact, low, high).astype(np.int64), mask)


def _reciprocal(launch, d, mask):
    """MUFU.RCP. Its last bit may differ; integer division by reciprocal corrects for that."""
    value = launch.read(_unsigned(d.sources[-1])) if d.sources else None
    if value is None or "RCP" not in d.modifiers:
        _set_register(launch, d, None, mask)
        return
    with np.errstate(divide="ignore", over="ignore"):
        out = np.float32(1) / _float_operand(d.sources[-1], value)
    _set_register(launch, d, _pattern(out, np.float32), mask)


def _pack_predicates(launch, d, mask):
    """P2R Rd, PR, Ra, bits: predicates as bits of a register."""
    values, _ = _split_sources(d)
    numbers = [v for v in values if not isinstance(v, str)]
    kept, bits = (launch.read(v) for v in numbers[-2:])
    flags = [launch.lookup(f"P{k}") if int(bits.item()) >> k & 1 else ~_TRUE for k in range(7)]
    if not _known(kept, *flags) or d.modifiers:
        _set_register(launch, d, None, mask)
        return
    out = kept & ~bits
    for k, flag in enumerate(flags):
        out = out | flag.astype(np.int64) << k & bits
    _set_register(launch, d, out, mask)


def _unpack_predicates(launch, d, mask):
    """R2P PR, Ra, bits."""
    values = [s for s in d.sources if isinstance(s, (_Reg, _Imm))]
    value, bits = launch.read(values[0]), int(launch.read(values[-1]).item())
    for k in range(7):
        if bits >> k & 1:
            launch.write(f"P{k}", None if value is None or d.modifiers else (value >> k & 1).astype(bool), mask)


_HANDLERS: dict[str, Callable] = {
    "ISETP": _isetp, "UISETP": _isetp, "FSETP": _fsetp, "PLOP3": _plop3, "UPLOP3": _plop3,
    "IADD3": _iadd3, "UIADD3": _iadd3, "VIADD": _iadd3, "UVIADD": _iadd3, "IADD": _iadd3,
    "IMAD": _imad, "UIMAD": _imad, "LEA": _lea, "ULEA": _lea, "LOP3": _lop3, "ULOP3": _lop3, "SHF": _shf, "USHF": _shf,
    "MOV": _move, "UMOV": _move, "LDC": _load_constant, "ULDC": _load_constant, "LDCU": _load_constant,
    "S2R": _special, "S2UR": _special, "CS2R": _special, "R2UR": _to_uniform, "IMNMX": _minmax, "VIMNMX": _minmax, "UVIMNMX": _minmax, "VIADDMNMX": _add_minmax,
    "SEL": _select, "USEL": _select, "IABS": _absolute, "POPC": _population, "UPOPC": _population, "FLO": _leading, "UFLO": _leading,
    "PRMT": _permute, "UPRMT": _permute, "SGXT": _sign_extend, "USGXT": _sign_extend, "BMSK": _bitmask, "UBMSK": _bitmask,
    "VOTE": _vote, "VOTEU": _vote, "ELECT": _elect, "SHFL": _shuffle, "HFMA2": _half_constant, "I2F": _integer_to_float,
    "I2FP": _integer_to_float, "F2I": _float_to_integer, "MUFU": _reciprocal, "P2R": _pack_predicates, "R2P": _unpack_predicates,
    "STL": _store_local, "LDL": _load_local,
}  # fmt: skip


# --- execution -------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Part:
    """Lanes that run together from `pc`. mask None: every lane."""

    pc: int
    mask: np.ndarray | None


class _Launch:
    """One launch (or some of its blocks) of the slice."""

    def __init__(self, program, grid, block, constants, blocks, accesses, budget, cluster, seconds):
        self.program = program
        self.constants = constants
        self.accesses = accesses
        self.budget, self.seconds, self.clustered = budget, seconds, math.prod(cluster) > 1
        grid, block = [(*map(int, extent), 1, 1)[:3] for extent in (grid, block)]
        self.threads = block[0] * block[1] * block[2]
        self.lanes = -(-self.threads // WARP) * WARP
        linear = np.arange(self.lanes)
        tid = (linear % block[0], linear // block[0] % block[1], linear // (block[0] * block[1]))
        if blocks is None:
            self.shape = (grid[2], grid[1], grid[0])
            ctaid = [np.arange(grid[k]).reshape([-1 if a == 2 - k else 1 for a in range(3)] + [1]) for k in range(3)]
        else:
            chosen = np.fromiter(blocks, np.int64)
            self.shape = (1, 1, len(chosen))
            ctaid = [chosen % grid[0], chosen // grid[0] % grid[1], chosen // (grid[0] * grid[1])]
            ctaid = [c.reshape(1, 1, -1, 1) for c in ctaid]
        self.count_blocks = self.shape[0] * self.shape[1] * self.shape[2]
        strides = (1, cluster[0], cluster[0] * cluster[1])
        lane = linear.reshape(1, 1, 1, -1)
        one = np.ones((1, 1, 1, 1), np.int64)
        self.special = {
            **{f"SR_TID.{c}": tid[k].reshape(1, 1, 1, -1) if block[k] > 1 else one * 0 for k, c in enumerate("XYZ")},
            **{f"SR_CTAID.{c}": ctaid[k] for k, c in enumerate("XYZ")},
            **{f"SR_NTID.{c}": one * block[k] for k, c in enumerate("XYZ")},
            **{f"SR_NCTAID.{c}": one * grid[k] for k, c in enumerate("XYZ")},
            "SR_LANEID": lane % WARP,
            "SR_CgaCtaId": sum(c % n * stride for c, n, stride in zip(ctaid, cluster, strides, strict=True)),
            "SRZ": one * 0,
            "SR_SWINHI": one * SHARED_WINDOW,
            "SR_EQMASK": 1 << lane % WARP,
            "SR_LTMASK": (1 << lane % WARP) - 1,
            "SR_LEMASK": (2 << lane % WARP) - 1,
            "SR_GTMASK": LOW & ~((2 << lane % WARP) - 1),
            "SR_GEMASK": LOW & ~((1 << lane % WARP) - 1),
        }
        self.values: dict[str, np.ndarray] = {}
        self.known: dict[str, np.ndarray | None] = {}  # register -> lanes whose value is known (None: all); absent: none
        self.mask: np.ndarray | None = None  # of the instruction that is being executed
        self.groups: dict[str, np.ndarray] = {}  # convergence barrier -> per lane, which BSSY it joined; 0: none
        self.joined: dict[str, np.ndarray | None] = {}  # convergence barrier -> mask of the latest BSSY
        self.next_group = 1
        self.origin: np.ndarray | None = None  # per lane, with which part it came to its latest collective
        self.numbers = itertools.count(1)
        exists = None if self.lanes == self.threads else (linear < self.threads).reshape(1, 1, 1, -1)
        self.alive = exists  # None: every lane
        self.parts = [_Part(0, exists)]
        self.waiting: list[tuple[int, str, np.ndarray, np.ndarray]] = []  # (next pc, barrier, arrived, expected)
        self.executed = np.zeros(len(program.decoded) + 1, np.int64)
        self.thread_counts: dict[int, int | None] = {}  # guarded arithmetic, by index; None: a guard was not known
        self.lane_counts: dict[int, int] = defaultdict(int)
        self.sites: dict[tuple[int, str], SiteAccess] = {}  # by instruction and space
        self.unknown_sites: dict[int, str] = {}
        self.repeats: dict[int, tuple[list, dict[str, int]]] = {}  # per site: mask and registers of its last execution, cost
        self.patterns: dict[int, tuple] = {}  # per site: addresses and mask of its last new pattern, bases, cost by phase

    # -- lanes and warps

    def warps_in(self, mask) -> int:
        if mask is None:
            return self.count_blocks * (self.lanes // WARP)
        if mask.shape[-1] == 1:
            return int(mask.sum()) * (self.count_blocks // mask.size) * (self.lanes // WARP)
        some = mask.reshape(*mask.shape[:3], -1, WARP).any(axis=-1)
        return int(some.sum()) * (self.count_blocks * self.lanes // mask.size)

    def lanes_in(self, mask) -> int:
        if mask is None:
            return self.count_blocks * self.threads
        return int(np.count_nonzero(mask)) * (self.count_blocks * self.lanes // mask.size)

    def by_warp(self, array):
        """[..., warps, 32] view of an array that has lanes, or [..., 1, 1]."""
        array = np.broadcast_to(array, np.broadcast_shapes(array.shape, (1, 1, 1, self.lanes)))
        return array.reshape(*array.shape[:3], -1, WARP)

    def per_warp(self, array, reduce):
        """Apply `reduce` (np.any, np.all) to each warp and give every lane of it the result."""
        if array.shape[-1] == 1:
            return array
        rows = self.by_warp(array)
        return np.broadcast_to(reduce(rows, axis=-1, keepdims=True), rows.shape).reshape(array.shape)

    def narrow(self, mask, condition):
        """mask & condition, as None or an array; and whether it is empty."""
        if condition is None:
            return mask
        return condition if mask is None else mask & condition

    # -- values

    def read(self, operand):
        """The 32-bit pattern of a source operand with its sign, or None if unknown."""
        if isinstance(operand, _Reg):
            value = _ZERO if operand.zero else self.lookup(operand.name())
            return _modified(value, operand.sign)
        if isinstance(operand, _Imm):
            if isinstance(operand.value, float):
                return np.full((1, 1, 1, 1), int(np.float32(operand.value).view(np.uint32)), np.int64)
            return np.full((1, 1, 1, 1), operand.value & LOW, np.int64)
        if isinstance(operand, _Const):
            word = self.constants.get((operand.bank, operand.offset))
            return _modified(None if word is None else np.full((1, 1, 1, 1), word, np.int64), operand.sign)
        return None

    def read_pair(self, operand):
        """A 64-bit source as (low, high)."""
        if isinstance(operand, _Reg):
            if operand.zero:
                return _ZERO, _ZERO
            return self.lookup(operand.name()), self.lookup(operand.name(1))
        if isinstance(operand, _Const):
            return self.read(operand), self.read(_Const(operand.bank, operand.offset + 4))
        if isinstance(operand, _Imm):
            value = int(operand.value)
            return (np.full((1, 1, 1, 1), value & LOW, np.int64), np.full((1, 1, 1, 1), value >> 32 & LOW, np.int64))
        return None, None

    def condition(self, pred: _Pred | None):
        """A predicate as a bool array, or None if unknown."""
        value = _TRUE if pred is None or pred.name == "T" else self.lookup(pred.name)
        if value is None:
            return None
        return ~value if pred is not None and pred.negated else value

    def lookup(self, name):
        """The value of a register if the lanes at work all know it."""
        value = self.values.get(name)
        if value is None:
            return None
        known = self.known[name]
        if known is None or known is self.mask:
            return value
        return None if (~known if self.mask is None else self.mask & ~known).any() else value

    def write(self, name, value, mask):
        """Set a register for the lanes of the mask; None makes it unknown there."""
        if mask is None:
            if value is None:
                self.values.pop(name, None)
            else:
                self.values[name], self.known[name] = value, None
            return
        old = self.values.get(name)
        if value is None:
            if old is not None:
                known = self.known[name]
                self.known[name] = ~mask if known is None else known & ~mask
        elif old is None:
            self.values[name], self.known[name] = value, mask
        else:
            self.values[name] = np.where(mask, value, old)
            known = self.known[name]
            self.known[name] = known if known is None or known is mask else known | mask

    def stack_word(self, d) -> int | None:
        """The address that an LDL or STL names, if it is known and the same for all threads."""
        place = self.address(next(s for s in d.sources if isinstance(s, _Address)))
        return place.item() if place is not None and place.size == 1 and not place.item() & 3 else None

    def forget_stack(self, mask):
        """Something unknown was stored somewhere on the stack."""
        for name in [name for name in self.values if name.startswith("stack")]:
            self.write(name, None, mask)

    # -- the run

    def run(self) -> InstructionCounts:
        steps, start = 0, time.monotonic()
        while self.parts or self.waiting:
            if not self.parts:
                self.wake()
                if not self.parts:
                    raise CannotTell("threads wait for each other at a point of convergence that is never reached")
            part = self.next_part()
            steps += 1
            if steps > self.budget:
                raise CannotTell(f"the launch takes more than {self.budget} basic blocks")
            if time.monotonic() - start > self.seconds:
                raise CannotTell(f"the launch takes more than {self.seconds:g} seconds")
            self.execute(part)
        per_instruction = tuple(int(n) for n in np.cumsum(self.executed)[:-1])
        return self.result(per_instruction)

    def next_part(self) -> _Part:
        """The part with the smallest pc; parts of different warps that meet there go on together."""
        pc = min(p.pc for p in self.parts)
        here = [p for p in self.parts if p.pc == pc]
        chosen = here[0]
        self.parts.remove(chosen)
        for other in here[1:]:
            if chosen.mask is None or other.mask is None:
                continue
            a = self.by_warp(chosen.mask).any(axis=-1)
            if not (a & self.by_warp(other.mask).any(axis=-1)).any():
                chosen = _Part(pc, chosen.mask | other.mask)
                self.parts.remove(other)
        return chosen

    def execute(self, part: _Part):
        block = self.program.block_of[part.pc]
        warps = self.warps_in(part.mask)
        self.executed[block.start] += warps
        self.executed[block.end] -= warps
        self.lane_counts[block.start] += self.lanes_in(part.mask)
        for index in block.needed:
            d = self.program.decoded[index]
            name = d.instruction.name
            if name in _ENDS and index == block.end - 1:
                self.leave(d, part)
                return
            self.step(d, part.mask)
        last = self.program.decoded[block.end - 1]
        if last.instruction.name in _ENDS:
            self.leave(last, part)
        elif block.end >= len(self.program.decoded):
            raise CannotTell("the code runs past its end")
        else:
            self.parts.append(_Part(block.end, part.mask))

    def step(self, d: _Decoded, mask):
        name = d.instruction.name
        self.mask = mask
        guard = self.condition(d.guard)
        if d.guard is not None and guard is not None:
            if not guard.any():
                guard = False
            elif guard.all():
                guard = _TRUE
        if name in THREAD_COUNTED and d.guard is not None:
            index = d.instruction.index
            known = self.thread_counts.get(index, 0)
            if guard is None or known is None:
                self.thread_counts[index] = None
            elif guard is not False:
                self.thread_counts[index] = known + self.lanes_in(mask if guard is _TRUE else self.narrow(mask, guard))
        if guard is False:
            return
        if guard is None:
            for written in d.writes:
                self.write(written, None, mask)
            if name == "STL":
                self.forget_stack(mask)
            if self.accesses and name in MEMORY_OPCODES:
                self.unknown_sites[d.instruction.index] = "whether it runs depends on data"
            return
        if guard is not _TRUE:
            mask = self.mask = self.narrow(mask, guard)
        if self.accesses and name in MEMORY_OPCODES:
            self.observe(d, mask)
        if name == "BSSY":
            self.join(d.instruction.operands[0], mask)
            return
        if name == "BREAK":
            groups = self.groups.get(d.instruction.operands[-1], _ZERO)
            self.groups[d.instruction.operands[-1]] = np.where(_TRUE if mask is None else mask, 0, groups)
            return
        handler = _HANDLERS.get(name)
        if handler is not None:
            handler(self, d, mask)
        elif name == "BMOV":
            self.move_barrier(d, mask)
        else:
            for written in d.writes:
                self.write(written, None, mask)

    # -- control flow

    def leave(self, d: _Decoded, part: _Part):
        i = d.instruction
        mask, after = part.mask, i.index + 1
        self.mask = mask
        guard = self.condition(d.guard)
        for operand in d.sources:  # BRA P1, target: both must hold
            if isinstance(operand, _Pred) and guard is not None:
                extra = self.condition(operand)
                guard = None if extra is None else guard & extra
        if "DIV" in d.modifiers and i.name == "BRA":
            guard = self.diverged(d, mask)
        if guard is None:
            raise CannotTell(f"a branch depends on data: {i}")
        taken, rest = self.split(mask, guard)
        if rest is not _EMPTY:
            self.parts.append(_Part(after, rest))
        if taken is _EMPTY:
            return
        if i.name == "BRA" or (i.name == "CALL" and i.target is not None):
            if i.target is None:
                raise CannotTell(f"a branch whose target the disassembly does not name: {i}")
            self.parts.append(_Part(i.target, taken))
        elif i.name == "EXIT":
            gone = _TRUE if taken is None else taken
            self.alive = ~gone if self.alive is None else self.alive & ~gone
            self.wake()
        elif i.name in ("BSYNC", "WARPSYNC"):
            self.arrive(d, taken, after)
        elif i.name == "RET":
            self.give_back(d, taken)
        elif isinstance(d.sources[-1] if d.sources else None, _Jump):
            self.jump(d, taken)
        elif i.name == "ENDCOLLECTIVE":
            self.part_again(taken, after)
        else:
            raise CannotTell(f"an indirect or unusual branch: {i}")

    def diverged(self, d: _Decoded, mask):
        """BRA.DIV: some lane that the operand names (all, if it names none) is not here with the others of its warp."""
        if mask is None:
            return ~_TRUE
        named = next((s for s in d.sources if isinstance(s, (_Reg, _Imm, _Const))), None)
        bits = _IMM_ALL if named is None else self.read(named)
        if bits is None:
            return None
        expected = (bits >> (np.arange(self.lanes) % WARP).reshape(1, 1, 1, -1) & 1).astype(bool)
        missing = expected & ~mask if self.alive is None else expected & ~mask & self.alive
        return self.per_warp(missing, np.any)

    def split(self, mask, guard):
        """(lanes where guard holds, lanes where not); either may be _EMPTY; `mask` itself where nothing changes."""
        if mask is None:
            if guard.all():
                return None, _EMPTY
            return (_EMPTY, None) if not guard.any() else (guard, ~guard)
        taken = mask & guard
        if not taken.any():
            return _EMPTY, mask
        rest = mask & ~guard
        return (mask, _EMPTY) if not rest.any() else (taken, rest)

    def join(self, barrier, mask):
        """BSSY: the lanes of the mask will meet at the BSYNC of this barrier register."""
        group = np.full((1, 1, 1, 1), self.next_group, np.int64)
        self.next_group += 1
        self.joined[barrier] = mask
        self.groups[barrier] = group if mask is None else np.where(mask, group, self.groups.get(barrier, _ZERO))

    def move_barrier(self, d: _Decoded, mask):
        """BMOV: save a convergence barrier in a register (.CLEAR: and forget it), or restore it."""
        target, source = (_operand(text) for text in d.instruction.operands[:2])
        if isinstance(source, str):
            if isinstance(target, _Reg) and not target.zero:
                self.write(target.name(), self.groups.get(source, _ZERO), mask)
            if "CLEAR" in d.modifiers:
                self.groups[source] = np.where(_TRUE if mask is None else mask, 0, self.groups.get(source, _ZERO))
                self.joined.pop(source, None)
            return
        value = self.read(source)
        if value is None or not isinstance(target, str):
            raise CannotTell(f"a convergence barrier is set to something unknown: {d.instruction}")
        self.groups[target] = np.where(_TRUE if mask is None else mask, value, self.groups.get(target, _ZERO))
        self.joined.pop(target, None)

    def arrive(self, d: _Decoded, mask, after):
        i = d.instruction
        if i.name == "BSYNC":
            barrier = i.operands[-1]
            if mask is None or (barrier in self.joined and mask is self.joined[barrier]):
                self.parts.append(_Part(after, mask))
                return
            groups = self.groups.get(barrier, _ZERO)
            mine = self.per_warp(np.where(mask, groups, 0), np.max)
            expected = np.broadcast_to(groups == mine, np.broadcast_shapes(groups.shape, mine.shape))
        else:
            barrier = ""
            if "COLLECTIVE" in d.modifiers and mask is not None:
                number = next(self.numbers)
                self.origin = np.where(mask, number, _ZERO if self.origin is None else self.origin)
            named = _IMM_ALL if not d.sources else self.read(d.sources[0])
            if named is None:
                raise CannotTell(f"a convergence of threads that are not known: {i}")
            if mask is None:
                self.parts.append(_Part(after, mask))
                return
            expected = (named >> (np.arange(self.lanes) % WARP).reshape(1, 1, 1, -1) & 1).astype(bool)
        self.waiting.append((after, barrier, mask, expected))
        self.wake()

    def wake(self):
        """Let go of the warps whose expected lanes have all arrived or ended."""
        kept = []
        meetings: dict[tuple[int, str], tuple[np.ndarray, np.ndarray]] = {}
        for after, barrier, mask, expected in self.waiting:
            arrived, together = meetings.get((after, barrier), (np.zeros((1, 1, 1, 1), bool), np.zeros((1, 1, 1, 1), bool)))
            of_warp = self.per_warp(np.broadcast_to(mask, np.broadcast_shapes(mask.shape, (1, 1, 1, self.lanes))), np.any)
            meetings[after, barrier] = (arrived | mask, together | (expected & of_warp))
        for (after, barrier), (arrived, expected) in meetings.items():
            still = expected if self.alive is None else expected & self.alive
            missing = still & ~arrived
            missing = self.per_warp(np.broadcast_to(missing, np.broadcast_shapes(missing.shape, (1, 1, 1, self.lanes))), np.any)
            free, stuck = self.split(arrived, ~missing)
            if free is not _EMPTY:
                self.parts.append(_Part(after, free))
            if stuck is not _EMPTY:
                kept.append((after, barrier, stuck, expected))
        self.waiting = kept

    def jump(self, d, mask):
        """BRX: through a table of addresses."""
        target = d.sources[-1]
        low = self.read(target.register)
        if low is None:
            raise CannotTell(f"a jump to an address that depends on data: {d.instruction}")
        following = d.instruction.address + (self.program.decoded[1].instruction.address - self.program.decoded[0].instruction.address)
        self.go_to(d, _signed(low) + target.offset + following, mask, again=True)

    def part_again(self, mask, after):
        """ENDCOLLECTIVE: threads that came to the collective apart go on apart."""
        if mask is None or self.origin is None:
            self.parts.append(_Part(after, mask))
            return
        origin = np.broadcast_to(self.origin, np.broadcast_shapes(self.origin.shape, mask.shape))
        for number in np.unique(origin[np.broadcast_to(mask, origin.shape)]):
            some, _ = self.split(mask, origin == number)
            self.parts.append(_Part(after, some))

    def give_back(self, d, mask):
        register = next((s for s in d.sources if isinstance(s, _Reg)), None)
        value = self.read(register) if register is not None else None
        if value is None:
            raise CannotTell(f"a return to an address that is not known: {d.instruction}")
        self.go_to(d, value, mask)

    def go_to(self, d, value, mask, again: bool = False):
        """Threads go to the addresses in `value`, apart where these differ. again: each part executes the instruction once."""
        lanes = value if mask is None or value.size == 1 else np.broadcast_to(value, np.broadcast_shapes(mask.shape, value.shape))
        if mask is not None and value.size > 1:
            lanes = lanes[np.broadcast_to(mask, lanes.shape)]
        executed = 0
        for address in np.unique(lanes):  # warps that came from different calls go different ways
            target = self.program.addresses.get(int(address))
            if target is None or target not in self.program.block_of:
                raise CannotTell(f"a jump to an address outside the code: {d.instruction}")
            some, _ = self.split(mask, value == address)
            self.parts.append(_Part(target, some))
            executed += self.warps_in(some)
        if again:
            self.executed[d.instruction.index] += executed - self.warps_in(mask)
            self.executed[d.instruction.index + 1] -= executed - self.warps_in(mask)

    # -- memory accesses

    def observe(self, d: _Decoded, mask):
        """Account one execution of a memory instruction."""
        index = d.instruction.index
        if index in self.unknown_sites:
            return
        # Nothing has been written to its registers since the last time: nothing has to be computed.
        inputs = [mask, *(self.values.get(name) for name in d.addressing), *(self.known.get(name) for name in d.addressing)]
        last = self.repeats.get(index)
        if last is not None and all(a is b for a, b in zip(last[0], inputs, strict=True)):
            self.add(index, d, last[1])
            return
        places = [self.address(s) for s in d.sources if isinstance(s, _Address)]
        if d.instruction.name == "LDGSTS" and isinstance(d.sources[-1], _Pred):
            # Where the last operand is false, zeros are written and nothing is read.
            reads = self.condition(d.sources[-1])
            if reads is None:
                self.unknown_sites[index] = "whether it reads depends on data"
                return
            if not reads.all():
                mask = self.narrow(mask, reads)
                if not mask.any():
                    return
        if not places or any(p is None for p in places):
            self.unknown_sites[index] = "its address depends on data"
            return
        # An access that repeats its last pattern at another place costs what it cost there.
        bases = [place.item(0) for place in places]
        known = self.patterns.get(index)
        if (
            known is None
            or not _same(known[1], mask)
            or any(old.shape != new.shape or np.not_equal(new, old + (base - was)).any()
                   for old, new, was, base in zip(known[0], places, known[2], bases, strict=True))
        ):  # fmt: skip
            known = self.patterns[index] = (places, mask, bases, {})
        phase = tuple(base & 127 for base in bases)
        cost = known[3].get(phase)
        if cost is None:
            cost = known[3][phase] = self.costs(d, places, mask)
        if isinstance(cost, str):
            self.unknown_sites[index] = cost
            return
        self.repeats[index] = inputs, cost
        self.add(index, d, cost)

    def add(self, index, d: _Decoded, cost: dict[str, dict[str, int]]):
        for space, values in cost.items():
            site = self.sites.get((index, space))
            if site is None:
                site = self.sites[index, space] = SiteAccess(space, MEMORY_OPCODES[d.instruction.name][1])
            for name, value in values.items():
                setattr(site, name, getattr(site, name) + value)

    def costs(self, d: _Decoded, places, mask) -> dict[str, dict[str, int]] | str:
        """What one execution adds to the SiteAccess of each memory it reaches, or why that cannot be told."""
        space = MEMORY_OPCODES[d.instruction.name][0]
        active = mask
        if active is None and self.lanes != self.threads:
            active = np.arange(self.lanes).reshape(1, 1, 1, -1) < self.threads
        if space != "generic":
            return {space: self.cost(d, space, places, active)}
        windows = {"shared": places[0] >> 32 == SHARED_WINDOW, "local": places[0] >> 32 == LOCAL_WINDOW}
        if self.clustered and windows["shared"].any():
            return "it may reach another block's shared memory"
        windows["global"] = ~(windows["shared"] | windows["local"])
        reached = {space: inside if active is None else inside & active for space, inside in windows.items() if inside.any()}
        if sum(self.per_warp(inside, np.any).astype(int) for inside in reached.values()).max() > 1:
            return "a warp reaches several memories at once"
        near = [places[0] & LOW]
        return {space: self.cost(d, space, places if space == "global" else near, inside) for space, inside in reached.items()}

    def cost(self, d: _Decoded, space: str, places, active) -> dict[str, int]:
        """What one execution adds to the SiteAccess of `space`."""
        name, opcode, op = d.instruction.name, d.instruction.opcode, MEMORY_OPCODES[d.instruction.name][1]
        active = self.flat(active)
        # A copy names its target in shared memory first and its global source last.
        addresses = self.flat(places[-1] if name == "LDGSTS" else places[0])
        width, size = sass_width(opcode), (self.count_blocks, self.lanes)
        if space == "shared":
            if op in ("ldmatrix", "stmatrix"):
                matrices = int(opcode[-1]) if opcode[-2:] in (".2", ".4") else 1
                shared = rules.count_ldmatrix(addresses, active, matrices, *size)
            else:
                shared = rules.count_shared(addresses, active, width, *size, op)
            return {"requests": shared.requests, "wavefronts": shared.wavefronts, "ideal_wavefronts": shared.ideal}
        if "BYPASS" in d.modifiers:
            sides = np.broadcast_arrays(addresses, self.flat(places[0]), True if active is None else active)
            times = self.count_blocks // len(sides[0])
            rows = (np.broadcast_to(side, (len(side), self.lanes)).reshape(-1, WARP) for side in sides)
            names = ("requests", "sectors", "ideal_sectors", "distinct_sectors")
            return {what: int(n.sum()) * times for what, n in zip(names, rules.bypass_access(*rows), strict=True)}
        count = {"atom": rules.count_atomic, "red": rules.count_atomic}.get(op, rules.count_global)
        got = (rules.count_local if space == "local" else count)(addresses, active, width, *size)
        distinct = rules.count_global(addresses, active, width, *size).sectors if op in ("atom", "red") else got.sectors
        cost = {"requests": got.requests, "sectors": got.sectors, "ideal_sectors": got.ideal, "distinct_sectors": distinct}
        if name == "LDGSTS":
            shared = rules.count_copy(addresses, self.flat(places[0]), active, width, *size)
            cost |= {"wavefronts": shared.wavefronts, "ideal_wavefronts": shared.ideal}
        return cost

    def address(self, place: _Address):
        total = place.offset
        for part in place.parts:
            low = self.lookup(part.name())
            if low is None:
                return None
            if ".64" in part.suffix:
                high = self.lookup(part.name(1))
                if high is None:
                    return None
                low = low | high << 32
            else:
                low = _signed(low)
            total = total + low * _scale(part.suffix) * (-1 if part.sign == "-" else 1)
        return total if place.parts else np.full((1, 1, 1, 1), total, np.int64)

    def flat(self, array):
        """[blocks or 1, lanes or 1]: broadcast over blocks only as far as needed."""
        if array is None:
            return None
        if array.shape[:3] == (1, 1, 1):
            return array.reshape(1, -1)
        return np.broadcast_to(array, (*self.shape, array.shape[3])).reshape(self.count_blocks, -1)

    def result(self, per_instruction) -> InstructionCounts:
        by_opcode: dict[str, int] = defaultdict(int)
        by_line: dict[int, int] = defaultdict(int)
        threads: dict[str, int | None] = {}
        threads_of: dict[int, int] = {}
        for block in self.program.blocks:
            lanes = self.lane_counts.get(block.start, 0)
            for d in self.program.decoded[block.start : block.end]:
                name, index = d.instruction.name, d.instruction.index
                n = per_instruction[index]
                if not n:
                    continue
                by_opcode[name] += n
                if d.instruction.ptx_line is not None:
                    by_line[d.instruction.ptx_line] += n
                if name in THREAD_COUNTED:
                    mine = lanes if d.guard is None else self.thread_counts.get(index, 0)
                    before = threads.get(name, 0)
                    threads[name] = None if mine is None or before is None else before + mine
                    threads_of[index] = mine
        known = {name: count for name, count in threads.items() if count is not None}
        threads_of = {k: v for k, v in threads_of.items() if self.program.decoded[k].instruction.name in known}
        sites = None
        if self.accesses:
            sites = defaultdict(tuple)
            for (index, _), site in self.sites.items():
                if index not in self.unknown_sites:
                    sites[index] += (site,)
        return InstructionCounts(
            sum(per_instruction), dict(by_opcode), per_instruction, dict(by_line), known, sites and dict(sites), dict(self.unknown_sites),
            threads_of, tuple(d.instruction for d in self.program.decoded),
        )  # fmt: skip
