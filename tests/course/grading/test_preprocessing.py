"""No condition of an answer asks which files there are, however it is put together; ordinary conditions are read as ever."""

from __future__ import annotations

import time

import pytest

from helpers.course.exercises import exercises
from helpers.course.grading.answers import keep_to_headers
from helpers.course.grading.preprocessing import MOST
from helpers.course.steps import STEPS
from helpers.errors import CourseError

CAT = "#define CAT(a, b) a##b\n"
ASKS = {
    "joined": CAT + '#if CAT(__has_, include)("/x")',
    "joined by digraphs": '#define CAT(a, b) a %:%: b\n#if CAT(__has_, include)("/x")',
    "joined from three": CAT + '#if CAT(CAT(__ha, s_in), clude)("/x")',
    "behind a name": CAT + '#define ASK CAT(__has_, include)("/x")\n#if ASK',
    "behind two names": CAT + "#define ASK CAT(__has_, include)(</x>)\n#define IT ASK\n#ifdef A\n#elif IT",
    "a header's macro that asks": "#if _CCCL_HAS_INCLUDE(</x>)",
    "a header's macro that joins": "#if _CCCL_PP_CAT(__ha, s_include)(</x>)",
    "such under another name": "#define J _CCCL_PP_CAT\n#if J(__ha, s_include)(</x>)",
    "such as an argument": "#define ID(x) x\n#define A (__ha, s_include)\n#if ID(_CCCL_PP_CAT A)",
    "such as a parameter": "#define CALL(f, x) f(x)\n#if CALL(_CCCL_PP_CAT, 1)",
    "a parameter of a known name": "#define CALL(defined, x) defined(x)\n#if CALL(_CCCL_PP_CAT, 1)",
    "the result of a call": "#define F() _CCCL_PP_CAT\n#if F()(__ha, s_include)",
    "in capitals": "#if __HAS_INCLUDE(</x>)",
    "behind a comment": CAT + '#/*\n*/if /*\n*/ CAT(__has_, include)("/x")',
    "on two lines": CAT + '#i\\\nf CAT(__has_, \\\ninclude)("/x")',
    "behind a string": 'const char* hidden = R"(/*)";\n' + CAT + '#if CAT(__has_, include)("/x")\n// */',
    "defined behind a string": 'const char* hidden = R"(/*)";\n#define CAT(a, b) a##b /* */\n#if CAT(__has_, include)("/x")\n// */',
}


@pytest.mark.parametrize("name", ASKS)
def test_no_condition_asks_for_files(name):
    with pytest.raises(CourseError, match="is not allowed in an answer"):
        keep_to_headers(f"{ASKS[name]}\n#endif\n")


@pytest.mark.parametrize(
    "text",
    [
        "#if __CUDA_ARCH__ >= 900 && defined(__CUDACC_RTC__)",
        "#if defined X || !defined(Y) and not (BM % 4 == 0)  // for GPUs (new) that have it",
        "#define FITS(x) ((x) <= 4)\n#define TM 4\n#if FITS(TM) /* and (what not) */",
        "#define SQUARE (4) * (4)\n#if SQUARE > 3 ? 1 : 0",
        "#if __has_builtin(__builtin_assume)\n#elif true",
        CAT + '#define TEXT "text"\n#define LOAD(i) float CAT(a, i) = A[i];\n#if 1',
        "#ifdef X  // don't",
        "#if 0\nit's not code (at all)",
    ],
)  # fmt: skip
def test_ordinary_conditions_are_read_as_ever(text):
    keep_to_headers(f"{text}\n#endif\n")


def test_the_course_s_own_kernels_are_allowed():
    for text in (step.kernel_path.read_text(encoding="utf-8") for step in STEPS if step.kernel_path):
        keep_to_headers(text)
    for item in exercises().values():
        keep_to_headers(item.solution)


def test_conditions_do_not_hold_the_reading_up():
    started = time.process_time()
    keep_to_headers("#define " + "/**/" * 20_000 + "A (1)\n#if A\n")
    with pytest.raises(CourseError, match="at most 1,000"):
        keep_to_headers("#if /*\n" * 14_000)
    keep_to_headers("".join(f"#define A{i} A{i + 1} + A{i + 2}\n" for i in range(MOST - 1)) + "#if A0\n")
    assert time.process_time() - started < 10
