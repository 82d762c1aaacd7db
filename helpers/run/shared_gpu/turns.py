"""Whose kernel is next on a shared GPU: learners take turns, whatever each has waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from helpers.errors import LaunchError, plural

Item = TypeVar("Item")


class Turns(Generic[Item]):
    """Items waiting, by learner. most: how many each learner may have waiting."""

    def __init__(self, most: int):
        self.most = most
        self._waiting: dict[str, deque[Item]] = {}  # in the order of coming
        self._served: dict[str, int] = {}  # how many had been taken out when a learner's last one was
        self._taken = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, learner: str, item: Item) -> None:
        """Put an item behind this learner's others. Raises LaunchError if too many wait."""
        mine = self._waiting.setdefault(learner, deque())
        if len(mine) >= self.most:
            raise LaunchError(
                f"You have {plural(len(mine), 'kernel')} waiting for the shared GPU, which is as many as one learner may have. "
                "Wait for one of them, or interrupt a cell that waits (■)."
            )
        mine.append(item)

    def next(self) -> Item | None:
        """Take out the item whose turn it is: the first one of the learner who was served longest ago, or never. None if nobody waits."""
        for learner in self._learners():
            mine = self._waiting[learner]
            item = mine.popleft()
            if not mine:
                del self._waiting[learner]
            self._taken += 1
            self._served[learner] = self._taken
            return item
        return None

    def _learners(self) -> list[str]:
        """Those who have something waiting, in the order of turns."""
        return sorted((name for name, mine in self._waiting.items() if mine), key=lambda name: self._served.get(name, 0))

    def remove(self, item: Item) -> None:
        """Take an item out that nobody waits for any more."""
        for mine in self._waiting.values():
            if item in mine:
                mine.remove(item)

    def before(self, item: Item) -> int:
        """How many items have their turn before this one; as things stand: who comes later may come before it."""
        return next((place for place, other in enumerate(self._order()) if other == item), 0)

    def _order(self) -> Iterator[Item]:
        rounds = [list(self._waiting[name]) for name in self._learners()]
        for number in range(max(map(len, rounds), default=0)):
            yield from (mine[number] for mine in rounds if number < len(mine))
