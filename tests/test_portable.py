"""What Windows lacks is used only where something asks for it first. No proof that the course runs there: nobody has tried."""

import ast
import shutil
import subprocess

import pytest

from helpers.errors import CourseError
from helpers.run.shared_gpu import service
from tests import ROOT

NOT_ON_WINDOWS = {
    "os": {
        "fork", "forkpty", "killpg", "getpgid", "setsid", "getuid", "geteuid", "getgid", "getegid", "setuid", "uname", "mkfifo", "openpty",
        "sched_getaffinity", "sched_setaffinity", "register_at_fork", "O_NONBLOCK", "WNOHANG", "wait4", "statvfs", "getloadavg",
    },
    "signal": {"SIGKILL", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGCHLD", "alarm", "setitimer", "pthread_kill", "pthread_sigmask"},
    "socket": {"AF_UNIX"},
    "time": {"tzset"},
}  # fmt: skip
METHODS_NOT_ON_WINDOWS = {"symlink_to", "hardlink_to", "add_signal_handler"}  # of paths and event loops, whatever they are called
MODULES_NOT_ON_WINDOWS = {"fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "posix", "crypt", "syslog"}
GUARDED = {
    ("front/empty_home.py", ".symlink_to"): "OSError",
    ("front/slides.py", ".add_signal_handler"): "RuntimeError, of which NotImplementedError is one",
    ("front/slides.py", "signal.SIGKILL"): "in that handler alone",
    ("run/shared_gpu/service.py", "socket.AF_UNIX"): "the service says that it needs Linux",
    ("run/shared_gpu/service.py", ".add_signal_handler"): "the service says that it needs Linux",
    ("processors.py", "os.sched_getaffinity"): "hasattr",
    ("front/lab/__init__.py", "os.geteuid"): "sys.platform",
    ("course/grading/apart.py", "resource"): "ImportError",
    ("course/grading/apart.py", "os.getuid"): "sys.platform",
    ("course/grading/apart.py", "os.getgid"): "sys.platform",
    ("run/shared_gpu/sending.py", "socket.AF_UNIX"): "sys.platform",
    ("run/shared_gpu/judging.py", "os.killpg"): "the service says that it needs Linux",
    ("run/shared_gpu/judging.py", "signal.SIGKILL"): "the service says that it needs Linux",
}


def used(path) -> set[str]:
    """What a module uses that Windows has not."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in NOT_ON_WINDOWS.get(node.value.id, ()):
            found.add(f"{node.value.id}.{node.attr}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS_NOT_ON_WINDOWS:
            found.add(f".{node.func.attr}")
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES_NOT_ON_WINDOWS
        if isinstance(node, ast.ImportFrom):
            found |= {node.module or ""} & MODULES_NOT_ON_WINDOWS
            found |= {f"{node.module}.{alias.name}" for alias in node.names if alias.name in NOT_ON_WINDOWS.get(node.module or "", ())}
    return found


def test_what_windows_lacks_is_asked_for_before_it_is_used():
    helpers = ROOT / "helpers"
    found = {(path.relative_to(helpers).as_posix(), name) for path in helpers.rglob("*.py") for name in used(path)}
    assert found == set(GUARDED), "guard it, with a sentence where it cannot be done without, and say here what guards it"


def undecoded(path) -> set[int]:
    """Lines that start a program and read text from it in the system's encoding, which on Windows is no UTF-8."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("subprocess.")]
    said = [(call.lineno, {word.arg for word in call.keywords}) for call in calls]
    return {line for line, words in said if words & {"text", "universal_newlines"} and "encoding" not in words}


@pytest.mark.slow
def test_what_programs_say_is_read_in_an_encoding_that_is_stated():
    assert [f"{path.name}:{line}" for path in (ROOT / "helpers").rglob("*.py") for line in undecoded(path)] == []


def test_a_clone_has_the_same_line_ends_on_every_system(tmp_path):
    """Cloned as git does on Windows (core.autocrlf): scripts still begin as shells in a container want it, and hashes stay."""
    if shutil.which("git") is None:
        pytest.skip("there is no git here")

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", check=True)
        return done.stdout

    git("init", "--quiet")
    git("config", "core.autocrlf", "true")
    shutil.copy(ROOT / ".gitattributes", tmp_path)
    names = [".ci/run", ".binder/start", "kernels/01_naive.cu", "notebooks/01_naive.ipynb", "helpers/front/site/assets/page.html.j2"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    git("add", ".")
    shutil.rmtree(tmp_path / "notebooks")
    for name in names:
        (tmp_path / name).unlink(missing_ok=True)
    git("checkout-index", "--all")
    assert {name for name in names if (tmp_path / name).read_bytes() != (ROOT / name).read_bytes()} == set()


def test_sharing_a_gpu_is_refused_on_windows_with_a_sentence(monkeypatch):
    monkeypatch.setattr(service.sys, "platform", "win32")
    with pytest.raises(CourseError, match="runs on Linux alone"):
        service.serve(None)
