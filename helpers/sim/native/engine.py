"""Compile LLVM IR with llvmlite, keep the object code on disk, and run blocks on all cores."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
from pathlib import Path

from helpers.cache import Cache
from helpers.sim.code import program

try:
    import llvmlite
    import llvmlite.binding as llvm
except ImportError:  # the NumPy machine runs everything then
    llvm = None

_CACHE = Cache("native", 1000)  # at most about 120 MB


def available() -> bool:
    """Whether native code can be made here."""
    return llvm is not None


@functools.cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _machine(level: int):
    _initialise()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=level,
        codemodel="jitdefault",
        jit=True,
    )


@functools.cache
def _target(level: int):
    return _machine(level)


@functools.cache
def host_identity() -> str:
    """Changes when object code made here could not run there."""
    return f"{llvmlite.__version__} {llvm.get_default_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


QUICK, GOOD = 0, 1  # LLVM's passes and code generator: quick compiles in a third of the time, good code runs twice as fast


@functools.cache
def wide_vectors() -> bool:
    """Whether this processor has AVX-512."""
    return bool(llvm.get_host_cpu_features().get("avx512f"))


def _optimise(module, level: int) -> None:
    """The few passes that pay: registers instead of memory, folding, and constant work out of loops by value numbers. For quickly made
    code none of them does."""
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    builder = llvm.create_pass_builder(_target(GOOD), options)
    manager = llvm.create_new_module_pass_manager()
    manager.add_always_inliner_pass()
    if level == GOOD:
        manager.add_sroa_pass()
        manager.add_instruction_combine_pass()
        manager.add_simplify_cfg_pass()
        manager.add_aggressive_dce_pass()
    manager.run(module, builder)


def machine_code(ir: str, level: int) -> bytes:
    """Object code of a module."""
    _initialise()
    module = llvm.parse_assembly(ir)
    module.triple = llvm.get_default_triple()
    module.verify()
    _optimise(module, level)
    return _target(level).emit_object(module)


@functools.cache
def _writer() -> str:
    """Changes when what writes the code does: no update of the course runs code that an older one made."""
    parts = (path.read_bytes() for folder in (Path(__file__).parent, Path(program.__file__).parent) for path in sorted(folder.glob("*.py")))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _key(identity: str, level: int) -> str:
    return f"{_writer()} {level} {host_identity()}\n{identity}"


def stored(identity: str, level: int) -> tuple[dict, bytes] | None:
    """(facts, object code) that `store` kept; None if they are missing or damaged."""
    kept = _CACHE.get(_key(identity, level))
    if kept is None:
        return None
    end = 4 + int.from_bytes(kept[:4], "little")
    return json.loads(kept[4:end]), kept[end:]


def store(identity: str, level: int, facts: dict, code: bytes) -> None:
    """Keep object code on disk."""
    text = json.dumps(facts).encode()
    _CACHE.put(_key(identity, level), len(text).to_bytes(4, "little") + text + code)


class Code:
    """Loaded machine code of one kernel; `run_blocks(context, blocks, n)` releases the GIL. function: what else is looked for."""

    def __init__(self, objects: list[bytes], function: str = "run_blocks"):
        machine = _machine(GOOD)
        backing = llvm.parse_assembly(f'target triple = "{llvm.get_default_triple()}"')
        self.engine = llvm.create_mcjit_compiler(backing, machine)
        for data in objects:
            self.engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        self.engine.finalize_object()
        self.address = self.engine.get_function_address(function)
        self.run_blocks = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(self.address)
