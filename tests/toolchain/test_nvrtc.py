"""The compiler in its child process: crashes and interrupts cost nothing but the compilation."""

import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from helpers.errors import CompileError
from helpers.toolchain import nvrtc
from helpers.toolchain.compile import at_once, compile_each, compile_source
from tests import ROOT

# ptxas dies of these two (CUDA 13.0); if a later one refuses them with a message, that is as good.
DEADLY = [
    '__global__ void k(int* a) { int r; asm("{ .reg .b64 s; mov.b64 s, 0; mbarrier.pending_count.b64 %0, s; }" : "=r"(r)); a[0] = r; }',
    '__global__ void k() { __shared__ long long b; asm("mbarrier.init.shared.b64 [%0], 0;" :: "r"((int)__cvta_generic_to_shared(&b))); }',
]


def only_child() -> nvrtc.Child:
    (child,) = nvrtc._POOL.resting
    return child


def source(number: int) -> str:
    return f"__global__ void k(int* a) {{ a[0] = {number}; }}  // {time.time()}"


@pytest.mark.parametrize("deadly", DEADLY)
def test_a_crash_of_the_compiler_is_a_sentence(deadly):
    with pytest.raises(CompileError):
        compile_source(f"{deadly}  // {time.time()}")
    assert compile_source(source(1)).entry == "k"


def test_a_child_that_died_is_replaced():
    compile_source(source(1))
    only_child().process.kill()
    only_child().process.wait()
    assert compile_source(source(2)).entry == "k"


def test_an_interrupt_ends_the_compilation_at_once():
    """A source that takes the compiler a while: Ctrl-C must not wait for it."""
    slow = "__global__ void k(float* a) { float x = a[0];\n" + "x = sinf(x) * x;\n" * 20000 + "a[0] = x; }" + f"// {time.time()}"
    compile_source(source(1))
    child = only_child().process
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        compile_source(slow)
    assert child.poll() is not None
    assert compile_source(source(2)).entry == "k"


def test_several_are_compiled_at_once_and_one_child_is_kept(monkeypatch):
    monkeypatch.setattr(nvrtc.processors, "available", lambda: 8)
    at_work: set[int] = set()
    compile_one = nvrtc.Child.compile
    together = threading.Barrier(nvrtc.MOST)  # broken, and so an error, unless so many come to it at a time

    def noted(child, request):
        if len(at_work) < nvrtc.MOST:
            at_work.add(child.process.pid)
            together.wait(20)
        return compile_one(child, request)

    monkeypatch.setattr(nvrtc.Child, "compile", noted)
    wanted = [source(number) for number in range(4)]
    wanted.insert(2, f"__global__ void wrong() {{ return 1 + ; }}  // {time.time()}")
    made = compile_each(wanted)
    assert [one.source for one in made if not isinstance(one, CompileError)] == [wanted[i] for i in (0, 1, 3, 4)]
    assert isinstance(made[2], CompileError) and made[2].line == 1
    assert len(at_work) == nvrtc.MOST and only_child().lives


def test_who_waits_for_several_is_told_how_many_have_ended():
    told = []
    assert at_once([lambda: time.sleep(1.3), lambda: 2], lambda done, total: told.append((done, total))) == [None, 2]
    assert told and set(told) == {(1, 2)}


def test_an_interrupt_ends_all_that_are_compiled_at_once():
    slow = "__global__ void k(float* a) { float x = a[0];\n" + "x = sinf(x) * x;\n" * 20000 + "a[0] = x; }"
    start = time.monotonic()
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        compile_each([f"{slow}// {number} {time.time()}" for number in range(5)])
    assert time.monotonic() - start < 10 and not nvrtc._POOL.resting and not nvrtc._POOL.working
    assert compile_source(source(2)).entry == "k"


def test_a_child_that_an_interrupt_kept_from_being_given_back_is_used_again():
    compile_source(source(1))
    child = nvrtc._POOL.take()
    assert compile_source(source(2)).entry == "k" and only_child() is child


def test_the_child_ends_with_its_parent():
    compile_source(source(1))
    child = only_child().process
    child.stdin.close()
    assert child.wait(timeout=20) == 0


TEMPLATE = """template <int N, int M> struct T { static const long v = T<N - 1, 2 * M>::v + T<N - 1, 2 * M + 1>::v; };
template <int M> struct T<0, M> { static const long v = M; };
__global__ void k(long* a) { a[0] = T<24, 1>::v; }"""  # 2^24 classes: gigabytes and minutes


@pytest.fixture
def fresh_child():
    nvrtc.stop()
    yield
    nvrtc.stop()


def test_a_compilation_has_a_cap_of_memory(monkeypatch, fresh_child):
    monkeypatch.setattr(nvrtc, "MEMORY", 400 << 20)
    with pytest.raises(CompileError, match="more than 0.391 GB of memory"):
        compile_source(f"{TEMPLATE}  // {time.time()}")
    monkeypatch.undo()
    assert compile_source(source(1)).entry == "k"


def test_a_compilation_has_a_cap_of_time(monkeypatch, fresh_child):
    compile_source(source(1))
    monkeypatch.setattr(nvrtc, "SECONDS", 1.5)
    with pytest.raises(CompileError, match=r"not ended after 1.5 seconds"):
        compile_source(f"{TEMPLATE}  // {time.time()}")
    monkeypatch.undo()
    assert compile_source(source(2)).entry == "k"


def test_a_child_at_work_ends_with_a_parent_that_is_killed():
    """kill -9 runs no clean-up, and the compiler would go on with a full core."""
    program = (
        "import sys, threading, time\nfrom helpers.toolchain import nvrtc\nfrom helpers.toolchain.compile import compile_source\n"
        "compile_source('__global__ void k() {}  // %f' % time.time())\nprint(nvrtc._POOL.resting[0].process.pid, flush=True)\n"
        f"compile_source({TEMPLATE!r} + '  // %f' % time.time())"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    child = psutil.Process(int(parent.stdout.readline()))
    time.sleep(1.5)
    parent.kill()
    parent.wait()
    try:
        child.wait(timeout=10)
    except psutil.TimeoutExpired:
        child.kill()
        raise
    except psutil.NoSuchProcess:
        pass


def test_files_in_the_readers_folder_are_not_imported(tmp_path, monkeypatch, fresh_child):
    for name in ("queue.py", "pickle.py", "helpers.py"):
        (tmp_path / name).write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    assert compile_source(source(1)).entry == "k"
