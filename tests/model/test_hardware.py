"""The hardware table agrees with itself and is found by the names drivers give."""

import pytest

from helpers.errors import CourseError
from helpers.model.hardware import capability, gpu, gpus


def test_peak_rates_follow_from_sms_lanes_and_clock():
    assert len(gpus()) > 15
    for row in gpus():
        assert row.peak_fp32_tflops == pytest.approx(row.fp32_tflops, rel=0.01), row.name


def test_every_row_names_its_source_and_is_named_once():
    assert all(row.source for row in gpus())
    assert len({row.name for row in gpus()}) == len(gpus())
    assert {row.arch for row in gpus()} == {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}


@pytest.mark.parametrize(
    ("driver_says", "row"),
    [
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100 SXM4 40GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("H200", "H200 SXM"),
        ("rtx 3090", "RTX 3090"),
    ],
)
def test_names(driver_says, row):
    assert gpu(driver_says).name == row


@pytest.mark.parametrize("name", ["RTX 2080", "NVIDIA GeForce RTX 4070 Ti", "", "GeForce", "H300"])
def test_an_unknown_gpu_is_refused_with_the_list(name):
    with pytest.raises(CourseError, match="H200 SXM"):
        gpu(name)


def test_capability_names():
    assert capability("sm_90a") is capability("9.0") is capability("compute_90")
    assert capability("sm_120").arch == "sm_120"
