"""A kernel is told the error of recorded ones only if they execute the like of it."""

import numpy as np
import pytest

import helpers
from helpers.course import recorded_launches, steps
from helpers.model import mixes, predict
from helpers.run import gemm

UNKNOWN = "None of the recorded kernels is like this one ("


def told(source: str, size: int = 1024) -> str:
    kernel = helpers.compile(source)
    return gemm.count(kernel, gemm.problem_for(kernel, size, size, size)).predict("H200 SXM").error


def test_shares_are_of_all_instructions():
    found = mixes.of_opcodes({"FFMA": 60, "MUFU": 10, "F2I": 10, "ATOMS": 5, "RED": 5, "LDG": 10})
    assert found == {
        "special functions and conversions": pytest.approx(0.2), "atomic operations on shared memory": pytest.approx(0.05),
        "atomic operations on device memory": pytest.approx(0.05),
    }  # fmt: skip
    assert mixes.unlike(predict.OTHERS, found).startswith("20% of its instructions are special functions")
    divides = {"special functions and conversions": 0.06}
    assert mixes.unlike(predict.OTHERS, divides) and not mixes.unlike(predict.OTHERS, {})
    assert not mixes.unlike(predict.OTHERS, divides | {"atomic operations on device memory": 0.02}), "so does one on record"


@pytest.mark.parametrize("share", [0.028, 0.05, 0.068, 0.164, 0.19, 0.321, 0.487])
def test_what_spills_is_like_the_recorded_ones_that_do(share):
    assert not mixes.unlike(predict.SPILLS, {"accesses of local memory": share})


@pytest.mark.parametrize(
    ("inner", "what"),
    [
        ("__expf(a[i] * b[j])", "special functions and conversions"),
        ("rsqrtf(a[i] * b[j])", "special functions and conversions"),
        ("__fdividef(a[i], b[j])", "special functions and conversions"),
        ("a[i] / b[j]", "special functions and conversions|calls of functions"),
        ("int(a[i]) % (N + int(b[j]))", "integer arithmetic|special functions and conversions"),
    ],
)
def test_what_a_product_does_besides_products_is_like_nothing_recorded(inner, what):
    source = steps.get("shared_tile").kernel_source()
    assert f"({predict.TILES})" in told(source)
    said = told(source.replace("sum += a * b", "sum += " + inner.replace("[i]", "").replace("[j]", "")))
    assert UNKNOWN in said and any(f"% of its instructions are {each}, more than of theirs" in said for each in what.split("|")), said


@pytest.mark.parametrize(
    "loop", ["s += __expf(x[i] + t)", "s += x[i] / (t + 2.0f)", "s += sqrtf(x[i] + t)", "s = __shfl_xor_sync(~0u, s, 1) + v"]
)
def test_so_is_a_loop_in_a_signature_of_its_own(loop):
    kernel = helpers.compile(f"""extern "C" __global__ void k(const float* x, float* y, int n) {{
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        float s = 0, v = x[i];
        for (int t = 0; t < 256; t++) {loop};
        y[i] = s;
    }}""")
    run = kernel.count((1056,), (256,), [np.zeros(1056 * 256, np.float32), np.zeros(1056 * 256, np.float32), 0], blocks=[0])
    got = run.predict("H200 SXM")
    assert UNKNOWN in got.error, got.error
    assert "/" not in loop or got.terms[predict.SPECIAL] > 0, "what a division takes is counted on its usual way"


@pytest.mark.parametrize("name", recorded_launches.LAUNCHES)
def test_recorded_launches_are_like_themselves(name):
    size = min(recorded_launches.LAUNCHES[name].sizes)
    run = recorded_launches.counted(name, size)
    (row,) = [row for row in predict.validation()["runs"] if row["run"] == f"{name} at {size} × {size}"]
    got = run.predict("H200 SXM")
    assert f"kernels like this one ({predict.in_a_sentence(row['class'])})" in got.error, got.error
    assert got.milliseconds == pytest.approx(row["predicted"], rel=1e-3), "run: python -m helpers.course.validate"


@pytest.mark.parametrize("step", [step for step in steps.STEPS if step.number > 13 and step.entry], ids=lambda step: step.slug)
def test_what_is_not_counted_is_judged_by_the_machine_code(step):
    found = mixes.written(helpers.reference(step.slug).compiled)
    assert found and not mixes.unlike(predict.TENSOR_CORES, found)


def test_of_float64_nothing_is_recorded_in_any_signature():
    kernel = helpers.compile('extern "C" __global__ void k(const double* x, double* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }')
    got = kernel.launch((1,), (32,), [np.zeros(32), np.zeros(32)], on="cpu").predict("H200 SXM")
    assert f"{UNKNOWN}{predict._NO_FLOAT64})" in got.error


def test_where_no_instructions_were_counted_their_units_are_not_said_to_be_idle():
    source = steps.get("shared_tile").kernel_source().replace("sum += a * b", "sum += (long long)(a) % (long long)(b + 2)")
    kernel = helpers.compile(source)
    got = gemm.count(kernel, gemm.Problem(256, 256, 256)).predict("H200 SXM")
    line = 1 + source[: source.index("sum += (long long)")].count("\n")
    assert got.error.startswith(
        f"From the counters alone, since a branch depends on data (line {line}). None of the kernels on which that was tried"
    )
    assert "the fullest unit is" not in got.limiter


def test_a_class_is_said_in_a_sentence_that_has_a_verb_or_is_a_name():
    """“kernels like this one (computes, in a signature of its own)” was none."""
    for like in {row["class"] for row in predict.validation()["runs"]} | {
        predict.OTHERS,
        predict.STREAMS,
        predict.TENSOR_OTHERS,
        predict.SPILLS,
    }:
        said = predict.in_a_sentence(like)
        assert said.startswith("they ") or (said == like and "," not in said), said
