"""The glossary: its data, and looking a word up."""

import re

import pytest

from helpers.course.glossary import glossary, terms
from helpers.course.notebook_file import read, source
from helpers.course.quizzes import parts
from helpers.course.steps import STEPS
from helpers.errors import CourseError
from helpers.front.tooltips import unmarked
from helpers.sim.counting import names

# Short phrases in bold that stress a point and name nothing, and what everybody knows.
STRESSED = set("""
    `x` counts fastest; check; explain; measure; practise; predict; published; recorded; see; the kernel; together; 32 neighbouring; below;
    far apart; the same; for K; next; one; per block; different; down a column; instructions; more wavefronts; waiting; begins; width; the
    numbering; loses; of this thread; started; back and forth; cycles per FFMA; placeholders; two banks; it lost; all of it; requested; sum;
    column; pieces; receive; row; asynchronous; before; cuTile
""".replace("\n    ", " ").strip().split("; "))  # fmt: skip
KNOWN = {"cuBLAS", "CUTLASS", "GPU", "GPUs", "FP32", "SXM"}


def test_terms_are_plain_and_told_once():
    spellings = [spelling.lower() for term in terms() for spelling in term.spellings]
    assert len(spellings) == len(set(spellings)) and len(terms()) >= 50
    for term in terms():
        assert term.means.endswith(".") and not set(term.means) & set('"|$`[]<>*_\\'), f"{term.name}: this cannot be a title"
        assert term.means.count(". ") <= 1, f"{term.name} takes more than two sentences"


def test_counters_are_spelt_as_the_machine_spells_them():
    known = {*names.MEANINGS, *(names.warp_state(state) for state in ("long scoreboard", "short scoreboard"))}
    named = {word for term in terms() for word in term.nvidia.split() if word.endswith((".sum", ".ratio")) or "_sum" in word}
    assert named and named <= known


@pytest.mark.parametrize(
    "word",
    ["wavefront", "Wavefronts", "bank conflicts", "FFMA", "multiply-add", "half warp", "L1 cache", "L2 caches", "Half-warps", "CTA",
     "warp specialization", "vectorized load", "split K", "`cp.async`", "XOR swizzling", "__syncthreads()"],
)  # fmt: skip
def test_a_word_is_found_in_any_spelling(word):
    (term,) = glossary(word).terms
    assert term.means in str(glossary(word)) and term.step.name in glossary(word)._repr_html_()


def test_what_a_lesson_puts_in_bold_is_found():
    """Short phrases in bold that begin with a small letter or are an abbreviation are terms, or stressed."""
    cells = [unmarked(source(cell)) for step in STEPS for cell in read(step.notebook_path)["cells"] if cell["cell_type"] == "markdown"]
    bold = {" ".join(text.split()) for cell in cells for text in re.findall(r"\*\*([^*]+)\*\*", cell)}
    terse = {text for text in bold if len(text.split()) <= 3 and not re.search(r"[.:,]$|^[A-Z]\w*[a-z]|^A |^[\d.]+$|=", text)}
    assert len(terse) > 60 and terse >= STRESSED
    for text in terse - STRESSED - KNOWN:
        glossary(text)


def test_what_a_quiz_abbreviates_is_found():
    asked = [text for part in parts() for one in part.questions for text in (one.text, *one.choices, one.because, *one.wrong.values())]
    words = set(re.findall(r"(?<![.\w])(?:[A-Za-z]*[A-Z]{2,}\w*|L\d|half-warps?)(?![.\w])", " ".join(asked)))
    assert {"FFMA", "BF16", "half-warp"} <= words
    for word in words - KNOWN:
        glossary(word)


@pytest.mark.parametrize(("word", "near"), [("wavefrnt", "wavefront"), ("qqq", "all words"), (3, "all words")])
def test_a_word_that_is_not_there_is_a_sentence(word, near):
    with pytest.raises(CourseError, match=near):
        glossary(word)
