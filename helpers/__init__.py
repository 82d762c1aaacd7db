"""The GEMM Ladder: compile, run, see and time your own CUDA kernels, with or without a GPU.

In a notebook: `%load_ext helpers`, then `%%cuda name` above a kernel. From Python: `helpers.compile(source)`.
Importing needs neither a GPU nor NVRTC; names are loaded when they are first used, so that it is quick too.
"""

from __future__ import annotations

import importlib

# Where each public name comes from; a module stands for itself.
_PUBLIC = {
    "ask": "course.questions", "reveal": "course.questions", "exercise": "course.exercises", "reference": "course.lesson",
    "compile": "run.kernel", "Kernel": "run.kernel", "Run": "run.kernel", "Problem": "run.gemm", "tensor_map": "run.tensor_maps",
    "TraceFilter": "sim",
    "CourseError": "errors", "CompileError": "errors", "LaunchError": "errors", "RunError": "errors", "Finding": "errors",
}  # fmt: skip
_MODULES = {
    "gemm": "run.gemm", "gpu": "run.gpu", "evidence": "course.evidence", "ladder": "course.rungs", "measures": "course.measures",
    "steps": "course.steps", "strategy": "course.strategy", "widgets": "front.widgets",
}  # fmt: skip
__all__ = [*_PUBLIC, *_MODULES, "load_ipython_extension"]


def __getattr__(name: str):
    if name in _PUBLIC:
        value = getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)
    elif name in _MODULES:
        value = importlib.import_module(f".{_MODULES[name]}", __name__)
    else:
        raise AttributeError(f"module 'helpers' has no attribute {name!r}; it has: {', '.join(__all__)}")
    globals()[name] = value
    return value


def load_ipython_extension(ipython) -> None:
    """Called by `%load_ext helpers`."""
    from .front import magics  # here: only notebooks need IPython

    magics.load_ipython_extension(ipython)
