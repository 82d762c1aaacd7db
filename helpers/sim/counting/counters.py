"""Counters of a run under Nsight Compute's names, per kernel and per source line.

Instructions are counted per basic block, so counting them costs nothing per instruction. Memory accesses are counted
one by one, at the width of the instruction that ptxas made; an access that repeats its last pattern at another place
is recognised and costs a comparison.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from helpers.sim.code.program import Program
from helpers.sim.code.sites import AccessKind, ChargedSite, CostRule

from . import names, rules

# Present even when nothing of the kind happened, because 0 is an answer.
ALWAYS = (
    *(name("global", op) for name in (names.requests, names.sectors) for op in ("ld", "st")),
    *(names.executed(f"shared_{op}") for op in ("ld", "st")),
    *(name(op) for name in (names.shared_wavefronts, names.shared_conflicts) for op in ("ld", "st")),
    names.threads("ffma"),
    names.SHARED_WAVEFRONTS_OF_ALL,
    names.SHARED_WAVEFRONTS_OF_ALL_IDEAL,
)


class Counting:
    """Accumulates the counters of one launch. charged: how each of the program's sites is charged."""

    def __init__(self, program: Program, charged: tuple[ChargedSite, ...]):
        self.program, self.charged = program, charged
        self.totals: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        self.named: dict[tuple[int | None, str], int] = defaultdict(int)
        self.blocks = [[0, 0] for _ in program.blocks]

    def threads(self, line, op: str, lanes: int) -> None:
        """Threads of a guarded instruction whose guard was on."""
        self.named[line, names.threads(op)] += lanes

    def bulk(self, line, op: str, copies: int, sectors: int) -> None:
        """Bulk copies. op: "ld", "st", "red", "within" shared memory, or "" for what is no copy."""
        self.named[line, names.BULK_PIPE] += copies
        if op:
            self.named[line, names.bulk_executed()] += copies
        if op in ("ld", "st", "red"):
            self.named[line, names.bulk_executed(op)] += copies
            self.named[line, names.bulk_sectors(op)] += sectors

    def add(self, site, space: str, charged, times: int = 1) -> None:
        """charged: (requests, sectors or wavefronts, ideal), see `rules.Cost.charged`."""
        totals = self.totals[site.index, space]
        for i, value in enumerate(charged):
            totals[i] += value * times

    def access(self, m, site, space: str, addresses: np.ndarray) -> None:
        """One executed access of a chunk. addresses: int64 in `space`."""
        made = self.charged[site.index]
        rule = made.rule_in(space)
        if not made.width or rule is CostRule.NONE or rule in rules.TWO_SIDED:
            return
        mask = m.mask
        if made.shift:
            addresses = addresses + made.shift
        base = addresses.item(0)
        known = m.memo[site.index]
        if (
            known is not None
            and known[1] is mask
            and known[4] is rule
            and known[0].shape == addresses.shape
            and (known[0] is addresses or not np.not_equal(addresses, known[0] + (base - known[2])).any())
        ):
            charged = known[3].get(base & 127)
        else:
            known = m.memo[site.index] = (addresses, mask, base, {}, rule)
            charged = None
        if charged is None:
            rows, rows_mask, blocks, threads, times = m.compact(addresses, mask)
            counted = rules.total(rule, rows, rows_mask, made.width, blocks, threads)
            charged = known[3][base & 127] = tuple(value * times for value in counted.charged)
        totals = self.totals[site.index, space]
        totals[0] += charged[0]
        totals[1] += charged[1]
        totals[2] += charged[2]

    def copy(self, m, site, sources, targets) -> None:
        """A cp.async, by a rule for which both sides matter: the shared side of .ca, the global side of .cg."""
        if not self.charged[site.index].width:
            return
        mask, bases = m.mask, (sources.item(0), targets.item(0))
        known = m.memo[site.index]
        if (
            known is None
            or known[0] is not mask
            or any(
                old.shape != new.shape or np.not_equal(new - base, old).any()
                for old, new, base in zip(known[1], (sources, targets), bases, strict=True)
            )
        ):
            known = m.memo[site.index] = (mask, (sources - bases[0], targets - bases[1]), {})
        place = tuple(base & 127 for base in bases)
        if place not in known[2]:
            active = None if mask is None else m.rows_of(mask)
            counted = rules.total(site.rule, m.rows_of(sources), active, site.width, m.blocks, m.threads, m.rows_of(targets))
            known[2][place] = counted.charged
        self.add(site, site.space, known[2][place])

    def matrix(self, m, site, space: str, addresses, matrices: int) -> None:
        """ldmatrix and stmatrix, and what ptxas made one."""
        if not self.charged[site.index].width:
            return
        rows, rows_mask, blocks, threads, times = m.compact(addresses, m.mask)
        self.add(site, space, rules.total(CostRule.MATRIX, rows, rows_mask, matrices, blocks, threads).charged, times)

    def warpgroups(self, site, times: int, columns: int, sparse: bool, a_in_shared: bool) -> None:
        """Products of warpgroups, see `rules.warpgroups`; ptxas makes one instruction of each."""
        self.named[site.line, names.tensor("gmma")] += 4 * times
        self.add(site, site.space, rules.warpgroups(times, columns, sparse, a_in_shared).charged)

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
                add(line, names.PTX_INSTRUCTIONS, size * warps)
            for (line, op), size in block.counted.items():
                add(line, names.threads(op), size * lanes)
        for (line, name), value in self.named.items():
            add(line, name, value)
        for (index, space), (requests, second, ideal) in sorted(self.totals.items()):
            site, made = self.program.sites[index], self.charged[index].made
            if not requests:
                continue
            op = {"ldmatrix": "ld", "stmatrix": "st", "cp.async": "ld"}.get(made, made)
            if space in ("global", "local"):
                add(site.line, names.requests(space, op), requests)
                add(site.line, names.sectors(space, op), second)
                add(site.line, names.ideal_sectors(space, op), ideal, everywhere=False)
                if site.op is AccessKind.COPY and site.rule is CostRule.GLOBAL:
                    add(site.line, names.COPIED_SECTORS, second)
            elif site.op in (AccessKind.COPY, AccessKind.WARPGROUP):
                add(site.line, names.SHARED_WAVEFRONTS_OF_ALL, second)
                add(site.line, names.SHARED_WAVEFRONTS_OF_ALL_IDEAL, ideal)
            elif space == "shared":
                if made is AccessKind.MATRIX_LOAD:
                    add(site.line, names.executed("ldsm"), requests)  # shared_ld does not count it
                else:
                    add(site.line, names.executed(f"shared_{op}"), requests)
                add(site.line, names.shared_wavefronts(op), second)
                add(site.line, names.shared_conflicts(op), second - ideal)
                add(site.line, names.SHARED_WAVEFRONTS_OF_ALL, second)
                add(site.line, names.SHARED_WAVEFRONTS_OF_ALL_IDEAL, ideal)
        if scale != 1.0:
            counters = {name: round(value * scale) for name, value in counters.items()}
            by_line = {line: {name: round(value * scale) for name, value in mine.items()} for line, mine in by_line.items()}
        return counters, {line: dict(mine) for line, mine in sorted(by_line.items())}
