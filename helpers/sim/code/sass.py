"""Read the machine code that ptxas made: instructions with their operands, labels, and the PTX line of each.

`parse` reads what `nvdisasm -c -gp` prints. A cubin compiled with -lineinfo carries its PTX, and the disassembler names
the PTX line of each instruction; those are 1-based lines of exactly the PTX text that NVRTC returns (comments are
blanked in the embedded copy, lines are not moved). The PTX's own `.loc` then leads to the line of the reader's cell.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field

from . import time_limit
from .ptx import split_operands
from .sass_opcodes import SassOpcode, opcode_row, sass_width
from .sass_operands import SassAddress, SassOperand, SassPredicate, SassRegister, operand, registers_of


@dataclass(frozen=True)
class SassInstruction:
    """One SASS instruction. `target` is the index it branches to, `ptx_line` the 1-based PTX line it comes from."""

    index: int
    address: int
    guard: str
    opcode: str
    operands: tuple[str, ...]
    target: int | None
    ptx_line: int | None

    @functools.cached_property
    def name(self) -> str:
        """The opcode without its modifiers: 'LDS' of 'LDS.128'."""
        return self.opcode.split(".", 1)[0]

    @functools.cached_property
    def row(self) -> SassOpcode:
        """What the opcode is."""
        return opcode_row(self.name)

    @functools.cached_property
    def modifiers(self) -> tuple[str, ...]:
        """('E', '128') of 'LDG.E.128'."""
        return tuple(self.opcode.split(".")[1:])

    def has(self, *modifiers: str) -> bool:
        """Whether the opcode has one of these modifiers."""
        return not self._modifiers.isdisjoint(modifiers)

    @functools.cached_property
    def _modifiers(self) -> frozenset[str]:
        return frozenset(self.modifiers)

    @property
    def width(self) -> int:
        """Bytes per lane, of a memory instruction."""
        return sass_width(self.opcode)

    @functools.cached_property
    def predicate(self) -> SassPredicate | None:
        """The guard, read."""
        return operand(self.guard) if self.guard else None

    @functools.cached_property
    def values(self) -> tuple[SassOperand, ...]:
        """The operands, read. A generic address is in two registers, and of some it is not said: LD.E R9, [R8]."""
        if self.row.points and "E" in self.modifiers:
            return tuple(operand(_ONE_REGISTER.sub(r"[\1.64", text)) for text in self.operands)
        return tuple(operand(text) for text in self.operands)

    @functools.cached_property
    def _results(self) -> int:
        """How many leading operands it writes."""
        row, values = self.row, self.values
        if row.results == "none":
            return 0

        def predicates(start: int, most: int) -> int:
            end = start
            while end < min(len(values), most) and isinstance(values[end], SassPredicate) and not values[end].negated:
                end += 1
            return end

        count = predicates(0, row.most_predicates)
        if row.results == "register" and count < len(values) and isinstance(values[count], SassRegister):
            count += 1
            if row.carries and count == 1:
                count = predicates(count, len(values))
        return min(count, len(values) - 1) if row.last_is_source else count

    @functools.cached_property
    def results(self) -> tuple[SassOperand, ...]:
        return self.values[: self._results]

    @functools.cached_property
    def sources(self) -> tuple[SassOperand, ...]:
        return self.values[self._results :]

    @functools.cached_property
    def writes(self) -> frozenset[str]:
        """Names of the registers and predicates that it may write: 'R4', 'UR2', 'P0'."""
        if self.row.packs_predicates == "writes":
            return frozenset(_PACKED)
        count = self.row.registers(self.modifiers)
        return frozenset(name for result in self.results for name in registers_of(result, count))

    @functools.cached_property
    def reads(self) -> frozenset[str]:
        """Names of the registers and predicates that it may read, its guard's included."""
        names = {name for source, width in zip(self.sources, self._source_widths(), strict=True) for name in registers_of(source, width)}
        if self.row.packs_predicates == "reads":
            names.update(_PACKED)
        return frozenset(names.union(registers_of(self.predicate)))

    def _source_widths(self) -> list[int]:
        """How many registers each source is, if it is one."""
        if not self.row.wide_addend:
            return [self.row.sources(self.modifiers)] * len(self.sources)
        addend = [k for k, source in enumerate(self.sources) if not isinstance(source, SassPredicate)][2:3]
        wide = {"WIDE", "HI"} & set(self.modifiers)
        return [2 if wide and [k] == addend else 1 for k in range(len(self.sources))]

    @functools.cached_property
    def addressing(self) -> tuple[str, ...]:
        """Registers that decide which bytes a memory instruction reaches."""
        copies = self.row.op == "cp.async"  # and then whether it reads them: its last predicate
        deciding = [s for s in self.sources if isinstance(s, SassAddress) or (copies and isinstance(s, SassPredicate))]
        return tuple(name for source in deciding for name in registers_of(source))

    def __str__(self) -> str:
        guard = f"@{self.guard} " if self.guard else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)}".rstrip()


@dataclass(frozen=True)
class SassFunction:
    """The instructions of one code section, in address order, and its labels (name -> index)."""

    name: str
    instructions: tuple[SassInstruction, ...]
    labels: dict[str, int] = field(repr=False)

    def loops(self) -> list[tuple[SassInstruction, ...]]:
        """What lies between a label and a branch back to it. A loop inside another is one of its own, too."""
        return [
            self.instructions[branch.target : branch.index + 1]
            for branch in self.instructions
            if branch.name == "BRA" and branch.target is not None and branch.target <= branch.index
        ]


_ONE_REGISTER = re.compile(r"^\[(R\d+)(?=[]+])")
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_OTHER_SECTION = re.compile(r"^\s*\.section\s")
_LABEL = re.compile(r"^([.$\w@]+):\s*$")
_LINE = re.compile(r'//## File "([^"]*)", line (\d+)')
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P[T\d]+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
_PACKED = tuple(f"P{k}" for k in range(7))
_TARGET = re.compile(r"`\(([^)]+)\)")


@functools.lru_cache(maxsize=4)
def parse(text: str) -> dict[str, SassFunction]:
    """Code sections of a disassembly by function name. An empty text gives an empty dict. The last few texts are remembered."""
    functions: dict[str, SassFunction] = {}
    name, lines, labels, ptx_line = None, [], {}, None

    def close():
        if name is not None:
            functions[name] = _finish(name, lines, labels)

    for line in text.splitlines():
        if match := _SECTION.match(line):
            close()
            name, lines, labels, ptx_line = match[1], [], {}, None
        elif _OTHER_SECTION.match(line):
            close()
            name = None
        elif name is None:
            continue
        elif match := _LINE.search(line):
            # A section's first lines may also name source files (-g); only lines of the embedded PTX count.
            if match[1] == ".nv_debug_ptx_txt" or match[1].endswith(".ptx"):
                ptx_line = int(match[2])
        elif match := _INSTRUCTION.match(line):
            lines.append((int(match[1], 16), match[2] or "", match[3], match[4].strip(), ptx_line))
        elif match := _LABEL.match(line):
            labels[match[1]] = len(lines)
    close()
    return functions


def _finish(name, lines, labels):
    instructions = []
    for index, (address, guard, opcode, operands, ptx_line) in enumerate(lines):
        time_limit.look()
        found = _TARGET.search(operands)
        through_pointer = opcode.startswith("CALL") and re.match(r"R\d", operands)
        target = labels.get(found[1]) if found and not through_pointer else None
        instructions.append(SassInstruction(index, address, guard, opcode, _split_operands(operands), target, ptx_line))
    return SassFunction(name, tuple(instructions), dict(labels))


def _split_operands(text):
    """Split at commas outside of brackets: 'R1, desc[UR6][R2.64+0x4]' -> two operands; a label is one of its own."""
    return tuple(split_operands(re.sub(r"(?<=[^\s,])\s+`\(", ", `(", text) if "`" in text else text))
