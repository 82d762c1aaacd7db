"""Which element a bad address in device memory would be, of the array that the access starts from, and what explains such a number."""

from __future__ import annotations

from helpers.sim.code.addresses import DEVICE_BASE
from helpers.sim.code.sites import Site

from .device_arrays import ANY, arrays_of
from .protocols import Machine

LEAST = -(1 << 31)  # where an int goes on after its largest number
LARGE = 1 << 28  # no wrong row or column misses an array by so many elements
NEAR = 1 << 20  # bytes: as far as an index that is a little wrong misses its array
OVERFLOWED = (
    f"An index so far below 0 comes from an int that overflowed, as a rule: after {-LEAST - 1} it goes on at {LEAST}. "
    "Compute it in size_t or long long, from the first factor on."
)
BELOW_ZERO = (
    "Is the index an unsigned int? Below 0 that goes on at 4294967295, and it would be {0} here. "
    "Compare before you subtract, or compute it in int. (An unsigned division by 0 gives 4294967295, too.)"
)


def start_of(m: Machine, site: Site, allocations):
    """The allocation that the address of an access is computed from, if that is known and one alone; else None."""
    origins = arrays_of(m.program).get(site.index, frozenset({ANY}))
    if ANY in origins:
        return None
    words, found = m.launch.param_words, {}
    for origin in origins:
        address = origin if origin >= DEVICE_BASE else words.get(origin // 4, 0) | words.get(origin // 4 + 1, 0) << 32
        there = [one for one in allocations if one.base == address] or [one for one in allocations if 0 < address - one.base < one.nbytes]
        if there:  # a parameter of 64 bits need not be a pointer
            found[address] = max(there, key=lambda one: one.nbytes)
    return next(iter(found.values())) if len(found) == 1 else None


def place_of(allocation, distance: int, elements: bool) -> str:
    """What lies `distance` bytes from the beginning of an array. elements: is the size of its elements known?"""
    index, rest = divmod(distance, allocation.itemsize)
    if elements and not rest:
        return f"at element {index} of {allocation.name}, which has {allocation.nbytes // allocation.itemsize} elements"
    if distance < 0:
        return f"that lie {-distance} bytes before {allocation.name}"
    return f"that lie {distance - allocation.nbytes} bytes past the end of {allocation.name}"


def advice_on(distance: int, units: set[int]) -> str | None:
    """How 32-bit arithmetic comes to an access `distance` bytes from the beginning of an array, if it does. units: bytes that its index
    may count."""
    for unit in sorted(units, reverse=True):
        if LEAST - NEAR // unit <= distance // unit <= -LARGE:
            return OVERFLOWED
        meant = distance + 2 * LEAST * unit
        if -NEAR <= meant < 0 and not meant % unit:
            return BELOW_ZERO.format(meant // unit)
    return None
