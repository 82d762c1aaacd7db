"""Kernel and Run: one launch call for the GPU and for the SIMT machine, one result for everything that looks at it.

`compile(source)` gives a Kernel; `Kernel.launch(grid, block, args)` gives a Run. Arrays are changed in place.
"""

from __future__ import annotations

import copy
import difflib
import functools
import math
import numbers
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from helpers.arguments import explained, is_whole
from helpers.errors import CompileError, CourseError, Finding, LaunchError, RunError, UnknownNameError, in_statements, quoted
from helpers.model import hardware
from helpers.model.occupancy import occupancy
from helpers.model.predict import Prediction, predict
from helpers.sim import Budget, Collect, Outcome, Trace, TraceFilter, count, simulate
from helpers.sim.code import elf, time_limit
from helpers.sim.code.ptx import directives
from helpers.sim.launch import ALONE, DOWNWARDS, SHUFFLED, UPWARDS
from helpers.sim.layouts.tensor_map import NBYTES, TensorMap
from helpers.sim.machine import cluster as clusters
from helpers.toolchain.compile import Compiled, compile_source

from . import gpu, transposes, variable_values
from .c_types import CARRIER, DTYPES
from .gpu.launching import Before
from .shared_gpu import service_address
from .struct_arguments import by_value, is_array, table

FINDINGS, SHOWN = "findings", "shown"  # how somebody has looked at a run: at its findings alone, or at all that it says
FIRST_SPECIFIC = 90  # the first architecture that has code of its own besides ("sm_90a")

_SCALAR_TYPES = {
    "u8": np.uint8, "s8": np.int8, "b8": np.uint8, "u16": np.uint16, "s16": np.int16, "b16": np.uint16,
    "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "u64": np.uint64, "s64": np.int64, "b64": np.uint64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


@explained
def compile(
    source: str,
    entry: str | None = None,
    arch: str = "sm_90",
    options: Sequence[str] = (),
    transa: bool | str | None = None,
    transb: bool | str | None = None,
) -> Kernel:
    """Compile CUDA C++ and return the kernel, ready to launch. Arguments and errors: see `compile_source`.

    transa, transb: it takes A by columns, stored as K × M with lda elements from one k to the next, or B, stored as N × K with ldb
    elements from one column to the next: True or BLAS's "T", False or "N"; None: as the source says (see `transposes`). Launches of your
    own are not changed by it.
    """
    return Kernel(transposes.compile_with(source, entry, arch, options, transa, transb))


@dataclass(frozen=True)
class Run:
    """What one launch did.

    on: 'cpu' (the SIMT machine) or 'gpu'. milliseconds: device time from events on a GPU, None on the CPU, where a
    time would say nothing about the kernel. sampled: counters were scaled up from some of the blocks. first_tiles: how
    a few warps load their first tiles, as a trace, where the launch is a product of the course; None elsewhere.
    cluster: blocks per cluster (x, y, z), as the kernel declares or the launch asked for; (1, 1, 1) without.
    remarks: sentences about what the course did for this launch besides, such as copying a matrix that TMA cannot
    take. passes: the launches in the SIMT machine of what came before it (see `run.passes`); their counters are their
    own.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    on: str
    device: str
    milliseconds: float | None
    arguments: tuple[Any, ...] = field(repr=False)
    outcome_or_simulate: Outcome | Callable[[], Outcome] = field(repr=False)
    timing: Any = field(default=None, repr=False)
    problem: Mapping[str, Any] = field(default_factory=dict, repr=False)
    first_tiles: Callable[[], Trace | None] = field(default=lambda: None, repr=False)
    remarks: tuple[str, ...] = ()
    passes: tuple[Run, ...] = ()
    unfilled: tuple[str, ...] = ()
    looked: list[str] = field(default_factory=list, repr=False, compare=False)
    cluster: tuple[int, int, int] = clusters.ONE_EACH

    @functools.cached_property
    def outcome(self) -> Outcome:
        """The SIMT machine's account of this launch; a GPU run is simulated when somebody first asks for it."""
        return self.outcome_or_simulate() if callable(self.outcome_or_simulate) else self.outcome_or_simulate

    @property
    def counters(self) -> Mapping[str, int]:
        """Counters under Nsight Compute's metric names, summed over the launch."""
        return MappingProxyType(self.outcome.counters)

    @property
    def by_line(self) -> Mapping[int, Mapping[str, int]]:
        """The same counters per 1-based source line of the reader's cell."""
        return MappingProxyType(self.outcome.by_line)

    @property
    def findings(self) -> list[Finding]:
        """What a sanitizer would say, of its passes too; empty for a correct kernel."""
        self.looked.append(FINDINGS)
        return quoted([finding for run in (*self.passes, self) for finding in run.outcome.findings], self.kernel.source)

    @property
    def trace(self) -> Trace:
        """The recorded accesses. Raises CourseError if the launch was not asked to record any."""
        if self.outcome.trace is None:
            raise CourseError("This run recorded no trace: launch with trace=True (or a TraceFilter) to see accesses.")
        return self.outcome.trace

    @property
    def sampled(self) -> bool:
        return bool(self.outcome.sampled)

    @property
    def engine(self) -> str:
        """What executed or counted it on the CPU: 'native' code, the 'numpy' machine, or 'slice', the machine code that steers it."""
        return self.outcome.engine

    @property
    def engine_reason(self) -> str:
        """Why native code did not run it, with the instruction and its line if it is because of one; '' if it did."""
        return self.outcome.engine_reason

    def predict(self, gpu: str = "H200 SXM", what_if: Mapping[str, float] | None = None) -> Prediction:
        """Predicted time of this launch on `gpu` (a name from model/gpus.toml): `.milliseconds`, `.limiter`, `.error`.

        what_if: figures of model/cycles/chip.toml that were other than they are: {"latency.l2": 0}.
        """
        return predict(self, gpu, what_if)

    def __repr__(self) -> str:
        self.looked.append(SHOWN)
        time = f", {self.milliseconds:.4g} ms" if self.milliseconds is not None else ""
        text = f"<Run of {self.kernel.name} on {self.device}: grid {self.grid}, block {self.block}{time}>"
        # A GPU run is not simulated just to be printed.
        findings, note = (self.findings, self.outcome.note) if self.on == "cpu" else ([], "")
        notes = [*self.remarks, note] if note else self.remarks
        lines = [*(f"  {finding.kind}: {finding}" for finding in findings), *(f"  {line}" for line in notes), *self._estimate()]
        return "\n".join([text, *lines])

    def _estimate(self) -> tuple[str, ...]:
        return (f"  {self.kernel.compiled.estimate}",) if self.kernel.compiled.estimate and self.outcome.counters else ()


_OF_CELLS = ("check", "climb", "gemm", "history", "occupancy", "profile", "restore", "show")  # what a lesson's kernel has besides
_INNER = ("checked", "checked_at", "for_arch", "refused_by")  # of arguments and images, for this folder: nobody is told of them
_ONE, _LARGEST = 0x3F800000, 0x4F000000  # the bits of 1.0f and 2^31 as a float
_ALIKE = 0.7  # names, so that one is meant by the other


class Kernel:
    """A compiled kernel. `ptx`, `sass` (text), `registers` (per thread), `shared_bytes` (static, per block)."""

    def __init__(self, compiled: Compiled):
        self.compiled = compiled

    def __getattr__(self, name: str) -> Any:
        """Of a name that it has not. Raises UnknownNameError with the one that is like it, or with who has it, and AttributeError for what
        Python asks."""
        if name.startswith("_") or name == "compiled":
            raise AttributeError(name)
        known = [each for each in dir(self) if not each.startswith("_") and each not in _INNER]
        others = [each for each in _OF_CELLS if each not in known]
        alike = next(iter(difflib.get_close_matches(name, [*known, *others], 1, _ALIKE)), "")
        if alike in others:
            said = f"A kernel of compile() has no {alike}: that is for kernels of %%cuda cells and of helpers.from_file(path)."
            raise UnknownNameError(f"{said} helpers.gemm.check(kernel) checks any." if alike == "check" else said)
        raise UnknownNameError(f"A kernel has no {name}" + (f": did you mean {alike}?" if alike else f". It has: {', '.join(known)}."))

    @property
    def name(self) -> str:
        return self.compiled.entry

    @property
    def source(self) -> str:
        return self.compiled.source

    @property
    def ptx(self) -> str:
        return self.compiled.ptx

    @property
    def sass(self) -> str:
        return self.compiled.sass

    @property
    def registers(self) -> int:
        """Per thread. Raises CourseError where no assembler has given them out."""
        if not self.compiled.cubin:
            raise CourseError(
                "How many registers a thread uses is not known: NVIDIA's assembler gives them out, and this kernel is PTX only."
            )
        return self.compiled.registers

    @property
    def shared_bytes(self) -> int:
        return self.compiled.shared_bytes

    def __repr__(self) -> str:
        registers = f"{self.compiled.registers} registers" if self.compiled.cubin else "registers not known"
        asked = self.compiled.constants.get("dynamic_shared", (0,))[0]
        shared = f"{self.shared_bytes:,}{f' + {asked:,} dynamic' if asked else ''} bytes of shared memory per block"  # as below its cell
        return f"<Kernel {self.name} for {self.compiled.arch}: {registers}, {shared}>"

    @explained
    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        shared: int = 0,
        on: str | None = None,
        *,
        trace: bool | TraceFilter | None = None,
        counters: bool = True,
        findings: bool = True,
        blocks: Iterable[int] | None = None,
        cluster: int | Sequence[int] | None = None,
        seconds: float = 60.0,
        progress: Callable[[int, int], None] | None = None,
        repeat: int | None = None,
        uninitialized: Sequence[str] = (),
        globals_before: bytes | None = None,
        long: bool = False,
        in_turn: str = "",
        explain: bool = True,
        before: Sequence[Before] = (),
        symbols: Mapping[str, Any] | None = None,
    ) -> Run:
        """Run the kernel and return a Run; arrays in `args` are changed in place. Findings are in `run.findings`; where a notebook's cell
        shows neither these nor the run, a line below it tells of them.

        grid, block: 1 to 3 integers (blocks, threads per block). args: NumPy or CuPy arrays, `tensor_map`s and scalars in
        the kernel's parameter order; None is a null pointer, a tuple of its members a struct by value (int and float of 4 bytes, NumPy
        numbers, arrays where it has pointers, tuples in it), a list of arrays a table of pointers (float**).
        shared: dynamic shared memory, bytes per block.
        on: 'cpu', 'gpu' (this machine's, else the one that a class shares), or None for this machine's if there is one that can run
        the kernel. trace: True or a TraceFilter records accesses.
        counters, findings: False leaves that work out. blocks: simulate only these linear block indices and scale
        the counters. seconds: time budget of the SIMT machine. uninitialized: names of pointer parameters whose arrays
        count as never written, whatever they hold: reading them before the kernel has written is a finding.
        repeat: GPU timing repetitions (default: once, untimed runs being cheaper than surprises: arrays are changed by every
        repetition).
        globals_before: what an earlier launch left in the kernel's global variables (`Outcome.globals_after`), to begin with in
        the SIMT machine; by default it begins with what the source gives them. On a GPU they always persist.
        cluster: blocks per thread block cluster, 1 to 3 integers, for a kernel that does not declare __cluster_dims__.
        long: the SIMT machine makes native code before it begins, because interpreting would take longer than that.
        in_turn: "upwards" or "downwards": in the SIMT machine each block, or cluster, goes as far as it gets before the next one begins,
        by their numbers from the first on or from the last; "shuffled": in an order of no kind. "alone": from the first on, and no
        further one begins before it has ended; who waits for a later one is a finding.
        explain: False raises UnexplainedError as soon as native code meets what only the slower NumPy machine can explain (a race, as a
        rule); by default that runs the launch once more and names it.
        before: what is launched before it each time on a GPU, as a part of its time. On the CPU that has been done already.
        symbols: values of its `__constant__` and `__device__` variables by their names, {"mask": array}, as a program's main gives them by
        cudaMemcpyToSymbol: arrays, bytes, numbers where the source shows the type, structs and pointers as in `args`. Each fills the
        beginning of its variable; a tuple, all of it.

        Raises LaunchError before anything runs if the launch is impossible, RunError if the kernel cannot go on.
        """
        grid, block = _extent("grid", grid), _extent("block", block)
        on = place(on, self)
        self._check_limits(grid, block, shared)
        dims = self._cluster(grid, cluster)
        arguments = self.checked(args)
        if not isinstance(trace, (bool, np.bool_, TraceFilter, type(None))):
            raise LaunchError(f"trace={trace!r}: write trace=True to record every access, or give a TraceFilter.")
        blocks = None if blocks is None else _blocks(blocks, grid)
        if blocks == []:
            raise LaunchError("blocks=[]: none of the blocks would run. Name one or more, such as blocks=[0], or leave blocks out for all.")
        _budget(seconds)
        filter_ = trace if isinstance(trace, TraceFilter) else TraceFilter() if trace else None
        if progress is not None and not callable(progress):
            raise LaunchError(f"progress={progress!r} cannot be called: it is a function of (blocks done, blocks in all).")
        for name, value in (("counters", counters), ("findings", findings), ("long", long), ("explain", explain)):
            if not isinstance(value, (bool, np.bool_)):
                raise LaunchError(f"{name}={value!r}: it is True or False.")
        if repeat is not None and not (is_whole(repeat) and repeat > 0):
            raise LaunchError(f"repeat={repeat!r}: how often the launch is timed on a GPU is a whole number, at least 1.")
        if not isinstance(globals_before, (bytes, type(None))):
            raise LaunchError(f"globals_before is what an earlier run's outcome.globals_after says, not {type(globals_before).__name__}.")
        orders = (UPWARDS, DOWNWARDS, SHUFFLED, ALONE)
        if not isinstance(in_turn, str) or in_turn not in ("", *orders):
            raise LaunchError(
                f"in_turn={in_turn!r} is no order of the blocks: write in_turn={UPWARDS!r}, {DOWNWARDS!r}, {SHUFFLED!r} or {ALONE!r}, or "
                "leave it out."
            )
        collect = Collect(counters=counters, findings=findings, trace=filter_, blocks=blocks, uninitialized=self._pointers(uninitialized))
        given = variable_values.given(self.compiled, symbols)
        unfilled = variable_values.forgotten(self.compiled, symbols)
        remarks = (*unfilled, *variable_values.begun(self.compiled, given))
        subject, held = holding(self, given), [*arguments, *(value for _, value in given)]

        def simulated(values: Sequence[Any]) -> Outcome:
            variables = tuple(zip((name for name, _ in given), values[len(arguments) :], strict=True))
            try:
                return simulate(
                    subject.compiled, grid, block, values[: len(arguments)], shared=shared, collect=collect,
                    budget=Budget(seconds=seconds), progress=progress, cluster=dims,
                    globals_before=globals_before, long=long, in_turn=in_turn, explain=explain, symbols=variables,
                    resident=self.resident(block, shared),
                )  # fmt: skip
            except RunError as error:
                error.findings = quoted(error.findings, self.source)
                error.message = in_statements(error.message, self.source)
                error.args = (error.message,)
                if error.findings and remarks:  # what was not filled may be why
                    error.message = " ".join((error.message, *remarks))
                    error.args = (error.message,)
                raise

        if on == "cpu":
            host = gpu.all_to_host(held)
            outcome = simulated(host)
            for value, copy in zip(held, host, strict=True):
                gpu.copy_back(value, copy)
            return Run(
                subject,
                grid,
                block,
                shared,
                "cpu",
                "SIMT machine (CPU)",
                None,
                tuple(arguments),
                outcome,
                remarks=remarks,
                unfilled=unfilled,
                cluster=dims or clusters.ONE_EACH,
            )
        there = gpu if gpu.available() else _shared()
        kernel = self.native(there.arch())
        there_given = variable_values.given(kernel.compiled, symbols)  # by the names that they have in this code
        timing = there.launch(
            kernel.compiled, grid, block, arguments, shared, repeat=repeat, cluster=dims, before=before, symbols=there_given
        )
        # The copies keep a later look at counters from changing the reader's arrays a second time.
        later = functools.partial(lambda: simulated(gpu.all_to_host(held, copy=True)))
        return Run(
            holding(kernel, there_given),
            grid,
            block,
            shared,
            "gpu",
            timing.device,
            timing.milliseconds,
            tuple(arguments),
            later,
            timing,
            remarks=remarks,
            unfilled=unfilled,
            cluster=dims or clusters.ONE_EACH,
        )

    def count(
        self, grid: int | Sequence[int], block: int | Sequence[int], args: Sequence[Any], shared: int = 0, *, blocks: Iterable[int],
        seconds: float = 60.0, data: Callable[[], Sequence[Any]] | None = None,
    ) -> Run:  # fmt: skip
        """Counters of a launch from some of its blocks (linear indices), scaled to all; there are no findings and no trace.

        Arguments are those of `launch`. Where the counters follow from the machine code and the scalar arguments alone, nothing
        is executed and the arrays are left as they were; otherwise the blocks run in the SIMT machine, on the arguments that
        `data` gives, if it is given: `args` may then be arrays that hold nothing.
        """
        grid, block = _extent("grid", grid), _extent("block", block)
        self._check_limits(grid, block, shared)
        arguments, blocks = self.checked(args), _blocks(blocks, grid)
        if not blocks:
            raise LaunchError("blocks=[]: counting needs a block, such as blocks=[0].")
        _budget(seconds)
        start = time_limit.now()
        outcome = count(self.compiled, grid, block, arguments, blocks, seconds / 2)
        if outcome is None:
            left = max(seconds - (time_limit.now() - start), seconds / 4)
            return self.launch(grid, block, data() if data else args, shared, on="cpu", findings=False, blocks=blocks, seconds=left)
        dims = self._cluster(grid, None) or clusters.ONE_EACH
        return Run(self, grid, block, shared, "cpu", "SIMT machine (CPU)", None, tuple(arguments), outcome, cluster=dims)

    def for_arch(self, arch: str) -> Kernel:
        """This kernel compiled for another architecture (itself if it is the same)."""
        base = self.compiled.arch.rstrip("af")
        asked = re.fullmatch(r"(?:sm|compute)_(\d+)([af]?)", arch) if isinstance(arch, str) else None  # what is none the compiler refuses
        if asked and arch.rstrip("af") == base:
            return self
        suffix = self.compiled.arch[len(base) :] if asked and not asked[2] and int(asked[1]) >= FIRST_SPECIFIC else ""
        # A template's arguments and namespaces are part of its mangled name, so the plain entry name is not enough to find it again.
        entry = self.compiled.requested if re.search("<|::", self.compiled.requested) else self.compiled.entry
        return type(self)(compile_source(self.source, entry, f"{arch}{suffix}", self.compiled.options))

    def native(self, arch: str) -> Kernel:
        """This kernel compiled for a GPU of this architecture. Raises LaunchError that says which GPU it needs."""
        try:
            return self.for_arch(arch)
        except CompileError:
            raise LaunchError(f"{self.refused_by(arch)} The SIMT machine does (on='cpu').") from None

    def refused_by(self, arch: str) -> str:
        """Why a GPU of this architecture ("sm_75") cannot run the kernel, as a sentence; "" if it can."""
        number = arch.removeprefix("sm_").rstrip("af")
        try:
            kernel = self.for_arch(arch)
        except CompileError as error:
            reason = next((line for line in error.message.splitlines() if "error:" in line), error.message)
            if missing := re.search(r"__cuda_ptx_(\w+)_is_not_supported_before_SM_(\d+)", reason):  # how <cuda/ptx> says it
                reason = f"`cuda::ptx::{missing[1]}` needs compute capability {int(missing[2]) / 10}"
            if self.compiled.arch[-1] in "af":
                reason = f"it needs {_needed(self.compiled.arch)}, whose own instructions it uses ({reason.strip().rstrip('.')})"
        else:
            wanted = kernel.shared_bytes + kernel.compiled.constants.get("dynamic_shared", (0,))[0]
            try:
                limit = hardware.capability(arch).shared_per_block
            except CourseError:  # a GPU that the table does not know will say so itself
                return ""
            if wanted <= limit:
                return ""
            reason = f"it asks for {wanted:,} bytes of shared memory per block, and there are {limit:,}"
        return f"A GPU of compute capability {number[:-1]}.{number[-1]} cannot run {self.name}: {reason.strip().rstrip('.')}."

    # ------------------------------------------------------------------------------------ what a launch may be

    def _cluster(self, grid, wanted) -> tuple[int, int, int] | None:
        """Blocks per cluster as (x, y, z), None without clusters. Raises LaunchError for what the hardware refuses."""
        extent = None if wanted is None else _extent("cluster", wanted)
        return clusters.extent(self.ptx, self.compiled.symbol, self.compiled.arch, grid, extent)

    def resident(self, block: tuple[int, int, int], shared: int) -> int | None:
        """Blocks that are on the largest GPU of the kernel's architecture at once. None if no such GPU is known."""
        compiled, arch = self.compiled, self.compiled.arch.rstrip("af")
        sms = [gpu.sms for gpu in hardware.gpus() if gpu.arch == arch]
        if not sms:
            return None
        fits = occupancy(arch, math.prod(block), compiled.registers, compiled.shared_bytes + shared)
        return fits.blocks_per_sm * max(sms) or None

    def _check_limits(self, grid, block, shared) -> None:
        threads = block[0] * block[1] * block[2]
        if threads > 1024:
            shape = " × ".join(str(n) for n in block)
            of_floats = any(_ONE <= n < _LARGEST for n in block)
            why = " These are the bits of floats: declare the array as int." if of_floats else ""
            raise LaunchError(f"A block of {shape} = {threads} threads is too large: the limit is 1024 threads per block.{why}")
        for axis, size, limit in zip("xyz", block, (1024, 1024, 64), strict=False):
            if size > limit:
                raise LaunchError(f"block.{axis} = {size} is too large: the limit is {limit}.")
        for axis, size, limit in zip("xyz", grid, (2**31 - 1, 65535, 65535), strict=False):
            if size > limit:
                raise LaunchError(f"grid.{axis} = {size} is too large: the limit is {limit} blocks. Put the long side on x.")
        if min(grid) < 1 or min(block) < 1:
            raise LaunchError(
                f"grid {grid} and block {block}: every extent must be at least 1. CUDA refuses an empty launch "
                "(invalid configuration); for an empty matrix, do not launch."
            )
        self._check_bounds(block)
        limits = hardware.capability(self.compiled.arch)
        if not isinstance(shared, (int, np.integer)):
            raise LaunchError(f"shared={shared!r} is not a whole number: it is the number of bytes of dynamic shared memory per block.")
        if shared < 0:
            raise LaunchError(f"shared={shared} is negative: it is the number of bytes of dynamic shared memory per block.")
        total = shared + self.shared_bytes
        if total > limits.shared_per_block:
            raise LaunchError(
                f"{total} bytes of shared memory per block ({self.shared_bytes} declared + {shared} dynamic) are too many: "
                f"{self.compiled.arch} allows {limits.shared_per_block}. Use smaller tiles or fewer stages."
            )
        needed = self.compiled.registers * threads
        if needed > hardware.REGISTERS_PER_BLOCK:
            raise LaunchError(
                f"{self.compiled.registers} registers × {threads} threads = {needed} do not fit in the {hardware.REGISTERS_PER_BLOCK} "
                f"registers of a block. Use fewer threads, smaller thread tiles, or __launch_bounds__({threads})."
            )

    def _check_bounds(self, block) -> None:
        """Raise LaunchError for a block that the kernel itself excludes: the driver refuses to launch it."""
        said = directives(self.ptx, self.compiled.symbol)
        threads = math.prod(block)
        if (most := said.get("maxntid")) and threads > math.prod(most):
            raise LaunchError(
                f"A block of {threads} threads is too large for this kernel, whose __launch_bounds__ promise at most {math.prod(most)}: "
                "a GPU refuses the launch. State in __launch_bounds__ the threads that are launched."
            )
        if (exact := said.get("reqntid")) and (*exact, 1, 1)[:3] != tuple(block):
            raise LaunchError(f"The kernel declares blocks of {(*exact, 1, 1)[:3]} threads, and {tuple(block)} were asked for.")

    def _pointers(self, names: Sequence[str]) -> frozenset[str]:
        """`names` if all are pointer parameters. Raises LaunchError."""
        wanted = [names] if isinstance(names, str) or not isinstance(names, Iterable) else list(names)
        known = [parameter.name for parameter in self.compiled.parameters if parameter.pointer_to is not None]
        for name in wanted:
            if name not in known:
                raise LaunchError(f"uninitialized names {name!r}, and the pointers of {self.name} are: {', '.join(known) or 'none'}.")
        return frozenset(wanted)

    def checked_at(self, place: int, value: Any) -> Any:
        """One argument as its parameter wants it. Raises LaunchError that says what is wrong."""
        return _argument(self.name, self.compiled.parameters[place], value)

    def checked(self, args: Sequence[Any]) -> list[Any]:
        """`args` as the parameters want them. Raises LaunchError that says what is wrong."""
        parameters = self.compiled.parameters
        if isinstance(args, np.ndarray) or not isinstance(args, Sequence):
            raise LaunchError("args must be a list or tuple of the kernel's arguments, in order.")
        if len(args) != len(parameters):
            names = ", ".join(parameter.name for parameter in parameters) or "none"
            raise LaunchError(f"{self.name} takes {len(parameters)} arguments ({names}), and {len(args)} were given.")
        return [_argument(self.name, parameter, value) for parameter, value in zip(parameters, args, strict=False)]


def holding(kernel: Kernel, values: Sequence[variable_values.SymbolValue]) -> Kernel:
    """The kernel with these values in its variables, for whoever counts what its machine code does; without any, itself."""
    if not values:
        return kernel
    found = copy.copy(kernel)
    found.compiled = replace(kernel.compiled, cubin=elf.with_values(kernel.compiled.cubin, variable_values.placed(values)))
    return found


def _needed(arch: str) -> str:
    """The GPUs that run code for one architecture alone ("sm_90a"), for people."""
    limits = hardware.capability(arch)
    products = [row.name for row in hardware.gpus() if row.capability == limits]
    examples = f", such as {products[-1]}" if products else ""
    return f"a GPU of compute capability {limits.name} ({limits.family}{examples})"


def place(on: str | None, kernel: Kernel | None = None) -> str:
    """'cpu' or 'gpu': what was asked for; else the GPU, if there is one and it can run the kernel."""
    if on not in (None, "cpu", "gpu"):
        raise LaunchError(f"on={on!r} is neither 'cpu' nor 'gpu' (None takes the GPU if there is one).")
    if on == "gpu" and not gpu.available() and not service_address.configured():
        raise LaunchError(f"There is no GPU to run on: {gpu.why_not()} Use on='cpu', or leave `on` out.")
    return on or ("gpu" if gpu.available() and not (kernel and kernel.refused_by(gpu.arch())) else "cpu")


def gpu_multiprocessors() -> int:
    """How many the GPU has that a launch goes to: this machine's, else the one that a class shares."""
    return (gpu if gpu.available() else _shared()).multiprocessors()


def _shared() -> Any:
    """The shared GPU: `arch` and `launch` are those of `gpu`."""
    from .shared_gpu import sending  # here: it needs what this module is for

    return sending


def _blocks(blocks, grid: Sequence[int]) -> list[int]:
    """The linear indices of blocks to simulate. Raises LaunchError for what is no list of them, and for blocks that the grid lacks."""
    found, total = list(blocks) if isinstance(blocks, Iterable) else None, math.prod(grid)
    if found is None or not all(map(is_whole, found)):
        raise LaunchError(f"blocks={blocks!r}: the blocks to simulate are a list of whole numbers, such as blocks=[0, 1].")
    if beyond := [item for item in found if not 0 <= item < total]:
        raise LaunchError(f"blocks={blocks!r}: the grid has the blocks 0 to {total - 1}, and not {beyond[0]}.")
    return [int(item) for item in found]


def _budget(seconds: float) -> None:
    if not isinstance(seconds, numbers.Real) or not seconds > 0:
        raise LaunchError(f"seconds={seconds!r} is no time budget: it is a number of seconds, more than 0.")


def _extent(name: str, value: int | Sequence[int]) -> tuple[int, int, int]:
    items = (value,) if isinstance(value, numbers.Integral) else tuple(value) if isinstance(value, Sequence) else None
    if items is None or not 1 <= len(items) <= 3 or not all(isinstance(item, numbers.Integral) for item in items):
        raise LaunchError(f"{name} must be one to three whole numbers, such as {name}=(16, 16); got {value!r}.")
    x, y, z = (*map(int, items), 1, 1)[:3]
    return x, y, z


_MAPS = ("CUtensorMap", "CUtensorMap_st", "struct CUtensorMap_st")


def _argument(kernel: str, parameter, value: Any) -> Any:
    """`value` as the parameter wants it, or a LaunchError that says what is wrong."""
    what = f"Argument {parameter.name} of {kernel}"
    if isinstance(value, np.ma.MaskedArray):
        raise LaunchError(f"{what} is a masked array, and a kernel knows no mask: pass array.filled(0), or its .data.")
    given_array = is_array(value)
    if given_array and value.dtype.hasobject:
        raise LaunchError(f"{what} is an array of Python objects ({value.dtype}), which a kernel cannot read: pass numbers.")
    unknown = parameter.pointer_to == ""  # the source does not show whether it is a pointer
    if parameter.pointer_to is not None and not (unknown and not given_array and not isinstance(value, TensorMap) and value is not None):
        if value is None:
            return None
        if isinstance(value, TensorMap) and parameter.pointer_to in (*_MAPS, ""):
            return replace(value, by_pointer=True)
        if isinstance(value, (tuple, list)) and parameter.pointer_to.endswith("*"):
            return table(what, parameter.name, value)
        if not given_array:
            raise LaunchError(
                f"{what} is a pointer ({parameter.pointer_to}*): pass a NumPy or CuPy array, not {_called(value)}. "
                "An address as a number cannot be checked; None is the null pointer."
            )
        if parameter.pointer_to.endswith("*") and value.dtype not in (np.uint64, np.int64):  # on a GPU these may be addresses there
            raise LaunchError(f"{what} points to pointers: pass a list of arrays, one for each; list(…) of a matrix has its rows.")
        expected = DTYPES.get(parameter.pointer_to)
        if expected and CARRIER.fullmatch(parameter.pointer_to) and value.dtype.itemsize <= np.dtype(expected[0]).itemsize:
            expected = None
        if expected and value.dtype not in [np.dtype(item) for item in expected]:
            wanted = np.dtype(expected[0]).name
            if value.dtype.name == wanted:
                raise LaunchError(f"{what} holds {wanted} in the other byte order ({value.dtype.str}). Pass array.astype('{wanted}').")
            if value.dtype.kind not in "biufV" or value.dtype.names:
                raise LaunchError(
                    f"{what} points to {parameter.pointer_to}, and the array holds {_contents(value.dtype)}. Pass numbers of {wanted}."
                )
            raise LaunchError(
                f"{what} points to {parameter.pointer_to}, and the array holds {value.dtype.name}. Pass array.astype('{wanted}')"
                f"{_by_bytes(parameter.pointer_to, value, wanted)}. (astype copies: give the copy a name, to read what the kernel writes.)"
            )
        if not value.flags.c_contiguous:
            raise LaunchError(
                f"{what} is not contiguous (shape {value.shape}, strides {value.strides}): a kernel sees plain memory. "
                "Pass numpy.ascontiguousarray(…), or the whole array with its leading dimension."
            )
        if isinstance(value, np.ndarray) and not value.flags.writeable and not parameter.const:
            raise LaunchError(f"{what} is read-only, and the kernel may write to it. Pass a copy.")
        return value
    if isinstance(value, TensorMap):
        if parameter.size != NBYTES:
            raise LaunchError(f"{what} is no tensor map: declare the parameter `const __grid_constant__ CUtensorMap {parameter.name}`.")
        return value
    if (given_array or value is None) and parameter.size == NBYTES and parameter.ptx_type == "b8":
        raise LaunchError(f"{what} is a tensor map: pass helpers.tensor_map({parameter.name}, box).")
    if given_array and parameter.ptx_type == "b8" and not parameter.half:
        raise LaunchError(f"{what} is a struct of {parameter.size} bytes: pass its members in order as a tuple, arrays among them.")
    if given_array:
        raise LaunchError(f"{what} is a single value ({parameter.ptx_type}), and an array of shape {value.shape} was given.")
    if parameter.half and not isinstance(value, (bytes, np.void)):
        return np.frombuffer(_scalar(what, np.dtype(parameter.half).type, value).tobytes(), np.dtype((np.void, parameter.size)))[0]
    dtype = _SCALAR_TYPES.get(parameter.ptx_type)
    byte = parameter.ptx_type == "b8" and parameter.size == 1  # a struct without members has one, too
    if dtype is None or parameter.size != np.dtype(dtype).itemsize or (byte and isinstance(value, (tuple, list, bytes, np.void))):
        if isinstance(value, (tuple, list)):
            return by_value(what, parameter.name, value, parameter.size)
        data = value.tobytes() if isinstance(value, np.void) else value
        if isinstance(data, bytes) and len(data) == parameter.size:
            return np.frombuffer(data, np.uint8)[:].copy().view(np.dtype((np.void, parameter.size)))[0]
        raise LaunchError(
            f"{what} is a struct of {parameter.size} bytes: pass its members in order as a tuple, such as (n, 0.5, array), "
            "or exactly that many bytes."
        )
    if byte and not isinstance(value, (numbers.Real, np.generic, np.ndarray)):
        raise LaunchError(f"{what} is of one byte: pass a number, or () for a struct without members, not {type(value).__name__}.")
    return _scalar(what, dtype, value, parameter.signed)


def _called(value: Any) -> str:
    """What somebody passed in place of an array, for people."""
    if isinstance(value, np.ndarray | np.generic):
        return "a single number without dimensions (array.reshape(1) has one)"
    return type(value).__name__


def _contents(dtype: np.dtype) -> str:
    """What an array holds that cannot be made numbers of another type without loss, for people."""
    if dtype.names:
        return f"records ({', '.join(dtype.names)})"
    return {"U": "texts", "S": "texts", "M": "dates", "m": "times"}.get(dtype.kind, str(dtype))


def _by_bytes(pointer_to: str, array: Any, wanted: str) -> str:
    """What else may be meant: vectors of integers, by which kernels copy any bytes, and floats whose bits an array of integers holds."""
    carries = re.fullmatch(r"u?(char|short|int|long|longlong)[234]", pointer_to) and array.dtype.kind in "fV"
    holds = array.dtype.kind == "u" and np.dtype(wanted).kind in "fV" and np.dtype(wanted).itemsize == array.dtype.itemsize
    return f", or array.view('{wanted}') if these are its b{'its' if holds else 'ytes'}" if carries or holds else ""


def _scalar(what: str, dtype, value: Any, signed: bool = False):
    if isinstance(value, np.ndarray):
        value = value[()]
    if not isinstance(value, (numbers.Real, np.generic)) or isinstance(value, np.complexfloating):
        raise LaunchError(f"{what} is a single number, and {type(value).__name__} was given.")
    try:
        if np.dtype(dtype).kind in "fV":
            with np.errstate(over="ignore"):
                number = dtype(float(value))
            if np.isinf(number) and not math.isinf(value):
                raise OverflowError
            return number
        whole = int(value)  # type: ignore[arg-type]  # a real number has one
    except (TypeError, ValueError, OverflowError):  # NaN and infinity, and numbers that no float can hold
        kind = "a floating-point number" if np.dtype(dtype).kind in "fV" else "a whole number"
        raise LaunchError(f"{what} is {kind} of {np.dtype(dtype).itemsize * 8} bits, and {value!r} cannot be one.") from None
    if value != whole:
        raise LaunchError(f"{what} is a whole number, and {value!r} is not.")
    bits = np.dtype(dtype).itemsize * 8
    if signed and not -(2 ** (bits - 1)) <= whole < 2 ** (bits - 1):
        raise LaunchError(
            f"{what} is a whole number of {bits} bits with a sign: it ends at {2 ** (bits - 1) - 1}, and {value} does not fit."
        )
    # PTX parameters are untyped bits: where the source does not tell, both ranges are accepted. An unsigned one may be -1, as in C++.
    if not -(2 ** (bits - 1)) <= whole < 2**bits:
        raise LaunchError(f"{what} has {bits} bits, and {value} does not fit.")
    return np.array(whole % 2**bits, dtype=f"u{bits // 8}").view(dtype)[()]
