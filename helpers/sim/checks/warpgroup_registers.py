"""Registers of a warpgroup's products (wgmma) while the products are in flight.

A product reads its matrices and gives its result at once in the machine, and is *in flight* until its warps wait for the
group that it was committed to. What PTX forbids in between is noted, whatever the numbers say:
- an instruction uses accumulators of a product in flight: missing-wait. Copies (mov) of such registers are followed, not
  noted, because the compiler makes them; other products of the same shape may go on with the accumulators;
- an instruction changes accumulators or A registers of a product in flight: race;
- accumulators or A registers were changed after the warp's last wgmma.fence, or there was none: missing-fence. Copies and
  constants do not count, because the compiler puts them where it likes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import Site

from .accesses import MatrixAccess
from .findings import at
from .observer import SharedCheck
from .protocols import Machine
from .shared_cells import SharedCells

GROUP = 4 * WARP  # threads of a warpgroup
FENCE_ADVICE = 'Put asm volatile("wgmma.fence.sync.aligned;") before the first wgmma of every batch, after its registers are set.'


@dataclass(eq=False)
class Product:
    """One executed wgmma that somebody still has to wait for.

    mask: the threads that have to (None: all). commits: how many groups they had committed before. held: registers with
    its result, and for which of its threads (None: all). inputs: registers of A.
    """

    site: Site
    shape: str
    mask: np.ndarray | None
    commits: np.ndarray
    held: dict[int, np.ndarray | None]
    inputs: frozenset[int]
    reads: list[MatrixAccess] = field(default_factory=list)

    def concerns(self, m, registers) -> bool:
        """Does one of the registers hold this product's result in some active thread?"""
        held = [self.held[register] for register in registers if register in self.held]
        if not held or not _some(self.mask, m.mask):
            return False
        return any(mask is None or _some(self.mask, mask, m.mask) for mask in held)


def _some(*masks) -> bool:
    """Is there a thread in all masks? None is every thread."""
    common = None
    for mask in masks:
        if common is None:
            common = mask
        elif mask is not None and mask is not common:
            common = common & mask
    return common is None or bool(common.any())


def _without(mask, gone):
    """The threads of `mask` that are not in `gone`, or None if there are none left. Both may be None, every thread."""
    if gone is None:
        return None
    left = ~gone if mask is None else mask & ~gone
    return left if left.any() else None


class WarpgroupRegisters(SharedCheck):
    """What the warpgroups of a chunk have in flight, and which registers await a fence.

    commits: groups each thread has committed. fenced: threads that have executed a wgmma.fence. changed: registers of
    products that other instructions have changed since the last fence: {register: (line, threads or None)}.
    """

    order = 50
    watched_natively = True

    def __init__(self, m: Machine, launch, cells: SharedCells):
        super().__init__(m, launch, cells)
        self.commits = m.uniform(0, np.int64)
        self.fenced = m.uniform(False, np.bool_)
        self.products: list[Product] = []
        self.changed: dict[int, tuple[int | None, np.ndarray | None]] = {}
        self.divisible = True

    @classmethod
    def wanted(cls, launch) -> bool:
        return "async proxy" in launch.program.uses

    def part(self, cells: SharedCells, pick) -> WarpgroupRegisters:
        other = super().part(cells, pick)
        other.products, other.changed = [], {}  # a chunk that has any is not divided
        return other

    # ------------------------------------------------------------------------------------- the four instructions

    def registers_fenced(self, m: Machine) -> None:
        self.divisible = False
        if m.mask is None:
            self.fenced = m.uniform(True, np.bool_)
            self.changed.clear()
            return
        self.fenced = self.fenced | m.mask
        for register, (line, mask) in list(self.changed.items()):
            left = _without(mask, m.mask)
            if left is None:
                del self.changed[register]
            else:
                self.changed[register] = line, left

    def product_started(self, m: Machine, site: Site, shape: str, accumulators, inputs, reads: list[MatrixAccess]) -> None:
        self.divisible = False
        late = ~self.fenced if m.mask is None else ~self.fenced & m.mask
        if late.any():
            _note(m, "missing-fence", site.line, "A warp executes its first wgmma with no wgmma.fence before.", advice=FENCE_ADVICE)
            self.fenced = m.uniform(True, np.bool_)  # said once
        for register in filter(self.changed.__contains__, (*accumulators, *inputs)):
            line, mask = self.changed[register]
            if _some(mask, m.mask):
                what = "an accumulator" if register in accumulators else "a register of A"
                _note(
                    m, "missing-fence", site.line, f"A wgmma uses {what} that was changed{at(line)} with no wgmma.fence between.",
                    other_line=line, advice=FENCE_ADVICE,
                )  # fmt: skip
                del self.changed[register]
        for product in self.products:
            if product.concerns(m, inputs):
                _unfinished(m, site.line, product, "takes as A")
            elif product.shape != shape and product.concerns(m, accumulators):
                _unfinished(m, site.line, product, "of another shape continues")
        self.products.append(Product(site, shape, m.mask, self.commits, dict.fromkeys(accumulators), frozenset(inputs), list(reads)))

    def products_committed(self, m: Machine) -> None:
        self.divisible = False
        self.commits = self.commits + 1 if m.mask is None else self.commits + m.mask

    def products_awaited(self, m: Machine, pending: int) -> None:
        self.divisible = False
        for product in list(self.products):
            done = product.commits < self.commits - pending
            if m.mask is not None:
                done = done & m.mask
            if not _some(product.mask, done):
                continue
            left = _without(product.mask, done)
            if left is None:
                self.products.remove(product)
            product.mask = left
            _end_reads(m, product, left)

    # --------------------------------------------------------------------------------------------- what others do

    def registers_used(self, m: Machine, line: int | None, registers: tuple[int, ...]) -> None:
        for product in self.products:
            if product.concerns(m, registers):
                _unfinished(m, line, product, None)

    def registers_changed(self, m: Machine, line: int | None, registers: tuple[int, ...]) -> None:
        self.divisible = False
        for product in self.products:
            for register in registers:
                if (register in product.inputs and _some(product.mask, m.mask)) or product.concerns(m, (register,)):
                    _note(
                        m, "race", line, f"A thread changes a register that the wgmma{_of(line, product.site.line)} may still be using.",
                        other_line=product.site.line, sites=(None, product.site),
                        advice="Wait for the wgmma (wgmma.wait_group) before its registers are changed.",
                    )  # fmt: skip
                    break
            _let_go(m, product, registers)
        for register in registers:
            before = self.changed.get(register)
            mask = m.mask if before is None or m.mask is None or before[1] is None else before[1] | m.mask
            self.changed[register] = line, mask

    def register_copied(self, m: Machine, target: int, source: int | None) -> None:
        self.divisible = False
        for product in self.products:
            if source is not None and product.concerns(m, (source,)):
                product.held[target] = product.held[source]
            elif target in product.held and target != source:
                _let_go(m, product, (target,))
        state = self.changed.get(source)
        if state is not None:
            self.changed[target] = state
        elif m.mask is None:
            self.changed.pop(target, None)


def _let_go(m: Machine, product: Product, registers) -> None:
    """The registers hold something else in the active threads now."""
    for register in registers:
        if register in product.held:
            left = _without(product.held[register], m.mask)
            if left is None:
                del product.held[register]
            else:
                product.held[register] = left


def _end_reads(m: Machine, product: Product, left: np.ndarray | None) -> None:
    """The product no longer reads for threads that are not `left` (None: for nobody)."""
    for read in list(product.reads):
        blocks = read.blocks
        if left is not None:
            blocks = blocks & ~m.rows_of(left)[:, read.thread : read.thread + GROUP].any(axis=1)
            if not blocks.any():
                continue
        if (blocks == read.blocks).all():
            product.reads.remove(read)
            m.checks.matrix_done(m, read)
        else:
            product.reads[product.reads.index(read)] = read.of(read.blocks & ~blocks)
            m.checks.matrix_done(m, read.of(blocks))


# --- the findings ----------------------------------------------------------------------------------------------------


def _unfinished(m: Machine, line: int | None, product: Product, how: str | None) -> None:
    what = "A thread uses" if how is None else f"A wgmma {how}"
    _note(
        m, "missing-wait", line, f"{what} accumulators of the wgmma{_of(line, product.site.line)}, which has not been waited for.",
        other_line=product.site.line, sites=(None, product.site),
        advice="Commit the wgmma (wgmma.commit_group) and wait for it (wgmma.wait_group) first.",
    )  # fmt: skip


def _note(m: Machine, kind: str, line: int | None, message: str, **more) -> None:
    block, warp, lane = (int(i) for i in np.argwhere(m.warps_active())[0])
    m.findings.add(kind, line, message, block=m.block_position(block), thread=m.thread_position(warp * WARP + lane), **more)


def _of(line: int | None, other: int | None) -> str:
    return " of the same line" if other == line else "" if other is None else f" of line {other}"
