"""Make native code of a loaded program for what a launch needs, or find it among what was made before."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

from helpers.sim.checks.beyond_array import arrays_at
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.program import Effect, Op, Program

from . import access as _memory  # noqa: F401 - importing registers the handlers
from . import engine, operations  # noqa: F401 - as above
from . import exchange as _warp  # noqa: F401 - as above
from . import products as _matrix  # noqa: F401 - as above
from . import stops as _ends  # noqa: F401 - as above
from .declined import Declined, Unsupported, named
from .dispatch import HANDLERS
from .lower import Charge, Lowered, Options, Record, lower
from .runtime import runtime_ir
from .uniformity import ops_met

GOOD_COSTS = 3.0  # how many times as long as quickly made code good code takes to make (see engine.QUICK)
MAX_INSTRUCTIONS = 20_000  # larger kernels would take long to compile


class Prepared:
    """Machine code ready to run. `code` is quickly made code first, and good code once a run is worth it."""

    def __init__(self, program, options: Options, identity: str, lowered: Lowered, code: bytes, good: bool):
        self.program, self.options, self.identity, self.lowered, self.good = program, options, identity, lowered, good
        self.lock = threading.Lock()
        self.code = engine.Code([runtime(), code])

    @functools.cached_property
    def seconds_to_improve(self) -> float:
        """About how long `improve` takes, on a processor that is the run's as well."""
        return 0.0 if self.good else GOOD_COSTS * seconds_to_make(self.program, self.options)

    def improve(self) -> None:
        """Replace quickly made code; runs that are under way go over to it with their next blocks."""
        with self.lock:
            if self.good:
                return
            lowered = self.lowered if self.lowered.ir else lower(self.program, self.options)
            code = engine.machine_code(lowered.ir, engine.GOOD)
            engine.store(self.identity, engine.GOOD, _facts(lowered), code)
            self.code = engine.Code([runtime(), code])
            self.good = True


def _flags(block: Sequence[int]) -> tuple[bool, bool, bool]:
    """(tid.x runs along the warp, tid.y is the same within a warp, tid.z is)."""
    x, y, z = block
    rows = x % WARP == 0 or y * z == 1
    return rows, rows, rows or (x * y) % WARP == 0 or z == 1


def options_for(
    program,
    block: Sequence[int],
    charges: dict[tuple[int, int], Charge] | None,
    findings: bool,
    watched=None,
    fixed: tuple[tuple[int, bool], ...] = (),
    unwritten: bool = False,
) -> Options:
    """What code a launch needs. charges, unwritten: as in Options, the first as a dict.
    watched: what the checks watch of device memory (`DevicePlaces`), None for no such findings.

    Raises Declined.
    """
    if len(program.ops) > MAX_INSTRUCTIONS:
        raise Declined("the kernel is very large")
    watching = None
    if findings and program.shared:
        may_race = frozenset(site.pc for site in program.sites if site.index not in program.race_free)
        watching = (min(4, program.shared_granule), may_race)
    owning = None
    if watched is not None:
        owning = (watched.granule, frozenset(site.pc for site, wanted in zip(program.sites, watched.watches, strict=True) if wanted))
    return Options(
        _flags(block), None if charges is None else tuple(sorted(charges.items())), watching, owning, fixed, engine.wide_vectors(),
        unwritten and bool(program.doubts.watched),
    )  # fmt: skip


class _Impossible(NamedTuple):
    """Why there is no code, and because of which instruction."""

    why: str
    op: Op | None


@functools.lru_cache(maxsize=8)
def _made(program: Program) -> dict[Options, Prepared | _Impossible | None]:
    """What was made, or found to be impossible, of a program. None: looked for on the disk in vain."""
    return {}


def remembered(program, options: Options) -> Prepared | None:
    """Code that was made before, by this process or kept on disk. Raises Declined if it is known to be impossible."""
    memory = _made(program)
    found = memory.get(options)
    if isinstance(found, _Impossible):
        raise Unsupported(*found)
    if found is not None or options in memory:
        return found
    memory[options] = None  # looked for once: reading it as text takes a while
    identity = _identity(program, options)
    for level in (engine.GOOD, engine.QUICK):
        kept = engine.stored(identity, level)
        if kept is not None:
            facts, code = kept
            memory[options] = Prepared(program, options, identity, _lowered(facts), code, level == engine.GOOD)
            return memory[options]
    return None


_making = threading.Lock()  # held while code is made: what one launch waits for, the next may need, and the machine has other work


def prepare(program, options: Options, cancelled: threading.Event | None = None) -> Prepared:
    """Machine code of a loaded program, made if need be, once whoever else makes code is done. Raises Declined.

    cancelled: set when nobody wants the code any more. It is not begun then; what was begun is finished and kept.
    """
    found = remembered(program, options)
    if found is not None:
        return found
    while not _making.acquire(timeout=0.02):
        if cancelled is not None and cancelled.is_set():
            raise Declined("nobody waits for the code")
    try:
        return remembered(program, options) or _make(program, options)
    finally:
        _making.release()


def _make(program, options: Options) -> Prepared:
    memory = _made(program)
    try:
        lowered = lower(program, options)
    except Unsupported as reason:
        memory[options] = _Impossible(reason.why, reason.op)
        raise
    identity = _identity(program, options)
    code = engine.machine_code(lowered.ir, engine.QUICK)
    engine.store(identity, engine.QUICK, _facts(lowered), code)
    memory[options] = Prepared(program, options, identity, lowered, code, False)
    return memory[options]


def seconds_to_make(program, options: Options) -> float:
    """About how long `prepare` takes if nothing is remembered, on a processor that has other work as well (measured on one that has none:
    0.4 s for 2100 instructions, 1.5 s for 5900).

    Raises Unsupported where it is plain that it would fail.
    """
    met = ops_met(program, options.fixed)
    for op in met:
        if op.instruction.name not in HANDLERS and op.effect is not Effect.PURE:
            raise Unsupported(named(op), op)
    return 0.02 + 0.0006 * len(met)


def _identity(program, options: Options) -> str:
    """Everything that the code depends on, as text."""
    races = None if options.watching is None else (options.watching[0], sorted(options.watching[1]), sorted(arrays_at(program).items()))
    owned = None if options.owning is None else (options.owning[0], sorted(options.owning[1]))
    wanted = (options.flags, options.charges, races, owned, options.fixed, options.wide, options.unwritten)
    return f"{_text(program)}\n{wanted!r}"


@functools.lru_cache(maxsize=8)
def _text(program) -> str:
    """All of the program that its code depends on."""
    code = [(op.opcode, op.instruction.guard, repr(op.instruction.operands), op.targets) for op in program.ops]
    types = [(name, program.types[index]) for index, name in program.names.items()]
    return repr((code, types, [at for _, at in program.parameters], program.shared_start))


def _facts(lowered: Lowered) -> dict:
    facts = asdict(lowered)
    del facts["ir"]
    return facts


def _lowered(facts: dict) -> Lowered:
    return Lowered(
        "",
        facts["state_bytes"],
        tuple(Record(**record) for record in facts["records"]),
        tuple(map(tuple, facts["memos"])),
        tuple(facts["count_of"]),
        facts["counts"],
        tuple(facts["products"]),
        tuple(facts["calls"]),
    )


_sharing = threading.Lock()


def runtime() -> bytes:
    """The object code of what all kernels share, made if need be, by one thread while the others wait."""
    with _sharing:
        return _runtime()


@functools.cache
def _runtime() -> bytes:
    ir = runtime_ir()
    kept = engine.stored(ir, engine.GOOD)
    if kept is not None:
        return kept[1]
    code = engine.machine_code(ir, engine.GOOD)
    engine.store(ir, engine.GOOD, {}, code)
    return code
