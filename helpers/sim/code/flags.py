"""Volatile flags in shared memory: variables of which reads decide something, and nothing else is made of what they find."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .origins import UNKNOWN, made_of, may_load_address
from .program import Op
from .sites import AccessKind

if TYPE_CHECKING:
    from .program import Program

NAME = re.compile(r"[\w$]+")


def stores_of_flags(program: Program) -> frozenset[int]:
    """Numbers of the sites of volatile stores that go to flags, and nowhere else: to variables of which nothing is kept that volatile
    reads or atomic operations find there."""
    found, moved = _variables(program), program.kept
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
    origin = made_of(program.ops, lambda op: _named(op, symbols, program))
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
    return frozenset({UNKNOWN}) if may_load_address(op, program) else frozenset()
