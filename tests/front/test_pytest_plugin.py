"""The fixture `cuda_kernel`, from the wheel, in an environment of its own."""

import os
import subprocess
import sys
import zipfile

import pytest

from tests import ROOT

TESTS = '''
import numpy as np

SCALE = """__global__ void scale(float* a, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    GUARD a[i] *= factor;
}
"""

def test_right(cuda_kernel):
    a = np.ones(1000, np.float32)
    run = cuda_kernel(SCALE.replace("GUARD", "if (i < n)")).launch(4, 256, [a, 2.0, a.size])
    assert (a == 2).all()
    assert run.counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 125

def test_wrong(cuda_kernel, tmp_path):
    file = tmp_path / "scale.cu"
    file.write_text(SCALE.replace("GUARD", ""))
    cuda_kernel(file).launch(4, 256, [np.ones(1000, np.float32), 2.0, 1000])

def test_expected(cuda_kernel):
    race = cuda_kernel("__global__ void k(int* a) { a[0] = threadIdx.x; }")
    race.launch(1, 64, [np.zeros(1, np.int32)], findings=["race"])

def test_expected_in_vain(cuda_kernel):
    cuda_kernel("__global__ void k(int* a) { a[threadIdx.x] = 0; }").launch(1, 64, [np.zeros(64, np.int32)], findings=["race"])

def test_expected_as_one_text(cuda_kernel):
    cuda_kernel("__global__ void k(int* a) { a[0] = threadIdx.x; }").launch(1, 64, [np.zeros(1, np.int32)], findings="race")

def test_expected_with_a_slip(cuda_kernel):
    cuda_kernel("__global__ void k(int* a) { a[0] = threadIdx.x; }").launch(1, 64, [np.zeros(1, np.int32)], findings=["rase"])

def test_no_such_file(cuda_kernel, tmp_path):
    cuda_kernel(tmp_path / "absent.cu")

def test_a_folder(cuda_kernel, tmp_path):
    cuda_kernel(tmp_path)

def test_another_encoding(cuda_kernel, tmp_path):
    (tmp_path / "latin.cu").write_bytes("// é".encode("latin-1"))
    cuda_kernel(tmp_path / "latin.cu")

def test_a_name_for_a_path(cuda_kernel):
    cuda_kernel("scale.cu")

def test_does_not_compile(cuda_kernel):
    cuda_kernel("__global__ void k(int* a) { a[0] = b; }")
'''


@pytest.mark.slow
def test_the_wheel_brings_the_fixture_and_failures_name_their_line(tmp_path):
    """The wheel's own files and entry points, and of everything else what is installed here; nothing of the checkout."""
    from hatchling.builders.wheel import WheelBuilder

    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path / "dist"), versions=["standard"]))
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    program = (
        "import sys, sysconfig, helpers, pytest\n"
        f"assert helpers.__file__.startswith({str(site)!r}), helpers.__file__\n"
        "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'test_kernels.py']))\n"
    )
    (tmp_path / "test_kernels.py").write_text(TESTS, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(site), "GEMM_LADDER_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "8 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    assert "scale.cu:3: out-of-bounds:" in done.stdout
    assert "    3 |      a[i] *= factor;" in done.stdout
    assert "expected and not found: race" in done.stdout
    assert "rase is no kind of finding. There are: " in done.stdout
    assert "absent.cu: it cannot be read (No such file or directory" in done.stdout
    assert f"{os.sep}latin.cu: it is no UTF-8 text (byte 3)" in done.stdout
    assert "scale.cu is a file's name and no CUDA source" in done.stdout
    assert "pathlib" not in done.stdout and "UnicodeDecodeError" not in done.stdout  # no trace of where the plugin failed
    assert "another exception" not in done.stdout
    assert 'identifier "b" is undefined' in done.stdout
