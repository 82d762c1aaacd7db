"""Instructions that end the whole launch: a trap, a failed assertion, a call of nothing. If one is executed, the NumPy machine runs the
launch and says why.
"""

from __future__ import annotations

from .declined import Unsupported
from .dispatch import operation

_CALLS = ("call.nothing", "call.__assertfail")


@operation("trap", "call")
def _stop(low, i):
    if i.name == "call" and i.opcode not in _CALLS:
        raise Unsupported(f"`{i.opcode}`")
    low.demand(low.new(f"icmp eq i32 {low._executing()}, 0"))
