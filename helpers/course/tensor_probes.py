"""Small kernels that measure tensor cores, for `course record --microbench`: what matrix instructions cost, what clock they leave.

**throughput** and **latency** of `mma.sync` as `microbench` has them, for a sub-partition: cycles from one instruction to the next of all
`warps` / 4 warps there. **wgmma**: cycles from one instruction of a multiprocessor to the next, of `warps` / 4 warpgroups, `count` = N of
its shape. **clock**: millions of cycles in a second on all multiprocessors, while tensor cores reach `count` percent of their peak with
random numbers, or with zeros, in a launch of about so many microseconds. (The driver reports the clock that it asks for, which is
another one.)
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from helpers.run import gpu

from . import microbench

ROUNDS = 128
# name -> the instruction, registers of A and of B, how many of a warp run beside each other
_MMA = {
    "HMMA.16816 bf16": ("m16n8k16.row.col.f32.bf16.bf16.f32", 4, 2),
    "HMMA.16816 f16": ("m16n8k16.row.col.f32.f16.f16.f32", 4, 2),
    "HMMA.1688 bf16": ("m16n8k8.row.col.f32.bf16.bf16.f32", 2, 1),
    "HMMA.1688 tf32": ("m16n8k8.row.col.f32.tf32.tf32.f32", 4, 2),
    "HMMA.1684 tf32": ("m16n8k4.row.col.f32.tf32.tf32.f32", 2, 1),
}
CHAINS = 16
_WGMMA = {"bf16": ("k16.f32.bf16.bf16", ", 0, 1"), "e4m3": ("k32.f32.e4m3.e4m3", "")}  # type -> instruction, transposition of A and B
COLUMNS = (64, 128, 192, 256)
_SHARED = 128 << 10  # bytes of operands that wgmma walks through

_MMA_FRAME = """
extern "C" __global__ void __launch_bounds__(512) probe(unsigned* out, const unsigned* data) {{
    float d[{chains}][4];
    unsigned a[4][{a}], b[4][{b}];
    for (int j = 0; j < {chains}; j++)
        for (int i = 0; i < 4; i++) d[j][i] = 0;
    for (int j = 0; j < 4; j++) {{
        for (int i = 0; i < {a}; i++) a[j][i] = data[(threadIdx.x * 4 + i + j * 977) % 32768];
        for (int i = 0; i < {b}; i++) b[j][i] = data[(threadIdx.x * 8 + i + j * 2 + 3000) % 32768];
    }}
    #pragma unroll 1
    for (int k = 0; k < 2; k++) {{  // the second time counts: caches are warm then
        __syncthreads();
        const unsigned begin = clock();
        #pragma unroll 1
        for (int r = 0; r < {rounds}; r++) {{
            {body}
        }}
        const unsigned end = clock();
        if (threadIdx.x % 32 == 0) out[threadIdx.x / 16] = begin, out[threadIdx.x / 16 + 1] = end;
    }}
    float sum = 0;
    for (int j = 0; j < {chains}; j++)
        for (int i = 0; i < 4; i++) sum += d[j][i];
    if (sum == 1.2345f) out[0] = 0;
}}
"""
_WGMMA_FRAME = """
__device__ unsigned long long nanoseconds() {{
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}}
__device__ unsigned long long descriptor(unsigned at) {{
    return (at & 0x3FFFF) >> 4 | 512ull << 16 | 64ull << 32 | 1ull << 62;
}}
extern "C" __global__ void __launch_bounds__(384, 1) probe(long long* out, const unsigned* data, int rounds, int pause) {{
    extern __shared__ __align__(1024) unsigned s[];
    for (int i = threadIdx.x; i < {shared} / 4; i += blockDim.x) s[i] = data[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    float d[{n} / 2];
    for (int i = 0; i < {n} / 2; i++) d[i] = 0;
    const unsigned base = (unsigned)__cvta_generic_to_shared(s), group = threadIdx.x / 128;
    const long long begin = clock64(), from = nanoseconds();
    #pragma unroll 1
    for (int r = 0; r < rounds; r++) {{
        const unsigned stage = base + (r & 1) * ({shared} / 2);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        #pragma unroll
        for (int k = 0; k < 4; k++) {{
            const unsigned long long a = descriptor(stage + 49152 + (group & 1) * 8192 + k * 32), b = descriptor(stage + k * 2048);
            asm volatile("wgmma.mma_async.sync.aligned.m64n{n}{kind} {{{registers}}}, %{a}, %{b}, 1, 1, 1{turned};"
                         : {sums} : "l"(a), "l"(b));
        }}
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (pause) {{
            const long long now = clock64();
            while (clock64() - now < pause) {{}}
        }}
    }}
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < {n} / 2; i++) asm volatile("" : "+f"(d[i]) :: "memory");
    const long long end = clock64(), to = nanoseconds();
    float sum = 0;
    for (int i = 0; i < {n} / 2; i++) sum += d[i];
    if (sum == 1.2345f) out[0] = 0;
    if (threadIdx.x % 128 == 0) {{
        long long* row = out + (blockIdx.x * 3 + group) * 4;
        row[0] = begin, row[1] = end, row[2] = from, row[3] = to;
    }}
}}
"""


def mma_source(name: str, chains: int) -> str:
    """The probe of a `mma.sync` with so many independent sums."""
    shape, a, b = _MMA[name]
    lists = [", ".join(f"%{k}" for k in range(first, first + many)) for first, many in ((0, 4), (4, a), (4 + a, b))]
    text = f"mma.sync.aligned.{shape} {{{lists[0]}}}, {{{lists[1]}}}, {{{lists[2]}}}, {{{lists[0]}}};"
    body = []
    for j in range(chains):
        sums = ", ".join(f'"+f"(d[{j}][{i}])' for i in range(4))
        operands = ", ".join([*(f'"r"(a[{j % 4}][{i}])' for i in range(a)), *(f'"r"(b[{j // 4 % 4}][{i}])' for i in range(b))])
        body.append(f'asm volatile("{text}" : {sums} : {operands});')
    return _MMA_FRAME.format(chains=chains, a=a, b=b, rounds=ROUNDS, body="\n".join(body))


def wgmma_source(kind: str, n: int) -> str:
    """The probe of a `wgmma` with N columns."""
    instruction, turned = _WGMMA[kind]
    registers, sums = (", ".join(template.format(i) for i in range(n // 2)) for template in ("%{}", '"+f"(d[{}])'))
    return _WGMMA_FRAME.format(n=n, kind=instruction, turned=turned, registers=registers, sums=sums, a=n // 2, b=n // 2 + 1, shared=_SHARED)


@dataclass(frozen=True)
class _Watched:
    """cycles, nanoseconds: of a launch's blocks, the median."""

    cycles: float
    nanoseconds: float


def measurements(cupy, sms: int) -> Iterator[microbench.Measurement]:
    """All of them, in half a minute; none on a GPU without wgmma."""
    if gpu.arch() != "sm_90":
        return
    random = np.random.default_rng(1)
    numbers = {
        "bf16": cupy.asarray((random.standard_normal(1 << 17, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)),
        "e4m3": cupy.asarray(random.integers(0, 1 << 32, 1 << 16, dtype=np.uint32) & 0xBFBFBFBF),
    }
    yield from _synchronous(cupy, numbers["bf16"])
    yield from _asynchronous(cupy, sms, numbers)


def _synchronous(cupy, data) -> Iterator[microbench.Measurement]:
    out = cupy.zeros(64, cupy.uint32)
    for name in _MMA:
        for chains in (1, CHAINS):
            probe = _loaded(cupy, mma_source(name, chains))
            for warps in (1,) if chains == 1 else (4, 8, 16):
                times = []
                for _ in range(3):
                    probe((1,), (32 * warps,), (out, data))
                    found = out.get()[: 2 * warps].astype("i8").reshape(warps, 2)
                    times.append(found[:, 1].max() - found[:, 0].min())
                each = min(times) / (ROUNDS * chains * max(1, warps // 4))
                yield microbench.Measurement("latency" if chains == 1 else "throughput", name, warps, 1, each)


def _asynchronous(cupy, sms: int, numbers) -> Iterator[microbench.Measurement]:
    out = cupy.zeros(sms * 12, cupy.int64)

    def watched(probe, grid: int, groups: int, data, rounds: int, pause: int = 0) -> _Watched:
        time.sleep(0.05)  # what was before leaves no heat
        probe((grid,), (128 * groups,), (out, data, cupy.int32(rounds), cupy.int32(pause)), shared_mem=_SHARED)
        found = out.get().reshape(sms, 3, 4)[:grid, :groups]
        spans = ((found[:, :, k + 1].max(1) - found[:, :, k].min(1)) for k in (0, 2))
        return _Watched(*(float(statistics.median(span.tolist())) for span in spans))

    for kind, data in numbers.items():
        for n in COLUMNS:
            probe = _loaded(cupy, wgmma_source(kind, n))
            probe.max_dynamic_shared_size_bytes = _SHARED
            for groups in (1, 2):
                took = min(watched(probe, 1, groups, data, 500).cycles for _ in range(2))
                yield microbench.Measurement("wgmma", f"n{n} {kind}", 4 * groups, n, took / (500 * 4 * groups))
        zeros = cupy.zeros_like(data)
        for name, given in (("random", data), ("zeros", zeros)):
            for rounds, pause in ((40, 0), (150, 0), (1500, 0), (1500, 1500), (1500, 2500), (1500, 4500)):
                seen = watched(probe, sms, 2, given, rounds, pause)
                load = round(100 * rounds * 8 * 128 / seen.cycles)
                about = f"{kind}, {name}, {seen.nanoseconds / 1e3:.0f} µs"
                yield microbench.Measurement("clock", about, 8, load, 1e3 * seen.cycles / seen.nanoseconds)


def _loaded(cupy, source: str):
    return cupy.RawModule(code=source, options=("-std=c++17", "-arch=sm_90a")).get_function("probe")
