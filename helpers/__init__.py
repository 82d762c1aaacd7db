"""The GEMM Ladder: compile, run, see and time your own CUDA kernels, with or without a GPU.

In a notebook: `%load_ext helpers`, then `%%cuda name` above a kernel. From Python: `helpers.compile(source)`.
Importing needs neither a GPU nor NVRTC; names are loaded when they are first used, so that it is quick too.
"""

from __future__ import annotations

import importlib

from .interrupts import delayed, half_imported

# Where each public name comes from; a module stands for itself.
_PUBLIC = {
    "ask": "course.questions", "reveal": "course.questions", "exercise": "course.exercises", "reference": "course.lesson",
    "from_file": "course.lesson", "class_ladder": "course.class_ladder",
    "standing": "course.standing", "glossary": "course.glossary", "quiz": "course.quizzes",
    "history": "course.history", "restore": "course.history",
    "changes": "course.comparing", "compare_counts": "course.comparing", "variants": "course.comparing",
    "what_if": "course.what_if", "accuracy": "course.accuracy",
    "compile": "run.kernel", "quantized": "run.block_scales",
    "Kernel": "run.kernel", "Run": "run.kernel", "Problem": "run.gemm", "tensor_map": "run.tensor_maps",
    "TraceFilter": "sim",
    "CourseError": "errors", "CompileError": "errors", "LaunchError": "errors", "RunError": "errors", "Finding": "errors",
}  # fmt: skip
_MODULES = {
    "gemm": "run.gemm", "gpu": "run.gpu", "evidence": "course.evidence", "ladder": "course.rungs", "measures": "course.measures",
    "steps": "course.steps", "strategy": "course.strategy", "widgets": "front.widgets",
}  # fmt: skip
__all__ = [*_PUBLIC, *_MODULES, "load_ipython_extension"]


def __getattr__(name: str):
    path = _PUBLIC.get(name) or _MODULES.get(name)
    if path is None:
        raise AttributeError(f"module 'helpers' has no attribute {name!r}; it has: {', '.join(__all__)}")
    _refuse_half_of_numpy()
    with delayed():
        module = importlib.import_module(f".{path}", __name__)
    value = module if name in _MODULES else getattr(module, name)
    globals()[name] = value
    return value


def load_ipython_extension(ipython) -> None:
    """Called by `%load_ext helpers`."""
    _refuse_half_of_numpy()
    with delayed():
        from .front import magics  # here: only notebooks need IPython

    magics.load_ipython_extension(ipython)


def _refuse_half_of_numpy() -> None:
    """Readers import NumPy themselves, and interrupt that. Raises CourseError."""
    if half_imported("numpy"):
        from .errors import CourseError

        raise CourseError("The first import of numpy was interrupted, and half of it cannot be used. Restart the kernel.")
