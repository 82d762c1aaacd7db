"""The %%cuda cell: what a learner types, and what comes back."""

from __future__ import annotations

import gc
import os
import signal
import threading

import pytest
from IPython.core.interactiveshell import InteractiveShell

from helpers.course import history
from helpers.course.lesson import LessonKernel
from helpers.errors import CompileError, CourseError
from helpers.front.magics import CompileSummary
from helpers.run import transposes
from helpers.toolchain.compile import compile_source
from tests.run.column_kernels import plain

CELL = "__global__ void double_it(float* p) {\n    p[threadIdx.x] *= 2;\n}\n"


@pytest.fixture
def shell():
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "helpers")
    yield shell
    InteractiveShell.clear_instance()


@pytest.mark.parametrize(("before", "after"), [(700, 10_000), (0, 0), (50_000, 50_000)])
def test_garbage_is_looked_for_less_often_unless_the_reader_has_chosen(before, after):
    thresholds, shell = gc.get_threshold(), InteractiveShell.instance()
    try:
        gc.set_threshold(before, 10, 10)
        shell.run_line_magic("reload_ext" if "helpers" in shell.extension_manager.loaded else "load_ext", "helpers")
        assert gc.get_threshold()[0] == after
    finally:
        gc.set_threshold(*thresholds)
        InteractiveShell.clear_instance()


def test_the_cell_binds_a_kernel_and_says_what_it_needs(shell, capsys):
    shell.run_cell_magic("cuda", "mine", CELL)
    kernel = shell.user_ns["mine"]
    assert isinstance(kernel, LessonKernel)
    assert (kernel.name, kernel.lesson_name) == ("double_it", "mine")
    shown = capsys.readouterr().out
    assert "registers per thread" in shown and "shared memory" in shown


def test_an_array_in_local_memory_is_told():
    source = """
extern "C" __global__ void k(float* C, const int* A) {
    float late[64] = {};
    for (int i = 0; i < 64; i++) late[A[i] & 63] = i;
    C[threadIdx.x] = late[A[threadIdx.x]] + late[A[threadIdx.x + 1]];
}"""
    kernel = LessonKernel(compile_source(source), "k")
    (resources, *_) = CompileSummary(kernel, 1.0).lines()
    assert f", {kernel.compiled.local_bytes} bytes of local memory per thread" in resources and kernel.compiled.local_bytes >= 256


def test_the_first_cell_of_a_lesson_says_nothing_the_second_time(shell, capsys):
    for _ in range(2):
        assert shell.run_cell("%load_ext helpers").success
        assert capsys.readouterr() == ("", "")
    listeners = shell.events.callbacks["post_run_cell"]
    assert len(listeners) == len(set(listeners))
    shell.run_cell_magic("cuda", "mine", CELL)
    assert isinstance(shell.user_ns["mine"], LessonKernel)


def test_error_lines_are_the_cells_own(shell):
    # In the notebook the magic is line 1, so the mistake on the second line of the source is on line 3 of the cell.
    with pytest.raises(CompileError) as caught:
        shell.run_cell_magic("cuda", "mine", CELL.replace("*= 2;", "*= two;"))
    assert caught.value.line == 3


def test_a_cell_that_fails_unbinds_the_older_kernel(shell):
    shell.run_cell_magic("cuda", "mine", CELL)
    with pytest.raises(CompileError):
        shell.run_cell_magic("cuda", "mine", "nonsense")
    with pytest.raises(CourseError, match="did not compile"):
        shell.user_ns["mine"].check()
    assert repr(shell.user_ns["mine"]) == "mine did not compile"
    shell.run_cell_magic("cuda", "mine", CELL)
    assert isinstance(shell.user_ns["mine"], LessonKernel)


@pytest.mark.parametrize(
    "line",
    [
        "mine --entry double_it<float, 3>", "mine the new one", "mine --entry 'double_it", "--transbb mine", "mine, --transb", "'mine'",
        "-o mine", "--transb=mine", "mine --arch sm_80 --arch sm_90",
    ],
)  # fmt: skip
def test_a_line_that_says_nothing_unbinds_it_too_and_keeps_the_text(shell, line):
    shell.run_cell_magic("cuda", "mine", CELL)
    with pytest.raises(CourseError, match="Write, for example"):
        shell.run_cell_magic("cuda", line, CELL.replace("2;", "7;"))
    with pytest.raises(CourseError, match="mine did not compile.* The mine from before is not used in its place. Its cell says:"):
        shell.user_ns["mine"].check()
    assert any("7;" in version.text for version in history.history("mine").versions)


def test_a_value_that_is_no_kernel_stays_where_a_line_names_none(shell):
    shell.user_ns["sm_80"] = 7
    with pytest.raises(CompileError, match="the name of the kernel is missing"):
        shell.run_cell_magic("cuda", "--arch sm_80", CELL)
    assert shell.user_ns["sm_80"] == 7


def test_a_first_mistake_says_nothing_of_a_kernel_from_before(shell):
    with pytest.raises(CompileError):
        shell.run_cell_magic("cuda", "never_there --transbb", CELL)
    with pytest.raises(CourseError, match="nothing to run yet. Its cell says"):
        shell.user_ns["never_there"].check()


def test_a_compilation_that_is_stopped_leaves_no_older_kernel(shell, monkeypatch):
    shell.run_cell_magic("cuda", "mine", CELL)

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(transposes, "compile_with", stopped)
    with pytest.raises(KeyboardInterrupt):
        shell.run_cell_magic("cuda", "mine", CELL)
    with pytest.raises(CourseError, match="It was stopped before it was compiled"):
        shell.user_ns["mine"].check()


def test_a_name_is_what_python_reads(shell):
    shell.run_cell_magic("cuda", "\u00b5kernel", CELL)
    assert isinstance(shell.ev("\u00b5kernel"), LessonKernel) and "\u03bckernel" in shell.user_ns


@pytest.mark.parametrize(
    "line",
    [
        "mine --transb",
        "mine --transb T",
        "mine --transb=t --transa N",
        "mine --TRANSB",
        "mine --transb True",
        "mine --transB 'T'",
        "--transb mine",
        "mine --transb # by columns",
    ],
)
def test_a_kernel_that_takes_B_by_columns_says_so_in_the_magic_s_line(shell, capsys, line):
    shell.run_cell_magic("cuda", line, plain())
    kernel = shell.user_ns["mine"]
    assert transposes.transposed(kernel) == (False, True) and "takes B by columns" in capsys.readouterr().out
    assert kernel.gemm(16, 8, 24, on="cpu").problem["B"].shape == (8, 24)
    assert kernel.cell.startswith(f"%%cuda {line}\n") and "transb[]" not in kernel.cell
    assert f"%%cuda {line}\n" in history.history("mine").versions[-1].text
    with pytest.raises(CompileError) as caught:
        shell.run_cell_magic("cuda", line, plain().replace("float sum = 0;", "float sum = zero;"))
    assert caught.value.line == 11


@pytest.mark.parametrize(("line", "said"), [
    ("mine --transb C", "transb='C': write True, or BLAS's \"T\", for a kernel that takes B by columns"),
    ("mine --transc", "exchange M and N, A and B, lda and ldb in its list of parameters"),
])  # fmt: skip
def test_what_says_nothing_of_columns_is_told_and_unbinds_the_older_kernel(shell, line, said):
    shell.run_cell_magic("cuda", "mine", plain())
    with pytest.raises(CompileError, match=said):
        shell.run_cell_magic("cuda", line, plain())
    with pytest.raises(CourseError, match="did not compile"):
        shell.user_ns["mine"].check()


def test_options(shell):
    shell.run_cell_magic("cuda", "mine --arch sm_80 -o=-DTWO=2 --entry 'double_it'", CELL.replace("2;", "TWO;") + "__global__ void g() {}")
    assert shell.user_ns["mine"].compiled.arch == "sm_80"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("2x", "Python name"), ("a-b", "Python name"), ("a.b", "Python name"), ("class", "Python name"),
        ("print", "would hide"), ("helpers", "would hide"), ("exercise", "would hide"), ("a --entry 'gemm<64>", "no closing quotation"),
        ("In", "would hide"), ("Out", "would hide"), ("_", "would hide"), ("_12", "would hide"), ("a --entry gemm<8, 3>", "quotes go around"),
        ("", "name of the kernel is missing"), ("2x // twice", "Python name"),
    ],
)  # fmt: skip
def test_a_bad_name(shell, line, said):
    with pytest.raises(CourseError, match=said):
        shell.run_cell_magic("cuda", line, CELL)


def test_errors_are_shown_without_a_traceback(shell, capsys):
    result = shell.run_cell("%%cuda mine\nnonsense")
    assert isinstance(result.error_in_exec, CompileError)
    shown = capsys.readouterr().out
    assert "line 2" in shown and "Traceback" not in shown and "magics.py" not in shown


def test_geometry_and_occupancy_are_reported(shell, capsys):
    shell.run_cell_magic("cuda", "mine", (
        'extern "C" __device__ constexpr int block_shape[] = {32, 8, 1};\n'
        'extern "C" __device__ constexpr int tile_shape[] = {8, 32};\n') + CELL)  # fmt: skip
    shown = capsys.readouterr().out
    assert "32 × 8 × 1 threads compute 8 × 32 elements of C" in shown
    assert "occupancy" in shown


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("naive.check()", "Run the cell that begins with %%cuda naive first"),
        ("widgets.listing(1)", "Run the set-up cell"),
        ("square_guard", "%%cuda square_guard"),
        ("intensity(1, 2, 3)", "Run the cell that defines it"),
    ],
)
def test_cells_run_out_of_order_are_told_what_to_run(shell, capsys, code, hint):
    shell.run_cell(code)
    shown = capsys.readouterr().out
    assert hint in shown and "Traceback" not in shown


def test_other_name_errors_keep_their_traceback(shell, capsys):
    shell.run_cell("x = 1\nmisspelt + x")
    shown = capsys.readouterr().out
    assert "misspelt" in shown and "line 2" in shown


def test_an_interrupted_launch_shows_one_sentence(shell, capsys):
    shell.run_cell_magic("cuda", "mine", "__global__ void k(volatile int* p) { while (*p == 0) {} }")
    capsys.readouterr()
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    shell.run_cell("import numpy\nmine.launch(1, 32, [numpy.zeros(1, numpy.int32)], on='cpu')")
    shown = capsys.readouterr().out
    assert "stopped" in shown and "Traceback" not in shown


def test_an_interrupt_outside_the_course_is_shown_as_ever(shell, capsys):
    shell.run_cell("raise KeyboardInterrupt")
    assert "stopped" not in capsys.readouterr().out
