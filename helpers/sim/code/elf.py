"""Sections of a cubin, which is a 64-bit little-endian ELF file.

Forty lines instead of a library: sections by name and the places that relocations fill in are all that is asked of it.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass

_RELOCATIONS = {4: 24, 9: 16}  # types RELA and REL, bytes per entry


@dataclass(frozen=True)
class Section:
    """data: its bytes, in the file's order. relocated: offsets of the 8-byte words in it that the loader may fill in."""

    name: str
    data: bytes
    relocated: frozenset[int] = frozenset()


@functools.lru_cache(maxsize=8)
def sections(cubin: bytes) -> dict[str, Section]:
    """Sections by name; none if this is no ELF file."""
    if cubin[:4] != b"\x7fELF":
        return {}
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    # Per section: name, type, flags, address, offset, bytes, link, info, alignment, entry size.
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + k * size) for k in range(count)]

    def data(header) -> bytes:
        return cubin[header[4] : header[4] + header[5]]

    names = data(headers[names_index])
    relocated: dict[int, set[int]] = {}
    for header in headers:
        if step := _RELOCATIONS.get(header[1]):
            places = (struct.unpack_from("<Q", cubin, at)[0] for at in range(header[4], header[4] + header[5], step))
            relocated.setdefault(header[7], set()).update(places)
    found = {}
    for index, header in enumerate(headers):
        name = names[header[0] : names.index(b"\0", header[0])].decode()
        found[name] = Section(name, data(header), frozenset(relocated.get(index, ())))
    return found
