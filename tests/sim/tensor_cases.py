"""Bulk copies that run both in the machine and on a GPU, with the same data: every swizzle, element type and kind of box.

The hardware is the reference: directly in tests/gpu/test_tensor_map.py, and as fingerprints in
helpers/data/tensor_map_h200.json for tests/sim/isa/test_bulk.py.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import zlib
from dataclasses import dataclass

import ml_dtypes
import numpy as np

import helpers
from helpers.sim.layouts.swizzle import SPAN
from helpers.sim.layouts.tensor_map import FLOATS, KINDS

WINDOW = 16384  # bytes of shared memory that are looked at
RANKS = range(1, 6)


def _copy(rank: int, before: str, after: str) -> str:
    """One instruction per rank, chosen at run time: `before` [map, {coordinates}]`after`."""
    coordinates = ", ".join(f"%{i + 2}" for i in range(rank))
    return before.replace("NDIM", f"{rank}d") + f" [%0, {{{coordinates}}}]" + after


def _operands(rank: int) -> str:
    return '"l"(&map), "r"(at(tile)), ' + ", ".join(f'"r"(c{i})' for i in range(rank))


HEAD = r"""
#include <cuda.h>
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
extern __shared__ __align__(1024) unsigned char smem[];
#define FENCE asm volatile("fence.proxy.async;" ::: "memory")
#define INIT __shared__ alignas(8) unsigned long long bar; \
    if (threadIdx.x == 0) { asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at(&bar)) : "memory"); FENCE; } __syncthreads();
#define EXPECT(n) asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at(&bar)), "r"(n) : "memory")
#define WAIT { int done; do asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p;}" \
    : "=r"(done) : "r"(at(&bar)) : "memory"); while (!done); }
#define DRAIN asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory")
__device__ void fill(const uint4* data, int window) {  // data == 0: a pattern
    for (int i = threadIdx.x; i < window / 16; i += blockDim.x)
        ((uint4*)smem)[i] = data ? data[i] : make_uint4(0xa5a5a5a5u, 0xa5a5a5a5u, 0xa5a5a5a5u, 0xa5a5a5a5u);
    FENCE;
    __syncthreads();
}
__device__ int rank() { int r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ unsigned there(const void* p) {  // the same place in the other block's shared memory
    unsigned a; asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(at(p)), "r"(rank() ^ 1)); return a;
}
#define SYNC asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
__device__ void give(uint4* out, int window) {
    for (int i = threadIdx.x; i < window / 16; i += blockDim.x) out[i] = ((uint4*)smem)[i];
}
"""
PARAMETERS = """(const __grid_constant__ CUtensorMap map, int c0, int c1, int c2, int c3, int c4, int which, int offset, int nbytes,
    int window, uint4* data)"""


def _switch(lines: dict[int, str]) -> str:
    return "\n".join(f"    if (which == {number}) {text}" for number, text in lines.items())


LOAD = "cp.async.bulk.tensor.NDIM.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
TO_GLOBAL = "NDIM.global.shared::cta"
LOADS = {
    rank: f'asm volatile("{_copy(rank, f"{LOAD} [%1],", f", [%{rank + 2}];")}" :: {_operands(rank)}, "r"(at(&bar)) : "memory");'
    for rank in RANKS
}
MULTICASTS = {  # by CTA mask
    mask: f'asm volatile("{_copy(2, f"{LOAD}.multicast::cluster [%1],", ", [%4], %5;")}" :: '
    f'{_operands(2)}, "r"(at(&bar)), "h"((short){mask}) : "memory");'
    for mask in (1, 2, 3)
}
STORES = {
    rank: f'asm volatile("{_copy(rank, f"cp.async.bulk.tensor.{TO_GLOBAL}.tile.bulk_group", ", [%1];")}" :: {_operands(rank)} : "memory");'
    for rank in RANKS
}
TENSOR_OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
REDUCTIONS = {
    number: f'asm volatile("{_copy(2, f"cp.reduce.async.bulk.tensor.{TO_GLOBAL}.{op}.tile.bulk_group", ", [%1];")}" :: '
    f'{_operands(2)} : "memory");'
    for number, op in enumerate(TENSOR_OPERATIONS)
}
# Reductions of plain bytes: opcode's end for global memory, and those that shared memory has, too.
BYTES_OPERATIONS = (
    "add.u32", "add.s32", "add.u64", "inc.u32", "dec.u32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32",
    "min.u64", "max.s64", "and.b64", "or.b64", "xor.b64", "add.f32", "add.f64", "add.noftz.f16", "add.noftz.bf16", "min.f16", "max.f16",
    "min.bf16", "max.bf16",
)  # fmt: skip
IN_SHARED = BYTES_OPERATIONS[:12]


def _kernel(name: str, body: str, attributes: str = "") -> str:
    return f'{HEAD}extern "C" __global__ void {attributes}{name}{PARAMETERS} {{\n    unsigned char* tile = smem + offset;\n{body}\n}}\n'


ONE = "if (threadIdx.x == 0) {\n"
BYTES = "cp.async.bulk.shared::cluster.{source}.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
FROM_DATA = ONE + '    asm volatile("{text}" :: "l"(data), "r"(at(tile)), "r"(nbytes) : "memory");\n    DRAIN; }}'
SOURCES = {
    "load": _kernel("load", f"INIT fill(0, window); {ONE}EXPECT(nbytes);\n{_switch(LOADS)} }}\nWAIT give(data, window);"),
    "store": _kernel("store", f"fill(data, window); {ONE}{_switch(STORES)}\n DRAIN; }}"),
    "reduce": _kernel("reduce", f"fill(data, window); {ONE}{_switch(REDUCTIONS)}\n DRAIN; }}"),
    "multicast": _kernel(
        "multicast",
        f"INIT fill(0, window); SYNC {ONE}EXPECT(nbytes); if (rank() == 0) {{\n{_switch(MULTICASTS)} }} }}\n"
        "if (which >> rank() & 1) WAIT give(data + rank() * window / 16, window); SYNC",
        "__cluster_dims__(2, 1, 1) ",
    ),
    # data holds what is copied, and behind it what the block writes back
    "bytes in": _kernel(
        "bytes_in",
        f'INIT fill(0, window); {ONE}EXPECT(nbytes); asm volatile("{BYTES.format(source="global")}" :: "r"(at(tile)), "l"(data), "r"(nbytes), '
        '"r"(at(&bar)) : "memory"); }\nWAIT give(data + window / 16, window);',
    ),
    "bytes within": _kernel(
        "bytes_within",
        f'INIT fill(data, window); SYNC {ONE}EXPECT(nbytes); asm volatile("{BYTES.format(source="shared::cta")}" :: "r"(there(tile)), "r"(at(smem)), '
        '"r"(nbytes), "r"(there(&bar)) : "memory"); }\nWAIT give(data + (1 + rank()) * window / 16, window); SYNC',
        "__cluster_dims__(2, 1, 1) ",
    ),
    "bytes out": _kernel(
        "bytes_out",
        f'fill(data, window); {ONE}asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: '
        '"l"(data + window / 16), "r"(at(tile)), "r"(nbytes) : "memory"); DRAIN; }',
    ),
    "bytes reduced": _kernel(
        "bytes_reduced",
        f"fill(data, window); {ONE}"
        + _switch({
            number: f'asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.{op} [%0], [%1], %2;" :: '
            '"l"(data + window / 16), "r"(at(tile)), "r"(nbytes) : "memory");'
            for number, op in enumerate(BYTES_OPERATIONS)
        }) + "\n DRAIN; }",
    ),
    "bytes reduced within": _kernel(
        "bytes_reduced_within",
        f"INIT fill(data, window); SYNC {ONE}EXPECT(nbytes);\n"
        + _switch({
            number: f'asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{op} [%0], [%1], %2, [%3];" :: '
            '"r"(there(tile)), "r"(at(smem)), "r"(nbytes), "r"(there(&bar)) : "memory");'
            for number, op in enumerate(IN_SHARED)
        }) + " }\nWAIT give(data + (1 + rank()) * window / 16, window); SYNC",
        "__cluster_dims__(2, 1, 1) ",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One copy. what: a key of SOURCES. operation: of a reduction. shape, box, steps: in the order of the array's axes; the
    array is a part of a larger one if `padded`. corner: the kernel's coordinates, innermost first. offset: of the tile in
    shared memory. nbytes: of a copy of plain bytes. mask: the blocks of a cluster of two that a multicast goes to."""

    what: str
    kind: str = "uint32"
    shape: tuple[int, ...] = (8, 32)
    box: tuple[int, ...] = (8, 32)
    corner: tuple[int, ...] = (0, 0)
    swizzle: str | None = None
    steps: tuple[int, ...] | None = None
    fill: str = "zero"
    offset: int = 0
    padded: bool = False
    operation: str = ""
    nbytes: int = 0
    mask: int = 0

    @property
    def name(self) -> str:
        """What tells one case from another in the recorded table."""
        plain = [self.what, *filter(None, [self.operation])]
        if self.what.startswith("bytes"):
            return " ".join([*plain, str(self.nbytes), f"at {self.offset}"])
        shown = [f"{self.kind}{list(self.shape)}", f"box{list(self.box)}", f"at{list(self.corner)}", str(self.swizzle)]
        shown += [f"mask {self.mask}"] if self.mask else []
        shown += [f"steps{list(self.steps)}"] if self.steps else []
        shown += [self.fill] * (self.fill != "zero") + [f"offset {self.offset}"] * bool(self.offset) + ["padded"] * self.padded
        return " ".join(plain + shown)


NUMPY = {kind: np.dtype(kind) for kind in KINDS if "_" not in kind and kind not in ("bfloat16", "tf32")} | {
    "bfloat16": np.dtype(ml_dtypes.bfloat16), **dict.fromkeys(("float32_ftz", "tf32", "tf32_ftz"), np.dtype(np.float32))
}  # fmt: skip


def _data(name: str, nbytes: int, dtype, numbers: bool) -> np.ndarray:
    """Random elements: any bits, or numbers of moderate size with some zeros, denormals and infinities among them."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    dtype = np.dtype(dtype)
    raw = random.integers(0, 256, nbytes, np.uint8)
    if not numbers or dtype.kind in "ui":
        return raw.view(dtype)
    values = (random.standard_normal(nbytes // dtype.itemsize) * 2.0 ** random.integers(-6, 6, nbytes // dtype.itemsize)).astype(dtype)
    bits = values.view(f"u{dtype.itemsize}")
    special = random.random(len(bits))
    mantissa = {2: 0x3FF, 4: 0x7FFFFF, 8: (1 << 52) - 1}[dtype.itemsize] if dtype.name != "bfloat16" else 0x7F
    sign = 1 << 8 * dtype.itemsize - 1
    bits[:] = np.where(special < 0.1, bits & (mantissa | sign), bits)  # denormals
    bits[:] = np.where(special > 0.97, bits & sign, bits)  # zeros of both signs
    return values


@functools.cache
def kernel(what: str):
    return helpers.compile(SOURCES[what])


def inputs(case: Case) -> tuple[np.ndarray | None, np.ndarray]:
    """(the array in device memory, None if there is none; the bytes that `data` holds), before the launch."""
    numbers = case.what.startswith(("reduce", "bytes reduced"))
    if case.what.startswith("bytes"):
        element = case.operation.rsplit(".", 1)[-1]
        dtype = {"f32": "f4", "f64": "f8", "f16": "f2", "bf16": ml_dtypes.bfloat16}.get(element, "u1")
        return None, _data(case.name, 3 * WINDOW, dtype, numbers).view(np.uint8)
    whole, size = list(case.shape), KINDS[case.kind]
    if case.padded:
        whole[-1] = (-(-whole[-1] * size // 16) * 16 + 48) // size
    special = case.kind in ("tf32", "tf32_ftz", "float32_ftz")
    array = _data(case.name, int(np.prod(whole)) * size, NUMPY[case.kind], numbers or special)
    data = _data(case.name + " data", 2 * WINDOW, NUMPY[case.kind], numbers)
    if special:
        array[7::50], array[9::60] = np.inf, -np.nan
    if special and numbers:
        data[3::17], data[5::19], array[8::23] = np.nan, np.inf, -np.inf
    return array.reshape(whole), data.view(np.uint8)


def run(case: Case, on: str) -> np.ndarray:
    """What the copy leaves behind, as bytes: the window of shared memory, or the array in device memory.

    There must be no finding, but for stores beyond rows that end within 16 bytes.
    """
    array, data = inputs(case)
    if array is None:
        operations = IN_SHARED if case.what.endswith("within") else BYTES_OPERATIONS
        which, corner, nbytes = operations.index(case.operation) if case.operation else 0, (0,) * 5, case.nbytes
        map_, result = bytes(128), data
    else:
        part = array[..., 16 // KINDS[case.kind] :][..., : case.shape[-1]] if case.padded else array
        map_ = helpers.tensor_map(part, case.box, case.swizzle, dtype=case.kind, element_strides=case.steps, out_of_bounds=case.fill)
        nbytes, corner = map_.tensor.nbytes, (*case.corner, 0, 0, 0, 0)[:5]
        which = TENSOR_OPERATIONS.index(case.operation) if case.operation else case.mask or len(case.shape)
        result = data if case.what in ("load", "multicast") else array.reshape(-1).view(np.uint8)
    blocks = 2 if "within" in case.what or case.what == "multicast" else 1
    args = [map_, *corner, which, case.offset, nbytes, WINDOW, data.view(np.int32)]
    done = kernel(case.what).launch(blocks, 64, args, WINDOW, on=on, counters=False)
    if on == "cpu":
        overhangs = case.what == "store" and case.shape[-1] * KINDS[case.kind] % 16 and case.corner[0] + case.box[-1] > case.shape[-1]
        assert [finding.kind for finding in done.findings] == ["out-of-bounds"] * bool(overhangs), done.findings
    return result


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


# --- the cases -------------------------------------------------------------------------------------------------------


def _loads():
    for kind, (swizzle, span) in itertools.product(KINDS, [(None, 256), *SPAN.items()]):
        size = KINDS[kind]
        widths = {span, 48 if span > 32 else 16} if size > 1 or span < 256 else {48, 240}
        for width in sorted(widths):
            inner, unit = width // size, 16 // size
            shape = (21, 2 * inner + unit)
            for corner in ((0, 0), (-unit, -2), (shape[1] - unit, 17), (unit, 3)):
                yield Case("load", kind, shape, (9, inner), corner, swizzle)
    for kind in sorted(FLOATS):
        unit = 16 // KINDS[kind]
        for corner in ((-unit, -2), (96 - unit, 18), (-unit * 100, 0)):
            yield Case("load", kind, (21, 96), (9, 2 * unit), corner, fill="nan")
    for swizzle, offset in itertools.product(SPAN, (128, 640, 1024, 1152)):
        yield Case("load", "float32", (32, 32), (20, SPAN[swizzle] // 4), (0, 0), swizzle, offset=offset)
        yield Case("load", "float16", (32, 32), (3, 8), (0, 0), swizzle, offset=offset)


def _shapes():
    shape, box = (3, 4, 5, 6, 40), (2, 3, 2, 3, 16)
    corners = (0,) * 5, (16, -1, 3, 2, -1)
    for rank, kind, corner, swizzle in itertools.product(RANKS, ("float32", "uint8"), corners, (None, "64B")):
        yield Case("load", kind, shape[5 - rank :], box[5 - rank :], corner[:rank], swizzle, padded=rank > 1 and kind == "uint8")
        corner = tuple(abs(i) for i in corner)  # a store begins at no negative coordinate
        yield Case("store", kind, shape[5 - rank :], box[5 - rank :], corner[:rank], swizzle, padded=rank > 1 and kind == "uint8")
    for steps, box in (((2, 1), (9, 8)), ((3, 1), (9, 8)), ((8, 1), (17, 8)), ((5, 1), (4, 16))):
        for corner in ((0, 0), (4, -4), (28, 27)):  # in steps, too, the tensor begins and ends where it does
            yield Case("load", "float32", (40, 32), box, corner, "32B" if box[1] == 8 else None, steps)
            yield Case("store", "float32", (40, 32), box, tuple(map(abs, corner)), None, steps)
    for what, kind, corner in itertools.product(("load", "store"), ("float16", "uint8"), ((0, 0), (-16, 2), (0, 6))):
        if what == "store" and corner[0] < 0:
            continue
        yield Case(what, kind, (9, 13), (4, 16), corner, "32B" if not any(corner) else None, padded=True)  # rows that end within 16 bytes
    yield Case("load", "float16", (6, 20, 24), (6, 20, 16), (8, 3, -1), "32B", (2, 3, 1))


def _stores():
    kinds = "uint8", "float16", "float32", "float32_ftz", "tf32", "float64"
    for kind, (swizzle, span) in itertools.product(kinds, [(None, 128), *SPAN.items()]):
        inner, unit = span // KINDS[kind], 16 // KINDS[kind]
        shape = (21, 2 * inner + unit)
        for corner, offset in (((0, 0), 0), ((unit, 3), 1024), ((shape[1] - unit, 17), 128)):
            yield Case("store", kind, shape, (9, inner), corner, swizzle, offset=offset)
        yield Case("store", kind, shape, (9, unit), (unit, 1), swizzle)


def _reductions():
    kinds = {
        "add": ("uint32", "int32", "uint64", "float16", "bfloat16", "float32", "float32_ftz", "tf32", "tf32_ftz", "float64"),
        **dict.fromkeys(("inc", "dec"), ("uint32",)),
        **dict.fromkeys(("min", "max"), ("uint32", "int32", "uint64", "int64", "float16", "bfloat16")),
        **dict.fromkeys(("and", "or", "xor"), ("uint32", "int32", "uint64")),
    }  # fmt: skip
    for operation, names in kinds.items():
        for kind in names:
            inner = 64 // KINDS[kind]
            yield Case("reduce", kind, (21, 3 * inner), (9, inner), (2 * inner + inner // 4, 14), "64B", operation=operation)


def _bytes():
    for what, (nbytes, offset) in itertools.product(("bytes in", "bytes within", "bytes out"), ((16, 0), (4096, 1024), (2064, 6160))):
        if what != "bytes within":
            yield Case(what, nbytes=nbytes, offset=offset)
    for nbytes, offset in ((4096, 8192), (2064, 6160)):  # what one block copies, the other must not write
        yield Case("bytes within", nbytes=nbytes, offset=offset)
    for operation in BYTES_OPERATIONS:
        yield Case("bytes reduced", operation=operation, nbytes=2064, offset=1040)
    for operation in IN_SHARED:
        yield Case("bytes reduced within", operation=operation, nbytes=2064, offset=8208)


def _multicasts():
    for mask, offset in ((1, 0), (2, 1024), (3, 0)):
        yield Case("multicast", "float32", (21, 68), (9, 32), (4, 14), "128B", offset=offset, mask=mask)


CASES = tuple({case.name: case for case in (*_loads(), *_shapes(), *_stores(), *_multicasts(), *_bytes(), *_reductions())}.values())
