"""The line behind %%cuda: every way to write one that says something, and what is said of those that say nothing."""

from __future__ import annotations

import pytest

from helpers.front import magic_line
from helpers.front.magics import CudaMagics


def read(line: str) -> magic_line.MagicLine:
    return magic_line.read(CudaMagics.cuda.parser, line)


@pytest.mark.parametrize(
    ("line", "transa", "transb"),
    [
        ("mine", None, None), ("mine --transb", None, "T"), ("--transb mine", None, "T"), ("--transb T mine", None, "T"),
        ("--transb=N mine", None, "N"), ("--TRANSB mine --transa", "T", "T"), ("--transa --transb mine", "T", "T"),
        ("--transa mine --transb 0", "T", "0"), ("mine --transb 'T'", None, "'T'"), ("mine --transb C", None, "C"),
        ("mine --transb # it's by columns", None, "T"), ("mine // --transb", None, None), ("mine # --transb", None, None),
        ("mine #transb", None, None), ("  mine  --transb\t", None, "T"),
    ],
)  # fmt: skip
def test_a_name_may_stand_before_or_behind_the_options_and_before_a_comment(line, transa, transb):
    found = read(line)
    assert (found.name, found.mistake) == ("mine", "") and found.arguments.name == "mine"
    assert (found.arguments.transa, found.arguments.transb) == (transa, transb)


def test_what_looks_like_a_comment_within_a_value_is_none():
    found = read("mine -o '-DURL=a // b' --entry 'gemm<#>' -o=-DHASH=#")
    assert found.arguments.option == ["'-DURL=a // b'", "-DHASH=#"] and found.arguments.entry == "'gemm<#>'"


@pytest.mark.parametrize(
    ("line", "name", "said"),
    [
        ("mine --transbb", "mine", "there is no option --transbb: did you mean --transb?"),
        ("--transbb mine", "mine", "there is no option --transbb: did you mean --transb?"),
        ("mine —transb", "mine", "there is no option —transb: did you mean --transb?"),
        ("mine --ARCH sm_90", "mine", "there is no option --ARCH: did you mean --arch?"),
        ("--foo mine", "mine", "there is no option --foo. There are: --entry, --arch, --transa, --transb, --option."),
        ("mine --trans", "mine", "ambiguous option: --trans could match --transa, --transb."),
        ("mine --arch", "mine", "--arch wants a value behind it."),
        ("mine -o -ftz=true", "mine", "-o wants a value behind it, joined by “=” if it begins with a hyphen: -o=-ftz=true."),
        ("my kernel", "my", "“kernel” belongs to no option, and a name is one word, such as my_kernel."),
        ("mine --entry gemm<8, 3>", "mine", "“3>” belongs to no option, and quotes go around a value with spaces."),
        ("mine --entry 'gemm<8>", "mine", "no closing quotation."),
        ("--arch sm_80 mine --arch sm_90", "mine", "--arch is there twice."),
        ("mine --transb N --transb", "mine", "--transb is there twice."),
        ("--transb T --transb mine", "mine", "--transb is there twice."),
        ("--entry plain --bad mine", "mine", "there is no option --bad"),
        ("", "", "the name of the kernel is missing."),
        ("--transb", "", "the name of the kernel is missing."),
        ("--transb T", "", "the name of the kernel is missing: T is taken for the value of --transb."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_and_whose_line_it_is(line, name, said):
    found = read(line)
    assert found.arguments is None and found.name == name
    assert said in found.mistake and "Write, for example: %%cuda naive" in found.mistake


@pytest.mark.parametrize("line", ["-o mine", "--entry=mine", "--arch mine --transb", "--transb=mine", "-o a -o mine"])
def test_a_value_may_have_been_meant_for_the_name(line):
    found = read(line)
    assert found.name == "" and found.perhaps == "mine" and "mine is taken for the value of -" in found.mistake


def test_a_long_line_is_cut_where_it_is_quoted():
    assert len(read("mine " + "x" * 5000).mistake) < 400
