"""Error beside speed: an FP32 product made in several ways, each as the hardware would compute it, compared with float64.

    found = accuracy(A, B)          # float32 matrices [M, K] and [K, N]
    widgets.accuracy(found)

A way names the type of the pieces that A and B are split into, how many there are of each number and which products are made of them.
Products are added as a tensor core adds them (`sim.isa.mma.cut_sums`, bit for bit an H200's), with promotion to FP32 every `PROMOTED` k.
What speed each allows is the peak of the type over the number of products: a limit, which no kernel reaches.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from helpers.arguments import explained
from helpers.element_types import element_type
from helpers.errors import CourseError
from helpers.model import hardware
from helpers.progress import Progress
from helpers.sim.isa.mma import cut_sums, sums_of

from .measures import DEFAULT_GPU
from .table import Table, Tabular

PROMOTED = 64  # k from one promotion to the next
LARGEST = 1 << 24  # multiply-adds of a product: for each way some tenths of a second
_STEP = {"f16": 16, "bf16": 16, "tf32": 8}  # k of one instruction
_DTYPE = {"f16": "float16", "bf16": "bfloat16", "tf32": "tf32"}
_TOP = 14  # the exponent that a row's largest number is brought to, for FP16
_LOW = 12  # powers of two that FP16's second piece is multiplied by


@dataclass(frozen=True)
class Way:
    """One way to make a product. kind: of the pieces, "" for FP32 on CUDA cores. products: pairs (piece of A, piece of B), from 0.

    scaled: rows of A and columns of B are multiplied by powers of two first. promoted: partial sums go to FP32 registers.
    """

    kind: str
    products: tuple[tuple[int, int], ...] = ()
    scaled: bool = False
    promoted: bool = True

    @property
    def pieces(self) -> int:
        return 1 + max((max(pair) for pair in self.products), default=0)

    @property
    def name(self) -> str:
        if not self.kind:
            return "FP32"
        more = (", scaled" if self.scaled else "") + ("" if self.promoted else ", not promoted")
        return f"{len(self.products)} × {element_type(_DTYPE[self.kind]).label}{more}"

    def limit(self, gpu: hardware.GPU) -> float | None:
        """TFLOPS of the product that the hardware allows: the type's peak over the number of products. None if it has not the type."""
        unit = gpu.unit(_DTYPE[self.kind] if self.kind else "float32")
        return None if unit is None else unit.tflops / max(1, len(self.products))


_CROSS = ((0, 0), (0, 1), (1, 0))
WAYS = (
    Way(""),
    Way("tf32", ((0, 0),)), Way("tf32", _CROSS),
    Way("bf16", ((0, 0),)), Way("bf16", _CROSS), Way("bf16", (*_CROSS, (1, 1), (0, 2), (2, 0))),
    Way("f16", ((0, 0),), True), Way("f16", ((0, 0), (0, 1)), True), Way("f16", _CROSS), Way("f16", _CROSS, True),
    Way("f16", _CROSS, True, False), Way("f16", (*_CROSS, (1, 1)), True),
)  # fmt: skip


@dataclass(frozen=True)
class WayError:
    """What one way comes to. largest, mean: of |C - exact| / (|A| |B|), element by element; not finite where the way overflows."""

    way: Way
    largest: float
    mean: float
    limit: float


@dataclass(frozen=True)
class Accuracy(Tabular):
    """Errors of several ways on one pair of matrices. shape: (M, N, K)."""

    points: tuple[WayError, ...]
    shape: tuple[int, int, int]
    gpu: str

    def table(self) -> Table:
        rows = [(item.way.name, _error(item.mean), _error(item.largest), f"{item.limit:.0f}") for item in self.points]
        m, n, k = self.shape
        head = ("way", "mean error", "largest error", "TFLOPS at most")
        return Table(head, rows, f"Errors at {m} × {n} × {k}, as parts of |A| |B|; limits of an {self.gpu}", left=(0,))

    def of(self, name: str) -> WayError:
        """The point of the way called `name`. Raises CourseError."""
        for item in self.points:
            if item.way.name == name:
                return item
        raise CourseError(f"No way is called {name!r}; there are {', '.join(item.way.name for item in self.points)}.")


def _error(value: float) -> str:
    return f"{value:.1e}" if np.isfinite(value) else "overflows"


@explained
def accuracy(a, b, ways: Iterable[Way | str] = WAYS, gpu: str = DEFAULT_GPU) -> Accuracy:
    """Multiply a [M, K] by b [K, N] (float32) in each of the ways that this GPU has, and compare with float64.

    ways: of one's own, or names of those in `WAYS`. Raises CourseError for matrices that do not fit each other or are too large for this,
    and for names that there are not.
    """
    a, b = _numbers("A", a), _numbers("B", b)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0] or not a.size or not b.size:
        raise CourseError(f"accuracy wants A [M, K] and B [K, N], and was given {a.shape} and {b.shape}.")
    if a.size * b.shape[1] > LARGEST:
        raise CourseError(f"accuracy multiplies on the CPU, bit by bit: M · N · K is {a.size * b.shape[1]:,}; take at most {LARGEST:,}.")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise CourseError("accuracy compares numbers, and A or B has an infinity or NaN, whose error nobody can tell.")
    device = hardware.gpu(gpu)
    if not isinstance(ways, (str, Way, Iterable)):
        raise CourseError(f"accuracy: ways={ways!r} are none: write a list, such as ways=['FP32', '3 × FP16, scaled'].")
    limits = {way: limit for way in map(_way, [ways] if isinstance(ways, (str, Way)) else ways) if (limit := way.limit(device)) is not None}
    exact, size = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
    points = []
    with Progress("accuracy") as bar, np.errstate(all="ignore"):
        for number, (way, limit) in enumerate(limits.items()):
            error = np.abs(product(a, b, way) - exact) / np.where(size == 0, 1, size)
            points.append(WayError(way, float(error.max()), float(error.mean()), limit))
            bar(number + 1, len(limits))
    return Accuracy(tuple(points), (len(a), b.shape[1], a.shape[1]), device.name)


def _numbers(name: str, given: Any) -> np.ndarray:
    """A matrix as float32, rounded where it has more bits. Raises CourseError for what float32 has not: text, complex, too large."""
    if isinstance(given, np.ma.MaskedArray):
        raise CourseError(f"{name} is a masked array, and a product knows no mask: pass array.filled(0), or its .data.")
    try:
        found = np.asarray(given)
        if found.dtype.kind not in "biufV" and not (found.dtype == object and all(isinstance(x, numbers.Real) for x in found.flat)):
            raise TypeError
        with np.errstate(over="ignore", under="ignore"):
            single = found.astype(np.float32)
    except (TypeError, ValueError, OverflowError):
        raise CourseError(f"accuracy multiplies real numbers, and {name} holds something else: pass an array of float32.") from None
    if not np.isfinite(single).all() and np.isfinite(found.astype(np.float64)).all():
        raise CourseError(f"{name} has numbers beyond ±{np.finfo(np.float32).max:.1e}, where FP32 ends.")
    return single


def _way(way: Way | str) -> Way:
    if isinstance(way, Way):
        return way
    named = {one.name: one for one in WAYS}
    if not isinstance(way, str) or way not in named:
        raise CourseError(f"No way is called {way!r}; there are {', '.join(named)}.")
    return named[way]


def product(a: np.ndarray, b: np.ndarray, way: Way) -> np.ndarray:
    """A B in this way: float64 [M, N] that holds float32 numbers."""
    if not way.kind:
        total = np.zeros((len(a), b.shape[1]), np.float32)
        for k in range(a.shape[1]):  # each product is exact in float64
            total = (np.multiply.outer(a[:, k].astype(np.float64), b[k].astype(np.float64)) + total).astype(np.float32)
        return total.astype(np.float64)
    rows, columns = (_shift(np.abs(x).max(axis)) if way.scaled else np.zeros(0, int) for x, axis in ((a, 1), (b, 0)))
    left, right = a.astype(np.float64), b.astype(np.float64)
    if way.scaled:
        left, right = np.ldexp(left, rows[:, None]), np.ldexp(right, columns)
    lefts, rights = (pieces(x, way.kind, way.pieces) for x in (left, right))
    high, low, lowest = np.zeros((3, len(a), b.shape[1]))  # of high pieces, with a low one, of two low FP16 pieces: scaled twice
    total = np.zeros_like(high, np.float32)
    sums = sums_of(way.kind, "f32")
    assert sums is not None
    for begin in range(0, a.shape[1], PROMOTED):
        for k in range(begin, min(begin + PROMOTED, a.shape[1]), _STEP[way.kind]):
            part = slice(k, k + _STEP[way.kind])
            for i, j in way.products:
                sum_of = high if i == j == 0 else lowest if i and j and way.kind == "f16" else low
                sum_of[...] = cut_sums(sums, lefts[i][:, part], rights[j][part], sum_of, (way.kind, way.kind))
        if way.promoted:
            total += high.astype(np.float32)
            high[...] = 0
    down = -_LOW if way.kind == "f16" else 0
    found = total if way.promoted else high.astype(np.float32)
    result = (found + np.ldexp(low, down).astype(np.float32) + np.ldexp(lowest, 2 * down).astype(np.float32)).astype(np.float64)
    return np.ldexp(result, -rows[:, None] - columns) if way.scaled else result


def pieces(x: np.ndarray, kind: str, count: int) -> list[np.ndarray]:
    """`count` numbers of a type for each of x, float64: what is left of x after the ones before, rounded. FP16's second is times 2^12."""
    found, rest = [], x
    for _ in range(count):
        found.append(rounded(rest, kind))
        rest = (rest - found[-1]) * (2.0**_LOW if kind == "f16" else 1)
    return found


def rounded(x: np.ndarray, kind: str) -> np.ndarray:
    """Numbers that float32 holds, in fewer bits; float64 in and out."""
    return element_type(_DTYPE[kind]).array(x.astype(np.float32)).astype(np.float64)


def _shift(largest: np.ndarray) -> np.ndarray:
    return np.where(largest > 0, _TOP - np.floor(np.log2(np.where(largest > 0, largest, 1))), 0).astype(int)
