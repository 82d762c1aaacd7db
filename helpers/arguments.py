"""What a reader gives to a call, before it is taken for what the call wants."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any


def is_whole(value: Any) -> bool:
    """Is it a whole number, of Python or NumPy? A truth value is none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def listed(value: Any) -> tuple[Any, ...] | None:
    """What a list or the like holds; None for what is none: a number, a text, a dictionary."""
    if isinstance(value, str | bytes | Mapping):
        return None
    try:
        items = iter(value)
    except TypeError:
        return None
    return tuple(items)
