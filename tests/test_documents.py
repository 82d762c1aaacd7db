"""What the pages name is there: files, folders, and modules that are run."""

import re

import nbformat
import pytest

from helpers.course.exercises import exercises
from helpers.course.quizzes import parts
from helpers.course.steps import STEPS
from tests import ROOT
from tests.test_project import tracked

GUIDES = ("helpers/guides/learner.md", "helpers/guides/instructor.md")
PAGES = (
    "README.md", "CONTRIBUTING.md", "helpers/guides/lectures.md", "helpers/guides/library.md", "deploy/README.md", "helpers/sim/README.md",
    "helpers/sim/native/README.md", "kernels/LOG.md", *GUIDES,
)  # fmt: skip
FILES = [path.relative_to(ROOT).as_posix() for path in tracked()]


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page):
    named = set(re.findall(r"`([\w./-]+\.(?:py|cu|cuh|md|toml|json|ipynb|yaml|js))`", (ROOT / page).read_text(encoding="utf-8")))
    named = {name for name in named if not name.startswith(".cu") and "NN_" not in name}
    assert not {name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in FILES)}


@pytest.mark.parametrize("page", PAGES)
def test_every_folder_that_a_page_names_exists(page):
    named = set(re.findall(r"`((?:helpers|tests|kernels|notebooks)/[\w./-]*)/`", (ROOT / page).read_text(encoding="utf-8")))
    assert not {name for name in named if not any(file.startswith(f"{name}/") for file in FILES)}


@pytest.mark.parametrize("page", PAGES)
def test_every_module_that_a_page_runs_exists(page):
    named = set(re.findall(r"python -m ((?:helpers|tests)[\w.]*)", (ROOT / page).read_text(encoding="utf-8")))
    assert not {name for name in named if f"{name.replace('.', '/')}.py" not in FILES}


@pytest.mark.parametrize("page", GUIDES)
def test_a_guide_leads_to_files_that_exist_and_is_two_screens_at_most(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert links and all(((ROOT / page).parent / link).resolve().is_file() for link in links)
    assert sum(1 + len(line) // 160 for line in text.split("\n")) <= 90


def test_the_instructor_s_table_is_what_the_lessons_say():
    text = (ROOT / "helpers/guides/instructor.md").read_text(encoding="utf-8")
    for part in parts():
        stated = [re.search(r"\*About (\d+) minutes", STEPS[number].notebook_path.read_text(encoding="utf-8")) for number in part.lessons]
        minutes = sum(int(found[1]) for found in stated)
        count = sum(one.lesson in part.lessons for one in exercises().values())
        first, last = part.lessons[0], part.lessons[-1]
        which = f"{first:02}" if first == last else f"{first:02} to {last:02}"
        row = f"| {part.title} | {which} | {minutes} | {count} |"
        assert row in text.split("\n"), f"helpers/guides/instructor.md lacks the row `{row}` in its table of parts"


def test_the_learner_s_guide_names_the_lessons_that_end_a_part():
    text = (ROOT / "helpers/guides/learner.md").read_text(encoding="utf-8")
    *others, last = (f"{part.lessons[-1]:02}" for part in parts())
    wanted = f"(lessons {', '.join(others)} and {last})"
    assert wanted in text, f"helpers/guides/learner.md does not say `{wanted}`"


def test_lecture_plans_name_sections_and_exercises_that_are_there():
    plans = (ROOT / "helpers/guides/lectures.md").read_text(encoding="utf-8").partition("## One hour")[2]
    notebooks = [nbformat.read(path, 4).cells for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    text = "\n".join(cell.source for cells in notebooks for cell in cells if cell.cell_type == "markdown")
    sections = set(re.findall(r"^#+ (.+)$", text, re.M)) | set(re.findall(r"\*\*([^*]+?)\.?\*\*", text))
    named = set(re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", plans))
    assert {name for name in named if name not in sections and name.rstrip(".") not in sections} == set()
    tags = {tag.partition(":")[2] for cells in notebooks for cell in cells for tag in cell.metadata.get("tags", ())}
    assert {name for name in re.findall(r"`([a-z]+_[a-z_]+|intensity|tail|rotate)`", plans) if name not in tags} == set()


def test_a_day_s_plan_has_every_lesson_and_its_lecture_s_minutes():
    plans = (ROOT / "helpers/guides/lectures.md").read_text(encoding="utf-8").partition("## Two days")[2]
    notes = {}
    for step in STEPS:
        cells = nbformat.read(step.notebook_path, 4).cells
        texts = [cell.source for cell in cells if cell.metadata.get("slideshow", {}).get("slide_type") == "notes"]
        notes[f"{step.number:02}"] = sum(int(found[1]) for text in texts if (found := re.match(r"\*\*(\d+) min", text)))
    rows = re.findall(r"^\| \d+ \| ([\d, ]+) \| (\d+) \|", plans, re.M)
    planned, told = [lesson for lessons, _ in rows for lesson in lessons.split(", ")], {name for name, minutes in notes.items() if minutes}
    apart = sorted(told.symmetric_difference(planned))
    assert not apart, f"in helpers/guides/lectures.md, below `## Two days`, and in the notes of the lessons are not the same ones: {apart}"
    sums = {lessons: (sum(notes[lesson] for lesson in lessons.split(", ")), int(minutes)) for lessons, minutes in rows}
    wrong = {lessons: pair for lessons, pair in sums.items() if abs(pair[0] - pair[1]) > 4}
    assert not wrong, f"minutes of the notes, and of helpers/guides/lectures.md below `## Two days`: {wrong}"
