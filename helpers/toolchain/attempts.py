"""From a pasted file to what NVRTC makes of its device code: attempts, each without what the last one refused."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from helpers.errors import CompileError
from helpers.sim.code.lines import FILENAME, line_of_ptx

from . import clang, installation, own_headers
from .diagnostics import Diagnostic, at_assembly, at_largest_shared, explain, lines_of_unreadable, nested_launches, not_here, parse_log
from .headers import stand_ins
from .host_code import (
    Declaration,
    HostPart,
    Mistake,
    device_functions,
    first_guess,
    parts,
    revised,
    spare_parts,
    strip_comments,
    without,
)
from .mangled import qualified_name
from .nvrtc import Answer, Request
from .own_headers import Joined

_UNANNOTATED = "without execution space annotations"
_COOPERATIVE_GROUPS = re.compile(r"#\s*include\s*[<\"]cooperative_groups\b")
_WITHOUT_LIBRARY = "-D_CG_LIMIT_INCLUDED_DEPENDENCIES"  # the header's own switch: it brings libcu++, which takes a second to read, for less


@dataclass(frozen=True)
class Attempt:
    """The compiler's last answer. host: what was left out; missing: headers that are nowhere; errors: those of device code."""

    source: str
    request: Request
    answer: Answer
    host: tuple[HostPart, ...] = ()
    missing: tuple[str, ...] = ()
    errors: list[Diagnostic] = field(default_factory=list)

    @property
    def in_headers(self) -> int:
        """How many of the errors stand in headers."""
        return sum(bool(item.place[0]) for item in self.errors)

    def error(self) -> CompileError:
        """Why the source does not compile, at its own lines. The assembler's lines take another compilation, for PTX alone."""
        lines: Mapping[int, int | None] = {}
        ptx = ""
        if "ptxas" in self.answer.log:
            flags = tuple(f.replace("-arch=sm_", "-arch=compute_") for f in self.request.flags if not f.startswith("--ptxas-options"))
            answer = installation.compiler().compile_program(replace(self.request, flags=flags))
            ptx = "" if answer.refused else answer.ptx
            lines = {} if answer.refused else {**line_of_ptx(ptx), **lines_of_unreadable(ptx, self.answer.log)}
        errors = [item for item in parse_log(self.answer.log, lines) if item.severity == "error"] if lines else self.errors
        errors = [at_assembly(at_largest_shared(item, ptx, self.source), self.source) for item in errors] if lines else errors
        without = None if installation.compiler().makes_machine_code else clang.misses(self.missing, self.source)
        if without:
            return without
        return explain(errors, self.source, self.answer.log.strip() or self.answer.refused, self.missing, self.request.flags)

    def notes(self) -> tuple[str, ...]:
        """What was left out, which headers are nowhere, and the warnings about the reader's own device code, as sentences."""
        shown = _named([part for part in self.host if not part.spare])
        said = [f"Host code is left out: {shown}. The course allocates, copies and launches."] if shown else []
        if spare := _named([part for part in self.host if part.spare]):
            said.append(f"The compiler refuses what this kernel does not need, and it is left out: {spare}.")
        if self.missing:
            said.append(f"Not here, and left out: {', '.join(self.missing)}. The kernel compiles without.")
        cell = own_headers.alone(self.source)
        unannotated = parts(self.source) if "never referenced" in self.answer.log else ()
        for item in parse_log(self.answer.log):
            hosts = "never referenced" in item.message and any(_is_in(cell, item, part) for part in unannotated)
            if item.severity == "warning" and item.line and not hosts:
                said.append(item.render(self.source))
        return tuple(said)


def _named(parts: Sequence[HostPart]) -> str:
    """The names of `parts` with their lines, at most six."""
    first = {part.name: (part.file, part.first) for part in reversed(parts) if part.name}
    places = sorted(first.items(), key=lambda item: item[1])
    names = [f"{name} ({os.path.basename(file)}{', ' if file else ''}line {line})" for name, (file, line) in places]
    return ", ".join(names[:6] + (["…"] if len(names) > 6 else []))


def attempt(
    source: str, flags: Sequence[str], expressions: Sequence[str] = (), forgiving: bool = True, entry: str | None = None
) -> Attempt:
    """Compile `source` without its host code: what looks like it and, if `forgiving`, what the compiler refuses and no
    kernel misses; where a kernel `entry` is named, nor that one. Of cooperative groups first without what only its atomic
    reductions and scans need. A source that asks for nvcc finds it, and has nvcc's `__asm__`; to headers NVRTC is NVRTC otherwise."""
    code = strip_comments(source)
    if "__NVCC__" in code:
        flags = (*flags, "-D__NVCC__")
    if "__asm__" in code:
        flags = (*flags, "-D__asm__=asm")
    cell = own_headers.alone(source)
    if _COOPERATIVE_GROUPS.search(source):
        quick = _attempt(cell, (*flags, _WITHOUT_LIBRARY), expressions, forgiving, None)
        if not quick.answer.refused:
            return quick
    made = _attempt(cell, flags, expressions, forgiving, entry)
    with_headers = own_headers.joined(source, own_folders(flags), installation.include_folders()) if forgiving and made.in_headers else None
    if with_headers is None:
        return made
    again = _attempt(with_headers, flags, expressions, forgiving, entry)
    return again if not again.answer.refused or again.in_headers <= made.in_headers else made


def own_folders(flags: Sequence[str]) -> tuple[str, ...]:
    """The folders that the reader's options name."""
    named = (flag.removeprefix("-I") for flag in flags if flag.startswith("-I"))
    return tuple(folder for folder in named if folder not in installation.include_folders())


def _attempt(cell: Joined, flags: Sequence[str], expressions: Sequence[str], forgiving: bool, entry: str | None) -> Attempt:
    source = cell.text
    found = parts(source)
    out = first_guess(source, found)
    name = (qualified_name(entry) if entry.startswith("_Z") else entry.partition("<")[0].strip()) if entry else ""
    spare = spare_parts(source, out, name) if name and forgiving else ()
    left, needed = frozenset[HostPart](), frozenset[HostPart]()  # of `spare`, and of both what is missed
    folders = (*installation.include_folders(), *own_folders(flags))
    while True:
        device = without(source, out | left)
        headers, missing = stand_ins(source, strip_comments(device), folders)
        documents = cell.split(device)
        request = Request(documents.pop(""), FILENAME, headers | documents, tuple(flags), tuple(expressions))
        try:
            answer = installation.compiler().compile_program(request)
        except CompileError as error:
            raise CompileError(f"{error.message}{' ' if missing else ''}{not_here(missing)}") from None
        errors = [item for item in parse_log(answer.log) if item.severity == "error"] if answer.refused else []
        left_out = tuple(_placed(cell, part) for part in (*found, *spare) if part in out | left)
        last = Attempt(cell.documents[-1][1], request, answer, left_out, missing, errors)
        before = out, left, needed
        if forgiving:
            out, needed = revised(source, found, out, needed, _mistakes(cell, errors))
        if (out, left, needed) != before:
            continue
        real = _real(cell, found, out, errors)
        if errors and not real:
            return _attempt(cell, (*flags, "-default-device"), expressions, forgiving, entry)
        mistakes = _mistakes(cell, real)
        if "__cudaCDP" in answer.log and not errors:  # the linker's, which names no line
            mistakes = [Mistake(place, "device-side kernel launch") for place in nested_launches(source)]
        if spare and answer.refused:
            left, needed = revised(source, spare, left, needed, mistakes)
        if (out, left, needed) == before:
            return replace(last, errors=real)


def _placed(cell: Joined, part: HostPart) -> HostPart:
    """`part` with the lines of the document that it stands in."""
    file, first = cell.place(part.start)
    return replace(part, file=file, first=first, last=cell.place(part.end)[1])


def _mistakes(cell: Joined, errors: Sequence[Diagnostic]) -> list[Mistake]:
    return [Mistake(_offset(cell, item), item.message) for item in errors]


def _real(cell: Joined, found: Sequence[HostPart], out: frozenset[HostPart], errors: Sequence[Diagnostic]) -> list[Diagnostic]:
    """`errors` without those that -default-device mends: nvcc takes an unannotated constexpr function, and a lambda in device
    code, for device code; NVRTC has to be told that each is."""
    own: list[HostPart | Declaration] = [part for part in found if part.constexpr and part not in out]
    own += device_functions(cell.text) if errors else []
    return [
        item for item in errors if not (_UNANNOTATED in item.message and (item.header or any(_is_in(cell, item, part) for part in own)))
    ]


def _offset(cell: Joined, item: Diagnostic) -> int | None:
    """Where in the text of `cell` a message points; None if it is in a header that is not part of it."""
    file, line = item.place
    return cell.offset(file, item.line or line, item.column) if item.line or file else None


def _is_in(cell: Joined, item: Diagnostic, part: HostPart | Declaration) -> bool:
    offset = _offset(cell, item)
    return offset is not None and part.start <= offset < part.end
