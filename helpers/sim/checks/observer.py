"""What the machine tells the checks, and how a check hears of it.

The machine calls `m.checks.<event>(m, …)` wherever something happens that a sanitizer would want to know. An `Observer`
does nothing: it is what a launch without checks has. A check derives from it, in a file of its own in this folder, and
overrides the events that it cares about; nobody has to name it, because `kinds` finds it. `Checks` passes each event on.

Accesses arrive as objects of `accesses`. Of several checks that see one, those of a lower `order` look first, and one that
returns True has said all that there is to say about it.
"""

from __future__ import annotations

import copy
import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from helpers.sim.code.sites import Site

from .findings import said

if TYPE_CHECKING:
    from .accesses import Access, BulkDeviceAccess, DeviceAccess, MatrixAccess, PieceAccess
    from .protocols import Machine, PhaseBarrier
    from .shared_cells import SharedCells
    from .warp_meetings import Arrivals, WarpMoment


class Observer:
    """Everything that happens in a chunk of blocks. Rows and lanes are those of the chunk; the active threads are `m.mask`."""

    def watches_device(self, site: Site) -> bool:
        """Does somebody look at this access of device memory?"""
        return False

    divisible = True  # may the chunk be divided now? False while something is remembered that cannot be

    # --- shared memory

    def read(self, m: Machine, access: Access) -> bool | None:
        """Threads read."""

    def write(self, m: Machine, access: Access) -> bool | None:
        """Threads have written."""

    def update(self, m: Machine, access: Access) -> bool | None:
        """Threads perform an atomic access, see `Site.atomic`."""

    def barrier_made(self, m: Machine, access: Access) -> None:
        """Threads initialise an mbarrier here."""

    def barrier_ended(self, m: Machine, access: Access) -> None:
        """Threads invalidate an mbarrier here: its place is ordinary memory again."""

    def barrier_used(self, m: Machine, access: Access) -> None:
        """Threads arrive at an mbarrier of their own block, or wait for it."""

    # --- asynchronous copies and products

    def copy_started(self, m: Machine, access: Access) -> None:
        """Asynchronous copies to these places begin."""

    def copies_awaited(self, m: Machine, position: int) -> None:
        """The active threads wait for their cp.async; `copy_landed` follows for each that has come. position: of the instruction."""

    def copy_landed(self, m: Machine, access: Access) -> None:
        """A cp.async has been waited for by its threads, which count as the writers."""

    def bulk_landed(self, m: Machine, access: PieceAccess, barrier: PhaseBarrier) -> None:
        """A bulk copy has come and been counted by an mbarrier, but nobody knows yet."""

    def remote_store_landed(self, m: Machine, access: Access) -> None:
        """An asynchronous store to a block of the cluster has come, and that block will know from its mbarrier."""

    def bulk_read(self, m: Machine, access: PieceAccess) -> None:
        """A bulk copy from these places begins; `read` comes first."""

    def reading_begun(self, m: Machine, access: Access) -> None:
        """An asynchronous operation goes on reading these places."""

    def reading_ended(self, m: Machine, access: Access) -> None:
        """Its threads have waited for it."""

    def never_waited(self, m: Machine, access: PieceAccess) -> None:
        """Threads have ended without having waited for a bulk copy from shared memory."""

    def matrix_read(self, m: Machine, access: MatrixAccess) -> bool | None:
        """A warpgroup's product begins to read a matrix."""

    def matrix_done(self, m: Machine, access: MatrixAccess) -> None:
        """The warpgroup has waited for the product."""

    # --- registers of warpgroups' products

    def product_started(self, m: Machine, site: Site, shape: str, accumulators, inputs, reads: list[MatrixAccess]) -> None:
        """The active warpgroups begin a product. accumulators, inputs: its registers; reads: matrices, each to be told of next."""

    def products_committed(self, m: Machine) -> None:
        """The active threads close their current group of products."""

    def products_awaited(self, m: Machine, pending: int) -> None:
        """The active threads wait for all but their last `pending` groups of products."""

    def registers_fenced(self, m: Machine) -> None:
        """The active threads execute wgmma.fence."""

    def registers_used(self, m: Machine, line: int | None, registers: tuple[int, ...]) -> None:
        """An ordinary instruction reads registers that products hold somewhere."""

    def registers_changed(self, m: Machine, line: int | None, registers: tuple[int, ...]) -> None:
        """An ordinary instruction has written such registers."""

    def register_copied(self, m: Machine, target: int, source: int | None) -> None:
        """A register is now what another one, or a constant (None), is."""

    # --- device memory

    def before_device_write(self, m: Machine, access: DeviceAccess, held: Callable):
        """A store is about to happen: what memory holds there, held(), if somebody wants to know, else None."""

    def device_read(self, m: Machine, access: DeviceAccess) -> None:
        """Threads read."""

    def device_write(self, m: Machine, access: DeviceAccess) -> None:
        """Threads have written."""

    def device_update(self, m: Machine, access: DeviceAccess) -> None:
        """Threads perform an atomic operation."""

    def device_copy_reads(self, m: Machine, access: BulkDeviceAccess) -> None:
        """Bulk copies from these places begin."""

    def device_copy_writes(self, m: Machine, access: BulkDeviceAccess) -> bool | None:
        """Bulk copies to these places begin, whose data memory holds already. True if somebody wants to hear of `copies_ended`."""

    def copies_ended(self, m: Machine, access: BulkDeviceAccess, chosen: np.ndarray) -> None:
        """The threads of the copies `chosen` (boolean) have waited for them, not only for their being read."""

    # --- what orders accesses

    def barrier(self, m: Machine, rows: np.ndarray | None = None) -> None:
        """All threads of these blocks (boolean; None: all) have passed a barrier."""

    def reached(self, m: Machine) -> WarpMoment | None:
        """The active threads have come to a barrier or mbarrier. When is that, and what do they know?"""

    def barrier_of_some(self, m: Machine, arrivals: list[Arrivals], rows: np.ndarray, number: int | None = None) -> None:
        """A barrier of some threads of these blocks (boolean), or one at which some only arrived, is complete. number: its own."""

    def gathered(self, m: Machine) -> None:
        """Lanes of the active warps are about to execute an instruction of the whole warp, or warpgroup, together."""

    def warp_barrier(self, m: Machine, masks: np.ndarray | None = None) -> None:
        """The active warps pass a __syncwarp(). masks: [blocks, warps, 32], which lanes each names; None: all of them."""

    def fence(self, m: Machine, acquires: bool = True) -> None:
        """The active threads execute a fence or a release: it may order what other blocks see."""

    def block_fence(self, m: Machine, acquires: bool = True) -> None:
        """The same for what threads of their own block see, and nobody else."""

    def proxy_fence(self, m: Machine, shared: bool, device: bool) -> None:
        """The active threads order ordinary accesses with those of wgmma and bulk copies: of shared memory, of device memory."""

    def acquire(self, m: Machine) -> None:
        """The active threads see what others have released. Which threads released is not known."""

    def looked(self, m: Machine, site: Site) -> None:
        """The active threads have looked at what others may write: a volatile or relaxed read, an atomic with a result."""

    def arrived(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray, lanes: np.ndarray, releases: bool = True) -> None:
        """Lanes arrive at an mbarrier in the blocks `rows`, of which some may not be their own. releases: what they did before."""

    def waited(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray, lanes: np.ndarray) -> None:
        """Lanes have waited for the mbarrier of the blocks `rows`."""

    def phases_began(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray) -> None:
        """The mbarrier of the blocks `rows` begins anew."""

    def phase_helped(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray, lanes: np.ndarray) -> None:
        """Lanes do what the current phase of the mbarrier in the blocks `rows` waits for: they arrive, or begin a copy that it counts."""

    def phase_ended(self, m: Machine, barrier: PhaseBarrier, done: np.ndarray) -> None:
        """The current phases of the mbarrier in the blocks `done` (boolean) are about to be complete."""

    def phase_seen(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray, lanes: np.ndarray, position: int | None) -> None:
        """Lanes have seen that a phase of the mbarrier in the blocks `rows` is over. position: of a wait for a parity, else None."""

    def cluster_arrived(self, m: Machine, releases: bool, position: int) -> None:
        """The active threads arrive at their cluster's barrier. releases: what they did before. position: of the instruction."""

    def cluster_left(self, m: Machine, rows: np.ndarray) -> None:
        """Threads of the blocks `rows` (indices) have ended, and their cluster's barrier has not waited for them."""

    def cluster_passed(self, m: Machine, rows: np.ndarray) -> None:
        """Threads of the blocks `rows` (boolean) are through their cluster's barrier."""

    def ended(self, m: Machine) -> None:
        """All threads of the chunk have ended."""


class DeviceCheck(Observer):
    """A check of device memory: one for the whole launch.

    watched_natively: the native engine notices what this check would report, and leaves such launches to the NumPy machine.
    Launches that want any other check run in the NumPy machine from the beginning.
    """

    order = 0
    watched_natively = False

    def __init__(self, launch):
        self.launch, self.places = launch, launch.device

    @classmethod
    def wanted(cls, launch) -> bool:
        """Can the launch have such findings?"""
        return True


class SharedCheck(Observer):
    """A check of shared memory: one for each chunk of blocks.

    arrays: names of its arrays of [rows, granules], as `SharedCells` has rows; other state of rows is copied by `with_rows`.
    watched_natively: as in `DeviceCheck`.
    """

    order = 0
    watched_natively = False
    arrays: tuple[str, ...] = ()

    def __init__(self, m: Machine, launch, cells: SharedCells):
        self.launch, self.cells = launch, cells
        for name in self.arrays:
            setattr(self, name, np.zeros((1, cells.count), np.int32))

    @classmethod
    def wanted(cls, launch) -> bool:
        """Can the launch have such findings?"""
        return True

    def with_rows(self, pick: Callable[[np.ndarray], np.ndarray]) -> None:
        """Exchange the rows: `pick` makes new ones of an array's."""
        for name in self.arrays:
            setattr(self, name, pick(getattr(self, name)))

    def put(self, name: str, m: Machine, access: Access, value: int) -> None:
        """Let the array `name` be so much at the granules of an access: these first, for there may be more rows of it then."""
        cells = access.touched(m, self.cells).cells
        getattr(self, name).reshape(-1)[cells] = value

    def part(self, cells: SharedCells, pick: Callable[[np.ndarray], np.ndarray]) -> SharedCheck:
        """The same check for some of the blocks."""
        other = copy.copy(self)
        other.cells = cells
        other.with_rows(pick)
        return other


class AcquiringCheck(SharedCheck):
    """One to which a thread that acquires, or looks at a flag, is as one that has passed a barrier with everybody."""

    def acquire(self, m: Machine) -> None:
        self.barrier(m, None if m.mask is None else m.rows_of(m.mask).any(axis=1))

    def looked(self, m: Machine, site: Site) -> None:
        self.acquire(m)


EVENTS = tuple(name for name, member in vars(Observer).items() if callable(member) and name != "watches_device")


@functools.cache
def kinds() -> tuple[type[Observer], ...]:
    """The checks of this folder, in the order in which they look."""
    package = __name__.rpartition(".")[0]
    found = set()
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        members = vars(importlib.import_module(f"{package}.{module.name}")).values()
        found.update(member for member in members if isinstance(member, type) and issubclass(member, (DeviceCheck, SharedCheck)))
    return tuple(sorted((kind for kind in found if kind.__module__ != __name__), key=lambda kind: (kind.order, kind.__name__)))


def finding_kinds() -> dict[str, str]:
    """What can be found, and what it means, as the files of this folder say it: {"race": "two threads touch …"}."""
    return said("MEANING")


class Checks(Observer):
    """Several checks as one. cells: where their arrays of shared memory lie; None in a kernel that has none.

    watched: which accesses of device memory (by site) the checks look at.
    """

    def __init__(self, checks: list[Observer], cells: SharedCells | None, watched: list[bool]):
        self.checks, self.cells, self.watched = checks, cells, watched
        for event in EVENTS:
            listeners = [getattr(check, event) for check in checks if getattr(type(check), event) is not getattr(Observer, event)]
            if listeners:
                tell = listeners[0] if len(listeners) == 1 else _in_turn(listeners)
                setattr(self, event, _where(watched, tell) if "device" in event else tell)

    def watches_device(self, site: Site) -> bool:
        return bool(self.watched) and self.watched[site.index]

    @property
    def divisible(self) -> bool:
        """May the chunk be divided now?"""
        return all(check.divisible for check in self.checks)

    def part(self, rows: np.ndarray) -> Checks:
        """The checks of some of the blocks (their rows), for a part of a divided chunk."""
        if self.cells is None:
            return self
        cells, pick = self.cells.part(rows)
        checks = [check.part(cells, pick) if isinstance(check, SharedCheck) else check for check in self.checks]
        cells.checks = [check for check in checks if isinstance(check, SharedCheck)]
        return Checks(checks, cells, self.watched)


def _where(watched: list[bool], tell: Callable) -> Callable:
    return lambda m, access, *more: tell(m, access, *more) if watched[access.site.index] else None


def _in_turn(listeners: list[Callable]) -> Callable:
    def tell(*args):
        for listener in listeners:
            result = listener(*args)
            if result is not None and result is not False:
                return result
        return None

    return tell
