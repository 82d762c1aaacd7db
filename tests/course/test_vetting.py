"""What a source says of its configurations itself: refusals in its own words, and its geometry."""

import math
import re

import pytest

from helpers.course.steps import get
from helpers.course.sweep import variant
from helpers.course.vetting import vet
from helpers.errors import CourseError
from helpers.toolchain.compile import compile_source
from tests.course.tiny_kernel import SOURCE

SHARED_TILE = get("shared_tile").kernel_path.read_text(encoding="utf-8")


def test_the_sources_own_asserts_refuse_in_their_words_and_with_their_line():
    points = [{"BM": bm, "BN": bn, "BK": bk} for bm in (16, 32, 64) for bn in (16, 32, 64) for bk in (16, 32, 64)]
    vetted = vet(SHARED_TILE, points)
    assert [item.constants for item in vetted] == points
    good = [item.constants for item in vetted if not item.refused]
    assert good == [{"BM": 16, "BN": 16, "BK": 16}, {"BM": 32, "BN": 32, "BK": 32}]
    line = next(n for n, text in enumerate(SHARED_TILE.split("\n"), 1) if "BK == BN" in text)
    said = {item.refused for item in vetted if item.constants == {"BM": 16, "BN": 32, "BK": 32}}
    assert said == {f"line {line}: Each thread fetches one element of each tile, so all three must be BM x BN."}


def test_it_agrees_with_compiling_one_by_one():
    points = [{"TM": tm, "THREADS": threads} for tm in (1, 2, 3, 4) for threads in (32, 64)]
    for item in vet(SOURCE, points):
        if item.refused:
            with pytest.raises(CourseError, match=re.escape(item.refused.split(": ")[1])):
                compile_source(variant(SOURCE, **item.constants))
        else:
            constants = compile_source(variant(SOURCE, **item.constants)).constants
            assert math.prod(constants["block_shape"]) == item.threads
            assert constants["tile_shape"] == item.tile


def test_more_errors_than_the_compiler_reports_lose_nobody():
    source = SOURCE.replace("static_assert", "static_assert(TM != 3);\n" * 9 + "static_assert")
    vetted = vet(source, [{"TM": 3 if i % 2 else 2, "HOLD": i} for i in range(60)])
    assert [bool(item.refused) for item in vetted] == [i % 2 == 1 for i in range(60)]
    assert [item.shared for item in vetted if not item.refused] == [4 * i for i in range(0, 60, 2)]


def test_a_constant_that_cannot_be_evaluated_is_refused_and_not_fatal():
    source = SOURCE.replace("static_assert", "constexpr int EACH = 64 / HOLD;\nstatic_assert")
    zero, one = vet(source, [{"HOLD": 0}, {"HOLD": 1}])
    assert zero.refused.startswith("line 4:")
    assert not one.refused


def test_includes_and_comments_above_the_declarations_do_no_harm():
    vetted = vet("#include <cuda_fp16.h>\n// __device__ void f() {\n" + SOURCE, [{"TM": 2}, {"TM": 3}])
    assert [item.refused for item in vetted] == ["", "line 6: TM must be even"]


def test_a_kernel_without_geometry_is_told_what_is_missing():
    with pytest.raises(CourseError, match="must state block_shape"):
        vet("constexpr int TM = 2;\n__global__ void f() {}", [{"TM": 2}])
