"""Neighbouring accesses of shared memory as one wide access, which ptxas makes of them and clang by itself does not.

clang takes a __shared__ array for a generic address until shortly before it writes the PTX, and of a generic address it knows no
alignment; so four loads side by side stay four, where ptxas makes one of 128 bits. The cure is to let it begin anew with the code it had
when it knew the address spaces: then it sees alignments, and its own pass merges the accesses. What is merged is therefore proved to be
aligned; ptxas proves more, and steps 08 and 09 keep loads that it merges.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

BEFORE = "-stop-before=nvptx-atomic-lower"  # the first of LLVM's passes behind the one that finds address spaces
AGAIN = ("-x", "ir", "--target=nvptx64-nvidia-cuda", "-nocudalib", "-S", "-O3", "-w")
_NARROW = re.compile(r"\b(?:ld|st)\.shared\.[bfu]32\s")
_WIDE = re.compile(r"\b(?:ld|st)\.shared\.v[24]\.[bfu]32\s")
_FUNCTION = re.compile(r"^define .*?^}", re.M | re.S)
_DEFINITION = re.compile(r"^  (%[\w.]+) = (.*)$", re.M)
_AND = re.compile(r"and i32 (%[\w.]+), (\d+)")
_SHIFT = re.compile(r"lshr (?:exact )?i32 (%[\w.]+), (\d+)")
_RANGE = re.compile(r"range\(i32 0, (\d+)\)")
_OR = re.compile(r"^(  %[\w.]+) = or i32 (%[\w.]+), (\d+)", re.M)
_DISJOINT = re.compile(r"= or disjoint i(32|64) ")
_ALL = 0xFFFFFFFF


def worthwhile(ptx: str) -> bool:
    """Is most of what the code does in shared memory 32 bits wide? What is wide already shows that clang knew the alignment."""
    return len(_NARROW.findall(ptx)) > len(_WIDE.findall(ptx))


def widened(mir: str, again: Callable[[str, Sequence[str]], str]) -> str:
    """The PTX with merged accesses. mir: what clang wrote when it stopped `BEFORE`; again: runs it on LLVM's code with further options."""
    begin = mir.index("--- |\n") + len("--- |\n")
    code = "\n".join(line[2:] for line in mir[begin : mir.index("\n...", begin)].split("\n"))
    better = again(code, ("-emit-llvm",))
    return again(_FUNCTION.sub(lambda match: with_offsets(match[0]), better), ("-Xclang", "-disable-llvm-passes"))


def with_offsets(function: str) -> str:
    """A function of LLVM's code in which an address and a constant are added, where they were joined by `or`.

    LLVM writes x + 7 as `x | 7` where the low bits of x are 0, and even forgets to clear them before. The pass that merges accesses looks
    for sums.
    """
    definitions = dict(_DEFINITION.findall(function))
    cleared: dict[str, list[tuple[str, int]]] = {}
    for name, text in definitions.items():
        if match := _AND.match(text):
            cleared.setdefault(match[1], []).append((name, int(match[2])))

    def added(match: re.Match) -> str:
        constant = int(match[3])
        possible = _possible_bits(match[2], definitions)
        for name, mask in cleared.get(match[2], ()):
            if not mask & constant and not constant & (constant + 1) and not possible & ~(mask | constant):
                return f"{match[1]} = add nuw nsw i32 {name}, {constant}"
        return match[0]

    return _DISJOINT.sub(r"= add nuw nsw i\1 ", _OR.sub(added, function))


def _possible_bits(name: str, definitions: dict[str, str], depth: int = 0) -> int:
    """The bits of a 32-bit value that can be set, as far as its definition tells."""
    text = definitions.get(name, "")
    if match := _RANGE.search(text):
        return (1 << (int(match[1]) - 1).bit_length()) - 1
    if depth < 8 and (match := _SHIFT.match(text)):
        return _possible_bits(match[1], definitions, depth + 1) >> int(match[2])
    if depth < 8 and (match := _AND.match(text)):
        return _possible_bits(match[1], definitions, depth + 1) & int(match[2])
    return _ALL
