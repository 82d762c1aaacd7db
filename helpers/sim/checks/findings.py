"""What a sanitizer would say, collected while a kernel runs.

The same thing is said once, however many threads do it: a finding is told apart by its kind, its lines and, where one line may be
wrong of several arrays, by the array; it carries the first thread seen as an example, and counts the rest.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from dataclasses import replace
from typing import TYPE_CHECKING

from helpers.errors import Finding, RunError, called_at

if TYPE_CHECKING:
    from helpers.sim.code.sites import Site

    from .protocols import LoadedKernel

MAX_FINDINGS = 100
MAX_HINTS = 2  # what comes later follows from them as a rule


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

    def __init__(self, wanted: bool = True):
        self.wanted = wanted
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
    ) -> Finding:
        """Note a finding and return it. advice: what to do; None for what its file advises. array: its name, where it is of one. sites:
        the accesses at `line` and at `other_line`, as far as they are known: of inline assembly in a function, the call is told."""
        advice = said("ADVISED").get(kind, "") if advice is None else advice
        call, other_call = (*(site and site.call for site in sites), None, None)[:2]
        finding = Finding(kind, line, message, other_line, block, thread, advice, count, array=array, call=call, other_call=other_call)
        key = (kind, line, other_line, array)
        known = self.found.get(key)
        if known is not None:
            self.found[key] = replace(known, count=known.count + count)
        elif len(self.found) < MAX_FINDINGS:
            self.found[key] = finding
        return finding

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


def at(line: int | None) -> str:
    """' at line 12' or ''."""
    return "" if line is None else f" at line {line}"


def place_of(program: LoadedKernel, position: int) -> str:
    """Where the instruction at a position stands: 'line 12', with the call that it was copied in for; '' where that is not known."""
    line, *calls = program.chains().get(program.ops[position].ptx_line) or (None,)
    if line is None:
        return ""
    return f"line {line} ({called_at(calls[0], '')})" if calls else f"line {line}"
