"""`%%cuda name`: compile the cell, bind the kernel, say what came out. Thin: everything is done elsewhere."""

from __future__ import annotations

import builtins
import gc
import html
import keyword
import re
import time
import unicodedata
from pathlib import Path

from IPython import get_ipython
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

import helpers
from helpers import still
from helpers.course import exercises, history
from helpers.course.lesson import LessonKernel
from helpers.course.steps import STEPS
from helpers.errors import CompileError, CourseError, LaunchError, cut, in_html
from helpers.run import gpu, transposes, untold
from helpers.sim import native
from helpers.toolchain.compiled import Compiled
from helpers.toolchain.kernels import namesake

from . import lesson_names, magic_line

_PACKAGE = Path(__file__).resolve().parents[1]
_COLLECT = (10_000, 10, 10)  # Python's own (700, …) looks at all objects again and again while a program of a hundred thousand is loaded


class NotCompiled:
    """Bound to the name of a cell that did not compile, so that no older kernel answers in its place."""

    def __init__(self, name: str, error: CourseError, replaces: bool = False):
        self._name, self._error, self._replaces = name, error, replaces

    def __repr__(self) -> str:
        return f"{self._name} did not compile"

    def history(self) -> history.History:
        """Every source this cell was run with."""
        return history.history(self._name)

    def restore(self, number: int = 0):
        """Version `number` of the history in a new cell; 0, the lesson's own."""
        return history.restore(self._name, number)

    def __getattr__(self, attribute: str):
        if attribute.startswith("_"):  # what Python and IPython ask every object
            raise AttributeError(attribute)
        older = f" The {self._name} from before is not used in its place." if self._replaces else ""
        raise CourseError(f"{self._name} did not compile, so there is nothing to run yet.{older} Its cell says:\n{self._error.message}")


_BOUND = (LessonKernel, NotCompiled)  # what cells bind


class CompileSummary:
    """What the compiler made of a cell, for people."""

    def __init__(self, kernel: LessonKernel, seconds: float):
        self.kernel, self.seconds = kernel, seconds

    def lines(self) -> list[str]:
        """Sentences: resources, occupancy, warnings."""
        compiled = self.kernel.compiled
        shape = self._geometry()
        dynamic = f" + {shape.shared:,} dynamic" if shape and shape.shared else ""
        registers = f"{compiled.registers} registers per thread" if compiled.registers else "registers not known"
        parts = [registers, f"{compiled.shared_bytes:,}{dynamic} bytes of shared memory per block"]
        if compiled.spill_stores or compiled.spill_loads:
            parts.append(f"spills: {compiled.spill_stores} bytes stored, {compiled.spill_loads} loaded")
        elif compiled.local_bytes:
            parts.append(f"{compiled.local_bytes:,} bytes of local memory per thread")
        found = [", ".join(parts)]
        if shape:
            threads = " × ".join(str(extent) for extent in shape.block)
            found.append(f"{threads} threads compute {shape.tile[0]} × {shape.tile[1]} elements of C; {self.kernel.occupancy()}")
            if said := transposes.said_of(self.kernel):
                found.append(f"takes {said}")
        if gpu.available() and (refused := self.kernel.refused_by(gpu.arch())):
            found.append(f"{refused} That is the GPU of this machine, so it runs in the SIMT machine.")
        return found + ([compiled.estimate] if compiled.estimate else []) + list(compiled.warnings)

    def _geometry(self):
        from helpers.run.gemm import geometry

        try:
            return geometry(self.kernel)
        except CourseError:  # a kernel that is not a GEMM states no geometry; its launch does
            return None

    def __repr__(self) -> str:
        head = f"{self.kernel.lesson_name}: compiled {self.kernel.name} for {self.kernel.compiled.arch} in {self.seconds:.1f} s"
        return "\n  ".join([head, *self.lines()])

    def _repr_html_(self) -> str:
        head, *rest = repr(self).split("\n")
        body = "".join(map(_line, (line.removeprefix("  ").rstrip() for line in rest)))
        return f"<div style='border-left:4px solid #007a5a;padding-left:.7em'><b>{html.escape(head)}</b>{body}</div>"


def _line(text: str) -> str:
    """One of a report, as HTML. What is indented shows code, with signs below it that mark a place."""
    font = "font-family:var(--jp-code-font-family,monospace);" if text[:1] == " " else ""
    return f"<div style='{font}white-space:pre-wrap'>{in_html(text)}</div>"


@magics_class
class CudaMagics(Magics):
    """The magics of the course."""

    @magic_arguments()
    @argument("name", help="the Python name the kernel is bound to")
    @argument(
        "--entry",
        action=magic_line.Once,
        help="which __global__ function, if the cell has several, none of its name, or a template: 'gemm<64>'",
    )
    @argument(
        "--arch",
        action=magic_line.Once,
        default="sm_90",
        help="architecture to compile for (default sm_90); the GPU's own is used on a GPU",
    )
    @argument(
        "--transa", action=magic_line.Once, nargs="?", const="T", help="the kernel takes A by columns, stored as K x M (BLAS's transa)"
    )
    @argument(
        "--transb", action=magic_line.Once, nargs="?", const="T", help="the kernel takes B by columns, stored as N x K (BLAS's transb)"
    )
    @argument("-o", "--option", action="append", default=[], help="a further NVRTC option, such as -o=-ftz=true")
    @cell_magic
    def cuda(self, line: str, cell: str):
        """Compile the cell and bind its kernel: `%%cuda naive`."""
        asked = magic_line.read(self.cuda.parser, line)
        name = unicodedata.normalize("NFKC", asked.name)  # as Python reads it in the next cell
        text = f"%%cuda {line}\n{cell}".rstrip("\n")
        refused = CompileError(asked.mistake) if asked.arguments is None else _refused(name)
        if refused:
            name = magic_line.bare(name) or (asked.perhaps if isinstance(self.shell.user_ns.get(asked.perhaps), _BOUND) else "")
        if not _refused(name):
            history.keep(name, text)
        start = time.perf_counter()
        try:
            if refused:
                raise refused
            compiled = _compiled(asked.arguments, name, cell)
        except (CourseError, KeyboardInterrupt) as error:
            if not _refused(name):
                self._not_compiled(name, error, text)
            raise
        kernel = LessonKernel(compiled, name, text)
        self.shell.user_ns[name] = kernel
        display(CompileSummary(kernel, time.perf_counter() - start))

    def _not_compiled(self, name: str, error: CourseError | KeyboardInterrupt, text: str) -> None:
        """No older kernel answers to the name of a cell that made none."""
        told = error if isinstance(error, CourseError) else CompileError("It was stopped before it was compiled.")
        before = self.shell.user_ns.get(name)
        self.shell.user_ns[name] = NotCompiled(name, told, replaces=isinstance(before, _BOUND))
        history.judged(name, text, f"did not compile{f', line {told.line}' if told.line else ''}")


def _compiled(arguments, name: str, cell: str) -> Compiled:
    """The cell compiled as its line says. Raises CompileError, also for an option that says nothing."""
    entry = _unquote(arguments.entry) or namesake(name, cell)
    options = tuple(_unquote(option) for option in arguments.option)
    try:
        native.begin()
        # The magic's own line is the cell's first: an empty one keeps the compiler's line numbers right.
        return transposes.compile_with("\n" + cell, entry, _unquote(arguments.arch), options, arguments.transa, arguments.transb)
    except LaunchError as error:
        raise CompileError(error.message) from None


def _refused(name: str) -> CourseError | None:
    """Why a kernel cannot have this name; None if it can."""
    if not name.isidentifier() or keyword.iskeyword(name):
        return CourseError(f"{cut(name)!r} cannot be a Python name. Write, for example: %%cuda naive")
    if _is_taken(name):
        return CourseError(f"A kernel called {name} would hide Python's, IPython's or the course's own {name}. Choose another name.")
    return None


def _unquote(text: str | None) -> str:
    return (text or "").strip("'\"")


# Names that cells of a lesson use, and what defines them.
_SET_UP = ("ask", "exercise", "helpers", "measures", "reveal", "widgets")
_OF_IPYTHON = re.compile(r"In|Out|get_ipython|_+|_(i+|dh|oh|ih|i?\d+)")  # in which it keeps what cells said


def _is_taken(name: str) -> bool:
    return name in _SET_UP or hasattr(builtins, name) or _OF_IPYTHON.fullmatch(name) is not None


def missing_name_hint(name: str, running: str = "") -> str:
    """What to run when a cell uses `name` too early, as a sentence; '' for a name the course knows nothing of. running: that cell."""
    if cell := lesson_names.defining(history.lesson(), name, running):
        return f"{name} is not defined yet. Run {lesson_names.called(cell)}."
    if name in _SET_UP:
        return f"{name} is not defined yet. Run {lesson_names.called(lesson_names.SET_UP)}."
    if name in helpers.__all__:
        return f"{name} is not defined yet. Run the cell that imports it first, or write: from helpers import {name}"
    practice = exercises.exercises().get(name)
    if any(name == step.entry for step in STEPS) or (practice and practice.language == "cu"):
        return f"{name} is not defined yet. Run the cell that begins with %%cuda {name} first."
    if practice:
        return f"{name} is not defined yet. Run the cell that defines it first."
    return ""


def _show_name_error(shell, kind, error, traceback, tb_offset=None):
    """A cell run out of order is told what to run; any other NameError is shown as ever."""
    innermost = traceback
    while innermost.tb_next is not None:
        innermost = innermost.tb_next
    of_cell = innermost.tb_frame.f_globals is shell.user_ns  # and not of what it calls
    hint = missing_name_hint(error.name or "", shell.user_ns.get("In", [""])[-1]) if of_cell else ""
    lines = [f"NameError: {hint}"] if hint else shell.InteractiveTB.structured_traceback(kind, error, traceback, tb_offset=tb_offset)
    shell._showtraceback(kind, error, lines)
    return lines


def _show_interrupt(shell, kind, error, traceback, tb_offset=None):
    """Ctrl-C inside the course's own work needs no traceback: nothing was left half done."""
    frames = traceback
    while frames is not None:
        if Path(frames.tb_frame.f_code.co_filename).is_relative_to(_PACKAGE):
            lines = ["KeyboardInterrupt: stopped. A launch that was under way has changed no array."]
            break
        frames = frames.tb_next
    else:
        lines = shell.InteractiveTB.structured_traceback(kind, error, traceback, tb_offset=tb_offset)
    shell._showtraceback(kind, error, lines)
    return lines


def _show(shell, kind, error, traceback, tb_offset=None):
    """IPython takes one handler for all exceptions that are not shown its own way."""
    show = _show_interrupt if issubclass(kind, KeyboardInterrupt) else _show_name_error
    return show(shell, kind, error, traceback, tb_offset)


def _may_be_loaded_again(_) -> None:
    """IPython's event pre_run_cell. Run All a second time is no mistake: without this, %load_ext would say that it is one."""
    get_ipython().extension_manager.loaded.discard(_PACKAGE.name)


def load_ipython_extension(ipython) -> None:
    """`%load_ext helpers`: register the magics. Course errors already show themselves as sentences."""
    if gc.isenabled() and 0 < gc.get_threshold()[0] < _COLLECT[0]:  # 0: never, as the reader wants it
        gc.set_threshold(*_COLLECT)
    ipython.register_magics(CudaMagics)
    ipython.set_custom_exc((NameError, KeyboardInterrupt), _show)
    for event, listener in (
        ("pre_run_cell", history.cell_begins),
        ("pre_run_cell", still.cell_begins),
        ("post_run_cell", still.cell_ended),
        ("pre_run_cell", untold.cell_begins),
        ("post_run_cell", untold.cell_ended),
        ("pre_run_cell", _may_be_loaded_again),
    ):
        if listener not in ipython.events.callbacks[event]:  # it may be loaded twice
            ipython.events.register(event, listener)
