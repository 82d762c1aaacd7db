"""What can be asked of a run, as numbers: sectors per request, loads per result, conflicts.

Pure functions of a `Run`, shared by the step table, the exercises and the notebooks, so that a rule such as
"at most 4 sectors per request" is written once. Everything is computed from the run's counters or, where a question
is about one array, from its trace; nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from helpers.errors import CourseError

SECTOR_BYTES = 32
WARP = 32

GLOBAL_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum"
GLOBAL_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum"
SHARED_INSTRUCTIONS = "smsp__inst_executed_op_shared_{op}.sum"
SHARED_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"
SHARED_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum"
FFMA_THREADS = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"


@dataclass(frozen=True)
class Shape:
    """The size of one product: A is m x k, B is k x n, C is m x n."""

    m: int
    n: int
    k: int

    @property
    def flops(self) -> int:
        """Floating-point operations of the product: a multiply and an add for each of the m * n * k terms."""
        return 2 * self.m * self.n * self.k

    @property
    def compulsory_bytes(self) -> int:
        """Bytes (float32) that any program must move: read A and B once, write C once."""
        return 4 * (self.m * self.k + self.k * self.n + self.m * self.n)

    @property
    def intensity(self) -> float:
        """FLOPs per compulsory byte."""
        return self.flops / self.compulsory_bytes


def shape_of(run) -> Shape:
    """The product a run with the course's signature computed: its first three arguments are M, N, K."""
    m, n, k = (int(value) for value in run.arguments[:3])
    return Shape(m, n, k)


def count(run, name: str) -> int:
    """A counter of the run, 0 if the kernel did nothing of that kind."""
    return int(run.counters.get(name, 0))


def sectors_per_request(run, array: str | None = None, op: str = "ld") -> float:
    """32-byte sectors that one warp-wide access of global memory touches, on average. op is "ld" or "st".

    array: only accesses to this kernel parameter ("A", "B", "C"), which needs a traced run; None: all of them.
    Raises CourseError if there was no such access.
    """
    if array is None:
        requests, sectors = count(run, GLOBAL_REQUESTS.format(op=op)), count(run, GLOBAL_SECTORS.format(op=op))
    else:
        rows, active = rows_of(run, array, op)
        requests, sectors = len(rows), int(distinct_sectors(rows, active).sum())
    if not requests:
        what = {"ld": "loads", "st": "stores"}[op]
        raise CourseError(f"The kernel made no global {what}" + (f" of {array}." if array else "."))
    return sectors / requests


def rows_of(run, array: str, op: str = "ld") -> tuple[np.ndarray, np.ndarray]:
    """Addresses [n, 32] and lane activity [n, 32] of the traced accesses to one kernel parameter, by op.

    A compiler may merge neighbouring accesses into one wide instruction; the merged ones then count as one row.
    Raises CourseError if the run was not traced or the trace was cut short.
    """
    trace = run.trace
    if trace is None or trace.truncated:
        raise CourseError("This question needs a complete trace: launch with trace=True on a smaller matrix.")
    spans = [a for a in trace.allocations if a.space == "global" and a.name == array]
    if not spans:
        raise CourseError(f"The kernel has no array {array}. It has: {', '.join(a.name for a in trace.allocations)}.")
    sites = np.array([s.space == "global" and s.op == op and s.width > 0 for s in trace.sites], dtype=bool)
    keep = sites[trace.accesses["site"]] if len(sites) else np.zeros(0, dtype=bool)
    addresses = trace.addresses[keep]
    low, high = spans[0].base, spans[0].base + spans[0].nbytes
    inside = (addresses >= low) & (addresses < high)
    chosen = inside.any(axis=1)
    widths = np.array([s.width for s in trace.sites])[trace.accesses["site"][keep][chosen]]
    addresses = addresses[chosen]
    active = addresses >= 0
    # A lane that reads 16 bytes still touches one sector if it is aligned; a wider span is the last byte's sector too.
    last = addresses + widths[:, None] - 1
    both = np.concatenate([addresses, last], axis=1)
    return both, np.concatenate([active, active], axis=1)


def distinct_sectors(addresses: np.ndarray, active: np.ndarray) -> np.ndarray:
    """Number of distinct 32-byte sectors per row of byte addresses, over active entries."""
    sectors = np.sort(np.where(active, addresses // SECTOR_BYTES, -1), axis=1)
    fresh = np.concatenate([np.ones((len(sectors), 1), dtype=bool), sectors[:, 1:] != sectors[:, :-1]], axis=1)
    return (fresh & (sectors >= 0)).sum(axis=1)


def global_loads_per_result(run) -> float:
    """Global load instructions each thread executes, per element of C it is responsible for (a full warp counts 32)."""
    shape = shape_of(run)
    return WARP * count(run, GLOBAL_REQUESTS.format(op="ld")) / (shape.m * shape.n)


def shared_loads_per_result(run) -> float:
    """Shared-memory load instructions per element of C (a full warp counts 32; a 128-bit load counts once)."""
    shape = shape_of(run)
    return WARP * count(run, SHARED_INSTRUCTIONS.format(op="ld")) / (shape.m * shape.n)


def global_bytes_per_flop(run) -> float:
    """Bytes in the sectors requested from the L1 cache, loads and stores, per floating-point operation of the product."""
    sectors = count(run, GLOBAL_SECTORS.format(op="ld")) + count(run, GLOBAL_SECTORS.format(op="st"))
    return SECTOR_BYTES * sectors / shape_of(run).flops


def shared_load_conflicts(run) -> int:
    """Extra trips to shared memory that loads made because several lanes wanted different words of one bank."""
    return count(run, SHARED_CONFLICTS.format(op="ld"))


def findings(run) -> int:
    """How many different things a sanitizer would complain about."""
    return len(run.findings)


@dataclass(frozen=True)
class Verdict:
    """The answer to one expectation: the sentence, the number this run gave, the number asked for, and whether it fits."""

    text: str
    yours: float
    expected: str
    ok: bool

    def __str__(self) -> str:
        mark = "pass" if self.ok else "FAIL"
        return f"{mark}  {self.text}: yours {self.yours:g}, expected {self.expected}"


@dataclass(frozen=True)
class Expectation:
    """A number that a kernel's run must meet.

    text: what is measured, for the reader. measure: function of a run. Exactly one of `exactly` and `at_most`, each a
    number or a function of the `Shape`.
    """

    text: str
    measure: Callable[[object], float]
    exactly: float | Callable[[Shape], float] | None = None
    at_most: float | Callable[[Shape], float] | None = None

    def __post_init__(self):
        if (self.exactly is None) == (self.at_most is None):
            raise ValueError(f"{self.text}: give one of exactly and at_most")

    def judge(self, run) -> Verdict:
        """Measure the run and compare."""
        yours = self.measure(run)
        bound = self.exactly if self.exactly is not None else self.at_most
        bound = bound(shape_of(run)) if callable(bound) else bound
        if self.exactly is not None:
            return Verdict(self.text, yours, f"{bound:g}", yours == bound)
        return Verdict(self.text, yours, f"at most {bound:g}", yours <= bound)


def sectors(array: str, op: str = "ld", **bound) -> Expectation:
    """Expectation on the sectors per request of one array, e.g. sectors("A", at_most=4)."""
    verb = {"ld": "load", "st": "store"}[op]
    return Expectation(f"sectors per {verb} of {array}", lambda run: sectors_per_request(run, array, op), **bound)


def global_loads(**bound) -> Expectation:
    """Expectation on the global loads per element of C."""
    return Expectation("global loads per result", global_loads_per_result, **bound)


def no_conflicts() -> Expectation:
    """Expectation that no shared-memory load conflicts."""
    return Expectation("bank conflicts of shared loads", shared_load_conflicts, exactly=0)


def no_findings() -> Expectation:
    """Expectation that a sanitizer has nothing to say."""
    return Expectation("findings", findings, exactly=0)
