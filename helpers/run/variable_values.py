"""Values for a kernel's `__constant__` and `__device__` variables: what a program's main gives by cudaMemcpyToSymbol."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from helpers.errors import LaunchError
from helpers.sim.code import addresses
from helpers.sim.code.declarations import without_comments
from helpers.sim.layouts.struct_value import StructValue
from helpers.sim.load import load
from helpers.toolchain.compiled import Compiled
from helpers.toolchain.mangled import qualified_name

from .c_types import DTYPES
from .gpu.transfers import is_device_array, to_host
from .struct_arguments import is_array, other_size, struct

_FILLED = re.compile(r"\bcudaMemcpyToSymbol(?:Async)?\s*(?:<[^<>;]*>)?\s*\(\s*&?\s*([\w:]+)")
_ALIGNMENT = re.compile(r"\b(?:__align__|alignas)\s*\([^)]*\)")
_DECLARATION = re.compile(r"\b__(?P<space>constant|device|managed)__\s+(?P<what>[^;{}()=]*\w[^;{}()=]*)(?P<end>[;={])")
_QUALIFIERS = {"__constant__", "__device__", "__managed__", "static", "const", "constexpr", "extern", "volatile", "inline"}


class SymbolValue(NamedTuple):
    """Bytes for the beginning of one variable, or a struct with arrays. name: the compiled code's."""

    name: str
    data: bytes | StructValue

    @property
    def nbytes(self) -> int:
        return len(self.data.data if isinstance(self.data, StructValue) else self.data)


class _Variable(NamedTuple):
    """One that the kernel uses. symbol: the compiled code's name. name: the source's, with its namespaces."""

    symbol: str
    name: str
    nbytes: int


def given(compiled: Compiled, values: Mapping[str, Any] | None) -> tuple[SymbolValue, ...]:
    """What a launch's `symbols` says, as bytes. Raises LaunchError for what is no such variable, or no value of it.

    Of a source with several kernels, what it declares and this one does not use is left out: main fills the variables of all of them.
    """
    if values is None:
        return ()
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise LaunchError(f"symbols={values!r:.80}: give the variables by their names, such as symbols={{'mask': array}}.")
    variables = _variables(compiled) if values else []
    others = _of_other_kernels(compiled.source) - {one.name.rpartition("::")[2] for one in variables}
    wanted = [(_named(name, variables, compiled), value) for name, value in values.items() if name.rpartition("::")[2] not in others]
    found = tuple(SymbolValue(variable.symbol, _data(compiled, variable, value)) for variable, value in wanted)
    need_room(compiled, found)
    return found


def need_room(compiled: Compiled, symbols: Sequence[SymbolValue]) -> None:
    """Raise LaunchError for bytes that are more than their variable has."""
    sizes = {one.symbol: one for one in _variables(compiled)} if symbols else {}
    for one in symbols:
        variable = sizes.get(one.name, _Variable(one.name, one.name, 0))
        if one.nbytes > variable.nbytes:
            raise LaunchError(f"symbols[{variable.name!r}] has {one.nbytes:,} bytes, and the variable has {variable.nbytes:,}.")


def begun(compiled: Compiled, symbols: Sequence[SymbolValue]) -> tuple[str, ...]:
    """A sentence for each variable of which only the beginning is given."""
    given_bytes = {one.name: one.nbytes for one in symbols}
    return tuple(
        f"`{one.name}` has {one.nbytes:,} bytes and was given the first {given_bytes[one.symbol]:,}: the rest is as it was declared."
        for one in (_variables(compiled) if symbols else ())
        if given_bytes.get(one.symbol, one.nbytes) < one.nbytes
    )


def placed(symbols: Sequence[SymbolValue]) -> list[tuple[str, bytes]]:
    """The values as bytes, with an address of its own for each array."""

    def address(array: Any) -> int:
        number = next(index for index, other in enumerate(arrays) if other is array)
        return addresses.DEVICE_BASE + (1 << 44) + (number << 32) + (addresses.phase(array) if isinstance(array, np.ndarray) else 0)

    arrays = [array for one in symbols if isinstance(one.data, StructValue) for _, _, array in one.data.pointers]
    return [(one.name, one.data.pack(address) if isinstance(one.data, StructValue) else one.data) for one in symbols]


def forgotten(compiled: Compiled, values: Mapping[str, Any] | None) -> tuple[str, ...]:
    """A sentence for each variable the kernel uses that is zero because nobody has filled it: `__constant__` ones that the source gives no
    value, and those that its own main would fill."""
    filled, empty = _empty(compiled.source)
    told = []
    for variable in _variables(compiled) if filled | empty else ():
        names = {variable.name, variable.name.rpartition("::")[2]}
        if names & set(values or ()):
            continue
        if names & filled:
            told.append(f"`{variable.name}` is as it was declared: main, which does not run here, would fill it by cudaMemcpyToSymbol")
        elif names & empty:
            told.append(f"`{variable.name}` is all zeros: a kernel cannot write __constant__ memory, and nobody has filled it")
    return tuple(f"{text}. Pass its values: launch(…, symbols={{'{text.split('`')[1]}': array}})." for text in told)


@functools.lru_cache(maxsize=32)
def _empty(source: str) -> tuple[frozenset[str], frozenset[str]]:
    """(names that the source's main fills, `__constant__` variables that the source gives no value)"""
    filled = _FILLED.findall(without_comments(source))
    return frozenset(filled), frozenset(one.name for one in _declarations(source) if one.constant and not one.initialised)


def _variables(compiled: Compiled) -> list[_Variable]:
    program = load(compiled.ptx, compiled.symbol, compiled.filename)
    return [_Variable(symbol, qualified_name(symbol), nbytes) for symbol, _, nbytes, _ in program.device]


def _of_other_kernels(source: str) -> frozenset[str]:
    """The variables of a source with several kernels, each of which may use some of them; none of another source."""
    several = len(re.findall(r"\b__global__\b", without_comments(source))) > 1
    return frozenset(one.name for one in _declarations(source)) if several else frozenset()


def _named(name: str, variables: list[_Variable], compiled: Compiled) -> _Variable:
    found = [one for one in variables if name in (one.name, one.symbol)] or [one for one in variables if one.name.endswith(f"::{name}")]
    if len(found) == 1:
        return found[0]
    known = ", ".join(one.name for one in variables) or "none"
    if found:
        raise LaunchError(f"symbols names {name!r}, and there are {' and '.join(one.name for one in found)}: name it with its namespace.")
    raise LaunchError(f"symbols names {name!r}, and the __constant__ and __device__ variables that {compiled.entry} uses are: {known}.")


def _data(compiled: Compiled, variable: _Variable, value: Any) -> bytes | StructValue:
    what = f"symbols[{variable.name!r}]"
    kind = _declared(compiled.source, variable.name.rpartition("::")[2])
    if isinstance(value, bytes):
        return value
    if kind.endswith("*") and is_array(value):
        value = [value]
    if not (isinstance(value, (tuple, list)) and kind and kind not in DTYPES):
        return _bytes(what, kind, value)
    made = struct(what, variable.name, value)
    if isinstance(value, tuple) and len(made.data) != variable.nbytes:
        raise other_size(what, variable.nbytes, len(made.data))
    return made if made.pointers else made.data


def _bytes(what: str, kind: str, value: Any) -> bytes:
    """An array's bytes, or those of numbers as the declared type has them."""
    if isinstance(value, np.ma.MaskedArray):
        raise LaunchError(f"{what} is a masked array, and a kernel knows no mask: pass array.filled(0), or its .data.")
    expected = [np.dtype(item) for item in DTYPES.get(kind, ())]
    if isinstance(value, np.ndarray) or is_device_array(value):
        array = np.asarray(to_host(value))
        if array.dtype.hasobject:
            raise LaunchError(f"{what} is an array of Python objects ({array.dtype}), which a kernel cannot read: pass numbers.")
        if expected and array.dtype not in expected:
            raise LaunchError(f"{what} is of {kind}, and the array holds {array.dtype}. Pass array.astype('{expected[0].name}').")
        return array.tobytes()
    if not expected:
        raise LaunchError(
            f"{what} is {f'of {kind}' if kind else 'of a type that the source does not show'}: pass an array of its type, or its bytes."
            f"{' A struct is given as a tuple of its members, arrays among them.' if kind else ''}"
        )
    try:
        numbers = np.asarray(value)
    except ValueError:
        numbers = np.empty(0, object)
    if numbers.dtype.kind not in "biuf":
        raise LaunchError(f"{what} is of {kind}: pass an array, a number or a list of numbers, not {value!r:.60}.")
    with np.errstate(over="ignore", invalid="ignore"):
        found = numbers.astype(expected[0])
    if expected[0].kind in "biu" and not np.array_equal(found, numbers):
        raise LaunchError(f"{what} is of {kind}, which does not hold {numbers[found != numbers].flat[0]}.")
    return found.tobytes()


def _declared(source: str, name: str) -> str:
    """The type that the source declares a variable with, "" if that cannot be told without a compiler."""
    return next((one.kind for one in _declarations(source) if one.name == name), "")


class _Declared(NamedTuple):
    name: str
    kind: str
    constant: bool
    initialised: bool


def _declarations(source: str) -> Iterator[_Declared]:
    """The variables in device memory that a source declares, as well as can be told without a compiler."""
    for declaration in _DECLARATION.finditer(_ALIGNMENT.sub(" ", without_comments(source))):
        first, *others = (re.sub(r"\[[^\]]*\]", " ", part).split() for part in declaration["what"].split(","))
        kind = " ".join(word for word in first[:-1] if word not in _QUALIFIERS)
        names = [first[-1], *(part[0] for part in others if len(part) == 1)]
        for name in names:
            yield _Declared(name, kind, declaration["space"] == "constant", declaration["end"] != ";" and name == names[-1])
