"""Which registers may hold NaNs that the GPU would not have made.

A GPU's float32 arithmetic gives 0x7fffffff; the CPU's gives other payloads. A value is made canonical where its bits can be
seen (a store, an integer use), not after every FMA.
"""

from __future__ import annotations

from helpers.sim.code.program import Op, Program, ResultKind
from helpers.sim.code.ptx import TYPE_BYTES, Immediate, Register, immediate_bits

from .dispatch import HANDLERS

_NEUTRAL, _CLEAN, _DIRTY, _EAGER = range(4)


def _source(op: Op) -> object:
    """What NaNs an instruction writes: canonical ones (_CLEAN), others (_DIRTY), none (_NEUTRAL), or those of a register."""
    instruction = op.instruction
    handler = HANDLERS.get(instruction.name)
    if handler is not None and handler.cpu_nans(instruction):
        return _DIRTY
    if op.value is ResultKind.SUM and len(instruction.operands) == 2:  # a copy
        operand = instruction.operands[1]
        if isinstance(operand, Immediate):
            kind = instruction.modifiers[-1]
            raw = TYPE_BYTES.get(kind) == 4 and immediate_bits(operand, kind) & 0x7FFFFFFF > 0x7F800000
            return _CLEAN if raw else _NEUTRAL
        return operand.name if isinstance(operand, Register) else _CLEAN
    return _CLEAN


def writes_others(op: Op) -> bool:
    """Does the code of this instruction write NaNs as the CPU makes them?"""
    return _source(op) == _DIRTY


def nan_states(program: Program) -> tuple[set[str], set[str]]:
    """(registers whose NaNs are not canonical, registers made canonical when written)."""
    defs: dict[str, list] = {}
    for op in program.ops:
        for name in (program.names[register] for register in op.writes):
            defs.setdefault(name, []).append(_source(op))
            if op.guard is not None:
                defs[name].append(_NEUTRAL)
    state = dict.fromkeys(defs, _NEUTRAL)
    for _ in range(len(defs) + 1):
        changed = False
        for name, sources in defs.items():
            seen = {state.get(s, _CLEAN) if isinstance(s, str) else s for s in sources}
            seen = {_CLEAN if s == _EAGER else s for s in seen}
            new = _EAGER if {_CLEAN, _DIRTY} <= seen else _DIRTY if _DIRTY in seen else _CLEAN if _CLEAN in seen else _NEUTRAL
            if new > state[name]:
                state[name], changed = new, True
        if not changed:
            break
    dirty = {n for n, s in state.items() if s == _DIRTY}
    return dirty, {n for n, s in state.items() if s == _EAGER}
