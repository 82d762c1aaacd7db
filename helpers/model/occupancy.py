"""Theoretical occupancy: how many blocks fit on one SM at once, and which resource runs out first.

The rules are those of NVIDIA's cuda_occupancy.h (shipped with the CUDA headers), restated for compute capability 7.5
and later; tests/model/occupancy.csv holds what that header itself computes for a grid of inputs. Four resources are
shared out:

- threads: whole warps, up to the SM's warp slots;
- blocks: a fixed number of slots;
- registers: rounded up to 256 per warp, and handed out inside each of the SM's four sub-partitions, so a warp's
registers
  never straddle two of them;
- shared memory: what the block asks for, plus what the driver reserves, rounded up to the granule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .hardware import (
    GPU,
    REGISTER_GRANULE,
    REGISTERS_PER_BLOCK,
    REGISTERS_PER_THREAD,
    SUB_PARTITIONS,
    THREADS_PER_BLOCK,
    WARP,
    Capability,
    capability,
)


@dataclass(frozen=True)
class Occupancy:
    """How a kernel fits on an SM.

    blocks_per_sm, warps_per_sm: resident at once. limits: blocks that each resource alone would allow. limiters: the
    resources that bind ("threads", "blocks", "registers", "shared memory", "barriers"). allocated_registers and
    allocated_shared (bytes): per block, after rounding. reason: why nothing fits, or "". registers_known: False where it is what would
    fit if registers were no limit.
    """

    capability: Capability
    threads: int
    blocks_per_sm: int
    limits: dict[str, int | None]
    limiters: tuple[str, ...]
    allocated_registers: int
    allocated_shared: int
    reason: str = ""
    registers_known: bool = True

    @property
    def warps_per_sm(self) -> int:
        return self.blocks_per_sm * math.ceil(self.threads / WARP)

    @property
    def fraction(self) -> float:
        """Resident warps over warp slots, 0 to 1."""
        return self.warps_per_sm / self.capability.warps_per_sm

    def waves(self, blocks: int, sms: float) -> float:
        """How many times the GPU is filled by a grid of `blocks` blocks on `sms` SMs, of which clusters may leave a part free. 1.2 takes
        the time of 2."""
        if self.blocks_per_sm == 0:
            return math.inf
        return blocks / (self.blocks_per_sm * sms)

    def __str__(self) -> str:
        if self.blocks_per_sm == 0:
            return f"does not fit on {self.capability.arch}: {self.reason}"
        blocks = "1 block" if self.blocks_per_sm == 1 else f"{self.blocks_per_sm} blocks"
        most, unknown = ("", "") if self.registers_known else ("at most ", "; registers are not known without machine code")
        return (
            f"{most}{self.fraction:.0%} occupancy on {self.capability.arch} "
            f"({blocks}, {self.warps_per_sm} of {self.capability.warps_per_sm} warps per SM; "
            f"limited by {' and '.join(self.limiters)}{unknown})"
        )


def limits(arch: str) -> Capability:
    """Limits of an architecture ("sm_90", "sm_90a", "9.0"). Raises CourseError for one without a row in gpus.toml."""
    return capability(arch)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def occupancy(on: str | Capability | GPU, threads: int, registers: int, shared: int = 0, barriers: int = 1) -> Occupancy:
    """Occupancy of a kernel with `threads` per block, `registers` per thread and `shared` bytes per block.

    on: a GPU, a Capability, or its name ("sm_90", "9.0"). shared: static and dynamic together, without what the driver
    reserves. barriers: named barriers a block uses (one for __syncthreads). Raises ValueError for threads < 1 or
    negative sizes; a block too large for the hardware is no error but an occupancy of 0 with its reason.
    """
    sm = on.capability if isinstance(on, GPU) else on if isinstance(on, Capability) else capability(on)
    if threads < 1 or registers < 0 or shared < 0 or barriers < 0:
        raise ValueError(f"not a block: threads={threads}, registers={registers}, shared={shared}, barriers={barriers}")
    warps = math.ceil(threads / WARP)

    by_threads = 0 if threads > THREADS_PER_BLOCK else sm.warps_per_sm // warps

    # The launch check assumes every sub-partition gets the same number of warps, hence the second rounding.
    per_warp = _round_up(registers * WARP, REGISTER_GRANULE)
    if registers > REGISTERS_PER_THREAD + 1 or per_warp * _round_up(warps, SUB_PARTITIONS) > REGISTERS_PER_BLOCK:
        by_registers = 0
    elif per_warp == 0:
        by_registers = None
    else:
        by_registers = sm.registers // SUB_PARTITIONS // per_warp * SUB_PARTITIONS // warps

    per_block = _round_up(shared + sm.shared_reserved, sm.shared_granule)
    if per_block > sm.shared_per_block + sm.shared_reserved:
        by_shared = 0
    elif per_block == 0:
        by_shared = None
    else:
        by_shared = sm.shared_configurations[-1] // per_block

    allowed: dict[str, int | None] = {
        "threads": by_threads,
        "registers": by_registers,
        "shared memory": by_shared,
        "blocks": sm.blocks_per_sm,
    }
    if int(sm.name.split(".")[0]) >= 9 and barriers:
        allowed["barriers"] = sm.blocks_per_sm * sm.barriers_per_block_slot // barriers
    blocks = min(limit for limit in allowed.values() if limit is not None)
    limiters = tuple(name for name, limit in allowed.items() if limit == blocks)
    return Occupancy(
        capability=sm,
        threads=threads,
        blocks_per_sm=blocks,
        limits=allowed,
        limiters=limiters,
        allocated_registers=per_warp * warps,
        allocated_shared=per_block,
        reason=_reason(sm, allowed, threads, registers, shared) if blocks == 0 else "",
    )


def _reason(sm: Capability, allowed: dict[str, int | None], threads: int, registers: int, shared: int) -> str:
    if allowed["threads"] == 0:
        return f"a block may have at most {THREADS_PER_BLOCK} threads, this one has {threads}"
    if allowed["shared memory"] == 0:
        return f"a block may use at most {sm.shared_per_block:,} bytes of shared memory, this one uses {shared:,}"
    if allowed["registers"] == 0:
        return f"{threads} threads of {registers} registers need more than the {REGISTERS_PER_BLOCK:,} a block may have"
    return "it uses more barriers than an SM has"
