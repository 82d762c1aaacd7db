"""What the machine says of one of the precompiled kernels, in the reader's browser: needs NumPy and `helpers.sim`, and nothing else.

The same code runs while the site is built, so that a page has the recorded answers before the machine is there, and a test can hold
the browser to them.
"""

from __future__ import annotations

import base64
import json
import math
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from helpers.sim import Collect, TraceFilter, simulate
from helpers.sim.code.hardware_units import SECTOR_BYTES as SECTOR
from helpers.sim.code.hardware_units import WARP
from helpers.sim.counting.phases import split
from helpers.sim.counting.rules import WORD_BYTES as WORD
from helpers.sim.counting.traced import cost_of

_VERBS = {"ld": "load of", "st": "store to", "cp.async": "copy of", "atom": "atomic on", "red": "reduction on"}


class PageMachine:
    """Kernels by name, and the latest run of each size."""

    def __init__(self) -> None:
        self._kernels: dict[str, SimpleNamespace] = {}
        self._runs: dict[tuple[str, int], _Run] = {}

    def add(self, name: str, text: str) -> None:
        """Take in a kernel as `recorded` wrote it."""
        facts = json.loads(text)
        facts["cubin"] = base64.b64decode(facts["cubin"])
        facts["parameters"] = [SimpleNamespace(name=parameter) for parameter in facts["parameters"]]
        self._kernels[name] = SimpleNamespace(**facts)

    def ask(self, question: str) -> str:
        """JSON in, JSON out. {"kernel", "size"} and, for the picture, {"place", "warp", "turn"}, each optional."""
        asked = json.loads(question)
        start = time.monotonic()
        key = asked["kernel"], int(asked["size"])
        if key not in self._runs:
            self._runs[key] = _Run(self._kernels[key[0]], key[1])
        run = self._runs[key]
        answer = run.picture(int(asked.get("place", 0)), int(asked.get("warp", 0)), int(asked.get("turn", 0)))
        return json.dumps({**answer, "rows": run.rows(), "error": run.error, "seconds": time.monotonic() - start})


def recorded(compiled, block: tuple[int, int, int], tile: tuple[int, int], depth: int | None) -> str:
    """A compiled kernel as JSON, with all that `PageMachine` needs. tile: rows and columns of C per block. depth: K, None for the size."""
    return json.dumps({
        "ptx": compiled.ptx, "sass": compiled.sass, "cubin": base64.b64encode(compiled.cubin).decode(), "symbol": compiled.symbol,
        "arch": compiled.arch, "filename": compiled.filename, "source": compiled.source, "registers": compiled.registers,
        "spill_loads": compiled.spill_loads, "parameters": [one.name for one in compiled.parameters],
        "block": block, "tile": tile, "depth": depth,
    })  # fmt: skip


class _Run:
    """One product by one kernel, and the accesses of its first block."""

    def __init__(self, kernel: SimpleNamespace, size: int):
        n, k = size, kernel.depth or size
        random = np.random.default_rng(size)
        a, b = (random.integers(-4, 5, shape).astype(np.float32) for shape in ((n, k), (k, n)))
        c = np.zeros((n, n), np.float32)
        grid = (math.ceil(n / kernel.tile[1]), math.ceil(n / kernel.tile[0]), 1)
        collect = Collect(findings=False, trace=TraceFilter(blocks={0}))
        self._lines = kernel.source.split("\n")
        self._trace = simulate(kernel, grid, kernel.block, [n, n, k, 1.0, a, k, b, n, 0.0, c, n], collect=collect, engine="numpy").trace
        self.error = float(np.abs(c - a @ b).max()) if n else 0.0
        self._places = self._found()

    def _found(self) -> list[SimpleNamespace]:
        """The accesses in the source, each with the rows of the trace in which they were made."""
        trace = self._trace
        found: dict[tuple, list[np.ndarray]] = {}
        for index in np.unique(trace.accesses["site"]):
            site = trace.sites[index]
            if not site.width:  # merged into another
                continue
            rows = np.flatnonzero(trace.accesses["site"] == index)
            key = (site.line or 0, site.space, str(site.op.value), site.width, self._array(site.space, trace.addresses[rows[0]]))
            found.setdefault(key, []).append(rows)
        return [
            SimpleNamespace(line=line, space=space, op=op, width=width, array=array, groups=rows)
            for (line, space, op, width, array), rows in sorted(found.items(), key=lambda item: item[0])
        ]

    def _array(self, space: str, addresses: np.ndarray) -> str:
        active = addresses[addresses >= 0]
        for held in self._trace.allocations:
            if active.size and held.space == space and held.base <= active[0] < held.base + held.nbytes:
                return held.name
        return f"{space} memory"

    def _label(self, place: SimpleNamespace) -> str:
        wide = f"{8 * place.width}-bit " if place.width > WORD else ""
        return f"{wide}{_VERBS.get(place.op, place.op)} {place.array}"

    def rows(self) -> list[dict[str, Any]]:
        """For each access of the source: how often warps made it in the first block, and what one costs."""
        made = []
        for place in self._places:
            costs = [(len(rows), cost_of(self._trace, rows)) for rows in place.groups]
            count = sum(number for number, _ in costs)
            unit = "sectors" if place.space == "global" else "wavefronts"
            total, ideal = (sum(int(getattr(cost, name).sum()) for _, cost in costs) for name in (unit, f"ideal_{unit}"))
            made.append({
                "place": self._label(place), "line": place.line, "code": self._lines[place.line - 1].split("//")[0].strip(),
                "requests": count, "each": round(total / count, 3), "unit": unit, "ideal": round(ideal / count, 3),
                "conflicts": total - ideal if place.space == "shared" else None,
            })  # fmt: skip
        return made

    def picture(self, place: int, warp: int, turn: int) -> dict[str, Any]:
        """The lanes of one warp at one access, and the sectors or banks that they touch. Numbers that are too large mean the last."""
        trace, chosen = self._trace, self._places[min(place, len(self._places) - 1)]
        rows = np.concatenate(chosen.groups)
        warps = np.unique(trace.accesses["warp"][rows])
        warp = int(warps[min(warp, len(warps) - 1)])
        rows = rows[trace.accesses["warp"][rows] == warp]
        rows = rows[np.argsort(trace.accesses["order"][rows], kind="stable")]
        turn = min(turn, len(rows) - 1)
        addresses = trace.addresses[rows[turn]]
        drawn = self._sectors(addresses, chosen.width) if chosen.space == "global" else self._banks(addresses, chosen)
        return {"warps": len(warps), "turns": len(rows), "warp": warp, "turn": turn, "label": self._label(chosen), **drawn}

    def _sectors(self, addresses: np.ndarray, width: int) -> dict[str, Any]:
        active = addresses >= 0
        sectors, inverse = np.unique(addresses[active] // SECTOR, return_inverse=True)
        lanes = np.full(WARP, -1)
        lanes[active] = inverse
        used = np.unique(addresses[active][:, None] + np.arange(width))
        words = np.zeros((len(sectors), SECTOR // WORD), bool)
        words[np.searchsorted(sectors, used // SECTOR), used % SECTOR // WORD] = True
        return {"kind": "sectors", "lanes": lanes.tolist(), "words": words.tolist(), "used": len(used)}

    def _banks(self, addresses: np.ndarray, place: SimpleNamespace) -> dict[str, Any]:
        rule = self._trace.sites[self._trace.accesses["site"][place.groups[0][0]]].rule
        phases = [
            {
                "lanes": [phase.lanes[0], phase.lanes[-1]],
                "wavefronts": phase.wavefronts,
                "boxes": [[box.bank, box.banks, box.floor, len(box.lanes), box.lanes[0]] for box in phase.boxes],
            }
            for phase in split(addresses, place.width, rule)
        ]
        return {"kind": "banks", "phases": phases}
