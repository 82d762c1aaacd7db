"""The GEMM Ladder: compile, run, see and time your own CUDA kernels, with or without a GPU.

In a notebook: `%load_ext helpers`, then `%%cuda name` above a kernel. From Python: `helpers.compile(source)`.
Importing needs neither a GPU nor NVRTC; names are loaded when they are first used, so that it is quick too.
"""

from __future__ import annotations

import importlib

_PUBLIC = {
    "ask": "questions", "reveal": "questions", "exercise": "exercises", "reference": "lesson",
    "compile": "kernel", "Kernel": "kernel", "Run": "kernel", "Problem": "gemm", "tensor_map": "tensor_maps", "TraceFilter": "sim",
    "CourseError": "errors", "CompileError": "errors", "LaunchError": "errors", "RunError": "errors", "Finding": "errors",
}  # fmt: skip
__all__ = [*_PUBLIC, "load_ipython_extension"]


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'helpers' has no attribute {name!r}; it has: {', '.join(__all__)}")
    value = getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)
    globals()[name] = value
    return value


def load_ipython_extension(ipython) -> None:
    """Called by `%load_ext helpers`."""
    from . import magics  # here: only notebooks need IPython

    magics.load_ipython_extension(ipython)
