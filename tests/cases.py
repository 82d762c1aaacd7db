"""Which cases a run takes. Nine tests of ten are cases of tables: kernels that cheat, planted bugs, shapes, lessons. A run of the whole suite
takes one part of each table and one of all that is marked as slow, the next commit the next parts, and every other test, so that `course
test` ends in a quarter of an hour on two cores; `course test --all` takes everything."""

from __future__ import annotations

import subprocess
import time
import zlib
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent


class Part:
    """The part of each table that a run takes: "2/4" is the second of four, "next/4" that of this commit."""

    def __init__(self, said: str):
        which, _, of = said.partition("/")
        if not of.isdecimal() or not int(of) or not (which == "next" or (which.isdecimal() and 1 <= int(which) <= int(of))):
            raise ValueError(f"--cases {said}: a part is `1/4` to `4/4`, or `next/4`, the one whose turn it is.")
        self.of = int(of)
        self.which = _turn() % self.of + 1 if which == "next" else int(which)

    def __str__(self) -> str:
        return f"{self.which}/{self.of}"

    def takes(self, tests: Sequence[str], slow: Collection[str] = ()) -> list[bool]:
        """Of each of these tests, by their names in pytest: is it no case of a table, or a case of this part? Tables begin at different
        parts, and each has a case in every part, the only one in several if it has fewer cases than there are parts. The `slow` ones, which
        leave their tables, are one table together."""
        tables: dict[str, list[int]] = defaultdict(list)
        for index, test in enumerate(tests):
            table, case, _ = test.partition("[")
            if test in slow:
                tables[""].append(index)
            elif case:
                tables[table].append(index)
        taken = [True] * len(tests)
        for table, cases in tables.items():
            turn = self.which - 1 + zlib.crc32(table.encode())
            parts = min(self.of, len(cases))
            for place, index in enumerate(cases):
                taken[index] = place % parts == turn % parts
        return taken


def _turn() -> int:
    """A number that the next commit has one more of; days, where there is no history."""
    count = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return int(count) if count.isdecimal() and int(count) > 1 else int(time.time() // 86400)
