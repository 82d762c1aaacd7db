"""Exact rounding of rational numbers to floating-point formats, in plain Python.

This is the reference that instruction examples are compared with; it shares nothing with the array code.
"""

from __future__ import annotations

import math
from fractions import Fraction

# name -> (bits of precision with the hidden one, smallest normal exponent, largest exponent)
FORMATS = {
    "f16": (11, -14, 15),
    "bf16": (8, -126, 127),
    "f32": (24, -126, 127),
    "f64": (53, -1022, 1023),
    "tf32": (11, -126, 127),
}


def round_fraction(value: Fraction, kind: str, mode: str = "rn") -> float:
    """`value` rounded to format `kind` in mode rn (nearest even), rna (ties away), rz, rm or rp, as a float."""
    value = Fraction(value)
    if value == 0:
        return 0.0
    precision, low, high = FORMATS[kind]
    sign = -1 if value < 0 else 1
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    exponent = max(exponent, low)
    step = Fraction(2) ** (exponent - precision + 1)
    steps = math.floor(size / step)
    rest = size / step - steps
    if mode == "rn":
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and steps % 2 == 1)
    elif mode == "rna":
        up = rest >= Fraction(1, 2)
    elif mode == "rz":
        up = False
    else:
        up = rest > 0 and (sign > 0) == (mode == "rp")
    rounded = (steps + up) * step
    largest = (2 - Fraction(1, 2 ** (precision - 1))) * Fraction(2) ** high
    if rounded > largest:
        towards_zero = mode == "rz" or (mode == "rm" and sign > 0) or (mode == "rp" and sign < 0)
        return sign * (float(largest) if towards_zero else math.inf)
    return sign * float(rounded)


def round_float(value, kind: str, mode: str = "rn") -> float:
    """The same for a float or a Fraction; infinities, NaN and signed zeros pass."""
    if isinstance(value, float) and (value == 0 or not math.isfinite(value)):
        return value
    return round_fraction(Fraction(value), kind, mode)
