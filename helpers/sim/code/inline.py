"""Copies device functions into the place of each call: registers, labels and local variables renamed.

The machine then needs no call stack, and threads that called from different places still meet again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from helpers.errors import RunError

from . import time_limit
from .ptx import SINK, Address, Function, Immediate, Instruction, Module, Negated, Pair, Register, Symbol, Variable, Vector
from .variables import Variables, align

MAX_INLINED = 200_000  # instructions after copying device functions into their calls
CALL_DEPTH = 64
Rewrite = Callable[[Instruction, dict[str, str]], list[Instruction]]


@dataclass
class Flat:
    """An entry with all its calls copied in. labels: positions in `code`. parameters: with their offsets."""

    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    register_types: dict[str, str] = field(default_factory=dict)
    parameters: list[tuple[Variable, int]] = field(default_factory=list)
    param_bytes: int = 0
    local_bytes: int = 0


def inline(module: Module, entry: Function, variables: Variables, rewrite: Rewrite) -> Flat:
    """rewrite: function of (instruction, register types) that gives the instructions to execute in its place."""
    flat = Flat()
    places = {}
    for variable in entry.parameters:
        at = align(flat.param_bytes, max(variable.align, 4))
        places[variable.name] = at
        flat.parameters.append((variable, at))
        flat.param_bytes = at + variable.nbytes
    own = flat.param_bytes
    _Inliner(module, variables, rewrite, flat).copy(entry, "", places, None, ())
    _frames_to_registers(flat, own)
    return flat


_WHOLE = re.compile(r"(ld|st)\.param\.[bufs](32|64)")


def _frames_to_registers(flat: Flat, own: int) -> None:
    """Let what calls hand over lie in registers, where it is written and read as a whole: arguments and results of 32 and 64 bits.

    own: bytes of the entry's own parameters.
    """
    if flat.param_bytes == own:
        return
    accesses: dict[int, list[int]] = {}  # positions, by where they begin
    kept: set[int] = set()  # what the machine's own functions take, of which code is not copied
    for at, instruction in enumerate(flat.code):
        if instruction.name == "call":
            kept.update(operand.value for operand in instruction.operands if isinstance(operand, Immediate))
        elif instruction.name in ("ld", "st") and "param" in instruction.modifiers:
            place = _place(instruction)
            if place is None:
                return
            accesses.setdefault(place, []).append(at)
    for place, positions in accesses.items():
        wholes = [_WHOLE.fullmatch(flat.code[at].opcode) for at in positions]
        sizes = {int(whole[2]) if whole else 0 for whole in wholes}
        bits = max(sizes)
        if place < own or place in kept or sizes - {bits} or not bits or any(place < other < place + bits // 8 for other in accesses):
            continue
        name = f"%handed{place}"
        flat.register_types[name] = f"b{bits}"
        for at in positions:
            instruction = flat.code[at]
            first, second = instruction.operands
            operands = (Register(name), second) if instruction.name == "st" else (first, Register(name))
            flat.code[at] = replace(instruction, opcode=f"mov.b{bits}", operands=operands)


def _place(instruction: Instruction) -> int | None:
    """Where an access of the parameters begins, None where an address says it."""
    address = instruction.operands[0 if instruction.name == "st" else 1]
    return address.base.value + address.offset if isinstance(address, Address) and isinstance(address.base, Immediate) else None


def _plain(symbol: str) -> str:
    """A function's name as it was written: `_Z3fibi` -> fib."""
    found = re.match(r"_Z(\d+)", symbol)
    return symbol[found.end() :][: int(found[1])] if found else symbol


class _Inliner:
    def __init__(self, module: Module, variables: Variables, rewrite: Rewrite, flat: Flat):
        self.module, self.variables, self.rewrite, self.flat = module, variables, rewrite, flat
        self.copies = 0
        self.called_from: tuple[int, ...] = ()  # PTX lines of the calls that are being copied in, the innermost first

    def copy(self, function: Function, suffix: str, places: dict[str, int], leave: str | None, stack: tuple[Function, ...]) -> None:
        """Append a function. suffix: what its names end in. places: its parameters' offsets. leave: label behind the call."""
        flat = self.flat
        places = dict(places)
        local_names = {}
        for name, variable in function.variables.items():
            if variable.space == "param":
                at = align(flat.param_bytes, max(variable.align, 8))
                places[name] = at
                flat.param_bytes = at + align(variable.nbytes, 4)
            elif variable.space == "local":
                at = align(flat.local_bytes, max(variable.align, 4))
                local_names[name] = at
                flat.local_bytes = at + align(variable.nbytes, 4)
        for name, kind in function.registers.items():
            flat.register_types[name + suffix] = kind

        def rename(operand):
            match operand:
                case Register(name):
                    return Register(name + suffix) if name in function.registers else operand
                case Negated(inner):
                    return Negated(rename(inner))
                case Pair(first, second):
                    return Pair(rename(first), rename(second))
                case Vector(items):
                    return Vector(tuple(rename(item) for item in items))
                case Address(base, offset, coordinates):
                    return Address(rename(base), offset, tuple(rename(item) for item in coordinates))
                case Symbol(name, offset) if operand is not SINK:
                    if name in function.registers:
                        return Register(name + suffix)
                    if name in local_names:
                        return Immediate(local_names[name] + offset)
                    if name in places:
                        return Immediate(places[name] + offset)
                    if name in function.labels or name in function.tables:
                        return Symbol(name + suffix)
                    at = self.variables.find(name, function)
                    return operand if at is None else Immediate(at + offset, variable=at)
            return operand

        at_label: dict[int, list[str]] = {}
        for name, position in function.labels.items():
            at_label.setdefault(position, []).append(name + suffix)
        for name, labels in function.tables.items():
            flat.tables[name + suffix] = tuple(label + suffix for label in labels)
        for position, instruction in enumerate(function.body):
            time_limit.look()
            for label in at_label.get(position, ()):
                flat.labels[label] = len(flat.code)
            if len(flat.code) > MAX_INLINED:
                raise RunError("The kernel's device functions are too large to copy into all their calls.", instruction.line)
            guard = (instruction.guard[0] + suffix, instruction.guard[1]) if instruction.guard else None
            if instruction.name == "call":
                self._call(instruction, guard, rename, places, (*stack, function))
            elif instruction.name == "ret" and leave is not None:
                flat.code.append(replace(instruction, opcode="bra", operands=(Symbol(leave),), guard=guard))
            else:
                renamed = replace(
                    instruction, operands=tuple(rename(o) for o in instruction.operands), guard=guard, called_from=self.called_from
                )
                flat.code += self.rewrite(renamed, flat.register_types)
        for label in at_label.get(len(function.body), ()):
            flat.labels[label] = len(flat.code)

    def _call(self, instruction, guard, rename, places, stack) -> None:
        flat = self.flat
        operands = list(instruction.operands)
        results = operands.pop(0).items if isinstance(operands[0], Vector) else ()
        target = operands.pop(0)
        arguments = operands[0].items if operands and isinstance(operands[0], Vector) else ()
        callee = self.module.functions.get(target.name) if isinstance(target, Symbol) else None
        if callee is None:
            self._call_by_address(instruction, guard, rename(target), (results, arguments), rename, stack)
            return
        if callee.body is None:
            handed = tuple(rename(item) for item in (*results, *arguments))
            opcode = f"call.{callee.name}"
            flat.code.append(replace(instruction, opcode=opcode, operands=(Immediate(len(results)), *handed), guard=guard))
            return
        if callee in stack or len(stack) > CALL_DEPTH:
            raise RunError(
                f"{instruction.place}: the device function {_plain(callee.name)} calls itself. "
                "The machine does not run recursive functions: write it as a loop.",
                instruction.line,
            )
        self._copy_in(callee, instruction, guard, (results, arguments), rename, stack)

    def _call_by_address(self, instruction, guard, target, handed, rename, stack) -> None:
        """A call through a pointer: of the functions whose address is taken, the one that has it."""
        flat = self.flat
        self.copies += 1
        done, there = f"called#{self.copies}", f"%called#{self.copies}"
        flat.register_types[there] = "pred"
        if guard is not None:
            flat.code.append(replace(instruction, opcode="bra", operands=(Symbol(done),), guard=(guard[0], not guard[1])))
        sizes = [[stack[-1].variables[item.name].nbytes for item in items] for items in handed]
        for function in self.variables.pointed_to:
            declared = [[variable.nbytes for variable in variables] for variables in (function.results, function.parameters)]
            if function.body is None or function in stack or declared != sizes:
                continue
            address = Immediate(self.variables.find(function.name, function))
            flat.code.append(replace(instruction, opcode="setp.eq.u64", operands=(Register(there), target, address), guard=None))
            other = f"other#{self.copies + 1}"
            flat.code.append(replace(instruction, opcode="bra", operands=(Symbol(other),), guard=(there, True)))
            self._copy_in(function, instruction, None, handed, rename, stack)
            flat.code.append(replace(instruction, opcode="bra", operands=(Symbol(done),), guard=None))
            flat.labels[other] = len(flat.code)
        flat.code.append(replace(instruction, opcode="call.nothing", operands=(target,), guard=None))
        flat.labels[done] = len(flat.code)

    def _copy_in(self, callee: Function, instruction, guard, handed, rename, stack) -> None:
        """A call of `callee`. handed: the items that its results go to, and its arguments."""
        flat, (results, arguments) = self.flat, handed
        self.copies += 1
        suffix = f"#{self.copies}"
        inner = {}
        for variable, item in zip((*callee.results, *callee.parameters), (*results, *arguments), strict=True):
            place = rename(item)
            if not isinstance(place, Immediate):
                raise RunError(f"{instruction.place}: `{instruction.text}` passes an argument the machine cannot place.", instruction.line)
            inner[variable.name] = place.value
        leave = f"return{suffix}"
        if guard is not None:
            flat.code.append(replace(instruction, opcode="bra", operands=(Symbol(leave),), guard=(guard[0], not guard[1])))
        outside = self.called_from
        self.called_from = (instruction.ptx_line, *outside)
        self.copy(callee, suffix, inner, leave, stack)
        self.called_from = outside
        flat.labels[leave] = len(flat.code)
