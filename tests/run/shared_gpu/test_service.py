"""The whole way, with a simulated GPU: a notebook's launch, the service and its worker, and what goes wrong on it.

Tests of: helpers.run.shared_gpu.candidate, helpers.run.shared_gpu.credentials, helpers.run.shared_gpu.sending,
helpers.run.shared_gpu.service_address
"""

from __future__ import annotations

import contextlib
import datetime
import http.server
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from helpers.errors import CourseError, LaunchError, RunError
from helpers.front import cli
from helpers.run import gemm, kernel, timing, variable_values
from helpers.run.shared_gpu import credentials, protocol, sending, service_address
from helpers.run.shared_gpu.service import STOPPED, _refuse_a_second
from tests import ROOT
from tests.run.tma_kernels import source

TWICE = "__global__ void twice(float* x, const float* y, float a, int n) { if (threadIdx.x < n) x[threadIdx.x] = a * y[threadIdx.x]; }"
BEYOND = "__global__ void beyond(float* x) { x[0] = 1; x[1ll << 40] = 1; }"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """(address, folder, process) of a service with one simulated GPU."""
    with serving(tmp_path_factory.mktemp("service")) as found:
        yield found


@contextlib.contextmanager
def serving(folder):
    """Runs a service, as the fixture says, and ends it."""
    arguments = ["--simulated", "1", "--folder", str(folder), "--port", "0", "--seconds", "60", "--queued", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "helpers.front.cli", "gpu", "serve", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        said = process.stdout.readline()
        assert f"`course gpu token NAME --folder {folder}`" in said
        yield re.search(r"https://[\w.-]+:\d+", said)[0], folder, process
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert psutil.wait_procs(children, 5)[1] == [], "nothing is left of it"


@pytest.fixture
def learner(service, monkeypatch):
    """Makes this process the notebook of a learner."""
    url, folder, _ = service

    def become(name: str, **other: str) -> None:
        settings = {
            "url": url,
            "token": credentials.token(credentials.secret(folder), name),
            "certificate": str(folder / "certificate.pem"),
        }
        monkeypatch.delenv("GEMM_LADDER_NO_GPU", raising=False)
        for key, value in (settings | other).items():
            monkeypatch.setenv(service_address.VARIABLES[key], value)

    become("ada")
    return become


def arrays():
    return np.zeros(32, np.float32), np.arange(32, dtype=np.float32)


@pytest.mark.slow
def test_a_launch_on_the_gpu_is_one_on_the_shared_gpu(learner, service):
    x, y = arrays()
    run = kernel.compile(TWICE).launch(1, 32, [x, y, 2.5, 30], on="gpu")
    assert (x == np.where(np.arange(32) < 30, 2.5 * y, 0)).all()
    assert run.on == "gpu" and run.milliseconds > 0 and "in place of a GPU" in run.device
    assert "simulated" in run.timing.noisy
    assert '"learner": "ada", "entry": "twice", "state": "done"' in (service[1] / "jobs.jsonl").read_text()


@pytest.mark.slow
def test_the_kernel_s_variables_go_along(learner, monkeypatch):
    scaled = kernel.compile("__constant__ float factor[3]; __global__ void scaled(float* x) { x[threadIdx.x] *= factor[threadIdx.x]; }")
    x = np.array([1, 2, 3], np.float32)
    scaled.launch(1, 3, [x], on="gpu", symbols={"factor": [5, 7]})
    assert x.tolist() == [5, 14, 0]
    monkeypatch.setattr(variable_values, "need_room", lambda *given: None)  # whoever sends something else is not believed there
    with pytest.raises(LaunchError, match="has 16 bytes, and the variable has 12"):
        scaled.launch(1, 3, [x], on="gpu", symbols={"factor": bytes(16)})
    assert x.tolist() == [5, 14, 0]


def test_a_product_is_timed_there(learner):
    made = kernel.compile((ROOT / "kernels/02_coalesced.cu").read_text(encoding="utf-8"))
    timed = timing.time_gemm(made, gemm.Problem(40, 50, 60))
    assert timed.kernel.milliseconds > 0 and timed.cublas is None and "SIMT machine" in timed.why_no_cublas


def test_a_product_by_tensor_maps_is_launched_there_with_its_copies(learner):
    made, problem = kernel.compile(source(persistent=1)), gemm.Problem(33, 47, 35, dtype="bfloat16", out_dtype="float32", pad_a=2)
    before, there = problem.arrays(), problem.arrays()
    run = gemm.run(made, problem, on="gpu", arrays=there)
    assert run.on == "gpu" and run.grid == (4, 1, 1) and "a kernel whose time is part of the launch's" in run.remarks[0]
    assert gemm.compare(problem, before, there) == ""
    assert timing.time_gemm(made, problem).kernel.milliseconds > 0


def test_status_and_tokens_are_commands(learner, service, capsys):
    assert cli.main(["gpu", "status"]) == 0
    assert "SIMT machine: 1 shared by the class, 0 at work, 0 kernels waiting, 0 of them yours (ada)." in capsys.readouterr().out
    assert cli.main(["gpu", "token", "bob", "--folder", str(service[1])]) == 0
    learner("bob", token=capsys.readouterr().out.strip())
    assert sending.status()["learner"] == "bob"


def test_a_kernel_that_goes_wrong_changes_no_array(learner):
    x = np.full(2, 7, np.float32)
    with pytest.raises(RunError, match="of argument 0, which has 2 elements"):
        kernel.compile(BEYOND).launch(1, 1, [x], on="gpu")
    assert (x == 7).all()


def in_background(job, count: int, name: str, learner, order: list[str], errors: list[str]) -> list[threading.Thread]:
    """So many launches of a learner at once, who writes down the name when one is done."""
    address = service_address.named()
    token = address.token

    def one() -> None:
        try:
            task = sending._ask(address, "POST", "/jobs", protocol.dumps(job))["job"]
            while sending._ask(address, "GET", f"/jobs/{task}?wait=20")["state"] != "done":
                pass
            order.append(name)
        except CourseError as error:
            errors.append(f"{name}: {error.message}")

    assert token.startswith(name)
    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
        time.sleep(0.15)
    return threads


def candidate(service) -> psutil.Process:
    """The process of the kernel that the worker is about to run, as soon as there is one."""
    while True:
        for child in psutil.Process(service[2].pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "helpers.run.shared_gpu.candidate" in child.cmdline():
                    return child


def test_who_floods_does_not_keep_others_waiting(learner, service):
    """The first kernel is held until all have asked."""
    compiled = kernel.compile(TWICE).compiled
    sent = sending._Sent([*arrays(), np.float32(2), np.int32(3)], [False, True, True, True])
    job = protocol.LaunchJob(sending._code(compiled), (1, 1, 1), (32, 1, 1), 0, None, None, tuple(sent.made), tuple(sent.passed))
    order, errors = [], []
    learner("flood")
    threads = in_background(job, 1, "flood", learner, order, errors)
    first = candidate(service)
    first.suspend()
    threads += in_background(job, 3, "flood", learner, order, errors)
    learner("bob")
    threads += in_background(job, 1, "bob", learner, order, errors)
    time.sleep(0.5)
    first.resume()
    for thread in threads:
        thread.join(150)
    assert order[0] == "flood" and order.index("bob") < 3 and len(order) == 4
    assert len(errors) == 1 and all("You have 2 kernels waiting for the shared GPU" in error for error in errors)


def test_a_job_whose_worker_dies_is_done_again(learner, service):
    x, y = arrays()

    def kill() -> None:
        """End the worker as soon as it has started the kernel's process."""
        candidate(service).parent().kill()

    killer = threading.Thread(target=kill)
    killer.start()
    kernel.compile(TWICE).launch(1, 32, [x, y, 3.0, 32], on="gpu")
    killer.join(1)
    assert (x == 3 * y).all() and not killer.is_alive()


@pytest.mark.slow
def test_a_service_that_is_stopped_tells_who_waits_for_it(learner, tmp_path):
    """One learner's kernel runs, and the next one waits."""
    said = []

    def launch() -> None:
        x = np.zeros(1, np.float32)
        with pytest.raises(CourseError) as error:
            endless.launch(1, 1, [x], on="gpu")
        said.append((error.value.message, x[0]))

    endless = kernel.compile("__global__ void endless(float* x) { while (x[0] < 1e30f) x[0] = 0; }")
    with serving(tmp_path) as service:
        token = credentials.token(credentials.secret(tmp_path), "ada")
        learner("ada", url=service[0], token=token, certificate=str(tmp_path / "certificate.pem"))
        threads = [threading.Thread(target=launch) for _ in range(2)]
        for thread in threads:
            thread.start()
        candidate(service)
        while sending.status()["queued"] < 1:
            time.sleep(0.05)
    for thread in threads:
        thread.join(30)
    assert [message for message, _ in said] == [STOPPED["message"]] * 2 and not any(x for _, x in said)
    assert '"state": "failed"' in (tmp_path / "jobs.jsonl").read_text()


def test_a_token_is_made_where_a_service_has_been_started(tmp_path, capsys):
    assert cli.main(["gpu", "token", "ada", "--folder", str(tmp_path / "typo")]) == 1
    assert "no service knows a token made there" in capsys.readouterr().err and not (tmp_path / "typo").exists()


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"token": "ada:0123"}, "does not know your token"),
        ({"token": ""}, "names a shared GPU and no token"),
        ({"url": "https://127.0.0.1:9"}, "does not answer"),
        ({"url": "unix:/nowhere/gpu.sock"}, "does not answer"),
        ({"url": "http://127.0.0.1:80"}, "it is https://host:port or unix:/path"),
        ({"certificate": "/nowhere"}, "there is no such file"),
    ],
    ids=["wrong token", "no token", "nothing there", "no socket", "no TLS", "no certificate"],
)
def test_what_cannot_be_reached_is_a_sentence_and_changes_nothing(learner, other, sentence):
    learner("ada", **other)
    x, y = arrays()
    with pytest.raises(CourseError, match=sentence):
        kernel.compile(TWICE).launch(1, 32, [x, y, 2.0, 32], on="gpu")
    assert not x.any()


def test_a_question_after_the_service_says_nothing_of_arrays(learner, capsys):
    learner("ada", url="https://127.0.0.1:9")
    assert cli.main(["gpu", "status"]) == 1
    said = capsys.readouterr().err
    assert "does not answer" in said and "arrays" not in said


def test_another_version_is_a_sentence_on_either_side(learner, monkeypatch):
    monkeypatch.setattr(protocol, "VERSION", 5)
    with pytest.raises(CourseError, match="speaks version 4 of the protocol and this notebook version 5, so nothing was launched"):
        sending.status()


def test_arrays_that_are_too_large_or_overlap_are_not_sent(learner):
    made = kernel.compile(TWICE)
    large = np.zeros(protocol.MOST_SENT // 4 + 1, np.float32)
    with pytest.raises(LaunchError, match="the shared GPU takes 34 each way"):
        made.launch(1, 32, [large, large[:4].copy(), 2.0, 4], on="gpu")
    with pytest.raises(LaunchError, match="different parts of the same memory"):
        made.launch(1, 32, [large[:8], large[4:12], 2.0, 4], on="gpu")


def test_what_is_no_message_is_refused_by_the_service(learner):
    with pytest.raises(LaunchError, match="is not JSON"):
        sending._ask(service_address.named(), "POST", "/jobs", b"\x80\x04pickle")
    with pytest.raises(CourseError, match="takes no message of this size|does not answer"):
        sending._ask(service_address.named(), "POST", "/jobs", bytes(protocol.MOST_MESSAGE + 1))


def test_another_learner_s_launch_is_nobody_s(learner):
    x, y = arrays()
    sent = sending._Sent([x, y, np.float32(2), np.int32(3)], [False, True, True, True])
    job = protocol.LaunchJob(
        sending._code(kernel.compile(TWICE).compiled), (1, 1, 1), (32, 1, 1), 0, None, None, tuple(sent.made), tuple(sent.passed)
    )
    task = sending._ask(service_address.named(), "POST", "/jobs", protocol.dumps(job))["job"]
    learner("eve")
    with pytest.raises(CourseError, match="does not know this launch"):
        sending._ask(service_address.named(), "GET", f"/jobs/{task}")


@pytest.fixture
def elsewhere(tmp_path):
    """Makes an HTTPS server that is no service: (url, path of its certificate), with a certificate that begins on a given day."""
    servers = []

    def make(start: datetime.datetime) -> tuple[str, Path]:
        made, private = credentials.self_signed(["localhost"], start, 365)
        (tmp_path / "certificate.pem").write_bytes(made)
        (tmp_path / "private.pem").write_bytes(private)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "private.pem")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
        server.RequestHandlerClass.log_message = lambda *_: None
        server.handle_error = lambda *_: None
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"https://localhost:{server.server_address[1]}", tmp_path / "certificate.pem"

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


def test_an_expired_or_another_certificate_and_another_server_are_sentences(learner, elsewhere, service, tmp_path):
    now = datetime.datetime.now(datetime.UTC)
    url, certificate = elsewhere(now - datetime.timedelta(days=400))
    learner("ada", url=url, certificate=str(certificate))
    with pytest.raises(CourseError, match="has expired, so nothing was sent"):
        sending.status()
    with pytest.raises(CourseError, match="expired on"):
        credentials.certificate(tmp_path, ["localhost"])
    url, certificate = elsewhere(now)
    learner("ada", url=url)
    with pytest.raises(CourseError, match="does not have the certificate in"):
        sending.status()
    learner("ada", url=url, certificate=str(certificate))
    with pytest.raises(CourseError, match="is not the service of a shared GPU"):
        sending.status()


def test_a_file_names_the_service_as_well(learner, monkeypatch, tmp_path):
    address = service_address.named()
    for variable in service_address.VARIABLES.values():
        monkeypatch.delenv(variable)
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path))
    assert not service_address.configured()
    with pytest.raises(CourseError, match="No shared GPU is named here: .*GEMM_LADDER_GPU_TOKEN.*shared_gpu.toml"):
        sending.status()
    lines = [f'{name} = "{getattr(address, name)}"' for name in service_address.VARIABLES]
    (tmp_path / service_address.FILE).write_text("\n".join(lines), encoding="utf-8")
    assert service_address.configured() and sending.status()["learner"] == "ada"
    (tmp_path / service_address.FILE).write_text("url = ", encoding="utf-8")
    with pytest.raises(CourseError, match="cannot be read"):
        sending.status()
    monkeypatch.setenv("GEMM_LADDER_NO_GPU", "1")
    assert not service_address.configured()


def test_a_second_service_does_not_take_the_first_one_s_socket(tmp_path):
    path = tmp_path / "gpu.sock"
    _refuse_a_second(path)
    with socket.socket(socket.AF_UNIX) as first:
        first.bind(str(path))
        first.listen()
        with pytest.raises(CourseError, match="listens at .*gpu.sock already"):
            _refuse_a_second(path)
    _refuse_a_second(path)  # the file is left, and nobody listens


def test_a_secret_that_this_user_may_not_read_is_told(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(type(tmp_path), "exists", refuse)
    with pytest.raises(CourseError, match="cannot be read: Permission denied. Make tokens as the service's user"):
        credentials.made_secret(tmp_path)
