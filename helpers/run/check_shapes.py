"""The products that a check tries: shapes that kernels get wrong, shapes drawn at random, and data that leave no doubt."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from helpers.element_types import element_type
from helpers.sim.code.sites import AccessKind

from .block_scales import scale_block
from .differences import line_of_16_bits
from .geometry import geometry, is_fused, tensor_maps
from .kernel import Kernel
from .own_products import COUNTED_SIZE, counted_size, fitted, program_of, takes_batch, types
from .passes import pieces
from .problem import VECTOR, CancellingProblem, ExactProblem, NonFiniteProblem, Problem, SampledProblem, ScaledProblem, ShiftedProblem


def adversarial(tile: tuple[int, int], dtype: str = "float32", out_dtype: str = "") -> list[Problem]:
    """Small shapes that break kernels: 1, primes, a tile and one more or less, empty K, padding, alpha, beta. (`drawn` has thin ones.)"""
    rows, columns = tile
    one = functools.partial(Problem, dtype=dtype, out_dtype=out_dtype)
    vector = VECTOR // element_type(dtype).bytes
    return [
        one(1, 1, 1),
        one(17, 23, 19, alpha=0.5, beta=-2.0, pad_a=3, pad_b=5, pad_c=7, seed=1),
        one(rows + 1, columns - 1 or 1, 33, alpha=2.5, pad_c=1, seed=2),  # rows of C begin at multiples of 16 bytes and end at none
        one(rows - 1 or 1, columns + 1, 31, alpha=-1.5, beta=1.0, pad_c=1, seed=3),
        one(5, 7, 0, seed=6),
        one(5, 7, 0, beta=3.0, seed=7),
        one(16, 2 * vector, 0, seed=12),
        one(18, 22, 21, beta=1.0, pad_a=3, pad_b=2, pad_c=2, seed=8),  # every row is aligned to 16 bytes, its end is not
        one(20, 7 * vector, 5 * vector, alpha=1.5, seed=9),  # rows are whole vectors of 16 bytes, and no whole tiles
        one(20, 9 * vector, 5 * vector, alpha=-1.75, beta=0.375, pad_c=vector, seed=10),
        one(6, 10, 5, alpha=0.0, beta=2.0, seed=11),
        one(6, 10, 5, alpha=0.0, seed=13),  # what was in C is no number, and 0 times it neither
    ]


_P = TypeVar("_P", bound=Problem)


def laid_out(kernel: Kernel, problem: _P) -> _P:
    """The problem with its matrices stored as the kernel takes them. The shapes here are thought out for rows: of a matrix by columns the
    padding is such that its leading dimension is as far from whole vectors as that of its rows was, which is what the shape is about."""
    found = fitted(kernel, problem)
    vector, changes = VECTOR // problem.inputs.bytes, {}
    for name, old, new, turned in zip(("pad_a", "pad_b"), problem.stored, found.stored, found.turned, strict=False):
        pad = getattr(problem, name)
        if turned and found.scale_block is None and (pad or old.pitch % vector == 0):
            more = (old.pitch - max(1, new.columns)) % vector
            changes[name] = more + max(0, pad - 1) // vector * vector if more or not pad else pad - 1 + vector - (pad - 1) % vector
    return replace(found, **changes)


def drawn(kernel: Kernel, seed: int) -> list[Problem]:
    """Shapes drawn at random, as large as this kernel's own constants ask for, and unlike those of any other check.

    In this order: K beyond every ring of tiles in shared memory, and beyond 16 bits where the source has variables of so many, of 16-bit
    types with a second half that takes back the first, of a kernel with tensor maps by turns a thin one and one that is `whole_and_deep`,
    of a kernel that splits its elements as exact as in FP32;
    more rows of tiles than a panel, in two columns of tiles; more columns of tiles than a GPU has multiprocessors (a persistent kernel is
    given fewer of these instead, see `_multiprocessors`), with half of a step of 64 along K, and in two rows of tiles where the source
    speaks of panels; any small one, of FP32 with rows and columns of other magnitudes; of 16-bit results one with few products in a sum and
    an alpha of all of FP32's bits; whole tiles and whole steps along K, one step and
    several, with rows of whole vectors that are longer than those of the matrices, for the ways that kernels have for these, and the same
    with a row, a column or a k less, for what these ways ask (of a kernel with tensor maps they ask nothing); two rows and
    two columns of tiles, the second ones cut, and such rows, with whole steps along K or not; of a kernel with block scales one whole block
    along K, and two; rows and columns of other magnitudes, of
    types with room for them; alpha and beta `near_special_factors`, and -1 beside each of 0, 1 and -1; a batch, of a kernel that takes
    one; of a kernel whose slices share a tile the `neighbours`; blocks of a
    product with more rows than 16 bits number, and more rows of tiles than eight bits do, and of one with as many columns, of a kernel
    that does not number its tiles itself; a tile of a product with M = N = K; last
    two `SampledProblem`s of a large product that tiles divide, as profiles and ladders have it, and larger than what a kernel whose
    slices share a tile can keep of them: one as they have it, and one with any alpha and beta. These have bits that fewer than 14 cannot
    hold.
    """
    random = np.random.default_rng(seed)
    (rows, columns), (dtype, out_dtype) = geometry(kernel).tile, types(kernel)
    one = functools.partial(Problem, dtype=dtype, out_dtype=out_dtype)
    some_blocks = functools.partial(SampledProblem, dtype=dtype, out_dtype=out_dtype)
    long = CancellingProblem if dtype in _OF_FEW_BITS else ExactProblem if pieces(kernel) else Problem

    def any_of(low: int, high: int) -> int:
        return int(random.integers(low, high + 1))

    def odd(low: int, high: int) -> int:  # rows of odd length take one way through a kernel, and share the native code for it
        return any_of(low, high) | 1

    def factor() -> float:
        return odd(-9999, 9999) / 1024

    panel = max([8, *(values[0] for name, values in kernel.compiled.constants.items() if _PANEL.search(name) and 8 < values[0] <= 32)])
    seeds = [int(number) for number in random.integers(100, 1 << 30, 5)]
    deep = odd(*DEEP)
    width, height = (max(_FEWEST, min(_MOST_TILES, _WIDEST // extent)) for extent in (columns, rows))
    wide = _MULTIPROCESSORS if geometry(kernel).persistent is None else _PERSISTENT_COLUMNS
    size = counted_size(kernel)
    across, down = any_of(_FEWEST, width), any_of(_FEWEST, height)
    while across * columns * down * rows <= _room(kernel):
        across, down = (across + 1, down) if across * columns <= down * rows else (across, down + 1)
    place = (any_of(across // 2, across - 1), any_of(down // 2, down - 1)), (any_of(1, across - 1), any_of(0, 1))
    across_cluster = columns * geometry(kernel).cluster[0]
    step, vector = step_along_k(kernel), VECTOR // element_type(dtype).bytes
    depths = (step, step * odd(3, 6)) if step else (64, 8 * odd(3, 9))
    whole = [
        one(
            rows, across_cluster, depth, pad_a=vector * any_of(1, 3), pad_b=vector * any_of(1, 3), pad_c=vector * any_of(1, 3),
            seed=seeds[3] + 2 + depth,
        )
        for depth in depths
    ]  # fmt: skip

    deeper = (step or 64) * any_of(5, 6)  # enough for rings of tiles to be full
    less: list[Problem] = [] if tensor_maps(kernel) else [
        one(
            max(1, rows - m), max(1, across_cluster - n), deeper - k, seed=seeds[1] + 1 + place, pad_a=k + vector * any_of(0, 1),
            pad_b=n + vector * any_of(0, 1), pad_c=n + vector * any_of(0, 1),
        )
        for place, (m, n, k) in enumerate(((1, 0, 0), (0, 1, 0), (0, 0, 1)))
    ]  # fmt: skip

    def cut(extent: int, at_most: int, unit: int = 1) -> int:  # whole units of a tile, and not all of it
        return unit * any_of(1, max(1, min(at_most, extent - 1) // unit))

    some, steps = vector * any_of(1, 3), step or 64
    ragged = [
        one(
            rows + cut(rows, rows // share), across_cluster + cut(columns, columns // share, vector), steps * odd(5, 8) + more,
            alpha=alpha, beta=beta, pad_a=some, pad_b=some, pad_c=some, seed=seeds[0] + share,
        )
        for share, more, alpha, beta in ((4, 0, 1.0, 0.0), (1, cut(steps, steps, vector), factor(), factor()))
    ]  # fmt: skip
    more = any_of(257, 300)  # tiles; of a number that is cut to eight bits or fewer, the last one is another one's
    low, right = (min(_MOST_ALONG_Y, max(more, more - 256 + _BEYOND_16_BITS[0] // extent)) for extent in (rows, columns))
    many = [] if geometry(kernel).persistent is not None else [
        some_blocks(rows * low, columns, steps, places=((0, low - 1), (0, low - 257)), seed=seeds[2] + 1),
        some_blocks(rows, columns * right, steps, places=((right - 1, 0), (right - 257, 0)), seed=seeds[2] + 2),
    ]  # fmt: skip
    scaled = ScaledProblem(any_of(9, 40), odd(9, 40), odd(9, 40), dtype=dtype, out_dtype=out_dtype, seed=seeds[3] + 99, scales=20)
    small = one(
        any_of(1, 3 * rows), odd(1, 3 * columns), odd(1, 100), alpha=factor(), beta=factor(),
        pad_a=2 * any_of(0, 4), pad_b=2 * any_of(0, 4), pad_c=2 * any_of(0, 4), seed=seeds[3],
    )  # fmt: skip
    if dtype == "float32" and not kernel.compiled.matrix_types:  # which compute pieces of it have room for what the task says (`demanding`)
        small = ScaledProblem(**vars(small), scales=20)
    batch = one(
        any_of(2, 40), odd(3, 40), odd(41, 90), alpha=factor(), beta=factor(), pad_a=any_of(1, 8), pad_b=any_of(1, 8),
        pad_c=any_of(1, 8), batch=any_of(3, 4), seed=seeds[3] + 1,
    )  # fmt: skip
    sample = some_blocks(rows * down, columns * across, size * (2 if size > COUNTED_SIZE else any_of(2, 3)), seed=seeds[4])
    longest = any_of(1, 7), odd(1, 7), deep
    if tensor_maps(kernel) and seed % 2 == 0:
        longest = (tile := whole_and_deep(kernel, seed)).m, tile.n, tile.k
    return [
        beyond_16_bits(kernel, seeds[0])
        if line_of_16_bits(kernel.source)
        else long(*longest, dtype=dtype, out_dtype=out_dtype, seed=seeds[0]),
        one(rows * (2 * panel + any_of(0, 3)) + any_of(1, rows), across_cluster + odd(1, 3), odd(5, 40), pad_a=2, seed=seeds[1]),
        one(rows * bool(_PANEL.search(kernel.source)) + any_of(1, 3), columns * (wide + any_of(0, 9)) | 1, 32, seed=seeds[2]),
        small,
        *_of_any_alpha(kernel, seeds[3] + 3),
        *whole,
        *less,
        *ragged,
        *_of_whole_factors(kernel, seeds[1] + 1),
        *([scaled] if dtype in _WITH_ROOM else []),
        *near_special_factors(kernel, seeds[3] + 7),
        *_with_minus_one(kernel, seeds[3] + 5),
        *([batch] if takes_batch(kernel) else []),
        *([near] if (near := neighbours(kernel, seeds[4] + 2)) else []),
        *many,
        _square(kernel, seeds[4] + 3),
        replace(sample, places=place[:1]),
        replace(sample, places=place[1:], alpha=factor(), beta=factor(), seed=seeds[4] + 1),
    ]  # fmt: skip


def _of_any_alpha(kernel: Kernel, seed: int) -> list[Problem]:
    """A product of 16-bit results, with few products in a sum and an alpha about halfway between two numbers of C's type: to round it there
    and then the results is more than one rounding allows. None of other results."""
    random, (dtype, out_dtype) = np.random.default_rng(seed), types(kernel)
    if out_dtype not in _OF_FEW_BITS:
        return []
    halfway = 1 + element_type(out_dtype).roundoff * random.choice([1, 3, 5]) * random.uniform(0.97, 1)
    m, n, k = (int(random.integers(*ends)) for ends in ((40, 64), (40, 64), (1, 6)))
    return [Problem(m, n | 1, k, alpha=float(np.float32(halfway * random.choice([-1, 1]))), dtype=dtype, out_dtype=out_dtype, seed=seed)]


def _of_whole_factors(kernel: Kernel, seed: int) -> list[Problem]:
    """Products with as many k as one factor is for, and twice as many: a factor beyond the last one is another block's, or lies outside.
    None of a kernel without block scales, and where a factor is for all of K."""
    block, random, (dtype, out_dtype) = scale_block(kernel), np.random.default_rng(seed), types(kernel)
    if block is None or not block[1] or 2 * block[1] > DEEP[0]:
        return []
    extents = [(int(random.integers(5, 40)), int(random.integers(5, 40)) | 1, times * block[1]) for times in (1, 2)]
    return [Problem(*of, dtype=dtype, out_dtype=out_dtype, seed=seed + of[2]) for of in extents]


def near_special_factors(kernel: Kernel, seed: int) -> list[Problem]:
    """Products with an alpha and a beta that are near 0, 1 or -1, and none of them: who takes them for these with a tolerance is wrong.
    Whole tiles and parts of one, since kernels have ways of their own for either.

    Nearest to 0 is less than FLT_EPSILON, 1.2e-7, with numbers in A, B and C as large as makes results of it that every type of C can hold,
    and sums too. Nearest to 1 is a distance that stands out beside what the types round: with one product in a sum they round least.
    Further off there is a distance of each of `_DISTANCES`, above and below by turns, from each of the three; and last, as near as stands
    out, one factor beside each value of the other for which kernels, as BLAS does, have a way of their own.
    """
    random, (rows, columns), (dtype, out_dtype) = np.random.default_rng(seed), geometry(kernel).tile, types(kernel)
    vector = VECTOR // element_type(dtype).bytes
    types_of: dict[str, Any] = {"dtype": dtype, "out_dtype": out_dtype}

    def factor(value: float) -> float:
        return float(np.float32(value * random.choice([-1, 1]) * random.uniform(1, 2)))

    tiny = functools.partial(ScaledProblem, **types_of, apart=(6, 6), of_c=14)
    distance = _STANDS_OUT * max(element_type(dtype).sums, 0.0 if out_dtype == "float32" else element_type(out_dtype).roundoff)
    across, m, n = columns * geometry(kernel).cluster[0], int(random.integers(9, 40)), int(random.integers(9, 40)) | 1

    # Products in a sum: of pieces one is less exact than of FP32, and together they are allowed more.
    few = 2 * vector if dtype == "float32" and kernel.compiled.matrix_types else 1
    whole: dict[str, Any] = {"m": rows, "n": across, "k": 2 * vector, "pad_c": vector}
    parts: tuple[dict[str, Any], ...] = (
        whole, {"m": 24, "n": 4 * vector, "k": few}, {"m": m, "n": n, "k": max(3, few), "pad_a": 1, "pad_c": 1},
    )  # fmt: skip
    others: list[Problem] = []

    def more(alpha: float, beta: float, part: int | None = None) -> None:
        extents = parts[len(others) % len(parts) if part is None else part]
        others.append(
            Problem(**extents, alpha=float(np.float32(alpha)), beta=float(np.float32(beta)), **types_of, seed=seed + 3 + len(others))
        )

    side = random.choice([-1, 1])
    for least, most in _DISTANCES:
        if most > distance:
            side, away = -side, math.exp(random.uniform(math.log(max(least, distance)), math.log(most)))
            for alpha, beta in ((1, 0), (-1, 1), (0, -1)):
                more(alpha + side * away, beta - side * away)
    near = side * distance * random.uniform(1, 2)
    for alpha, beta in ((1 + near, 0), (1 - near, 1), (near, 1), (1, near), (1, 1 + near)):
        more(alpha, beta, 1)
    return [
        *others,
        tiny(m=rows, n=across, k=2 * vector, alpha=factor(_NEXT_TO_0), beta=factor(_NEXT_TO_0), pad_c=vector, seed=seed),
        tiny(m=m, n=n, k=5, alpha=factor(_NEXT_TO_0), beta=factor(_NEXT_TO_0), pad_c=1, seed=seed + 1),
        Problem(24, 4 * vector, few, alpha=1 + distance, beta=1 - distance, **types_of, seed=seed + 2),
        Problem(24, 4 * vector, few, alpha=distance - 1, beta=-1 - distance, **types_of, seed=seed + 2),
    ]


def _with_minus_one(kernel: Kernel, seed: int) -> list[Problem]:
    """Products with an alpha or a beta of -1, beside each value of the other for which kernels have a way of their own; whole tiles and
    parts of one by turns."""
    (rows, columns), (dtype, out_dtype) = geometry(kernel).tile, types(kernel)
    vector = VECTOR // element_type(dtype).bytes
    parts = (23, 4 * vector, 2 * vector), (rows, columns * geometry(kernel).cluster[0], 2 * vector)
    return [
        Problem(*parts[(place + seed) % 2], alpha=alpha, beta=beta, dtype=dtype, out_dtype=out_dtype, seed=seed + place)
        for place, (alpha, beta) in enumerate(((-1, 0), (-1, 1), (-1, -1), (1, -1), (0, -1)))
    ]


def at_last(kernel: Kernel, seed: int) -> list[Problem]:
    """What a kernel is asked at last, where native code executes it and nothing was wrong: a tile that is `whole_and_deep`, and K
    `beyond_16_bits`, unless `drawn` has them."""
    deep = [] if tensor_maps(kernel) else [whole_and_deep(kernel, seed)]
    return deep + ([] if line_of_16_bits(kernel.source) else [beyond_16_bits(kernel, seed + 1)])


def whole_and_deep(kernel: Kernel, seed: int) -> SampledProblem:
    """All of C in one tile, or in those of a cluster, with whole steps along K and rows of whole vectors, K as long as that of the longest
    thin product: the ways that kernels have for such tiles are nowhere else so long. Of small tiles K is beyond 16 bits."""
    (rows, columns), (dtype, out_dtype) = geometry(kernel).tile, types(kernel)
    across = columns * (1 if geometry(kernel).persistent else geometry(kernel).cluster[0])  # those that walk the tiles say where these are
    own, vector = step_along_k(kernel) or 64, VECTOR // element_type(dtype).bytes
    step = next((step for step in (math.lcm(own, 64), math.lcm(own, vector)) if step <= DEEP[1] - DEEP[0]), own)
    cheap = rows * across * _BEYOND_16_BITS[1] <= _CHEAP and not tensor_maps(kernel)
    least, most = _BEYOND_16_BITS if cheap else DEEP
    steps = int(np.random.default_rng(seed + 5).integers(least // step + 1, max(least // step + 2, most // step)))
    return SampledProblem(rows, across, steps * step, dtype=dtype, out_dtype=out_dtype, places=((0, 0),), seed=seed)


def _square(kernel: Kernel, seed: int) -> SampledProblem:
    """A tile of a product with M = N = K of several tiles: whole ones, and whole steps along K, unless that is too long."""
    random, (rows, columns), (dtype, out_dtype) = np.random.default_rng(seed), geometry(kernel).tile, types(kernel)
    step = step_along_k(kernel) or 64
    unit = next((unit for unit in (math.lcm(rows, columns, step), math.lcm(rows, columns)) if unit <= _LONGEST_SQUARE), step)
    side = unit * -(-max(_SQUARE, rows, columns) // unit)
    place = int(random.integers(side // columns)), int(random.integers(side // rows))
    return SampledProblem(side, side, side, dtype=dtype, out_dtype=out_dtype, places=(place,), seed=seed)


def takes_several(kernel: Kernel) -> bool:
    """Does a thread of the kernel take more than one element of a matrix in one access?"""
    sites = program.sites if (program := program_of(kernel)) else ()
    widths = [site.width for site in sites if site.space in ("global", "generic") and site.op in _BY_ADDRESS]
    return max(widths, default=0) > min(element_type(name).bytes for name in types(kernel))


_BY_ADDRESS = (AccessKind.LOAD, AccessKind.STORE, AccessKind.COPY)  # a thread's own accesses, which need alignment


def of_any_alignment(kernel: Kernel, seed: int) -> tuple[Problem, ...]:
    """What a kernel that takes several elements of a matrix at once has to bear besides: products whose rows are whole vectors of 16
    bytes and begin at no multiple of 16, by their leading dimension, and by where the matrix begins. One of the matrices alone, by an
    element, so that asking for another one shows; or all of them by smaller vectors, so that asking for these does."""
    dtype, out_dtype = types(kernel)
    of_in, of_out = (element_type(name).bytes for name in (dtype, out_dtype))
    smaller = [(max(1, nbytes // of_in), max(1, nbytes // of_out)) for nbytes in (VECTOR // 2, VECTOR // 4, VECTOR // 8)]
    moved = [(1, 0, 0), (0, 1, 0), (0, 0, 1), *((one, one, of_c) for one, of_c in smaller if max(one, of_c) > 1)]
    return _moved(kernel, seed, moved)


def _moved(kernel: Kernel, seed: int, by: Sequence[tuple[int, int, int]]) -> tuple[Problem, ...]:
    """Products of rows of whole vectors, whose A, B and C have leading dimensions so many elements longer, and that begin so late."""
    dtype, out_dtype = types(kernel)
    vector = VECTOR // element_type(dtype).bytes
    whole: dict[str, Any] = {"m": 20, "n": 7 * vector, "k": 5 * vector, "dtype": dtype, "out_dtype": out_dtype, "seed": seed}
    return (
        *(Problem(**whole, pad_a=a, pad_b=b, pad_c=c) for a, b, c in by),
        *(ShiftedProblem(**whole, shifts=shifts) for shifts in by),
    )


def of_any_result(kernel: Kernel, seed: int) -> tuple[Problem, ...]:
    """The same of C alone, of a kernel that stores its results by TMA: rows of whole vectors that begin at no multiple of 16 bytes."""
    return _moved(kernel, seed, [(0, 0, 1)])


def of_any_end(kernel: Kernel, seed: int) -> tuple[Problem, ...]:
    """What such a kernel has to bear besides: products whose rows all begin at a multiple of 16 bytes, and end within a vector of them, of
    which all elements but one are there, half, or fewer. What follows in memory is NaN."""
    dtype, out_dtype = types(kernel)
    vector = VECTOR // element_type(dtype).bytes
    lefts = vector - 1, vector // 2, vector // 2 - 1
    return tuple(
        Problem(
            20, 7 * vector + of_bc, 5 * vector + of_a, dtype=dtype, out_dtype=out_dtype, seed=seed + of_a,
            pad_a=vector - of_a, pad_b=vector - of_bc, pad_c=vector - of_bc,
        )
        for of_a, of_bc in zip(lefts, lefts[-1:] + lefts[:-1], strict=True)
    )  # fmt: skip


def not_finite(kernel: Kernel, seed: int) -> tuple[NonFiniteProblem, ...]:
    """What every kernel has to bear besides: NaN and infinity, in rows of whole vectors and in others, and with these in what C was
    before. Who skips a product with 0, or clamps a result, loses them. Of infinity a kernel without a maximum may make NaN where its
    results are not converted: it may add up what its sums have lost, or multiply pieces of its numbers. None for types without them, and
    for kernels that state pieces."""
    dtype, out_dtype = types(kernel)
    if dtype not in _WITH_NAN or pieces(kernel):
        return ()
    or_nan = not (is_fused(kernel) or out_dtype in _OF_FEW_BITS)
    vector = VECTOR // element_type(dtype).bytes
    shapes = (20, 7 * vector, 5 * vector, 0, 1.0, 0.0), (17, 23, 19, 3, -1.5, 2.5)
    return tuple(
        NonFiniteProblem(
            m, n, k, alpha=alpha, beta=beta, pad_a=pad, pad_b=pad, pad_c=pad, dtype=dtype, out_dtype=out_dtype, seed=seed + pad,
            or_nan=or_nan,
        )
        for m, n, k, pad, alpha, beta in shapes
    )  # fmt: skip


def beyond_16_bits(kernel: Kernel, seed: int) -> Problem:
    """A thin product with more elements of K than 16 bits number. However the compiler unrolls the loop, some are left when it is done."""
    random, (dtype, out_dtype) = np.random.default_rng(seed), types(kernel)
    long = CancellingProblem if dtype in _OF_FEW_BITS else Problem
    return long(7, 7, int(random.integers(*_BEYOND_16_BITS)) | 15, dtype=dtype, out_dtype=out_dtype, seed=seed)


def step_along_k(kernel: Kernel) -> int | None:
    """Its step along K, if the source has a constant of the usual name."""
    found = re.search(r"\b(?:BK|BLOCK_?K|TILE_?K|K_?STEP)\s*=?\s*(\d+)\b", kernel.source, re.I)
    return int(found[1]) if found and 1 <= int(found[1]) <= _LONGEST_STEP else None


def _room(kernel: Kernel) -> int:
    """Elements of C that there is room for in the global variables of a kernel whose slices share a tile; 0 of others, and of more than a
    check computes."""
    if (geometry(kernel).depth or 1) < 2:
        return 0
    elements = len(program.image.data) // 4 if (program := program_of(kernel)) else 0
    return elements if elements <= _MOST_ROOM else 0


def neighbours(kernel: Kernel, seed: int) -> SampledProblem | None:
    """A product of as many tiles as a kernel whose slices share a tile has room for, of one step for each slice, and of it the first tile
    and those that are a power of two further on, all slices of each: what two of them share, because room is counted too short or a
    tile's number cut, these hold at the same time. None for other kernels."""
    (rows, columns), slices, (dtype, out_dtype) = geometry(kernel).tile, geometry(kernel).depth or 1, types(kernel)
    tiles = min(_NEIGHBOURS, _room(kernel) // (rows * columns * slices))
    if tiles < 2:
        return None
    across = math.isqrt(tiles)
    down = tiles // across
    numbers = [0, *(1 << bits for bits in range((across * down - 1).bit_length()))]
    places = tuple((number % across, number // across) for number in numbers)
    k = (step_along_k(kernel) or 64) * slices
    return SampledProblem(rows * down, columns * across, k, dtype=dtype, out_dtype=out_dtype, places=places, seed=seed)


_NEIGHBOURS = 1100  # tiles: behind a number of ten bits
_MOST_ROOM = 1 << 23  # elements
_PANEL = re.compile("panel|group|swizzle|raster", re.I)  # names of the constant that says how many rows of tiles go together
DEEP = 4100, 6000  # K in a check, at its largest: behind a cap at 4096, and more than twice what rings of tiles hold of most kernels
_BEYOND_16_BITS = (1 << 16) + 64, (1 << 16) + 4096
_CHEAP = 1 << 27  # multiply-adds of a tile
_MOST_ALONG_Y = (1 << 16) - 1  # blocks of a grid
_LONGEST_STEP = 256  # elements of K
_WITH_NAN = ("float32", "tf32", "float16", "bfloat16")
_OF_FEW_BITS = ("float16", "bfloat16")
_WITH_ROOM = ("bfloat16",)  # types of 16 bits and less whose range is that of float32
_SQUARE = 320  # M = N = K of a product of some tiles, at the least
_LONGEST_SQUARE = 2048  # and at the most, where tiles of two different extents divide it
_NEXT_TO_0 = 4e-8
_DISTANCES = (1e-5, 1e-3), (1e-3, 0.02), (0.02, 0.35)  # of a factor from 0, 1 or -1: from where to where there is one of each
_STANDS_OUT = 64  # times the rounding of a sum, of which `Problem.expected` allows five
_MULTIPROCESSORS = 140  # more than any GPU of today has
_PERSISTENT_COLUMNS = 20  # of tiles: several for each block, since there are as few multiprocessors as that asks for
_FEWEST, _MOST_TILES, _WIDEST = 5, 40, 2048  # tiles along a side of the sampled product, and its elements where tiles are small
