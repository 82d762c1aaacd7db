"""Launches whose bulk copies are counted by Nsight Compute and by the machine.

ncu … python -m tests.sim.bulk_probes              launch every row once, in order (needs a GPU)
python -m tests.sim.bulk_probes read NCU.csv       ncu's --csv --page raw output -> helpers/data/bulk_h200.json
"""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import helpers
from tests import ROOT
from tests.sim import tensor_cases as cases

RECORD = ROOT / "helpers" / "data" / "bulk_h200.json"
LOADED = "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum"
METRICS = (
    *(f"sm__sass_inst_executed_op_tma{what}.sum" for what in ("", "_ld", "_st", "_red")), "sm__inst_executed_pipe_tma.sum", LOADED,
    *(f"l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_{what}.sum" for what in ("st", "red")),
)  # fmt: skip
REPEAT = 4
ONE, LOOP = cases.ONE, f"for (int i = 0; i < {REPEAT}; i++) {{ unsigned char* tile = smem + offset + i * window;"


def _probe(name: str, body: str, attributes: str = "") -> str:
    return f'{cases.HEAD}extern "C" __global__ void {attributes}probe_{name}{cases.PARAMETERS} {{\n unsigned char* tile = smem + offset;\n{body}\n}}\n'


def _bytes(text: str, operands: str) -> str:
    return f'asm volatile("{text}" :: {operands} : "memory");'


def _pair(name: str, copies: str, waits: str) -> str:
    """Two blocks of a cluster, the first of which copies; those for which `waits` holds wait for their mbarrier."""
    body = f"INIT SYNC {ONE}EXPECT({REPEAT} * nbytes); if (rank() == 0) {LOOP} {copies} }} }}\n if ({waits}) WAIT SYNC"
    return _probe(name, body, "__cluster_dims__(2, 1, 1) ")


PREFETCH = '"cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" :: "l"(&map), "r"(c0), "r"(c1) : "memory"'
SOURCES = {
    "load": _probe("load", f"INIT {ONE}EXPECT({REPEAT} * nbytes); {LOOP} {cases._switch(cases.LOADS)} }} }}\nWAIT"),
    "store": _probe("store", f"{ONE}{LOOP} {cases._switch(cases.STORES)} }} DRAIN; }}"),
    "reduce": _probe("reduce", f"{ONE}{LOOP} {cases._switch({2: cases.REDUCTIONS[0]})} }} DRAIN; }}"),
    "prefetch": _probe("prefetch", f"{ONE}{LOOP} asm volatile({PREFETCH}); }} }}"),
    "bytes in": _probe("bytes_in", f"INIT {ONE}EXPECT({REPEAT} * nbytes); {LOOP}" + _bytes(
        cases.BYTES.format(source="global"), '"r"(at(tile)), "l"((char*)data + offset), "r"(nbytes), "r"(at(&bar))') + " } }\nWAIT"),
    "bytes out": _probe("bytes_out", f"{ONE}{LOOP}" + _bytes(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;", '"l"((char*)data + offset), "r"(at(tile)), "r"(nbytes)') + " } DRAIN; }"),
    "bytes reduced": _probe("bytes_reduced", f"{ONE}{LOOP}" + _bytes(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;", '"l"((char*)data + offset), "r"(at(tile)), "r"(nbytes)') + " } DRAIN; }"),
    "multicast": _pair("multicast", cases._switch(cases.MULTICASTS), "which >> rank() & 1"),
    "bytes multicast": _pair("bytes_multicast", _bytes(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;",
        '"r"(at(tile)), "l"((char*)data + offset), "r"(nbytes), "r"(at(&bar)), "h"((short)which)'), "which >> rank() & 1"),
    "bytes within": _pair("bytes_within", _bytes(
        cases.BYTES.format(source="shared::cta"), '"r"(there(tile)), "r"(at(tile)), "r"(nbytes), "r"(there(&bar))'), "rank()"),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One launch. shape, box: of the tensor, in the order of its axes. corner: innermost first. nbytes, offset: of plain bytes.

    mask: the blocks of a cluster of two that a multicast goes to.
    """

    what: str
    shape: tuple[int, ...] = ()
    box: tuple[int, ...] = ()
    corner: tuple[int, ...] = (0, 0)
    swizzle: str | None = None
    dtype: str = "float32"
    nbytes: int = 0
    offset: int = 0
    mask: int = 0

    @property
    def name(self) -> str:
        """What tells one row from another in the recorded table."""
        if not self.shape:
            name = f"{self.what} {self.nbytes} at {self.offset}"
        else:
            name = f"{self.what} {self.dtype}{list(self.shape)} box{list(self.box)} at{list(self.corner)} {self.swizzle}"
        return name + f" mask {self.mask}" * bool(self.mask)


SQUARE = (256, 256)
ROWS = (
    *(Row("load", SQUARE, box) for box in ((8, 32), (64, 32), (64, 8), (64, 4), (16, 256))),
    *(Row("load", SQUARE, (64, n), (0, 0), f"{4 * n}B") for n in (32, 16, 8)), Row("load", SQUARE, (64, 4), (4, 1), "128B"),
    *(Row("load", SQUARE, (64, 32), corner) for corner in ((4, 0), (8, 3), (240, 224), (-16, -32), (252, 0), (0, 300))),
    Row("load", SQUARE, (64, 128), (16, 0), "128B", "uint8"), Row("load", SQUARE, (64, 64), (8, 1), "128B", "float16"),
    Row("load", (8, 32, 64), (4, 16, 32), (4, 0, 0), "128B"), Row("load", (4096,), (256,), (4,)),
    *(Row("store", SQUARE, (64, n), corner, swizzle) for n, corner, swizzle in (
        (32, (0, 0), None), (32, (4, 0), "128B"), (8, (0, 0), None), (4, (4, 0), None), (32, (240, 224), None), (32, (0, 300), None))),
    *(Row("reduce", SQUARE, (64, 32), corner) for corner in ((0, 0), (4, 0), (240, 224))), Row("prefetch", SQUARE, (64, 32)),
    *(Row(what, nbytes=nbytes, offset=offset) for what in ("bytes in", "bytes out", "bytes reduced")
      for nbytes, offset in ((16, 0), (2048, 0), (48, 16), (2048, 16))),
    *(Row("multicast", SQUARE, box, corner, mask=mask) for box, corner in (((64, 32), (0, 0)), ((64, 8), (4, 1)), ((64, 32), (240, 224)))
      for mask in (1, 2, 3)),
    *(Row("bytes multicast", nbytes=2048, offset=offset, mask=mask) for offset, mask in ((0, 1), (0, 2), (0, 3), (16, 3))),
    *(Row("bytes within", nbytes=nbytes, offset=offset) for nbytes, offset in ((16, 0), (2048, 0), (2048, 16))),
)  # fmt: skip


def arguments(row: Row) -> tuple[list, int]:
    """(the launch's arguments, bytes of dynamic shared memory)."""
    map_, nbytes = bytes(128), row.nbytes
    if row.shape:
        map_ = helpers.tensor_map(np.zeros(row.shape, row.dtype), row.box, row.swizzle)
        nbytes = map_.tensor.nbytes
    room = nbytes if not row.swizzle else map_.tensor.pitch * (nbytes // map_.tensor.row)
    window = -(-room // 1024) * 1024
    data = np.zeros(1 << 14, np.int32)
    return [
        map_,
        *(*row.corner, 0, 0, 0, 0)[:5],
        row.mask or len(row.shape),
        row.offset,
        nbytes,
        window,
        data,
    ], REPEAT * window + row.offset


def launch(row: Row, on: str, **more):
    """The Run of a row: one block of a warp (two in a cluster), one thread of which starts REPEAT copies."""
    args, shared = arguments(row)
    return helpers.compile(SOURCES[row.what]).launch(1 + ("cluster_dims" in SOURCES[row.what]), 32, args, shared, on=on, **more)


def read(text: str) -> list[dict[str, int]]:
    """ncu's output -> the counters of every row."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    found = [row for row in csv.DictReader(lines[start:]) if row["ID"].isdigit()]
    return [{name: int(float(row[name].replace(",", ""))) for name in METRICS} for row in found]


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        counted = read(Path(sys.argv[2]).read_text())
        if len(counted) != len(ROWS):
            raise SystemExit(f"{len(counted)} launches were profiled, and there are {len(ROWS)} rows.")
        rows = {row.name: counters for row, counters in zip(ROWS, counted, strict=True)}
        RECORD.write_text(json.dumps({"device": "NVIDIA H200", "rows": rows}, indent=1) + "\n")
    else:
        for row in ROWS:
            launch(row, "gpu")
