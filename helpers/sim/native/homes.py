"""Where a register is between blocks of code: on the stack, or, if it outlives a barrier, in the warp's state. So a barrier has nothing to
carry. Registers of a fragment follow each other, and what multiplies matrices finds them there.

A varying predicate is a byte for each lane: for one bit each, a processor without AVX-512 takes eighty instructions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set

from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.program import Program
from helpers.sim.code.ptx import Register, Vector

from .builder import vector
from .dispatch import HANDLERS
from .offsets import WARP_STATE

BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "i128": 128, "half": 16, "float": 32, "double": 64}
_ALIGNED = 64  # bytes: what the addresses of vectors are multiples of, and the end of the state
_FRAGMENT = WARP * 4  # bytes of one of a fragment's registers


def slot(name: str, part: str) -> str:
    """The pointer to a part of a register: its scalar 's', its vector 'v', or 'u', the lanes in which nobody has written it."""
    return f'%"{name}.{part}"'


class Homes:
    """types: LLVM type by register. crossing: those that are used in another block of code than where they are written. outliving: those
    that outlive a barrier. unwritten: those that may be read before anyone has written them; doubtful: of which that is watched.
    fragments: registers of matrices, one fragment's after the other's; each is all of its lanes, without a scalar.

    slots: IR that makes the pointers, and what is on the stack, each time the warp goes on. beginnings: what the state begins with, before
    its first instruction.
    """

    def __init__(
        self, types: Mapping[str, str], varying: Collection[str], crossing: Set[str], outliving: Set[str],
        unwritten: Collection[str], doubtful: Collection[str], fragments: Sequence[Sequence[str]] = (),
    ):  # fmt: skip
        self._types, self._varying, self._crossing, self._unwritten = types, varying, crossing, unwritten
        self._after: dict[str, tuple[int, int]] = {}  # register of a fragment -> (which fragment, which of its registers)
        self.slots, self.beginnings = list[str](), list[str]()
        self._end = WARP_STATE["saved"]
        for number, names in enumerate(fragments):
            self._after |= {name: (number, place) for place, name in enumerate(names)}
            stays = not outliving.isdisjoint(names)
            self._end += -self._end % _FRAGMENT * stays
            if not stays:
                self.slots.append(f"  %fragment{number} = alloca [{_FRAGMENT * len(names)} x i8], align {_ALIGNED}")
            for place, name in enumerate(names):
                self._settle(name, "v", stays, f"getelementptr i8, ptr %fragment{number}, i64 {_FRAGMENT * place}")
        for name in sorted({*crossing, *doubtful}):
            for part in self._parts(name, name in crossing and name not in self._after, name in doubtful):
                self._settle(name, part, name in outliving, f"alloca {self.kept_as(name, part)}, align {self._align(name, part)}")
        self.state_bytes = self._end + -self._end % _ALIGNED

    def _parts(self, name: str, crossing: bool, doubtful: bool) -> Iterator[str]:
        if doubtful:
            yield "u"
        if crossing and name in self._varying:
            yield "v"
        if crossing and self.has_scalar(name):
            yield "s"

    def _settle(self, name: str, part: str, stays: bool, on_stack: str) -> None:
        """stays: through barriers."""
        where = on_stack
        if stays:
            self._end += -self._end % self._align(name, part)
            where = f"getelementptr i8, ptr %ws, i64 {self._end}"
            self._end += self._nbytes(name, part)
        self.slots.append(f"  {slot(name, part)} = {where}")
        if name in self._crossing or part == "u":
            (self.beginnings if stays else self.slots).append(f"  {self._beginning(name, part)}")

    def has_scalar(self, name: str) -> bool:
        """Whether a part of the register is a scalar."""
        return name not in self._varying or (self._types[name] in ("i32", "i64") and name not in self._after)

    def in_fragment(self, name: str) -> bool:
        """Whether it has a home, beside others of a matrix, also if no other block of code uses it."""
        return name in self._after

    def follow_each_other(self, names: Sequence[str]) -> bool:
        """Whether these registers are one behind the other, from the first one's slot on."""
        if names[0] not in self._after:
            return False
        fragment, place = self._after[names[0]]
        return all(self._after.get(name) == (fragment, place + k) for k, name in enumerate(names))

    def kept_as(self, name: str, part: str) -> str:
        """The type of a part in its slot."""
        type_ = self._types[name]
        return "i32" if part == "u" else type_ if part == "s" else vector("i8" if type_ == "i1" else type_)

    def load(self, name: str, part: str) -> str:
        """IR that reads a part."""
        return f"load {self.kept_as(name, part)}, ptr {slot(name, part)}, align {self._align(name, part)}"

    def store(self, name: str, part: str, value: str) -> str:
        """IR that writes it."""
        return f"store {self.kept_as(name, part)} {value}, ptr {slot(name, part)}, align {self._align(name, part)}"

    def _beginning(self, name: str, part: str) -> str:
        """Zeros; where nobody may have written, all bits set, as in the NumPy machine."""
        if name not in self._unwritten or (part == "s" and name in self._varying):
            return self.store(name, part, "zeroinitializer")
        bits = "i1" if part == "s" and self._types[name] == "i1" else f"i{8 * self._each(name, part)}"
        kind, value = (vector(bits), f"splat ({bits} -1)") if part == "v" else (bits, "-1")
        return f"store {kind} {value}, ptr {slot(name, part)}, align {self._align(name, part)}"

    def _each(self, name: str, part: str) -> int:
        """Bytes of a lane."""
        return 4 if part == "u" else max(1, BITS[self._types[name]] // 8)

    def _nbytes(self, name: str, part: str) -> int:
        return self._each(name, part) * (WARP if part == "v" else 1)

    def _align(self, name: str, part: str) -> int:
        return min(self._nbytes(name, part), _ALIGNED)


def fragments(program: Program, names: Collection[str]) -> list[tuple[str, ...]]:
    """Registers of matrices that are to follow each other, of those with these names; each is in one of the fragments."""
    left, found = set(names), []
    for op in program.ops:
        handler = HANDLERS.get(op.instruction.name)
        for operand in op.instruction.operands if handler is not None and handler.fragments else ():
            items = [item.name for item in operand.items if isinstance(item, Register)] if isinstance(operand, Vector) else []
            if items and len(set(items)) == len(operand.items) and left.issuperset(items):
                found.append(tuple(items))
                left.difference_update(items)
    return found
