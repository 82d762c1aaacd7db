"""What one execution of a memory instruction costs, and the counters it adds to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from helpers.sim.code.sass import MEMORY_OPCODES, Instruction, sass_width
from helpers.sim.counting import rules

from .constants import LOCAL_WINDOW, SHARED_WINDOW
from .decoding import Decoded
from .values import LOW, WARP

GLOBAL_OP = {"ld": "ld", "cp.async": "ld", "st": "st", "atom": "atom", "red": "red"}
_SHARED_OP = {"ld": "ld", "ldmatrix": "ld", "st": "st", "stmatrix": "st", "atom": "atom"}


@dataclass
class SiteAccess:
    """What one SASS memory instruction costs in a launch.

    requests: warp instructions with an active lane (local memory: one per word). sectors: as the hardware counts them;
    distinct_sectors: 32-byte chunks touched (fewer, for atomics); ideal_sectors, wavefronts, ideal_wavefronts: see `rules`.
    """

    space: str
    op: str
    requests: int = 0
    sectors: int = 0
    distinct_sectors: int = 0
    ideal_sectors: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0


def charged_counters(site: SiteAccess, instruction: Instruction) -> dict[str, int]:
    """The memory counters that one site adds to."""
    charged = {}
    if site.space == "local":
        charged[f"l1tex__t_requests_pipe_lsu_mem_local_op_{site.op}.sum"] = site.requests
        charged[f"l1tex__t_sectors_pipe_lsu_mem_local_op_{site.op}.sum"] = site.sectors
    elif site.space != "shared":
        op = GLOBAL_OP[site.op]
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


def costs(launch, d: Decoded, places, mask) -> dict[str, dict[str, int]] | str:
    """What one execution adds to the SiteAccess of each memory it reaches, or why that cannot be told."""
    space = MEMORY_OPCODES[d.instruction.name][0]
    active = mask
    if active is None and launch.lanes != launch.threads:
        active = np.arange(launch.lanes).reshape(1, 1, 1, -1) < launch.threads
    if space != "generic":
        return {space: cost(launch, d, space, places, active)}
    windows = {"shared": places[0] >> 32 == SHARED_WINDOW, "local": places[0] >> 32 == LOCAL_WINDOW}
    if launch.clustered and windows["shared"].any():
        return "it may reach another block's shared memory"
    windows["global"] = ~(windows["shared"] | windows["local"])
    reached = {space: inside if active is None else inside & active for space, inside in windows.items() if inside.any()}
    if sum(launch.per_warp(inside, np.any).astype(int) for inside in reached.values()).max() > 1:
        return "a warp reaches several memories at once"
    near = [places[0] & LOW]
    return {space: cost(launch, d, space, places if space == "global" else near, inside) for space, inside in reached.items()}


def cost(launch, d: Decoded, space: str, places, active) -> dict[str, int]:
    """What one execution adds to the SiteAccess of `space`."""
    name, opcode, op = d.instruction.name, d.instruction.opcode, MEMORY_OPCODES[d.instruction.name][1]
    active = launch.flat(active)
    # A copy names its target in shared memory first and its global source last.
    addresses = launch.flat(places[-1] if name == "LDGSTS" else places[0])
    width, size = sass_width(opcode), (launch.count_blocks, launch.lanes)
    if space == "shared":
        if op in ("ldmatrix", "stmatrix"):
            matrices = int(opcode[-1]) if opcode[-2:] in (".2", ".4") else 1
            shared = rules.count_ldmatrix(addresses, active, matrices, *size)
        else:
            shared = rules.count_shared(addresses, active, width, *size, op)
        return {"requests": shared.requests, "wavefronts": shared.wavefronts, "ideal_wavefronts": shared.ideal}
    if "BYPASS" in d.modifiers:
        sides = np.broadcast_arrays(addresses, launch.flat(places[0]), True if active is None else active)
        times = launch.count_blocks // len(sides[0])
        rows = (np.broadcast_to(side, (len(side), launch.lanes)).reshape(-1, WARP) for side in sides)
        names = ("requests", "sectors", "ideal_sectors", "distinct_sectors")
        return {what: int(n.sum()) * times for what, n in zip(names, rules.bypass_access(*rows), strict=True)}
    count = {"atom": rules.count_atomic, "red": rules.count_atomic}.get(op, rules.count_global)
    got = (rules.count_local if space == "local" else count)(addresses, active, width, *size)
    distinct = rules.count_global(addresses, active, width, *size).sectors if op in ("atom", "red") else got.sectors
    cost = {"requests": got.requests, "sectors": got.sectors, "ideal_sectors": got.ideal, "distinct_sectors": distinct}
    if name == "LDGSTS":
        shared = rules.count_copy(addresses, launch.flat(places[0]), active, width, *size)
        cost |= {"wavefronts": shared.wavefronts, "ideal_wavefronts": shared.ideal}
    return cost
