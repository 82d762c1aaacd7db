"""The control-flow graph's algorithms on small graphs whose answers are plain."""

from helpers.sim.code import cfg

DIAMOND = [[1, 2], [3], [3], [4]]  # 4 is the end
LOOP = [[1], [1, 2], [3]]


def test_cut():
    assert cfg.cut(5, {3, 0, 5}) == [range(3), range(3, 5)]
    assert cfg.cut(2, ()) == [range(2)]
    assert cfg.cut(0, {0}) == []


def test_reachable_and_cycles():
    assert cfg.reachable(DIAMOND) == {0, 1, 2, 3}
    assert cfg.reachable([[2], [2], [3]]) == {0, 2}
    assert cfg.cycles(DIAMOND) == set()
    assert cfg.cycles(LOOP) == {1}
    assert cfg.cycles([[1], [2], [0, 3]]) == {0, 1, 2}


def test_the_loop_around_a_block():
    graph = [(1,), (2, 4), (3,), (1, 3), (4, 5), (6,)]  # 1, 2, 3 go round, 3 and 4 besides on their own; 6 is the end
    assert [cfg.loop_around(graph, block) for block in range(6)] == [set(), {1, 2, 3}, {1, 2, 3}, {1, 2, 3}, {4}, set()]


def test_dominators():
    assert cfg.dominators(DIAMOND) == [0b1, 0b11, 0b101, 0b1001]
    assert cfg.post_dominators(DIAMOND) == [0b11001, 0b11010, 0b11100, 0b11000]
    assert cfg.dominators([]) == []


def test_meeting_points():
    assert cfg.meeting_points(DIAMOND) == [3, 3, 3, None]
    assert cfg.meeting_points(LOOP) == [1, 2, None]
    assert cfg.meeting_points([[1, 2], [3], [3]]) == [None, None, None]  # both ways end


def test_liveness():
    a, b = 0, 1
    assert cfg.uses_and_kills([((a,), (b,), False), ((b,), (a,), False)]) == (0b01, 0b11)
    assert cfg.uses_and_kills([((), (a,), True), ((a,), (), False)]) == (0b01, 0)  # a guard may leave the old value
    uses, kills = zip(*map(cfg.uses_and_kills, ([((), (a, b), False)], [((a,), (a,), False)], [((b,), (), False)])), strict=True)
    assert cfg.live_in(LOOP, uses, kills) == [0, 0b11, 0b10]
    assert list(cfg.members(0b1011)) == [0, 1, 3]
