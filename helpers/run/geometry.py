"""What a GEMM kernel says of its launch: its parameters, its block, its tile of C, its grid, and the boxes of its tensor maps.

A kernel says it in constants that the compiler evaluates, so that a tile size that is edited moves the launch with it:

    extern "C" __device__ constexpr int block_shape[] = {BLOCK_X, BLOCK_Y, 1};                  // threads per block
    extern "C" __device__ constexpr int tile_shape[] = {TILE_M, TILE_N};                        // rows, columns of C per block
    extern "C" __device__ constexpr int dynamic_shared[] = {BYTES};                             // per block; 0 if left out
    extern "C" __device__ constexpr int grid_depth[] = {BLOCKS};                                // along z for each product
    extern "C" __device__ constexpr int persistent[] = {BLOCKS_PER_SM, SLICES};                 // its blocks walk the tiles
    extern "C" __device__ constexpr int box_A[] = {ROWS, COLUMNS, SWIZZLE_BYTES};               // of map_A; also box_B, box_C

(and `pieces` and `passes`, where other kernels of the file come first: see `passes`; `scale_block`, where blocks of A and B have
factors: see `block_scales`; and `transa`, `transb`, where these lie by columns: see `transposes`.)

Blocks per cluster are those of its `__cluster_dims__`.

**The grid.** One block per tile of C, tiles along N on x and along M on y, each rounded up to whole clusters: a block that lies outside C
does nothing but take part in its cluster. A persistent kernel gets a grid of one dimension: as many blocks as the GPU's multiprocessors
hold at BLOCKS_PER_SM, or as there are tiles if these are fewer, rounded down to whole clusters, and at least one cluster. It walks the
tiles itself, with blocks that may find none. Where it can cut K into SLICES, each of them a part that another block may compute, there are
so many times as many tiles (left out: 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.errors import LaunchError, joined
from helpers.model import hardware
from helpers.sim.layouts.tensor_map import SWIZZLES
from helpers.sim.machine import cluster as clusters
from helpers.toolchain.diagnostics import named_by_macros

from .block_scales import scale_block
from .kernel import Kernel
from .passes import kind, pieces
from .tensor_maps import check_box

PARAMETERS = "int M, int N, int K, float alpha, const T* A, int lda, const T* B, int ldb, float beta, T* C, int ldc"
NAMES = ("M", "N", "K", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc")  # of these parameters
MAPS = ("map_A", "map_B", "map_C")  # behind them (and a bias), those that the kernel wants
MOST_IN_TILE = 2048  # rows or columns of a tile of C
LARGEST_TILE = 1 << 18  # elements; in float32 four times what a multiprocessor's registers hold
MOST_PARTS = 64  # blocks that share a tile of C
FUSED_AT = 11  # the place of a bias among the parameters, from 0
_MAP = "CUtensorMap"
_SWIZZLES = dict(zip((0, 32, 64, 128), SWIZZLES, strict=True))
MULTIPROCESSORS = 132  # where the table has no GPU of an architecture


@dataclass(frozen=True)
class CopyBox:
    """How much of a matrix one bulk copy takes: rows and columns in elements. swizzle: "128B", "64B", "32B" or None."""

    rows: int
    columns: int
    swizzle: str | None


@dataclass(frozen=True)
class Geometry:
    """What a kernel says of its launch: threads per block, the tile of C per block, dynamic shared bytes.

    depth: blocks along z for each product, or None if the kernel does not look at z: then it cannot compute a batch.
    cluster: blocks per cluster as (x, y, z). persistent: blocks per multiprocessor of a kernel whose blocks walk the tiles, None for
    one block per tile; parts: how many of these blocks may share a tile, each with a part of K. multiprocessors: what the SIMT machine
    takes a GPU to have.
    """

    block: tuple[int, int, int]
    tile: tuple[int, int]
    shared: int = 0
    depth: int | None = None
    cluster: tuple[int, int, int] = (1, 1, 1)
    persistent: int | None = None
    parts: int = 1
    multiprocessors: int = MULTIPROCESSORS

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        """Tiles of C: (along N, along M)."""
        return math.ceil(n / self.tile[1]), math.ceil(m / self.tile[0])

    def grid(self, m: int, n: int, batch: int = 1, multiprocessors: int | None = None) -> tuple[int, int, int]:
        """Blocks along N on x and along M on y, in whole clusters; along z the depth, for each product of a batch.

        Of a persistent kernel (blocks, 1, 1), for a GPU of so many multiprocessors (None: those of the SIMT machine).
        """
        across, down = self.tiles(m, n)
        if self.persistent is None:
            extents = across, down, (self.depth or 1) * batch
            x, y, z = (-(-extent // size) * size for extent, size in zip(extents, self.cluster, strict=True))
            return x, y, z
        size = self.cluster[0]
        most = min(across * down * self.parts, self.persistent * (multiprocessors or self.multiprocessors))
        return max(1, most // size) * size, 1, 1

    def classes(self, m: int, n: int) -> list[tuple[int, int]]:
        """(a block, how many blocks behave like those of its cluster), where each block has a tile: interior, right edge, bottom edge,
        corner.

        In a GEMM what a block does depends only on whether it hangs over the right or the bottom edge of C, so one block of each
        class, or one cluster where there are clusters, counts for all.
        """
        (x, y, _), (columns, rows, _) = self.cluster, self.grid(m, n)
        across, down = columns // x, rows // y  # clusters
        found = []
        for row, tall in ((0, down - 1), (down - 1, 1)) if m % (self.tile[0] * y) else ((0, down),):
            for column, wide in ((0, across - 1), (across - 1, 1)) if n % (self.tile[1] * x) else ((0, across),):
                if tall * wide:
                    found.append((row * y * columns + column * x, tall * wide * x * y))
        return found


def geometry(kernel: Kernel) -> Geometry:
    """Read back the constants the compiler evaluated. Raises LaunchError with what to write if they are missing."""
    constants = kernel.compiled.constants
    block, tile = constants.get("block_shape"), constants.get("tile_shape")
    if block is None or tile is None:
        is_fused(kernel)  # of another signature there is more to say than what is missing
        missing = "block_shape" if block is None else "tile_shape"
        raise LaunchError(
            f"{kernel.name} does not say its {missing}, so the course cannot launch it by itself. Add at file level:\n"
            '    extern "C" __device__ constexpr int block_shape[] = {BLOCK_X, BLOCK_Y, 1};  // threads per block\n'
            '    extern "C" __device__ constexpr int tile_shape[] = {TILE_M, TILE_N};        // rows, columns of C per block'
        )
    if len(block) not in (1, 2, 3) or len(tile) != 2 or min(block) < 1 or min(tile) < 1:
        raise LaunchError(f"block_shape = {block} and tile_shape = {tile}: the first wants 1 to 3, the second 2 positive numbers (int).")
    if max(tile) > MOST_IN_TILE:
        raise LaunchError(f"tile_shape = {tile}: no tile of C has more than {MOST_IN_TILE} rows or columns (and they are int, not float).")
    if math.prod(tile) > LARGEST_TILE:
        raise LaunchError(
            f"tile_shape = {tile}: a block computes {LARGEST_TILE:,} elements of C at most, such as 512 × 512. "
            "Is it the tile of one block, {rows, columns}?"
        )
    x, y, z = (*block, 1, 1)[:3]
    depth = constants.get("grid_depth", (None,))[0]
    if depth is not None and depth < 1:
        raise LaunchError(f"grid_depth = {depth}: it is the number of blocks along z for each product, 1 or more.")
    cluster = clusters.declared(kernel.ptx, kernel.compiled.symbol).dims or (1, 1, 1)
    return Geometry(
        (x, y, z), (tile[0], tile[1]), constants.get("dynamic_shared", (0,))[0], depth, cluster,
        *_persistent(constants.get("persistent"), cluster, depth), _multiprocessors(kernel.compiled.arch),
    )  # fmt: skip


def _persistent(said: tuple[int, ...] | None, cluster: tuple[int, int, int], depth: int | None) -> tuple[int | None, int]:
    """(blocks per multiprocessor, None for one block per tile; blocks that share a tile). Raises LaunchError for what cannot be."""
    if said is None:
        return None, 1
    if len(said) not in (1, 2) or not 1 <= said[0] <= 32 or not 1 <= said[-1] <= MOST_PARTS:
        raise LaunchError(
            f"persistent = {said}: it is one number, how many blocks a multiprocessor holds at a time (1 to 32), and, where several blocks "
            f"share a tile of C, a second, how many (1 to {MOST_PARTS})."
        )
    if cluster[1:] != (1, 1):
        raise LaunchError(
            f"persistent, and __cluster_dims__{cluster}: the grid of a persistent kernel has one dimension, and so has its cluster. Write "
            f"__cluster_dims__({math.prod(cluster)}, 1, 1)."
        )
    if depth is not None:
        raise LaunchError("persistent, and grid_depth: the grid of a persistent kernel has one dimension. Leave one of the two out.")
    return said[0], said[1] if len(said) > 1 else 1


def _multiprocessors(arch: str) -> int:
    """Of the largest GPU that the code is for, as the machine has no number of its own."""
    same = [gpu.sms for gpu in hardware.gpus() if gpu.arch == arch.replace("compute", "sm").rstrip("af")]
    return max(same, default=MULTIPROCESSORS)


# ------------------------------------------------------------------------------------------------------- parameters


def is_fused(kernel: Kernel) -> bool:
    """Whether the kernel takes a bias after the arguments that all have. Raises LaunchError for any other signature."""
    return _read(kernel)[0]


def taken_for_bias(kernel: Kernel) -> str:
    """What there is to say of a pointer behind ldc that is taken for a bias though its name is another, as a sentence; else ""."""
    if not is_fused(kernel) or "bias" in (name := kernel.compiled.parameters[FUSED_AT].name).lower():
        return ""
    return (
        f"Number {FUSED_AT + 1}, {name}, is a pointer behind ldc and is taken for a bias: it gets one number for each column of C, and C "
        f"is held to max(0, alpha · A · B + beta · C + {name}). Leave it out if that is not meant, or launch the kernel yourself with "
        ".launch(grid, block, args); call it `bias` if it is."
    )


def tensor_maps(kernel: Kernel) -> tuple[str, ...]:
    """The names of its tensor maps, those of `MAPS` that it declares. Raises LaunchError for any other signature."""
    return _read(kernel)[1]


def _read(kernel: Kernel) -> tuple[bool, tuple[str, ...]]:
    """(takes a bias, names of its tensor maps). Raises LaunchError for a signature that is not the course's."""
    parameters, split, scaled = kernel.compiled.parameters, bool(pieces(kernel)), scale_block(kernel) is not None
    kinds = [kind(parameter) for parameter in parameters]
    plain = ["32"] * 4 + ["pointer", "32", "pointer", "32", "32", "pointer", "32"]
    maps = tuple(parameter.name for parameter, each in zip(parameters, kinds, strict=True) if each == "map")
    before = kinds[: len(kinds) - len(maps)]
    wanted = [[*plain, "pointer"]] if split else [[*plain, "pointer", "pointer"]] if scaled else [plain, [*plain, "pointer"]]
    if before not in wanted or maps != tuple(name for name in MAPS if name in maps):
        raise LaunchError(
            f"{kernel.name} has not the signature the course launches. {_first_other(parameters, kinds, plain, maps)}It wants:\n"
            f"    __global__ void {kernel.name}({PARAMETERS})\n"
            "(and `const T* bias` behind it, for a kernel that adds a bias and applies ReLU, `const int* ranges` for one of `pieces`, "
            "`const float* scales_A, const float* scales_B` for one of a `scale_block`; and behind that, for a kernel that copies by "
            f"TMA, those of `const __grid_constant__ CUtensorMap {'`, `'.join(MAPS)}` that it uses, in this order). "
            "Change its parameters, or launch it yourself with .launch(grid, block, args)."
            + (f" {macros}" if (macros := named_by_macros(PARAMETERS, kernel.source)) else "")
        )
    return len(before) == 12 and not split, maps


def _first_other(parameters, kinds: list[str], wanted: list[str], maps: tuple[str, ...]) -> str:
    """'' or, as a sentence, the first parameter that is not of the kind that all kernels have there, or that some have behind those. maps:
    names of its tensor maps."""
    if said := _by_names([parameter.name for parameter in parameters]) or _by_kinds(kinds, wanted):
        return said
    words = {"pointer": "a pointer", "map": "a tensor map", "32": "32 bits"}
    for place, (parameter, found, right) in enumerate(zip(parameters, kinds, wanted, strict=False), 1):
        if found != right:
            return f"Number {place}, {parameter.name}, is {words.get(found, f'{found} bits')} and should be {words[right]}. "
    if len(kinds) < len(wanted):
        return f"It has {len(kinds)} parameters, and every kernel has at least {len(wanted)}. "
    behind = list(enumerate(zip(parameters, kinds, strict=True), 1))[len(wanted) :]
    for place, (parameter, found) in behind:
        if found == "pointer" and _MAP in (parameter.pointer_to or ""):
            return f"Number {place}, {parameter.name}, is a pointer to a tensor map, and the course hands over the map itself. "
        if found == "map" and parameter.name not in MAPS:
            return f"Number {place}, {parameter.name}, is a tensor map, and its name says of which matrix: {', '.join(MAPS)}. "
        if found not in ("pointer", "map"):
            return f"Number {place}, {parameter.name}, is {found} bits, and there is nothing to hand over there. "
    if maps != tuple(name for name in MAPS if name in maps):
        return f"Its tensor maps come as {', '.join(maps)}, and their order is {', '.join(name for name in MAPS if name in maps)}. "
    for place, (parameter, found) in behind[1:]:
        if found == "pointer":
            before = behind[place - len(wanted) - 2][1]
            why = "tensor maps come last" if before[1] == "map" else f"behind {before[0].name} there is nothing to hand over in a pointer"
            return f"Number {place}, {parameter.name}, is a pointer, and {why}. "
    return ""


def _by_names(names: Sequence[str]) -> str:
    """'' or, as a sentence, which of `NAMES` are missing or in another order, or which other one stands between them."""
    known = {name.lower(): place for place, name in enumerate(NAMES)}
    places = [known.get(name.strip("_").lower()) for name in names]
    last = max((index for index, place in enumerate(places) if place is not None), default=-1)
    strangers = [index for index in range(last) if places[index] is None]
    order = [place for place in places if place is not None]
    missing = [place for place in range(len(NAMES)) if place not in order]
    if len(strangers) == 1 and order == [*range(len(NAMES))]:
        return f"Number {strangers[0] + 1}, {names[strangers[0]]}, is one more than the course hands over. "
    if strangers or not order:
        return ""
    if missing and order == sorted(order):
        if len(missing) > 1:
            return f"{joined([NAMES[place] for place in missing], 'and')} are missing. "
        where = f"behind {NAMES[missing[0] - 1]}" if missing[0] else f"before {NAMES[1]}"
        return f"{NAMES[missing[0]]} is missing: it is number {missing[0] + 1}, {where}. "
    moved = [place for place, found in enumerate(order) if found != place]
    if missing or not moved:
        return ""
    if len(moved) == 2:
        return (
            f"{joined([NAMES[place] for place in moved], 'and')} have changed places: they are numbers {moved[0] + 1} and {moved[1] + 1}. "
        )
    return f"Number {moved[0] + 1} is {names[moved[0]]}, and should be {NAMES[moved[0]]}. "


def _by_kinds(kinds: Sequence[str], wanted: Sequence[str]) -> str:
    """'' or, as a sentence, that one parameter is missing, where their kinds say which it can be."""
    if len(kinds) != len(wanted) - 1:
        return ""
    may_be = [NAMES[place] for place in range(len(wanted)) if [*kinds[:place], wanted[place], *kinds[place:]] == wanted]
    return f"{joined(may_be, 'or')} is missing. " if may_be else ""


def box(kernel: Kernel, name: str, itemsize: int) -> CopyBox:
    """The box that the kernel states for its tensor map `name`, of elements of so many bytes. Raises LaunchError with what to write."""
    matrix = name.removeprefix("map_")
    said = kernel.compiled.constants.get(f"box_{matrix}")
    line = f'    extern "C" __device__ constexpr int box_{matrix}[] = {{ROWS, COLUMNS, SWIZZLE_BYTES}};'
    if said is None:
        raise LaunchError(
            f"{kernel.name} takes {name} and does not say how much of {matrix} one copy takes, so the course cannot make the tensor map. "
            f"Add at file level:\n{line}  // rows and columns in elements; a swizzle of 0, 32, 64 or 128 bytes"
        )
    if len(said) != 3 or said[2] not in _SWIZZLES:
        raise LaunchError(
            f"box_{matrix} = {said} is no box. It has three numbers (int), and the swizzle is 0, 32, 64 or 128 bytes:\n{line}"
        )
    found = CopyBox(said[0], said[1], _SWIZZLES[said[2]])
    try:
        check_box((found.rows, found.columns), (1, 1), itemsize, found.swizzle)
    except LaunchError as error:
        raise LaunchError(f"box_{matrix} = {said} of {kernel.name}: {error.message}") from None
    return found
