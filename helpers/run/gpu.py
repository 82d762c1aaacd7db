"""The GPU path: is there one and may we use it, launching a kernel through CuPy, and timing that can be trusted.

Importing this module needs neither CuPy nor a GPU. Everything that can go wrong on a GPU ends in one sentence: before a
launch as `why_not()`, during one as a `RunError`.

How times are taken (see `interleave`): events on a stream of our own; the clock is warmed up first; the L2 cache is
overwritten before every sample; a sample is one launch, or a batch of launches when one is shorter than
`SAMPLE_MILLISECONDS`, because an event cannot resolve less; while the cache is being overwritten the host queues the
whole sample, so that launch overhead on the host is not measured. The figure is the median of the samples, with the
inter-quartile range as its spread. Kernels that are compared are measured in turn, sample by sample, because the card's
power limit makes the same kernel faster or slower within seconds.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import os
import statistics
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from helpers.errors import CourseError, LaunchError, RunError
from helpers.interrupts import advice_for, delayed
from helpers.sim.layouts.tensor_map import TensorMap

from .tensor_maps import encode_for_gpu

OFF_SWITCH = "GEMM_LADDER_NO_GPU"  # set to anything: behave as if there were no GPU
OLDEST = (7, 5)  # compute capability; CUDA 13 compiles for nothing older
SAMPLE_MILLISECONDS = 0.2  # a sample lasts at least this long
WARM_UP_SECONDS = 0.2  # long enough for the clock to rise
LAUNCH_SECONDS = 60.0  # a launch that takes longer is called endless
NOISY = 0.05  # a spread above this is flagged
_MODULES_KEPT = 64


@dataclass(frozen=True)
class Timing:
    """How long a launch took. `spread` is the inter-quartile range of the samples over their median.

    clock_mhz: the SM clock while it ran, None where the driver does not say. method: how a sample was taken.
    noisy: why the figure should not be trusted, or "".
    """

    milliseconds: float
    spread: float
    samples: int
    clock_mhz: float | None
    device: str
    method: str = "one launch"
    noisy: str = ""


@dataclass(frozen=True)
class Device:
    """The GPU in use. Versions are text such as "580.95" and "13.0"."""

    name: str
    arch: str
    sms: int
    clock_mhz: float
    l2_bytes: int
    memory_bytes: int
    driver: str
    cuda: str


# --------------------------------------------------------------------------------------- is there one, may we use it

_broken = ""  # why the GPU cannot be used any more in this process
_pending: list[Any] = []  # the event of a launch that was given up on and may still be running


def available() -> bool:
    """Whether kernels can run on a GPU now."""
    return not why_not()


def why_not() -> str:
    """Why no GPU can be used, as a sentence a reader can act on; "" when one can."""
    if os.environ.get(OFF_SWITCH):
        return f"The GPU is switched off by the environment variable {OFF_SWITCH}."
    if _broken:
        return _broken
    if _pending:
        if not _finished(_pending[0]):
            return (
                "A kernel launched earlier is still running on the GPU. Wait for it, or restart the notebook's kernel "
                "(Kernel > Restart) to stop it."
            )
        _pending.clear()
    return _installed()


def _finished(event) -> bool:
    try:
        return _happened(event)
    except _cuda_errors() as error:
        _give_up(error)
        return True


@functools.cache
def _installed() -> str:
    if sys.platform == "darwin":
        return "macOS has no NVIDIA driver, so there is no GPU to use here."
    try:
        with delayed():
            import cupy
            from cupy_backends.cuda.api import runtime
    except ImportError as error:
        return f"CuPy could not be loaded ({_first_line(error)}). {advice_for(error)}"
    try:
        driver = runtime.driverGetVersion()
        built = runtime.runtimeGetVersion()
    except RuntimeError as error:
        return f"The NVIDIA driver could not be asked for its version ({_first_line(error)})."
    if not driver:
        return "This machine has no NVIDIA driver."
    if driver // 1000 < built // 1000:
        return (
            f"The NVIDIA driver is too old: it knows CUDA up to {_version(driver)}, and this installation is for "
            f"CUDA {built // 1000}. Update the driver, or set up with the CUDA 12 switch of the README."
        )
    try:
        if not runtime.getDeviceCount():
            return "The NVIDIA driver is here, and it sees no GPU."
        device = cupy.cuda.Device()
        capability = device.compute_capability
        cupy.cuda.Stream(non_blocking=True).synchronize()  # makes the context: fails if we may not use the GPU
    except RuntimeError as error:
        if "NoDevice" in str(error):
            hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
            because = f" (CUDA_VISIBLE_DEVICES is {hidden!r})" if hidden is not None else ""
            return f"The NVIDIA driver is here, and it sees no GPU{because}."
        return f"The GPU refused to be used ({_first_line(error)})."
    if (int(capability[:-1]), int(capability[-1])) < OLDEST:
        return (
            f"The GPU is too old: its compute capability is {capability[:-1]}.{capability[-1]}, "
            f"and the compiler needs {OLDEST[0]}.{OLDEST[1]} (Turing) or later."
        )
    return ""


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0].rstrip(".:") or type(error).__name__


def _version(number: int) -> str:
    """CUDA's 13020 as "13.2"."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _need() -> Any:
    """CuPy, or LaunchError with why_not()."""
    reason = why_not()
    if reason:
        raise LaunchError(f"There is no GPU to run on: {reason} Use on='cpu', or leave `on` out.")
    import cupy

    return cupy


def arch() -> str:
    """The architecture to compile for: "sm_90". Raises LaunchError if there is no GPU."""
    cupy = _need()
    return f"sm_{cupy.cuda.Device().compute_capability}"


@functools.cache
def device() -> Device:
    """What the GPU in use is. Raises LaunchError if there is none."""
    cupy = _need()
    from cupy_backends.cuda.api import runtime

    handle = cupy.cuda.Device()
    properties = runtime.getDeviceProperties(handle.id)
    name = properties["name"]
    return Device(
        name=name.decode() if isinstance(name, bytes) else name,
        arch=f"sm_{handle.compute_capability}",
        sms=properties["multiProcessorCount"],
        clock_mhz=handle.attributes.get("ClockRate", 0) / 1000,
        l2_bytes=properties["l2CacheSize"],
        memory_bytes=properties["totalGlobalMem"],
        driver=_nvml().driver() or "unknown",
        cuda=_version(runtime.driverGetVersion()),
    )


# ------------------------------------------------------------------------------------------------- the driver's gauges


class _Nvml:
    """The management library that comes with the driver, for the clock and for who else uses the GPU; may be absent."""

    def __init__(self):
        self._library = self._handle = None
        try:
            self._library = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
        except OSError:
            return
        if self._library.nvmlInit_v2() != 0:
            self._library = None

    def _device(self):
        if self._library is not None and self._handle is None:
            from cupy_backends.cuda.api import runtime

            handle = ctypes.c_void_p()
            bus = runtime.deviceGetPCIBusId(runtime.getDevice())
            bus = bus if isinstance(bus, bytes) else str(bus).encode()
            if self._library.nvmlDeviceGetHandleByPciBusId_v2(bus, ctypes.byref(handle)) == 0:
                self._handle = handle
        return self._handle

    def driver(self) -> str | None:
        """The driver's version, such as "580.95.05"."""
        text = ctypes.create_string_buffer(96)
        if self._library is None or self._library.nvmlSystemGetDriverVersion(text, 96) != 0:
            return None
        return text.value.decode()

    def clock_mhz(self) -> float | None:
        """The SM clock at this moment."""
        clock = ctypes.c_uint()
        if self._device() is None or self._library.nvmlDeviceGetClockInfo(self._device(), 1, ctypes.byref(clock)) != 0:
            return None
        return float(clock.value)

    def processes(self) -> int | None:
        """How many processes hold a compute context on the GPU, this one included."""
        room = ctypes.create_string_buffer(256 * 32)
        count = ctypes.c_uint(256)
        query = getattr(self._library, "nvmlDeviceGetComputeRunningProcesses_v3", None) if self._library else None
        if query is None or self._device() is None or query(self._device(), ctypes.byref(count), room) != 0:
            return None
        return count.value


@functools.cache
def _nvml() -> _Nvml:
    return _Nvml()


# ------------------------------------------------------------------------------------------------------------- errors

# CUDA's error numbers, the same in the runtime and the driver. These end the process's use of the GPU:
_FATAL = {
    700: "read or wrote memory outside its arrays (illegal address)",
    702: "ran longer than this display GPU allows (launch timeout)",
    710: "failed an assert",
    714: "jumped to an illegal place (hardware stack error)",
    715: "executed an illegal instruction",
    716: "accessed memory at an address that is not a multiple of the access width (misaligned address)",
    717: "used an address of the wrong kind of memory (invalid address space)",
    718: "jumped to an illegal place (invalid program counter)",
    719: "failed on the GPU (launch failure)",
}
# These refuse one launch and change nothing:
_REFUSED = {
    1: "an argument or attribute is out of range (invalid value)",
    2: "the GPU has not enough free memory",
    9: "the grid or block is impossible (invalid configuration)",
    200: "the compiled code does not fit this GPU (invalid image)",
    209: "the kernel was compiled for another architecture than this GPU's",
    222: "the driver is too old for this PTX",
    701: "the block needs more registers or shared memory than an SM has",
    720: "its blocks wait for each other (grid.sync()), and so many do not fit on this GPU at once: use a smaller grid",
    912: "this GPU cannot run a cluster of so many blocks of this size: use fewer, or smaller ones",
}


def _cuda_errors() -> tuple[type[BaseException], ...]:
    """The exceptions CuPy raises for CUDA's own errors."""
    from cupy.cuda.memory import OutOfMemoryError
    from cupy_backends.cuda.api.driver import CUDADriverError
    from cupy_backends.cuda.api.runtime import CUDARuntimeError

    return CUDADriverError, CUDARuntimeError, OutOfMemoryError


def _give_up(error: BaseException) -> str:
    """Remember that the GPU is lost to this process, and say so."""
    global _broken
    what = _FATAL.get(getattr(error, "status", None), f"failed on the GPU ({_first_line(error)})")
    _broken = (
        f"An earlier kernel {what}, after which CUDA refuses all work from this process. "
        "Restart the notebook's kernel (Kernel > Restart) to use the GPU again."
    )
    return what


def explain(error: BaseException, name: str = "The kernel") -> CourseError:
    """CuPy's exception as the error to raise: RunError if the kernel went wrong, LaunchError if it was refused."""
    status = getattr(error, "status", None)
    if status in _FATAL:
        what = _give_up(error)
        return RunError(
            f"{name} {what} on the GPU, which does not say where. Launch it with on='cpu': the SIMT machine names "
            "the line. The GPU stays unusable in this notebook until its kernel is restarted (Kernel > Restart); "
            "until then everything runs on the CPU."
        )
    if status in _REFUSED:
        return LaunchError(f"{name} was not launched: {_REFUSED[status]}.")
    if type(error).__name__ == "OutOfMemoryError":
        return LaunchError(f"{name} was not launched: {_REFUSED[2]} ({_first_line(error)}).")
    return LaunchError(f"{name} was not launched: CUDA says {_first_line(error)}.")


_NOT_READY = 600


def _happened(event) -> bool:
    """Whether the stream has passed the event. Raises CUDARuntimeError if a kernel before it went wrong.

    (CuPy's `Event.done` is False for ever after an error.)
    """
    from cupy_backends.cuda.api import runtime

    status = runtime.eventQuery(event.ptr)
    if status not in (0, _NOT_READY):
        raise runtime.CUDARuntimeError(status)
    return status == 0


def _wait(event, name: str, seconds: float = LAUNCH_SECONDS) -> None:
    """Wait until the event has happened, interruptibly. Raises RunError if it takes longer than `seconds`."""
    end = time.monotonic() + seconds
    nap = 0.0
    try:
        while not _happened(event):
            if time.monotonic() > end:
                raise RunError(
                    f"{name} did not finish in {seconds:.0f} s on the GPU: it may never end. It cannot be stopped "
                    "without restarting the notebook's kernel (Kernel > Restart). Launch it with on='cpu' to see which "
                    "line it is at."
                )
            time.sleep(nap)
            nap = min(nap + 20e-6, 5e-3)
    except (KeyboardInterrupt, RunError):
        _pending[:] = [event]
        raise


# -------------------------------------------------------------------------------------------------- arrays and launch


def is_device_array(value: Any) -> bool:
    """Whether `value` is a CuPy array (without importing CuPy to find out)."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, cupy.ndarray)


def to_host(value: Any, copy: bool = False) -> Any:
    """A CuPy array (also that of a tensor map) as a NumPy array, anything else as it is; copy=True copies NumPy arrays too."""
    if isinstance(value, TensorMap):
        return replace(value, memory=to_host(value.memory, copy))
    if is_device_array(value):
        return value.get()
    return value.copy() if copy and isinstance(value, np.ndarray) else value


def copy_back(value: Any, changed: Any) -> None:
    """Write what `to_host` gave, and a kernel changed, back into a CuPy array; nothing to do for anything else."""
    if isinstance(value, TensorMap):
        copy_back(value.memory, changed.memory)
    elif is_device_array(value):
        value.set(changed)


class _OnDevice:
    """Arguments on the device: NumPy arrays copied there (overlapping ones as one allocation), the rest as it is."""

    def __init__(self, cupy, args: Sequence[Any]):
        self._host: list[tuple[np.ndarray, Any]] = []
        held = [value.memory if isinstance(value, TensorMap) else value for value in args]
        arrays = {id(value): value for value in held if isinstance(value, np.ndarray)}
        views = {}
        for group in _overlapping(arrays.values()):
            start = min(_span(array)[0] for array in group)
            size = max(_span(array)[1] for array in group) - start
            buffer = cupy.empty(max(size, 1), np.uint8)
            for array in group:
                low, high = _span(array)
                view = buffer[low - start : high - start] if high > low else buffer
                if high > low:
                    view.set(_bytes(array))
                views[id(array)] = view
                self._host.append((array, view))
        self.args = tuple(self._pass(value, views) for value in args)

    @staticmethod
    def _pass(value, views):
        if isinstance(value, np.ndarray):
            return views[id(value)]
        if isinstance(value, TensorMap):
            encoded = encode_for_gpu(value, views.get(id(value.memory), value.memory).data.ptr)
            return upload(np.frombuffer(encoded.tobytes(), np.uint8)) if value.by_pointer else encoded
        if value is None:
            return np.uint64(0)
        return value

    def fetch(self) -> None:
        """Copy the arrays back to where they came from."""
        for array, view in self._host:
            if array.nbytes and array.flags.writeable:
                _bytes(array)[:] = view.get()


def upload(array: np.ndarray):
    """A copy of a contiguous array's bytes on the device, as CuPy bytes (CuPy has no bfloat16). Needs no compiler."""
    there = _need().empty(max(array.nbytes, 1), np.uint8)
    if array.nbytes:
        there.set(_bytes(array))
    return there


def download(there, like: np.ndarray) -> np.ndarray:
    """What `upload` made, read back with the type and shape of `like`."""
    return there.get().view(like.dtype).reshape(like.shape) if like.nbytes else like.copy()


def _span(array: np.ndarray) -> tuple[int, int]:
    low = array.__array_interface__["data"][0]
    return low, low + array.nbytes


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _overlapping(arrays) -> list[list[np.ndarray]]:
    """The arrays grouped so that those which share memory are together."""
    groups: list[list[np.ndarray]] = []
    end = None
    for array in sorted(arrays, key=_span):
        low, high = _span(array)
        if end is not None and low < end and high > low:
            groups[-1].append(array)
            end = max(end, high)
        else:
            groups.append([array])
            end = high
    return groups


_functions: OrderedDict[tuple, Any] = OrderedDict()


def _function(compiled, shared: int):
    """The loaded kernel, ready for `shared` bytes of dynamic shared memory."""
    from cupy.cuda.function import Module
    from cupy_backends.cuda.api import driver

    image = compiled.cubin or compiled.ptx.encode() + b"\0"
    key = (hashlib.sha256(image).hexdigest(), compiled.symbol)
    function = _functions.get(key)
    if function is None:
        module = Module()
        module.load(image)
        function = module.get_function(compiled.symbol)
        _functions[key] = function
        while len(_functions) > _MODULES_KEPT:
            _functions.popitem(last=False)
    _functions.move_to_end(key)
    if shared + compiled.shared_bytes > 48 * 1024:
        driver.funcSetAttribute(function.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
    return function


def launcher(
    compiled, grid, block, args: Sequence[Any], shared: int = 0, cluster: tuple[int, int, int] | None = None
) -> Callable[[], None]:
    """A function that launches the kernel once on CuPy's current stream. `args` are CuPy arrays, tensor maps of them, NumPy scalars.

    cluster: blocks per cluster (x, y, z). Raises LaunchError if the kernel cannot be loaded.
    """
    _need()
    try:
        function = _function(compiled, shared)
        if cluster is not None or ".reqnctapercluster" in compiled.ptx:
            _check(_driver().cuFuncSetAttribute(ctypes.c_void_p(function.ptr), _NON_PORTABLE_ALLOWED, 1))
    except _cuda_errors() as error:
        raise explain(error, compiled.entry) from None
    arguments = tuple(_device_argument(value) for value in args)
    cooperative = "%envreg2" in compiled.ptx  # this_grid() asks there for the barrier that such a launch brings
    if cluster is not None or cooperative:
        return _extended(function, grid, block, arguments, shared, cluster, cooperative)

    def once(kept=args) -> None:  # a tensor map's array must live as long as this function
        function(tuple(grid), tuple(block), arguments, shared)

    return once


def _device_argument(value: Any) -> Any:
    """An argument as CuPy passes it to a kernel."""
    if value is None:
        return np.uint64(0)
    if not isinstance(value, TensorMap):
        return value
    if not is_device_array(value.memory):
        raise LaunchError("This launch works on arrays that are on the GPU: make the tensor map of a CuPy array.")
    return encode_for_gpu(value, value.memory.data.ptr)


# What CuPy does not offer: launches with attributes, as cuda.h declares them.

_NON_PORTABLE_ALLOWED = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: more than 8 blocks, if the GPU can
_COOPERATIVE, _CLUSTER_DIMENSION = 2, 4  # CU_LAUNCH_ATTRIBUTE_…


class _Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("padding", ctypes.c_char * 4), ("value", ctypes.c_uint * 16)]


class _Config(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint),
    ]  # fmt: skip


@functools.cache
def _driver():
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def _check(status: int) -> None:
    if status:
        from cupy_backends.cuda.api.driver import CUDADriverError

        raise CUDADriverError(status)


def _extended(function, grid, block, arguments, shared, cluster, cooperative) -> Callable[[], None]:
    """A function that launches with a cluster, or cooperatively, on CuPy's current stream."""
    cupy = _need()
    values = []
    for value in arguments:
        data = np.uint64(value.data.ptr) if is_device_array(value) else value
        values.append(ctypes.create_string_buffer(data.tobytes()))
    pointers = (ctypes.c_void_p * max(1, len(values)))(*map(ctypes.addressof, values))
    wanted = [(_COOPERATIVE, (1,))] if cooperative else []
    wanted += [(_CLUSTER_DIMENSION, cluster)] if cluster is not None else []
    attributes = (_Attribute * len(wanted))(*(_Attribute(kind, b"", (ctypes.c_uint * 16)(*value)) for kind, value in wanted))
    sizes = [(ctypes.c_uint * 3)(*extent) for extent in (grid, block)]

    def once(kept=(arguments, values)) -> None:  # the arrays must outlive the launch
        config = _Config(*sizes, shared, cupy.cuda.get_current_stream().ptr, attributes, len(wanted))
        _check(_driver().cuLaunchKernelEx(ctypes.byref(config), ctypes.c_void_p(function.ptr), pointers, None))

    return once


def run_once(work: Callable[[], None], name: str) -> None:
    """Run a function that launches something on the current stream, and wait for it. Raises RunError, LaunchError."""
    cupy = _need()
    try:
        cupy.cuda.Device().synchronize()
        stream = _stream()
        with stream:
            work()
            done = _event()
            done.record(stream)
            _wait(done, name)
    except _cuda_errors() as error:
        raise explain(error, name) from None


def launch(
    compiled,
    grid,
    block,
    args: Sequence[Any],
    shared: int = 0,
    repeat: int | None = None,
    cluster: tuple[int, int, int] | None = None,
) -> Timing:
    """Run a kernel on the GPU. NumPy arrays in `args` are copied there and back; CuPy arrays are used in place.

    grid, block: (x, y, z). shared: dynamic shared memory, bytes per block. repeat: None times the one launch that made
    the results; n takes n samples more (see the module's head), on data that the reader never sees changed. cluster:
    blocks per cluster (x, y, z).
    Raises LaunchError if the launch is refused, RunError if the kernel goes wrong or does not end.
    """
    cupy = _need()
    name = compiled.entry
    try:
        on_device = _OnDevice(cupy, args)
        once = launcher(compiled, grid, block, on_device.args, shared, cluster)
        cupy.cuda.Device().synchronize()
        stream = _stream()
        with stream:
            start, stop = _event(), _event()
            _Flush.shared().overwrite(stream)
            start.record(stream)
            once()
            stop.record(stream)
            _wait(stop, name)
        elapsed = cupy.cuda.get_elapsed_time(start, stop)
        on_device.fetch()
        if not repeat:
            return Timing(elapsed, 0.0, 1, _nvml().clock_mhz(), device().name)
        held = [value.memory if isinstance(value, TensorMap) else value for value in args]
        kept = [(value, value.copy()) for value in held if is_device_array(value)]
        try:
            return interleave({name: once}, samples=repeat)[name]
        finally:
            for value, copy in kept:
                value[...] = copy
    except _cuda_errors() as error:
        raise explain(error, name) from None


# -------------------------------------------------------------------------------------------------------------- timing


@functools.cache
def _stream():
    return _need().cuda.Stream(non_blocking=True)


def _event():
    return _need().cuda.Event()


class _Flush:
    """Overwrites the L2 cache, and keeps the GPU busy while the host queues a sample."""

    _instance = None

    def __init__(self):
        cupy = _need()
        self._bytes = min(max(2 * device().l2_bytes, 64 << 20), 512 << 20)
        self._memory = cupy.cuda.alloc(self._bytes)

    @classmethod
    def shared(cls) -> _Flush:
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def overwrite(self, stream, times: int = 1) -> None:
        for _ in range(times):
            self._memory.memset_async(0, self._bytes, stream)


class _Sampler:
    """Takes samples of one function that launches something on the current stream."""

    def __init__(self, name: str, once: Callable[[], None], stream):
        self.name, self._once, self._stream = name, once, stream
        self.batch, self._delay = 1, 2
        self.times: list[float] = []
        self.host_limited = 0

    def warm_up(self, seconds: float) -> None:
        """Launch until `seconds` have passed and the batch is long enough to time; at least twice."""
        end = time.monotonic() + seconds
        self.sample()
        while True:
            milliseconds = self.sample()
            self.batch = max(1, min(64, math.ceil(SAMPLE_MILLISECONDS / max(milliseconds, 1e-4))))
            if time.monotonic() > end:
                break
        self.times.clear()
        self.host_limited = 0

    def sample(self) -> float:
        """Milliseconds per launch of one sample, kept in `times`."""
        import cupy

        start, stop = _event(), _event()
        for _ in range(6):
            _Flush.shared().overwrite(self._stream, self._delay)
            start.record(self._stream)
            for _ in range(self.batch):
                self._once()
            stop.record(self._stream)
            # Had the GPU caught up before everything was queued? Then the host was timed, not the GPU.
            late = _happened(start)
            _wait(stop, self.name)
            if not late:
                break
            self._delay = min(2 * self._delay, 256)
        self.host_limited += late
        self.times.append(cupy.cuda.get_elapsed_time(start, stop) / self.batch)
        return self.times[-1]

    def clock(self) -> float | None:
        """The SM clock while this runs."""
        typical = max(statistics.median(self.times), 1e-4)
        for _ in range(max(1, min(256, math.ceil(5.0 / typical)))):
            self._once()
        stop = _event()
        stop.record(self._stream)
        clock = _nvml().clock_mhz()
        _wait(stop, self.name)
        return clock

    @property
    def method(self) -> str:
        what = "one launch" if self.batch == 1 else f"a batch of {self.batch} launches"
        return f"median of {len(self.times)} samples of {what}, L2 overwritten before each"


def interleave(
    work: Mapping[str, Callable[[], None]], samples: int = 20, seconds: float = 3.0, warm_up: float = WARM_UP_SECONDS
) -> dict[str, Timing]:
    """Time several functions in turn, one sample each per round, and return a Timing for each name.

    work: name -> function that launches once on CuPy's current stream (see `launcher`, `cublas`). samples: rounds at
    most; seconds: how long all rounds may take together (at least five are made). Raises RunError, LaunchError.
    """
    cupy = _need()
    stream = _stream()
    cupy.cuda.Device().synchronize()
    try:
        with stream:
            samplers = [_Sampler(name, once, stream) for name, once in work.items()]
            for sampler in samplers:
                sampler.warm_up(warm_up / len(samplers))
            begin = time.monotonic()
            for done in range(samples):
                if done >= 5 and time.monotonic() - begin > seconds:
                    break
                for sampler in samplers if done % 2 == 0 else reversed(samplers):
                    sampler.sample()
            clocks = {sampler.name: sampler.clock() for sampler in samplers}
    except _cuda_errors() as error:
        raise explain(error, " and ".join(work)) from None
    others = (_nvml().processes() or 1) - 1
    return {sampler.name: _timing(sampler, clocks[sampler.name], others) for sampler in samplers}


def _timing(sampler: _Sampler, clock: float | None, others: int) -> Timing:
    middle = statistics.median(sampler.times)
    quarters = statistics.quantiles(sampler.times, n=4) if len(sampler.times) > 1 else [middle, middle, middle]
    spread = (quarters[2] - quarters[0]) / middle if middle else 0.0
    return Timing(
        milliseconds=middle,
        spread=spread,
        samples=len(sampler.times),
        clock_mhz=clock,
        device=device().name,
        method=sampler.method,
        noisy=noise(spread, others, sampler.host_limited),
    )


def noise(spread: float, others: int = 0, host_limited: int = 0) -> str:
    """Why a figure should not be trusted, as a clause; "" if nothing speaks against it.

    spread: inter-quartile range over median. others: other processes on the GPU. host_limited: samples in which the
    GPU waited for the host.
    """
    reasons = []
    if spread > NOISY:
        reasons.append(f"samples spread by {spread:.0%}")
    if others > 0 and spread > NOISY / 5:
        reasons.append(f"{others} other program{'s' if others > 1 else ''} on this GPU")
    if host_limited:
        reasons.append(f"{host_limited} samples waited for the host")
    return ", ".join(reasons)


def compare(kernel: Callable[[], None], baseline: Callable[[], None], samples: int = 20, seconds: float = 3.0) -> tuple[Timing, Timing]:
    """Time a kernel and what it is measured against in turn, with the same duty cycle: (kernel, baseline)."""
    both = interleave({"kernel": kernel, "baseline": baseline}, samples=samples, seconds=seconds)
    return both["kernel"], both["baseline"]


# ------------------------------------------------------------------------------------------------------------- cuBLAS


@functools.cache
def cublas_why_not() -> str:
    """Why cuBLAS cannot be compared with, as a sentence; "" when it can (a GPU is asked about separately)."""
    try:
        with delayed():
            from cupy_backends.cuda.libs import cublas  # noqa: F401 - whether it imports is the question
    except ImportError as error:
        return (
            f"cuBLAS is not installed ({_first_line(error).split(':')[0]}). Add it with the extra named gpu, as the "
            "README shows: uv run --extra gpu course lab."
        )
    return ""


_HALF_TYPES = {"float16": 2, "bfloat16": 14}  # cudaDataType of the operands
_COMPUTE_32F, _DEFAULT_ALGORITHM = 68, -1  # cublasComputeType, cublasGemmAlgo


def cublas(
    m: int,
    n: int,
    k: int,
    alpha: float,
    a,
    lda: int,
    b,
    ldb: int,
    beta: float,
    c,
    ldc: int,
    dtype: str = "float32",
    batch: int = 1,
):
    """A function that runs C = alpha A B + beta C with cuBLAS once on the current stream. Row-major, no transposes.

    a, b, c: CuPy arrays whose first byte is the matrix (any dtype; `dtype` says how to read them). float32 runs with
    TF32 off; float16 and bfloat16 accumulate in float32. batch: so many products, their matrices one behind the other
    (float32 only). Small products are timed as a batch of launches, like the course's kernels, and not in a CUDA
    graph: CuPy refuses to call cuBLAS while a graph is being captured. Raises LaunchError if cuBLAS or the GPU is missing.
    """
    _need()
    reason = cublas_why_not()
    if reason:
        raise LaunchError(reason)
    if os.environ.get("NVIDIA_TF32_OVERRIDE") == "1":
        raise LaunchError("NVIDIA_TF32_OVERRIDE=1 makes cuBLAS round float32 to TF32: unset it to compare with float32.")
    from cupy.cuda.device import get_cublas_handle
    from cupy_backends.cuda.libs import cublas as library

    handle = get_cublas_handle()
    library.setMathMode(handle, library.CUBLAS_DEFAULT_MATH)  # for float32: no TF32
    library.setPointerMode(handle, library.CUBLAS_POINTER_MODE_HOST)
    factors = np.array([alpha, beta], np.float32)  # read by every call: the functions below must keep it alive
    plain = library.CUBLAS_OP_N

    # A row-major matrix is its own transpose in column-major order, and C' = B' A'. The functions keep a, b, c alive.
    def single() -> None:
        first, second = factors.ctypes.data, factors[1:].ctypes.data
        library.sgemm(
            handle, plain, plain, n, m, k, first, b.data.ptr, ldb, a.data.ptr, lda, second, c.data.ptr, ldc
        )  # fmt: skip

    def strided() -> None:
        first, second = factors.ctypes.data, factors[1:].ctypes.data
        library.sgemmStridedBatched(
            handle, plain, plain, n, m, k, first, b.data.ptr, ldb, k * ldb, a.data.ptr, lda, m * lda, second,
            c.data.ptr, ldc, m * ldc, batch,
        )  # fmt: skip

    def half() -> None:
        kind, first, second = _HALF_TYPES[dtype], factors.ctypes.data, factors[1:].ctypes.data
        library.gemmEx(
            handle, plain, plain, n, m, k, first, b.data.ptr, kind, ldb, a.data.ptr, kind, lda, second, c.data.ptr,
            kind, ldc, _COMPUTE_32F, _DEFAULT_ALGORITHM,
        )  # fmt: skip

    if dtype == "float32":
        return single if batch == 1 else strided
    if batch > 1:
        raise LaunchError(f"The course compares batches with cuBLAS in float32 only, not in {dtype}.")
    if dtype in _HALF_TYPES:
        return half
    raise LaunchError(f"The course has no cuBLAS baseline for {dtype}; it has float32, float16 and bfloat16.")
