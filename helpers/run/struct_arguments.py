"""Tuples and lists given for structs and tables of pointers: their bytes, and the arrays that they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from helpers.errors import LaunchError
from helpers.sim.layouts.struct_value import StructValue, laid_out

from .gpu.transfers import is_device_array


def is_array(value: Any) -> bool:
    return (isinstance(value, np.ndarray) and value.ndim > 0) or is_device_array(value)


def struct(what: str, name: str, members: Sequence[Any]) -> StructValue:
    """A struct of these members, of which `what` begins the message. Raises LaunchError where they cannot be any."""
    try:
        data, _, pointers = laid_out(members, is_array, name)
    except TypeError as error:
        raise LaunchError(f"{what} is a struct, and a member of it is a number, an array, None or bytes, not {error}.") from None
    except OverflowError as error:
        raise LaunchError(f"{what}: {error} does not fit into an int of 32 bits. Write np.int64({error}) for a long long.") from None
    for member, _, array in pointers:
        if array.dtype.hasobject or not array.flags.c_contiguous:
            problem = "holds Python objects" if array.dtype.hasobject else "is not contiguous: pass numpy.ascontiguousarray(…)"
            raise LaunchError(f"{what}: the array {member} {problem}.")
    return StructValue(data, tuple(pointers))


def other_size(what: str, nbytes: int, found: int) -> LaunchError:
    """What to raise where a struct's members make other than its bytes."""
    return LaunchError(
        f"{what} is a struct of {nbytes} bytes, and these members make {found}: int and float are 4 bytes each, an array "
        "is 8. Write NumPy numbers for other types, such as np.int64(n) or np.float64(x)."
    )


def by_value(what: str, name: str, members: Sequence[Any], nbytes: int) -> Any:
    """A struct parameter of this size. A struct without members has a byte. Raises LaunchError where they do not make one."""
    value = struct(what, name, members)
    data = value.data or bytes(nbytes == 1)
    if len(data) != nbytes:
        raise other_size(what, nbytes, len(data))
    return value if value.pointers else np.frombuffer(data, np.dtype((np.void, nbytes)))[0]


def table(what: str, name: str, arrays: Sequence[Any]) -> StructValue:
    """A table of pointers: one for each array or None."""
    if not all(member is None or is_array(member) for member in arrays):
        raise LaunchError(f"{what} points to pointers: pass a list of arrays, one for each.")
    value = struct(what, name, arrays)
    return StructValue(value.data, value.pointers, by_pointer=True)
