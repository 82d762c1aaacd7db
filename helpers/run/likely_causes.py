"""What may be why a product is wrong, as sentences: matrices taken by columns, a tile that is left in part, sums in FP16 or
BF16, padding that is read."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from helpers.errors import quote
from helpers.sim import Trace

from .differences import wrong_ones

if TYPE_CHECKING:
    from .kernel import Kernel
    from .problem import Problem

ANOTHER_TILE = "let tile_shape say what they compute, or "  # advice that an exercise leaves out whose tile is given
_GROWTH = 4  # errors of sums in FP16 grow with the square root of their number: so many times that
_B_ALONE = (
    "(Most tensor-core kernels in public take B so, as N × K: “TN”. Load it as it lies here and turn it on the way, with ldmatrix's .trans "
    "or in shared memory, or launch the kernel yourself, with .launch(grid, block, args) and a B whose columns you have made rows.)"
)


def by_columns(a: np.ndarray, b: np.ndarray, c: np.ndarray, alpha: float, bias: np.ndarray | None = None) -> str:
    """What is to be said of a kernel that takes rows for columns, as a sentence with a space before it; else "". a, b, c: of a product with
    square matrices ([n, n], float64), what it was given and what came of it. bias: that is added ([n]) before what is below 0 becomes 0;
    None: neither is done. Where all are taken so, it computes the transpose of AᵀBᵀ, which is BA."""
    for turned in itertools.product((False, True), repeat=3):
        left, right = (matrix.T if turn else matrix for matrix, turn in zip((a, b), turned, strict=False))
        result = alpha * (left @ right).T if turned[2] else alpha * left @ right
        if any(turned) and np.allclose(c, result if bias is None else np.maximum(result + bias, 0), 1e-2, 1e-2):
            break
    else:
        return ""
    if all(turned):
        return (
            " Of square matrices it computes B × A: it takes rows for columns, as cuBLAS and Fortran have them, with element (i, j) at "
            "i + j * ld. Here they lie row by row, at i * ld + j."
        )
    product = f"{'Aᵀ' if turned[0] else 'A'} × {'Bᵀ' if turned[1] else 'B'}"
    which = [name for name, turn in zip("ABC", turned, strict=True) if turn]
    said = f" Of square matrices it computes {f'({product})ᵀ' if turned[2] else product}: it takes {' and '.join(which)} by columns"
    if which == ["B"]:
        return f"{said}, with element (k, n) at k + n * ldb. Here B is K × N and lies row by row, (k, n) at k * ldb + n. {_B_ALONE}"
    lies = "it lies" if len(which) == 1 else "they lie"
    return f"{said}, with element (i, j) at i + j * ld. Here {lies} row by row, at i * ld + j."


def left_of_tile(stored: np.ndarray) -> str:
    """What of a whole tile of C no thread stores to, if that is whole rows or columns, as a sentence with a space before it; else "".
    stored: [rows, columns] of the tile that tile_shape states, boolean."""
    rows, columns = stored.shape
    missing = [np.flatnonzero(~stored.any(axis=axis)) for axis in (1, 0)]  # whole rows, whole columns
    kept = rows - len(missing[0]), columns - len(missing[1])
    if kept == (rows, columns) or 0 in kept:
        return ""
    begin = f" tile_shape says that a block computes {rows} × {columns} elements of C, and of a whole tile its threads"
    if all(not len(gap) or gap[0] == size - len(gap) for gap, size in zip(missing, stored.shape, strict=True)):
        return f"{begin} store to {kept[0]} × {kept[1]}: {ANOTHER_TILE}let them compute the rest."
    gaps = [f"{name} {_ranges(gap)}" for name, gap in zip(("rows", "columns"), missing, strict=True) if len(gap)]
    return f"{begin} never store to {' and '.join(gaps)}: look at how they find the row and the column of what they store."


def _ranges(numbers: np.ndarray) -> str:
    """Numbers in ascending order as "0 to 7, 12 and more"; three ranges at most."""
    parts = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    said = [str(part[0]) if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts]
    return ", ".join(said[:3]) + (" and others" if len(said) > 3 else "")


@dataclass(frozen=True)
class FewBits:
    """Where a kernel rounds to a type of `bits` bits on the way, and what to do, as a sentence."""

    said: str
    bits: int


def few_bits(kernel: Kernel) -> FewBits | None:
    """What of a kernel keeps sums in FP16 on tensor cores, or else computes in FP16 or BF16 on CUDA cores; None where nothing does."""
    on_tensor_cores, by_threads = kernel.compiled.float16_sums, kernel.compiled.narrow_arithmetic
    if (found := on_tensor_cores or by_threads) is None:
        return None
    opcode, line = found
    name, bits = ("BF16", 8) if "bf16" in opcode else ("FP16", 11)
    where = None if line is None else f"Line {line}, “{quote(kernel.source, line)}”,"
    held = f"{bits} bits, and C is held to what sums in FP32 reach"
    if on_tensor_cores:
        advice = "let the accumulators be float (.f32 for D and C), and round once, where C is stored"
        return FewBits(f"{where or 'A matrix instruction'} keeps sums in FP16 ({opcode}), which have {held}: {advice}.", bits)
    does = {"cvt": "rounds to", "mul": "multiplies in"}.get(opcode.split(".")[0], "adds up in")
    return FewBits(
        f"{where or 'An instruction'} {does} {name} ({opcode}), which has {held}: multiply and add up in float, with elements "
        "that are made float first, and round once, where C is stored.",
        bits,
    )


def wrong_by_little(problem: Problem, before: tuple[np.ndarray, ...], after: tuple[np.ndarray, ...], bits: int) -> bool:
    """Are all elements of C that are wrong off by no more than sums of numbers with so many bits may be?"""
    value, bound = problem.expected(*before)
    got = after[2][:, : problem.n].astype(np.float64)
    wrong = wrong_ones(got, value, bound)
    left, right = problem.factors(before[0], before[1])
    size = abs(problem.alpha) * (np.abs(left) @ np.abs(right)) if problem.batch == 1 else np.zeros(value.shape)
    if problem.beta:
        size = size + abs(problem.beta * before[2][:, : problem.n].astype(np.float64))
    return bool(wrong.any() and (np.abs(got - value) <= bound + _GROWTH * np.sqrt(problem.k + 16) * 2.0**-bits * size)[wrong].all())


def reads_padding(trace: Trace, name: str, columns: int, pitch: int, size: int) -> tuple[int | None, int, int] | None:
    """(line, row, column) of the first load of nothing but padding of an input: an array of rows of `columns` elements of `size` bytes that
    are `pitch` elements apart. name: of its parameter. None where there is no such load."""
    home = next((item for item in trace.allocations if item.name == name), None)
    loads = np.array([not site.op.changes and site.line is not None for site in trace.sites] or [False])
    if home is None or pitch <= columns or not loads.any():
        return None
    widths = np.array([max(site.width, 1) for site in trace.sites])[trace.accesses["site"]][:, None]
    offset = trace.addresses - home.base
    first, last = offset // size, (offset + widths - 1) // size
    inside = (trace.addresses >= home.base) & (offset + widths <= home.nbytes) & loads[trace.accesses["site"]][:, None]
    bad = inside & (first % pitch >= columns) & (first // pitch == last // pitch)
    if not bad.any():
        return None
    rows, lanes = np.nonzero(bad)
    one = int(np.argmin(trace.accesses["order"][rows]))
    element = int(first[rows[one], lanes[one]])
    return trace.sites[int(trace.accesses["site"][rows[one]])].line, element // pitch, element % pitch
