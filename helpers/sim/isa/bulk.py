"""Bulk copies, Hopper's tensor memory accelerator: one thread has a stretch of memory or a box of a tensor copied.

A copy to shared memory announces its bytes at an mbarrier, and lands when somebody looks there; one from shared memory
belongs to a group that its thread commits and waits for. Loads and stores alike read their source at once. Tensors are
copied in tile mode and not interleaved; im2col, gather4 and scatter4 are refused.

What is counted, and how, is what an H200 counted (tests/sim/counting/test_bulk_counters.py): instructions, and the sectors that pass
between L2 and the SM, row by row of a box. Not counted are the L2's own sectors, which depend on what is under way at the same
time, and shared memory's side, which no counter of the load-store unit sees.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from helpers.sim.checks import misaligned, out_of_bounds
from helpers.sim.checks.accesses import BulkDeviceAccess, PieceAccess
from helpers.sim.code.addresses import DEVICE_BASE, LOCAL_WINDOW, PARAM_WINDOW, WINDOW_BYTES
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.ptx import Address, Vector
from helpers.sim.code.sites import AccessKind
from helpers.sim.layouts.swizzle import SPAN, swizzle
from helpers.sim.layouts.tensor_map import NBYTES, Tensor
from helpers.sim.machine.copies import Arrival, BulkGroups
from helpers.sim.machine.memory import RAW

from .atomic import _new_value
from .base import DTYPES, instruction
from .loads_stores import address_of
from .mbarrier import BYTES, active_lanes, barrier_at, of_lanes, shared_places
from .numerics import canonical

I32, I64, U16, U32 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint16), np.dtype(np.uint32)

CHUNK = 16  # bytes that are copied and swizzled as one
MOST_AT_ONCE = 1 << 22  # bytes copied by one pass through NumPy
_REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
# The element types of tensor maps as PTX types, for reductions.
_PTX_TYPES = {
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "int32": "s32", "uint64": "u64", "int64": "s64", "float16": "f16",
    "float32": "f32", "float64": "f64", "bfloat16": "bf16", "float32_ftz": "f32", "tf32": "f32", "tf32_ftz": "f32",
}  # fmt: skip
# What tensors can be reduced: the hardware stops at other element types, whatever PTX accepts.
_REDUCIBLE = {
    "add": ("uint32", "int32", "uint64", "float16", "bfloat16", "float32", "float32_ftz", "tf32", "tf32_ftz", "float64"),
    **dict.fromkeys(("min", "max"), ("uint32", "int32", "uint64", "int64", "float16", "bfloat16")),
    **dict.fromkeys(("inc", "dec"), ("uint32",)), **dict.fromkeys(("and", "or", "xor"), ("uint32", "int32", "uint64")),
}  # fmt: skip


# --- where things are ------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Piece:
    """Parts of shared memory, one per copy. rows: [n] blocks of the chunk. offsets: [n] where they begin. nbytes: copied each.

    tensor: whose box they hold, row after row and swizzled; None for plain bytes. inside: [n, nbytes / CHUNK], which chunks
    matter, because they hold elements of the tensor; None for all.
    """

    rows: np.ndarray
    offsets: np.ndarray
    nbytes: int
    tensor: Tensor | None = None
    inside: np.ndarray | None = None
    _units: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    def units(self, size: int) -> np.ndarray:
        """[n, nbytes / size]: offsets of units of `size` (at most 16) bytes, in the order in which they are copied."""
        if size not in self._units:
            self._units[size] = self._places(size)
        return self._units[size]

    def _places(self, size: int) -> np.ndarray:
        places = np.arange(0, self.nbytes, size)
        if self.tensor is None:
            return self.offsets[:, None] + places
        row, pitch = self.tensor.row, self.tensor.pitch
        return swizzle(self.offsets[:, None] + (places // row * pitch + places % row), self.tensor.swizzle)

    def of(self, chosen: np.ndarray) -> Piece:
        """The parts of the copies `chosen`, their places in order."""
        if len(chosen) == len(self.rows):
            return self
        inside = None if self.inside is None else self.inside[chosen]
        return Piece(self.rows[chosen], self.offsets[chosen], self.nbytes, self.tensor, inside)

    def index(self, m, size: int) -> np.ndarray:
        """The same as positions in `m.shared.views` of that size."""
        return (self.units(size) + self.rows[:, None] * m.shared.stride) >> (size.bit_length() - 1)

    def checked(self, m, site, lanes, align: int) -> Piece:
        """This, if it lies within shared memory at multiples of `align`; else a finding, and the run stops."""
        end, mode = self.offsets + self.nbytes, None
        if self.tensor is not None and self.tensor.swizzle is not None:
            mode = self.tensor.swizzle
            end = -(-(self.offsets + self.nbytes // self.tensor.row * self.tensor.pitch) // SPAN[mode]) * SPAN[mode]
        misaligned.by_bulk_copy(
            m, site, lanes, self.offsets % align != 0,
            lambda i: f"A bulk copy to or from address {self.offsets[i]:#x} of shared memory, which is not a multiple of {align}.",
            f"Declare the buffer with alignas({1024 if mode == '128B' else 128}), and begin each copy in it at a multiple of that.",
        )  # fmt: skip
        out_of_bounds.by_bulk_copy(
            m, site, lanes, (self.offsets < m.shared.start) | (end > m.shared.end),
            lambda i: f"A bulk copy of {self.nbytes} bytes at offset {self.offsets[i] - m.shared.start} of shared memory, "
            f"which has {m.shared.size} bytes per block.",
        )  # fmt: skip
        return self


def _global(m, site, lanes, addresses: np.ndarray, nbytes: np.ndarray) -> np.ndarray:
    """[n] offsets in device memory of stretches of bytes that are all within an allocation; else a finding, and the run stops."""
    memory = m.memory
    offsets = addresses - DEVICE_BASE
    misaligned.by_bulk_copy(
        m, site, lanes, offsets % CHUNK != 0,
        lambda i: f"A bulk copy to or from address {addresses[i]:#x}{misaligned.byte_in(memory.allocations, addresses[i])}, which is not a "
        "multiple of 16.",
    )  # fmt: skip
    where = np.searchsorted(memory.starts, offsets, side="right") - 1

    out_of_bounds.by_bulk_copy(
        m, site, lanes, (where < 0) | (offsets + nbytes > memory.ends[where]),
        lambda i: f"A bulk copy of {nbytes[i]} bytes {out_of_bounds.of_a_stretch(memory.allocations, int(offsets[i]), int(nbytes[i]))}.",
    )  # fmt: skip
    return offsets


def _sizes(m, site, lanes, register) -> np.ndarray:
    """[n] byte counts of copies, which must be multiples of 16."""
    nbytes = of_lanes(m, m.regs[register].view(U32), lanes).astype(np.int64)
    misaligned.by_bulk_copy(
        m, site, lanes, nbytes % CHUNK != 0, lambda i: f"A bulk copy of {nbytes[i]} bytes, which is not a multiple of 16.",
        "Copy a multiple of 16 bytes, and the rest by ordinary loads.",
    )  # fmt: skip
    return nbytes


def _tensor_at(op, i: int):
    """A function of the machine: operand i `[map, {coordinates}]` -> [(Tensor, lanes [n], coordinates [n, rank])]."""
    operand = op.operand(i)
    if not isinstance(operand, Address) or len(operand.coordinates) != 1 or not isinstance(operand.coordinates[0], Vector):
        op.fail("needs a tensor map and coordinates in brackets")
    address = address_of(op, i)
    registers = [op.bind(item, "s32") for item in operand.coordinates[0].items]
    line, rank = op.line, len(registers)
    op.one_of(f"{rank}d")

    def tensors(m, lanes):
        known = m.asynchronous.setdefault("tensors", {})
        addresses = of_lanes(m, address(m), lanes)
        coordinates = np.stack([of_lanes(m, m.regs[register].view(I32), lanes).astype(np.int64) for register in registers], axis=1)
        found = []
        for place in np.unique(addresses).tolist():
            data = _map_bytes(m, place, line)
            tensor = known.get(data)
            if tensor is None:
                tensor = known[data] = Tensor.unpack(data)
            if tensor is None and not any(data):
                m.fail(
                    "this tensor map is 128 zero bytes: none can be made of a matrix that is empty, whose first byte or rows lie at no "
                    "multiple of 16 bytes, or, to be stored to, whose rows end at none. Look at its address, leading dimension and "
                    "columns first, and use ordinary loads and stores there.",
                    line,
                )
            if tensor is None:
                m.fail("these 128 bytes are no tensor map. Pass helpers.tensor_map(array, box) as the argument.", line)
            if tensor.rank != rank:
                m.fail(f"the copy gives {rank} coordinates, and the tensor map has {tensor.rank} dimensions.", line)
            mine = addresses == place
            found.append((tensor, lanes[mine], coordinates[mine]))
        return found

    return tensors


def _map_bytes(m, address: int, line) -> bytes:
    """The 128 bytes at a generic address."""
    if address % 64:
        m.fail("a tensor map must lie at a multiple of 64 bytes: declare the parameter as CUtensorMap.", line)
    if PARAM_WINDOW <= address < PARAM_WINDOW + WINDOW_BYTES:
        known = m.asynchronous.setdefault("maps", {})  # parameters do not change
        if address not in known:
            first = (address - PARAM_WINDOW) // 4
            words = [m.params.load(m, np.int64(4 * k).reshape((1,) * m.nd), 4) for k in range(first, first + NBYTES // 4)]
            known[address] = b"".join(int(word.reshape(-1)[0]).to_bytes(4, "little") for word in words)
        return known[address]
    offset = address - DEVICE_BASE
    if 0 <= offset <= m.memory.size - NBYTES:
        return m.memory.bytes[offset : offset + NBYTES].tobytes()
    if LOCAL_WINDOW <= address < LOCAL_WINDOW + WINDOW_BYTES:
        m.fail(
            "the tensor map is a copy in local memory, where the copy engine cannot read it: "
            "declare the parameter `const __grid_constant__ CUtensorMap`.", line)  # fmt: skip
    m.fail("a tensor map must be a kernel parameter, or lie in constant or global memory.", line)


# --- boxes of tensors ------------------------------------------------------------------------------------------------


def _unit(tensor: Tensor, elements: bool) -> int:
    """Bytes that are moved as one: 8 unless rows end elsewhere or somebody looks at the elements. (Boxes begin at multiples of 16.)"""
    return tensor.itemsize if elements or tensor.shape[0] * tensor.itemsize % 8 else 8


def _check_corners(m, site, tensor: Tensor, lanes, corners, stored: bool = False) -> None:
    """Along dimension 0 a box begins at a multiple of 16 bytes, and one that is stored at no negative coordinate, or the hardware stops."""
    if stored:
        out_of_bounds.by_bulk_copy(
            m, site, lanes, (corners < 0).any(axis=1),
            lambda i: f"A bulk copy stores a box that begins at the negative coordinates {tuple(corners[i].tolist())}.",
            "A load may begin before the tensor, a store must not: begin at 0 and take a smaller box.",
        )  # fmt: skip
    first = corners[:, 0] * tensor.itemsize
    misaligned.by_bulk_copy(
        m, site, lanes, first % CHUNK != 0,
        lambda i: f"A box begins {first[i]} bytes along the innermost dimension (coordinate {corners[i, 0]}), "
        "which is not a multiple of 16.",
        f"Begin at a multiple of {CHUNK // tensor.itemsize} elements and take a larger box.",
    )  # fmt: skip


def _box(tensor: Tensor, corners: np.ndarray, size: int, stored: bool = False):
    """(offsets in device memory [n, units], which of them are inside the tensor, or None for all), in units of `size` bytes.

    corners: [n, rank], the coordinates of the boxes' first elements. stored: rows end where the hardware stops to store,
    which is after whole chunks of 16 bytes.
    """
    per = max(1, size // tensor.itemsize)  # elements per unit
    first = corners[:, 0] * tensor.itemsize // size
    position = first[:, None] + np.arange(tensor.counts[0] // per)
    offsets = position * size + (tensor.address - DEVICE_BASE)
    end = tensor.shape[0] * tensor.itemsize
    inside = (position >= 0) & (position < (-(-end // CHUNK) * CHUNK if stored else end) // size)
    for i in range(1, tensor.rank):
        position = corners[:, i, None] + np.arange(tensor.counts[i]) * tensor.steps[i]
        fits = (position >= 0) & (position < tensor.shape[i])
        n = len(corners)
        offsets = (offsets[:, None, :] + (position * tensor.strides[i - 1])[:, :, None]).reshape(n, -1)
        inside = (inside[:, None, :] & fits[:, :, None]).reshape(n, -1)
    return offsets, None if inside.all() else inside


def _note_overhang(m, site, tensor: Tensor, lanes, corners) -> None:
    """Note stores that write beyond the rows of the tensor, because these end within a chunk of 16 bytes."""
    rest = -tensor.shape[0] * tensor.itemsize % CHUNK
    over = corners[:, 0] + tensor.counts[0] > tensor.shape[0]
    over &= corners[:, 0] < tensor.shape[0]
    if not rest or not over.any():
        return
    out_of_bounds.beyond_the_rows(m, site, tensor.shape[0] * tensor.itemsize, rest, lanes, over)


NAN = 0x7FF7  # twice, or four times: what a load puts outside the tensor if that is to be NaN; one in every float type
_CHANGED = ("tf32", "tf32_ftz")  # elements that are not loaded as they are


def _as_read(tensor: Tensor, values: np.ndarray) -> np.ndarray:
    """What the copy engine makes of elements on their way to shared memory."""
    if tensor.kind in _CHANGED:  # to the nearest, ties to even, in 10 bits behind the point
        special = values & 0x7FFFFFFF
        values = (values + U32.type(0xFFF) + (values >> U32.type(13) & U32.type(1))) & U32.type(0xFFFFE000)
        values = np.where(special > 0x7F800000, U32.type(0x7FFFE000), values)
    return values


# --- copies to shared memory -----------------------------------------------------------------------------------------


def _targets(op, first: int, barrier: int, mask: int | None):
    """A function (m, lanes) giving where the lanes' copies go: [(positions in lanes [n], rows [n], offsets [n], barrier offsets [n])].

    One entry, or with a CTA mask one for each member of the cluster.
    """
    places, barriers = shared_places(op, first, "the destination of a bulk copy"), shared_places(op, barrier, "the mbarrier of a bulk copy")
    masks = None if mask is None else op.source(mask, "u16")
    if masks is not None:
        op.loader.uses |= {"cluster", "multicast"}
    line = op.line

    def targets(m, lanes):
        rows, offsets = (of_lanes(m, part, lanes) for part in places(m))
        its_rows, its_offsets = (of_lanes(m, part, lanes) for part in barriers(m))
        if len(outside := its_offsets[(its_offsets < m.shared.start) | (its_offsets > m.shared.end - BYTES)]):
            m.fail(
                f"the mbarrier of a bulk copy lies at offset {int(outside[0]) - m.shared.start} of shared memory, and a block has "
                f"{m.shared.end - m.shared.start} bytes of it.", line,
            )  # fmt: skip
        if masks is None:
            if (rows != its_rows).any():
                m.fail("the destination of a bulk copy and its mbarrier lie in different blocks.", line)
            return [(np.arange(len(lanes)), rows, offsets, its_offsets)]
        named = of_lanes(m, m.regs[masks].view(U16), lanes).astype(np.int64)
        strange = named[named >> m.clusters.size != 0]
        if len(strange):
            m.fail(f"the CTA mask {int(strange[0]):#x} names a block that the cluster of {m.clusters.size} does not have.", line)
        found = []
        for rank in range(m.clusters.size):
            chosen = np.flatnonzero(named >> rank & 1)
            found.append((chosen, m.clusters.rows[lanes[chosen] // m.threads, rank], offsets[chosen], its_offsets[chosen]))
        return found

    return targets


def _land_later(m, site, lanes, piece: Piece, barriers: np.ndarray, size: int, values: np.ndarray, change=None) -> None:
    """Have values [n, units of `size` bytes] written to shared memory when somebody looks at their mbarriers.

    change: function (old, new) instead of a plain write, for reductions.
    """
    m.checks.copy_started(m, PieceAccess(site, piece, lanes))
    for offset in np.unique(barriers).tolist():
        mine = np.flatnonzero(barriers == offset)
        barrier = barrier_at(m, offset)
        if (barrier.expected[piece.rows[mine]] <= 0).any():
            m.fail("a bulk copy announces itself at an mbarrier that nobody has initialised.", site.line)

        m.checks.phase_helped(m, barrier, piece.rows[mine], lanes[mine])

        def land(m, chosen, barrier=barrier, mine=mine):
            part = mine[chosen]
            here = piece.of(part)
            flat, index = m.shared.views[RAW[size]], here.index(m, size)
            if change is None:
                flat[index] = values[part]
            else:
                for k in range(len(part)):
                    flat[index[k]] = change(flat[index[k]], values[part[k]])
            np.subtract.at(barrier.bytes, here.rows, piece.nbytes)
            m.checks.bulk_landed(m, PieceAccess(site, here, lanes[part]), barrier)

        barrier.attached.append(Arrival(piece.rows[mine], land))


def _in_passes(n: int, nbytes: int):
    """Slices of n copies that together are not too large for one pass."""
    step = max(1, MOST_AT_ONCE // max(1, nbytes))
    return [np.arange(start, min(n, start + step)) for start in range(0, n, step)]


def _note(m, line, what: str) -> None:
    if m.recorder is not None:
        m.recorder.barrier(m, line, what)


def _count(m, line, what: str, copies: int, sectors: int = 0) -> None:
    """Count executed copies. what: "ld", "st", "red", "within" shared memory, or "" for what is no copy."""
    if m.counting is not None:
        m.counting.bulk(line, what, copies, sectors)


def _sectors(starts: np.ndarray, nbytes) -> int:
    """Sectors of 32 bytes that the rows of a box touch, which are copied in pieces of 128 bytes each."""
    whole, rest, ahead = nbytes // 128, nbytes % 128, starts % 32
    return int(np.sum(whole * ((ahead + 128 + 31) // 32) + np.where(rest > 0, (ahead + rest + 31) // 32, 0)))


def _plain_sectors(starts: np.ndarray, nbytes: np.ndarray) -> int:
    """Sectors of plain bytes: each sector that a stretch touches counts once."""
    return int(np.sum(np.where(nbytes > 0, (starts % 32 + nbytes + 31) // 32, 0)))


def _box_sectors(tensor: Tensor, corners: np.ndarray, inside_only: bool) -> int:
    """Sectors of boxes, row by row. A load asks for what is outside the tensor as well, a store leaves it out."""
    first, last = corners[:, 0], corners[:, 0] + tensor.counts[0]
    inside = np.ones((len(corners), 1), bool)
    if inside_only:
        first, last = first.clip(0, tensor.shape[0]), last.clip(0, tensor.shape[0])
    starts = (first * tensor.itemsize + tensor.address)[:, None]
    for i in range(1, tensor.rank):
        position = corners[:, i, None] + np.arange(tensor.counts[i]) * tensor.steps[i]
        fits = (position >= 0) & (position < tensor.shape[i])
        starts = (starts[:, None, :] + (position * tensor.strides[i - 1])[:, :, None]).reshape(len(corners), -1)
        inside = (inside[:, None, :] & fits[:, :, None]).reshape(len(corners), -1)
    nbytes = ((last - first) * tensor.itemsize)[:, None]
    return _sectors(starts, np.where(inside, nbytes, 0) if inside_only else nbytes)


def _bulk(op):
    op.cached()
    op.without_effect("mbarrier::complete_tx::bytes", "bulk_group")  # where the copy goes says which
    op.loader.uses |= {"cp.async", "bulk", "async proxy"}
    op.opclass = "TMA"


@instruction("cp.async.bulk.tensor")
def bulk_tensor(op):
    """Copy a box: [shared], [map, {coordinates}], [mbarrier]{, CTA mask}, or [map, {coordinates}], [shared]."""
    _only_tiles(op)
    _bulk(op)
    if op.has("global") and op.parts.index("global") < op.parts.index(op.those(lambda part: part.startswith("shared"))[0]):
        return _tensor_store(op, None)
    # operands
    tensors = _tensor_at(op, 1)
    targets = _targets(op, 0, 2, 3 if op.has("multicast::cluster") else None)
    site = op.site("shared", AccessKind.BULK_LOAD, CHUNK, device=1, mapped=True)
    line = op.line

    def run(m):
        _note(m, line, "copy")
        for tensor, lanes, corners in tensors(m, active_lanes(m)):
            _check_corners(m, site, tensor, lanes, corners)
            copies = [copy for copy in targets(m, lanes) if len(copy[0])]
            _look_at(m, site, tensor, lanes, corners)
            _count(m, line, "ld", len(lanes), sum(_box_sectors(tensor, corners[chosen], False) for chosen, *_ in copies))
            for chosen, rows, offsets, barriers in copies:
                piece = Piece(rows, offsets, tensor.nbytes, tensor).checked(m, site, lanes[chosen], 128)
                if m.recorder is not None:
                    for row, lane, barrier, at in zip(rows, lanes[chosen], barriers, piece.units(CHUNK), strict=True):
                        by_row = at.reshape(-1, tensor.row // CHUNK) - m.shared.start
                        m.recorder.move(m, line, "copy", row, lane % m.threads // WARP, barrier - m.shared.start, by_row)
                # meaning
                size = _unit(tensor, tensor.kind in _CHANGED)
                parts = _in_passes(len(chosen), tensor.nbytes)
                values = np.concatenate([_load_box(m, tensor, corners[chosen[part]], size) for part in parts])
                # result
                _land_later(m, site, lanes[chosen], piece, barriers, size, values)

    return run


def _only_tiles(op) -> None:
    op.without_effect("tile")
    for part in op.those(lambda part: part.startswith(("im2col", "tile::"))):
        op.fail(f"copies in the mode .{part}; the machine copies tensors in tile mode only")


def _look_at(m, site, tensor: Tensor, lanes, corners) -> None:
    """Tell the checks what copies of boxes read."""
    if not m.checks.watches_device(site):
        return
    size = _unit(tensor, False)
    for part in _in_passes(len(lanes), tensor.nbytes):
        m.checks.device_copy_reads(m, BulkDeviceAccess(site, lanes[part], *_box(tensor, corners[part], size), size))


def _load_box(m, tensor: Tensor, corners: np.ndarray, size: int) -> np.ndarray:
    offsets, inside = _box(tensor, corners, size)
    raw = RAW[size]
    index = offsets >> (size.bit_length() - 1)
    if inside is None:
        return _as_read(tensor, m.memory.views[raw].take(index))
    values = _as_read(tensor, m.memory.views[raw].take(np.where(inside, index, 0)))
    return np.where(inside, values, raw.type(NAN * (0x0001000100010001 & (256**size - 1)) if tensor.nan else 0))


@instruction("cp.async.bulk")
def bulk(op):
    """Copy b bytes: [shared], [global or shared], b, [mbarrier]{, CTA mask}, or [global], [shared], b."""
    _bulk(op)
    if op.has("bulk_group"):
        return _store(op, None)
    return _load(op, None)


def _load(op, change):
    """From global or shared memory to shared memory of any block. change: see `_land_later`."""
    from_shared = not op.has("global")
    # operands
    targets = _targets(op, 0, 3, 4 if op.has("multicast::cluster") else None)
    source = shared_places(op, 1, "the source of this bulk copy") if from_shared else address_of(op, 1)
    count = op.source(2, "u32")
    size = change[1] if change else 8
    site = op.site("shared", AccessKind.BULK_LOAD, CHUNK, device=None if from_shared else 1)
    line = op.line

    def run(m):
        if from_shared and m.cluster is None:
            m.fail("the hardware copies from shared to shared memory in a launch with clusters only (illegal instruction).", line)
        _note(m, line, "copy")
        lanes = active_lanes(m)
        nbytes = _sizes(m, site, lanes, count)
        places = tuple(of_lanes(m, part, lanes) for part in source(m)) if from_shared else of_lanes(m, source(m), lanes)
        copies = targets(m, lanes)
        if not from_shared:
            _count(m, line, "ld", len(lanes), sum(_plain_sectors(places[chosen], nbytes[chosen]) for chosen, *_ in copies))
        elif change is None:
            _count(m, line, "within", len(lanes))
        for chosen, rows, offsets, barriers in copies:
            for n in np.unique(nbytes[chosen]).tolist():
                same = nbytes[chosen] == n
                which = chosen[same]
                piece = Piece(rows[same], offsets[same], n).checked(m, site, lanes[which], CHUNK)
                if not n:
                    continue
                # meaning
                if from_shared:
                    here = Piece(places[0][which], places[1][which], n).checked(m, site, lanes[which], CHUNK)
                    _read(m, PieceAccess(site, here, lanes[which]))
                    values = m.shared.views[RAW[size]].take(here.index(m, size))
                else:
                    start = _global(m, site, lanes[which], places[which], np.full(len(which), n))
                    m.checks.device_copy_reads(m, BulkDeviceAccess(site, lanes[which], start[:, None] + np.arange(0, n, 8), None, 8))
                    values = m.memory.views[RAW[size]].take((start[:, None] + np.arange(0, n, size)) >> (size.bit_length() - 1))
                # result
                _land_later(m, site, lanes[which], piece, barriers[same], size, values, change and change[0])

    return run


# --- copies from shared memory ---------------------------------------------------------------------------------------


def groups(m) -> BulkGroups:
    found = m.asynchronous.get("bulk groups")
    if found is None:
        found = m.asynchronous["bulk groups"] = BulkGroups(m)
    return found


def _read(m, access: PieceAccess) -> None:
    m.checks.read(m, access)
    m.checks.bulk_read(m, access)


def _from_shared(m, site, piece: Piece, lanes: np.ndarray, size: int) -> np.ndarray:
    """The bytes of a piece as [n, units], noted as being read until its thread has waited for the group."""
    _read(m, PieceAccess(site, piece, lanes))
    groups(m).issue(m, lanes, site, piece)
    return m.shared.views[RAW[size]].take(piece.index(m, size))


def _tensor_store(op, name: str | None):
    """[map, {coordinates}], [shared]. name: of the operation that a reduction makes of it, None to copy."""
    op.without_effect("global")
    tensors, source = _tensor_at(op, 0), shared_places(op, 1, "the source of a bulk store")
    site = op.site("shared", AccessKind.BULK_STORE, CHUNK, at=1, device=0, mapped=True)
    line = op.line

    def run(m):
        _note(m, line, "copy")
        every = active_lanes(m)
        rows, offsets = source(m)
        for tensor, lanes, corners in tensors(m, every):
            if name is not None and tensor.kind not in _REDUCIBLE[name]:
                m.fail(f"the hardware has no reduction .{name} for tensors of {tensor.kind} (illegal instruction).", line)
            _check_corners(m, site, tensor, lanes, corners, stored=True)
            _, inside = _box(tensor, corners, CHUNK, stored=True)
            piece = Piece(of_lanes(m, rows, lanes), of_lanes(m, offsets, lanes), tensor.nbytes, tensor, inside).checked(m, site, lanes, 128)
            size = _unit(tensor, name is not None)
            values = _from_shared(m, site, piece, lanes, size)
            _count(m, line, "st" if name is None else "red", len(lanes), _box_sectors(tensor, corners, True))
            if m.recorder is not None:
                for row, lane, at in zip(piece.rows, lanes, piece.units(CHUNK), strict=True):
                    places = at.reshape(-1, tensor.row // CHUNK) - m.shared.start
                    m.recorder.move(m, line, "store", row, lane % m.threads // WARP, places=places)
            change = None if name is None else _reduction(op, name, _PTX_TYPES[tensor.kind], flushed=tensor.kind.endswith("_ftz"))
            for part in _in_passes(len(lanes), tensor.nbytes):
                places, inside = _box(tensor, corners[part], size, stored=True)
                if name is None:
                    _note_overhang(m, site, tensor, lanes[part], corners[part])
                _to_global(m, site, lanes[part], places, values[part], inside, size, change)

    return run


def _to_global(m, site, lanes, offsets, values, inside, size: int, change) -> None:
    """Write [n, units] to device memory, or with `change` put the results of (old, new) there, one copy after the other."""
    flat, index = m.memory.views[RAW[size]], offsets >> (size.bit_length() - 1)
    if m.recorder is not None:
        m.recorder.copy_out(m, site, lanes, offsets + DEVICE_BASE, inside, size)
    access = BulkDeviceAccess(site, lanes, offsets, inside, size, adds=change is not None)
    held = flat.take(index, mode="wrap") if m.checks.watches_device(site) else None
    access.changes = lambda: held != values
    access.differ = lambda: flat.take(index, mode="wrap") != values
    if change is None:
        if inside is None:
            flat[index] = values
        else:
            flat[index[inside]] = values[inside]
        groups(m).write(m, access)
        return
    for k in range(len(index)):
        where = index[k] if inside is None else index[k][inside[k]]
        new = values[k] if inside is None else values[k][inside[k]]
        if len(where):
            flat[where] = change(flat[where], new)
    groups(m).write(m, access)


def _store(op, change):
    """[global], [shared], bytes."""
    op.without_effect("global")
    target, source = address_of(op, 0), shared_places(op, 1, "the source of a bulk store")
    count = op.source(2, "u32")
    size = change[1] if change else 8
    site = op.site("shared", AccessKind.BULK_STORE, CHUNK, at=1, device=0)
    line = op.line

    def run(m):
        _note(m, line, "copy")
        lanes = active_lanes(m)
        nbytes = _sizes(m, site, lanes, count)
        addresses = of_lanes(m, target(m), lanes)
        rows, offsets = (of_lanes(m, part, lanes) for part in source(m))
        _count(m, line, "st" if change is None else "red", len(lanes), _plain_sectors(addresses, nbytes))
        for n in np.unique(nbytes[nbytes > 0]).tolist():
            same = nbytes == n
            piece = Piece(rows[same], offsets[same], n).checked(m, site, lanes[same], CHUNK)
            start = _global(m, site, lanes[same], addresses[same], nbytes[same])
            values = _from_shared(m, site, piece, lanes[same], size)
            _to_global(m, site, lanes[same], start[:, None] + np.arange(0, n, size), values, None, size, change and change[0])

    return run


@instruction("cp.async.bulk.commit_group")
def bulk_commit_group(op):
    """Close the group of bulk stores started since the last commit."""
    line = op.line

    def run(m):
        lanes = active_lanes(m)
        groups(m).commit(lanes)
        _count(m, line, "", len(np.unique(lanes // m.threads * m.warp_count + lanes % m.threads // WARP)))
        _note(m, line, "commit")

    return run


@instruction("cp.async.bulk.wait_group")
def bulk_wait_group(op):
    """Wait until at most n of this thread's latest groups are under way (.read: still read their source)."""
    pending, reading, line = op.immediate(0), op.has("read"), op.line

    def run(m):
        groups(m).wait(m, active_lanes(m), pending, reading)
        _note(m, line, f"wait {pending}")

    return run


@instruction("cp.async.bulk.prefetch")
def bulk_prefetch(op):
    """Fetch a stretch of memory, or a box of a tensor, into L2: a hint. The map and the addresses are checked all the same."""
    op.opclass, line = "TMA", op.line
    op.cached()
    op.without_effect("L2", "global")  # there is no other way
    if op.has("tensor"):
        _only_tiles(op)
        tensors, site = _tensor_at(op, 0), op.site("global", AccessKind.PREFETCH, CHUNK)

        def fetch_box(m):
            for tensor, lanes, corners in tensors(m, active_lanes(m)):
                _check_corners(m, site, tensor, lanes, corners)
                _count(m, line, "", len(lanes))

        return fetch_box
    address, count = address_of(op, 0), op.source(1, "u32")
    site = op.site("global", AccessKind.PREFETCH, CHUNK)

    def run(m):
        lanes = active_lanes(m)
        _count(m, line, "", len(lanes))
        _global(m, site, lanes, of_lanes(m, address(m), lanes), _sizes(m, site, lanes, count))

    return run


# --- reductions ------------------------------------------------------------------------------------------------------


def _reduction(op, name: str, t: str, space: str = "global", flushed: bool = False):
    """A function (old, new) of raw bits for an operation on elements of PTX type t. flushed: float32 without denormals."""
    if (name in ("inc", "dec") and t != "u32") or (name in ("and", "or", "xor") and t[0] == "f"):
        op.fail(f"has no meaning for elements of type {t}")
    function, dtype = _new_value(name, t, space)[0], DTYPES[t]
    if name == "add" and t == "f32" and not flushed:  # denormals count here, unlike in atomics on device memory
        return lambda old, new: canonical(old.view(dtype) + new.view(dtype)).view(old.dtype)
    return lambda old, new: function(old.view(dtype), new.view(dtype)).astype(dtype, copy=False).view(old.dtype)


@instruction("cp.reduce.async.bulk")
def bulk_reduce(op):
    """Combine b bytes with what is there: [shared of the cluster], [shared], b, [mbarrier], or [global], [shared], b."""
    _bulk(op)
    op.without_effect("noftz")  # halves keep denormals anyway
    name, t = op.one_of(*_REDUCTIONS), op.type
    to_global = op.has("bulk_group")
    change = _reduction(op, name, t, "global" if to_global else "shared"), DTYPES[t].itemsize
    return _store(op, change) if to_global else _load(op, change)


@instruction("cp.reduce.async.bulk.tensor")
def bulk_reduce_tensor(op):
    """Combine a box of elements with what is there: [map, {coordinates}], [shared]."""
    _only_tiles(op)
    _bulk(op)
    return _tensor_store(op, op.one_of(*_REDUCTIONS))
