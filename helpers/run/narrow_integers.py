"""Whole numbers of 8 or 16 bits that a kernel counts or numbers with, where that is why a product is wrong: with int in place of one of
them, or of those of one line or one type, it is right. It is tried, by compiling the source so, and not guessed from how it reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from helpers.errors import CourseError, quote
from helpers.sim.code import time_limit
from helpers.toolchain.compile import compile_each
from helpers.toolchain.host_code import strip_comments

from .kernel import Kernel

_MOST = 12  # places of a source that are tried
_SECONDS = 12.0  # that trying them may begin in
_TYPE = re.compile(
    r"\b(?:(?P<sign>unsigned|signed)\s+)?(?P<name>char|short|ushort|uchar|u?int8_t|u?int16_t)\b(?:\s+(?P<after>unsigned|signed)\b)?(?:\s+int\b)?"
)
_NO_NUMBER = re.compile(r"\s*(?:const\b\s*)?(?:[*&\[]|\w+\s*\[)")  # a pointer, a reference, an array
_NAMED = re.compile(r"\s+(?:const\s+)?(\w+)")


def _places(source: str) -> list[re.Match[str]]:
    """Where the code of a source names a type of 8 or 16 bits of which it has a number: no array, and nothing that is pointed to."""
    code = strip_comments(source)
    return [found for found in _TYPE.finditer(code) if not _NO_NUMBER.match(code, found.end())]


def why_wrong(kernel: Kernel, is_right: Callable[[Kernel], bool]) -> str:
    """Which number of few bits is why a product is wrong, as a sentence with a space before it; "" where none is. is_right: does this
    kernel, the same with int in place of one or several, compute the product?"""
    places = _places(kernel.source)[:_MOST]
    if not places:
        return ""
    own = kernel.compiled
    entry = own.requested if re.search("<|::", own.requested) else own.entry
    together = _together(own.source, places)
    texts = [_with_int(own.source, some) for some in together]
    ends = time_limit.now() + _SECONDS
    for some, made in zip(together, compile_each(texts, entry, own.arch, own.options), strict=True):
        if isinstance(made, CourseError) or time_limit.now() > ends:
            continue
        if is_right(Kernel(replace(made, constants=own.constants))):
            return f" {_said(own.source, some)}"
    return ""


def _together(source: str, places: Sequence[re.Match[str]]) -> list[list[re.Match[str]]]:
    """Which places are tried at a time: each alone, then those of one line, as a number and the cast that it is made by, then those of one
    type."""
    lines, kinds = ([key(place) for place in places] for key in (lambda place: _line(source, place), lambda place: place[0]))
    several = [
        [place for place, of in zip(places, keys, strict=True) if of == key] for keys in (lines, kinds) for key in dict.fromkeys(keys)
    ]
    found = [*([place] for place in places), *(some for some in several if len(some) > 1)]
    return [some for at, some in enumerate(found) if some not in found[:at]]


def _with_int(source: str, places: Sequence[re.Match[str]]) -> str:
    """The source with int in these places."""
    for place in reversed(places):
        source = f"{source[: place.start()]}int{source[place.end() :]}"
    return source


def _line(source: str, place: re.Match[str]) -> int:
    return source.count("\n", 0, place.start()) + 1


def _said(source: str, places: Sequence[re.Match[str]]) -> str:
    place = places[0]
    others = sorted({_line(source, other) for other in places} - {_line(source, place)})
    more = f" and in line{'s' if len(others) > 1 else ''} {', '.join(map(str, others))}" if others else ""
    line = _line(source, place)
    bits = 8 if re.search("char|int8", place["name"]) else 16
    signed = "unsigned" not in (place["sign"], place["after"]) and not place["name"].startswith("u")
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    named = _NAMED.match(source, place.end())
    what = f"gives `{named[1]}` {bits} bits" if named else f"has a number of {bits} bits"
    return (
        f"Line {line}, “{quote(source, line)}”, {what}, which hold {least:,} to {most:,}: other numbers wrap around. "
        f"With int there{more} this shape is right: write int."
    )
