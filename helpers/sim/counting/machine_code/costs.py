"""What one execution of a memory instruction costs, and the counters it adds to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from helpers.sim.code.sass import SassInstruction
from helpers.sim.code.sass_opcodes import matrices
from helpers.sim.code.sites import AccessKind, CostRule, combined, rule_of
from helpers.sim.counting import names, rules

from .constants import LOCAL_WINDOW, SHARED_WINDOW
from .values import LOW

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


def charged_counters(site: SiteAccess, instruction: SassInstruction) -> dict[str, int]:
    """The memory counters that one site adds to."""
    charged = {}
    if site.space == "local":
        charged[names.requests("local", site.op)] = site.requests
        charged[names.sectors("local", site.op)] = site.sectors
    elif site.space != "shared":
        op = GLOBAL_OP[site.op]
        charged[names.requests("global", op)] = site.requests
        charged[names.sectors("global", op)] = site.sectors
        charged[names.L2_SECTORS] = site.distinct_sectors
        charged[names.L2_SECTORS_IDEAL] = site.ideal_sectors
        if site.op == "cp.async" and "BYPASS" not in instruction.opcode:
            charged[names.COPIED_SECTORS] = site.sectors
    else:
        op = _SHARED_OP[site.op]
        charged[names.shared_wavefronts(op)] = site.wavefronts
        charged[names.shared_conflicts(op)] = site.wavefronts - site.ideal_wavefronts
    if site.space == "shared" or site.op == "cp.async":
        charged[names.SHARED_WAVEFRONTS_OF_ALL] = site.wavefronts
        charged[names.SHARED_WAVEFRONTS_OF_ALL_IDEAL] = site.ideal_wavefronts
    return charged


def costs(launch, i: SassInstruction, places, mask) -> dict[str, dict[str, int]] | str:
    """What one execution adds to the SiteAccess of each memory it reaches, or why that cannot be told."""
    space = i.row.space
    active = mask
    if active is None and launch.lanes != launch.threads:
        active = np.arange(launch.lanes).reshape(1, 1, 1, -1) < launch.threads
    if space != "generic":
        return {space: cost(launch, i, space, places, active)}
    windows = {"shared": places[0] >> 32 == SHARED_WINDOW, "local": places[0] >> 32 == LOCAL_WINDOW}
    if launch.clustered and windows["shared"].any():
        return "it may reach another block's shared memory"
    windows["global"] = ~(windows["shared"] | windows["local"])
    reached = {space: inside if active is None else inside & active for space, inside in windows.items() if inside.any()}
    if sum(launch.per_warp(inside, np.any).astype(int) for inside in reached.values()).max() > 1:
        return "a warp reaches several memories at once"
    near = [places[0] & LOW]
    return {space: cost(launch, i, space, places if space == "global" else near, inside) for space, inside in reached.items()}


def cost(launch, i: SassInstruction, space: str, places, active) -> dict[str, int]:
    """What one execution adds to the SiteAccess of `space`."""
    kind = AccessKind(i.row.op)
    active, size = launch.flat(active), (launch.count_blocks, launch.lanes)
    # A copy names its target in shared memory first and its global source last.
    first, last = (launch.flat(place) for place in (places[0], places[-1]))
    rule = rule_of(kind, space, "BYPASS" in i.modifiers)
    rule = combined(rule) if "POPC" in i.modifiers else rule
    width = matrices(i.modifiers) if rule is CostRule.MATRIX else i.width
    if kind is not AccessKind.COPY:
        return rules.total(rule, first, active, width, *size)._asdict()
    got = rules.total(rule, last, active, width, *size, first)
    if rule is CostRule.GLOBAL:  # through the cache: the other side costs something, too
        shared = rules.total(rule_of(kind, "shared"), last, active, width, *size, first)
        got = got._replace(wavefronts=shared.wavefronts, ideal_wavefronts=shared.ideal_wavefronts)
    return got._asdict()
