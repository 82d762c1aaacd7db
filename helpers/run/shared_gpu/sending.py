"""A notebook's side of a shared GPU: the calls of `helpers.run.gpu` that a launch and a timing need, answered by the service.

An array is changed when the result has arrived, and not before: whatever goes wrong, it is as it was. A cell that is interrupted while
its kernel waits takes the kernel out of the queue.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import sys
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from helpers.errors import CourseError, LaunchError
from helpers.progress import Progress
from helpers.run.geometry import tensor_maps
from helpers.run.gpu import Timing, failures
from helpers.run.gpu.launching import Before
from helpers.run.gpu.transfers import all_to_host, overlapping
from helpers.run.passes import pieces
from helpers.run.row_copies import RowCopy
from helpers.run.variable_values import SymbolValue
from helpers.sim.layouts.struct_value import StructValue
from helpers.sim.layouts.tensor_map import TensorMap

from . import protocol, service_address
from .protocol import Copied, LaunchJob, Made, Passed, ProductJob, SentCode
from .service_address import ServiceAddress

_STRUCTS = "Structs and tables that hold arrays are not sent to the shared GPU. Run with on='cpu'."
_PASSES = "is launched behind passes of its own, which the shared GPU does not take: it takes one kernel. The SIMT machine does (on='cpu')."
PATIENCE = 30.0  # seconds for which a service that does not answer is asked again
_ASKED = 20  # seconds that the service may leave a question after a job open


def status() -> dict[str, Any]:
    """What the service says of itself. Raises CourseError."""
    return _ask(service_address.named(), "GET", "/status")


def arch() -> str:
    """The architecture of the shared GPU, such as "sm_90". Raises CourseError where there is no service."""
    return status()["arch"]


def multiprocessors() -> int:
    """How many the shared GPU has. Raises CourseError where there is no service."""
    return status()["multiprocessors"]


def launch(
    compiled,
    grid,
    block,
    args: Sequence[Any],
    shared: int = 0,
    repeat: int | None = None,
    cluster: tuple[int, int, int] | None = None,
    before: Sequence[Before] = (),
    symbols: Sequence[SymbolValue] = (),
) -> Timing:
    """`gpu.launch` on the shared GPU: NumPy arrays in `args` are changed. Raises LaunchError, RunError, CourseError."""
    copies = [item for item in before if isinstance(item, RowCopy)]
    if len(copies) < len(before):
        raise LaunchError(f"{compiled.entry} {_PASSES}")
    if any(isinstance(one.data, StructValue) for one in symbols):
        raise LaunchError(_STRUCTS)
    sent = _Sent(args, [parameter.const for parameter in compiled.parameters], copies)
    job = LaunchJob(
        _code(compiled),
        tuple(grid),
        tuple(block),
        int(shared),
        cluster,
        repeat,
        tuple(sent.made),
        tuple(sent.passed),
        tuple(sent.copied),
        tuple(symbols),
    )
    result = _result(job, compiled.entry)
    sent.fetch(result.get("arrays"))
    return timing(result.get("timing"))


def refuses(kernel) -> str:
    """'' or why the shared GPU takes no product of this kernel, as a sentence."""
    return f"{kernel.name} {_PASSES}" if pieces(kernel) else ""


def product(kernel, problem, samples: int, seconds: float) -> tuple[Timing, Timing | None, str, float | None]:
    """Check a kernel on a product and time it on the shared GPU: its time, cuBLAS's, why there is none of cuBLAS, and how far the results
    are apart. The data is drawn there. Raises LaunchError, RunError, CourseError."""
    if why := refuses(kernel):
        raise LaunchError(why)
    job = ProductJob(_code(kernel.compiled, tensor_maps(kernel)), problem, min(samples, protocol.MOST_SAMPLES), min(float(seconds), 10.0))
    result = _result(job, kernel.name)
    times = {name: timing(item) for name, item in dict(result.get("timing") or {}).items()}
    mine = times.pop(kernel.name, None)
    if mine is None:
        raise CourseError("The shared GPU's service gave no time. Its version of the course is probably another one.")
    return mine, next(iter(times.values()), None), str(result.get("why_no_cublas", "")), result.get("difference")


def timing(fields: Any) -> Timing:
    """A Timing from an answer. Raises CourseError."""
    try:
        return Timing(**fields)
    except TypeError:
        raise CourseError("The shared GPU's service gave no time. Its version of the course is probably another one.") from None


def _code(compiled, maps: tuple[str, ...] = ()) -> SentCode:
    return SentCode(compiled.ptx, compiled.symbol, compiled.entry, compiled.arch, compiled.shared_bytes, maps)


class _Sent:
    """Arguments on their way: each array once, and the way back."""

    def __init__(self, args: Sequence[Any], const: Sequence[bool], copies: Sequence[RowCopy] = ()):
        self.made: list[Made] = []
        self.passed: list[Passed] = []
        self._arrays: list[Any] = []
        self._inputs = [value for value, unchanged in zip(args, const, strict=True) if unchanged]  # whose tensor maps are only read
        for value, unchanged in zip(args, const, strict=True):
            self.passed.append(self._pass(value, unchanged))
        self.copied = [
            Copied(
                self._array(copy.source, True),
                copy.source_pitch,
                self._array(copy.target, True),
                copy.target_pitch,
                copy.rows,
                copy.row_bytes,
            )
            for copy in copies
        ]
        if any(len(group) > 1 for group in overlapping(all_to_host(self._arrays))):
            raise LaunchError("Two arguments are different parts of the same memory, which cannot be sent to the shared GPU. Pass copies.")

    def _pass(self, value: Any, const: bool) -> Passed:
        if isinstance(value, TensorMap):
            index = self._array(value.memory, any(other is value.memory for other in self._inputs))
            return Passed(array=index, tensor=value.tensor, by_pointer=value.by_pointer, l2_promotion=value.l2_promotion)
        if value is None:
            return Passed()
        if isinstance(value, StructValue):
            raise LaunchError(_STRUCTS)
        if isinstance(value, np.ndarray) and value.ndim:
            return Passed(array=self._array(value, const))
        return Passed(value=np.asarray(value).tobytes())

    def _array(self, array: np.ndarray, const: bool) -> int:
        index = next((index for index, other in enumerate(self._arrays) if other is array), None)
        if index is None:
            self._arrays.append(array)
            if array.dtype.name not in protocol.DTYPES:
                raise LaunchError(f"Arrays of {array.dtype.name} are not sent to the shared GPU. Pass a view of another type.")
            self.made.append(Made(array.dtype.name, array.shape, array.tobytes(), None, array.flags.writeable and not const))
            return len(self._arrays) - 1
        if not const and not self.made[index].returned:
            self.made[index] = Made(array.dtype.name, array.shape, array.tobytes(), None, array.flags.writeable)
        return index

    def fetch(self, found: Any) -> None:
        """Put what the kernel made into the arrays, all or none. Raises CourseError."""
        data = {}
        for index, made in enumerate(self.made):
            if made.returned:
                text = found.get(str(index)) if isinstance(found, dict) else None
                data[index] = protocol.decoded(text, "A result") if isinstance(text, str) else b""
                if len(data[index]) != made.nbytes:
                    raise CourseError("The shared GPU's service gave a result of another size. Your arrays are as they were.")
        for index, new in data.items():
            self._arrays[index].reshape(-1).view(np.uint8)[:] = np.frombuffer(new, np.uint8)


# -------------------------------------------------------------------------------------------------------------- asking


def _result(job: protocol.Job, name: str) -> dict[str, Any]:
    """Have a job done, and wait for it. Raises CourseError."""
    address = service_address.named()
    task = _ask(address, "POST", "/jobs", protocol.dumps(job))["job"]
    try:
        with Progress(f"{name} on the shared GPU") as progress:
            most = 1
            while True:
                answer = _patiently(address, f"/jobs/{task}?wait={_ASKED}")
                state = answer.get("state")
                if state == "done":
                    return answer
                if state not in ("queued", "running"):
                    raise protocol.ERRORS.get(str(answer.get("error")), LaunchError)(
                        str(answer.get("message", "The launch was taken back."))
                    )
                left = answer.get("before", 0) + 1
                most = max(most, left)
                progress(most - left, most)
    except BaseException:  # an interrupt, most likely: nobody waits for it any more
        with contextlib.suppress(CourseError):
            _ask(address, "DELETE", f"/jobs/{task}")
        raise


def _patiently(address: ServiceAddress, path: str) -> dict[str, Any]:
    """An answer, also where the service is away for a moment: the job is kept there. Raises CourseError."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return _ask(address, "GET", path)
        except NotThereError:
            if time.monotonic() > end:
                raise
            time.sleep(1)


class NotThereError(CourseError):
    """The service does not answer."""


def _ask(address: ServiceAddress, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
    """One question and its answer. Raises CourseError with what is wrong."""
    headers = {"Authorization": f"Bearer {address.token}", protocol.HEADER: str(protocol.VERSION), "Content-Type": "application/json"}
    try:
        connection = _connection(address)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read(2 * protocol.MOST_MESSAGE)
    except ssl.SSLCertVerificationError as error:
        raise CourseError(_distrusted(address, error)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        said = failures.first_line(error)
        unchanged = " Your arrays are as they were." if path.startswith("/jobs") else ""
        raise NotThereError(
            f"The shared GPU's service at {address.url} does not answer ({said}).{unchanged} Ask whoever runs it "
            "whether `course gpu serve` is running. Until then launch with on='cpu', and for profile() and climb() leave the GPU out: "
            f"import os; os.environ['{service_address.OFF_SWITCH}'] = '1'."
        ) from None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or "version" not in found:
        if answer.status == 413 or (answer.status == 400 and not text):
            raise LaunchError("The shared GPU's service takes no message of this size. Use smaller arrays.")
        raise CourseError(f"What answers at {address.url} is not the service of a shared GPU (HTTP status {answer.status}).")
    if found["version"] != protocol.VERSION:
        raise CourseError(
            f"The shared GPU's service speaks version {found['version']} of the protocol and this notebook version {protocol.VERSION}, so "
            "nothing was launched. Both have to be of one version of the course: update the older one and start it again."
        )
    if answer.status >= 400:
        raise protocol.ERRORS.get(str(found.get("error")), LaunchError)(str(found.get("message")))
    return found


def _distrusted(address: ServiceAddress, error: ssl.SSLCertVerificationError) -> str:
    """Why the service's certificate is refused, as a sentence."""
    if error.verify_code == 10:  # X509_V_ERR_CERT_HAS_EXPIRED
        return (
            f"The certificate of the shared GPU's service at {address.url} has expired, so nothing was sent. Whoever runs the service "
            "deletes its certificate.pem, starts it again, and gives you the new one."
        )
    return (
        f"The service at {address.url} does not have the certificate in {address.certificate} ({error.verify_message}), so nothing was "
        "sent. Ask whoever runs it for its certificate.pem, and use the address that it was made for."
    )


def _connection(address: ServiceAddress) -> http.client.HTTPConnection:
    if address.url.startswith("unix:"):
        if sys.platform == "win32":
            raise LaunchError(
                f"{address.url} is a socket within one machine, which Python has none of on Windows: ask for an https address."
            )
        return _LocalConnection(address.url.removeprefix("unix:"))
    parts = urlsplit(address.url)
    context = ssl.create_default_context(cafile=address.certificate)
    return http.client.HTTPSConnection(parts.hostname or "", parts.port or 443, timeout=_ASKED + 20, context=context)


class _LocalConnection(http.client.HTTPConnection):
    """HTTP through a socket of this machine."""

    def __init__(self, path: str):
        super().__init__("localhost", timeout=_ASKED + 20)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
