"""Variants of a kernel by its constants, side by side."""

from __future__ import annotations

import re

import numpy as np
import pytest

from helpers.course.steps import get
from helpers.course.sweep import sweep, variant
from helpers.errors import CompileError, CourseError

SOURCE = get("thread_tile_1d").kernel_path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def found():
    return sweep(SOURCE, [{"BM": 16, "BN": 16, "TM": tm} for tm in (1, 8, 16)], size=64, gpu_name="RTX 3090")


def test_a_variant_is_the_same_text_with_another_number():
    assert variant(SOURCE, TM=8) == SOURCE.replace("TM = 16;", "TM = 8;") != SOURCE


@pytest.mark.parametrize("name", ["TN", "T", "THREADS", "source"])
def test_a_constant_that_is_not_set_in_one_place_is_refused(name):
    with pytest.raises(CourseError, match="in 0 places"):
        variant(SOURCE, **{name: 3})


@pytest.mark.slow
def test_shared_loads_fall_and_rise_as_published(found):
    # 1D coarsening of 16 x 16 tiles on an RTX 3090: 83.89, 25.17, 41.94 M shared loads; occupancy 100, 33.33 % at 1 and 8
    ratios = [item.shared_loads / found.settings[0].shared_loads for item in found.settings]
    assert ratios == pytest.approx([1, 25.17 / 83.89, 41.94 / 83.89], rel=1e-3)
    assert [item.threads for item in found.settings] == [256, 32, 16]
    assert [round(item.occupancy.fraction, 4) for item in found.settings[:2]] == [1, 0.3333]


def test_half_a_warp_does_half_the_multiply_adds(found):
    one, eight, half = (item.fma_share for item in found.settings)
    assert one < eight < 1 and half < eight


def test_the_table_names_what_differs_and_how_the_time_was_had(found):
    text = str(found)
    assert found.names == ("TM = 1", "TM = 8", "TM = 16")
    assert "64 × 64 × 64, RTX 3090, BM = 16, BN = 16" in text and "TFLOPS, predicted" in text
    assert found._repr_html_().count("<tr>") == 4


def test_what_the_kernel_forbids_is_said_in_its_own_words():
    with pytest.raises(CompileError, match="TM must divide BM"):
        sweep(SOURCE, [{"TM": 48}], size=64)


LATE = SOURCE.replace("constexpr int TM = 16;", "constexpr int TM = 16; constexpr int WRONG = 0;")
LATE = LATE.replace("alpha * sum[i] :", "alpha * sum[i] + WRONG :")


@pytest.fixture(scope="module")
def some_fail():
    """A static_assert that says no, a block of more shared memory than there is, a wrong product, and two that are right."""
    settings = [{"TM": 48, "WRONG": 0}, {"TM": 8, "WRONG": 0}, {"TM": 16, "WRONG": 1}, {"TM": 16, "WRONG": 0}]
    return sweep(LATE, settings, size=64)


@pytest.mark.slow
def test_a_setting_that_fails_says_so_in_its_row_and_the_others_keep_theirs(some_fail):
    assert [item.constants["TM"] for item in some_fail.settings] == [8, 16]
    assert some_fail.names == ("TM = 8, WRONG = 0", "TM = 16, WRONG = 0")
    rows = some_fail.table().rows
    assert [(row[0], row[-1]) for row in (rows[0], rows[2])] == [
        ("TM = 48, WRONG = 0", "not compiled"), ("TM = 16, WRONG = 1", "wrong result"),
    ]  # fmt: skip
    assert all(float(row[-1]) > 0 and float(row[1]) for row in (rows[1], rows[3]))
    asserted, wrong = some_fail.table().below
    assert re.fullmatch(r"TM = 48, WRONG = 0 does not compile: line \d+: TM must divide BM.*", asserted)
    assert wrong.startswith("TM = 16, WRONG = 1 computes a wrong product: 4096 of 4096 elements of C are wrong")
    assert some_fail.left_out == "TM = 48, WRONG = 0 (not compiled), TM = 16, WRONG = 1 (wrong result)"


@pytest.mark.slow
def test_a_setting_that_leaves_out_a_part_of_k_is_wrong_at_the_size_of_the_sweep():
    """It has less to do, and would be the fastest."""
    source = LATE.replace("WRONG = 0;", "DEEP = 4096;").replace(" + WRONG", "").replace("k0 < K;", "k0 < min(K, DEEP);")
    assert source.count("min(K, DEEP)") == 1
    found = sweep(source, [{"DEEP": 4096}, {"DEEP": 256}], size=320)
    assert len(found.settings) == 1 and found.left_out == "DEEP = 256 (wrong result)" and "elements of C" in found.failed[0].why


def test_a_setting_that_cannot_be_launched_is_told():
    shared = SOURCE.replace(
        "extern", 'constexpr int SHARED = 0; extern "C" __device__ constexpr int dynamic_shared[] = {SHARED}; extern', 1
    )
    found = sweep(shared, [{"SHARED": 1024}, {"SHARED": 1 << 20}], size=64)
    assert [item.constants["SHARED"] for item in found.settings] == [1024] and found.failed[0].what == "not run"
    assert found.table().below[0].startswith("SHARED = 1048576 does not run: ")


def test_where_all_fail_each_is_named():
    with pytest.raises(CourseError) as caught:
        sweep(SOURCE, [{"TM": 48}, {"TM": 16, "BK": 7}], size=64)
    assert re.search(
        r"None of the settings is to be compared\.\nTM = 48 does not compile: line \d+: .*\nTM = 16, BK = 7 does not compile: line ",
        caught.value.message,
    )


@pytest.mark.parametrize("constants", [{"BM": 64}, None, [3], [{3: 64}], "BM", [{"TM": 8}, None]])
def test_what_is_no_list_of_settings_is_refused(constants):
    with pytest.raises(CourseError, match=r"constants: give a list of settings, such as \[{'BM': 64}, {'BM': 128}\]"):
        sweep(SOURCE, constants)


@pytest.mark.parametrize("value", ["8", "x", 1.5, True, None, [8]])
def test_a_constant_is_a_whole_number(value):
    for ask in (lambda: variant(SOURCE, TM=value), lambda: sweep(SOURCE, [{"TM": value}])):
        with pytest.raises(CourseError, match=r"TM=.*: a constant is set to a whole number, such as TM=64"):
            ask()
    assert variant(SOURCE, TM=np.int64(8)) == variant(SOURCE, TM=8)


@pytest.mark.parametrize("source", [None, 3, ["x"]])
def test_what_is_no_source_has_no_variants(source):
    for ask in (lambda: variant(source, TM=8), lambda: sweep(source, [{"TM": 8}])):
        with pytest.raises(CourseError, match="a source is text, and this is"):
            ask()


def test_an_empty_sweep_is_refused():
    with pytest.raises(CourseError, match="nothing to sweep"):
        sweep(SOURCE, [])
