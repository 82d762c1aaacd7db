"""The `course` command: what it hands on, what it says, and how it exits."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import processors, translation
from helpers.course import store
from helpers.course.steps import STEPS
from helpers.errors import CourseError
from helpers.front import cli, lab, notebooks
from tests import ROOT
from tests.course.test_notebook_file import DAMAGED


def course(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "helpers.front.cli", *args], cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("args", [[], ["fly"], ["sync", "--faster"], ["check", "--on", "moon"]])
def test_wrong_arguments_exit_with_2(args, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(args)
    assert exit_.value.code == 2
    assert "usage: course" in capsys.readouterr().err


@pytest.mark.parametrize("step", ["fast", "²", "½", "-1", "99", "9" * 5000, "1e3", " ", "\0"])
def test_unknown_steps_are_a_sentence(step, capsys):
    assert cli.main(["check", step]) == 1
    message = capsys.readouterr().err
    assert message.startswith("course check: There is no step ")
    assert STEPS[1].name in message


def test_a_step_without_a_kernel_has_nothing_to_check(capsys):
    assert cli.main(["check", "0"]) == 0
    assert "no kernel to check" in capsys.readouterr().out


def test_check_runs_the_reference_kernel(capsys):
    assert cli.main(["check", "naive", "--on", "cpu"]) == 0
    assert capsys.readouterr().out.startswith("01_naive: ")


def test_a_failed_check_exits_with_1(monkeypatch, tmp_path, capsys):
    step = cli_step("naive")
    broken = step.kernel_path.read_text(encoding="utf-8").replace("sum += a * b", "sum -= a * b")
    assert "sum -=" in broken
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / step.kernel_path.name).write_text(broken)
    monkeypatch.setattr("helpers.course.steps.ROOT", tmp_path)
    assert cli.main(["check", "naive", "--on", "cpu"]) == 1
    assert "01_naive: " in capsys.readouterr().out


def cli_step(slug: str):
    return next(step for step in STEPS if step.slug == slug)


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_notebook_is_a_sentence_to_every_command(damage, tmp_path, monkeypatch, capsys):
    path = tmp_path / "notebooks" / "99_x.ipynb"
    path.parent.mkdir()
    path.write_bytes(DAMAGED[damage])
    monkeypatch.setattr(notebooks.paths, "__defaults__", (tmp_path,))
    for words in (["slides", str(path), "--no-execute", "--output", str(tmp_path)], ["sync"], ["sync", "--check"]):
        assert cli.main(words) == 1
        assert capsys.readouterr().err.startswith(f"course {words[0]}: {path} is not a notebook that can be read: ")
    assert path.read_bytes() == DAMAGED[damage]


def test_arguments_reach_pytest_and_its_exit_code_comes_back():
    collected = course("test", "tests/front/test_cli.py", "--collect-only", "-q", "-k", "reach_pytest")
    assert collected.returncode == 0
    assert "test_arguments_reach_pytest" in collected.stdout
    assert course("test", "tests/none.py").returncode == 4  # pytest: usage error


def test_the_recorder_answers_for_its_own_arguments():
    answer = course("record", "--help")
    assert answer.returncode == 0
    assert "--sizes" in answer.stdout


def test_the_whole_suite_runs_on_workers(monkeypatch):
    called = []

    def run(command, **options):
        called.append(command)
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(subprocess, "run", run)
    assert cli.main(["test"]) == 3
    assert cli.main(["test", "--all"]) == 3
    workers = ["--numprocesses", str(min(2, processors.available()))]
    assert [command[3:] for command in called] == [[*workers, "--cases", "next/20"], workers]


def test_an_environment_for_readers_gets_what_the_tests_need(monkeypatch):
    called = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: called.append(command) or subprocess.CompletedProcess(command, 3))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("UV", "/somewhere/uv")
    assert cli.main(["test", "-k", "lab"]) == 3
    assert called[0][:2] == ["/somewhere/uv", "run"]
    assert called[0][-6:] == ["--group", "test", "course", "test", "-k", "lab"]


def test_interrupting_is_not_a_traceback(monkeypatch):
    def interrupted(**options):
        raise KeyboardInterrupt

    monkeypatch.setattr("helpers.front.notebooks.sync", interrupted)
    assert cli.main(["sync"]) == 130


# ------------------------------------------------------------------------------------------------------- course lab


def test_lab_opens_the_first_lesson_and_the_readers_arguments_come_last(tmp_path):
    args = lab.arguments(tmp_path, ["--port", "9999"])
    assert f"--ServerApp.root_dir={tmp_path}" in args
    assert "--LabApp.default_url=/lab/tree/00_start_here.ipynb" in args
    assert args[-2:] == ["--port", "9999"]


def test_lab_puts_the_extension_first_and_keeps_the_readers_paths():
    environment = lab.environment({"JUPYTER_PATH": "/mine", "HOME": "/home"})
    assert environment["JUPYTER_PATH"].split(os.pathsep) == [str(lab.FOLDER), "/mine"]
    assert environment["JUPYTER_CONFIG_PATH"] == str(lab.FOLDER / "config")
    assert environment["HOME"] == "/home"


def test_the_notebooks_nearest_to_the_reader_are_opened(tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / lab.FIRST).write_text("{}")
    deeper = tmp_path / "notebooks" / "mine"
    deeper.mkdir()
    assert lab.course_root(deeper) == tmp_path


def test_without_notebooks_the_reader_is_told_where_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "FOLDER", tmp_path / "site-packages" / "helpers" / "front" / "lab")
    with pytest.raises(CourseError, match="There is no notebooks/00_start_here.ipynb"):
        lab.course_root(tmp_path)


def test_macos_is_told_what_works_before_it_starts():
    assert "NVRTC" in lab.compiler_notice("darwin")
    assert lab.compiler_notice("linux") is None
    assert lab.compiler_notice("win32") is None


def test_who_asks_for_a_language_is_told_how_much_is_in_it():
    lessons, begun = len(notebooks.paths()) - 1, len(translation.translated_catalogues("zh")) - 1
    assert begun >= 4 and lab.language_notice("en") is None
    assert lab.language_notice("zh") == f"Of {lessons} lessons {begun} are in zh, as far as they are translated; the others are in English."
    assert lab.language_notice("ko") == "Nothing is translated into ko yet, so the lessons are in English."


def test_jupyterlab_finds_the_extension_asks_no_questions_and_numbers_the_lines():
    """What JupyterLab itself makes of our search paths."""
    code = (
        "import os, json; from helpers.front import lab; os.environ.update(lab.environment(dict(os.environ)))\n"
        "from jupyter_core.paths import jupyter_path\n"
        "from jupyter_server.extension.config import ExtensionConfigManager\n"
        "from jupyterlab_server.config import get_federated_extensions, get_static_page_config\n"
        "from jupyterlab_server.settings_utils import _get_overrides\n"
        "found = get_federated_extensions(jupyter_path('labextensions'))['gemm-ladder']\n"
        "from jupyter_core.paths import jupyter_config_path\n"
        "servers = ExtensionConfigManager(read_config_path=jupyter_config_path()).get_jpserver_extensions()\n"
        "print(json.dumps([found['ext_dir'], _get_overrides('')[0], get_static_page_config(level='all')]))\n"
        "print('serving', [name for name, on in servers.items() if on and name.startswith('nbgrader')])\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert str(lab.FOLDER / "labextensions") in printed
    assert '"fetchNews": "false"' in printed
    assert '"checkForUpdates": false' in printed
    assert '"codeCellConfig": {"lineNumbers": true' in printed
    assert '"@jupyter/nbgrader": true' in printed and "serving []" in printed, "lessons are no assignments"


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """A reader's store of its own, with something in it."""
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path / "home"))
    own = store.own()
    own.answer("naive.sectors_a", 32, 32, step=1)
    own.answer("exercise.first_kernel", "solved", step=1)
    return own


def test_progress_goes_out_to_a_file_and_in_again(reader, tmp_path, monkeypatch, capsys):
    file = tmp_path / "mine.json"
    assert cli.main(["progress", "--export", str(file)]) == 0
    assert f"Saved in {file}: 2 rows." in capsys.readouterr().out
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path / "another"))
    for rows in (2, 0):
        assert cli.main(["progress", "--import", str(file)]) == 0
        said = capsys.readouterr().out
        assert f"Added from {file}: {rows} rows" in said and "--restore" not in said
    store.own().reset(1)
    assert cli.main(["progress", "--import", str(file)]) == 0
    said = capsys.readouterr().out
    assert "0 rows" in said and "Set aside here by a reset, and still so: 2 rows" in said and "--restore" in said
    assert cli.main(["progress", "--restore"]) == 0
    assert "Back again: 2 rows." in capsys.readouterr().out
    assert len(store.own().answers()) == 2


@pytest.mark.parametrize("command", [["progress", "--export"], ["ladder", "export", "--name", "Ada"], ["cheatsheet", "--output"]], ids=str)
def test_what_is_written_out_replaces_nothing_of_the_reader_s(command, reader, tmp_path, capsys):
    reader.climb(label="naive", kind="measured", device="H200 SXM", m=4096, n=4096, k=4096, milliseconds=30.0, source="kernel")
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    for file in (notes, reader.path):
        before = file.read_bytes()
        assert cli.main([*command, str(file)]) == 1
        assert "name another file" in capsys.readouterr().err and file.read_bytes() == before
    for _ in range(2):  # its own may be written anew
        assert cli.main([*command, str(tmp_path / "made")]) == 0
    assert len(reader.answers()) >= 2


@pytest.mark.parametrize(
    "wish, said",
    [
        (["--port", "99999999"], "--port: 99999999 is none: give a whole number from 0 to 65535"),
        (["--port", "-1"], "--port: -1 is none"),
        (["--seconds", "nan"], "--seconds: nan is none: give a number of seconds above 0"),
        (["--seconds", "-1"], "--seconds: -1 is none"),
        (["--queued", "0"], "--queued: 0 is none: give a whole number, at least 1"),
        (["--simulated", "x"], "--simulated: x is none: give a whole number, at least 0"),
    ],
    ids=str,
)
def test_limits_of_the_shared_gpu_are_numbers_that_can_be(wish, said, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["gpu", "serve", *wish])
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_a_socket_that_is_something_else_is_a_sentence(tmp_path):
    wish = ["gpu", "serve", "--simulated", "1", "--folder", str(tmp_path / "gpu"), "--socket", str(tmp_path)]
    ended = subprocess.run([sys.executable, "-m", "helpers.front.cli", *wish], cwd=cli.ROOT, capture_output=True, text=True)
    assert ended.returncode == 1 and f"cannot listen at {tmp_path}" in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "wishes, said",
    [
        (["--reset", "1", "--restore"], "contradict each other"),
        (["--yes"], "no --reset STEP is there"),
        (["--reset", "", "--yes"], "There is no step ''"),
        (["--export", ""], "Which file?"),
        (["--import", ""], "Which file?"),
    ],
    ids=str,
)
def test_wishes_that_say_nothing_or_two_things_change_nothing(wishes, said, reader, capsys):
    assert cli.main(["progress", *wishes]) == 1
    assert said in capsys.readouterr().err and len(reader.answers()) == 2


@pytest.mark.parametrize("words", [["progress"], ["check", "20"]], ids=str)
def test_who_has_read_enough_ends_a_command_quietly(words, reader):
    """As `| head` does; here nobody reads at all."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "helpers.front.cli", *words]
    said = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    os.close(writing)
    assert (said.returncode, said.stderr) == (141, "")


def test_a_class_ladder_with_a_file_that_cannot_be_read_is_no_success(reader, tmp_path, capsys):
    reader.climb(label="naive", kind="measured", device="H200 SXM", m=4096, n=4096, k=4096, milliseconds=30.0, source="kernel")
    good, bad = str(tmp_path / "ada.json"), tmp_path / "max.json"
    assert cli.main(["ladder", "export", good, "--name", "Ada"]) == 0
    assert f"Saved in {good}: 1 rung, with the source" in capsys.readouterr().out
    bad.write_text("none")
    assert (cli.main(["ladder", "merge", good]), cli.main(["ladder", "merge", good, str(bad)])) == (0, 1)
    said = capsys.readouterr().out
    assert "max.json" in said and said.count("Ada") == 2


def test_a_reset_asks_first_and_can_be_taken_back(reader, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    assert cli.main(["progress", "--reset", "naive"]) == 1
    assert (
        "what is kept of 01_naive, 2 rows: climbs, predictions and solved exercises" in capsys.readouterr().out
        and len(reader.answers()) == 2
    )
    assert cli.main(["progress", "--reset", "2", "--yes"]) == 0 and len(reader.answers()) == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    assert cli.main(["progress", "--reset", "all"]) == 0
    assert not reader.answers()
    assert cli.main(["progress", "--restore"]) == 0
    assert len(reader.answers()) == 2
    assert cli.main(["progress", "--reset", "99"]) == 1


def test_what_a_full_disk_does_not_save_is_not_said_to_be(reader, tmp_path, monkeypatch, capsys):
    file = tmp_path / "mine.json"
    assert cli.main(["progress", "--export", str(file)]) == 0
    capsys.readouterr()

    def refused(self, work, write=True):
        if write:
            raise sqlite3.OperationalError("database or disk is full")
        return really_run(self, work, write)

    really_run = store.Store._run_on_file
    reader.reset(None)
    before = reader.path.read_bytes()
    monkeypatch.setattr(store.Store, "_run_on_file", refused)
    for words in (["--import", str(file)], ["--restore"], ["--reset", "all", "--yes"]):
        fresh = store.Store(reader.path.parent)
        monkeypatch.setattr("helpers.course.store.own", lambda fresh=fresh: fresh)
        assert cli.main(["progress", *words]) == 1
        said = capsys.readouterr()
        assert "Nothing was saved" in said.err and "disk is full" in said.err and "row" not in said.out
    assert reader.path.read_bytes() == before


def test_a_newer_file_is_shown_and_not_changed(reader, monkeypatch, capsys):
    with contextlib.closing(sqlite3.connect(reader.path)) as db:
        db.execute("PRAGMA user_version = 99")
    before = reader.path.read_bytes()
    monkeypatch.setattr("helpers.course.store.own", lambda: store.Store(reader.path.parent))
    assert cli.main(["progress"]) == 0
    said = capsys.readouterr()
    assert "update the course" in said.err and "1 of 4" in said.out
    assert cli.main(["progress", "--reset", "all", "--yes"]) == 1
    assert "so nothing was done" in capsys.readouterr().err
    assert reader.path.read_bytes() == before


def test_where_there_can_be_no_page_of_progress_the_first_lesson_is_opened(monkeypatch, tmp_path, capsys):
    def full(folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("helpers.front.opening.write", full)
    assert lab._page(tmp_path) == lab.FIRST
    assert "No space left on device" in capsys.readouterr().err
