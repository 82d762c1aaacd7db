"""Fragment layouts: every element has exactly one owner, and single elements are where the PTX ISA's tables put them."""

import numpy as np
import pytest

from helpers.sim.fragments import Shape, fragment, ldmatrix_fragment, shapes

BF16 = Shape("m16n8k16", 16, 8, 16, "bf16", "bf16", "f32")
F16_K8 = Shape("m16n8k8", 16, 8, 8, "f16", "f16", "f16")
TF32 = Shape("m16n8k8", 16, 8, 8, "tf32", "tf32", "f32")
TF32_K4 = Shape("m16n8k4", 16, 8, 4, "tf32", "tf32", "f32")
S8 = Shape("m16n8k32", 16, 8, 32, "s8", "s8", "s32")
WGMMA = Shape("m64n128k16", 64, 128, 16, "bf16", "bf16", "f32", 4)


@pytest.mark.parametrize("shape", [BF16, F16_K8, TF32, TF32_K4, S8, WGMMA], ids=lambda shape: f"{shape.name}-{shape.a_type}")
@pytest.mark.parametrize("operand", "abc")
def test_every_element_has_one_owner(shape, operand):
    if shape is WGMMA and operand == "b":
        with pytest.raises(ValueError, match="shared memory"):
            fragment(shape, operand)
        return
    part = fragment(shape, operand)
    lane, element = part.owner()
    assert part.rows.size == part.height * part.width
    assert sorted(zip(lane.ravel(), element.ravel())) == [(l, e) for l in range(32) for e in range(part.rows.shape[1])]
    assert part.rows.shape[1] % part.per_register == 0


@pytest.mark.parametrize(
    "shape, operand, lane, elements",
    [
        # groupID = lane / 4, threadID_in_group = lane % 4, as in the tables of the PTX ISA
        (BF16, "a", 5, [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11), (9, 10), (9, 11)]),
        (BF16, "b", 5, [(2, 1), (3, 1), (10, 1), (11, 1)]),
        (BF16, "c", 5, [(1, 2), (1, 3), (9, 2), (9, 3)]),
        (F16_K8, "a", 31, [(7, 6), (7, 7), (15, 6), (15, 7)]),
        (TF32, "a", 6, [(1, 2), (9, 2), (1, 6), (9, 6)]),
        (TF32, "b", 6, [(2, 1), (6, 1)]),
        (TF32_K4, "a", 6, [(1, 2), (9, 2)]),
        (S8, "a", 1, [(0, 4), (0, 5), (0, 6), (0, 7), (8, 4), (8, 5), (8, 6), (8, 7), (0, 20), (0, 21), (0, 22), (0, 23),
                      (8, 20), (8, 21), (8, 22), (8, 23)]),
        (WGMMA, "c", 5, [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11), (9, 10), (9, 11)]),
    ],
)  # fmt: skip
def test_elements_of_a_lane(shape, operand, lane, elements):
    part = fragment(shape, operand)
    assert list(zip(part.rows[lane], part.columns[lane]))[: len(elements)] == elements


def test_ldmatrix_gives_each_lane_two_neighbours():
    part = ldmatrix_fragment()
    assert list(zip(part.rows[13], part.columns[13])) == [(3, 2), (3, 3)]
    assert np.unique(part.owner()[0], return_counts=True)[1].tolist() == [2] * 32


def test_instructions_are_found_in_ptx():
    ptx = """
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f5,%f6,%f7,%f8}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f5,%f6,%f7,%f8};
    wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 0;
    """
    assert [(s.name, s.m, s.n, s.k, s.a_type, s.c_type, s.warps) for s in shapes(ptx)] == [
        ("m16n8k16.row.col.f32.bf16.bf16.f32", 16, 8, 16, "bf16", "f32", 1), ("m64n64k16.f32.f16.f16", 64, 64, 16, "f16", "f32", 4),
    ]  # fmt: skip


@pytest.mark.parametrize("shape", [Shape("m8n8k4", 8, 8, 4, "f16", "f16", "f32"), Shape("m16n8k10", 16, 8, 10, "f16", "f16", "f32")])
def test_layouts_that_are_not_tabulated_are_refused(shape):
    for operand in "ab":
        with pytest.raises(ValueError, match="not tabulated"):
            fragment(shape, operand)
