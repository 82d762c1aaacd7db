"""Atomic operations on global and shared memory: atom (with the old value) and red (without).

Threads of one instruction take their turns in the order of block and thread. The hardware's order is not specified, so
a kernel must not depend on it; floating-point sums do depend on it in their last bits.
"""

from __future__ import annotations

import numpy as np

from helpers.sim.checks.accesses import Access, DeviceAccess, RemoteAccess
from helpers.sim.code.sites import AccessKind
from helpers.sim.machine.memory import RAW

from . import numerics
from .base import DTYPES, SCOPES, instruction
from .floating import _choose, packed
from .loads_stores import address_of, generic_parts, space_of, vector_count, watch
from .numerics import F16, F64, U16, bfloat_to_float, flush

_OPERATIONS = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")


def _half_add(a, b):
    return numerics.double_to_half(a.astype(F64) + b.astype(F64))


def _bfloat_add(a, b):
    return numerics.double_to_bfloat(numerics.odd_sum(bfloat_to_float(a).astype(F64), bfloat_to_float(b).astype(F64)))


def _bfloat_extreme(smaller):
    choose = _choose(smaller, False, False)
    return lambda a, b: numerics.float_to_bfloat(choose(bfloat_to_float(a), bfloat_to_float(b)), "rz")


def _new_value(name: str, t: str, space: str):
    """(what is stored, given the old value and the operands; a ufunc that does the same in bulk, or None)."""
    if name in ("min", "max") and t in ("f16", "f16x2", "bf16", "bf16x2", "f32"):
        if t.startswith("bf16"):
            function = _bfloat_extreme(name == "min")
        else:
            function = _choose(name == "min", False, False)
        if t.endswith("x2"):
            function = packed(function, F16 if t == "f16x2" else U16)
        return function, None
    if name == "add" and t in ("f16", "f16x2"):
        return (packed(_half_add, F16) if t == "f16x2" else _half_add), None
    if name == "add" and t in ("bf16", "bf16x2"):
        return (packed(_bfloat_add, U16) if t == "bf16x2" else _bfloat_add), None
    if name == "add" and t == "f32" and space == "global":
        # Units in the memory partitions add float32 and flush denormals.
        return (lambda a, b: numerics.canonical(flush(flush(a) + flush(b)))), None
    bulk = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }
    if name in bulk:
        return bulk[name], bulk[name] if t not in ("f32", "f64") else None
    if name == "exch":
        return (lambda old, b: b), None
    if name == "inc":
        return (lambda old, b: np.where(old >= b, np.uint32(0), old + np.uint32(1))), None
    if name == "dec":
        return (lambda old, b: np.where((old == 0) | (old > b), b, old - np.uint32(1))), None
    return (lambda old, b, c: np.where(old == b, c, old)), None


def _turns(flat, places, operands, function, keep_old):
    """Apply `function` to flat[places], lanes with the same place one after the other. Returns the old values."""
    order = np.argsort(places, kind="stable")
    sorted_places = places[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_places[1:] != sorted_places[:-1]]))
    lengths = np.diff(np.concatenate([starts, [len(places)]]))
    old = np.empty(len(places), flat.dtype) if keep_old else None
    ordered = [x[order] for x in operands]
    for turn in range(int(lengths.max())):
        now = starts[lengths > turn] + turn
        where = sorted_places[now]
        before = flat[where]
        if keep_old:
            old[order[now]] = before
        flat[where] = function(before, *(x[now] for x in ordered))
    return old


def _joined(words, dtype):
    """128-bit values of their two halves."""
    whole = np.empty(len(words[0]), dtype)
    whole["low"], whole["high"] = words
    return whole


def _atomic(op, has_result: bool):
    name = op.one_of(*_OPERATIONS)
    t, space = op.type, space_of(op)
    op.cached()
    op.without_effect(*SCOPES, "noftz")  # halves keep denormals anyway
    count = vector_count(op)
    pair = t == "b128"  # two registers of 64 bits, see the loader
    part = "b64" if pair else t
    if pair and (name not in ("exch", "cas") or not all(len(op.vector(i)) == 2 for i in range(len(op.operands)) if i != 1)):
        op.unknown()
    # operands
    first = 1 if has_result else 0
    address = address_of(op, first)
    vectors = [[op.bind(item, part) for item in op.vector(first + 1)]]
    if name == "cas":
        vectors.append([op.bind(item, part) for item in op.vector(first + 2)])
    targets = [op.target(item, part) for item in op.vector(0)] if has_result else []
    dtype = DTYPES[t]
    size = dtype.itemsize
    kind = AccessKind.ATOMIC if has_result else AccessKind.REDUCTION
    within_block, rechecks = op.has("cta"), name in ("cas", "min", "max", "and", "or")
    relaxed = op.has("relaxed", "release") or within_block  # atomicAdd() says neither, and much is built on it as if it acquired
    scoped = op.has("cluster")
    site = op.site(space, kind, size * count, rechecks=rechecks, within_block=within_block, within_cluster=scoped, relaxed=relaxed)
    unit = min(size, 8)
    raw, shift = RAW[unit], unit.bit_length() - 1
    acquires, releases = op.has("acquire", "acq_rel"), op.has("release", "acq_rel")
    if releases and within_block:
        op.loader.uses.add("block order")

    # meaning
    def in_space(m, where, addresses):
        function, bulk = _new_value(name, t, where)
        if where == "global":
            offsets, mask = m.memory.locate(m, site, addresses, size * count)
            flat = m.memory.views[raw]
            index = offsets >> shift
        elif where == "shared":
            offsets, mask = m.shared.locate(m, site, addresses, size * count)
            flat = m.shared.views[raw]
            index = (offsets >> shift) + m.shared.bases[unit]
        elif where == "cluster":
            rows, offsets = m.clusters.resolve(m, addresses)
            offsets, mask = m.shared.locate(m, site, offsets, size * count)
            flat = m.shared.views[raw]
            index = (offsets >> shift) + rows * (m.shared.stride // unit)
            m.checks.update(m, RemoteAccess(site, rows, offsets, mask, size * count))
        else:
            op.fail(f"works on {where} memory, where atomics make no sense")
        if m.watching and where != "cluster":
            watch(m, site, where, addresses, mask)
        if where == "shared":
            m.checks.update(m, Access(site, offsets, mask, size * count))
        elif where == "global":
            m.checks.device_update(m, DeviceAccess(site, offsets, mask, size * count))
        lanes = None if mask is None else m.rows_of(mask).reshape(-1)
        places = m.rows_of(index).reshape(-1)
        places = (places if lanes is None else places[lanes]) // (size // unit)
        results = []
        for k in range(count):
            operands = []
            for vector in vectors:
                words = [m.rows_of(m.regs[index].view(raw)).reshape(-1) for index in (vector if pair else vector[k : k + 1])]
                x = words[0].view(dtype) if not pair else _joined(words, dtype)
                operands.append(x if lanes is None else x[lanes])
            typed = flat.view(dtype)
            if not len(places):
                old = np.empty(0, dtype)
            elif not has_result and bulk is not None:
                bulk.at(typed, places + k, operands[0])
                continue
            else:
                old = _turns(typed, places + k, operands, function, has_result)
            if has_result:
                full = np.zeros(m.lanes, dtype)
                if lanes is None:
                    full[:] = old
                else:
                    full[lanes] = old
                results += [m.from_rows(x.reshape(m.blocks, m.threads)) for x in ((full["low"], full["high"]) if pair else (full,))]
        return results

    # result
    def run(m):
        m.polls += 1
        alone = scoped and m.alone
        if releases and within_block:
            m.checks.block_fence(m, acquires)
        elif releases and not alone:
            m.checks.fence(m, acquires)
        addresses = address(m)
        if space != "generic":
            results = in_space(m, space, addresses)
        else:
            results, whole = None, m.mask
            for where, local, mask in generic_parts(m, addresses):
                if mask is not None:
                    m.mask = mask if whole is None else mask & whole
                try:
                    part = in_space(m, where, local)
                finally:
                    m.mask = whole
                results = part if results is None or mask is None else [np.where(mask, n, o) for n, o in zip(part, results, strict=True)]
        for target, value in zip(targets, results or (), strict=bool(targets) and results is not None):
            m.regs[target] = value
        if acquires and not alone:
            m.checks.acquire(m)
        if has_result:
            m.checks.looked(m, site)

    return run


@instruction("atom")
def atom(op):
    """d = [a], and [a] = the operation's result, in one step."""
    return _atomic(op, True)


@instruction("red")
def red(op):
    """[a] = the operation's result."""
    return _atomic(op, False)
