"""Values that cross the lanes of a warp."""

from __future__ import annotations

import numpy as np

from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sass_operands import SassRegister
from helpers.sim.counting.machine_code.values import LOW, TRUE, known, modified

from .handlers import meaning_of, set_bits, set_carries, set_register

HEARS_OF_OTHERS = frozenset({"VOTE", "VOTEU", "ELECT", "SHFL"})  # what they give a lane depends on other lanes


@meaning_of("R2UR")
def _to_uniform(launch, i, mask):
    """R2UR: the value of the warp's first active lane; a predicate tells the lanes that hold another one, for which what
    needs the value is done again."""
    value = mine = launch.read(i.sources[0])
    if value is None and not launch.jumps:  # others of a warp need not know it, and all of it hears
        value = mine = _known_to_the_first(launch, i.sources[0], mask)
    certain = LOW
    if value is None:
        certain, bits = launch.read_bits(i.sources[0])
        value = mine = bits if certain else None
    if value is not None and value.shape[-1] > 1:
        rows = launch.by_warp(value)
        if mask is None:
            chosen = rows[..., :1]
        else:
            active = np.broadcast_to(launch.by_warp(mask), np.broadcast_shapes(launch.by_warp(mask).shape, rows.shape))
            rows = np.broadcast_to(rows, active.shape)
            chosen = np.take_along_axis(rows, active.argmax(axis=-1)[..., None], axis=-1)
        shape = (*chosen.shape[:3], launch.lanes)
        value = np.broadcast_to(chosen, (*chosen.shape[:4], launch.warp)).reshape(shape)
    whole = mask
    if mask is not None and not launch.jumps:
        whole = launch.per_warp(np.broadcast_to(mask, (*mask.shape[:3], launch.lanes)), np.any)
    if value is None or certain == LOW:
        set_register(launch, i, value, whole)
    else:
        set_bits(launch, i, certain, value, whole)
    set_carries(launch, i, (None if value is None or certain != LOW else mine != value,), mask)


def _known_to_the_first(launch, operand, mask):
    """What a register holds, if the first active lane of each warp knows it, else None."""
    name = operand.name() if isinstance(operand, SassRegister) and not operand.zero else ""
    if name not in launch.values or launch.known[name] is None:
        return None
    given = [TRUE if one is None else one for one in (mask, launch.known[name])]
    everywhere = np.broadcast_shapes(*(one.shape for one in given), launch.values[name].shape, (1, 1, 1, launch.lanes))
    active, lanes = (np.broadcast_to(one, everywhere) for one in given)
    active, lanes = launch.by_warp(active), launch.by_warp(lanes)
    first = np.take_along_axis(lanes, active.argmax(axis=-1)[..., None], axis=-1)[..., 0]
    if not (first | ~active.any(axis=-1)).all():
        return None
    return modified(np.broadcast_to(launch.values[name], everywhere), operand.sign)


@meaning_of("VOTE", "VOTEU")
def _vote(launch, i, mask):
    """VOTE.ANY / .ALL of a predicate over the active lanes; VOTE.ANY with a register gives the ballot."""
    condition = launch.condition(i.sources[0]) if i.sources else None
    if condition is None:
        set_register(launch, i, None, mask)
        set_carries(launch, i, (None,), mask)
        return
    if mask is None:
        active = TRUE if launch.lanes == launch.threads else (np.arange(launch.lanes) < launch.threads).reshape(1, 1, 1, -1)
    else:
        active = mask
    full = np.broadcast_shapes(condition.shape, active.shape, (1, 1, 1, launch.lanes))
    yes = np.broadcast_to(condition & active, full)
    ballot = (launch.by_warp(yes) << np.arange(WARP, dtype=np.int64)).sum(axis=-1, keepdims=True)
    ballot = np.broadcast_to(ballot, (*ballot.shape[:4], WARP)).reshape(full)
    if "ALL" in i.modifiers:
        test = launch.per_warp(np.broadcast_to(condition | ~active, full), np.all)
    elif "EQ" in i.modifiers:
        test = launch.per_warp(np.broadcast_to(condition | ~active, full), np.all) | ~launch.per_warp(yes, np.any)
    else:
        test = launch.per_warp(yes, np.any)
    set_register(launch, i, _shrunk(ballot), mask)
    set_carries(launch, i, (_shrunk(test),), mask)


def _shrunk(array):
    """One element if all are equal: most votes are unanimous."""
    first = array[:1, :1, :1, :1]
    return first if (array == first).all() else array


@meaning_of("ELECT")
def _elect(launch, i, mask):
    active = np.broadcast_to(
        TRUE if mask is None else mask, np.broadcast_shapes((1, 1, 1, launch.lanes), TRUE.shape if mask is None else mask.shape)
    )
    rows = launch.by_warp(active)
    first = np.broadcast_to(rows.argmax(axis=-1)[..., None], rows.shape)
    chosen = (np.arange(WARP) == first) & rows
    set_carries(launch, i, (chosen.reshape(active.shape),), mask)
    set_register(launch, i, None, mask)


@meaning_of("SHFL")
def _shuffle(launch, i, mask):
    """SHFL of a known value. Lanes that are not active keep the sender's value out of use, as on hardware."""
    value, amount, clamp = (launch.read(s) for s in i.sources[:3])
    set_carries(launch, i, (None,), mask)
    if not known(value, amount, clamp) or amount.size > 1 or clamp.size > 1:
        set_register(launch, i, None, mask)
        return
    if value.shape[-1] == 1:
        set_register(launch, i, value, mask)
        return
    lane, amount, clamp = np.arange(WARP), int(amount.item()), int(clamp.item())
    segment, limit = clamp >> 8 & 31, clamp & 31
    lowest = lane & segment
    highest = lowest | (limit & ~segment)
    if "IDX" in i.modifiers:
        source = lowest | (amount & 31 & ~segment)
        valid = source <= highest
    elif "UP" in i.modifiers:
        source = lane - (amount & 31)
        valid = source >= highest
    elif "DOWN" in i.modifiers:
        source = lane + (amount & 31)
        valid = source <= highest
    else:
        source = lane ^ (amount & 31)
        valid = source <= highest
    source = np.where(valid, source, lane)
    rows = launch.by_warp(value)
    set_register(launch, i, _shrunk(np.take(rows, source, axis=-1).reshape(value.shape)), mask)
