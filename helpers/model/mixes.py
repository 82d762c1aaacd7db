"""What a launch executes, by kinds of instruction. What the model's error was on recorded kernels says something of another one only if
that executes no plainly larger share of some kind than any of them: kernels are alike in what may limit them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from helpers.errors import CourseError
from helpers.sim.code.sass import parse
from helpers.sim.code.sass_opcodes import opcode_row
from helpers.sim.counting import names

_INTEGERS = "integer arithmetic"
_SPECIAL = "special functions and conversions"
_HALF = "arithmetic on pairs of 16-bit numbers"
_DOTS = "dot products of 8-bit integers"
_ACROSS = "shuffles and votes"
_CALLS = "calls of functions"
_BARRIERS = "barriers"
_LOCAL = "accesses of local memory"
_GENERIC = "accesses by generic addresses"
_ATOMICS, _SHARED_ATOMICS = "atomic operations on device memory", "atomic operations on shared memory"

_OPCODES = {"IDP": _DOTS, "IDP4A": _DOTS, "SHFL": _ACROSS, "VOTE": _ACROSS, "VOTEU": _ACROSS, "MATCH": _ACROSS, "REDUX": _ACROSS,
            "CALL": _CALLS, "RET": _CALLS, "BAR": _BARRIERS}  # fmt: skip
_PIPES = {"xu": _SPECIAL, "half": _HALF, "alu": _INTEGERS, "fmaheavy": _INTEGERS}
# Shares of all instructions up to which a kind limits no launch, or that every kernel has.
_FEW = {
    _INTEGERS: 0.6, _SPECIAL: 0.02, _HALF: 0.04, _DOTS: 0.0, _ACROSS: 0.03, _CALLS: 0.002, _BARRIERS: 0.05, _LOCAL: 0.02, _GENERIC: 0.02,
    _ATOMICS: 0.01, _SHARED_ATOMICS: 0.005,
}  # fmt: skip
# Of recorded kernels of a class (`predict.kernel_class`) that execute more of some kinds, these and what they execute of them.
_RECORDED: Mapping[str, tuple[Mapping[str, float], ...]] = {
    "moves data, in a signature of its own": (
        {_INTEGERS: 0.64}, {_SPECIAL: 0.10}, {_BARRIERS: 0.09}, {_ATOMICS: 0.07}, {_SHARED_ATOMICS: 0.14},
    ),
    "computes, in a signature of its own": ({_SPECIAL: 0.08, _ATOMICS: 0.03},),
    "much in local memory": ({_LOCAL: 0.49}, {_LOCAL: 0.2}, {_LOCAL: 0.07}),  # from 0.03 on, and nothing else
}  # fmt: skip
_PART = 1 / 3  # of what a recorded kernel executes of its kinds, which a launch like it has of each


def _kind(opcode: str) -> str:
    """The kind of an opcode; "" for what limits launches of every class, such as multiply-adds and loads."""
    row = opcode_row(opcode)
    if opcode in _OPCODES:
        return _OPCODES[opcode]
    if row.op in ("atom", "red"):
        return _SHARED_ATOMICS if row.space == "shared" else _ATOMICS
    if row.space:
        return {"local": _LOCAL, "generic": _GENERIC}.get(row.space, "")
    return _PIPES.get(row.pipe, "")


def of_opcodes(executed: Mapping[str, float]) -> dict[str, float]:
    """The share of each kind in warp instructions that are counted by opcode."""
    found: dict[str, float] = defaultdict(float)
    whole = sum(executed.values())
    for opcode, times in executed.items():
        if times and (kind := _kind(opcode)):
            found[kind] += times / whole
    return dict(found)


def counted(counters: Mapping[str, int]) -> dict[str, float]:
    """The same of a run, {} where its machine instructions were not counted."""
    begin = names.opcode("")
    return of_opcodes({name.removeprefix(begin): times for name, times in counters.items() if name.startswith(begin)})


def written(compiled) -> dict[str, float]:
    """The same of the machine code as it stands, where nobody knows how often it is executed: of its loops, if it has any. {} where the
    machine code cannot be read. Integer arithmetic is left out, which most code around a loop is."""
    try:
        function = parse(compiled.sass).get(compiled.symbol)
    except CourseError:
        return {}
    if function is None:
        return {}
    looped = {i.index: i for loop in function.loops() for i in loop}
    times: dict[str, float] = defaultdict(float)
    for instruction in looped.values() or function.instructions:
        times[instruction.name] += 1
    return {kind: share for kind, share in of_opcodes(times).items() if kind != _INTEGERS}


def unlike(like: str, mix: Mapping[str, float]) -> str:
    """What a launch of this class executes more of than a recorded one that is like it, as the end of a sentence; "" where nothing is."""
    near = [kernel for kernel in _RECORDED.get(like, ()) if all(mix.get(kind, 0.0) > _PART * share for kind, share in kernel.items())]
    known = {kind: max(few, *(kernel.get(kind, 0.0) for kernel in near), 0.0) for kind, few in _FEW.items()}
    over = [kind for kind, share in mix.items() if share > known[kind]]
    if not over:
        return ""
    worst = max(over, key=lambda kind: mix[kind] - known[kind])
    share = mix[worst]
    return f"{share:.{0 if share > 0.02 else 1}%} of its instructions are {worst}, more than of theirs"
