"""A kernel is only timed when its result is right: the check, without a GPU."""

import numpy as np
import pytest

import helpers
from helpers.errors import RunError
from helpers.run import gemm, gpu, timing
from helpers.run.gemm import Problem
from helpers.run.shared_gpu import sending
from helpers.sim import simulate
from tests.run.tma_kernels import source


def result(problem, operands, mistake=None):
    c = operands[2].astype(np.float64)
    left, right = (matrix.astype(np.float64) for matrix in problem.meant(*operands[:2]))
    value = (problem.alpha * left @ right).reshape(-1, problem.n)
    if problem.beta:
        value += problem.beta * c[:, : problem.n]
    got = operands[2].copy()
    got[:, : problem.n] = value
    if mistake:
        got[mistake] = 7.0
    return got


@pytest.mark.parametrize("problem", [
    Problem(40, 30, 20), Problem(33, 65, 17, alpha=0.5, beta=2.0, pad_a=3, pad_b=1, pad_c=4),
    Problem(40, 30, 20, transb=True), Problem(33, 65, 17, beta=2.0, pad_a=3, pad_b=1, transa=True, transb=True, batch=2),
])  # fmt: skip
def test_a_right_result_passes(problem):
    operands = timing.operands(problem)
    right = result(problem, operands)
    assert timing.checked("mine", problem, operands, right, right) == 0.0
    assert timing.checked("mine", problem, operands, right, None) is None


@pytest.mark.parametrize("mistake", [(0, 0), (39, 29)])
def test_a_mistake_in_a_checked_row_is_named(mistake):
    problem = Problem(40, 30, 20)
    operands = timing.operands(problem)
    wrong = result(problem, operands, mistake)
    with pytest.raises(RunError, match=rf"C\[{mistake[0]}, {mistake[1]}\] is 7, expected"):
        timing.checked("mine", problem, operands, wrong, None)


def test_an_element_that_is_not_written_is_noticed_by_cublas_in_any_row():
    problem = Problem(100, 30, 20)
    operands = timing.operands(problem)
    right = result(problem, operands)
    wrong = right.copy()
    wrong[3, 4] = np.nan
    assert timing.checked("mine", problem, operands, wrong, None) is None, "row 3 is none of the rows looked at"
    with pytest.raises(RunError, match="differs from cuBLAS"):
        timing.checked("mine", problem, operands, wrong, right)


def test_operands_are_fresh_and_c_is_poisoned():
    a, _b, c = timing.operands(Problem(4, 5, 6, seed=1))
    assert np.isnan(c).all() and not np.isnan(a).any() and (a != timing.operands(Problem(4, 5, 6, seed=2))[0]).all()
    assert timing.operands(Problem(4, 5, 6, dtype="bfloat16"))[0].dtype.name == "bfloat16"
    assert not np.isnan(timing.operands(Problem(4, 5, 6, beta=1.0))[2]).any()


def test_a_mistake_in_any_looked_at_product_of_a_batch_is_named():
    problem = Problem(6, 5, 4, batch=3)
    operands = timing.operands(problem)
    a, b, _ = (array.reshape(3, -1, array.shape[1]).astype(np.float64) for array in operands)
    right = (a @ b).reshape(18, 5).astype(np.float32)
    assert timing.checked("mine", problem, operands, right, right) == 0.0
    wrong = right.copy()
    wrong[13, 2] = 7
    with pytest.raises(RunError, match=r"C\[13, 2\] is 7, expected"):
        timing.checked("mine", problem, operands, wrong, None)


@pytest.mark.parametrize(("slug", "taken"), [("naive", True), ("tma_wgmma", True), ("fp32_on_tensor_cores", False), ("fp8", True)])
def test_what_a_shared_gpu_does_not_take_is_predicted_and_stops_no_lesson(slug, taken, monkeypatch):
    monkeypatch.delenv("GEMM_LADDER_NO_GPU", raising=False)
    monkeypatch.setattr(gpu, "available", lambda: False)
    monkeypatch.setenv("GEMM_LADDER_GPU", "unix:/nobody/listens.sock")
    monkeypatch.setenv("GEMM_LADDER_GPU_TOKEN", "ada:1")
    kernel = helpers.reference(slug)
    assert timing.measured_elsewhere() and timing.can_measure(kernel) == taken
    if not taken:
        profile = kernel.profile(256)
        assert profile.timed is None and profile.milliseconds > 0
        assert "The SIMT machine does" in sending.refuses(kernel)


@pytest.mark.parametrize("k", [32, 21], ids=["aligned", "copied"])
def test_what_is_timed_copies_each_product_of_a_batch_anew(k, monkeypatch):
    """The launches of a timing, done by the machine; the copies, by NumPy."""

    def launcher(compiled, grid, block, args, shared, before):
        def once():
            for copy in before:
                copy.make()
            simulate(compiled, grid, block, args, shared)

        seen.append((grid, len(before)))
        return once

    seen = []
    monkeypatch.setattr(gpu, "launcher", launcher)
    monkeypatch.setattr(gpu, "multiprocessors", lambda: 3)
    problem = Problem(50, 64, k, dtype="bfloat16", out_dtype="float32", batch=2)
    kernel, host = helpers.compile(source(persistent=1)), timing.operands(problem)
    there = [array.reshape(-1).view(np.uint8).copy() for array in host]
    once = timing.launches(kernel, gemm.geometry(kernel), problem, there, None)
    assert seen == [((3, 1, 1), 1 if k == 21 else 0)] * 2
    there[0][:] = (-host[0]).reshape(-1).view(np.uint8)  # after the launches were made
    once()
    assert gemm.compare(problem, host, (*host[:2], -there[2].view(np.float32).reshape(100, 64))) == ""
