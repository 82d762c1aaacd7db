"""Parsed PTX -> a program the machine can run: numbered registers, basic blocks, one closure per instruction.

What happens once per kernel, before any thread runs:
- variables get their addresses (`code.variables`), and device functions are copied into the place of each call
  (`code.inline`);
- literals and special registers get registers of their own;
- every instruction's handler (see `isa`) says what it is, which becomes an `Op`, and builds closures bound to its operands;
- the code is cut into basic blocks, and liveness is computed, so that the machine knows which registers of waiting
  threads it has to preserve (`code.cfg`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from helpers.errors import RunError

from . import isa
from .code import cfg, ptx, time_limit, variables
from .code.doubts import doubts
from .code.inline import inline
from .code.lines import FILENAME, assembly_calls_of_ptx, calls_of_ptx, chains_of_ptx, header_at
from .code.program import Block, Effect, Guard, Image, Op, Program
from .code.ptx import Immediate
from .code.sites import Site
from .machine.undefined import watcher


@functools.lru_cache(maxsize=8)
def load(text: str, symbol: str, filename: str = FILENAME) -> Program:
    """Load entry `symbol` of the PTX `text`. Raises RunError naming the line for what the machine does not know."""
    module = ptx.parse(text, filename)
    function = module.functions.get(symbol)
    if function is None or function.body is None:
        raise RunError(f"The compiled code has no kernel called {symbol}.")
    program = _Loader(module, function, assembly_calls_of_ptx(text, filename), chains_of_ptx(text, filename)).program()
    program.chains = functools.partial(chains_of_ptx, text, filename)
    program.calls = functools.partial(calls_of_ptx, text, filename)
    program.header_at = lambda ptx_line: header_at(text, ptx_line, filename)
    return program


@functools.lru_cache(maxsize=8)
def followed(program: Program) -> Program:
    """The same, with what is undefined of shared memory and of shuffles followed as registers are (see `machine.undefined`)."""
    given = [index for index, _ in (*program.constants, *program.specials)]
    unclear = doubts(program.ops, program.blocks, given, program.local_bytes, followed=True)
    blocks = [replace(block) for block in program.blocks]
    _watch(blocks, program.ops, {position: watcher(program.ops[position], unclear) for position in unclear.watched})
    return replace(program, blocks=blocks, doubts=unclear)


class _Loader:
    """What handlers ask for while they bind an instruction: registers, sites, tables of labels, and `uses`."""

    def __init__(self, module: ptx.Module, entry: ptx.Function, calls: Mapping[int, int], chains: Mapping[int, tuple[int, ...]]):
        self.entry, self.calls = entry, calls  # of inline assembly in the cell's functions, by PTX line
        self.chains = chains
        self.variables = variables.place(module, entry)
        self.flat = inline(module, entry, self.variables, isa.in_halves)
        self.tables, self.register_types = self.flat.tables, self.flat.register_types
        self.index: dict[str | tuple[int, str], int] = {}  # by name; of a literal by its bits and type
        self.types: list[str] = []
        self.constants: list[tuple[int, np.ndarray]] = []
        self.specials: list[tuple[int, str]] = []
        self.sites: list[Site] = []
        self.exchanged: set[int] = set()
        self.uses: set[str] = set()

    # ------------------------------------------------------------------------------------------------ registers

    def register(self, name: str) -> int:
        """Index of a register; special registers (%tid.x) are registers that the machine fills in. KeyError if there is none."""
        found = self.index.get(name)
        if found is None:
            kind = self.register_types.get(name)
            if kind is None:
                found = self.new(isa.SPECIAL_REGISTERS[name].type)
                self.specials.append((found, name))
            else:
                found = self.new(kind)
            self.index[name] = found
        return found

    def new(self, kind: str) -> int:
        """A register of its own."""
        self.types.append(kind)
        return len(self.types) - 1

    def constant(self, value: Immediate, kind: str) -> int:
        """The register that holds a literal."""
        bits = ptx.immediate_bits(value, kind) if kind != "pred" else int(bool(value.value))
        key = (bits, kind)
        found = self.index.get(key)
        if found is None:
            found = self.index[key] = self.new(kind)
            dtype = isa.DTYPES[kind]
            if kind == "pred":
                array = np.array([bool(bits)])
            else:
                array = np.frombuffer(bits.to_bytes(dtype.itemsize, "little"), dtype).copy()
            self.constants.append((found, array))
        return found

    def constant_address(self, value: int) -> int:
        """The register that holds a fixed address, as 64 bits."""
        return self.constant(Immediate(value), "u64")

    def guard(self, instruction: ptx.Instruction) -> Guard | None:
        """The instruction's guard, bound."""
        if instruction.guard is None:
            return None
        name, negated = instruction.guard
        try:
            return Guard(self.register(name), negated)
        except KeyError:
            raise RunError(f"PTX line {instruction.ptx_line}: `{instruction.text}` has an unknown guard.", instruction.line) from None

    # --------------------------------------------------------------------------------------------------- blocks

    def bound(self, instruction: ptx.Instruction, position: int):
        """The instruction, bound by its handler."""
        time_limit.look()
        return isa.bind(self, instruction, position)

    def program(self) -> Program:
        flat, count = self.flat, len(self.flat.code)
        bindings = [self.bound(instruction, position) for position, instruction in enumerate(flat.code)]
        for finish in isa.FINISHERS:
            time_limit.look()
            finish(bindings)
        ops = tuple(binding.finished(flat.labels.__getitem__) for binding in bindings)
        leaders = set(flat.labels.values())
        for op in ops:
            if op.ends_block:
                leaders.add(op.position + 1)
                if op.guard is not None and not isinstance(bindings[op.position].terminator, isa.Jump):
                    leaders.add(op.position)
            if op.rendezvous:
                leaders.add(op.position)
        blocks = [Block(i, positions, line=ops[positions.start].line) for i, positions in enumerate(cfg.cut(count, leaders))]
        block_at = {block.ops.start: block.index for block in blocks} | {count: len(blocks)}
        for block in blocks:
            _fill(block, ops, bindings, lambda label: block_at[flat.labels[label]], block_at)
        graph = [block.successors for block in blocks]
        facts = [cfg.uses_and_kills((op.reads, op.writes, op.guard is not None) for op in _ops_of(block, ops)) for block in blocks]
        for block, live in zip(blocks, cfg.live_in(graph, [uses for uses, _ in facts], [kills for _, kills in facts]), strict=True):
            block.live_in = live
        given = [index for index, _ in (*self.constants, *self.specials)]
        unclear = doubts(ops, blocks, given, flat.local_bytes)
        _watch(blocks, ops, {position: watcher(ops[position], unclear) for position in unclear.watched})
        _mark_leaving(blocks, ops)
        grid_workspace = self._place_grid_workspace()
        placed = self.variables
        return Program(
            name=self.entry.name, ops=ops, blocks=blocks, types=self.types,
            names={index: name for name, index in self.index.items() if isinstance(name, str)},
            constants=self.constants, specials=self.specials, sites=tuple(self.sites), parameters=flat.parameters,
            shared=placed.shared, shared_start=placed.shared_start, dynamic_shared_at=placed.dynamic_shared_at, ungiven=placed.ungiven,
            aligned=placed.aligned, local_bytes=flat.local_bytes, param_bytes=flat.param_bytes, device=placed.device,
            image=Image(bytes(placed.image), placed.relocations),
            exchanged=sum(1 << index for index in self.exchanged), uses=frozenset(self.uses),
            line=self.entry.line, doubts=unclear, grid_workspace=grid_workspace, race_free=_race_free(blocks, graph, ops),
            shared_granule=min([site.width for site in self.sites if site.space in ("shared", "cluster", "generic")] + [8]),
        )  # fmt: skip

    def _place_grid_workspace(self) -> int:
        """Memory for cooperative groups' grid barrier, which the driver announces in %envreg1 and 2. Its address, or 0."""
        if not {"%envreg1", "%envreg2"} & {name for _, name in self.specials}:
            return 0
        return self.variables.add_device("the grid's barrier", "global", 256)


def _ops_of(block: Block, ops: tuple[Op, ...]) -> tuple[Op, ...]:
    return ops[block.ops.start : block.ops.stop]


def _fill(block: Block, ops: tuple[Op, ...], bindings, place, block_at: dict[int, int]) -> None:
    """Put the closures of its instructions into a block. place: the block of a label. block_at: that of a position."""
    following = block.index + 1
    block.successors, block.end = (following,), isa.jump_to(following)
    for op in _ops_of(block, ops):
        block.lines[op.line] = block.lines.get(op.line, 0) + 1
        block.plain += op.steps
        block.masked += op.masked
        if op.rendezvous:
            block.rendezvous, block.members = op.rendezvous, op.members
        if op.guard is None:  # what is guarded counts itself
            for counter in op.counters:
                key = (op.line, counter)
                block.counted[key] = block.counted.get(key, 0) + 1
        if op.ends_block:
            targets = {block_at[target] for target in op.targets}
            block.successors = tuple(targets | {following} if op.falls_through or op.guard is not None else targets)
            block.end = isa.end_of(bindings[op.position], place, following)


def _watch(blocks: list[Block], ops: tuple[Op, ...], watchers: dict[int, Callable]) -> None:
    """Put the watchers (by position) before the closures of their instructions."""
    for block in blocks:
        block.watchers = {position: (watchers[position],) for position in block.ops if position in watchers}
        if block.watchers:
            closures = [(block.watchers.get(op.position, ()), op) for op in _ops_of(block, ops)]
            block.plain = [step for first, op in closures for step in (*first, *op.steps)]
            block.masked = [step for first, op in closures for step in (*first, *op.masked)]


def _mark_leaving(blocks: list[Block], ops: tuple[Op, ...]) -> None:
    """Mark the blocks from which threads end without doing anything else."""
    for block in reversed(blocks):
        idle = all(op.effect in (Effect.PURE, Effect.JUMP, Effect.END) for op in _ops_of(block, ops))
        block.leaves = idle and all(i >= len(blocks) or (i > block.index and blocks[i].leaves) for i in block.successors)


def _race_free(blocks: list[Block], graph: list[tuple[int, ...]], ops: tuple[Op, ...]) -> frozenset[int]:
    """The reads (indices of sites) that need no race check: no write of shared memory can happen between the same two full barriers.

    Threads may take different ways from one barrier to the next, so a read can meet a write that is on no path with it:
    all that can be reached from one barrier without passing another is looked at together. Only barriers that every
    thread takes part in count, and they end their block.
    """
    writes = [
        any(
            op.lands or any(site.space in ("shared", "generic") and not site.op.only_reads for site in op.sites)
            for op in _ops_of(block, ops)
        )
        for block in blocks
    ]
    clears = [any(op.whole_block and op.guard is None for op in _ops_of(block, ops)) for block in blocks]
    between = [() if clear else successors for clear, successors in zip(clears, graph, strict=True)]
    meets: set[int] = set()  # blocks of which a write may happen between the same two barriers
    for first in {0}.union(*(graph[i] for i, clear in enumerate(clears) if clear)):
        together = cfg.reachable(between, first)
        if any(writes[i] for i in together):
            meets |= together
    alone = (block for block in blocks if block.index not in meets)
    return frozenset(site.index for block in alone for op in _ops_of(block, ops) for site in op.sites if site.op.only_reads)
