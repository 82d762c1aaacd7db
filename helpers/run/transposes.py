"""Matrices by columns: what BLAS says with transa and transb.

A kernel of the course takes its matrices by rows: A is M × K, lda elements from one row to the next, and B is K × N with ldb. Most
tensor-core kernels in public take B by columns ("TN" in BLAS's letters), since the hardware reads both with neighbours along K:

    transb   B is stored as N × K: element (k, n) lies at n * ldb + k, and ldb, K or more, counts from one column to the next
    transa   A is stored as K × M: element (m, k) lies at k * lda + m, and lda, M or more, counts from one k to the next

The product is the same, alpha · A · B + beta · C. A kernel's file says so, as it says its tile:

    extern "C" __device__ constexpr int transb[] = {1};

`%%cuda name --transb` and `compile(source, transb=True)` write that line behind the last one of the source, so that whatever is made
of this (variants, versions, a rung, what a shared GPU is sent) says it too. A kernel with block scales takes B so anyway.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.errors import CompileError, LaunchError
from helpers.toolchain.compile import compile_source
from helpers.toolchain.compiled import Compiled
from helpers.toolchain.host_code import strip_comments

from . import block_scales

if TYPE_CHECKING:
    from .kernel import Kernel

NAMES = ("transa", "transb")
LETTERS = {"N": False, "T": True, "FALSE": False, "TRUE": True, "0": False, "1": True}  # as BLAS has them, Python, and the kernel's line
C_BY_COLUMNS = (
    "The course's C lies by rows. A kernel that takes C by columns computes the product of the transposed matrices, since Cᵀ = Bᵀ × Aᵀ: "
    "exchange M and N, A and B, lda and ldb in its list of parameters, the two numbers of tile_shape, and blockIdx.x and blockIdx.y. "
    "Of A and B, what it takes by columns are rows then, and the other way round"
)


def is_transposed(name: str, value: Any) -> bool:
    """Does `value` say that a matrix is stored by columns? True, 1 or "T"; False, 0 or "N". name: of the option. Raises LaunchError."""
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1)):
        return bool(value)
    if isinstance(value, str) and (letter := value.strip("'\"").upper()) in LETTERS:
        return LETTERS[letter]
    matrix = name[-1].upper()
    raise LaunchError(f'{name}={value!r}: write True, or BLAS\'s "T", for a kernel that takes {matrix} by columns; False or "N" by rows.')


def line(name: str) -> str:
    """The line of a source that says so."""
    return f'extern "C" __device__ constexpr int {name}[] = {{1}};'


def compile_with(
    source: str, entry: str | None, arch: str, options: Sequence[str], transa: bool | str | None = None, transb: bool | str | None = None
) -> Compiled:
    """`compile_source` of the source with the lines that say which matrices are by columns. None: the source says it, or they are by rows.
    Raises what that raises, and LaunchError, also for a kernel of another signature: of a launch of your own they say nothing."""
    given = {name: is_transposed(name, value) for name, value in zip(NAMES, (transa, transb), strict=True) if value is not None}
    if not given or not isinstance(source, str) or not source.strip():
        return compile_source(source, entry, arch, options)
    code = strip_comments(source)
    missing = [name for name, turned in given.items() if turned and not re.search(rf"\b__device__\b[^;]*?\b{name}\s*\[[^\]]*\]\s*=", code)]
    lines = "".join(f"{line(name)}  // --{name}\n" for name in missing)
    body = source.rstrip("\n")
    if body.endswith("\\"):  # which goes on in the next line
        body += "\n"
    try:
        made = compile_source(f"{body}\n{lines}" if missing else source, entry, arch, options)
    except CompileError:
        compile_source(source, entry, arch, options)  # says it of the reader's own lines
        raise
    for name, turned in given.items():
        said = made.constants.get(name)
        if said is None and turned:
            raise LaunchError(f"{name} is another name in this source. Let the file say it where all names are known:\n    {line(name)}")
        if said is not None and said != (int(turned),):
            raise LaunchError(f"The source says {name} = {said} itself. Leave --{name} out, or that line.")
    if turned_ones := [name for name, turned in given.items() if turned]:
        _of_a_product(made, turned_ones)
    return made


def _of_a_product(compiled: Compiled, names: Sequence[str]) -> None:
    """Raise LaunchError of a kernel that the course does not launch: there the options would say nothing."""
    from .geometry import is_fused  # here: it asks for the kernel, which is compiled here
    from .kernel import Kernel

    try:
        is_fused(Kernel(compiled))
    except LaunchError as error:
        these, matrices = " and ".join(names), " and ".join(name[-1].upper() for name in names)
        raise LaunchError(
            f"{these}: how {matrices} lies is said of kernels that the course launches. Your own .launch(grid, block, args) hands over "
            f"arrays as they lie: leave {these} out for it. {error.message}"
        ) from None


def transposed(kernel: Kernel) -> tuple[bool, bool]:
    """(does it take A by columns, does it take B so). Raises LaunchError for what cannot be."""
    constants, found = kernel.compiled.constants, []
    for name in NAMES:
        said = constants.get(name, (0,))
        if said not in ((0,), (1,)):
            raise LaunchError(f"{name} = {said}: it is one number, 1 where the matrix lies by columns, and 0 by rows:\n    {line(name)}")
        found.append(said == (1,))
    if "transc" in constants:
        raise LaunchError(f"{kernel.name} states transc. {C_BY_COLUMNS}.")
    if any(found) and "pieces" in constants:
        raise LaunchError(f"{kernel.name} multiplies pieces, which are made of A and B by rows: leave transa and transb out.")
    return found[0], found[1] or block_scales.scale_block(kernel) is not None


def named(transa: bool, transb: bool) -> str:
    """Which matrices are by columns, for people: "B by columns"; "" for none."""
    which = [name for name, turned in zip("AB", (transa, transb), strict=True) if turned]
    return f"{' and '.join(which)} by columns" if which else ""


def said_of(kernel: Kernel) -> str:
    """`named` of what the kernel says itself; nothing of B where blocks have factors, which always lies so."""
    transa, transb = transposed(kernel)
    return named(transa, transb and block_scales.scale_block(kernel) is None)
