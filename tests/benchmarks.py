"""How fast the SIMT machine is. Not a test: times depend on the machine and on who else uses it.

    python -m tests.benchmarks               both engines, compile times, counters of a 4096³ launch by sampling
    python -m tests.benchmarks --numba       Numba's CUDA simulator on the same naive kernel (needs numba and numpy only)

Every figure is the best of several runs. FMA/s counts the kernel's own multiply-adds, M·N·K of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def best(function, repeat: int) -> tuple[float, float]:
    """(seconds of the first call, of the best)."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return times[0], min(times)


def launch(entry: str, grid, block, n: int, repeat: int, engine: str | None = None, **collect) -> None:
    from helpers.sim import Collect, simulate
    from helpers.toolchain.compile import compile_source

    compiled = compile_source((HERE / "sim" / "calibration.cu").read_text(), entry)
    a, b = np.random.default_rng(0).standard_normal((2, n, n)).astype(np.float32)
    c = np.zeros((n, n), np.float32)
    outcome = None

    def once():
        nonlocal outcome
        outcome = simulate(compiled, grid, block, [a, b, c, n, n, n], collect=Collect(**collect), engine=engine)

    first, fastest = best(once, repeat)
    what = "sampled counters" if outcome.sampled else "+".join(k for k in ("counters", "findings") if collect.get(k, True)) or "result only"
    rate = f"{n**3 / fastest / 1e9:8.3f}e9 FMA/s" if not outcome.sampled else ""
    print(f"{entry:8} {n:5}  {outcome.engine:7} {what:20} first {first:7.3f} s  best {fastest:8.4f} s {rate}", flush=True)


def machine() -> None:
    quiet = {"counters": False, "findings": False}
    for engine, repeat in (("native", 9), ("numpy", 3)):
        launch("naive", (8, 8, 1), (32, 32, 1), 256, repeat, engine, **quiet)
        launch("naive", (8, 8, 1), (32, 32, 1), 256, repeat, engine, findings=False)
        launch("naive", (8, 8, 1), (32, 32, 1), 256, repeat, engine)
        launch("tile2d", (4, 4, 1), (256, 1, 1), 512, repeat, engine, **quiet)
        launch("tile2d", (4, 4, 1), (256, 1, 1), 512, repeat, engine)
    launch("tile2d", (8, 8, 1), (256, 1, 1), 1024, 5, "native", **quiet)
    launch("tile2d", (8, 8, 1), (256, 1, 1), 1024, 5, "native")
    launch("tile2d", (32, 32, 1), (256, 1, 1), 4096, 3, None, findings=False, blocks=[0])
    launch("naive", (128, 128, 1), (32, 32, 1), 4096, 3, None, findings=False, blocks=[0])


def compile_times() -> None:
    """Cold: nothing kept. Disk: kept by an earlier process. Memory: the second launch of a process."""
    code = (
        "import sys, time, numpy as np; from helpers.toolchain.compile import compile_source; from helpers.sim import simulate, Collect;"
        "c = compile_source(open(sys.argv[1]).read()); b = c.constants['block_shape']; m, n = c.constants['tile_shape'];"
        "a = np.ones((m, 32), 'f4'); x = np.ones((32, n), 'f4'); y = np.zeros((m, n), 'f4'); t = [time.perf_counter()];"
        "d = c.constants.get('dynamic_shared', (0,))[0]; more = [np.ones(n, 'f4')] * (len(c.parameters) - 11);"  # the bias of 12
        "f = lambda: (simulate(c, (1, 1, 1), b, [m, n, 32, 1.0, a, 32, x, n, 0.0, y, n, *more], d, collect=Collect(counters=False), "
        "engine='native'), t.append(time.perf_counter()));"
        "f(); f(); print(f'{t[1] - t[0]:.3f} {t[2] - t[1]:.4f}')"
    )
    for path in sorted((HERE.parent / "kernels").glob("*.cu")):
        with tempfile.TemporaryDirectory() as home:
            environment = {**os.environ, "GEMM_LADDER_HOME": home}
            runs = [
                subprocess.run(
                    [sys.executable, "-c", code, str(path)],
                    env=environment,
                    cwd=HERE.parent,
                    capture_output=True,
                    text=True,
                )
                for _ in range(2)
            ]
        if any(run.returncode for run in runs):
            print(f"{path.stem:20} runs in the NumPy machine")
            continue
        (cold, memory), (disk, _) = (run.stdout.split() for run in runs)
        print(f"{path.stem:20} first launch: cold {cold} s, code on disk {disk} s, in memory {memory} s", flush=True)


def numba() -> None:
    global cuda  # the simulator looks for this name among the kernel's globals
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    from numba import cuda

    @cuda.jit
    def naive(a, b, c):
        row, column = cuda.grid(2)
        if row < c.shape[0] and column < c.shape[1]:
            total = 0.0
            for k in range(a.shape[1]):
                total += a[row, k] * b[k, column]
            c[row, column] = total

    n = 16
    a, b = np.random.default_rng(0).standard_normal((2, n, n)).astype(np.float32)
    c = np.zeros((n, n), np.float32)
    _, fastest = best(lambda: naive[(1, 1), (16, 16)](a, b, c), 3)
    assert np.allclose(c, a @ b, atol=1e-4)
    print(f"Numba's CUDA simulator: naive {n}: {fastest:.3f} s, {n**3 / fastest:.3g} FMA/s")
    n = 32
    a, b = np.random.default_rng(0).standard_normal((2, n, n)).astype(np.float32)
    c = np.zeros((n, n), np.float32)
    _, fastest = best(lambda: naive[(2, 2), (16, 16)](a, b, c), 2)
    print(f"Numba's CUDA simulator: naive {n}: {fastest:.3f} s, {n**3 / fastest:.3g} FMA/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numba", action="store_true", help="time Numba's CUDA simulator instead")
    if parser.parse_args().numba:
        numba()
    else:
        machine()
        compile_times()
