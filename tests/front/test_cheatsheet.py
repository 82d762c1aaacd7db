"""The cheat sheet says what the code says."""

import dataclasses
import re

from helpers.course import evidence
from helpers.course.steps import STEPS, get
from helpers.front import cheatsheet, cli


def test_every_step_with_what_was_recorded_and_nothing_from_elsewhere(tmp_path, capsys):
    assert cli.main(["cheatsheet", "--output", str(tmp_path / "new" / "sheet.html")]) == 0
    page = (tmp_path / "new" / "sheet.html").read_text(encoding="utf-8")
    assert str(tmp_path) in capsys.readouterr().out
    assert not re.findall(r"(?:src|href)=(?!'data:,')", page)  # an empty icon, so that no browser asks for one
    for step in STEPS:
        assert not step.entry or f"{step.number:02} {step.title}" in page
        if step.entry:
            times = evidence.on_record(step.slug, cheatsheet.SIZE).rows
            cells = [f"<td>{one.tflops:.{1 if one.tflops < 100 else 0}f}</td>" for one in times] or ["<td>not recorded</td>"]
            assert cells[0] in page
    assert "<tr><td>2</td><td>8</td><td>2</td><td>2</td><td>–</td></tr>" in page  # a stride of two floats
    assert "<tr><td class=left>8 × 8</td><td>64</td><td>16</td><td>0.25</td></tr>" in page


def test_a_step_that_was_not_recorded_is_on_it_without_a_time(monkeypatch):
    real = evidence.on_record

    def all_but_one(step, *sizes, **options):
        found = real(step, *sizes, **options)
        return dataclasses.replace(found, rows=()) if step == "vectorized" else found

    missing = "<td>not recorded</td><td></td><td></td>"
    others = cheatsheet.page().count(missing)  # steps that are new
    monkeypatch.setattr(evidence, "on_record", all_but_one)
    page = cheatsheet.page()
    assert page.count(missing) == others + 1 and f"{get('vectorized').number:02d} " in page


def test_where_it_cannot_be_written_is_a_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert cli.main(["cheatsheet", "--output", str(tmp_path / "file" / "sheet.html")]) == 1
    assert "cannot be written" in capsys.readouterr().err
