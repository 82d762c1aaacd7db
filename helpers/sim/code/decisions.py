"""Which values decide where threads go: a flag or a counter that is looked at does, a number that is added up does not."""

from __future__ import annotations

from .program import Effect, Op

_PASSED_ON = (Effect.PURE, Effect.EXCHANGE, Effect.BARRIER)


def decisive(ops: tuple[Op, ...]) -> frozenset[int]:
    """Numbers of the sites of loads and atomic operations whose results decide something, see `_deciding`."""
    return _sources(ops, _deciding(ops))


def undecisive(ops: tuple[Op, ...]) -> frozenset[int]:
    """Positions of the instructions with results that decide nothing, see `_deciding`."""
    known = _deciding(ops)
    return frozenset(op.position for op in ops if op.writes and known.isdisjoint(op.writes))


def kept(ops: tuple[Op, ...]) -> frozenset[int]:
    """Numbers of those of whose results something is made: it is stored, an address, or an operand of anything but a computation. The
    others decide where threads go and do nothing else."""
    known: set[int] = set()
    for op in ops:
        if op.effect not in (*_PASSED_ON, Effect.JUMP):
            known.update(register for register in op.reads if op.guard is None or register != op.guard.register)
    return _sources(ops, _whence(ops, known))


def _deciding(ops: tuple[Op, ...]) -> set[int]:
    """Registers that come, by whatever computation, to a branch or to the condition of an instruction. What is stored to shared or local
    memory, where others may find it, counts as deciding something, as does where something is loaded from, and what goes into an
    atomic operation."""
    known = {op.guard.register for op in ops if op.guard is not None}
    for op in ops:
        if op.effect in (Effect.LOAD, Effect.ATOMIC):
            known.update(op.reads)
        elif op.effect is Effect.STORE and any(site.space in ("shared", "local", "generic", "cluster") for site in op.sites):
            known.update(op.reads)
    return _whence(ops, known)


def _sources(ops: tuple[Op, ...], known: set[int]) -> frozenset[int]:
    """Numbers of the sites of loads and atomic operations whose results are in these registers."""
    found = (op for op in ops if op.effect in (Effect.LOAD, Effect.ATOMIC) and not known.isdisjoint(op.writes))
    return frozenset(site.index for op in found for site in op.sites)


def _whence(ops: tuple[Op, ...], known: set[int]) -> set[int]:
    """These registers, and all that they are computed from."""
    passing = [op for op in ops if op.effect in _PASSED_ON and op.writes and op.reads]
    size = -1
    while len(known) != size:
        size = len(known)
        for op in reversed(passing):
            if not known.isdisjoint(op.writes):
                known.update(op.reads)
    return known
