"""What may be why a product is wrong, as sentences: matrices taken by columns, a tile that is left in part, sums in FP16 or
BF16, a ReLU that is left out, alpha or beta that is, padding that is read."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from helpers.element_types import element_type
from helpers.errors import called_from, quote, statement_line
from helpers.sim import Trace

from . import transposes
from .differences import wrong_ones
from .own_products import MATRICES, types

if TYPE_CHECKING:
    from .kernel import Kernel
    from .problem import Problem

ANOTHER_TILE = "let tile_shape say what they compute, or "  # advice that an exercise leaves out whose tile is given
_GROWTH = 4  # errors of sums in FP16 grow with the square root of their number: so many times that
_PUBLIC = " Most tensor-core kernels in public take B so (“TN”)."
_AGAIN = re.compile(r" Run the cell again .*?\.(?= |$)")  # advice that an exercise leaves out, whose matrices are given


def in_exercise(message: str, given: bool) -> str:
    """A message without advice that would make another task of an exercise. given: so is its tile."""
    return _AGAIN.sub("", message.replace(ANOTHER_TILE, "") if given else message)


def by_columns(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, alpha: float, bias: np.ndarray | None = None,
    said: tuple[bool, bool] = (False, False),
) -> str:  # fmt: skip
    """What is to be said of a kernel that takes rows for columns, as a sentence with a space before it; else "". a, b, c: of a product with
    square matrices ([n, n], float64, as the product has them), what it was given and what came of it. bias: that is added ([n]) before
    what is below 0 becomes 0; None: neither is done. said: does it say that it takes A by columns, and B? Where all are taken so and it
    says nothing, it computes the transpose of AᵀBᵀ, which is BA."""
    for turned in itertools.product((False, True), repeat=3):
        left, right = (matrix.T if turn else matrix for matrix, turn in zip((a, b), turned, strict=False))
        result = alpha * (left @ right).T if turned[2] else alpha * left @ right
        if any(turned) and np.allclose(c, result if bias is None else np.maximum(result + bias, 0), 1e-2, 1e-2):
            break
    else:
        return ""
    columns = [name for name, turn, already in zip("ABC", turned, (*said, False), strict=True) if turn and not already]
    rows = [name for name, turn, already in zip("AB", turned, said, strict=False) if turn and already]
    if columns == ["A", "B", "C"]:
        return (
            " Of square matrices it computes B × A: it takes rows for columns, as cuBLAS and Fortran have them, with element (i, j) at "
            f"i + j * ld, or A for B. Here they lie row by row, at i * ld + j.{_what_to_do(turned, said)}"
        )
    product = f"{'Aᵀ' if turned[0] else 'A'} × {'Bᵀ' if turned[1] else 'B'}"
    taken = " and ".join(f"{' and '.join(names)} by {how}" for names, how in ((columns, "columns"), (rows, "rows")) if names)
    text = f" Of square matrices it computes {f'({product})ᵀ' if turned[2] else product}: it takes {taken}"
    if columns == ["B"] and not rows:
        text += f", with element (k, n) at k + n * ldb. Here B is K × N and lies row by row, (k, n) at k * ldb + n.{_PUBLIC}"
    elif rows == ["B"] and not columns:
        text += ", with element (k, n) at k * ldb + n. Here B is N × K and lies by columns, (k, n) at k + n * ldb."
    elif not any(said):
        lies = "it lies" if len(columns) == 1 else "they lie"
        text += f", with element (i, j) at i + j * ld. Here {lies} row by row, at i * ld + j."
    else:
        text += "."
    return text + _what_to_do(turned, said)


def _what_to_do(turned: tuple[bool, ...], said: tuple[bool, bool]) -> str:
    """How the course computes what such a kernel computes, as sentences with a space before them."""
    takes = [turn != already for turn, already in zip(turned, said, strict=False)]  # A by columns, B by columns
    if turned[2]:  # B stands in A's place then, and what is by columns is by rows
        after = (not takes[1], not takes[0])
        return f" {transposes.C_BY_COLUMNS}.{_options(after, said)}"
    return _options((takes[0], takes[1]), said)


def _options(wanted: tuple[bool, bool], said: tuple[bool, bool]) -> str:
    """Which options the cell has to have, and has not, or has and should not."""
    each = list(zip(transposes.NAMES, wanted, said, strict=True))
    more = [f"--{name}" for name, want, have in each if want and not have]
    less = [f"--{name}" for name, want, have in each if have and not want]
    shapes = {"--transa": "A as K × M, lda from one k to the next", "--transb": "B as N × K, ldb from one column to the next"}
    text = ""
    if more:
        text += f" Run the cell again with {' '.join(more)} behind its name: it is given {', and '.join(shapes[name] for name in more)}."
    if less:
        text += f" Drop {' and '.join(less)} (or the line of the source that says so), or read it by columns."
    return text


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


def of_maximum(problem: Problem, before: Sequence[np.ndarray], c: np.ndarray) -> str:
    """What is to be said of C where a kernel adds its bias and nothing becomes 0 that is less, or what was less before the bias, as a
    sentence with a space before it; else "". Two results tell that apart which are less than 0, with the bias or without. before: A, B and
    C as they were."""
    if not problem.fused:
        return ""
    value, _ = replace(problem, fused=False).expected(*before)
    _, bound = problem.expected(*before)
    bias, got = problem.bias().astype(np.float64), c[:, : problem.n].astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinity less infinity
        early = np.maximum(value, 0) + bias
        value += bias
        less = (value < -bound).sum()
        left_out, too_early = ((np.abs(got - wrong) <= bound).all() for wrong in (value, early))
        apart = (np.abs(early - value) > bound).any() and (np.abs(early - np.maximum(value, 0)) > bound).any()
    if left_out and less > 1 and (apart or not too_early):
        return (
            " It adds the bias and leaves out the ReLU: a kernel that takes a bias is held to max(0, alpha · A · B + beta · C + bias). Let "
            "what is less become 0, or launch the kernel yourself with .launch(grid, block, args)."
        )
    if too_early and apart:
        return (
            " It adds the bias to what the ReLU has left: max(0, alpha · A · B + beta · C) + bias. The bias comes first: "
            "max(0, alpha · A · B + beta · C + bias)."
        )
    return ""


def of_factors(problem: Problem, before: Sequence[np.ndarray], c: np.ndarray) -> str:
    """What is to be said of a wrong C that is what other factors would make of it: beta · C left out, or alpha, or each where the other
    belongs, as a sentence with a space before it; else "". before: A, B and C as they were."""
    alpha, beta = problem.alpha, problem.beta
    got = c[:, : problem.n].astype(np.float64)
    if not problem.k or got.size < _ENOUGH or not np.isfinite(got).all() or problem.near_special_factors():
        return ""
    tried = {(1.0, 0.0): "with alpha = 1: multiply the sum by alpha"}
    if beta:
        tried = {
            (alpha, 0.0): "with beta = 0: add beta · C, of what C was before",
            (1.0, beta): "with alpha = 1: multiply the sum by alpha",
            (1.0, 0.0): "with alpha = 1 and beta = 0: store alpha · sum + beta · C, of what C was before",
            (alpha, 1.0): "with beta = 1: multiply what C was before by beta",
            (alpha, alpha * beta): "with alpha · beta for beta: multiply the sum alone by alpha, not what C was before",
            (beta, alpha): "with alpha and beta exchanged",
        }
    for factors, said in tried.items():
        if factors != (alpha, beta):
            value, bound = replace(problem, alpha=factors[0], beta=factors[1]).expected(*before)
            if not wrong_ones(got, value, bound).any():
                return f" C is what it would be {said}."
    return ""


_ENOUGH = 8  # elements of C, which do not agree by chance


def _ranges(numbers: np.ndarray) -> str:
    """Numbers in ascending order as "0 to 7, 12 and more"; three ranges at most."""
    parts = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    said = [str(part[0]) if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts]
    return ", ".join(said[:3]) + (" and others" if len(said) > 3 else "")


_FOR_CORES = "Take A and B in that type (`const half*`), or multiply in tf32, which tensor cores make of floats."


_SHORT = {"float16": "f16", "bfloat16": "bf16", "float8_e4m3": "e4m3", "float8_e5m2": "e5m2"}  # as PTX names them


def multiplied_as(kernel: Kernel) -> str:
    """What is to be said of a kernel whose matrix instructions all take A and B for another short type, as a sentence with a space before
    it; else ""."""
    dtype, own = types(kernel)[0], kernel.compiled.matrix_types
    others = [name for name, kind in _SHORT.items() if {kind} == own and name != dtype]
    if dtype not in _SHORT or not others or (found := kernel.compiled.multiplies(_SHORT[others[0]])) is None:
        return ""
    opcode, number = found
    line = statement_line(kernel.source, number)
    where = "Its matrix instructions multiply" if line is None else f"Line {line}, “{quote(kernel.source, line)}”, multiplies"
    labels = (element_type(name).label for name in (others[0], dtype))
    return f" {where} {next(labels)} ({opcode}), and A and B are {next(labels)}: name the type of A and B there."


@dataclass(frozen=True)
class FewBits:
    """Where a kernel rounds to a type of `bits` bits on the way, and what to do, as a sentence."""

    said: str
    bits: int


def rounding(kernel: Kernel) -> FewBits | None:
    """What of a kernel keeps sums in FP16 on tensor cores, or else computes in FP16 or BF16 on CUDA cores, or else keeps a tile of rounded
    numbers in shared memory; None where nothing does."""
    on_tensor_cores, by_threads = kernel.compiled.float16_sums, kernel.compiled.narrow_arithmetic
    if (found := on_tensor_cores or by_threads or kernel.compiled.narrow_tile) is None:
        return None
    opcode, line = found
    name, bits = ("BF16", 8) if "bf16" in opcode else ("FP16", 11)
    where = None if line is None else f"Line {line}, “{quote(kernel.source, line)}”,"
    once = "" if types(kernel)[1] == "float32" else ", and round once, where C is stored"
    held = f"{bits} bits, and C is held to what sums in FP32 reach"
    if on_tensor_cores:
        advice = f"let the accumulators be float (.f32 for D and C){once}"
        return FewBits(f"{where or 'A matrix instruction'} keeps sums in FP16 ({opcode}), which have {held}: {advice}.", bits)
    if by_threads is None:
        return FewBits(
            f"{where or 'A conversion'} rounds to {name} ({opcode}) what shared memory keeps, and it is read there as a factor: {name} has "
            f"{held}. {_FOR_CORES if kernel.compiled.matrix_types else 'Let the tile in shared memory be float.'}",
            bits,
        )
    does = {"cvt": "rounds to", "mul": "multiplies in"}.get(opcode.split(".")[0], "adds up in")
    return FewBits(
        f"{where or 'An instruction'} {does} {name} ({opcode}), which has {held}: multiply and add up in float, with elements "
        f"that are made float first{once}.",
        bits,
    )


def wrong_by_little(problem: Problem, before: tuple[np.ndarray, ...], after: tuple[np.ndarray, ...], bits: int) -> bool:
    """Are all elements of C that are wrong off by no more than sums of numbers with so many bits may be?"""
    value, bound = problem.expected(*before)
    got = after[2][:, : problem.n].astype(np.float64)
    wrong = wrong_ones(got, value, bound)
    left, right = problem.factors(before[0], before[1])
    with np.errstate(invalid="ignore"):  # infinity times 0
        size = abs(problem.alpha) * (np.abs(left) @ np.abs(right)) if problem.batch == 1 else np.zeros(value.shape)
    if problem.beta:
        size = size + abs(problem.beta * before[2][:, : problem.n].astype(np.float64))
    with np.errstate(invalid="ignore"):  # infinity less infinity
        near = np.abs(got - value) <= bound + _GROWTH * np.sqrt(problem.k + 16) * 2.0**-bits * size
    return bool(wrong.any() and near[wrong].all())


_FAR = (1.0, 0.0), (2.5, -2.5)  # alpha and beta: exact values that kernels have a way of their own for, and some that are near none


def near_factors(problem: Problem, is_right: Callable[[Problem], bool]) -> str:
    """Which factor of a wrong product is near 0, 1 or -1 and why it is wrong, as a sentence with a space before it: with other values of
    that factor, or of both, the same shape is right. "" where neither is why. is_right: of another product."""
    near = problem.near_special_factors()
    for names in {(name,): None for name in near} | {tuple(near): None}:
        others = [
            replace(problem, alpha=alpha if "alpha" in names else problem.alpha, beta=beta if "beta" in names else problem.beta)
            for alpha, beta in _FAR
        ]
        if names and all(map(is_right, others)):
            return f" It has {' and '.join(near[name] for name in names)}. Is a factor compared with a tolerance? Compare with ==."
    return ""


@dataclass(frozen=True)
class PaddingRead:
    """A load of padding: its line, the lines that call the function it stands in (outwards), and the elements that it reads: `count` from
    [row, column] on."""

    line: int | None
    calls: tuple[int, ...]
    row: int
    column: int
    count: int


def reads_padding(trace: Trace, name: str, columns: int, pitch: int, across: bool = False) -> PaddingRead | None:
    """The first load of nothing but padding of an input: an array of rows of `columns` elements that are `pitch` elements
    apart. across: of a row's last elements together with padding, which may be left out later. name: of its parameter. None where there
    is no such load."""
    home = next((item for item in trace.allocations if item.name == name), None)
    loads = np.array([not site.op.changes and site.line is not None for site in trace.sites] or [False])
    if home is None or pitch <= columns or not loads.any():
        return None
    widths = np.array([max(site.width, 1) for site in trace.sites])[trace.accesses["site"]][:, None]
    offset, size = trace.addresses - home.base, home.itemsize
    first, last = offset // size, (offset + widths - 1) // size
    inside = (trace.addresses >= home.base) & (offset + widths <= home.nbytes) & loads[trace.accesses["site"]][:, None]
    beyond = (first % pitch < columns) & (first % pitch + last - first >= columns) if across else first % pitch >= columns
    bad = inside & beyond & (across | (first // pitch == last // pitch))
    if not bad.any():
        return None
    rows, lanes = np.nonzero(bad)
    one = int(np.argmin(trace.accesses["order"][rows]))
    element, end = int(first[rows[one], lanes[one]]), int(last[rows[one], lanes[one]])
    site = trace.sites[int(trace.accesses["site"][rows[one]])]
    return PaddingRead(site.line, site.calls, element // pitch, element % pitch, end - element + 1)


def of_padding(kernel: Kernel, problem: Problem, trace: Trace, c: np.ndarray, without: Callable[[int], np.ndarray]) -> str:
    """Where a product with NaN in `c` reads the padding of A or B, as a sentence with a space before it; "" where it does not. without(0),
    without(1): C where the padding of A, of B, is zero: what is read across a row's end may be left out later, and is no cause then."""
    nans = _nans(problem, c)
    for across in (False, True) if nans else ():
        for which, turned in enumerate(problem.turned):
            if which and problem.scale_block:
                continue  # there it is 0
            _, columns, pitch = problem.stored[which]
            parameter = kernel.compiled.parameters[MATRICES[which]]
            found = reads_padding(trace, parameter.name, columns, pitch, across)
            if found is None or (across and _nans(problem, without(which)) >= nans):
                continue
            line, name = statement_line(kernel.source, found.line), "AB"[which]
            called = f", {called_from(found.calls, [quote(kernel.source, call) for call in found.calls])}" if found.calls else ""
            where = f" Line {line}, “{quote(kernel.source, line)}”{called}, reads"
            row, element = ("column" if turned else "row"), (found.column, found.row) if turned else (found.row, found.column)
            extent = ("M" if turned else "K", "K" if turned else "N")[which]
            if across:
                return (
                    f"{where} {found.count} elements of {name} from {list(element)} on, across the end of a {row} of {columns}: the others "
                    f"are padding, NaN. Is {extent}, the length of {name}'s {row}s, what decides on wide loads? Where {extent} is no "
                    f"multiple of {found.count}, load the last elements of a {row} one by one, with 0 beyond its end."
                )
            return (
                f"{where} the padding of {name}, NaN: element {list(element)}, where {row}s of {columns} begin {pitch} apart. "
                f"Are they ld{name.lower()} apart there, and does the index stay below {extent} within a {row}?"
            )
    return ""


def _nans(problem: Problem, c: np.ndarray) -> int:
    return int(np.isnan(c[:, : problem.n].astype(np.float64)).sum())
