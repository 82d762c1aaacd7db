"""Small kernels that measure a multiprocessor: what each instruction costs to issue, and how long until its result is there.

    course record --microbench --out FOLDER     on a machine with a GPU, a few minutes

Every kernel reads the multiprocessor's clock around its work and runs on one block of some warps, but for L2 (one block on each
multiprocessor) and block starts. What is measured: **throughput**, the cycles from one instruction of a warp to its next while
`warps` warps do the same; **sub-partition**, the cycles from one instruction of a sub-partition to its next while `warps` warps of it
do the same and the others rest; **latency**, the cycles of an instruction that needs its predecessor's result; **burst**, the cycles
until a warp has issued so many instructions of the memory queue; **queue**, how many of them a sub-partition can have waiting for the
load/store unit while all sub-partitions ask for more than it can serve; **loop**, cycles per instruction of a loop by its length, where
the instruction caches end; **blocks**, the cycles that a multiprocessor takes for a block that does nothing.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.errors import CourseError
from helpers.model.hardware import SUB_PARTITIONS
from helpers.run import gpu

from . import rungs

REPEAT, UNROLL = 32, 32
WARPS = (1, 2, 4, 8, 16, 32)
_PORTS = ("LDS.32", "LDS.64", "LDS.128", "LDS.128 uniform", "STS.32", "STS.64", "STS.128", "SHFL")
LOOPS = (256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)  # instructions
BURSTS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32)

# name -> one instruction; {j}: register 0 to 7, {o}, {c}: an offset in bytes, of its own; {i}: another register.
_THROUGHPUT: Mapping[str, str] = {
    "FFMA": 'asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(f[{j}]) : "f"(a), "f"(b));',
    "FADD": 'asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(f[{j}]) : "f"(a));',
    "IMAD": 'asm volatile("mad.lo.u32 %0, %0, %1, %2;" : "+r"(u[{j}]) : "r"(v), "r"(w));',
    "LOP3": 'asm volatile("lop3.b32 %0, %0, %1, %2, 0x96;" : "+r"(u[{j}]) : "r"(v), "r"(w));',
    "SHF": 'asm volatile("shf.l.wrap.b32 %0, %0, %1, %2;" : "+r"(u[{j}]) : "r"(v), "r"(w));',
    "MUFU": 'asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(f[{j}]));',
    "HFMA2": 'asm volatile("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(u[{j}]) : "r"(v), "r"(w));',
    "DFMA": 'asm volatile("fma.rn.f64 %0, %0, %1, %1;" : "+d"(d[{j}]) : "d"(e));',
    "SHFL": 'asm volatile("shfl.sync.bfly.b32 %0, %0, 1, 31, -1;" : "+r"(u[{j}]));',
    "LDS.32": "load(u[{j}], s4 + {o});",
    "LDS.64": "load2(u[{j}], s8 + {o});",
    "LDS.128": "load4(u[{j}], s16 + {o});",
    "LDS.32 uniform": "load(u[{j}], s0 + {o});",
    "LDS.128 uniform": "load4(u[{j}], s0 + {o});",
    "LDS.32 2-way": "load(u[{j}], s8 + {o});",
    "STS.32": "store(u[{j}], s4 + {o});",
    "STS.64": "store2(u[{j}], u[{i}], s8 + {o});",
    "STS.128": "store4(u[{j}], u[{i}], s16 + {o});",
    "LDSM.4": "load_matrices(u[{j}], s16 + {o});",
    "LDG.32": "load(u[{j}], g4 + {o});",
    "LDG.64": "load2(u[{j}], g8 + {o});",
    "LDG.128": "load4(u[{j}], g16 + {o});",
    "LDG.32 uniform": "load(u[{j}], g0 + {o});",
    "STG.32": "store(u[{j}], own + {o});",
    "STG.128": "store4(u[{j}], u[{i}], own16 + {o});",
    "LDGSTS.32": "copy(s4 + {o}, g4 + {o});",
    "LDGSTS.128": "copy4(s16 + {o}, g16 + {o});",
    "LDC": "load_constant(u[{j}], c0 + {c});",
    "BAR": 'asm volatile("bar.sync 0;" ::: "memory");',
}
# name -> one step of a chain; p and q point to pointers in global and in shared memory.
_LATENCY: Mapping[str, str] = {
    **{name: _THROUGHPUT[name].format(j=0) for name in ("FFMA", "FADD", "IMAD", "LOP3", "MUFU", "HFMA2", "DFMA", "SHFL")},
    "LDS.32": 'asm volatile("ld.volatile.shared.u32 %0, [%0];" : "+r"(q));',
    "LDS.64": 'asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%0];" : "+r"(q), "=r"(u[1]));',
    "LDS.128": 'asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%0];" : "+r"(q), "=r"(u[1]), "=r"(u[2]), "=r"(u[3]));',
    "LDG L1": 'asm volatile("ld.global.u64 %0, [%0];" : "+l"(p));',
    "LDG L2": 'asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(p));',
    "LDGSTS": 'copy4(s16, g16); asm volatile("cp.async.wait_all;" ::: "memory");',
    "STS LDS": 'asm volatile("st.volatile.shared.u32 [%1], %0; ld.volatile.shared.u32 %0, [%1];" : "+r"(q) : "r"(s4) : "memory");',
}

_INSTRUCTIONS = """
using u32 = unsigned;
using u64 = unsigned long long;
// Each load is used, or the assembler would drop it: one XOR, on another unit.
__device__ void load(u32& x, u32 a) {
    u32 p;
    asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(p) : "r"(a));
    x = p;
}
__device__ void load2(u32& x, u32 a) {
    u32 p, q;
    asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];" : "=r"(p), "=r"(q) : "r"(a));
    x = p;
}
__device__ void load4(u32& x, u32 a) {
    u32 p, q, r, s;
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(p), "=r"(q), "=r"(r), "=r"(s) : "r"(a));
    x = p;
}
__device__ void load(u32& x, const char* a) {
    u32 p;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(p) : "l"(a));
    x ^= p;
}
__device__ void load2(u32& x, const char* a) {
    u32 p, q;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(p), "=r"(q) : "l"(a));
    x ^= p ^ q;
}
__device__ void load4(u32& x, const char* a) {
    u32 p, q, r, s;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(p), "=r"(q), "=r"(r), "=r"(s) : "l"(a));
    x ^= p ^ q, x ^= r ^ s;
}
__device__ void load_matrices(u32& x, u32 a) {
    u32 p, q, r, s;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(p), "=r"(q), "=r"(r), "=r"(s) : "r"(a));
    x ^= p ^ q, x ^= r ^ s;
}
__device__ void load_constant(u32& x, u64 a) {
    u32 p;
    asm volatile("ld.const.u32 %0, [%1];" : "=r"(p) : "l"(a));
    x ^= p;
}
__device__ void store(u32 x, u32 a) { asm volatile("st.volatile.shared.u32 [%1], %0;" :: "r"(x), "r"(a) : "memory"); }
__device__ void store2(u32 x, u32 y, u32 a) {
    asm volatile("st.volatile.shared.v2.u32 [%2], {%0, %1};" :: "r"(x), "r"(y), "r"(a) : "memory");
}
__device__ void store4(u32 x, u32 y, u32 a) {
    asm volatile("st.volatile.shared.v4.u32 [%2], {%0, %1, %0, %1};" :: "r"(x), "r"(y), "r"(a) : "memory");
}
__device__ void store(u32 x, char* a) { asm volatile("st.global.u32 [%1], %0;" :: "r"(x), "l"(a) : "memory"); }
__device__ void store4(u32 x, u32 y, char* a) {
    asm volatile("st.global.v4.u32 [%2], {%0, %1, %0, %1};" :: "r"(x), "r"(y), "l"(a) : "memory");
}
__device__ void copy(u32 to, const char* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(from) : "memory");
}
__device__ void copy4(u32 to, const char* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}
"""
_FRAME = """
__constant__ unsigned constants[1024];
extern "C" __global__ void __launch_bounds__(1024)
    probe(unsigned* out, const char* data, char* mine, unsigned v, unsigned w, float a, float b, double e) {{
    __shared__ __align__(128) unsigned s[10240];
    const unsigned t = threadIdx.x;
    for (unsigned i = t; i < 10240; i += blockDim.x) s[i] = static_cast<unsigned>(__cvta_generic_to_shared(s)) + i / 4 * 16;
    unsigned u[8];
    float f[8];
    double d[8];
    for (int j = 0; j < 8; j++) u[j] = t + j, f[j] = t + j, d[j] = j;
    const unsigned s0 = static_cast<unsigned>(__cvta_generic_to_shared(s));
    const unsigned s4 = s0 + t % 32 * 4, s8 = s0 + t % 32 * 8, s16 = s0 + t % 32 * 16;
    const char *g0 = data, *g4 = data + t % 32 * 4, *g8 = data + t % 32 * 8, *g16 = data + t % 32 * 16;
    char *own = mine + blockIdx.x * 32768ull + t / 32 * 1024 + t % 32 * 4, *own16 = own + t % 32 * 12;
    unsigned long long c0 = (v + t / 1024) % 1024 * 4;
    unsigned long long p = reinterpret_cast<unsigned long long>(data);
    unsigned q = s0;
    asm volatile("" : "+l"(c0), "+l"(p), "+r"(q));
    #pragma unroll 1
    for (int k = 0; k < 2; k++) {{  // the second time counts: caches are warm then
        __syncthreads();
        const unsigned begin = clock();
        #pragma unroll 1
        for (int i = 0; i < {repeat}; i++) {{
            g0 += v, g4 += v, g8 += v, g16 += v, c0 += v;  // v is 0: another place, for all the compiler knows
            {body}
        }}
        {after}
        const unsigned end = clock();
        if (t % 32 == 0) out[(blockIdx.x * 32 + t / 32) * 2] = begin, out[(blockIdx.x * 32 + t / 32) * 2 + 1] = end;
    }}
    unsigned sum = q + unsigned(p) + unsigned(c0);
    for (int j = 0; j < 8; j++) sum += u[j] + __float_as_uint(f[j]) + unsigned(d[j]);
    if (sum == 0x9e3779b9u) out[0] = sum + v + w + unsigned(a + b + e) + constants[t] + *g0 + *g8 + *own + *own16;
}}
"""


@dataclass(frozen=True)
class Measurement:
    """One figure. kind: throughput, sub-partition, latency, burst, queue, loop, blocks, memory; wgmma, clock (see `tensor_probes`).
    warps: of the block. cycles: see the module, of all `count` instructions for a burst; of kind queue: instructions; of kind memory:
    bytes per cycle and multiprocessor."""

    kind: str
    name: str
    warps: int
    count: int
    cycles: float


def body_of(name: str, count: int = UNROLL) -> str:
    """So many instructions of a name, with registers and offsets of their own."""
    return "\n".join(_THROUGHPUT[name].format(j=k % 8, o=k * 512, c=k * 16, i=(k + 1) % 8) for k in range(count))


def measurements() -> Iterator[Measurement]:
    """All of them, in a minute or two. Raises CourseError without a GPU."""
    import cupy

    if not gpu.available():
        raise CourseError(gpu.why_not())
    sms = gpu.device().sms
    data = cupy.zeros(1 << 26, cupy.uint64)
    out = cupy.zeros(sms * 64, cupy.uint32)
    mine = cupy.zeros(sms * 32768 + 65536, cupy.uint8)
    scalars = (cupy.uint32(0), cupy.uint32(5), cupy.float32(1.25), cupy.float32(0.5), cupy.float64(0.75))

    def ran(body: str, repeat: int | str = REPEAT, after: str = ""):
        module = cupy.RawModule(
            code=_INSTRUCTIONS + _FRAME.format(body=body, repeat=repeat, after=after), options=("-std=c++17", "-arch=" + gpu.arch())
        )
        probe = module.get_function("probe")

        def cycles(warps: int, grid: int = 1, every: int = 1) -> float:
            times = []
            for _ in range(3):
                probe((grid,), (32 * warps,), (out, data, mine, *scalars))
                found = out.get().reshape(sms, 32, 2)[:grid, :warps:every].astype("i8")
                times.append(statistics.median(one[:, 1].max() - one[:, 0].min() for one in found))
            return min(times)

        return cycles

    def chain(stride: int, length: int) -> None:
        """`data` becomes a ring of pointers, `stride` elements apart."""
        first = data.data.ptr
        places = cupy.arange(length, dtype=cupy.uint64)
        data[: length * stride : stride] = first + (places + 1) % length * (8 * stride)

    wait = 'asm volatile("cp.async.wait_all;" ::: "memory");'
    for name in _THROUGHPUT:
        cycles = ran(body_of(name), after=wait if name.startswith("LDGSTS") else "")
        for warps in WARPS:
            yield Measurement("throughput", name, warps, 1, cycles(warps) / (REPEAT * UNROLL))
    for name in _PORTS:
        cycles = ran(body_of(name), repeat=f"((t / 32 + v) % {SUB_PARTITIONS} ? 0 : {REPEAT})")  # v is 0
        warps = WARPS[-1] // SUB_PARTITIONS
        yield Measurement("sub-partition", name, warps, 1, cycles(WARPS[-1], every=SUB_PARTITIONS) / (REPEAT * UNROLL * warps))
    for name, text in _LATENCY.items():
        chain(16, 64)
        yield Measurement("latency", name, 1, 1, ran("\n".join([text] * UNROLL))(1) / (REPEAT * UNROLL))
    cycles = ran("\n".join([_LATENCY["LDG L2"]] * UNROLL))
    for name, stride, length in (("L2, 1 MB", 16, 1 << 13), ("L2, 16 MB", 1024, 1 << 11), ("DRAM", 1 << 15, 1 << 11)):
        chain(stride, length)
        if name == "DRAM":
            cupy.zeros(1 << 25, cupy.uint64)[:] = 1  # sweeps L2
        yield Measurement("latency", f"LDG {name}", 1, 1, cycles(1) / (REPEAT * UNROLL))
    chain(16, 64)
    for name in ("LDS.32", "LDS.128", "STS.32", "STS.128", "LDGSTS.32", "LDGSTS.128"):
        for count in BURSTS:
            cycles = ran(body_of(name, count), repeat=1)
            for warps in (1, 4, 8, 16):
                yield Measurement("burst", name, warps, count, cycles(warps))
    yield from _queues(cupy)
    for count in LOOPS:
        cycles = ran(body_of("FFMA", count), repeat=8)
        for warps in (4, 8, 16):
            yield Measurement("loop", "FFMA", warps, count, cycles(warps) / (8 * count))
    yield from _memory(cupy, sms)
    yield from _blocks(cupy, sms)
    from . import tensor_probes  # which has its measurements from here

    yield from tensor_probes.measurements(cupy, sms)


_QUEUE = """
extern "C" __global__ void __launch_bounds__(1024) queue(unsigned* out) {{
    __shared__ __align__(128) unsigned s[1024];
    const unsigned t = threadIdx.x;
    for (unsigned i = t; i < 1024; i += blockDim.x) s[i] = 0;
    const unsigned column = static_cast<unsigned>(__cvta_generic_to_shared(s)) + t % 32 * 128;  // one bank: 32 wavefronts
    unsigned u[{each}], when[{each}];
    for (int j = 0; j < {each}; j++) u[j] = t;
    #pragma unroll 1
    for (int k = 0; k < 2; k++) {{  // the second time counts: the code is there then
        __syncthreads();
        for (unsigned begin = clock(); clock() - begin < 20000u;);  // until all queues are empty
        __syncthreads();
        {body}
    }}
    unsigned sum = 0;
    for (int j = 0; j < {each}; j++) sum += u[j];
    if (sum == 0x9e3779b9u) out[0] = sum;
    if (t % 32 == 0)
        for (int j = 0; j < {each}; j++) out[t / 32 * {each} + j] = when[j];
}}
"""
_WAVEFRONTS = 32  # of an instruction there
_EACH, _ASKING = 8, 32  # instructions of a warp, and warps: several times what the queues hold


def queue_source(name: str) -> str:
    """The kernel that fills the queues with LDS.32 or STS.32, and keeps when each instruction was behind its warp."""
    text = _THROUGHPUT[name].replace("s4 + {o}", "column")
    body = "\n".join(f"{text.format(j=j)} when[{j}] = clock();" for j in range(_EACH))
    return _INSTRUCTIONS + _QUEUE.format(body=body, each=_EACH)


def waiting(when: NDArray[np.int64]) -> float:
    """How many instructions a sub-partition issued before it had to wait for the unit. when: cycles, warps down."""
    found = []
    for part in range(SUB_PARTITIONS):
        times = np.sort(when[part::SUB_PARTITIONS].ravel())
        pauses = np.append(np.diff(times), np.inf) > _WAVEFRONTS / 2  # the last: nothing follows
        found.append(int(np.argmax(pauses)) + 1)
    return statistics.median(found)


def _queues(cupy) -> Iterator[Measurement]:
    """Every instruction keeps the unit for long: what is issued before the first pause is what the queue holds."""
    for name in ("LDS.32", "STS.32"):
        module = cupy.RawModule(code=queue_source(name), options=("-std=c++17", "-arch=" + gpu.arch()))
        out, found = cupy.zeros(_ASKING * _EACH, cupy.uint32), []
        for _ in range(9):
            module.get_function("queue")((1,), (32 * _ASKING,), (out,))
            found.append(waiting(out.get().reshape(_ASKING, _EACH).astype(np.int64)))
        yield Measurement("queue", name, _ASKING, _EACH, statistics.median(found))


_STREAM = """
extern "C" __global__ void stream(const float4* data, float4* out, unsigned long long elements, int rounds) {{
    float4 sum = make_float4(0, 0, 0, 0);
    unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x, step = gridDim.x * (unsigned long long)blockDim.x;
    for (int r = 0; r < rounds; r++)
        for (unsigned long long i = at; i < elements; i += 8 * step) {{
            float4 v[8] = {{}};
            #pragma unroll
            for (int j = 0; j < 8; j++)
                if (i + j * step < elements) v[j] = __ldcg(data + i + j * step);
            #pragma unroll
            for (int j = 0; j < 8; j++) sum.x += v[j].x + v[j].y, sum.y += v[j].z + v[j].w;
        }}
    if (sum.x == 1.2345f) out[0] = sum;
}}
"""


def _timed(cupy, launch, times: int = 5) -> float:
    """Milliseconds, median."""
    launch()
    found = []
    for _ in range(times):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        launch()
        end.record()
        end.synchronize()
        found.append(cupy.cuda.get_elapsed_time(begin, end))
    return statistics.median(found)


def _memory(cupy, sms: int) -> Iterator[Measurement]:
    """Bytes per cycle and multiprocessor from L2 and from DRAM, all multiprocessors reading, or one alone."""
    stream = cupy.RawModule(code=_STREAM.format(), options=("-std=c++17",)).get_function("stream")
    clock = gpu.device().clock_mhz * 1e3  # cycles per millisecond
    for name, megabytes, rounds, blocks in (
        ("L2, 8 MB", 8, 200, 2 * sms),
        ("L2, 24 MB", 24, 70, 2 * sms),
        ("DRAM", 4096, 1, 2 * sms),
        ("L2, 1 MB, one multiprocessor", 1, 200, 1),
    ):
        used = min(blocks, sms)
        data, out = cupy.zeros(megabytes << 18, cupy.float32), cupy.zeros(4, cupy.float32)
        arguments = (data, out, cupy.uint64(megabytes << 16), cupy.int32(rounds))
        took = _timed(cupy, functools.partial(stream, (blocks,), (1024,), arguments))
        yield Measurement("memory", name, 32 * blocks // used, rounds, (megabytes << 20) * rounds / (took * clock) / used)


_EMPTY = """
extern "C" __global__ void __launch_bounds__({threads}) empty(float* out, int n) {{
    extern __shared__ float s[];
    if (n > 1000) out[threadIdx.x] = s[threadIdx.x];
}}
"""


def _blocks(cupy, sms: int) -> Iterator[Measurement]:
    """Cycles of a multiprocessor per block that does nothing, and of a launch (name "launch": all of it, in cycles)."""
    clock = gpu.device().clock_mhz * 1e3
    out = cupy.zeros(1024, cupy.float32)
    for threads in (32, 128, 256, 512, 1024):
        empty = cupy.RawModule(code=_EMPTY.format(threads=threads), options=("-std=c++17",)).get_function("empty")
        for shared in (0, 32768):
            few, many = sms, sms * 400
            launches = (functools.partial(empty, (g,), (threads,), (out, cupy.int32(0)), shared_mem=shared) for g in (few, many))
            short, long_ = (_timed(cupy, launch, 9) for launch in launches)
            yield Measurement("blocks", f"{shared} bytes", threads // 32, 1, (long_ - short) * clock / 399)
            if threads == 256 and not shared:
                yield Measurement("blocks", "launch", 8, 1, short * clock)


def record(out: Path = rungs.DATA, say=print) -> list[dict[str, Any]]:
    """Measure, and write microbench-DEVICE.json to `out`. Returns the rows. Raises CourseError without a GPU."""
    rows: list[dict[str, Any]] = []
    for item in measurements():
        rows.append({**asdict(item), "cycles": round(float(item.cycles), 3)})
        say(f"{item.kind} {item.name} ×{item.count}, {item.warps} warps: {item.cycles:.3f}")
    device = gpu.device()
    about = {**gpu.provenance(device), "clock_mhz": device.clock_mhz}
    rungs.write_rows(out / f"microbench-{rungs.slug(device.name)}.json", rows, about)
    return rows
