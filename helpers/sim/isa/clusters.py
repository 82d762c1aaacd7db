"""Thread block clusters: the cluster's barrier, addresses in other blocks' shared memory, asynchronous remote stores."""

from __future__ import annotations

import numpy as np

from helpers.sim.checks import out_of_bounds
from helpers.sim.checks.accesses import RemoteAccess
from helpers.sim.code.addresses import RANK_SHIFT, SHARED_WINDOW
from helpers.sim.code.program import Effect
from helpers.sim.code.sites import AccessKind
from helpers.sim.machine.copies import MBarrier
from helpers.sim.machine.memory import RAW

from .atomic import _new_value, _turns
from .base import DTYPES, instruction
from .loads_stores import address_of, vector_count

I64, U32 = np.dtype(np.int64), np.dtype(np.uint32)


@instruction("barrier.cluster.arrive")
def barrier_cluster_arrive(op):
    """Say that this thread has come, and go on: cluster.barrier_arrive()."""
    op.loader.uses.add("cluster")
    op.effect, op.opclass = Effect.BARRIER, "BAR"
    op.without_effect("release")  # without .relaxed it releases
    position, releases, aligned = op.position, not op.has("relaxed"), op.has("aligned")
    return lambda m: m.cluster_arrive(position, releases, aligned)


@instruction("barrier.cluster.wait")
def barrier_cluster_wait(op):
    """Wait until all threads of the cluster that still run have arrived."""
    op.loader.uses.add("cluster")
    op.effect, op.opclass = Effect.BARRIER, "BAR"
    op.without_effect("aligned", "acquire")  # it always acquires
    line = op.line
    op.terminator = lambda place, following: lambda m: m.cluster_wait(following, line)


@instruction("mapa")
def mapa(op):
    """d = the address in the shared memory of the cluster's block b that corresponds to address a in one's own."""
    op.loader.uses.add("cluster")
    # operands
    t, shared = op.type, op.has("shared::cluster")
    a, b = op.source(1, t), op.source(2, "u32")
    d = op.result(0, t)
    dtype, line = DTYPES[t], op.line

    # meaning
    def run(m):
        addresses, rank = m.regs[a].astype(I64), m.regs[b].view(U32).astype(I64)
        bad = rank >= m.clusters.size
        if m.mask is not None:
            bad = bad & m.mask
        if bad.any():
            out_of_bounds.no_such_block(m, line, rank, bad)
        base = 0 if shared else SHARED_WINDOW
        # result
        m.regs[d] = (m.clusters.address(rank, addresses - base) + base).astype(dtype)

    return run


@instruction("getctarank")
def getctarank(op):
    """d = the rank in the cluster of the block in whose shared memory address a lies."""
    op.loader.uses.add("cluster")
    op.without_effect("shared::cluster")  # the rank is in the same bits of a generic address
    a, d = op.source(1, op.type), op.result(0, "u32")

    def run(m):
        rank = ((m.regs[a].astype(I64) & ((1 << RANK_SHIFT + 8) - 1)) >> RANK_SHIFT) - 1
        m.regs[d] = np.where(rank < 0, m.clusters.rank[m.block_index], rank).astype(U32)

    return run


# --- asynchronous stores ---------------------------------------------------------------------------------------------


def mbarriers_at(m, rows, offsets, mask):
    """Yield (mbarrier, rows [n], lanes [n]) for mbarriers in shared memory of any block of the cluster.

    rows: the chunk's row of the block that each lane addresses; mask: lanes that take part (None: all). Per mbarrier offset, what
    is yielded are the rows addressed and the lanes that do so, as positions in the flattened [blocks, threads].
    """
    barriers = m.asynchronous.setdefault("barriers", {})
    where, places = m.rows_of(rows).reshape(-1), m.rows_of(offsets).reshape(-1)
    lanes = np.arange(m.lanes) if mask is None else np.flatnonzero(m.rows_of(mask).reshape(-1))
    for offset in np.unique(places[lanes]).tolist():
        mine = lanes[places[lanes] == offset]
        if offset not in barriers:
            barriers[offset] = MBarrier.new(m.blocks)
        yield barriers[offset], where[mine], mine


def _remote_store(op, update):
    """Operands [a], b, [mbarrier]: like a store to the block that a points into, which counts the bytes at its mbarrier."""
    op.loader.uses |= {"cluster", "cp.async"}
    op.without_effect("weak", "relaxed", "cluster", "shared::cluster", "mbarrier::complete_tx::bytes")  # there is no other way
    op.lands = True
    t, count = op.type, vector_count(op)
    dtype = DTYPES[t]
    size = dtype.itemsize
    address, barrier_at = address_of(op, 0), address_of(op, 2)
    sources = [op.bind(item, t) for item in op.vector(1)]
    site = op.site("cluster", AccessKind.REDUCTION if update else AccessKind.STORE, size * count)
    line, raw, shift = op.line, RAW[size], size.bit_length() - 1

    def run(m):
        shared = m.shared
        rows, offsets = m.clusters.resolve(m, address(m))
        its_rows, its_offsets = m.clusters.resolve(m, barrier_at(m))
        offsets, mask = shared.locate(m, site, offsets, size * count)
        apart = rows != its_rows if mask is None else (rows != its_rows) & mask
        if apart.any():
            m.fail("the mbarrier of an asynchronous store must lie in the block that it stores to, and this one lies in another.", line)
        (m.checks.update if update else m.checks.write)(m, RemoteAccess(site, rows, offsets, mask, size * count))
        flat_rows, flat_offsets = m.rows_of(rows).reshape(-1), m.rows_of(offsets).reshape(-1)
        values = [m.rows_of(m.regs[source].view(raw)).reshape(-1) for source in sources]
        for barrier, targets, lanes in mbarriers_at(m, its_rows, its_offsets, mask):
            if (barrier.expected[targets] <= 0).any():
                m.fail("a store announces itself at an mbarrier that nobody has initialised.", line)
            m.checks.phase_helped(m, barrier, targets, lanes)

            def arrive(m, barrier=barrier, targets=targets, lanes=lanes):
                index = (flat_offsets[lanes] >> shift) + flat_rows[lanes] * (m.shared.stride // size)
                for k, value in enumerate(values):
                    flat = m.shared.views[raw]
                    if update is None:
                        flat[index + k] = value[lanes]
                    else:
                        _turns(flat.view(dtype), index + k, [value[lanes].view(dtype)], update, False)
                np.subtract.at(barrier.bytes, targets, size * count)
                m.checks.remote_store_landed(m, RemoteAccess(site, flat_rows[lanes], flat_offsets[lanes], None, size * count))

            barrier.attached.append(arrive)

    return run


@instruction("st.async")
def st_async(op):
    """[a] = b in another block's shared memory, announced there at an mbarrier when it has come."""
    return _remote_store(op, None)


@instruction("red.async")
def red_async(op):
    """[a] = the operation's result in another block's shared memory, announced there at an mbarrier."""
    name = op.one_of("add", "min", "max", "and", "or", "xor", "inc", "dec")
    return _remote_store(op, _new_value(name, op.type, "shared")[0])
