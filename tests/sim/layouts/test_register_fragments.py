"""Fragment layouts: every element has exactly one owner, and single elements are where the PTX ISA's tables put them."""

import numpy as np
import pytest

from helpers.sim.layouts.register_fragments import Shape, fragment, ldmatrix_fragment, metadata, shapes

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
    assert sorted(zip(lane.ravel(), element.ravel(), strict=False)) == [
        (row, column) for row in range(32) for column in range(part.rows.shape[1])
    ]
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
    assert list(zip(part.rows[lane], part.columns[lane], strict=False))[: len(elements)] == elements


def test_ldmatrix_gives_each_lane_two_neighbours():
    part = ldmatrix_fragment()
    assert list(zip(part.rows[13], part.columns[13], strict=False)) == [(3, 2), (3, 3)]
    assert np.unique(part.owner()[0], return_counts=True)[1].tolist() == [2] * 32


def test_instructions_are_found_in_ptx():
    ptx = """
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f5,%f6,%f7,%f8}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f5,%f6,%f7,%f8};
    wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 0;
    mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.u8.s32 {%r1}, {%r1}, {%r1}, {%r1}, %r1, 0;
    mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32 {%f1}, {%r1}, {%r1}, {%f1};
    """
    opcodes = ptx.split()
    *_, sparse, volta = shapes(opcodes)
    assert (sparse.name, sparse.sparse, sparse.turned) == ("sp.m16n8k64.row.col.satfinite.s32.s8.u8.s32", True, "")
    assert volta.turned == "ab" and volta.volta and not sparse.volta
    assert [(s.name, s.m, s.n, s.k, s.a_type, s.c_type, s.warps) for s in shapes(opcodes)[:2]] == [
        ("m16n8k16.row.col.f32.bf16.bf16.f32", 16, 8, 16, "bf16", "f32", 1), ("m64n64k16.f32.f16.f16", 64, 64, 16, "f16", "f32", 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "shape",
    [
        Shape("m16n8k4", 16, 8, 4, "f16", "f16", "f32"),
        Shape("m16n8k10", 16, 8, 10, "f16", "f16", "f32"),
    ],
)
def test_layouts_that_are_not_tabulated_are_refused(shape):
    for operand in "ab":
        with pytest.raises(ValueError, match="not tabulated"):
            fragment(shape, operand)


@pytest.mark.parametrize("operand, lanes", [("a", [5, 21]), ("b", [5, 21]), ("c", [5, 21])])
def test_eight_lanes_hold_each_of_voltas_matrices(operand, lanes):
    part = fragment(Shape("m8n8k4", 8, 8, 4, "f16", "f16", "f32"), operand)
    assert part.count == 4 and part.part[lanes].tolist() == [1, 1]
    owners = np.stack([part.owner(i)[0] for i in range(4)])
    assert (owners >= 0).all() and [sorted(set(owner.ravel().tolist())) for owner in owners] == [
        [*range(4 * i, 4 * i + 4), *range(16 + 4 * i, 20 + 4 * i)] for i in range(4)
    ]


def test_a_sparse_fragment_holds_what_is_stored():
    shape = Shape("sp", 16, 8, 32, "f16", "f16", "f32", sparse=True)
    assert (fragment(shape, "a").width, fragment(shape, "b").height) == (16, 32)


@pytest.mark.parametrize("kind, k, selectors", [("f16", 16, 4), ("bf16", 32, 2), ("tf32", 8, 4), ("tf32", 16, 2), ("s8", 32, 2), ("u8", 64, 1),
                                                ("s4", 64, 2), ("u4", 128, 1), ("e4m3", 64, 1)])  # fmt: skip
def test_metadata_covers_the_lanes_that_the_selector_names(kind, k, selectors):
    """Four bits for every two elements stored (every one of tf32), all different, in the lanes that the selector names."""
    for selector in range(selectors):
        lane, bit = metadata(kind, k, selector)
        used = set(zip(lane.ravel().tolist(), bit.ravel().tolist(), strict=False))
        assert len(used) == lane.size
        assert {n % 4 for n, _ in used} == set(range(4 // selectors * selector, 4 // selectors * (selector + 1)))


def test_what_no_sparse_product_has_is_refused():
    with pytest.raises(ValueError, match="no sparse product of f16 has K = 64"):
        metadata("f16", 64, 0)
