"""The one problem every kernel of the course solves: its data, with traps, and its specification in float64."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self

import numpy as np

from helpers.arguments import is_whole
from helpers.element_types import ElementType, element_type, named, result_type
from helpers.errors import LaunchError

from . import block_scales, transposes

_LEFT_OVER = 4  # products, at the least, of a sum that is taken back
_NEAR = 0.35  # a factor is near a whole number that is at most so far off
_SENTINEL = -12345.0  # in the columns of C beyond N, which no kernel may touch
VECTOR = 16  # bytes of the widest access


class StoredRows(NamedTuple):
    """How one product's matrix lies in memory: `rows` of `columns` elements each, `pitch` elements (its leading dimension) apart."""

    rows: int
    columns: int
    pitch: int


@dataclass(frozen=True)
class Problem:
    """A GEMM of shape m × n × k. Padding: how many elements each leading dimension exceeds its row by.

    dtype, out_dtype: element types of A and B, and of C (see `element_types`); out_dtype="": the usual one for dtype.
    fused: the kernel also adds a bias, one value per column of C, and applies ReLU: max(0, alpha · A · B + beta · C + bias).
    batch: so many independent products of this shape; the matrices of each lie right behind those of the one before.
    scale_block: which blocks of A and B share a factor (see `block_scales`), None: there are no factors.
    transa, transb: A is stored by columns, as [k, lda] with lda >= m, and B as [n, ldb] with ldb >= k (see `transposes`); True or BLAS's
    "T", False or "N". Padding is then that of a column. B with factors always is.
    """

    m: int
    n: int
    k: int
    alpha: float = 1.0
    beta: float = 0.0
    pad_a: int = 0
    pad_b: int = 0
    pad_c: int = 0
    dtype: str = "float32"
    seed: int = 0
    fused: bool = False
    batch: int = 1
    out_dtype: str = ""
    scale_block: block_scales.Block | None = None
    transa: bool = False
    transb: bool = False

    def __post_init__(self):
        object.__setattr__(self, "out_dtype", result_type(self.dtype, self.out_dtype))
        for name in ("m", "n", "k", "pad_a", "pad_b", "pad_c"):
            value = getattr(self, name)
            if not is_whole(value) or value < 0:
                raise LaunchError(f"{name}={' '.join(repr(value).split()):.40}: a matrix extent is a whole number, 0 or more.")
            if value >= 1 << 31:
                raise LaunchError(f"{name}={value}: the kernels take matrix extents as int, which ends at {(1 << 31) - 1}.")
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if not isinstance(value, numbers.Real) or isinstance(value, bool) or not _is_finite(value):
                raise LaunchError(f"{name}={value!r:.40}: a factor is a number that a float can hold, and neither infinite nor NaN.")
        if not isinstance(self.scale_block, tuple | None):
            raise LaunchError(f"scale_block={self.scale_block!r}: a block is (rows of A, k, columns of B), such as (1, 128, 128).")
        for name in transposes.NAMES:
            object.__setattr__(self, name, transposes.is_transposed(name, getattr(self, name)))
        if self.scale_block is not None:
            object.__setattr__(self, "transb", True)
        if not is_whole(self.seed) or self.seed < 0:
            raise LaunchError(f"seed={self.seed!r}: a seed is a whole number, 0 or more.")
        if not isinstance(self.batch, (int, np.integer)) or self.batch < 1:
            raise LaunchError(f"batch={self.batch!r}: a batch is a whole number of products, 1 or more.")

    @property
    def turned(self) -> tuple[bool, bool]:
        """Do A and B lie by columns?"""
        return self.transa, self.transb

    @property
    def stored(self) -> tuple[StoredRows, StoredRows, StoredRows]:
        """How A, B and C of one product lie in memory."""
        a = (self.k, self.m) if self.transa else (self.m, self.k)
        b = (self.n, self.k) if self.transb else (self.k, self.n)
        of_b = max(1, b[1]) + self.pad_b
        if self.scale_block is not None:  # whole vectors, zeros at the end
            vector = VECTOR // self.inputs.bytes
            of_b = -(-of_b // vector) * vector
        return StoredRows(*a, max(1, a[1]) + self.pad_a), StoredRows(*b, of_b), StoredRows(self.m, self.n, max(1, self.n) + self.pad_c)

    @property
    def lda(self) -> int:
        return self.stored[0].pitch

    @property
    def ldb(self) -> int:
        return self.stored[1].pitch

    @property
    def ldc(self) -> int:
        return self.stored[2].pitch

    def shallow(self, k: int, m: int | None = None) -> Problem:
        """The same with so many elements of K, and rows of C if `m` says so, and matrices whose leading dimensions are what they are."""
        some = replace(self, k=k, m=self.m if m is None else m)
        a, b, c = (whole.pitch - part.pitch for whole, part in zip(self.stored, some.stored, strict=True))
        return replace(some, pad_a=some.pad_a + a, pad_b=some.pad_b + b, pad_c=some.pad_c + c)

    def meant(self, a: Any, b: Any) -> tuple[Any, Any]:
        """A [batch, m, k] and B [batch, k, n] as the product has them: views of the arrays in which they are stored, without padding."""
        views = []
        for array, stored, turned in zip((a, b), self.stored, self.turned, strict=False):
            view = array.reshape(self.batch, stored.rows, stored.pitch)[:, :, : stored.columns]
            views.append(view.swapaxes(1, 2) if turned else view)
        return views[0], views[1]

    @property
    def inputs(self) -> ElementType:
        """The element type of A and B."""
        return element_type(self.dtype)

    @property
    def result(self) -> ElementType:
        """The element type of C."""
        return element_type(self.out_dtype)

    @property
    def flops(self) -> int:
        """2·m·n·k for each product: one multiplication and one addition per term."""
        return 2 * self.m * self.n * self.k * self.batch

    @property
    def compulsory_bytes(self) -> int:
        """Each input read once and C written once (and read once if beta is not 0), without any reuse missed."""
        read = (self.m * self.k + self.k * self.n) * self.inputs.bytes
        factors = block_scales.shapes(self.scale_block, self.m, self.n, self.k) if self.scale_block else ()
        read += 4 * sum(map(math.prod, factors))
        return self.batch * (read + self.m * self.n * self.result.bytes * (2 if self.beta else 1))

    def repeated(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(A, B, C) where any numbers do, as in counting: shaped as by `arrays`, of rows that are all alike and take no time to draw."""
        self._fit()
        random = np.random.default_rng(self.seed)

        def rows(count: int, pitch: int, of: ElementType, row: np.ndarray) -> np.ndarray:
            made = np.empty((count, pitch), of.storage)
            made[:] = of.array(row)
            return made

        a, b = (rows(self.batch * of.rows, of.pitch, self.inputs, 2 * random.random(of.pitch, np.float32) - 1) for of in self.stored[:2])
        if self.scale_block is not None:
            b[:, self.k :] = 0
        old = 2 * random.random(self.ldc, np.float32) - 1 if self.beta else np.full(self.ldc, np.nan, np.float32)
        return a, b, rows(self.batch * self.m, self.ldc, self.result, old)

    def zeros(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A, B and C of the right shapes and types, all zero."""
        kinds = (self.inputs, self.inputs, self.result)
        try:
            a, b, c = (np.zeros((self.batch * of.rows, of.pitch), kind.storage) for of, kind in zip(self.stored, kinds, strict=True))
        except (MemoryError, ValueError):  # more bytes than a number of this machine holds
            raise self._too_large() from None
        return a, b, c

    @property
    def elements(self) -> int:
        """Of A, B and C as they are stored, padding included."""
        return self.batch * sum(of.rows * of.pitch for of in self.stored)

    def _too_large(self) -> LaunchError:
        a, b, c = (of.rows * of.pitch for of in self.stored)
        size = self.batch * ((a + b) * self.inputs.bytes + c * self.result.bytes)
        return LaunchError(
            f"The matrices of {self} take {size / 1e9:,.0f} GB, too much for the memory of this machine. Use a smaller size."
        )

    def _fit(self) -> None:
        """Raise LaunchError where the matrices and their making would fill this machine's memory."""
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else math.inf
        if 16 * self.elements > memory:  # float64 as it is drawn, float32, and a copy
            raise self._too_large()

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A [batch · m, lda], B [batch · k, ldb], C [batch · m, ldc], random, with traps; [batch · k, lda] and [batch · n, ldb] by columns.

        The padding of A and B is NaN, so reading it spoils the result (that of B with factors is 0, as kernels are promised); C is NaN
        where beta = 0, so reading it or leaving an element out shows; the padding of C holds a sentinel that must survive.
        """
        self._fit()
        random = np.random.default_rng(self.seed + 1)
        rows = self.batch * self.m
        behind = np.nan, np.nan if self.scale_block is None else 0, _SENTINEL
        a, b, c = (np.full((self.batch * of.rows, of.pitch), value, np.float32) for of, value in zip(self.stored, behind, strict=True))
        for matrix in self.meant(a, b):
            matrix[...] = random.uniform(-1, 1, matrix.shape)
        c[:, : self.n] = random.uniform(-1, 1, (rows, self.n)) if self.beta else np.nan
        return self.inputs.array(a), self.inputs.array(b), self.result.array(c)

    def copies(self, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Copies of what `arrays` gave, for another launch."""
        a, b, c = (array.copy() for array in arrays)
        return a, b, c

    def bias(self) -> np.ndarray:
        """The bias of a fused problem: [n], of C's type, random in [-1, 1)."""
        return self.result.array(np.random.default_rng(self.seed + 2).uniform(-1, 1, self.n).astype(np.float32))

    def scale_factors(self) -> tuple[np.ndarray, np.ndarray]:
        """The factors of a problem with block scales: (scales_A, scales_B), random (see `block_scales`)."""
        return block_scales.drawn(self, self.seed + 3)

    def behind(self) -> tuple[np.ndarray, ...]:
        """What its kernels take behind ldc: a bias, factors, or nothing."""
        if self.scale_block is None:
            return (self.bias(),) if self.fused else ()
        of_a, of_b = self.scale_factors()
        return block_scales.padded(of_a), of_b

    def factors(self, a: np.ndarray, b: np.ndarray, scales: tuple[np.ndarray, np.ndarray] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """What A and B mean, float64 [batch · m, k] and [batch · k, n]: what is stored, times its block's factor (by default the
        problem's own)."""
        left, right = (view.astype(np.float64).reshape(view.shape[0] * view.shape[1], view.shape[2]) for view in self.meant(a, b))
        if self.scale_block is None:
            return left, right
        of_a, of_b = block_scales.factors(self, self.scale_factors() if scales is None else scales)
        return left * of_a, right * of_b

    def expected(self, a: np.ndarray, b: np.ndarray, c: np.ndarray, bias: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """`expected_of` for A and B as they are stored, with the problem's own factors and bias."""
        return self.expected_of(*self.factors(a, b), c, bias)

    def expected_of(
        self, left: np.ndarray, right: np.ndarray, c: np.ndarray, bias: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The specification in float64, and how far a correct kernel may be from it, element by element. bias: the problem's own.

        left, right: what A and B mean (`factors`).

        The bound is Higham's for inner products in any order, (k + 4) · u · (|alpha| |A||B| + |beta||C|), Accuracy and
        Stability of Numerical Algorithms, 2nd ed., section 3.1. u is the error of one addition (`ElementType.sums`); products
        are exact, because A and B hold what was rounded to their type. A result of 16 bits is rounded once more. Where blocks have factors,
        sums of one block are multiplied by these and added up in float32: then k is that of a block, and the blocks' sums come besides.
        """
        left = left.reshape(self.batch, len(left) // self.batch, self.k)
        right = right.reshape(self.batch, self.k, self.n)
        rows = left.shape[0] * left.shape[1]
        old = c[:, : self.n].astype(np.float64) if self.beta else np.zeros((rows, self.n))
        product, magnitude = ((x @ y).reshape(rows, self.n) for x, y in ((left, right), (np.abs(left), np.abs(right))))
        value = self.alpha * product + self.beta * old
        scale = abs(self.alpha) * magnitude + abs(self.beta) * np.abs(old)
        if self.fused:
            bias = (self.bias() if bias is None else bias).astype(np.float64)
            value, scale = np.maximum(value + bias, 0), scale + np.abs(bias)
        sums = self._errors_of_sums(lambda terms: terms + 4) * scale
        stored = 0.0 if self.out_dtype == "float32" else self.result.roundoff * (np.abs(value) + sums)
        return value, sums + stored + self.result.absolute

    def _errors_of_sums(self, grown: Callable[[int], float]) -> float:
        """The relative error of a sum over K, where that of so many additions grows like `grown`."""
        if self.scale_block is None or not self.scale_block[1]:
            return grown(self.k) * self.inputs.sums
        in_block, blocks = grown(min(self.k, self.scale_block[1])), grown(block_scales.blocks_of_k(self.scale_block, self.k))
        return in_block * self.inputs.sums + blocks * element_type("float32").sums

    def alike(self) -> list[tuple[slice | np.ndarray, Problem]]:
        """(rows of C, problem): those whose errors are judged together, and what they are judged as."""
        return [(slice(None), self)]

    def expected_error(self, left: np.ndarray, right: np.ndarray, c: np.ndarray, value: np.ndarray) -> float:
        """How large the errors of a correct kernel may be in the root mean square over C: statistically, not in the worst case.

        Errors of k additions grow like √k where each is rounded (eight times that is allowed), like their number where each is cut off,
        as tensor cores do once for so many products (`ElementType.together`). The worst case of `expected` leaves room in long sums for
        factors that were rounded to 16 bits; this does not. left, right: what A and B mean (`factors`). value: what C should be, whose
        own rounding is that of its size, and not of what was added up.
        """
        left, right = left**2, right**2
        left, right = left.reshape(self.batch, -1, self.k).sum(1), right.reshape(self.batch, self.k, self.n).sum(2)
        products = float(np.einsum("bk,bk->", left, right)) / max(1, self.batch * self.m * self.n)  # mean over C of the sum of squares
        old = float(np.mean(c[:, : self.n].astype(np.float64) ** 2)) if self.beta and c.size else 0.0
        bias = float(np.mean(self.bias().astype(np.float64) ** 2)) if self.fused and self.n else 0.0
        scale = math.sqrt(self.alpha**2 * products + self.beta**2 * old + bias)
        stored = 0.0 if self.out_dtype == "float32" else 4 * self.result.roundoff * math.sqrt(float(np.mean(value**2)))
        together = self.inputs.together
        sums = self._errors_of_sums(lambda terms: 8 * math.sqrt(terms / together + 16) + terms / together)
        return stored + sums * scale + self.result.absolute

    def inexact(self, got: np.ndarray, value: np.ndarray) -> str:
        """What there is to say of errors that are too large together, before how large they are; "": nothing but that."""
        return ""

    def as_good(self, got: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Which elements are right though they are neither near their value nor the same."""
        return np.zeros(got.shape, bool)

    def norm_tolerance(self) -> float:
        """How far two right results may be apart, as a part of the result's norm: statistically, not in the worst case.

        Rounding errors of k additions grow like √k; eight times that leaves room for sums that are cut off, not rounded.
        """
        stored = 0.0 if self.out_dtype == "float32" else 4 * self.result.roundoff
        return stored + 8 * math.sqrt(self.k + 16) * self.inputs.sums

    def near_special_factors(self) -> dict[str, str]:
        """Which of alpha and beta are near 0, 1 or -1 and none of them, each as it is said."""
        said = {}
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            special = round(value)
            if value != special and abs(special) <= 1 and abs(value - special) <= _NEAR:
                said[name] = f"{name} = {_factor(value)}, which is near {special} and not {special}"
        return said

    def __str__(self) -> str:
        text = f"{self.m} × {self.n} × {self.k}" + (f", a batch of {self.batch}" if self.batch > 1 else "")
        if (self.alpha, self.beta) != (1.0, 0.0):
            text += f", alpha {_factor(self.alpha)}, beta {_factor(self.beta)}"
        if self.pad_a or self.pad_b or self.pad_c:
            text += f", leading dimensions +{self.pad_a} +{self.pad_b} +{self.pad_c}"
        if self.fused:
            text += ", bias and ReLU"
        if (self.dtype, self.out_dtype) != ("float32", "float32"):
            text += f", {named(self.dtype, self.out_dtype)}"
        if self.scale_block:
            rows, deep, columns = self.scale_block
            text += f", factors for {rows} × {deep or 'K'} of A and {deep or 'K'} × {columns} of B"
        if said := transposes.named(self.transa, self.transb and not self.scale_block):
            text += f", {said}"
        return text


@dataclass(frozen=True)
class SampledProblem(Problem):
    """A problem too large to compute whole: only the blocks at these `places` of the grid (column, row) are executed."""

    places: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, problem: Problem, places: Sequence[tuple[int, int]], **changes: Any) -> Self:
        """These blocks of a problem, with changes to its fields."""
        values = {item.name: getattr(problem, item.name) for item in fields(Problem)}
        return cls(**{**values, **changes}, places=tuple(places))

    def whole(self) -> Problem:
        """The problem with all of its blocks."""
        return Problem(**{item.name: getattr(self, item.name) for item in fields(Problem)})

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As of a `Problem`, drawn more quickly."""
        self._fit()
        random = np.random.default_rng(self.seed)
        a, b = (2 * random.random((self.batch * of.rows, of.pitch), np.float32) - 1 for of in self.stored[:2])
        if self.scale_block is not None:
            b[:, self.k :] = 0
        if self.beta:
            c = self.result.array(2 * random.random((self.batch * self.m, self.ldc), np.float32) - 1)
        else:
            c = np.full((self.batch * self.m, self.ldc), np.nan, self.result.storage)
        return self.inputs.array(a), self.inputs.array(b), c

    def __str__(self) -> str:
        return f"{super().__str__()}, {named_blocks(self.places)}"


def _is_finite(value: Any) -> bool:
    """Is a number neither infinite nor NaN, nor a whole one beyond what floats can hold?"""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _factor(value: float) -> str:
    """alpha or beta for people: nearly 1 is not 1."""
    text = f"{value:g}"
    return text if abs(value) == 1 or text not in ("1", "-1") else f"{value:.8g}"


def named_blocks(places: Sequence[tuple[int, int]]) -> str:
    text = ", ".join(f"({x}, {y})" for x, y in places)
    return f"block {text}" if len(places) == 1 else f"blocks {text}"


@dataclass(frozen=True)
class ScaledProblem(Problem):
    """A product whose rows of A and columns of B are multiplied by powers of two, drawn at random: 2^-scales to 2^scales."""

    scales: int = 0
    powers: tuple[int, int] = (0, 0)  # column k of A times 2^e, row k of B times 2^-e, each e from one to the other: C is what it was
    apart: tuple[int, int] = (0, 0)  # all rows of A besides times 2 to the first of these, all columns of B times 2 to the second
    of_c: int = 0  # what is in C before times 2 to this

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a, b, c = super().arrays()
        random = np.random.default_rng(self.seed + 3)
        of_rows, of_columns = (
            np.ldexp(1.0, random.integers(-self.scales, self.scales + 1, count) + more)
            for count, more in zip((self.batch * self.m, self.n), self.apart, strict=True)
        )
        left, right = self.meant(a, b)
        left[...] = left * of_rows.reshape(self.batch, self.m, 1)
        right[...] = right * of_columns
        if self.powers != (0, 0):
            of_k = np.ldexp(1.0, random.integers(self.powers[0], self.powers[1] + 1, self.k))
            left[...] = left * of_k
            right[...] = right / of_k[:, None]
        c[:, : self.n] = c[:, : self.n] * 2.0**self.of_c
        return a, b, c

    def __str__(self) -> str:
        of_a, of_b = self.apart
        both = "A and B" if not self.scales else "rows of A and columns of B"
        names = [(both, of_a)] if of_a == of_b else [("rows of A", of_a), ("columns of B", of_b)]
        said = [f"{name} times {self._factors(more)}" for name, more in names] + [f"C times 2^{self.of_c}"] * (self.of_c != 0)
        text = f"{super().__str__()}, " + " and ".join(said)
        low, high = self.powers
        return text + (f", columns of A times 2^{low} to 2^{high} and rows of B divided by that" if low != high else "")

    def _factors(self, more: int) -> str:
        """2 to the power of `more`, or from where to where with what is drawn for each row."""
        return f"2^{more - self.scales} to 2^{more + self.scales}" if self.scales else f"2^{more}"


@dataclass(frozen=True)
class UnevenProblem(Problem):
    """A product with one number in each row of A that is larger than all others, between 2^(e - 1) and 2^e, and one in each column of B; e
    is the one or the other of `larger`, and 0 leaves them. Where it is along K differs: 34 rows, or columns, have it at all remainders by
    32, and one each first and last."""

    larger: tuple[int, int] = (17, 17)

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a, b, c = super().arrays()
        random = np.random.default_rng(self.seed + 5)
        left, right = self.meant(a, b)
        for numbers_of, power in zip((left[0], right[0].T), self.larger, strict=True):
            count = len(numbers_of)
            order = random.permutation(count)
            at = (random.integers(max(1, self.k - count + 1)) + order) % self.k
            at[order >= count - 2] = (0, self.k - 1)[:count]
            if power:
                old = numbers_of[range(count), at]
                numbers_of[range(count), at] = (old + np.copysign(1, old)) * 2.0 ** (power - 1)
        return a, b, c

    def __str__(self) -> str:
        said = [f"{name} nearly 2^{power}" for name, power in zip(("row of A", "column of B"), self.larger, strict=True) if power]
        return f"{super().__str__()}, one number of each {' and one of each '.join(said)}"


@dataclass(frozen=True)
class CancellingProblem(Problem):
    """A product whose second half along K takes back what the first has added up, all but a few elements: where sums are kept in fewer bits
    on the way, what is left shows it."""

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a, b, c = super().arrays()
        half = (self.k - _LEFT_OVER) // 2
        left, right = self.meant(a, b)
        left[..., half : 2 * half] = left[..., :half]
        right[:, half : 2 * half] = -right[:, :half]
        return a, b, c

    def __str__(self) -> str:
        return f"{super().__str__()}, the second half along K cancels the first"


class _Positive(Problem):
    """What products of positive numbers have in common: sums only grow, so that what is cut off from them, always on one side, adds up."""

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a, b, c = super().arrays()
        return np.abs(a), np.abs(b), c

    def expected_error(self, left: np.ndarray, right: np.ndarray, c: np.ndarray, value: np.ndarray) -> float:
        """As of a `Problem`, for sums that leave the tensor cores after `STRETCH` of K at the latest and are added up in float32.

        A float32 addition rounds to nearest: k errors without a mean, each at most 2^-24 of the sum so far, come to 2^-24 √(k/3) of it
        where it grows evenly. Of each product a tensor core loses at most `_LOST`, or 2^-13 where products are of 8-bit floats, of the sum
        so far, in a stretch: as much as there are products in half of one.
        """
        lost = _LOST if self.dtype == "float32" else self.inputs.sums
        of_sums = element_type("float32").sums * math.sqrt(self.k * self._square_so_far()) + lost * STRETCH / 2
        stored = 0.0 if self.out_dtype == "float32" else 4 * self.result.roundoff
        return (of_sums + stored) * math.sqrt(float(np.mean(value**2))) + self.result.absolute

    def _square_so_far(self) -> float:
        """What the square of a sum is on average while it grows, as a part of what it becomes."""
        return 1 / 3

    def inexact(self, got: np.ndarray, value: np.ndarray) -> str:
        error = float((got - value).sum() / value.sum())
        side = "too small" if error < 0 else "too large"
        return (
            f"sums of positive numbers are {side} by {abs(error):.2g} of their size on average. Tensor cores do not round: they cut off, "
            "always on one side, so that it adds up along K. Add what they have summed to FP32 registers, and begin their sums anew, "
            f"after {STRETCH} of K at the latest (promotion)"
        )

    def __str__(self) -> str:
        return f"{super().__str__()}, positive numbers"


STRETCH = 128  # of K
TIMES = 64  # as large, where sums are large from the beginning
# Of FP16, BF16 and TF32 products every term is cut off at 2^-25 of the sum, and the sum itself at 2^-23 once in 4 products or more.
_LOST = 2.0**-24


@dataclass(frozen=True)
class PositiveProblem(_Positive):
    """A product of numbers between 0 and 1. larger: in every second row of A the first so many are `TIMES` as large. Sums that are large
    from the beginning lose more, where they lose, so that no factor makes up for both."""

    larger: int = 0

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a, b, c = super().arrays()
        left, _ = self.meant(a, b)
        left[..., 1::2, : self.larger] *= TIMES
        return a, b, c

    def alike(self) -> list[tuple[slice | np.ndarray, Problem]]:
        if not self.larger:
            return super().alike()
        second = np.arange(self.batch * self.m) % self.m % 2 == 1
        return [(~second, replace(self, larger=0)), (second, self)]

    def _square_so_far(self) -> float:
        """The sum of every second row has come to `then` of itself after the part `begun` of K, evenly, and goes on evenly."""
        begun = min(1.0, self.larger / self.k) if self.k else 0.0
        then = TIMES * begun / (1 + (TIMES - 1) * begun)
        return begun * then**2 / 3 + (1 - begun) * (then**2 + then + 1) / 3

    def __str__(self) -> str:
        more = f", the first {self.larger} elements of every second row of A {TIMES} times as large" if self.larger else ""
        return f"{super().__str__()}{more}"


class _AsFloat32(Problem):
    """What products have in common whose errors, in the root mean square, shall be those of float32 sums, however they are computed."""

    def expected_error(self, left: np.ndarray, right: np.ndarray, c: np.ndarray, value: np.ndarray) -> float:
        """Sums of numbers of both signs that are rounded to nearest K times are off by 0.3 √K roundoffs of the root of their squares' sum;
        ten times that is allowed."""
        squares = self.alpha**2 * float(np.mean(left**2 @ right**2))
        return 3 * math.sqrt(self.k) * element_type("float32").roundoff * math.sqrt(squares) + self.result.absolute

    def inexact(self, got: np.ndarray, value: np.ndarray) -> str:
        return (
            "every element is nearly right, and less exact than sums of FP32: products of a high and a low piece are left out of some "
            "sums, or the pieces have too few bits for numbers so far apart"
        )


@dataclass(frozen=True)
class ExactProblem(_AsFloat32):
    """A product of numbers of both signs."""

    def __str__(self) -> str:
        return f"{super().__str__()}, errors as in FP32"


@dataclass(frozen=True)
class SpreadProblem(_AsFloat32):
    """A product of which in each row of A, and in each column of B, `spread` powers of two lie between the largest number and the smallest:
    column k of A is times 2^e, and row k of B divided by that, so that no product is larger than four times another."""

    spread: int = 0

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a, b, c = super().arrays()
        random = np.random.default_rng(self.seed + 9)
        of_k = np.ldexp(1.0, random.permutation(np.arange(self.k) % (self.spread + 1)) - self.spread // 2)
        left, right = self.meant(a, b)
        for matrix, factors in ((left, of_k), (right, 1 / of_k[:, None])):
            matrix[...] = np.copysign((1 + np.abs(matrix)) / 2, matrix) * factors
        return a, b, c

    def __str__(self) -> str:
        return f"{super().__str__()}, numbers of a row up to 2^{self.spread} apart"


@dataclass(frozen=True)
class PositiveSample(_Positive, SampledProblem):
    """Blocks of such a product."""


_NOT_FINITE = np.nan, np.inf, -np.inf


@dataclass(frozen=True)
class NonFiniteProblem(Problem):
    """A product with NaN in a row of A and in a column of B, infinity and -infinity in other rows of A, and infinity in another column of
    B. About half of what these are multiplied by is 0, which makes NaN of infinity too. Infinity is no row's last element: who repeats that
    beside zeros of B, where K ends, is right on numbers. Of C before, where beta is not 0, and of a bias, an element each is NaN, infinity
    and -infinity. or_nan: NaN is as good where C is infinite, as compensated sums have it, which take infinity from itself."""

    or_nan: bool = False

    @property
    def places(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """Where NaN is in A, where in B, and where infinity is in A."""
        random = np.random.default_rng(self.seed + 4)
        rows, k = random.permutation(self.m), random.integers(0, self.k, 2)
        return (int(rows[0]), int(k[0])), (int(k[1]), int(random.integers(self.n))), (int(rows[1]), int(random.integers(self.k - 1)))

    @property
    def infinities(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Where -infinity is in A, and infinity in B: in other rows and columns than the `places`."""
        random = np.random.default_rng(self.seed + 8)
        row = next(int(row) for row in random.permutation(self.m) if row not in (self.places[0][0], self.places[2][0]))
        column = next(int(column) for column in random.permutation(self.n) if column != self.places[1][1])
        return (row, int(random.integers(self.k - 1))), (int(random.integers(self.k - 1)), column)

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a, b, c = super().arrays()
        in_a, in_b, infinite = self.places
        less, in_b_too = self.infinities
        random = np.random.default_rng(self.seed + 6)
        left, right = (view[0] for view in self.meant(a, b))
        for k in (in_b[0], in_b_too[0]):
            left[random.random(self.m) < 0.5, k] = 0
        for k in (in_a[1], infinite[1], less[1]):
            right[k][random.random(self.n) < 0.5] = 0
        left[in_a] = self.inputs.array(np.array(np.nan, np.float32))
        right[in_b] = self.inputs.array(np.array(np.nan, np.float32))
        for matrix, place, value in ((left, infinite, np.inf), (left, less, -np.inf), (right, in_b_too, np.inf)):
            matrix[place] = self.inputs.array(np.array(value, np.float32))
        if self.beta:
            rows = np.setdiff1d(random.permutation(self.m), [in_a[0], infinite[0], less[0]])
            for value, row, column in zip(_NOT_FINITE, rows, self._columns(), strict=False):
                c[row, column] = self.result.array(np.array(value, np.float32))
        return a, b, c

    def _columns(self) -> np.ndarray:
        """In which B is finite, in any order."""
        columns = np.random.default_rng(self.seed + 7).permutation(self.n)
        return columns[~np.isin(columns, (self.places[1][1], self.infinities[1][1]))]

    def bias(self) -> np.ndarray:
        found = super().bias()
        for value, column in zip(_NOT_FINITE, self._columns()[::-1], strict=False):
            found[column] = self.result.array(np.array(value, np.float32))
        return found

    def as_good(self, got: np.ndarray, value: np.ndarray) -> np.ndarray:
        return np.isnan(got) & np.isinf(value) & self.or_nan

    def expected_of(self, left, right, c, bias=None):
        with np.errstate(invalid="ignore"):  # infinity less infinity is NaN
            return super().expected_of(left, right, c, bias)

    def __str__(self) -> str:
        (in_a, in_b, infinite), (less, in_b_too) = self.places, self.infinities
        others = ["C"] * bool(self.beta) + ["the bias"] * self.fused
        text = (
            f"{super().__str__()}, NaN at A{[*in_a]} and B{[*in_b]}, infinity at A{[*infinite]} and B{[*in_b_too]}, -infinity at A{[*less]}"
        )
        return text + (f", and both in {' and '.join(others)}" if others else "")


@dataclass(frozen=True)
class ShiftedProblem(Problem):
    """A product of parts of larger arrays: A, B and C begin so many elements (`shifts`) behind a multiple of 16 bytes, and a bias one."""

    shifts: tuple[int, int, int] = (1, 1, 1)

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.copies(super().arrays())

    def copies(self, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        of_a, of_b, of_c = self.shifts
        a, b, c = map(_shifted, arrays, (of_a, 0 if self.scale_block else of_b, of_c))  # B with factors begins at a whole vector
        return a, b, c

    def bias(self) -> np.ndarray:
        return _shifted(super().bias(), 1)

    def __str__(self) -> str:
        moved = [f"{name} begins {shift}" for name, shift in zip("ABC", self.shifts, strict=True) if shift]
        moved += ["the bias begins 1"] * self.fused
        return f"{super().__str__()}, {', '.join(moved)} element{'s' if max(self.shifts) > 1 else ''} behind a multiple of {VECTOR} bytes"


def _shifted(array: np.ndarray, shift: int) -> np.ndarray:
    """A copy of the array, so many elements behind a multiple of 16 bytes."""
    larger = np.empty(array.size + 2 * VECTOR // array.itemsize, array.dtype)
    first = -larger.ctypes.data % VECTOR // array.itemsize + shift
    shifted = larger[first : first + array.size].reshape(array.shape)
    shifted[...] = array
    return shifted
