"""What a notebook and the service of a shared GPU say to each other: JSON, its version, and the limits of a job.

Whatever arrives is checked here before anything is made of it: a job that is none raises LaunchError with a sentence that names the
field. Arrays are bytes in base64, or a rule by which the service makes them; their sizes are added up before a byte is decoded. The PTX
is not looked into here, which the service could be held up with: the candidate's process reads it, and its time is limited.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from helpers.errors import CourseError, LaunchError, RunError
from helpers.run import transposes
from helpers.run.gemm import Problem
from helpers.run.geometry import MAPS
from helpers.run.row_copies import GRANULE, RowCopy
from helpers.run.tensor_maps import L2_PROMOTIONS
from helpers.run.variable_values import SymbolValue
from helpers.sim.code.ptx import declarations
from helpers.sim.layouts.tensor_map import NBYTES, Tensor, TensorMap
from helpers.toolchain import signatures
from helpers.toolchain.compiled import Compiled, Parameter

VERSION = 4
HEADER = "Gemm-Ladder-Protocol"
MOST_PTX = 4 << 20  # characters
MOST_SENT = 32 << 20  # bytes of arrays in a message
MOST_MADE = 1 << 30  # bytes of arrays of a job, sent or made on the spot
MOST_MESSAGE = 2 * MOST_SENT  # bytes on the wire: base64 takes a third more
MOST_SAMPLES = 50
ERRORS: dict[str, type[CourseError]] = {"LaunchError": LaunchError, "RunError": RunError}

DTYPES = {
    np.dtype(kind).name: np.dtype(kind)
    for kind in (
        "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
        ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
    )
}  # fmt: skip


@dataclass(frozen=True)
class SentCode:
    """A compiled kernel as it travels. shared_bytes: static shared memory, per block. maps: the names of a product's tensor maps."""

    ptx: str
    symbol: str
    entry: str
    arch: str
    shared_bytes: int
    maps: tuple[str, ...] = ()

    def compiled(self) -> Compiled:
        """The kernel for `gpu.launch` and for the SIMT machine: the PTX, without machine code and without a source. Raises LaunchError."""
        if self.symbol not in declarations(self.ptx).functions:
            raise LaunchError("The message's PTX has no kernel of the name that the message gives, so nothing was launched.")
        return Compiled(
            source="", entry=self.entry, symbol=self.symbol, arch=self.arch, options=(), ptx=self.ptx, cubin=b"", log="", registers=0,
            shared_bytes=self.shared_bytes, local_bytes=0, spill_stores=0, spill_loads=0,
            parameters=signatures.parameters(self.ptx, self.symbol, ""), constants=signatures.constants(self.ptx),
        )  # fmt: skip


@dataclass(frozen=True)
class Made:
    """One array of a launch: its bytes, or how they are made ("zeros", or "random" in [-1, 1) from `seed`)."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | None = None
    seed: int | None = None
    returned: bool = True

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    def array(self) -> np.ndarray:
        """A new array, which the kernel may write to."""
        kind = DTYPES[self.dtype]
        if self.data is not None:
            return np.frombuffer(bytearray(self.data), kind).reshape(self.shape)
        if self.seed is None:
            return np.zeros(self.shape, kind)
        return np.random.default_rng(self.seed).uniform(-1, 1, self.shape).astype(kind)


@dataclass(frozen=True)
class Passed:
    """One argument: bytes of a parameter, the array of this index, a tensor map of its bytes, or a null pointer."""

    value: bytes | None = None
    array: int | None = None
    tensor: Tensor | None = None
    by_pointer: bool = False
    l2_promotion: int | None = None


@dataclass(frozen=True)
class Copied:
    """A `RowCopy` from one array to another, by their indices: made before each launch, as a part of its time."""

    source: int
    source_pitch: int
    target: int
    target_pitch: int
    rows: int
    row_bytes: int


@dataclass(frozen=True)
class LaunchJob:
    """One launch. repeat: how often it is timed besides, None for not at all. symbols: bytes for variables, by their names in the PTX."""

    code: SentCode
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    cluster: tuple[int, int, int] | None
    repeat: int | None
    arrays: tuple[Made, ...]
    arguments: tuple[Passed, ...]
    copies: tuple[Copied, ...] = ()
    symbols: tuple[SymbolValue, ...] = ()

    def row_copies(self, arrays: Sequence[np.ndarray]) -> list[RowCopy]:
        """Its copies, on these arrays."""
        return [
            RowCopy(arrays[each.source], each.source_pitch, arrays[each.target], each.target_pitch, each.rows, each.row_bytes)
            for each in self.copies
        ]

    def values(self, arrays: Sequence[np.ndarray], parameters: Sequence[Parameter]) -> list[Any]:
        """The arguments as a launch takes them, on these arrays. Raises LaunchError where they are not what the parameters are."""
        if len(self.arguments) != len(parameters):
            raise LaunchError(
                f"The kernel has {len(parameters)} parameters and the message {len(self.arguments)} arguments, so nothing was launched."
            )
        return [_value(passed, parameter.size, arrays) for passed, parameter in zip(self.arguments, parameters, strict=True)]


@dataclass(frozen=True)
class ProductJob:
    """A matrix product whose data the service draws, whose result it checks and whose time it takes."""

    code: SentCode
    problem: Problem
    samples: int
    seconds: float


Job = LaunchJob | ProductJob


# ---------------------------------------------------------------------------------------------------------------- a job as text


def dumps(job: Job) -> bytes:
    """The job as a message. Raises LaunchError if its arrays are too large to send."""
    fields: dict[str, Any] = {"version": VERSION, "code": dataclasses.asdict(job.code)}
    if isinstance(job, ProductJob):
        fields |= {"kind": "product", "problem": dataclasses.asdict(job.problem), "samples": job.samples, "seconds": job.seconds}
        return _text(fields)
    _fit(job.arrays)
    fields |= {"kind": "launch", "grid": job.grid, "block": job.block, "shared": job.shared, "cluster": job.cluster, "repeat": job.repeat}
    fields["arrays"] = [
        {"dtype": made.dtype, "shape": made.shape, "data": encoded(made.data), "seed": made.seed, "returned": made.returned}
        for made in job.arrays
    ]
    fields["symbols"] = {one.name: encoded(one.data) for one in job.symbols if isinstance(one.data, bytes)}
    fields["copies"] = [dataclasses.asdict(copied) for copied in job.copies]
    fields["arguments"] = [
        {"value": encoded(passed.value), "array": passed.array, "tensor": encoded(passed.tensor.pack() if passed.tensor else None),
         "by_pointer": passed.by_pointer, "l2_promotion": passed.l2_promotion}
        for passed in job.arguments
    ]  # fmt: skip
    return _text(fields)


def loads(message: bytes) -> Job:
    """The job that a message holds. Raises LaunchError with what is wrong with it."""
    if len(message) > MOST_MESSAGE:
        raise LaunchError(f"The message has {len(message) >> 20} MB; the shared GPU takes {MOST_MESSAGE >> 20} MB at most.")
    fields = reply(message)
    if (version := fields.get("version")) != VERSION:
        raise LaunchError(mismatch(version))
    code = _code(_field(fields, "code", dict))
    if (kind := fields.get("kind")) == "product":
        return _product(fields, code)
    if kind != "launch":
        raise _malformed("kind", kind)
    return _launch(fields, code)


def mismatch(theirs: Any) -> str:
    """The sentence for a notebook and a service that do not speak alike."""
    said = theirs if isinstance(theirs, int) else "another version, or none,"
    return (
        f"The notebook speaks version {said} of the shared GPU's protocol and the service version {VERSION}, so nothing was launched. "
        "Both have to be of one version of the course: update the older one and start it again."
    )


def reply(message: bytes) -> dict[str, Any]:
    """The JSON object in a message. Raises LaunchError."""
    try:
        fields = json.loads(message)
    except (ValueError, RecursionError):
        raise LaunchError("The message is not JSON, so nothing was launched.") from None
    if not isinstance(fields, dict):
        raise LaunchError("The message is no JSON object, so nothing was launched.")
    return fields


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def decoded(text: str, what: str) -> bytes:
    """The bytes of base64 text. Raises LaunchError."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise LaunchError(f"{what} is not base64, so nothing was launched.") from None


def _text(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()


def _fit(arrays: Sequence[Made]) -> None:
    """Raise LaunchError for more bytes than a job may have."""
    sent, made = sum(len(item.data or b"") for item in arrays), sum(item.nbytes for item in arrays)
    returned = sum(item.nbytes for item in arrays if item.returned)
    if max(sent, returned) > MOST_SENT:
        raise LaunchError(
            f"The arrays of this launch are {max(sent, returned) / 1e6:.0f} MB, and the shared GPU takes {MOST_SENT / 1e6:.0f} each way, "
            "so nothing was launched. Use smaller arrays; climb() and profile() time large products, whose data is made where the GPU is."
        )
    if made > MOST_MADE:
        raise LaunchError(f"The arrays of this launch take {made / 1e9:.1f} GB on the shared GPU; a job may use {MOST_MADE / 1e9:.1f} GB.")


def _malformed(name: str, value: Any) -> LaunchError:
    shown = repr(value)
    return LaunchError(f"The message's field {name!r} is {shown[:60]}, which cannot be, so nothing was launched.")


def _field(fields: dict[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:
    value = fields.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _malformed(name, value)
    return value


def _whole(fields: dict[str, Any], name: str, least: int, most: int) -> int:
    value = _field(fields, name, int)
    if not least <= value <= most:
        raise _malformed(name, value)
    return value


def _number(fields: dict[str, Any], name: str) -> float:
    """A number that is finite, as a float: no whole number beyond any float is."""
    value = _field(fields, name, (int, float))
    try:
        found = float(value)
    except OverflowError:
        raise _malformed(name, value) from None
    if not math.isfinite(found):
        raise _malformed(name, value)
    return found


def _extent(fields: dict[str, Any], name: str, most: Sequence[int], least: Sequence[int] = (1, 1, 1)) -> tuple[int, int, int]:
    value = _field(fields, name, list)
    if len(value) != 3 or not all(type(item) is int and low <= item <= high for low, item, high in zip(least, value, most, strict=True)):
        raise _malformed(name, value)
    return value[0], value[1], value[2]


def _code(fields: dict[str, Any]) -> SentCode:
    ptx, symbol, entry, arch = (_field(fields, name, str) for name in ("ptx", "symbol", "entry", "arch"))
    if len(ptx) > MOST_PTX:
        raise LaunchError(f"The kernel's PTX has {len(ptx) >> 20} MB; the shared GPU takes {MOST_PTX >> 20} MB at most.")
    if not re.fullmatch(r"[\w$.]{1,4000}", symbol, re.ASCII) or not re.fullmatch(r"[\w$]{1,1000}", entry, re.ASCII):
        raise _malformed("symbol", symbol)
    if "\0" in ptx or not re.fullmatch(r"(sm|compute)_\d{2,3}[af]?", arch, re.ASCII):
        raise _malformed("arch", arch)
    maps = _field(fields, "maps", list)
    if maps != [name for name in MAPS if name in maps]:
        raise _malformed("maps", maps)
    return SentCode(ptx, symbol, entry, arch, _whole(fields, "shared_bytes", 0, 48 << 10), tuple(maps))


_PROBLEM = {"m": 1 << 15, "n": 1 << 15, "k": 1 << 15, "batch": 1 << 12, "pad_a": 64, "pad_b": 64, "pad_c": 64}


_LONGEST_SCALE_BLOCK = ((1 << 15) - 1,) * 3  # rows, columns (0: none), k


def _product(fields: dict[str, Any], code: SentCode) -> ProductJob:
    given = _field(fields, "problem", dict)
    sizes: dict[str, Any] = {
        name: _whole(given, name, 1 if name in "mnk" or name == "batch" else 0, most) for name, most in _PROBLEM.items()
    }
    factors = {name: _number(given, name) for name in ("alpha", "beta")}
    fused, dtype, out = _field(given, "fused", bool), _field(given, "dtype", str), _field(given, "out_dtype", str)
    block = None if given.get("scale_block") is None else _extent(given, "scale_block", _LONGEST_SCALE_BLOCK, (1, 0, 1))
    problem = Problem(
        **sizes, alpha=factors["alpha"], beta=factors["beta"], fused=fused, dtype=dtype, out_dtype=out, scale_block=block,
        **{name: _field(given, name, bool) for name in transposes.NAMES},
    )  # fmt: skip
    if 4 * problem.elements > MOST_MADE:
        raise LaunchError(f"The matrices of {problem} take more than the {MOST_MADE / 1e9:.1f} GB that a job on the shared GPU may use.")
    seconds = _number(fields, "seconds")
    if not 0 < seconds <= 10:
        raise _malformed("seconds", seconds)
    return ProductJob(code, problem, _whole(fields, "samples", 1, MOST_SAMPLES), seconds)


def _launch(fields: dict[str, Any], code: SentCode) -> LaunchJob:
    most = 2**31 - 1
    cluster = None if fields.get("cluster") is None else _extent(fields, "cluster", (16, 16, 16))
    repeat = None if fields.get("repeat") is None else _whole(fields, "repeat", 1, MOST_SAMPLES)
    arrays = _arrays(_field(fields, "arrays", list))
    block = _extent(fields, "block", (1024, 1024, 64))
    if math.prod(block) > 1024:
        raise _malformed("block", block)
    return LaunchJob(
        code, _extent(fields, "grid", (most, 65535, 65535)), block, _whole(fields, "shared", 0, 228 << 10),
        cluster, repeat, arrays, tuple(_passed(item, arrays) for item in _field(fields, "arguments", list)),
        tuple(_copied(item, arrays) for item in _field(fields, "copies", list)),
        _symbols(_field(fields, "symbols", dict)),
    )  # fmt: skip


def _symbols(given: dict[str, Any]) -> tuple[SymbolValue, ...]:
    """The values of variables in a message; how long each is, the candidate's process says."""
    return tuple(SymbolValue(name, decoded(_field(given, name, str), "The value of a variable")) for name in given)


def _copied(item: Any, arrays: Sequence[Made]) -> Copied:
    """One copy of a message, inside of its arrays."""
    if not isinstance(item, dict):
        raise _malformed("copies", item)
    source, target = (_whole(item, name, 0, len(arrays) - 1) for name in ("source", "target"))
    rows, width = (_whole(item, name, 1, 1 << 31) for name in ("rows", "row_bytes"))
    pitches = [
        _whole(item, name, width, arrays[index].nbytes // rows) for name, index in (("source_pitch", source), ("target_pitch", target))
    ]
    if pitches[1] % GRANULE:
        raise _malformed("target_pitch", pitches[1])
    return Copied(source, pitches[0], target, pitches[1], rows, width)


def _arrays(items: list[Any]) -> tuple[Made, ...]:
    """The arrays of a launch; none is decoded before all are known to fit."""
    described, texts = [], []
    for item in items:
        if not isinstance(item, dict):
            raise _malformed("arrays", item)
        dtype, shape, text = _field(item, "dtype", str), _field(item, "shape", list), item.get("data")
        if dtype not in DTYPES:
            raise _malformed("dtype", dtype)
        if len(shape) > 8 or not all(
            isinstance(extent, int) and not isinstance(extent, bool) and 0 <= extent < 1 << 40 for extent in shape
        ):
            raise _malformed("shape", shape)
        if not isinstance(text, (str, type(None))):
            raise _malformed("data", text)
        seed = None if item.get("seed") is None else _whole(item, "seed", 0, 2**63)
        described.append(Made(dtype, tuple(shape), None, seed, _field(item, "returned", bool)))
        texts.append(text)
    _fit(described)
    found = []
    for made, text in zip(described, texts, strict=True):
        if text is not None and abs(len(text) - 4 * made.nbytes / 3) > 4:
            raise LaunchError(f"An array of {made.nbytes} bytes came with data of another length, so nothing was launched.")
        data = None if text is None else decoded(text, "An array's data")
        if data is not None and len(data) != made.nbytes:
            raise LaunchError(f"An array of {made.nbytes} bytes came with {len(data)} bytes of data, so nothing was launched.")
        found.append(dataclasses.replace(made, data=data))
    return tuple(found)


def _passed(item: Any, arrays: Sequence[Made]) -> Passed:
    """One argument of a message."""
    if not isinstance(item, dict):
        raise _malformed("arguments", item)
    by_pointer, promotion = _field(item, "by_pointer", bool), item.get("l2_promotion")
    if promotion not in L2_PROMOTIONS:
        raise _malformed("l2_promotion", promotion)
    index = None if item.get("array") is None else _whole(item, "array", 0, len(arrays) - 1)
    if item.get("tensor") is not None:
        tensor = _tensor(decoded(_field(item, "tensor", str), "A tensor map"))
        if tensor is None or index is None:
            raise LaunchError("An argument is no tensor map of an array, so nothing was launched.")
        return Passed(array=index, tensor=tensor, by_pointer=by_pointer, l2_promotion=promotion)
    if index is not None or item.get("value") is None:
        return Passed(array=index)
    return Passed(value=decoded(_field(item, "value", str), "An argument"))


def _tensor(data: bytes) -> Tensor | None:
    try:
        return Tensor.unpack(data) if len(data) == NBYTES else None
    except IndexError:  # a number of a kind or swizzle that does not exist
        return None


def _value(passed: Passed, size: int, arrays: Sequence[np.ndarray]) -> Any:
    """The argument, for a parameter of `size` bytes. Raises LaunchError for another size."""
    given = len(passed.value) if passed.value is not None else NBYTES if passed.tensor and not passed.by_pointer else 8
    if given != size:
        raise LaunchError(f"An argument of {given} bytes came for a parameter of {size}, so nothing was launched.")
    if passed.value is not None:
        kind = np.dtype(f"u{size}") if size in (1, 2, 4, 8) else np.dtype((np.void, size))
        return np.frombuffer(passed.value, kind)[0]
    if passed.array is None:
        return None
    array = arrays[passed.array]
    if passed.tensor is None:
        return array
    return TensorMap(array, array.reshape(-1).view(np.uint8), passed.tensor, passed.l2_promotion, passed.by_pointer)
