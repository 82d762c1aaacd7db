"""Addresses of a kernel's variables: shared memory, and the image of device memory with their initial values."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from helpers.errors import LaunchError, RunError

from .addresses import DEVICE_BASE, FUNCTION_BASE, shared_start
from .ptx import Address, Function, Module, Symbol, Variable, Vector

MOST_DEVICE_BYTES = 1 << 30
MOST_BETWEEN = 1 << 16  # bytes between two variables in device memory; as many as the first of them has, at most


def align(value: int, to: int) -> int:
    """The first multiple of `to` from `value` on."""
    return -(-value // max(1, to)) * max(1, to)


@dataclass
class Variables:
    """Where the variables lie that an entry can reach.

    shared, device: (name, address, bytes[, space]) in order. relocations: (place in the image, bytes, address) of pointers.
    shared_bytes: static ones. ungiven: (name, alignment) of shared variables that lie at no multiple of the alignment they
    ask for, because the hardware aligns them relative to the beginning of the block's memory. aligned: by address, what each shared
    variable asks for. reached: functions that the entry can come to. used: names of variables.
    """

    module: Module
    shared: list[tuple[str, int, int]] = field(default_factory=list)
    shared_bytes: int = 0
    shared_start: int = 0
    dynamic_shared_at: int = 0
    ungiven: list[tuple[str, int]] = field(default_factory=list)
    aligned: dict[int, int] = field(default_factory=dict)
    device: list[tuple[str, int, int, str]] = field(default_factory=list)
    image: bytearray = field(default_factory=bytearray)
    relocations: tuple[tuple[int, int, int], ...] = ()
    reached: list[Function] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    addresses: dict[tuple[str, str], int] = field(default_factory=dict)  # (function or '', name)

    @functools.cached_property
    def pointed_to(self) -> list[Function]:
        """Functions whose address is taken, by code or in a table."""
        taken = {symbol for name in self.used for _, _, symbol, _ in self.module.variables[name].addresses}
        for function in self.reached:
            for instruction in function.body or ():
                operands = instruction.operands
                if instruction.name == "call":  # (results), function, (arguments): the function comes first, or second
                    operands = [operand for operand in operands[:2] if not isinstance(operand, Symbol)]
                taken |= _symbols(operands)
        return [function for function in self.module.functions.values() if function.name in taken]

    def find(self, name: str, function: Function) -> int | None:
        """The address of what `name` means inside of a function; None if it is no variable and no function."""
        for scope in (function.name, ""):
            if (scope, name) in self.addresses:
                return self.addresses[scope, name]
        return self._address(name) if name in self.module.functions else None

    def _address(self, name: str) -> int:
        if ("", name) in self.addresses:
            return self.addresses["", name]
        if name in self.module.functions:
            return FUNCTION_BASE + 16 * list(self.module.functions).index(name)
        raise RunError(f"The compiled code refers to {name}, which it does not define.")

    def add_device(self, name: str, space: str, nbytes: int, alignment: int = 0, initial: bytes = b"") -> int:
        """Place a variable in device memory, with nobody's memory between it and the one before: an index too large shall not reach it."""
        nobodys = min(self.device[-1][2], MOST_BETWEEN) if self.device else 0
        at = align(len(self.image) + nobodys, max(alignment, 256))
        if at + nbytes > MOST_DEVICE_BYTES:
            raise LaunchError(
                f"The kernel's __device__ and __constant__ variables take {(at + nbytes) / 2**30:,.1f} GB with `{name}`, "
                f"and the machine holds {MOST_DEVICE_BYTES >> 30} GB of them: make it smaller, or pass it as an argument."
            )
        self.image.extend(bytes(at - len(self.image)))
        self.image.extend(initial.ljust(nbytes, b"\0"))
        self.device.append((name, DEVICE_BASE + at, nbytes, space))
        return DEVICE_BASE + at

    def _add_shared(self, variable: Variable) -> int:
        offset = align(self.shared_bytes, variable.align)
        self.shared_bytes = offset + variable.nbytes
        return self._shared_at(variable, offset)

    def _shared_at(self, variable: Variable, offset: int) -> int:
        at = self.shared_start + offset
        self.shared.append((variable.name, at, variable.nbytes))
        self.aligned[at] = max(1, variable.align)
        if at % max(1, variable.align):
            self.ungiven.append((variable.name, variable.align))
        return at

    def _place(self, scope: str, name: str, variable: Variable, dynamic: list[Variable]) -> None:
        if variable.space == "shared" and not variable.nbytes:
            dynamic.append(variable)
        elif variable.space == "shared":
            self.addresses[scope, name] = self._add_shared(variable)
        elif not scope or variable.space in ("global", "const"):
            self.addresses[scope, name] = self.add_device(name, variable.space, variable.nbytes, variable.align, variable.initial)


def place(module: Module, entry: Function) -> Variables:
    """Give addresses to all variables that the entry, or what it calls, refers to."""
    reached, used = _reached(module, entry)
    found = Variables(module, shared_start=shared_start(module.target), reached=reached, used=used)
    wanted = [name for name in module.variables if name in used]
    dynamic: list[Variable] = []
    for name in wanted:
        found._place("", name, module.variables[name], dynamic)
    for function in reached:
        for name, variable in function.variables.items():
            found._place(function.name, name, variable, dynamic)
    offset = align(found.shared_bytes, max([16, *(variable.align for variable in dynamic)])) if dynamic else found.shared_bytes
    found.dynamic_shared_at = found.shared_start + offset
    for variable in dynamic:
        found.addresses["", variable.name] = found._shared_at(variable, offset)
    found.relocations = tuple(
        (found.addresses["", name] - DEVICE_BASE + position, width, found._address(symbol) + offset)
        for name in wanted
        for position, width, symbol, offset in module.variables[name].addresses
    )
    return found


def _reached(module: Module, entry: Function) -> tuple[list[Function], set[str]]:
    """The functions that the entry can come to, and the variables that they use, also through what variables hold."""
    found, used = [entry], set()
    queue: list[Function | Variable] = [entry]
    while queue:
        now = queue.pop()
        if isinstance(now, Variable):
            names = {symbol for _, _, symbol, _ in now.addresses}
        else:
            names = {name for instruction in now.body or () for name in _symbols(instruction.operands)}
        for name in sorted(names):
            function, variable = module.functions.get(name), module.variables.get(name)
            if function is not None and function not in found:
                found.append(function)
                queue.append(function)
            if variable is not None and name not in used:
                used.add(name)
                queue.append(variable)
    return found, used


def _symbols(operands) -> set[str]:
    names = set()
    for operand in operands:
        match operand:
            case Symbol(name):
                names.add(name)
            case Address(base, _, coordinates):
                names |= _symbols((base, *coordinates))
            case Vector(items):
                names |= _symbols(items)
    return names
