"""The counters' names, which are Nsight Compute's, and what each of them counts, in a reader's words.

Definitions: `rules.py` for memory, `sass.py` for instructions. Where a counter is absent from a run it could not be
known (never guessed), or nothing of the kind was executed.
"""

from __future__ import annotations

GLOBAL_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum"
GLOBAL_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum"
SHARED_INSTRUCTIONS = "smsp__inst_executed_op_shared_{op}.sum"
SHARED_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"
SHARED_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum"
FFMA_THREADS = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"
OPCODE = "sass__inst_executed_per_opcode.{opcode}"

_VERBS = {"ld": "loads", "st": "stores"}

MEANINGS: dict[str, str] = {
    **{GLOBAL_REQUESTS.format(op=op): f"global {verb}: instructions of whole warps" for op, verb in _VERBS.items()},
    **{GLOBAL_SECTORS.format(op=op): f"32-byte sectors those {verb} touch" for op, verb in _VERBS.items()},
    **{SHARED_INSTRUCTIONS.format(op=op): f"shared-memory {verb}: instructions of whole warps" for op, verb in _VERBS.items()},
    **{SHARED_WAVEFRONTS.format(op=op): f"passes through shared memory those {verb} take" for op, verb in _VERBS.items()},
    **{SHARED_CONFLICTS.format(op=op): f"of these, passes caused by bank conflicts ({verb})" for op, verb in _VERBS.items()},
    FFMA_THREADS: "fused multiply-adds, counted per thread",
    INSTRUCTIONS: "machine instructions, counted per warp",
}
