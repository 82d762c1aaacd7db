"""Parsed PTX -> a program the machine can run: numbered registers, basic blocks, one closure per instruction.

What happens once per kernel, before any thread runs:
- device functions are copied into the place of each call (registers, labels and local variables renamed), so that the
  machine needs no call stack and threads that called from different places still meet again;
- variables get their addresses, literals and special registers get registers of their own;
- every instruction's handler (see `isa`) builds a closure bound to its operands;
- the code is cut into basic blocks, and liveness is computed, so that the machine knows which registers of waiting
  threads it has to preserve.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from helpers.errors import LaunchError, RunError

from . import isa
from .code import ptx
from .code.addresses import DEVICE_BASE, FUNCTION_BASE
from .code.ptx import SINK, Address, Immediate, Instruction, Negated, Pair, Register, Symbol, Vector
from .code.sites import Site

_MOST_DEVICE_BYTES = 1 << 30

MAX_INLINED = 200_000  # instructions after copying device functions into their calls
CALL_DEPTH = 64


class Mark(NamedTuple):
    """Where an instruction ends within its block's closures, and what a step-by-step recording says of it.

    position: in the program's code. writes: indices of the registers it sets. plain, masked: how many closures precede
    the next instruction.
    """

    position: int
    line: int | None
    opclass: str
    writes: tuple[int, ...]
    plain: int
    masked: int


@dataclass
class Block:
    """A basic block: straight code, then one terminator that says where the threads go.

    plain and masked are the closures for the two situations: all threads of the chunk together, or some of them.
    """

    index: int
    plain: list[Callable] = field(default_factory=list)
    masked: list[Callable] = field(default_factory=list)
    end: Callable | None = None
    lines: dict[int | None, int] = field(default_factory=dict)
    counted: dict[tuple[int | None, str], int] = field(default_factory=dict)
    line: int | None = None
    size: int = 0
    rendezvous: int = 0  # warps that must come together here
    members: int | None = None  # register that names their lanes; None: all
    leaves: bool = False  # threads that are here only end
    successors: tuple[int, ...] = ()
    live_in: int = 0
    instructions: list[Instruction] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)


@dataclass(eq=False)
class Program:
    """An entry ready to run. Register indices are positions in the machine's register list."""

    name: str
    blocks: list[Block]
    types: list[str]
    constants: list[tuple[int, np.ndarray]]
    specials: list[tuple[int, str]]
    sites: list[Site]
    parameters: list[tuple[ptx.Variable, int]]
    shared: list[tuple[str, int, int]]
    shared_bytes: int
    dynamic_shared_at: int
    local_bytes: int
    param_bytes: int
    device: list[tuple[str, int, int, str]]
    image: bytes
    image_addresses: tuple[tuple[int, int, int], ...]
    shared_granule: int
    uses: frozenset[str]
    line: int | None
    code: tuple[Instruction, ...] = ()  # the instructions in order, calls copied in: what the native engine compiles
    labels: dict[str, int] = field(default_factory=dict)  # positions in `code`
    register_types: dict[str, str] = field(default_factory=dict)
    register_names: dict[int, str] = field(default_factory=dict)  # by index; the machine's own registers have none
    exchanged: int = 0  # registers (bits) that other lanes may read, wherever their own thread is
    grid_workspace: int = 0  # address of what this_grid().sync() counts in; 0: the kernel does not ask for it

    @property
    def exit(self) -> int:
        """The program counter of a thread that has ended."""
        return len(self.blocks)


def _align(value: int, to: int) -> int:
    return -(-value // max(1, to)) * max(1, to)


@functools.lru_cache(maxsize=32)
def load(text: str, symbol: str, filename: str = "/cell.cu") -> Program:
    """Load entry `symbol` of the PTX `text`. Raises RunError naming the line for what the machine does not know."""
    module = ptx.parse(text, filename)
    function = module.functions.get(symbol)
    if function is None or function.body is None:
        raise RunError(f"The compiled code has no kernel called {symbol}.")
    return _Loader(module, function).program()


class _Loader:
    def __init__(self, module: ptx.Module, entry: ptx.Function):
        self.module, self.entry = module, entry
        self.flat: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        self.register_types: dict[str, str] = {}
        self.index: dict[object, int] = {}
        self.types: list[str] = []
        self.constants: list[tuple[int, np.ndarray]] = []
        self.specials: list[tuple[int, str]] = []
        self.sites: list[Site] = []
        self.exchanged: set[int] = set()
        self.param_bytes = 0
        self.local_bytes = 0
        self.addresses: dict[str, tuple[str, int]] = {}
        self.shared: list[tuple[str, int, int]] = []
        self.device: list[tuple[str, int, int, str]] = []
        self.uses: set[str] = set()
        self.image = bytearray()
        self.temporaries = 0

    # ------------------------------------------------------------------------------------------- variables

    def _place_variables(self) -> None:
        reached = self._reached(self.entry)
        names = set()
        for function in reached:
            for instruction in function.body or ():
                names.update(_symbols(instruction.operands))
        variables = {**self.module.variables}
        wanted = [name for name in variables if name in names]
        for name in wanted:  # variables whose address a used variable holds
            wanted += [s for _, _, s, _ in variables[name].addresses if s in variables and s not in wanted]
        shared_at, dynamic = 0, []
        for name in wanted:
            variable = variables[name]
            if variable.space == "shared":
                if variable.nbytes == 0:
                    dynamic.append(variable)
                    continue
                shared_at = self._place_shared(name, variable, shared_at)
            else:
                at = _align(len(self.image), max(variable.align, 256))
                if at + variable.nbytes > _MOST_DEVICE_BYTES:
                    raise LaunchError(
                        f"The kernel's __device__ and __constant__ variables take {(at + variable.nbytes) / 2**30:,.1f} GB with `{name}`, "
                        f"and the machine holds {_MOST_DEVICE_BYTES >> 30} GB of them: make it smaller, or pass it as an argument."
                    )
                self.image.extend(bytes(at - len(self.image)))
                self.image.extend(variable.initial.ljust(variable.nbytes, b"\0")[: max(variable.nbytes, len(variable.initial))])
                self.addresses[name] = ("device", DEVICE_BASE + at)
                self.device.append((name, DEVICE_BASE + at, variable.nbytes, variable.space))
        for function in reached:
            for name, variable in function.variables.items():
                if variable.space == "shared" and variable.nbytes:
                    shared_at = self._place_shared(f"{function.name}:{name}", variable, shared_at, variable.name)
                elif variable.space == "shared":
                    dynamic.append(variable)
                elif variable.space in ("global", "const"):
                    at = _align(len(self.image), max(variable.align, 256))
                    self.image.extend(bytes(at - len(self.image)))
                    self.image.extend(variable.initial.ljust(variable.nbytes, b"\0"))
                    self.addresses[f"{function.name}:{name}"] = ("device", DEVICE_BASE + at)
                    self.device.append((name, DEVICE_BASE + at, variable.nbytes, variable.space))
        align = max([16, *(variable.align for variable in dynamic)])
        self.dynamic_shared_at = _align(shared_at, align) if dynamic else shared_at
        for variable in dynamic:
            self.addresses[variable.name] = ("shared", self.dynamic_shared_at)
            self.shared.append((variable.name, self.dynamic_shared_at, 0))
        self.shared_bytes = shared_at
        relocations = []
        for name in wanted:
            variable = variables[name]
            if variable.addresses:
                at = self.addresses[name][1] - DEVICE_BASE
                for position, width, symbol, offset in variable.addresses:
                    relocations.append((at + position, width, self._symbol_address(symbol) + offset))
        self.relocations = tuple(relocations)

    def _place_shared(self, key, variable, at, name=None) -> int:
        at = _align(at, variable.align)
        self.addresses[key] = ("shared", at)
        self.shared.append((name or variable.name, at, variable.nbytes))
        return at + variable.nbytes

    def _symbol_address(self, name: str) -> int:
        if name in self.addresses:
            return self.addresses[name][1]
        if name in self.module.functions:
            return FUNCTION_BASE + 16 * list(self.module.functions).index(name)
        raise RunError(f"The compiled code refers to {name}, which it does not define.")

    def _reached(self, entry) -> list[ptx.Function]:
        found, queue = [entry], [entry]
        while queue:
            for instruction in queue.pop().body or ():
                for name in _symbols(instruction.operands):
                    function = self.module.functions.get(name)
                    if function is not None and function not in found:
                        found.append(function)
                        queue.append(function)
        return found

    # -------------------------------------------------------------------------------- copying calls into place

    def _flatten(self) -> None:
        self.parameters = []
        environment = {}
        for variable in self.entry.parameters:
            at = _align(self.param_bytes, max(variable.align, 4))
            environment[variable.name] = at
            self.parameters.append((variable, at))
            self.param_bytes = at + variable.nbytes
        self.copies = 0
        self._emit(self.entry, "", environment, None, ())

    def _emit(self, function: ptx.Function, suffix: str, environment: dict[str, int], leave: str | None, stack) -> None:
        if function in stack or len(stack) > CALL_DEPTH:
            raise RunError(
                f"The device function {function.name} calls itself. The machine does not run recursive functions: write it as a loop.",
                function.line,
            )
        environment = dict(environment)
        local_names = {}
        for name, variable in function.variables.items():
            if variable.space == "param":
                at = _align(self.param_bytes, max(variable.align, 8))
                environment[name] = at
                self.param_bytes = at + _align(variable.nbytes, 4)
            elif variable.space == "local":
                at = _align(self.local_bytes, max(variable.align, 4))
                local_names[name] = at
                self.local_bytes = at + _align(variable.nbytes, 4)
        for name, kind in function.registers.items():
            self.register_types[name + suffix] = kind

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
                    if name in environment:
                        return Immediate(environment[name] + offset)
                    if name in function.labels or name in function.tables:
                        return Symbol(name + suffix)
                    if f"{function.name}:{name}" in self.addresses:
                        return Immediate(self.addresses[f"{function.name}:{name}"][1] + offset)
                    if name in self.addresses:
                        return Immediate(self.addresses[name][1] + offset)
                    if name in self.module.functions:
                        return Immediate(self._symbol_address(name) + offset)
                    return operand
            return operand

        at_label: dict[int, list[str]] = {}
        for name, position in function.labels.items():
            at_label.setdefault(position, []).append(name + suffix)
        for name, labels in function.tables.items():
            self.tables[name + suffix] = tuple(label + suffix for label in labels)
        for position, instruction in enumerate(function.body):
            for label in at_label.get(position, ()):
                self.labels[label] = len(self.flat)
            if len(self.flat) > MAX_INLINED:
                raise RunError("The kernel's device functions are too large to copy into all their calls.", instruction.line)
            guard = (instruction.guard[0] + suffix, instruction.guard[1]) if instruction.guard else None
            name = instruction.name
            if name == "call":
                self._call(instruction, guard, rename, environment, (*stack, function))
                continue
            if name == "ret" and leave is not None:
                self.flat.append(replace(instruction, opcode="bra", operands=(Symbol(leave),), guard=guard))
                continue
            whole = replace(instruction, operands=tuple(rename(o) for o in instruction.operands), guard=guard)
            self.flat.extend(self._in_halves(whole) if instruction.opcode.endswith(".b128") else [whole])
        for label in at_label.get(len(function.body), ()):
            self.labels[label] = len(self.flat)

    def _in_halves(self, instruction: Instruction) -> list[Instruction]:
        """What moves 128 bits, with each 128-bit register as two of 64: NumPy has no numbers of that width."""

        def halves(operand):
            if not isinstance(operand, Register) or self.register_types.get(operand.name) != "b128":
                return operand
            names = [f"{operand.name}:{half}" for half in ("low", "high")]
            self.register_types.update(dict.fromkeys(names, "b64"))
            return Vector(tuple(Register(name) for name in names))

        operands = tuple(halves(operand) for operand in instruction.operands)
        if instruction.name == "mov":
            if not all(isinstance(operand, Vector) and len(operand.items) == 2 for operand in operands):
                return [instruction]  # its handler says what is wrong
            pairs = zip(*(operand.items for operand in operands), strict=True)
            return [replace(instruction, opcode="mov.b64", operands=pair) for pair in pairs]
        if instruction.name in ("ld", "ldu", "st"):
            return [replace(instruction, opcode=f"{instruction.opcode.removesuffix('.b128')}.v2.b64", operands=operands)]
        return [replace(instruction, operands=operands)]

    def _call(self, instruction, guard, rename, environment, stack) -> None:
        operands = list(instruction.operands)
        results = operands.pop(0).items if isinstance(operands[0], Vector) else ()
        target = operands.pop(0)
        arguments = operands[0].items if operands and isinstance(operands[0], Vector) else ()
        callee = self.module.functions.get(target.name) if isinstance(target, Symbol) else None
        if callee is None:
            raise RunError(
                f"PTX line {instruction.ptx_line}: `{instruction.text}` calls through a pointer. "
                "The machine runs direct calls only: call the function by its name.",
                instruction.line,
            )
        if callee.body is None:
            places = tuple(rename(item) for item in (*results, *arguments))
            opcode = f"call.{callee.name}"
            self.flat.append(replace(instruction, opcode=opcode, operands=(Immediate(len(results)), *places), guard=guard))
            return
        self.copies += 1
        suffix = f"#{self.copies}"
        inner = {}
        for variable, item in zip((*callee.results, *callee.parameters), (*results, *arguments), strict=True):
            place = rename(item)
            if not isinstance(place, Immediate):
                raise RunError(
                    f"PTX line {instruction.ptx_line}: `{instruction.text}` passes an argument the machine cannot place.", instruction.line
                )
            inner[variable.name] = place.value
        leave = f"return{suffix}"
        if guard is not None:
            self.flat.append(replace(instruction, opcode="bra", operands=(Symbol(leave),), guard=(guard[0], not guard[1])))
        self._emit(callee, suffix, inner, leave, stack)
        self.labels[leave] = len(self.flat)

    # ------------------------------------------------------------------------------------------------ registers

    def register(self, name: str) -> int:
        """Index of a register; special registers (%tid.x) are registers that the machine fills in."""
        found = self.index.get(name)
        if found is None:
            kind = self.register_types.get(name)
            if kind is None:
                if not name.startswith("%"):
                    raise KeyError(name)
                kind = isa.SPECIAL_REGISTERS.get(name)
                if kind is None:
                    raise KeyError(name)
                found = self.new(kind)
                self.specials.append((found, name))
            else:
                found = self.new(kind)
            self.index[name] = found
        return found

    def new(self, kind: str) -> int:
        """A register of its own."""
        self.types.append(kind)
        return len(self.types) - 1

    def constant(self, value: Immediate, kind: str) -> int:
        """The register that holds a literal."""
        bits = ptx.immediate_bits(value, kind) if kind != "pred" else int(bool(value.value))
        key = (bits, kind)
        found = self.index.get(key)
        if found is None:
            found = self.index[key] = self.new(kind)
            dtype = isa.DTYPES[kind]
            if kind == "pred":
                array = np.array([bool(bits)])
            else:
                array = np.frombuffer(bits.to_bytes(dtype.itemsize, "little"), dtype).copy()
            self.constants.append((found, array))
        return found

    def constant_address(self, value: int) -> int:
        """The register that holds a fixed address, as 64 bits."""
        return self.constant(Immediate(value), "u64")

    def new_site(self, pc, line, space, kind, width, text, ptx_line, rule) -> Site:
        """Number a memory access."""
        site = Site(len(self.sites), pc, line, space, kind, width, text, ptx_line, rule)
        self.sites.append(site)
        return site

    # --------------------------------------------------------------------------------------------------- blocks

    def program(self) -> Program:
        self._place_variables()
        self._flatten()
        count = len(self.flat)
        ops = [isa.build(self, instruction, position) for position, instruction in enumerate(self.flat)]
        for finish in isa.FINISHERS:
            finish(self, ops)
        leaders = {0, *self.labels.values()}
        for position, op in enumerate(ops):
            if op.terminator is not None:
                leaders.add(position + 1)
                if op.instruction.guard is not None and not isinstance(op.terminator, isa.Jump):
                    leaders.add(position)
            if op.rendezvous:
                leaders.add(position)
        starts = sorted(position for position in leaders if position < count)
        block_at = {position: i for i, position in enumerate(starts)}
        self.exit = len(starts)

        def place(label: str) -> int:
            position = self.labels[label]
            return block_at[position] if position < count else self.exit

        blocks = []
        reads_writes = []
        for i, start in enumerate(starts):
            stop = starts[i + 1] if i + 1 < len(starts) else count
            block = Block(i, line=self.flat[start].line)
            facts: list[tuple[list[int], list[int], bool]] = []
            following = i + 1
            block.successors = (following,)
            block.end = isa.jump_to(following)
            for position in range(start, stop):
                op, instruction = ops[position], self.flat[position]
                block.size += 1
                block.instructions.append(instruction)
                block.lines[instruction.line] = block.lines.get(instruction.line, 0) + 1
                if op.rendezvous:
                    block.rendezvous, block.members = int(op.rendezvous), op.members
                guard = self._guard(instruction)
                for counter in op.counters:
                    if guard is None:
                        key = (instruction.line, counter)
                        block.counted[key] = block.counted.get(key, 0) + 1
                if op.terminator is None:
                    plain, masked = isa.closures(op, guard)
                    block.plain += plain
                    block.masked += masked
                    block.marks.append(Mark(position, instruction.line, op.opclass, tuple(op.writes), len(block.plain), len(block.masked)))
                    facts.append((op.reads + ([guard[0]] if guard else []), op.writes, guard is not None))
                    continue
                reads = list(op.reads)
                if isinstance(op.terminator, isa.Jump):
                    target = place(op.terminator.label)
                    if guard is None:
                        block.end, block.successors = isa.jump_to(target), (target,)
                    else:
                        block.end, block.successors = isa.branch(*guard, target, following), (target, following)
                        reads.append(guard[0])
                elif guard is not None:
                    # A guarded barrier, exit or table jump: threads whose guard is off step over it.
                    block.end = isa.guarded_end(*guard, op.terminator(place, following), following)
                    block.successors = tuple({following, *(place(label) for label in op.targets)})
                    reads.append(guard[0])
                else:
                    block.end = op.terminator(place, following)
                    block.successors = tuple({*((following,) if op.falls_through else ()), *(place(label) for label in op.targets)})
                facts.append((reads, op.writes, False))
                for pre in op.before:
                    block.plain.append(pre)
                    block.masked.append(pre)
                block.marks.append(Mark(position, instruction.line, op.opclass, (), len(block.plain), len(block.masked)))
            blocks.append(block)
            reads_writes.append(facts)
        _liveness(blocks, reads_writes)
        grid_workspace = self._place_grid_workspace()
        granule = min([site.width for site in self.sites if site.space in ("shared", "generic")] + [4])
        program = Program(
            name=self.entry.name, blocks=blocks, types=self.types, constants=self.constants, specials=self.specials,
            sites=self.sites, parameters=self.parameters, shared=self.shared, shared_bytes=self.shared_bytes,
            dynamic_shared_at=self.dynamic_shared_at, local_bytes=self.local_bytes, param_bytes=self.param_bytes,
            device=self.device, image=bytes(self.image), image_addresses=self.relocations, shared_granule=granule,
            exchanged=sum(1 << index for index in self.exchanged),
            uses=frozenset(self.uses), line=self.entry.line, code=tuple(self.flat), labels=self.labels,
            grid_workspace=grid_workspace, register_types=self.register_types,
            register_names={index: name for name, index in self.index.items()},
        )  # fmt: skip
        _races_that_cannot_be(program, ops, starts)
        _leaving(blocks)
        return program

    def _place_grid_workspace(self) -> int:
        """Memory for cooperative groups' grid barrier, which the driver announces in %envreg1 and 2. Its address, or 0."""
        if not {"%envreg1", "%envreg2"} & {name for _, name in self.specials}:
            return 0
        at = _align(len(self.image), 256)
        self.image.extend(bytes(at + 256 - len(self.image)))
        self.device.append(("the grid's barrier", DEVICE_BASE + at, 256, "global"))
        return DEVICE_BASE + at

    def _guard(self, instruction) -> tuple[int, bool] | None:
        if instruction.guard is None:
            return None
        try:
            return self.register(instruction.guard[0]), instruction.guard[1]
        except KeyError:
            raise RunError(f"PTX line {instruction.ptx_line}: `{instruction.text}` has an unknown guard.", instruction.line) from None


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


def _liveness(blocks: list[Block], facts) -> None:
    """Registers whose value a thread that enters the block may still read, as bit sets."""
    use, define = [], []
    for block_facts in facts:
        used = defined = 0
        for reads, writes, conditional in block_facts:
            for register in reads:
                used |= (1 << register) & ~defined
            if not conditional:
                for register in writes:
                    defined |= 1 << register
        use.append(used)
        define.append(defined)
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            out = 0
            for successor in block.successors:
                if successor < len(blocks):
                    out |= blocks[successor].live_in
            live = use[block.index] | (out & ~define[block.index])
            if live != block.live_in:
                block.live_in = live
                changed = True


def _leaving(blocks: list[Block]) -> None:
    """Mark the blocks from which threads end without doing anything else."""
    for block in reversed(blocks):
        idle = all(instruction.name in ("bra", "ret", "exit", "mov") for instruction in block.instructions)
        block.leaves = idle and all(i >= len(blocks) or (i > block.index and blocks[i].leaves) for i in block.successors)


def _races_that_cannot_be(program: Program, ops, starts) -> None:
    """Mark the shared reads that need no race check: no write can happen between the same two full barriers.

    Threads may take different ways from one barrier to the next, so a read can meet a write that is on no path with it:
    all that can be reached from one barrier without passing another is looked at together. Only barriers that every
    thread takes part in count.
    """
    count = len(program.blocks)
    writes = [False] * count
    clears = [False] * count
    for i, _block in enumerate(program.blocks):
        stop = starts[i + 1] if i + 1 < count else len(ops)
        for position in range(starts[i], stop):
            op = ops[position]
            if op.lands or any(site.space in ("shared", "generic") and not site.op.only_reads for site in op.sites):
                writes[i] = True
            if op.full_barrier and op.instruction.guard is None:
                clears[i] = True  # a barrier ends its block
    following = {successor for i, block in enumerate(program.blocks) if clears[i] for successor in block.successors}
    meets = [False] * count  # a write may happen between the same two barriers as this block
    for first in sorted({0} | following):
        together, waiting = set(), [first]
        while waiting:
            i = waiting.pop()
            if i < count and i not in together:
                together.add(i)
                waiting += () if clears[i] else program.blocks[i].successors
        if any(writes[i] for i in together):
            for i in together:
                meets[i] = True
    for i in range(count):
        stop = starts[i + 1] if i + 1 < count else len(ops)
        for position in range(starts[i], stop):
            for site in ops[position].sites:
                if site.op.only_reads:
                    site.may_race = meets[i]
