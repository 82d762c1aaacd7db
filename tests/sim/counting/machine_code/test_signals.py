"""What a path has of mbarriers: which, by whom, how many arrivals and bytes, and of which phase.

Tests of: helpers.sim.counting.machine_code.semantics.waits
"""

import numpy as np
import pytest

from helpers import tensor_map
from helpers.run import kernel
from helpers.sim.code.sass import SassInstruction
from helpers.sim.counting.machine_code import SignalKind, block_path, kind_of
from helpers.sim.counting.machine_code.signals import Phases, counted, place_of, shared_out

BEGIN = """
#include <cuda.h>
typedef unsigned long long u64;
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void init(u64* b, unsigned n) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at(b)), "r"(n) : "memory"); }
__device__ void arrive(u64* b) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(at(b)) : "memory"); }
__device__ void expect(u64* b, unsigned n) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(at(b)), "r"(n) : "memory");
}
__device__ bool look(u64* b, unsigned parity) {
    unsigned over;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(over) : "r"(at(b)), "r"(parity) : "memory");
    return over;
}
__device__ void wait(u64* b, unsigned parity) { while (!look(b, parity)) {} }
__device__ void box(void* to, const CUtensorMap& map, int x, int y, u64* b) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(at(to)), "l"(&map), "r"(x), "r"(y), "r"(at(b)) : "memory");
}
__device__ void bulk(void* to, const void* from, unsigned n, u64* b) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(at(to)), "l"(from), "r"(n), "r"(at(b)) : "memory");
}
"""
TILES = (
    BEGIN
    + """
extern "C" __global__ void tiles(const __grid_constant__ CUtensorMap map, float* y, int n) {
    __shared__ alignas(1024) float tile[2][32 * 32];
    __shared__ u64 full[2], empty[2];
    if (threadIdx.x == 0) {
        for (int s = 0; s < 2; s++) init(&full[s], 1), init(&empty[s], 3);
        asm volatile("fence.proxy.async;" ::: "memory");
    }
    __syncthreads();
    float sum = 0;
    #pragma unroll 1
    for (int i = 0; i < n; i++) {
        u64 *f = &full[i % 2], *e = &empty[i % 2];
        if (threadIdx.x == 0) {
            wait(e, i / 2 % 2 ^ 1);
            expect(f, sizeof(tile[0]));
            box(tile[i % 2], map, 0, 32 * i, f);
        }
        if (threadIdx.x >= 32) {
            wait(f, i / 2 % 2);
            for (int k = 0; k < 32; k++) sum += tile[i % 2][32 * k + threadIdx.x % 32];
            if (threadIdx.x % 32 == 0) arrive(e);
        }
    }
    y[threadIdx.x] = sum;
}"""
)


def instruction(opcode, *operands):
    return SassInstruction(0, 0, "", opcode, operands, None, None)


def path_of(source, threads, args):
    made = kernel.compile(source, arch="sm_90a")
    compiled = made.native("sm_90a").compiled
    path, why = block_path(compiled, (1, 1, 1), (threads, 1, 1), args, 0, 1000)
    assert path is not None, why
    return path


def signals(path, kind):
    """[(signal, index)] of one kind, as executed."""
    return [(one, i) for v in path.visits for i, one in sorted(v.signals.items()) if kind_of(path.function.instructions[i]) is kind]


@pytest.mark.parametrize(("opcode", "operands", "kind"), [
    ("SYNCS.EXCH.64", ("URZ", "[UR6]", "UR4"), SignalKind.INIT),
    ("SYNCS.ARRIVE.TRANS64.A1T0", ("RZ", "[R2+URZ]", "RZ"), SignalKind.ARRIVE),
    ("SYNCS.PHASECHK.TRANS64.TRYWAIT", ("P0", "[UR4]", "R3"), SignalKind.LOOK),
    ("SYNCS.CCTL.IV", ("[UR4]",), None),
    ("ARRIVES.LDGSTSBAR.64.TRANSCNT", ("[UR4]",), SignalKind.LANDED),
    ("UTMALDG.2D", ("[UR4]", "[UR8]"), SignalKind.BULK),
    ("UBLKCP.S.G", ("[UR4]", "[UR8]", "UR6"), SignalKind.BULK),
    ("UBLKCP.G.S", ("[UR4]", "[UR8]", "UR6"), SignalKind.SENT),
    ("UTMASTG.2D", ("[UR4]", "[UR8]"), SignalKind.SENT),
    ("UTMACMDFLUSH", (), None),
])  # fmt: skip
def test_what_an_instruction_does_to_an_mbarrier(opcode, operands, kind):
    assert kind_of(instruction(opcode, *operands)) is kind


def test_a_copy_names_its_mbarrier_in_the_register_behind_its_target():
    assert [part.name() for part in place_of(instruction("UTMALDG.2D", "[UR4]", "[UR8]")).parts] == ["UR5"]
    assert [part.name() for part in place_of(instruction("SYNCS.ARRIVE.TRANS64.A1T0", "RZ", "[R2+URZ+0x8]", "RZ")).parts] == ["R2"]


@pytest.mark.parametrize(("opcode", "word", "found"), [
    ("SYNCS.EXCH.64", (0x100000 - 257) << 1, (257, 0)),  # as mbarrier.init of 257 leaves its lower word
    ("SYNCS.ARRIVE.TRANS64.A1T0", 0, (1, 0)),
    ("SYNCS.ARRIVE.TRANS64", 4096, (1, 4096)),
    ("SYNCS.ARRIVE.TRANS64", None, (1, None)),
    ("SYNCS.ARRIVE.TRANS64.ART0", 5, (5, 0)),
    ("SYNCS.ARRIVE.TRANS64.RED.A0TR", 64, (0, 64)),
    ("SYNCS.ARRIVE.TRANS64.RED.A0TX", 64, (0, -64)),
    ("SYNCS.ARRIVE.TRANS64.RED.A0T1", 0, (0, 1)),
    ("ARRIVES.LDGSTSBAR.64.TRANSCNT", None, (0, -1)),
    ("ARRIVES.LDGSTSBAR.64.ARVCNT", None, (1, 0)),
])  # fmt: skip
def test_arrivals_and_bytes_of_a_thread(opcode, word, found):
    assert counted(instruction(opcode, "[UR4]"), word) == found


def test_copies_have_the_bytes_that_are_expected():
    assert shared_out([100.0, 40.0], 4) == [50.0, 50.0, 20.0, 20.0]
    assert shared_out([8.0] * 4, 2) == [16.0, 16.0], "each thread expects its part"
    assert shared_out([90.0, 60.0], 3) == [50.0] * 3
    assert shared_out([], 2) == [0.0, 0.0] and shared_out([4.0], 0) == []


def test_parities_are_phases_one_after_the_other():
    """The first look for parity 1 is for the phase before the first, which is over."""
    phases = Phases()
    assert [phases.advance(0, 8, parity) for parity in (1, 1, 0, 0, 1, 0)] == [0, 0, 1, 0, 1, 1]
    assert [phases.advance(1, 8, parity) for parity in (0, 1)] == [1, 1], "each warp by itself"
    phases.begin(8)
    assert [phases.advance(0, 8, parity) for parity in (0, 1)] == [1, 1], "made anew, and phase 0 again"
    assert [phases.advance(0, 16, None) for _ in range(2)] == [1, 1], "by a token: the phase in which it arrived"


def test_a_path_says_who_arrives_where_and_looks_for_which_phase():
    path = path_of(TILES, 128, [tensor_map(np.zeros((1024, 32), np.float32), (32, 32)), np.zeros(128, np.float32), 6])
    counts = {
        place: n for one, _ in signals(path, SignalKind.INIT) for place, n in zip(one.places, one.arrivals, strict=True) if place >= 0
    }
    assert sorted(counts.values()) == [1, 1, 3, 3] and len(counts) == 4
    full = sorted(place for place, n in counts.items() if n == 1)
    copies = [one for one, _ in signals(path, SignalKind.BULK)]
    assert [one.places[0] for one in copies] == full * 3 and all(one.places[1:] == (-1, -1, -1) for one in copies)
    assert {one.amounts[0] for one in copies} == {32 * 32 * 4}
    looks = [(one.places[warp], one.amounts[warp]) for one, _ in signals(path, SignalKind.LOOK) for warp in (2,) if one.places[warp] >= 0]
    assert looks == [(place, 1) for place in full * 3]
    ahead = [one.amounts[0] for one, _ in signals(path, SignalKind.LOOK) if one.places[0] >= 0]
    assert ahead == [0, 0, 1, 1, 1, 1], "the first two stages are empty"
    consumed = [one.arrivals for one, _ in signals(path, SignalKind.ARRIVE) if one.arrivals[1]]
    assert consumed == [(0, 1, 1, 1)] * 6


def test_a_token_is_not_what_was_in_its_registers_before():
    """An arrival writes two, of which a look reads the second: its phase is the one in which the warp arrived."""
    arrives = instruction("SYNCS.ARRIVE.TRANS64.A1T0", "R2", "[R4+URZ]", "RZ")
    assert arrives.writes == {"R2", "R3"}
    source = (
        BEGIN
        + """
    extern "C" __global__ void tokens(float* y, int n) {
        __shared__ u64 both;
        if (threadIdx.x == 0) init(&both, 64);
        __syncthreads();
        #pragma unroll 1
        for (int i = 0; i < n; i++)
            asm volatile("{ .reg .b64 s; .reg .pred p; mbarrier.arrive.shared.b64 s, [%0];"
                         " again: mbarrier.try_wait.shared.b64 p, [%0], s; @!p bra again; }" :: "r"(at(&both)) : "memory");
        y[threadIdx.x] = n;
    }"""
    )
    path = path_of(source, 64, [np.zeros(64, np.float32), 5])
    assert [one.amounts for one, _ in signals(path, SignalKind.LOOK)] == [(1, 1)] * 5


def test_parameters_behind_a_tensor_map_are_where_the_machine_code_reads_them():
    """The map lies at a multiple of 64 bytes of the constant bank, not of the first parameter."""
    for trips in (3, 9):
        args = [tensor_map(np.zeros((1024, 32), np.float32), (32, 32)), np.zeros(128, np.float32), trips]
        assert len(signals(path_of(TILES, 128, args), SignalKind.BULK)) == trips


def test_an_array_of_pointers_that_is_indexed_late_is_followed_through_local_memory():
    """Of generic pointers in it the path knows whether they are to shared memory, though others are stored through."""
    source = (
        BEGIN
        + """
    extern "C" __global__ void late(float* y, int n, int which) {
        __shared__ alignas(16) float tile[4][32];
        __shared__ u64 done[4];
        float* rows[4]; u64* barriers[4];
        for (int s = 0; s < 4; s++) rows[s] = s == which ? y : tile[s], barriers[s] = &done[s];
        if (threadIdx.x == 0) for (int s = 0; s < 4; s++) init(&done[s], 1);
        __syncthreads();
        #pragma unroll 1
        for (int i = 0; i < n; i++) {
            float* row = rows[i % 4];
            if (__isShared(row)) row[threadIdx.x] = i; else row[threadIdx.x] = 1;
            if (threadIdx.x == 0) arrive(barriers[(i + 1) % 4]);
            wait(barriers[(i + 1) % 4], i / 4 % 2);
        }
        y[32 + threadIdx.x] = tile[n % 4][threadIdx.x];
    }"""
    )
    made = kernel.compile(source, arch="sm_90a").native("sm_90a").compiled
    assert "LDL" in made.sass and "QSPC" in made.sass, "this tests what it says"
    path = path_of(source, 32, [np.zeros(64, np.float32), 8, 9])
    inits = [place for one, _ in signals(path, SignalKind.INIT) for place in one.places]
    assert [one.places[0] for one, _ in signals(path, SignalKind.ARRIVE)] == [inits[(i + 1) % 4] for i in range(8)]


def test_a_uniform_register_is_the_whole_warps():
    """ptxas lets one lane work out where its mbarrier is, and the warp initialises it."""
    source = (
        BEGIN
        + """
    extern "C" __global__ void one(float* y, int n) {
        __shared__ alignas(16) float tile[3072];
        __shared__ u64 full;
        if (threadIdx.x == 0) init(&full, 1);
        __syncthreads();
        float sum = 0;
        #pragma unroll 1
        for (int i = 0; i < n; i++) {
            if (threadIdx.x == 0) { expect(&full, 128); bulk(tile, y, 128, &full); }
            wait(&full, i & 1);
            sum += tile[threadIdx.x];
            __syncthreads();
        }
        y[threadIdx.x] = sum;
    }"""
    )
    path = path_of(source, 64, [np.zeros(64, np.float32), 4])
    ((init, _),) = signals(path, SignalKind.INIT)
    assert init.arrivals == (1, 0) and [one.places for one, _ in signals(path, SignalKind.BULK)] == [(init.places[0], -1)] * 4
