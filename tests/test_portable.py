"""What Windows lacks is used only where something asks for it first. No proof that the course runs there: nobody has tried."""

import ast

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
MODULES_NOT_ON_WINDOWS = {"fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "posix", "crypt", "syslog"}
GUARDED = {
    ("sim/native/workers.py", "os.sched_getaffinity"): "hasattr",
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


def test_sharing_a_gpu_is_refused_on_windows_with_a_sentence(monkeypatch):
    monkeypatch.setattr(service.sys, "platform", "win32")
    with pytest.raises(CourseError, match="runs on Linux alone"):
        service.serve(None)
