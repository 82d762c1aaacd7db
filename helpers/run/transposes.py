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
LETTERS = {"N": False, "T": True}  # as BLAS has them
C_BY_COLUMNS = (
    "The course's C lies by rows. A kernel that takes C by columns computes the product of the transposed matrices, since Cᵀ = Bᵀ × Aᵀ: "
    "exchange M and N, A and B, lda and ldb in its list of parameters, the two numbers of tile_shape, and blockIdx.x and blockIdx.y. "
    "Of A and B, what it takes by columns are rows then, and the other way round"
)


def is_transposed(name: str, value: Any) -> bool:
    """Does `value` say that a matrix is stored by columns? True or "T", False or "N". name: of the option. Raises LaunchError."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, str) and value.upper() in LETTERS:
        return LETTERS[value.upper()]
    matrix = name[-1].upper()
    raise LaunchError(f'{name}={value!r}: write True, or BLAS\'s "T", for a kernel that takes {matrix} by columns; False or "N" by rows.')


def line(name: str) -> str:
    """The line of a source that says so."""
    return f'extern "C" __device__ constexpr int {name}[] = {{1}};'


def compile_with(
    source: str, entry: str | None, arch: str, options: Sequence[str], transa: bool | str = False, transb: bool | str = False
) -> Compiled:
    """`compile_source` of the source with the lines that say which matrices are by columns. Raises what that raises, and LaunchError."""
    wanted = [name for name, value in zip(NAMES, (transa, transb), strict=True) if is_transposed(name, value)]
    if not wanted or not isinstance(source, str) or not source.strip():
        return compile_source(source, entry, arch, options)
    code = strip_comments(source)
    missing = [name for name in wanted if not re.search(rf"\b{name}\s*\[[^\]]*\]\s*=", code)]
    lines = "".join(f"{line(name)}  // --{name}\n" for name in missing)
    try:
        made = compile_source(source.rstrip("\n") + "\n" + lines if missing else source, entry, arch, options)
    except CompileError:
        compile_source(source, entry, arch, options)  # says it of the reader's own lines
        raise
    if other := next((name for name in wanted if made.constants.get(name) != (1,)), None):
        raise LaunchError(f"The source says {other} = {made.constants.get(other)} itself. Leave --{other} out, or that line.")
    return made


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
