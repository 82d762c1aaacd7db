"""What copies in bulk take of L2, by who else wants the same."""

from types import SimpleNamespace

import pytest

from helpers.model import hardware
from helpers.model.cycles.bulk_rates import rates
from helpers.model.cycles.chip import chip
from helpers.model.cycles.estimate import estimate
from helpers.run import gemm
from helpers.sim.code.sass import SassInstruction
from helpers.sim.counting.machine_code import BulkCopy
from tests.model.test_tensor_cores import counted

H200 = chip(hardware.gpu("H200 SXM"))
COPY, MULTICAST, STORE = (
    SassInstruction(index, 16 * index, "", opcode, operands, None, None)
    for index, (opcode, operands) in enumerate(
        [("UTMALDG.2D", ("[UR4]", "[UR8]")), ("UTMALDG.2D.MULTICAST", ("[UR4]", "[UR8]", "UR16")), ("UTMASTG.2D", ("[UR4]", "[UR8]"))]
    )
)


def of(fresh=None, size=2048, cluster=1, beyond=0.0, walks=False):
    problem = gemm.Problem(size, size, size, dtype="bfloat16")
    run = SimpleNamespace(problem={"problem": problem} | ({"tiles": 64} if walks else {}))
    copies = {} if fresh is None else {0: BulkCopy(16384, fresh)}
    return rates((COPY, MULTICAST, STORE), copies, run, cluster, beyond, H200)


def test_what_neighbours_want_too_takes_less_of_l2():
    shared, half, alone = (of(fresh)[0][1] for fresh in (1 / 16, 1 / 2, 1))
    assert shared < half < alone < H200["load_store.l2_sector"]
    assert of(1 / 2, beyond=1.0)[0][1] == half + H200["bulk.far"]


def test_blocks_that_walk_tiles_come_to_be_apart_whatever_they_share():
    assert of(1 / 16, walks=True)[0] == of(1, walks=True)[0] == of()[0], "as where nobody knows what is shared"


def test_rows_that_begin_within_lines_are_not_shared():
    own, every = of(1 / 16, size=2052)[0]
    assert own == pytest.approx(2.1 * of()[0][0]) and every == H200["bulk.split"] > 2 * of(1 / 16)[0][1]


def test_copies_of_a_cluster_have_a_rate_of_their_own_and_stores_none():
    found = of(1 / 16, cluster=2)
    assert found.keys() == {0, 1} and found[1][1] == H200["bulk.multicast"] < found[0][1] == H200["bulk.sector"]
    assert {rate for _, rate in of(size=2052, cluster=2).values()} == {H200["bulk.cluster_split"]}


@pytest.mark.slow
def test_step_16_is_held_up_by_l2_where_its_neighbours_share_nothing():
    """With panels of one row 16 blocks want 16 tiles of B, with panels of eight two. As recorded 205 and 200 us."""
    times = [estimate(counted("tma_wgmma", 4096, PANEL=panel), H200.gpu)[0].cycles for panel in (8, 1)]
    assert 1 < times[1] / times[0] < 1.1
