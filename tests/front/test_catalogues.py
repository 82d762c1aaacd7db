"""Translations keep up with the English text, change nothing but words, and hold no code.

Tests of: helpers.translation
"""

import json
from types import SimpleNamespace

import nbformat
import pytest
from babel.messages.catalog import Message

from helpers import translation
from helpers.course.glossary import terms
from helpers.course.notebook_file import dumps, read, source
from helpers.course.steps import STEPS, get
from helpers.errors import CourseError
from helpers.front import catalogues, lessons
from helpers.front.notebooks import METADATA
from helpers.front.site import build
from helpers.front.site.lesson_html import Body, Pictures, with_anchors_of
from helpers.translation import catalogue_path, read_catalogue
from tests import must_be_as_synced

COMPLETE = [("zh", name) for name in (catalogues.SITE, "00_start_here", "01_naive", "02_coalesced", "03_shared_tile")]
ANCHORS = {term.anchor for term in terms()}


@pytest.mark.parametrize(("language", "name"), COMPLETE)
def test_what_is_said_to_be_translated_is_and_is_not_outdated(language, name):
    assert catalogues.untranslated(name, language) == []


@pytest.mark.parametrize(("language", "name"), catalogues.present())
def test_a_catalogue_follows_the_english_text_and_changes_words_only(language, name):
    path = catalogue_path(language, name)
    must_be_as_synced(path, catalogues.refreshed(name, language))
    wrong = {}
    for message in read_catalogue(path, language):
        if message.id and not message.fuzzy and (found := catalogues.distorted(message)):
            wrong[message.id[:60]] = found
    assert wrong == {}


@pytest.mark.parametrize(
    ("english", "other", "wrong"),
    [
        ("`A[k]` and $K$", "$K$ 和 `A[k]`", []),
        ("`A[k]` and $K$", "`A[K]` 和 $K$", ["`A[k]`", "`A[K]`"]),
        ("[a](b.ipynb)", "[甲](c.ipynb)", ["](b.ipynb)", "](c.ipynb)"]),
        ("And <b>B</b>?", "B 呢？", ["<b>", "</b>"]),
        ("## Check", "检查", ["the level of a heading"]),
        ("**Bold.** Text", "**粗体。**文字", ["粗体。**文字"]),
        ("is **[a](b)**.", "是**[甲](b)**。", ["是**[甲](b)"]),
        ("is **bold**, and", "是**粗体**，而且", []),
    ],
)
def test_what_a_translation_may_not_change_is_named(english, other, wrong):
    assert catalogues.distorted(Message(english, other)) == wrong


LONG = "A warp executes an instruction together, and the machine counts it once for all lanes."


@pytest.fixture
def lesson(tmp_path, monkeypatch):
    """Ships a lesson `one` of these Markdown cells and one of code; its translations begin empty, in tmp_path."""
    step = SimpleNamespace(name="one", notebook_path=tmp_path / "course/notebooks/one.ipynb")
    monkeypatch.setattr(catalogues, "STEPS", (step,))
    monkeypatch.setattr(translation, "FOLDER", tmp_path / "translations")
    monkeypatch.setattr(catalogues, "FOLDER", tmp_path / "translations")
    (tmp_path / "translations/zh").mkdir(parents=True)
    step.notebook_path.parent.mkdir(parents=True)
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path / "home"))

    def ship(*texts: str):
        cells = [{"cell_type": "markdown", "id": f"m{i}", "metadata": {}, "source": text} for i, text in enumerate(texts)]
        code = '%load_ext helpers\nask("naive.x", "How many?")'
        cells.append({"cell_type": "code", "id": "code", "metadata": {}, "source": code, "execution_count": None, "outputs": []})
        notebook = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
        step.notebook_path.write_text(dumps(notebook), encoding="utf-8")
        translation.translations.cache_clear()
        return tmp_path / "course"

    yield ship
    translation.translations.cache_clear()


def translate(**words: str) -> None:
    """Write the catalogue of `one` anew and put these translations into it, each by the first word of its English."""
    path = catalogue_path("zh", "one")
    text = catalogues.refreshed("one", "zh")
    for first, other in words.items():
        begin = text.index(f'msgid "{first}')
        at = text.index('msgstr ""', begin)
        text = text[:at] + f"msgstr {json.dumps(other, ensure_ascii=False)}" + text[at + len('msgstr ""') :]
    path.write_text(text, encoding="utf-8")
    translation.translations.cache_clear()


def test_a_changed_paragraph_is_outdated_named_and_english_again(lesson):
    lesson(f"{LONG}\n\nSecond.", 'Third [warp](glossary.ipynb#warp "32 threads").')
    translate(A="甲", Second="乙", Third="丙 [线程束](glossary.ipynb#warp)", How="多少？")
    assert catalogues.untranslated("one", "zh") == []

    lesson(f"{LONG.replace('an instruction', 'one instruction')}\n\nSecond.", 'Third\n[warp](glossary.ipynb#warp "else").', "Fourth.")
    text = catalogues.refreshed("one", "zh")
    assert "#, fuzzy" in text and '#| msgid "A warp executes an' in text
    catalogue_path("zh", "one").write_text(text, encoding="utf-8")
    outdated, missing = catalogues.untranslated("one", "zh")
    assert "cell m0: outdated: A warp executes one" in outdated and "cell m2: missing: Fourth." in missing
    shown = catalogues.translated_notebook(read(catalogues.STEPS[0].notebook_path), "one", "zh")["cells"]
    assert source(shown[0]) == f"{LONG.replace('an instruction', 'one instruction')}\n\n乙" and source(shown[2]) == "Fourth."
    means = next(term.means for term in terms() if term.anchor == "warp")
    assert source(shown[1]) == f'丙 [线程束](glossary.ipynb#warp "{means}")', "line breaks and what a tooltip shows are no change"


def test_another_language_changes_the_text_of_a_readers_copies_and_not_their_code(lesson):
    root = lesson("First.", "Second.")
    translate(First="甲。")
    lessons.update(root)
    own = lessons.own_folder() / "one.ipynb"
    mine = json.loads(own.read_text(encoding="utf-8"))
    mine["cells"][2]["source"] = "my kernel"
    own.write_text(json.dumps(mine), encoding="utf-8")
    for language, text in (("zh", "甲。"), ("en", "First.")):
        lessons.update(root, language=language)
        cells = json.loads(own.read_text(encoding="utf-8"))["cells"]
        assert [source(cell) for cell in cells] == [text, "Second.", "my kernel"]


@pytest.mark.parametrize("step", STEPS[:4], ids=lambda step: step.name)
def test_a_translated_lesson_has_the_cells_and_the_code_of_the_one_notebook(step):
    english = lessons.for_readers(read(step.notebook_path))
    assert catalogues.translated_notebook(english, step.name, "ko") == english, "nothing is translated yet"
    chinese = catalogues.translated_notebook(english, step.name, "zh")
    for cell, other in zip(english["cells"], chinese["cells"], strict=True):
        assert cell == other if cell["cell_type"] == "code" else cell["id"] == other["id"]
        linked, also = (set(catalogues.linked_terms(source(one))) for one in (cell, other))
        assert linked == also and linked <= ANCHORS, f"cell {cell['id']}"


def test_a_language_that_is_not_there_is_a_sentence():
    with pytest.raises(CourseError, match=r"not in 'xx'\. There are: en, zh"):
        translation.known("xx")


def test_the_site_has_a_page_in_each_language_with_the_same_addresses(tmp_path):
    step = get("naive")
    notebook = nbformat.read(step.notebook_path, 4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [
                nbformat.v4.new_output("display_data", {"text/html": f"<p>{text}</p>"}) for text in catalogues.questions(cell.source)
            ]
    pages = build.in_all_languages(step, notebook, Pictures(tmp_path / "pictures"), tmp_path / "kernels", False)
    assert [page.address for page in pages] == ["01_naive.html", "01_naive.zh.html"]
    english, chinese = pages
    assert [part.anchor for part in english.sections] == [part.anchor for part in chinese.sections]
    assert (
        chinese.title == "01 · 朴素实现"
        and "会触及多少个扇区？</p>" in chinese.content
        and "And its load of <b>B</b>?</p>" not in chinese.content
    )
    menu = build.in_menu([build.home(STEPS), build.home(STEPS, "zh"), *pages], "zh")
    assert [page.address for page in menu] == ["index.zh.html", "01_naive.zh.html"]
    assert build.to_language(menu, '<a href="01_naive.html#see">') == '<a href="01_naive.zh.html#see">'
    with pytest.raises(CourseError, match="0 headings instead of 1"):
        with_anchors_of(Body('<h1 id="a">One</h1>', ()), Body("<p>one</p>", ()))
