"""Counters of a run under Nsight Compute's names, per kernel and per source line.

Instructions are counted per basic block, so counting them costs nothing per instruction. Memory accesses are counted
one by one, at the width of the instruction that ptxas made; an access that repeats its last pattern at another place
is recognised and costs a comparison.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from . import rules

GLOBAL = "l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum"
LOCAL = "l1tex__t_{what}_pipe_lsu_mem_local_op_{op}.sum"
SHARED_INSTRUCTIONS = "smsp__inst_executed_op_shared_{op}.sum"
MATRIX_INSTRUCTIONS = "smsp__inst_executed_op_ldsm.sum"  # ldmatrix: shared_ld does not count it
SHARED_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"
SHARED_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum"
ALL_SHARED = "memory_l1_wavefronts_shared"
ALL_SHARED_IDEAL = "memory_l1_wavefronts_shared_ideal"
COPIED_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access.sum"  # cp.async.ca; they count as loads, too
PTX = "ptx_instructions"
# Present even when nothing of the kind happened, because 0 is an answer.
ALWAYS = (
    *tuple(
        name.format(op=op, what=what)
        for op in ("ld", "st")
        for name, what in (
            (GLOBAL, "requests"),
            (GLOBAL, "sectors"),
            (SHARED_INSTRUCTIONS, ""),
            (SHARED_WAVEFRONTS, ""),
            (SHARED_CONFLICTS, ""),
        )
    ),
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    ALL_SHARED,
    ALL_SHARED_IDEAL,
)


class Counting:
    """Accumulates the counters of one launch."""

    def __init__(self, program):
        self.program = program
        self.totals = [[0, 0, 0] for _ in program.sites]
        self.spaces: dict[tuple[int, str], list[int]] = {}
        self.guarded: dict[tuple[int | None, str], int] = defaultdict(int)
        self.blocks = [[0, 0] for _ in program.blocks]

    def threads(self, line, counter: str, lanes: int) -> None:
        """Threads of a guarded instruction whose guard was on."""
        self.guarded[line, counter] += lanes

    def access(self, m, site, addresses: np.ndarray) -> None:
        """One executed access of a chunk. addresses: int64 in the site's space."""
        if site.charged:
            self.charge(m, site, site.space, addresses, site.charged, self.totals[site.index])

    def access_in(self, m, site, space: str, addresses: np.ndarray) -> None:
        """The same for a generic address that turned out to lie in `space`."""
        if site.charged:
            totals = self.spaces.setdefault((site.index, space), [0, 0, 0])
            self.charge(m, site, space, addresses, site.charged, totals)

    def charge(self, m, site, space, addresses, width, totals) -> None:
        mask = m.mask
        if site.shift:
            addresses = addresses + site.shift
        base = addresses.item(0)
        known = m.memo[site.index]
        if (
            known is not None
            and known[1] is mask
            and known[4] is space
            and known[0].shape == addresses.shape
            and (known[0] is addresses or not np.not_equal(addresses, known[0] + (base - known[2])).any())
        ):
            counts = known[3].get(base & 127)
        else:
            known = m.memo[site.index] = (addresses, mask, base, {}, space)
            counts = None
        if counts is None:
            rows, rows_mask, blocks, threads, times = m.compact(addresses, mask)
            if space == "shared":
                op = "atom" if site.op in ("atom", "red") else "ld" if site.op == "ld" else "st"
                counted = rules.count_shared(rows, rows_mask, width, blocks, threads, op)
            elif space == "local":
                counted = rules.count_local(rows, rows_mask, width, blocks, threads)
            elif site.op in ("atom", "red"):
                counted = rules.count_atomic(rows, rows_mask, width, blocks, threads)
            else:
                counted = rules.count_global(rows, rows_mask, width, blocks, threads)
            counts = known[3][base & 127] = tuple(value * times for value in counted)
        totals[0] += counts[0]
        totals[1] += counts[1]
        totals[2] += counts[2]

    def copy(self, m, writes, addresses, offsets) -> None:
        """The shared-memory side of a cp.async through the cache (.ca); `access` counts its global side."""
        mask, bases = m.mask, (addresses.item(0), offsets.item(0))
        known = m.memo[writes.index]
        if (
            known is None
            or known[0] is not mask
            or any(
                old.shape != new.shape or np.not_equal(new - base, old).any()
                for old, new, base in zip(known[1], (addresses, offsets), bases, strict=True)
            )
        ):
            known = m.memo[writes.index] = (mask, (addresses - bases[0], offsets - bases[1]), {})
        place = tuple(base & 127 for base in bases)
        if place not in known[2]:
            active = None if mask is None else m.rows_of(mask)
            known[2][place] = rules.count_copy(m.rows_of(addresses), m.rows_of(offsets), active, writes.width, m.blocks, m.threads)
        for i, value in enumerate(known[2][place]):
            self.totals[writes.index][i] += value

    def matrix(self, m, site, addresses, matrices: int) -> None:
        """ldmatrix and stmatrix."""
        rows, rows_mask, blocks, threads, times = m.compact(addresses, m.mask)
        counted = rules.count_ldmatrix(rows, rows_mask, matrices, blocks, threads)
        for i in range(3):
            self.totals[site.index][i] += counted[i] * times

    def warpgroups(self, site, times: int, nbytes: int) -> None:
        """Products of `times` warpgroups that read `nbytes` each: 128 bytes at a time, and not through the load-store unit."""
        for i, count in enumerate((1, nbytes // 128, nbytes // 128)):
            self.totals[site.index][i] += count * times

    def finish_chunk(self, m) -> None:
        """Take in how often a chunk executed each block of code."""
        for i, count in enumerate(m.full_runs):
            if count:
                self.blocks[i][0] += count * m.blocks * m.warp_count
                self.blocks[i][1] += count * m.lanes
        for i, (warps, lanes) in m.part_runs.items():
            self.blocks[i][0] += warps
            self.blocks[i][1] += lanes

    def results(self, scale: float = 1.0) -> tuple[dict[str, int], dict[int, dict[str, int]]]:
        """(counters, counters per line); `scale` stretches a sample of the blocks to all."""
        counters: dict[str, int] = dict.fromkeys(ALWAYS, 0)
        by_line: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))

        def add(line, name, value, everywhere=True):
            if not value:
                return
            if everywhere:
                counters[name] = counters.get(name, 0) + value
            if line is not None:
                by_line[line][name] += value

        for block, (warps, lanes) in zip(self.program.blocks, self.blocks, strict=True):
            for line, size in block.lines.items():
                add(line, PTX, size * warps)
            for (line, counter), size in block.counted.items():
                add(line, counter, size * lanes)
        for (line, counter), lanes in self.guarded.items():
            add(line, counter, lanes)
        entries = [(self.program.sites[i], self.program.sites[i].space, totals) for i, totals in enumerate(self.totals)]
        entries += [(self.program.sites[i], space, totals) for (i, space), totals in self.spaces.items()]
        for site, space, (requests, second, ideal) in entries:
            if not requests:
                continue
            op = {"ldmatrix": "ld", "stmatrix": "st", "cp.async": "ld"}.get(site.op, site.op)
            if op == "atom" and site.sass.startswith("RED"):
                op = "red"  # nobody uses the old value, and ptxas noticed
            if space in ("global", "local"):
                name = GLOBAL if space == "global" else LOCAL
                add(site.line, name.format(what="requests", op=op), requests)
                add(site.line, name.format(what="sectors", op=op), second)
                add(site.line, f"{space}_{op}_sectors_ideal", ideal, everywhere=False)
                if site.op == "cp.async" and "cp.async.ca" in site.opcode:
                    add(site.line, COPIED_SECTORS, second)
            elif site.op in ("cp.async", "wgmma"):
                add(site.line, ALL_SHARED, second)
                add(site.line, ALL_SHARED_IDEAL, ideal)
            elif space == "shared":
                if site.op == "ldmatrix" or site.sass.startswith("LDSM"):
                    add(site.line, MATRIX_INSTRUCTIONS, requests)
                else:
                    add(site.line, SHARED_INSTRUCTIONS.format(op=op), requests)
                add(site.line, SHARED_WAVEFRONTS.format(op=op), second)
                add(site.line, SHARED_CONFLICTS.format(op=op), second - ideal)
                add(site.line, ALL_SHARED, second)
                add(site.line, ALL_SHARED_IDEAL, ideal)
        if scale != 1.0:
            counters = {name: round(value * scale) for name, value in counters.items()}
            by_line = {line: {name: round(value * scale) for name, value in names.items()} for line, names in by_line.items()}
        return counters, {line: dict(names) for line, names in sorted(by_line.items())}
