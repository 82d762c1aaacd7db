"""Memory accesses of a program: what an instruction does to which memory, and by which rule that is charged.

A handler of the instruction set states these facts once, when it binds an instruction (see `isa`). Both engines, the
counters, the checks and the pictures read them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from enum import StrEnum

from .ptx import Address
from .sass_opcodes import opcode_row


class AccessKind(StrEnum):
    """What an access does."""

    LOAD = "ld"
    STORE = "st"
    ATOMIC = "atom"  # gives the old value back
    REDUCTION = "red"  # an atomic operation that does not
    COPY = "cp.async"
    MATRIX_LOAD = "ldmatrix"
    MATRIX_STORE = "stmatrix"
    WARPGROUP = "wgmma"  # the tensor cores' own reads
    BULK_LOAD = "bulk load"
    BULK_STORE = "bulk store"
    PREFETCH = "prefetch"
    BARRIER = "mbarrier"
    BARRIER_INIT = "mbarrier.init"

    @property
    def atomic(self) -> bool:
        """Is it performed as one, whatever other threads do?"""
        return self in (AccessKind.ATOMIC, AccessKind.REDUCTION)

    @property
    def only_reads(self) -> bool:
        """Does it leave memory as it is, at the moment it is executed?"""
        return self in (AccessKind.LOAD, AccessKind.MATRIX_LOAD, AccessKind.WARPGROUP, AccessKind.PREFETCH)

    @property
    def changes(self) -> bool:
        """Do the threads themselves write memory here?"""
        return self in (AccessKind.STORE, AccessKind.ATOMIC, AccessKind.REDUCTION, AccessKind.MATRIX_STORE)


class CostRule(StrEnum):
    """Which function of a warp's addresses says what an access costs (see `counting.rules`)."""

    GLOBAL = "global"  # requests and sectors
    ATOMIC = "atomic"  # the same, in a pass for each repetition of an address
    LOCAL = "local"  # the same, of interleaved words
    SHARED_LOAD = "shared load"  # wavefronts; lanes that pair up share one
    SHARED_STORE = "shared store"  # wavefronts
    SHARED_ATOMIC = "shared atomic"  # wavefronts in which every lane counts
    COPY = "copy"  # cp.async.ca's shared side: banks of the cache and of shared memory
    COPY_BYPASS = "copy bypass"  # cp.async.cg's global side: sectors by both sides
    MATRIX = "matrix"  # ldmatrix and stmatrix: a phase for each 8 x 8 matrix
    WARPGROUP = "warpgroup"  # operands of wgmma: 128 bytes at a time, past the load-store unit
    NONE = "none"  # not charged, or not known before a generic address is


_MAY_BECOME = {AccessKind.LOAD: AccessKind.MATRIX_LOAD, AccessKind.ATOMIC: AccessKind.REDUCTION}


_ONCE = {CostRule.ATOMIC: CostRule.GLOBAL, CostRule.SHARED_ATOMIC: CostRule.SHARED_STORE}


def combined(rule: CostRule) -> CostRule:
    """The rule of an atomic operation whose lanes count once where their addresses are equal."""
    return _ONCE.get(rule, rule)


@functools.cache
def rule_of(kind: AccessKind, space: str, bypass: bool = False) -> CostRule:
    """The rule of an access that is known to go to `space`. bypass: a copy past the cache (cp.async.cg, LDGSTS.BYPASS).

    A copy has two sides, each with a rule: its reads of global memory and its writes to shared memory.
    """
    if kind in (AccessKind.MATRIX_LOAD, AccessKind.MATRIX_STORE):
        return CostRule.MATRIX
    if kind is AccessKind.WARPGROUP:
        return CostRule.WARPGROUP
    if kind is AccessKind.COPY:
        if space == "global":
            return CostRule.COPY_BYPASS if bypass else CostRule.GLOBAL
        return CostRule.NONE if bypass else CostRule.COPY
    if kind not in (AccessKind.LOAD, AccessKind.STORE, AccessKind.ATOMIC, AccessKind.REDUCTION):
        return CostRule.NONE
    if space == "shared":
        return CostRule.SHARED_ATOMIC if kind.atomic else CostRule.SHARED_LOAD if kind is AccessKind.LOAD else CostRule.SHARED_STORE
    if space == "local":
        return CostRule.LOCAL
    if space == "global":
        return CostRule.ATOMIC if kind.atomic else CostRule.GLOBAL
    return CostRule.NONE


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One memory access of an instruction: what the PTX says of it, whatever launches and machine code there are.

    pc: position of the instruction in the program. space: 'generic' where only an address tells. width: bytes per lane.
    address: the operand that says where, None if it has none; base: its register, None for a fixed address. matrices: how
    many 8 x 8 matrices one instruction moves by the rule MATRIX. device, device_base: the same as address and base of the other
    side of a bulk copy, in device memory: its address there, or that of its tensor map (mapped).
    """

    index: int
    pc: int
    line: int | None
    space: str
    op: AccessKind
    width: int
    opcode: str
    ptx_line: int
    rule: CostRule
    address: Address | None = None
    base: int | None = None
    matrices: int = 0
    part: bool = False  # of a fragment that is accessed in several ways: each counts at its own width, or all as matrices
    strong: bool = False  # .relaxed, .acquire, .release: an access that other threads may meet
    within_block: bool = False  # .cta: it is atomic to threads of the same block only
    within_cluster: bool = False  # .cluster: to threads of the same cluster only
    volatile: bool = False
    read_only: bool = False  # .nc: a load that need not see what the same kernel has written
    past_l1: bool = False  # .cg: it sees what other multiprocessors have written, and loops look at flags so
    relaxed: bool = False  # what it finds orders nothing of other blocks' unless a fence follows: .relaxed, .release, .cta
    device: Address | None = None
    device_base: int | None = None
    mapped: bool = False
    call: int | None = None  # of inline assembly in a function of the cell, the line that calls it
    calls: tuple[int, ...] = ()  # of what stands in a function of the cell, the line that calls it, the one that calls that, and so on
    rechecks: bool = False  # an atomic operation that itself looks whether an earlier, plain read still holds: cas, min, max, …

    @property
    def generic(self) -> bool:
        """Does only the address tell the state space?"""
        return self.space == "generic"

    @property
    def atomic(self) -> bool:
        """May it meet other atomic accesses of the same memory, without an order between? The one definition for all checks."""
        return self.strong or self.op.atomic or self.op is AccessKind.BARRIER


@dataclass(frozen=True, slots=True, eq=False)
class ChargedSite:
    """A site as a launch is charged for it: what ptxas made of the access in the machine code that is launched.

    width: bytes per lane that ptxas's instruction moves (0: another site is charged for it). sass: its opcode, '' if unknown
    or removed. shift: where the charged access begins, relative to the address of the site. estimate: why `width` is only
    the PTX's, '' where it is what ptxas made. made: what ptxas made of it: some loads of wmma become LDSM, and an atomic
    operation whose old value nobody uses RED.
    """

    site: Site
    width: int
    sass: str = ""
    shift: int = 0
    estimate: str = ""
    combined: bool = False  # lanes that do an atomic operation at one address do it as one
    made: AccessKind = field(init=False)

    def __post_init__(self):
        other = _MAY_BECOME.get(self.site.op)
        object.__setattr__(self, "made", other if other and opcode_row(self.sass).op == other else self.site.op)

    def rule_in(self, space: str) -> CostRule:
        """The rule of this access where its address lies in `space`."""
        rule = self.site.rule if self.site.op is AccessKind.COPY else rule_of(self.made, space)
        return combined(rule) if self.combined else rule
