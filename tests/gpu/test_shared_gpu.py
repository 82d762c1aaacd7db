"""On a GPU: what the shared GPU's workers do with kernels that are right, wrong, endless and out of bounds, and what they log."""

import json

import numpy as np
import pytest

from helpers.run.gemm import Problem, problem_for
from helpers.run.geometry import is_fused, tensor_maps
from helpers.run.kernel import Kernel
from helpers.run.shared_gpu import judging, protocol, sending, service
from helpers.run.shared_gpu.protocol import LaunchJob, ProductJob
from helpers.toolchain.compile import compile_source
from tests import ROOT

COALESCED = (ROOT / "kernels/02_coalesced.cu").read_text(encoding="utf-8")
PRODUCTS = [
    path for path in sorted((ROOT / "kernels").glob("*.cu")) if "pieces[]" not in path.read_text(encoding="utf-8")
]  # one kernel each
FOREVER = "__global__ void forever(float* x) { x[0] = 1; while (true) x[1] += 1; }"
BEYOND = "__global__ void beyond(float* x) { x[1ll << 40] = 1; }"


@pytest.fixture(scope="module")
def device():
    names = service.gpus()
    return {"name": names[0], **service._device(names[:1])}


@pytest.fixture(autouse=True)
def _worker(device, monkeypatch):
    """This process is the worker of the first GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", device["name"])


def made(source: str, device) -> Kernel:
    return Kernel(compile_source(source)).for_arch(device["arch"])


def product(kernel: Kernel, problem: Problem) -> dict:
    return judging.judge(protocol.dumps(ProductJob(sending._code(kernel.compiled, tensor_maps(kernel)), problem, 5, 0.5)), False, 30)


def launch(kernel: Kernel, args, seconds: float = 20.0, repeat: int | None = None) -> dict:
    sent = sending._Sent(args, [parameter.const for parameter in kernel.compiled.parameters])
    job = LaunchJob(sending._code(kernel.compiled), (1, 1, 1), (32, 1, 1), 0, None, repeat, tuple(sent.made), tuple(sent.passed))
    found = judging.judge(protocol.dumps(job), False, seconds)
    if found["state"] == "done":
        sent.fetch(found["arrays"])
    return found


@pytest.mark.parametrize("path", PRODUCTS, ids=lambda path: path.stem)
def test_a_product_is_checked_and_timed_with_clock_and_power(path, device):
    kernel = made(path.read_text(encoding="utf-8"), device)
    found = product(kernel, problem_for(kernel, 1024, 1024, 1024, fused=is_fused(kernel)))
    assert found["state"] == "done", found
    name = found["entry"]
    assert 0 < found["timing"][name]["milliseconds"] < 100 and found["timing"][name]["device"] == device["device"]
    assert found["gauges"]["most_clock_mhz"] > 200 and found["gauges"]["most_power_w"] > 10
    json.dumps(found)


def test_a_wrong_product_is_not_timed(device):
    found = product(made(COALESCED.replace("k < K", "k < K - 1"), device), Problem(512, 512, 512))
    assert found["state"] == "failed" and "computes wrong results" in found["message"]


def test_a_launch_changes_the_arrays(device):
    x, y = np.zeros(32, np.float32), np.arange(32, dtype=np.float32)
    kernel = made("__global__ void twice(float* x, const float* y, float a) { x[threadIdx.x] = a * y[threadIdx.x]; }", device)
    found = launch(kernel, [x, y, np.float32(2.5)], repeat=5)
    assert found["state"] == "done" and (x == 2.5 * y).all()
    assert found["timing"]["samples"] >= 5


def test_after_an_endless_and_a_broken_kernel_the_gpu_is_there_for_others(device):
    x = np.zeros(2, np.float32)
    found = launch(made(FOREVER, device), [x], seconds=3)
    assert "did not end within 3 s on the shared GPU and was stopped" in found["message"] and not x.any()
    found = launch(made(BEYOND, device), [x])
    assert "illegal address" in found["message"] and "Others are not affected" in found["message"]
    assert product(made(COALESCED, device), Problem(256, 256, 256))["state"] == "done"
