"""THE table of steps. Tests, the ladder, the README, `course sync` and the other commands iterate it; a new step is
one row here, one kernel and one notebook of the same number and slug."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.arguments import is_whole
from helpers.errors import CourseError

from .measures import Expectation, expect

if TYPE_CHECKING:
    from helpers.run.geometry import Geometry

ROOT = Path(__file__).resolve().parents[2]
EXERCISE = "exercise:"  # tag of a lesson's cell that holds a starter, before the exercise's slug


@dataclass(frozen=True)
class Step:
    """One step of the ladder.

    number, slug: name the kernel and the notebook ("03", "shared_tile"). title, idea: a name and a sentence for people.
    dtype, out_dtype: element types of A and B, and of C ("": the usual one for dtype, see `element_types.py`). arch: the
    oldest GPU architecture the kernel compiles for ("sm_80"), or with a suffix the only one ("sm_90a", which wgmma and setmaxnreg
    need). entry: the kernel's
    function, or None for a step without a kernel. expect: what the counters of a run must be, on sizes that are
    multiples of the tile (64 x 64 x 64 and up); correctness on all sizes is checked besides. bench: a lesson
    without exercises, for kernels that the reader brings.
    """

    number: int
    slug: str
    title: str
    idea: str
    entry: str | None
    dtype: str = "float32"
    out_dtype: str = ""
    arch: str = "sm_75"
    expect: tuple[Expectation, ...] = ()
    bench: bool = False

    @property
    def name(self) -> str:
        """Number and slug, as in file names: "03_shared_tile"."""
        return f"{self.number:02}_{self.slug}"

    def target(self, arch: str = "sm_90") -> str:
        """What to compile for on a GPU of architecture `arch`: at least the row's own, and what names one architecture alone ("sm_90a")
        as it is: on any other GPU the kernel says which one it needs, and runs in the SIMT machine."""
        own, suffix = re.fullmatch(r"sm_(\d+)([af]?)", self.arch).groups()
        return self.arch if suffix else f"sm_{max(int(own), int(arch.removeprefix('sm_')))}"

    @property
    def kernel_path(self) -> Path | None:
        """The reference kernel, or None for a step without one."""
        return ROOT / "kernels" / f"{self.name}.cu" if self.entry else None

    def kernel_source(self) -> str:
        """The text of the reference kernel. Raises CourseError for a step without one, and where its file cannot be read."""
        if self.kernel_path is None:
            raise CourseError(f"Step {self.name} has no kernel.")
        try:
            return self.kernel_path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            about = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
            raise CourseError(
                f"kernels/{self.kernel_path.name}, the kernel of step {self.number:02}, cannot be read: {about}. "
                "A row of helpers/course/steps.py with an `entry` has its kernel there."
            ) from error

    @property
    def notebook_path(self) -> Path:
        """The lesson."""
        return ROOT / "notebooks" / f"{self.name}.ipynb"


def _by_tile(shape: Geometry) -> float:
    """How many times as much a kernel loads for each result as that of step 12, if its tile of C is smaller: A by the element, a row of
    whose columns is loaded once for all columns of the tile, B by four."""
    rows, columns = shape.tile
    return max(1.0, (1 / columns + 1 / (4 * rows)) / (1 / 128 + 1 / (4 * 256)))


def _by_results(shape: Geometry) -> float:
    """The same of shared memory, where a thread's tile decides, whose sides are as the root of its results."""
    return max(1.0, math.sqrt(128 * math.prod(shape.block) / math.prod(shape.tile)))


STEPS: tuple[Step, ...] = (
    Step(
        0,
        "start_here",
        "Start here",
        "what a matrix product costs, and what limits it",
        entry=None,
    ),
    Step(
        1,
        "naive",
        "Naive",
        "one thread computes one element of C, rows down the warp",
        entry="naive",
        expect=(
            expect("sectors per load of A == 32"),
            expect("sectors per load of B == 1"),
            expect("sectors per store of C == 32"),
            expect("global loads per result <= 2 K"),
        ),
    ),
    Step(
        2,
        "coalesced",
        "Coalesced",
        "swap the fast thread index, so that a warp reads neighbours",
        entry="coalesced",
        expect=(
            expect("sectors per load of A == 1"),
            expect("sectors per load of B == 4"),
            expect("sectors per store of C == 4"),
            expect("global loads per result <= 2 K"),
        ),
    ),
    Step(
        3,
        "shared_tile",
        "Shared tile",
        "fetch tiles into shared memory once, and reuse them 32 times",
        entry="shared_tile",
        expect=(
            expect("sectors per load of A == 4"),
            expect("sectors per load of B == 4"),
            expect("sectors per store of C == 4"),
            expect("global loads per result <= 1/16 K"),
            expect("bank conflicts of shared loads == 0"),
        ),
    ),
    Step(
        4,
        "thread_tile_1d",
        "1D thread tile",
        "one thread computes 16 results of a column, so that a value of B serves them all",
        entry="thread_tile_1d",
        expect=(
            expect("sectors per load of A == 4"),
            expect("sectors per load of B == 4"),
            expect("sectors per store of C == 4"),
            expect("global loads per result <= 1/32 K"),
            expect("shared loads per result <= 17/16 K"),
            expect("bank conflicts of shared loads == 0"),
        ),
    ),
    Step(
        5,
        "thread_tile_2d",
        "2D thread tile",
        "one thread computes 8 x 8 results, an outer product in registers for each k",
        entry="thread_tile_2d",
        expect=(
            expect("sectors per load of A == 4"),
            expect("sectors per load of B == 4"),
            expect("global loads per result <= 1/64 K"),
            expect("shared loads per result <= 1/4 K"),
        ),
    ),
    Step(
        6,
        "bank_conflicts",
        "Bank conflicts",
        "lay out shared memory so that a warp's lanes meet different banks",
        entry="bank_conflicts",
        expect=(
            expect("sectors per load of A == 4"),
            expect("sectors per load of B == 4"),
            expect("global loads per result <= 1/64 K"),
            expect("shared loads per result <= 1/16 K"),
            expect("bank conflicts of shared loads == 0"),
            expect("bank conflicts of shared stores == 0"),
        ),
    ),
    Step(
        7,
        "vectorized",
        "Vectorised",
        "move global memory 128 bits at a time where the rows are aligned",
        entry="vectorized",
        expect=(
            expect("sectors per load of A == 16"),
            expect("sectors per load of B == 16"),
            expect("sectors per store of C == 16"),
            expect("global loads per result <= 1/256 K"),
            expect("shared loads per result <= 1/16 K"),
            expect("bank conflicts of shared loads == 0"),
        ),
    ),
    Step(
        8,
        "warp_tile",
        "Warp tile",
        "a warp computes a tile of its own, its lanes numbered so that every shared load takes two wavefronts",
        entry="warp_tile",
        expect=(
            expect("sectors per load of A == 16"),
            expect("sectors per load of B == 16"),
            expect("sectors per store of C == 16"),
            expect("global loads per result <= 1/256 K"),
            expect("shared loads per result <= 1/16 K"),
            expect("wavefronts per shared load <= 2"),
            expect("bank conflicts of shared loads == 0"),
        ),
    ),
    Step(
        9,
        "double_buffer",
        "Double buffer",
        "fetch the next tiles while computing with these",
        entry="double_buffer",
        expect=(
            expect("sectors per load of A == 16"),
            expect("sectors per load of B == 16"),
            expect("sectors per store of C == 16"),
            expect("global loads per result <= 1/256 K"),
            expect("shared loads per result <= 3/64 K"),
            expect("wavefronts per shared load <= 2"),
            expect("barriers per warp <= 1/16 K + 1"),
            expect("multiply-adds behind a tile's loads >= 512"),
        ),
    ),
    Step(
        10,
        "async_copy",
        "Asynchronous copy",
        "copy from global to shared memory past the registers, several tiles ahead",
        entry="async_copy",
        arch="sm_80",
        expect=(
            expect("sectors per store of C == 16"),
            expect("shared stores per result == 0"),
            expect("barriers per warp <= 1/16 K"),
            expect("bank conflicts of shared loads == 0"),
            expect("wavefronts per asynchronous copy <= 4"),
            expect("multiply-adds between a copy and its wait >= 1024"),
        ),
    ),
    Step(
        11,
        "schedule",
        "Schedule",
        "put the same instructions in an order that leaves fewer cycles without a multiply-add",
        entry="schedule",
        arch="sm_80",
        expect=(
            expect("sectors per store of C == 16"),
            expect("global loads per result <= 9/1024 K"),
            expect("shared loads per result <= 1/16 K"),
            expect("shared stores per result == 0"),
            expect("bank conflicts of shared loads == 0"),
            expect("wavefronts per asynchronous copy <= 4"),
            expect("multiply-adds between a copy and its wait >= 512"),
        ),
    ),
    Step(
        12,
        "autotune",
        "Autotune",
        "refuse, rank and measure the constants, and choose them for every size",
        entry="autotune",
        arch="sm_80",
        expect=(
            expect("sectors per store of C == 16"),
            expect("global loads per result <= 9/1024 K", of_whole_tiles=True, scaled=_by_tile),
            expect("shared loads per result <= 1/16 K", of_whole_tiles=True, scaled=_by_results),
            expect("shared stores per result before the last copy == 0", of_whole_tiles=True),
            expect("bank conflicts of shared loads == 0"),
            expect("multiply-adds between a copy and its wait >= 32", of_whole_tiles=True),
        ),
    ),
    Step(
        13,
        "fused_epilogue",
        "Fused epilogue",
        "add the bias and apply ReLU while the results are still in registers",
        entry="fused_epilogue",
        arch="sm_80",
        expect=(
            expect("sectors per load of bias == 4"),
            expect("sectors per store of C == 16"),
            expect("global loads per result <= 9/1024 K + 1"),
            expect("shared loads per result <= 1/16 K"),
            expect("shared stores per result == 0"),
            expect("bank conflicts of shared loads == 0"),
            expect("wavefronts per asynchronous copy <= 4"),
            expect("multiply-adds between a copy and its wait >= 512"),
        ),
    ),
    Step(
        14,
        "wmma",
        "Tensor cores",
        "a warp multiplies tiles of 16 x 16 in one operation, FP16 factors with sums in FP32",
        entry="wmma",
        dtype="float16",
        expect=(
            expect("sectors per load of A == 16"),
            expect("sectors per load of B == 16"),
            expect("sectors per store of C == 8"),
            expect("global loads per result <= 1/512 K"),
            expect("HMMA instructions of each warp == 2 K"),
            expect("barriers per warp <= 1/16 K"),
            expect("bank conflicts of shared loads == 0"),
            expect("bank conflicts of shared stores == 0"),
        ),
    ),
    Step(
        15,
        "mma_sync",
        "Matrix instructions",
        "feed the tensor cores by their own instructions from a swizzled ring of tiles, every element in a known register",
        entry="mma_sync",
        dtype="bfloat16",
        arch="sm_80",
        expect=(
            expect("sectors per load of A == 16"),
            expect("sectors per load of B == 16"),
            expect("sectors per store of C == 8"),
            expect("HMMA instructions of each warp == 2 K"),
            expect("barriers per warp <= 1/32 K + 2"),
            expect("bank conflicts of shared loads == 0"),
            expect("bank conflicts of shared stores == 0"),
            expect("matrix instructions between a copy and its wait >= 8"),
        ),
    ),
    Step(
        16,
        "tma_wgmma",
        "Tensor memory accelerator",
        "one thread has whole tiles copied, and the tensor cores read them from shared memory themselves",
        entry="tma_wgmma",
        dtype="bfloat16",
        arch="sm_90a",
        expect=(
            expect("wgmma instructions of each warp == 1/16 K"),
            expect("bulk copies of each block <= 5/64 K"),
            expect("global loads per result == 0"),
            expect("shared loads per result == 0"),
            expect("shared stores per result == 0"),
            expect("sectors per store of C == 8"),
            expect("stages at a time >= 2"),
        ),
    ),
    Step(
        17,
        "warp_specialized",
        "Warp specialisation",
        "one warpgroup copies and two multiply, in blocks that stay for tile after tile and share what they load",
        entry="warp_specialized",
        dtype="bfloat16",
        arch="sm_90a",
        expect=(
            expect("global loads per result == 0", of_whole_tiles=True),
            expect("shared loads per result == 0", of_whole_tiles=True),
            expect("shared stores per result <= 1/4"),
            expect("global stores == 0", of_whole_tiles=True),
            expect("bank conflicts of shared stores == 0"),
            expect("stages at a time >= 2", of_whole_tiles=True),
        ),
    ),
    Step(
        18,
        "fp32_on_tensor_cores",
        "FP32 on tensor cores",
        "write every number as a sum of 16-bit pieces and multiply the pieces on tensor cores",
        entry="fp32_on_tensor_cores",
        arch="sm_90a",
        expect=(
            expect("shared loads per result == 0"),
            expect("shared stores per result == 0"),
            expect("global loads per result <= 2"),
            expect("stages at a time >= 2"),
        ),
    ),
    Step(
        19,
        "fp8",
        "FP8",
        "multiply numbers of 8 bits, of which every 128 share a factor, and add up outside of the tensor cores in time",
        entry="fp8",
        dtype="float8_e4m3",
        out_dtype="bfloat16",
        arch="sm_90a",
        expect=(
            expect("global loads per result <= 1/4"),
            expect("shared loads per result <= 1/2048 K"),
            expect("shared stores per result <= 1/2"),
            expect("global stores == 0"),
            expect("bank conflicts of shared loads == 0"),
            expect("bank conflicts of shared stores == 0"),
            expect("stages at a time >= 2"),
        ),
    ),
    Step(
        20,
        "your_kernel",
        "Your kernel",
        "an open bench for a kernel of your own, at any shape and in any type",
        entry=None,
        bench=True,
    ),
)


class UnknownStepError(CourseError, KeyError):
    """There is no such step."""

    __str__ = Exception.__str__  # the sentence, where a KeyError shows its repr


def get(step: int | str) -> Step:
    """The step of this number, slug or name ("3" and "03" are numbers too). Raises UnknownStepError with the known ones."""
    is_name = isinstance(step, str) or is_whole(step)
    for row in STEPS:
        if is_name and step in (row.number, str(row.number), f"{row.number:02}", row.slug, row.name):
            return row
    raise UnknownStepError(f"There is no step {step!r}; there are {', '.join(row.name for row in STEPS)}.")
