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
    assert ("look at the bytes" in finding.advice) == ("bytes" in sentence and "arrivals" not in sentence)
    assert ("arrivals it expects" in finding.advice) == ("arrivals" in sentence)


def test_more_arrivals_than_expected_are_not_told_as_missing():
    """Four phases have ended when the first wait comes, so the parity is that of the one before again."""
    arrive = 'DO("mbarrier.arrive.shared.b64 _, [%0];", ::"r"(at(&bar)));'
    with pytest.raises(helpers.RunError) as caught:
        helpers.compile(wait("1", arrive * 4)).launch(2, 32, [np.zeros(64, np.float32)], on="cpu")
    (finding,) = caught.value.findings
    assert "1 of its 1 arrivals are missing, and 4 phases have ended" in finding.message  # one came after the other
    all_arrive = wait("2", "").replace("if (threadIdx.x == 0) {", f"{arrive}\n    if (threadIdx.x == 0) {{")
    with pytest.raises(helpers.RunError) as caught:
        helpers.compile(all_arrive).launch(2, 32, [np.zeros(64, np.float32)], on="cpu")
    (finding,) = caught.value.findings
    assert "it expects 2 arrivals in a phase, 30 came when it lacked none, and 16 phases have ended" in finding.message
    assert "missing" not in finding.message and finding.advice.startswith("More arrivals come than a phase expects")


ELSEWHERE = (
    HEAD
    + """
extern "C" __global__ void hang(float* x) {
    __shared__ alignas(16) unsigned char s[64];
    __shared__ alignas(8) unsigned long long full, next, bar;
    if (threadIdx.x == 0) {
        DO("mbarrier.init.shared.b64 [%0], 1;", ::"r"(at(&full)));
        DO("mbarrier.init.shared.b64 [%0], 1;", ::"r"(at(&next)));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        DO("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 48;", ::"r"(at(&full)));
        DO("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 64, [%2];", ::"r"(at(s)), "l"(x), "r"(at(&full)));
    }
    if (threadIdx.x < 32) {
        while (!over(&full, 0)) {}
        if (threadIdx.x == 0) DO("mbarrier.arrive.shared.b64 _, [%0];", ::"r"(at(&next)));
    } else {
        while (!over(&next, 0)) {}
    }
}
"""
)


def test_of_several_waits_the_one_that_was_counted_wrong_is_told():
    with pytest.raises(helpers.RunError) as caught:
        helpers.compile(ELSEWHERE).launch(1, 64, [np.zeros(64, np.float32)], on="cpu")
    (finding,) = caught.value.findings
    assert "48 bytes were announced" in finding.message and "16 too many" in finding.message and "look at the bytes" in finding.advice
    assert "multicast" not in finding.advice


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
    places = {
        name: source.split("\n").index(next(text for text in source.split("\n") if f"at(&{name})" in text)) + 1
        for name in ("full", "empty")
    }
    begin, _, end = finding.message.partition("Another one that is waited for")
    assert f"initialised at line {places['empty']}): 1 of its 2 arrivals are missing" in begin  # the one that began, and lacks one
    assert f"initialised at line {places['full']}): 1 of its 1 arrivals are missing" in end


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


MEETING = (
    HEAD
    + """
__device__ void look(const void* bar) {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;}" :: "r"(at(bar)) : "memory");
}
extern "C" __global__ void meeting(float* y) {
    __shared__ alignas(8) unsigned long long bar;
    __shared__ alignas(128) float s[128];
    int t = threadIdx.x;
    if (t == 0) DO("mbarrier.init.shared.b64 [%0], COUNT;", ::"r"(at(&bar)));
    __syncthreads();
    TELL
    WAIT
    y[128 + t] = s[127 - t];
}
"""
)
ARRIVE = 'DO("mbarrier.arrive.shared.b64 _, [%0];", ::"r"(at(&bar)));'
STORE = f"s[t] = t; {ARRIVE}"
BY_WARP = f"s[t] = t; __syncwarp(); if (t % 32 == 0) {ARRIVE}"
BULK = (
    'if (t == 0) { DO("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 512;", ::"r"(at(&bar))); '
    'DO("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];", ::"r"(at(s)), "l"(y), "r"(at(&bar))); }'
)
UNTIL = "while (!over(&bar, 0)) {}"


def meet(count: int, tell: str, wait: str) -> list:
    source = MEETING.replace("COUNT", str(count)).replace("TELL", tell).replace("WAIT", wait)
    y = np.arange(384, dtype=np.float32)
    run = helpers.compile(source, arch="sm_90a").launch(1, 128, [y], on="cpu", seconds=10)
    assert run.findings or (y[128:256] == np.arange(128)[::-1]).all()
    return run.findings


@pytest.mark.parametrize("count, tell", [(128, STORE), (1, BULK)], ids=["stores", "copy"])
@pytest.mark.parametrize(
    "wait, heeded",
    [
        (UNTIL, True),
        ("if (!over(&bar, 0)) while (!over(&bar, 0)) {}", True),  # a look ahead, then in earnest
        ("over(&bar, 0);", False),
        ("look(&bar);", False),
        ("y[256 + t] = over(&bar, 0);", False),
        ("if (t == 5) over(&bar, 0);", False),
    ],
)  # fmt: skip
def test_a_look_that_decides_nothing_is_no_wait(count, tell, wait, heeded):
    found = meet(count, tell, wait)
    assert {one.kind for one in found} == (set() if heeded else {"race" if tell is STORE else "missing-wait"})
    assert all("goes on whatever the answer is" in one.advice for one in found)


@pytest.mark.parametrize(
    "count, tell, race",
    [
        (128, STORE, False), (4, BY_WARP, False), (64, STORE, False), (127, STORE, True), (96, STORE, True), (3, BY_WARP, True), (95, STORE, True),
    ],
)  # fmt: skip
def test_whoever_arrives_beyond_the_count_is_not_waited_for(count, tell, race):
    """Which arrival is the last nobody knows; with 64 for 128 two phases are complete."""
    found = meet(count, tell, UNTIL if count != 64 else "while (!over(&bar, 1)) {}")
    assert [one.kind for one in found] == (["race"] if race else [])
    assert all(
        ("more threads arrive" in one.advice or "More arrivals come" in one.advice) and "reads shared memory" in one.message
        for one in found
    )
    assert not race or "thread (127, 0, 0)" in found[0].message


STATE = 'unsigned long long a; DO("mbarrier.arrive.shared.b64 %0, [%1];", : "=l"(a) : "r"(at(&bar)));'
TOKEN = "while (!reached(&bar, a)) {}"
OWED = (
    'DO("cp.async.ca.shared.global [%0], [%1], 4;", ::"r"(at(&s[t])), "l"(y + t)); '
    'DO("cp.async.mbarrier.arrive.shared.b64 [%0];", ::"r"(at(&bar)));' + STATE
)
COUNTED = OWED.replace("mbarrier.arrive.shared", "mbarrier.arrive.noinc.shared", 1).replace(STATE, "")
EACH_BULK = (
    'if (t % 4 == 0) { DO("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%2];", '
    '::"r"(at(s + t)), "l"(y + t), "r"(at(&bar))); DO("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 16;", ::"r"(at(&bar))); }'
    + STATE
)


@pytest.mark.parametrize("tell, kind", [(OWED, "race"), (COUNTED, "race"), (EACH_BULK, "missing-wait")], ids=["owed", "counted", "bytes"])
@pytest.mark.parametrize("count", [128, 127, 96, 64, 32, 1])
def test_a_phase_that_copies_hold_up_may_be_over_before_those_beyond_the_count_have_come(count, tell, kind):
    """That the copies come late here says nothing of a GPU: as soon as those of `count` threads have come, their phase is over."""
    if tell is COUNTED and count < 96:
        return  # whole phases: who waits for the last of them has waited for all
    found = meet(count, tell, UNTIL if tell is COUNTED else TOKEN)
    assert [one.kind for one in found] == ([kind] if count < 128 else [])
    assert all("More arrivals come at the mbarrier" in one.advice for one in found)


OUTSIDE = {
    "init": 'DO("mbarrier.init.shared.b64 [%0], 1;", ::"r"(at(beyond)));',
    "inval": 'DO("mbarrier.inval.shared.b64 [%0];", ::"r"(at(beyond)));',
    "arrive": 'DO("mbarrier.arrive.shared.b64 _, [%0];", ::"r"(at(beyond)));',
    "expect": 'DO("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 8;", ::"r"(at(beyond)));',
    "wait": "while (!over(beyond, 0)) {}",
    "copies": 'DO("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];", ::"r"(at(beyond)));',
    "generic": 'DO("mbarrier.init.b64 [%0], 1;", ::"l"(beyond));',
    "device memory": 'DO("mbarrier.init.shared.b64 [%0], 1;", ::"l"(y));',
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_an_mbarrier_lies_in_shared_memory(what):
    source = MEETING.replace("COUNT", "1").replace(
        "TELL", f"unsigned long long* beyond = &bar + 4096; if (t == 7) {{ {OUTSIDE[what]} }} s[t] = t;"
    )
    found = helpers.compile(source.replace("WAIT", "__syncthreads();")).launch(1, 128, [np.zeros(384, np.float32)], on="cpu").findings
    (finding,) = found
    assert finding.kind == "out-of-bounds" and finding.thread == (7, 0, 0)


@pytest.mark.slow
def test_what_an_mbarrier_cannot_count_is_told():
    for inside, sentence in (
        ('DO("mbarrier.init.shared.b64 [%0], %1;", ::"r"(at(&bar)), "r"(1 << 20));', "1048575 arrivals"),
        ('DO("mbarrier.init.shared.b64 [%0], %1;", ::"r"(at(&bar)), "r"(-1));', "1048575 arrivals"),
        ('DO("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;", ::"r"(at(&bar)), "r"(1 << 20));', "1048575 bytes"),
        ('DO("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;", ::"r"(at(&bar)), "r"(-16));', "1048575 bytes"),
        ('DO("mbarrier.arrive.shared.b64 _, [%0], 4;", ::"r"(at(&bar)));', "4 times at once"),
        (EXPECT + '\nDO("mbarrier.init.shared.b64 [%0], 1;", ::"r"(at(&bar)));', "initialised again"),
        (
            'unsigned long long a; DO("mbarrier.arrive.shared.b64 %0, [%1], 2;", : "=l"(a) : "r"(at(&bar))); '
            + 'DO("mbarrier.arrive.shared.b64 _, [%0], 2;", ::"r"(at(&bar)));'
            + "while (!reached(&bar, a)) {}",
            "2 phases have ended since: an mbarrier knows of the last one only. It expects 2 arrivals",
        ),
    ):
        with pytest.raises(helpers.RunError, match=sentence):
            helpers.compile(wait("2", inside)).launch(1, 32, [np.zeros(64, np.float32)], on="cpu")


TOO_MANY = " All of them belong to one phase"


@pytest.mark.parametrize(
    ("setup", "who", "steps", "each", "said"),
    [
        (1, "true", 1, "16384", "2097152 are announced here. 128 threads announce 16384 bytes each here at once. Let one thread"),
        (1, "t >= 96", 1, "49152", "1572864 are announced here. 32 threads announce 49152 bytes each here at once. Let one thread"),
        (1, "t % 64 == 0", 1, "700000 + t", "1400064 are announced here. 2 threads announce 1400064 bytes here at once. Let one thread"),
        (128, "true", 1, "16384", "2097152 are announced here. 128 threads announce 16384 bytes each here at once."),
        (1, "t < 32", 3, "16384", "1048576 are announced here. 32 threads announce 16384 bytes each here at once."),
        (1, "t == 0", 40, "32768", f"1048576 are announced here.{TOO_MANY}"),
        (2, "t < 2", 40, "32768", f"1048576 are announced here.{TOO_MANY}"),  # each thread announces its own copies
    ],
)
def test_who_announces_more_bytes_than_a_phase_can_count_is_told(setup, who, steps, each, said):
    source = MEETING.replace("COUNT", str(setup)).replace("WAIT", "").replace("TELL", f"""
        for (int i = 0; i < {steps}; i++) {{
            if ({who}) DO("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;", ::"r"(at(&bar)), "r"({each}));
            __syncthreads();
        }}""")  # fmt: skip
    with pytest.raises(helpers.RunError) as caught:
        helpers.compile(source).launch(2, 128, [np.zeros(384, np.float32)], on="cpu")
    assert said in str(caught.value)
    arrives = source.replace("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [", "mbarrier.arrive.expect_tx.shared.b64 _, [")
    if setup == 1 and who != "t == 0":
        with pytest.raises(helpers.RunError) as caught:
            helpers.compile(arrives).launch(2, 128, [np.zeros(384, np.float32)], on="cpu")
        assert said in str(caught.value)
