"""mbarriers: phases, states, counts, bytes, and what is said when one is never completed.

Tests of: helpers.sim.checks.mbarrier_parity
"""

from __future__ import annotations

import numpy as np
import pytest

import helpers

HEAD = """
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
#define DO(text, ...) asm volatile(text __VA_ARGS__ : "memory")
__device__ bool over(const void* bar, unsigned parity) {
    int done;
    asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(at(bar)), "r"(parity) : "memory");
    return done;
}
__device__ bool reached(const void* bar, unsigned long long state) {
    int done;
    asm volatile("{.reg .pred p; mbarrier.try_wait.shared::cta.b64 p, [%1], %2, 100; selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(at(bar)), "l"(state) : "memory");
    return done;
}
__device__ int pending(unsigned long long state) {
    int count;
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(count) : "l"(state));
    return count;
}
"""

# One thread; every line of `out` is a fact about counts and phases. Also run on a GPU (tests/gpu/test_tensor_map.py).
FACTS = (
    HEAD
    + """
extern "C" __global__ void facts(int* out) {
    __shared__ alignas(8) unsigned long long bar;
    unsigned long long a, b, c, d, e;
    DO("mbarrier.init.shared.b64 [%0], 5;", ::"r"(at(&bar)));
    DO("mbarrier.arrive.shared.b64 %0, [%1];", : "=l"(a) : "r"(at(&bar)));
    DO("mbarrier.arrive.noComplete.shared.b64 %0, [%1], 2;", : "=l"(b) : "r"(at(&bar)));
    *out++ = pending(a); *out++ = pending(b); *out++ = over(&bar, 0); *out++ = over(&bar, 1); *out++ = reached(&bar, a);
    DO("mbarrier.arrive_drop.shared.b64 %0, [%1];", : "=l"(c) : "r"(at(&bar)));
    DO("mbarrier.arrive.expect_tx.shared.b64 %0, [%1], 48;", : "=l"(d) : "r"(at(&bar)));
    *out++ = pending(c); *out++ = pending(d); *out++ = over(&bar, 0); *out++ = reached(&bar, d);
    DO("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 16;", ::"r"(at(&bar)));
    DO("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 8;", ::"r"(at(&bar)));
    DO("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 32;", ::"r"(at(&bar)));
    *out++ = over(&bar, 0);
    DO("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 8;", ::"r"(at(&bar)));
    *out++ = over(&bar, 0); *out++ = over(&bar, 1); *out++ = reached(&bar, d); *out++ = reached(&bar, a);
    DO("mbarrier.arrive.shared.b64 %0, [%1];", : "=l"(e) : "r"(at(&bar)));
    *out++ = pending(e);  // one was dropped: four are expected now
    DO("mbarrier.arrive.shared.b64 _, [%0], 3;", ::"r"(at(&bar)));
    *out++ = over(&bar, 0); *out++ = over(&bar, 1); *out++ = reached(&bar, e);
    DO("mbarrier.inval.shared.b64 [%0];", ::"r"(at(&bar)));
}
"""
)
EXPECTED = [5, 4, 0, 1, 0, 2, 1, 0, 0, 0, 1, 0, 1, 1, 4, 0, 1, 1]


def facts(on: str) -> list[int]:
    out = np.full(len(EXPECTED), -1, np.int32)
    helpers.compile(FACTS).launch(1, 1, [out], on=on)
    return out.tolist()


def test_counts_states_and_phases():
    assert facts("cpu") == EXPECTED


MANY = (
    HEAD
    + """
extern "C" __global__ void many(int* out) {  // one arrival per phase, and all threads arrive: so many phases
    __shared__ alignas(8) unsigned long long bar;
    if (threadIdx.x == 0) DO("mbarrier.init.shared.b64 [%0], 1;", ::"r"(at(&bar)));
    __syncthreads();
    DO("mbarrier.arrive.shared.b64 _, [%0];", ::"r"(at(&bar)));
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = over(&bar, 0);
}
"""
)


def test_more_arrivals_than_expected_complete_more_phases():
    for threads, odd in ((64, 0), (33, 1)):
        out = np.full(3, -1, np.int32)
        helpers.compile(MANY).launch(3, threads, [out], on="cpu")
        assert out.tolist() == [odd] * 3


def wait(setup: str, inside: str) -> str:
    """A kernel of 32 threads and 2 blocks that all wait for phase 0, after `inside` by thread 0."""
    return (
        HEAD
        + f"""
extern "C" __global__ void hang(float* x) {{
    __shared__ alignas(16) unsigned char s[64];
    __shared__ alignas(8) unsigned long long bar;
    if (threadIdx.x == 0) DO("mbarrier.init.shared.b64 [%0], {setup};", ::"r"(at(&bar)));  // @init
    __syncthreads();
    if (threadIdx.x == 0) {{
        {inside}
    }}
    while (!over(&bar, 0)) {{}}  // @wait
}}
"""
    )


EXPECT = 'DO("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 48;", ::"r"(at(&bar)));  // @expect\n'
COPY = 'DO("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 64, [%2];", ::"r"(at(s)), "l"(x), "r"(at(&bar)));'
HANGS = {
    "nobody arrives": (wait("3", ""), "3 of its 3 arrivals are missing", None),
    "one of three": (wait("3", 'DO("mbarrier.arrive.shared.b64 _, [%0];", ::"r"(at(&bar)));'), "2 of its 3 arrivals are missing", None),
    "bytes that nobody sends": (wait("1", EXPECT), "48 bytes were announced at line {expect} and 0 have arrived", "@expect"),
    "too few bytes announced": (
        wait("1", EXPECT + COPY),
        "48 bytes were announced at line {expect} and 64 have arrived, 16 too many",
        "@expect",
    ),
    "a copy nobody announced": (wait("2", COPY), "0 bytes were announced and 64 have arrived, 64 too many, and 2 of its 2 arrivals", None),
}


@pytest.mark.parametrize("case", HANGS)
def test_a_phase_that_is_never_completed_says_what_is_missing(case):
    source, sentence, other = HANGS[case]
    lines = {mark: number for number, text in enumerate(source.split("\n"), 1) for mark in ("@init", "@expect", "@wait") if mark in text}
    with pytest.raises(helpers.RunError) as caught:
        helpers.compile(source).launch(2, 32, [np.zeros(64, np.float32)], on="cpu")
    (finding,) = caught.value.findings
    assert finding.kind == "endless" and finding.other_line == (lines[other] if other else None)
    assert f"initialised at line {lines['@init']}" in finding.message
    assert sentence.format(expect=lines.get("@expect")) in finding.message


def test_all_waits_that_never_end_are_told_by_the_lines_that_call_them():
    """What is wrong at one of two mbarriers shows at the other one, and both in one function that everybody calls."""
    source = (
        HEAD
        + """
__device__ void wait(unsigned long long* bar) {
    while (!over(bar, 0)) {}
}
extern "C" __global__ void hang(float* x) {
    __shared__ alignas(8) unsigned long long full, empty;
    if (threadIdx.x == 0) {
        DO("mbarrier.init.shared.b64 [%0], 1;", ::"r"(at(&full)));
        DO("mbarrier.init.shared.b64 [%0], 2;", ::"r"(at(&empty)));
    }
    __syncthreads();
    if (threadIdx.x >= 32) {
        wait(&empty);  // @empty
        if (threadIdx.x == 32) DO("mbarrier.arrive.shared.b64 _, [%0];", ::"r"(at(&full)));
    } else {
        if (threadIdx.x == 0) DO("mbarrier.arrive.shared.b64 _, [%0];", ::"r"(at(&empty)));
        wait(&full);  // @full
    }
}
"""
    )
    lines = {mark: number for number, text in enumerate(source.split("\n"), 1) for mark in ("@empty", "@full") if mark in text}
    with pytest.raises(helpers.RunError) as caught:
        helpers.compile(source).launch(1, 64, [np.zeros(64, np.float32)], on="cpu")
    (finding,) = caught.value.findings
    assert f"Threads wait at lines {lines['@empty']} and {lines['@full']}" in finding.message


def test_misuse_is_told():
    for inside, sentence in (
        (
            'DO("mbarrier.inval.shared.b64 [%0];", ::"r"(at(&bar))); DO("mbarrier.arrive.shared.b64 _, [%0];", ::"r"(at(&bar)));',
            "nobody has initialised",
        ),
        ('{ unsigned long long t; DO("mbarrier.arrive.noComplete.shared.b64 %0, [%1], 1;", : "=l"(t) : "r"(at(&bar))); }', "noComplete"),
        (
            'DO("mbarrier.init.shared.b64 [%0], %1;", ::"r"(at(&bar)), "r"((int)x[0]));',
            "at least one arrival",
        ),  # ptxas crashes on a literal 0
        ('DO("mbarrier.init.shared.b64 [%0], 1;", ::"r"(at(s + 4)));', "multiple of 8"),
    ):
        with pytest.raises(helpers.RunError, match=sentence):
            helpers.compile(wait("1", inside)).launch(1, 32, [np.zeros(64, np.float32)], on="cpu")


PHASES = (
    HEAD
    + """
extern "C" __global__ void phases(int n, float* y) {
    __shared__ alignas(8) unsigned long long bar;
    int t = threadIdx.x;
    if (t == 0) DO("mbarrier.init.shared.b64 [%0], 64;", ::"r"(at(&bar)));
    __syncthreads();
    for (int i = 0; i < n; i++) {
        DO("mbarrier.arrive.shared.b64 _, [%0];", ::"r"(at(&bar)));
        while (!over(&bar, PARITY)) {}
    }
    y[t] = n;
}
"""
)


@pytest.mark.parametrize(
    ("parity", "told"), [("i & 1", []), ("i % 2u", []), ("i", [("mbarrier-parity", 6)]), ("(i & 1) - 2", [("mbarrier-parity", 6)])]
)
def test_a_parity_is_0_or_1_and_another_number_counts_by_its_last_bit(parity, told):
    y = np.zeros(64, np.float32)
    run = helpers.compile(PHASES.replace("PARITY", parity)).launch(1, 64, [5, y], on="cpu", seconds=10)
    assert (y == 5).all() and [(finding.kind, finding.line) for finding in run.findings] == told
    assert not told or all(finding.count >= 64 and "& 1" in finding.advice for finding in run.findings)
