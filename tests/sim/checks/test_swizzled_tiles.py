"""What is said beside wrong elements of a product whose tiles are read in another layout than they were copied in."""

import pytest

import helpers
from helpers.course.exercises import exercise
from helpers.run import gemm

SLUG = "tma_wgmma"
TWO = "descriptor of {} says a swizzle of {}, and the box was copied with {}"
ABOVE = "Elements of the matrix {} that the wgmma at line"
SPAN = "descriptor(now.B + kk * 64, 64 * BK * sizeof(Element))"
CASES = {
    "a box with no swizzle": ("box_A[] = {BM, BK, 128}", "box_A[] = {BM, BK, 0}", [TWO.format("A", "128 bytes", "none")]),
    "a descriptor of 64 bytes": ("1ull << 62", "2ull << 62", [TWO.format(name, "64 bytes", "128 bytes") for name in "AB"]),
    "blocks of four lines": ("8 * 128 >> 4", "4 * 128 >> 4", [ABOVE.format(name) for name in "AB"]),
    "spans that do not follow": (SPAN, "descriptor(now.B + kk * 64, 16)", [ABOVE.format("B")]),
}


def checked(old: str, new: str):
    source = helpers.reference(SLUG).source
    assert source.count(old) == 1
    kernel = helpers.compile(source.replace(old, new), entry=SLUG, arch="sm_90a")
    return gemm.check(kernel, gemm.problem_for(kernel, 128, 256, 128), on="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_layouts_of_a_tile_are_told_beside_the_elements_that_are_wrong(case):
    old, new, said = CASES[case]
    report = checked(old, new)
    (message,) = [item.message for item in report.cases]
    assert all(text in message for text in said) and "elements of C are wrong" in message
    waits = [finding for finding in report.findings if finding.kind == "missing-wait"]
    assert all("another swizzle than the copy" in finding.advice for finding in waits)


@pytest.mark.slow
def test_where_both_agree_nothing_is_said():
    """Also of elements that are wrong for another reason."""
    report = checked("const float x = alpha * d[2 * i]", "const float x = 2 * alpha * d[2 * i]")
    (message,) = [item.message for item in report.cases]
    assert "elements of C are wrong" in message and "swizzle" not in message and "on top of each other" not in message


def test_a_descriptor_that_reaches_beyond_its_box_is_told_as_that():
    """Its swizzle is right; that of the box behind is another, and B's."""
    item = exercise("sixteen_k")
    assert item.solution.count("descriptor(As + kk, 8 * 64, 2)") == 1
    kernel = helpers.compile(item.solution.replace("(As + kk, 8 * 64, 2)", "(As + kk, 8 * 128, 2)"), entry="sixteen_k", arch="sm_90a")
    (case,) = gemm.check(kernel, gemm.problem_for(kernel, 64, 64, 64), on="cpu").cases
    lines = kernel.source.splitlines()
    a, b = (next(number for number, line in enumerate(lines, 1) if f"load({name}" in line) for name in ("As", "Bs"))
    assert f"reaches beyond the box that the copy at line {a} brings, into that of line {b}" in case.message
    assert "says a swizzle of" not in case.message


@pytest.mark.parametrize("descriptor", ["(As + kk, 1024, 1)", "(As + kk, 512, 1)"])
def test_the_box_in_which_a_descriptor_begins_is_the_one_it_means(descriptor):
    """Another one is behind it, with the swizzle that the descriptor has by mistake."""
    item = exercise("sixteen_k")
    kernel = helpers.compile(item.solution.replace("(As + kk, 8 * 64, 2)", descriptor), entry="sixteen_k", arch="sm_90a")
    (case,) = gemm.check(kernel, gemm.problem_for(kernel, 64, 64, 64), on="cpu").cases
    assert "the descriptor of A says a swizzle of 128 bytes, and the box was copied with 64 bytes" in case.message
    assert "reaches beyond" not in case.message and "on top of each other" not in case.message
