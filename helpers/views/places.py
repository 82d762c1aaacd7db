"""Names for what a trace holds: source lines, access sites, blocks, warps, array elements.

Pure functions of a Run or a Trace, shared by the pictures, so that all of them call the same thing by the same name.
"""

from __future__ import annotations

import ast
import functools
import math
import re
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from helpers.run.own_products import MATRICES
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import AccessKind

from .canvas import Choice, Control, NothingToSee, Span

OPERATIONS = {
    AccessKind.LOAD: "load", AccessKind.STORE: "store", AccessKind.ATOMIC: "atomic", AccessKind.REDUCTION: "reduction",
    AccessKind.COPY: "copy", AccessKind.MATRIX_LOAD: "matrix load", AccessKind.MATRIX_STORE: "matrix store",
}  # fmt: skip


ANSWERS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # trace -> what was asked of it, and the answer


def once_per_trace(function: Callable) -> Callable:
    """Remember `function(trace, *arguments)` as long as the trace lives, so that a slider does not look for the same things again."""

    @functools.wraps(function)
    def remembered(trace, *arguments, **options):
        known = ANSWERS.setdefault(trace, {})
        key = (function.__qualname__, arguments, tuple(options.items()))
        try:
            remembers = key in known
        except TypeError:  # a list among the arguments, say: the function knows what is wrong with it
            return function(trace, *arguments, **options)
        if not remembers:
            known[key] = function(trace, *arguments, **options)
        return known[key]

    return remembered


@dataclass(frozen=True)
class Place:
    """One access in the source: all copies that the compiler made of it, by unrolling for example.

    sites: indices into trace.sites. array: name of what it touches ("A", "As"), "" if unknown.
    """

    sites: tuple[int, ...]
    line: int
    space: str
    op: AccessKind
    width: int
    array: str
    opcode: str
    sass: str

    @property
    def index(self) -> int:
        """Its first site, which stands for it in menus."""
        return self.sites[0]

    @property
    def what(self) -> str:
        """ "load of A", "128-bit store to Bs"."""
        wide = f"{self.width * 8}-bit " if self.width > 4 else ""
        to = self.op in (AccessKind.STORE, AccessKind.REDUCTION) or (self.op is AccessKind.COPY and self.space == "shared")
        preposition = "to" if to else "of"
        of = f" {preposition} {self.array}" if self.array else f" {preposition} {self.space} memory"
        return f"{wide}{OPERATIONS.get(self.op, self.op)}{of}"


def source_line(run, line: int | None) -> str:
    """The text of a 1-based line of the reader's cell, without its indentation; '' for a line it does not have."""
    lines = run.kernel.compiled.source.split("\n")
    return lines[line - 1].strip() if line and 1 <= line <= len(lines) else ""


def code(run, line: int | None, columns: int = 150) -> str:
    """Number and text of a line, without its comment, cut to what fits above a picture in two lines."""
    text = source_line(run, line).split("//")[0].strip()
    if not text:
        return ""
    text = f"{line}  {text}"
    return text if len(text) <= columns else text[: columns - 1] + "…"


@once_per_trace
def places(trace, *, space: str | None = None, op: str | None = None) -> list[Place]:
    """The accesses that were executed, in the order of the source; those that ptxas merged into others left out."""
    executed, first = np.unique(trace.accesses["site"], return_index=True)
    found: dict[tuple, list[int]] = {}
    for index, row in zip(executed, first, strict=False):
        site = trace.sites[index]
        if not site.width or space not in (None, site.space) or op not in (None, site.op):
            continue
        array = array_of(trace, site.space, trace.addresses[row])
        name = array.name if array is not None else ""
        found.setdefault((site.line or 0, site.space, site.op, site.width, name, site.sass), []).append(int(index))
    made = []
    for (line, space_, op_, width, name, sass), sites in found.items():
        sites.sort(key=lambda index: trace.sites[index].pc)
        made.append(Place(tuple(sites), line, space_, op_, width, name, trace.sites[sites[0]].opcode, sass))
    return sorted(made, key=lambda place: (place.line, trace.sites[place.index].pc))


@dataclass(frozen=True)
class Moment:
    """Where and when one warp makes an access. row: into trace.accesses. iteration: its number among `iterations`."""

    block: int
    warp: int
    iteration: int
    iterations: int
    row: int
    blocks: tuple[int, int]
    warps: tuple[int, int]


def moment(trace, place: Place, block: int | None, warp: int | None, iteration: int | None) -> Moment:
    """The recorded execution of `place` nearest to what is asked; iterations count a warp's executions of all its copies."""
    rows, blocks, some = _rows_of(trace, place.sites)
    block = nearest(some, block or 0)
    rows = rows[np.searchsorted(blocks, block) : np.searchsorted(blocks, block, "right")]
    warps = trace.accesses["warp"][rows]
    warp = nearest(warps, warp or 0)
    rows = rows[warps == warp]
    rows = rows[np.argsort(trace.accesses["order"][rows], kind="stable")]
    iteration = min(max(iteration or 0, 0), len(rows) - 1)
    return Moment(block, warp, iteration, len(rows), int(rows[iteration]), _ends(some), _ends(warps))


@once_per_trace
def _rows_of(trace, sites: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows of the accesses made at `sites`, block by block; their blocks; the different blocks)."""
    table = np.zeros(len(trace.sites), bool)
    table[list(sites)] = True
    rows = np.flatnonzero(table[trace.accesses["site"]])
    rows = rows[np.argsort(trace.accesses["block"][rows], kind="stable")]
    blocks = trace.accesses["block"][rows]
    return rows, blocks, np.unique(blocks)


def _ends(values: np.ndarray) -> tuple[int, int]:
    return int(values.min()), int(values.max())


def moment_controls(trace, found: list[Place], place: Place, block, warp, iteration) -> tuple[Control, ...]:
    """Access, block, warp and iteration, as far as they were recorded."""
    at = moment(trace, place, block, warp, iteration)
    return (
        Choice("site", "access", tuple((_menu(found, item), item.index) for item in found), place.index),
        Span("block", "block", *at.blocks),
        Span("warp", "warp", *at.warps),
        Span("iteration", "iteration", 0, at.iterations - 1),
    )


def _menu(found: list[Place], place: Place) -> str:
    """How a menu calls an access; what ptxas made of it where one line has several of a kind."""
    twins = [item for item in found if (item.line, item.what) == (place.line, place.what)]
    return f"line {place.line}: {place.what}" + (f" ({place.sass or place.opcode})" if len(twins) > 1 else "")


def nth(number: int, count: int) -> str:
    """ "3 (of 0 to 7)", as the controls count; "0, the only one"."""
    return f"{number} (of 0 to {count - 1})" if count > 1 else f"{number}, the only one"


def at(trace, moment_: Moment) -> str:
    """ "block (2, 1), warp 3, iteration 17"."""
    return f"{block_label(trace, moment_.block)}, warp {moment_.warp}, iteration {moment_.iteration}"


@dataclass(frozen=True)
class CopyGroup:
    """Asynchronous copies (cp.async) that one warp started and closed together.

    begin: order of the first copy. end: order of the wait that they landed at, None if none was recorded. rows: their writes
    to shared memory, indices into trace.accesses.
    """

    begin: int
    end: int | None
    rows: tuple[int, ...]


@once_per_trace
def copy_groups(trace, block: int, warp: int) -> tuple[CopyGroup, ...]:
    """The groups of copies of one warp, in the order in which it closed them; groups without a copy left out."""
    kinds = np.array([site.op is AccessKind.COPY and site.space == "shared" for site in trace.sites] or [False])
    mine = (trace.accesses["block"] == block) & (trace.accesses["warp"] == warp)
    copies = np.flatnonzero(kinds[trace.accesses["site"]] & mine)
    marks = trace.barriers[(trace.barriers["block"] == block) & (trace.barriers["warp"] == warp)]
    events = [(int(trace.accesses["order"][row]), "copy", int(row)) for row in copies]
    events += [
        (int(mark["order"]), str(mark["kind"]), -1) for mark in marks if mark["kind"] == "commit" or mark["kind"].startswith("wait ")
    ]
    groups: list[list[int]] = [[]]
    landed: dict[int, int] = {}
    for order, what, row in sorted(events):
        if what == "copy":
            groups[-1].append(row)
        elif what == "commit":
            groups.append([])
        else:
            pending = what.removeprefix("wait ")
            done = len(groups) if pending == "all" else len(groups) - 1 - int(pending)
            for number in range(max(done, 0)):
                landed.setdefault(number, order)
            if pending == "all":
                groups.append([])  # what is copied from here on waits for another
    return tuple(
        CopyGroup(int(trace.accesses["order"][rows[0]]), landed.get(number), tuple(rows)) for number, rows in enumerate(groups) if rows
    )


def array_of(trace, space: str, addresses: np.ndarray):
    """The allocation that holds the first active lane's address, or None."""
    active = addresses[addresses >= 0]
    return allocation_at(trace, space, int(active.flat[0])) if active.size else None


def allocation_at(trace, space: str, address: int):
    for allocation in trace.allocations:
        if allocation.space == space and allocation.base <= address < allocation.base + allocation.nbytes:
            return allocation
    return None


def by_columns(run, array) -> bool:
    """Is this array A or B of the run's product, and stored by columns (see `run.transposes`)?"""
    problem = getattr(run, "problem", {}).get("problem")
    if problem is None or array.space != "global":
        return False
    declared = run.kernel.compiled.parameters
    turned = zip(MATRICES, problem.turned, strict=False)
    return array.name in [declared[place].name for place, columns in turned if columns]


def element(run, space: str, address: int) -> str:
    """The element at an address: "A[3, 17]"; the bare address where no array is known. Of a matrix by columns it is the element of the
    product, B[k, n], and not where it is stored."""
    array = allocation_at(run.trace, space, address)
    if array is None or not array.itemsize:
        return f"byte {address:,}"
    shape, itemsize = (array.shape, array.itemsize) if space == "global" else shared_shape(run, array)
    if space == "shared" and (size := _dynamic_bytes(run.kernel.compiled.source, array.name)):
        shape, itemsize = (max(1, array.nbytes // size),), size
    position = (address - array.base) // itemsize
    found = np.unravel_index(position, shape or (max(1, array.nbytes // itemsize),))
    where = ", ".join(str(int(part)) for part in (found[::-1] if by_columns(run, array) else found))
    return f"{array.name}[{where}]"


_SIZES = {"float": 4, "int": 4, "unsigned": 4, "double": 8, "half": 2, "__half": 2, "__nv_bfloat16": 2, "nv_bfloat16": 2, "float2": 8,
          "float4": 16, "half2": 4, "__half2": 4, "char": 1, "unsigned char": 1,
          "short": 2, "unsigned short": 2, "double2": 16, "int4": 16}  # fmt: skip


def shared_shape(run, array) -> tuple[tuple[int, ...], int]:
    """(shape, bytes per element) of a shared variable, as its declaration in the source says; PTX knows only bytes.

    Extents may be numbers, constants of the source and sums, products and quotients of them. Where that does not give the
    variable's size, it is taken as words of 4 bytes in a row.
    """
    return _shared_shape(run.kernel.compiled.source, array.name, array.nbytes)


@functools.lru_cache(maxsize=256)
def _shared_shape(source: str, name: str, nbytes: int) -> tuple[tuple[int, ...], int]:
    for texts, size, code in _declarations(source, name):
        extents = [_extent(text, code) for text in texts]
        if None not in extents and math.prod(extents) * size == nbytes:
            return tuple(extents), size
    word = 4 if nbytes % 4 == 0 else 1
    return (nbytes // word,), word


@functools.lru_cache(maxsize=256)
def _dynamic_bytes(source: str, name: str) -> int | None:
    """Of an element of an array whose size the launch says; None for other variables, and where the type is not known.

    Its shape is words to pictures that draw all of it. Its name with an index has to be what the source would mean by it.
    """
    return next((size for texts, size, _ in _declarations(source, name) if [text.strip() for text in texts] == [""]), None)


def _declarations(source: str, name: str) -> Iterator[tuple[list[str], int, str]]:
    """(extents as written, bytes per element, the source without comments) of each shared array of this name."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    for match in re.finditer(
        rf"__shared__\s+((?:volatile\s+|alignas\([^)]*\)\s*|__align__\([^)]*\)\s*)*)([\w ]+)\s+([^;]*\b{re.escape(name)}\b[^;]*);", code
    ):
        for declared in re.split(r",(?![^\[]*\])", match[3]):
            found = re.fullmatch(rf"\s*{re.escape(name)}\s*((?:\[[^\]]*\])+)\s*", declared)
            size = _bytes_of(match[2].strip(), code)
            if found and size:
                yield re.findall(r"\[([^\]]*)\]", found[1]), size, code


def _bytes_of(name: str, code: str, depth: int = 4) -> int | None:
    """Of an element of a type, which may be another name for one; None for what is not known."""
    if name in _SIZES or not depth:
        return _SIZES.get(name)
    word = re.escape(name)
    for other in (rf"\busing\s+{word}\s*=\s*([\w ]+);", rf"\btypedef\s+([\w ]+?)\s+{word}\s*;", rf"#define\s+{word}\s+([\w ]+)"):
        if found := re.search(other, code):
            return _bytes_of(found[1].strip(), code, depth - 1)
    return None


def _extent(text: str, code: str, depth: int = 8) -> int | None:
    """An integer constant expression of the source, or None for one that is more than numbers, names and + - * /."""
    try:
        return _evaluate(ast.parse(text.strip(), mode="eval").body, code, depth)
    except (SyntaxError, ZeroDivisionError):
        return None


def _evaluate(node: ast.expr, code: str, depth: int) -> int | None:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name) if depth:
            found = re.search(rf"\b{name}\s*=\s*([^;,]+)[;,]", code) or re.search(rf"#define\s+{name}\s+(\S+)", code)
            return _extent(found[1], code, depth - 1) if found else None
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as sign, right=right):
            a, b = _evaluate(left, code, depth), _evaluate(right, code, depth)
            if a is None or b is None:
                return None
            return {ast.Add: a + b, ast.Sub: a - b, ast.Mult: a * b}.get(type(sign)) if not isinstance(sign, ast.Div) else a // b
    return None


def block_label(trace, block: int) -> str:
    """ "block (2, 1)", with z only where the grid has it."""
    x, y, z = trace.grid
    parts = (block % x, block // x % y, block // (x * y))
    return "block (" + ", ".join(str(part) for part in (parts if z > 1 else parts[:2])) + ")"


def thread_of(trace, warp: int, lane: int) -> tuple[int, int, int]:
    """threadIdx of a lane of a warp."""
    x, y, _ = trace.block
    linear = warp * WARP + lane
    return linear % x, linear // x % y, linear // (x * y)


def thread_label(trace, thread: int) -> str:
    """ "thread (3, 1)" of a linear index in its block, with z only where the block has it."""
    place = thread_of(trace, thread // WARP, thread % WARP)
    return "thread (" + ", ".join(str(part) for part in (place if trace.block[2] > 1 else place[:2])) + ")"


def steps_along_k(trace, block: int, rows: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """[accesses]: the step that each access of a block belongs to, -1 for those that are not `counted`.

    A step is what happens between two barriers if the kernel has barriers, else one round through the counted accesses (a round
    ends when a warp makes an access again); steps without a counted access have no number.
    """
    at = np.full(len(rows), -1)
    barriers = trace.barriers[(trace.barriers["block"] == block) & np.isin(trace.barriers["kind"], ("sync", "warp"))]
    for warp in np.unique(rows["warp"]):
        mine = np.flatnonzero((rows["warp"] == warp) & counted)
        mine = mine[np.argsort(rows["order"][mine], kind="stable")]
        if len(barriers):
            at[mine] = np.searchsorted(np.sort(barriers["order"][barriers["warp"] == warp]), rows["order"][mine])
        else:
            at[mine] = _rounds(rows["site"][mine])
    used = np.unique(at[at >= 0])
    at[at >= 0] = np.searchsorted(used, at[at >= 0])
    return at


def _rounds(sites) -> list[int]:
    """Number the rounds of a sequence: a new one begins where a site comes up that this round has already seen."""
    seen, current, result = set(), 0, []
    for site in sites.tolist():
        if site in seen:
            seen, current = set(), current + 1
        seen.add(site)
        result.append(current)
    return result


def cut(trace, place: Place | None = None) -> str:
    """A reminder where the recording stopped at its limit, or where `place` is not shown as ptxas made it."""
    why = "" if place is None else next(filter(None, (trace.sites[index].estimate for index in place.sites)), "")
    return (f" (as the PTX has it: {why})" if why else "") + (" (the recording was cut short)" if trace.truncated else "")


@once_per_trace
def blocks_of(trace) -> np.ndarray:
    """Linear indices of the blocks with a recorded access, ascending."""
    return np.unique(trace.accesses["block"])


def choose_place(found: list[Place], site: int | None, line: int | None, otherwise: str) -> Place:
    """The place asked for by site or line, or the first. Raises NothingToSee with `otherwise` if there is none."""
    if not found:
        raise NothingToSee(otherwise)
    if site is not None:
        for place in found:
            if site in place.sites:
                return place
    if line is not None:
        for place in found:
            if place.line == line:
                return place
        lines = ", ".join(str(number) for number in sorted({place.line for place in found}))
        raise NothingToSee(f"Line {line} has no such access. These lines have: {lines}.")
    return found[0]


def nearest(values: np.ndarray, wanted: int) -> int:
    """The value that is wanted, or the nearest there is."""
    within = min(max(wanted, int(values.min())), int(values.max()))  # no number is too large for NumPy
    return int(values[np.abs(values - within).argmin()])
