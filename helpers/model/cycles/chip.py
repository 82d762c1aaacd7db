"""What a multiprocessor takes for each thing: the figures of chip.toml, and the units that a GPU has."""

from __future__ import annotations

import difflib
import functools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from helpers.errors import CourseError
from helpers.model.hardware import GPU, SUB_PARTITIONS
from helpers.sim.counting.machine_code import SECTOR

TABLE = Path(__file__).with_name("chip.toml")
_WARP_OF_A_SUB_PARTITION = 32  # lanes that an instruction wants


@functools.cache
def figures() -> Mapping[str, Mapping[str, float]]:
    """The figures by section and name."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {section: {name: float(entry["value"]) for name, entry in entries.items()} for section, entries in table.items()}


@dataclass(frozen=True)
class Chip:
    """One GPU as the model sees it. Figures are cycles; `busy`: how long an instruction keeps its pipe, by the pipe's name (of tensor
    cores it depends on the instruction).

    two_fma_pipes: FFMA has two halves of 16 lanes to choose from, of which integer multiplication takes the heavy one.
    request: what the load/store unit takes at least for any instruction. l2_sector: for each sector that all multiprocessors fetch.
    changed: figures of chip.toml that are other than there, by 'section.name'.
    """

    gpu: GPU
    two_fma_pipes: bool
    busy: Mapping[str, float]
    request: float
    l2_sector: float
    changed: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, path: str) -> float:
        """'latency.shared' of chip.toml."""
        if path in self.changed:
            return self.changed[path]
        section, _, name = path.partition(".")
        return figures()[section][name]

    def stores(self, active: float) -> tuple[float, float, float]:
        """Cycles in which a multiprocessor stores a sector: by its own port, by its share of L2, and those of its share for each line more.
        active: the part of all multiprocessors that store, 1 for all and more."""
        part = min(1.0, active)
        return self["load_store.store_sector"], self["load_store.store_sector_all"] * part, self["load_store.store_line_all"] * part

    def spilled_sector(self, active: float) -> float:
        """Cycles for a sector that is stored to local memory. active: as for `stores`."""
        return max(self["load_store.store_sector"], self["load_store.spilled_sector_all"] * min(1.0, active))


def chip(gpu: GPU, changed: Mapping[str, float] | None = None) -> Chip:
    """What `gpu` has. Its FP32, FP64 and load/store rates are those of gpus.toml, its L2's where it was measured there.

    changed: figures to take instead of chip.toml's: {"latency.l2": 0}. Raises CourseError where there is no such figure, or it is no
    number of at least 0.
    """
    if not isinstance(changed or {}, Mapping):
        raise CourseError(f"What is to change is a dictionary of figures, such as {{'latency.l2': 100}}, and not {changed!r}.")
    return _chip(gpu, tuple(sorted((changed or {}).items())))


_ROOMS = ("code.lines", "code.ways", "queue.shared", "queue.global")  # that instructions need to get on


@functools.cache
def _chip(gpu: GPU, changed: tuple[tuple[str, float], ...]) -> Chip:
    known = [f"{section}.{name}" for section, entries in figures().items() for name in entries]
    for name, value in changed:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            raise CourseError(
                f"The model has no figure {name!r}" + (f"; do you mean {near[0]!r}?" if near else f". It has: {', '.join(known)}.")
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise CourseError(f"{name} is to be {value!r}: give a number of at least 0.")
        if name in _ROOMS and value < (least := figures()["code"]["ways"] if name == "code.lines" else 1):
            raise CourseError(f"{name} is to be {value!r}: nothing would ever run with fewer than {least:g}.")
    capability = gpu.capability
    each = SUB_PARTITIONS * _WARP_OF_A_SUB_PARTITION
    l2 = dict(changed).get("load_store.l2_sector", figures()["load_store"]["l2_sector"])
    if gpu.l2_gbs and "load_store.l2_sector" not in dict(changed):
        l2 = SECTOR * gpu.sms * gpu.clock_mhz * 1e6 / (gpu.l2_gbs * 1e9)
    busy = dict.fromkeys(("fma", "fmaheavy", "alu", "half"), 2.0) | {"xu": 8.0, "fp64": each / capability.fp64_lanes, "tensor": 0.0}
    return Chip(gpu, capability.fp32_lanes == each, busy, capability.lsu_cycles, l2, dict(changed))
