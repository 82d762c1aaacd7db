"""What the SASS instructions of a slice do: a decorated handler for each."""

from . import cross_lane, doubles, floats, integers, moves, predicates, waits
from .floats import ARITHMETIC
from .handlers import HANDLERS

__all__ = ["ARITHMETIC", "HANDLERS", "cross_lane", "doubles", "floats", "integers", "moves", "predicates", "waits"]
