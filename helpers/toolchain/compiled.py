"""What NVRTC made of one kernel, and its machine code as text. Both are kept on disk, see `CACHE`."""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from helpers.cache import Cache
from helpers.errors import CourseError
from helpers.sim.code import time_limit
from helpers.sim.code.lines import FILENAME, cell_lines
from helpers.sim.code.ptx import Immediate, Instruction, Register, Vector, flattened, parsed

from . import installation

IN_MEMORY = "/dev/shm"  # where there is one
CACHE = Cache("kernels", 2000)  # at most about 250 MB: the course and its exercises, and a thousand kernels besides

ESTIMATE = "Estimate, from PTX: there is no machine code here, which would say how accesses are merged and what registers are used."
_MATRIX_TYPES = {"f64", "tf32", "f16", "bf16", "e4m3", "e5m2", "s8", "u8", "s4", "u4", "b1"}
_WITH_FEW_BITS = {"f16", "f16x2", "bf16", "bf16x2"}  # element types of instructions that round to 11 bits, or to 8


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter. `pointer_to` is the C type pointed to without const, or None for scalars and structs; "" for 64 bits of an
    extern "C" kernel of which the source does not say what they are.

    half: the element type ('float16', 'bfloat16') of a 16-bit float, which the PTX passes as a struct of two bytes, else ''.
    signed: is it declared as a whole number with a sign? PTX does not tell.
    """

    name: str
    ptx_type: str
    pointer_to: str | None
    const: bool
    size: int
    half: str = ""
    signed: bool = False


@dataclass(frozen=True)
class Compiled:
    """What the compiler made of one kernel. Sizes are in bytes; registers are per thread, and 0 without machine code (`cubin` is b"")."""

    source: str
    entry: str
    symbol: str
    arch: str
    options: tuple[str, ...]
    ptx: str
    cubin: bytes
    log: str = field(compare=False)  # it carries the compile time
    registers: int
    shared_bytes: int
    local_bytes: int
    spill_stores: int
    spill_loads: int
    parameters: tuple[Parameter, ...]
    constants: dict[str, tuple[int, ...]]
    warnings: tuple[str, ...] = ()
    filename: str = FILENAME
    requested: str = ""
    key: str = field(default="", compare=False)

    @property
    def estimate(self) -> str:
        """What to say beside every count and time of it: '' where there is machine code, which they are then exact for."""
        return "" if self.cubin else ESTIMATE

    @functools.cached_property
    def sass(self) -> str:
        """The machine code as `nvdisasm -c -gp` prints it, with its PTX lines.

        Raises CourseError if the disassembler is not installed.
        """
        return _disassemble(self)

    @functools.cached_property
    def matrix_types(self) -> frozenset[str]:
        """The element types of its matrix instructions in PTX's names ("tf32", "f16", "e4m3", …); empty without any. Other kernels of the
        same source do not count."""
        own = parsed(self).instructions_of(self.symbol)
        opcodes = {instruction.opcode for instruction in own if {"mma", "mma_async"} & set(instruction.opcode.split("."))}
        named = [_MATRIX_TYPES & set(re.split(r"[.:]+", opcode)) for opcode in opcodes]
        return frozenset().union(*(types or {"f16"} for types in named))  # wmma does not name f16, its first type

    def multiplies(self, kind: str) -> tuple[str, int | None] | None:
        """(opcode, line of the cell or None) of its first matrix instruction in PTX that multiplies this type, None where none does."""
        for instruction in parsed(self).instructions_of(self.symbol):
            if {"mma", "mma_async"} & set(instruction.opcode.split(".")) and kind in re.split(r"[.:]+", instruction.opcode):
                return instruction.opcode, cell_lines(self).get(instruction.ptx_line)
        return None

    @functools.cached_property
    def float16_sums(self) -> tuple[str, int | None] | None:
        """(opcode, line of the cell or None) of its first matrix instruction in PTX that keeps sums in FP16; None where none does."""
        for instruction in parsed(self).instructions_of(self.symbol):
            if {"mma", "mma_async"} & set(instruction.opcode.split(".")):
                if next((part for part in instruction.modifiers if part in _MATRIX_TYPES | {"f32", "s32"}), "") == "f16":  # D comes first
                    return instruction.opcode, cell_lines(self).get(instruction.ptx_line)
        return None

    @functools.cached_property
    def narrow_arithmetic(self) -> tuple[str, int | None] | None:
        """(opcode, line of the cell or None) of what rounds to FP16 or BF16 on the way, matrix instructions apart: the first addition in
        such a type, else the first multiplication, else the first conversion to it that is taken back. None where there is nothing of it.
        """
        own = list(parsed(self).instructions_of(self.symbol))
        for names in (("add", "sub", "fma"), ("mul",)):
            for instruction in own:
                if instruction.name in names and _WITH_FEW_BITS.intersection(instruction.modifiers):
                    return instruction.opcode, cell_lines(self).get(instruction.ptx_line)
        rounded: dict[str, Instruction] = {}  # by register, the conversion that its number comes from
        constants = _of_constants(own)  # to round what the source says, 0 as a rule, loses nothing
        for instruction in (one for one in own if one.name in ("cvt", "mov")):
            sources = instruction.operands[1:]
            targets, names_of = _registers(instruction.operands[:1]), _registers(sources)
            came = next((rounded[name] for name in names_of if name in rounded), None)
            widened = "f32" in instruction.modifiers if instruction.name == "cvt" else _is_float_of_bfloat16(sources)
            narrowed = _rounds(instruction)
            if constants.issuperset(names_of):
                continue
            if came is not None and widened:
                return came.opcode, cell_lines(self).get(came.ptx_line)
            if narrowed or came is not None:
                rounded.update((name, instruction if came is None else came) for name in targets)
        return None

    @functools.cached_property
    def narrow_tile(self) -> tuple[str, int | None] | None:
        """(opcode, line of the cell or None) of the first float that is rounded to FP16 or BF16 and stored to shared memory, where what
        lies there is made float again, or is multiplied by matrix instructions; None where that is not done."""
        own = list(parsed(self).instructions_of(self.symbol))
        rounded: dict[str, Instruction] = {}  # by register, the conversion that its number comes from
        lies: set[str] = set()  # registers that hold what was in shared memory
        constants, kept, again = _of_constants(own), None, False
        for instruction in own:
            sources = instruction.operands[1:]
            targets, names_of = _registers(instruction.operands[:1]), _registers(sources)
            if instruction.name == "st" and "shared" in instruction.modifiers:
                kept = kept or next((rounded[name] for name in names_of if name in rounded), None)
            elif instruction.name == "ld" and "shared" in instruction.modifiers:
                lies.update(targets)
            elif {"mma", "mma_async"} & set(instruction.opcode.split(".")):
                again = again or not {"tf32", "f64"} & {*re.split(r"[.:]+", instruction.opcode)}
            elif instruction.name in ("cvt", "mov"):
                widened = instruction.modifiers[0] == "f32" if instruction.name == "cvt" else _is_float_of_bfloat16(sources)
                again = again or (widened and not lies.isdisjoint(names_of))
                came = next((rounded[name] for name in names_of if name in rounded), None)
                if _rounds(instruction) and not constants.issuperset(names_of):
                    rounded.update((name, instruction) for name in targets)
                elif came is not None:
                    rounded.update((name, came) for name in targets)
                if not lies.isdisjoint(names_of):
                    lies.update(targets)
        return (kept.opcode, cell_lines(self).get(kept.ptx_line)) if kept is not None and again else None


def _registers(operands: Sequence) -> list[str]:
    return [one.name for one in flattened(operands) if isinstance(one, Register)]


def _of_constants(own: Sequence[Instruction]) -> set[str]:
    """The registers that hold what the source says and nothing else, whichever way the kernel takes."""
    moves = [one for one in own if one.name in ("cvt", "mov")]
    others = {name for one in own if one.name not in ("cvt", "mov", "st") for name in _registers(one.operands[:1])}
    found: set[str] = set()
    for instruction in moves:
        (found if found.issuperset(_registers(instruction.operands[1:])) else others).update(_registers(instruction.operands[:1]))
    return found - others


def _rounds(instruction: Instruction) -> bool:
    """Does it make FP16 or BF16 of a float?"""
    return instruction.name == "cvt" and instruction.modifiers[-1] == "f32" and bool(_WITH_FEW_BITS & {*instruction.modifiers})


def _is_float_of_bfloat16(sources: Sequence) -> bool:
    """Do the sources of a `mov` make a float of a BF16, which is its upper half?"""
    return isinstance(sources[0], Vector) and len(sources[0].items) == 2 and sources[0].items[0] == Immediate(0)


def _disassemble(compiled: Compiled) -> str:
    if not compiled.cubin and compiled.arch.startswith("sm"):
        raise CourseError("There is no machine code: clang, which compiled this kernel, makes PTX only.")
    if not compiled.cubin:
        raise CourseError(f"There is no machine code for {compiled.arch}: compile for a real architecture such as sm_90.")
    tool = installation.disassembler()
    if tool is None:
        raise CourseError("nvdisasm is not installed, so there is no SASS to show. Run the set-up command of the README again.")
    kept = CACHE.get(f"{compiled.key} sass") if compiled.key else None
    if kept is not None:
        return kept.decode()
    try:
        try:
            result = _listing(tool, compiled.cubin)
        except OSError:  # a full disk, as a rule: files in memory need none of it
            if not os.path.isdir(IN_MEMORY):
                raise
            result = _listing(tool, compiled.cubin, IN_MEMORY)
    except (OSError, subprocess.TimeoutExpired) as error:
        time_limit.look()
        raise CourseError(f"nvdisasm, which lists the machine code, could not be run: {error}. It needs room for a small file.") from error
    if result.returncode or not result.stdout:
        raise CourseError(f"nvdisasm could not read the machine code: {result.stderr.strip()}")
    if compiled.key:
        CACHE.put(f"{compiled.key} sass", result.stdout.encode())
    return result.stdout


def _listing(tool: str, cubin: bytes, place: str | None = None) -> subprocess.CompletedProcess[str]:
    """The disassembler's listing of machine code, which it wants in a file. place: the folder to put it in.

    -ndf saves a third of its time: no analysis of where jumps through a table go, which is all that changes.
    """
    with tempfile.TemporaryDirectory(dir=place) as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)

        def run(*options: str) -> subprocess.CompletedProcess[str]:
            command = [tool, "-c", "-gp", *options, str(path)]
            return subprocess.run(
                command, capture_output=True, text=True, encoding="utf-8", errors="replace",
                timeout=min(60, time_limit.left()), check=False,
            )  # fmt: skip

        result = run("-ndf")
        return run() if re.search(r" (BRX|JMX)U?\b", result.stdout) else result


def load(key: str) -> Compiled | None:
    """The compilation of this key that was saved, or None."""
    kept = CACHE.get(key)
    if kept is None:
        return None
    entry = json.loads(kept)
    entry["cubin"] = base64.b64decode(entry["cubin"])
    entry["parameters"] = tuple(Parameter(**item) for item in entry["parameters"])
    entry["constants"] = {name: tuple(values) for name, values in entry["constants"].items()}
    entry["options"] = tuple(entry["options"])
    entry["warnings"] = tuple(entry["warnings"])
    return Compiled(**entry)


def save(compiled: Compiled) -> None:
    """Keep a compilation under its key."""
    CACHE.put(compiled.key, json.dumps({**asdict(compiled), "cubin": base64.b64encode(compiled.cubin).decode()}).encode())
