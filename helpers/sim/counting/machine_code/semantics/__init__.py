"""What the SASS instructions of a slice do: a decorated handler for each."""

from . import cross_lane, floats, integers, moves, predicates
from .handlers import HANDLERS

__all__ = ["HANDLERS", "cross_lane", "floats", "integers", "moves", "predicates"]
