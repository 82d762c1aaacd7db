"""What a reader saw is in the saved notebook: it is shown again when the kernel that drew it is gone."""

from __future__ import annotations

import json

from helpers.course.steps import STEPS

NAME = "kept.ipynb"
CELLS = {
    "set-up": "%load_ext helpers\nfrom helpers import ask, exercise, reference, widgets\nfrom helpers.progress import Progress\nimport time",
    "question": "ask('naive.sectors_a', 'How many sectors?', unit='sectors')",
    "choice": "ask('naive.which', 'Which of them?', choices=('fewer', 'more', 'more, ' + 80 * 'and more '))",
    "picture": "widgets.tiles(reference('shared_tile').gemm(64, on='cpu', trace=True))",
    "again": "widgets.ladder()",
    "task": "exercise('two_columns')",
    "bar": "with Progress('counting') as progress:\n    for i in range(30):\n        progress(i, 30)\n        time.sleep(0.05)",
}  # fmt: skip
INDEX = {name: number for number, name in enumerate(CELLS)}
DEAD = "Error displaying widget"


def save(notebook) -> None:
    """Save once the pictures in the notebook were renewed, as the reader's own pause before Ctrl-S lets them."""
    notebook.page.wait_for_timeout(1500)
    notebook.command("docmanager:save")


def reopen(notebook) -> None:
    """End the kernel, and open the saved notebook with a new one, as after a restart of the server."""
    notebook.lab.shut_down(notebook.lab.sessions())
    notebook.open()
    notebook.page.wait_for_timeout(3000)


def test_what_was_seen_is_shown_without_its_kernel(open_notebook, lab, complaints):
    lab.write(NAME, CELLS)
    notebook = open_notebook(NAME).run_all()
    assert notebook.error_outputs() == []
    question = notebook.show(INDEX["question"])
    question.locator("input").fill("17")
    question.get_by_role("button", name="Commit").click()
    notebook.wait_for(question, "You said: 17 sectors")
    choice = notebook.show(INDEX["choice"])
    choice.get_by_text("more", exact=True).click()
    places = choice.locator("input").evaluate_all("found => found.map(button => [button.offsetLeft, button.offsetWidth])")
    assert len({left for left, _ in places}) == 1 and min(wide for _, wide in places) > 5, "a long choice hides its button"
    picture = notebook.show(INDEX["picture"])
    picture.get_by_title("step along K: one forward").click()
    notebook.wait_for(picture, "Step 1 (of 0 to 1)")
    seen = notebook.alternatives(picture)
    task = notebook.show(INDEX["task"])
    task.get_by_role("button", name="Hint").click()
    hint = task.locator("ol li").inner_text()
    save(notebook)

    reopen(notebook)
    for name in CELLS:
        shown = notebook.show(INDEX[name])
        assert DEAD not in shown.inner_text() and "Loading widget" not in shown.inner_text(), name
    assert notebook.alternatives(notebook.show(INDEX["picture"])) == seen
    notebook.wait_for(notebook.show(INDEX["question"]), "You said: 17 sectors")
    assert "more" in notebook.show(INDEX["choice"]).locator(".jp-OutputArea").inner_text()
    assert hint in notebook.show(INDEX["task"]).inner_text()
    assert len(notebook.alternatives(notebook.show(INDEX["again"]))) == 1
    assert "counting" not in notebook.show(INDEX["bar"]).locator(".jp-OutputArea").inner_text()
    notebook.wait_for(notebook.show(INDEX["question"]), "last seen")
    assert "last seen" not in notebook.show(INDEX["bar"]).inner_text()
    notebook.screenshot("kept")
    # JupyterLab's widgets say of every widget that its model is gone; it is what the pictures are for.
    complaints.errors = [text for text in complaints.errors if "model not found" not in text]

    notebook.run_all()
    assert notebook.error_outputs() == []
    assert notebook.sliders(notebook.show(INDEX["picture"]))


def test_running_a_cell_again_renews_its_picture_and_its_controls(open_notebook, lab):
    lab.write(NAME, CELLS)
    notebook = open_notebook(NAME).run_all()
    cell = notebook.show(INDEX["picture"])
    for _ in range(2):
        notebook.run_cell(INDEX["picture"])
        notebook.wait_until_idle()
        notebook.wait_for(cell, "Step 0 (of 0 to 1)")
        cell.get_by_title("step along K: one forward").click()
        notebook.wait_for(cell, "Step 1 (of 0 to 1)")
        cell.get_by_title("step along K: one back").click()
        notebook.wait_for(cell, "Step 0 (of 0 to 1)")
    assert cell.locator(".jp-OutputArea img:visible").count() == 1


def test_opening_running_and_saving_a_lesson_leaves_the_repository_alone(open_notebook, lab):
    shipped = {path: path.read_bytes() for path in sorted((lab.shipped / "notebooks").iterdir())}
    notebook = open_notebook(STEPS[0].notebook_path.name).run_all()
    save(notebook)
    own = json.loads((lab.root / STEPS[0].notebook_path.name).read_text(encoding="utf-8"))
    assert any(cell.get("outputs") for cell in own["cells"]), "the reader's own copy has what was run"
    assert {path: path.read_bytes() for path in sorted((lab.shipped / "notebooks").iterdir())} == shipped


def test_restore_brings_the_lesson_s_own_kernel_in_a_new_cell(open_notebook, lab):
    lab.write("restore.ipynb", {"set-up": "%load_ext helpers\nimport helpers", "raises": "%%cuda naive\nmine", "back": "naive.restore()"})
    notebook = open_notebook("restore.ipynb")
    for index in range(3):
        notebook.run_cell(index)
        notebook.wait_until_idle()
    sources = notebook.page.evaluate(
        "() => [...window.jupyterapp.shell.currentWidget.content.model.cells].map(cell => cell.sharedModel.getSource())"
    )
    assert sources[1] == "%%cuda naive\nmine", "the reader's own is as it was"
    assert sources[3] == f"%%cuda naive\n{STEPS[1].kernel_path.read_text(encoding='utf-8').rstrip()}"
