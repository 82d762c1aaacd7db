"""The instruction cache by itself: what is there, what comes in advance, and what goes."""

from helpers.model import hardware
from helpers.model.cycles.chip import chip
from helpers.model.cycles.code_cache import CodeCache

H200 = chip(hardware.gpu("H200 SXM"))


def test_a_line_comes_after_its_latency_and_stays():
    cache = CodeCache(H200)
    there = cache.when(0, 100.0)
    assert there == 100 + H200["code.latency"] and cache.when(0, 500.0) == there


def test_the_next_lines_come_in_advance_one_after_the_other():
    cache = CodeCache(H200)
    first = cache.when(0, 0.0)
    ahead = int(H200["code.ahead"])
    assert [cache.when(line, first) - first for line in range(1, ahead + 1)] == [H200["code.line"] * k for k in range(1, ahead + 1)]


def test_a_set_keeps_as_many_lines_as_it_has_ways():
    cache = CodeCache(H200)
    lines = [k * len(cache.sets) for k in range(cache.ways + 1)]  # of one set
    for line in lines:
        cache.when(line, 0.0)
    assert list(cache.sets[0]) == lines[1:], "the least recently used has gone"
