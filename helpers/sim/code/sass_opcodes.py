"""What each SASS opcode is, one row per opcode: the only place that knows.

An opcode without a row is an ordinary one: it may write one register (two with .64, .WIDE and the like) and touches no
memory.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

Modifiers = tuple[str, ...]  # of 'LDG.E.128': ('E', '128')


def access_bytes(modifiers: Modifiers) -> int:
    """Bytes per lane that the modifiers of a load or store say."""
    for modifier in modifiers:
        if modifier in ("U8", "S8"):
            return 1
        if modifier in ("U16", "S16"):
            return 2
        if modifier in ("64", "128", "256"):
            return int(modifier) // 8
        if modifier == "F64":
            return 8
    return 4


# --- how many consecutive registers an operand is, from the modifiers ------------------------------------------------


def _one(modifiers: Modifiers) -> int:
    return 1


def _two(modifiers: Modifiers) -> int:
    return 2


def _wide(modifiers: Modifiers) -> int:
    return 2 if {"WIDE", "64", "U64", "S64", "F64"} & set(modifiers) else 1


def _any_64(modifiers: Modifiers) -> int:
    return 2 if any("64" in modifier for modifier in modifiers) else 1


def _accessed(modifiers: Modifiers) -> int:
    return max(1, access_bytes(modifiers) // 4)


def matrices(modifiers: Modifiers) -> int:
    """8 x 8 matrices that LDSM or STSM moves, a register each."""
    return int(modifiers[-1]) if modifiers[-1:] in (("2",), ("4",)) else 1


def _constant(modifiers: Modifiers) -> int:
    return 4 if "128" in modifiers else _wide(modifiers)


def _fragment(modifiers: Modifiers) -> int:
    """Of a result of 16 or 8 rows and 8 columns, as its shape begins (16816, 8x8x4): 4 or 2 elements, of FP16 half a register each."""
    found = 2 if modifiers and modifiers[0].replace("x", "").startswith("88") else 4
    return found // 2 if modifiers[1:2] == ("F16",) else found


def _double_fragment(modifiers: Modifiers) -> int:
    return 2 * _fragment(modifiers)


def _warpgroup_fragment(modifiers: Modifiers) -> int:
    shape = next((found for modifier in modifiers if (found := re.fullmatch(r"\d+x(\d+)x\d+", modifier))), None)
    return int(shape[1]) // 2 if shape else 128


def _to_integer(modifiers: Modifiers) -> int:
    return 2 if {"S64", "U64"} & set(modifiers) else 1


def _to_float(modifiers: Modifiers) -> int:
    return 2 if "F64" in modifiers else 1


def _between_floats(modifiers: Modifiers) -> int:
    return 2 if next((m for m in modifiers if m in ("F16", "BF16", "F32", "F64")), "") == "F64" else 1


def _of_doubles(modifiers: Modifiers) -> int:
    """Registers of a source that may be a double: the last kind of float that an instruction names."""
    return 2 if next((m for m in modifiers[::-1] if m in ("F16", "BF16", "F32", "F64")), "") == "F64" else 1


def _unless_32(modifiers: Modifiers) -> int:
    return 1 if "32" in modifiers else 2


# --- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SassOpcode:
    """One opcode, without its modifiers.

    space: the memory it accesses ('generic' may be any), '' if none; op: what it does there, in PTX's word.
    results: which leading operands it writes: 'register' (after predicates, if any), 'predicates' or 'none'.
    most_predicates: how many of its leading predicates it may write. carries: predicates after the register are results,
    too. last_is_source: the last operand never is one. registers, sources: consecutive registers that its result and each
    source are; may be more than are used. wide_addend: with .WIDE or .HI only the third value is a pair.
    packs_predicates: P0 to P6 are read ('reads') or written ('writes') together.
    ends_block: control may go elsewhere after it; leaves: it never goes on behind it, unless a guard is false.
    convergence: it changes which threads meet at a BSYNC.
    How it is counted (see `counting.names`): executed_as, tensor, thread_op complete the names of Nsight Compute's counters of
    executed instructions, of the tensor cores' parts (beside the whole; measured on an H200), and of threads. per_thread:
    what is counted per thread, under a counter or not. meets: a barrier of the block.
    pipe: where it executes: 'fma' (either of its halves), 'fmaheavy', 'alu', 'xu', 'fp64', 'half', 'tensor', 'mio' (the queue and the
    unit of shared memory, without an access), or '' for what takes none that others wait for. points: what stands in brackets is a
    generic address, in two registers, of which in SASS only the first is said.
    """

    name: str
    space: str = ""
    op: str = ""
    results: str = "register"
    most_predicates: int = 8
    carries: bool = False
    last_is_source: bool = False
    registers: Callable[[Modifiers], int] = _wide
    sources: Callable[[Modifiers], int] = _any_64
    wide_addend: bool = False
    packs_predicates: str = ""
    ends_block: bool = False
    leaves: bool = False
    convergence: bool = False
    executed_as: str = ""
    tensor: tuple[str, ...] = ()
    per_thread: bool = False
    meets: bool = False
    thread_op: str = ""
    pipe: str = "alu"
    points: bool = False


def _memory(name: str, space: str, op: str, executed_as: str = "", **facts) -> SassOpcode:
    facts = {"registers": _accessed, "sources": _accessed, "pipe": ""} | facts
    results = "register" if op in ("ld", "atom", "ldmatrix") else "none"
    return SassOpcode(name, space, op, results, executed_as=executed_as, **facts)


def _all(names: str, **facts) -> tuple[SassOpcode, ...]:
    return tuple(SassOpcode(name, **facts) for name in names.split())


_ROWS = (
    # Memory.
    _memory("LDG", "global", "ld"),
    _memory("STG", "global", "st"),
    _memory("ATOMG", "global", "atom"),
    _memory("RED", "global", "red"),
    _memory("REDG", "global", "red"),
    _memory("LDGSTS", "global", "cp.async", "ldgsts"),
    _memory("LDS", "shared", "ld", "shared_ld"),
    _memory("STS", "shared", "st", "shared_st"),
    _memory("ATOMS", "shared", "atom", "shared_atom"),
    _memory("LDSM", "shared", "ldmatrix", "ldsm", registers=matrices),
    _memory("STSM", "shared", "stmatrix", sources=matrices),
    _memory("LDL", "local", "ld"),
    _memory("STL", "local", "st"),
    _memory("LD", "generic", "ld", points=True),
    _memory("ST", "generic", "st", points=True),
    _memory("ATOM", "generic", "atom", points=True),
    *_all("LDC ULDC LDCU", registers=_constant, pipe=""),
    # Copies, fences and barriers that write no register.
    *_all(
        "REDS LDGMC UBLKPF UBLKRED UTMASTG UTMAREDG UTMAPF UTMACCTL UTMACMDFLUSH LDGDEPBAR DEPBAR MEMBAR FENCE "
        "ERRBAR CCTL CCTLL CCTLT UCGABAR_ARV UCGABAR_WAIT WARPGROUP ACQBULK PREEXIT NOP NANOSLEEP YIELD RPCMOV",
        results="none",
        pipe="",
    ),
    SassOpcode("BAR", results="none", per_thread=True, meets=True, pipe=""),
    # What arrives at an mbarrier, or waits for it: threads, their cp.async, and copies in bulk.
    SassOpcode("SYNCS", op="mbarrier", registers=_any_64, pipe=""),
    SassOpcode("ARRIVES", op="cp.async.mbarrier", results="none", pipe=""),
    *_all("UBLKCP UTMALDG", op="cp.async.bulk", results="none", pipe=""),
    # Control.
    *_all("BRA EXIT RET JMP BRX BRXU JMX JMXU KILL", results="none", ends_block=True, leaves=True, pipe=""),
    *_all("BSYNC WARPSYNC ENDCOLLECTIVE CALL BPT", results="none", ends_block=True, pipe=""),
    *_all("BSSY BREAK", results="none", convergence=True, pipe=""),
    SassOpcode("BMOV", convergence=True, pipe=""),
    # What is the same for a warp, and what other warps or units are asked for.
    *_all("SHFL MOVM", pipe="mio"),
    *_all("S2R S2UR R2UR", pipe=""),
    SassOpcode("QSPC", pipe="", points=True),  # is a generic address one of shared memory (S), local memory, …?
    # Predicates.
    *_all("ISETP FSETP HSETP2 PLOP3", results="predicates", most_predicates=2),
    *_all("UISETP UPLOP3 UR2UP", results="predicates", most_predicates=2, pipe=""),
    SassOpcode("USETMAXREG", results="predicates", most_predicates=1, pipe=""),  # .TRY_ALLOC says whether there were enough
    SassOpcode("DSETP", results="predicates", most_predicates=2, sources=_two, pipe="fp64"),
    SassOpcode("FCHK", results="predicates", most_predicates=1),
    SassOpcode("R2P", results="predicates", most_predicates=1, packs_predicates="writes"),
    SassOpcode("P2R", packs_predicates="reads"),
    *_all("VOTE VOTEU", carries=True, last_is_source=True),
    # Integers.
    *_all("IADD3 LEA VIADDMNMX VIMNMX", carries=True),
    *_all("UIADD3 ULEA", carries=True, pipe=""),
    SassOpcode("IMAD", carries=True, wide_addend=True, per_thread=True, pipe="fmaheavy"),
    SassOpcode("UIMAD", carries=True, wide_addend=True, pipe=""),
    *_all("UMOV ULOP3 USEL UPRMT UFLO UPOPC", pipe=""),
    *_all("IDP IDP4A IMUL", pipe="fmaheavy"),
    *_all("POPC FLO BREV", pipe="xu"),
    SassOpcode("IADD64", registers=_two),
    SassOpcode("SHF", registers=_one, sources=_one),  # .U64 is what they shift, not what they give
    SassOpcode("USHF", registers=_one, sources=_one, pipe=""),
    SassOpcode("CS2R", registers=_unless_32, pipe=""),
    # Floats.
    SassOpcode("FFMA", per_thread=True, thread_op="ffma", pipe="fma"),
    SassOpcode("FADD", per_thread=True, thread_op="fadd", pipe="fma"),
    SassOpcode("FMUL", per_thread=True, thread_op="fmul", pipe="fma"),
    SassOpcode("DFMA", registers=_two, sources=_two, per_thread=True, thread_op="dfma", pipe="fp64"),
    SassOpcode("DADD", registers=_two, sources=_two, per_thread=True, thread_op="dadd", pipe="fp64"),
    SassOpcode("DMUL", registers=_two, sources=_two, per_thread=True, thread_op="dmul", pipe="fp64"),
    SassOpcode("DMNMX", registers=_two, sources=_two, pipe="fp64"),
    SassOpcode(
        "HFMA2", per_thread=True, tensor=("",), pipe="half"
    ),  # on the tensor cores' pipe (measured on an H200), as none of their parts
    *_all("HADD2 HMUL2", per_thread=True, pipe="half"),
    SassOpcode("FFMA2", per_thread=True, pipe="fma"),
    SassOpcode("F2I", registers=_to_integer, sources=_of_doubles, pipe="xu"),
    SassOpcode("I2F", registers=_to_float, sources=_to_integer, pipe="xu"),
    SassOpcode("I2FP", registers=_to_float),
    SassOpcode("F2F", registers=_between_floats, sources=_of_doubles, pipe="xu"),
    SassOpcode("FRND", registers=_to_float, sources=_to_float, pipe="xu"),
    SassOpcode("MUFU", pipe="xu"),
    # Tensor cores.
    SassOpcode("HMMA", registers=_fragment, tensor=("hmma",), pipe="tensor"),
    SassOpcode("IMMA", registers=_fragment, tensor=("imma",), pipe="tensor"),
    SassOpcode("BMMA", registers=_fragment, tensor=("imma",), pipe="tensor"),
    SassOpcode("DMMA", registers=_double_fragment, sources=_two, tensor=("dmma",), pipe="tensor"),
    *_all("QMMA OMMA", registers=_fragment, pipe="tensor"),
    *_all("HGMMA QGMMA", registers=_warpgroup_fragment, tensor=("gmma", "hmma"), pipe="tensor"),
    *_all("IGMMA BGMMA", registers=_warpgroup_fragment, tensor=("gmma", "imma"), pipe="tensor"),
)
_TABLE = {row.name: row for row in _ROWS}
ON_XU = tuple(row.name for row in _ROWS if row.pipe == "xu")  # special functions and conversions


@functools.cache
def opcode_row(opcode: str) -> SassOpcode:
    """The row of 'LDG' or 'LDG.E.128'."""
    name = opcode.split(".", 1)[0]
    return _TABLE.get(name) or SassOpcode(name)


def sass_width(opcode: str) -> int:
    """Bytes per lane of a SASS memory instruction ('LDG.E.128.CONSTANT' -> 16; LDSM: 16, one row of a matrix)."""
    name, *modifiers = opcode.split(".")
    return 16 if opcode_row(name).op in ("ldmatrix", "stmatrix") else access_bytes(tuple(modifiers))
