"""Volatile flags in shared memory: variables of which reads decide something, and nothing else is made of what they find."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .decisions import kept
from .program import Op
from .ptx import TYPE_BYTES, Immediate
from .sites import AccessKind, Site

if TYPE_CHECKING:
    from .program import Program

NAME = re.compile(r"[\w$]+")
UNKNOWN = ""  # instead of a variable's name: an address that comes from memory


def stores_of_flags(program: Program) -> frozenset[int]:
    """Numbers of the sites of volatile stores that go to flags, and nowhere else: to variables of which nothing is kept that volatile
    reads or atomic operations find there."""
    found, moved = _variables(program), kept(program.ops)
    sites = [site for site in program.sites if site.index in found]
    reads = [site for site in sites if site.op is AccessKind.ATOMIC or (site.volatile and site.op is AccessKind.LOAD)]
    data = frozenset().union(*(found[site.index] for site in reads if site.index in moved))
    if UNKNOWN in data:
        return frozenset()
    stores = (site.index for site in sites if site.volatile and site.op is AccessKind.STORE)
    return frozenset(index for index in stores if found[index] and found[index].isdisjoint(data | {UNKNOWN}))


def _variables(program: Program) -> dict[int, frozenset[str]]:
    """{number of a site that may be in shared memory: symbols of the variables that its address is made of, or UNKNOWN}."""
    symbols = frozenset(symbol for symbol, _, _ in program.shared)
    origin: dict[int, frozenset[str]] = {}  # of a register's value
    steps = [(op.writes, _named(op, symbols, program), () if op.effect.memory else op.reads) for op in program.ops if op.writes]
    changed = True
    while changed:
        changed = False
        for targets, named, sources in steps:
            new = named.union(*(origin.get(register, frozenset()) for register in sources))
            for register in targets:
                old = origin.get(register, frozenset())
                if not new <= old:
                    origin[register], changed = old | new, True
    found = {}
    for op in program.ops:
        for site in op.sites:
            if site.generic or site.space in ("shared", "cluster"):
                named = symbols & set(NAME.findall(op.text)) | origin.get(site.base, frozenset())
                found[site.index] = named if named or site.generic else frozenset({UNKNOWN})
    return found


def _named(op: Op, symbols: frozenset[str], program: Program) -> frozenset[str]:
    """The variables whose addresses an instruction names and passes on; UNKNOWN for an address that it loads."""
    if not op.effect.memory:
        return symbols & set(NAME.findall(op.text))
    types = {program.types[register] for register in op.writes} - {"pred"}
    known = all(_is_parameter(site, program.entry_bytes) for site in op.sites)
    return frozenset() if known or all(TYPE_BYTES[t] < 8 for t in types) else frozenset({UNKNOWN})


def _is_parameter(site: Site, entry_bytes: int) -> bool:
    """Is it a load of a parameter of the kernel, which is never an address in shared memory?"""
    fixed = site.address is not None and isinstance(site.address.base, Immediate)
    return site.space == "param" and fixed and site.address.base.value + site.address.offset < entry_bytes
