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
Of a register that is unknown as a whole, bits may be known: ptxas puts small numbers and predicates beside what was in it.

Divergence follows the hardware: a warp that splits runs its parts separately until they meet at BSYNC or WARPSYNC.

Trips of a loop that differ from each other by constants alone are not executed but added, once that is proven.

Modules: `slicing` finds the slice, `execute` runs it with what `semantics` knows of each instruction, on the `constants`
of the launch; `steady` jumps over trips, by the `changes` of each instruction's results; `costs` says what an access costs,
`counts` is the way in; `block_paths` writes down which way the warps of one block take, with the `signals` to its mbarriers;
`bulk_copies` says what neighbours copy;
`stored_tiles` says which tile of a matrix each block stores to.
"""

from .block_paths import ANY_BARRIER, LINE, SECTOR, AccessCost, BlockPath, Surroundings, Visit, block_path, lookup_cycles
from .bulk_copies import NEIGHBOURS, BulkCopy, bulk_copies
from .counts import InstructionCounts, counters, instruction_counts, refine
from .signals import Signal, SignalKind, kind_of
from .stored_tiles import StoredMatrix, stored_elements, stored_tiles

__all__ = [
    "ANY_BARRIER",
    "LINE",
    "NEIGHBOURS",
    "SECTOR",
    "AccessCost",
    "BlockPath",
    "BulkCopy",
    "InstructionCounts",
    "Signal",
    "SignalKind",
    "StoredMatrix",
    "Surroundings",
    "Visit",
    "block_path",
    "bulk_copies",
    "counters",
    "instruction_counts",
    "kind_of",
    "lookup_cycles",
    "refine",
    "stored_elements",
    "stored_tiles",
]
