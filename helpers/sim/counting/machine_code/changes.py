"""How the results of an instruction change from one trip of a loop to the next, given how its operands do.

A rule is called before its instruction is executed and gives, for each register that changes, by how much: an exact number
for values that stay within 32 bits, which the trip sees to. A predicate may not change at all; a rule bounds the trips for which
that is so (`trip.hold`, `trip.window`), or raises Unsteady. Rules are only asked where an operand changes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from helpers.sim.code.sass_operands import SassAddress, SassPredicate, SassRegister

from .semantics.handlers import split_sources, without_sign
from .semantics.moves import narrow_bits
from .values import LOW, known, signed


class Unsteady(Exception):
    """The trips of a loop differ by more than constants, or nobody knows."""


RULES: dict[str, Callable] = {}

NONE = np.zeros((1, 1, 1, 1), np.int64)


def rule(*opcodes: str):
    def register(function):
        RULES.update(dict.fromkeys(opcodes, function))
        return function

    return register


def of(trip, operand, k: int = 0) -> np.ndarray:
    """How the 32-bit pattern of a source operand changes."""
    if not isinstance(operand, SassRegister) or operand.zero:
        return NONE
    change = trip.change(operand.name(k))
    if change is NONE or not operand.sign:
        return change
    if operand.sign not in ("-", "~"):
        raise Unsteady(f"a magnitude changes: {operand}")
    return -change


def of_pair(trip, operand) -> np.ndarray:
    """The same of 64 bits."""
    return of(trip, operand) + (of(trip, operand, 1) << 32)


def stays(*changes) -> bool:
    return not any(change.any() for change in changes)


def _register(i, change, k: int = 0) -> dict[str, np.ndarray]:
    """The change of the result, as that of a 32-bit number that does not wrap."""
    for operand in i.results:
        if isinstance(operand, SassRegister):
            return {} if operand.zero else {operand.name(k): signed(change)}
    return {}


def _carries(i) -> bool:
    return any(isinstance(r, SassPredicate) and r.name != "T" for r in i.results)


def _pair(trip, i, total, change, mask) -> dict[str, np.ndarray]:
    """The change of a 64-bit result, whose upper half stays."""
    trip.window(total, change, 32, mask)
    return _register(i, change)


@rule("IADD3", "UIADD3", "VIADD", "UVIADD", "IADD")
def _sum(trip, i, mask):
    launch = trip.run
    values, predicates = split_sources(i)
    if "64" in i.modifiers:
        total, change = np.int64(0), NONE
        for operand in values:
            low, high = launch.read_pair(without_sign(operand))
            if not known(low, high):
                return {}
            factor = -1 if "-" in getattr(operand, "sign", "") else 1
            total, change = total + factor * (low | high << 32), change + factor * of_pair(trip, without_sign(operand))
        return _pair(trip, i, total, change, mask)
    terms = [launch.read(v) for v in values]
    carries = [launch.condition(p) for p in predicates] if "X" in i.modifiers else []
    if not known(*terms, *carries):
        return {}
    change = sum(of(trip, v) for v in values)
    if _carries(i):
        trip.window(sum(terms) + sum(c.astype(np.int64) for c in carries), change, 32, mask)
    return _register(i, change)


@rule("IMAD", "UIMAD")
def _product(trip, i, mask):
    launch = trip.run
    values, predicates = split_sources(i)
    if "MOV" in i.modifiers:
        return _register(i, of(trip, values[-1]))
    a, b = launch.read(values[0]), launch.read(values[1])
    by_a, by_b = of(trip, values[0]), of(trip, values[1])
    if not stays(by_a * by_b):
        raise Unsteady("both factors change")
    if not i.has("WIDE", "HI"):
        if not known(a, b, launch.read(values[2])):
            return {}
        return _register(i, ((by_a & LOW) * (b & LOW) + (by_b & LOW) * (a & LOW) & LOW) + of(trip, values[2]))
    low, high = launch.read_pair(without_sign(values[2]))
    carry = launch.condition(predicates[-1]) if "X" in i.modifiers else np.zeros((1, 1, 1, 1), bool)
    if not known(a, b, low, high, carry):
        return {}
    negative = "-" in getattr(values[2], "sign", "")
    addend, change = low | high << 32, of_pair(trip, without_sign(values[2]))
    if "U32" in i.modifiers:
        a, b = a & LOW, b & LOW
    else:
        for value, by in ((a, by_a), (b, by_b)):
            trip.window(value & LOW, by, 31, mask)
        a, b = signed(a), signed(b)
    if _carries(i):
        raise Unsteady("a carry of 64 bits")
    total = a * b + (-addend if negative else addend) + carry
    change = by_a * b + a * by_b + (-change if negative else change)
    if "WIDE" in i.modifiers:
        return _pair(trip, i, total, change, mask)
    trip.window(total, change, 32, mask)
    return {}


@rule("LEA", "ULEA")
def _shifted_sum(trip, i, mask):
    launch = trip.run
    values, predicates = split_sources(i)
    high = "HI" in i.modifiers
    if high and "SX32" not in i.modifiers:
        top, shift = values[2], values[3]
    else:
        top, shift = None, values[2]
    if not stays(of(trip, shift)):
        raise Unsteady("the distance of a shift changes")
    a, b, bits = launch.read(values[0]), launch.read(values[1]), launch.read(shift)
    upper = None if top is None else launch.read(top)
    carry = launch.condition(predicates[-1]) if "X" in i.modifiers else np.zeros((1, 1, 1, 1), bool)
    if not known(a, b, bits, carry) or (top is not None and upper is None):
        return {}
    by_a, by_b, bits = of(trip, values[0]), of(trip, values[1]), bits & 31
    if not stays(by_a) or (top is not None and not stays(of(trip, top))):
        if bits.size > 1:
            raise Unsteady("shifts by different distances")
        distance = int(bits.item())
        if high:
            if top is not None and not stays(of(trip, top)):
                raise Unsteady("the upper half of a shifted number changes")
            trip.window(a & LOW, by_a, min(31, 32 - distance), mask)
            by_a = NONE
        else:
            by_a = by_a << distance
            trip.hold((a & LOW) << distance & LOW, by_a, 0, LOW, mask)
    change = by_a + by_b
    if _carries(i):
        if high and not stays(by_b):
            raise Unsteady("a carry of an upper half")
        if not high:
            trip.window(((a & LOW) << bits & LOW) + b + carry, change, 32, mask)
    return _register(i, change)


@rule("MOV", "UMOV", "R2UR")
def _move(trip, i, mask):
    source = i.sources[0]
    if i.name == "R2UR" and of(trip, source).size > 1:
        raise Unsteady("lanes change apart")
    changes = _register(i, of(trip, source))
    return changes | _register(i, of(trip, source, 1), 1) if "64" in i.modifiers else changes


@rule("SEL", "USEL")
def _select(trip, i, mask):
    values, predicates = split_sources(i)
    which = trip.run.condition(predicates[0])
    if which is None:
        return {}
    return _register(i, np.where(which, of(trip, values[0]), of(trip, values[1])))


@rule("ISETP", "UISETP")
def _comparison(trip, i, mask):
    """Less, equal or greater: that stays."""
    launch = trip.run
    values, _ = split_sources(i)
    a, b = launch.read(values[0]), launch.read(values[1])
    if not known(a, b):
        return {}
    a, b, by_a, by_b = a & LOW, b & LOW, of(trip, values[0]), of(trip, values[1])
    for value, by in ((a, by_a), (b, by_b)):
        # The sign of a signed number stays; '-' of a number that reaches 0 would not be its pattern any more.
        trip.window(value, by, 32 if "U32" in i.modifiers else 31, mask)
    if "U32" not in i.modifiers:
        a, b = signed(a), signed(b)
    difference = a - b
    far = np.int64(1) << 40
    low = np.where(difference > 0, 1, np.where(difference < 0, -far, 0))
    high = np.where(difference > 0, far, np.where(difference < 0, -1, 0))
    trip.hold(difference, by_a - by_b, low, high, mask)
    return {}


@rule("SHF", "USHF")
def _shift(trip, i, mask):
    """A shift of one word: to the left, or to the right of what changes by whole units, or stays but for the bits shifted out."""
    launch = trip.run
    values, _ = split_sources(i)
    low, shift, high = (launch.read(v) for v in values[:3])
    if not known(low, shift, high):
        return {}
    by_low, by_high = of(trip, values[0]), of(trip, values[2])
    if not stays(of(trip, values[1])) or shift.size > 1 or i.has("U64", "S64"):
        raise Unsteady("a shift that nobody follows")
    distance = int(shift.item()) & (31 if "W" in i.modifiers else LOW)
    if distance > 31:
        raise Unsteady("a shift that nobody follows")
    if "L" in i.modifiers:
        if "HI" not in i.modifiers:
            return _register(i, by_low << distance)
        raise Unsteady("a shift that nobody follows")
    if "HI" not in i.modifiers or not stays(by_low):
        raise Unsteady("a shift that nobody follows")
    if "S32" in i.modifiers:
        trip.window(high & LOW, by_high, 31, mask)
    if (by_high % (1 << distance)).any():  # then only what stays is left
        trip.window(high & LOW, by_high, distance, mask)
        return {}
    return _register(i, by_high >> distance)


@rule("LDC", "ULDC", "LDCU", "SHFL", "VOTE", "VOTEU")
def _unfollowed(trip, i, mask):
    raise Unsteady(f"{i} is not followed")


@rule("STL")
def _store_local(trip, i, mask):
    place, data = trip.run.stack_word(i), i.sources[-1]
    if trip.moves(i.addressing):
        raise Unsteady("the place of a spilled value changes")
    narrow = narrow_bits(i)
    words = 1 if narrow else i.width // 4
    if place is None or not words or i.index in trip.run.program.in_parts:
        return {}
    if i.index in trip.run.program.over_words:
        raise Unsteady("a part of a spilled value changes")
    if narrow and (value := trip.run.read(data)) is not None:
        trip.window(value & (1 << narrow) - 1, of(trip, data), narrow, mask)
    return {f"stack+{place + 4 * k}": of(trip, data, k) for k in range(words)}


@rule("LDL")
def _load_local(trip, i, mask):
    place = trip.run.stack_word(i)
    if trip.moves(i.addressing):
        raise Unsteady("the place of a spilled value changes")
    narrow = narrow_bits(i)
    if place is None or i.index in trip.run.program.in_parts:
        return {}
    if narrow and (value := trip.run.lookup(f"stack+{place}")) is not None:  # the sign of a signed number stays
        trip.window(value & (1 << narrow) - 1, trip.change(f"stack+{place}"), narrow - bool(i.has("S8", "S16")), mask)
    changes = {}
    for k in range(max(1, i.width // 4)):
        changes |= _register(i, trip.change(f"stack+{place + 4 * k}"), k)
    return changes


def of_address(trip, place: SassAddress, mask) -> np.ndarray:
    """How an address changes."""
    total = NONE
    for part in place.parts:
        change = trip.change(part.name())
        if ".64" in part.suffix:
            change = change + (trip.change(part.name(1)) << 32)
        elif not stays(change):
            trip.window(trip.run.lookup(part.name()), change, 31, mask)
        total = total + change * part.scale * (-1 if part.sign == "-" else 1)
    return total
