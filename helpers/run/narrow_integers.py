"""Whole numbers of 8 or 16 bits that a kernel counts or numbers with, where that is why a product is wrong: with int in place of one of
them it is right. It is tried, by compiling the source so, and not guessed from how it reads."""

from __future__ import annotations

import re
from collections.abc import Callable
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
    """Which number of few bits is why a product is wrong, as a sentence with a space before it; "" where none is, and where several are
    together. is_right: does this kernel, the same with int in place of one, compute the product?"""
    places = _places(kernel.source)[:_MOST]
    if not places:
        return ""
    own = kernel.compiled
    entry = own.requested if re.search("<|::", own.requested) else own.entry
    texts = [f"{own.source[: place.start()]}int{own.source[place.end() :]}" for place in places]
    ends = time_limit.now() + _SECONDS
    for place, made in zip(places, compile_each(texts, entry, own.arch, own.options), strict=True):
        if isinstance(made, CourseError) or time_limit.now() > ends:
            continue
        if is_right(Kernel(replace(made, constants=own.constants))):
            return f" {_said(own.source, place)}"
    return ""


def _said(source: str, place: re.Match[str]) -> str:
    line = source.count("\n", 0, place.start()) + 1
    bits = 8 if re.search("char|int8", place["name"]) else 16
    signed = "unsigned" not in (place["sign"], place["after"]) and not place["name"].startswith("u")
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    named = _NAMED.match(source, place.end())
    what = f"gives `{named[1]}` {bits} bits" if named else f"has a number of {bits} bits"
    return (
        f"Line {line}, “{quote(source, line)}”, {what}, which hold {least:,} to {most:,}: other numbers wrap around. "
        "With int there this shape is right: write int."
    )
