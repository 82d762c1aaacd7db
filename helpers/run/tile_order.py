"""Do the blocks of a launch reach every tile of C? Blocks that are run on their own are right whichever tile each of them takes, so a
kernel that numbers its tiles itself may leave most of a large C to nobody, and pass where there are few."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from helpers.errors import CourseError, RunError
from helpers.sim.checks.endless import NEVER_ENDS
from helpers.sim.code import time_limit
from helpers.sim.code.addresses import DEVICE_BASE
from helpers.sim.code.hardware_units import WARP
from helpers.sim.counting import machine_code

from . import block_scales
from .geometry import Geometry, geometry, tensor_maps
from .kernel import Kernel
from .own_products import fitted, problem_for
from .passes import pieces
from .problem import Problem, SampledProblem
from .product_runs import CHECKED_WALK, few_multiprocessors, run_sample

_FEW = 24  # tiles
_WALKED = CHECKED_WALK << 12  # tiles: blocks go on by a power of two, so that a number cut to few bits is one that the same block has had
_MANY = 10_000  # tiles: beyond every power of two, or of ten, that somebody gives a counter
_BEYOND_16_BITS = 70_000  # tiles: more than an unsigned short numbers
_ELEMENTS = (1 << 31) - 1  # of C, as many as an int numbers
_SECONDS = 6.0
_ARRAY = 1 << 40  # bytes between the matrices


def many_tiles(kernel: Kernel, seed: int, count: int = _MANY) -> Problem | None:
    """A product of about `count` tiles, or as many as an int can number the elements of, in many rows and columns, with K = 1. None of a
    kernel that walks the tiles with few blocks."""
    shape, random = geometry(kernel), np.random.default_rng(seed)
    if shape.persistent is not None:
        return None
    rows, columns = shape.tile
    most = min(count, _ELEMENTS // (rows * columns))
    across = math.isqrt(most) + int(random.integers(-4, 5))
    return problem_for(kernel, rows * -(-most // across), columns * across, 1, seed=seed)


def tiles_apart(kernel: Kernel, problem: Problem, k: int) -> SampledProblem:
    """The first tile of the product and those that are a power of two further on, and the last one, with K cut to `k`: the tiles that two
    blocks share where a number was cut."""
    across, down = geometry(kernel).tiles(problem.m, problem.n)
    places = tuple((number % across, number // across) for number in _apart(across * down))
    return SampledProblem.of(problem, places, k=min(k, problem.k))


def _apart(count: int) -> list[int]:
    """Of the numbers below `count` the first, the powers of two, and the last."""
    return sorted({0, *(1 << bits for bits in range((count - 1).bit_length())), count - 1})


def thin(kernel: Kernel, seed: int, count: int = _MANY) -> list[Problem]:
    """One row of `count` tiles, and one column, with K = 1: C is small."""
    rows, columns = geometry(kernel).tile
    return [problem_for(kernel, *extents, 1, seed=seed) for extents in ((1, columns * count), (rows * count, 1))]


def unwalked(kernel: Kernel, seed: int, seconds: float = _SECONDS) -> tuple[Problem, str] | None:
    """A product of many tiles of which two blocks (or clusters) that walk them do not compute their share, or a wrong one, and what they
    do instead, as a sentence. None where they do theirs, or do not of few tiles either: they may share the work in another way. None of
    kernels whose blocks have one tile, share one, or are given pieces. seconds: for each of four launches."""
    shape = geometry(kernel)
    if shape.persistent is None or shape.parts > 1 or pieces(kernel):
        return None
    for many, few in zip(thin(kernel, seed, _WALKED), thin(kernel, seed, _FEW), strict=True):
        if (text := _walked(kernel, many, seconds)) and _walked(kernel, few, seconds) == "":
            return many, f"{text} {_FEWER}"
    return None


def _walked(kernel: Kernel, problem: Problem, seconds: float = _SECONDS) -> str | None:
    """What the first and the last of its blocks (or clusters) do wrong that walk some of the tiles, '' if nothing; None where they cannot
    be run alone, or not within these seconds."""
    shape = geometry(kernel)
    across, _ = shape.tiles(problem.m, problem.n)
    few = replace(shape, multiprocessors=few_multiprocessors(shape, problem, CHECKED_WALK))
    last = few.grid(problem.m, problem.n, 1)[0] // shape.cluster[0] - 1
    sample = SampledProblem.of(problem, [(0, 0), (last % across, last // across)])
    try:
        _, wrong, missing = run_sample(kernel, sample, seconds, walked=CHECKED_WALK, findings=False)
    except RunError as error:  # without a finding it says nothing of the kernel: no room, no time
        return error.message if error.findings and NEVER_ENDS not in error.message else None
    except CourseError:
        return None
    return wrong or missing


def unreached(kernel: Kernel, problem: Problem, seconds: float = _SECONDS) -> str | None:
    """'' if every tile of C is stored to, else which is not, as a sentence; None where the machine code does not tell, or not in time.

    It is the first warps of all blocks that are asked. What they say against a kernel is said only if all threads of the blocks that
    are named say it too.
    """
    return _told(_unreached, kernel, problem, seconds)


def taken_twice(kernel: Kernel, seed: int, seconds: float = _SECONDS) -> tuple[Problem, str] | None:
    """A product of more tiles than 16 bits number, and the sentence that two of its blocks store to one of them. They are looked for among
    the first block, those that are a power of two further on, and the last one, which is where cut numbers meet. None where none are found.
    """
    problem = many_tiles(kernel, seed, _BEYOND_16_BITS)
    text = None if problem is None else _told(_taken_twice, kernel, problem, seconds)
    return (problem, text) if problem and text else None


def _told(tell: Callable[[Kernel, Geometry, Problem], str | None], kernel: Kernel, problem: Problem, seconds: float) -> str | None:
    """What `tell` says of a kernel that has a block for each tile, and stores to C itself; None of others, or where it takes too long."""
    shape, problem = geometry(kernel), fitted(kernel, problem)
    if shape.persistent is not None or tensor_maps(kernel) or pieces(kernel) or block_scales.scale_block(kernel) or problem.batch > 1:
        return None
    if not kernel.compiled.cubin:
        return None
    try:
        with time_limit.until(time_limit.now() + seconds):
            return tell(kernel, shape, problem)
    except time_limit.TimeIsUp:
        return None


_Launched = tuple[Any, tuple[int, int, int], Sequence[int], list[Any], machine_code.StoredMatrix]


def _launch(kernel: Kernel, shape: Geometry, problem: Problem) -> _Launched:
    """The first arguments of `machine_code.stored_tiles` and `stored_elements`."""
    grid = shape.grid(problem.m, problem.n)
    a, b, c = (DEVICE_BASE + number * _ARRAY for number in (1, 2, 3))
    plain = [
        problem.m, problem.n, min(problem.k, 1), problem.alpha, a, problem.lda, b, problem.ldb, problem.beta, c, problem.ldc,
    ]  # fmt: skip
    given, size = [*plain, *problem.behind()], problem.result.bytes
    across, _ = shape.tiles(problem.m, problem.n)
    matrix = machine_code.StoredMatrix(c, problem.ldc * size, size, shape.tile, across, problem.m)
    return kernel.compiled, grid, shape.block, given, matrix


def _stored(launch: _Launched, shape: Geometry, numbers: Sequence[int]) -> list[np.ndarray] | None:
    """Of each block of these numbers in a layer of the grid, with those behind it along z, the bytes of C that it stores to; None where the
    machine code does not tell."""
    x, y, z = launch[1]
    blocks = [number + layer * x * y for number in numbers for layer in range(z)]
    found = machine_code.stored_elements(*launch, blocks, shape.cluster)
    return None if found is None else [np.concatenate(found[first : first + z]) for first in range(0, len(found), z)]


def _taken_twice(kernel: Kernel, shape: Geometry, problem: Problem) -> str | None:
    grid = shape.grid(problem.m, problem.n)
    numbers = _apart(grid[0] * grid[1])
    stored = _stored(_launch(kernel, shape, problem), shape, numbers)
    if stored is None:
        return None
    both = _meet(numbers, stored)
    return f"blocks {_named(both[0], grid)} and {_named(both[1], grid)} both store to the same elements of C. {_ONCE}" if both else ""


def _meet(numbers: Sequence[int], stored: Sequence[np.ndarray]) -> tuple[int, int] | None:
    """Two of these blocks, of each of which the bytes it stores to are given, that store to one element."""
    places, owners = np.concatenate(stored), np.repeat(numbers, [len(mine) for mine in stored])
    order = np.argsort(places, kind="stable")
    places, owners = places[order], owners[order]
    met = np.flatnonzero((places[1:] == places[:-1]) & (owners[1:] != owners[:-1]))
    return (int(owners[met[0]]), int(owners[met[0] + 1])) if met.size else None


def _first_stored(found: tuple[np.ndarray, np.ndarray] | None, grid: tuple[int, int, int]) -> np.ndarray | None:
    """Of the blocks of a layer of the grid, the tile that each stores to, -1 for none. None where one stores to several, or none to any.

    found: what `machine_code.stored_tiles` says."""
    if found is None:
        return None
    first, last = (ends.reshape(grid[2], -1) for ends in found)
    first, last = first.min(axis=0), last.max(axis=0)  # of the blocks along z, which share a tile
    stores = last >= 0
    return None if not stores.any() or (first != last)[stores].any() else last


def _unreached(kernel: Kernel, shape: Geometry, problem: Problem) -> str | None:
    (across, down), grid = shape.tiles(problem.m, problem.n), shape.grid(problem.m, problem.n)
    launch = _launch(kernel, shape, problem)
    for lanes in (1, WARP):  # as a rule the first lane says it alone, in a tenth of the time
        first, reached = _first_stored(machine_code.stored_tiles(*launch, shape.cluster, lanes), grid), np.zeros(across * down, bool)
        if first is not None:
            reached[first[first >= 0]] = True
        if reached.all():
            return ""
    if first is None:
        return None
    stores = first >= 0
    inside = np.arange(len(first)) % grid[0] < across
    inside &= np.arange(len(first)) // grid[0] < down
    left = f"no block stores to {int((~reached).sum()):,} of {reached.size:,} tiles of C"
    _, which, times = np.unique(first[stores], return_inverse=True, return_counts=True)
    if (times > 1).any():
        one, other = (int(number) for number in np.flatnonzero(stores)[which == int(np.argmax(times > 1))][:2])
        stored = _stored(launch, shape, (one, other))
        if stored is None or not _meet((one, other), stored):
            return None
        tile = int(first[one])
        return (
            f"{left}: blocks {_named(one, grid)} and {_named(other, grid)} both store to the one of rows from "
            f"{tile // across * shape.tile[0]} and columns from {tile % across * shape.tile[1]}. {_ONCE}"
        )
    idle = np.flatnonzero(~stores & inside)
    if not idle.size:
        return None
    one = int(idle[0])
    stored = _stored(launch, shape, (one,))
    if stored is None or stored[0].size:
        return None
    return f"{left}: block {_named(one, grid)} stores nothing. {_ONCE}"


def _named(block: int, grid: tuple[int, int, int]) -> str:
    return f"({block % grid[0]}, {block // grid[0]})"


_FEWER = f"A product of {_FEW} tiles is right: look at how a block goes on from one of its tiles to the next, and at where that loop ends."
_ONCE = "Blocks may take the tiles in any order, in which each tile is once: look at how a block finds its tile, where there are many."
