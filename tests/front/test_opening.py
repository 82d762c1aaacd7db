"""The page that `course lab` opens."""

from __future__ import annotations

import json

from helpers.course import store
from helpers.front import opening
from helpers.front.notebooks import backups


def test_the_page_is_brought_up_to_date_and_keeps_what_a_reader_added(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    page = opening.write(tmp_path / "lessons")
    notebook = json.loads(page.read_text())
    assert "Level 1, Lane: 0 XP" in "".join(notebook["cells"][1]["outputs"][0]["data"]["text/html"])
    notebook["cells"].append({"cell_type": "markdown", "id": "mine", "metadata": {}, "source": ["a note"]})
    page.write_text(json.dumps(notebook))
    store.own().answer("exercise.intensity", "solved", step=0)
    cells = json.loads(opening.write(tmp_path / "lessons").read_text())["cells"]
    assert [cell["id"] for cell in cells][2:] == ["mine"]
    assert "50 XP" in "".join(cells[1]["outputs"][0]["data"]["text/html"])
    page.write_text("{ damaged")
    assert len(json.loads(opening.write(tmp_path / "lessons").read_text())["cells"]) == 2
    assert "{ damaged" in {path.read_text() for path in backups().iterdir()}
