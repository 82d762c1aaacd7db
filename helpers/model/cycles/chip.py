"""What a multiprocessor takes for each thing: the figures of chip.toml, and the units that a GPU has."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
    """One GPU as the model sees it. Figures are cycles; `busy`: how long an instruction keeps its pipe, by the pipe's name.

    two_fma_pipes: FFMA has two halves of 16 lanes to choose from, of which integer multiplication takes the heavy one.
    request: what the load/store unit takes at least for any instruction. l2_sector: for each sector that all multiprocessors fetch.
    """

    gpu: GPU
    two_fma_pipes: bool
    busy: Mapping[str, float]
    request: float
    l2_sector: float

    def __getitem__(self, path: str) -> float:
        """'latency.shared' of chip.toml."""
        section, _, name = path.partition(".")
        return figures()[section][name]


@functools.cache
def chip(gpu: GPU) -> Chip:
    """What `gpu` has. Its FP32, FP64 and load/store rates are those of gpus.toml, its L2's where it was measured there."""
    capability = gpu.capability
    each = SUB_PARTITIONS * _WARP_OF_A_SUB_PARTITION
    l2 = SECTOR * gpu.sms * gpu.clock_mhz * 1e6 / (gpu.l2_gbs * 1e9) if gpu.l2_gbs else figures()["load_store"]["l2_sector"]
    busy = {"fma": 2.0, "fmaheavy": 2.0, "alu": 2.0, "xu": 8.0, "fp64": each / capability.fp64_lanes, "half": 2.0}
    return Chip(gpu, capability.fp32_lanes == each, busy, capability.lsu_cycles, l2)
