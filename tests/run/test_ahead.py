"""A check with other processes beside it: the same report, and nothing of them is left."""

import os
import signal
import threading
import time

import psutil
import pytest

from helpers.run import ahead, gemm
from helpers.run.kernel import compile

# Native code has no %smid, but %laneid.
SOURCE = """
extern "C" __device__ constexpr int block_shape[] = {16, 16, 1};
extern "C" __device__ constexpr int tile_shape[] = {16, 16};
extern "C" __global__ void rows(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
                                float* C, int ldc) {
    const int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    unsigned multiprocessor;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    if (x >= N || y >= M || multiprocessor > 4096) return;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += A[(size_t)y * lda + k] * B[(size_t)k * ldb + x];
    const size_t at = (size_t)y * ldc + x;
    C[at] = beta == 0 ? alpha * sum : alpha * sum + beta * C[at];
}
"""


@pytest.fixture
def two(monkeypatch):
    """Two processes at a check; the places of shapes that the other one was believed for."""
    monkeypatch.setenv(ahead.PROCESSES, "2")
    monkeypatch.setattr(ahead.processors, "available", lambda: 2)
    believed, take = [], ahead.Ahead.take

    def noted(self, place, waiting):
        tried = take(self, place, waiting)
        believed.extend([place] * (tried is not None))
        return tried

    monkeypatch.setattr(ahead.Ahead, "take", noted)
    yield believed
    ahead.stop()


def begin(kernel) -> None:
    """Start the other process, if the kernel has shapes for it: on a fast machine it is not ready before the first check is over."""
    gemm.check(kernel, on="cpu", seed=3)
    late = time.monotonic() + 60
    while ahead._POOL.at_work:
        assert time.monotonic() < late
        time.sleep(0.01)


def both(monkeypatch, source: str, believed: list[int], **options):
    """The report of one process alone and that of two; the other one has started before, and does its part."""
    kernel = compile(source)
    begin(kernel)
    believed.clear()
    with_other = gemm.check(kernel, on="cpu", seed=3, **options)
    monkeypatch.setenv(ahead.PROCESSES, "1")
    return gemm.check(kernel, on="cpu", seed=3, **options), with_other


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize(
    "change",
    [
        ("", ""),
        ("k < K", "k < (K > 400 ? K - 1 : K)"),  # wrong where K is large
        ("if (x >= N || y >= M", "if (x > N || y >= M"),  # beyond the end of rows, and of C
        ("float sum = 0;", "float sum = 0; __shared__ float s[256]; s[threadIdx.x] = threadIdx.y; __syncthreads();"),  # a race
        ("beta == 0 ? alpha * sum", "beta == 1 ? C[at]"),
    ],
    ids=["right", "a long K", "out of bounds", "a race", "beta"],
)
def test_two_processes_say_what_one_says(monkeypatch, two, change, engine):
    told: list[tuple[int, int]] = []
    source = SOURCE.replace(*change)
    if engine == "native":
        source = source.replace("%%smid", "%%laneid")
        monkeypatch.setattr(gemm, "_WORTH_SHARING", 1)
    alone, together = both(monkeypatch, source, two, progress=lambda *done: told.append(done))
    assert (together.cases, together.findings, str(together)) == (alone.cases, alone.findings, str(alone))
    shared = change[0] == "" or (change[0] == "k < K" and engine == "numpy")  # native code has tried a long K before
    assert bool(two) == shared and bool(together) == (not change[0])
    assert all(0 <= done <= total for done, total in told)


def test_a_kernel_that_prints_or_leaves_something_behind_runs_here_alone(two):
    for more in ('if (x + y == 0) printf("%d\\n", K);', "if (x + y == 0) launches += 1;"):
        source = "__device__ int launches;" + SOURCE.replace("float sum = 0;", f"float sum = 0; {more}")
        assert gemm.check(compile(source), on="cpu", seed=3)
    assert not two


def test_a_small_kernel_in_native_code_is_done_before_others_have_begun(two, monkeypatch):
    monkeypatch.setattr(ahead.Ahead, "begin", lambda *_: pytest.fail("others began"))
    assert gemm.check(compile(SOURCE.replace("%%smid", "%%laneid")), on="cpu", seed=3)


def other() -> psutil.Process:
    (found,) = [each for each in psutil.Process().children() if ahead.MAKER in " ".join(each.cmdline())]
    return found


def test_who_is_late_is_not_joined_by_more(two, monkeypatch):
    """Checks that are over before the other process has begun: there is one, and it helps as soon as it can."""
    kernel, wait = compile(SOURCE), threading.Event()
    ask = ahead.ChildProcess.ask
    monkeypatch.setattr(ahead.ChildProcess, "ask", lambda child, request: wait.wait(60) and ask(child, request))
    for _ in range(3):
        assert gemm.check(kernel, on="cpu", seed=3)
    assert ahead._POOL.at_work == 1 and other().is_running() and not two
    wait.set()
    begin(kernel)
    assert gemm.check(kernel, on="cpu", seed=3) and two and other().is_running()


@pytest.mark.slow
def test_a_process_that_dies_leaves_its_shapes_to_this_one(two):
    kernel = compile(SOURCE)
    begin(kernel)
    waiting = other()
    killed = threading.Timer(0.4, waiting.kill)
    killed.start()
    assert gemm.check(kernel, on="cpu", seed=3)
    killed.join()
    assert psutil.wait_procs([waiting], timeout=10)[1] == []
    assert gemm.check(kernel, on="cpu", seed=3)


def test_an_interrupt_ends_the_other_one_as_well(two):
    """It may be at a shape that takes long, which nobody wants any more."""
    kernel = compile(SOURCE)
    begin(kernel)
    begun = other()
    slow = compile(SOURCE.replace("k < K; ++k", "k < K * (M * N > 30 ? 300 : 1); ++k").replace("sum += A", "if (k < K) sum += A"))
    timer = threading.Timer(2.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        gemm.check(slow, on="cpu", seed=3, seconds=60, patience=60)
    assert time.monotonic() - start < 10
    assert psutil.wait_procs([begun], timeout=10)[1] == []
    assert gemm.check(kernel, on="cpu", seed=3)


@pytest.mark.parametrize(
    ("said", "cores", "processes"), [("", 8, ahead.MOST), ("", 1, 1), ("3", 8, 3), ("1", 8, 1), ("0", 8, 1), ("many", 8, ahead.MOST)]
)
def test_how_many_there_are(monkeypatch, said, cores, processes):
    monkeypatch.setenv(ahead.PROCESSES, said)
    monkeypatch.setattr(ahead.processors, "available", lambda: cores)
    assert ahead.processes() == processes
