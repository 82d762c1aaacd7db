"""The reader's lessons survive every update of the course, and the course's survive every reader."""

from __future__ import annotations

import errno
import json
import random
import subprocess

import pytest

from helpers.course.notebook_file import dumps, source
from helpers.files import one_at_a_time
from helpers.front import lessons
from helpers.front.notebooks import METADATA, backups
from helpers.toolchain import installation
from tests.test_files import NO_FILES, in_the_way


def notebook(**cells: str) -> dict:
    """A shipped notebook: id -> source."""
    made = [
        {"cell_type": "code", "id": name, "metadata": {}, "source": text, "execution_count": None, "outputs": []}
        for name, text in cells.items()
    ]
    return {"cells": made, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def texts(made: dict) -> dict[str, str]:
    return {cell["id"]: source(cell) for cell in made["cells"]}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path / "home"))


@pytest.fixture
def course(tmp_path):
    """Writes a version of the course; its folder."""

    def ship(**cells: str):
        (tmp_path / "course" / "notebooks").mkdir(parents=True, exist_ok=True)
        (tmp_path / "course" / "notebooks" / "00_start_here.ipynb").write_text(dumps(notebook(**cells)), encoding="utf-8")
        return tmp_path / "course"

    return ship


def own() -> dict:
    return json.loads((lessons.own_folder() / "00_start_here.ipynb").read_text(encoding="utf-8"))


def save(made: dict, **metadata) -> None:
    """What JupyterLab does when the reader saves."""
    made["metadata"] = METADATA | {"language_info": {"name": "python", "version": "3.99"}, **metadata}
    (lessons.own_folder() / "00_start_here.ipynb").write_text(json.dumps(made), encoding="utf-8")


def test_the_repository_is_only_read(course):
    root = course(a="1", b="2")
    before = (root / "notebooks" / "00_start_here.ipynb").read_bytes()
    assert lessons.update(root) == []
    assert (lessons.own_folder() / "00_start_here.ipynb").read_bytes() == before
    save(own())
    assert lessons.update(root) == [], "nothing to do until the course changes"
    assert own()["metadata"]["language_info"]["version"] == "3.99"
    assert (root / "notebooks" / "00_start_here.ipynb").read_bytes() == before


def test_an_update_keeps_edits_outputs_and_cells_of_the_reader_and_brings_the_rest(course):
    lessons.update(course(title="# old", kernel="old kernel", same="1 + 1", exercise="starter", gone="x", dropped="y"))
    mine = own()
    cells = {cell["id"]: cell for cell in mine["cells"]}
    cells["exercise"]["source"] = ["my\n", "answer"]
    cells["same"] |= {"outputs": [{"output_type": "stream", "name": "stdout", "text": "2"}], "execution_count": 3}
    cells["dropped"]["source"] = "mine too"
    mine["cells"] = [cell for cell in mine["cells"] if cell["id"] != "gone"]
    mine["cells"].insert(4, {**cells["same"], "id": "added", "source": "my own cell"})
    save(mine)

    said = lessons.update(course(title="# new", kernel="new kernel", extra="new cell", same="1 + 1", exercise="better starter", gone="x"))

    got = texts(own())
    assert list(got.items()) == [
        ("title", "# new"), ("kernel", "new kernel"), ("extra", "new cell"), ("same", "1 + 1"), ("exercise", "my\nanswer"),
        ("added", "my own cell"), ("dropped", "mine too"),
    ]  # fmt: skip
    assert own()["cells"][3]["outputs"][0]["text"] == "2" and own()["metadata"]["language_info"]["version"] == "3.99"
    assert "changed by you and by the course, and left as you have it: 1 cell (exercise)." in said[0]
    assert "up to date with the course: 1 lesson. You had run or changed 1 of them" in said[1] and str(backups()) in said[1]
    (copy,) = backups().iterdir()
    assert json.loads(copy.read_text()) == mine


def test_lessons_that_an_update_renews_are_counted(course):
    root = course(a="1")
    for number in (1, 2, 3):
        (root / "notebooks" / f"0{number}_more.ipynb").write_text(dumps(notebook(a="1")), encoding="utf-8")
    assert lessons.update(root) == [], "they are new"
    for number in (1, 2):
        (root / "notebooks" / f"0{number}_more.ipynb").write_text(dumps(notebook(a="2")), encoding="utf-8")
    assert lessons.update(root) == ["Brought up to date with the course: 2 lessons."]
    mine = own()
    mine["cells"][0]["source"] = "mine"
    save(mine)
    (root / "notebooks" / "03_more.ipynb").write_text(dumps(notebook(a="2")), encoding="utf-8")
    (said,) = lessons.update(course(a="1", b="1"))
    assert said.startswith("Brought up to date with the course: 2 lessons. You had run or changed 1 of them: what is yours stays")
    assert texts(own()) == {"a": "mine", "b": "1"}


def test_what_cannot_be_read_is_kept_and_made_anew(course):
    root = course(a="1")
    for number, damage in enumerate((b"", b"{", b"[]", b'{"nbformat": 4}', b'{"nbformat": 4, "cells": [{"id": 3}]}', b"\xff\xfe", b"null")):
        lessons.update(root)
        (lessons.own_folder() / "00_start_here.ipynb").write_bytes(damage)
        (said,) = lessons.update(course(a=str(number + 2)))
        assert "could not be read" in said and texts(own()) == {"a": str(number + 2)}
        assert damage in [copy.read_bytes() for copy in backups().iterdir()]


def test_what_the_copies_were_made_from_may_be_lost(course):
    lessons.update(course(a="1", b="1"))
    mine = own()
    mine["cells"][0]["source"] = "mine"
    save(mine)
    for file in (lessons.own_folder() / lessons.SHIPPED).iterdir():
        file.write_bytes(b"{")
    lessons.update(course(a="2", b="1", c="1"))
    assert texts(own()) == {"a": "mine", "b": "1", "c": "1"}


@pytest.mark.parametrize("seed", range(200))
def test_no_edit_is_ever_lost(course, seed):
    """Random versions of the course and random readers: every text the reader typed is in the notebook afterwards."""
    chance = random.Random(seed)
    names = "abcdefgh"

    def version() -> dict[str, str]:
        return {name: chance.choice("12") for name in chance.sample(names, chance.randint(1, len(names)))}

    lessons.update(course(**version()))
    typed = set()
    for round in range(3):
        mine = own()
        for _ in range(chance.randint(0, 4)):
            what, at = chance.random(), chance.randrange(len(mine["cells"]) + 1)
            text = f"typed {seed} {round} {chance.random()}"
            if what < 0.4 and at < len(mine["cells"]):
                typed.discard(source(mine["cells"][at]))
                mine["cells"][at]["source"] = text
                typed.add(text)
            elif what < 0.7:
                cell = notebook(**{f"own{len(mine['cells'])}{round}{at}": text})["cells"][0]
                mine["cells"].insert(at, cell if chance.random() < 0.8 else {k: v for k, v in cell.items() if k != "id"})
                typed.add(text)
            elif at < len(mine["cells"]):
                typed.discard(source(mine["cells"].pop(at)))
        save(mine)
        shipped = version()
        root = course(**shipped)
        lessons.update(root)
        assert typed <= {source(cell) for cell in own()["cells"]}
        untouched = {name: text for name, text in texts_with_id(own()).items() if name in shipped and text not in typed}
        assert all(text == shipped[name] for name, text in untouched.items())
        assert lessons.update(root) == []


def texts_with_id(made: dict) -> dict[str, str]:
    return {cell["id"]: source(cell) for cell in made["cells"] if "id" in cell}


def test_a_lesson_with_another_number_takes_the_readers_copy_along(course, tmp_path):
    root = course(a="1", b="1")
    shipped = root / "notebooks"
    (shipped / "11_tune.ipynb").write_text(dumps(notebook(a="tune", b="1")), encoding="utf-8")
    (shipped / "12_fuse.ipynb").write_text(dumps(notebook(a="fuse", b="1")), encoding="utf-8")
    lessons.update(root)
    mine = json.loads((lessons.own_folder() / "11_tune.ipynb").read_text(encoding="utf-8"))
    mine["cells"][0]["source"] = "my tune"
    (lessons.own_folder() / "11_tune.ipynb").write_text(json.dumps(mine), encoding="utf-8")
    (shipped / "12_fuse.ipynb").rename(shipped / "13_fuse.ipynb")
    (shipped / "12_tune.ipynb").write_text(dumps(notebook(a="tune", b="2")), encoding="utf-8")
    (shipped / "11_tune.ipynb").write_text(dumps(notebook(z="plan")), encoding="utf-8")
    (shipped / "11_tune.ipynb").rename(shipped / "11_plan.ipynb")
    said = " ".join(lessons.update(root))
    assert "11_tune.ipynb is 12_tune.ipynb now" in said and "12_fuse.ipynb is 13_fuse.ipynb now" in said
    found = {path.name: texts(json.loads(path.read_text(encoding="utf-8"))) for path in lessons.own_folder().glob("1*.ipynb")}
    assert found == {
        "11_plan.ipynb": {"z": "plan"}, "12_tune.ipynb": {"a": "my tune", "b": "2"}, "13_fuse.ipynb": {"a": "fuse", "b": "1"},
    }  # fmt: skip
    assert lessons.update(root) == []


def test_a_folder_that_refuses_is_a_sentence_and_the_lessons_open(course, monkeypatch):
    root = course(a="1")

    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(lessons, "write_whole", full)
    folder, (said,) = lessons.opened(root)
    assert folder == root / "notebooks" and "No space left" in said and "GEMM_LADDER_HOME" in said
    monkeypatch.undo()
    monkeypatch.setenv("GEMM_LADDER_HOME", str(root.parent / "home"))
    lessons.update(root)
    mine = own()
    mine["cells"][0]["source"] = "mine"
    save(mine)
    course(a="2")
    monkeypatch.setattr("helpers.front.notebooks.write_whole", full)
    folder, (said,) = lessons.opened(root)
    assert folder == lessons.own_folder() and "not brought up to date" in said and texts(own()) == {"a": "mine"}


@NO_FILES
def test_a_copy_that_is_no_file_is_a_sentence(course, what):
    lessons.update(course(a="1"))
    in_the_way(lessons.own_folder() / "00_start_here.ipynb", what)
    root = course(a="2")
    folder, said = lessons.opened(root)
    assert folder == lessons.own_folder()
    assert texts(own()) == {"a": "2"} if what == "link to itself" else "00_start_here.ipynb cannot be used" in said[0]


def test_a_damaged_lesson_of_the_course_costs_no_copy(course):
    root = course(a="1")
    lessons.update(root)
    mine = own()
    mine["cells"][0]["source"] = "mine"
    save(mine)
    (root / "notebooks" / "00_start_here.ipynb").write_bytes(b"{")
    folder, (said,) = lessons.opened(root)
    assert folder == lessons.own_folder() and texts(own()) == {"a": "mine"}
    assert "is not a notebook that can be read" in said and "Your copy stays as it is" in said


def test_half_a_character_of_the_readers_survives_an_update(course):
    lessons.update(course(a="1", b="1"))
    mine = own()
    mine["cells"][0]["source"] = "\ud800"
    save(mine)
    lessons.update(course(a="1", b="2"))
    assert texts(own()) == {"a": "\ud800", "b": "2"}


def test_two_at_once_wait_for_each_other(course, monkeypatch):
    root = course(a="1")
    monkeypatch.setattr(lessons, "_PATIENCE", 0.1)
    with one_at_a_time(lessons.own_folder() / lessons.SHIPPED / ".turn", 0.1):
        folder, (said,) = lessons.opened(root)
    assert folder == root / "notebooks" and "another process of the course" in said
    assert lessons.opened(root) == (lessons.own_folder(), [])


def test_git_pull_finds_nothing_in_its_way(course, tmp_path):
    """Two versions of the course in git, a clone, and a reader who edits every lesson in between."""

    def git(*words: str, folder):
        options = ("-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=main")
        return subprocess.run(["git", *options, *words], cwd=folder, check=True, capture_output=True, text=True).stdout

    origin = course(a="1", b="1")
    git("init", folder=origin)
    git("add", "-A", folder=origin)
    git("commit", "-m", "one", folder=origin)
    git("clone", str(origin), str(tmp_path / "clone"), folder=tmp_path)
    folder, said = lessons.opened(tmp_path / "clone")
    assert folder == lessons.own_folder() and said == []
    mine = own()
    mine["cells"][0]["source"] = "mine"
    save(mine)
    course(a="2", b="2")
    git("commit", "-am", "two", folder=origin)
    assert git("status", "--porcelain", folder=tmp_path / "clone") == ""
    git("pull", folder=tmp_path / "clone")
    lessons.opened(tmp_path / "clone")
    assert texts(own()) == {"a": "mine", "b": "2"}


def test_a_lecturer_s_notes_are_not_in_the_reader_s_copy(course):
    root = course(title="# one", notes="**2 min.** Ask.", kernel="old")
    path = root / "notebooks" / "00_start_here.ipynb"
    made = json.loads(path.read_text(encoding="utf-8"))
    made["cells"][1]["metadata"] = {"slideshow": {"slide_type": "notes"}}
    path.write_text(dumps(made), encoding="utf-8")
    assert lessons.update(root) == []
    assert texts(own()) == {"title": "# one", "kernel": "old"}
    before = (lessons.own_folder() / "00_start_here.ipynb").stat().st_mtime_ns
    made["cells"][1]["source"] = "**3 min.** Ask."
    path.write_text(dumps(made), encoding="utf-8")
    assert lessons.update(root) == []
    assert (lessons.own_folder() / "00_start_here.ipynb").stat().st_mtime_ns == before, "other notes are no other lesson"


@pytest.mark.parametrize(("choice", "tags"), [("nvrtc", ["machine-code"]), ("clang", ["machine-code", "raises-exception"])])
def test_run_all_goes_on_behind_what_asks_for_machine_code_where_there_is_none(choice, tags, monkeypatch):
    monkeypatch.setenv(installation.CHOICE, choice)
    plain = {"cell_type": "code", "id": "plain", "metadata": {}, "source": "1"}
    asks = plain | {"id": "asks", "metadata": {"tags": ["machine-code"]}}
    made = lessons.for_readers({"cells": [plain, asks]})["cells"]
    assert made == [plain, asks | {"metadata": {"tags": tags}}]
    assert asks["metadata"]["tags"] == ["machine-code"]
