"""What the checks need to know of the machine. It has much more; they do not import it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from helpers.sim.code.sites import Site

from .findings import Findings

if TYPE_CHECKING:
    from .observer import Observer


class LoadedKernel(Protocol):
    """The loaded kernel. shared: (symbol, address, bytes) of its variables, the first at shared_start; ungiven: (symbol, alignment) of
    those that lie at no multiple of what they ask for. uses: what kinds of instructions it has. decisive: numbers of the sites whose
    values decide where threads go; kept: of those of whose values something is made; flag_stores: of volatile stores to flags in shared
    memory. unheeded_wait: the first line that looks at an mbarrier and goes on whatever the answer is. late_waits: positions of waits
    for copies behind a barrier that they belong in front of. chains: {line of the PTX: its line, that of the call it was copied in for,
    and so on}. calls_at: {line: the lines that call its function, outwards}, where there is one way to it. ops, blocks: its instructions,
    and what is executed together."""

    name: str
    ops: tuple[Any, ...]
    blocks: list[Any]
    sites: tuple[Site, ...]
    shared: list[tuple[str, int, int]]
    shared_start: int
    ungiven: list[tuple[str, int]]
    shared_granule: int
    uses: frozenset[str]
    decisive: frozenset[int]
    kept: frozenset[int]
    flag_stores: frozenset[int]
    unheeded_wait: int | None
    late_waits: frozenset[int]
    chains: Callable[[], Mapping[int, Sequence[int]]]
    calls_at: Mapping[int, tuple[int, ...]]


class ClusterRows(Protocol):
    """Which blocks of the chunk form a cluster: see the machine's `Clusters`."""

    size: int
    rank: np.ndarray
    rows: np.ndarray


class PhaseBarrier(Protocol):
    """An mbarrier object, one per block. phase: [blocks], phases completed. line: where it was initialised. surplus: have more arrived in
    a phase than it waits for? doubtful: [blocks], in this one, which copies hold up?"""

    phase: np.ndarray
    line: int | None
    surplus: bool
    doubtful: np.ndarray

    def arrivals(self, m: Machine, rows: np.ndarray) -> list[tuple[np.ndarray, Any]]:
        """Those who completed the last phase of the barriers of `rows` (boolean), [blocks, threads], and when they came."""

    def arrivers(self, m: Machine, rows: np.ndarray) -> np.ndarray:
        """[blocks, threads]: the warps of all of these."""


class Machine(Protocol):
    """A chunk of blocks that runs. Its threads are the elements of an array of any shape; a row is a block."""

    blocks: int
    threads: int  # per block
    lanes: int
    nd: int
    shape: tuple[int, ...]
    grid: tuple[int, int, int]
    warp_count: int
    mask: np.ndarray | None  # the active threads; None: all
    block_index: np.ndarray
    thread_index: np.ndarray
    block_numbers: np.ndarray
    thread_numbers: np.ndarray
    program: LoadedKernel
    findings: Findings
    launch: Any
    memory: Any
    clusters: ClusterRows
    shared: Any
    asynchronous: Mapping[str, Any]  # "copies": the queue of cp.async that have not landed
    absent: np.ndarray | None
    exited: np.ndarray | None
    groups: dict[int, np.ndarray]  # the masks of threads that are elsewhere, by place
    held: set[int]  # places of those that wait at a warp-level instruction
    checks: Observer

    def uniform(self, value, dtype) -> np.ndarray: ...
    def rows_of(self, array: np.ndarray) -> np.ndarray: ...
    def thread_row(self, array: np.ndarray) -> np.ndarray: ...
    def varies_by_block(self, array: np.ndarray) -> bool: ...
    def warps_active(self) -> np.ndarray: ...
    def warps(self, array: np.ndarray, filler) -> np.ndarray: ...
    def project(self, mask: np.ndarray | None, shape) -> np.ndarray | None: ...
    def example(self, bad: np.ndarray, values: np.ndarray) -> tuple: ...
    def block_position(self, index: int) -> tuple[int, int, int]: ...
    def thread_position(self, index: int) -> tuple[int, int, int]: ...
    def where(self, line: int | None) -> str: ...
    def fail(self, message: str, line: int | None) -> None: ...
