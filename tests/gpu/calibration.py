"""Measure how an H200 charges warp accesses, and write the table that the accounting is tested against.

Every row of the table is one launch of one warp that performs one access pattern REPEAT times with one instruction
(LDS, STS, LDG, STG, LDSM, LDGSTS of 4, 8 or 16 bytes), profiled with Nsight Compute. The lanes' offsets come from
constant memory, so that nothing else in the kernel touches global or shared memory.

The group 'counts' profiles whole kernels instead: the launches of tests/sim/counting/probes.py.

    python -m tests.gpu.calibration build FOLDER                       compile the probes (no GPU needed)
    python -m tests.gpu.calibration measure FOLDER OUT SECONDS GROUP…  profile what the table lacks with ncu (needs a GPU),
                                                                       write OUT/rows-*.json
    python -m tests.gpu.calibration merge OUT                          add the rows to helpers/data/calibration_h200.json
"""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy

from tests import DATA
from tests.sim.counting import probes

REPEAT = 2
STEP = 20480  # bytes between repeats: a multiple of all banks and of a page of sectors, above the largest pattern
LANES = range(32)
TABLE = DATA / "calibration_h200.json"
ALL = 0xFFFFFFFF


# --- the patterns ----------------------------------------------------------------------------------------------------


def patterns(width: int) -> Iterator[tuple[str, list[int], int]]:
    """(name, byte offset of each lane, active mask) of accesses of `width` bytes per lane."""
    rng = random.Random(width)

    def units(f):
        return [f(n) * width for n in LANES]

    yield "unit", units(lambda n: n), ALL
    yield "unit, shifted by one", units(lambda n: n + 1), ALL
    for stride in (2, 3, 4, 5, 8, 16, 17, 32, 33):
        yield f"stride {stride}", units(lambda n, s=stride: n * s), ALL
    yield "reversed", units(lambda n: 31 - n), ALL
    yield "xor 5", units(lambda n: n ^ 5), ALL
    yield "permuted", units(rng.sample(LANES, 32).__getitem__), ALL
    yield "uniform", units(lambda n: 3), ALL
    for bit in (1, 2, 4, 8, 16):
        yield f"n and n^{bit} equal", units(lambda n, b=bit: n & ~b), ALL
        yield f"n and n^{bit} equal, stride 5", units(lambda n, b=bit: (n & ~b) * 5), ALL
    for shift in (1, 2, 3, 4):
        yield f"n >> {shift}", units(lambda n, s=shift: n >> s), ALL
        yield f"n % {1 << shift}", units(lambda n, s=shift: n % (1 << s)), ALL
    yield "8 x 8 tile, B operand", units(lambda n: n % 16 * 2), ALL
    yield "8 x 8 tile, A operand", units(lambda n: n // 16 * 2), ALL
    yield "n >> 1, stride 32", units(lambda n: (n >> 1) * 32), ALL
    yield "n >> 2, stride 8", units(lambda n: (n >> 2) * 8), ALL
    yield "pairs n^1 below, none above", units(lambda n: n >> 1 if n < 16 else n), ALL
    yield "none below, pairs n^1 above", units(lambda n: n if n < 16 else 16 + (n >> 1)), ALL
    yield "pairs n^1 below, n^2 above", units(lambda n: n & ~1 if n < 16 else n & ~2), ALL
    yield "pairs n^1 in the first quarter", units(lambda n: n & ~1 if n < 8 else n), ALL
    yield "pairs n^1 in quarters 0 and 1", units(lambda n: n & ~1 if n < 16 else 64 + n), ALL
    yield "pairs n^1 in quarters 0 and 2", units(lambda n: n & ~1 if n % 16 < 8 else n), ALL
    yield "one pair broken", units(lambda n: n >> 1 if n != 5 else 40), ALL
    for mask_name, mask in MASKS.items():
        yield f"unit, {mask_name}", units(lambda n: n), mask
        yield f"stride 8, {mask_name}", units(lambda n: n * 8), mask
    yield "pairs n^1, odd lanes of the upper half idle", units(lambda n: n & ~1), 0x5555FFFF
    yield "uniform, even lanes", units(lambda n: 3), 0x55555555
    yield "uniform, lane 7", units(lambda n: 3), 1 << 7
    for k in range(6):
        yield f"random {k}", units(lambda n: rng.randrange(48)), ALL
    for k in range(3):
        pairs = [rng.randrange(48) for _ in LANES]
        yield f"random pairs n^1 {k}", units(lambda n, p=pairs: p[n >> 1]), ALL
        yield f"random pairs n^2 {k}", units(lambda n, p=pairs: p[n & ~2]), ALL
        yield f"random, random mask {k}", units(lambda n: rng.randrange(48)), rng.getrandbits(32) | 1


MASKS = {
    "first half": 0x0000FFFF,
    "second half": 0xFFFF0000,
    "last quarter": 0xFF000000,
    "even lanes": 0x55555555,
    "odd lanes": 0xAAAAAAAA,
    "every fourth lane": 0x11111111,
    "lanes n % 4 < 2": 0x33333333,
    "lane 7": 1 << 7,
    "lanes 0 and 31": 0x80000001,
    "lanes 0 and 1": 3,
    "one lane per quarter": 0x01010101,
    "all but lane 9": ALL & ~(1 << 9),
    "none": 0,
}


def row_patterns() -> Iterator[tuple[str, list[int], int]]:
    """Row addresses for ldmatrix: 16-byte rows."""
    rng = random.Random(16)
    yield "packed", [n * 16 for n in LANES], ALL
    for pitch in (32, 48, 64, 80, 128, 144, 256, 272):
        yield f"pitch {pitch}", [n * pitch for n in LANES], ALL
    yield "xor swizzle, pitch 64", [n * 64 + (n >> 1 & 3) * 16 for n in LANES], ALL
    yield "xor swizzle, pitch 128", [n * 128 + (n & 7) * 16 for n in LANES], ALL
    yield "16 x 16 tile, pitch 32", [n % 16 * 32 + n // 16 * 16 for n in LANES], ALL
    yield "16 x 16 tile, pitch 80", [n % 16 * 80 + n // 16 * 16 for n in LANES], ALL
    yield "uniform", [48] * 32, ALL
    yield "n >> 1", [(n >> 1) * 16 for n in LANES], ALL
    yield "same rows in every matrix", [n % 8 * 16 for n in LANES], ALL
    yield "matrices 128 apart, rows 16", [n % 8 * 16 + n // 8 * 128 for n in LANES], ALL
    for k in range(4):
        yield f"random {k}", [rng.randrange(64) * 16 for _ in LANES], ALL


def few_global_patterns(width: int) -> Iterator[tuple[str, list[int], int]]:
    """Patterns that tell for sectors: what the shared ones do with banks is of no matter here."""
    wanted = (
        "unit", "unit, shifted by one", "stride 2", "stride 3", "stride 8", "stride 32", "reversed", "permuted", "uniform",
        "n and n^4 equal", "n and n^1 equal", "n and n^16 equal", "n >> 2", "n % 4", "8 x 8 tile, B operand", "unit, first half",
        "unit, even lanes", "stride 8, lane 7", "unit, none", "unit, all but lane 9", "random 0", "random 1", "random, random mask 0",
    )  # fmt: skip
    for name, offsets, mask in patterns(width):
        if name in wanted:
            yield name, offsets, mask
    # Lanes that share a sector lie four apart: a published case where cp.async counted double.
    yield "sector mates four apart", [((n & 3) * 8 + (n >> 2)) * width for n in LANES], ALL
    yield "sector mates sixteen apart", [((n & 15) * 2 + (n >> 4)) * width for n in LANES], ALL


def random_copies() -> list[tuple[str, list[int], list[int], int]]:
    """(name, shared offsets, global offsets, mask) of copies of 16 bytes that are random on both sides, some to one target."""
    rng = random.Random(5)
    out = []
    for k in range(16):
        reach = (16, 40, 64, 200)[k % 4]
        sides = [[16 * rng.randrange(reach) for _ in LANES] for _ in range(2)]
        if k % 4 == 3:  # no target twice
            sides[0] = [16 * n for n in rng.sample(range(64), 32)]
        out.append((f"both random {k}", *sides, ALL if k < 8 else rng.getrandbits(32) | 1))
    return out


# --- the probes ------------------------------------------------------------------------------------------------------

_VECTOR = {1: ("u8", "u32"), 2: ("u16", "u16"), 4: ("u32", "u32"), 8: ("v2.u32", "u32"), 16: ("v4.u32", "u32")}


def probe_names() -> dict[str, tuple[str, int]]:
    """Probe -> (group of metrics, width). One kernel each."""
    out = {}
    for width in (1, 2, 4, 8, 16):
        out[f"probe_lds_{width}"] = ("shared", width)
        out[f"probe_sts_{width}"] = ("shared", width)
    for width in (4, 8, 16):
        out[f"probe_ldg_{width}"] = ("global", width)
        out[f"probe_stg_{width}"] = ("global", width)
    for matrices in (1, 2, 4):
        out[f"probe_ldsm_{matrices}"] = ("ldsm", 16)
    out["probe_ldsmt_4"] = ("ldsm", 16)
    out["probe_stsm_4"] = ("ldsm", 16)
    for width in (4, 8, 16):
        out[f"probe_cpasync_ca_{width}"] = ("cp.async", width)
    out["probe_cpasync_cg_16"] = ("cp.async", 16)
    for kind in ("red_u32", "red_f32", "atom_u32", "atoms_u32"):
        out[f"probe_{kind}"] = ("atomic", 4)
    out["probe_atom_u64"] = ("atomic", 8)
    out["probe_ldgnc_4"] = ("global", 4)
    return out


def _body(name: str, width: int) -> str:
    kind = name.split("_")[1]
    registers = {8: 2, 16: 4}.get(width, 1)
    outputs = ", ".join(f'"=r"(x[{k}])' for k in range(registers))
    inputs = ", ".join(f'"r"(x[{k}])' for k in range(registers))
    names = "{" + ", ".join(f"%{k}" for k in range(registers)) + "}" if registers > 1 else "%0"
    stored = "{" + ", ".join(f"%{k + 1}" for k in range(registers)) + "}" if registers > 1 else "%1"
    vector = {8: ".v2", 16: ".v4"}.get(width, "") + {1: ".u8", 2: ".u16"}.get(width, ".u32")
    if width == 2 and kind in ("lds", "sts"):
        outputs, inputs = '"=h"(h)', '"h"(h)'
    lines = []
    for r in range(REPEAT):
        s, g = f"s + {r * STEP}", f"g + {r * STEP}"
        if kind == "lds":
            lines.append(f'asm volatile("ld.volatile.shared{vector} {names}, [%{registers}];" : {outputs} : "r"({s}));')
        elif kind == "sts":
            lines.append(f'asm volatile("st.volatile.shared{vector} [%0], {stored};" :: "r"({s}), {inputs});')
        elif kind == "ldg":
            lines.append(f'asm volatile("ld.global{vector} {names}, [%{registers}];" : {outputs} : "l"({g}));')
        elif kind == "stg":
            lines.append(f'asm volatile("st.global{vector} [%0], {stored};" :: "l"({g}), {inputs});')
        elif kind in ("ldsm", "ldsmt"):
            n = int(name.split("_")[2])
            outs = ", ".join(f'"=r"(x[{k}])' for k in range(n))
            regs = "{" + ", ".join(f"%{k}" for k in range(n)) + "}"
            trans = ".trans" if kind == "ldsmt" else ""
            lines.append(f'asm volatile("ldmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 {regs}, [%{n}];" : {outs} : "r"({s}));')
        elif kind == "stsm":
            lines.append(
                'asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" '
                f':: "r"({s}), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]));'
            )
        elif kind == "ldgnc":
            lines.append(f'asm volatile("ld.global.nc{vector} {names}, [%{registers}];" : {outputs} : "l"({g}));')
        elif kind == "red":
            t = name.split("_")[2]
            value = '"f"(1.0f)' if t == "f32" else '"r"(1)'
            lines.append(f'asm volatile("red.global.add.{t} [%0], %1;" :: "l"({g}), {value});')
        elif name == "probe_atom_u64":
            lines.append(f'asm volatile("atom.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"({g}), "l"(1ull)); y ^= (unsigned)old;')
        elif kind == "atom":
            lines.append(f'asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(x[0]) : "l"({g}), "r"(1));')
        elif kind == "atoms":
            lines.append(f'asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(x[0]) : "r"({s}), "r"(1));')
        elif kind == "cpasync":
            cache = name.split("_")[2]
            lines.append(f'asm volatile("cp.async.{cache}.shared.global [%0], [%1], {width};" :: "r"({s}), "l"({g}));')
        if kind in ("lds", "ldg", "ldgnc", "ldsm", "ldsmt") or name in ("probe_atom_u32", "probe_atoms_u32"):
            lines.append("y ^= h;" if width == 2 and kind == "lds" else "y ^= x[0] ^ x[1] ^ x[2] ^ x[3];")
    if kind == "cpasync":
        lines.append('asm volatile("cp.async.wait_all;");')
    return "\n        ".join(lines)


def source() -> str:
    """CUDA source of all probes."""
    out = [
        "// Lane offsets for shared [0, 32) and global memory [32, 64), then the active mask.",
        "__constant__ unsigned table[65];",
    ]
    for name, (_, width) in probe_names().items():
        out.append(f"""
extern "C" __global__ void {name}(unsigned char* buffer) {{
    extern __shared__ __align__(1024) unsigned char memory[];
    unsigned lane = threadIdx.x, x[4] = {{lane, lane, lane, lane}}, y = 0;
    unsigned short h = lane;
    unsigned long long old;
    unsigned s = static_cast<unsigned>(__cvta_generic_to_shared(memory)) + table[lane];
    unsigned long long g = reinterpret_cast<unsigned long long>(buffer) + table[32 + lane];
    if (table[64] >> lane & 1) {{
        {_body(name, width)}
    }}
    if (y == 0x9e3779b9u) *reinterpret_cast<unsigned*>(buffer) = y + h;
}}""")
    return "\n".join(out)


def launches() -> list[dict]:
    """Every row of the table, without its measurements."""
    rows = []
    for name, (group, width) in probe_names().items():
        packed = [n * width for n in LANES]
        if group == "shared":
            cases = patterns(width) if width >= 4 else few_global_patterns(width)
            chosen = [(what, offsets, packed, mask) for what, offsets, mask in cases]
        elif group == "global":
            chosen = [(what, packed, offsets, mask) for what, offsets, mask in few_global_patterns(width)]
        elif group == "atomic":
            cases = [c for c in few_global_patterns(width) if not c[0].startswith("sector")]
            chosen = [(what, offsets, offsets, mask) for what, offsets, mask in cases]
        elif group == "ldsm":
            chosen = [(what, offsets, packed, mask) for what, offsets, mask in row_patterns()]
        else:
            chosen = [(f"global: {what}", packed, offsets, mask) for what, offsets, mask in few_global_patterns(width)]
            chosen += [(f"shared: {what}", offsets, packed, mask) for what, offsets, mask in few_global_patterns(width)]
            chosen += random_copies() if name == "probe_cpasync_cg_16" else []
        rows += [
            {"probe": name, "group": group, "width": width, "pattern": what, "shared": s, "global": g, "mask": mask}
            for what, s, g, mask in chosen
        ]
    return rows


# --- measuring -------------------------------------------------------------------------------------------------------

_GLOBAL = [
    f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st") for what in ("requests", "sectors")
]  # fmt: skip
_SHARED = [
    name
    for op in ("ld", "st")
    for name in (
        f"smsp__inst_executed_op_shared_{op}.sum",
        f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum",
        f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum",
    )
]
_SHARED_TOTAL = ["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"]
_SOURCE_LEVEL = ["memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"]
_SOURCE_LEVEL_GLOBAL = ["memory_l2_theoretical_sectors_global", "memory_l2_theoretical_sectors_global_ideal"]
_LDSM = ["smsp__inst_executed_op_ldsm.sum"]
_LDGSTS = [
    "smsp__inst_executed_op_ldgsts.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ldgsts.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_bypass.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
]
_REST = [
    f"l1tex__t_{what}_pipe_lsu_mem_{space}.sum"
    for space in ("global_op_atom", "global_op_red", "local_op_ld", "local_op_st")
    for what in ("requests", "sectors")
] + [
    "smsp__inst_executed_op_shared_atom.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum",
]
METRICS = {
    "shared": _SHARED + _SOURCE_LEVEL,
    "global": _GLOBAL + _SOURCE_LEVEL_GLOBAL,
    "ldsm": _SHARED + _SHARED_TOTAL + _LDSM + _SOURCE_LEVEL,
    "cp.async": _GLOBAL + _SHARED + _SHARED_TOTAL + _LDGSTS + _SOURCE_LEVEL + _SOURCE_LEVEL_GLOBAL,
    "atomic": [*_GLOBAL, *_REST, *_SOURCE_LEVEL, *_SOURCE_LEVEL_GLOBAL],
    "counts": [
        "smsp__inst_executed.sum", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", *_GLOBAL, *_SHARED, *_SHARED_TOTAL, *_LDSM,
        *_LDGSTS, *_REST, *_SOURCE_LEVEL, *_SOURCE_LEVEL_GLOBAL,
    ],
}  # fmt: skip
CHUNK = 160  # launches per profiled process


def ncu_command(metrics: Sequence[str], program: list[str], *options: str, kernels: str | None = None) -> list[str]:
    """The Nsight Compute command line: no clock or cache control, machine-readable values; kernels whose names match (default: the course's)."""
    ncu = shutil.which("ncu") or next((str(p) for p in sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"))), "ncu")
    kernels = kernels or "|".join(sorted({"probe_.*", *(c.kernel for c in probes.CASES)}))
    return [
        ncu, "--clock-control", "none", "--cache-control", "none", "--csv", "--print-units", "base", "--kernel-name", f"regex:^({kernels})$",
        "--metrics", ",".join(metrics), *options, *program,
    ]  # fmt: skip


def parse_csv(text: str) -> list[dict]:
    """ncu's --csv output -> one dict per profiled launch, in launch order: {'kernel': name, metric: number or None}."""
    lines = text.splitlines()
    start = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    found: dict[int, dict] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        if not row.get("ID", "").isdigit():
            continue
        launch = found.setdefault(int(row["ID"]), {"kernel": row["Kernel Name"].split("(")[0]})
        launch[row["Metric Name"]] = _number(row["Metric Value"])
    return [found[k] for k in sorted(found)]


def _number(text: str):
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return int(value) if value.is_integer() else value


def run_launches(folder: Path, rows: list[dict]) -> None:
    """Launch the rows once each, in order. Runs under ncu."""
    import cupy

    modules: dict[str, object] = {}
    buffer = cupy.zeros(REPEAT * STEP + 65536, cupy.uint8)
    for row in rows:
        file = row.get("file", "probes.cu")
        if file not in modules:
            modules[file] = cupy.RawModule(path=str(folder / Path(Path(file).name).with_suffix(".cubin")))
        module = modules[file]
        if row["group"] == "counts":
            case = probes.CASES[row["case"]]
            args = [cupy.asarray(a) if getattr(a, "ndim", 0) else a for a in case.arrays()]
            module.get_function(case.kernel)(case.grid, case.block, tuple(args))
        else:
            table = cupy.ndarray((65,), cupy.uint32, module.get_global("table"))
            table.set(numpy.array([*row["shared"], *row["global"], row["mask"]], numpy.uint32))
            module.get_function(row["probe"])((1,), (32,), (buffer,), shared_mem=REPEAT * STEP + 4096)
        cupy.cuda.get_current_stream().synchronize()


def count_rows() -> list[dict]:
    """The launches of probes.py as rows."""
    return [
        {"probe": c.kernel, "group": "counts", "case": k, "file": c.file, "grid": c.grid, "block": c.block}
        for k, c in enumerate(probes.CASES)
    ]


def _key(row: dict) -> tuple:
    """What a row of the table is about."""
    return row["group"], row["probe"], row.get("pattern", row.get("case"))


def measure(folder: Path, out: Path, seconds: float, groups: list[str]) -> None:
    """Profile the groups in turn, in chunks, until time is up; write OUT/rows-GROUP-CHUNK.json after each chunk."""
    begin = time.monotonic()
    known = {_key(row) for row in json.loads(TABLE.read_text())["rows"]} if TABLE.exists() else set()
    rows = {g: [r for r in (count_rows() if g == "counts" else launches()) if r["group"] == g and _key(r) not in known] for g in groups}
    slowest = 0.0
    for group in groups:
        metrics = usable(folder, out, group, rows[group][:1])
        for start in range(0, len(rows[group]), CHUNK):
            left = seconds - (time.monotonic() - begin)
            if left < 1.3 * slowest:
                print(group, "from", start, "left out: no time", flush=True)
                break
            chunk = rows[group][start : start + CHUNK]
            since = time.monotonic()
            output = profile(folder, out, metrics, chunk, left)
            slowest = max(slowest, time.monotonic() - since)
            found = parse_csv(output)
            print(group, start, len(chunk), "launches,", len(found), "profiled,", round(time.monotonic() - since, 1), "s", flush=True)
            if len(found) != len(chunk):
                print(output[-1500:], flush=True)
                continue
            for row, values in zip(chunk, found, strict=True):
                if values.pop("kernel") != row["probe"]:
                    raise SystemExit(f"{row['probe']} was not profiled in its place")
                row["measured"] = values
            (out / f"rows-{group}-{start}.json").write_text(json.dumps(chunk))


def profile(folder: Path, out: Path, metrics: list[str], rows: list[dict], seconds: float, *options: str) -> str:
    """Run `rows` under ncu in a process of its own; returns its output."""
    listing = folder / "launch.json"
    listing.write_text(json.dumps(rows))
    return run(
        ncu_command(metrics, [sys.executable, "-m", "tests.gpu.calibration", "launch", str(folder), str(listing)], *options), seconds
    )


def usable(folder: Path, out: Path, group: str, rows: list[dict]) -> list[str]:
    """The metrics of the group that this ncu and GPU have: those it does not find are dropped and the rest tried again."""
    listing = out / "metrics.txt"
    listed = {line.split()[0] for line in listing.read_text().splitlines() if "__" in line} if listing.exists() else set()
    asked = METRICS[group]
    hardware = ("l1tex__", "smsp__inst")
    metrics = [m for m in asked if not listed or not m.startswith(hardware) or m.split(".")[0] in listed]
    print(group, "not offered here:", [m for m in asked if m not in metrics], flush=True)
    for _ in range(6):
        output = profile(folder, out, metrics, rows, 40)
        if parse_csv(output):
            break
        errors = "\n".join(line for line in output.splitlines() if "ERROR" in line or "Failed to find" in line)
        bad = [m for m in metrics if m in errors or m.rsplit(".", 1)[0] in errors.replace(",", " ").split()]
        print(group, "dropped:", bad, errors[:600], flush=True)
        if not bad:
            break
        metrics = [m for m in metrics if m not in bad]
    (out / f"metrics-{group}.txt").write_text("\n".join(metrics))
    return metrics


def per_opcode(folder: Path, out: Path) -> None:
    """Instructions executed by opcode, as ncu prints them, for every launch of probes.py: OUT/opcodes.txt."""
    output = profile(folder, out, ["sass__inst_executed_per_opcode"], count_rows(), 60, "--print-metric-instances", "details")
    (out / "opcodes.txt").write_text(output)


def list_metrics(out: Path) -> None:
    """What ncu offers on this GPU: OUT/metrics.txt."""
    (out / "metrics.txt").write_text(run([ncu_command([], [])[0], "--query-metrics"], 40))


def run(command: list[str], seconds: float) -> str:
    """Standard output of a command, what there was of it if it ran out of time."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=max(seconds, 1), check=False)
        return done.stdout
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode()


def build(folder: Path) -> None:
    """Compile the probes and the counting kernels for sm_90 with the course's own compiler."""
    from helpers.toolchain.compile import compile_source

    folder.mkdir(parents=True, exist_ok=True)
    compiled = compile_source(source(), entry="probe_lds_4")
    (folder / "probes.cubin").write_bytes(compiled.cubin)
    (folder / "probes.sass").write_text(compiled.sass)
    for case in {c.file: c for c in probes.CASES}.values():
        whole = compile_source(probes.FILES[case.file].read_text(), entry=case.kernel)
        (folder / Path(case.file).name).with_suffix(".cubin").write_bytes(whole.cubin)


def merge(folder: Path) -> None:
    """Add measured rows to helpers/data/calibration_h200.json, each at the end of its group, one line each.

    Lane offsets are left out where they are packed (lane x width); measured values are in the order of the group's names.
    """
    paths = sorted(folder.glob("rows-*.json"), key=lambda p: (p.name.split("-")[1], int(p.stem.split("-")[2])))
    old = json.loads(TABLE.read_text()) if TABLE.exists() else {"metrics": {}, "rows": []}
    names: dict[str, list[str]] = old["metrics"]
    rows = {_key(row): row for row in old["rows"]}
    for row in (row for path in paths for row in json.loads(path.read_text())):
        order = names.setdefault(row["group"], list(row["measured"]))
        row["measured"] = [row["measured"][name] for name in order]
        for side in ("shared", "global"):
            if row.get(side) == [n * row.get("width", 0) for n in LANES]:
                del row[side]
        rows[_key(row)] = row
    groups = list(dict.fromkeys(row["group"] for row in rows.values()))
    lines = [json.dumps(row, separators=(",", ":")) for group in groups for row in rows.values() if row["group"] == group]
    head = {
        "device": "NVIDIA H200",
        "profiler": "Nsight Compute 2025.3.1, --clock-control none --cache-control none",
        "date": "2026-11-21",
        "repeat": REPEAT,
        "metrics": names,
    }
    TABLE.write_text(json.dumps(head)[:-1] + ', "rows": [\n' + ",\n".join(lines) + "\n]}\n")
    print(len(rows), "rows in", TABLE)


def main(arguments: list[str]) -> None:
    match arguments:
        case ["build", folder]:
            build(Path(folder))
        case ["measure", folder, out, seconds, *groups]:
            measure(Path(folder), Path(out), float(seconds), groups)
        case ["opcodes", folder, out]:
            per_opcode(Path(folder), Path(out))
        case ["list", out]:
            list_metrics(Path(out))
        case ["launch", folder, listing]:
            run_launches(Path(folder), json.loads(Path(listing).read_text()))
        case ["merge", folder]:
            merge(Path(folder))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
