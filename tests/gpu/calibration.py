"""Measure how an H200 charges warp accesses, and write the table that the accounting is tested against.

Every row of the table is one launch of one warp that performs one access pattern REPEAT times with one instruction
(LDS, STS, LDG, STG, LDSM, LDGSTS of 4, 8 or 16 bytes), profiled with Nsight Compute. The lanes' offsets come from
constant memory, so that nothing else in the kernel touches global or shared memory.

    python tests/gpu/calibration.py build FOLDER     compile the probes (no GPU needed)
    python tests/gpu/calibration.py measure FOLDER   profile them with ncu (needs a GPU), write FOLDER/rows-*.json
    python tests/gpu/calibration.py merge FOLDER     put the rows together into helpers/data/calibration_h200.json
"""

from __future__ import annotations

import csv
import io
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

REPEAT = 2
STEP = 20480  # bytes between repeats: a multiple of all banks and of a page of sectors, above the largest pattern
LANES = range(32)
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
        elif kind == "cpasync":
            cache = name.split("_")[2]
            lines.append(f'asm volatile("cp.async.{cache}.shared.global [%0], [%1], {width};" :: "r"({s}), "l"({g}));')
        if kind in ("lds", "ldg", "ldsm", "ldsmt"):
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
        elif group == "ldsm":
            chosen = [(what, offsets, packed, mask) for what, offsets, mask in row_patterns()]
        else:
            chosen = [(f"global: {what}", packed, offsets, mask) for what, offsets, mask in few_global_patterns(width)]
            chosen += [(f"shared: {what}", offsets, packed, mask) for what, offsets, mask in few_global_patterns(width)]
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
METRICS = {
    "shared": _SHARED + _SOURCE_LEVEL,
    "global": _GLOBAL + _SOURCE_LEVEL_GLOBAL,
    "ldsm": _SHARED + _SHARED_TOTAL + _LDSM + _SOURCE_LEVEL,
    "cp.async": _GLOBAL + _SHARED + _SHARED_TOTAL + _LDGSTS + _SOURCE_LEVEL + _SOURCE_LEVEL_GLOBAL,
    "counts": ["smsp__inst_executed.sum", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", *_GLOBAL, *_SHARED, *_SOURCE_LEVEL, *_SOURCE_LEVEL_GLOBAL],
}


def ncu_command(metrics: list[str], program: list[str], kernels: str) -> list[str]:
    """The Nsight Compute command line: no clock or cache control, machine-readable values."""
    return [
        "ncu", "--clock-control", "none", "--cache-control", "none", "--csv", "--print-units", "base", "--kernel-name", f"regex:{kernels}",
        "--metrics", ",".join(metrics), *program,
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
    """Launch the probes of `rows` once each, in order. Runs under ncu."""
    import cupy

    module = cupy.RawModule(path=str(folder / "probes.cubin"))
    pointer = module.get_global("table")
    table = cupy.ndarray((65,), cupy.uint32, pointer)
    buffer = cupy.zeros(REPEAT * STEP + 65536, cupy.uint8)
    for row in rows:
        table.set(cupy.asnumpy(cupy.asarray(row["shared"] + row["global"] + [row["mask"]], dtype=cupy.uint32)))
        module.get_function(row["probe"])((1,), (32,), (buffer,), shared_mem=REPEAT * STEP + 4096)
    cupy.cuda.get_current_stream().synchronize()


def measure(folder: Path, groups: list[str], seconds: float) -> None:
    """Profile the probes of the groups and write FOLDER/rows-GROUP.json, each as soon as it is measured."""
    begin = time.monotonic()
    available = available_metrics(folder)
    for group in groups:
        rows = [r for r in launches() if r["group"] == group]
        (folder / f"launch-{group}.json").write_text(json.dumps(rows))
        metrics = [m for m in METRICS[group] if known(m, available)]
        program = [sys.executable, __file__, "launch", str(folder), group]
        left = seconds - (time.monotonic() - begin)
        result = run(ncu_command(metrics, program, "^probe_"), left)
        found = parse_csv(result)
        print(group, len(rows), "launches,", len(found), "profiled,", round(time.monotonic() - begin, 1), "s", flush=True)
        if len(found) != len(rows):
            print(result[-1500:])
        for row, values in zip(rows, found, strict=False):
            if values.pop("kernel") != row["probe"]:
                raise SystemExit(f"{row['probe']} was not profiled in its place")
            row["measured"] = values
        (folder / f"rows-{group}.json").write_text(json.dumps([r for r in rows if "measured" in r]))


def known(metric: str, available: set[str]) -> bool:
    """Whether this Nsight Compute knows the metric (source-level names are not listed and always tried)."""
    return not available or metric.rsplit(".", 1)[0] in available or metric.startswith(("memory_", "smsp__sass"))


def available_metrics(folder: Path) -> set[str]:
    """Base names that ncu lists for this GPU; also kept in FOLDER/metrics.txt."""
    text = run(["ncu", "--query-metrics"], 60)
    (folder / "metrics.txt").write_text(text)
    return {line.split()[0] for line in text.splitlines() if "__" in line.split(" ")[0]}


def run(command: list[str], seconds: float) -> str:
    """Standard output of a command, what there was of it if it ran out of time."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=max(seconds, 1), check=False).stdout
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode()


def build(folder: Path) -> None:
    """Compile the probes and the counting kernels for sm_90 with the course's own compiler."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from helpers.compiler import compile_source

    folder.mkdir(parents=True, exist_ok=True)
    compiled = compile_source(source(), entry="probe_lds_4")
    (folder / "probes.cubin").write_bytes(compiled.cubin)
    (folder / "probes.sass").write_text(compiled.sass)


def merge(folder: Path) -> None:
    """Put the rows of all groups into helpers/data/calibration_h200.json, one line each."""
    rows = [row for path in sorted(folder.glob("rows-*.json")) for row in json.loads(path.read_text())]
    target = Path(__file__).resolve().parents[2] / "helpers" / "data" / "calibration_h200.json"
    head = {"device": "NVIDIA H200", "repeat": REPEAT, "profiler": "Nsight Compute, --clock-control none --cache-control none"}
    body = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    target.write_text(json.dumps(head)[:-1] + ', "rows": [\n' + body + "\n]}\n")
    print(len(rows), "rows in", target)


def main(arguments: list[str]) -> None:
    what, folder, *rest = arguments
    if what == "build":
        build(Path(folder))
    elif what == "measure":
        seconds = float(rest[0]) if rest else 120.0
        measure(Path(folder), rest[1:] or ["shared", "cp.async", "ldsm", "global"], seconds)
    elif what == "launch":
        run_launches(Path(folder), json.loads((Path(folder) / f"launch-{rest[0]}.json").read_text()))
    elif what == "merge":
        merge(Path(folder))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
