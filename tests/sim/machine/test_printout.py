"""printf: as C's, and never so much that the notebook drowns."""

import time

import numpy as np
import pytest

import helpers
from helpers.course.lesson import reference
from helpers.run import gemm
from helpers.sim.machine import printout


def test_a_printf_in_a_loop_is_cut_and_counted(capsys):
    kernel = helpers.compile('__global__ void k(int n) { for (int i = 0; i < n; i++) printf("%d\\n", i); }')
    kernel.launch(1, 32, (3000,), on="cpu", counters=False)
    printed = capsys.readouterr().out
    assert printed.count("\n") <= printout.LINES + 3
    assert f"… and {32 * 3000 - printout.LINES:,} more lines of printf." in printed


def test_an_endless_loop_says_how_much_more_it_printed(capsys):
    kernel = helpers.compile('__global__ void k(volatile int* a) { while (a[0] == 0) printf("waiting\\n"); }')
    with pytest.raises(helpers.RunError, match="may never end"):
        kernel.launch(1, 32, (np.zeros(1, np.int32),), on="cpu", counters=False, seconds=1)
    assert "more lines of printf" in capsys.readouterr().out


@pytest.mark.parametrize("call", ['printf("%1000000000d\\n", n)', 'printf("%.2000000000f", 1.0)', 'printf("%*d", 1 << 30, n)'])
def test_a_field_wider_than_any_output_is_a_sentence(call):
    start = time.monotonic()
    with pytest.raises(helpers.RunError, match="line 1: .*printf for more than"):
        helpers.compile(f"__global__ void k(int n) {{ {call}; }}").launch(1, 32, (1,), on="cpu")
    assert time.monotonic() - start < 20


def test_launches_of_one_check_print_as_much_as_one(capsys):
    kernel = helpers.compile('__global__ void k(int n) { for (int i = 0; i < n; i++) printf("%d\\n", i); }')
    with printout.together():
        for _ in range(3):
            with printout.together():
                kernel.launch(1, 32, (30,), on="cpu", counters=False)
        assert capsys.readouterr().out.count("\n") == printout.LINES
    assert capsys.readouterr().out == f"\n… and {3 * 32 * 30 - printout.LINES:,} more lines of printf.\n"
    kernel.launch(1, 32, (1,), on="cpu", counters=False)
    assert capsys.readouterr().out.count("\n") == 32


def test_a_check_is_such_a_block(capsys):
    source = reference("naive").source.replace("float sum = 0;", 'float sum = 0; printf("here\\n");')
    gemm.check(helpers.compile(source), [gemm.Problem(32, 32, 1), gemm.Problem(40, 40, 1)], on="cpu")
    assert capsys.readouterr().out.count("here") == printout.LINES
