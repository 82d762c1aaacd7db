"""Occupancy against NVIDIA's own calculator, and the reasons given when nothing fits."""

import csv
import math
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.errors import CourseError
from helpers.model.hardware import capability, gpus
from helpers.model.occupancy import limits, occupancy

HERE = Path(__file__).parent
BITS = {1: "threads", 2: "registers", 4: "shared memory", 8: "blocks", 16: "barriers"}


def rows():
    with open(HERE / "occupancy.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_every_row_of_nvidias_calculator():
    table = rows()
    assert len(table) > 5000
    for row in table:
        got = occupancy(row["capability"], int(row["threads"]), int(row["registers"]), int(row["shared"]), int(row["barriers"]))
        expected = {name for bit, name in BITS.items() if int(row["limiters"]) & bit}
        assert (got.blocks_per_sm, set(got.limiters), got.allocated_registers, got.allocated_shared) == (
            int(row["blocks"]),
            expected,
            int(row["allocated_registers"]),
            int(row["allocated_shared"]),
        ), row


def test_the_table_covers_every_capability_and_every_limiter():
    table = rows()
    assert {row["capability"] for row in table} == {
        "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1"
    }  # fmt: skip
    seen = {name for row in table for bit, name in BITS.items() if int(row["limiters"]) & bit}
    assert seen == set(BITS.values())


def test_the_committed_table_is_what_the_header_says(tmp_path):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ to build cuda_occupancy.h with; the committed table stands")
    nvidia = pytest.importorskip("nvidia.cu13", reason="the CUDA 13 headers are not installed")
    include = Path(next(iter(nvidia.__path__))) / "include"
    program = tmp_path / "occupancy"
    subprocess.run([compiler, f"-I{include}", str(HERE / "occupancy.cpp"), "-o", str(program)], check=True, timeout=60)
    printed = subprocess.run([program], check=True, capture_output=True, text=True, timeout=60).stdout
    assert printed == (HERE / "occupancy.csv").read_text()


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "blocks", "fraction"),
    [
        ("sm_90", 1024, 32, 8192, 2, 1.0),  # the shared-memory tile of step 03
        ("sm_86", 1024, 32, 8192, 1, 2 / 3),  # 48 warps per SM: a second block of 32 warps does not fit
        ("sm_90", 256, 128, 8192, 2, 0.25),
        ("sm_90a", 256, 128, 8192, 2, 0.25),
    ],
)
def test_known_kernels(arch, threads, registers, shared, blocks, fraction):
    got = occupancy(arch, threads, registers, shared)
    assert got.blocks_per_sm == blocks
    assert got.fraction == pytest.approx(fraction)


def test_waves():
    fit = occupancy("sm_86", 256, 38, 2048)
    assert fit.blocks_per_sm == 6
    assert fit.waves(4096, 82) == pytest.approx(8.325, abs=0.01)  # 4096 blocks on an RTX 3090: 8.33 waves
    assert occupancy("sm_90", 1025, 32).waves(10, 132) == math.inf


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "says"),
    [(1025, 32, 0, "1024 threads"), (32, 32, 300_000, "shared memory"), (1024, 128, 0, "registers")],
)
def test_a_block_that_does_not_fit_says_why(threads, registers, shared, says):
    got = occupancy("sm_90", threads, registers, shared)
    assert got.blocks_per_sm == 0 and got.fraction == 0
    assert says in got.reason and says in str(got)


def test_bad_input():
    with pytest.raises(ValueError):
        occupancy("sm_90", 0, 32)
    with pytest.raises(CourseError, match="sm_70"):
        occupancy("sm_70", 32, 32)
    with pytest.raises(CourseError, match="nonsense"):
        capability("nonsense")


def test_every_gpu_has_a_capability_with_limits():
    for gpu in gpus():
        assert occupancy(gpu, 256, 32).blocks_per_sm > 0


def test_limits_by_architecture():
    assert limits("sm_90a").shared_per_block == 227 * 1024
    assert limits("sm_86").registers_per_block == 65536
