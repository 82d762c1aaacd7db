"""The service of a shared GPU: HTTPS or a local socket in front, learners' turns, and Dask's workers behind, one per GPU.

Only the service connects to Dask's scheduler, which listens on this machine alone, over TLS with certificates that exist in memory and for
this run: whoever could connect there could run anything. From learners come messages (`protocol`), which workers read as data.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import secrets
import shlex
import signal
import socket
import ssl
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynvml

from helpers.errors import CourseError, LaunchError
from helpers.model import hardware
from helpers.run.geometry import MULTIPROCESSORS

from . import credentials, protocol
from .judging import judge
from .turns import Turns

KEPT_SECONDS = 600.0  # that a result waits to be fetched
MOST_HELD = 2 << 30  # bytes of messages that wait, of all learners
MOST_WAIT = 25.0  # seconds that a question after a job may stay open
DEATHS = 2  # of workers, after which the job that both had is given up
LOG = "jobs.jsonl"
STOPPED = {
    "state": "failed", "error": "LaunchError",
    "message": "The service of the shared GPU was stopped before this launch had ended. Your arrays are as they were. Launch it again "
    "when the service is back, or use on='cpu'.",
}  # fmt: skip
_QUIET = {  # Dask's own pages, which have no TLS, and its messages
    "distributed.scheduler.http.routes": [], "distributed.worker.http.routes": [], "distributed.nanny.http.routes": [],
    "distributed.logging.distributed": "error",
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """How a service is run. gpus: UUIDs of the GPUs, or how many simulated ones. seconds: that a kernel may run. queued: jobs that each
    learner may have waiting. folder: of the certificate, the secret and the log."""

    folder: Path
    gpus: tuple[str, ...]
    simulated: bool
    seconds: float = 20.0
    queued: int = 4
    host: str = "127.0.0.1"
    port: int = 8790
    socket: Path | None = None


@dataclass(eq=False)
class Task:
    """A learner's job on its way. state: queued, running, done, failed, cancelled."""

    learner: str
    message: bytes
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    state: str = "queued"
    result: dict[str, Any] = field(default_factory=dict)
    ended: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Service:
    """Tasks, whose turn it is, and the GPUs they go to."""

    def __init__(self, settings: Settings, device: dict[str, Any]):
        self.settings, self.device = settings, device
        self.tasks: dict[str, Task] = {}
        self.turns: Turns[Task] = Turns(settings.queued)
        self.running = 0
        self.stopping = False
        self._held = 0
        self._client: Any = None
        self._cluster: Any = None
        self._done: set[asyncio.Task] = set()

    async def stop(self) -> None:
        """End the workers, and what they do; who waits for that is told."""
        self.stopping = True
        for task in [task for task in self.tasks.values() if not task.ended]:
            self.turns.remove(task)
            self._end(task, STOPPED)
        for item in (self._client, self._cluster):
            if item is not None:
                await item.close()

    async def start(self) -> None:
        """Start the workers. Raises CourseError if they do not come up."""
        import dask
        from distributed import Client, Nanny, Scheduler, SpecCluster
        from distributed.security import Security

        dask.config.set(_QUIET)
        security = Security.temporary()
        off = {"GEMM_LADDER_NO_GPU": "1"} if self.settings.simulated else {}
        root = str(Path(__file__).resolve().parents[3])
        workers = {
            number: {
                "cls": Nanny,
                "options": {
                    "nthreads": 1, "resources": {"GPU": 1}, "security": security, "protocol": "tls", "host": "127.0.0.1",
                    "memory_limit": 0, "dashboard": False, "silence_logs": 40, "config": dask.config.config,
                    "local_directory": str(self.settings.folder / "workers"),
                    "env": {"CUDA_VISIBLE_DEVICES": name, "PYTHONPATH": root, **off},
                },
            }
            for number, name in enumerate(self.settings.gpus)
        }  # fmt: skip
        scheduler = {
            "cls": Scheduler,
            "options": {
                "security": security,
                "protocol": "tls",
                "host": "127.0.0.1",
                "port": 0,
                "dashboard": False,
                "allowed_failures": DEATHS - 1,
            },
        }
        try:
            self._cluster = await SpecCluster(workers, scheduler, security=security, asynchronous=True, silence_logs=40)
            self._client = await Client(self._cluster, security=security, asynchronous=True)
            await self._client.wait_for_workers(len(workers), timeout=60)
        except (OSError, TimeoutError, RuntimeError) as error:
            raise CourseError(f"The workers of the shared GPU did not start: {str(error).splitlines()[0]}") from error

    def submit(self, learner: str, message: bytes) -> Task:
        """Queue a job. Raises LaunchError where it may not wait here."""
        self._forget()
        if self.stopping:
            raise LaunchError(STOPPED["message"])
        if self._held + len(message) > MOST_HELD:
            raise LaunchError("The shared GPU has no room for more launches at the moment; nothing was launched. Try again in a minute.")
        task = Task(learner, message)
        self.turns.add(learner, task)
        self.tasks[task.name] = task
        self._held += len(message)
        self._go_on()
        return task

    def cancel(self, task: Task) -> None:
        """Take a job out of the queue. One that runs goes on, and nobody hears of it."""
        if task.state == "queued":
            self.turns.remove(task)
            self._end(task, {"state": "cancelled"})

    def _go_on(self) -> None:
        """Give free GPUs what is next."""
        while not self.stopping and self.running < len(self.settings.gpus) and (task := self.turns.next()) is not None:
            self.running += 1
            task.state = "running"
            task.changed.set()
            work = asyncio.create_task(self._run(task))
            self._done.add(work)
            work.add_done_callback(self._done.discard)

    async def _run(self, task: Task) -> None:
        try:
            result = await self._result(task)
        finally:
            self.running -= 1
        self._log(task, result)
        if not self.stopping:
            self._end(task, result)
        self._go_on()

    async def _result(self, task: Task) -> dict[str, Any]:
        """What came of a job; once more where its worker died."""
        from distributed import CancelledError, KilledWorker

        key = f"job-{task.name}"
        settings = self.settings
        future = self._client.submit(judge, task.message, settings.simulated, settings.seconds, resources={"GPU": 1}, pure=False, key=key)
        try:
            return await future
        except (KilledWorker, CancelledError):
            if self.stopping:
                return STOPPED
            return {
                "state": "failed", "error": "RunError",
                "message": f"The process that runs kernels on the shared GPU died {DEATHS} times while this one was there, so it was given "
                "up. Your arrays are as they were. Launch it with on='cpu' to see what it does.",
            }  # fmt: skip

    def _end(self, task: Task, result: dict[str, Any]) -> None:
        self._held -= len(task.message)
        task.message, task.result, task.state, task.ended = b"", result, result["state"], time.monotonic()
        task.changed.set()

    def _forget(self) -> None:
        """Drop results that nobody came for."""
        old = time.monotonic() - KEPT_SECONDS
        for name in [name for name, task in self.tasks.items() if task.ended and task.ended < old]:
            del self.tasks[name]

    def _log(self, task: Task, result: dict[str, Any]) -> None:
        """One line per job: whose, when, how long, what came of it, with the GPU's clock, power and temperature."""
        row = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "learner": task.learner,
            **{name: result.get(name) for name in ("entry", "state", "error", "seconds", "gauges", "timing")},
        }  # fmt: skip
        with contextlib.suppress(OSError), (self.settings.folder / LOG).open("a", encoding="utf-8") as file:  # a full disk stops no kernel
            file.write(json.dumps(row) + "\n")

    def told(self, task: Task) -> dict[str, Any]:
        """What a learner hears of a job."""
        if task.state == "queued":
            return {"state": "queued", "before": self.turns.before(task) + self.running}
        return {"state": "running"} if task.state == "running" else task.result

    def status(self, learner: str) -> dict[str, Any]:
        return {
            **self.device, "gpus": len(self.settings.gpus), "simulated": self.settings.simulated, "running": self.running,
            "queued": len(self.turns), "seconds": self.settings.seconds, "most_queued": self.settings.queued, "learner": learner,
            "yours": sum(task.learner == learner and task.state == "queued" for task in self.tasks.values()),
        }  # fmt: skip


# ------------------------------------------------------------------------------------------------------------------- HTTP


def application(service: Service, secret: bytes):
    """The service as a Tornado application."""
    from tornado.web import Application, RequestHandler

    class Handler(RequestHandler):
        learner = ""

        def prepare(self) -> None:
            said = self.request.headers.get(protocol.HEADER, "")
            if said != str(protocol.VERSION):
                self._refuse(409, protocol.mismatch(int(said) if said.isdecimal() and len(said) < 5 else None))
                return
            given = self.request.headers.get("Authorization", "").removeprefix("Bearer ")
            self.learner = credentials.learner(secret, given) or ""
            if not self.learner:
                self._refuse(
                    401,
                    "The shared GPU does not know your token. Ask whoever runs it for a new one: `course gpu token YOUR_NAME`, with the "
                    "--folder of the service if it has one.",
                )

        def _refuse(self, status: int, sentence: str) -> None:
            self.set_status(status)
            self.finish({"version": protocol.VERSION, "error": "LaunchError", "message": sentence})

        def answer(self, fields: dict[str, Any]) -> None:
            self.finish({"version": protocol.VERSION, **fields})

        def task(self, name: str) -> Task | None:
            task = service.tasks.get(name)
            if task is not None and task.learner == self.learner:
                return task
            self._refuse(404, "The shared GPU's service does not know this launch any more: it was restarted meanwhile. Launch it again.")
            return None

        def write_error(self, status_code: int, **_: Any) -> None:
            self.finish(
                {"version": protocol.VERSION, "error": "LaunchError", "message": f"The shared GPU's service failed ({status_code})."}
            )

        def log_exception(self, *error: Any) -> None:
            print(f"shared GPU: {error[1]!r}", file=sys.stderr, flush=True)

    class Status(Handler):
        def get(self) -> None:
            self.answer(service.status(self.learner))

    class Jobs(Handler):
        async def post(self) -> None:
            try:
                await asyncio.to_thread(protocol.loads, self.request.body)
                self.answer({"job": service.submit(self.learner, self.request.body).name})
            except LaunchError as error:
                self._refuse(400, error.message)

    class Job(Handler):
        async def get(self, name: str) -> None:
            task = self.task(name)
            if task is None:
                return
            wait = self.get_query_argument("wait", "0")
            if task.state in ("queued", "running") and wait.isdecimal():
                task.changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(task.changed.wait(), min(float(wait), MOST_WAIT))
            self.answer(service.told(task))

        def delete(self, name: str) -> None:
            task = self.task(name)
            if task is not None:
                service.cancel(task)
                self.answer(service.told(task))

    return Application([("/status", Status), ("/jobs", Jobs), ("/jobs/([0-9a-f]+)", Job)], log_function=lambda handler: None)


def _hosts(host: str) -> list[str]:
    """The names under which learners reach this machine, that which they should use first."""
    names = [socket.getfqdn(), socket.gethostname(), "localhost", "127.0.0.1"]
    return list(dict.fromkeys(names if host in ("0.0.0.0", "::", "") else [host, *names]))


def _refuse_a_second(path: Path) -> None:
    """Raise CourseError where a service listens at this socket already: it would go on, and nobody would reach it."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as one:
        one.connect(str(path))
        raise CourseError(f"A service listens at {path} already. End it first, or name another socket.")


async def _serve(settings: Settings, device: dict[str, Any]) -> None:
    from tornado.httpserver import HTTPServer
    from tornado.netutil import bind_sockets, bind_unix_socket

    secret = credentials.secret(settings.folder)
    service = Service(settings, device)
    app = application(service, secret)
    limits = {"max_body_size": protocol.MOST_MESSAGE, "max_buffer_size": 2 * protocol.MOST_MESSAGE, "idle_connection_timeout": 60}
    try:
        if settings.socket is not None:
            _refuse_a_second(settings.socket)
            server = HTTPServer(app, **limits)
            server.add_socket(bind_unix_socket(str(settings.socket), 0o666))
            where = f"unix:{settings.socket}"
        else:
            certificate, key = credentials.certificate(settings.folder, _hosts(settings.host))
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate, key)
            server = HTTPServer(app, ssl_options=context, **limits)
            sockets = bind_sockets(settings.port, settings.host)
            server.add_sockets(sockets)
            where = f"https://{_hosts(settings.host)[0]}:{sockets[0].getsockname()[1]}"
    except (OSError, ValueError) as error:  # ValueError: there is a file in place of the socket
        why = getattr(error, "strerror", None) or error
        raise CourseError(f"The shared GPU's service cannot listen at {settings.socket or settings.host}: {why}.") from None
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    try:
        await service.start()
        _announce(settings, device, where)
        await stopped.wait()
    finally:
        await service.stop()


def _announce(settings: Settings, device: dict[str, Any], where: str) -> None:
    where_else = "" if settings.folder == credentials.usual_folder() else f" --folder {shlex.quote(str(settings.folder.absolute()))}"
    print(
        f"The shared GPU ({device['device']}) is at {where}. Learners need that, a token each (`course gpu token NAME{where_else}`)", end=""
    )
    print("." if settings.socket else f", and {settings.folder / credentials.CERTIFICATE}.", flush=True)


def serve(settings: Settings) -> int:
    """Run the service until it is interrupted. Returns the exit code; raises CourseError where it cannot be run."""
    if sys.platform == "win32":
        raise CourseError(
            "The service that shares a GPU runs on Linux alone (WSL 2 will do): it stops what takes too long by POSIX signals."
        )
    device = (
        {"device": "SIMT machine", "arch": "sm_90", "multiprocessors": MULTIPROCESSORS} if settings.simulated else _device(settings.gpus)
    )
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    asyncio.run(_serve(settings, device))
    return 0


def gpus() -> tuple[str, ...]:
    """UUIDs of this machine's GPUs. Raises CourseError if there are none."""
    try:
        pynvml.nvmlInit()
        found = [pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        raise CourseError(f"There is no GPU to share: {error}. `course gpu serve --simulated 1` tries everything else.") from None
    return tuple(name if isinstance(name, str) else name.decode() for name in found)


def _device(names: tuple[str, ...]) -> dict[str, Any]:
    """What the GPUs are; all have to be of one kind. Raises CourseError."""
    kinds = set()
    for name in names:
        handle = pynvml.nvmlDeviceGetHandleByUUID(name)
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        cores = pynvml.nvmlDeviceGetNumGpuCores(handle)  # FP32 lanes
        arch = f"sm_{major}{minor}"
        kinds.add((pynvml.nvmlDeviceGetName(handle), arch, cores // hardware.capability(arch).fp32_lanes))
    if len(kinds) != 1:
        raise CourseError("This machine's GPUs differ, and a time would not say whose it is: name those of one kind with --gpu UUID.")
    ((device, arch, multiprocessors),) = kinds
    return {"device": device, "arch": arch, "multiprocessors": multiprocessors}
