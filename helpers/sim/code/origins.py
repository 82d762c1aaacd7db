"""What the values of registers are made of: names that instructions bring in, and hand on with whatever is computed from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .ptx import TYPE_BYTES, Immediate
from .sites import Site

if TYPE_CHECKING:
    from .program import Op, Program

UNKNOWN = ""  # instead of a name: an address that comes from memory
_ADDRESS = 8  # bytes


def made_of(ops: Sequence[Op], named: Callable[[Op], frozenset[str]]) -> dict[int, frozenset[str]]:
    """{register: names that its value is made of}, by going round until nothing is new. named: those that an instruction brings in."""
    made: dict[int, frozenset[str]] = {}
    steps = [(op.writes, named(op), () if op.effect.memory else op.reads) for op in ops if op.writes]
    changed = True
    while changed:
        changed = False
        for targets, own, sources in steps:
            new = own.union(*(made.get(register, frozenset()) for register in sources))
            for register in targets:
                old = made.get(register, frozenset())
                if not new <= old:
                    made[register], changed = old | new, True
    return made


def parameter_of(site: Site, program: Program) -> str | None:
    """The name of the kernel's parameter that a site reads as such; None for any other site."""
    if site.space != "param" or site.address is None or not isinstance(site.address.base, Immediate):
        return None
    at = site.address.base.value + site.address.offset
    return next((variable.name for variable, start in program.parameters if start <= at < start + variable.nbytes), None)


def may_load_address(op: Op, program: Program) -> bool:
    """May what an instruction reads from memory, other than the kernel's parameters, be an address?"""
    known = all(parameter_of(site, program) is not None for site in op.sites)
    types = {program.types[register] for register in op.writes} - {"pred"}
    return not known and any(TYPE_BYTES[type_] >= _ADDRESS for type_ in types)


def maps_addressed(op: Op, program: Program) -> list[tuple[str, int]]:
    """(name, offset) of the parameters that may be tensor maps and whose address an instruction without sources may hold: a constant is
    one."""
    if op.reads:
        return []
    values = [operand.value for operand in op.instruction.operands[1:] if isinstance(operand, Immediate)]
    return [
        (variable.name, at)
        for variable, at in program.parameters
        if variable.nbytes > _ADDRESS and any(value in range(at, at + variable.nbytes) for value in values)
    ]
