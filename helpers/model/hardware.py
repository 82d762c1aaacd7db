"""What a GPU has: the tables of gpus.toml as frozen dataclasses, and finding the one a reader means.

Two levels, as in the hardware: a `Capability` (limits common to every product of a compute capability) and a `GPU` (one
product: how many SMs, at what clock, with how much L2 and DRAM bandwidth).
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from helpers.errors import CourseError
from helpers.sim.code.hardware_units import WARP

TABLE = Path(__file__).with_name("gpus.toml")
SUB_PARTITIONS = 4  # of an SM, on every capability here; registers and issue slots are split over them
REGISTER_GRANULE = 256  # registers are given to a warp in units of this many
REGISTERS_PER_THREAD = 255  # the most an instruction can name
REGISTERS_PER_BLOCK = 65536
THREADS_PER_BLOCK = 1024


def digits(value: float) -> str:
    """A speed to three digits, and above that whole: 0.498, 6.35, 54, 1320."""
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


@dataclass(frozen=True)
class Capability:
    """Limits of one SM of a compute capability. Shared-memory sizes in bytes, registers in 32-bit registers."""

    name: str  # "9.0"
    family: str
    threads_per_sm: int
    blocks_per_sm: int
    registers: int
    shared_configurations: tuple[int, ...]  # bytes, ascending; the last is what occupancy counts with
    shared_per_block: int  # bytes a block may ask for, static and dynamic together
    shared_granule: int
    shared_reserved: int  # bytes the driver keeps per block
    barriers_per_block_slot: int
    fp32_lanes: int
    fp64_lanes: int
    lsu_cycles: float

    @property
    def warps_per_sm(self) -> int:
        return self.threads_per_sm // WARP

    @property
    def registers_per_block(self) -> int:
        return REGISTERS_PER_BLOCK

    @property
    def has_clusters(self) -> bool:
        return int(self.name.partition(".")[0]) >= 9

    @property
    def arch(self) -> str:
        """The compiler's name: "sm_90"."""
        return "sm_" + self.name.replace(".", "")


@dataclass(frozen=True)
class Unit:
    """What multiplies: its name for people, its peak rate, and who states that."""

    name: str
    tflops: float
    source: str


@dataclass(frozen=True)
class GPU:
    """One product. `clock_mhz` is the boost clock, `l2_bytes` in bytes, `dram_gbs` in 10^9 bytes per second.

    l2_gbs: what all SMs together read from L2, in 10^9 bytes per second, where it was measured; None elsewhere.
    tensor_tflops: peak of the tensor cores for inputs of each type ("float16", "float8", …) with sums in float32, dense.
    float16_sums: how many times faster they multiply float16 with sums in float16.
    clusters: how many clusters of so many blocks fit at a time, a block to each multiprocessor, where it is not all that there are.
    """

    name: str
    capability: Capability
    sms: int
    clock_mhz: float
    l2_bytes: int
    dram_gbs: float
    memory_gb: float
    fp32_tflops: float
    source: str
    l2_gbs: float | None = None
    tensor_tflops: Mapping[str, float] = field(default_factory=dict, hash=False)
    tensor_source: str = ""
    float16_sums: float = 1.0
    clusters: Mapping[int, int] = field(default_factory=dict, hash=False)

    def clusters_of(self, blocks: int, resident: int = 1) -> int:
        """How many clusters of so many blocks fit at a time, where so many blocks share a multiprocessor. (A cluster stays within one part
        of the chip, in which as many places remain as do not make up one more. On an H200 clusters of 4 and 8 of which a multiprocessor
        has room for eight blocks take 5 % longer than blocks by themselves, and not 28: log, run 44.)"""
        left = self.sms - blocks * self.clusters.get(blocks, self.sms // blocks)
        return (self.sms * resident - left) // blocks

    @property
    def arch(self) -> str:
        return self.capability.arch

    @property
    def peak_fp32_tflops(self) -> float:
        """SMs × lanes × 2 (an FMA is two operations) × clock, in TFLOPS."""
        return self.sms * self.capability.fp32_lanes * 2 * self.clock_mhz * 1e6 / 1e12

    def tensor_fmas(self, name: str) -> int:
        """Fused multiply-adds of one SM in a cycle on its tensor cores, for inputs of a type of `tensor_tflops`; 0 for others.

        It is a power of two. (Makers state rates at clocks of their own.)
        """
        rate = self.tensor_tflops.get(name)
        return 0 if rate is None else 2 ** round(math.log2(rate * 1e6 / (2 * self.sms * self.clock_mhz)))

    def unit(self, dtype: str) -> Unit | None:
        """What multiplies matrices of this element type fastest: FP32 lanes for float32, otherwise tensor cores.

        None where the tensor cores do not multiply this type.
        """
        if dtype == "float32":
            return Unit("FP32 lanes", self.peak_fp32_tflops, self.source)
        rate = self.tensor_tflops.get("float8" if dtype.startswith("float8") else dtype)
        return None if rate is None else Unit("tensor cores", rate, self.tensor_source)


@cache
def _table() -> dict:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


@cache
def _capabilities() -> dict[str, Capability]:
    kib = 1024
    return {
        name: Capability(
            name=name,
            **{
                **row,
                "shared_configurations": tuple(size * kib for size in row["shared_configurations"]),
                "shared_per_block": row["shared_per_block"] * kib,
            },
        )
        for name, row in _table()["capability"].items()
    }


@cache
def gpus() -> tuple[GPU, ...]:
    """Every GPU of the table, oldest capability first, in the table's order."""
    sources = _table()["sources"]
    return tuple(
        GPU(
            name=row["name"],
            capability=_capabilities()[row["capability"]],
            sms=row["sms"],
            clock_mhz=row["clock_mhz"],
            l2_bytes=int(row["l2_mib"] * 2**20),
            dram_gbs=row["dram_gbs"],
            memory_gb=row["memory_gb"],
            fp32_tflops=row["fp32_tflops"],
            source=sources[row["source"]],
            l2_gbs=row.get("l2_gbs"),
            tensor_tflops=row["tensor_tflops"],
            tensor_source=sources[row.get("tensor_source", row["source"])],
            float16_sums=row.get("float16_sums", 1.0),
            clusters={int(blocks): fit for blocks, fit in row.get("clusters", {}).items()},
        )
        for row in _table()["gpu"]
    )


def capability(name: str) -> Capability:
    """The capability called `name`: "9.0", "sm_90", "sm_90a" or "compute_90". Raises CourseError if it has no row."""
    match = re.fullmatch(r"(?:sm_|compute_)?(\d+)(\d)[af]?|(\d+)\.(\d)", name.strip())
    known = _capabilities()
    if match:
        major, minor = match.group(1, 2) if match.group(1) else match.group(3, 4)
        if f"{major}.{minor}" in known:
            return known[f"{major}.{minor}"]
    raise CourseError(f"The course has no table of limits for {name!r}; it knows {', '.join(sorted(known, key=float))}.")


@cache
def _words(name: str) -> frozenset[str]:
    """A product's name as the set of words that tell it from others: vendor, series and memory-type words dropped."""
    text = name.lower().replace("-", " ").replace("_", " ")
    text = re.sub(r"(\d+)\s*gb\b", r"\1gb", text)
    text = re.sub(r"\bsxm\d\b", "sxm", text)
    dropped = {"nvidia", "geforce", "quadro", "tesla", "gpu", "tensor", "core", "hbm2", "hbm2e", "hbm3", "hbm3e", "rtx"}
    return frozenset(word for word in text.split() if word not in dropped)


def gpu(name: str) -> GPU:
    """The GPU of the table that `name` means: its name here, or what its driver calls it ("NVIDIA GeForce RTX 4090").

    Model numbers and suffixes must agree; board form and memory size choose between variants, and without them the SXM
    board is meant. Raises CourseError with the list of names when no row matches.
    """
    wanted = _words(name) if isinstance(name, str) else frozenset()
    candidates = [row for row in gpus() if wanted and _model(_words(row.name)) == _model(wanted)]
    if not candidates:
        known = ", ".join(row.name for row in gpus())
        raise CourseError(f"The course has no figures for a GPU called {name!r}; it knows {known}.")
    return max(candidates, key=lambda row: (len(_words(row.name) & wanted), "sxm" in _words(row.name)))


@cache
def _model(words: frozenset[str]) -> frozenset[str]:
    """The words that must agree exactly: all but board form and memory size."""
    return frozenset(word for word in words if word not in {"sxm", "pcie"} and not re.fullmatch(r"\d+gb", word))
