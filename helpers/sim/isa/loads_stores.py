"""Loads and stores in every state space.

A generic address is looked at first: as a rule all lanes of an access are in one space, and the access is then exactly
that of the space.
"""

from __future__ import annotations

import numpy as np

from helpers.sim.checks.accesses import Access, DeviceAccess, RemoteAccess
from helpers.sim.code.addresses import LOCAL_WINDOW, PARAM_WINDOW, RANK_SHIFT, SHARED_WINDOW, WINDOW_REACH
from helpers.sim.code.sites import AccessKind
from helpers.sim.machine.memory import RAW, scatter

from .base import DTYPES, SCOPES, instruction

I64 = np.dtype(np.int64)
SPACES = ("global", "shared", "local", "const", "param")


def space_of(op) -> str:
    """The state space in the opcode: 'generic' if it names none, 'cluster' for shared memory of any block of the cluster."""
    found = op.those(lambda part: part.split("::")[0] in SPACES)
    if not found:
        return "generic"
    if found[0] == "shared::cluster":
        op.loader.uses.add("cluster")
        return "cluster"
    return found[0].split("::")[0]


def address_of(op, i: int):
    """A function of the machine giving operand i's address as int64 array, the offset included."""
    index, offset = op.address(i)
    if index is None:
        constant = op.loader.constant_address(offset)

        def fixed(m):
            return m.regs[constant].view(I64)

        return fixed
    wide = op.loader.types[index]
    if DTYPES[wide].itemsize == 8:
        if not offset:

            def plain(m):
                return m.regs[index].view(I64)

            return plain
        step = np.int64(offset)

        def with_offset(m):
            return m.regs[index].view(I64) + step

        return with_offset
    step = np.int64(offset)

    def narrow(m):  # 32-bit shared addresses, as inline assembly uses them
        return m.regs[index].view(np.dtype(f"u{DTYPES[wide].itemsize}")).astype(I64) + step

    return narrow


def vector_count(op) -> int:
    return 4 if op.has("v4") else 2 if op.has("v2") else 8 if op.has("v8") else 1


def reader(space: str, site, t: str, count: int):
    """A function (m, addresses) -> list of `count` arrays of type t, one per vector element."""
    dtype = DTYPES[t]
    size = dtype.itemsize
    width = size * count
    shift = size.bit_length() - 1

    if space in ("global", "const"):

        def from_device(m, addresses):
            offsets, mask = m.memory.locate(m, site, addresses, width)
            if m.watching and space == "global":
                watch(m, site, space, addresses, mask)
            m.checks.device_read(m, DeviceAccess(site, offsets, mask, width))
            index = (offsets >> shift).astype(np.intp, copy=False)
            flat = m.memory.views[dtype]
            values = [flat.take(index, mode="wrap")]
            for k in range(1, count):
                values.append(flat[k:].take(index, mode="wrap"))
            return values if mask is m.mask else [_zero_outside(v, mask, m) for v in values]

        return from_device

    if space == "shared":

        def from_shared(m, offsets):
            shared = m.shared
            offsets, mask = shared.locate(m, site, offsets, width)
            if m.watching:
                watch(m, site, space, offsets, mask)
            m.checks.read(m, Access(site, offsets, mask, width))
            index = ((offsets >> shift) + shared.bases[size]).astype(np.intp, copy=False)
            flat = shared.views[dtype]
            values = [flat.take(index, mode="wrap")]
            for k in range(1, count):
                values.append(flat[k:].take(index, mode="wrap"))
            return values if mask is m.mask else [_zero_outside(v, mask, m) for v in values]

        return from_shared

    if space == "cluster":

        def from_cluster(m, addresses):
            rows, offsets = m.clusters.resolve(m, addresses)
            shared = m.shared
            offsets, mask = shared.locate(m, site, offsets, width)
            m.checks.read(m, RemoteAccess(site, rows, offsets, mask, width))
            index = ((offsets >> shift) + rows * (shared.stride // size)).astype(np.intp, copy=False)
            flat = shared.views[dtype]
            values = [flat[k:].take(index, mode="wrap") for k in range(count)]
            return values if mask is m.mask else [_zero_outside(v, mask, m) for v in values]

        return from_cluster

    def from_thread(m, offsets):
        memory = m.params if space == "param" else m.local
        offsets, mask = memory.locate(m, site, offsets, width, size)
        if m.watching and space == "local":
            watch(m, site, space, offsets, mask)
        values = [memory.load(m, offsets + k * size if k else offsets, size).view(dtype) for k in range(count)]
        return values if mask is m.mask else [_zero_outside(v, mask, m) for v in values]

    return from_thread


def _zero_outside(value, mask, m):
    """A refused read gives 0. Lanes that take no part at all may hold anything."""
    good = mask if m.mask is None else mask | ~m.mask
    return np.where(good, value, value.dtype.type(0))


def watch(m, site, space: str, addresses, mask):
    """Count and trace an access that goes to `space`; lanes that were refused do not count."""
    if mask is m.mask:
        m.observe(site, space, addresses)
        return
    whole = m.mask
    m.mask = mask
    m.observe(site, space, addresses)
    m.mask = whole


def writer(space: str, site, t: str, count: int):
    """A function (m, addresses, values) that stores `count` arrays of type t."""
    dtype = DTYPES[t]
    size = dtype.itemsize
    width = size * count
    shift = size.bit_length() - 1

    if space in ("global", "const"):

        def to_device(m, addresses, values):
            offsets, mask = m.memory.locate(m, site, addresses, width)
            if m.watching:
                watch(m, site, space, addresses, mask)
            flat, index = m.memory.views[dtype], offsets >> shift
            access = DeviceAccess(site, offsets, mask, width)
            before = m.checks.before_device_write(m, access, lambda: [flat[k:].take(index) for k in range(count)])
            scatter(flat, index, values, mask)
            access.changes, access.differ = lambda: _unlike(before, values), lambda: _overwritten(flat, index, values)
            m.checks.device_write(m, access)

        return to_device

    if space == "shared":

        def to_shared(m, offsets, values):
            shared = m.shared
            offsets, mask = shared.locate(m, site, offsets, width)
            if m.watching:
                watch(m, site, space, offsets, mask)
            index = (offsets >> shift) + shared.bases[size]
            flat = shared.views[dtype]
            scatter(flat, index, values, mask)
            access = Access(site, offsets, mask, width, lambda: _some(_overwritten(flat, index, values), mask))
            (m.checks.update if site.atomic else m.checks.write)(m, access)

        return to_shared

    if space == "cluster":

        def to_cluster(m, addresses, values):
            rows, offsets = m.clusters.resolve(m, addresses)
            shared = m.shared
            offsets, mask = shared.locate(m, site, offsets, width)
            scatter(shared.views[dtype], (offsets >> shift) + rows * (shared.stride // size), values, mask)
            m.checks.write(m, RemoteAccess(site, rows, offsets, mask, width))

        return to_cluster

    def to_thread(m, offsets, values):
        memory = m.params if space == "param" else m.local
        offsets, mask = memory.locate(m, site, offsets, width, size)
        if m.watching and space == "local":
            watch(m, site, space, offsets, mask)
        raw = RAW[size]
        for k, value in enumerate(values):
            memory.store(m, offsets + k * size if k else offsets, value.view(raw), size, mask)

    return to_thread


def _overwritten(flat, index, values):
    """The lanes of this store whose values another lane has overwritten with something else."""
    return _unlike([flat[k:].take(index) for k in range(len(values))], values)


def _unlike(held, values):
    """Per lane: does memory hold other bits than the lane's values?"""
    differs = np.zeros((), bool)
    for old, value in zip(held, values, strict=True):
        raw = RAW[value.dtype.itemsize]
        differs = differs | (old.view(raw) != value.view(raw))
    return differs


def _some(lanes, mask) -> bool:
    return bool((lanes if mask is None else lanes & mask).any())


def generic_parts(m, addresses):
    """[(space, addresses in it, mask or None)] of generic addresses."""
    if "cluster" not in m.program.uses:
        return _by_space(m, addresses)
    parts = []
    for space, local, mask in _by_space(m, addresses):
        remote = local >> RANK_SHIFT > 0 if space == "shared" else np.zeros(1, bool)
        if remote.all():
            parts.append(("cluster", local, mask))
        elif not remote.any():
            parts.append((space, local, mask))
        else:
            parts.append(("cluster", local, remote if mask is None else mask & remote))
            parts.append((space, local, ~remote if mask is None else mask & ~remote))
    return parts


_WINDOWS = (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW), ("param", PARAM_WINDOW))


def _by_space(m, addresses):
    low, high = int(np.minimum.reduce(addresses, axis=None)), int(np.maximum.reduce(addresses, axis=None))
    for space, window in _WINDOWS:
        if window - WINDOW_REACH <= low and high < window + WINDOW_REACH:
            return [(space, addresses - window, None)]
    if low >= SHARED_WINDOW + WINDOW_REACH or high < PARAM_WINDOW - WINDOW_REACH:
        return [("global", addresses, None)]
    active = m.project(m.mask, addresses.shape)
    parts = []
    rest = np.ones(addresses.shape, bool) if active is None else np.broadcast_to(active, np.broadcast_shapes(active.shape, addresses.shape))
    for space, window in _WINDOWS:
        inside = (addresses >= window - WINDOW_REACH) & (addresses < window + WINDOW_REACH) & rest
        if inside.any():
            parts.append((space, addresses - window, None if inside.all() else inside))
            rest = rest & ~inside
    if rest.any():
        parts.append(("global", addresses, None if rest.all() else rest))
    return parts


@instruction("ld")
def ld(op):
    """d = the bytes at [a], in global, shared, local, constant or parameter memory; generic addresses say which."""
    op.bitwise = True
    op.cached()
    op.without_effect(*SCOPES, "weak")
    t, count = op.type, vector_count(op)
    space = space_of(op)
    # operands
    address = address_of(op, 1)
    targets = [op.target(item, t) for item in op.vector(0)]
    if len(targets) != count:
        op.fail(f"loads {count} values into {len(targets)} registers")
    strong, volatile, past_l1 = op.has("acquire", "relaxed"), op.has("volatile", "mmio", "cv"), op.has("cg")
    relaxed, scoped = op.has("relaxed", "cta"), op.has("cluster")
    width = DTYPES[t].itemsize * count
    site = op.site(
        space, AccessKind.LOAD, width, strong=strong, volatile=volatile, relaxed=relaxed, within_cluster=scoped, past_l1=past_l1,
        read_only=op.has("nc"),
    )  # fmt: skip
    polls, acquires = strong or volatile or past_l1, op.has("acquire")
    # meaning
    if space == "generic":
        load = _generic_reader(site, t, count)
    else:
        load = reader(space, site, t, count)

    # result
    if count == 1 and not polls:
        (d,) = targets

        def run1(m):
            m.regs[d] = load(m, address(m))[0]

        return run1

    def run(m):
        looks = polls and (not past_l1 or site.index in m.program.decisive)
        if looks:
            m.polls += 1
        for d, value in zip(targets, load(m, address(m)), strict=True):
            m.regs[d] = value
        if acquires and not (scoped and m.alone):
            m.checks.acquire(m)
        if looks:
            m.checks.looked(m, site)

    return run


def _generic_reader(site, t, count):
    readers = {space: reader(space, site, t, count) for space in ("global", "shared", "cluster", "local", "param")}

    def load(m, addresses):
        result = None
        whole = m.mask
        for space, local, mask in generic_parts(m, addresses):
            if mask is None:
                return readers[space](m, local)
            m.mask = mask if whole is None else mask & whole
            try:
                values = readers[space](m, local)
            finally:
                m.mask = whole
            result = values if result is None else [np.where(mask, v, r) for v, r in zip(values, result, strict=True)]
        if result is None:
            zero = m.uniform(0, DTYPES[t])
            result = [zero] * count
        return result

    return load


@instruction("ldu")
def ldu(op):
    """d = the bytes at [a], which the program promises to be the same for all threads of a warp."""
    return ld(op)


@instruction("st")
def st(op):
    """[a] = b, in global, shared, local or parameter memory, or wherever a generic address points."""
    op.bitwise = True
    op.cached()
    op.without_effect(*SCOPES, "weak")
    t, count = op.type, vector_count(op)
    space = space_of(op)
    # operands
    address = address_of(op, 0)
    sources = [op.bind(item, t) for item in op.vector(1)]
    if len(sources) != count:
        op.fail(f"stores {count} values from {len(sources)} registers")
    strong, volatile = op.has("release", "relaxed"), op.has("volatile", "mmio")
    scoped = op.has("cluster")
    site = op.site(space, AccessKind.STORE, DTYPES[t].itemsize * count, strong=strong, volatile=volatile, within_cluster=scoped)
    dtype = DTYPES[t]
    # meaning
    if space == "generic":
        store = _generic_writer(site, t, count)
    else:
        store = writer(space, site, t, count)

    releases, within_block = op.has("release"), op.has("cta")
    if releases and within_block:
        op.loader.uses.add("block order")

    # result
    def run(m):
        if releases and within_block:
            m.checks.block_fence(m, False)
        elif releases and not (scoped and m.alone):
            m.checks.fence(m, False)
        store(m, address(m), [m.regs[s].view(dtype) for s in sources])

    return run


def _generic_writer(site, t, count):
    writers = {space: writer(space, site, t, count) for space in ("global", "shared", "cluster", "local", "param")}

    def store(m, addresses, values):
        whole = m.mask
        for space, local, mask in generic_parts(m, addresses):
            if mask is None:
                writers[space](m, local, values)
                continue
            m.mask = mask if whole is None else mask & whole
            try:
                writers[space](m, local, values)
            finally:
                m.mask = whole

    return store


@instruction("prefetch")
def prefetch(op):
    """A hint; it changes nothing."""
    op.hint()


@instruction("prefetchu")
def prefetchu(op):
    """A hint; it changes nothing."""
    op.hint()


@instruction("discard")
def discard(op):
    """A hint; it changes nothing."""
    op.hint()


@instruction("applypriority")
def applypriority(op):
    """A hint; it changes nothing."""
    op.hint()


@instruction("createpolicy")
def createpolicy(op):
    """d = a cache policy, which the machine's memory does not have."""
    op.pure()
    op.hint()
    d = op.result(0, "b64")

    def run(m):
        m.regs[d] = m.uniform(0, np.uint64)

    return run
