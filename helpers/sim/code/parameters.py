"""Which parameters of the kernel an access may reach: those that its address is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .ptx import TYPE_BYTES, Immediate
from .sites import Site

if TYPE_CHECKING:
    from .program import Program

_ADDRESS = 8  # bytes


def parameters_reached(program: Program) -> dict[int, frozenset[str] | None]:
    """{number of a site: names of the parameters whose values its address is made of, None where an address is loaded from memory}.

    Row lengths and indices are among them, where they are parameters: only who knows which of these are arrays can tell those. An index
    that is loaded changes nothing. The other side of a bulk copy, in device memory, counts for it as well.
    """
    made = _made_of(program)
    found: dict[int, frozenset[str] | None] = {}
    for site in program.sites:
        parts = [made.get(register, frozenset()) for register in (site.base, site.device_base) if register is not None]
        found[site.index] = None if any(part is None for part in parts) else frozenset().union(*(part or () for part in parts))
    return found


def parameter_of(site: Site, program: Program) -> str | None:
    """The name of the parameter that a site reads as such; None for any other site."""
    if site.space != "param" or site.address is None or not isinstance(site.address.base, Immediate):
        return None
    at = site.address.base.value + site.address.offset
    return next((variable.name for variable, start in program.parameters if start <= at < start + variable.nbytes), None)


def _made_of(program: Program) -> dict[int, frozenset[str] | None]:
    """{register: parameters that its value is made of; None: also of an address from memory}, by going round until nothing is new."""
    made: dict[int, frozenset[str] | None] = {}
    steps = [(op.writes, _read(op, program), () if op.effect.memory else op.reads) for op in program.ops if op.writes]
    changed = True
    while changed:
        changed = False
        for targets, own, sources in steps:
            parts = [own, *(made.get(register, frozenset()) for register in sources)]
            new = None if any(part is None for part in parts) else frozenset().union(*(part or () for part in parts))
            for register in targets:
                old = made.get(register, frozenset())
                joined = None if old is None or new is None else old | new
                if joined != old:
                    made[register], changed = joined, True
    return made


def _read(op, program: Program) -> frozenset[str] | None:
    """What an instruction brings in: the parameter that it reads, None for what may be an address in other memory."""
    if not op.effect.memory:
        return frozenset()
    names = [parameter_of(site, program) for site in op.sites]
    if names and None not in names:
        return frozenset(filter(None, names))
    return frozenset() if all(TYPE_BYTES[program.types[register]] < _ADDRESS for register in op.writes) else None
