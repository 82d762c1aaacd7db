"""Time a GEMM kernel on the GPU, interleaved with cuBLAS: the one measurement behind `climb()` and `course record`."""

from __future__ import annotations

from dataclasses import dataclass

from . import gemm, gpu
from .gemm import Problem
from .gpu import Timing
from .kernel import Kernel


@dataclass(frozen=True)
class GemmTiming:
    """A kernel's time and cuBLAS's, taken in turn in one run. `cublas` is None where cuBLAS is not installed."""

    problem: Problem
    kernel: Timing
    cublas: Timing | None
    why_no_cublas: str = ""

    @property
    def tflops(self) -> float:
        """2·m·n·k over the time, in 10^12 operations per second."""
        return self.problem.flops / self.kernel.milliseconds / 1e9

    @property
    def cublas_tflops(self) -> float | None:
        return self.problem.flops / self.cublas.milliseconds / 1e9 if self.cublas else None

    @property
    def cublas_ratio(self) -> float | None:
        """How fast the kernel is compared with cuBLAS: 1.05 is 5 % faster."""
        return self.cublas.milliseconds / self.kernel.milliseconds if self.cublas else None


def time_gemm(kernel: Kernel, problem: Problem, samples: int = 20, seconds: float = 3.0) -> GemmTiming:
    """Time `kernel` on `problem` with random data (zeros run faster than real data would).

    samples, seconds: at most so many rounds and so long. Raises LaunchError without a GPU, or for an empty problem.
    """
    return time_gemms({kernel.name: kernel}, problem, samples, seconds)[kernel.name]


def time_gemms(
    kernels: dict[str, Kernel], problem: Problem, samples: int = 20, seconds: float = 3.0
) -> dict[str, GemmTiming]:
    """Time several kernels and cuBLAS on one problem, all in turn in one run: name -> GemmTiming."""
    import cupy  # here: there is a GPU if this is called

    arch = gpu.arch()  # raises LaunchError if there is none
    a, b, c = (_device_matrix(cupy, rows, columns, problem.dtype, seed) for seed, (rows, columns) in enumerate(
        [(problem.m, problem.lda), (problem.k, problem.ldb), (problem.m, problem.ldc)]))
    work = {}
    for name, kernel in kernels.items():
        native = kernel.for_arch(arch)
        shape = gemm.geometry(native)
        arguments = gemm.arguments(problem, a, b, c)
        work[name] = gpu.launcher(
            native.compiled, shape.grid(problem.m, problem.n), shape.block, native.checked(arguments), shape.shared)
    why = gpu.cublas_why_not()
    baseline = "cuBLAS"
    if not why:
        work[baseline] = gpu.cublas(
            problem.m, problem.n, problem.k, problem.alpha, a, problem.lda, b, problem.ldb, problem.beta, c, problem.ldc,
            problem.dtype)
    times = gpu.interleave(work, samples=samples, seconds=seconds)
    return {name: GemmTiming(problem, times[name], times.get(baseline), why) for name in kernels}


def _device_matrix(cupy, rows: int, columns: int, dtype: str, seed: int):
    """Random numbers in [-1, 1) on the device, as raw 16-bit words for bfloat16, which CuPy does not know."""
    values = cupy.random.RandomState(seed).uniform(-1, 1, (max(rows, 1), columns), dtype=cupy.float32)
    if dtype == "bfloat16":
        return (values.view(cupy.uint32) >> 16).astype(cupy.uint16)
    return values.astype(dtype)
