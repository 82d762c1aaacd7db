"""What a sanitizer would say, collected while a kernel runs.

The same thing is said once, however many threads do it: a finding is told apart by its kind, its lines and, where one line may be
wrong of several arrays, by the array; it carries the first thread seen as an example, and counts the rest.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from helpers.errors import Finding, RunError, called_from
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.lines import calls_outwards

if TYPE_CHECKING:
    from helpers.sim.code.sites import Site

    from .protocols import LoadedKernel, Machine

MAX_FINDINGS = 100
MAX_HINTS = 2  # what comes later follows from them as a rule
_OTHER_WARPS = re.compile(r",? or (?:at )?a named (?:one|barrier) \(bar\.sync number, threads\) where other warps do something else")


@functools.cache
def said(what: str) -> dict[str, str]:
    """What the files of this folder say of the kinds that they find, in a constant of the name `what`, MEANING or ADVISED: {"race": …}."""
    package = __name__.rpartition(".")[0]
    names = sorted(module.name for module in pkgutil.iter_modules(importlib.import_module(package).__path__))
    found = [getattr(importlib.import_module(f"{package}.{name}"), what, {}) for name in names]
    return {kind: sentence for sentences in found for kind, sentence in sentences.items()}


class Unclear(Exception):
    """Something undefined has come where it is not followed: the launch is run again in the NumPy machine. Its text: because of what."""


class Findings:
    """A list without repetitions. hints: sentences about what is no finding and may explain a wrong result."""

    def __init__(self, wanted: bool = True, program: LoadedKernel | None = None):
        self.wanted, self.program = wanted, program
        self.found: dict[tuple, Finding] = {}
        self.hints: dict[str, None] = {}

    def add(
        self,
        kind: str,
        line: int | None,
        message: str,
        *,
        other_line=None,
        block=None,
        thread=None,
        advice=None,
        count=1,
        array="",
        sites: tuple[Site | None, ...] = (),
        positions: tuple[int | None, ...] = (),
    ) -> Finding:
        """Note a finding and return it. advice: what to do; None for what its file advises. array: its name, where it is of one. sites:
        the accesses at `line` and at `other_line`, as far as they are known, which tell
        who calls the function that they stand in. positions: the same of instructions that are no accesses."""
        advice = said("ADVISED").get(kind, "") if advice is None else advice
        places = zip((line, other_line), (*sites, None, None), (*positions, None, None), strict=False)
        calls, other_calls = (self._calls(*place) for place in places)
        finding = Finding(kind, line, message, other_line, block, thread, advice, count, array=array, calls=calls, other_calls=other_calls)
        key = (kind, line, other_line, array)
        known = self.found.get(key)
        if known is not None:
            self.found[key] = replace(known, count=known.count + count)
        elif len(self.found) < MAX_FINDINGS:
            self.found[key] = finding
        return finding

    def _calls(self, line: int | None, site: Site | None, position: int | None) -> tuple[int, ...]:
        """The lines that call the function which a line stands in, outwards; of a line alone, only where there is one way to it."""
        if site is not None:
            return site.calls
        if self.program is None or line is None:
            return ()
        return self.program.calls_at.get(line, ()) if position is None else _calls_of(self.program, position)

    def hint(self, sentence: str) -> None:
        """Note what may explain a wrong result."""
        if len(self.hints) < MAX_HINTS:
            self.hints[sentence] = None

    def merge(self, other: Findings) -> None:
        """Take in what another part of the launch found."""
        for key, finding in other.found.items():
            known = self.found.get(key)
            if known is not None:
                self.found[key] = replace(known, count=known.count + finding.count)
            elif len(self.found) < MAX_FINDINGS:
                self.found[key] = finding

    def list(self) -> list[Finding]:
        """The findings in order of discovery, if they were asked for."""
        return list(self.found.values()) if self.wanted else []

    def stop(self, message: str, line: int | None):
        """End the run: it cannot go on."""
        raise RunError(message, line, list(self.found.values()))


def for_block(m: Machine, advice: str) -> str:
    """Advice that names __syncthreads(), for the block of this launch: in one of a single warp, __syncwarp() is enough, and there are no
    others to think of."""
    return _OTHER_WARPS.sub("", advice).replace("__syncthreads()", "__syncwarp()") if m.threads <= WARP else advice


def at(line: int | None) -> str:
    """' at line 12' or ''."""
    return "" if line is None else f" at line {line}"


def place_of(program: LoadedKernel, position: int) -> str:
    """Where the instruction at a position stands: 'line 12', with the call that it was copied in for; '' where that is not known."""
    op = program.ops[position]
    if op.line is None:
        return ""
    calls = _calls_of(program, position)
    return f"line {op.line} ({called_from(calls, ())})" if calls else f"line {op.line}"


def _calls_of(program: LoadedKernel, position: int) -> tuple[int, ...]:
    """The lines that call the function which the instruction at a position stands in, outwards."""
    op = program.ops[position]
    return calls_outwards(program.chains(), op.ptx_line, op.instruction.called_from)
