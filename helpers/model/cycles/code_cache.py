"""The instruction cache of a multiprocessor."""

from __future__ import annotations

from collections import OrderedDict

from .chip import Chip


class CodeCache:
    """Sets of lines, the least recently used of a set goes."""

    def __init__(self, chip: Chip):
        self.ways = int(chip["code.ways"])
        self.sets: list[OrderedDict[int, float]] = [OrderedDict() for _ in range(max(1, int(chip["code.lines"]) // self.ways))]
        self.ahead, self.each, self.latency = int(chip["code.ahead"]), chip["code.line"], chip["code.latency"]
        self.free = 0.0

    def when(self, line: int, now: float) -> float:
        """When a line that somebody wants now is there; the next ones are fetched, too."""
        there = self.sets[line % len(self.sets)]
        at = there.get(line)
        if at is None:
            at = self._fetch(line, now)
        else:
            there.move_to_end(line)
        for following in range(line + 1, line + 1 + self.ahead):
            if following not in self.sets[following % len(self.sets)]:
                self._fetch(following, now)
        return at

    def _fetch(self, line: int, now: float) -> float:
        begin = max(self.free, now)
        self.free, at = begin + self.each, begin + self.latency
        there = self.sets[line % len(self.sets)]
        there[line] = at
        if len(there) > self.ways:
            there.popitem(last=False)
        return at
