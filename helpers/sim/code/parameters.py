"""Which parameters of the kernel an access may reach: those that its address is made of."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from .origins import UNKNOWN, made_of, maps_addressed, may_load_address, parameter_of

if TYPE_CHECKING:
    from .program import Op, Program


@functools.lru_cache(maxsize=8)
def parameters_reached(program: Program) -> dict[int, frozenset[str] | None]:
    """{number of a site: names of the parameters whose values its address is made of, None where an address is loaded from memory}.

    Row lengths and indices are among them, where they are parameters: only who knows which of these are arrays can tell those. An index
    that is loaded changes nothing. The other side of a bulk copy, in device memory, counts for it as well: of a tensor map, the parameter
    that is one, or points to one.
    """

    def named(op: Op) -> frozenset[str]:
        if not op.effect.memory:
            return frozenset()
        if may_load_address(op, program):
            return frozenset({UNKNOWN})
        return frozenset(filter(None, (parameter_of(site, program) for site in op.sites)))

    made = made_of(program.ops, named)
    placed = _addresses_of_maps(program) if any(site.mapped for site in program.sites) else {}
    found: dict[int, frozenset[str] | None] = {}
    for site in program.sites:
        names = frozenset().union(*(made.get(register, frozenset()) for register in (site.base, site.device_base) if register is not None))
        if site.mapped:
            names |= placed.get(site.device_base, frozenset())
        found[site.index] = None if UNKNOWN in names else names
    return found


def _addresses_of_maps(program: Program) -> dict[int, frozenset[str]]:
    """{register: parameters that are tensor maps whose address it may hold}."""

    def named(op: Op) -> frozenset[str]:
        return frozenset() if op.effect.memory else frozenset(name for name, _ in maps_addressed(op, program))

    return made_of(program.ops, named)
