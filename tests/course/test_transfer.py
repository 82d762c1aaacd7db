"""The reader's work in a file: all of it comes over, once, and a file that is no good changes nothing."""

from __future__ import annotations

import json
import os

import pytest

from helpers.course import history, standing, transfer
from helpers.course.store import Store
from helpers.errors import CourseError


@pytest.fixture
def full(tmp_path):
    """A store with a row in each table."""
    store = Store(tmp_path / "one")
    store.climb(kind="predicted", label="naive", device="H200 SXM", m=64, n=64, k=64, step=1, milliseconds=1.0, source="code")
    store.answer("naive.sectors_a", 32, 32.0, step=1)
    history.keep("naive", "text × of a cell", store)
    history.judged("naive", "text × of a cell", "passed", store)
    return store


def everything(store):
    return {name: [tuple(row)[1:] for row in store.rows(f"SELECT * FROM {name}")] for name in transfer.TABLES}


def test_another_store_gets_all_and_gets_it_once(full, tmp_path):
    other = Store(tmp_path / "two")
    other.answer("naive.sectors_b", 1, step=1)
    assert transfer.export(full, tmp_path / "file.json") == 5
    assert transfer.load(other, tmp_path / "file.json").added == 5
    assert other.answers(question="naive.sectors_a")[0].truth == 32 and len(other.answers()) == 2
    assert history.history("naive", other)[1] == "text × of a cell"
    before = everything(other)
    full.reset()  # what one store has set aside since is no new row for another
    transfer.export(full, tmp_path / "file.json")
    assert transfer.load(other, tmp_path / "file.json").added == 0
    assert everything(other) == before


def test_what_a_reset_has_set_aside_is_counted_and_stays_so(full, tmp_path):
    transfer.export(full, tmp_path / "before.json")
    full.reset()
    transfer.export(full, tmp_path / "after.json")
    assert transfer.load(full, tmp_path / "before.json") == transfer.Loaded(added=0, set_aside=2)
    assert transfer.load(full, tmp_path / "after.json") == transfer.Loaded(added=0, set_aside=0)
    assert not full.answers() and full.restore() == 2
    assert transfer.load(full, tmp_path / "before.json") == transfer.Loaded(added=0, set_aside=0)


def test_the_latest_answer_holds_whichever_file_it_comes_from(tmp_path):
    early, late = Store(tmp_path / "early"), Store(tmp_path / "late")
    for store, answer in ((early, 1), (late, 2), (early, 3), (late, 4)):
        store.answer("naive.sectors_b", answer, step=1)
    transfer.export(early, tmp_path / "early.json")
    transfer.export(late, tmp_path / "late.json")
    transfer.load(late, tmp_path / "early.json")
    transfer.load(early, tmp_path / "late.json")
    assert [item.answer for item in late.answers()] == [1, 3, 2, 4]
    assert [item.answer for item in early.answers()] == [2, 1, 3, 4]


def test_a_file_of_an_older_course_is_brought_up_to_date(full, tmp_path):
    """Schema 2: steps 11 and 12 of then are 12 and 13, and C has the type of A."""
    transfer.export(full, tmp_path / "file.json")
    content = json.loads((tmp_path / "file.json").read_text())
    content["schema"] = 2
    climb = content["tables"]["climbs"][0]
    climb |= {"step": 11, "dtype": "float16"}
    del climb["out_dtype"]
    (tmp_path / "file.json").write_text(json.dumps(content))
    new = Store(tmp_path / "new")
    assert transfer.load(new, tmp_path / "file.json").added == 5
    assert (new.climbs()[0].step, new.climbs()[0].out_dtype) == (12, "float16")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is damaged, or no file of"),
        ("[]", "is no file of"),
        ('{"course": "gemm-ladder"}', "does not say what version"),
        ('{"course": "gemm-ladder", "what": "class ladder", "format": 1, "climbs": []}', "which `course ladder merge` shows"),
        ('{"course": "gemm-ladder", "format": 2, "schema": 1, "tables": {}}', "newer version of the course"),
        ('{"course": "gemm-ladder", "format": 1, "schema": 99, "tables": {}}', "newer version of the course"),
        ('{"course": "gemm-ladder", "format": 1, "schema": 4, "tables": {"answers": [1]}}', "its tables are not as"),
        ('{"course": "gemm-ladder", "format": 1, "schema": 4, "tables": {"answers": [{"step": 1}]}}', "a row is not as"),
        ("[" * 100_000, "is damaged, or no file of"),
        ('{"course": "gemm-ladder", "format": true, "schema": true, "tables": {}}', "does not say what version"),
        (
            '{"course": "gemm-ladder", "format": 1, "schema": 4, "tables": {"sources": [{"hash": "\\ud800", "text": "x"}]}}',
            "its tables are not as",
        ),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_good_is_a_sentence_and_changes_nothing(full, tmp_path, text, said):
    before = everything(full)
    if text is not None:
        (tmp_path / "file.json").write_text(text)
    with pytest.raises(CourseError, match=said) as error:
        transfer.load(full, tmp_path / "file.json")
    assert "your progress is as it was" in error.value.message
    assert everything(full) == before


def test_a_file_that_cannot_be_written_is_a_sentence(full, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CourseError, match="cannot be written"):
        transfer.export(full, tmp_path / "file" / "mine.json")


def test_a_file_that_an_editor_has_saved_anew_comes_over(full, tmp_path):
    transfer.export(full, tmp_path / "file.json")
    text = (tmp_path / "file.json").read_text(encoding="utf-8")
    (tmp_path / "file.json").write_bytes(("\ufeff" + text.replace("\n", "\r\n")).encode())
    assert transfer.load(Store(tmp_path / "other"), tmp_path / "file.json").added == 5


def test_a_pipe_is_no_file(full, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CourseError, match="cannot be read"):
        transfer.load(full, tmp_path / "pipe")


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        ("climbs", "created", ["x", "", "9999", "0001-01-01T00:00:00+00:00", "2026-01-01"]),
        ("climbs", "step", ["x", 1.5]),
        ("climbs", "k", ["x", -1, 1.5, 1 << 40]),
        ("climbs", "tflops", ["x", -1.0, float("inf")]),
        ("climbs", "cublas_ratio", ["x"]),
        ("climbs", "kind", ["x"]),
        ("climbs", "dtype", ["x", 5]),
        ("climbs", "counters", ["x", "null", "[]"]),
        ("answers", "created", ["x", 5]),
        ("answers", "step", ["x"]),
        ("answers", "answer", ["{", ""]),
        ("runs", "created", ["x", 5]),
    ],
)
def test_a_row_that_was_edited_by_hand_breaks_nothing(full, tmp_path, table, column, values):
    """Whatever it says, what stands beside it is shown."""
    transfer.export(full, tmp_path / "file.json")
    for number, value in enumerate(values):
        content = json.loads((tmp_path / "file.json").read_text())
        content["tables"][table].append({**content["tables"][table][0], column: value})
        (tmp_path / "edited.json").write_text(json.dumps(content))
        other = Store(tmp_path / f"{number}")
        assert transfer.load(other, tmp_path / "edited.json").added == 6, value
        kept = 2 if column in ("created", "step") else 1  # when and where can be unknown
        climbs, answers = len(other.climbs()), len(other.answers())
        assert (climbs, answers) == {"climbs": (kept, 1), "answers": (1, kept), "runs": (1, 1)}[table], value
        assert standing.standing(other).table() and history.history("naive", other).table()
