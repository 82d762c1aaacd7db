"""Small PTX kernels for tests: no compiler needed."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from unittest import mock

from helpers.sim.isa.base import REGISTRY, handler_of

HEADER = ".version 8.8\n.target {arch}\n.address_size 64\n"


@dataclass(frozen=True)
class Text:
    """What simulate() needs of a compiled kernel, for PTX written by hand."""

    ptx: str
    symbol: str
    arch: str = "sm_90"
    filename: str = "/cell.cu"
    cubin: bytes = b""
    parameters: tuple = ()


def kernel(body: str, parameters: str = ".param .u64 out", name: str = "k", arch: str = "sm_90", before: str = "") -> Text:
    """A kernel with this body. `.loc 1 n 0` in the body names line n."""
    text = HEADER.format(arch=arch) + before + f".visible .entry {name}({parameters})\n{{\n{body}\n}}\n"
    return Text(text, name, arch)


@contextlib.contextmanager
def without_handler(opcode: str):
    """The machine as if nobody had written a handler for this instruction: one that it lacks today may be there tomorrow."""
    with mock.patch.dict(REGISTRY):
        del REGISTRY[opcode]
        handler_of.cache_clear()
        try:
            yield
        finally:
            handler_of.cache_clear()
