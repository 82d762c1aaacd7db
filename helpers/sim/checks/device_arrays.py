"""Which arrays an access to device memory may touch.

Only arrays that the launch writes can race, and as a rule that is C alone. `arrays_of` finds them before the launch
by following addresses back to the kernel's parameters, so that reads of A and B cost nothing. A copy of a tensor goes where
its map says: that is followed to the map.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from helpers.sim.code.addresses import DEVICE_BASE, PARAM_WINDOW
from helpers.sim.code.origins import maps_addressed
from helpers.sim.code.program import Effect, Program
from helpers.sim.code.ptx import TYPE_BYTES, Address, Immediate, Pair, Vector
from helpers.sim.code.sites import Site

ANY = -1  # an address that comes from memory: it may point anywhere


def immediates(operand) -> Iterable[Immediate]:
    """The literals and fixed addresses in an operand."""
    match operand:
        case Immediate():
            yield operand
        case Address(base, _, _):
            yield from immediates(base)
        case Vector(items):
            for item in items:
                yield from immediates(item)
        case Pair(first, second):
            yield from immediates(first)
            yield from immediates(second)


def _addresses(operand) -> Iterable[int]:
    """Fixed device addresses in an operand: those of module variables."""
    return (one.value for one in immediates(operand) if isinstance(one.value, int) and one.value >= DEVICE_BASE)


@functools.lru_cache(maxsize=8)
def arrays_of(program: Program) -> dict[int, frozenset[int]]:
    """{number of a site in device memory: what its address is made of}.

    That is a set of offsets of parameters, fixed device addresses, and ANY; of an address of a tensor map also places from PARAM_WINDOW
    on, of parameters that may hold it. 32-bit values that come from memory are taken for indices, not for parts of pointers.
    """
    entry = {at for _, at in program.parameters}
    nothing = frozenset()
    steps = []
    for op in program.ops:
        targets = [register for register in op.writes if program.types[register] != "pred"]
        if not targets:
            continue
        fixed, sources = set(), ()
        if op.effect in (Effect.LOAD, Effect.ATOMIC):
            if any(TYPE_BYTES[program.types[register]] >= 8 for register in targets):
                fixed = {_parameter(site, entry) for site in op.sites}
        else:
            sources = op.reads
            for operand in op.instruction.operands[1:]:
                fixed.update(_addresses(operand))
            fixed.update(PARAM_WINDOW + at for _, at in maps_addressed(op, program))
        steps.append(Assignment(targets, frozenset(fixed), sources))
    origin = origins(steps)
    found = {}
    for site in program.sites:
        if site.device is not None:
            found[site.index] = frozenset(_addresses(site.device)) | origin.get(site.device_base, nothing)
        elif site.generic or site.space == "global":
            found[site.index] = frozenset({ANY} if site.address is None else _addresses(site.address)) | origin.get(site.base, nothing)
    return {index: of if program.sites[index].mapped else frozenset(filter(_no_map, of)) for index, of in found.items()}


class Assignment(NamedTuple):
    """An instruction: what its targets' values are made of, besides the values of its sources (registers)."""

    targets: Sequence[int]
    fixed: frozenset[int]
    sources: Sequence[int]


def origins(steps: Sequence[Assignment]) -> dict[int, frozenset[int]]:
    """What each register's value may be made of, in whatever order the instructions are executed."""
    origin: dict[int, frozenset[int]] = {}
    changed = True
    while changed:
        changed = False
        for targets, fixed, sources in steps:
            new = fixed.union(*(origin[register] for register in sources if register in origin))
            for register in targets:
                old = origin.get(register, frozenset())
                if not new <= old:
                    origin[register], changed = old | new, True
    return origin


def _no_map(origin: int) -> bool:
    return origin < PARAM_WINDOW or origin >= DEVICE_BASE


def _parameter(site: Site, entry: set[int]) -> int:
    """What a load gets: the parameter of the kernel that it reads, or ANY."""
    if site.space == "param" and site.address is not None and isinstance(site.address.base, Immediate):
        at = site.address.base.value + site.address.offset
        return at if at in entry else ANY
    return ANY
