"""What a source says of a configuration before it is compiled: its static_asserts, judged by the compiler, and its geometry."""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helpers.errors import CourseError
from helpers.toolchain.compile import front_end
from helpers.toolchain.host_code import strip_comments

from .sweep import variant

_AT_ONCE = 24  # configurations that the compiler judges in one go; it gives up after 100 errors


@dataclass(frozen=True)
class Vetted:
    """A configuration before it is compiled: why the source refuses it (or ""), threads per block, the tile of C per
    block, the dynamic shared memory in bytes, and how many blocks share a tile."""

    constants: Mapping[str, int]
    refused: str = ""
    threads: int = 0
    tile: tuple[int, int] = (0, 0)
    shared: int = 0
    depth: int = 1


_FUNCTION = re.compile(r"^(?:extern\s+|static\s+|inline\s+)*(?:template\b|__global__|__device__|__forceinline__)[^=;{]*\(", re.M)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[^\n]*", re.M)
_NAME = re.compile(r"variant_(\d+)_\d+(block_shape|tile_shape|dynamic_shared|grid_depth)E$")


def vet(source: str, points: Sequence[Mapping[str, int]], arch: str = "sm_90") -> list[Vetted]:
    """Judge configurations by the source's own static_asserts, and read their geometry.

    The declarations above the first function are compiled once for many configurations, each in a namespace of its own:
    the compiler is the judge, and takes a second for a hundred. Raises CourseError if the source does not state
    block_shape and tile_shape there, or does not set one of the constants to a number.
    """
    first = _FUNCTION.search(strip_comments(source))
    head = source[: first.start()] if first else source
    for name in ("block_shape", "tile_shape"):
        if not re.search(rf"\b{name}\b", strip_comments(head)):
            raise CourseError(f"The kernel must state {name} above its first function, to be searched before it is compiled.")
    includes = "".join(f"{match[0]}\n" for match in _INCLUDE.finditer(head))
    body = re.sub(r'\bextern\s+"C"\s+', "extern ", _INCLUDE.sub("", head))  # a constant that is not extern may be left out
    virtual = arch.replace("sm_", "compute_")
    found: list[Vetted] = []
    for start in range(0, len(points), _AT_ONCE):
        found += _vet_some(includes, body, points[start : start + _AT_ONCE], virtual)
    return found


def _vet_some(includes: str, body: str, points: Sequence[Mapping[str, int]], arch: str) -> list[Vetted]:
    text, starts = _together(includes, body, points)
    messages = [item for item in front_end(text, arch)[0] if item.severity == "error" and item.line]
    if len(messages) > 90 and len(points) > 1:  # the compiler may have given up before the last of them
        middle = len(points) // 2
        return _vet_some(includes, body, points[:middle], arch) + _vet_some(includes, body, points[middle:], arch)
    said: dict[int, str] = {}
    for item in sorted(messages, key=lambda item: not item.message.startswith("static assertion")):  # the author's words first
        place = bisect.bisect_right(starts, item.line) - 1
        sentence = re.sub(r'^static assertion failed with "(.*)"$', r"\1", item.message)
        said.setdefault(place, f"line {item.line - starts[place]}: {sentence}")
    good = [place for place in range(len(points)) if place not in said]
    text, _ = _together(includes, body, [points[place] for place in good])
    messages, constants = front_end(text, arch) if good else ([], {})
    if messages:
        raise CourseError(f"The declarations above the first function do not compile alone: {messages[0].message}")
    values = {}
    for mangled, numbers in constants.items():
        if match := _NAME.search(mangled):
            values[good[int(match[1])], match[2]] = numbers
    found = []
    for place, point in enumerate(points):
        if place in said:
            found.append(Vetted(point, said[place]))
        else:
            shape, tile = values[place, "block_shape"], values[place, "tile_shape"]
            (shared,), (depth,) = (values.get((place, name), (default,)) for name, default in (("dynamic_shared", 0), ("grid_depth", 1)))
            found.append(Vetted(point, "", math.prod(shape), (tile[0], tile[1]), shared, depth))
    return found


def _together(includes: str, body: str, points: Sequence[Mapping[str, int]]) -> tuple[str, list[int]]:
    """All configurations in one source, and the line before each one's first."""
    text, starts = includes, []
    for place, point in enumerate(points):
        text += f"namespace variant_{place}_ {{\n"
        starts.append(text.count("\n"))
        text += variant(body, **point) + "\n}\n"
    return text, starts
