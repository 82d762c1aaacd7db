"""The two changes of LLVM's code that let it merge accesses, and where they must not be made."""

import pytest

from helpers.toolchain.widening import with_offsets, worthwhile

FUNCTION = """define void @k() {
  %t = call range(i32 0, RANGE) i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %x = lshr i32 %t, 1
  %row = and i32 %x, 120
  %last = or i32 %x, LAST
  %next = or disjoint i32 %row, 1
}"""


@pytest.mark.parametrize(
    ("reach", "last", "made"),
    [
        (256, 7, "%last = add nuw nsw i32 %row, 7"),
        (1024, 7, "%last = or i32 %x, 7"),  # x can have bits above those of the mask
        (256, 15, "%last = or i32 %x, 15"),  # and row some of these
        (256, 5, "%last = or i32 %x, 5"),  # which does not set what was cleared
    ],
)
def test_a_forgotten_mask_comes_back_where_that_changes_no_value(reach, last, made):
    code = with_offsets(FUNCTION.replace("RANGE", str(reach)).replace("LAST", str(last)))
    assert made in code
    assert "%next = add nuw nsw i32 %row, 1" in code


def test_it_is_worth_a_second_run_where_most_is_narrow():
    narrow, wide = "ld.shared.b32 \t%r1, [%rd1];\n", "ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];\n"
    assert worthwhile(narrow * 8 + wide)
    assert not worthwhile(narrow + wide * 8)
    assert not worthwhile("ld.global.b32 \t%r1, [%rd1];\n")
