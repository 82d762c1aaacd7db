"""The counters' names, which are Nsight Compute's, and what each of them counts, in a reader's words.

The only place that spells them. Definitions: `rules` for memory, `machine_code` for instructions. Where a counter is absent
from a run it could not be known (never guessed), or nothing of the kind was executed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

INSTRUCTIONS = "smsp__inst_executed.sum"
PTX_INSTRUCTIONS = "ptx_instructions"  # ours: of the PTX as it is written, per warp
SHARED_WAVEFRONTS_OF_ALL = "memory_l1_wavefronts_shared"  # the source view's: of every kind of instruction
SHARED_WAVEFRONTS_OF_ALL_IDEAL = "memory_l1_wavefronts_shared_ideal"
L2 = "memory_l2"  # how the names of the source view's L2 counters begin
L2_SECTORS = "memory_l2_theoretical_sectors_global"
L2_SECTORS_IDEAL = "memory_l2_theoretical_sectors_global_ideal"
BULK_PIPE = "sm__inst_executed_pipe_tma.sum"  # bulk copies, their prefetches, and what closes a group of them
COPIED_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access.sum"  # cp.async.ca; they count as loads, too


def requests(space: str, op: str) -> str:
    """Instructions of whole warps that reach `space` ('global', 'local'); op: 'ld', 'st', 'atom', 'red'."""
    return f"l1tex__t_requests_pipe_lsu_mem_{space}_op_{op}.sum"


def sectors(space: str, op: str) -> str:
    """32-byte sectors that those touch."""
    return f"l1tex__t_sectors_pipe_lsu_mem_{space}_op_{op}.sum"


def ideal_sectors(space: str, op: str) -> str:
    """Ours, per line: the sectors that the same bytes would take if they lay side by side."""
    return f"{space}_{op}_sectors_ideal"


def shared_wavefronts(op: str) -> str:
    """Wavefronts: the turns in which shared memory serves them; op: 'ld', 'st', 'atom'."""
    return f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"


def shared_conflicts(op: str) -> str:
    """Of these, the ones that bank conflicts cause."""
    return f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum"


def without_l2(counters: Mapping[str, int]) -> dict[str, int]:
    """Those that running the blocks gives: what goes through L2 only the machine code tells."""
    return {name: value for name, value in counters.items() if not name.startswith(L2)}


def executed(op: str) -> str:
    """Instructions of one kind, per warp: 'shared_ld', 'shared_st', 'shared_atom', 'ldsm', 'ldgsts'."""
    return f"smsp__inst_executed_op_{op}.sum"


def opcode(name: str) -> str:
    """Instructions of one SASS opcode, per warp: an instance of Nsight Compute's metric of that name."""
    return f"sass__inst_executed_per_opcode.{name}"


def opcode_threads(name: str) -> str:
    """The same per thread whose guard is true. Of barriers only, in kernels in which some have a guard."""
    return f"sass__thread_inst_executed_true_per_opcode.{name}"


def threads(op: str) -> str:
    """Arithmetic per thread whose guard is true: 'ffma', 'fadd', 'fmul', 'dfma', 'dadd', 'dmul'."""
    return f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum"


_INSTRUCTION = re.compile(r": (?:@!?U?P\w+ )?[A-Z][A-Z0-9]+(?:\.\w+)*(?: .*)?$")


def in_words(why: str) -> str:
    """A reason why machine instructions were not counted, without the instruction behind it, which no reader wrote."""
    return _INSTRUCTION.sub("", why)


def warp_state(word: str) -> str:
    """Warps in one state, such as 'long scoreboard', on average while an instruction issues. Sampled on a GPU, predicted elsewhere."""
    return f"smsp__average_warps_issue_stalled_{word.replace(' ', '_')}_per_issue_active.ratio"


def tensor(part: str = "") -> str:
    """Instructions of the tensor cores' pipe, per warp, HFMA2 among them; part: 'hmma', 'imma', 'dmma', 'gmma'."""
    return f"smsp__inst_executed_pipe_tensor{'_op_' if part else ''}{part}.sum"


def bulk_executed(op: str = "") -> str:
    """Bulk copies (TMA), in all or of one kind: 'ld', 'st', 'red'."""
    return f"sm__sass_inst_executed_op_tma{'_' if op else ''}{op}.sum"


def bulk_sectors(op: str) -> str:
    """Sectors that bulk copies load ('ld'), store ('st') or reduce ('red')."""
    return f"l1tex__m_{'xbar2l1tex_read' if op == 'ld' else 'l1tex2xbar_write'}_sectors_mem_global_op_tma_{op}.sum"


_VERBS = {"ld": "loads", "st": "stores"}

MEANINGS: dict[str, str] = {
    **{requests("global", op): f"global {verb}: instructions of whole warps" for op, verb in _VERBS.items()},
    **{sectors("global", op): f"32-byte sectors those {verb} touch" for op, verb in _VERBS.items()},
    **{executed(f"shared_{op}"): f"shared-memory {verb}: instructions of whole warps" for op, verb in _VERBS.items()},
    **{shared_wavefronts(op): f"wavefronts: turns in which shared memory serves those {verb}" for op, verb in _VERBS.items()},
    **{shared_conflicts(op): f"of these wavefronts, those that bank conflicts add ({verb})" for op, verb in _VERBS.items()},
    threads("ffma"): "fused multiply-adds, counted per thread",
    INSTRUCTIONS: "machine instructions, counted per warp",
}

# Of units that few kernels use: told where there is something to tell.
MEANINGS_OF_OTHER_UNITS: dict[str, str] = {
    executed("ldsm"): "ldmatrix (LDSM): instructions of whole warps, whose wavefronts are among those of shared-memory loads",
    requests("local", "ld"): "loads of local memory: spilled registers, and arrays whose index is not known when the kernel is compiled",
    requests("local", "st"): "stores to it, which all go through to L2",
    requests("global", "atom"): "global atomic operations whose result is used: instructions of whole warps",
    sectors("global", "atom"): "32-byte sectors that those touch",
    requests("global", "red"): "global atomic operations whose result nobody uses: instructions of whole warps",
    sectors("global", "red"): "32-byte sectors that those touch",
    executed("shared_atom"): "atomic operations on shared memory: instructions of whole warps",
    shared_wavefronts("atom"): "wavefronts: turns in which shared memory serves those",
    SHARED_WAVEFRONTS_OF_ALL: "wavefronts of all kinds of access, asynchronous copies (cp.async.ca) among them",
    SHARED_WAVEFRONTS_OF_ALL_IDEAL: "as many as they would be without bank conflicts",
    tensor("hmma"): "matrix instructions of a warp: 16-bit and TF32 products on the tensor cores",
    tensor("gmma"): "matrix instructions of a warpgroup (wgmma), counted for each of its four warps",
    bulk_executed("ld"): "bulk copies to shared memory that were started (TMA)",
    bulk_sectors("ld"): "32-byte sectors that they bring, to each block that receives them",
    bulk_executed("st"): "bulk copies from shared memory that were started",
    bulk_sectors("st"): "32-byte sectors that they store",
}
