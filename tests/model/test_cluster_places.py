"""Clusters of blocks: where they stand, which hang over the edge of C, and how many places there are for them."""

import pytest

from helpers.course import steps
from helpers.model import hardware
from helpers.model.cluster_places import box_of_a, cluster_of, hangs_over, most_blocks
from helpers.run import kernel
from helpers.sim.code.sass import parse
from helpers.sim.counting.machine_code import BulkCopy

H200, A100 = hardware.gpu("H200 SXM"), hardware.gpu("A100 SXM4 40GB")


def compiled(slug):
    step = steps.get(slug)
    return kernel.compile(step.kernel_path.read_text(encoding="utf-8"), entry=step.entry, arch=step.target()).compiled


def test_a_cluster_stands_where_its_blocks_share():
    """Step 17's blocks beside each other each copy half of A's rows, step 18's below each other half of B's columns."""
    for slug, sizes in (("warp_specialized", [(256, 128), (512, 384)]), ("fp32_on_tensor_cores", [(128, 256), (384, 512)])):
        made = compiled(slug)
        assert cluster_of(made) == (2, 1, 1)
        assert all(hangs_over(made, m, n) for m, n in sizes), slug
        assert not any(hangs_over(made, 2 * m, 2 * n) for m, n in sizes), slug


def test_what_each_block_copies_for_itself_says_more_than_a_box():
    """Where the first block alone has copies for all of its cluster, boxes do not tell what is shared."""
    made = compiled("warp_specialized")  # tiles of 256 x 128, beside each other by its boxes
    plain = next(i.index for i in parse(made.sass)[made.symbol].instructions if i.opcode == "UTMALDG.2D")
    for tensor, (m, n) in ((0, (256, 256)), (1, (512, 128))):  # copies rows of A for itself, so it stands below; columns of B, beside
        own = {plain: BulkCopy(8192, 1.0, tensor, True)}
        assert hangs_over(made, m, n, own) and not hangs_over(made, 512, 256, own)
    assert hangs_over(made, 512, 128, {plain: BulkCopy(8192, 1.0, None, True)}), "of a map that is not known, boxes tell"


def test_blocks_that_share_no_copies_hang_over_nothing():
    made = compiled("tma_wgmma")
    assert cluster_of(made) == (1, 1, 1) and box_of_a(made) == (128, 64) and not hangs_over(made, 128, 256)
    naive = compiled("naive")
    assert box_of_a(naive) == (0, 1) and not hangs_over(naive, 32, 32)


@pytest.mark.parametrize(
    ("blocks", "cluster", "walking", "most"),
    [
        (132, 1, 0, 1), (133, 1, 0, 2), (132, 2, 0, 1), (134, 2, 0, 2), (120, 4, 0, 1), (124, 4, 0, 2),
        # 512 tiles: 66 pairs have four each at most; of 33 clusters of four 30 have up to four, and the last three have three.
        (32, 2, 1, 1), (32, 4, 1, 1), (512, 2, 1, 4), (512, 4, 1, 7),
    ],
)  # fmt: skip
def test_clusters_of_which_too_few_fit_come_in_rounds(blocks, cluster, walking, most):
    assert [H200.clusters_of(blocks) for blocks in (1, 2, 4)] == [132, 66, 30] and A100.clusters_of(4) == 27
    assert most_blocks(blocks, H200, cluster, 1, walking) == most


def test_blocks_that_share_a_multiprocessor_come_together():
    assert H200.clusters_of(4, 2) == 63 and H200.clusters_of(4, 8) == 261, "what is left over of a part of the chip is less than a cluster"
    assert most_blocks(264, H200, 2, 2) == 2 and most_blocks(266, H200, 2, 2) == 4
