"""Sections of a cubin, which is a 64-bit little-endian ELF file.

A page instead of a library: sections by name, the places that relocations fill in, and those of variables are all that is asked of it.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

_RELOCATIONS = {4: 24, 9: 16}  # types RELA and REL, bytes per entry
_IN_FILE, _SYMBOLS = 1, 2  # types PROGBITS and SYMTAB


@dataclass(frozen=True)
class Section:
    """data: its bytes, in the file's order. relocated: offsets of the 8-byte words in it that the loader may fill in."""

    name: str
    data: bytes
    relocated: frozenset[int] = frozenset()


@functools.lru_cache(maxsize=8)
def sections(cubin: bytes) -> dict[str, Section]:
    """Sections by name; none if this is no ELF file."""
    headers = _headers(cubin)
    if not headers:
        return {}
    names = _data(cubin, headers[struct.unpack_from("<H", cubin, 0x3E)[0]])
    relocated: dict[int, set[int]] = {}
    for header in headers:
        if step := _RELOCATIONS.get(header.kind):
            places = (struct.unpack_from("<Q", cubin, at)[0] for at in range(header.offset, header.offset + header.nbytes, step))
            relocated.setdefault(header.info, set()).update(places)
    found = {}
    for index, header in enumerate(headers):
        name = _text(names, header.name)
        found[name] = Section(name, _data(cubin, header), frozenset(relocated.get(index, ())))
    return found


def with_values(cubin: bytes, values: Iterable[tuple[str, bytes]]) -> bytes:
    """The same with other bytes at the beginnings of these variables, by name, where the file has their initial values: it has those of
    `__constant__` variables, and those of others that are not zero. Names that it does not have change nothing."""
    changed, headers, places = bytearray(cubin), _headers(cubin), {}
    for table in headers:
        if table.kind == _SYMBOLS:
            names = _data(cubin, headers[table.link])
            for at in range(table.offset, table.offset + table.nbytes, table.step):
                name, _, _, index, value, _ = struct.unpack_from("<IBBHQQ", cubin, at)
                if index < len(headers) and headers[index].kind == _IN_FILE:
                    places[_text(names, name)] = headers[index].offset + value
    for name, data in values:
        if name in places:
            changed[places[name] : places[name] + len(data)] = data
    return bytes(changed)


class _Header(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    nbytes: int
    link: int
    info: int
    alignment: int
    step: int


def _headers(cubin: bytes) -> list[_Header]:
    if cubin[:4] != b"\x7fELF":
        return []
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count = struct.unpack_from("<HH", cubin, 0x3A)
    return [_Header(*struct.unpack_from("<IIQQQQIIQQ", cubin, table + k * size)) for k in range(count)]


def _data(cubin: bytes, header: _Header) -> bytes:
    return cubin[header.offset : header.offset + header.nbytes]


def _text(names: bytes, at: int) -> str:
    return names[at : names.index(b"\0", at)].decode()
