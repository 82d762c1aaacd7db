"""Time a GEMM kernel on the GPU, interleaved with cuBLAS: the one measurement behind `climb()` and `course record`.

A kernel is checked on the very problem it is timed on: C is NaN before, some rows are compared with the specification
in float64, all of C with cuBLAS, and after the timing one more launch must give the same bits. Operands are random: zeros run faster
than real data would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from helpers.element_types import ElementType
from helpers.errors import LaunchError, RunError

from . import gemm, gpu
from .gemm import Problem
from .gpu import Timing
from .kernel import Kernel, place
from .launch_arguments import launch_arguments
from .shared_gpu import service_address

CUBLAS = "cuBLAS"
_CHECKED_ROWS = 16


@dataclass(frozen=True)
class GemmTiming:
    """A kernel's time and cuBLAS's, taken in turn in one run. `cublas` is None where cuBLAS is not installed.

    difference: norm of (the kernel's C - cuBLAS's C) over the norm of cuBLAS's; None without cuBLAS.
    """

    problem: Problem
    kernel: Timing
    cublas: Timing | None
    why_no_cublas: str = ""
    difference: float | None = None

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
    """Check `kernel` on `problem` with random data on the GPU, then time it and cuBLAS in turn.

    samples, seconds: at most so many rounds and so long. Raises LaunchError without a GPU or for an empty problem,
    RunError if the result is wrong or the kernel goes wrong.
    """
    return time_gemms({kernel.name: kernel}, problem, samples, seconds)[kernel.name]


def time_gemms(kernels: dict[str, Kernel], problem: Problem, samples: int = 20, seconds: float = 3.0) -> dict[str, GemmTiming]:
    """Check and time several kernels and cuBLAS on one problem, all in turn in one run: name -> GemmTiming.

    A batch is one launch of a kernel that takes batches, and as many launches as products of any other; cuBLAS has a
    function for it.
    """
    if measured_elsewhere():
        return {name: _elsewhere(kernel, problem, samples, seconds) for name, kernel in kernels.items()}
    arch = gpu.arch()  # raises LaunchError if there is none
    if not problem.m * problem.n:
        raise LaunchError(f"C is empty ({problem.m} × {problem.n}): there is nothing to time.")
    layouts = {replace(gemm.fitted(kernel, problem), fused=problem.fused) for kernel in kernels.values()}
    if len(layouts) > 1:
        raise LaunchError("Kernels that are timed together take the same matrices: by rows or by columns, with the same factors or none.")
    problem = layouts.pop()
    host = operands(problem)
    a, b = gpu.upload(host[0]), gpu.upload(host[1])
    work, differences, results, reference = {}, {}, {}, None
    c = gpu.upload(host[2])
    rival, why = opponent(problem, a, b, c)
    if rival is not None:
        work[CUBLAS] = rival
        gpu.run_once(work[CUBLAS], CUBLAS)
        reference = gpu.download(c, host[2])
        results[CUBLAS] = c, reference
    for name, kernel in kernels.items():
        native, c = kernel.native(arch), gpu.upload(host[2])
        shape = gemm.geometry(native)
        own = gemm.fitted(native, problem)
        behind = [gpu.upload(array) for array in own.behind()]
        work[name] = launches(native, shape, own, (a, b, c), behind)
        gpu.run_once(work[name], name)
        got = gpu.download(c, host[2])
        differences[name] = checked(name, own, host, got, reference, np.random.default_rng())
        results[name] = c, got
    times = gpu.interleave(work, samples=samples, seconds=seconds)
    if not problem.beta:  # otherwise every launch adds to the one before
        numbers = host[2].copy()
        numbers[:, : problem.n] = 1  # in place of a result: a launch that leaves out what is already there leaves these
        for name, (c, first) in results.items():
            while_timed = gpu.download(c, first)
            c[...] = gpu.upload(numbers)
            gpu.run_once(work[name], name)
            if any(got.tobytes() != first.tobytes() for got in (while_timed, gpu.download(c, first))):
                raise RunError(other_bits(name, problem))
    return {name: GemmTiming(problem, times[name], times.get(CUBLAS), why, differences[name]) for name in kernels}


def opponent(problem: Problem, a, b, c) -> tuple[Callable[[], None] | None, str]:
    """(what computes the problem with cuBLAS once, or None; why there is none). a, b, c: CuPy arrays whose first byte is the matrix."""
    m, n, k, types = problem.m, problem.n, problem.k, (problem.dtype, problem.out_dtype)
    if why := gpu.cublas_why_not() or gpu.cublas_refuses(*types, problem.scale_block, problem.transb):
        return None, why
    if problem.scale_block is not None and problem.transa:
        return None, "cuBLAS multiplies matrices with factors only with A by rows and B by columns."
    factors, pitches = (problem.alpha, problem.beta), (problem.lda, problem.ldb, problem.ldc)
    try:
        if problem.scale_block is None:
            return gpu.cublas(
                m, n, k, problem.alpha, a, problem.lda, b, problem.ldb, problem.beta, c, problem.ldc, *types, problem.batch,
                problem.transa, problem.transb,
            ), ""  # fmt: skip
        return gpu.cublas_with_factors((m, n, k), factors, (a, b, c), pitches, problem.scale_factors(), types), ""
    except LaunchError as error:
        if problem.scale_block is None and not problem.dtype.startswith("float8"):
            raise
        return None, error.message  # cuBLASLt wants extents of certain multiples


def measured_elsewhere() -> bool:
    """Whether times come from a GPU that a class shares: there is none here, and a service is named."""
    return not gpu.available() and service_address.configured()


def can_measure(kernel: Kernel) -> bool:
    """Whether a kernel can be timed: on a GPU here that can run it, or on one that a class shares and that takes it."""
    if not measured_elsewhere():
        return place(None, kernel) == "gpu"
    from .shared_gpu import sending  # here: it needs what this module is for

    return not sending.refuses(kernel)


def _elsewhere(kernel: Kernel, problem: Problem, samples: int, seconds: float) -> GemmTiming:
    """One kernel and cuBLAS on the shared GPU, each kernel for itself: others may come between two of them."""
    from .shared_gpu import sending  # here: it needs what this module is for

    if not problem.m * problem.n:
        raise LaunchError(f"C is empty ({problem.m} × {problem.n}): there is nothing to time.")
    native = kernel.native(sending.arch())
    mine, cublas, why, difference = sending.product(native, gemm.fitted(native, problem), samples, seconds)
    return GemmTiming(problem, mine, cublas, why, difference)


def other_bits(name: str, problem: Problem) -> str:
    """The sentence for a kernel whose launches on the same data differ."""
    return (
        f"{name} gave other bits at {problem} when it was timed, or launched once more, than when it was checked, so its "
        "time means nothing: two launches on the same data must agree. Suspect a race; check() looks for it."
    )


def launches(native: Kernel, shape: gemm.Geometry, problem: Problem, device_arrays, behind):
    """A function that computes the problem once: one launch, or one for each product if the kernel takes no batch.

    Copies of matrices that its tensor maps cannot take are made each time (see `launch_arguments`).
    """
    together = problem.batch if shape.depth is not None else 1
    own = replace(problem, batch=together)
    grid = shape.grid(problem.m, problem.n, together, gpu.multiprocessors())
    steps = [array.nbytes // problem.batch for array in device_arrays]  # bytes from one product's matrix to the next's
    launchers = []
    for product in range(problem.batch // together):
        a, b, c = (array[product * step :] for array, step in zip(device_arrays, steps, strict=True))
        given = launch_arguments(native, own, a, b, c, behind, multiprocessors=gpu.multiprocessors())
        arguments = [_scalar(*pair) for pair in zip(native.compiled.parameters, given.arguments, strict=True)]
        launchers.append(gpu.launcher(native.compiled, grid, shape.block, arguments, shape.shared, before=given.before))

    def once() -> None:
        for launch in launchers:
            launch()

    return once if len(launchers) > 1 else launchers[0]


def _scalar(parameter, value):
    """`value` as the parameter wants it: a 32-bit integer or float; device arrays and tensor maps pass."""
    if parameter.pointer_to is not None or parameter.size > 4:
        return value
    return np.float32(value) if parameter.ptx_type.startswith("f") else np.int32(value)


def operands(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B, C of the problem: random and normal, with mean 0 and deviation 1, as what networks multiply; C NaN where beta = 0. (What is
    multiplied decides how much power a tensor core takes, and with it the clock.)"""
    random = np.random.default_rng(problem.seed)

    def make(rows: int, columns: int, kind: ElementType) -> np.ndarray:
        return kind.array(random.standard_normal((rows, columns), dtype=np.float32))

    rows = problem.batch * problem.m
    a, b = (make(problem.batch * of.rows, of.pitch, problem.inputs) for of in problem.stored[:2])
    if problem.scale_block is not None:
        b[:, problem.k :] = 0
    if problem.beta:
        return a, b, make(rows, problem.ldc, problem.result)
    return a, b, np.full((rows, problem.ldc), np.nan, problem.result.storage)


def checked(name: str, problem: Problem, before, got: np.ndarray, reference: np.ndarray | None, random=None) -> float | None:
    """The relative difference from cuBLAS's C (`reference`), if any. random: draws the rows that are looked at, besides the first and
    the last; without it they lie evenly. Raises RunError if the result is wrong."""
    a, b, c = before
    rows = np.linspace(0, problem.m - 1, min(problem.m, _CHECKED_ROWS)).astype(int)
    if random is not None:
        rows[1:-1] = random.integers(problem.m, size=len(rows[1:-1]))
    rows = np.unique(rows)
    products = np.unique(np.linspace(0, problem.batch - 1, min(problem.batch, _CHECKED_ROWS)).astype(int))
    deep = (products[:, None] * problem.k + np.arange(problem.k)).ravel()  # their rows of B
    looked = replace(problem, m=len(rows), batch=len(products))
    rows = (products[:, None] * problem.m + rows).ravel()  # and of A and C
    left, right = problem.factors(a, b)
    value, bound = looked.expected_of(left[rows], right[deep], c[rows])
    wrong = ~(np.abs(got[rows, : problem.n].astype(np.float64) - value) <= bound)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise RunError(
            f"{name} computes wrong results at {problem} on the GPU, so it is not timed: C[{rows[row]}, {column}] is "
            f"{float(got[rows[row], column]):.7g}, expected {value[row, column]:.7g}. Use check() to see more."
        )
    if reference is None:
        return None
    if problem.fused:  # cuBLAS's own C has no epilogue
        reference = np.maximum(reference[:, : problem.n] + problem.bias(), 0)
    mine, theirs = (array[:, : problem.n].astype(np.float32) for array in (got, reference))
    difference = float(np.linalg.norm(mine - theirs)) / max(float(np.linalg.norm(theirs)), 1e-30)
    if not difference <= problem.norm_tolerance():
        raise RunError(
            f"{name} computes wrong results at {problem} on the GPU, so it is not timed: it differs from cuBLAS by "
            f"{difference:.2g} of the result's norm. Use check() to see where."
        )
    return difference
