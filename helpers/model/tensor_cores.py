"""Tensor cores: their rate by type, what a launch multiplies on them, and the clock that they leave.

As soon as tensor cores work the clock falls by a twelfth, though the driver goes on to report the full one; the more of their peak a
launch reaches with numbers that are not mostly zero, the more; and after a tenth of a second the limit of power.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from helpers.element_types import element_type
from helpers.errors import CourseError
from helpers.sim.code.sass import parse
from helpers.sim.counting import names

from .cluster_places import box_of_a
from .cycles.chip import Chip
from .cycles.scheduled import MATRIX_SHAPES
from .hardware import GPU

TYPES: Mapping[str, str] = {"f16": "float16", "bf16": "bfloat16", "tf32": "tf32", "e4m3": "float8", "e5m2": "float8"}
TENSOR_UNIT = "the tensor cores"  # as `terms` call them
_MEASURED = "9.0"  # the compute capability of which clocks under load were measured


def labels(kinds: frozenset[str]) -> list[str]:
    """PTX's names of element types for people, of those that `TYPES` has: "BF16"."""
    known = {TYPES[kind] for kind in kinds if kind in TYPES}
    return sorted("FP8" if name == "float8" else element_type(name).label for name in known)


def peak_tflops(gpu: GPU, kinds: frozenset[str]) -> float:
    """The peak rate for the fastest of these types. Raises CourseError where the table has none."""
    rates = [gpu.tensor_tflops[name] for kind in kinds if (name := TYPES.get(kind, "")) in gpu.tensor_tflops]
    if rates:
        return max(rates)
    if kinds <= TYPES.keys():
        raise CourseError(f"The tensor cores of {gpu.name} do not multiply {' and '.join(labels(kinds))}.")
    raise CourseError(f"The course has no rate for what this kernel multiplies on tensor cores: {', '.join(sorted(kinds))}.")


def fmas(gpu: GPU, kinds: frozenset[str]) -> int:
    """Fused multiply-adds of one multiprocessor in a cycle for the fastest of these types. Raises as `peak_tflops`."""
    peak_tflops(gpu, kinds)
    return max(gpu.tensor_fmas(TYPES.get(kind, "")) for kind in kinds)


def multiplied(compiled, counters: Mapping[str, int]) -> float:
    """Operations (two for each multiply-add) of all HMMA that were counted; 0 where they differ in shape, or there are other matrix
    instructions, whose operations are not known."""
    names_used, shapes = _instructions(compiled)
    if len(shapes) != 1 or names_used != {"HMMA"}:
        return 0.0
    return 2.0 * (MATRIX_SHAPES.get(min(shapes)) or 0) * counters.get(names.opcode("HMMA"), 0)


def _instructions(compiled) -> tuple[set[str], set[str]]:
    """(names of a kernel's matrix instructions, shapes of its HMMA), as the machine code has them."""
    found = [i for i in parse(compiled.sass)[compiled.symbol].instructions if i.name.endswith("MMA")]
    return {i.name for i in found}, {(*i.modifiers, "")[0] for i in found if i.name == "HMMA"}


def why_unknown(compiled, uncounted: str) -> str:
    """Why `multiplied` is not known, and what to do. uncounted: why machine instructions were not counted, "" where they were."""
    used, shapes = _instructions(compiled)
    if others := sorted(used - {"HMMA"}):
        why = f"it has the matrix instructions {' and '.join(others)}, and the model counts operations of HMMA alone."
    elif len(shapes) > 1:
        why = f"its HMMA are of several shapes ({', '.join(sorted(shapes))}), which are counted together."
    elif not shapes <= MATRIX_SHAPES.keys():
        why = f"it does not know HMMA.{min(shapes)}."
    elif uncounted:
        why = f"how many HMMA it executes is not known ({uncounted})."
        if "call through a pointer" in uncounted and "vprintf" in compiled.ptx:
            why += " The call is its printf: leave it out, and they are counted."
    else:
        why = "none of its HMMA was executed."
    if foreign := sorted(kind for kind in compiled.matrix_types if kind not in TYPES):
        return f"{why} The course has no products of {' and '.join(foreign)} either, so it predicts no time of this kernel."
    return f"{why} The course's signature (lesson 20) says what product it is."


def of_float16_sums(compiled, gpu: GPU) -> str:
    """What to say of a time on a GPU whose tensor cores keep sums in FP16 faster, of a kernel that does; "" elsewhere."""
    if gpu.float16_sums == 1 or (found := compiled.float16_sums) is None:
        return ""
    where = "" if found[1] is None else f" at line {found[1]}"
    return (
        f"It keeps sums in FP16{where}, with which the tensor cores of an {gpu.name} multiply {gpu.float16_sums:g} times as fast as with "
        f"sums in FP32: that rate is taken here, and its time may be down to 1/{gpu.float16_sums:g} of this."
    )


def on_tiles(run) -> float:
    """Operations (two for each multiply-add) that warpgroups do for the tiles of a product of the course: each multiplies all rows and
    columns of its tile, also those that lie outside of C, and whole steps along K. 0 without warpgroups, or where it is no such product."""
    problem, counters = run.problem.get("problem"), run.counters
    if problem is None or not counters.get(names.tensor("gmma"), 0):
        return 0.0
    rows, columns = run.problem["tile"]
    tiles = math.ceil(problem.m / rows) * math.ceil(problem.n / columns) * problem.batch
    return 2.0 * tiles * rows * columns * _depth(run.kernel.compiled, problem.k)


def _depth(compiled, k: int) -> int:
    """k in whole steps, where the kernel says what it copies at a step."""
    step = box_of_a(compiled)[1]
    return math.ceil(k / step) * step


def clock_mhz(chip: Chip, load: float, microseconds: float, kinds: frozenset[str]) -> float:
    """The clock at which a launch really runs, in MHz. load: the part of the tensor cores' peak that it reaches, per cycle.
    microseconds: what it takes, at any clock near.

    Measured on an H200 as cycles over nanoseconds inside of kernels that multiply random numbers (zeros: what is left at no load).
    The limit of power is that of a timing: 20 launches in turn with cuBLAS, without a pause.
    """
    if chip.gpu.capability.name != _MEASURED:
        return chip.gpu.clock_mhz
    beyond = max(0.0, load - chip["clock.free_load"]) * (1 - math.exp(-microseconds / chip["clock.settles"]))
    heavy = chip["clock.float8"] if any(TYPES.get(kind) == "float8" for kind in kinds) else 1.0
    at_first = 1 - chip["clock.working"] - chip["clock.load"] * heavy * beyond
    bound = min(1.0, load / chip["clock.free_load"])  # tensor cores that mostly wait come nowhere near the limit of power
    sustained = 1 - chip["clock.working"] - bound * (chip["clock.power"] + chip["clock.power_load"] * load)
    reached = 1 - math.exp(-microseconds / chip["clock.heats"])
    return chip.gpu.clock_mhz * (at_first + (min(at_first, sustained) - at_first) * reached)
