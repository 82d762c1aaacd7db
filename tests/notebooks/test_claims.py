"""Figures in the prose of the lessons stand for something: each is worked out here, from the recorded runs, the published ladders, the
kernels' log and the GPUs' table, and must be what the text says.

A figure that a cell computes is no business of this file. One that stands in the text is a `Claim`: a sentence with {} where the figures
stand, and what they are. If either drifts, the sentence is no longer in the lesson. A test finds figures that nobody claims.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from helpers import evidence, gemm, ladder, measures, quantized, reference, strategy, variants, what_if
from helpers.course import recorded_states
from helpers.course.accuracy import pieces
from helpers.course.autotune import busy_part
from helpers.course.steps import STEPS, get
from helpers.front.tooltips import unmarked
from helpers.model import hardware
from helpers.model.cycles.chip import figures
from helpers.model.planned_cycles import main_loop
from helpers.sim.code.sites import CostRule
from helpers.sim.counting import names, rules
from helpers.sim.isa.mma import cut_sums, sums_of
from tests import ROOT

LANES = np.arange(32)
LESSONS = [step for step in STEPS if step.number <= 10]
H200 = hardware.gpu("H200 SXM")
SHARES = r"(\d\.\d+) \| (\d\.\d+)"  # of cuBLAS's speed, at 4096 and 8192
REGISTERS = H200.capability.registers
MOVED = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 2, 2)]  # elements of A, B and C that a check adds to where a row of theirs begins
BARRIERS = "barriers that cost nothing"
BANKS = "registers without banks"
CACHE = "instruction cache for any loop"


@functools.cache
def log() -> str:
    return " ".join((ROOT / "kernels/LOG.md").read_text(encoding="utf-8").split())


def logged(pattern: str) -> tuple[str, ...]:
    """The figures in the kernels' log, by a pattern with a group for each."""
    found = re.findall(pattern, log())
    assert len(found) == 1, f"{pattern!r} stands {len(found)} times in kernels/LOG.md"
    return found[0] if isinstance(found[0], tuple) else (found[0],)


def by_nvcc(step: str) -> str:
    """TFLOPS of a step at 4096 in the log's table of kernels that nvcc compiled."""
    return logged(rf"\| {step} (?:\([^)]*\) )?\| [\d.]+ \([\d.]+\) \| [\d.]+ \([\d.]+\) \| ([\d.]+)")[0]


def loop_bytes(step: str) -> int:
    """Machine code of a step's main loop; an instruction has 16 bytes."""
    return 16 * len(main_loop(reference(step).compiled).body)


def recorded(step: str, size: int = 4096) -> float:
    """TFLOPS."""
    return evidence.recorded(step, size).rows[0].tflops


def executed(step: str, counter: str) -> float:
    """What a measure says of a step at 4096."""
    return measures.measure(counter)(reference(step).profile().run)


def for_64_products(step: str) -> int:
    """Instructions in a warp's loop for each 64 HMMA, which are 32 of K in steps 14 and 15."""
    kernel = reference(step)
    short, long = (gemm.count(kernel, gemm.problem_for(kernel, 512, 512, k)).counters for k in (1024, 2048))
    every, products = (long[name] - short[name] for name in ("smsp__inst_executed.sum", "smsp__inst_executed_pipe_tensor_op_hmma.sum"))
    return round(64 * every / products)


@functools.cache
def of_each_warp(step: str, instructions: str) -> float:
    """Instructions of a warp in a product of 128."""
    return measures.measure(f"{instructions} instructions of each warp")(reference(step).gemm(128, on="cpu"))


def saved(step: str, cause: str) -> float:
    """The part of its time that the model takes a cause to cost a step at 4096."""
    return what_if(reference(step).profile(4096, "H200 SXM"), cause).gain(cause)


def beside_cublas(step: str, size: int) -> float:
    """Times cuBLAS on record."""
    return evidence.recorded(step, size).rows[0].cublas_ratio


def multiply_add_share(step: str, size: int) -> float:
    """Of all instructions that the step's warps issue at size³."""
    return measures.multiply_add_share(reference(step).profile(size, "H200 SXM").run)


def most_lost(text: str, step: str = "thread_tile_2d") -> list[str]:
    """The states that the warps wait in at the first line with this text, at 4096, the longest first."""
    kernel = reference(step)
    states = kernel.profile(4096, "H200 SXM").prediction.by_line[measures.line_number(kernel, text)]
    return sorted(set(states) - {"selected", "not selected"}, key=lambda state: -states[state])


def states_of(step: str) -> dict[str, float]:
    """What the warps of a step do with their cycles at 4096, by the model, the most first."""
    return dict(reference(step).profile(4096, "H200 SXM").prediction.states)


def sampled_states(step: str, size: int = 4096) -> dict[str, float]:
    """The same on an H200, as Nsight Compute sampled it."""
    return next(row["states"] for row in recorded_states.recorded() if (row["slug"], row["size"]) == (step, size))


def winners_fill_the_gpu() -> bool:
    """Whether the shapes that lesson 12 lists have what it says of their fastest constants, but for the smallest."""
    found, large, good = strategy.recorded(), {"256 × 128", "128 × 256"}, []
    for shape in ("small, 512", "medium", "medium, 2048", "large", "large, 8192", "odd", "oblong"):
        best = found.best(shape)
        size, problem = tuple(map(int, best.split(",")[0].split(" × "))), strategy.SHAPES[shape]
        good += [busy_part(size, problem, H200.sms) > 0.9, (best in large) == (busy_part((256, 128), problem, H200.sms) > 0.9)]
    return all(good)


def with_warps() -> set[str]:
    """The shapes on which constants of step 12 win that have several warps share each warp's tile."""
    found = strategy.recorded()
    return {shape for shape in found.rows if "warps" in found.best(shape)}


@functools.cache
def wavefronts_for_sums() -> tuple[float, float]:
    """By how much a product's wavefronts of shared loads grow in step 12 if eight warps share each warp's tile, and what part of that adds up sums."""
    tile = {"BM": 32, "BN": 64, "BK": 32, "WM": 32, "WN": 64, "TM": 8, "TN": 8}
    kernels = variants(reference("autotune"), {"1": tile | {"AT_ONCE": 4}, "8": tile | {"WARPS_K": 8, "FIRST": 0, "AT_ONCE": 2}})
    one, eight = kernels.gemm(256).values()
    wavefronts = measures.measure("wavefronts of shared loads")
    grown = wavefronts(eight) - wavefronts(one)
    return grown / wavefronts(one), measures.at_line(eight, "+= sums[").counters[names.shared_wavefronts("ld")] / grown


@functools.cache
def copies_shifted(align: int) -> int:
    """Sectors that the copies of B in step 12 ask for with eight slices, more than with one, if shared memory is aligned to so many bytes."""
    tile = {"BM": 16, "BN": 64, "BK": 32, "WM": 16, "WN": 32, "TM": 4, "TN": 4}
    aligned = {"extern __shared__ __align__(16)": f"extern __shared__ __align__({align})"}
    kernels = variants(reference("autotune"), {"1": tile | {"SLICES": 1}, "8": tile | {"SLICES": 8} | aligned})
    one, eight = (measures.at_line(run, "inside ? 16 : 0") for run in kernels.gemm(16, 256, 256).values())
    return eight.counters[names.sectors("global", "ld")] - one.counters[names.sectors("global", "ld")]


def behind_cublas() -> set[str]:
    """Shapes on which no constants of step 17 come within a twentieth of cuBLAS."""
    found = strategy.recorded(dtype="bfloat16")
    return {shape for shape in found.rows if found.ratio(shape, found.best(shape)) < 0.95}


def furthest_behind(count: int) -> dict[str, float]:
    """The shapes on which the best constants of step 17 do worst, times cuBLAS."""
    found = strategy.recorded(dtype="bfloat16")
    ratios = sorted((found.ratio(shape, found.best(shape)), shape) for shape in found.rows)
    return {shape: ratio for ratio, shape in ratios[:count]}


def fastest(*shapes: str) -> set[str]:
    """The constants of step 17 that win there."""
    found = strategy.recorded(dtype="bfloat16")
    return {found.best(shape) for shape in shapes}


def tiles_and_blocks(shape: str) -> tuple[int, int]:
    """How many tiles of C the fastest constants of step 17 make there, and slices of them."""
    name, problem = min(fastest(shape)), strategy.SHAPES[shape]
    constants = strategy.TENSOR_CONFIGURATIONS[name]
    count = -(-problem.m // constants["BM"]) * -(-problem.n // constants["BN"])
    return count, count * constants["SLICES"]


def without(what: str) -> tuple[str, ...]:
    """Step 17 with that taken away, as the log has it, times cuBLAS: at 4096 by itself and in bursts, and at 8192."""
    alone, bursts = re.findall(rf"{re.escape(what)} {SHARES}[,.\n]", log().split("## Run 23")[1])
    return (*rounded(alone[0], 2), bursts[0], *rounded(alone[1], 2), bursts[1])


def held_out(configuration: str, size: int) -> float:
    """Microseconds of step 17 with these constants, on a shape that took no part in the rule."""
    found = strategy.judged(dtype="bfloat16")
    return 1e3 * next(
        rows[configuration]["milliseconds"] for problem, rows in found.recorded.items() if problem.m == problem.n == problem.k == size
    )


def times_cublas(shape: str, configuration: str) -> float:
    """Of step 12 with these constants."""
    return strategy.recorded().ratio(shape, configuration)


def factors_that_fp16_keeps_nothing_of() -> float:
    """The part of lesson 18's products, large in A times small in B, of which two scaled pieces of A or of B are 0."""
    random = np.random.default_rng(18)
    each = 10.0 ** random.uniform(-9, 9, 1024)
    left, right = (random.standard_normal(shape) for shape in ((48, 1024), (1024, 48)))
    gone = [
        np.array(pieces(np.ldexp(x, 14 - np.frexp(np.abs(x).max(axis, keepdims=True))[1] + 1), "f16", 2)).any(axis=0)
        for x, axis in ((left * each, 1), (right / each[:, None], 0))
    ]
    return float(1 - np.mean(gone[0][:, :, None] & gone[1][None]))


def last_adds() -> tuple[str, ...]:
    """Microseconds of the deep product in 16 slices of which the last adds up all, and without the sum."""
    return logged(
        r"with fences by all threads [\d.]+ µs, as it is ([\d.]+), its atomic .*? without the sum of more than one part ([\d.]+),"
    )


def all_add() -> tuple[str, ...]:
    """Microseconds of the deep product where each slice adds up its share: cuBLAS, 32 slices, 16, 32 without all that waits and adds."""
    return logged(
        r"as it is now\* \(cuBLAS ([\d.]+)\): 64 × 64 with 32 slices ([\d.]+), .*?; 32 × 64 with 16 ([\d.]+) and .*? without all three (\d\.\d+)"
    )


def digits_left() -> tuple[float, ...]:
    """Of lesson 19's numbers without the outliers, stored with one factor for the matrix: the parts with no digit, one or two, three, and all four."""
    numbers, outliers = np.random.default_rng(19).standard_normal((256, 1024), dtype=np.float32), [100, 300, 310, 900]
    numbers[:, outliers] = 60_000
    stored = np.delete(quantized(numbers, 0, 0).stored.astype(np.float32), outliers, axis=1)
    units = np.abs(stored) * 2**9  # of the smallest positive number
    return tuple(float(np.mean((units >= low) & (units < high))) for low, high in ((0, 1), (1, 4), (4, 8), (8, np.inf)))


def kept_of_a_product(exponent: int) -> float:
    """What FP8's sums keep of 1.875 times 1.875, which has all 8 bits, if it is moved to this exponent beside a product of exponent 0."""
    sums = sums_of("e4m3", "f32", warpgroup=True)
    left, right = np.array([[1.0, 1.875]]), np.array([[1.0], [1.875 * 2.0**exponent]])
    return float(cut_sums(sums, left, right, np.zeros((1, 1)), ("e4m3", "e4m3"))[0, 0]) - 1


def differences_from_cublas(step: str) -> list[float]:
    """Of the results of the H200's record, one of each size."""
    rows = json.loads((ROOT / "helpers/data/nvidia-h200.json").read_text(encoding="utf-8"))
    return [row["difference"] for row in rows if row["slug"] == step]


def three_consumers() -> tuple[str, ...]:
    """TFLOPS of step 19 with three consumers, and times cuBLAS, at 4096 and 8192."""
    return logged(r"Three consumers of 64 rows\* \(192 x 128\): (\d+) \(([\d.]+)\) \| (\d+) \(([\d.]+)\)")


def clusters_lose() -> tuple[str, str]:
    """The least and the most, in per cent, of two stages of step 19 at 4096 and 8192."""
    first = logged(r"through shared memory: (\d+) \([\d.]+\) \| (\d+) \([\d.]+\); without clusters (\d+) \([\d.]+\) \| (\d+)")
    second = logged(r"uniform LDG of the consumers: (\d+) \([\d.]+\) \| (\d+) \([\d.]+\), with clusters (\d+) \| (\d+)")
    pairs = (*zip(first[:2], first[2:], strict=True), *zip(second[2:], second[:2], strict=True))
    lost = [100 * (1 - int(slow) / int(fast)) for slow, fast in pairs]
    return f"{min(lost):.0f}", f"{max(lost):.0f}"


def published(device: str, name: str, size: int) -> float:
    """TFLOPS of the first rung whose name begins so."""
    return next(one.tflops for one in ladder.published() if one.device == device and one.name.startswith(name) and one.m == size)


def factors(fast: str, slow: str) -> list[float]:
    """How many times as fast one step is as another, in each published ladder that has both."""
    return [fast.tflops / slow.tflops for slow, fast in evidence.elsewhere(slow, fast).rows]


@functools.cache
def sectors_of_b(padding: int) -> float:
    """Sectors for each load of B in step 02, whose rows have so many unused floats at their end, of 64 used."""
    return measures.sectors_per_request(reference("coalesced").gemm(64, pad_b=padding, on="cpu", trace=True), "B")


def next_tiles(size: int) -> list[tuple[bool, bool]]:
    """Of each tile of a cluster in step 17, is the next one that its blocks compute in the same panel, and of the same rows?"""
    one = {name: value[0] for name, value in reference("warp_specialized").compiled.constants.items()}
    rows, columns, clusters = size // one["BM"], size // (one["BN"] * one["CLUSTER"]), H200.sms // one["CLUSTER"]

    def place(tile: int) -> tuple[int, int]:
        panel, within = divmod(tile, one["PANEL"] * columns)
        return panel, panel * one["PANEL"] + within % min(one["PANEL"], rows - panel * one["PANEL"])

    pairs = [(place(tile), place(tile + clusters)) for tile in range(rows * columns - clusters)]
    return [(one[0] == other[0], one[1] == other[1]) for one, other in pairs]


def served(rule: CostRule, addresses: np.ndarray, width: int) -> rules.Cost:
    """What an access of a warp costs whose lanes take so many bytes each, from these addresses on."""
    return rules.cost(rule, addresses[None], None, width)


def registers_for(threads: int, blocks: int) -> int:
    """The most registers a thread may have if so many blocks are to fit on a multiprocessor: they are given out by eights."""
    return REGISTERS // (threads * blocks) // 8 * 8


def more(old: str, new: str) -> tuple[str]:
    """How much more the second figure is, in per cent."""
    return (f"{100 * (float(new) / float(old) - 1):.0f}",)


def rounded(figures: str | tuple[str, ...], decimals: int = 1) -> tuple[str, ...]:
    """With so many decimals."""
    return tuple(f"{float(figure):.{decimals}f}" for figure in ([figures] if isinstance(figures, str) else figures))


@dataclass(frozen=True)
class Claim:
    """lesson: its number. text: a sentence or a part of it, with {} for each figure. figures: what they are, as text. holds: what must be
    true besides, for what is said in words."""

    lesson: int
    text: str
    figures: Callable[[], tuple] = tuple
    holds: Callable[[], bool] = lambda: True

    def __str__(self) -> str:
        return f"{self.lesson:02}: {self.text[:40]}"


def as_read(*figures: str) -> Callable[[], tuple]:
    """Figures as other people published them, which nothing here can work out."""
    return lambda: figures


CLAIMS = (
    Claim(0, "a kernel that is, on large products, a little faster than cuBLAS",
          holds=lambda: all(1 < evidence.recorded(11, size).rows[0].cublas_ratio < 1.1 for size in (4096, 8192))),
    Claim(0, "an H200 has {}", lambda: (H200.sms,)),
    Claim(2, "At 4096 the time falls further", holds=lambda: recorded("coalesced") / recorded("naive") > 33 / 5),
    Claim(2, "At 4097 it falls less far", holds=lambda: recorded("coalesced", 4097) / recorded("naive", 4097) < 33 / 5),
    Claim(2, "less than a sixth; at 4097 to a little more, because most rows of B begin inside a sector there, so that a load touches five.",
          holds=lambda: 33 / (1 + sectors_of_b(0)) > 6 > 33 / (1 + sectors_of_b(1)) > 5.5 and sectors_of_b(1) > 4.5),
    Claim(2, "between six and thirteen everywhere", holds=lambda: all(6 < factor < 13 for factor in factors("coalesced", "naive"))),
    Claim(3, "that was worth {} per cent at 4096", lambda: more(*logged(r"addresses computed anew\) ([\d.]+) at 4096.*?\*\*([\d.]+)\*\* \(shipped\)"))),
    Claim(3, "- {} for `a`", lambda: (2 / 4,)),
    Claim(3, "- {} for the two stores that fill the tiles, once for every 32 `k`", lambda: (f"{2 / 32:.2f}",)),
    Claim(3, "on an H200: {} TFLOPS of arithmetic, of which shared memory feeds less than a sixth",
          lambda: (f"{H200.peak_fp32_tflops:.1f}",), lambda: 4 * (1 + 2 / 4 + 2 / 32) > 6),
    Claim(3, "The recorded kernel reaches most of it", holds=lambda: 0.75 < recorded("shared_tile") / (H200.peak_fp32_tflops / 6.25) < 1),
    Claim(3, "By the model it is busy all the time", holds=lambda: reference("shared_tile").profile(
        4096, "H200 SXM").prediction.limiter.startswith("the load/store unit, busy for 100% of the time")),
    Claim(3, "The barriers cost next to nothing: while the warps of one block wait, those of the other go on.",
          holds=lambda: saved("shared_tile", BARRIERS) < 0.01 and reference("shared_tile").occupancy("H200 SXM").blocks_per_sm == 2),
    Claim(3, "reports {} GFLOPS for a tiled kernel and {} for the one before it (published)", as_read("314", "1058")),
    Claim(4, "the waves of the first row: {} in both.", lambda: (f"{1024**2 / 256 / (hardware.gpu('RTX 3090').sms * 6):.2f}",)),
    Claim(4, "does {} GFLOPS. With two operands from shared memory per multiply-add it would need {} GB/s", as_read("444.3", "1777")),
    Claim(4, "and shared memory gives {} GB/s", as_read("178.56")),
    Claim(4, "({} GHz is the base clock of an RTX 3090. The other, {} GHz, is above even its boost clock, {} GHz.)",
          lambda: (f"{178.56 / 128:.3f}", f"{444.3 / 256:.3f}", hardware.gpu("RTX 3090").clock_mhz / 1000),
          lambda: 444.3 / 256 > hardware.gpu("RTX 3090").clock_mhz / 1000),
    Claim(4, "gave {}, {}, {}, {} and {} TFLOPS for TM = 1, 2, 4, 8, 16",
          lambda: logged(r"32×32×32 tile, 4096³: TM 1 ([\d.]+) · 2 ([\d.]+) · 4 ([\d.]+) · 8 ([\d.]+) · 16 ([\d.]+);")),
    Claim(4, "The tile of $64 \\times 64$, with BK = 16 and so with twice as many barriers, gave {} for TM = 8 and {} for TM = 16",
          lambda: logged(r"64×64×16: TM 8 ([\d.]+), TM 16 ([\d.]+);")),
    Claim(4, "with TM = 32 fell to {}: it spilled registers", lambda: logged(r"128×128, TM 32 ([\d.]+) \(spills\)")),
    Claim(4, "reports {} ms for its shared-memory kernel on an RTX 5090 and {} ms for its 1D tile", as_read("0.24867", "0.249046")),
    Claim(5, "it was worth {} per cent at 4096", lambda: more(*logged(r"05 ([\d.]+) \(0.432\) / 22.29, and ([\d.]+) with two blocks"))),
    Claim(5, "More than half of the multiprocessors have nothing to do, each of the others has one block of 8 warps where two would fit",
          holds=lambda: 2 * (1024 // 128) ** 2 < H200.sms and (fit := reference("thread_tile_2d").occupancy("H200 SXM")).blocks_per_sm == 2
          and fit.warps_per_sm == 2 * 8),
    Claim(5, "the kernel has half the speed of step 04",
          holds=lambda: 0.45 < recorded("thread_tile_2d", 1024) / recorded("thread_tile_1d", 1024) < 0.55),
    Claim(5, "about one and a half to two.", holds=lambda: all(1.4 < one < 2 for one in factors("thread_tile_2d", "thread_tile_1d"))),
    Claim(5, "In this course it is less, because its step 04 is faster than theirs.",
          holds=lambda: recorded("thread_tile_2d") / recorded("thread_tile_1d") < min(factors("thread_tile_2d", "thread_tile_1d"))),
    Claim(5, "the {} registers of a thread are the limit", lambda: (255,)),
    Claim(5, "The multiply-adds lose cycles to registers that lie in one bank, and nearly as many to the wait for what was read from shared memory.",
          holds=lambda: most_lost("sum[i][j] +=")[:2] == ["dispatch stall", "short scoreboard"]),
    Claim(5, "In addition, the one of `As` waits for the pipe of the multiply-adds and for the queue of shared memory, and the one of `Bs` at the barrier",
          holds=lambda: set(most_lost("a[i] = As")[:3]) == {"dispatch stall", "math pipe throttle", "mio throttle"}
          and set(most_lost("b[j] = Bs")[:2]) == {"dispatch stall", "barrier"}),
    Claim(6, "The phases of a *load* merge in twos if all 32 lanes pair up: either every lane $n$ reads what lane $n \\oplus 1$ reads (0 with 1, "
          "2 with 3, …), or every lane what lane $n \\oplus 2$ reads (0 with 2, 1 with 3, …).",
          holds=lambda: [served(CostRule.SHARED_LOAD, (LANES & ~bit) * 16, 16).ideal_wavefronts for bit in (1, 2)] == [2, 2]),
    Claim(6, "take one wavefront if these lie in different banks",
          holds=lambda: [served(CostRule.SHARED_LOAD, LANES // 2 * apart, 16).wavefronts for apart in (16, 32)] == [2, 4]),
    Claim(6, "Lanes that agree at any other distance merge no phases, and those of a store never merge.",
          holds=lambda: [served(CostRule.SHARED_LOAD, (LANES & ~bit) * 16, 16).ideal_wavefronts for bit in (4, 8, 16)] == [4, 4, 4]
          and [served(CostRule.SHARED_STORE, (LANES & ~bit) * 16, 16).ideal_wavefronts for bit in (1, 2)] == [4, 4]),
    Claim(6, "its stores, 16 values of `k` for 2 rows, take two wavefronts each",
          holds=lambda: served(CostRule.SHARED_STORE, 4 * (LANES % 16 * (128 + 4) + LANES // 16), 4).wavefronts == 2),
    Claim(6, "for each of eight rows: {} registers to hold", lambda: (4 * 8,)),
    Claim(6, "the step's kernel runs at {} TFLOPS", lambda: (by_nvcc("06"),)),
    Claim(6, "Without padding it loses 5 % ({}); at BK = 16, 13 % ({} instead of {})",
          lambda: logged(r"PAD 0 loses 5–13 % \(([\d.]+) for 34.4 at BK 8; ([\d.]+) for ([\d.]+) at BK 16\)"),
          lambda: (round(100 - 3270 / 34.4), round(100 - 3160 / 36.5)) == (5, 13)),
    Claim(6, "the recorded kernel has half of that", holds=lambda: 0.45 < recorded("bank_conflicts") / H200.peak_fp32_tflops < 0.55),
    Claim(6, "If wavefronts were all that counts, the gain would be the last ratio in the table; the kernel gained less.",
          holds=lambda: 1 < recorded("bank_conflicts") / recorded("thread_tile_2d") < 66.9 / 51),
    Claim(6, "both lose against it. The table has the faster of the two, which is still faster than the 2D tile.",
          holds=lambda: all(one < 1 for one in factors("bank_conflicts", "vectorized"))
          and all(one > 1 for one in factors("bank_conflicts", "thread_tile_2d"))),
    Claim(6, "On an H200 the other one is slower than the 2D tile as well.",
          holds=lambda: all(published("H200 SXM", "banks, offset", size) < published("H200 SXM", "2D", size) for size in (4096, 8192))),
    Claim(7, "For a kernel with wide accesses there are eight more", holds=lambda: len(gemm.of_any_alignment(reference("vectorized"), 1)) == 8),
    Claim(7, "Their rows are whole pieces, but in one matrix or in all three not every row begins at a multiple of 16 bytes.",
          holds=lambda: all(one.k % 4 == one.n % 4 == 0 for one in gemm.of_any_alignment(reference("vectorized"), 1))
          and [sum(by % 4 > 0 for by in moved) for moved in MOVED] == [1, 1, 1, 3]),
    Claim(7, "In four of them the leading dimension is one element longer for A, for B or for C, or two for all three",
          holds=lambda: [(one.pad_a, one.pad_b, one.pad_c) for one in gemm.of_any_alignment(reference("vectorized"), 1)] == [*MOVED, *[(0, 0, 0)] * 4]),
    Claim(7, "in the other four the matrix itself begins late: one of the three by an element, or all by two.",
          holds=lambda: [one.shifts for one in gemm.of_any_alignment(reference("vectorized"), 1)[4:]] == MOVED),
    Claim(7, "In three more every row begins at a multiple of 16 bytes, and only three, two or one floats of its last piece belong to it",
          holds=lambda: [(one.k % 4, one.n % 4, one.lda % 4, one.ldb % 4, one.ldc % 4) for one in gemm.of_any_end(reference("vectorized"), 1)]
          == [(3, 1, 0, 0, 0), (2, 3, 0, 0, 0), (1, 2, 0, 0, 0)]),
    Claim(7, "there the 64 bytes that four lanes read lie in three sectors instead of two",
          holds=lambda: [served(CostRule.GLOBAL, LANES // 4 * lda * 4 + LANES % 4 * 16, 16).sectors for lda in (128, 132)] == [8 * 2, 4 * 2 + 4 * 3]),
    Claim(7, "But every store to local memory, where spilled registers go, goes through to L2, and L2 takes half as many bytes in a cycle as it gives.",
          holds=lambda: logged(r"nine of ten loads are served by L(\d)") == ("1",) and 1.8 < figures()["load_store"]["spilled_sector_all"] / figures()["load_store"]["l2_sector"] < 2.4),
    Claim(7, "The barriers themselves cost two per cent, by the model.",
          holds=lambda: 0.015 < what_if(reference("vectorized").profile(4096, "H200 SXM"), BARRIERS).gain(BARRIERS) < 0.025),
    Claim(7, "The stairs from {} to {}.", lambda: (by_nvcc("05"), logged(r"the vector path all-or-nothing: ([\d.]+)\.")[0])),
    Claim(7, "| step 05 | {} | | step 06: no conflicts, the tile of A transposed | {} |", lambda: (by_nvcc("05"), by_nvcc("06"))),
    Claim(7, "BK = 8 | {} | | the same with BK = 16, half as many barriers | {} |", lambda: logged(r"before\): ([\d.]+) at BK 8, ([\d.]+) at BK 16")),
    Claim(7, "the kernel above | {} |", lambda: logged(r"the vector path all-or-nothing: ([\d.]+)\.")),
    Claim(7, "step 06 was worth {} TFLOPS, the wide copies {}, half the barriers {}, and the last row {}:",
          lambda: tuple(f"{float(high) - float(low):.0f}" for low, high in (
              (by_nvcc("05"), by_nvcc("06")), (by_nvcc("06"), "37.4"), ("37.4", "39.3"), ("39.3", "43.3")))),
    Claim(7, "Without the padding of `As` it is {}.", lambda: logged(r"BK 32 44.4. PAD 0 ([\d.]+)\.")),
    Claim(7, "{} TFLOPS for a 2D block tile and {} for the same with vector access, {} and {} with a 1D thread tile",
          lambda: (f"{published('RTX 3090', 'V02', 4096):.2f}", "1.91", f"{published('RTX 3090', 'V03', 4096):.2f}", "4.05")),
    Claim(7, "At 1024 the tile of 128 × 128 is too large, and step 04 is faster",
          holds=lambda: recorded("vectorized", 1024) < recorded("thread_tile_1d", 1024)),
    Claim(7, "A third leaves {} registers a thread", lambda: (registers_for(256, 3),)),
    Claim(7, "more than half of the speed: {} TFLOPS instead of {}.", lambda: rounded(logged(r"n = 3 ([\d.]+) \(80, spilled\) beside ([\d.]+)\."))),
    Claim(7, "On a large one nearly nine in ten are multiply-adds", holds=lambda: 0.87 < multiply_add_share("vectorized", 4096) < 0.9),
    Claim(8, "The counter compares with one wavefront for each phase, and a load whose phases do not merge has four.",
          holds=lambda: [(cost.wavefronts, cost.conflicts) for cost in [served(CostRule.SHARED_LOAD, LANES % 8 * 16, 16)]] == [(4, 0)]),
    Claim(8, "which made {} TFLOPS of the step itself", lambda: (by_nvcc("08"),)),
    Claim(8, "save a quarter of the shared loads: **{}**", lambda: logged(r"16×8 thread tile without prefetch ([\d.]+)")),
    Claim(8, "twice as many barriers: **{}**. BK = 32: {}, a little better",
          lambda: logged(r"that 09 turns into a gain. BK 8 ([\d.]+), BK 32 ([\d.]+),")),
    Claim(8, "64 × 32 instead of 32 × 64: {}.", lambda: logged(r"WM 64 × WN 32 ([\d.]+)\.")),
    Claim(8, "Nine of ten instructions are multiply-adds: with one instruction issued in every cycle of each scheduler, the kernel would reach nine "
          "tenths of the peak. It reaches two thirds.",
          holds=lambda: 0.87 < executed("warp_tile", "FFMA instructions") / executed("warp_tile", "all instructions") < 0.93
          and 0.64 < recorded("warp_tile") / H200.peak_fp32_tflops < 0.69),
    Claim(8, "a warp tile brought between {} per cent (RTX 3090) and a quarter (H200 at 8192³)",
          lambda: (f"{100 * (min(factors('warp_tile', 'vectorized')) - 1):.0f}",), lambda: 1.24 < max(factors("warp_tile", "vectorized")) < 1.28),
    Claim(9, "Nine of ten instructions are multiply-adds", holds=lambda: 0.88 < multiply_add_share("warp_tile", 4096) < 0.92),
    Claim(9, "still a third of the peak is missing", holds=lambda: 0.3 < 1 - recorded("warp_tile") / H200.peak_fp32_tflops < 0.36),
    Claim(9, "which made {} TFLOPS of the step itself", lambda: (by_nvcc("09"),)),
    Claim(9, "| step 08 | {} | | the larger tile without the buffers | {} |",
          lambda: (by_nvcc("08"), *logged(r"16×8 thread tile without prefetch ([\d.]+)"))),
    Claim(9, "8 × 8 results per thread | {} | | both: the kernel above | {} |", lambda: (*logged(r"09: 8×8 thread tile ([\d.]+)"), by_nvcc("09"))),
    Claim(9, "The buffers alone need {} registers by nvcc", lambda: logged(r"09: 8×8 thread tile [\d.]+ \((\d+) registers, one block\)")),
    Claim(9, "per thread: {}. **BK = 8**: {}.", lambda: logged(r"one block\)\. BK 8 ([\d.]+)\. 8×16 ([\d.]+)\.")[::-1]),
    Claim(9, "At 1024 the step loses a third, and at 2048 a little",
          holds=lambda: 0.6 < recorded("double_buffer", 1024) / recorded("warp_tile", 1024) < 0.7
          and 0.98 < recorded("double_buffer", 2048) / recorded("warp_tile", 2048) < 1),
    Claim(9, "It makes room: {} registers, so two blocks", lambda: (registers_for(256, 2),)),
    Claim(9, "the buffers alone {} TFLOPS, with two blocks asked for **{}**, and the kernel above {}.",
          lambda: rounded(logged(r"the buffers alone, 8 × 8, ([\d.]+), with \(THREADS, 2\) ([\d.]+), the kernel ([\d.]+):")),
          lambda: evidence.recorded("schedule", 4096).rows[0].tflops > 46.9),
    Claim(9, "would leave it {} registers, for {} sums and all that is in flight: {} TFLOPS.",
          lambda: (registers_for(128, 3), 16 * 8, *rounded(logged(r"09 n = 2 [\d.]+ \(\d+\), n = 3 ([\d.]+) \(168\)")))),
    Claim(9, "lack their next instruction in {} % of their cycles at 1024, and in {} % at 4096",
          lambda: logged(r'09 at 1024 "no instruction" (\d+) % of the warps\' cycles, at 4096 (\d+) %;')),
    Claim(9, "more machine code than the 32 KB that the instruction cache feeds at full speed; that of step 08 is half as long",
          holds=lambda: loop_bytes("double_buffer") > 32 << 10 and 0.45 < loop_bytes("warp_tile") / loop_bytes("double_buffer") < 0.55),
    Claim(9, "by a fifth, and on the H200 at 8192 by {} per cent",
          lambda: (f"{100 * (1 - published('H200 SXM', 'double buffer', 8192) / published('H200 SXM', 'warp tile', 8192)):.0f}",),
          lambda: 0.78 < min(factors("double_buffer", "warp_tile")) < 0.82),
    Claim(9, "the step is only one per cent faster at 4096", holds=lambda: 1.005 < recorded("double_buffer") / recorded("warp_tile") < 1.015),
    Claim(9, "a part of the gain is lost again to the instruction cache", holds=lambda: saved("warp_tile", CACHE) == 0 and saved("double_buffer", CACHE) > 0.02),
    Claim(10, "the sums alone are {} registers", lambda: (16 * 8,)),
    Claim(10, "which made {} TFLOPS of the step itself", lambda: (by_nvcc("10"),)),
    Claim(10, "Half a per cent fewer instructions do not make a kernel {} % faster.",
          lambda: (f"{100 * (recorded('async_copy') / recorded('double_buffer') - 1):.0f}",),
          lambda: 0.994 < of_each_warp("async_copy", "all") / of_each_warp("double_buffer", "all") < 0.996),
    Claim(10, "Step 10 starts the copies of two pairs beyond the eight that $K$ has, and step 09 the loads and stores of one",
          holds=lambda: of_each_warp("async_copy", "LDGSTS") == 10 * 20 and of_each_warp("double_buffer", "STS") == 9 * 20),
    Claim(10, "The minus in the first row", holds=lambda: saved("async_copy", "device memory without latency") < 0 < saved("double_buffer", "device memory without latency")),
    Claim(10, "2, 3 and 4 stages: {}, {}, {}.", lambda: logged(r"2, 3, 4 stages ([\d.]+), ([\d.]+), ([\d.]+)\. 128×256")),
    Claim(10, "whole rows or not, interleaved: **{}**", lambda: logged(r"interleaved by predicates\): ([\d.]+);")),
    Claim(10, "about half the speed of the same author's plain double buffer", holds=lambda: all(0.5 < one < 0.6 for one in factors("async_copy", "double_buffer"))),
    Claim(10, "`cp.async` needs compute capability {}.", lambda: (f"{int(get('async_copy').arch[3:]) / 10}",)),
    Claim(10, "Not the barrier: it costs either step next to nothing.",
          holds=lambda: all(abs(what_if(reference(step).profile(4096, "H200 SXM"), BARRIERS).gain(BARRIERS)) < 0.01 for step in ("double_buffer", "async_copy"))),
    Claim(10, "that costs both some per cent",
          holds=lambda: all(0.02 < what_if(reference(step).profile(4096, "H200 SXM"), BANKS).gain(BANKS) < 0.1 for step in ("double_buffer", "async_copy"))),
    Claim(10, "the warps of 09 spend {} % of their cycles on those (*short scoreboard*), and the warps of 10 spend {} %",
          lambda: tuple(f"{100 * sampled_states(step)['short scoreboard']:.0f}" for step in ("double_buffer", "async_copy"))),
    Claim(12, "At 4096 and 8192 the largest tile that registers allow, upright or lying, and we pass cuBLAS",
          holds=lambda: all(strategy.recorded().best(shape) in ("256 × 128", "128 × 256") and times_cublas(shape, strategy.recorded().best(shape)) > 1.05
                            for shape in ("large", "large, 8192"))),
    Claim(12, "At 3072 there are {}, a little more than two rounds, which take as long as three: smaller tiles are faster by a quarter.",
          lambda: (3072 // 256 * (3072 // 128),), lambda: 2 < 288 / H200.sms < 2.2 and strategy.recorded().best("large, 3072") == "96 × 128"
          and 1.2 < times_cublas("large, 3072", "96 × 128") / times_cublas("large, 3072", "256 × 128") < 1.3),
    Claim(12, "At 256 even the winner leaves half of them idle: it has {} tiles.", lambda: (256 // 16 * (256 // 64),),
          lambda: strategy.recorded().best("small") == "16 × 64, 4 warps"),
    Claim(12, "but for the first, every winner leaves few multiprocessors idle. Where the largest tile does that itself, upright or lying, it wins; elsewhere a "
          "smaller one does.", holds=lambda: winners_fill_the_gpu()),
    Claim(12, "The loads rise by {} sectors more than the parts account for: an accident of layout, at the copies of $B$.", lambda: (copies_shifted(16),),
          lambda: copies_shifted(128) == 0),
    Claim(12, "That is faster by a sixth", holds=lambda: strategy.recorded().best("medium") == "32 × 128, 4 warps"
          and 7 / 6 < times_cublas("medium", "32 × 128, 4 warps") / times_cublas("medium", "64 × 128") < 1.2),
    Claim(12, "tiles of 64 × 128 with 8 × 8 results per thread had {} to {} of cuBLAS's speed with one warp for each warp's tile, and {} with two",
          lambda: logged(r"1024: 64 × 128 of 8 × 8 with one ([\d.]+) to ([\d.]+), with two ([\d.]+);")),
    Claim(12, "they win the square products up to 1536, the thin ones and the deep one",
          holds=lambda: with_warps() == {"small", "small, 512", "medium", "medium, 1536", "thin", "thin, 128", "deep"}),
    Claim(12, "Compare *32 × 64* with *32 × 64, 8 warps*: {} and {} of cuBLAS's speed at 256, {} and {} at 512; but {} and {} at 4096, and {} and {} where $K$ is 128",
          lambda: tuple(f"{times_cublas(shape, name):.2f}" for shape in ("small", "small, 512", "large", "shallow") for name in ("32 × 64", "32 × 64, 8 warps"))),
    Claim(12, "in shared memory nearly a fifth more wavefronts of loads, most of them to add up the sums",
          holds=lambda: 0.18 < wavefronts_for_sums()[0] < 0.2 and wavefronts_for_sums()[1] > 0.8),
    Claim(11, "Of its kernel's instructions {} % are multiply-adds", lambda: logged(r"ncu: FFMA ([\d.]+) % of its instructions")),
    Claim(14, "The kernel of step 11 issues a multiply-add in four cycles of five",
          holds=lambda: all(0.79 < recorded("schedule", size) / H200.peak_fp32_tflops < 0.83 for size in (4096, 8192))),
    Claim(14, "by Nsight Compute, as by the model, the warps spend three tenths of their cycles waiting for what they read from shared memory",
          holds=lambda: all(0.27 < states["short scoreboard"] < 0.33 for states in (sampled_states("wmma"), states_of("wmma")))),
    Claim(14, "this lesson's kernel has {} % on an H200", lambda: (f"{100 * beside_cublas('wmma', 4096):.0f}",)),
    Claim(14, "reaches 45 % of cuBLAS on a GPU of compute capability 12.0 and 8 % on an H100 (published)"),
    Claim(16, "nearly half of the instructions of a step along $K$ do nothing but feed the tensor cores",
          holds=lambda: 0.45 < 1 - 64 / for_64_products("mma_sync") < 0.5),
    Claim(16, "it lowered the speed from {} of cuBLAS's to {} (4096, one run; the ladder below has {}, from another run)", lambda: (
        *rounded(logged(r"\*\*16\*\* \(.*?\): 702 \([\d.]+ to ([\d.]+)\) .*?wait<0> in place of wait<1> 619 \(([\d.]+)\)"), 2),
        f"{beside_cublas('tma_wgmma', 4096):.2f}")),
    Claim(16, "a box of 1 KB is there {} cycles after one thread has asked for it, one of 8 KB after {}",
          lambda: logged(r"A box of 1 KB \(8 rows of 128 bytes\) is there (\d+) cycles after it is asked for, of 4 KB \d+, of 8 KB (\d+)")),
    Claim(16, "a warp that waits for another one's arrival goes on after {}.",
          lambda: logged(r"From an arrival until the other warp goes on (\d+) cycles")),
    Claim(17, "an arrival in the other block is heard of {} cycles later than one that stays",
          lambda: logged(r"an arrival that goes to another block is heard of (\d+) cycles later than one that stays")),
    Claim(17, "a box of 8 KB that leaves for $C$ has been read after {}, and each one behind it takes {} more", lambda: logged(
        r"A box of 8 KB that leaves\* has been read after (\d+) cycles, two, four and eight after [\d, and]+; in a stream one takes (\d+),")),
    Claim(17, "A block's next tile often lies in the same panel, whose rows of $A$ the blocks have just read between them",
          holds=lambda: all(0.6 < np.mean([panel for panel, _ in next_tiles(size)]) < 1 and not any(rows for _, rows in next_tiles(size))
                            for size in (4096, 8192))),
    Claim(17, "at 1000³ clusters win by a quarter, tiles of 128 × 64 take {} µs with them and {} without.",
          lambda: tuple(f"{held_out(name, 1000):.1f}" for name in ("128 × 64", "128 × 64, alone"))),
    Claim(18, "with fifteen times the speed, which take no FP32. (Per clock it is sixteen times, as lesson 14 says; the peaks are stated at 1830 MHz for "
          "them and {} for the FP32 lanes.)", lambda: (H200.clock_mhz,), lambda: round(H200.unit("float16").tflops / H200.peak_fp32_tflops) == 15
          and round(H200.unit("float16").tflops / 1830 / (H200.peak_fp32_tflops / H200.clock_mhz)) == 16),
    Claim(18, "cannot pass a third of its peak, {} TFLOPS. Nor is the peak in reach under the card's power: step 17, which multiplies once, has {} TFLOPS at 4096 and {} at 8192, in BF16, "
          "and a third of that is {} and {}.", lambda: (f"{H200.unit('float16').tflops / 3:.0f}", *(
              f"{recorded('warp_specialized', size) / part:.0f}" for part in (1, 3) for size in (4096, 8192)))),
    Claim(18, "Its last rung multiplies at {} % of", lambda: (f"{100 * recorded('fused_epilogue') / H200.peak_fp32_tflops:.0f}",)),
    Claim(18, "where FP16 numbers lie 16 apart, so up to 8 is missing, and $8 \\cdot 2^{{13}}$ is more than 65504",
          holds=lambda: np.spacing(np.float16(2**14)) == 16 and 8 * 2**13 > float(np.finfo(np.float16).max) > 8 * 2**12),
    Claim(18, "and a third of them have a factor of which FP16 keeps nothing", holds=lambda: 0.3 < factors_that_fp16_keeps_nothing_of() < 0.36),
    Claim(17, "| step 16 | {} | {} | {} | {} |", lambda: tuple(
        share for size, burst in zip((4096, 8192), logged(rf"step 16 {SHARES}"), strict=True)
        for share in (f"{beside_cublas('tma_wgmma', size):.2f}", burst))),
    Claim(17, "| results stored by threads (`TMA_STORE = 0`) | {} | {} | {} | {} |", lambda: without("results stored by threads")),
    Claim(17, "| no clusters (`CLUSTER = 1`) | {} | {} | {} | {} |", lambda: without("no clusters")),
    Claim(17, "| clusters of 4 | {} | {} | {} | {} |", lambda: without("clusters of 4")),
    Claim(17, "| every tile upwards (`SNAKE = 0`) | {} | {} | {} | {} |", lambda: without("every tile upwards")),
    Claim(17, "| 3 stages | {} | {} | {} | {} |", lambda: without("3 stages")),
    Claim(17, "| `arrive` with `.release.cluster` | {} | {} | {} | {} |", lambda: without("arrive with .release.cluster")),
    Claim(17, "| 17, as it is | {0} to {1} | {4} | {2} to {3} | {5} |", lambda: (
        *rounded(logged(r"as it is ([\d.]+) to ([\d.]+) \| ([\d.]+) to ([\d.]+) \(four runs\)"), 2), *logged(rf"both sides: as it is {SHARES}"))),
    Claim(17, "takes {1} µs now and took {0} with both", lambda: logged(r"64 × 128 in clusters at 1024 (\d\.\d+) → (\d\.\d+) µs, 128 × 64")),
    Claim(17, "At 1024 this kernel has less than half of cuBLAS's speed. It divides $C$ into {} × {} tiles there, for {} multiprocessors",
          lambda: (1024 // 256, 1024 // 128, H200.sms), lambda: 0.4 < beside_cublas("warp_specialized", 1024) < 0.5),
    Claim(17, "fifteen settings on fifteen shapes",
          holds=lambda: len(strategy.TENSOR_CONFIGURATIONS) == len(strategy.recorded(dtype="bfloat16").rows) == 15),
    Claim(17, "in a panel | 16 | 8 | 4 | 2 | 1 | |---|---|---|---|---|---| | µs at 1024 | {} | {} | {} | {} | {} |",
          lambda: logged(r"Panels at 1024\*, 64 × 128 alone: 16 ([\d.]+), 8 ([\d.]+), 4 ([\d.]+), 2 ([\d.]+), 1 ([\d.]+) µs")),
    Claim(17, "That alone is {} µs, at times twice as much", lambda: (
        f"{float(logged(r'16 with divisions in place of shifts ([0-9.]+[0-9])')[0]) - float(logged(r'64 × 128 alone: 16 ([0-9.]+),')[0]):.2f}",),
          lambda: logged(r"in the producer alone .*?: 1024 ([\d.]+) → ([\d.]+) µs") == ("6.92", "6.79")),
    Claim(17, "against cuBLAS, which took {} µs in that run. In tiles of 32 × 64 with sixteen slices the kernel took {} µs, and {} when it added no more than "
          "one part. In the difference, {} µs, one multiprocessor in sixteen had something to do", lambda: (
              *logged(r"128 × 128 × 16384, 16 slices; cuBLAS ([\d.]+)\)"), *last_adds(), f"{float(last_adds()[0]) - float(last_adds()[1]):.1f}")),
    Claim(17, "With sixteen slices that takes {2} µs.", all_add),
    Claim(17, "64 × 64 in 32 slices, in which a block receives a third less of $A$ and $B$, takes {1}, and would take {3} if the last one "
          "added. In the run of these figures cuBLAS took {0}.", lambda: (
        *all_add()[:2], "", *logged(r"if the last one added ([\d.]+);")), lambda: 3 * (64 + 64) / 32 == 2 * (32 + 64) / 16),
    Claim(17, "(which of course gives a wrong $C$), 64 × 64 in 32 slices would take {3} µs.", all_add),
    Claim(15, "In the loop a warp executes {} for 32 `k` in place of {},", lambda: (for_64_products("mma_sync"), for_64_products("wmma"))),
    Claim(15, "in it, warps hardly wait for shared memory any more. Two things make them wait most, for about a third of their cycles each: the tensor core, "
          "which is still busy with the `HMMA` before (*math pipe throttle*), and the few cycles that every instruction takes (*wait*)",
          holds=lambda: set(list(states_of("mma_sync"))[:2]) == {"wait", "math pipe throttle"} and states_of("mma_sync")["short scoreboard"] < 0.03
          and all(0.29 < states_of("mma_sync")[state] < 0.37 for state in ("wait", "math pipe throttle"))),
    Claim(15, "The block has nearly all registers of a multiprocessor",
          holds=lambda: registers_for(256, 1) >= reference("mma_sync").registers > 0.95 * registers_for(256, 1)),
    Claim(15, "At 4096, by the profile above and that of lesson 14, that makes a quarter less in all.",
          holds=lambda: 0.74 < executed("mma_sync", "all instructions") / executed("wmma", "all instructions") < 0.76),
    Claim(17, "a block takes {} cycles, and of these the tensor cores need 4 × {} for its four tiles. The other {} % are", lambda: (
        *logged(r"4096 (274 760) \(278 000\)"), *logged(r"of which the tensor cores need (65 536);"), f"{100 * (1 - 4 * 65_536 / 274_760):.1f}")),
    Claim(17, "longer: {} of cuBLAS's speed at 4096 in place of {}", lambda: logged(r"behind the first four `wgmma` of the next tile: 4096 ([\d.]+) for ([\d.]+),")),
    Claim(17, "16 or 18 each, which alone would leave room for 32 clusters of four; the driver says that only {} fit at a time", lambda: logged(
        r"the driver says 132, 66 and (\d+) for clusters of 1, 2, 4"), lambda: {(few, many) for few in range(1, 9) for many in range(1, 8)
          if 16 * few + 18 * many == H200.sms} == {(6, 2)} and 6 * (16 // 4) + 2 * (18 // 4) == 32),
    Claim(17, "And 512 tiles fill 3.9 of 4 rounds: 3 %.", holds=lambda: round(100 * (1 - 512 / 528)) == 3),
    Claim(17, "the tensor cores are busy in {} % of all cycles", lambda: logged(r"17 under Nsight Compute at 4096, turned: tensor pipe busy in (\d+)")),
    Claim(17, "for small products: 64 × 64, and 64 × 128 at 1024", holds=lambda: fastest("small", "small, 512") == {"64 × 64, alone"}
          and fastest("medium") == {"64 × 128, alone"}),
    Claim(17, "the thin product has {} tiles, and two slices of each make {} blocks. The deep one has {} tiles of 64 × 64, and thirty-two slices make {}.",
          lambda: (*tiles_and_blocks("thin"), *tiles_and_blocks("deep")),
          lambda: fastest("thin") == {"16 × 64, alone, 2 slices"} and fastest("deep") == {"64 × 64, alone, 32 slices"}),
    Claim(17, "three consumers, and {} sums in each of their threads", lambda: (240 * 64 // 128,)),
    Claim(17, "The two that are furthest behind, by three or four hundredths, are 1024 and 1536. Their tiles do come out even, {} blocks for {} multiprocessors, "
          "but each has only {} steps of 64 $k$, and {} at 1536.", lambda: (1024 // 64 * (1024 // 128), H200.sms, 1024 // 64, 1536 // 64),
          lambda: not behind_cublas() and set(furthest_behind(2)) == {"medium", "medium, 1536"} and 1536 // 96 * (1536 // 192) == 128
          and fastest("medium, 1536") == {"96 × 192"} and all(0.96 < ratio < 0.97 for ratio in furthest_behind(2).values())),
    Claim(17, "as fast as cuBLAS within two hundredths** at 4096, in single launches as in bursts, and two or three hundredths faster at 8192",
          holds=lambda: 0.98 < beside_cublas("warp_specialized", 4096) < 1.01 and 1.015 < beside_cublas("warp_specialized", 8192) < 1.025),
    Claim(19, "they come by bulk copy with the tiles | {} ({}) | {} ({}) |",
          lambda: logged(r"uniform LDG of the consumers: (\d+) \(([\d.]+)\) \| (\d+) \(([\d.]+)\)")),
    Claim(19, "the factor of $B$ by the producer, and zeros below the last row of $A$ written once | {} ({}) | {} ({}) |", lambda: tuple(
        figure for size in (4096, 8192) for figure in (f"{recorded('fp8', size):.0f}", f"{beside_cublas('fp8', size):.2f}"))),
    Claim(19, "tiles of 192 × 128 in place of 256 × 128, three consumers of 64 rows | {} ({}) | {} ({}) |", three_consumers),
    Claim(19, "At 8192 that is {} % over cuBLAS", lambda: more("1", three_consumers()[3])),
    Claim(19, "{} tiles on {} multiprocessors are {} waves, and the last is a third full",
          lambda: (-(-4096 // 192) * 32, H200.sms, f"{-(-4096 // 192) * 32 / H200.sms:.1f}"), lambda: 0.3 < 704 / H200.sms % 1 < 0.36),
    Claim(19, "To make it once and add to it gains {} %", lambda: logged(r"Descriptors made once and added to: \+ (\d+) %")),
    Claim(19, "**Clusters lose here**, {} to {} %", clusters_lose),
    Claim(19, "with clusters of two the third line has {} and {}", lambda: logged(r"consumers: [^|]+\| [^|]+, with clusters (\d+) \| (\d+)")),
    Claim(19, "At 1024 the kernel has {} of cuBLAS: there are {} tiles for {} multiprocessors",
          lambda: (f"{beside_cublas('fp8', 1024):.2f}", 1024 // 256 * (1024 // 128), H200.sms)),
    Claim(19, "From 2048 on the kernel above is faster than cuBLAS", holds=lambda: all(beside_cublas("fp8", size) > 1 for size in (2048, 4096, 8192))),
    Claim(19, "Tiles of 128 × 128 with 6 stages have {} there", lambda: logged(r"128 x 128 with 6 stages has ([\d.]+) at 1024")),
    Claim(19, "The bytes are one fiftieth of the tiles'", holds=lambda: 45 < (256 + 128) * 128 / ((256 + 1) * 4) < 55),
    Claim(19, "Nearly everything else lies where the format has at most three of its four digits left: half of the numbers have one or two, a tenth none.",
          holds=lambda: all(low < part < high for part, (low, high) in zip(digits_left(), ((0.09, 0.11), (0.45, 0.55), (0.25, 0.35), (0, 0.06)), strict=True))),
    Claim(19, "One whose exponent is more than 7 below the highest may lose its last bits",
          holds=lambda: kept_of_a_product(-7) == 1.875**2 * 2**-7 and kept_of_a_product(-8) < 1.875**2 * 2**-8),
    Claim(19, "the two gave the same $C$, bit for bit", holds=lambda: set(differences_from_cublas("fp8")) == {0}),
)  # fmt: skip


def prose(lesson: int) -> Iterator[tuple[str, str]]:
    """(id, text in one line) of each cell of text."""
    for cell in json.loads(get(lesson).notebook_path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            yield cell["id"], " ".join(unmarked("".join(cell["source"])).replace("> ", "").split())


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_what_the_text_says_is_so(claim):
    said = claim.text.format(*claim.figures())
    assert any(said in text for _, text in prose(claim.lesson)), f"lesson {claim.lesson:02} does not say: {said}"
    assert claim.holds(), said


FIGURE = re.compile(r"\d+\.\d+|\b\d+(?= ?(?:TFLOPS|GFLOPS|GB/s|registers|ms|per cent)\b)")


@pytest.mark.parametrize("step", LESSONS, ids=lambda step: step.name)
def test_every_figure_is_claimed(step):
    claimed = [claim.text.format(*claim.figures()) for claim in CLAIMS if claim.lesson == step.number]
    for name, text in prose(step.number):
        for said in claimed:
            text = text.replace(said, " ")
        left = FIGURE.findall(re.sub(r"`[^`]*`", " ", text))
        assert not left, f"cell {name}: {left} are figures that no claim works out: let a cell compute them, or add a claim"
