"""Which arrays an access to device memory may touch.

Only arrays that the launch writes can race, and as a rule that is C alone. `arrays_of` finds them before the launch
by following addresses back to the kernel's parameters, so that reads of A and B cost nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from helpers.sim.code.addresses import DEVICE_BASE
from helpers.sim.code.ptx import TYPE_BYTES, Address, Immediate, Negated, Pair, Register, Vector

ANY = -1  # an address that comes from memory: it may point anywhere


def _registers(operand) -> Iterable[str]:
    match operand:
        case Register(name):
            yield name
        case Negated(inner):
            yield from _registers(inner)
        case Pair(first, second):
            yield from _registers(first)
            yield from _registers(second)
        case Vector(items):
            for item in items:
                yield from _registers(item)
        case Address(base, _, coordinates):
            yield from _registers(base)
            for item in coordinates:
                yield from _registers(item)


def _addresses(operand) -> Iterable[int]:
    """Fixed device addresses in an operand: those of module variables."""
    match operand:
        case Immediate(int(value)) if value >= DEVICE_BASE:
            yield value
        case Address(base, _, _):
            yield from _addresses(base)
        case Vector(items):
            for item in items:
                yield from _addresses(item)


@functools.lru_cache(maxsize=32)
def arrays_of(program) -> dict[int, frozenset[int]]:
    """{position of a memory instruction: what its address is made of}.

    That is a set of offsets of parameters, fixed device addresses, and ANY. 32-bit values that come from memory are
    taken for indices, not for parts of pointers.
    """
    entry = {at for _, at in program.parameters}
    origin: dict[str, frozenset[int]] = {}
    nothing = frozenset()
    steps = []
    for instruction in program.code:
        if not instruction.operands or instruction.name in ("st", "red", "bra", "bar", "barrier", "ret", "exit", "setp", "call"):
            continue
        targets = [name for name in _registers(instruction.operands[0]) if program.register_types.get(name) != "pred"]
        if not targets or isinstance(instruction.operands[0], Address):
            continue
        fixed, sources = set(), set()
        if instruction.name in ("ld", "ldu", "atom"):
            wide = TYPE_BYTES.get(instruction.opcode.rsplit(".", 1)[-1], 8) >= 8
            base = instruction.operands[1].base if isinstance(instruction.operands[1], Address) else None
            if "param" in instruction.modifiers and isinstance(base, Immediate):
                at = base.value + instruction.operands[1].offset
                if wide:
                    fixed.add(at if at in entry else ANY)
            elif wide:
                fixed.add(ANY)
        else:
            for operand in instruction.operands[1:]:
                sources.update(_registers(operand))
                fixed.update(_addresses(operand))
        steps.append((targets, frozenset(fixed), sources))
    changed = True
    while changed:
        changed = False
        for targets, fixed, sources in steps:
            new = fixed.union(*(origin.get(name, nothing) for name in sources))
            for name in targets:
                old = origin.get(name, nothing)
                if not new <= old:
                    origin[name], changed = old | new, True
    found = {}
    for site in program.sites:
        instruction = program.code[site.pc]
        operand = next((o for o in instruction.operands if isinstance(o, Address)), None)
        if instruction.opcode.startswith("cp.async.c"):  # .ca and .cg, not .bulk
            operand = instruction.operands[1]
        elif {"shared", "shared::cta", "shared::cluster", "local", "param", "const"} & set(instruction.modifiers):
            continue
        made = set(_addresses(operand)) if operand is not None else {ANY}
        for name in _registers(operand):
            made |= origin.get(name, nothing)
        found[site.pc] = frozenset(made)
    return found
