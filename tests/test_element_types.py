"""Products in every pair of element types: right kernels pass, wrong ones are found, and whatever looks at a run knows its types."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from helpers.course.lesson import LessonKernel
from helpers.course.rungs import limit
from helpers.element_types import ELEMENT_TYPES, RESULTS, element_type, named, result_type
from helpers.errors import CourseError, LaunchError
from helpers.model import hardware, predict
from helpers.run import gemm
from helpers.run.gemm import Problem
from helpers.run.gpu import cublas_refuses
from helpers.toolchain.compile import compile_source
from helpers.views.roofline import gemm_point, point, roof
from tests.run.typed_kernels import plain, warp_tile

PAIRS = [
    ("float32", "float32"), ("float16", "float32"), ("float16", "float16"), ("bfloat16", "float32"), ("bfloat16", "bfloat16"),
    ("float8_e4m3", "float32"), ("float8_e5m2", "bfloat16"), ("float8_e4m3", "float16"),
]  # fmt: skip
ON_TENSOR_CORES = [("tf32", "float32"), ("float16", "float32"), ("bfloat16", "bfloat16")]


@pytest.fixture(autouse=True)
def _own_home(monkeypatch, tmp_path):
    monkeypatch.setenv("GEMM_LADDER_NO_GPU", "1")


def made(source: str) -> LessonKernel:
    return LessonKernel(compile_source(source))


@pytest.mark.parametrize(("dtype", "out_dtype"), PAIRS)
def test_a_right_kernel_passes_in_its_own_types(dtype, out_dtype):
    kernel = made(plain(dtype, out_dtype))
    assert gemm.types(kernel) == (dtype, out_dtype)
    report = gemm.check(kernel)
    assert report.passed, report
    assert (report.cases[0].problem.dtype, report.cases[0].problem.out_dtype) == (dtype, out_dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "out_dtype"), ON_TENSOR_CORES)
def test_a_right_kernel_on_tensor_cores_passes_and_is_known_as_such(dtype, out_dtype):
    kernel = made(warp_tile(dtype, out_dtype))
    assert gemm.types(kernel) == (dtype, out_dtype)
    report = gemm.check(kernel)
    assert report.passed, report

    run = kernel.profile(256).run
    prediction = run.predict("H200 SXM")
    assert prediction.terms["the tensor cores"] > 0
    need = predict.demand(run)
    assert predict.kernel_class(replace(need, mix={})) == "tensor cores"
    # One matrix instruction among many addresses, as no recorded kernel has it.
    assert "integer arithmetic, more than of theirs), so the error is unknown" in prediction.statement
    here = point(run)
    assert (here.dtype, here.flops) == (dtype, 2 * 256**3)
    assert here.compulsory == pytest.approx(gemm_point(256, 256, 256, dtype=dtype, out_dtype=out_dtype).compulsory)


@pytest.mark.parametrize(("dtype", "out_dtype"), [pair for pair in PAIRS if pair[0] != "float32"])
def test_a_prediction_for_other_types_says_what_it_does_not_know(dtype, out_dtype):
    run = made(plain(dtype, out_dtype)).profile(64).run
    assert f"without tensor cores they were float32 and this is {element_type(dtype).label}" in run.predict("H200 SXM").statement


def test_a_model_that_knows_no_rate_predicts_no_time():
    kernel = made(warp_tile("bfloat16"))
    profile = kernel.profile(64, "T4")
    assert profile.milliseconds is None and profile.kind == "counted"
    assert "The tensor cores of T4 do not multiply BF16." in str(profile)


@pytest.mark.parametrize("build", [lambda *types: plain(*types).replace("k < K", "k < K - 1"),
                                   lambda *types: plain(*types).replace("sum += float(A", "sum += 1.05f * float(A")])  # fmt: skip
@pytest.mark.parametrize(("dtype", "out_dtype"), PAIRS)
def test_a_lost_term_and_a_scaled_sum_are_found(dtype, out_dtype, build):
    assert not gemm.check(made(build(dtype, out_dtype))).correct


def test_sums_in_half_precision_are_found():
    source = plain("float16").replace("float sum = 0", "__half sum = 0.0f").replace("sum += float(A", "sum = sum + __half(float(A")
    source = source.replace("* ldb + col]);", "* ldb + col]));").replace("alpha * sum", "alpha * float(sum)")
    report = gemm.check(made(source), [Problem(64, 64, 512, dtype="float16", out_dtype="float32")])
    assert not report.correct and "wrong" in str(report)


def test_arrays_hold_what_their_type_can():
    for name, kind in ELEMENT_TYPES.items():
        a, b, c = Problem(17, 9, 33, pad_a=3, beta=1.0, dtype=name).arrays()
        assert (a.dtype, b.dtype, c.dtype) == (kind.storage, kind.storage, element_type(kind.result).storage)
        assert np.isnan(a[:, 33:].astype(np.float32)).all()
        values = a[:, :33].astype(np.float64)
        scaled = np.ldexp(values, kind.precision - np.frexp(values)[1])  # as whole numbers of `precision` bits
        big = np.abs(values) > 2.0**-6  # float8's finest steps come sooner
        assert (scaled[big] == np.round(scaled[big])).all(), name


@pytest.mark.parametrize("name", ["tf32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2"])
def test_roundoff_is_the_largest_error_of_rounding(name):
    kind = element_type(name)
    values = np.random.default_rng(1).uniform(0.25, 1, 100_000).astype(np.float32)
    error = np.abs(kind.array(values).astype(np.float64) - values) / values
    assert 0.85 * kind.roundoff < error.max() <= kind.roundoff


def test_bytes_are_those_of_the_types():
    assert Problem(64, 32, 16, dtype="float16", out_dtype="float32").compulsory_bytes == 2 * (64 * 16 + 16 * 32) + 4 * 64 * 32
    assert Problem(64, 32, 16, dtype="float8_e4m3", out_dtype="bfloat16", beta=1.0).compulsory_bytes == 64 * 16 + 16 * 32 + 2 * 2 * 64 * 32


def test_unknown_types_are_refused_with_the_list():
    with pytest.raises(LaunchError, match="float32, tf32, float16, bfloat16"):
        Problem(1, 1, 1, dtype="float64")
    with pytest.raises(LaunchError, match="a result is one of float32, float16, bfloat16"):
        Problem(1, 1, 1, dtype="float8_e4m3", out_dtype="float8_e4m3")


def test_two_types_of_inputs_are_refused():
    kernel = made(plain("float16").replace("const __half* B", "const float* B"))
    with pytest.raises(LaunchError, match="A in float16 and B in float32"):
        gemm.types(kernel)


def test_the_usual_result_type_and_names():
    assert [result_type(name) for name in ELEMENT_TYPES] == ["float32", "float32", "float16", "bfloat16", "float32", "float32"]
    assert set(RESULTS) == {kind.result for kind in ELEMENT_TYPES.values()}
    assert named("float16", "float32") == "FP16 to FP32" and named("bfloat16") == "BF16"
    assert str(Problem(8, 8, 8, dtype="tf32")) == "8 × 8 × 8, TF32 to FP32"


def test_limits_come_from_what_multiplies():
    h200 = hardware.gpu("H200 SXM")
    for dtype, peak in (("float32", h200.peak_fp32_tflops), ("tf32", 494.7), ("float16", 989.4), ("float8_e5m2", 1978.9)):
        found = limit("H200 SXM", 16384, 16384, 16384, dtype)
        assert found.tflops == pytest.approx(peak)
        assert found.name == f"limit of the {'FP32 lanes' if dtype == 'float32' else 'tensor cores'}"
    assert limit("T4", 4096, 4096, 4096, "bfloat16") is None, "T4's tensor cores have no bfloat16"
    assert roof("H200 SXM", "bfloat16").unit == "tensor cores (BF16)"
    with pytest.raises(CourseError, match="do not multiply TF32"):
        roof("RTX 2080 Ti", "tf32")


def test_cublas_says_what_it_does_not_multiply():
    assert cublas_refuses("float32") == cublas_refuses("tf32") == cublas_refuses("float16", "float32") == cublas_refuses("bfloat16") == ""
    assert "B stored by columns" in cublas_refuses("float8_e4m3")
    assert cublas_refuses("float8_e4m3", transb=True) == cublas_refuses("float8_e4m3", "bfloat16", transb=True) == ""
    assert "one of the two has to be FP8 E4M3" in cublas_refuses("float8_e5m2", transb=True)
    assert "FP16 to BF16" in cublas_refuses("float16", "bfloat16")


def test_the_arrays_of_a_launch_must_be_of_the_kernels_types():
    kernel = made(plain("bfloat16"))
    a = np.zeros((4, 4), np.float16)
    with pytest.raises(LaunchError, match="bfloat16"):
        kernel.launch(1, (16, 16), [4, 4, 4, 1.0, a, 4, a.astype(ml_dtypes.bfloat16), 4, 0.0, np.zeros((4, 4), np.float32), 4], on="cpu")
