"""Sources, variants and counts side by side."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers import changes, compare_counts, reference, variants
from helpers.course.comparing import architectures
from helpers.errors import CompileError, CourseError

TRANSPOSED = {"As[ty][tx]": "As[tx][ty]", "As[ty][k]": "As[k][ty]"}


@pytest.fixture(scope="module")
def tried():
    return variants(reference("shared_tile"), {"as it is": {}, "padded": {"As[BM][BK]": "As[BM][BK + 1]"}, "down a column": TRANSPOSED})


@pytest.fixture(scope="module")
def runs(tried):
    return tried.gemm(64, trace=True)


def test_what_changed_is_the_idea_of_the_step_and_nothing_else():
    found = changes(reference("naive"), reference("coalesced"))
    text = str(found)
    assert "- extern" in text and "+     const size_t col = blockIdx.x * BN + threadIdx.x;  // x runs along the columns" in text
    assert "void" not in text, "neither the kernel's name nor the header is a change"
    assert text.count("\n- ") == text.count("\n+ ") == 3
    number = next(i for i, line in enumerate(reference("coalesced").source.split("\n"), 1) if "block_shape" in line)
    assert text.startswith(f"  line {number}\n")
    assert "<div class='new'>+     const size_t col" in found._repr_html_()


def test_white_space_is_no_change():
    assert str(changes("int a;\n\n  int b;", "// header\nint a;\nint  b;")) == "Nothing changed."
    assert str(changes("int a;\nint b;", "int b;")) == "  gone, before line 1\n- int a;"


def test_variants_are_the_readers_kernel_with_other_text(tried):
    mine = helpers.compile(reference("shared_tile").source.replace("sum += a * b;", "sum = a * b + sum;"))
    edited = variants(mine, {"transposed": TRANSPOSED})["transposed"]
    assert "sum = a * b + sum;" in edited.source and "As[tx][ty]" in edited.source
    assert tried["as it is"].source == reference("shared_tile").source
    one = variants(reference("thread_tile_1d"), {"TM = 8": {"TM": 8}})["TM = 8"]
    assert one.compiled.constants["block_shape"][0] == 512


def test_what_the_readers_kernel_no_longer_has_is_said():
    with pytest.raises(CourseError, match="padded: your kernel no longer has “As\\[BM\\]\\[9\\]”"):
        variants(reference("shared_tile"), {"padded": {"As[BM][9]": ""}})
    with pytest.raises(CompileError, match="half: (?s:.*)must be BM x BN"):
        variants(reference("shared_tile"), {"half": {"BK": 16}})


def test_counts_side_by_side(runs):
    found = compare_counts(runs, ["shared loads", "bank conflicts of shared stores", "sectors per load of A", "sectors per load of C"])
    assert found["shared loads"] == {"as it is": 128 * 80, "padded": 128 * 128, "down a column": 128 * 128}
    assert found["bank conflicts of shared stores"]["down a column"] == 2 * 128 * 31
    assert set(found["sectors per load of C"].values()) == {None}
    assert "64 × 64 × 64" in str(found) and "10,240" in str(found) and "–" in str(found)


def test_two_runs_have_a_ratio_and_many_stand_below_each_other(runs):
    two = {name: runs[name] for name in ("as it is", "padded")}
    assert str(compare_counts(two, {"loads": "shared loads", "mine": lambda run: 0})).split("\n")[1:] == [
        "       as it is  padded  ratio", "loads    10,240  16,384   1.60", "mine          0       0",
    ]  # fmt: skip
    many = compare_counts({**runs, "again": runs["padded"]}, ["shared loads"])
    assert str(many).split("\n")[1].split() == ["shared", "loads"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [(32, 4, "0.125"), (40, 22, "0.550"), (4, 32, "8.00"), (1, 1, "1.00"), (10_000, 9_999, "1.00"), (32, 0, "0.00"), (1000, 1, "0.00100")],
)
def test_a_saving_keeps_three_digits(runs, old, new, said):
    first, second = (runs[name] for name in ("as it is", "padded"))
    table = str(compare_counts({"old": first, "new": second}, {"mine": lambda run: old if run is first else new}))
    assert table.split()[-1] == said


def test_a_zero_has_no_minus(runs):
    assert str(compare_counts({"as it is": runs["as it is"]}, {"gained": lambda run: round(-0.001, 1)})).split()[-1] == "0"


def test_nothing_to_compare():
    with pytest.raises(CourseError, match="nothing to compare"):
        compare_counts({}, ["shared loads"])


@pytest.mark.parametrize(
    "given", [(3, ["shared loads"]), (["a"], ["shared loads"]), ({"a": None}, 3), ({"a": None}, "shared loads")], ids=str
)
def test_what_is_no_comparison_is_a_sentence(given):
    with pytest.raises(CourseError, match="compare_counts wants"):
        compare_counts(*given)


@pytest.mark.parametrize(
    ("edits", "sentence"),
    [
        ({3: 4}, "a: what is changed is the name of a constant or a text of the kernel, not 3"),
        ({3: "4"}, "a: what is changed is .*, not 3"),
        ({"": "x"}, "a: what is changed is .*, not ''"),
        ({"source": 4}, "a: The kernel sets source to a number in 0 places"),
    ],
    ids=str,
)
def test_what_no_variant_can_change_is_a_sentence(edits, sentence):
    with pytest.raises(CourseError, match=sentence):
        variants(reference("naive"), {"a": edits})


@pytest.mark.parametrize(
    ("given", "wanted", "sentence"),
    [
        (3, ["global loads per result"], "“global loads per result” of a: This is counted in a run, .* and this is of type int"),
        (3, ["registers per thread"], "“registers per thread” of a cannot be had: AttributeError: "),
        (3, {"mine": lambda run: run / 0}, "“mine” of a cannot be had: ZeroDivisionError: division by zero"),
        (3, {"mine": str}, "“mine” of a is to be a number, and is '3'"),
        (3, [["shared loads"]], "Nothing here counts"),
    ],
    ids=["no run", "neither run nor kernel", "a function that raises", "no number", "no words"],
)
def test_a_row_that_cannot_be_had_is_named(given, wanted, sentence):
    with pytest.raises(CourseError, match=sentence):
        compare_counts({"a": given}, wanted)


def test_an_array_that_no_run_has_is_a_mistake_and_one_that_some_have_a_dash(runs):
    name, run = next(iter(runs.items()))
    with pytest.raises(CourseError, match="“sectors per load of D”: The kernel has no array D; it has "):
        compare_counts({name: run, "again": run}, ["sectors per load of A", "sectors per load of D"])
    source = "__global__ void set(float* D) { D[threadIdx.x] *= 2; }"
    other = helpers.compile(source).launch(1, 32, [np.zeros(32, np.float32)], on="cpu", trace=True)
    assert compare_counts({name: run, "other": other}, ["sectors per load of D"])["sectors per load of D"] == {name: None, "other": 4}


def test_a_gain_and_a_loss_have_no_ratio():
    found = str(
        compare_counts(
            {"a": 0.3, "b": -3.2}, {"gain": lambda value: value, "loss": lambda value: -value, "losses": lambda value: -abs(value)}
        )
    )
    assert [line.split() for line in found.splitlines()[1:]] == [
        ["gain", "0.3", "-3.2"],
        ["loss", "-0.3", "3.2"],
        ["losses", "-0.3", "-3.2", "10.67"],
    ]


def test_names_may_be_numbers_and_values_no_finite_ones():
    found = compare_counts({3: 1.0, 4: float("nan")}, {5: lambda value: value})
    assert str(found).split() == ["3", "4", "ratio", "5", "1", "nan", "nan"]
    assert found[5][3] == 1
    with pytest.raises(CourseError, match="Nothing was counted as 'nosuch'. There are: 5."):
        found["nosuch"]
    assert variants(reference("naive"), {3: {}})[3].lesson_name == "3"


def test_one_kernel_for_several_architectures():
    kernel = reference("naive")
    found = architectures(kernel, ("sm_80", "sm_90"))
    assert list(found) == ["sm_80", "sm_90"] and found["sm_80"].compiled.arch == "sm_80" and found["sm_90"] is kernel
    with pytest.raises(CompileError):
        architectures(kernel, ("sm_80", "sm_1"))
