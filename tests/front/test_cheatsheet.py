"""The cheat sheet says what the code says."""

import re

from helpers.course import evidence
from helpers.course.steps import STEPS
from helpers.front import cheatsheet, cli


def test_every_step_with_what_was_recorded_and_nothing_from_elsewhere(tmp_path, capsys):
    assert cli.main(["cheatsheet", "--output", str(tmp_path / "new" / "sheet.html")]) == 0
    page = (tmp_path / "new" / "sheet.html").read_text(encoding="utf-8")
    assert str(tmp_path) in capsys.readouterr().out
    assert not re.findall(r"(?:src|href)=(?!'data:,')", page)  # an empty icon, so that no browser asks for one
    for step in STEPS:
        assert not step.entry or f"{step.number:02} {step.title}" in page
        if step.entry:
            tflops = evidence.recorded(step.slug, cheatsheet.SIZE).rows[0].tflops
            assert f"<td>{tflops:.{1 if tflops < 100 else 0}f}</td>" in page
    assert "<tr><td>2</td><td>8</td><td>2</td><td>2</td><td>–</td></tr>" in page  # a stride of two floats
    assert "<tr><td class=left>8 × 8</td><td>64</td><td>16</td><td>0.25</td></tr>" in page


def test_where_it_cannot_be_written_is_a_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert cli.main(["cheatsheet", "--output", str(tmp_path / "file" / "sheet.html")]) == 1
    assert "cannot be written" in capsys.readouterr().err
